"""The two layers of k-index and OpIndex: a partition by a key, then lists by column.

A partition that is worth it has lists for each column; rows of the others lie in one loose
list each and are compared one by one. Rows come as runs of columns, so that clauses and
events are partitioned by the same code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.cells import HALVINGS, cell
from nearcast.kernels.counting import reached_by_all
from nearcast.kernels.rows import event_satisfies, grow


class Directory(NamedTuple):
    """Where the lists of a (partition, column) are."""

    part: np.ndarray
    """By key: the number of a partition with lists, −1 for one without."""
    base: np.ndarray
    """(partitions, columns): the first list."""
    bits: np.ndarray
    """(partitions, columns): halvings of the domain, so 2^bits cells."""


@kernel
def pivots(start, count, attr, rows, frequency):
    """The rarest column of each row, plus 1; 0 for a row without columns. See `is_rarer`."""
    keys = np.zeros(rows.size, np.int64)
    for i in range(rows.size):
        first = np.int64(start[rows[i]])
        for k in range(first, first + np.int64(count[rows[i]])):
            column = np.int64(attr[k])
            if keys[i] == 0 or is_rarer(column, keys[i] - 1, frequency):
                keys[i] = column + 1
    return keys


@kernel
def is_rarer(a, b, frequency):
    """Whether column a comes before b: fewer rows have it; columns not counted come first."""
    rare_a = frequency[a] if a < frequency.size else 0
    rare_b = frequency[b] if b < frequency.size else 0
    return rare_a < rare_b or (rare_a == rare_b and a < b)


@kernel
def tabulate(start, count, attr, rows, keys, part, parts, columns):
    """How many entries each (partition, column) will hold."""
    counts = np.zeros((parts, columns), np.int64)
    for i in range(rows.size):
        p = part[keys[i]]
        if p < 0:
            continue
        first = np.int64(start[rows[i]])
        for k in range(first, first + np.int64(count[rows[i]])):
            counts[p, attr[k]] += 1
    return counts


@kernel
def in_lists(start, count, attr, rows, keys, directory):
    """Whether each row goes to lists: its partition has them, for all of its columns."""
    columns = directory.base.shape[1]
    answer = np.zeros(rows.size, np.bool_)
    for i in range(rows.size):
        if keys[i] >= directory.part.size or directory.part[keys[i]] < 0:
            continue
        answer[i] = True
        first = np.int64(start[rows[i]])
        for k in range(first, first + np.int64(count[rows[i]])):
            if attr[k] >= columns:
                answer[i] = False
    return answer


@kernel
def keys_as_entries(keys, positions, entries):
    """Loose rows as entries of their keys' lists."""
    for i in range(keys.size):
        entries.target[i] = keys[i]
        entries.item[i] = positions[i]
    return keys.size


@kernel
def live_ones(positions, row):
    """The positions that have a row."""
    out = np.empty(positions.size, np.int32)
    n = 0
    for k in range(positions.size):
        if row[positions[k]] >= 0:
            out[n] = positions[k]
            n += 1
    return out[:n]


# -- events ------------------------------------------------------------------------------


@kernel
def frequencies(start, count, attr, rows, columns):
    """How many rows have each column."""
    counts = np.zeros(columns, np.int64)
    for i in range(rows.size):
        first = np.int64(start[rows[i]])
        for k in range(first, first + np.int64(count[rows[i]])):
            counts[attr[k]] += 1
    return counts


@kernel
def no_more_frequent(keys, column, frequency):
    """By key: whether that pivot is not more frequent than the column."""
    answer = np.zeros(keys, np.bool_)
    for key in range(1, keys):
        answer[key] = not is_rarer(column, key - 1, frequency)
    return answer


@kernel
def enumerate_values(live, rows, positions, keys, domains, directory, entries):
    """The values of each event as entries of their cells; NaN is in no interval."""
    attr, value = live.attr, live.value
    target, item, number = entries.target, entries.item, entries.value
    n = 0
    for i in range(rows.size):
        part = directory.part[keys[i]]
        start = live.start[rows[i]]
        for k in range(start, start + np.int64(live.count[rows[i]])):
            if np.isnan(value[k]):
                continue
            column = attr[k]
            place = cell(domains, column, value[k]) >> (
                HALVINGS - np.int64(directory.bits[part, column])
            )
            target[n] = directory.base[part, column] + place
            item[n] = positions[i]
            number[n, 0] = value[k]
            n += 1
    return n


@kernel
def _count_interval(lists, first, last, low, high, count):
    """Count the entries of the lists first … last with a value in low … high."""
    item, value = lists.item, lists.value
    for at in range(first, last + 1):
        start = lists.start[at]
        stop = start + lists.size[at]
        if first < at < last:
            for k in range(start, stop):
                count[np.uint64(item[k])] += 1
        else:
            for k in range(start, stop):
                count[np.uint64(item[k])] += low <= value[k, 0] <= high


@kernel
def match_clause(
    live, row_at, eligible, count, domains, directory, lists, loose, c, row, now, counters
):
    """Live events that satisfy clause `row`, which has at least one predicate."""
    c0 = np.int64(c.start[row])
    c1 = c0 + np.int64(c.count[row])
    columns = directory.base.shape[1]
    out = np.empty(64, np.int32)
    n = 0
    known = True
    for k in range(c0, c1):
        known = known and c.attr[k] < columns
    for key in range(eligible.size):
        if not eligible[key]:
            continue
        for k in range(loose.start[key], loose.start[key] + loose.size[key]):
            e = row_at[loose.item[k]]
            if e < 0 or live.expires[e] <= now:
                continue
            counters[1] += 1
            e0 = live.start[e]
            if event_satisfies(
                c.attr, c.low, c.high, c0, c1,
                live.attr, live.value, e0, e0 + np.int64(live.count[e]),
            ):  # fmt: skip
                out = grow(out, n)
                out[n] = e
                n += 1
        if not known or key >= directory.part.size or directory.part[key] < 0:
            continue
        part = directory.part[key]
        for k in range(c0, c1):
            column = c.attr[k]
            shift = HALVINGS - np.int64(directory.bits[part, column])
            base = directory.base[part, column]
            first = base + (cell(domains, column, c.low[k]) >> shift)
            last = base + (cell(domains, column, c.high[k]) >> shift)
            _count_interval(lists, first, last, c.low[k], c.high[k], count)
            counters[0] += last - first + 1
    for position in reached_by_all(count, c1 - c0):
        e = row_at[position]
        counters[1] += 1
        if e >= 0 and live.expires[e] > now:
            out = grow(out, n)
            out[n] = e
            n += 1
    counters[2] += n
    return out[:n]
