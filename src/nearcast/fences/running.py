"""Positions in columns, run past the fences: located piece by piece, then counted in order."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nearcast.fences.arrays import Arrays
from nearcast.fences.kernels import steps
from nearcast.fences.positions import Columns

__all__ = ["run"]

#: Positions that are located together; those of several pieces on all cores.
_PIECE = 8192


def run(arrays: Arrays, columns: Columns, threads: int, *, globe: bool) -> None:
    """Let positions happen; what they bring stands in `out`."""
    items, xs, ys, *_ = columns
    for first, stop, ends, met in _located(arrays, columns, threads, globe):
        done = first
        while done <= stop:
            done, lacking = steps.run(
                arrays.packed, items, xs, ys, ends, met, first, done, stop, globe
            )
            if lacking:
                arrays.room(lacking)


def _located(
    arrays: Arrays, columns: Columns, threads: int, globe: bool
) -> Iterator[tuple[int, int, Any, Any]]:
    """Positions piece by piece, with the fences that they meet."""
    count = len(columns.items)
    pieces = [(first, min(first + _PIECE, count)) for first in range(0, count, _PIECE)]
    packed = arrays.packed

    def located(piece: tuple[int, int]) -> tuple[int, int, Any, Any]:
        return *piece, *steps.locate(packed, *columns, *piece, globe)

    held = arrays.tables  # `packed` has the addresses of these, whatever grows meanwhile
    if min(threads, len(pieces)) <= 1:
        yield from map(located, pieces)
    else:
        with ThreadPoolExecutor(min(threads, len(pieces))) as pool:
            yield from pool.map(located, pieces)
    del held
