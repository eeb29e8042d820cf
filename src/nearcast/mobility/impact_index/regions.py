"""Impact regions by small numbers, packed so that many of them are asked in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.mobility.impact_index import kernels
from nearcast.mobility.impact_region import BallImpact, CellImpact, Impact
from nearcast.model.geometry import Space

__all__ = ["Regions"]

I4 = npt.NDArray[np.int32]


class Regions:
    """What is known of the impact region in each slot; at first nothing.

    A change costs a few microseconds and a copy of the region's cells, a bit each; what regions
    leave behind that grow is taken back when it is as much as all that is used.
    """

    def __init__(self, space: Space) -> None:
        self._globe = space == "globe"
        self._frames = np.zeros((0, 8))
        self._kinds = np.zeros((0, 4), np.int64)
        """Kind, columns, rows, where its bits begin."""
        self._room = np.zeros(0, np.int64)
        """How many bytes are a slot's own, from there on."""
        self._bits = np.zeros(1024, np.uint8)
        self._end = self._left = 0
        self._met = np.zeros(0, np.int64)

    def put(self, slot: int, impact: Impact | None) -> None:
        """A region is made anew; None: nothing is known of it."""
        if slot >= len(self._kinds):
            more = slot + 1 + slot // 2
            self._frames, self._kinds = _longer(self._frames, more), _longer(self._kinds, more)
            self._room, self._met = _longer(self._room, more), _longer(self._met, more)
        kind = kernels.OTHER
        if impact is None:
            kind = kernels.NONE
        elif isinstance(impact, CellImpact):
            kind = kernels.CELLS
            self._put_cells(slot, impact)
        elif isinstance(impact, BallImpact):
            kind = kernels.BALL
            self._frames[slot, :3] = impact.x, impact.y, impact.radius
        self._kinds[slot, 0] = kind

    def _put_cells(self, slot: int, impact: CellImpact) -> None:
        g = impact.grid
        _, *tip = g.plane.frame
        self._frames[slot] = *tip, g.plane.reach_m, g.x0, g.y0, g.cell
        packed = np.packbits(impact.cells)
        if packed.size > self._room[slot]:
            self._make_room(slot, packed.size)
        start = self._kinds.item(slot, 3)
        self._bits[start : start + packed.size] = packed
        self._kinds[slot, 1:3] = g.columns, g.rows

    def _make_room(self, slot: int, size: int) -> None:
        self._left += int(self._room[slot])
        self._room[slot] = 0
        room = (size + size // 4 + 63) // 64 * 64
        if self._end + room > self._bits.size:
            self._pack(room)
        self._kinds[slot, 3], self._room[slot] = self._end, room
        self._end += room

    def _pack(self, more: int) -> None:
        """Close gaps, if that brings much, and see to it that so many bytes fit in."""
        bits = self._bits
        if 2 * self._left >= self._end:
            bits, at = np.zeros(bits.size, np.uint8), 0
            for slot in np.flatnonzero(self._room).tolist():
                start, room = int(self._kinds[slot, 3]), int(self._room[slot])
                bits[at : at + room] = self._bits[start : start + room]
                self._kinds[slot, 3] = at
                at += room
            self._end, self._left = at, 0
        if self._end + more > bits.size:
            bits = np.concatenate([bits, np.zeros(bits.size + more, np.uint8)])
        self._bits = bits

    def clear(self, slot: int) -> None:
        """Nobody is in a slot any more."""
        if slot < len(self._kinds):
            self._kinds[slot, 0] = kernels.NONE
            self._left += int(self._room[slot])
            self._room[slot] = self._met[slot] = 0

    def concerned(self, slots: I4, x: float, y: float) -> tuple[I4, int]:
        """Those of the slots in whose regions a place may be, and of how many something is known.

        Where a region is known it counts that it was met.
        """
        found: tuple[I4, int] = kernels.concerned(
            slots, self._frames, self._kinds, self._bits, self._met, self._globe, x, y
        )
        return found

    def take_met(self, slot: int) -> int:
        """How often a slot was among those asked for since the last time."""
        met = self._met.item(slot)
        self._met[slot] = 0
        return met

    def known(self, slot: int) -> bool:
        """Whether the region itself need not be asked."""
        return self._kinds.item(slot, 0) != kernels.OTHER

    def check_invariants(self, slots: dict[str, int]) -> None:
        """No two share bytes, and only slots that are taken have any."""
        taken = np.flatnonzero(self._room)
        assert {*taken.tolist()} <= {*slots.values()}
        order: Any = taken[np.argsort(self._kinds[taken, 3])]
        starts, rooms = self._kinds[order, 3], self._room[order]
        assert bool((starts[:-1] + rooms[:-1] <= starts[1:]).all())
        assert self._left + int(rooms.sum()) == self._end <= self._bits.size


def _longer(array: Any, rows: int) -> Any:
    """The same with zeros behind."""
    more = np.zeros((rows, *array.shape[1:]), array.dtype)
    more[: len(array)] = array
    return more
