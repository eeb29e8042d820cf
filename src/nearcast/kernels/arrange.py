"""Columns of a table into rows: what turns Arrow into clauses and events, at memory speed."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearcast.jit import brief_kernel, inlined, kernel
from nearcast.kernels.sorting import sort

#: Intervals of a clause that are each compared with each.
SHORT = 24


@kernel
def learn(attr, low, high, bottom, top):
    """Widen the domains bottom … top of columns by the finite ends of intervals."""
    for k in range(attr.size):
        column = attr[k]
        if np.isfinite(low[k]):
            bottom[column] = min(bottom[column], low[k])
            top[column] = max(top[column], low[k])
        if np.isfinite(high[k]):
            bottom[column] = min(bottom[column], high[k])
            top[column] = max(top[column], high[k])


@kernel
def share(low, high, bottom, top):
    """The share of a domain that an interval covers: a guess at its selectivity."""
    if low == high:
        return 0.01
    if not top > bottom:
        return 1.0
    part = (min(high, top) - max(low, bottom)) / (top - bottom)
    return part if part > 0.0 else 0.0  # nor NaN, which an infinite domain would give


@kernel
def _rank(at, first, key, s, column, a, b, out_attr, out_low, out_high):
    """Put an interval among those from `first` to `at`, by its share: runs are short."""
    q = at
    while q > first and key[q - first - 1] > s:
        key[q - first] = key[q - first - 1]
        out_attr[q] = out_attr[q - 1]
        out_low[q] = out_low[q - 1]
        out_high[q] = out_high[q - 1]
        q -= 1
    key[q - first] = s
    out_attr[q] = column
    out_low[q] = a
    out_high[q] = b


@brief_kernel
def arrange_one(
    attr, low, high, flags, xmin, ymin, xmax, ymax, bottom, top, out_attr, out_low, out_high
):
    """One clause of `arrange`, whose columns are all different; the last `flags` are of bools.

    There is a box if there is room for one. Returns whether all finite ends lie in
    bottom … top. (To return arrays that were made here would take as long again.)
    """
    n = attr.size
    first = out_attr.size - n
    key = np.empty(n)
    known = True
    if first:
        out_attr[0], out_low[0], out_high[0] = 0, xmin, xmax
        out_attr[1], out_low[1], out_high[1] = 1, ymin, ymax
        known = bottom[0] <= xmin and xmax <= top[0] and bottom[1] <= ymin and ymax <= top[1]
    for k in range(n):
        column, a, b = np.int64(attr[k]), low[k], high[k]
        low_known = bottom[column] <= a <= top[column] or not np.isfinite(a)
        high_known = bottom[column] <= b <= top[column] or not np.isfinite(b)
        known = known and low_known and high_known
        s = 0.5 if k >= n - flags else share(a, b, bottom[column], top[column])
        _rank(first + k, first, key, s, column, a, b, out_attr, out_low, out_high)
    return known


def arrange(offsets: Any, attr: Any, low: Any, high: Any, box: Any, bottom: Any, top: Any) -> Any:
    """Clauses from runs of intervals: the box in front, the rest by selectivity.

    Intervals on one column are intersected; a run with an empty one yields no clause.
    Returns (clause → row, offsets, attr, low, high).
    """
    total = attr.size + 2 * np.count_nonzero(box[:, 0] == box[:, 0])
    # NumPy asks for huge pages, a kernel would not: 50,000 page faults for a million rows.
    made = np.empty(total, np.int32), np.empty(total), np.empty(total)
    rows, start = arrange_to((offsets, attr, low, high, box, bottom, top), made)
    return rows, start, *(array[: start[-1]] for array in made)


def arrange_to(given: tuple[Any, ...], out: tuple[Any, Any, Any]) -> Any:
    """(clause → row, offsets) of `arrange`, which is `given`; attr, low and high go to `out`."""
    offsets, attr, low, high, box, bottom, top = given
    if not box.shape[0]:
        box = np.full((offsets.size - 1, 4), np.nan)
    read = (frozen(each) for each in (offsets, attr, low, high, box))  # of one type, whose ever
    return _arrange(*read, bottom, top, *out)


def frozen(array: Any) -> Any:
    """The same array, not to be written to."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


