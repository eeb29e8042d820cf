"""Counting: who has reached the number of hits it needs.

Counters are as narrow as the needs allow; the largest value of the type is the need of
nobody, so a row that needs it is never found.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.bitset import has_bit, set_bit
from nearcast.kernels.rows import fill, grow, intervals_hold

#: Counters looked at together. In blocks of 64 the compiler compares 16 at once.
_BLOCK = 64


@kernel
def hit(count, lists, at):
    """Count one hit for every entry of a list; how many there are."""
    item = lists.item
    start, size = lists.start[at], lists.size[at]
    for k in range(start, start + size):
        count[np.uint64(item[k])] += 1
    return size


@kernel
def hit_with_doubt(count, doubt, lists, at):
    """The same for entries that may or may not hold: they are noted in a bitset."""
    item = lists.item
    start, size = lists.start[at], lists.size[at]
    for k in range(start, start + size):
        count[np.uint64(item[k])] += 1
        set_bit(doubt, item[k])
    return size


@kernel
def reached(count, need):
    """Numbers whose count equals their need."""
    out = np.empty(64, np.int32)
    n = 0
    for first in range(0, count.size, _BLOCK):
        stop = min(first + _BLOCK, count.size)
        found = 0
        for i in range(first, stop):
            found += count[i] == need[i]
        if found:
            for i in range(first, stop):
                if count[i] == need[i]:
                    out = grow(out, n)
                    out[n] = i
                    n += 1
    return out[:n]


@kernel
def reached_by_all(count, needed):
    """Numbers whose count is `needed`."""
    out = np.empty(64, np.int32)
    n = 0
    for first in range(0, count.size, _BLOCK):
        stop = min(first + _BLOCK, count.size)
        found = 0
        for i in range(first, stop):
            found += count[i] == needed
        if found:
            for i in range(first, stop):
                if count[i] == needed:
                    out = grow(out, n)
                    out[n] = i
                    n += 1
    return out[:n]


@kernel
def rows_that_hold(c, found, doubt, row, batch, at):
    """The rows at the found positions; what is in doubt is compared with event `at` first."""
    dense = np.full(batch.columns, np.nan)
    fill(dense, batch.start, batch.attr, batch.value, at)
    out = np.empty(found.size, np.int32)
    n = 0
    for k in range(found.size):
        r = row[found[k]]
        if has_bit(doubt, found[k]) and not intervals_hold(
            c.attr, c.low, c.high, c.start[r], c.count[r], dense
        ):
            continue
        out[n] = r
        n += 1
    return out[:n]


@kernel
def doubts(size):
    """An empty bitset over so many positions."""
    return np.zeros((size >> 6) + 1, np.uint64)


@kernel
def reached_members(bits, count, need):
    """Members of a set whose count equals their need."""
    out = np.empty(64, np.int32)
    n = 0
    for w in range(bits.size):
        first = w * _BLOCK
        if bits[w] == np.uint64(0) or first >= count.size:
            continue
        stop = min(first + _BLOCK, count.size)
        found = 0
        for i in range(first, stop):
            found += count[i] == need[i]
        if found:
            for i in range(first, stop):
                if count[i] == need[i] and has_bit(bits, i):
                    out = grow(out, n)
                    out[n] = i
                    n += 1
    return out[:n]
