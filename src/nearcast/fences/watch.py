"""The operator behind fences: positions, moves and time in, transitions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.errors import DuplicateIdError
from nearcast.fences.arrays import Arrays
from nearcast.fences.groups import Group, Groups, Key, Object, key_of
from nearcast.fences.kernels import judging, steps
from nearcast.fences.kernels import tables as t
from nearcast.fences.regions import boxes_of
from nearcast.fences.saved import KnownFence, KnownObject, Saved, Visit
from nearcast.index.columns import Spans
from nearcast.kernels import geometry, region_grid
from nearcast.matcher.places import search_boxes, shape_floats
from nearcast.model.events import Event, Value
from nearcast.model.fences import TRANSITIONS, Fence, Transition, object_of
from nearcast.model.geometry import Around, Circle, Point, Space
from nearcast.model.subscriptions import Subscription

__all__ = ["Crossing", "Live", "Position", "Watch"]

#: When an event ends, and the event: the live ones that a subscription wants.
Live = Callable[[Subscription], Iterable[tuple[Micros, Event]]]
_MICROSECOND = timedelta(microseconds=1)
#: Objects of a group that are looked at one by one when a fence comes.
_FEW = 256
_NO_ROWS = np.zeros(0, np.int32)
_NO_STARTS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Position:
    """An event, when it happened, and how far time had come by then."""

    event: Event
    at: Micros
    now: Micros


@dataclass(frozen=True, slots=True)
class Crossing:
    """A fence tells of an object.

    `step` is 2 i + 1 for what position or move i brings, 2 i for what was due before it.
    """

    fence: Fence
    transition: Transition
    object: Value
    at: Micros
    event: Event
    step: int


class Watch:
    """All fences of a broker, and what they know of every object.

    A position costs the fences near it and those that hold its object; what is far away costs
    nothing, however many fences there are. Transitions come in order: of time; at one moment
    positions first, then dwells, then losses; then in the order in which the fences came, then by
    object, numbers before strings. One thread at a time.
    """

    def __init__(self, space: Space = "globe") -> None:
        self.space: Space = space
        self._globe = space == "globe"
        self._arrays = Arrays()
        self._groups = Groups(space)
        self._rows: dict[str, int] = {}
        self._fences: list[Fence | None] = []
        self._free: list[int] = []
        self._followers: dict[str, list[int]] = {}
        self._floats, self._boxes, self._runs, self._extents = Spans(), Spans(), Spans(), Spans()
        self._classes: list[int] = []
        """Rows of classes that are free."""
        self._class_count = 0
        self._free_tracks: list[int] = []
        self._objects: list[tuple[Group, Object] | None] = []
        self._events: list[Event | None] = []
        self._extent_of: dict[int, tuple[int, int]] = {}
        self._forgotten: list[int] = []
        self._gone: dict[tuple[Key, Object], None] = {}
        """Objects whose tracks are gone since somebody looked."""
        self.remembers = False
        """Whether somebody looks at `changes` after each call."""
        self._number = 0
        self._seq = 0

    def __len__(self) -> int:
        """How many fences there are."""
        return len(self._rows)

    def __contains__(self, id: object) -> bool:
        return id in self._rows

    @property
    def late(self) -> int:
        """How many positions were older than the last one of their object, and did not count."""
        return int(self._arrays.tables.counters[t.LATE])

    @property
    def pairs(self) -> int:
        """How many pairs of a fence and an object are kept."""
        return int(self._arrays.tables.counters[t.COUNT])

    @property
    def objects(self) -> int:
        """How many last positions are kept: one for each object and way of counting."""
        return len(self._events) - len(self._free_tracks)

    def nbytes(self) -> dict[str, int]:
        """Bytes of each array."""
        return self._arrays.nbytes()

    # -- fences ------------------------------------------------------------------

    def add(
        self, fence: Fence, live: Live, now: Micros = NEVER, place: Point | None = None
    ) -> list[Crossing]:
        """A fence begins; told of the objects inside whose last position is live.

        `live` finds the live events of a subscription, `now` is the moment at which they are,
        `place` is where the fence's subscriber is, if a region follows them.
        """
        if fence.id in self._rows:
            raise DuplicateIdError("fence", fence.id, "remove it first")
        group = self._groups.get(key_of(fence))
        if group is None:
            group = self._open(key_of(fence))
            group.has_forgotten = True
        if group.has_forgotten:
            self._learn(group, live)
        row = self._enter(fence, group, now)
        region = fence.region
        if not isinstance(region, Around):
            found = self._inside(fence, group, live)
        else:
            self._follow(fence, row, group, place)
            at = None if place is None else Circle(place.x, place.y, region.radius_m)
            found = _NO_ROWS if at is None else self._inside(fence, group, live, at)
        tables = self._arrays.tables
        while lacking := steps.begin(self._arrays.packed, row, found, 1, self._globe):
            self._arrays.room(lacking)
        if tables.fences[row, t.FLAGS] & t.DOUBTS and tables.fences[row, t.PLACED]:
            self._doubt(row)
        if fence.lost is not None:
            while lacking := steps.await_silence(self._arrays.packed, row, True):
                self._arrays.room(lacking)
        return self._fired(NEVER, NEVER, 2)

    def _open(self, key: Key) -> Group:
        """A new group."""
        group = self._groups.add(key)
        self._arrays.reserve(groups=group.row + 1)
        row = self._arrays.tables.groups[group.row]
        row[:] = 0
        row[[t.OUT_HEAD, t.CLASS_HEAD, t.LONGEST, t.WIDTH]] = -1
        return group

    def _learn(self, group: Group, live: Live) -> None:
        """The last live position of each object that is not known."""
        newest: dict[Object, tuple[Micros, Event]] = {}
        for end, event in live(group.subscription()):
            who = None if event.location is None else object_of(event.attributes, group.key[0])
            if who is None or who in group.objects:
                continue
            if who not in newest or newest[who][0] <= end:
                newest[who] = end, event
        for who, (end, event) in newest.items():
            track = self._place_track(group, who, end, event)
            if group.following:
                self._arrays.track_cells(1)
                steps.link_track(self._arrays.packed, track)
        group.has_forgotten = False

    def _place_track(self, group: Group, who: Object, at: Micros, event: Event) -> int:
        """A track at a position, without a word to anybody."""
        track = self._new_track(group, who)
        tables = self._arrays.tables
        kind, offset, x, y = self._encoded(event)
        tables.tracks[track, [t.AT, t.SEQ, t.EXPIRES, t.GONE, t.T_KIND, t.T_OFFSET]] = (
            at, self._seq, FOREVER if event.expires is None else event.expires, FOREVER,
            kind, offset,
        )  # fmt: skip
        tables = self._arrays.tables
        tables.at_x[track] = -180.0 if self._globe and x == 180.0 else x
        tables.at_y[track] = y
        self._events[track] = event
        self._keep_extent(track, event, offset)
        self._mark(track)
        return track

    def _enter(self, fence: Fence, group: Group, now: Micros) -> int:
        """The row of a new fence."""
        row = self._free.pop() if self._free else len(self._fences)
        region, around = fence.region, isinstance(fence.region, Around)
        flags = sum(1 << TRANSITIONS.index(name) for name in fence.on)
        if fence.margin_m and flags & (t.CROSS | t.OUTSIDE):
            flags |= t.DOUBTS
        if isinstance(region, Around):
            floats: tuple[float, ...] = (0.0, 0.0, region.radius_m)
            kind, boxes = geometry.CIRCLE, []
        else:
            kind, floats = shape_floats(region)
            margin = fence.margin_m if flags & t.DOUBTS else 0.0
            boxes = boxes_of(region, margin, self.space)
        twice = 2 if flags & t.CROSS else 1
        reserved = 3 if around else len(boxes)
        offset = self._floats.take(len(floats))
        box, run = self._boxes.take(reserved), self._runs.take(reserved * twice)
        self._arrays.reserve(
            fences=row + 1, margins=row + 1, floats=self._floats.used,
            boxes=self._boxes.used, entries=4 * self._runs.used,
        )  # fmt: skip
        self._arrays.cells(4 * reserved * twice)
        tables = self._arrays.tables
        self._number += 1
        tables.fences[row] = (
            kind, offset, group.row, flags, _micros(fence.dwell), _micros(fence.lost), self._seq,
            now, self._number, -1, not around, -1, -1, box, len(boxes), run,
        )  # fmt: skip
        tables.margins[row] = fence.margin_m
        tables.floats[offset : offset + len(floats)] = floats
        for i, bounds in enumerate(boxes):
            tables.boxes[box + i] = bounds
        if not around:
            steps.stand(self._arrays.packed, row)
        if row == len(self._fences):
            self._fences.append(fence)
        else:
            self._fences[row] = fence
        self._rows[fence.id] = row
        group.members += 1
        tables.groups[group.row, t.MEMBERS] += 1
        if flags & t.OUTSIDE:
            tables.fences[row, t.OUT_NEXT] = tables.groups[group.row, t.OUT_HEAD]
            tables.groups[group.row, t.OUT_HEAD] = row
            tables.groups[group.row, t.OUTS] += 1
        if fence.lost is not None:
            self._classify(row, group, _micros(fence.lost))
        self._set_longest(group)
        return row

    def _classify(self, row: int, group: Group, span: int) -> None:
        """Enter a fence into the class of those that wait as long for a sign of life."""
        kind, count = group.spans.get(span, (-1, 0))
        if kind < 0:
            kind = self._classes.pop() if self._classes else self._class_count
            self._class_count = max(self._class_count, kind + 1)
            self._arrays.reserve(classes=kind + 1)
        tables = self._arrays.tables
        if not count:
            tables.classes[kind] = span, -1, -1
            group.spans[span] = kind, 0
            self._chain(group)
        tables.fences[row, t.CLASS_NEXT] = tables.classes[kind, t.FIRST]
        tables.classes[kind, t.FIRST] = row
        group.spans[span] = kind, count + 1

    def _chain(self, group: Group) -> None:
        """Link the classes of a group, shortest first."""
        tables = self._arrays.tables
        after = -1
        for span in sorted(group.spans, reverse=True):
            kind, _ = group.spans[span]
            tables.classes[kind, t.CLASS_AFTER] = after
            after = kind
        tables.groups[group.row, t.CLASS_HEAD] = after

    def _set_longest(self, group: Group) -> None:
        waiting = sum(count for _, count in group.spans.values())
        all_wait = group.members == waiting and waiting > 0
        longest = max(group.spans) if all_wait else -1
        self._arrays.tables.groups[group.row, t.LONGEST] = longest

    def _inside(self, fence: Fence, group: Group, live: Live, region: Circle | None = None) -> Any:
        """Tracks among which are all that a new fence holds."""
        if len(group.objects) <= _FEW:
            return np.fromiter(group.objects.values(), np.int32, len(group.objects))
        _, where, keywords = group.key
        place = fence.region if region is None else region
        tracks = set()
        for _, event in live(Subscription(fence.id, None, where, keywords, place)):
            who = object_of(event.attributes, fence.object)
            track = None if who is None else group.objects.get(who)
            if track is not None and self._events[track] == event:
                tracks.add(track)
        return np.fromiter(tracks, np.int32, len(tracks))

    def _doubt(self, row: int) -> None:
        while lacking := steps.doubt(self._arrays.packed, row, self._globe):
            self._arrays.room(lacking)

    def remove(self, id: str) -> Fence:
        """A fence is over; what it knew is forgotten."""
        row = self._rows.pop(id)
        fence = self._fences[row]
        assert fence is not None
        group = self._groups.get(key_of(fence))
        assert group is not None
        tables = self._arrays.tables
        steps.leave(self._arrays.packed, row)
        kind = -1
        if fence.lost is not None:
            span = _micros(fence.lost)
            kind, count = group.spans[span]
            group.spans[span] = kind, count - 1
        steps.unlist(self._arrays.packed, row, kind)
        if kind >= 0 and not group.spans[span][1]:
            del group.spans[span]
            self._classes.append(kind)
            self._chain(group)
        self._give_back(fence, row)
        tables.fences[row, t.GROUP] = -1
        self._fences[row] = None
        self._free.append(row)
        group.members -= 1
        tables.groups[group.row, t.MEMBERS] -= 1
        if isinstance(fence.region, Around):
            self._unfollow(fence, row, group)
        self._set_longest(group)
        if not group.members:
            for track in list(group.objects.values()):
                self._free_track(track)
            self._groups.remove(group)
            if not self._rows:
                tables.counters[t.HEAP] = 0  # no timer holds any more
        elif tables.groups[group.row, t.LONGEST] >= 0 and steps.forget(
            self._arrays.packed, group.row
        ):
            self._forgotten += group.objects.values()
            self._drop_forgotten()
        return fence

    def _give_back(self, fence: Fence, row: int) -> None:
        tables = self._arrays.tables
        offset, box, run = tables.fences[row, [t.OFFSET, t.BOX, t.RUN]].tolist()
        if isinstance(fence.region, Around):
            size, reserved = 3, 3
        else:
            size = len(shape_floats(fence.region)[1])
            margin = fence.margin_m if tables.fences[row, t.FLAGS] & t.DOUBTS else 0.0
            reserved = len(boxes_of(fence.region, margin, self.space))
        twice = 2 if tables.fences[row, t.FLAGS] & t.CROSS else 1
        self._floats.give_back(offset, size)
        self._boxes.give_back(box, reserved)
        self._runs.give_back(run, reserved * twice)

    # -- regions that move ---------------------------------------------------------

    def _follow(self, fence: Fence, row: int, group: Group, place: Point | None) -> None:
        """A region that follows its subscriber; its group's objects stand in cells from now on."""
        assert fence.subscriber is not None
        assert isinstance(fence.region, Around)
        self._followers.setdefault(fence.subscriber, []).append(row)
        group.following += 1
        tables = self._arrays.tables
        if tables.groups[group.row, t.WIDTH] < 0:
            box = judging.circle_box(0.0, 0.0, max(fence.region.radius_m, 1e-3), self._globe)
            width = min(int(region_grid.width_of(*box)), region_grid.WIDTHS - 1)
            tables.groups[group.row, t.WIDTH] = width
            self._arrays.track_cells(len(group.objects) + 1)
            steps.link_group(self._arrays.packed, group.row)
        if place is not None:
            self._set_place(row, place)

    def _set_place(self, row: int, place: Point) -> None:
        """Where a new region is; nobody is told."""
        while lacking := steps.settle(self._arrays.packed, row, place.x, place.y, self._globe):
            self._arrays.room(lacking)

    def _unfollow(self, fence: Fence, row: int, group: Group) -> None:
        assert fence.subscriber is not None
        self._followers[fence.subscriber].remove(row)
        if not self._followers[fence.subscriber]:
            del self._followers[fence.subscriber]
        group.following -= 1
        if not group.following:
            for track in group.objects.values():
                steps.unlink_track(self._arrays.packed, track)
            self._arrays.tables.groups[group.row, t.WIDTH] = -1

    def move(self, subscriber: str, place: Point, at: Micros) -> list[Crossing]:
        """A subscriber is somewhere else, and so are the regions that follow them."""
        return self.move_many([(subscriber, place, at)])

    def move_many(self, moves: Sequence[tuple[str, Point, Micros]]) -> list[Crossing]:
        """Moves in order; as one by one, only faster."""
        if not self._followers:
            return []
        known = self._followers
        made = [
            (row, place.x, place.y, at, number)
            for number, (subscriber, place, at) in enumerate(moves)
            for row in known.get(subscriber, ())
        ]
        if not made:
            return []
        rows, xs, ys, ats, numbers = zip(*made, strict=True)
        fences = np.array(rows, np.int64)
        tables = self._arrays.tables
        doubting = (tables.fences[fences, t.FLAGS] & t.DOUBTS != 0) & (
            tables.fences[fences, t.PLACED] == 0
        )
        given = fences, np.array(xs), np.array(ys), np.array(ats, np.int64)
        stops = [*(np.flatnonzero(doubting) + 1).tolist(), len(fences)]
        done = 0
        for stop in stops:
            while done < stop:
                part = tuple(array[:stop] for array in given)
                done, lacking = steps.move(self._arrays.packed, *part, done, self._globe)
                if lacking:
                    self._arrays.room(lacking)
            if doubting[stop - 1]:
                self._doubt(int(fences[stop - 1]))
        told = self._arrays.tables.out[: self._arrays.tables.counters[t.OUT]]
        told[:, t.STEP] = 2 * np.array(numbers)[told[:, t.STEP] >> 1] + 1
        return self._fired(NEVER, NEVER, 2 * len(moves))

    # -- positions -----------------------------------------------------------------

    def take(self, positions: Sequence[Position]) -> list[Crossing]:
        """Positions in the order in which they came, and what falls due by them.

        Before each, everything due before its `now` happens.
        """
        if not self._rows:
            if positions:
                self.reach(positions[-1].now)
            return []
        if len(positions) == 1:
            found = [self._groups.counting(positions[0].event)]
        else:
            found = self._groups.counting_many([each.event for each in positions])
        rows, xs, ys, events, extended = [], [], [], [], False
        for number, (position, counting) in enumerate(zip(positions, found, strict=True)):
            event = position.event
            self._seq += 1
            if not counting:
                rows.append((-1, 2 * number + 1, 0, position.now, self._seq, 0, 0, 0))
                xs.append(0.0)
                ys.append(0.0)
                events.append(event)
                continue
            expires = FOREVER if event.expires is None else event.expires
            for group, who in counting:
                kind, offset, x, y = self._encoded(event)
                extended = extended or kind != geometry.POINT
                track = group.objects.get(who)
                if track is None:
                    track = self._new_track(group, who)
                rows.append(
                    (track, 2 * number + 1, position.at, position.now, self._seq, expires, kind,
                     offset)
                )  # fmt: skip
                xs.append(x)
                ys.append(y)
                events.append(event)
        if not rows:
            return []
        items = np.array(rows, np.int64)
        told = self._run(items, np.array(xs), np.array(ys), events, extended)
        self._drop_forgotten()
        return told

    def _run(
        self, items: Any, xs: Any, ys: Any, events: list[Event], extended: bool
    ) -> list[Crossing]:
        starts, rows = self._near(items, events) if extended else (_NO_STARTS, _NO_ROWS)
        done = 0
        while done <= len(items):
            done, lacking = steps.run(
                self._arrays.packed, items, xs, ys, starts, rows, done, NEVER, self._globe
            )
            if lacking:
                self._arrays.room(lacking)
        seqs = items[:, steps.I_SEQ]
        told = self._told(dict(zip(seqs.tolist(), events, strict=True)))
        tracks = items[:, steps.I_TRACK]
        counted = np.flatnonzero(tracks >= 0)
        newest = self._arrays.tables.tracks[tracks[counted], t.SEQ] == seqs[counted]
        for i in counted[newest].tolist():
            track = int(tracks[i])
            self._events[track] = events[i]
            if extended or track in self._extent_of:
                self._keep_extent(track, events[i], int(items[i, steps.I_OFFSET]))
        if extended:
            self._give_back_late(items, events)
        return told

    def _near(self, items: Any, events: list[Event]) -> tuple[Any, Any]:
        """The fences that extended positions may be in."""
        starts = np.zeros(len(items) + 1, np.int64)
        parts = []
        for i, event in enumerate(events):
            found = _NO_ROWS
            if items[i, steps.I_KIND] != geometry.POINT:
                assert event.location is not None
                assert not isinstance(event.location, Point)
                group = int(self._arrays.tables.tracks[items[i, steps.I_TRACK], t.T_GROUP])
                boxes = search_boxes(event.location, self.space)
                near = [steps.near(self._arrays.packed, group, np.array(box)) for box in boxes]
                found = np.unique(np.concatenate(near)) if near else _NO_ROWS
            parts.append(found)
            starts[i + 1] = starts[i] + found.size
        return starts, np.concatenate(parts).astype(np.int32)

    def advance(self, before: Micros, closed: Micros = NEVER) -> list[Crossing]:
        """Time goes on: what is due before a moment, and up to another, happens."""
        if not self._rows:
            self.reach(before, closed)
            return []
        return self._fired(before, closed, 0)

    def due(self) -> Micros:
        """No timer is due before this moment; FOREVER if there is none."""
        counters = self._arrays.tables.counters
        return int(self._arrays.tables.heap[0, 0]) >> 2 if counters[t.HEAP] else FOREVER

    def retract(self, event: Event) -> None:
        """An event is live no more before its time: a fence that comes later does not count it."""
        self._seq += 1
        for group, who in self._groups.counting(event) if len(self._groups) else ():
            track = group.objects.get(who)
            if track is not None and self._events[track] == event:
                self._arrays.tables.tracks[track, t.GONE] = self._seq
                self._mark(track)

    def reach(self, before: Micros, closed: Micros = NEVER) -> None:
        """Nothing is due before a moment, and up to another, any more."""
        counters = self._arrays.tables.counters
        counters[t.BEFORE] = max(counters[t.BEFORE], before)
        counters[t.CLOSED] = max(counters[t.CLOSED], closed)

    def _fire(self, before: Micros, closed: Micros, step: int) -> None:
        while lacking := steps.fire(self._arrays.packed, before, closed, step):
            self._arrays.room(lacking)

    def _fired(self, before: Micros, closed: Micros, step: int) -> list[Crossing]:
        """What has been told so far, and what falls due."""
        self._fire(before, closed, step)
        told = self._told()
        self._drop_forgotten()
        return told

    def _told(self, events: Mapping[int, Event] = MappingProxyType({})) -> list[Crossing]:
        """The transitions that kernels wrote down, in order; `events` by their numbers."""
        tables = self._arrays.tables
        count = int(tables.counters[t.OUT])
        if not count:
            return []
        tables.counters[t.OUT] = 0
        rows = []
        for step, row, track, code, at, seq in tables.out[:count].tolist():
            if code == t.FORGOTTEN:
                self._forgotten.append(track)
                continue
            known = self._objects[track]
            event = events.get(seq) or self._events[track]
            assert known is not None
            assert event is not None
            who = known[1]
            rank = (1, 0.0, who) if isinstance(who, str) else (0, who, "")
            number = int(tables.fences[row, t.NUMBER])
            order = (step, at, 0 if step & 1 else code, number, rank, code)
            rows.append((order, row, known[0].key[0], event))
        if len(rows) > 1:
            rows.sort(key=itemgetter(0))
        return [self._crossing(*row) for row in rows]

    def _crossing(self, order: tuple[Any, ...], row: int, attribute: str, event: Event) -> Crossing:
        fence = self._fences[row]
        assert fence is not None
        step, at, *_, code = order
        return Crossing(fence, TRANSITIONS[code], event.attributes[attribute], at, event, step)

    # -- to be kept ------------------------------------------------------------------

    def known_fence(self, id: str) -> KnownFence:
        """A fence as it is kept."""
        row = self._rows[id]
        fence = self._fences[row]
        assert fence is not None
        columns = [t.NUMBER, t.SINCE, t.MADE]
        return KnownFence(fence, *self._arrays.tables.fences[row, columns].tolist())

    def changes(self) -> list[KnownObject]:
        """The objects that changed since this was asked, as they are now. O(changes)."""
        tables = self._arrays.tables
        found = [KnownObject(key, who, None) for key, who in self._gone]
        self._gone.clear()
        track = int(tables.counters[t.LAST_CHANGED])
        tables.counters[t.LAST_CHANGED] = -1
        while track >= 0:
            found.append(self._known_object(track))
            after = int(tables.tracks[track, t.CHANGED])
            tables.tracks[track, t.CHANGED] = t.UNCHANGED
            track = after
        return found

    def _unmark(self, track: int) -> None:
        """A track goes: it is no more among those that changed."""
        tables = self._arrays.tables
        if tables.tracks[track, t.CHANGED] == t.UNCHANGED:
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

    def _known_object(self, track: int) -> KnownObject:
        tables = self._arrays.tables
        known = self._objects[track]
        assert known is not None
        visits = []
        pair = int(tables.tracks[track, t.T_HEAD])
        while pair >= 0:
            row, state = tables.pairs[pair, [t.FENCE, t.STATE]].tolist()
            fence = self._fences[row]
            assert fence is not None
            entered = int(tables.entered[pair])
            visits.append(Visit(fence.id, bool(state & t.IN), entered, bool(state & t.DWELT)))
            pair = int(tables.pairs[pair, t.T_NEXT])
        at, seq, gone = tables.tracks[track, [t.AT, t.SEQ, t.GONE]].tolist()
        event = self._events[track]
        return KnownObject(known[0].key, known[1], event, at, seq, gone, tuple(visits))

    def dump(self) -> Saved:
        """Everything it knows."""
        counters = self._arrays.tables.counters
        return Saved(
            tuple(self.known_fence(id) for id in self._rows),
            tuple(self._known_object(i) for i, each in enumerate(self._objects) if each),
            int(counters[t.BEFORE]), int(counters[t.CLOSED]),
        )  # fmt: skip

    def load(self, saved: Saved, places: Mapping[str, Point] = MappingProxyType({})) -> None:
        """Go on where another left off; this one has no fences yet."""
        self.reach(saved.before, saved.closed)
        for known in sorted(saved.fences, key=lambda each: each.number):
            fence = known.fence
            group = self._groups.get(key_of(fence)) or self._open(key_of(fence))
            self._number, self._seq = known.number - 1, known.since
            row = self._enter(fence, group, known.made)
            if isinstance(fence.region, Around):
                self._follow(fence, row, group, places.get(fence.subscriber or ""))
            group.has_forgotten = True  # who knows
        for each in saved.objects:
            home = self._groups.get(each.key)
            if each.event is None or home is None:
                continue
            track = self._place_track(home, each.object, each.at, each.event)
            self._arrays.tables.tracks[track, [t.SEQ, t.GONE]] = each.number, each.gone
            gone = each.gone if each.gone != FOREVER else 0
            self._seq = max(self._seq, each.number, gone)
            if home.following:
                self._arrays.track_cells(1)
                steps.link_track(self._arrays.packed, track)
            for visit in each.visits:
                state = t.IN if visit.inside else t.DOUBT
                state |= t.DWELT if visit.dwelt else 0
                of = self._rows[visit.fence_id], track, state, visit.entered
                while lacking := steps.recall(self._arrays.packed, *of):
                    self._arrays.room(lacking)
        for id, row in self._rows.items():
            if self.known_fence(id).fence.lost is not None:
                while lacking := steps.await_silence(self._arrays.packed, row, False):
                    self._arrays.room(lacking)
        self.changes()

    # -- tracks --------------------------------------------------------------------

    def _new_track(self, group: Group, who: Object) -> int:
        track = self._free_tracks.pop() if self._free_tracks else len(self._events)
        if track == len(self._events):
            self._events.append(None)
            self._objects.append(None)
            size = track + 1
            self._arrays.reserve(tracks=size, at_x=size, at_y=size, track_entries=size)
        self._arrays.tables.tracks[track] = (
            group.row, NEVER, 0, FOREVER, FOREVER, FOREVER, -1, 0, geometry.POINT, 0, 0,
            t.UNCHANGED,
        )  # fmt: skip
        group.objects[who] = track
        self._objects[track] = group, who
        return track

    def _encoded(self, event: Event) -> tuple[int, int, float, float]:
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

    def _keep_extent(self, track: int, event: Event, offset: int) -> None:
        """The floats of a track's last position are in use, those before are not."""
        old = self._extent_of.pop(track, None)
        if old is not None and old[0] != offset:
            self._extents.give_back(*old)
        if not isinstance(event.location, Point):
            assert event.location is not None
            self._extent_of[track] = offset, len(shape_floats(event.location)[1])

    def _give_back_late(self, items: Any, events: list[Event]) -> None:
        """Free the floats of extended positions that are nobody's last."""
        used = {offset for offset, _ in self._extent_of.values()}
        freed: set[int] = set()
        for i, event in enumerate(events):
            offset = int(items[i, steps.I_OFFSET])
            if items[i, steps.I_KIND] != geometry.POINT and offset not in used | freed:
                assert event.location is not None
                self._extents.give_back(offset, len(shape_floats(event.location)[1]))
                freed.add(offset)

    def _drop_forgotten(self) -> None:
        """Free the tracks of objects that all their fences have lost."""
        if not self._forgotten:
            return
        table = self._arrays.tables.tracks
        for track in set(self._forgotten):
            if table[track, t.T_GROUP] >= 0 and table[track, t.AT] == NEVER:
                self._free_track(track)
        self._forgotten.clear()

    def _mark(self, track: int) -> None:
        """Remember that a track changed, as kernels do."""
        tables = self._arrays.tables
        if tables.tracks[track, t.CHANGED] == t.UNCHANGED:
            tables.tracks[track, t.CHANGED] = tables.counters[t.LAST_CHANGED]
            tables.counters[t.LAST_CHANGED] = track

    def _free_track(self, track: int) -> None:
        self._unmark(track)
        tables = self._arrays.tables
        steps.unlink_track(self._arrays.packed, track)
        tables.tracks[track, t.T_GROUP] = -1
        known = self._objects[track]
        assert known is not None
        group, who = known
        if self.remembers:
            self._gone[group.key, who] = None
        del group.objects[who]
        group.has_forgotten = True
        self._objects[track] = self._events[track] = None
        old = self._extent_of.pop(track, None)
        if old is not None:
            self._extents.give_back(*old)
        self._free_tracks.append(track)


def _micros(span: timedelta | None) -> Micros:
    """Microseconds; −1 for none."""
    return -1 if span is None else span // _MICROSECOND
