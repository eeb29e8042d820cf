"""The fence operator for callers that say themselves whose position a place is.

`Watch` reads objects off events and tells people; here a caller has groups of borders, tracks of
whatever moves, and gets the bare transitions. Patterns (`nearcast.cpsl`) stand on it. Both run
on the same tables and kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.fences.arrays import Arrays
from nearcast.fences.kernels import beginnings, ground, steps
from nearcast.fences.kernels import tables as t
from nearcast.fences.regions import boxes_of
from nearcast.index.columns import Spans
from nearcast.kernels import geometry
from nearcast.matcher.places import search_boxes, shape_floats
from nearcast.model.geometry import Box, Circle, Location, Point, Polygon, Space

__all__ = ["DOUBTED", "ENTERED", "LEFT", "SETTLED", "Borders"]

#: What happens between a border and a track. An unknown object whose first position lies within
#: the margin is doubted; it settles when it is known to be outside.
ENTERED, LEFT, DOUBTED, SETTLED = t.ENTER_CODE, t.EXIT_CODE, t.DOUBTED_CODE, t.SETTLED_CODE
_TELLS = t.ENTER | t.EXIT
_TELLS_DOUBTS = t.DOUBTED | t.SETTLED


class Borders:
    """Borders in groups, tracks in groups, and what each border knows of the tracks of its group.

    All borders of a group begin before its first track does: a track without a word about it is
    outside. A position costs the borders near it and those that hold its track. One thread.
    """

    def __init__(self, space: Space) -> None:
        self._space: Space = space
        self._globe = space == "globe"
        self._arrays = Arrays()
        self._floats, self._boxes, self._runs = Spans(), Spans(), Spans()
        self._groups, self._rows, self._tracks = _Numbers(), _Numbers(), _Numbers()
        self._taken: dict[int, tuple[int, int, int]] = {}
        """How many floats, boxes and runs a border has."""
        self._seq = 0

    # -- groups and borders --------------------------------------------------------

    def open_group(self) -> int:
        """A group of borders and tracks that see each other."""
        group = self._groups.take()
        self._arrays.reserve(groups=group + 1)
        row = self._arrays.tables.groups[group]
        row[:] = 0
        row[[t.OUT_HEAD, t.CLASS_HEAD, t.LONGEST, t.WIDTH]] = -1
        return group

    def close_group(self, group: int) -> None:
        """A group without borders and tracks is over."""
        self._groups.free(group)

    def add(
        self, group: int, region: Circle | Box | Polygon, margin_m: float, *,
        wider_m: float = 0.0, doubts: bool = False,
    ) -> int:  # fmt: skip
        """A border; returns its row.

        It lies `wider_m` outside of the region's edge. With `doubts` it tells of objects that are
        neither known to be in nor out.
        """
        kind, floats = shape_floats(region)
        flags = _TELLS | (t.WIDENED if wider_m else 0)
        before = (wider_m,) if wider_m else ()
        if doubts and margin_m:
            flags |= t.DOUBTS | _TELLS_DOUBTS
        beyond = wider_m + margin_m
        boxes = boxes_of(region, beyond if flags & t.DOUBTS else wider_m, self._space)
        row = self._rows.take()
        taken = self._taken[row] = len(before) + len(floats), len(boxes), len(boxes)
        start, box, run = (
            spans.take(n)
            for spans, n in zip((self._floats, self._boxes, self._runs), taken, strict=True)
        )
        self._arrays.reserve(
            fences=row + 1, terms=row + 1, margins=row + 1, floats=self._floats.used,
            boxes=self._boxes.used, entries=4 * self._runs.used,
        )  # fmt: skip
        self._arrays.cells(4 * len(boxes))
        tables = self._arrays.tables
        offset = start + len(before)
        tables.fences[row] = kind, offset, group, flags, -1, 1, -1, -1, box, len(boxes), run, -1
        tables.terms[row] = -1, -1, -1, NEVER, row, FOREVER
        tables.margins[row] = beyond
        tables.floats[start : start + taken[0]] = (*before, *floats)
        tables.boxes[box : box + len(boxes)] = boxes
        ground.stand(self._arrays.packed, row)
        tables.groups[group, t.MEMBERS] += 1
        return row

    def remove(self, row: int) -> None:
        """A border is over; what it knew is forgotten."""
        tables = self._arrays.tables
        group, start, box, run = tables.fences[row, [t.GROUP, t.OFFSET, t.BOX, t.RUN]].tolist()
        if tables.fences[row, t.FLAGS] & t.WIDENED:
            start -= 1
        ground.leave(self._arrays.packed, row)
        tables.groups[group, t.MEMBERS] -= 1
        tables.fences[row, t.GROUP] = -1
        floats, boxes, runs = self._taken.pop(row)
        self._floats.give_back(start, floats)
        self._boxes.give_back(box, boxes)
        self._runs.give_back(run, runs)
        self._rows.free(row)

    # -- tracks --------------------------------------------------------------------

    def open_track(self, group: int, at: Micros = NEVER) -> int:
        """The row of something that moves, of which a last position is known or none."""
        track = self._tracks.take()
        size = track + 1
        self._arrays.reserve(tracks=size, at_x=size, at_y=size, track_entries=size)
        # The last number but one keeps it out of the list of changes: nobody asks for them.
        self._arrays.tables.tracks[track] = (
            group, at, 0, FOREVER, FOREVER, FOREVER, -1, 0, geometry.POINT, 0, 0, -1, 0,
        )  # fmt: skip
        return track

    def close_track(self, track: int) -> None:
        """Forget something that moved."""
        t.forget_pairs(self._arrays.packed, track)
        self._arrays.tables.tracks[track, t.T_GROUP] = -1
        self._tracks.free(track)

    # -- positions -----------------------------------------------------------------

    def take(self, track: int, at: Micros, place: Location) -> list[tuple[int, int]]:
        """A position, not older than the last one: borders and what happened there, by row."""
        self._seq += 1
        arrays = self._arrays
        if isinstance(place, Point):
            given = track, at, at, self._seq, FOREVER, place.x, place.y, self._globe
            while lacking := steps.one(arrays.packed, *given):
                arrays.room(lacking)
        else:
            self._take_extended(track, at, place)
        tables = arrays.tables
        count = tables.counters.item(t.OUT)
        if not count:
            return []
        tables.counters[t.OUT] = 0
        told = tables.out[:count]
        return sorted(zip(told[:, t.O_FENCE].tolist(), told[:, t.CODE].tolist(), strict=True))

    def _take_extended(self, track: int, at: Micros, place: Box | Polygon) -> None:
        kind, floats = shape_floats(place)
        arrays = self._arrays
        arrays.reserve(places=len(floats))
        arrays.tables.places[: len(floats)] = floats
        group = int(arrays.tables.tracks[track, t.T_GROUP])
        boxes = search_boxes(place, self._space)
        near = [ground.near(arrays.packed, group, np.array(box)) for box in boxes]
        rows = np.unique(np.concatenate(near))
        item = track, 1, at, at, self._seq, FOREVER, kind, 0
        items, nowhere = np.array([item], np.int64), np.zeros(1)
        starts = np.array([0, rows.size], np.int64)
        columns: tuple[Any, ...] = items, nowhere, nowhere
        ends, met = steps.locate(arrays.packed, *columns, starts, rows, 0, 1, self._globe)
        done = 0
        while done <= 1:
            done, lacking = steps.run(arrays.packed, *columns, ends, met, 0, done, 1, self._globe)
            if lacking:
                arrays.room(lacking)

    # -- to be kept ----------------------------------------------------------------

    def held(self, row: int) -> list[tuple[int, bool]]:
        """The tracks that a border holds (True) or doubts. O(pairs)."""
        tables = self._arrays.tables
        found, pair = [], int(tables.fences[row, t.HEAD])
        while pair >= 0:
            inside = bool(tables.pairs[pair, t.STATE] & t.IN)
            found.append((int(tables.pairs[pair, t.TRACK]), inside))
            pair = int(tables.pairs[pair, t.F_NEXT])
        return found

    def recall(self, row: int, track: int, inside: bool) -> None:
        """A border holds or doubts a track, as it did elsewhere."""
        state = t.IN if inside else t.DOUBT
        while lacking := beginnings.recall(self._arrays.packed, row, track, state, 0):
            self._arrays.room(lacking)

    @property
    def pairs(self) -> int:
        """How many pairs of a border and a track are kept."""
        return int(self._arrays.tables.counters[t.COUNT])

    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(self._arrays.nbytes().values())


class _Numbers:
    """Row numbers; one that is free serves again."""

    __slots__ = ("_free", "_used")

    def __init__(self) -> None:
        self._free: list[int] = []
        self._used = 0

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self._used += 1
        return self._used - 1

    def free(self, number: int) -> None:
        self._free.append(number)
