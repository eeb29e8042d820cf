"""`beq-tree`: live events in a quadtree with sorted lists in its leaves.

After Guo, Zhang, Li, Tan, Bao, "Location-Aware Pub/Sub System: When Continuous Moving
Queries Meet Dynamic Event Streams" (Elaps), SIGMOD 2015, section 4 and appendix C. How it
works and where it differs from the paper: `docs/indexes/beq-tree.md`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.errors import CapacityError, ValidationError
from nearcast.index.base import Clauses, ClauseStore, Counters, EventStore, Rows
from nearcast.index.beq_tree import kernels
from nearcast.index.beq_tree.checks import check_lists
from nearcast.kernels import quadtree, sorted_lists

__all__ = ["BEQTree"]

#: Events a leaf holds before it is split; the best of the sweep in docs/indexes/beq-tree.md.
E_MAX = 2048
#: Batches from this size on are sorted as a whole.
_BULK = 64
_MOST_ENTRIES = 2**31 - 1


class BEQTree:
    """Subscription matching over live events.

    Adding or removing an event costs a descent and, for each of its attributes, a shift in
    a sorted list of at most `e_max` entries (more only where events share one place).
    Matching visits the leaves that meet the region and counts there, over each predicate's
    range in its list. A clause without a region visits every leaf. With `on_demand` searches for
    safe regions go on where they stopped.
    """

    def __init__(
        self,
        _clauses: ClauseStore,
        events: EventStore,
        e_max: int = E_MAX,
        on_demand: bool = True,
    ) -> None:
        if not 1 <= e_max < 2**31:
            raise ValidationError("e_max", e_max, "give a leaf room for 1 … 2³¹ events")
        if not isinstance(on_demand, bool):
            raise ValidationError("on_demand", on_demand, "give True or False")
        self.version = 0
        """Counts the changes: what a search has found is good until the next."""
        self.on_demand = on_demand
        self._events = events
        self._e_max = e_max
        cells = quadtree.new_cells()
        lists = sorted_lists.new_lists(cells.node.shape[0])
        self._tree = kernels.Tree(np.zeros(4, np.int64), cells, lists)

    # -- changing --------------------------------------------------------------

    def add_events(self, rows: Rows) -> None:
        """Take rows in: one by one, or sorted as a whole if they are many."""
        self.version += 1
        self._tree = self._tree._replace(
            cells=quadtree.with_rows(self._tree.cells, self._events.rows)
        )
        if rows.size < _BULK:
            self._add_singly(rows)
        else:
            self._add_together(rows)

    def _add_singly(self, rows: Rows) -> None:
        live, done = self._events.table, 0
        while True:
            done = kernels.add(self._tree, live, rows, done, self._e_max)
            if done == rows.size:
                return
            self._make_room()

    def _add_together(self, rows: Rows) -> None:
        live = self._events.table
        x, y = quadtree.locations(live, rows)
        while not kernels.cover_box(self._tree, *quadtree.bulk_of(x, y)):
            self._make_room()
        leaf = quadtree.leaves_at(self._tree.cells, x, y)
        order = np.argsort(leaf, kind="stable")
        singly = np.zeros(rows.size, bool)
        plan = kernels.gather(self._tree, rows, x, y, leaf, order, singly)
        waiting = plan[4]
        self._expect(plan[0])
        while True:
            waiting = kernels.build(self._tree, live, *plan[:4], waiting, self._e_max)
            if waiting == 0:
                break
            self._make_room()
        self._add_singly(rows[singly])

    def remove_events(self, rows: Rows) -> None:
        """Forget rows; those that are not there are no error."""
        self.version += 1
        kernels.remove(self._tree, self._events.table, rows)

    # -- matching --------------------------------------------------------------

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """The live event rows that satisfy the clause's intervals."""
        found: Rows = kernels.match(self._tree, self._events.table, clauses, row, now, counters)
        return found

    def match_new(
        self, clauses: Clauses, seen: npt.NDArray[np.bool_], now: int, counters: Counters
    ) -> Rows:
        """What the predicates of clause 0 want in leaves that its region meets and were not `seen`.

        For a search that grows (Elaps §4.2): it goes on where it stopped.
        """
        live = self._events.table
        found: Rows = kernels.match_new(self._tree, live, clauses, 0, seen, now, counters)
        return found

    @property
    def nodes(self) -> int:
        """How many nodes may have been `seen`."""
        return int(self._tree.cells.node.shape[0])

    # -- room ------------------------------------------------------------------

    def _expect(self, rows: Rows) -> None:
        """Lengthen the arrays once for many rows, rather than again and again."""
        entries = int(self._events.table.count[rows].sum(dtype=np.int64)) + rows.size
        need = self._tree.need
        need[kernels.NEED_SLOTS] = rows.size + (rows.size >> 3)
        need[kernels.NEED_ENTRIES] = entries + (entries >> 3)
        need[kernels.NEED_NAMES] = 0
        self._make_room()

    def _make_room(self) -> None:
        """Lengthen what the last call found too short."""
        need, cells, lists = self._tree
        slots, entries, names = (int(n) for n in need[: kernels.LARGEST])
        total = int(lists.heap[0]) + entries
        if total > _MOST_ENTRIES:
            remedy = "split the events over several matchers"
            raise CapacityError("entries of one BEQ-Tree", total, _MOST_ENTRIES, remedy)
        cells = quadtree.with_cells(cells, quadtree.SPARE_CELLS)
        cells = quadtree.with_slots(cells, slots)
        lists = sorted_lists.with_room(lists, cells.node.shape[0], entries, names)
        self._tree = kernels.Tree(need, cells, lists)

    def memory_bytes(self) -> int:
        """Bytes of all arrays, spare room included."""
        return sum(int(a.nbytes) for part in (self._tree.cells, self._tree.lists) for a in part)

    def check_invariants(self) -> None:
        """Every point is in its leaf, every list sorted and complete, no run shared or lost."""
        quadtree.check_cells(self._tree.cells, self._e_max)
        check_lists(self._tree, self._events.table)
