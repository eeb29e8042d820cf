"""How a town is drawn: centres, main roads, a river, and streets that fill the rest.

Main roads are the rings and spokes of a wheel, bent. Streets are a proximity graph over
crossroads that lie closer together where it is busy; the river cuts them, and only main
roads and a few streets have bridges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearcast.datasets.globe import to_lonlat, to_plane
from nearcast.datasets.popularity import Popularity
from nearcast.datasets.proximity import gabriel_edges
from nearcast.datasets.roads import ARTERIAL, MOTORWAY, STREET, RoadNetwork

__all__ = ["Addresses", "HotAreas", "Town", "draw_town"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_RINGS = (0.08, 0.24, 0.48, 0.82)  # shares of the radius; the last one is a motorway
_SPOKES = 9
_MAIN_STEP_M = 170.0
#: Streets keep this far off the nodes of main roads: outside the circle on each of their
#: pieces, so that the proximity graph keeps the pieces and nothing crosses them.
_CLEARANCE_M = 0.72 * _MAIN_STEP_M
_STREET_STEP_M = (95.0, 340.0)
_EXTRA_STREETS = 0.55
_BANK_M = 70.0
_BRIDGES = 0.12
_HOT_AREAS = 16
_DARTS = 40_000
_DART_CHUNK = 256


@dataclass(frozen=True, eq=False)
class HotAreas:
    """Where people crowd: centres, how far each one reaches, its weight (they sum to 1)."""

    lon: Array
    lat: Array
    reach_m: Array
    weight: Array


@dataclass(frozen=True, eq=False)
class Town:
    """A drawn town: roads, hot areas, how busy each crossroads is (0 … 1), the river's line."""

    roads: RoadNetwork
    hot_areas: HotAreas
    heat: Array
    river: Array


class Addresses:
    """Places beside roads other than motorways, more of them where it is busy.

    `quiet` is how much a quiet road counts beside the busiest.
    """

    def __init__(self, town: Town, quiet: float) -> None:
        roads = town.roads
        self._roads = roads
        self._lived_on = np.flatnonzero(roads.kind != MOTORWAY)
        busy = town.heat[roads.ends[self._lived_on]].mean(axis=1)
        self._share = Popularity(roads.length_m[self._lived_on] * (quiet + busy))

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        """`count` longitudes and latitudes."""
        road = self._lived_on[self._share.draw(rng, count)]
        return self._roads.at(road, rng.random(count))


@dataclass(frozen=True)
class _Bend:
    """A smooth distortion of the plane, so that no ring is a circle and no spoke straight."""

    waves: Array
    phases: Array
    amplitude_m: float

    @classmethod
    def drawn(cls, rng: np.random.Generator, radius_m: float) -> _Bend:
        turns = rng.normal(0, 2.2 / radius_m, (2, 5, 2))
        return cls(turns, rng.uniform(0, 2 * np.pi, (2, 5)), 0.028 * radius_m)

    def __call__(self, x: Array, y: Array) -> tuple[Array, Array]:
        moved = []
        for axis in (0, 1):
            angle = np.multiply.outer(x, self.waves[axis, :, 0])
            angle += np.multiply.outer(y, self.waves[axis, :, 1]) + self.phases[axis]
            moved.append(self.amplitude_m * np.sin(angle).sum(axis=-1))
        return x + moved[0], y + moved[1]


@dataclass(frozen=True)
class _River:
    """A winding line across the town, not far from its centre."""

    angle: float
    offset_m: float
    swing_m: float
    wave_m: float

    @classmethod
    def drawn(cls, rng: np.random.Generator, radius_m: float) -> _River:
        side = 1 if rng.random() < 0.5 else -1
        return cls(rng.uniform(0, np.pi), side * 0.15 * radius_m, 0.07 * radius_m, 0.16 * radius_m)

    def offset(self, x: Array, y: Array) -> Array:
        """Metres from the line, negative on one side of it."""
        along = x * np.cos(self.angle) + y * np.sin(self.angle)
        across = y * np.cos(self.angle) - x * np.sin(self.angle)
        offset: Array = across - self.offset_m - self.swing_m * np.sin(along / self.wave_m)
        return offset

    def line(self, radius_m: float) -> tuple[Array, Array]:
        """Points of the line, from rim to rim."""
        along = np.linspace(-1.05 * radius_m, 1.05 * radius_m, 200)
        across = self.offset_m + self.swing_m * np.sin(along / self.wave_m)
        x = along * np.cos(self.angle) - across * np.sin(self.angle)
        return x, along * np.sin(self.angle) + across * np.cos(self.angle)


