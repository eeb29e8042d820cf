"""Tracks: the last position of each object, for the fences that count the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.fences.arrays import Arrays
from nearcast.fences.groups import Group, Key, Object
from nearcast.fences.kernels import ground, places
from nearcast.fences.kernels import tables as t
from nearcast.index.columns import Spans
from nearcast.kernels import geometry
from nearcast.matcher.places import shape_floats
from nearcast.model.events import Event
from nearcast.model.geometry import Point

__all__ = ["Tracks"]

#: Of a track that changes while nobody looks: it is not linked to those that did.
_UNHEARD = -3


class Tracks:
    """Rows of `Tables.tracks`, whose they are, and the events they stand for."""

    def __init__(self, arrays: Arrays, *, globe: bool) -> None:
        self._arrays = arrays
        self._globe = globe
        self.events: list[Event | None] = []
        self.objects: list[tuple[Group, Object] | None] = []
        self._free: list[int] = []
        self._extents = Spans()
        self._extent_of: dict[int, tuple[int, int]] = {}
        self.forgotten: list[int] = []
        """Rows of objects that all their fences have lost, to be freed."""
        self._gone: dict[tuple[Key, Object], None] = {}
        """Objects whose tracks are gone since somebody looked."""
        self._remembers = False
        self.freed = 0
        """How many rows were given back."""
        self.shed = 0
        """How many objects were let go because there were too many."""

    def __len__(self) -> int:
        return len(self.events) - len(self._free)

    @property
    def remembers(self) -> bool:
        """Whether somebody looks at what changed after each call."""
        return self._remembers

    @remembers.setter
    def remembers(self, wanted: bool) -> None:
        self._remembers = wanted
        if wanted:
            column = self._arrays.tables.tracks[:, t.CHANGED]
            column[column == _UNHEARD] = t.UNCHANGED

    # -- rows ----------------------------------------------------------------------

    def new(self, group: Group, who: Object) -> int:
        """A row for an object, which is nowhere yet."""
        track = self._free.pop() if self._free else len(self.events)
        if track == len(self.events):
            self.events.append(None)
            self.objects.append(None)
            size = track + 1
            self._arrays.reserve(tracks=size, at_x=size, at_y=size, track_entries=size)
        self._arrays.tables.tracks[track] = (
            group.row, NEVER, 0, FOREVER, FOREVER, FOREVER, -1, 0, geometry.POINT, 0, 0,
            t.UNCHANGED if self._remembers else _UNHEARD, 0,
        )  # fmt: skip
        group.objects[who] = track
        self.objects[track] = group, who
        return track

    def place(self, group: Group, who: Object, at: Micros, seq: int, event: Event) -> int:
        """A new row at a position, without a word to anybody."""
        track = self.new(group, who)
        kind, offset, x, y = self.encoded(event)
        tables = self._arrays.tables
        tables.tracks[track, [t.AT, t.SEQ, t.EXPIRES, t.GONE, t.T_KIND, t.T_OFFSET]] = (
            at, seq, FOREVER if event.expires is None else event.expires, FOREVER, kind, offset,
        )  # fmt: skip
        tables.at_x[track] = -180.0 if self._globe and x == 180.0 else x
        tables.at_y[track] = y
        self.events[track] = event
        self._keep_extent(track, event, offset)
        self.mark(track)
        if group.following:
            self._arrays.track_cells(1)
            places.link_track(self._arrays.packed, track)
        return track

    def free(self, track: int) -> None:
        """An object is forgotten."""
        self._unmark(track)
        places.unlink_track(self._arrays.packed, track)
        self._arrays.tables.tracks[track, t.T_GROUP] = -1
        known = self.objects[track]
        assert known is not None
        group, who = known
        if self.remembers:
            self._gone[group.key, who] = None
        del group.objects[who]
        group.has_forgotten = True
        self.objects[track] = self.events[track] = None
        old = self._extent_of.pop(track, None)
        if old is not None:
            self._extents.give_back(*old)
        self._free.append(track)
        self.freed += 1

    def drop_forgotten(self) -> None:
        """Free the rows of objects that all their fences have lost."""
        if not self.forgotten:
            return
        table = self._arrays.tables.tracks
        for track in set(self.forgotten):
            if table[track, t.T_GROUP] >= 0 and table[track, t.AT] == NEVER:
                self.free(track)
        self.forgotten.clear()

    def let_go(self, most: int) -> None:
        """If there are more than so many, those go that have been silent longest.

        An eighth of the room is free then, so that this is seldom: O(n log n).
        """
        count = len(self)
        if count <= most:
            return
        table = self._arrays.tables.tracks[: len(self.events)]
        rows = (table[:, t.T_GROUP] >= 0).nonzero()[0]
        order = np.lexsort((table[rows, t.SEQ], table[rows, t.AT]))
        over = count - (most - most // 8)
        for track in rows[order[:over]].tolist():
            ground.let_go(self._arrays.packed, track)
            self.free(track)
        self.shed += over

    # -- positions -----------------------------------------------------------------

    def encoded(self, event: Event) -> tuple[int, int, float, float]:
        """Kind, offset, x and y of a position; the floats of an extended one are stored."""
        place = event.location
        assert place is not None
        if isinstance(place, Point):
            return geometry.POINT, 0, place.x, place.y
        kind, floats = shape_floats(place)
        offset = self._extents.take(len(floats))
        self._arrays.reserve(places=self._extents.used)
        self._arrays.tables.places[offset : offset + len(floats)] = floats
        return kind, offset, 0.0, 0.0

    def stand(self, tracks: Sequence[int], events: Sequence[Event], offsets: Sequence[int]) -> None:
        """These are the last positions now."""
        kept = self.events
        if not self._extents.used:  # nobody was ever anything but a point
            for track, event in zip(tracks, events, strict=True):
                kept[track] = event
            return
        for track, event, offset in zip(tracks, events, offsets, strict=True):
            kept[track] = event
            self._keep_extent(track, event, offset)

    def _keep_extent(self, track: int, event: Event, offset: int) -> None:
        """The floats of a track's last position are in use, those before are not."""
        old = self._extent_of.pop(track, None)
        if old is not None and old[0] != offset:
            self._extents.give_back(*old)
        if not isinstance(event.location, Point):
            assert event.location is not None
            self._extent_of[track] = offset, len(shape_floats(event.location)[1])

    def give_back_unused(self, taken: dict[int, Event]) -> None:
        """Free the floats of extended positions, by offset, that are nobody's last."""
        used = {offset for offset, _ in self._extent_of.values()}
        for offset, event in taken.items():
            if offset not in used:
                assert event.location is not None
                self._extents.give_back(offset, len(shape_floats(event.location)[1]))

    # -- what changed --------------------------------------------------------------

    def changes(self) -> tuple[list[tuple[Key, Object]], list[int]]:
        """The objects that are gone and the rows that changed since this was asked."""
        tables = self._arrays.tables
        gone, rows = [*self._gone], []
        self._gone.clear()
        track = int(tables.counters[t.LAST_CHANGED])
        tables.counters[t.LAST_CHANGED] = -1
        while track >= 0:
            rows.append(track)
            after = int(tables.tracks[track, t.CHANGED])
            tables.tracks[track, t.CHANGED] = t.UNCHANGED
            track = after
        return gone, rows

    def mark(self, track: int) -> None:
        """Remember that a track changed, as kernels do."""
        tables = self._arrays.tables
        if tables.tracks[track, t.CHANGED] == t.UNCHANGED:
            tables.tracks[track, t.CHANGED] = tables.counters[t.LAST_CHANGED]
            tables.counters[t.LAST_CHANGED] = track

    def _unmark(self, track: int) -> None:
        """A track goes: it is no more among those that changed."""
        tables: Any = self._arrays.tables
        if tables.tracks[track, t.CHANGED] in (t.UNCHANGED, _UNHEARD):
            return
        after = int(tables.tracks[track, t.CHANGED])
        at = int(tables.counters[t.LAST_CHANGED])
        if at == track:
            tables.counters[t.LAST_CHANGED] = after
        else:
            while tables.tracks[at, t.CHANGED] != track:
                at = int(tables.tracks[at, t.CHANGED])
            tables.tracks[at, t.CHANGED] = after
        tables.tracks[track, t.CHANGED] = t.UNCHANGED
