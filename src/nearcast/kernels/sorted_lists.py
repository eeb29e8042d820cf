"""Sorted lists by holder and name: each holder's inverted lists, all in three flat heaps.

A *holder* (a leaf, say) has a directory of *names* (attributes) in ascending order; a name
has a list of *entries* (value, slot), ascending by value and then by slot. Besides, a
holder may have one list without a name, its *plain* list, whose size it keeps itself.

Finding takes a binary search; inserting and deleting shift half of the list on average.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.runs import (
    NO_RUN,
    capacities,
    capacity,
    class_for,
    free_items,
    give,
    lengthened,
    new_heap,
    take,
)

#: Columns of `holder`: the directory, then the run of the plain list.
DIR, DIR_COUNT, DIR_CLASS, PLAIN, PLAIN_CLASS = range(5)
_BLANK = np.array([0, 0, NO_RUN, 0, NO_RUN], np.int64)
#: Columns of `name`.
NAME, LIST, SIZE, LIST_CLASS = range(4)


class Lists(NamedTuple):
    """What kernels see."""

    holder: np.ndarray
    name_heap: np.ndarray
    name: np.ndarray
    heap: np.ndarray
    value: np.ndarray
    slot: np.ndarray


def new_lists(holders: int) -> Lists:
    """No lists yet, for so many holders."""
    return Lists(
        holder=np.tile(_BLANK, (holders, 1)),
        name_heap=new_heap(),
        name=np.empty((0, 4), np.int64),
        heap=new_heap(),
        value=np.empty(0),
        slot=np.empty(0, np.int32),
    )


def with_room(lists: Lists, holders: int, entries: int, names: int) -> Lists:
    """The lists with room for so many holders in all, and more entries and names."""
    known = lists.holder.shape[0]
    holder = lengthened(lists.holder, known, max(0, holders - known))
    holder[known:] = _BLANK
    used = int(lists.heap[0])
    return lists._replace(
        holder=holder,
        name=lengthened(lists.name, int(lists.name_heap[0]), names),
        value=lengthened(lists.value, used, entries),
        slot=lengthened(lists.slot, used, entries),
    )


# --- looking ----------------------------------------------------------------------------------


@kernel
def first_at_least(value, start, stop, low):
    """The first entry of a list that is ≥ low."""
    while start < stop:
        mid = (start + stop) >> 1
        if value[mid] < low:
            start = mid + 1
        else:
            stop = mid
    return start


@kernel
def first_above(value, start, stop, high):
    """The first entry of a list that is > high."""
    while start < stop:
        mid = (start + stop) >> 1
        if value[mid] <= high:
            start = mid + 1
        else:
            stop = mid
    return start


@kernel
def find_name(ls, holder, name):
    """The place of a name in the holder's directory, or where it belongs."""
    start = ls.holder[holder, DIR]
    stop = start + ls.holder[holder, DIR_COUNT]
    while start < stop:
        mid = (start + stop) >> 1
        if ls.name[mid, NAME] < name:
            start = mid + 1
        else:
            stop = mid
    return start


@kernel
def has_name(ls, holder, at, name):
    """Whether the place that `find_name` gave holds the name."""
    stop = ls.holder[holder, DIR] + ls.holder[holder, DIR_COUNT]
    return at < stop and ls.name[at, NAME] == name


@kernel
def _entry_at(ls, start, stop, value, slot):
    """The place of (value, slot), or where it belongs."""
    while start < stop:
        mid = (start + stop) >> 1
        if ls.value[mid] < value or (ls.value[mid] == value and ls.slot[mid] < slot):
            start = mid + 1
        else:
            stop = mid
    return start


# --- room -------------------------------------------------------------------------------------


@kernel
def entry_room(ls, holder, name):
    """Entries that one more under the name may take; negative if the name is new."""
    at = find_name(ls, holder, name)
    if not has_name(ls, holder, at, name):
        return -capacity(0)
    if ls.name[at, SIZE] < capacity(ls.name[at, LIST_CLASS]):
        return 0
    return capacity(ls.name[at, LIST_CLASS] + 1)


@kernel
def plain_room(ls, holder, size):
    """Entries that one more in the plain list of this size may take."""
    if size < capacity(ls.holder[holder, PLAIN_CLASS]):
        return 0
    return capacity(ls.holder[holder, PLAIN_CLASS] + 1)