def draw_town(rng: np.random.Generator, lon: float, lat: float, radius_m: float) -> Town:
    """A town of about `radius_m` round a place; some 4000 crossroads at 10 km: O(n²)."""
    bend = _Bend.drawn(rng, radius_m)
    river = _River.drawn(rng, radius_m)
    spokes = 2 * np.pi * (np.arange(_SPOKES) + rng.uniform(-0.25, 0.25, _SPOKES)) / _SPOKES
    hot = _hot_areas(rng, bend, spokes, radius_m)
    main = _main_roads(bend, spokes, radius_m)
    crossings = _crossings(rng, main.points, hot, river, spokes, radius_m)
    points = np.concatenate([main.points, crossings])
    streets = _streets(rng, points, len(main.points), river)
    ends = np.concatenate([main.ends, streets])
    kind = np.concatenate([main.kind, np.full(len(streets), STREET, np.int8)])
    node_lon, node_lat = to_lonlat(points[:, 0], points[:, 1], lon, lat)
    roads = RoadNetwork(node_lon, node_lat, ends, kind).largest_component()
    return Town(
        roads=roads,
        hot_areas=hot.placed(lon, lat),
        heat=hot.heat(*to_plane(roads.lon, roads.lat, lon, lat)),
        river=np.stack(to_lonlat(*river.line(radius_m), lon, lat), axis=1),
    )


@dataclass(frozen=True)
class _Crowds:
    """The hot areas in metres from the town's centre."""

    x: Array
    y: Array
    reach_m: Array
    weight: Array

    def heat(self, x: Array, y: Array) -> Array:
        """How busy places are: 1 in the busiest, near 0 at the rim."""
        squares = (x[:, None] - self.x) ** 2 + (y[:, None] - self.y) ** 2
        busy: Array = (np.exp(-squares / (2 * self.reach_m**2)) * self.weight).sum(axis=1)
        busy /= self.weight.max()
        return np.minimum(busy, 1.0)

    def placed(self, lon: float, lat: float) -> HotAreas:
        return HotAreas(*to_lonlat(self.x, self.y, lon, lat), self.reach_m, self.weight)


