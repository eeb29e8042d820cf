"""The buckets of one side: flat arrays, and the shell that lets them grow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nearcast.index.columns import grown
from nearcast.index.mo_tree import kernels
from nearcast.index.mo_tree.kernels import (
    ABSENT,
    LIVE,
    NEED,
    ROOMS,
    SQUARES,
    USED,
    Side,
)

__all__ = ["Buckets"]

I4 = npt.NDArray[np.int32]
F4 = npt.NDArray[np.float32]

#: Idle places that nobody minds.
_SPARE = 256


def _facts(layers: int, places: int, *, events: bool) -> F4:
    """Room for the facts of so many members."""
    if events:
        return np.empty((places, layers + 1, 1), np.float32).transpose(1, 0, 2)
    return np.empty((layers, places, 2), np.float32)


class Buckets:
    """As many buckets as the fan-outs of the layers make together, each one extent of a pool.

    Beside a member are the intervals of a clause, or the values of an event and the time
    it expires.

    Adding and removing a row is O(height) amortised. An empty bucket costs 9 bytes and is
    never looked at: each prefix knows by a bit which of its cells lead to something. A
    side without members has no buckets at all, only a root that says so.
    """

    def __init__(self, fan_outs: Sequence[int], *, events: bool) -> None:
        self._events = events
        height = len(fan_outs)
        self._prefixes = [math.prod(fan_outs[:h]) for h in range(height)]
        layer = np.cumsum([0, *self._prefixes[:-1]], dtype=np.int64)
        self.table = Side(
            cells=np.array(fan_outs, np.int64),
            mask=np.zeros(1, np.int64),
            layer=layer,
            extent=np.empty((0, 2), np.int32),
            room=np.empty(0, np.uint8),
            row=np.empty(_SPARE, np.int32),
            facts=_facts(height, _SPARE, events=events),
            home=np.empty((0, 2), np.int32),
            free=np.full(ROOMS.size, -1, np.int32),
            state=np.zeros(4, np.int64),
        )

    # -- looking ---------------------------------------------------------------

    @staticmethod
    def empty_bytes(fan_outs: Sequence[int]) -> int:
        """Bytes of buckets that hold nothing yet."""
        prefixes = sum(math.prod(fan_outs[:h]) for h in range(len(fan_outs)))
        return int(8 * prefixes + 9 * math.prod(fan_outs))

    @property
    def live(self) -> int:
        """Number of members."""
        return int(self.table.state[LIVE])

    @property
    def crowd(self) -> float:
        """How many others an average member finds in its bucket."""
        live = self.live
        return int(self.table.state[SQUARES]) / live - 1 if live else 0.0

    @property
    def wasteful(self) -> bool:
        """Whether more than half of the pool lies idle."""
        return int(self.table.state[USED]) > 2 * self.live + _SPARE

    def rows(self) -> I4:
        """The store's rows that are in here."""
        return np.flatnonzero(self.table.home[:, 0] >= 0).astype(np.int32)

    def memory_bytes(self) -> int:
        """Bytes of the arrays, spare room included."""
        return sum(int(a.nbytes) for a in self.table if isinstance(a, np.ndarray))

    # -- changing --------------------------------------------------------------

    def load(self, rows: I4, bucket: I4, facts: F4) -> None:
        """Fill empty buckets, extents in bucket order. O(rows + buckets)."""
        self._reserve(int(kernels.plan(self.table, bucket)))
        kernels.place(self.table, rows, bucket, facts)

    def remove(self, rows: I4) -> None:
        """Forget rows; those that are not here are no error."""
        kernels.remove(self.table, rows)

    def rewrite(self, rows: I4, bucket: I4, facts: F4) -> npt.NDArray[np.bool_]:
        """Take the new contents of rows whose bucket stays; the others leave and are reported."""
        moved: npt.NDArray[np.bool_] = kernels.rewrite(self.table, rows, bucket, facts)
        return moved

    def reserve_more(self, members: int) -> None:
        """Make room after an insertion found none, with `members` still to come."""
        state = self.table.state
        self._reserve(int(state[USED] + max(state[NEED], members)))

    def _reserve(self, places: int) -> None:
        t = self.table
        if places <= t.row.size:
            return
        row = grown(t.row, places)
        facts = _facts(t.layer.size, row.size, events=self._events)
        facts[:, : t.row.size] = t.facts
        self.table = t._replace(row=row, facts=facts)

    def reserve_rows(self, rows: int) -> None:
        """Make room for members with row numbers below `rows`."""
        had = self.table.home.shape[0]
        if rows > had:
            if had == 0:
                self._unfold()
            home = grown(self.table.home, rows)
            home[had:] = ABSENT
            self.table = self.table._replace(home=home)

    def _unfold(self) -> None:
        """Make the buckets."""
        t = self.table
        prefixes = self._prefixes[-1]
        buckets = prefixes * int(t.cells[-1])
        self.table = t._replace(
            mask=np.zeros(int(t.layer[-1]) + prefixes, np.int64),
            extent=np.zeros((buckets, 2), np.int32),
            room=np.zeros(buckets, np.uint8),
        )

    # -- checking --------------------------------------------------------------

    def check_invariants(self, bucket: I4, facts: F4) -> None:
        """`bucket` and `facts` are what the members of `rows()` should have."""
        t = self.table
        rows = self.rows()
        start, size = t.extent[:, 0].astype(np.int64), t.extent[:, 1].astype(np.int64)
        assert rows.size == self.live == int(size.sum())
        assert int((size * size).sum()) == int(t.state[SQUARES])
        home, at = t.home[rows, 0], t.home[rows, 1]
        assert np.array_equal(home, bucket)
        assert np.array_equal(t.row[at], rows)
        assert bool(((start[home] <= at) & (at < start[home] + size[home])).all())
        assert np.array_equal(t.facts[:, at].transpose(1, 0, 2), facts, equal_nan=True)
        self._check_masks(size > 0)
        self._check_pool(np.flatnonzero(size))

    def _check_masks(self, occupied: npt.NDArray[np.bool_]) -> None:
        t = self.table
        for first, cells in zip(t.layer[::-1], t.cells[::-1].tolist(), strict=True):
            bits = np.int64(1) << np.arange(cells)
            under = occupied.reshape(-1, cells)
            assert np.array_equal(t.mask[first : first + under.shape[0]], under @ bits)
            occupied = np.logical_or.reduce(under, axis=1)

    def _check_pool(self, occupied: npt.NDArray[np.int64]) -> None:
        """Extents and free extents tile the used part of the pool."""
        t = self.table
        covered = np.zeros(int(t.state[USED]), np.int8)
        for b in occupied.tolist():
            assert t.extent[b, 1] <= ROOMS[t.room[b]]
            covered[t.extent[b, 0] : t.extent[b, 0] + ROOMS[t.room[b]]] += 1
        for size, start in enumerate(t.free.tolist()):
            while start >= 0:
                covered[start : start + ROOMS[size]] += 1
                start = int(t.row[start])
        assert bool((covered == 1).all())
