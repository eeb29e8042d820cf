"""fgPEM: an ensemble of REIN and TAMA (Li et al., IJSEKE 2022; PEM: Zhu et al., SEKE 2022).

Counting likes narrow predicates, marking likes wide ones. Each clause is divided: its
predicates wider than a share of their domain go to REIN's buckets, the others to TAMA's
cells, and what both let through matches. The paper runs the two in parallel; here they run
one after the other, for every index is measured on one core.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError
from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Rows
from nearcast.index.lists import ListPool
from nearcast.index.posted import PostedClauses
from nearcast.index.rivals import rein, tama
from nearcast.index.rivals.pem import kernels
from nearcast.index.rivals.rein.kernels import enumerate_ends
from nearcast.index.rivals.tama.kernels import PER_PREDICATE, enumerate_cover
from nearcast.kernels.cells import LAST_CELL
from nearcast.kernels.lists import Entries

__all__ = ["Pem"]


class Pem(PostedClauses):
    """Wide predicates marked, narrow ones counted.

    `width` is the share of its domain from which a predicate counts as wide.
    """

    def __init__(
        self,
        clauses: ClauseStore,
        events: EventStore,  # noqa: ARG002
        width: float = 0.5,
    ) -> None:
        if not 0 <= width <= 1:
            raise ValidationError("width", width, "give a share of the domain, 0 … 1")
        super().__init__(clauses)
        self._width = int(width * LAST_CELL)
        self._buckets, self._ends = rein.laid_out(np.empty(0, np.int8))
        self._cells, self._cover = tama.laid_out(np.empty(0, np.int64))

    def _fit(self, rows: Rows) -> None:
        narrow, wide, _ = kernels.narrow_and_wide(
            self._clauses.table, rows, self._domains, self._width
        )
        self._buckets, self._ends = rein.laid_out(rein.bucket_bits(wide))
        self._cells, self._cover = tama.laid_out(narrow)

    def _widen(self, columns: int) -> None:
        self._buckets = rein.with_columns(self._buckets, self._ends, columns)
        self._cells = tama.with_columns(self._cells, self._cover, columns)

    def _post(self, rows: Rows, positions: Rows) -> None:
        table = self._clauses.table

        def wide_entries(first: int, stop: int) -> tuple[Entries, int]:
            some = rows[first:stop]
            entries = self._ends.entries(2 * self._predicates(some))
            return entries, enumerate_ends(
                table, some, positions[first:stop],
                self._domains, self._buckets, self._width, entries,
            )  # fmt: skip

        def narrow_entries(first: int, stop: int) -> tuple[Entries, int]:
            some = rows[first:stop]
            entries = self._cover.entries(PER_PREDICATE * self._predicates(some))
            return entries, enumerate_cover(
                table, some, positions[first:stop],
                self._domains, self._cells, self._width, entries,
            )  # fmt: skip

        self._ends.post(int(rows.size), wide_entries)
        self._cover.post(int(rows.size), narrow_entries)
        needs = kernels.narrow_and_wide(table, rows, self._domains, self._width)[2]
        self._needs.set(positions, needs, self._positions.used)

    def _pools(self) -> tuple[ListPool, ...]:
        return self._ends, self._cover

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return (*self._buckets, *self._cells)

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Mark, count, and verify who passes both."""
        positions = self._positions
        found: Rows = kernels.match_event(
            self._clauses.table, positions.live[: positions.words()], positions.row,
            self._needs.array, self._domains, self._buckets, self._ends.table,
            self._cells, self._cover.table, batch, at, counters,
        )  # fmt: skip
        return found
