"""Positions in columns, run past the fences: located piece by piece, then counted in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from nearcast.fences.arrays import Arrays
from nearcast.fences.kernels import steps
from nearcast.fences.kernels.tables import Tables
from nearcast.fences.positions import Columns

__all__ = ["Piece", "locating", "run"]

#: Positions that are located together; those of several pieces on all cores.
_PIECE = 8192


class Piece(NamedTuple):
    """Positions of a range: where the fences of each end, and these."""

    first: int
    stop: int
    ends: Any
    met: Any


def run(
    arrays: Arrays, columns: Columns, threads: int, *, globe: bool,
    pieces: Iterable[Piece] | None = None,
) -> None:  # fmt: skip
    """Let positions happen; what they bring stands in `out`. `pieces`: they are located already."""
    items, xs, ys, *_ = columns
    if pieces is None:
        pieces = _located(arrays.tables, arrays.packed, columns, threads, globe)
    for first, stop, ends, met in pieces:
        done = first
        while done <= stop:
            done, lacking = steps.run(
                arrays.packed, items, xs, ys, ends, met, first, done, stop, globe
            )
            if lacking:
                arrays.room(lacking)


def locating(arrays: Arrays, columns: Columns, *, globe: bool) -> Future[list[Piece]]:
    """Another thread locates positions meanwhile; nothing is to happen to fences until it has."""
    tables, packed = arrays.tables, arrays.packed  # as they are now
    pool = ThreadPoolExecutor(1)
    made = pool.submit(lambda: [*_located(tables, packed, columns, 1, globe)])
    pool.shutdown(wait=False)
    return made


def _located(
    tables: Tables, packed: Any, columns: Columns, threads: int, globe: bool
) -> Iterator[Piece]:
    """Positions piece by piece, with the fences that they meet.

    `packed` has the addresses of the tables, which are held here, whatever grows meanwhile.
    """
    count = len(columns.items)
    pieces = [(first, min(first + _PIECE, count)) for first in range(0, count, _PIECE)]

    def located(piece: tuple[int, int]) -> Piece:
        return Piece(*piece, *steps.locate(packed, *columns, *piece, globe))

    if min(threads, len(pieces)) <= 1:
        yield from map(located, pieces)
    else:
        with ThreadPoolExecutor(min(threads, len(pieces))) as pool:
            yield from pool.map(located, pieces)
    del tables
