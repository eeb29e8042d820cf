"""`quad-tree`: the place first, by a quadtree, and then every candidate compared in full.

The baseline of Guo et al., "Location-Aware Pub/Sub System" (Elaps), SIGMOD 2015, section 6,
after Finkel and Bentley 1974; here for both directions. Live events are points in the
leaves. A clause's region is cut into the cells that make it up: it stands in the largest
cells that it covers, and in the leaves that it covers in part (docs/indexes/spatial.md).
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
from nearcast.index.rivals.quad_tree.boxes import BoxTree
from nearcast.index.rivals.quad_tree.points import PointTree

__all__ = ["QuadTree"]


class QuadTree:
    """Both directions, a tree each; clauses without a region are compared one and all.

    `capacity` is the number of events, `box_capacity` the number of regions' pieces that a
    leaf holds before it is split.
    """

    def __init__(
        self,
        clauses: ClauseStore,
        events: EventStore,
        capacity: int = 64,
        box_capacity: int = 256,
    ) -> None:
        self._boxes = BoxTree(clauses, box_capacity)
        self._points = PointTree(events, capacity)

    def add_clauses(self, rows: Rows) -> None:
        """Cut every region into cells."""
        self._boxes.add(rows)

    def remove_clauses(self, rows: Rows) -> None:
        """Take every piece of the regions out again."""
        self._boxes.remove(rows)

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Compare the clauses met on the way down to the event's leaf."""
        return self._boxes.match_event(batch, at, counters)

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """One event after another, on one core."""
        return self._boxes.match_events(batch, counters)

    def add_events(self, rows: Rows) -> None:
        """Put events into their leaves, which split when full."""
        self._points.add(rows)

    def remove_events(self, rows: Rows) -> None:
        """Forget rows; those that are not there are no error."""
        self._points.remove(rows)

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """Compare the events of every leaf that meets the clause's region."""
        return self._points.match_clause(clauses, row, now, counters)

    def memory_bytes(self) -> int:
        """Bytes of both trees' arrays, spare room included."""
        return self._boxes.memory_bytes() + self._points.memory_bytes()

    def check_invariants(self) -> None:
        """Every event in its leaf, every region in exactly its cells."""
        self._boxes.check_invariants()
        self._points.check_invariants()