@kernel
def name_room(ls, holder, new):
    """Names that `reserve_names` may take."""
    wanted = ls.holder[holder, DIR_COUNT] + new
    if wanted <= capacity(ls.holder[holder, DIR_CLASS]):
        return 0
    return capacity(class_for(wanted))


@kernel
def deal_room(ls, holder, size):
    """(entries, names) that dealing a holder's lists to four others may take."""
    entries = 16 + size + (size >> 1)
    start = ls.holder[holder, DIR]
    for at in range(start, start + ls.holder[holder, DIR_COUNT]):
        entries += 16 + ls.name[at, SIZE] + (ls.name[at, SIZE] >> 1)
    return entries, 16 + 6 * ls.holder[holder, DIR_COUNT]


# --- one entry --------------------------------------------------------------------------------


@kernel
def _insert(ls, start, size, value, slot):
    """Put an entry into the list start … start + size, which has room for it."""
    at = _entry_at(ls, start, start + size, value, slot)
    for k in range(start + size, at, -1):
        ls.value[k] = ls.value[k - 1]
        ls.slot[k] = ls.slot[k - 1]
    ls.value[at] = value
    ls.slot[at] = slot


@kernel
def _delete(ls, start, size, value, slot):
    at = _entry_at(ls, start, start + size, value, slot)
    for k in range(at, start + size - 1):
        ls.value[k] = ls.value[k + 1]
        ls.slot[k] = ls.slot[k + 1]


@kernel
def _moved(ls, old, size, old_class):
    """Copy a full list to a run of the next class; returns the run."""
    new = take(ls.heap, ls.slot, old_class + 1)
    for k in range(size):
        ls.value[new + k] = ls.value[old + k]
        ls.slot[new + k] = ls.slot[old + k]
    give(ls.heap, ls.slot, old, old_class)
    return new


@kernel
def insert(ls, holder, name, value, slot):
    """Put an entry under a name; if it is new, `reserve_names` has made room for it."""
    at = find_name(ls, holder, name)
    if not has_name(ls, holder, at, name):
        _add_name(ls, holder, at, name)
    size = ls.name[at, SIZE]
    size_class = ls.name[at, LIST_CLASS]
    if size == capacity(size_class):
        ls.name[at, LIST] = _moved(ls, ls.name[at, LIST], size, size_class)
        ls.name[at, LIST_CLASS] = size_class + 1
    _insert(ls, ls.name[at, LIST], size, value, slot)
    ls.name[at, SIZE] = size + 1


@kernel
def insert_plain(ls, holder, size, value, slot):
    """Put an entry into the holder's plain list of this size."""
    size_class = ls.holder[holder, PLAIN_CLASS]
    if size == capacity(size_class):
        ls.holder[holder, PLAIN] = _moved(ls, ls.holder[holder, PLAIN], size, size_class)
        ls.holder[holder, PLAIN_CLASS] = size_class + 1
    _insert(ls, ls.holder[holder, PLAIN], size, value, slot)


@kernel
def delete(ls, holder, name, value, slot):
    """Take an entry out; a name whose list is empty leaves the directory."""
    at = find_name(ls, holder, name)
    _delete(ls, ls.name[at, LIST], ls.name[at, SIZE], value, slot)
    ls.name[at, SIZE] -= 1
    if ls.name[at, SIZE] > 0:
        return
    give(ls.heap, ls.slot, ls.name[at, LIST], ls.name[at, LIST_CLASS])
    last = ls.holder[holder, DIR] + ls.holder[holder, DIR_COUNT] - 1
    for k in range(at, last):
        _copy_name(ls, k + 1, k)
    ls.holder[holder, DIR_COUNT] -= 1
    if ls.holder[holder, DIR_COUNT] == 0:
        _free_directory(ls, holder)


@kernel
def delete_plain(ls, holder, size, value, slot):
    """Take an entry out of the holder's plain list of this size."""
    _delete(ls, ls.holder[holder, PLAIN], size, value, slot)
    if size == 1:
        free_plain(ls, holder)


@kernel
def reserve_names(ls, holder, new):
    """Make a holder's directory long enough for so many new names."""
    if name_room(ls, holder, new) == 0:
        return
    count, old = ls.holder[holder, DIR_COUNT], ls.holder[holder, DIR]
    size_class = class_for(count + new)
    run = take(ls.name_heap, ls.name[:, NAME], size_class)
    for k in range(count):
        _copy_name(ls, old + k, run + k)
    give(ls.name_heap, ls.name[:, NAME], old, ls.holder[holder, DIR_CLASS])
    ls.holder[holder, DIR] = run
    ls.holder[holder, DIR_CLASS] = size_class


