"""What is told: transitions as kernels write them down, in order, and as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nearcast.clock import FOREVER, Micros
from nearcast.fences.arrays import Arrays
from nearcast.fences.kernels import tables as t
from nearcast.fences.roll import Roll
from nearcast.fences.tracks import Tracks
from nearcast.model.events import Event, Value
from nearcast.model.fences import TRANSITIONS, Transition

__all__ = ["Crossing", "Telling"]

#: Transitions that Python sorts sooner than NumPy.
_FEW = 12


class Crossing(NamedTuple):
    """A fence tells of an object.

    `step` is 2 i + 1 for what position or move i brings, 2 i for what was due before it.
    """

    fence_id: str
    subscriber: str | None
    event: Event
    at: Micros
    transition: Transition
    object: Value
    step: int


class Telling:
    """The transitions of one call, in the order in which they are told.

    That is: by steps and time; at one moment dwells before losses; then as the fences came, then by
    object, numbers before strings.
    """

    def __init__(self, arrays: Arrays, roll: Roll, tracks: Tracks) -> None:
        self._arrays = arrays
        self._roll = roll
        self._tracks = tracks

    def rows(self) -> list[list[int]]:
        """What kernels wrote down: step, fence, track, code, at, number of the position."""
        tables = self._arrays.tables
        count = int(tables.counters[t.OUT])
        if not count:
            return []
        tables.counters[t.OUT] = 0
        if count > _FEW:
            return self._sorted(tables.out[:count]).tolist()  # type: ignore[no-any-return]
        rows, found = tables.out[:count].tolist(), []
        for row in rows:
            if row[t.CODE] == t.FORGOTTEN:
                self._tracks.forgotten.append(row[t.O_TRACK])
            else:
                found.append(row)
        if len(found) > 1:
            found.sort(key=self._order)
        return found

    def table(self) -> Any:
        """The same as an array."""
        tables = self._arrays.tables
        count = int(tables.counters[t.OUT])
        tables.counters[t.OUT] = 0
        return self._sorted(tables.out[:count])

    def _sorted(self, out: Any) -> Any:
        gone = out[:, t.CODE] == t.FORGOTTEN
        if gone.any():
            self._tracks.forgotten += out[gone, t.O_TRACK].tolist()
            out = out[~gone]
        steps, codes = out[:, t.STEP], out[:, t.CODE]
        numbers = self._arrays.tables.terms[out[:, t.O_FENCE], t.NUMBER]
        kinds = np.where(steps & 1, 0, codes)
        order = np.lexsort((codes, numbers, kinds, out[:, t.O_AT], steps))
        keys = np.column_stack((steps, out[:, t.O_AT], kinds, numbers))[order]
        out = out[order]
        tied = (keys[1:] == keys[:-1]).all(axis=1)
        if (tied & (out[1:, t.O_TRACK] != out[:-1, t.O_TRACK])).any():
            # Several objects at one fence and moment, which NumPy cannot compare.
            firsts = np.flatnonzero(np.concatenate(([True], ~tied))).tolist()
            for first, stop in zip(firsts, [*firsts[1:], len(out)], strict=True):
                if stop - first > 1:
                    out[first:stop] = sorted(out[first:stop].tolist(), key=self._rank)
        return out

    def _order(self, row: list[int]) -> tuple[Any, ...]:
        step, fence, _, code, at, _ = row
        number = self._arrays.tables.terms.item(fence, t.NUMBER)
        return step, at, 0 if step & 1 else code, number, self._rank(row)

    def _rank(self, row: list[int]) -> tuple[Any, ...]:
        known = self._tracks.objects[row[t.O_TRACK]]
        assert known is not None
        who = known[1]
        return (1, 0.0, who, row[t.CODE]) if isinstance(who, str) else (0, who, "", row[t.CODE])

    def crossings(self, events: Sequence[Event] = (), first: int = FOREVER) -> list[Crossing]:
        """As values; `events` are positions of which the first has this number."""
        rows = self.rows()
        if not rows:
            return []
        named, last, objects = self._roll.named, self._tracks.events, self._tracks.objects
        told = []
        for step, row, track, code, at, seq in rows:
            event = events[seq - first] if seq >= first else last[track]
            known = objects[track]
            assert event is not None
            assert known is not None
            value = event.attributes[known[0].key[0]]
            id, subscriber = named(row)
            told.append(Crossing(id, subscriber, event, at, TRANSITIONS[code], value, step))
        return told
