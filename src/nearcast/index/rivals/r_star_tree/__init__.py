"""`r-star-tree`: the place first, by libspatialindex's R*-tree, then every candidate in full.

After Beckmann, Kriegel, Schneider, Seeger, "The R*-tree", SIGMOD 1990, as the MO-Tree paper
compares it, but over the two dimensions of the place only: with all attributes as
dimensions, as in that paper, an event that lacks one is a slab across the whole domain.
Needs the package `rtree` (`pip install 'nearcast[bench]'`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError
from nearcast.index.base import (
    Clauses,
    ClauseStore,
    Counters,
    EventBatch,
    EventStore,
    Pairs,
    Rows,
)
from nearcast.index.rivals.r_star_tree import kernels
from nearcast.index.rivals.r_star_tree.rectangles import Rectangles

__all__ = ["RStarTree"]

I8 = npt.NDArray[np.int64]
#: Events asked for in one call to libspatialindex.
_CHUNK = 256


class RStarTree:
    """Both directions, a tree each. Matching costs one search and a comparison a candidate.

    `capacity` is the number of entries of a node. Removing takes libspatialindex a
    millisecond at a million rows: it searches for the entry and reinserts what is left of
    a thin node.
    """

    def __init__(self, clauses: ClauseStore, events: EventStore, capacity: int = 32) -> None:
        if not 8 <= capacity <= 10_000:
            raise ValidationError("capacity", capacity, "give a node room for 8 … 10 000 entries")
        self._clauses = clauses
        self._events = events
        self._regions = Rectangles(capacity)
        self._places = Rectangles(capacity)

    # -- event matching --------------------------------------------------------

    def add_clauses(self, rows: Rows) -> None:
        """Put regions into the tree, packed if they are many."""
        table = self._clauses.table
        self._regions.add(rows, lambda wanted: kernels.regions(table, wanted))

    def remove_clauses(self, rows: Rows) -> None:
        """Forget rows."""
        table = self._clauses.table
        self._regions.remove(rows, lambda wanted: kernels.regions(table, wanted))

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Compare the clauses whose region holds the event, and those without one."""
        event = np.array([at], np.int32)
        hits = self._regions.meeting_one(kernels.places(batch, event)[0])
        counts = np.array([hits.size])
        rows: Rows = self._compared(batch, event, hits, counts, counters)[1]
        return rows

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """Search for a few hundred events in one call; compare their candidates in another."""
        found = [
            self._match_chunk(batch, np.arange(i, min(i + _CHUNK, batch.size), dtype=np.int32),
                              counters)
            for i in range(0, batch.size, _CHUNK)
        ]  # fmt: skip
        if not found:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    def _match_chunk(self, batch: EventBatch, events: Rows, counters: Counters) -> Pairs:
        hits, counts = self._regions.meeting(kernels.places(batch, events))
        return self._compared(batch, events, hits, counts, counters)

    def _compared(
        self, batch: EventBatch, events: Rows, hits: I8, counts: I8, counters: Counters
    ) -> Pairs:
        """(events, clause rows) out of what the tree found for each event."""
        apart = self._regions.apart()
        found: Pairs = kernels.compare_clauses(
            self._clauses.table, hits, counts, apart, batch, events, counters
        )
        return found

    # -- subscription matching -------------------------------------------------

    def add_events(self, rows: Rows) -> None:
        """Put places into the tree, packed if they are many."""
        table = self._events.table
        self._places.add(rows, lambda wanted: kernels.event_places(table, wanted))

    def remove_events(self, rows: Rows) -> None:
        """Forget rows; those that are not there are no error."""
        table = self._events.table
        self._places.remove(rows, lambda wanted: kernels.event_places(table, wanted))

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """Compare the events within the clause's region; all of them if it has none."""
        box = kernels.regions(clauses, np.array([row], np.int32))[0]
        if np.isnan(box[0]):
            candidates: I8 = self._places.everything().astype(np.int64)
        else:
            candidates = np.concatenate([self._places.meeting_one(box), self._places.beyond()])
        found: Rows = kernels.compare_events(
            self._events.table, candidates, clauses, row, now, counters
        )
        return found

    # -- both ------------------------------------------------------------------

    def memory_bytes(self) -> int:
        """Bytes of both trees, by the size of libspatialindex's pages, and of our arrays."""
        return self._regions.memory_bytes() + self._places.memory_bytes()

    def check_invariants(self) -> None:
        """The trees hold exactly the rows they should, each where the store says."""
        table, live = self._clauses.table, self._events.table
        self._regions.check_invariants(lambda rows: kernels.regions(table, rows))
        self._places.check_invariants(lambda rows: kernels.event_places(live, rows))
