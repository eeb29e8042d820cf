"""TAMA's cover by dyadic cells, and its counting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.cells import HALVINGS, cell
from nearcast.kernels.counting import doubts, hit, hit_with_doubt, reached, rows_that_hold

#: Entries that a predicate makes at most for so many halvings: two a level.
MOST_BITS = 8
PER_PREDICATE = 2 * MOST_BITS + 2
#: Lists of a column for each leaf cell: a tree's two, and one for what only begins or ends there.
LISTS_PER_CELL = 3
#: Wider than any predicate, in cells.
ANY_WIDTH = 1 << HALVINGS


class Cells(NamedTuple):
    """By column: a complete binary tree of lists; node 1 is the root, 2 n and 2 n + 1 below n.

    The predicates that begin or end in a leaf cell have a list of their own, behind the tree.
    """

    base: np.ndarray
    """The number of list 0 of the column, which is not used."""
    bits: np.ndarray
    """Halvings."""


@kernel
def enumerate_cover(c, rows, positions, domains, cells, widest, entries):
    """The fewest cells that cover each predicate, as entries; returns how many.

    The cells in which it begins and ends are apart: they cover too much. Predicates over
    `widest` cells of the domain or more are left out.
    """
    attr, low, high = c.attr, c.low, c.high
    target, item = entries.target, entries.item
    n = 0
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = attr[k]
            first, last = cell(domains, column, low[k]), cell(domains, column, high[k])
            if last - first >= widest:
                continue
            bits = np.int64(cells.bits[column])
            base = cells.base[column]
            left = (1 << bits) + (first >> (HALVINGS - bits))
            right = (1 << bits) + (last >> (HALVINGS - bits))
            target[n], item[n] = base + (1 << bits) + left, positions[i]
            n += 1
            if right > left:
                target[n], item[n] = base + (1 << bits) + right, positions[i]
                n += 1
            left += 1
            while left < right:
                if left & 1:
                    target[n], item[n] = base + left, positions[i]
                    n += 1
                    left += 1
                if right & 1:
                    right -= 1
                    target[n], item[n] = base + right, positions[i]
                    n += 1
                left >>= 1
                right >>= 1
    return n


@kernel
def count_covered(domains, cells, lists, batch, at, count, doubt, counters):
    """Count a hit for each predicate in whose cover a value of event `at` lies."""
    for e in range(batch.start[at], batch.start[at + 1]):
        column = batch.attr[e]
        value = batch.value[e]
        if column >= cells.bits.size or np.isnan(value):
            continue
        bits = np.int64(cells.bits[column])
        node = (1 << bits) + (cell(domains, column, value) >> (HALVINGS - bits))
        hit_with_doubt(count, doubt, lists, cells.base[column] + (1 << bits) + node)
        while node > 0:
            hit(count, lists, cells.base[column] + node)
            node >>= 1
        counters[0] += bits + 2


@kernel
def match_event(c, row, need, domains, cells, lists, batch, at, counters):
    """Rows with all their predicates hit; verified, if that was where one begins or ends."""
    count = np.zeros(need.size, need.dtype)
    doubt = doubts(need.size)
    count_covered(domains, cells, lists, batch, at, count, doubt, counters)
    found = reached(count, need)
    counters[1] += found.size
    answer = rows_that_hold(c, found, doubt, row, batch, at)
    counters[2] += answer.size
    return answer
