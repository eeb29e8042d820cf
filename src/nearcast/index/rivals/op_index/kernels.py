"""OpIndex's signature lists and its counting."""

from __future__ import annotations

import numpy as np

from nearcast.index.rivals.partitions.kernels import live_ones
from nearcast.jit import kernel
from nearcast.kernels.bitset import set_bits
from nearcast.kernels.cells import HALVINGS, cell
from nearcast.kernels.counting import doubts, reached, rows_that_hold

#: Rows of cells for each (pivot, column): one an operator, ≥, ≤ and =.
OPERATORS = 3


@kernel
def operators(c, rows):
    """How many operators each row's predicates make: an interval is ≥ and ≤, or =."""
    needs = np.zeros(rows.size, np.int64)
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            unbounded = np.isinf(c.low[k]) or np.isinf(c.high[k])
            needs[i] += 1 if unbounded or c.low[k] == c.high[k] else 2
    return needs


@kernel
def enumerate_operators(c, rows, positions, keys, domains, directory, entries):
    """The operators of each predicate as entries of their signatures; returns how many.

    What holds for every value still tells that the column must be there, as ≥ −∞.
    """
    attr, low, high = c.attr, c.low, c.high
    target, item, value = entries.target, entries.item, entries.value
    n = 0
    for i in range(rows.size):
        part = directory.part[keys[i]]
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = attr[k]
            bits = np.int64(directory.bits[part, column])
            base = directory.base[part, column]
            size = 1 << bits
            place = cell(domains, column, low[k]) >> (HALVINGS - bits)
            equal = low[k] == high[k]
            if equal or low[k] > -np.inf or high[k] == np.inf:
                target[n] = base + place + (2 * size if equal else 0)
                item[n] = positions[i]
                value[n, 0] = low[k]
                n += 1
            if not equal and high[k] < np.inf:
                target[n] = base + size + (cell(domains, column, high[k]) >> (HALVINGS - bits))
                item[n] = positions[i]
                value[n, 0] = high[k]
                n += 1
    return n


@kernel
def _count_lists(lists, first, stop, count):
    """Count a hit for every entry of some lists."""
    item = lists.item
    for at in range(first, stop):
        start = lists.start[at]
        for k in range(start, start + lists.size[at]):
            count[np.uint64(item[k])] += 1


@kernel
def _count_within(lists, at, low, high, count):
    """Count a hit for the entries of a list with a value in low … high."""
    item, value = lists.item, lists.value
    start = lists.start[at]
    for k in range(start, start + lists.size[at]):
        count[np.uint64(item[k])] += low <= value[k, 0] <= high


@kernel
def count_signatures(domains, directory, lists, pivot, batch, at, count, counters):
    """Count the operators that event `at` satisfies in the partition of one pivot."""
    columns = directory.base.shape[1]
    for e in range(batch.start[at], batch.start[at + 1]):
        column, value = batch.attr[e], batch.value[e]
        if column >= columns or np.isnan(value):
            continue
        bits = np.int64(directory.bits[pivot, column])
        base = directory.base[pivot, column]
        size = 1 << bits
        place = cell(domains, column, value) >> (HALVINGS - bits)
        _count_lists(lists, base, base + place, count)
        _count_within(lists, base + place, -np.inf, value, count)
        _count_within(lists, base + size + place, value, np.inf, count)
        _count_lists(lists, base + size + place + 1, base + 2 * size, count)
        _count_within(lists, base + 2 * size + place, value, value, count)
        counters[0] += size + 2


@kernel
def match_event(c, row, need, domains, directory, lists, loose, batch, at, counters):
    """Rows with as many operators satisfied as they have, and the loose ones that hold."""
    count = np.zeros(need.size, need.dtype)
    candidates = np.empty(0, np.int32)
    e0, e1 = batch.start[at], batch.start[at + 1]
    for e in range(e0 - 1, e1):
        key = 0 if e < e0 else np.int64(batch.attr[e]) + 1
        if key < loose.size.size and loose.size[key] > 0:
            start = loose.start[key]
            some = loose.item[start : start + loose.size[key]]
            candidates = np.concatenate((candidates, some))
            counters[0] += 1
        if key < directory.part.size and directory.part[key] >= 0:
            pivot = directory.part[key]
            count_signatures(domains, directory, lists, pivot, batch, at, count, counters)
    counted = reached(count, need)
    doubt = doubts(row.size)
    set_bits(doubt, candidates)
    loose_rows = rows_that_hold(c, live_ones(candidates, row), doubt, row, batch, at)
    answer = np.empty(counted.size + loose_rows.size, np.int32)
    for k in range(counted.size):
        answer[k] = row[counted[k]]
    answer[counted.size :] = loose_rows
    counters[1] += counted.size + candidates.size
    counters[2] += answer.size
    return answer
