"""Arrays that grow: the storage behind the clause and event stores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.jit import parallel_threads

__all__ = ["Spans", "grown", "items_of", "scatter", "take_rows"]

Array = npt.NDArray[Any]
I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]

#: Items that are copied on all cores.
_LARGE = 1_000_000


def grown(array: Array, size: int) -> Array:
    """The array, or a copy with room for `size` rows and an eighth more.

    An eighth keeps the waste small at millions of rows (doubling would cost 200 bytes a
    subscription) and still copies each row only some nine times in its life.
    """
    if array.shape[0] >= size:
        return array
    room = size if array.shape[0] == 0 else size + (size >> 3) + 16
    larger = np.empty((room, *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


class Spans:
    """Places of runs in a heap of `used` items; a freed run serves the next of its length."""

    __slots__ = ("_free", "used")

    def __init__(self) -> None:
        self.used = 0
        self._free: dict[int, list[int]] = {}

    def take(self, length: int) -> int:
        """The start of a run of this length."""
        free = self._free.get(length)
        if free:
            return free.pop()
        start = self.used
        self.used += length
        return start

    def take_many(self, lengths: I8) -> I8:
        """The starts of runs of these lengths: freed ones, and fresh ones side by side."""
        starts = np.full(lengths.size, -1, np.int64)
        if any(self._free.values()):
            for length in np.unique(lengths).tolist():
                free = self._free.get(length)
                if free:
                    served = np.flatnonzero(lengths == length)[: len(free)]
                    starts[served] = free[-served.size :]
                    del free[-served.size :]
        fresh = starts < 0
        ends = self.used + lengths[fresh].cumsum()
        starts[fresh] = ends - lengths[fresh]
        self.used = int(ends[-1]) if ends.size else self.used
        return starts

    def give_back(self, start: int, length: int) -> None:
        """Free a run."""
        if length:
            self._free.setdefault(length, []).append(start)

    def free_items(self) -> int:
        """Items in freed runs."""
        return sum(length * len(starts) for length, starts in self._free.items())


def take_rows(free: list[int], used: int, count: int) -> I4:
    """So many row numbers: those that are free, which are taken from the list, then fresh ones."""
    kept = max(0, len(free) - count)
    reused = free[kept:]
    del free[kept:]
    fresh = np.arange(used, used + count - len(reused), dtype=np.int32)
    return np.concatenate([np.array(reused, np.int32), fresh]) if reused else fresh


def items_of(starts: Array, counts: Array) -> I8:
    """The places of all items of some runs."""
    sizes = counts.astype(np.int64)
    ends = sizes.cumsum()
    found: I8 = np.repeat(starts.astype(np.int64) - (ends - sizes), sizes)
    found += np.arange(found.size)
    return found


def scatter(pairs: list[tuple[Array, Array]], starts: I8, offsets: I8) -> None:
    """Copy run i of each source, offsets[i] … offsets[i + 1], to starts[i] of its target."""
    begin, end = int(offsets[0]), int(offsets[-1])
    if begin == end:
        return
    ahead = starts - offsets[:-1]
    at: Any = slice(int(starts[0]), int(starts[0]) + end - begin)
    if bool((ahead != ahead[0]).any()):  # not side by side
        at = np.repeat(ahead, np.diff(offsets)) + np.arange(begin, end)

    def copy(pair: tuple[Array, Array]) -> None:
        pair[0][at] = pair[1][begin:end]

    if end - begin < _LARGE:
        for pair in pairs:
            copy(pair)
        return
    with ThreadPoolExecutor(parallel_threads()) as pool:  # memory that is new has to be fetched
        list(pool.map(copy, pairs))