@kernel
def _arrange(offsets, attr, low, high, box, bottom, top, out_attr, out_low, out_high):
    """(clause → row, offsets) of `arrange`; the rest goes to `out_…`."""
    n = offsets.size - 1
    rows = np.empty(n, np.int32)
    start = np.empty(n + 1, np.int64)
    longest = 1
    for i in range(n):
        longest = max(longest, offsets[i + 1] - offsets[i])
    key = np.empty(longest)
    clauses = 0
    at = 0
    start[0] = 0
    for i in range(n):
        base = at
        if not np.isnan(box[i, 0]):
            for axis in range(2):
                out_attr[at] = axis
                out_low[at] = box[i, axis]
                out_high[at] = box[i, axis + 2]
                at += 1
        first, begin, size = at, offsets[i], offsets[i + 1] - offsets[i]
        empty = False
        if size <= SHORT and _put_in_order(
            attr, low, high, begin, size, bottom, top, key, first, out_attr, out_low, out_high
        ):
            at += size
            for k in range(begin, begin + size):
                empty |= not (low[k] <= high[k])
        else:
            for k in range(begin, begin + size):
                column, a, b = attr[k], low[k], high[k]
                merged = False
                for q in range(first, at):
                    if out_attr[q] == column:
                        out_low[q] = max(out_low[q], a)
                        out_high[q] = min(out_high[q], b)
                        empty = empty or out_low[q] > out_high[q]
                        merged = True
                if merged:
                    continue
                empty = empty or not (a <= b)
                s = share(a, b, bottom[column], top[column])
                _rank(at, first, key, s, column, a, b, out_attr, out_low, out_high)
                at += 1
        if empty:
            at = base
        else:
            rows[clauses] = i
            clauses += 1
            start[clauses] = at
    return rows[:clauses], start[: clauses + 1]


@inlined
def _put_in_order(
    attr, low, high, begin, size, bottom, top, key, first, out_attr, out_low, out_high
):
    """Put intervals from `first` on by their shares; False where two are on one column.

    As `_rank` would, one after the other. A place is the number of those that come before it:
    each is compared with each, but nothing is to be foretold: three quarters of the time.
    """
    for k in range(size):
        column = attr[begin + k]
        key[k] = share(low[begin + k], high[begin + k], bottom[column], top[column])
    twins = 0
    for k in range(size):
        column, s = attr[begin + k], key[k]
        before = 0
        for q in range(k):
            before += key[q] <= s
            twins += attr[begin + q] == column
        for q in range(k + 1, size):
            before += key[q] < s
        out_attr[first + before] = column
        out_low[first + before] = low[begin + k]
        out_high[first + before] = high[begin + k]
    return twins == 0


@kernel
def sort_words(offsets, code):
    """Word codes ascending and once in each run: (offsets, codes)."""
    n = offsets.size - 1
    start = np.empty(n + 1, np.int64)
    out = np.empty(code.size, np.int32)
    start[0] = 0
    at = 0
    for i in range(n):
        run = code[offsets[i] : offsets[i + 1]].copy()
        sort(run)
        for k in range(run.size):
            if run[k] >= 0 and (k == 0 or run[k] != run[k - 1]):
                out[at] = run[k]
                at += 1
        start[i + 1] = at
    return start, out[:at]


@kernel
def pick_runs(offsets, value, rows):
    """The runs of some rows, one after another: (offsets, values)."""
    start = np.empty(rows.size + 1, np.int64)
    start[0] = 0
    for i in range(rows.size):
        start[i + 1] = start[i] + offsets[rows[i] + 1] - offsets[rows[i]]
    out = np.empty(start[-1], value.dtype)
    for i in range(rows.size):
        o = offsets[rows[i]]
        for k in range(start[i + 1] - start[i]):
            out[start[i] + k] = value[o + k]
    return start, out


@kernel
def rows_of_columns(columns, value):
    """Runs of (column, value) from a matrix with a row a column, NaN where it is missing."""
    n = value.shape[1]
    start = np.zeros(n + 1, np.int64)
    for c in range(columns.size):
        for i in range(n):
            if not np.isnan(value[c, i]):
                start[i + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    fill = start[:-1].copy()
    attr = np.empty(start[-1], np.int32)
    out = np.empty(start[-1])
    for c in range(columns.size):
        for i in range(n):
            if not np.isnan(value[c, i]):
                attr[fill[i]] = columns[c]
                out[fill[i]] = value[c, i]
                fill[i] += 1
    return start, attr, out
