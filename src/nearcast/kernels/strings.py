"""A hash table of strings in flat arrays: some 25 bytes a string beside its own bytes.

Slot s holds the bytes blob[start[s] : start[s] + length[s]]; `table` maps a hash to a
slot by linear probing (−1: empty). Deletion shifts the run back, so there are no
tombstones and no decay.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel


@kernel
def hash_bytes(data, start, stop):
    """FNV-1a with a final mix (the mask takes the low bits)."""
    h = np.uint64(14695981039346656037)
    for i in range(start, stop):
        h = (h ^ np.uint64(data[i])) * np.uint64(1099511628211)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    return h


@kernel
def _same(blob, start, length, data, d0, d1):
    if length != d1 - d0:
        return False
    for i in range(length):
        if blob[start + i] != data[d0 + i]:
            return False
    return True


@kernel
def find(table, blob, start, length, data, d0, d1):
    """The slot of the string data[d0:d1], −1 if it is not there."""
    mask = np.uint64(table.size - 1)
    at = hash_bytes(data, d0, d1) & mask
    while table[at] >= 0:
        slot = table[at]
        if _same(blob, start[slot], np.int64(length[slot]), data, d0, d1):
            return np.int64(slot)
        at = (at + np.uint64(1)) & mask
    return np.int64(-1)


@kernel
def find_many(table, blob, start, length, offsets, data, count):
    """The slots of `count` strings, −1 for those not there."""
    out = np.empty(count, np.int32)
    for i in range(count):
        out[i] = find(table, blob, start, length, data, offsets[i], offsets[i + 1])
    return out


@kernel
def place(table, blob, start, length, slot):
    """Enter a slot whose bytes stand in the blob already."""
    mask = np.uint64(table.size - 1)
    at = hash_bytes(blob, start[slot], start[slot] + np.int64(length[slot])) & mask
    while table[at] >= 0:
        at = (at + np.uint64(1)) & mask
    table[at] = slot


@kernel
def place_many(table, blob, start, length, slots):
    """Enter many slots whose bytes stand in the blob already."""
    for slot in slots:
        place(table, blob, start, length, slot)


@kernel
def insert_many(table, blob, start, length, slots, offsets, data, count, at_byte):
    """Copy `count` strings behind `at_byte` of the blob and enter them under `slots`.

    Returns `count`, or the number of the first string that is there already; those
    before it stay entered.
    """
    for i in range(count):
        d0, d1 = offsets[i], offsets[i + 1]
        if find(table, blob, start, length, data, d0, d1) >= 0:
            return i
        slot = slots[i]
        start[slot] = at_byte
        length[slot] = d1 - d0
        for k in range(d1 - d0):
            blob[at_byte + k] = data[d0 + k]
        at_byte += d1 - d0
        place(table, blob, start, length, slot)
    return count


@kernel
def remove(table, blob, start, length, slot):
    """Take a slot out; the entries behind it move up to close the gap."""
    mask = np.uint64(table.size - 1)
    at = hash_bytes(blob, start[slot], start[slot] + np.int64(length[slot])) & mask
    while table[at] != slot:
        at = (at + np.uint64(1)) & mask
    hole = at
    step = (at + np.uint64(1)) & mask
    while table[step] >= 0:
        s = table[step]
        home = hash_bytes(blob, start[s], start[s] + np.int64(length[s])) & mask
        if ((step - home) & mask) >= ((step - hole) & mask):
            table[hole] = s
            hole = step
        step = (step + np.uint64(1)) & mask
    table[hole] = -1


#: Strings that are fetched together: loads that do not wait for each other overlap.
_TOGETHER = 256


@kernel
def gather(blob, start, length, slots):
    """The strings of many slots as (offsets, bytes), Arrow's layout.

    Where they begin, then a byte of each, then the rest, 256 at a time: millions of random
    ids are mostly waiting for memory.
    """
    n = slots.size
    offsets = np.empty(n + 1, np.int64)
    offsets[0] = 0
    for i in range(n):
        offsets[i + 1] = offsets[i] + np.int64(length[slots[i]])
    data = np.empty(offsets[-1], np.uint8)
    begin = np.empty(_TOGETHER, np.int64)
    touched = 0
    for first in range(0, n, _TOGETHER):
        stop = min(first + _TOGETHER, n)
        for i in range(first, stop):
            begin[i - first] = start[slots[i]]
        for i in range(first, stop):
            touched += blob[begin[i - first]] if offsets[i + 1] > offsets[i] else 0
        for i in range(first, stop):
            s = begin[i - first]
            o = offsets[i]
            for k in range(offsets[i + 1] - o):
                data[o + k] = blob[s + k]
    begin[0] = touched  # somewhere: what is not used, the compiler would not read
    return offsets, data


@kernel
def gather_lines(blob, places, slots):
    """The strings of many slots one after another, a zero byte between them.

    Places first, then one byte of each, then the rest: loads that do not wait for each
    other overlap: 400 random ids of a million took 2.7 times as long one after another.
    Eight bytes are copied at once, beyond the end too, where the next ones go.
    """
    n = slots.size
    begin = np.empty(n, np.int64)
    size = np.empty(n, np.int64)
    total = 0
    for i in range(n):
        begin[i] = places[slots[i], 0]
        size[i] = places[slots[i], 1]
        total += size[i] + 1
    touched = np.uint8(0)
    for i in range(n):
        touched ^= blob[begin[i]] if size[i] > 0 else np.uint8(0)
    out = np.empty(total + 8, np.uint8)
    last = blob.size - 8
    at = 0
    for i in range(n):
        s = begin[i]
        end = at + size[i]
        while at < end and s <= last:
            a, b, c, d = blob[s], blob[s + 1], blob[s + 2], blob[s + 3]
            e, f, g, h = blob[s + 4], blob[s + 5], blob[s + 6], blob[s + 7]
            out[at], out[at + 1], out[at + 2], out[at + 3] = a, b, c, d
            out[at + 4], out[at + 5], out[at + 6], out[at + 7] = e, f, g, h
            at += 8
            s += 8
        while at < end:
            out[at] = blob[s]
            at += 1
            s += 1
        out[end] = 0
        at = end + 1
    out[total] = touched  # behind the end: what is not used, the compiler would not read
    return out[: max(total - 1, 0)]
