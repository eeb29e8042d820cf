"""`scan`: compare every clause with every event. The yardstick for all others.

Clauses come with their region first and the rest in the order of selectivity (the
matcher sorts them), and the loop stops at the first predicate that fails: on the
papers' workloads little more than one cache line a clause is read.
"""

from __future__ import annotations

from nearcast.index.base import (
    Clauses,
    ClauseStore,
    Counters,
    EventBatch,
    EventStore,
    Pairs,
    Rows,
)
from nearcast.index.scan import kernels

__all__ = ["Scan"]


class Scan:
    """Brute force over the shared stores; holds nothing of its own. O(N) a match."""

    def __init__(self, clauses: ClauseStore, events: EventStore) -> None:
        self._clauses = clauses
        self._events = events

    def add_clauses(self, rows: Rows) -> None:
        """Nothing to do: the store is the index."""

    def remove_clauses(self, rows: Rows) -> None:
        """Nothing to do: a freed row is skipped."""

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Compare event `at` with every clause."""
        store = self._clauses
        found: Rows = kernels.match_event(store.table, store.rows, batch, at, counters)
        return found

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """Compare every event with every clause, on one core."""
        store = self._clauses
        found: Pairs = kernels.match_events(store.table, store.rows, batch, counters)
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
        """Nothing beside the stores."""
        return 0

    def check_invariants(self) -> None:
        """There is nothing that could contradict itself."""
