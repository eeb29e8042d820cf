"""Few events in small blocks, past which many clauses go once: `pivot` before it has tiles.

To plan tiles takes nearly a microsecond a clause on two cores, and pays when many events come.
Ten thousand events are arranged in four milliseconds, and a clause of `mo` goes past them in
0.17 µs on one core; one of `di`, which has no place, in 3.4. See `kernels` for how.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, EventBatch, Pairs, Rows
from nearcast.index.clause_runs import ClauseRuns
from nearcast.index.pivot.event_blocks import kernels
from nearcast.index.pivot.event_blocks.kernels import BLOCK, COSTS
from nearcast.index.pivot.kernels import by_event
from nearcast.kernels.arrange import frozen

__all__ = ["Blocks", "EventBlocks", "Piece", "joined", "pieces_of_rows", "pieces_of_runs"]

F8 = npt.NDArray[np.float64]
I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]

#: Columns that blocks have words for, the most frequent ones.
_MOST_DIMS = 24
#: Events that are arranged together, and the values that a dense copy of them may have.
_EVENTS, _VALUES = 1 << 15, 1 << 22
#: Clauses that one thread takes at a time, and of which the first tell what all will cost.
_PIECE = 8192


class Blocks(NamedTuple):
    """What kernels see of the events."""

    event: I4
    """By place, 64 a block: the number of the event, −1 for none."""
    dense: F8
    """(event, column): values, NaN for none."""
    dim_of: I4
    """By column: where its words are, −1 for none."""
    dim_low: F8
    dim_scale: F8
    """By dim: bins of the values."""
    key_low: F8
    key_scale: F8
    """(block, key): the same for the keys, in a block."""
    below: npt.NDArray[np.uint64]
    """(block, dim, bin), flat: a bit for every event whose value is in a bin below this one."""
    alive: npt.NDArray[np.uint64]
    """By block: a bit for every event."""
    keys: I8
    """The two columns by which events are near each other."""
    slab: I8
    """Where the blocks of a slab begin, and of the next."""
    slab_low: F8
    slab_high: F8
    """Hulls on the first key."""
    low: F8
    high: F8
    """(block, key): hulls on both."""


class EventBlocks:
    """Up to 2¹⁵ events of a batch, arranged."""

    def __init__(self, batch: EventBatch, first: int) -> None:
        self._first = first
        room = max(BLOCK, _VALUES // max(1, batch.columns))
        self.stop = min(batch.size, first + min(_EVENTS, room))
        """The first event that is not among them."""
        self.blocks = _arranged(batch, first, self.stop)

    def meet(self, piece: Piece, spent: I8) -> Pairs:
        """(events of the batch, rows): which of the clauses want which of the events.

        `spent` receives the work, see `kernels.COSTS`.
        """
        events, found = kernels.meet(*piece, self.blocks, spent)
        events += np.int32(self._first)
        return events, found


def _arranged(batch: EventBatch, first: int, stop: int) -> Blocks:
    counts, dense = kernels.spread(batch.start, batch.attr, batch.value, first, stop, batch.columns)
    frequent = np.argsort(-counts, kind="stable")[:_MOST_DIMS]
    frequent = frequent[counts[frequent] > 0]
    dim_of = np.full(batch.columns, -1, np.int32)
    dim_of[frequent] = np.arange(frequent.size)
    keys = np.array([0, 1] if counts[0] else [*frequent[:2], 0, 0][:2], np.int64)
    event, slab = _slabs(dense[:, keys[0]], dense[:, keys[1]])
    bins: Any = kernels.fill(event, dense, frequent, keys)
    hulls: Any = kernels.hulls(event, dense, keys, slab)
    return Blocks._make((event, dense, dim_of, *bins, _alive(event), keys, slab, *hulls))


def _alive(event: I4) -> npt.NDArray[np.uint64]:
    there = (event >= 0).reshape(-1, BLOCK)
    return np.packbits(there, axis=1, bitorder="little").view(np.uint64).ravel()


def _slabs(x: F8, y: F8) -> tuple[I4, I8]:
    """Events by place, in slabs along x that are cut along y; those without x come last."""
    order = np.argsort(x, kind="stable")  # NaN last
    having = int(np.count_nonzero(x == x))
    blocks = -(-having // BLOCK)
    each = max(1, round(blocks**0.5))  # blocks of a slab
    places: list[I4] = []
    starts = [0]
    cuts = [*range(0, having, each * BLOCK), having, order.size]
    for begin, end in pairwise(cuts):
        if begin == end:
            continue
        part = order[begin:end]
        part = part[np.argsort(y[part], kind="stable")]
        filled = np.full(-(-part.size // BLOCK) * BLOCK, -1, np.int32)
        filled[: part.size] = part
        places.append(filled)
        starts.append(starts[-1] + filled.size // BLOCK)
    return np.concatenate([np.empty(0, np.int32), *places]), np.array(starts, np.int64)


class Piece(NamedTuple):
    """Clauses that one thread takes at a time."""

    start: npt.NDArray[Any]
    count: npt.NDArray[np.uint16]  # type: ignore[assignment]  # hides tuple.count, unused
    attr: npt.NDArray[Any]
    low: F8
    high: F8
    """Predicates as in a table of clauses."""
    rows: Rows
    """Which rows of it."""
    base: int
    """The row that stands first in it."""
    box: F8
    """(n, 4): boxes that are not among the predicates, NaN for none; or no row at all."""


_NO_BOXES = np.empty((0, 4))


def pieces_of_rows(table: Clauses, rows: Rows) -> list[Piece]:
    """Some rows of a table in pieces."""
    t = table
    return [
        Piece(t.start, t.count, t.attr, t.low, t.high, rows[at : at + _PIECE], 0, _NO_BOXES)
        for at in range(0, rows.size, _PIECE)
    ]


def pieces_of_runs(parts: Sequence[ClauseRuns], number: int) -> list[Piece]:
    """The first so many clauses that a store has put off, in pieces; rows are numbered from 0."""
    found: list[Piece] = []
    first = 0
    for part in parts:
        if first == number:
            break
        last = first + part.size
        runs = part.offsets, part.count, part.attr, frozen(part.low), frozen(part.high)
        for at in range(first, last, _PIECE):
            rows = np.arange(at, min(at + _PIECE, last), dtype=np.int32)
            found.append(Piece(*runs, rows, first, part.box))
        first = last
    assert first == number
    return found


def joined(
    pieces: Sequence[Piece], batch: EventBatch, threads: int, allowed: float
) -> tuple[Pairs | None, float]:
    """Let clauses go past the events of a batch, if that costs no more than `allowed`.

    Returns (events, rows) sorted by event, None where it would cost more, and about how many
    nanoseconds of work that would be. The first piece tells what all will cost.
    """
    parts: list[Pairs] = []
    cost, first = 0.0, 0
    number = sum(piece.rows.size for piece in pieces)
    with ThreadPoolExecutor(threads) as pool:
        while first < batch.size:
            arranged = EventBlocks(batch, first)
            spent = np.zeros(len(COSTS), np.int64)
            parts.append(arranged.meet(pieces[0], spent))
            if first == 0:
                looked = float(spent @ COSTS) * number / pieces[0].rows.size
                cost = looked * batch.size / max(1, arranged.stop)
                if cost > allowed:
                    return None, cost

            def work(piece: Piece, arranged: EventBlocks = arranged) -> Pairs:
                return arranged.meet(piece, np.zeros(len(COSTS), np.int64))

            parts += pool.map(work, pieces[1:])
            first = arranged.stop
    events = np.concatenate([part[0] for part in parts])
    found = np.concatenate([part[1] for part in parts])
    pairs: Any = by_event(events, found, events.size, batch.size)
    return pairs, cost
