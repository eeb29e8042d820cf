"""REIN: who is not taken out, matches (Qian et al., INFOCOM 2014).

Each column has one row of buckets for the lower ends of its intervals and one for the
upper ends. An event value takes out everybody with a low end in a higher bucket or a high
end in a lower one, and compares in its own bucket only. The wider the predicates, the
fewer are taken out: REIN likes wide ones, and events with many attributes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Rows
from nearcast.index.columns import grown
from nearcast.index.domains import cell_bits
from nearcast.index.lists import ListPool
from nearcast.index.posted import PostedClauses
from nearcast.index.rivals.rein import kernels
from nearcast.index.rivals.rein.kernels import Buckets
from nearcast.kernels.cells import predicates_of
from nearcast.kernels.lists import Entries

__all__ = ["Rein", "bucket_bits", "laid_out", "with_columns"]

#: Entries that a bucket should hold, and the most halvings (the paper: some 1000 buckets).
_PER_BUCKET = 256
_MOST_BITS = 10


def bucket_bits(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
    """Halvings for the buckets of columns with so many predicates."""
    return cell_bits(counts, _PER_BUCKET, _MOST_BITS)


def laid_out(bits: npt.NDArray[np.int8]) -> tuple[Buckets, ListPool]:
    """Empty buckets, 2^bits for each end of a column, none where bits is −1."""
    sizes = np.where(bits < 0, 0, 2 << np.maximum(bits, 0).astype(np.int64))
    pool = ListPool(values=1)
    pool.make(int(sizes.sum()))
    return Buckets(base=np.cumsum(sizes) - sizes, bits=bits), pool


def with_columns(buckets: Buckets, pool: ListPool, columns: int) -> Buckets:
    """The buckets with one an end for each further column."""
    known = buckets.bits.size
    first = pool.make(2 * (columns - known))
    wider = Buckets(*(grown(array, columns)[:columns] for array in buckets))
    wider.base[known:] = first + 2 * np.arange(columns - known)
    wider.bits[known:] = 0
    return wider


class Rein(PostedClauses):
    """Two rows of buckets a column; a match marks O(predicates that fail)."""

    def __init__(self, clauses: ClauseStore, events: EventStore) -> None:  # noqa: ARG002
        super().__init__(clauses)
        self._buckets, self._lists = laid_out(np.empty(0, np.int8))

    def _fit(self, rows: Rows) -> None:
        self._buckets, self._lists = laid_out(self._bits(rows))

    def _bits(self, rows: Rows) -> npt.NDArray[np.int8]:
        """Halvings for each column's buckets, −1 to leave it out."""
        return bucket_bits(predicates_of(self._clauses.table, rows, self._domains.lo.size))

    def _widen(self, columns: int) -> None:
        self._buckets = with_columns(self._buckets, self._lists, columns)

    def _post(self, rows: Rows, positions: Rows) -> None:
        def enumerate_entries(first: int, stop: int) -> tuple[Entries, int]:
            some = rows[first:stop]
            entries = self._lists.entries(2 * self._predicates(some))
            return entries, kernels.enumerate_ends(
                self._clauses.table, some, positions[first:stop],
                self._domains, self._buckets, 0, entries,
            )  # fmt: skip

        self._lists.post(int(rows.size), enumerate_entries)

    def _pools(self) -> tuple[ListPool, ...]:
        return (self._lists,)

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return self._buckets

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Start with everybody, take out whom a predicate fails."""
        positions = self._positions
        found: Rows = kernels.match_event(
            positions.live[: positions.words()], positions.row,
            self._domains, self._buckets, self._lists.table, batch, at, counters,
        )  # fmt: skip
        return found
