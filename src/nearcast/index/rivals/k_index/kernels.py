"""k-index's posting lists and its counting."""

from __future__ import annotations

import numpy as np

from nearcast.index.rivals.partitions.kernels import live_ones
from nearcast.jit import kernel
from nearcast.kernels.bitset import set_bits
from nearcast.kernels.cells import HALVINGS, LAST_CELL, cell
from nearcast.kernels.counting import doubts, hit, hit_with_doubt, reached, rows_that_hold


@kernel
def mean_widths(c, rows, domains):
    """The share of its domain that a predicate covers on average, by column."""
    widths = np.zeros(domains.lo.size)
    counts = np.zeros(domains.lo.size)
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = c.attr[k]
            width = cell(domains, column, c.high[k]) - cell(domains, column, c.low[k])
            widths[column] += width / LAST_CELL
            counts[column] += 1
    return widths / np.maximum(counts, 1)


@kernel
def covered_cells(c, rows, keys, domains, directory):
    """How many cells the predicates of the rows cover, each partly at least."""
    covered = 0
    for i in range(rows.size):
        part = directory.part[keys[i]]
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = c.attr[k]
            shift = HALVINGS - np.int64(directory.bits[part, column])
            first = cell(domains, column, c.low[k]) >> shift
            covered += (cell(domains, column, c.high[k]) >> shift) - first + 1
    return covered


@kernel
def enumerate_cells(c, rows, positions, keys, domains, directory, entries):
    """Every cell that a predicate meets, as an entry of its posting list; returns how many.

    The cells in which it begins and ends have lists of their own.
    """
    target, item = entries.target, entries.item
    n = 0
    for i in range(rows.size):
        part = directory.part[keys[i]]
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = c.attr[k]
            shift = HALVINGS - np.int64(directory.bits[part, column])
            base = directory.base[part, column]
            first = base + (cell(domains, column, c.low[k]) >> shift)
            last = base + (cell(domains, column, c.high[k]) >> shift)
            for at in range(first + 1, last):
                target[n], item[n] = at, positions[i]
                n += 1
            size = 1 << (HALVINGS - shift)
            target[n], item[n] = size + first, positions[i]
            n += 1
            if last > first:
                target[n], item[n] = size + last, positions[i]
                n += 1
    return n


@kernel
def match_event(c, row, need, domains, directory, lists, loose, batch, at, counters):
    """Rows of the partitions up to the event's size with every predicate hit, verified."""
    count = np.zeros(need.size, need.dtype)
    doubt = doubts(need.size)
    columns = directory.base.shape[1]
    e0, e1 = batch.start[at], batch.start[at + 1]
    loose_ones = np.empty(0, np.int32)
    for size in range(min(e1 - e0, loose.size.size - 1) + 1):
        if loose.size[size] > 0:
            start = loose.start[size]
            some = loose.item[start : start + loose.size[size]]
            loose_ones = np.concatenate((loose_ones, some))
            counters[0] += 1
        if size >= directory.part.size or directory.part[size] < 0:
            continue
        part = directory.part[size]
        for e in range(e0, e1):
            column, value = batch.attr[e], batch.value[e]
            if column >= columns or np.isnan(value):
                continue
            bits = np.int64(directory.bits[part, column])
            base = directory.base[part, column]
            place = cell(domains, column, value) >> (HALVINGS - bits)
            hit(count, lists, base + place)
            hit_with_doubt(count, doubt, lists, base + (1 << bits) + place)
            counters[0] += 2
    set_bits(doubt, loose_ones)
    found = np.concatenate((reached(count, need), live_ones(loose_ones, row)))
    counters[1] += found.size
    answer = rows_that_hold(c, found, doubt, row, batch, at)
    counters[2] += answer.size
    return answer
