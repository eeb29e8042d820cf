"""Partitions for k-index and OpIndex, of clauses and of events."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, Rows
from nearcast.index.events import LiveEvents
from nearcast.index.lists import ListPool
from nearcast.index.rivals.partitions import kernels
from nearcast.index.rivals.partitions.kernels import Directory
from nearcast.kernels.lists import Entries

__all__ = ["Partitions", "Runs", "pivots"]

I8 = npt.NDArray[np.int64]

#: A partition has lists if they hold so many entries on average; else they waste memory and
#: are slower than comparing its few rows.
_WORTH = 32


class Runs(NamedTuple):
    """The columns of rows, be they clauses or events."""

    start: npt.NDArray[np.integer]
    size: npt.NDArray[np.integer]
    attr: npt.NDArray[np.integer]

    @classmethod
    def of(cls, table: Clauses | LiveEvents) -> Runs:
        """The runs of a store's table."""
        return cls(table.start, table.count, table.attr)


def pivots(runs: Runs, rows: Rows, frequency: I8) -> I8:
    """Keys by rarest column (OpIndex): its number + 1, 0 for a row without columns."""
    keys: I8 = kernels.pivots(*runs, rows, frequency)
    return keys


class Partitions:
    """A directory of lists, and a loose list for each key."""

    def __init__(self, values: int, groups: int) -> None:
        self._values = values
        self._groups = groups
        """Rows of cells for each (partition, column)."""
        self.lists = ListPool(values)
        self.loose = ListPool(values=0)
        self.directory = Directory(
            part=np.empty(0, np.int32),
            base=np.empty((0, 0), np.int64),
            bits=np.empty((0, 0), np.int8),
        )

    def fit(
        self,
        runs: Runs,
        rows: Rows,
        keys: I8,
        columns: int,
        bits_for: Callable[[I8], npt.NDArray[np.int8]],
    ) -> None:
        """Choose the partitions that get lists; `bits_for` tells the cells by entries."""
        entries = np.bincount(keys, weights=runs.size[rows])
        worth = entries >= max(1, _WORTH * columns)
        part = np.where(worth, np.cumsum(worth) - 1, -1).astype(np.int32)
        parts = int(worth.sum())
        counts = kernels.tabulate(*runs, rows, keys, part, parts, columns)
        bits = bits_for(counts)
        sizes = self._groups << bits.astype(np.int64)
        base = (np.cumsum(sizes) - sizes.ravel()).reshape(sizes.shape)
        self.lists = ListPool(self._values)
        self.lists.make(int(sizes.sum()))
        self.loose = ListPool(values=0)
        self.loose.make(part.size)
        self.directory = Directory(part, base, bits)

    def in_lists(self, runs: Runs, rows: Rows, keys: I8) -> npt.NDArray[np.bool_]:
        """Whether each row goes to lists, or to its key's loose list."""
        answer: npt.NDArray[np.bool_] = kernels.in_lists(*runs, rows, keys, self.directory)
        return answer

    def post_loose(self, keys: I8, positions: Rows) -> None:
        """Put rows into the loose lists of their keys."""
        if keys.size == 0:
            return
        self.loose.make(max(0, int(keys.max()) + 1 - self.loose.used))

        def enumerate_entries(first: int, stop: int) -> tuple[Entries, int]:
            entries = self.loose.entries(stop - first)
            some = slice(first, stop)
            return entries, kernels.keys_as_entries(keys[some], positions[some], entries)

        self.loose.post(int(keys.size), enumerate_entries)

    def pools(self) -> tuple[ListPool, ...]:
        """All pools of lists."""
        return self.lists, self.loose

    def arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        """The directory's arrays."""
        return self.directory
