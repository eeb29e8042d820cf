"""Checking one clause against one event: the innermost step of every index."""

from __future__ import annotations

import numpy as np

from nearcast.jit import brief_kernel, kernel


@kernel
def fill(dense, start, attr, value, at):
    """Spread event `at` of a batch over a dense array that is NaN elsewhere."""
    for k in range(start[at], start[at + 1]):
        dense[attr[k]] = value[k]


@kernel
def clear(dense, start, attr, at):
    """Undo `fill`."""
    for k in range(start[at], start[at + 1]):
        dense[attr[k]] = np.nan


@kernel
def intervals_hold(attr, low, high, start, count, dense):
    """Whether a dense event satisfies the predicates start … start + count.

    A missing column is NaN, and NaN is in no interval.
    """
    for k in range(start, start + count):
        v = dense[attr[k]]
        if not (low[k] <= v <= high[k]):
            return False
    return True


@kernel
def contains_sorted(big, b0, b1, small, s0, s1):
    """Whether the ascending run small[s0:s1] is a subset of the ascending run big[b0:b1]."""
    i = b0
    for j in range(s0, s1):
        wanted = small[j]
        while i < b1 and big[i] < wanted:
            i += 1
        if i == b1 or big[i] != wanted:
            return False
        i += 1
    return True


@kernel
def grow(out, size):
    """`out`, or a copy of twice the size when `size` has reached its end."""
    if size < out.size:
        return out
    return longer(out, size, 64)


@kernel
def longer(array, used, least):
    """A copy of the first `used` rows with room for `least`, and for twice as many as before.

    Item by item: where slices are assigned, numba compiles the message that they do not fit.
    """
    larger = np.empty((max(least, 2 * array.shape[0]), *array.shape[1:]), array.dtype)
    old, new = array.reshape(array.size), larger.reshape(larger.size)
    for i in range(used * (new.size // max(larger.shape[0], 1))):
        new[i] = old[i]
    return larger


@kernel
def find_value(attr, value, start, stop, column):
    """The value of a column in an ascending run, NaN if it is not there."""
    lo, hi = start, stop
    while hi - lo > 8:
        mid = (lo + hi) >> 1
        if attr[mid] <= column:
            lo = mid
        else:
            hi = mid
    for k in range(lo, hi):
        if attr[k] == column:
            return value[k]
    return np.nan


@kernel
def event_satisfies(clause_attr, low, high, c0, c1, event_attr, value, e0, e1):
    """Whether the event run e0 … e1 satisfies the predicates c0 … c1 of a clause."""
    for k in range(c0, c1):
        v = find_value(event_attr, value, e0, e1, clause_attr[k])
        if not (low[k] <= v <= high[k]):
            return False
    return True


@kernel
def counts_of(items, size):
    """How often each number below `size` is among the items (NumPy's would copy them first)."""
    count = np.zeros(size, np.int64)
    for item in items:
        if item < size:
            count[item] += 1
    return count


@brief_kernel
def pick(values, rows, out):
    """values[rows]. Where numpy does that it lets go of the GIL, be it for one row.

    A thread that does so again and again is hardly ever parted from it: who waits begins his
    5 ms anew each time.
    """
    for i in range(rows.size):
        out[i] = values[rows[i]]


@brief_kernel
def write_clause(
    start, count, owner, extra, attr, low, high, row, at, clause_attr, clause_low, clause_high
):
    """Write a clause without words or shapes into a row that has no owner, its run at `at`."""
    owner[row] = -1
    start[row] = at
    count[row] = clause_attr.size
    extra[row] = -1
    for k in range(clause_attr.size):
        attr[at + k] = clause_attr[k]
        low[at + k] = clause_low[k]
        high[at + k] = clause_high[k]
