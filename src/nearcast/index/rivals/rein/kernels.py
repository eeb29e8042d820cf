"""REIN's buckets and its backward matching."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.bitset import clear_bit, clear_bit_if, members
from nearcast.kernels.cells import HALVINGS, cell


class Buckets(NamedTuple):
    """By column: 2^bits lists of lows from `base` on, then as many of highs."""

    base: np.ndarray
    bits: np.ndarray
    """−1 for a column that is left out."""


@kernel
def enumerate_ends(c, rows, positions, domains, buckets, narrowest, entries):
    """Both ends of each predicate as entries of their buckets; returns how many.

    Predicates over fewer cells than `narrowest` are left out. An upper end at infinity can
    fail nobody; a lower one stays: it tells that the column must be there.
    """
    attr, low, high = c.attr, c.low, c.high
    target, item, value = entries.target, entries.item, entries.value
    n = 0
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = attr[k]
            first, last = cell(domains, column, low[k]), cell(domains, column, high[k])
            bits = np.int64(buckets.bits[column])
            if bits < 0 or last - first < narrowest:
                continue
            base = buckets.base[column]
            shift = HALVINGS - bits
            target[n] = base + (first >> shift)
            item[n] = positions[i]
            value[n, 0] = low[k]
            n += 1
            if high[k] < np.inf:
                target[n] = base + (1 << bits) + (last >> shift)
                item[n] = positions[i]
                value[n, 0] = high[k]
                n += 1
    return n


@kernel
def clear_lists(lists, first, stop, bits):
    """Take the entries of some lists out of the set."""
    item = lists.item
    for at in range(first, stop):
        start = lists.start[at]
        for k in range(start, start + lists.size[at]):
            clear_bit(bits, item[k])


@kernel
def clear_outside(lists, at, low, high, bits):
    """Take out the entries of a list whose value is not in low … high; how many it holds."""
    item, value = lists.item, lists.value
    start, size = lists.start[at], lists.size[at]
    for k in range(start, start + size):
        clear_bit_if(bits, item[k], not (low <= value[k, 0] <= high))
    return size


@kernel
def clear_unsatisfied(domains, buckets, lists, batch, at, bits, counters):
    """Take out every clause with a predicate that event `at` does not satisfy.

    Columns ascend in the event, so one walk over the index's columns meets them all.
    """
    e, stop = batch.start[at], batch.start[at + 1]
    for column in range(buckets.bits.size):
        if buckets.bits[column] < 0:
            continue
        base = buckets.base[column]
        size = 1 << np.int64(buckets.bits[column])
        while e < stop and batch.attr[e] < column:
            e += 1
        if e == stop or batch.attr[e] != column or np.isnan(batch.value[e]):
            clear_lists(lists, base, base + size, bits)
            counters[0] += size
            continue
        value = batch.value[e]
        bucket = cell(domains, column, value) >> (HALVINGS - np.int64(buckets.bits[column]))
        clear_lists(lists, base + bucket + 1, base + size, bits)
        clear_lists(lists, base + size, base + size + bucket, bits)
        compared = clear_outside(lists, base + bucket, -np.inf, value, bits)
        compared += clear_outside(lists, base + size + bucket, value, np.inf, bits)
        counters[0] += size + 1
        counters[1] += compared


@kernel
def match_event(live, row, domains, buckets, lists, batch, at, counters):
    """The rows that no predicate took out."""
    bits = live.copy()
    clear_unsatisfied(domains, buckets, lists, batch, at, bits, counters)
    found = members(bits, row)
    counters[2] += found.size
    return found
