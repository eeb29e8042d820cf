"""Extended events as they are: how far away they lie, and their outlines on a map.

On a plane both are exact. On the globe an edge is straight in longitude and latitude, and
a distance is taken on the subscriber's own map, on which the same edge runs a little
differently from place to place. `slop` bounds by how much; whoever keeps that much more distance
is right wherever the subscriber goes. Where an edge is so long that this says nothing, the
shape is *vast*, and a circle round it stands for it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.kernels import geometry
from nearcast.matcher.places import shape_floats
from nearcast.mobility import kernels
from nearcast.mobility.plane import EARTH_RADIUS_M, Plane, distance
from nearcast.model.geometry import Box, Location, Point, Polygon, Space

__all__ = ["Outline", "gap_of", "outline_of", "room_round", "spot_of"]

Floats = npt.NDArray[np.float64]

_DEGREE_M = math.pi * EARTH_RADIUS_M / 180
#: Edges longer than this many degrees, or nearer than this to a pole, make a shape vast.
_LONGEST = 5.0
_NORTHMOST = 88.0
#: How far from the centre of a map a corner may lie to be drawn there.
_FARTHEST_M = math.pi * EARTH_RADIUS_M / 3
#: No two places are farther from each other.
_HALF_WAY_M = math.pi * EARTH_RADIUS_M


class Outline(NamedTuple):
    """A shape on a map: edges (ax, ay, bx, by), the floats of its polygon, and its slop."""

    edges: Floats
    polygon: Floats
    slop: float


def spot_of(location: Location, space: Space) -> tuple[float, float, float]:
    """A point and a distance from it within which all of a location lies."""
    if isinstance(location, Point):
        return location.x, location.y, 0.0
    if isinstance(location, Box):
        turn = 360.0 if location.xmin > location.xmax else 0.0
        xs = np.linspace(location.xmin, location.xmax + turn, 9)
        ys = np.linspace(location.ymin, location.ymax, 9)
        corners = [(x, y) for x in xs.tolist() for y in ys.tolist()]
        x, y = float(xs[4]), float(ys[4])
        pieces = (xs[1] - xs[0], ys[1] - ys[0])
    else:
        xmin, ymin, xmax, ymax = location.bounds
        corners = list(location.exterior)
        x, y = (xmin + xmax) / 2, (ymin + ymax) / 2
        ring = np.array([*corners, corners[0]])
        pieces = tuple(np.abs(np.diff(ring, axis=0)).max(axis=0).tolist())
    if space == "globe":
        x = (x + 180.0) % 360.0 - 180.0
    far = max(distance(space, x, y, a, b) for a, b in corners)
    if space == "globe":  # between two corners an edge may bulge by what it spans
        far += 111_200.0 * float(np.hypot(*pieces)) / 2
    return x, y, far


def gap_of(location: Location, space: Space, x: float, y: float, reach: float) -> float:
    """How far a subscriber at (x, y) may go without coming nearer than `reach` to a location.

    Never more than that; negative where it is nearer already, or may be.
    """
    if isinstance(location, Point):
        return distance(space, x, y, location.x, location.y) - reach
    polygon = _polygon(location)
    more = _slop(polygon, reach) if space == "globe" else 0.0
    if more == math.inf:
        at_x, at_y, extent = spot_of(location, space)
        return distance(space, x, y, at_x, at_y) - extent - reach
    return float(kernels.shape_gap(polygon, x, y, space == "globe")) - more - reach


def outline_of(location: Location, plane: Plane, reach: float) -> Outline | None:
    """A box or polygon on a map, for distances of up to `reach`; None for a vast one."""
    polygon = _polygon(location)
    if plane.space == "planar":
        polygon[_corners(polygon)] -= plane.x0
        polygon[_corners(polygon) + 1] -= plane.y0
        return Outline(_edges(polygon), polygon, 0.0)
    more = _slop(polygon, reach + plane.reach_m)
    if more == math.inf:
        return None
    drawn: Floats = geometry.segmentized(polygon)
    at = _corners(drawn)
    u, v = plane.to_map_many(drawn[at], drawn[at + 1])
    if np.hypot(u, v).max() > _FARTHEST_M:
        return None
    drawn[at], drawn[at + 1] = u, v
    return Outline(_edges(drawn), drawn, more)


def room_round(location: Box | Polygon) -> Box:
    """A box on the globe that meets every circle which `gap_of` cannot tell from the location.

    Whatever map the location is drawn on, and the box too: each may be off by its slop.
    """
    polygon = _polygon(location)
    corners = polygon[1 + int(polygon[0]) :].reshape(-1, 2)
    (xmin, ymin), (xmax, ymax) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    box = _grown(xmin, ymin, xmax, ymax, 2 * _slop(polygon, _HALF_WAY_M) + 1.0)
    return _grown(box.xmin, box.ymin, box.xmax, box.ymax, 2 * _slop(_polygon(box), _HALF_WAY_M))


def _grown(xmin: float, ymin: float, xmax: float, ymax: float, more_m: float) -> Box:
    """A box larger by so many metres; all round the globe where that is no longer a box."""
    up = more_m / _DEGREE_M
    south, north = ymin - up, ymax + up
    if not max(-south, north) < _NORTHMOST:
        return Box(-180.0, -90.0, 180.0, 90.0)
    across = up / math.cos(math.radians(max(-south, north))) * (1 + 1e-9)
    west, east = xmin - across, xmax + across
    if west < -180.0 or east > 180.0:
        west, east = -180.0, 180.0
    return Box(west, south, east, north)


def _polygon(location: Location) -> Floats:
    kind, floats = shape_floats(location)
    polygon: Floats = geometry.as_polygon(kind, np.array(floats), 0)
    return polygon


def _edges(polygon: Floats) -> Floats:
    """Rows ax, ay, bx, by."""
    rings = int(polygon[0])
    counts = polygon[1 : 1 + rings].astype(np.int64)
    corners = polygon[1 + rings :].reshape(-1, 2)
    parts = np.split(corners, np.cumsum(counts)[:-1])
    return np.concatenate([np.hstack([ring, np.roll(ring, -1, axis=0)]) for ring in parts])


def _corners(polygon: Floats) -> npt.NDArray[np.int64]:
    """Where the x of each corner is."""
    return np.arange(1 + int(polygon[0]), polygon.size, 2)


def _slop(polygon: Floats, reach: float) -> float:
    """By how many metres an edge may run differently on two maps, or than in lon/lat.

    An arc of length L and curvature κ is at most κ L²/8 off its chord. A line that is straight in
    lon/lat has κ ≤ 2 tan φ/R against a great circle, one that is straight on a map κ ≤ ρ/R² at
    ρ from its centre.
    """
    edges = _edges(polygon)
    span = np.abs(edges[:, 2:] - edges[:, :2])
    steepest = np.abs(edges[:, 1::2]).max()
    if span.max() > _LONGEST or steepest > _NORTHMOST:
        return math.inf
    low = np.abs(edges[:, 1::2]).min(axis=1)
    length = float(np.hypot(span[:, 0] * np.cos(np.radians(low)), span[:, 1]).max()) * _DEGREE_M
    bent = 2 * math.tan(math.radians(steepest)) / EARTH_RADIUS_M
    drawn = 2 * (reach + length) / EARTH_RADIUS_M**2
    return (bent + drawn) * length * length / 8
