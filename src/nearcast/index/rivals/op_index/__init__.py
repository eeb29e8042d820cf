"""OpIndex: partition by rarest attribute, then by operator (Zhang, Chan, Tan, VLDB 2014).

A clause belongs to the partition of its *pivot*, the column that fewest clauses mention. An
event looks into the partitions of its own columns only; there each (column, operator) has
lists ordered by operand, and whoever gets as many hits as it has operators matches. It is
made for many sparse attributes; on few dense ones it counts almost everything.

An interval is two operators (≥ and ≤), an equality one. The lists are ordered by cells of
the domain, so that they can be updated; operands of the event's own cell are compared.

The event form is after Elaps (Guo et al., SIGMOD 2015, §6): events are partitioned by their
pivot, and within a partition the values of each column are listed in order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Rows
from nearcast.index.domains import cell_bits
from nearcast.index.lists import ListPool
from nearcast.index.posted import PostedClauses
from nearcast.index.rivals.op_index import kernels
from nearcast.index.rivals.partitions import Partitions, Runs, pivots
from nearcast.index.rivals.partitions.events import EventsByPivot
from nearcast.index.rivals.partitions.sides import TwoSided
from nearcast.kernels.cells import predicates_of
from nearcast.kernels.lists import Entries

__all__ = ["OpIndex"]

#: Entries for each cell of a list, and the most halvings.
_PER_CELL = 64
_MOST_BITS = 10

I8 = npt.NDArray[np.int64]


class _Subscriptions(PostedClauses):
    """The clause side; a match counts O(operators that hold in the event's partitions)."""

    def __init__(self, clauses: ClauseStore) -> None:
        super().__init__(clauses)
        self._partitions = Partitions(values=1, groups=kernels.OPERATORS)
        self._frequency: I8 = np.empty(0, np.int64)

    def _keys(self, rows: Rows) -> I8:
        return pivots(Runs.of(self._clauses.table), rows, self._frequency)

    def _fit(self, rows: Rows) -> None:
        table = self._clauses.table
        columns = self._domains.lo.size
        self._frequency = predicates_of(table, rows, columns)

        def bits_for(counts: I8) -> npt.NDArray[np.int8]:
            return cell_bits(counts, _PER_CELL, _MOST_BITS)

        self._partitions.fit(Runs.of(table), rows, self._keys(rows), columns, bits_for)

    def _widen(self, columns: int) -> None:
        """Clauses with columns that the fit has not seen are loose."""

    def _post(self, rows: Rows, positions: Rows) -> None:
        table = self._clauses.table
        keys = self._keys(rows)
        listed = self._partitions.in_lists(Runs.of(table), rows, keys)
        self._partitions.post_loose(keys[~listed], positions[~listed])
        rows, positions, keys = rows[listed], positions[listed], keys[listed]
        lists = self._partitions.lists

        def enumerate_entries(first: int, stop: int) -> tuple[Entries, int]:
            some = rows[first:stop]
            entries = lists.entries(2 * self._predicates(some))
            return entries, kernels.enumerate_operators(
                table, some, positions[first:stop], keys[first:stop],
                self._domains, self._partitions.directory, entries,
            )  # fmt: skip

        if rows.size:
            lists.post(int(rows.size), enumerate_entries)
        self._needs.set(positions, kernels.operators(table, rows), self._positions.used)

    def _pools(self) -> tuple[ListPool, ...]:
        return self._partitions.pools()

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return (*self._partitions.arrays(), self._frequency)

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Count in the partitions of the event's columns."""
        partitions = self._partitions
        found: Rows = kernels.match_event(
            self._clauses.table, self._positions.row, self._needs.array, self._domains,
            partitions.directory, partitions.lists.table, partitions.loose.table,
            batch, at, counters,
        )  # fmt: skip
        return found


class OpIndex(TwoSided):
    """Both sides, each on its own: clauses by pivot and operator, events by pivot."""

    def __init__(self, clauses: ClauseStore, events: EventStore) -> None:
        super().__init__(_Subscriptions(clauses), EventsByPivot(events))
