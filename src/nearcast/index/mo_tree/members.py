"""The two sides of the tree, clauses and events: a store, its buckets, how crowded they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, EventStore, Rows
from nearcast.index.clauses import Clauses
from nearcast.index.mo_tree import kernels
from nearcast.index.mo_tree.attributes import Sample
from nearcast.index.mo_tree.buckets import Buckets
from nearcast.index.mo_tree.kernels import Layout, Runs

__all__ = ["ClauseMembers", "EventMembers", "Members", "runs_of"]

F4 = npt.NDArray[np.float32]

#: The fewest rows worth choosing attributes for; then at every fourfold growth.
FEW = 32
_GROWTH = 4
#: A side is strained when members share their bucket with so many times more others
#: than right after the fit, and with at least so many more.
_DRIFT = 2.0
_SLACK = 16.0
_SAMPLE = 16_384
#: From this many rows on, the pool is laid out in bucket order instead of row by row.
_BULK = 1024


def runs_of(clauses: Clauses) -> Runs:
    """What the kernels need of a clause table."""
    return Runs(clauses.start, clauses.count, clauses.attr, clauses.low, clauses.high)


class Members(ABC):
    """What both sides have in common."""

    _events = False

    def __init__(self, store: ClauseStore | EventStore, layout: Layout) -> None:
        self._store = store
        self.buckets = self._empty(layout)
        self.fitted = 0
        """How many there were when the attributes were chosen."""
        self._share: float | None = None
        """Chance, right after the fit, that two members are in one bucket."""

    # What differs: clauses have intervals, events have values and expire.

    @abstractmethod
    def locate(self, layout: Layout, rows: Rows) -> tuple[Rows, F4]:
        """(buckets, facts) of rows of the store."""

    @abstractmethod
    def insert(self, layout: Layout, rows: Rows, first: int) -> int:
        """Add rows from number `first` on, as far as there is room; returns how far."""

    @staticmethod
    @abstractmethod
    def fan_outs(layout: Layout) -> list[int]:
        """How many cells each layer has."""

    @abstractmethod
    def runs(self) -> tuple[npt.NDArray[Any], ...]:
        """Start and count by row; column, low and high by item."""

    # -- changing --------------------------------------------------------------

    def _empty(self, layout: Layout) -> Buckets:
        return Buckets(self.fan_outs(layout), events=self._events)

    def add(self, layout: Layout, rows: Rows) -> None:
        """Take rows in; many at once are laid out afresh, together with those that are there."""
        if rows.size >= max(self.buckets.live, _BULK):
            self.refill(layout, np.concatenate([self.buckets.rows(), rows]))
        else:
            self._insert(layout, rows)
        if self._share is None and self.buckets.live >= FEW:
            self._share = self.buckets.crowd / self.buckets.live

    def _insert(self, layout: Layout, rows: Rows) -> None:
        self.buckets.reserve_rows(self._store.rows)
        done = 0
        while (done := self.insert(layout, rows, done)) < rows.size:
            self.buckets.reserve_more(int(rows.size) - done)

    def refill(self, layout: Layout, rows: Rows) -> None:
        """Start anew with these rows."""
        self.buckets = self._empty(layout)
        if rows.size < _BULK:
            self._insert(layout, rows)
        else:
            bucket, facts = self.locate(layout, rows)
            self.buckets.reserve_rows(self._store.rows)
            self.buckets.load(rows, bucket, facts)

    def update(self, layout: Layout, rows: Rows) -> None:
        """Take the new contents of rows in; where the bucket stays, nothing moves."""
        bucket, facts = self.locate(layout, rows)
        self.buckets.reserve_rows(self._store.rows)
        moved = self.buckets.rewrite(rows, bucket, facts)
        self._insert(layout, rows[moved])

    # -- fitting ---------------------------------------------------------------

    def strained(self, coming: int) -> bool:
        """Whether it is time to look at the attributes again."""
        live, crowd = self.buckets.live, self.buckets.crowd
        if live + coming >= _GROWTH * max(self.fitted, FEW // _GROWTH):
            return True
        return self._share is not None and crowd > _DRIFT * self._share * live + _SLACK

    def settle(self, coming: int) -> None:
        """Attributes have just been chosen: measure the crowd afresh once `coming` are in."""
        self.fitted = self.buckets.live + coming
        self._share = None

    def sample(self, coming: Rows) -> Sample:
        """Items of some of the members and of the rows about to come."""
        rows = np.concatenate([self.buckets.rows(), coming])
        if rows.size > _SAMPLE:
            rows = rows[np.random.default_rng(rows.size).integers(0, rows.size, _SAMPLE)]
        start, count, column, low, high = self.runs()
        return Sample.of_runs(start[rows], count[rows], column, low, high, points=self._events)

    def check_invariants(self, layout: Layout) -> None:
        """Every row lies where its contents say."""
        self.buckets.check_invariants(*self.locate(layout, self.buckets.rows()))


class ClauseMembers(Members):
    """Clauses: an overlapping cell a layer, the interval as facts."""

    _store: ClauseStore

    @staticmethod
    def fan_outs(layout: Layout) -> list[int]:
        """The overlapping cells."""
        return [int(cells) for cells in layout.level[:, -1]]

    def locate(self, layout: Layout, rows: Rows) -> tuple[Rows, F4]:
        """The smallest overlapping cells that contain the intervals."""
        bucket, facts = kernels.locate_clauses(layout, runs_of(self._store.table), rows)
        return bucket, facts

    def insert(self, layout: Layout, rows: Rows, first: int) -> int:
        """Locate and insert."""
        runs = runs_of(self._store.table)
        return int(kernels.add_clauses(layout, runs, self.buckets.table, rows, first))

    def runs(self) -> tuple[npt.NDArray[Any], ...]:
        """The predicates."""
        return runs_of(self._store.table)


class EventMembers(Members):
    """Events: a disjoint or null cell a layer, the value as fact."""

    _events = True
    _store: EventStore

    @staticmethod
    def fan_outs(layout: Layout) -> list[int]:
        """The disjoint cells and the null cell."""
        return [int(cells) + 1 for cells in layout.disjoint]

    def locate(self, layout: Layout, rows: Rows) -> tuple[Rows, F4]:
        """The disjoint cells of the values."""
        bucket, facts = kernels.locate_events(layout, self._store.table, rows)
        return bucket, facts

    def insert(self, layout: Layout, rows: Rows, first: int) -> int:
        """Locate and insert."""
        return int(kernels.add_events(layout, self._store.table, self.buckets.table, rows, first))

    def runs(self) -> tuple[npt.NDArray[Any], ...]:
        """The values, as intervals of no width."""
        t = self._store.table
        return t.start, t.count, t.attr, t.value, t.value
