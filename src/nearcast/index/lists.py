"""The shell of `nearcast.kernels.lists`: a pool of lists that makes room for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.index.columns import grown
from nearcast.kernels import lists as kernels
from nearcast.kernels.lists import Entries, Lists
from nearcast.kernels.runs import free_items, new_heap

__all__ = ["BLOCK", "ListPool"]

Enumerate: TypeAlias = Callable[[int, int], tuple[Entries, int]]

#: Rows whose entries are enumerated at a time, so that these stay in the cache.
BLOCK = 4096


class ListPool:
    """Lists of numbers with `values` floats beside each. `table` is what kernels take."""

    __slots__ = ("_entries", "table", "used")

    def __init__(self, values: int) -> None:
        self.used = 0
        """Lists made so far."""
        self._entries = _entries(64, values)
        self.table = Lists(
            heap=new_heap(),
            start=np.empty(0, np.int64),
            size=np.empty(0, np.int32),
            room=np.empty(0, np.int32),
            extra=np.empty(0, np.int32),
            item=np.empty(0, np.int32),
            value=np.empty((0, values)),
        )

    def make(self, lists: int) -> int:
        """Make so many empty lists; the number of the first."""
        first, self.used = self.used, self.used + lists
        t = self.table
        names = ("start", "size", "room", "extra")
        t = self.table = t._replace(**{name: grown(getattr(t, name), self.used) for name in names})
        for name in names:  # the spare ones too: kernels see them
            getattr(t, name)[first:] = 0
        return first

    def reserve(self, items: int) -> None:
        """Room for so many items at the heap's end."""
        t = self.table
        needed = int(t.heap[0]) + items
        if needed > t.item.size:
            self.table = t._replace(item=grown(t.item, needed), value=grown(t.value, needed))

    def entries(self, size: int) -> Entries:
        """Room for so many entries, used again by the next call."""
        if size > self._entries.target.size:
            self._entries = _entries(size, self.table.value.shape[1])
        return self._entries

    def post(self, rows: int, enumerate_entries: Enumerate) -> int:
        """Post the entries of so many rows; the size of the longest list that grew.

        `enumerate_entries(first, stop)` answers with those of some rows and how many there
        are. One row must not enter a list twice.
        """
        if rows == 1:
            return self._append(*enumerate_entries(0, 1))
        for first in range(0, rows, BLOCK):
            kernels.count_entries(self.table, *enumerate_entries(first, min(first + BLOCK, rows)))
        self._make_counted_room(0)
        return self.push(rows, enumerate_entries)

    def push(self, rows: int, enumerate_entries: Enumerate) -> int:
        """Post the entries of rows that there is room for."""
        longest = 0
        for first in range(0, rows, BLOCK):
            entries, n = enumerate_entries(first, min(first + BLOCK, rows))
            longest = max(longest, int(kernels.push_entries(self.table, entries, n)))
        return longest

    def _append(self, entries: Entries, n: int) -> int:
        longest = int(kernels.append_entries(self.table, entries, n))
        if longest < 0:
            self.reserve(-longest)
            longest = int(kernels.append_entries(self.table, entries, n))
        return longest

    def expect(self, entries: npt.NDArray[np.int64]) -> None:
        """Make room for so many more entries in each list."""
        self.table.extra[: self.used] = entries
        self._make_counted_room(0)

    def _make_counted_room(self, first: int) -> None:
        tight = first == 0  # all lists: most are new, and will not grow much soon
        self.reserve(int(kernels.room_for_counted(self.table, first, self.used, tight)))
        kernels.make_counted_room(self.table, first, self.used, tight)

    def post_last(self, first: int, entries: Entries, n: int) -> None:
        """Post n entries of the lists that were made last, from `first` on."""
        kernels.count_entries(self.table, entries, n)
        self._make_counted_room(first)
        kernels.push_entries(self.table, entries, n)

    def keep_members(self, bits: npt.NDArray[np.uint64]) -> None:
        """Drop the entries of all numbers that are not in the set."""
        kernels.keep_members(self.table, self.used, bits)

    def items(self, at: int) -> npt.NDArray[np.int32]:
        """The numbers in a list."""
        start = int(self.table.start[at])
        return self.table.item[start : start + int(self.table.size[at])]

    def values(self, at: int) -> npt.NDArray[np.float64]:
        """The values beside the numbers in a list, a row each."""
        start = int(self.table.start[at])
        return self.table.value[start : start + int(self.table.size[at])]

    def memory_bytes(self) -> int:
        """Bytes of the arrays, spare room included."""
        return sum(int(array.nbytes) for array in (*self.table, *self._entries))

    def check_invariants(self) -> None:
        """Lists fit their runs; these and the free ones lie apart in the heap."""
        t = self.table
        used = slice(0, self.used)
        assert bool((t.size[used] <= t.room[used]).all())
        assert not t.extra[used].any()
        having = np.flatnonzero(t.room[used])
        order = having[np.argsort(t.start[having])]
        stops = t.start[order] + t.room[order]
        assert bool((stops[:-1] <= t.start[order][1:]).all())
        assert order.size == 0 or int(stops[-1]) <= int(t.heap[0])
        # What a list's first run had beyond its class is lost when it is freed.
        assert int(t.room[used].sum()) + free_items(t.heap, t.item) <= int(t.heap[0])


def _entries(size: int, values: int) -> Entries:
    return Entries(
        target=np.empty(size, np.int32),
        item=np.empty(size, np.int32),
        value=np.empty((size, values)),
    )
