"""An index of clauses and an index of events that share nothing, under one name."""

from __future__ import annotations

from nearcast.index.base import Clauses, Counters, EventBatch, Pairs, Rows
from nearcast.index.posted import PostedClauses
from nearcast.index.rivals.partitions.events import PartitionedEvents

__all__ = ["TwoSided"]


class TwoSided:
    """Passes each call on to its side."""

    def __init__(self, subscriptions: PostedClauses, events: PartitionedEvents) -> None:
        self._subscriptions = subscriptions
        self._events = events

    def add_clauses(self, rows: Rows) -> None:
        """Post the predicates of the rows."""
        self._subscriptions.add_clauses(rows)

    def remove_clauses(self, rows: Rows) -> None:
        """Mark the rows dead."""
        self._subscriptions.remove_clauses(rows)

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """The clause rows that event number `at` of the batch satisfies."""
        return self._subscriptions.match_event(batch, at, counters)

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """One event after another."""
        return self._subscriptions.match_events(batch, counters)

    def add_events(self, rows: Rows) -> None:
        """Post the values of the rows."""
        self._events.add_events(rows)

    def remove_events(self, rows: Rows) -> None:
        """Mark the rows dead."""
        self._events.remove_events(rows)

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """The live event rows that satisfy the clause."""
        return self._events.match_clause(clauses, row, now, counters)

    def memory_bytes(self) -> int:
        """Bytes of both sides."""
        return self._subscriptions.memory_bytes() + self._events.memory_bytes()

    def check_invariants(self) -> None:
        """Both sides are sound."""
        self._subscriptions.check_invariants()
        self._events.check_invariants()
