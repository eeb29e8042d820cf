"""The event side of `quad-tree`."""

from __future__ import annotations

import numpy as np

from nearcast.errors import ValidationError
from nearcast.index.base import Clauses, Counters, EventStore, Rows
from nearcast.index.rivals.quad_tree.points import kernels
from nearcast.kernels import quadtree

__all__ = ["PointTree"]

#: Batches from this size on tell the root where to be.
_BULK = 64


class PointTree:
    """Live events in the leaves of a quadtree, at most `capacity` each unless at one place.

    Adding and removing cost a descent; matching reads the leaves that meet the region.
    """

    def __init__(self, events: EventStore, capacity: int) -> None:
        if not 1 <= capacity < 2**31:
            raise ValidationError("capacity", capacity, "give a leaf room for 1 … 2³¹ events")
        self._events = events
        self._capacity = capacity
        self._need = np.zeros(1, np.int64)
        self._cells = quadtree.new_cells()

    def add(self, rows: Rows) -> None:
        """Take event rows in."""
        live = self._events.table
        self._cells = quadtree.with_rows(self._cells, self._events.rows)
        if rows.size >= _BULK:
            self._cells = quadtree.with_slots(self._cells, rows.size + (rows.size >> 3))
            x, y = quadtree.locations(live, rows)
            kernels.cover_box(self._cells, *quadtree.bulk_of(x, y))
        done = 0
        while True:
            done = kernels.add(self._cells, live, rows, done, self._capacity, self._need)
            if done == rows.size:
                return
            self._cells = quadtree.with_cells(self._cells, quadtree.SPARE_CELLS)
            self._cells = quadtree.with_slots(self._cells, int(self._need[0]))

    def remove(self, rows: Rows) -> None:
        """Forget event rows."""
        kernels.remove(self._cells, rows)

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """The live event rows that satisfy the clause."""
        live = self._events.table
        found: Rows = kernels.match(self._cells, live, clauses, row, now, counters)
        return found

    def memory_bytes(self) -> int:
        """Bytes of the arrays."""
        return sum(int(array.nbytes) for array in self._cells)

    def check_invariants(self) -> None:
        """See `quadtree.check_cells`."""
        quadtree.check_cells(self._cells, self._capacity)
        here = np.flatnonzero(self._cells.where[:, quadtree.IN_LEAF] >= 0).astype(np.int32)
        x, y = quadtree.locations(self._events.table, here)
        slots = self._cells.where[here].astype(np.int64)
        places = self._cells.node[slots[:, 0], quadtree.RUN] + slots[:, 1]
        kept = self._cells.slot_at[places]
        assert bool(((kept[:, 0] == x) | np.isnan(x)).all()), "a leaf and the store disagree"
        assert bool(((kept[:, 1] == y) | np.isnan(y)).all()), "a leaf and the store disagree"
