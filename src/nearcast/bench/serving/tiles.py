"""A plane cut into tiles, each wanted by a fixed number of subscriptions.

So every event in the middle of one has just as many notifications.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from nearcast.bench.experiments.base import Plan
from nearcast.bench.load import request
from nearcast.bench.serving.served import PEOPLE, batches
from nearcast.model.geometry import Box
from nearcast.model.subscriptions import Subscription

__all__ = ["SIDE", "Pairs", "Round", "Tiles", "chosen", "pairs", "told_pairs"]

SIDE = 1000.0
#: Number of the event, number of the subscription.
Pairs = set[tuple[int, int]]


class Tiles:
    """Subscriptions to the tiles of a plane: each tile is wanted by `each` of them."""

    def __init__(self, size: int, each: int) -> None:
        self.size, self.each = size, each
        self.across = max(1, int((size / each) ** 0.5))
        self.count = self.across**2
        self.step = SIDE / self.across

    def corner(self, tile: int) -> tuple[float, float]:
        """The lower left one."""
        return tile % self.across * self.step, tile // self.across * self.step

    def subscriptions(self, people: int = PEOPLE) -> Iterator[Subscription]:
        """All of them, in turns of so many people."""
        for number in range(self.count * self.each):
            x, y = self.corner(number // self.each)
            inside = Box(x, y, x + 0.9 * self.step, y + 0.9 * self.step)
            yield Subscription(f"s{number}", f"u{number % people}", "price < 100", (), inside)

    def wanting(self, tile: int) -> range:
        """The numbers of those who want a tile."""
        return range(tile * self.each, (tile + 1) * self.each)

    def feature(self, tile: int, id: str, **more: Any) -> dict[str, Any]:
        """An event in the middle of a tile."""
        x, y = (low + 0.4 * self.step for low in self.corner(tile))
        place = {"type": "Point", "coordinates": [x, y]}
        return {"type": "Feature", "id": id, "geometry": place, "properties": {"price": 5}} | more


def chosen(plan: Plan, tiles: Tiles) -> list[int]:
    """In which tile each event of a round is."""
    rng = np.random.default_rng(plan.seed)
    return [int(tile) for tile in rng.integers(0, tiles.count, plan.number("events"))]


def pairs(plan: Plan, tiles: Tiles) -> Pairs:
    """What a round must come to."""
    found = enumerate(chosen(plan, tiles))
    return {(number, each) for number, tile in found for each in tiles.wanting(tile)}


class Round:
    """The events of a round under new ids, as requests of some size."""

    def __init__(self, plan: Plan, tiles: Tiles, together: int) -> None:
        self._tiles, self._tiled, self._together = tiles, chosen(plan, tiles), together
        self._number = 0

    def features(self, **more: Any) -> list[dict[str, Any]]:
        """The next round; `more` is said of every event."""
        self._number += 1
        return [
            self._tiles.feature(tile, f"{n}.{self._number}", **more)
            for n, tile in enumerate(self._tiled)
        ]

    def requests(self, **more: Any) -> list[bytes]:
        """The same as requests."""
        said = self.features(**more)
        if self._together == 1:
            return [request("POST", "/events", each) for each in said]
        return [
            request("POST", "/events", {"type": "FeatureCollection", "features": some})
            for some in batches(said, self._together)
        ]


def told_pairs(told: Iterable[Any]) -> Pairs:
    """The pairs of some notifications, none of them twice."""
    found = [
        (int(each["event"]["id"].split(".")[0]), int(each["subscription"][1:])) for each in told
    ]
    assert len(found) == len(set(found))
    return set(found)
