"""Positions in columns, as kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

import numpy as np

from nearcast.clock import FOREVER, Micros
from nearcast.fences.arrays import Arrays
from nearcast.fences.groups import Group, Groups, Object
from nearcast.fences.kernels import ground, steps
from nearcast.fences.tracks import Tracks
from nearcast.kernels import geometry
from nearcast.matcher.places import search_boxes
from nearcast.model.events import Event
from nearcast.model.fences import object_from
from nearcast.model.geometry import Box, Point, Polygon, Space

__all__ = [
    "Columns",
    "Position",
    "Positions",
    "columns_of",
    "in_columns",
    "taken_extents",
    "with_near",
]

_NO_ROWS = np.zeros(0, np.int32)
_NO_STARTS = np.zeros(0, np.int64)
_x, _y = attrgetter("x"), attrgetter("y")
_attributes, _expires, _location = map(attrgetter, ("attributes", "expires", "location"))


class Position(NamedTuple):
    """An event, when it happened, and how far time had come by then."""

    event: Event
    at: Micros
    now: Micros


class Positions(NamedTuple):
    """Several of them by columns."""

    events: Sequence[Event]
    ats: Sequence[Micros]
    nows: Sequence[Micros]


class Columns(NamedTuple):
    """A row for each position and group that counts it, or one that none counts."""

    items: Any
    xs: Any
    ys: Any
    starts: Any = _NO_STARTS
    """Where the fences that an extended position may be in begin among `rows`."""
    rows: Any = _NO_ROWS


def in_columns(tracks: Any, numbers: Any, first: int, ats: Any, nows: Any, expires: Any) -> Any:
    """Items of points; `numbers` counts positions, `first` is the number of the first of all."""
    items = np.zeros((len(tracks), steps.ITEM_COLUMNS), np.int64)
    items[:, steps.I_TRACK] = tracks
    items[:, steps.I_STEP] = 2 * numbers + 1
    items[:, steps.I_AT] = ats
    items[:, steps.I_NOW] = nows
    items[:, steps.I_SEQ] = first + numbers
    items[:, steps.I_EXPIRES] = expires
    items[:, steps.I_KIND] = geometry.POINT
    return items


def columns_of(
    positions: Positions, first: int, groups: Groups, tracks: Tracks, arrays: Arrays, space: Space
) -> Columns:
    """The columns of some positions, of which the first has a number."""
    sole = groups.sole
    if sole is not None:
        made = of_points(positions, first, sole, tracks)
        if made is not None:
            return made
    return _of_any(positions, first, groups, tracks, arrays, space)


def of_points(positions: Positions, first: int, group: Group, tracks: Tracks) -> Columns | None:
    """Where one group counts everything: None if some positions are extended."""
    events, name = positions.events, group.key[0]
    places = [*map(_location, events)]
    kinds = {*map(type, places)}
    if not kinds <= {Point, type(None)}:
        return None
    if kinds == {Point}:
        values = [*map(methodcaller("get", name), map(_attributes, events))]
        xs, ys = np.array([*map(_x, places)]), np.array([*map(_y, places)])
    else:
        values = [None if e.location is None else e.attributes.get(name) for e in events]
        at = [(0.0, 0.0) if place is None else (place.x, place.y) for place in places]
        xs, ys = np.array(at).T.copy()
    rows = _rows(values, group, tracks)
    ats, nows = positions.ats, positions.nows
    expires = [*map(_expires, events)]
    if None in expires:
        expires = [FOREVER if at is None else at for at in expires]
    items = in_columns(rows, np.arange(len(rows)), first, ats, nows, expires)
    return Columns(items, xs, ys)


def _rows(values: Sequence[Any], group: Group, tracks: Tracks) -> Sequence[int]:
    """The tracks of objects, −1 for what names none; new ones if need be."""
    if bool not in {*map(type, values)}:
        known: list[int | None] = [*map(group.objects.get, values)]  # 1 finds 1.0
        if None not in known:
            return known  # type: ignore[return-value]
    rows = []
    for value in values:
        who = object_from(value)
        row = -1 if who is None else group.objects.get(who)
        rows.append(tracks.new(group, who) if row is None and who is not None else row)
    return rows  # type: ignore[return-value]


def _of_any(
    positions: Positions, first: int, groups: Groups, tracks: Tracks, arrays: Arrays, space: Space
) -> Columns:
    events = positions.events
    found = [groups.counting(events[0])] if len(events) == 1 else groups.counting_many(events)
    rows: list[tuple[int, ...]] = []
    xs: list[float] = []
    ys: list[float] = []
    extended: dict[int, tuple[Box | Polygon, int]] = {}
    for number, (event, at, now, counting) in enumerate(zip(*positions, found, strict=True)):
        expires = FOREVER if event.expires is None else event.expires
        nobody: list[tuple[Group | None, Object]] = [(None, "")]
        for group, who in counting or nobody:
            track, kind, offset, x, y = -1, geometry.POINT, 0, 0.0, 0.0
            if group is not None:
                kind, offset, x, y = tracks.encoded(event)
                known = group.objects.get(who)
                track = tracks.new(group, who) if known is None else known
                if event.location is not None and not isinstance(event.location, Point):
                    extended[len(rows)] = event.location, group.row
            rows.append((track, 2 * number + 1, at, now, first + number, expires, kind, offset))
            xs.append(x)
            ys.append(y)
    made = Columns(np.array(rows, np.int64).reshape(-1, 8), np.array(xs), np.array(ys))
    return with_near(made, extended, arrays, space) if extended else made


def with_near(
    made: Columns, extended: dict[int, tuple[Box | Polygon, int]], arrays: Arrays, space: Space
) -> Columns:
    """With the fences that extended positions, by row with the row of their group, may be in."""
    counts = np.zeros(len(made.items) + 1, np.int64)
    parts = []
    for i, (place, group) in sorted(extended.items()):
        near = [
            ground.near(arrays.packed, group, np.array(box)) for box in search_boxes(place, space)
        ]
        found = np.unique(np.concatenate(near)) if near else _NO_ROWS
        parts.append(found)
        counts[i + 1] = found.size
    return made._replace(starts=counts.cumsum(), rows=np.concatenate(parts).astype(np.int32))


def taken_extents(made: Columns, events: Sequence[Event], first: int) -> dict[int, Event]:
    """Offset → event of the extended positions."""
    wide = made.items[made.items[:, steps.I_KIND] != geometry.POINT]
    return {
        offset: events[seq - first]
        for offset, seq in wide[:, [steps.I_OFFSET, steps.I_SEQ]].tolist()
    }
