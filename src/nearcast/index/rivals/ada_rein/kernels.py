"""What it would cost in wrong answers to skip columns."""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.cells import LAST_CELL, cell


@kernel
def _by_column(c, rows, domains):
    """The rows' predicates grouped by column: offsets, row numbers, and the shares they hold for.

    A predicate's share is that of the cells of its domain which it meets.
    """
    columns = domains.lo.size
    offset = np.zeros(columns + 1, np.int64)
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            offset[np.int64(c.attr[k]) + 1] += 1
    for column in range(columns):
        offset[column + 1] += offset[column]
    place = offset[:-1].copy()
    clause = np.empty(offset[columns], np.int64)
    share = np.empty(offset[columns])
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = c.attr[k]
            width = cell(domains, column, c.high[k]) - cell(domains, column, c.low[k])
            clause[place[column]] = i
            share[place[column]] = (width + 1) / (LAST_CELL + 1)
            place[column] += 1
    return offset, clause, share


@kernel
def tolerated(c, rows, domains, tolerance):
    """The columns that can be skipped: those whose absence adds fewest answers first.

    A clause answers with the product of its predicates' shares; skipping a column divides
    it by the share of the predicate there.
    """
    columns = domains.lo.size
    offset, clause, share = _by_column(c, rows, domains)
    chance = np.ones(rows.size)
    for k in range(clause.size):
        chance[clause[k]] *= share[k]
    added = np.zeros(columns)
    for column in range(columns):
        for k in range(offset[column], offset[column + 1]):
            added[column] += chance[clause[k]] * (1 / share[k] - 1)
    right = answers = chance.sum()
    found = np.empty(columns, np.int64)
    n = 0
    for column in np.argsort(added):
        if offset[column] == offset[column + 1]:
            continue
        for k in range(offset[column], offset[column + 1]):
            answers += chance[clause[k]] * (1 / share[k] - 1)
            chance[clause[k]] /= share[k]
        if not (right > 0 and answers - right <= tolerance * answers):
            break
        found[n] = column
        n += 1
    return found[:n]
