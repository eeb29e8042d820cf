"""VM: the Voronoi cell of the nearest event, without that event's disc (Elaps §3.1), exactly.

The cell is clipped on a map in which bisectors are straight: the plane itself, or the
gnomonic projection at the nearest event. The client compares distances, which needs no map.
Sites are events that are points; an extended one bounds how far the cell goes, and whoever is
nearer to it than that gets a ball.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nearcast.mobility import kernels
from nearcast.mobility.impact_region import BallImpact
from nearcast.mobility.plane import EARTH_RADIUS_M
from nearcast.mobility.safe_region import Sites
from nearcast.mobility.shapes import gap_of
from nearcast.mobility.situation import (
    Built,
    Floats,
    Look,
    Obstacles,
    Situation,
    ball,
    holding,
    slack,
)
from nearcast.model.geometry import Location, Space

__all__ = ["VoronoiImpact", "build"]

#: How far from its event a Voronoi cell may go on the globe: where the gnomonic map ends.
_EDGE_M = math.radians(80.0) * EARTH_RADIUS_M


@dataclass(frozen=True, slots=True)
class VoronoiImpact:
    """All places within r of a convex cell, given by its corners in order.

    On the globe corners are unit vectors and edges great circles.
    """

    space: Space
    corners: Floats
    radius: float
    circle: tuple[float, float, float]

    def covers(self, x: float, y: float) -> bool:
        """Whether a place is that near."""
        if self.space == "planar":
            gap = kernels.polygon_gap(self.corners, x, y)
        else:
            gap = EARTH_RADIUS_M * kernels.sphere_gap(self.corners, *_unit(x, y))
        return bool(gap <= self.radius)

    def meets(self, location: Location) -> bool:
        """Whether a shape comes into the circle round it."""
        return gap_of(location, self.space, *self.circle) <= 0

    def around(self) -> tuple[float, float, float] | None:
        """A circle round the nearest event."""
        return self.circle


def _unit(lon: float, lat: float) -> tuple[float, float, float]:
    a, b = math.radians(lon), math.radians(lat)
    return math.cos(b) * math.cos(a), math.cos(b) * math.sin(a), math.sin(b)


def build(situation: Situation, look: Look) -> Built:
    """The exact cell, which holds the subscriber's place; a circle stands for every form."""

    def rounded(x: float, y: float, radius: float) -> Obstacles:
        return look(x, y, radius).rounded()

    return holding(situation, look, _built(situation, rounded))


def _built(s: Situation, look: Look) -> Built:
    """The search widens until no farther event can cut the cell."""
    globe = s.space == "globe"
    widest = _EDGE_M if globe else 4096 * s.scale + 64 * s.known
    if not widest < 1e140:
        widest = math.inf
    known = max(4 * s.scale, 2 * s.known)
    while True:
        seen = look(s.x, s.y, known)
        if seen.x.size or seen.shapes or known >= 2 * widest:
            break
        known *= 4
    if seen.x.size == 0 or widest == math.inf or s.radius > widest / 4:
        alone = not seen.x.size and not seen.shapes
        return ball(s, look, widest if alone else known)._replace(size=s.known)
    gap = seen.gaps(s.space, s.x, s.y)[: seen.x.size]
    first = int(np.argmin(gap))
    site = (float(seen.x[first]), float(seen.y[first]), float(seen.reach[first]))
    # A hint by the size of the cell would let an open one grow without end, out of precision.
    near = float(gap[first]) + site[2]
    limit = min(widest, 8 * known)
    while True:
        seen = look(site[0], site[1], 2 * limit + 2 * s.radius)
        if seen.shapes:
            far = seen.gaps(s.space, site[0], site[1])[seen.x.size :].min() - slack(s)
            if far <= near:
                return ball(s, look, near)._replace(size=near)
            widest = limit = min(limit, float(far))
        corners, owners = _cell(s.space, site, seen, limit)
        far = _farthest(s.space, corners)
        if far <= limit or limit >= widest:
            break
        limit = min(widest, 4 * limit)
    shape, impact = _outlined(s, site, seen, corners, owners, limit)
    return Built(shape, impact, near)


def _bisector_points(space: Space, site: tuple[float, float, float], seen: Obstacles) -> Floats:
    """Half-planes a·u + b·v ≤ c on the map centred at the site; rows (a, b, c)."""
    if space == "planar":
        a, b = seen.x - site[0], seen.y - site[1]
        return np.stack([a, b, (a * a + b * b) / 2], axis=1)
    east, north, up = _frame(site)
    lon, lat = np.radians(seen.x), np.radians(seen.y)
    other = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    # nearer to the site: x · (site − other) ≥ 0 with x ∝ up + u · east + v · north
    return np.stack([other @ east, other @ north, 1.0 - other @ up], axis=1)


def _frame(site: tuple[float, float, float]) -> tuple[Floats, Floats, Floats]:
    lon, lat = math.radians(site[0]), math.radians(site[1])
    east = np.array([-math.sin(lon), math.cos(lon), 0.0])
    north = np.array([
        -math.sin(lat) * math.cos(lon), -math.sin(lat) * math.sin(lon), math.cos(lat)
    ])  # fmt: skip
    return east, north, np.array(_unit(site[0], site[1]))


def _cell(
    space: Space, site: tuple[float, float, float], seen: Obstacles, limit: float
) -> tuple[Floats, set[int]]:
    """Corners of the cell on its map, and which events its edges are with."""
    planes = _bisector_points(space, site, seen)
    planes[(seen.x == site[0]) & (seen.y == site[1])] = 0.0  # no bisector with itself
    side = limit if space == "planar" else math.tan(min(limit / EARTH_RADIUS_M, 1.45))
    corners, owners = kernels.clip_cell(planes, side)
    return corners, {int(i) for i in owners.tolist() if i >= 0}


def _farthest(space: Space, corners: Floats) -> float:
    if corners.size == 0:
        return 0.0
    far = float(np.hypot(corners[:, 0], corners[:, 1]).max())
    return far if space == "planar" else math.atan(far) * EARTH_RADIUS_M


def _outlined(
    s: Situation, site: tuple[float, float, float], seen: Obstacles, corners: Floats,
    owners: set[int], limit: float,
) -> tuple[Sites, VoronoiImpact | BallImpact]:  # fmt: skip
    more = slack(s)
    even = bool(np.all(seen.reach == site[2]))
    chosen = owners if even else set(range(seen.x.size))
    others = [
        (float(seen.x[i]), float(seen.y[i]), float(seen.reach[i]) + more)
        for i in sorted(chosen)
        if (seen.x[i], seen.y[i]) != (site[0], site[1]) or seen.reach[i] != site[2]
    ]
    shape = Sites(s.space, ((site[0], site[1], site[2] + more), *dict.fromkeys(others)), limit)
    if not even:  # bent bisectors: a circle that holds every place within the limit
        reach = limit + s.radius + more
        return shape, BallImpact(s.space, site[0], site[1], reach)
    if s.space == "planar":
        outline = corners + np.array([site[0], site[1]])
    else:
        east, north, up = _frame(site)
        rays = up + corners[:, :1] * east + corners[:, 1:] * north
        outline = rays / np.linalg.norm(rays, axis=1, keepdims=True)
    far = _farthest(s.space, corners)
    reach = s.radius + more + 1e-14 * far  # distances from far corners are that much off
    return shape, VoronoiImpact(s.space, outline, reach, (site[0], site[1], far + reach))
