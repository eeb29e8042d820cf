"""The impact index: tile → subscribers whose impact region may reach into it (Elaps §5).

Tiles come in sizes by powers of two; a subscriber is entered at the size of its impact
region, in a handful of tiles, and the exact region is asked afterwards. Replacing one touches
only the tiles that changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from nearcast.mobility.plane import EARTH_RADIUS_M
from nearcast.model.geometry import Space

__all__ = ["ImpactIndex"]

Tile = tuple[int, int, int]
_DEGREE_M = math.pi * EARTH_RADIUS_M / 180
_MOST_TILES = 24


class ImpactIndex:
    """Which subscribers may an event at a place concern. Lookup costs one probe a size in use."""

    def __init__(self, space: Space) -> None:
        self._space: Space = space
        self._tiles: dict[Tile, set[str]] = {}
        self._of: dict[str, frozenset[Tile] | None] = {}
        self._levels: dict[int, int] = {}
        self._everywhere: set[str] = set()

    def __len__(self) -> int:
        return len(self._of)

    def put(self, subscriber: str, circle: tuple[float, float, float] | None) -> None:
        """Enter or replace a subscriber by a circle round its impact region; None: everywhere."""
        tiles = None if circle is None else self._cover(*circle)
        old = self._of.get(subscriber, frozenset())
        self._of[subscriber] = tiles
        before, after = old or frozenset(), tiles or frozenset()
        for tile in before - after:
            self._drop(tile, subscriber)
        for tile in after - before:
            self._tiles.setdefault(tile, set()).add(subscriber)
            self._levels[tile[0]] = self._levels.get(tile[0], 0) + 1
        (self._everywhere.add if tiles is None else self._everywhere.discard)(subscriber)

    def remove(self, subscriber: str) -> None:
        """Forget a subscriber, if it is there."""
        for tile in self._of.pop(subscriber, None) or ():
            self._drop(tile, subscriber)
        self._everywhere.discard(subscriber)

    def _drop(self, tile: Tile, subscriber: str) -> None:
        members = self._tiles[tile]
        members.discard(subscriber)
        if not members:
            del self._tiles[tile]
        self._levels[tile[0]] -= 1
        if not self._levels[tile[0]]:
            del self._levels[tile[0]]

    def holds(self, subscriber: str, x: float, y: float) -> bool:
        """Whether an event at (x, y) may concern the subscriber."""
        tiles = self._of.get(subscriber, frozenset())
        return tiles is None or any(self._at(level, x, y) in tiles for level in self._levels)

    def near(self, x: float, y: float) -> Iterator[str]:
        """Everybody whom an event at (x, y) may concern."""
        yield from self._everywhere
        for level in self._levels:
            yield from self._tiles.get(self._at(level, x, y), ())

    def _at(self, level: int, x: float, y: float) -> Tile:
        side = 2.0**level
        if self._space == "globe" and x >= 180.0:
            x -= 360.0
        return level, math.floor(x / side), math.floor(y / side)

    def _cover(self, x: float, y: float, radius: float) -> frozenset[Tile] | None:
        if radius < 0:
            return frozenset()
        if not math.isfinite(radius):
            return None
        up = radius if self._space == "planar" else radius / _DEGREE_M
        across = up
        if self._space == "globe":
            angle, cos = math.radians(up), math.cos(math.radians(y))
            if abs(y) + up >= 89.9 or math.sin(min(angle, 1.5)) >= 0.99 * cos:
                return None
            across = math.degrees(math.asin(math.sin(angle) / cos))
        slack = 1e-9 * (abs(x) + abs(y) + up + across) + 1e-12
        up, across = up + slack, across + slack
        level = math.frexp(max(up, across))[1]
        side = 2.0**level
        columns = range(math.floor((x - across) / side), math.floor((x + across) / side) + 1)
        rows = range(math.floor((y - up) / side), math.floor((y + up) / side) + 1)
        if len(columns) * len(rows) > _MOST_TILES:
            return None
        tiles = {(level, column, row) for column in columns for row in rows}
        if self._space == "globe":
            for column, row in [(c, r) for _, c, r in tiles]:
                for turn in (-360.0, 360.0):
                    low = math.floor((column * side + turn) / side)
                    tiles |= {(level, low, row), (level, low + 1, row)}
        return frozenset(tiles)

    def check_invariants(self) -> None:
        """Tiles and subscribers agree."""
        assert {t for tiles in self._of.values() for t in tiles or ()} == set(self._tiles)
        assert all(self._of[name] is None for name in self._everywhere)
        assert sum(self._levels.values()) == sum(len(members) for members in self._tiles.values())
