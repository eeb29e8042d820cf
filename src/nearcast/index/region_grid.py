"""Regions that come and go one at a time: rows by the boxes that cover them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.columns import grown
from nearcast.kernels import region_grid as kernels

__all__ = ["GridTable", "RegionGrid"]

I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]
Bounds = tuple[float, float, float, float]
#: Cells that one box can touch.
_CELLS = 4
_EVERYWHERE: Bounds = (-np.inf, -np.inf, np.inf, np.inf)


class GridTable(NamedTuple):
    """What kernels see; `masks` are the widths of cells in use, by group."""

    slots: I8
    entries: I4
    masks: I8


class RegionGrid:
    """Rows of several groups, each with the boxes that cover its region.

    Coming and going cost the cells of the boxes, four at the most each; a lookup one cell of
    each width in use, and the rows in it. What is found holds every row that is right, and
    more: the caller tests the regions themselves.

    >>> grid = RegionGrid()
    >>> grid.add(7, 0, [(0.0, 0.0, 3.0, 2.0)])
    >>> grid.near(0, [(1.0, 1.0, 1.0, 1.0)]).tolist(), grid.near(1, [(1.0, 1.0, 1.0, 1.0)]).tolist()
    ([7], [])
    """

    def __init__(self) -> None:
        entries = np.empty((0, kernels.ENTRY_COLUMNS), np.int32)
        self.table = GridTable(_vacant(64), entries, np.zeros(0, np.int64))
        self._occupied = 0
        self._free: list[int] = []
        self._members: dict[int, int] = {}

    def __contains__(self, group: object) -> bool:
        """Whether a group has any rows."""
        return group in self._members

    def add(self, row: int, group: int, boxes: Sequence[Bounds] | None) -> None:
        """Enter a row of a group by boxes that cover its region; None: it may be anywhere."""
        given = [_EVERYWHERE] if boxes is None else boxes
        self._reserve(group, _CELLS * len(given))
        slots, entries, masks = self.table
        free = np.array(self._free[-_CELLS * len(given) :][::-1], np.int32)
        taken = 0
        for part, box in enumerate(given, len(given) > 1):
            used, fresh = kernels.insert(
                slots, entries, free[taken:], group, row, part, np.array(box)
            )
            taken += used
            self._occupied += fresh
            masks[group] |= 1 << kernels.width_of(*box)
        del self._free[len(self._free) - taken :]
        self._members[group] = self._members.get(group, 0) + 1

    def remove(self, row: int, group: int, boxes: Sequence[Bounds] | None) -> None:
        """Forget a row, which was entered with these boxes."""
        slots, entries, masks = self.table
        freed = np.empty(_CELLS, np.int32)
        given = [_EVERYWHERE] if boxes is None else boxes
        for part, box in enumerate(given, len(given) > 1):
            count = kernels.remove(slots, entries, freed, group, row, part, np.array(box))
            self._free += freed[:count].tolist()
        self._members[group] -= 1
        if not self._members[group]:
            del self._members[group]
            masks[group] = 0

    def near(self, group: int, boxes: Sequence[Bounds]) -> I4:
        """The rows of a group that may meet one of the boxes, each once, ascending."""
        if group not in self._members:
            return np.empty(0, np.int32)
        slots, entries, masks = self.table
        parts = []
        for box in boxes:
            found = np.empty(256, np.int32)
            given = np.array(box)
            count = kernels.in_box(slots, entries, masks[group], group, given, found)
            if count > found.size:
                found = np.empty(count, np.int32)
                kernels.in_box(slots, entries, masks[group], group, given, found)
            parts.append(found[:count])
        return np.unique(np.concatenate(parts))

    def nbytes(self) -> int:
        """Bytes of the arrays."""
        spare = 40 * len(self._free) + 100 * len(self._members)
        return sum(int(array.nbytes) for array in self.table) + spare

    def _reserve(self, group: int, cells: int) -> None:
        """Room for so many cells more, and for a group."""
        slots, entries, masks = self.table
        if 2 * (self._occupied + cells) > len(slots):
            size = len(slots)
            while 4 * (self._occupied + cells) > size:
                size *= 2
            larger = _vacant(size)
            self._occupied = kernels.rehash(slots, larger)
            slots = larger
        if cells > len(self._free):
            first = len(entries)
            entries = grown(entries, first + cells)
            self._free = [*range(len(entries) - 1, first - 1, -1), *self._free]
        if group >= masks.size:
            before = masks.size
            masks = grown(masks, group + 1)
            masks[before:] = 0
        self.table = GridTable(slots, entries, masks)


def _vacant(size: int) -> I8:
    slots = np.zeros((size, 3), np.int64)
    slots[:, kernels.KEY] = kernels.VACANT
    return slots
