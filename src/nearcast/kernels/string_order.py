"""The order of the strings in a table of `strings`: that of their bytes, which is Python's, too."""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel

#: Strings of one run that are sorted by insertion.
_FEW = 24
_BYTE = np.uint64(255)
_EIGHT = np.uint64(8)


@kernel
def _size(cells, slot):
    """Bytes of the string in a slot."""
    head = cells[slot, 0]
    return np.int64(head >> _EIGHT) if head & _BYTE == _BYTE else np.int64(head & _BYTE)


@kernel
def _byte(cells, blob, slot, i):
    """One byte of the string in a slot: of a short one the first 7 are in the first word."""
    if cells[slot, 0] & _BYTE == _BYTE:
        return np.uint64(blob[np.int64(cells[slot, 1]) + i])
    if i < 7:
        return (cells[slot, 0] >> np.uint64(8 * i + 8)) & _BYTE
    return (cells[slot, 1] >> np.uint64(8 * i - 56)) & _BYTE


@kernel
def _before(cells, blob, a, b):
    """Whether the string in slot a comes before that in slot b."""
    first, second = _size(cells, a), _size(cells, b)
    for i in range(min(first, second)):
        x, y = _byte(cells, blob, a, i), _byte(cells, blob, b, i)
        if x != y:
            return x < y
    return first < second


@kernel
def _insert(cells, blob, slots, first, stop):
    """Sort few slots."""
    for i in range(first + 1, stop):
        slot = slots[i]
        at = i
        while at > first and _before(cells, blob, slot, slots[at - 1]):
            slots[at] = slots[at - 1]
            at -= 1
        slots[at] = slot


@kernel
def _sink(cells, blob, slots, first, root, size):
    """Let the root of a heap find its place: the last string is at the top."""
    slot = slots[first + root]
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size and _before(
            cells, blob, slots[first + child], slots[first + child + 1]
        ):
            child += 1
        if not _before(cells, blob, slot, slots[first + child]):
            break
        slots[first + root] = slots[first + child]
        root = child
    slots[first + root] = slot


@kernel
def _heap(cells, blob, slots, first, stop):
    """Sort many slots."""
    size = stop - first
    for root in range(size // 2 - 1, -1, -1):
        _sink(cells, blob, slots, first, root, size)
    for last in range(size - 1, 0, -1):
        top = slots[first]
        slots[first] = slots[first + last]
        slots[first + last] = top
        _sink(cells, blob, slots, first, 0, last)


@kernel
def sort_runs(cells, blob, counts, slots):
    """Sort runs of slots, `counts` of them one behind the other, by their strings, in place."""
    first = 0
    for count in counts:
        stop = first + count
        if count <= _FEW:
            _insert(cells, blob, slots, first, stop)
        else:
            _heap(cells, blob, slots, first, stop)
        first = stop
