"""A flat map on which regions are built, with a bound on how far it lies.

A `planar` space is its own map. On the globe the map is the azimuthal equidistant
projection at a centre: it has no pole and no antimeridian, and it never shortens. Within
`reach_m` of the centre, true distance ≤ map distance ≤ `stretch` · true distance, so what is
farther than `stretch · r` on the map is farther than r on the globe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError
from nearcast.mobility import kernels
from nearcast.model.geometry import Space

__all__ = ["EARTH_RADIUS_M", "FARTHEST_M", "Plane", "bearing", "distance", "distances"]

EARTH_RADIUS_M = 6_371_008.8
#: How far a map of the globe may go: an eighth of the way round, where `stretch` is 1.11.
FARTHEST_M = EARTH_RADIUS_M * math.pi / 4

Floats = npt.NDArray[np.float64]


def distance(space: Space, x1: float, y1: float, x2: float, y2: float) -> float:
    """Metres on the globe (haversine), units on a plane."""
    if space == "planar":
        return math.hypot(x2 - x1, y2 - y1)
    p1, p2 = math.radians(y1), math.radians(y2)
    s, t = math.sin((p2 - p1) / 2), math.sin(math.radians(x2 - x1) / 2)
    a = s * s + math.cos(p1) * math.cos(p2) * t * t
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(a)))


def bearing(space: Space, x1: float, y1: float, x2: float, y2: float) -> float:
    """Degrees clockwise from north, 0 … 360, in which the second place lies from the first."""
    if space == "planar":
        return math.degrees(math.atan2(x2 - x1, y2 - y1)) % 360
    turn, p1, p2 = math.radians(x2 - x1), math.radians(y1), math.radians(y2)
    north = math.cos(p1) * math.sin(p2) - math.sin(p1) * math.cos(p2) * math.cos(turn)
    return math.degrees(math.atan2(math.cos(p2) * math.sin(turn), north)) % 360


def distances(space: Space, x: float, y: float, xs: Floats, ys: Floats) -> Floats:
    """`distance` from one place to many."""
    if space == "planar":
        flat: Floats = np.hypot(xs - x, ys - y)
        return flat
    p1, p2 = math.radians(y), np.radians(ys)
    s, t = np.sin((p2 - p1) / 2), np.sin(np.radians(xs - x) / 2)
    a = s * s + math.cos(p1) * np.cos(p2) * t * t
    found: Floats = 2 * EARTH_RADIUS_M * np.arcsin(np.minimum(1.0, np.sqrt(a)))
    return found


@dataclass(frozen=True, slots=True)
class Plane:
    """A map centred at (x0, y0); metres east and north on the globe, the space's own units else.

    >>> plane = Plane("globe", 179.9, 0.0, 50_000.0)
    >>> [round(v) for v in plane.to_map(-179.9, 0.0)]
    [22239, 0]
    """

    space: Space
    x0: float
    y0: float
    reach_m: float
    _sin0: float = field(init=False, repr=False, compare=False)
    _cos0: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.space == "globe" and not 0 <= self.reach_m <= FARTHEST_M * 1.000001:
            raise ValidationError("reach_m", self.reach_m, f"give at most {FARTHEST_M:.0f} m")
        globe = self.space == "globe"
        object.__setattr__(self, "_sin0", math.sin(math.radians(self.y0)) if globe else 0.0)
        object.__setattr__(self, "_cos0", math.cos(math.radians(self.y0)) if globe else 1.0)

    @property
    def frame(self) -> tuple[bool, float, float, float, float]:
        """What kernels take for it: whether it is of the globe, its centre, sine and cosine."""
        return self.space == "globe", self.x0, self.y0, self._sin0, self._cos0

    @property
    def stretch(self) -> float:
        """How much longer than in truth a distance within reach may look on the map."""
        if self.space == "planar" or self.reach_m == 0.0:
            return 1.0
        angle = self.reach_m / EARTH_RADIUS_M
        return angle / math.sin(angle) * (1 + 1e-12)

    def to_map(self, x: float, y: float) -> tuple[float, float]:
        """The place on the map; infinitely far away if it is out of reach. About 1 µs."""
        if self.space == "planar":
            return x - self.x0, y - self.y0
        turn, phi = math.radians(x - self.x0), math.radians(y)
        sin, cos = math.sin(phi), math.cos(phi)
        east, north = cos * math.sin(turn), self._cos0 * sin - self._sin0 * cos * math.cos(turn)
        s = math.hypot(east, north)
        if self._sin0 * sin + self._cos0 * cos * math.cos(turn) <= 0.0:
            return math.inf, math.inf
        angle = math.asin(min(1.0, s))
        if angle * EARTH_RADIUS_M > self.reach_m:
            return math.inf, math.inf
        scale = EARTH_RADIUS_M * (angle / s if s > 0.0 else 1.0)
        return scale * east, scale * north

    def to_map_many(self, x: Any, y: Any) -> tuple[Floats, Floats]:
        """`to_map` for arrays; nothing is too far, but what lies behind is put at the rim."""
        xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if self.space == "planar":
            return xs - self.x0, ys - self.y0
        turn, phi = np.radians(xs - self.x0), np.radians(ys)
        sin, cos = np.sin(phi), np.cos(phi)
        east, north = cos * np.sin(turn), self._cos0 * sin - self._sin0 * cos * np.cos(turn)
        s = np.hypot(east, north)
        angle = np.arctan2(s, self._sin0 * sin + self._cos0 * cos * np.cos(turn))
        scale = EARTH_RADIUS_M * np.divide(angle, s, out=np.ones_like(s), where=s > 0.0)
        return scale * east, scale * north

    def from_map(self, u: float, v: float) -> tuple[float, float]:
        """The place of a point of the map."""
        if self.space == "planar":
            return u + self.x0, v + self.y0
        rho = math.hypot(u, v)
        angle = rho / EARTH_RADIUS_M
        sinc = math.sin(angle) / rho if rho > 0.0 else 1 / EARTH_RADIUS_M
        up = math.cos(angle) * self._sin0 + v * sinc * self._cos0
        east, on = u * sinc, self._cos0 * math.cos(angle) - self._sin0 * v * sinc
        lon = (self.x0 + math.degrees(math.atan2(east, on)) + 180.0) % 360.0 - 180.0
        return lon, math.degrees(math.atan2(up, math.hypot(east, on)))

    def from_map_many(self, u: Any, v: Any) -> tuple[Floats, Floats]:
        """`from_map` for arrays."""
        us, vs = np.asarray(u, np.float64), np.asarray(v, np.float64)
        if self.space == "planar":
            return us + self.x0, vs + self.y0
        x, y = kernels.places_of(self.x0, self._sin0, self._cos0, us.ravel(), vs.ravel())
        return x.reshape(us.shape), y.reshape(us.shape)