@kernel
def _copy_name(ls, source, target):
    for column in range(4):
        ls.name[target, column] = ls.name[source, column]


@kernel
def _add_name(ls, holder, at, name):
    """Put a name with an empty list into the directory, which has room for it."""
    for k in range(ls.holder[holder, DIR] + ls.holder[holder, DIR_COUNT], at, -1):
        _copy_name(ls, k - 1, k)
    _set_name(ls, at, name, 0, NO_RUN)
    ls.holder[holder, DIR_COUNT] += 1


@kernel
def _set_name(ls, at, name, size, size_class):
    """Fill a place of a directory; the list's entries are still to come."""
    ls.name[at, NAME] = name
    ls.name[at, LIST] = take(ls.heap, ls.slot, size_class)
    ls.name[at, SIZE] = size
    ls.name[at, LIST_CLASS] = size_class


@kernel
def _free_directory(ls, holder):
    give(ls.name_heap, ls.name[:, NAME], ls.holder[holder, DIR], ls.holder[holder, DIR_CLASS])
    ls.holder[holder, DIR] = 0
    ls.holder[holder, DIR_COUNT] = 0
    ls.holder[holder, DIR_CLASS] = NO_RUN


@kernel
def free_plain(ls, holder):
    """Give up the plain list."""
    give(ls.heap, ls.slot, ls.holder[holder, PLAIN], ls.holder[holder, PLAIN_CLASS])
    ls.holder[holder, PLAIN] = 0
    ls.holder[holder, PLAIN_CLASS] = NO_RUN


@kernel
def free_lists(ls, holder):
    """Give up everything a holder has."""
    start = ls.holder[holder, DIR]
    for at in range(start, start + ls.holder[holder, DIR_COUNT]):
        give(ls.heap, ls.slot, ls.name[at, LIST], ls.name[at, LIST_CLASS])
    _free_directory(ls, holder)
    free_plain(ls, holder)


# --- many entries -----------------------------------------------------------------------------


@kernel
def sort_entries(value, slot, spare_value, spare_slot):
    """Sort entries by value, keeping the order of equals: slots that ascend go on ascending.

    Runs of eight by insertion, then merged: three times as fast here as numba's argsort.
    """
    n = value.size
    for start in range(0, n, 8):
        for i in range(start + 1, min(start + 8, n)):
            v, s = value[i], slot[i]
            k = i
            while k > start and value[k - 1] > v:
                value[k] = value[k - 1]
                slot[k] = slot[k - 1]
                k -= 1
            value[k] = v
            slot[k] = s
    width = 8
    while width < n:
        for start in range(0, n, 2 * width):
            mid = min(start + width, n)
            _merge(value, slot, start, mid, min(mid + width, n), spare_value, spare_slot)
        width *= 2


@kernel
def _merge(value, slot, start, mid, stop, spare_value, spare_slot):
    """Merge two neighbouring runs; only the first is copied aside."""
    if mid == stop or value[mid - 1] <= value[mid]:
        return
    for k in range(start, mid):
        spare_value[k - start] = value[k]
        spare_slot[k - start] = slot[k]
    left, size, right, out = 0, mid - start, mid, start
    while left < size:
        if right < stop and value[right] < spare_value[left]:
            value[out] = value[right]
            slot[out] = slot[right]
            right += 1
        else:
            value[out] = spare_value[left]
            slot[out] = spare_slot[left]
            left += 1
        out += 1


@kernel
def set_directory(ls, holder, count):
    """Let a holder without lists have a directory of so many names, to be filled in order."""
    size_class = class_for(count)
    ls.holder[holder, DIR_CLASS] = size_class
    ls.holder[holder, DIR] = take(ls.name_heap, ls.name[:, NAME], size_class)
    ls.holder[holder, DIR_COUNT] = count


@kernel
def set_list(ls, holder, number, name, value, slot):
    """Fill place `number` of a directory with a list, sorted already."""
    at = ls.holder[holder, DIR] + number
    _set_name(ls, at, name, value.size, class_for(value.size))
    start = ls.name[at, LIST]
    ls.value[start : start + value.size] = value
    ls.slot[start : start + value.size] = slot


