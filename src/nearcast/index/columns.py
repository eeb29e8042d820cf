"""Arrays that grow: the storage behind the clause and event stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Spans", "grown"]

Array = npt.NDArray[Any]


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

    def take_many(self, total: int) -> int:
        """The start of one fresh run at the heap's end."""
        start = self.used
        self.used += total
        return start

    def give_back(self, start: int, length: int) -> None:
        """Free a run."""
        if length:
            self._free.setdefault(length, []).append(start)

    def free_items(self) -> int:
        """Items in freed runs."""
        return sum(length * len(starts) for length, starts in self._free.items())