def _hot_areas(rng: np.random.Generator, bend: _Bend, spokes: Array, radius_m: float) -> _Crowds:
    """The old town, and places where a spoke meets a ring."""
    corners = rng.permutation((len(_RINGS) - 1) * _SPOKES)[: _HOT_AREAS - 1]
    ring, spoke = np.array(_RINGS)[1 + corners // _SPOKES], spokes[corners % _SPOKES]
    r = radius_m * np.concatenate([[0.0], ring])
    angle = np.concatenate([[0.0], spoke])
    x, y = bend(r * np.cos(angle), r * np.sin(angle))
    weight = 1.0 / np.arange(1.0, _HOT_AREAS + 1) ** 0.6
    reach = radius_m * np.concatenate([[0.11], rng.uniform(0.035, 0.075, _HOT_AREAS - 1)])
    return _Crowds(x, y, reach, weight / weight.sum())


@dataclass(frozen=True)
class _MainRoads:
    points: Array
    ends: Indices
    kind: NDArray[np.int8]


def _main_roads(bend: _Bend, spokes: Array, radius_m: float) -> _MainRoads:
    """Rings and spokes as chains of short pieces that share their crossings."""
    radii = radius_m * np.array([*_RINGS, 1.0])
    corner = np.arange(radii.size * _SPOKES).reshape(radii.size, _SPOKES)
    polar = [(r, angle) for r in radii for angle in spokes]
    chains: list[tuple[list[int], int]] = []

    def chain(start: int, stop: int, steps: Array, kind: int) -> None:
        between = range(len(polar), len(polar) + len(steps))
        polar.extend((float(r), float(angle)) for r, angle in steps)
        chains.append(([start, *between, stop], kind))

    for i, r in enumerate(radii[:-1]):
        for j, angle in enumerate(spokes):
            turn = (spokes[(j + 1) % _SPOKES] - angle) % (2 * np.pi)
            inner = _inner_shares(r * turn)
            kind = MOTORWAY if i == len(_RINGS) - 1 else ARTERIAL
            steps = np.stack([np.full(inner.size, r), angle + inner * turn], axis=1)
            chain(corner[i, j], corner[i, (j + 1) % _SPOKES], steps, kind)
            inner = _inner_shares(radii[i + 1] - r)
            kind = MOTORWAY if j % 3 == 0 and i >= len(_RINGS) - 2 else ARTERIAL
            steps = np.stack([r + inner * (radii[i + 1] - r), np.full(inner.size, angle)], axis=1)
            chain(corner[i, j], corner[i + 1, j], steps, kind)

    r, angle = np.array(polar).T
    points = np.stack(bend(r * np.cos(angle), r * np.sin(angle)), axis=1)
    ends = np.concatenate([np.stack([nodes[:-1], nodes[1:]], axis=1) for nodes, _ in chains])
    kind_of = np.concatenate([np.full(len(nodes) - 1, kind, np.int8) for nodes, kind in chains])
    return _MainRoads(points, ends.astype(np.int64), kind_of)


def _inner_shares(length_m: float) -> Array:
    """Where to cut a piece of main road, as shares of it, its ends left out."""
    pieces = max(1, round(length_m / _MAIN_STEP_M))
    return np.arange(1, pieces) / pieces


def _crossings(
    rng: np.random.Generator,
    main: Array,
    hot: _Crowds,
    river: _River,
    spokes: Array,
    radius_m: float,
) -> Array:
    """Crossroads of streets: none too close to another, closer where it is busy."""
    r = radius_m * np.sqrt(rng.random(_DARTS))
    angle = rng.uniform(0, 2 * np.pi, _DARTS)
    inside = r < radius_m * _rim(angle, spokes)
    r, angle = r[inside], angle[inside]
    darts = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1)
    close, far = _STREET_STEP_M
    quiet = np.clip(1 - 2.5 * hot.heat(*darts.T), 0, 1) * (0.3 + 0.7 * r / radius_m)
    step = close + (far - close) * quiet
    # Where crossroads may lie closer, darts are worth more: the rest would miss anyway.
    kept = rng.random(r.size) < 4 * (close / step) ** 2
    kept &= np.abs(river.offset(*darts.T)) > _BANK_M
    darts, step = darts[kept], step[kept]
    free = _distance(darts, main) > np.maximum(_CLEARANCE_M, 0.6 * step)
    return _spaced(darts[free], step[free])


def _rim(angle: Array, spokes: Array) -> Array:
    """How far the town reaches, as a share of its radius: farther along the spokes."""
    apart = np.abs((angle[:, None] - spokes + np.pi) % (2 * np.pi) - np.pi).min(axis=1)
    rim: Array = 1.0 - 0.3 * np.minimum(apart * _SPOKES / np.pi, 1.0) ** 0.7
    return rim


def _spaced(darts: Array, step: Array) -> Array:
    """The darts that keep their step from all earlier ones that were kept."""
    kept = np.empty_like(darts)
    count = 0
    for start in range(0, len(darts), _DART_CHUNK):
        chunk = slice(start, start + _DART_CHUNK)
        open_ = np.flatnonzero(_distance(darts[chunk], kept[:count]) > step[chunk]) + start
        fresh = count
        for i in open_:
            near = ((kept[fresh:count] - darts[i]) ** 2).sum(axis=1)
            if not (near < step[i] ** 2).any():
                kept[count] = darts[i]
                count += 1
    return kept[:count]


def _distance(points: Array, others: Array) -> Array:
    """Metres from each point to the nearest of the others."""
    if len(others) == 0:
        return np.full(len(points), np.inf)
    nearest = np.empty(len(points))
    for start in range(0, len(points), _DART_CHUNK):
        chunk = points[start : start + _DART_CHUNK]
        squares = (chunk[:, None, 0] - others[:, 0]) ** 2 + (chunk[:, None, 1] - others[:, 1]) ** 2
        nearest[start : start + _DART_CHUNK] = np.sqrt(squares.min(axis=1))
    return nearest


def _streets(rng: np.random.Generator, points: Array, mains: int, river: _River) -> Indices:
    """Streets between crossroads, all that hold them together and a share of the others."""
    edges, needed = gabriel_edges(points)
    luck = rng.random(len(edges))
    side = river.offset(*points.T) > 0
    dry = side[edges[:, 0]] == side[edges[:, 1]]
    minor = edges[:, 1] >= mains  # main roads have their own pieces
    kept = minor & (needed | (luck < _EXTRA_STREETS)) & (dry | (luck < _BRIDGES))
    streets: Indices = edges[kept]
    return streets
