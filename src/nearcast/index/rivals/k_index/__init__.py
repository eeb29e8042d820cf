"""k-index: partition by the number of predicates (Whang et al., VLDB 2009).

Clauses of K predicates form a partition; an event of m attributes looks into those with
K ≤ m. There each (attribute, value) has a posting list. The paper's predicates are
equalities and short sets; an interval is posted here to every cell of the domain that it
meets. Who has K hits matches, verified if it begins or ends in one of the cells. The paper
merges posting lists sorted by id, which pays while they are short; lists of intervals are
long, so hits are counted instead.

The event form is after Elaps (Guo et al., SIGMOD 2015, §6): events are partitioned by the
number of their attributes, and within a partition the values of each column are listed in
order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Rows
from nearcast.index.domains import cell_bits
from nearcast.index.lists import ListPool
from nearcast.index.posted import PostedClauses
from nearcast.index.rivals.k_index import kernels
from nearcast.index.rivals.partitions import Partitions, Runs
from nearcast.index.rivals.partitions.events import EventsBySize
from nearcast.index.rivals.partitions.sides import TwoSided
from nearcast.kernels.lists import Entries

__all__ = ["KIndex"]

#: Entries for each posting list, the most halvings, and the lists of an average interval.
_PER_CELL = 16
_MOST_BITS = 8
_CELLS_EACH = 8

I8 = npt.NDArray[np.int64]


class _Subscriptions(PostedClauses):
    """The clause side; a match counts O(predicates whose cells hold the values)."""

    def __init__(self, clauses: ClauseStore) -> None:
        super().__init__(clauses)
        self._partitions = Partitions(values=0, groups=2)

    def _keys(self, rows: Rows) -> I8:
        return self._clauses.table.count[rows].astype(np.int64)

    def _fit(self, rows: Rows) -> None:
        table = self._clauses.table
        widths = kernels.mean_widths(table, rows, self._domains)
        affordable = cell_bits((_CELLS_EACH / np.maximum(widths, 1e-6)).astype(np.int64), 1, 8)

        def bits_for(counts: I8) -> npt.NDArray[np.int8]:
            return np.minimum(cell_bits(counts, _PER_CELL, _MOST_BITS), affordable[None, :])

        columns = self._domains.lo.size
        self._partitions.fit(Runs.of(table), rows, self._keys(rows), columns, bits_for)

    def _widen(self, columns: int) -> None:
        """Clauses with columns that the fit has not seen are loose."""

    def _post(self, rows: Rows, positions: Rows) -> None:
        table = self._clauses.table
        keys = self._keys(rows)
        listed = self._partitions.in_lists(Runs.of(table), rows, keys)
        self._partitions.post_loose(keys[~listed], positions[~listed])
        rows, positions, keys = rows[listed], positions[listed], keys[listed]
        lists, directory = self._partitions.lists, self._partitions.directory

        def enumerate_entries(first: int, stop: int) -> tuple[Entries, int]:
            some = slice(first, stop)
            size = kernels.covered_cells(table, rows[some], keys[some], self._domains, directory)
            entries = lists.entries(int(size))
            return entries, kernels.enumerate_cells(
                table, rows[some], positions[some], keys[some], self._domains, directory, entries
            )

        if rows.size:
            lists.post(int(rows.size), enumerate_entries)
        self._needs.set(positions, table.count[rows], self._positions.used)

    def _pools(self) -> tuple[ListPool, ...]:
        return self._partitions.pools()

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return self._partitions.arrays()

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Count in the partitions up to the event's size, then verify."""
        partitions = self._partitions
        found: Rows = kernels.match_event(
            self._clauses.table, self._positions.row, self._needs.array, self._domains,
            partitions.directory, partitions.lists.table, partitions.loose.table,
            batch, at, counters,
        )  # fmt: skip
        return found


class KIndex(TwoSided):
    """Both sides, each on its own: clauses by their size, events by theirs."""

    def __init__(self, clauses: ClauseStore, events: EventStore) -> None:
        super().__init__(_Subscriptions(clauses), EventsBySize(events))
