"""The arrays of a watch, and how they grow."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearcast.fences.kernels import tables as t
from nearcast.fences.kernels import timers
from nearcast.index.columns import grown
from nearcast.kernels import region_grid

__all__ = ["Arrays"]

_LARGE = 65_536  # rows from which on doubling wastes more than it saves


class Arrays:
    """`Tables` with room to grow, and the one array by which kernels get them all."""

    def __init__(self) -> None:
        counters = np.zeros(t.COUNTERS, np.int64)
        counters[[t.FREE, t.LAST_CHANGED]] = -1
        counters[t.BEFORE] = counters[t.CLOSED] = t.NEVER
        self.tables = t.Tables(
            fences=np.empty((0, t.FENCE_COLUMNS), np.int32),
            terms=np.empty((0, t.TERM_COLUMNS), np.int64),
            margins=np.empty(0),
            floats=np.empty(0),
            groups=np.empty((0, t.GROUP_COLUMNS), np.int64),
            classes=np.empty((0, 3), np.int64),
            tracks=np.empty((0, t.TRACK_COLUMNS), np.int64),
            at_x=np.empty(0),
            at_y=np.empty(0),
            places=np.empty(0),
            pairs=np.empty((0, 8), np.int32),
            entered=np.empty(0, np.int64),
            buckets=np.full(16, -1, np.int32),
            heap=np.empty((16, 2), np.int64),
            slots=_vacant(64),
            entries=np.empty((0, region_grid.ENTRY_COLUMNS), np.int32),
            boxes=np.empty((0, 4)),
            track_slots=_vacant(64),
            track_entries=np.empty((0, 3), np.int32),
            out=np.empty((64, 6), np.int64),
            found=np.empty(64, np.int32),
            crossed=np.empty(64, np.int32),
            counters=counters,
        )
        self.packed = t.pack_tables(*self.tables)

    def put(self, **arrays: Any) -> None:
        """Replace some of the arrays."""
        self.tables = self.tables._replace(**arrays)
        self.packed = t.pack_tables(*self.tables)

    def reserve(self, **rows: int) -> None:
        """Room for so many rows; new ones of `fences`, `groups` and `tracks` are free ones."""
        larger = {}
        for name, count in rows.items():
            array = getattr(self.tables, name)
            if array.shape[0] < count:
                made = grown(array, count)
                if name in ("fences", "groups", "tracks"):
                    made[array.shape[0] :] = -1
                larger[name] = made
        if larger:
            self.put(**larger)

    def room(self, lacking: int) -> None:
        """What a kernel lacks, doubled."""
        tables, need = self.tables, int(self.tables.counters[t.NEED])
        if lacking == t.MORE_OUT:
            self.put(out=_doubled(tables.out, need))
        elif lacking == t.MORE_PAIRS:
            need += int(tables.counters[t.COUNT])
            self.reserve(pairs=need, entered=need)
            size = len(tables.buckets)
            while size * 2 < need:
                size *= 2
            if size > len(tables.buckets):
                self.put(buckets=np.empty(size, np.int32))
                t.rehash(self.packed)
        elif lacking == t.MORE_HEAP:
            before = int(tables.counters[t.HEAP])
            need -= before - int(timers.sweep(self.packed))
            if need > len(tables.heap) - (len(tables.heap) >> 4):  # or it is swept all the time
                self.put(heap=_doubled(tables.heap, need))
        elif lacking == t.MORE_FOUND:
            size = max(2 * len(tables.found), 2 * need)
            self.put(found=np.empty(size, np.int32), crossed=np.empty(size, np.int32))
        elif lacking == t.MORE_SLOTS:
            self.cells(need - int(tables.counters[t.OCCUPIED]))
        else:
            self.track_cells(need - int(tables.counters[t.T_OCCUPIED]))

    def cells(self, more: int) -> None:
        """Room for cells of regions."""
        occupied = int(self.tables.counters[t.OCCUPIED])
        if 2 * (occupied + more) > len(self.tables.slots):
            larger, used = _rehashed(self.tables.slots, occupied + more)
            self.tables.counters[t.OCCUPIED] = used
            self.put(slots=larger)

    def track_cells(self, more: int) -> None:
        """Room for cells of tracks."""
        occupied = int(self.tables.counters[t.T_OCCUPIED])
        if 2 * (occupied + more) + 4 > len(self.tables.track_slots):
            larger, used = _rehashed(self.tables.track_slots, occupied + more)
            self.tables.counters[t.T_OCCUPIED] = used
            self.put(track_slots=larger)

    def nbytes(self) -> dict[str, int]:
        """Bytes of each array."""
        return {name: int(getattr(self.tables, name).nbytes) for name in t.Tables._fields}


def _doubled(array: Any, need: int) -> Any:
    """Twice the room; an eighth more where that is much: timers are a third of a pair."""
    room = 2 * len(array) if len(array) < _LARGE else len(array) + (len(array) >> 3)
    larger = np.empty((max(room, need + (need >> 3)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _vacant(size: int) -> Any:
    slots = np.zeros((size, 3), np.int64)
    slots[:, region_grid.KEY] = region_grid.VACANT
    return slots


def _rehashed(slots: Any, cells: int) -> tuple[Any, int]:
    """A table for so many cells; those that became empty are left behind."""
    size = 64
    while size < 4 * cells + 8:
        size *= 2
    larger = _vacant(size)
    return larger, int(region_grid.rehash(slots, larger))
