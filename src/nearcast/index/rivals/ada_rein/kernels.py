"""What it would cost in wrong answers to skip columns."""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.cells import LAST_CELL, cell


@kernel
def _shares(c, rows, domains):
    """The share of its domain that each predicate of the rows holds for, row after row."""
    total = 0
    for i in range(rows.size):
        total += np.int64(c.count[rows[i]])
    shares = np.empty(total)
    n = 0
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = c.attr[k]
            width = cell(domains, column, c.high[k]) - cell(domains, column, c.low[k])
            shares[n] = (width + 1) / (LAST_CELL + 1)
            n += 1
    return shares


@kernel
def tolerated(c, rows, domains, tolerance):
    """The columns that can be skipped: those whose absence adds fewest answers first.

    A clause answers with the product of its predicates' shares; skipping a column divides
    it by the share of the predicate there.
    """
    columns = domains.lo.size
    shares = _shares(c, rows, domains)
    chance = np.ones(rows.size)
    added = np.zeros(columns)
    used = np.zeros(columns, np.bool_)
    n = 0
    for i in range(rows.size):
        start, count = np.int64(c.start[rows[i]]), np.int64(c.count[rows[i]])
        for k in range(count):
            chance[i] *= shares[n + k]
        for k in range(count):
            used[c.attr[start + k]] = True
            added[c.attr[start + k]] += chance[i] * (1 / shares[n + k] - 1)
        n += count
    right = chance.sum()
    skipped = np.zeros(columns, np.bool_)
    found = np.empty(columns, np.int64)
    m = 0
    for column in np.argsort(added):
        if not used[column]:
            continue
        skipped[column] = True
        answers = 0.0
        n = 0
        for i in range(rows.size):
            more = chance[i]
            start, count = np.int64(c.start[rows[i]]), np.int64(c.count[rows[i]])
            for k in range(count):
                if skipped[c.attr[start + k]]:
                    more /= shares[n + k]
            answers += more
            n += count
        if not (right > 0 and answers - right <= tolerance * answers):
            break
        found[m] = column
        m += 1
    return found[:m]
