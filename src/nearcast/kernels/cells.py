"""Where a value lies in its column's domain: one of 65 536 cells, learnt from the data.

A domain is split in half, its halves in half and so on; bit 15 of a value's cell tells the
half, bit 14 the quarter, and the top b bits the cell at a resolution of 2^b. As in DI-Tree a
value on a split point belongs to the left. Cells never decide anything by themselves but
by order: cell(u) < cell(v) implies u < v, also outside of the domain and for infinite
values, so whoever compares the values of equal cells is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel

#: Halvings of a domain.
HALVINGS = 16
LAST_CELL = (1 << HALVINGS) - 1
#: Ends farther out than this are left out of a domain: differences must stay finite.
_FARTHEST = 1e300
#: Where the outermost 256th part on either side stretches a domain fourfold, it is left out.
_TRIMMED = 256
_STRETCHED = 4.0


class Domains(NamedTuple):
    """The learnt domain of each column."""

    lo: np.ndarray
    hi: np.ndarray
    scale: np.ndarray
    """Cells per unit; 0 where the domain is a single value."""


@kernel
def cell(domains, column, value):
    """The cell of a value that is not NaN."""
    lo = domains.lo[column]
    if value <= lo:
        return 0
    if value >= domains.hi[column]:
        return LAST_CELL
    return min(max(int(np.ceil((value - lo) * domains.scale[column])) - 1, 0), LAST_CELL)


@kernel
def _scale(lo, hi):
    if not hi > lo:
        return 0.0
    scale = (LAST_CELL + 1) / (hi - lo)
    return scale if np.isfinite(scale) else 0.0


@kernel
def predicates_of(c, rows, columns):
    """How many predicates the rows have on each column."""
    counts = np.zeros(columns, np.int64)
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            counts[c.attr[k]] += 1
    return counts


@kernel
def sampled_ends(c, rows, step, columns):
    """Offsets by column and the finite ends of every step-th row."""
    offset = np.zeros(columns + 1, np.int64)
    for i in range(0, rows.size, step):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            inside = int(abs(c.low[k]) <= _FARTHEST) + int(abs(c.high[k]) <= _FARTHEST)
            offset[c.attr[k] + 1] += inside
    for column in range(columns):
        offset[column + 1] += offset[column]
    place = offset[:-1].copy()
    ends = np.empty(offset[columns])
    for i in range(0, rows.size, step):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            for end in (c.low[k], c.high[k]):
                if abs(end) <= _FARTHEST:
                    ends[place[c.attr[k]]] = end
                    place[c.attr[k]] += 1
    return offset, ends


@kernel
def domains_of(offset, ends):
    """Domains from samples, column i's at offset[i] … offset[i + 1]; 0 … 0 without any."""
    columns = offset.size - 1
    lo = np.zeros(columns)
    hi = np.zeros(columns)
    scale = np.zeros(columns)
    for column in range(columns):
        found = ends[offset[column] : offset[column + 1]]
        if found.size > 0:
            found.sort()
            trimmed = found.size // _TRIMMED
            whole = found[found.size - 1] - found[0]
            inner = found[found.size - 1 - trimmed] - found[trimmed]
            if inner == 0.0 or whole <= _STRETCHED * inner:
                trimmed = 0
            lo[column] = found[trimmed]
            hi[column] = found[found.size - 1 - trimmed]
            scale[column] = _scale(lo[column], hi[column])
    return lo, hi, scale


@kernel
def sampled_values(live, rows, step, columns):
    """Offsets by column and the finite values of every step-th event row."""
    offset = np.zeros(columns + 1, np.int64)
    for i in range(0, rows.size, step):
        start = live.start[rows[i]]
        for k in range(start, start + np.int64(live.count[rows[i]])):
            offset[live.attr[k] + 1] += abs(live.value[k]) <= _FARTHEST
    for column in range(columns):
        offset[column + 1] += offset[column]
    place = offset[:-1].copy()
    values = np.empty(offset[columns])
    for i in range(0, rows.size, step):
        start = live.start[rows[i]]
        for k in range(start, start + np.int64(live.count[rows[i]])):
            if abs(live.value[k]) <= _FARTHEST:
                values[place[live.attr[k]]] = live.value[k]
                place[live.attr[k]] += 1
    return offset, values


@kernel
def survey(c, rows, domains):
    """(columns up to the highest one, finite ends outside of the domains)."""
    attr, low, high = c.attr, c.low, c.high
    columns, outside = 0, 0
    known = domains.lo.size
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = np.int64(attr[k])
            columns = max(columns, column + 1)
            if column < known:
                lo, hi = domains.lo[column], domains.hi[column]
                outside += (low[k] < lo or low[k] > hi) and np.isfinite(low[k])
                outside += (high[k] < lo or high[k] > hi) and np.isfinite(high[k])
    return columns, outside


@kernel
def survey_events(live, rows, domains):
    """(columns up to the highest one, finite values outside of the domains)."""
    attr, value = live.attr, live.value
    columns, outside = 0, 0
    known = domains.lo.size
    for i in range(rows.size):
        start = live.start[rows[i]]
        for k in range(start, start + np.int64(live.count[rows[i]])):
            column = np.int64(attr[k])
            columns = max(columns, column + 1)
            if column < known:
                v = value[k]
                lo, hi = domains.lo[column], domains.hi[column]
                outside += (v < lo or v > hi) and np.isfinite(v)
    return columns, outside
