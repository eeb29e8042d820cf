"""A history that goes on: objects come, and what is known of them is kept elsewhere meanwhile."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.fences.history import I8, History, Standing
from nearcast.fences.kernels import tables as t
from nearcast.kernels import geometry

__all__ = ["Ongoing"]

#: What objects fill, and how much of it is in use; the rest belongs to fences, or to one call.
_WHOLE = ("buckets", "track_slots", "track_entries", "counters")
_BY_TRACK = ("tracks", "at_x", "at_y")
_BY_PAIR = ("pairs", "entered")


class Ongoing(History):
    """Positions in order of time, a call after the other, for any number of objects.

    Fences stand in the arrays of `standing`; all else is some 130 bytes an object and 50 for each
    fence that it is inside of, and can be saved and loaded.
    """

    def __init__(self, standing: Standing) -> None:
        super().__init__(standing, np.empty(0, np.int64))

    def __len__(self) -> int:
        """How many tracks there are."""
        return len(self._groups)

    @property
    def taken(self) -> int:
        """How many positions there were."""
        return self._taken

    @property
    def due(self) -> Micros:
        """When time alone may bring something next; FOREVER if never."""
        tables = self._arrays.tables
        return int(tables.heap[0, 0]) >> 2 if tables.counters[t.HEAP] else FOREVER

    def meet(self, groups: I8) -> None:
        """More tracks, of these groups."""
        first = len(self._groups)
        self._groups = np.concatenate([self._groups, groups])
        count = len(self._groups)
        self._arrays.reserve(tracks=count, at_x=count, at_y=count)
        rows = self._arrays.tables.tracks[first:count]
        rows[:] = (
            0,
            NEVER,
            0,
            FOREVER,
            FOREVER,
            FOREVER,
            -1,
            0,
            geometry.POINT,
            0,
            0,
            t.UNCHANGED,
            0,
        )
        rows[:, t.T_GROUP] = groups

    def save(self) -> bytes:
        """Everything but the fences. O(objects + pairs)."""
        tables = self._arrays.tables
        count, pairs = len(self._groups), int(tables.counters[t.USED])
        heads = np.flatnonzero(tables.fences[:, t.HEAD] >= 0)
        known: dict[str, Any] = {name: getattr(tables, name) for name in _WHOLE}
        known |= {name: getattr(tables, name)[:count] for name in _BY_TRACK}
        known |= {name: getattr(tables, name)[:pairs] for name in _BY_PAIR}
        known["heap"] = tables.heap[: tables.counters[t.HEAP]]
        held = heads, tables.fences[heads, t.HEAD]
        return pickle.dumps((self._groups, self._taken, held, known), protocol=5)

    def load(self, saved: bytes) -> None:
        """What another one knew of the same fences, and nothing else."""
        self._groups, self._taken, (heads, firsts), known = pickle.loads(saved)
        fences = self._arrays.tables.fences
        fences[:, t.HEAD] = -1
        fences[heads, t.HEAD] = firsts
        self._arrays.put(**{name: array.copy() for name, array in known.items()})
