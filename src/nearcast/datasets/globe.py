"""Distances and directions on the globe for arrays, and a flat map round a place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["METRES_PER_DEGREE", "bearing_deg", "haversine_m", "to_lonlat", "to_plane"]

Array = NDArray[np.float64]

_EARTH_RADIUS_M = 6_371_008.8
#: Metres of one degree along a meridian.
METRES_PER_DEGREE = math.pi * _EARTH_RADIUS_M / 180


def haversine_m(lon1: Any, lat1: Any, lon2: Any, lat2: Any) -> Array:
    """Metres between pairs of places."""
    phi1, phi2 = np.radians(lat1), np.radians(lat2)
    half = np.sin((phi2 - phi1) / 2) ** 2
    half += np.cos(phi1) * np.cos(phi2) * np.sin(np.radians(np.subtract(lon2, lon1)) / 2) ** 2
    distance: Array = 2 * _EARTH_RADIUS_M * np.arcsin(np.sqrt(half))
    return distance


def bearing_deg(lon1: Array, lat1: Array, lon2: Array, lat2: Array) -> Array:
    """The direction from the first places to the second, degrees clockwise from north."""
    phi1, phi2, turn = np.radians(lat1), np.radians(lat2), np.radians(lon2 - lon1)
    east = np.sin(turn) * np.cos(phi2)
    north = np.cos(phi1) * np.sin(phi2) - np.sin(phi1) * np.cos(phi2) * np.cos(turn)
    bearing: Array = np.degrees(np.arctan2(east, north)) % 360
    return bearing


def to_plane(lon: Array, lat: Array, lon0: float, lat0: float) -> tuple[Array, Array]:
    """Metres east and north of (lon0, lat0); true to 0.2 % within 10 km at our latitudes."""
    east = (lon - lon0) * METRES_PER_DEGREE * math.cos(math.radians(lat0))
    return east, (lat - lat0) * METRES_PER_DEGREE


def to_lonlat(east: Array, north: Array, lon0: float, lat0: float) -> tuple[Array, Array]:
    """The inverse of `to_plane`."""
    lon = lon0 + east / (METRES_PER_DEGREE * math.cos(math.radians(lat0)))
    return lon, lat0 + north / METRES_PER_DEGREE
