"""Rows by rectangle in libspatialindex, and beside it the rows that have none it could take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.errors import MissingExtraError
from nearcast.index.base import Rows

__all__ = ["Rectangles"]

F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]
BoxesOf = Callable[[Rows], F8]

#: Where a row is.
_ABSENT, _NOWHERE, _BEYOND, _IN_TREE = range(4)
#: Areas and margins of farther rectangles would overflow in the tree's arithmetic.
_FARTHEST = 1e100
#: libspatialindex writes a node as 12 bytes and its rectangle, an entry as its rectangle,
#: its number and the length of its data; the allocator adds 16 and the page table 32 a node.
_NODE_BYTES = 12 + 32 + 48
_ENTRY_BYTES = 32 + 8 + 4
#: How full packing leaves the nodes.
_FILL = 0.7


def _rtree() -> Any:
    try:
        from rtree import index
    except ImportError as error:
        raise MissingExtraError("rtree", "bench") from error
    return index


class Rectangles:
    """An R*-tree of row numbers that can be asked for many rectangles at once."""

    def __init__(self, capacity: int) -> None:
        self._index = _rtree()
        self._capacity = capacity
        self._where = np.zeros(0, np.int8)
        self._size = 0
        self._tree = self._empty_tree()
        self._lists: dict[int, Rows] = {}

    def _properties(self) -> Any:
        wanted = self._index.Property()
        wanted.dimension = 2
        wanted.variant = self._index.RT_Star
        wanted.leaf_capacity = wanted.index_capacity = self._capacity
        wanted.near_minimum_overlap_factor = min(32, self._capacity - 1)
        wanted.fill_factor = _FILL
        return wanted

    def _empty_tree(self) -> Any:
        return self._index.Index(properties=self._properties())

    def _packed_tree(self, rows: Rows, boxes: F8) -> Any:
        arrays = (rows.astype(np.int64), boxes[:, :2].copy(), boxes[:, 2:].copy())
        return self._index.Index(arrays, properties=self._properties())

    # -- changing --------------------------------------------------------------

    def add(self, rows: Rows, boxes_of: BoxesOf) -> None:
        """Take rows in: one by one, or the whole tree packed anew if they double it."""
        if rows.size == 0:
            return
        boxes = boxes_of(rows)
        kind = _kinds(boxes)
        most = int(rows.max()) + 1
        if self._where.size < most:
            self._where = np.concatenate(
                [self._where, np.zeros(most - self._where.size + (most >> 3), np.int8)]
            )
        self._where[rows] = kind
        self._lists.clear()
        placed = kind == _IN_TREE
        new, their = rows[placed], boxes[placed]
        if new.size > max(self._size, 8):
            everything = self._of_kind(_IN_TREE)
            self._tree = self._packed_tree(everything, boxes_of(everything))
            self._size = everything.size
            return
        for row, box in zip(new.tolist(), their.tolist(), strict=True):
            self._tree.insert(row, box)
        self._size += new.size

    def remove(self, rows: Rows, boxes_of: BoxesOf) -> None:
        """Forget rows; those that are not there are no error."""
        rows = rows[rows < self._where.size]
        placed = rows[self._where[rows] == _IN_TREE]
        for row, box in zip(placed.tolist(), boxes_of(placed).tolist(), strict=True):
            self._tree.delete(row, box)
        self._size -= placed.size
        self._where[rows] = _ABSENT
        self._lists.clear()

    # -- looking ---------------------------------------------------------------

    def meeting_one(self, box: F8) -> I8:
        """Rows of the rectangles in the tree that meet one box: less ado than `meeting`."""
        if self._size == 0 or np.isnan(box[0]):
            return np.empty(0, np.int64)
        ends = [min(max(end, -_FARTHEST), _FARTHEST) for end in box.tolist()]
        return np.fromiter(self._tree.intersection(ends), np.int64)

    def meeting(self, boxes: F8) -> tuple[I8, I8]:
        """(rows, how many for each box) of the rectangles in the tree that meet the boxes.

        A box with NaN meets none.
        """
        counts = np.zeros(boxes.shape[0], np.int64)
        there = ~np.isnan(boxes).any(axis=1)
        if self._size == 0 or not there.any():
            return np.empty(0, np.int64), counts
        clipped = np.clip(boxes[there], -_FARTHEST, _FARTHEST)
        rows, found = self._tree.intersection_v(clipped[:, :2].copy(), clipped[:, 2:].copy())
        counts[there] = found.astype(np.int64)
        return rows, counts

    def _of_kind(self, kind: int) -> Rows:
        kept = self._lists.get(kind)
        if kept is None:
            kept = np.flatnonzero(self._where == kind).astype(np.int32)
            self._lists[kind] = kept
        return kept

    def apart(self) -> Rows:
        """Rows that are not in the tree."""
        return np.concatenate([self._of_kind(_NOWHERE), self._of_kind(_BEYOND)])

    def beyond(self) -> Rows:
        """Rows whose rectangle is infinite, or too far off for the tree."""
        return self._of_kind(_BEYOND)

    def everything(self) -> Rows:
        """All rows."""
        return np.flatnonzero(self._where != _ABSENT).astype(np.int32)

    def memory_bytes(self) -> int:
        """What the pages of the tree take, as it was packed, and the array beside it."""
        nodes = self._size / (_FILL * self._capacity - 1)
        return int(self._size * _ENTRY_BYTES + nodes * (_NODE_BYTES + _ENTRY_BYTES)) + int(
            self._where.nbytes
        )

    def check_invariants(self, boxes_of: BoxesOf) -> None:
        """Raise AssertionError unless the tree holds exactly what the store says."""
        rows = self.everything()
        boxes = boxes_of(rows)
        assert bool((_kinds(boxes) == self._where[rows]).all()), "a row is in the wrong place"
        placed = self._where[rows] == _IN_TREE
        assert int(placed.sum()) == self._size
        held = {
            (int(item.id), *item.bbox)
            for item in self._tree.intersection([-_FARTHEST] * 2 + [_FARTHEST] * 2, objects=True)
        }
        assert held == {
            (row, *box)
            for row, box in zip(rows[placed].tolist(), boxes[placed].tolist(), strict=True)
        }, "tree and store disagree"


def _kinds(boxes: F8) -> npt.NDArray[np.int8]:
    """Where each of these rectangles belongs."""
    kind = np.full(boxes.shape[0], _IN_TREE, np.int8)
    kind[~(np.abs(boxes) <= _FARTHEST).all(axis=1)] = _BEYOND
    kind[np.isnan(boxes).any(axis=1)] = _NOWHERE
    return kind
