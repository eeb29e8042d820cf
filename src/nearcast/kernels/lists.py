"""Many lists of (number, values) that grow, each contiguous, in one heap of runs.

A structure writes what it posts into flat `Entries` in one kernel, and the kernels here
put them into their lists: many after counting, one row's at once. Nothing here allocates;
the shell makes room in between (`nearcast.index.lists`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.bitset import has_bit
from nearcast.kernels.runs import capacity, class_for, give, take


class Lists(NamedTuple):
    """What kernels see. List l's entries are start[l] … start[l] + size[l]."""

    heap: np.ndarray
    """See `nearcast.kernels.runs`."""
    start: np.ndarray
    size: np.ndarray
    room: np.ndarray
    """Entries that its run can hold."""
    extra: np.ndarray
    """How many entries are about to come; zero otherwise."""
    item: np.ndarray
    """The numbers; also the chain of free runs."""
    value: np.ndarray
    """(entries, values of an entry): none, one or two columns."""


class Entries(NamedTuple):
    """What is to be posted: the list, the number and its values."""

    target: np.ndarray
    item: np.ndarray
    value: np.ndarray


@kernel
def _first_room(entries):
    """Capacity of a list's first run: hardly more than it needs. Later ones are of a class."""
    return entries + (entries >> 4)


@kernel
def _class_within(room):
    """The largest class that fits into so much room, as which it is used again."""
    size_class = -1
    while capacity(size_class + 1) <= room:
        size_class += 1
    return size_class


@kernel
def _move(lists, at, run_class):
    """Move a list to a run of this class, which there must be room for."""
    old, old_class = lists.start[at], _class_within(lists.room[at])
    new = take(lists.heap, lists.item, run_class)
    for k in range(lists.size[at]):
        lists.item[new + k] = lists.item[old + k]
        for j in range(lists.value.shape[1]):
            lists.value[new + k, j] = lists.value[old + k, j]
    give(lists.heap, lists.item, old, old_class)
    lists.start[at] = new
    lists.room[at] = capacity(run_class)


@kernel
def room_for_counted(lists, first, stop, tight):
    """Items that `make_counted_room` takes from the heap's end, at most."""
    room = 0
    for at in range(first, stop):
        needed = lists.size[at] + lists.extra[at]
        if needed > lists.room[at]:
            fresh = tight and lists.room[at] == 0
            room += _first_room(needed) if fresh else capacity(class_for(needed))
    return room


@kernel
def make_counted_room(lists, first, stop, tight):
    """Give lists the capacity their extra entries need; the extras are zero afterwards.

    Tight: without the spare room of a class where a list had none before.
    """
    for at in range(first, stop):
        needed = lists.size[at] + lists.extra[at]
        lists.extra[at] = 0
        if needed <= lists.room[at]:
            continue
        if lists.room[at] > 0 or not tight:
            _move(lists, at, class_for(needed))
        else:
            lists.start[at] = lists.heap[0]
            lists.room[at] = _first_room(needed)
            lists.heap[0] += lists.room[at]


@kernel
def count_entries(lists, entries, n):
    """Count the first n entries as extras of their lists."""
    extra, target = lists.extra, entries.target
    for k in range(n):
        extra[target[k]] += 1


@kernel
def push_entries(lists, entries, n):
    """Store the first n entries; their lists have room. The size of the longest of them."""
    start, size, item, value = lists.start, lists.size, lists.item, lists.value
    target, number, numbers = entries.target, entries.item, entries.value
    values = value.shape[1]
    longest = 0
    for k in range(n):
        at = target[k]
        place = start[at] + size[at]
        size[at] += 1
        longest = max(longest, size[at])
        item[place] = number[k]
        for j in range(values):
            value[place, j] = numbers[k, j]
    return longest


@kernel
def append_entries(lists, entries, n):
    """Store n entries of different lists, which may have to move; the size of the longest.

    Where that is negative, nothing was changed: the heap needs so much room.
    """
    room = 0
    for k in range(n):
        at = entries.target[k]
        if lists.size[at] == lists.room[at]:
            room += capacity(class_for(lists.room[at] + 1))
    if lists.heap[0] + room > lists.item.size:
        return -room
    for k in range(n):
        at = entries.target[k]
        if lists.size[at] == lists.room[at]:
            _move(lists, at, class_for(lists.room[at] + 1))
    return push_entries(lists, entries, n)


@kernel
def drop(lists, at):
    """Empty a list and free its run."""
    give(lists.heap, lists.item, lists.start[at], _class_within(lists.room[at]))
    lists.size[at] = 0
    lists.room[at] = 0


@kernel
def keep_members(lists, used, bits):
    """Drop the entries whose number is not in the set; the order stays."""
    item, value = lists.item, lists.value
    values = value.shape[1]
    for at in range(used):
        start = lists.start[at]
        kept = start
        for k in range(start, start + lists.size[at]):
            number = item[k]
            if has_bit(bits, number):
                item[kept] = number
                for j in range(values):
                    value[kept, j] = value[k, j]
                kept += 1
        lists.size[at] = kept - start
