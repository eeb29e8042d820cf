"""`pivot`, ours: tiles of 512 under a tree of hulls, for clauses and for live events.

Both sides keep what they index in tiles whose members lie near each other in the columns
that tell most of them apart, find the tiles by a tree, and decide inside a tile on many
members at once with a few cache lines. Additions and removals change a tile in place;
there is no write buffer, and no rebuild that a match would have to wait for.
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
from nearcast.index.pivot.clause_tiles import ClauseTiles
from nearcast.index.pivot.event_tiles import EventTiles

__all__ = ["Pivot"]


class Pivot:
    """Clause tiles and event tiles side by side."""

    def __init__(self, clauses: ClauseStore, events: EventStore) -> None:
        self._clauses = ClauseTiles(clauses)
        self._events = EventTiles(events)

    def add_clauses(self, rows: Rows) -> None:
        """Add clause rows: microseconds each, less in bulk."""
        self._clauses.add_clauses(rows)

    def remove_clauses(self, rows: Rows) -> None:
        """Forget clause rows."""
        self._clauses.remove_clauses(rows)

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """The clause rows that want event `at`."""
        return self._clauses.match_event(batch, at, counters)

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """(event numbers, clause rows): the events of a batch share each tile they meet."""
        return self._clauses.match_events(batch, counters)

    def add_events(self, rows: Rows) -> None:
        """Add live event rows."""
        self._events.add_events(rows)

    def remove_events(self, rows: Rows) -> None:
        """Forget live event rows."""
        self._events.remove_events(rows)

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """The live event rows that one clause wants."""
        return self._events.match_clause(clauses, row, now, counters)

    def memory_bytes(self) -> int:
        """Bytes of both sides."""
        return self._clauses.memory_bytes() + self._events.memory_bytes()

    def check_invariants(self) -> None:
        """Raise AssertionError where a tree contradicts its store."""
        self._clauses.check_invariants()
        self._events.check_invariants()
