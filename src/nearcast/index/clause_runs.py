"""Clauses as a table has them: what a store may put off to take in.

A join of two tables looks at a clause once. To copy it and to arrange its intervals would cost
more than the look.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.jit import parallel_threads
from nearcast.kernels import arrange

__all__ = ["ClauseRuns", "arrange_into"]

F8 = npt.NDArray[np.float64]
I4 = npt.NDArray[np.int32]


class ClauseRuns(NamedTuple):
    """Clauses of a box, perhaps, and intervals on different columns, none of them empty.

    Nobody writes to the arrays; some are the memory of an Arrow table.
    """

    offsets: npt.NDArray[np.int64]
    count: npt.NDArray[np.uint16]  # type: ignore[assignment]  # hides tuple.count, unused
    attr: I4
    low: F8
    high: F8
    box: F8
    """(n, 4): xmin, ymin, xmax, ymax, NaN for none; or no row at all, for no boxes."""
    domains: tuple[F8, F8]
    """By column: between which values of an interval its selectivity is judged."""

    @property
    def size(self) -> int:
        """Number of clauses."""
        return int(self.count.size)

    @property
    def predicates(self) -> int:
        """Number of predicates, two for each box."""
        return int(self.attr.size) + 2 * int(np.count_nonzero(self.box[:, 0] == self.box[:, 0]))

    @property
    def lengths(self) -> npt.NDArray[np.uint16]:
        """Predicates of each clause, two for its box."""
        if not self.box.shape[0]:
            return self.count
        lengths = self.count.copy()
        lengths[self.box[:, 0] == self.box[:, 0]] += 2
        return lengths

    @property
    def columns(self) -> int:
        """One more than the highest column."""
        return max(2, int(self.attr.max(initial=0)) + 1)

    def given(self) -> tuple[Any, ...]:
        """What `nearcast.kernels.arrange` takes."""
        return self.offsets, self.attr, self.low, self.high, self.box, *self.domains

    def memory_bytes(self) -> int:
        """Bytes of what it keeps from going, though it be somebody else's."""
        return sum(int(array.nbytes) for array in self[:6])


def arrange_into(
    parts: list[ClauseRuns], attr: npt.NDArray[Any], low: F8, high: F8
) -> npt.NDArray[np.int64]:
    """Write predicates in the order of their selectivity; returns where each clause begins.

    Works on all cores, piece by piece.
    """
    ends = np.cumsum([part.predicates for part in parts])
    starts: list[Any] = [None] * len(parts)

    def work(number: int) -> None:
        part, end = parts[number], int(ends[number])
        begin = end - part.predicates
        out = attr[begin:end], low[begin:end], high[begin:end]
        _, start = arrange.arrange_to(part.given(), out)
        starts[number] = start[:-1] + begin

    with ThreadPoolExecutor(parallel_threads()) as pool:
        list(pool.map(work, range(len(parts))))
    found: npt.NDArray[np.int64] = np.concatenate(starts)
    return found
