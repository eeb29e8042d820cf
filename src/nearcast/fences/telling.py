"""What is told: transitions as kernels write them down, in order, and as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from nearcast.clock import FOREVER, Micros
from nearcast.fences.arrays import Arrays
from nearcast.fences.kernels import tables as t
from nearcast.fences.roll import Roll
from nearcast.fences.tracks import Tracks
from nearcast.model.events import Event, Value
from nearcast.model.fences import TRANSITIONS, Transition

__all__ = ["Crossing", "Crossings", "Telling"]

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


class Crossings(Sequence[Crossing]):
    """Transitions by columns, in order, made when somebody looks at them.

    What fences are called and which positions these were is written down at once, for both change.
    """

    __slots__ = ("_ats", "_attributes", "_codes", "_events", "_names", "_steps")

    def __init__(
        self, names: Sequence[tuple[str, str | None]], events: Sequence[Event],
        attributes: Sequence[str], out: Any,
    ) -> None:  # fmt: skip
        self._names = names
        self._events = events
        self._attributes = attributes
        self._ats, self._codes, self._steps = (out[:, i].copy() for i in (t.O_AT, t.CODE, t.STEP))

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Crossing]:
        numbers = self._ats.tolist(), self._codes.tolist(), self._steps.tolist()
        every = zip(self._names, self._events, self._attributes, *numbers, strict=True)
        for (id, who), event, name, at, code, step in every:
            value = event.attributes[name]
            yield Crossing(id, who, event, at, TRANSITIONS[code], value, step)

    @overload
    def __getitem__(self, at: int) -> Crossing: ...
    @overload
    def __getitem__(self, at: slice) -> list[Crossing]: ...
    def __getitem__(self, at: int | slice) -> Crossing | list[Crossing]:
        return [*self][at]


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

    def later(self, events: Sequence[Event] = (), first: int = FOREVER) -> Sequence[Crossing]:
        """`crossings`, of which many are not made yet: 0.3 µs each."""
        tables, tracks = self._arrays.tables, self._tracks
        if tables.counters.item(t.OUT) <= _FEW:
            return self.crossings(events, first)
        out = self.table()
        seqs, rows = out[:, t.O_SEQ], out[:, t.O_TRACK]
        old = (seqs < first).nonzero()[0]
        if old.size:
            which = [events[seq - first] if seq >= first else None for seq in seqs.tolist()]
            for i, row in zip(old.tolist(), rows[old].tolist(), strict=True):
                which[i] = tracks.events[row]
        else:
            which = [*map(events.__getitem__, (seqs - first).tolist())]
        groups = tables.tracks[rows, t.T_GROUP]
        known = rows[:1] if (groups == groups[:1]).all() else rows
        names = [each[0].key[0] for each in map(tracks.objects.__getitem__, known.tolist()) if each]
        names *= len(rows) // max(len(known), 1)
        return Crossings(self._roll.named_all(out[:, t.O_FENCE].tolist()), which, names, out)  # type: ignore[arg-type]

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
