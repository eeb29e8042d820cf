"""The ensemble: REIN's marking and TAMA's counting on the parts of one clause."""

from __future__ import annotations

import numpy as np

from nearcast.index.rivals.rein.kernels import clear_unsatisfied
from nearcast.index.rivals.tama.kernels import count_covered
from nearcast.jit import kernel
from nearcast.kernels.cells import cell
from nearcast.kernels.counting import doubts, reached_members, rows_that_hold


@kernel
def narrow_and_wide(c, rows, domains, width):
    """By column: predicates over fewer cells than `width`, and the others; by row: the former."""
    narrow = np.zeros(domains.lo.size, np.int64)
    wide = np.zeros(domains.lo.size, np.int64)
    needs = np.zeros(rows.size, np.int64)
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = c.attr[k]
            if cell(domains, column, c.high[k]) - cell(domains, column, c.low[k]) < width:
                narrow[column] += 1
                needs[i] += 1
            else:
                wide[column] += 1
    return narrow, wide, needs


@kernel
def match_event(c, live, row, need, domains, buckets, ends, cells, cover, batch, at, counters):
    """Rows that no wide predicate takes out and whose narrow ones are all hit, verified."""
    bits = live.copy()
    clear_unsatisfied(domains, buckets, ends, batch, at, bits, counters)
    count = np.zeros(need.size, need.dtype)
    doubt = doubts(need.size)
    count_covered(domains, cells, cover, batch, at, count, doubt, counters)
    found = reached_members(bits, count, need)
    counters[1] += found.size
    answer = rows_that_hold(c, found, doubt, row, batch, at)
    counters[2] += answer.size
    return answer
