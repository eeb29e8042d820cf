"""B_null as the paper keeps it (§IV.C): for each column, as bits, the clauses without it.

A match copies a column's bitset, marks in it who is satisfied, and ANDs the columns. Columns that
no clause mentions have none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, Rows
from nearcast.index.columns import grown
from nearcast.index.di_tree.nulls import kernels
from nearcast.index.di_tree.nulls.kernels import Null
from nearcast.kernels.bitset import words_for

__all__ = ["Nulls"]

U8 = npt.NDArray[np.uint64]


class Nulls:
    """The bitsets of the columns that are mentioned; `table` is what kernels take.

    A clause costs a bit in each column, so adding one is O(columns), as in the paper.
    """

    def __init__(self) -> None:
        self.table = Null(np.empty(0, np.int32), np.empty(0, np.int32), np.zeros((0, 0), np.uint64))

    def fit(self, columns: int) -> None:
        """Start anew for so many columns."""
        self.table = Null(
            np.full(columns, -1, np.int32), np.empty(0, np.int32), np.zeros((0, 0), np.uint64)
        )

    def widen(self, columns: int) -> None:
        """Be ready for columns that the fit has not seen."""
        known = self.table.slot.size
        slot = grown(self.table.slot, columns)[:columns]
        slot[known:] = -1
        self.table = self.table._replace(slot=slot)

    def post(self, clauses: Clauses, rows: Rows, positions: Rows, live: U8) -> None:
        """Set the rows' bits in the columns that they do not mention; `live` has them already."""
        old = self.table
        slot, before = old.slot, old.column.size
        column = np.concatenate([old.column, kernels.mention(clauses, rows, slot, before)])
        words, bits = live.size, old.bits
        if column.size > before or words > bits.shape[1]:
            words = max(words, bits.shape[1] * 8 // 9)
            room = words + (words >> 3)  # so that growing costs a constant a clause
            bits = np.zeros((column.size, words_for(64 * room)), np.uint64)
            bits[:before, : old.bits.shape[1]] = old.bits
            bits[before:, : live.size] = live
        self.table = Null(slot, column, bits)
        kernels.post(clauses, rows, positions, self.table)

    def check_invariants(self, used: int) -> None:
        """Slots and columns point at each other; no bit lies beyond the positions in use."""
        slot, column, bits = self.table
        assert np.array_equal(slot[column], np.arange(column.size))
        assert int((slot >= 0).sum()) == column.size == bits.shape[0]
        beyond = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, used:]
        assert not beyond.any()
