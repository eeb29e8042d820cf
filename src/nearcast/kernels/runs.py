"""Runs that grow and shrink inside one flat heap: lists and buckets without objects.

A run has one of the capacities 4, 6, 8, 12, 16, 24, … (a sixth is wasted on average). A
full run moves to the next larger class; the place it leaves serves the next run of its
class. `heap` holds the first unused item and then the first free run of every class; free
runs are chained through `link`, any int32 array that runs parallel to the heap.

Nothing here allocates: callers ask `capacity` what they are about to take and make sure
beforehand that the arrays are long enough.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel

#: Size classes: the largest run holds 1.6 milliard items.
CLASSES = 58
#: Class of a run that does not exist yet.
NO_RUN = -1
_NOTHING = -1


def new_heap() -> np.ndarray:
    """The bookkeeping of an empty heap."""
    heap = np.full(1 + CLASSES, _NOTHING, np.int64)
    heap[0] = 0
    return heap


def lengthened(array: np.ndarray, used: int, spare: int) -> np.ndarray:
    """The array, or a copy with room for `spare` rows behind `used` and an eighth more."""
    if array.shape[0] - used >= spare:
        return array
    longer = np.empty((used + spare + (used >> 3), *array.shape[1:]), array.dtype)
    longer[:used] = array[:used]
    return longer


@kernel
def capacity(size_class):
    """Items a run of this class holds."""
    if size_class < 0:
        return 0
    wide = np.int64(size_class)  # an int8 overflows where kernels are interpreted
    return (4 + 2 * (wide & 1)) << (wide >> 1)


@kernel
def class_for(items):
    """The smallest class that holds so many items; `NO_RUN` for none."""
    if items <= 0:
        return NO_RUN
    size_class = 0
    while capacity(size_class) < items:
        size_class += 1
    return size_class


@kernel
def take(heap, link, size_class):
    """The start of a run of this class; 0 for `NO_RUN`."""
    if size_class < 0:
        return 0
    start = heap[1 + size_class]
    if start >= 0:
        heap[1 + size_class] = link[start]
        return start
    start = heap[0]
    heap[0] = start + capacity(size_class)
    return start


@kernel
def give(heap, link, start, size_class):
    """Free a run."""
    if size_class < 0:
        return
    link[start] = heap[1 + size_class]
    heap[1 + size_class] = start


def capacities(size_class: np.ndarray) -> np.ndarray:
    """`capacity` of many classes."""
    c = np.maximum(size_class, 0)
    return np.where(size_class < 0, 0, (4 + 2 * (c & 1)) << (c >> 1))


def free_items(heap: np.ndarray, link: np.ndarray) -> int:
    """Items in free runs; raises AssertionError if two free runs overlap."""
    taken = np.zeros(int(heap[0]), np.int8)
    for size_class in range(CLASSES):
        start = int(heap[1 + size_class])
        while start >= 0:
            stop = start + int(capacity(size_class))
            assert stop <= heap[0], "a free run lies beyond the heap"
            taken[start:stop] += 1
            start = int(link[start])
    assert int(taken.max(initial=0)) <= 1, "two free runs overlap"
    return int(taken.sum(dtype=np.int64))
