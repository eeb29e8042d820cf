"""What indexes have in common that post rows to lists, one entry or more a predicate or value.

They learn the columns' domains from the rows at hand, lay out their lists for them, and fit
again when the rows have doubled or many lie outside. A removed row is only marked; when an
eighth of the positions is dead, one sweep cleans all lists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from nearcast.index.base import (
    ClauseStore,
    Counters,
    EventBatch,
    EventStore,
    Pairs,
    Rows,
    match_each,
)
from nearcast.index.domains import Drift, learnt, learnt_from_events, no_domains, widened
from nearcast.index.lists import ListPool
from nearcast.index.positions import Needs, Positions
from nearcast.kernels import cells
from nearcast.kernels.bitset import intersect_rows
from nearcast.kernels.cells import Domains

__all__ = ["Posted", "PostedClauses", "PostedEvents"]

#: Rows up to which they are posted one by one: counting looks at every list.
_FEW = 8


class Posted(ABC):
    """Adding and removing rows.

    An addition costs the lists it enters, a removal O(1), both amortised over fits and
    sweeps.
    """

    def __init__(self) -> None:
        self._positions = Positions()
        self._domains = no_domains()
        self._drift = Drift()
        self._needs = Needs()
        """For who counts: a dead position needs what nobody reaches."""

    # -- the rows ------------------------------------------------------------------------

    @abstractmethod
    def _survey(self, rows: Rows, domains: Domains) -> tuple[int, int]:
        """Columns up to the rows' highest one, and their ends outside of the domains."""

    @abstractmethod
    def _learn(self, rows: Rows, columns: int) -> Domains:
        """The domains of the rows' columns."""

    # -- the structure -------------------------------------------------------------------

    @abstractmethod
    def _fit(self, rows: Rows) -> None:
        """Lay out empty lists for these rows; the domains have been learnt."""

    @abstractmethod
    def _widen(self, columns: int) -> None:
        """Be ready for columns that the fit has not seen."""

    @abstractmethod
    def _post(self, rows: Rows, positions: Rows) -> None:
        """Put the rows into their lists."""

    @abstractmethod
    def _pools(self) -> tuple[ListPool, ...]:
        """All pools of lists."""

    def _bitsets(self) -> tuple[npt.NDArray[np.uint64], ...]:
        """Rows of bitsets over positions that must forget the dead."""
        return ()

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        """Arrays of the subclass, for `memory_bytes`."""
        return ()

    # -- updates -------------------------------------------------------------------------

    def _add(self, rows: Rows) -> None:
        if rows.size == 0:
            return
        if len(self._positions) == 0 or self._drift.due(int(rows.size)):
            rows = np.concatenate([self._positions.rows(), rows])
            self._fit_to(rows)
            self._post(rows, self._positions.take(rows))
        elif rows.size <= _FEW:
            for k in range(rows.size):
                self._add_more(rows[k : k + 1])
        else:
            self._add_more(rows)

    def _fit_to(self, rows: Rows) -> None:
        columns, _ = self._survey(rows, no_domains())
        self._positions = Positions()
        self._domains = self._learn(rows, columns)
        self._drift = Drift(int(rows.size))
        self._needs = Needs()
        self._fit(rows)

    def _add_more(self, rows: Rows) -> None:
        columns, outside = self._survey(rows, self._domains)
        if columns > self._domains.lo.size:
            self._domains = widened(self._domains, columns)
            self._widen(int(self._domains.lo.size))
        self._drift.note(int(rows.size), outside)
        self._post(rows, self._positions.take(rows))

    def _remove(self, rows: Rows) -> None:
        if rows.size == 0:
            return
        self._needs.clear(self._positions.drop(rows))
        if self._positions.dead > 1024 + len(self._positions) // 8:
            self._sweep()

    def _sweep(self) -> None:
        """Clean everything of dead positions, which can then be used again."""
        live = self._positions.live
        for pool in self._pools():
            pool.keep_members(live)
        for bitsets in self._bitsets():
            intersect_rows(bitsets, live)
        self._positions.recycle()

    # -- the contract --------------------------------------------------------------------

    def memory_bytes(self) -> int:
        """Lists, positions, domains and what the subclass adds."""
        held = sum(pool.memory_bytes() for pool in self._pools())
        arrays = (*self._domains, self._needs.array, *self._arrays())
        return held + self._positions.memory_bytes() + sum(int(a.nbytes) for a in arrays)

    def check_invariants(self) -> None:
        """Pools and positions are sound; lists hold positions in use, each once."""
        self._positions.check_invariants()
        for pool in self._pools():
            pool.check_invariants()
            for at in range(pool.used):
                items = np.sort(pool.items(at))
                assert bool((np.diff(items) > 0).all())
                assert items.size == 0 or (items[0] >= 0 and items[-1] < self._positions.used)


class PostedClauses(Posted):
    """The clause side: everything of a `SubscriptionIndex` but `match_event`."""

    def __init__(self, clauses: ClauseStore) -> None:
        super().__init__()
        self._clauses = clauses

    def _survey(self, rows: Rows, domains: Domains) -> tuple[int, int]:
        columns, outside = cells.survey(self._clauses.table, rows, domains)
        return int(columns), int(outside)

    def _learn(self, rows: Rows, columns: int) -> Domains:
        return learnt(self._clauses.table, rows, columns)

    def _predicates(self, rows: Rows) -> int:
        """How many predicates the rows have."""
        counts = self._clauses.table.count
        return int(counts[rows[0]]) if rows.size == 1 else int(counts[rows].sum(dtype=np.int64))

    def add_clauses(self, rows: Rows) -> None:
        """Post the predicates of the rows; fits first where it is due."""
        self._add(rows)

    def remove_clauses(self, rows: Rows) -> None:
        """Mark the rows' positions dead; sweeps the lists when an eighth is."""
        self._remove(rows)

    @abstractmethod
    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """The clause rows that event number `at` of the batch satisfies."""

    def match_events(self, batch: EventBatch, counters: Counters) -> Pairs:
        """One event after another."""
        return match_each(self, batch, counters)


class PostedEvents(Posted):
    """The event side: everything of an `EventIndex` but `match_clause`."""

    def __init__(self, events: EventStore) -> None:
        super().__init__()
        self._events = events

    def _survey(self, rows: Rows, domains: Domains) -> tuple[int, int]:
        columns, outside = cells.survey_events(self._events.table, rows, domains)
        return int(columns), int(outside)

    def _learn(self, rows: Rows, columns: int) -> Domains:
        return learnt_from_events(self._events.table, rows, columns)

    def add_events(self, rows: Rows) -> None:
        """Post the values of the rows; fits first where it is due."""
        self._add(rows)

    def remove_events(self, rows: Rows) -> None:
        """Mark the rows' positions dead; sweeps the lists when an eighth is."""
        self._remove(rows)
