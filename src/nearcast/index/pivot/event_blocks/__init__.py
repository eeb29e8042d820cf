"""Few events in small blocks, past which many clauses go once: `pivot` before it has tiles.

To plan tiles takes some microseconds a clause, and pays when many events come. The events of
one batch are arranged in a millisecond or two, and a clause goes past them in a tenth of a
microsecond. See `kernels` for how.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, EventBatch, Pairs, Rows
from nearcast.index.pivot.event_blocks import kernels
from nearcast.index.pivot.event_blocks.kernels import BLOCK, COSTS
from nearcast.index.pivot.kernels import by_event

__all__ = ["Blocks", "EventBlocks"]

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

    def meet(self, table: Clauses, rows: Rows, spent: I8) -> Pairs:
        """(events of the batch, rows): which of the rows want which of the events.

        `spent` receives the work, see `kernels.COSTS`.
        """
        events, found = kernels.meet(
            table.start, table.count, table.attr, table.low, table.high, rows, self.blocks, spent
        )
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
    return Blocks(
        event, dense, dim_of, *kernels.fill(event, dense, frequent, keys), _alive(event), keys, slab,
        *kernels.hulls(event, dense, keys, slab),
    )  # fmt: skip


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
    for begin, end in zip(cuts[:-1], cuts[1:], strict=True):
        if begin == end:
            continue
        part = order[begin:end]
        part = part[np.argsort(y[part], kind="stable")]
        filled = np.full(-(-part.size // BLOCK) * BLOCK, -1, np.int32)
        filled[: part.size] = part
        places.append(filled)
        starts.append(starts[-1] + filled.size // BLOCK)
    return np.concatenate([np.empty(0, np.int32), *places]), np.array(starts, np.int64)


def joined(
    table: Clauses, rows: Rows, batch: EventBatch, threads: int, allowed: float
) -> tuple[Pairs | None, float]:
    """Let clauses go past the events of a batch, if that costs no more than `allowed`.

    Returns (events, rows) sorted by event, None where it would cost more, and about how many
    nanoseconds of work that would be.
    """
    parts: list[Pairs] = []
    cost, first = 0.0, 0
    share = batch.size
    with ThreadPoolExecutor(threads) as pool:
        while first < batch.size:
            arranged = EventBlocks(batch, first)
            spent = np.zeros(len(COSTS), np.int64)
            parts.append(arranged.meet(table, rows[:_PIECE], spent))
            if first == 0:
                looked = float(spent @ COSTS) * max(1.0, rows.size / _PIECE)
                cost = looked * share / max(1, arranged.stop)
                if cost > allowed:
                    return None, cost

            def work(at: int, arranged: EventBlocks = arranged) -> Pairs:
                return arranged.meet(table, rows[at : at + _PIECE], np.zeros(len(COSTS), np.int64))

            parts += pool.map(work, range(_PIECE, rows.size, _PIECE))
            first = arranged.stop
    events = np.concatenate([part[0] for part in parts])
    found = np.concatenate([part[1] for part in parts])
    pairs: Any = by_event(events, found, events.size, batch.size)
    return pairs, cost
