"""Subscription matching of k-index and OpIndex: events in partitions of sorted lists.

Both list the values of each column within a partition, in cells of the domain. A clause
counts the events whose values lie in its intervals, comparing in the outermost cells only,
and whoever is counted for each predicate matches. They differ in the key: OpIndex takes an
event's rarest column (no matching event has a more frequent one than the clause's rarest),
k-index the number of its attributes (no matching event has fewer than the clause).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, Counters, EventStore, Rows
from nearcast.index.domains import cell_bits
from nearcast.index.lists import ListPool
from nearcast.index.posted import PostedEvents
from nearcast.index.rivals.partitions import Partitions, Runs, kernels, pivots
from nearcast.kernels.lists import Entries

__all__ = ["EventsByPivot", "EventsBySize", "PartitionedEvents"]

I8 = npt.NDArray[np.int64]
_PER_CELL = 64
_MOST_BITS = 10


class PartitionedEvents(PostedEvents):
    """The event side but for the key."""

    def __init__(self, events: EventStore) -> None:
        super().__init__(events)
        self._partitions = Partitions(values=1, groups=1)

    @abstractmethod
    def _keys(self, rows: Rows) -> I8:
        """The partition of each event row."""

    @abstractmethod
    def _eligible(self, clauses: Clauses, row: int) -> npt.NDArray[np.bool_]:
        """By key: whether its partition can hold events that the clause wants."""

    def _learn_keys(self, rows: Rows, columns: int) -> None:
        """Fit what keys depend on."""

    def _fit(self, rows: Rows) -> None:
        columns = self._domains.lo.size
        self._learn_keys(rows, columns)

        def bits_for(counts: I8) -> npt.NDArray[np.int8]:
            return cell_bits(counts, _PER_CELL, _MOST_BITS)

        runs = Runs.of(self._events.table)
        self._partitions.fit(runs, rows, self._keys(rows), columns, bits_for)

    def _widen(self, columns: int) -> None:
        """Events with columns that the fit has not seen are loose."""

    def _post(self, rows: Rows, positions: Rows) -> None:
        table = self._events.table
        keys = self._keys(rows)
        listed = self._partitions.in_lists(Runs.of(table), rows, keys)
        self._partitions.post_loose(keys[~listed], positions[~listed])
        rows, positions, keys = rows[listed], positions[listed], keys[listed]
        lists = self._partitions.lists

        def enumerate_entries(first: int, stop: int) -> tuple[Entries, int]:
            some = rows[first:stop]
            entries = lists.entries(int(table.count[some].sum(dtype=np.int64)))
            return entries, kernels.enumerate_values(
                table, some, positions[first:stop], keys[first:stop],
                self._domains, self._partitions.directory, entries,
            )  # fmt: skip

        if rows.size:
            lists.post(int(rows.size), enumerate_entries)

    def _pools(self) -> tuple[ListPool, ...]:
        return self._partitions.pools()

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return self._partitions.arrays()

    def match_clause(self, clauses: Clauses, row: int, now: int, counters: Counters) -> Rows:
        """Count the events whose values lie in the clause's intervals."""
        wanted = int(clauses.count[row])
        if wanted == 0:
            everything = self._positions.rows()
            found = everything[self._events.table.expires[everything] > now]
            counters[2] += found.size
            return found
        partitions = self._partitions
        count = np.zeros(self._positions.used, np.min_scalar_type(wanted + 1))
        answer: Rows = kernels.match_clause(
            self._events.table, self._positions.row, self._eligible(clauses, row), count,
            self._domains, partitions.directory, partitions.lists.table, partitions.loose.table,
            clauses, row, now, counters,
        )  # fmt: skip
        return answer


class EventsByPivot(PartitionedEvents):
    """OpIndex: events by their rarest column."""

    def __init__(self, events: EventStore) -> None:
        super().__init__(events)
        self._frequency: I8 = np.empty(0, np.int64)

    def _learn_keys(self, rows: Rows, columns: int) -> None:
        self._frequency = kernels.frequencies(*Runs.of(self._events.table), rows, columns)

    def _keys(self, rows: Rows) -> I8:
        return pivots(Runs.of(self._events.table), rows, self._frequency)

    def _eligible(self, clauses: Clauses, row: int) -> npt.NDArray[np.bool_]:
        rarest = int(pivots(Runs.of(clauses), np.array([row], np.int32), self._frequency)[0]) - 1
        keys: npt.NDArray[np.bool_] = kernels.no_more_frequent(
            self._partitions.loose.used, rarest, self._frequency
        )
        return keys

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return (*super()._arrays(), self._frequency)


class EventsBySize(PartitionedEvents):
    """k-index: events by the number of their attributes."""

    def _keys(self, rows: Rows) -> I8:
        return self._events.table.count[rows].astype(np.int64)

    def _eligible(self, clauses: Clauses, row: int) -> npt.NDArray[np.bool_]:
        return np.arange(self._partitions.loose.used) >= int(clauses.count[row])
