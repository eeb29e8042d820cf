"""Setting the bits of those who cannot match."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.cells import HALVINGS, cell

_ONE = np.uint64(1)


class Veto(NamedTuple):
    """Bitsets of who cannot match, one for each cell of some columns' upper layers."""

    depth: np.ndarray
    """By column: halvings down to the layer of its cells, −1 for a column without."""
    first: np.ndarray
    """By column: the row of its first cell. The last row is for events that lack the column."""
    order: np.ndarray
    """The columns that have bitsets, those that fail most first."""
    bits: np.ndarray
    """(rows, words). Row 0: who has predicates on columns without bitsets."""


@kernel
def set_vetoes(c, rows, positions, domains, veto, forward, weight):
    """Set the bits of the rows' predicates; adds the bits set to the columns' weights.

    Backward, a cell vetoes the intervals that lie beside it; forward, those that do not
    cover it entirely: their comparisons may take the veto back. Returns how many
    predicates of each row are on columns without bitsets.
    """
    attr, low, high = c.attr, c.low, c.high
    depth, first, bits = veto.depth, veto.first, veto.bits
    margin = 0 if forward else 1
    others = np.zeros(rows.size, np.int64)
    for i in range(rows.size):
        word = positions[i] >> 6
        bit = _ONE << np.uint64(positions[i] & 63)
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = attr[k]
            d = np.int64(depth[column])
            if d < 0:
                others[i] += 1
                continue
            row = np.int64(first[column])
            below = (cell(domains, column, low[k]) >> (HALVINGS - d)) + 1 - margin
            above = (cell(domains, column, high[k]) >> (HALVINGS - d)) + margin
            above = max(above, below)
            for r in range(row, row + below):
                bits[r, word] |= bit
            for r in range(row + above, row + (1 << d) + 1):
                bits[r, word] |= bit
            weight[column] += below + (1 << d) - above
        if others[i] > 0:
            bits[0, word] |= bit
    return others


@kernel
def toggle_vetoes(c, rows, positions, domains, veto, forward, weight):
    """The same for bitsets that are all zero: only where a bit changes from cell to cell.

    To be followed by `spread_vetoes`. Three writes a predicate instead of one a cell.
    """
    attr, low, high = c.attr, c.low, c.high
    depth, first, bits = veto.depth, veto.first, veto.bits
    margin = 0 if forward else 1
    others = np.zeros(rows.size, np.int64)
    for i in range(rows.size):
        word = positions[i] >> 6
        bit = _ONE << np.uint64(positions[i] & 63)
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = attr[k]
            d = np.int64(depth[column])
            if d < 0:
                others[i] += 1
                continue
            row = np.int64(first[column])
            below = (cell(domains, column, low[k]) >> (HALVINGS - d)) + 1 - margin
            above = (cell(domains, column, high[k]) >> (HALVINGS - d)) + margin
            above = max(above, below)
            bits[row, word] ^= bit
            if below < 1 << d:
                bits[row + below, word] ^= bit
            if above < 1 << d:
                bits[row + above, word] ^= bit
            bits[row + (1 << d), word] |= bit
            weight[column] += below + (1 << d) - above
        if others[i] > 0:
            bits[0, word] |= bit
    return others


@kernel
def spread_vetoes(veto):
    """Turn the changes from cell to cell into the bits of each cell."""
    bits = veto.bits
    for k in range(veto.order.size):
        row = np.int64(veto.first[veto.order[k]])
        for r in range(row + 1, row + (1 << np.int64(veto.depth[veto.order[k]]))):
            for w in range(bits.shape[1]):
                bits[r, w] ^= bits[r - 1, w]
