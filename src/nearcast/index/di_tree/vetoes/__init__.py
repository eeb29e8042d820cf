"""The bitsets of the trees' upper layers: who cannot match a value of this cell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, Rows
from nearcast.index.columns import grown
from nearcast.index.di_tree.vetoes import kernels
from nearcast.index.di_tree.vetoes.kernels import Veto
from nearcast.kernels.bitset import LINE, words_for
from nearcast.kernels.cells import Domains, predicates_of

__all__ = ["Vetoes"]

#: Finer cells than 2^8 a column do not pay: what they save is read from the bitsets.
_DEEPEST = 8


def _pitch(words: int) -> int:
    """Words of a row: an odd number of cache lines, or rows would compete for cache sets."""
    lines = (words + LINE - 1) // LINE
    return LINE * (lines | 1)


class Vetoes:
    """Bitsets for the columns that many clauses mention; `table` is what kernels take."""

    def __init__(self, bytes_per_predicate: int, forward: bool) -> None:
        self._budget = bytes_per_predicate
        self._forward = forward
        self._fresh = True
        """Whether no bit is set yet."""
        self.table = self._laid_out(np.empty(0, np.int8), 0)

    def _laid_out(self, depth: npt.NDArray[np.int8], words: int) -> Veto:
        sizes = np.where(depth < 0, 0, (1 << np.maximum(depth, 0).astype(np.int64)) + 1)
        first = 1 + np.cumsum(sizes) - sizes
        return Veto(
            depth=depth,
            first=first,
            order=np.flatnonzero(depth >= 0),
            bits=np.zeros((1 + int(sizes.sum()), _pitch(words)), np.uint64),
        )

    def fit(self, clauses: Clauses, rows: Rows, domains: Domains) -> None:
        """Choose the columns and their cells: a cell costs one bit a clause."""
        counts = predicates_of(clauses, rows, domains.lo.size)
        cells = 8 * self._budget * counts // max(1, rows.size)
        deep = [min(_DEEPEST, n.bit_length() - 1) if n >= 2 else -1 for n in cells.tolist()]
        self.table = self._laid_out(np.array(deep, np.int8), words_for(int(rows.size)))
        self._fresh = True

    def widen(self, columns: int) -> None:
        """Columns that the fit has not seen have no bitsets."""
        known = self.table.depth.size
        depth = grown(self.table.depth, columns)[:columns]
        first = grown(self.table.first, columns)[:columns]
        depth[known:] = -1
        first[known:] = 0
        self.table = self.table._replace(depth=depth, first=first)

    def post(
        self, clauses: Clauses, rows: Rows, positions: Rows, domains: Domains, used: int
    ) -> npt.NDArray[np.int64]:
        """Set the rows' bits; positions lie below `used`.

        Returns how many predicates of each row are on columns without bitsets.
        """
        self._reserve(words_for(used))
        weight = np.zeros(self.table.depth.size, np.int64)
        post = kernels.toggle_vetoes if self._fresh else kernels.set_vetoes
        others: npt.NDArray[np.int64] = post(
            clauses, rows, positions, domains, self.table, self._forward, weight
        )
        if self._fresh:
            kernels.spread_vetoes(self.table)
            self._fresh = False
        if rows.size > 1:
            order = self.table.order
            share = weight[order] >> self.table.depth[order]
            self.table = self.table._replace(order=order[np.argsort(-share, kind="stable")])
        return others

    def _reserve(self, words: int) -> None:
        old = self.table.bits
        if words > old.shape[1]:
            bits = np.zeros((old.shape[0], _pitch(words + (words >> 3))), np.uint64)
            bits[:, : old.shape[1]] = old
            self.table = self.table._replace(bits=bits)

    def check_invariants(self, used: int) -> None:
        """No bit beyond the positions in use; who vetoes anywhere vetoes a missing column."""
        bits = self.table.bits
        beyond = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, used:]
        assert not beyond.any()
        for column in self.table.order.tolist():
            first = int(self.table.first[column])
            last = first + (1 << int(self.table.depth[column]))
            assert not (np.bitwise_or.reduce(bits[first:last]) & ~bits[last]).any()
