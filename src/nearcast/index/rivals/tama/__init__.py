"""TAMA: count the cells that hold the value (Zhao and Wu, ICDCS 2011).

A column's domain is halved several times; an interval is stored in the fewest cells of all
levels that cover it, an event value lies in one cell of each level, so it meets every
interval that holds it once. Who is met as often as it has predicates matches. As published
TAMA is approximate: at its ends an interval covers up to a cell too much. Here the cells in
which intervals begin and end are apart, and who was met there is verified. The narrower the
predicates, the fewer are counted: TAMA likes narrow ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Rows
from nearcast.index.columns import grown
from nearcast.index.domains import cell_bits
from nearcast.index.lists import ListPool
from nearcast.index.posted import PostedClauses
from nearcast.index.rivals.tama import kernels
from nearcast.index.rivals.tama.kernels import Cells
from nearcast.kernels.cells import predicates_of
from nearcast.kernels.lists import Entries

__all__ = ["Tama", "laid_out", "with_columns"]

#: Predicates for each leaf cell of a column.
_PER_CELL = 64


def laid_out(counts: npt.NDArray[np.int64]) -> tuple[Cells, ListPool]:
    """Cells for columns with so many predicates, and their empty lists."""
    bits = cell_bits(counts, _PER_CELL, kernels.MOST_BITS)
    sizes = kernels.LISTS_PER_CELL << bits.astype(np.int64)
    pool = ListPool(values=0)
    pool.make(int(sizes.sum()))
    return Cells(base=np.cumsum(sizes) - sizes, bits=bits), pool


def with_columns(cells: Cells, pool: ListPool, columns: int) -> Cells:
    """The cells with one list for each further column."""
    known = cells.bits.size
    first = pool.make(kernels.LISTS_PER_CELL * (columns - known))
    wider = Cells(*(grown(array, columns)[:columns] for array in cells))
    wider.base[known:] = first + kernels.LISTS_PER_CELL * np.arange(columns - known)
    wider.bits[known:] = 0
    return wider


class Tama(PostedClauses):
    """A tree of cells a column; a match counts O(predicates that hold)."""

    def __init__(self, clauses: ClauseStore, events: EventStore) -> None:  # noqa: ARG002
        super().__init__(clauses)
        self._cells, self._lists = laid_out(np.empty(0, np.int64))

    def _fit(self, rows: Rows) -> None:
        counts = predicates_of(self._clauses.table, rows, self._domains.lo.size)
        self._cells, self._lists = laid_out(counts)

    def _widen(self, columns: int) -> None:
        self._cells = with_columns(self._cells, self._lists, columns)

    def _post(self, rows: Rows, positions: Rows) -> None:
        def enumerate_entries(first: int, stop: int) -> tuple[Entries, int]:
            some = rows[first:stop]
            entries = self._lists.entries(kernels.PER_PREDICATE * self._predicates(some))
            return entries, kernels.enumerate_cover(
                self._clauses.table, some, positions[first:stop],
                self._domains, self._cells, kernels.ANY_WIDTH, entries,
            )  # fmt: skip

        self._lists.post(int(rows.size), enumerate_entries)
        self._needs.set(positions, self._clauses.table.count[rows], self._positions.used)

    def _pools(self) -> tuple[ListPool, ...]:
        return (self._lists,)

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return self._cells

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Count hits cell by cell, then verify who has enough."""
        found: Rows = kernels.match_event(
            self._clauses.table, self._positions.row, self._needs.array,
            self._domains, self._cells, self._lists.table, batch, at, counters,
        )  # fmt: skip
        return found
