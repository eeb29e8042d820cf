"""Cells that follow the density, so that both sides can be matched piece by piece.

A kd-tree cuts the place, and numbers that subscriptions ask for, at the medians of a sample.
An event lies in one cell: values up to a cut go left, and so does a missing one. A clause lies
in every cell that its intervals meet; without an interval on a cut's column that is both
sides. So an event and a clause that match always share the event's cell, and no other.

A cell that no cut makes lighter (many events at one place, clauses without any interval) is
split into *shards*: each event goes to one shard of events and each subscription to one shard
of subscriptions, and a *unit* is a pair of them. Cells times shards are the units of work.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Cells", "Sample", "cut_cells"]

F8: TypeAlias = npt.NDArray[np.float64]
I4: TypeAlias = npt.NDArray[np.int32]
I8: TypeAlias = npt.NDArray[np.int64]
Rows: TypeAlias = npt.NDArray[np.intp]

#: A cut must leave the heavier side at most this share of what was there.
_WORTH = 0.85


@dataclass(frozen=True)
class Sample:
    """Some events and clauses as numbers, by the columns that may be cut.

    `points` has NaN for a missing value; a clause reaches from `low` to `high`, infinite where
    it does not ask. Both stand for so many more (`event_weight`, `clause_weight`).
    """

    points: F8
    low: F8
    high: F8
    event_weight: float
    clause_weight: float


@dataclass(frozen=True)
class Cells:
    """The tree of cuts, and how each cell is split into shards."""

    columns: tuple[str, ...]
    """What is cut: `@x`, `@y`, or the name of a number attribute behind a dot."""
    axis: I4
    """By node: the column that is cut, −1 for a cell."""
    cut: F8
    right: I4
    """By node: the node of values above the cut, or the cell's number; left is the next node."""
    event_shards: I8
    subscription_shards: I8

    @property
    def count(self) -> int:
        """Number of cells."""
        return int(self.event_shards.size)

    @property
    def units(self) -> int:
        """Number of units of work."""
        return int((self.event_shards * self.subscription_shards).sum())

    @property
    def _first(self) -> I8:
        """By cell: its first unit."""
        sizes = self.event_shards * self.subscription_shards
        first: I8 = np.cumsum(sizes) - sizes
        return first

    def cells_of_points(self, points: F8) -> I4:
        """The cell of each event."""
        found = np.zeros(points.shape[0], np.int32)
        for node, rows in self._walk(np.arange(points.shape[0]), points, points):
            found[rows] = self.right[node]
        return found

    def cells_of_clauses(self, low: F8, high: F8) -> tuple[Rows, I4]:
        """(clauses, cells): every cell that each clause meets."""
        parts = [
            (rows, np.full(rows.size, self.right[node], np.int32))
            for node, rows in self._walk(np.arange(low.shape[0]), low, high)
        ]
        rows = np.concatenate([part[0] for part in parts])
        return rows, np.concatenate([part[1] for part in parts])

    def _walk(self, every: Rows, low: F8, high: F8) -> Iterator[tuple[int, Rows]]:
        """Leaves of the tree with the rows that reach them."""
        waiting = [(0, every)]
        while waiting:
            node, rows = waiting.pop()
            axis = int(self.axis[node])
            if axis < 0:
                yield node, rows
                continue
            above = high[rows, axis] > self.cut[node]
            # NaN is in neither comparison: a missing value goes left, and only there.
            below = ~(low[rows, axis] > self.cut[node])
            waiting.append((int(self.right[node]), rows[above]))
            waiting.append((node + 1, rows[below]))

    def event_units(self, cells: I4, hashes: I8) -> tuple[I8, I4]:
        """(offsets, units) of events in these cells: one shard of events, all of the others."""
        shards = self.subscription_shards[cells]
        first = self._first[cells] + hashes % self.event_shards[cells] * shards
        return _spread(first, shards, np.ones(cells.size, np.int64))

    def subscription_units(self, cells: I4, hashes: I8) -> tuple[I8, I4]:
        """(offsets, units) of subscriptions in these cells, the other way round."""
        shards = self.subscription_shards[cells]
        return _spread(self._first[cells] + hashes % shards, self.event_shards[cells], shards)


