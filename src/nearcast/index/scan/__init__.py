"""`scan`: compare every clause with every event. The yardstick for all others.

Clauses come with their region first and the rest in the order of selectivity (the
matcher sorts them), and the loop stops at the first predicate that fails. Regions are
copied side by side, so that half a cache line decides about most clauses that have one.
"""

from __future__ import annotations

import numpy as np

from nearcast.index.base import (
    Clauses,
    ClauseStore,
    Counters,
    EventBatch,
    EventStore,
    Pairs,
    Rows,
)
from nearcast.index.columns import grown
from nearcast.index.scan import kernels

__all__ = ["Scan"]


class Scan:
    """Brute force over the shared stores; keeps only a copy of the regions. O(N) a match."""

    def __init__(self, clauses: ClauseStore, events: EventStore) -> None:
        self._clauses = clauses
        self._events = events
        self._box = np.empty((0, 4))
        self._placed = False
        """Whether any clause so far has a region."""

    def add_clauses(self, rows: Rows) -> None:
        """Copy the regions; the store is the rest of the index."""
        self._box = grown(self._box, self._clauses.rows)
        self._placed |= kernels.set_boxes(self._clauses.table, rows, self._box) > 0

    def remove_clauses(self, rows: Rows) -> None:
        """Nothing to do: a freed row is skipped."""

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Compare event `at` with every clause."""
        store = self._clauses
        found: Rows = kernels.match_event(
            store.table, self._box, self._placed, store.rows, batch, at, counters
        )
        return found

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """Compare every event with every clause, on one core."""
        store = self._clauses
        found: Pairs = kernels.match_events(
            store.table, self._box, self._placed, store.rows, batch, counters
        )
        return found

    def add_events(self, rows: Rows) -> None:
        """Nothing to do: the store is the index."""

    def remove_events(self, rows: Rows) -> None:
        """Nothing to do: a freed row is skipped."""

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """Compare the clause with every live event."""
        store = self._events
        found: Rows = kernels.match_clause(store.table, store.rows, clauses, row, now, counters)
        return found

    def memory_bytes(self) -> int:
        """The copy of the regions."""
        return int(self._box.nbytes)

    def check_invariants(self) -> None:
        """The copied regions are those of the store."""
        rows = self._clauses.live_rows()
        if rows.size:
            again = np.empty_like(self._box)
            kernels.set_boxes(self._clauses.table, rows, again)
            assert np.array_equal(self._box[rows], again[rows])