@kernel
def set_plain(ls, holder, value, slot):
    """Give a holder without one a plain list, sorted already."""
    size_class = class_for(value.size)
    start = take(ls.heap, ls.slot, size_class)
    ls.holder[holder, PLAIN] = start
    ls.holder[holder, PLAIN_CLASS] = size_class
    ls.value[start : start + value.size] = value
    ls.slot[start : start + value.size] = slot


@kernel
def deal(ls, holder, first, to_holder, to_slot):
    """Deal all named lists to the holders first … first + 3, in linear time.

    An entry's slot tells where it goes; slots must keep their order there.
    """
    count = ls.holder[holder, DIR_COUNT]
    for i in range(4):
        set_directory(ls, first + i, count)
        ls.holder[first + i, DIR_COUNT] = 0
    start = ls.holder[holder, DIR]
    for at in range(start, start + count):
        _deal_list(ls, at, first, to_holder, to_slot)
    for i in range(4):
        if ls.holder[first + i, DIR_COUNT] == 0:
            _free_directory(ls, first + i)
    free_lists(ls, holder)


@kernel
def _deal_list(ls, at, first, to_holder, to_slot):
    start = ls.name[at, LIST]
    stop = start + ls.name[at, SIZE]
    sizes = np.zeros(4, np.int64)
    for k in range(start, stop):
        sizes[to_holder[ls.slot[k]]] += 1
    ends = np.zeros(4, np.int64)
    for i in range(4):
        if sizes[i] > 0:
            target = ls.holder[first + i, DIR] + ls.holder[first + i, DIR_COUNT]
            ls.holder[first + i, DIR_COUNT] += 1
            _set_name(ls, target, ls.name[at, NAME], sizes[i], class_for(sizes[i]))
            ends[i] = ls.name[target, LIST]
    for k in range(start, stop):
        i = to_holder[ls.slot[k]]
        ls.value[ends[i]] = ls.value[k]
        ls.slot[ends[i]] = to_slot[ls.slot[k]]
        ends[i] += 1


# --- checking ---------------------------------------------------------------------------------


def lists_of(lists: Lists, holder: int) -> dict[int, list[tuple[float, int]]]:
    """Every list of a holder by name; raises AssertionError where order or sizes are wrong."""
    start, count = int(lists.holder[holder, DIR]), int(lists.holder[holder, DIR_COUNT])
    assert count <= capacity(int(lists.holder[holder, DIR_CLASS]))
    directory = lists.name[start : start + count]
    assert bool((np.diff(directory[:, NAME]) > 0).all()), "a directory is out of order"
    sizes = directory[:, SIZE]
    assert bool(((sizes > 0) & (sizes <= capacities(directory[:, LIST_CLASS]))).all())
    return {name: entries_of(lists, run, size) for name, run, size, _ in directory.tolist()}


def entries_of(lists: Lists, run: int, size: int) -> list[tuple[float, int]]:
    """The entries of a list; raises AssertionError unless they ascend."""
    values, slots = lists.value[run : run + size], lists.slot[run : run + size]
    entries = list(zip(values.tolist(), slots.tolist(), strict=True))
    assert all(a < b for a, b in pairwise(entries)), "a list is unsorted"
    return entries


def check_runs(lists: Lists, holders: int) -> None:
    """Raise AssertionError if a run is shared or lost."""
    entries = np.zeros(int(lists.heap[0]), np.int8)
    names = np.zeros(int(lists.name_heap[0]), np.int8)
    room = capacities(lists.holder[:holders])
    for (start, count, _, plain, _), (_, _, dir_room, _, plain_room) in zip(
        lists.holder[:holders].tolist(), room.tolist(), strict=True
    ):
        names[start : start + dir_room] += 1
        entries[plain : plain + plain_room] += 1
        directory = lists.name[start : start + count]
        list_room = capacities(directory[:, LIST_CLASS]).tolist()
        for run, size in zip(directory[:, LIST].tolist(), list_room, strict=True):
            entries[run : run + size] += 1
    assert int(entries.max(initial=0)) <= 1, "two lists share entries"
    assert int(names.max(initial=0)) <= 1, "two directories share names"
    free = free_items(lists.heap, lists.slot)
    assert int(entries.sum(dtype=np.int64)) + free == entries.size, "entries leak"
    free = free_items(lists.name_heap, lists.name[:, NAME])
    assert int(names.sum(dtype=np.int64)) + free == names.size, "names leak"