def _spread(first: I8, counts: I8, steps: I8) -> tuple[I8, I4]:
    """Runs first, first + step, … of the given lengths."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    units = np.repeat(first, counts) + place * np.repeat(steps, counts)
    return offsets, units.astype(np.int32)


# --- cutting --------------------------------------------------------------------------------------


class _Node:
    """A node on the way to `Cells`."""

    __slots__ = ("above", "axis", "below", "clauses", "cut", "events")

    def __init__(self, events: Rows, clauses: Rows) -> None:
        self.events = events
        self.clauses = clauses
        self.axis = -1
        self.cut = math.nan
        self.below: _Node | None = None
        self.above: _Node | None = None


def cut_cells(sample: Sample, columns: tuple[str, ...], rows: int, most: int = 4096) -> Cells:
    """Cut until every cell holds about `rows` events and clauses, or no cut helps.

    The heaviest cell is cut next, at the median of its events, in the column in which fewest
    clauses have to go to both sides. Costs a sort of the sample for each level and column.
    """

    def weight(node: _Node) -> float:
        return node.events.size * sample.event_weight + node.clauses.size * sample.clause_weight

    root = _Node(np.arange(sample.points.shape[0]), np.arange(sample.low.shape[0]))
    heap: list[tuple[float, int, _Node]] = [(-weight(root), 0, root)]
    count, serial = 1, 0
    while heap and count < most and -heap[0][0] > rows:
        heavy, _, node = heapq.heappop(heap)
        halves = _best_cut(node, sample, weight, -heavy)
        if halves is None:
            continue
        count += 1
        for half in halves:
            serial += 1
            heapq.heappush(heap, (-weight(half), serial, half))
    return _flat(root, sample, columns, rows)


def _best_cut(node: _Node, sample: Sample, weight: Any, whole: float) -> tuple[_Node, _Node] | None:
    best: tuple[float, int, float, _Node, _Node] | None = None
    for axis in range(sample.points.shape[1]):
        values = sample.points[node.events, axis]
        known = np.sort(values[~np.isnan(values)])
        if known.size < 2 or known[0] == known[-1]:
            continue
        cut = known[(known.size - 1) // 2]
        if cut == known[-1]:
            cut = known[np.searchsorted(known, cut) - 1]
        low, high = sample.low[node.clauses, axis], sample.high[node.clauses, axis]
        below = _Node(node.events[~(values > cut)], node.clauses[low <= cut])
        above = _Node(node.events[values > cut], node.clauses[high > cut])
        if max(weight(below), weight(above)) > _WORTH * whole:
            continue
        total = weight(below) + weight(above)
        if best is None or total < best[0] * 0.99:  # the place comes first if others are no better
            best = (total, axis, float(cut), below, above)
    if best is None:
        return None
    _, node.axis, node.cut, node.below, node.above = best
    return best[3], best[4]


def _flat(root: _Node, sample: Sample, columns: tuple[str, ...], rows: int) -> Cells:
    axis: list[int] = []
    cut: list[float] = []
    right: list[int] = []
    event_shards: list[int] = []
    subscription_shards: list[int] = []
    waiting: list[tuple[_Node, int]] = [(root, -1)]
    while waiting:
        node, parent = waiting.pop()
        at = len(axis)
        if parent >= 0:
            right[parent] = at
        axis.append(node.axis)
        cut.append(node.cut)
        if node.below is not None and node.above is not None:
            right.append(-1)
            waiting.append((node.above, at))
            waiting.append((node.below, -1))
            continue
        right.append(len(event_shards))
        event_shards.append(_shards(node.events.size * sample.event_weight, rows))
        subscription_shards.append(_shards(node.clauses.size * sample.clause_weight, rows))
    return Cells(
        columns,
        np.array(axis, np.int32),
        np.array(cut),
        np.array(right, np.int32),
        np.array(event_shards, np.int64),
        np.array(subscription_shards, np.int64),
    )


def _shards(weight: float, rows: int) -> int:
    # A cell somewhat over the limit is better whole: every shard repeats the other side.
    return max(1, math.ceil(weight / rows - 0.5))
