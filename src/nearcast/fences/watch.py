"""The operator behind fences: positions, moves and time in, transitions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.errors import DuplicateIdError
from nearcast.fences.arrays import Arrays
from nearcast.fences.groups import Group, Groups, Object, key_of
from nearcast.fences.kernels import beginnings, ground, judging, moves, places, steps, timers
from nearcast.fences.kernels import tables as t
from nearcast.fences.positions import (
    Columns,
    Position,
    Positions,
    columns_of,
    of_points,
    taken_extents,
)
from nearcast.fences.roll import Roll
from nearcast.fences.running import Piece, locating, run
from nearcast.fences.saved import KnownFence, KnownObject, Saved, Visit
from nearcast.fences.telling import Crossing, Telling
from nearcast.fences.tracks import Tracks
from nearcast.jit import parallel_threads
from nearcast.kernels import region_grid
from nearcast.model.events import Event
from nearcast.model.fences import Fence, object_of
from nearcast.model.geometry import Around, Circle, Point, Space
from nearcast.model.placing import Facing, turn_of
from nearcast.model.subscriptions import Subscription

__all__ = ["MAX_OBJECTS", "Crossing", "Foreseen", "Live", "Position", "Positions", "Watch"]

#: When an event ends, and the event: the live ones that a subscription wants.
Live = Callable[[Subscription], Iterable[tuple[Micros, Event]]]
#: Last positions that are kept, if nothing else is said; those of a million take half a gigabyte.
MAX_OBJECTS = 1_000_000
#: Objects of a group that are looked at one by one when a fence comes.
_FEW = 256
#: Positions for which another thread is worth its while.
_WORTH = 1024
_NO_ROWS = np.zeros(0, np.int32)
#: How far from each other a piece of an edge of 1° and its ends may look on a map of the globe.
_BENT_M = 200_000.0


class Foreseen(NamedTuple):
    """Positions that are being located before they happen."""

    first: int
    freed: int
    """How many tracks had been given back by then."""
    columns: Columns
    pieces: Future[list[Piece]]


class Watch:
    """All fences of a broker, and what they know of every object.

    A position costs the fences near it and those that hold its object; what is far away costs
    nothing, however many fences there are. Transitions come in order: of time; at one moment
    positions first, then dwells, then losses; then in the order in which the fences came, then by
    object, numbers before strings. With more than `max_objects` last positions, those that have
    been silent longest are forgotten, as if they had never been seen. One thread at a time.
    """

    def __init__(self, space: Space = "globe", max_objects: int = MAX_OBJECTS) -> None:
        self.space: Space = space
        self._most = max_objects
        self._globe = space == "globe"
        self._arrays = Arrays()
        self._groups = Groups(space)
        self._roll = Roll(space, self._arrays, self._groups)
        self._tracks = Tracks(self._arrays, globe=self._globe)
        self._telling = Telling(self._arrays, self._roll, self._tracks)
        self._followers: dict[str, list[int]] = {}
        self._seq = 0

    def __len__(self) -> int:
        """How many fences there are."""
        return len(self._roll)

    def __contains__(self, id: object) -> bool:
        return id in self._roll

    def __iter__(self) -> Iterator[Fence]:
        """The fences, in the order in which they came."""
        return map(self._roll.fence, self._roll.rows())

    def get(self, id: str) -> Fence | None:
        """The fence under an id."""
        return self._roll.fence(self._roll.row_of(id)) if id in self._roll else None

    @property
    def late(self) -> int:
        """How many positions were older than the last one of their object, and did not count."""
        return int(self._arrays.tables.counters[t.LATE])

    @property
    def shed(self) -> int:
        """How many objects were let go because there were more than `max_objects`."""
        return self._tracks.shed

    @property
    def pairs(self) -> int:
        """How many pairs of a fence and an object are kept."""
        return int(self._arrays.tables.counters[t.COUNT])

    @property
    def objects(self) -> int:
        """How many last positions are kept: one for each object and way of counting."""
        return len(self._tracks)

    @property
    def remembers(self) -> bool:
        """Whether somebody looks at `changes` after each call."""
        return self._tracks.remembers

    @remembers.setter
    def remembers(self, wanted: bool) -> None:
        self._tracks.remembers = wanted

    def nbytes(self) -> dict[str, int]:
        """Bytes of each array."""
        return self._arrays.nbytes() | {"ids": self._roll.nbytes()}

    # -- fences ------------------------------------------------------------------

    def add(
        self, fence: Fence, live: Live, now: Micros = NEVER, place: Facing | None = None
    ) -> Sequence[Crossing]:
        """A fence begins; told of the objects inside whose last position is live.

        `live` finds the live events of a subscription, `now` is the moment at which they are,
        `place` is where the fence's subscriber is, if a region follows them.
        """
        if fence.id in self._roll:
            raise DuplicateIdError("fence", fence.id, "remove it first")
        group = self._groups.get(key_of(fence))
        if group is None:
            group = self._roll.open(fence)
            group.has_forgotten = True
        if group.has_forgotten:
            self._learn(group, live)
        row = self._roll.enter(fence, group, self._seq, now)
        region = fence.region
        if not isinstance(region, Around):
            found = self._inside(fence, group, live)
        else:
            self._follow(fence, row, group, place)
            found = _NO_ROWS
            if place is not None:
                found = self._inside(fence, group, live, self._surroundings(region, place))
        if found.size:
            while lacking := beginnings.begin(self._arrays.packed, row, found, 1, self._globe):
                self._arrays.room(lacking)
        tables = self._arrays.tables
        if tables.fences[row, t.FLAGS] & t.DOUBTS and tables.fences[row, t.PLACED]:
            self._doubt(row)
        if fence.lost is not None:
            while lacking := timers.await_silence(self._arrays.packed, row, True):
                self._arrays.room(lacking)
        return self._fired(NEVER, NEVER, 2)

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
            self._tracks.place(group, who, end, self._seq, event)
        group.has_forgotten = False

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
            if track is not None and self._tracks.events[track] == event:
                tracks.add(track)
        return np.fromiter(tracks, np.int32, len(tracks))

    def _surroundings(self, region: Around, place: Facing) -> Circle:
        """A circle that meets whatever a region does.

        A place with an area may meet a shape and miss the circle round it by what its edges, in
        pieces of 1°, are bent on the globe.
        """
        reach = region.reach_m
        if region.shape is not None:
            reach = reach * (1 + 1e-9) + (_BENT_M if self._globe else 1e-9 * _size_of(place))
        return Circle(place.x, place.y, reach)

    def _doubt(self, row: int) -> None:
        while lacking := beginnings.doubt(self._arrays.packed, row, self._globe):
            self._arrays.room(lacking)

    def remove(self, id: str) -> Fence:
        """A fence is over; what it knew is forgotten."""
        row = self._roll.row_of(id)
        fence = self._roll.fence(row)
        group = self._roll.leave(fence, row)
        tables = self._arrays.tables
        if isinstance(fence.region, Around):
            self._unfollow(fence, row, group)
        if not group.members:
            for track in list(group.objects.values()):
                self._tracks.free(track)
            self._groups.remove(group)
            if not len(self._roll):
                tables.counters[t.HEAP] = 0  # no timer holds any more
        elif tables.groups[group.row, t.LONGEST] >= 0 and timers.forget(
            self._arrays.packed, group.row
        ):
            self._tracks.forgotten += group.objects.values()
            self._tracks.drop_forgotten()
        return fence

    # -- regions that move ---------------------------------------------------------

    def _follow(self, fence: Fence, row: int, group: Group, place: Facing | None) -> None:
        """A region that follows its subscriber; its group's objects stand in cells from now on."""
        assert fence.subscriber is not None
        assert isinstance(fence.region, Around)
        self._followers.setdefault(fence.subscriber, []).append(row)
        group.following += 1
        tables = self._arrays.tables
        if tables.groups[group.row, t.WIDTH] < 0:
            box = judging.circle_box(0.0, 0.0, max(fence.region.reach_m, 1e-3), self._globe)
            width = min(int(region_grid.width_of(*box)), region_grid.WIDTHS - 1)
            tables.groups[group.row, t.WIDTH] = width
            self._arrays.track_cells(len(group.objects) + 1)
            places.link_group(self._arrays.packed, group.row)
        if place is not None:
            self._set_place(row, place)

    def _set_place(self, row: int, place: Facing) -> None:
        """Where a new region is; nobody is told."""
        given = row, place.x, place.y, *turn_of(place.heading), self._globe
        while lacking := ground.settle(self._arrays.packed, *given):
            self._arrays.room(lacking)

    def _unfollow(self, fence: Fence, row: int, group: Group) -> None:
        assert fence.subscriber is not None
        self._followers[fence.subscriber].remove(row)
        if not self._followers[fence.subscriber]:
            del self._followers[fence.subscriber]
        group.following -= 1
        if not group.following:
            for track in group.objects.values():
                places.unlink_track(self._arrays.packed, track)
            self._arrays.tables.groups[group.row, t.WIDTH] = -1

    def move(self, subscriber: str, place: Facing, at: Micros) -> Sequence[Crossing]:
        """A subscriber is somewhere else, and so are the regions that follow them."""
        return self.move_many([subscriber], [place], at)

    def move_many(
        self, subscribers: Sequence[str], facing: Sequence[Facing], at: Micros
    ) -> Sequence[Crossing]:
        """Moves in order, all at one moment; as one by one, only faster."""
        known = self._followers
        found = [
            (row, number)
            for number, rows in enumerate(map(known.get, subscribers, repeat(())))
            for row in rows
        ]
        if not found:
            return []
        fences, of = np.array(found, np.int64).T.copy()
        where = np.array([(place.x, place.y, place.heading) for place in facing])[of]
        tables = self._arrays.tables
        doubting = (tables.fences[fences, t.FLAGS] & t.DOUBTS != 0) & (
            tables.fences[fences, t.PLACED] == 0
        )
        turns = np.array([1.0, 0.0]) * np.ones((len(of), 1))
        if where[:, 2].any():
            turns[:] = [*map(turn_of, where[:, 2].tolist())]
        given = fences, where[:, :2].copy(), turns, of
        stops = [*(np.flatnonzero(doubting) + 1).tolist(), len(fences)]
        done = 0
        for stop in stops:
            while done < stop:
                part = tuple(array[:stop] for array in given)
                done, lacking = moves.move(self._arrays.packed, *part, at, done, self._globe)
                if lacking:
                    self._arrays.room(lacking)
            if doubting[stop - 1]:
                self._doubt(int(fences[stop - 1]))
        return self._fired(NEVER, NEVER, 2 * int(of[-1]) + 2)

    # -- positions -----------------------------------------------------------------

    def take(self, positions: Sequence[Position]) -> Sequence[Crossing]:
        """Positions in the order in which they came, and what falls due by them.

        Before each, everything due before its `now` happens.
        """
        return self.take_columns(Positions(*zip(*positions, strict=True))) if positions else []

    def take_event(self, event: Event, at: Micros, now: Micros) -> Sequence[Crossing]:
        """The same for one position."""
        sole, place = self._groups.sole, event.location
        if sole is not None and (place is None or type(place) is Point):
            return self._take_one(event, at, now, place, sole)
        return self.take_columns(Positions((event,), (at,), (now,)))

    def foresee(self, positions: Positions) -> Foreseen | None:
        """Begin to look where positions are that `take_columns` is given next, in another thread.

        None if that is not worth it, or not possible.
        """
        sole, events = self._groups.sole, positions.events
        room = len(self._tracks) + len(events) <= self._most
        if sole is None or not room or len(events) < _WORTH or parallel_threads() < 2:
            return None
        first = self._seq + 1
        columns = of_points(positions, first, sole, self._tracks)
        if columns is None:
            return None
        pieces = locating(self._arrays, columns, globe=self._globe)
        return Foreseen(first, self._tracks.freed, columns, pieces)

    def take_columns(
        self, positions: Positions, foreseen: Foreseen | None = None
    ) -> Sequence[Crossing]:
        """The same for positions by columns; `foreseen`: what `foresee` said of them."""
        events, _, nows = positions
        if not events:
            return []
        if not len(self._roll):
            self.reach(nows[-1])
            return []
        first = self._seq + 1
        self._seq += len(events)
        pieces = None if foreseen is None else foreseen.pieces.result()
        if foreseen is not None and foreseen[:2] == (first, self._tracks.freed):
            columns = foreseen.columns
        else:  # objects were forgotten meanwhile, and others may have their rows
            tracks, arrays, pieces = self._tracks, self._arrays, None
            columns = columns_of(positions, first, self._groups, tracks, arrays, self.space)
        run(self._arrays, columns, parallel_threads(), globe=self._globe, pieces=pieces)
        told = self._telling.later(events, first)
        self._stand(columns, events, first)
        self._tracks.drop_forgotten()
        self._tracks.let_go(self._most)
        return told

    def _take_one(
        self, event: Event, at: Micros, now: Micros, place: Point | None, group: Group
    ) -> Sequence[Crossing]:
        """One position, where one group counts everything."""
        who = None if place is None else object_of(event.attributes, group.key[0])
        self._seq += 1
        if place is None or who is None:
            return self._fired(now, NEVER, 0)
        track = group.objects.get(who)
        if track is None:
            track = self._tracks.new(group, who)
        expires = FOREVER if event.expires is None else event.expires
        given = track, at, now, self._seq, expires, place.x, place.y, self._globe
        arrays = self._arrays
        while lacking := steps.one(arrays.packed, *given):
            arrays.room(lacking & ~steps.STEPPED)
            if lacking & steps.STEPPED:
                self._fire(NEVER, NEVER, 2)
                break
        told = self._telling.crossings((event,), self._seq)
        if arrays.tables.tracks.item(track, t.SEQ) == self._seq:
            self._tracks.stand((track,), (event,), (0,))
        self._tracks.drop_forgotten()
        self._tracks.let_go(self._most)
        return told

    def _stand(self, columns: Columns, events: Sequence[Event], first: int) -> None:
        """Remember the last position of each track."""
        items = columns.items
        tracks, seqs = items[:, steps.I_TRACK], items[:, steps.I_SEQ]
        counted = np.flatnonzero(tracks >= 0)
        newest = counted[self._arrays.tables.tracks[tracks[counted], t.SEQ] == seqs[counted]]
        last = [events[seq - first] for seq in seqs[newest].tolist()]
        self._tracks.stand(tracks[newest].tolist(), last, items[newest, steps.I_OFFSET].tolist())
        if columns.starts.size:
            self._tracks.give_back_unused(taken_extents(columns, events, first))

    # -- time ----------------------------------------------------------------------

    def advance(self, before: Micros, closed: Micros = NEVER) -> Sequence[Crossing]:
        """Time goes on: what is due before a moment, and up to another, happens."""
        if not len(self._roll):
            self.reach(before, closed)
            return []
        return self._fired(before, closed, 0)

    def due(self) -> Micros:
        """No timer is due before this moment; FOREVER if there is none."""
        tables = self._arrays.tables
        return tables.heap.item(0, 0) >> 2 if tables.counters.item(t.HEAP) else FOREVER

    def retract(self, event: Event) -> None:
        """An event is live no more before its time: a fence that comes later does not count it."""
        self._seq += 1
        for group, who in self._groups.counting(event) if len(self._groups) else ():
            track = group.objects.get(who)
            if track is not None and self._tracks.events[track] == event:
                self._arrays.tables.tracks[track, t.GONE] = self._seq
                self._tracks.mark(track)

    def lose(self, attribute: str, who: Object, at: Micros) -> Sequence[Crossing]:
        """An object is lost at a moment: to the fences that lose objects and are there."""
        self._seq += 1
        for group in self._groups:
            track = group.objects.get(who) if group.key[0] == attribute else None
            if track is not None:
                while lacking := timers.lose(self._arrays.packed, track, at, self._seq, 2):
                    self._arrays.room(lacking)
        return self._telling.later()

    def reach(self, before: Micros, closed: Micros = NEVER) -> None:
        """Nothing is due before a moment, and up to another, any more."""
        counters = self._arrays.tables.counters
        if before > counters.item(t.BEFORE):
            counters[t.BEFORE] = before
        if closed > counters.item(t.CLOSED):
            counters[t.CLOSED] = closed

    def _fire(self, before: Micros, closed: Micros, step: int) -> None:
        while lacking := timers.fire(self._arrays.packed, before, closed, step):
            self._arrays.room(lacking)

    def _fired(self, before: Micros, closed: Micros, step: int) -> Sequence[Crossing]:
        """What has been told so far, and what falls due."""
        if self._arrays.tables.counters.item(t.HEAP):
            self._fire(before, closed, step)
        else:
            self.reach(before, closed)
        told = self._telling.later()
        self._tracks.drop_forgotten()
        return told

    # -- to be kept ------------------------------------------------------------------

    def known_fence(self, id: str) -> KnownFence:
        """A fence as it is kept."""
        return self._known_fence(self._roll.row_of(id))

    def _known_fence(self, row: int) -> KnownFence:
        columns = [t.NUMBER, t.SINCE, t.MADE]
        return KnownFence(self._roll.fence(row), *self._arrays.tables.terms[row, columns].tolist())

    def changes(self) -> list[KnownObject]:
        """The objects that changed since this was asked, as they are now. O(changes)."""
        gone, rows = self._tracks.changes()
        return [KnownObject(*each, None) for each in gone] + self._known_objects(rows)

    def _known_objects(self, tracks: Sequence[int]) -> list[KnownObject]:
        if not tracks:
            return []
        wanted = [t.T_HEAD, t.AT, t.SEQ, t.GONE, t.GIVEN_UP]
        columns = self._arrays.tables.tracks[[*tracks]][:, wanted]
        return [*map(self._known_object, tracks, columns.tolist())]

    def _known_object(self, track: int, row: Sequence[int]) -> KnownObject:
        pair, at, seq, gone, given_up = row
        known = self._tracks.objects[track]
        assert known is not None
        visits = [] if pair < 0 else self._visits(pair)
        event = self._tracks.events[track]
        return KnownObject(known[0].key, known[1], event, at, seq, gone, tuple(visits), given_up)

    def _visits(self, pair: int) -> list[Visit]:
        """Where an object is, or was and may be; from the first of its pairs on."""
        tables, visits = self._arrays.tables, []
        while pair >= 0:
            row, state = tables.pairs[pair, [t.FENCE, t.STATE]].tolist()
            entered = int(tables.entered[pair])
            id, _ = self._roll.named(row)
            visits.append(Visit(id, bool(state & t.IN), entered, bool(state & t.DWELT)))
            pair = int(tables.pairs[pair, t.T_NEXT])
        return visits

    def dump(self) -> Saved:
        """Everything it knows."""
        counters = self._arrays.tables.counters
        return Saved(
            tuple(self._known_fence(row) for row in self._roll.rows()),
            tuple(self._known_objects([i for i, each in enumerate(self._tracks.objects) if each])),
            int(counters[t.BEFORE]), int(counters[t.CLOSED]),
        )  # fmt: skip

    def load(self, saved: Saved, at: Mapping[str, Facing] = MappingProxyType({})) -> None:
        """Go on where another left off; this one has no fences yet. `at`: where subscribers are."""
        self.reach(saved.before, saved.closed)
        for known in sorted(saved.fences, key=lambda each: each.number):
            fence = known.fence
            group = self._groups.get(key_of(fence)) or self._roll.open(fence)
            self._roll.numbered = known.number - 1
            row = self._roll.enter(fence, group, known.since, known.made)
            self._seq = max(self._seq, known.since)
            if isinstance(fence.region, Around):
                self._follow(fence, row, group, at.get(fence.subscriber or ""))
            group.has_forgotten = True  # who knows
        for each in saved.objects:
            home = self._groups.get(each.key)
            if each.event is not None and home is not None:
                self._recall(each, each.event, home)
        for row in self._roll.rows():
            if self._arrays.tables.terms[row, t.LOST] >= 0:
                while lacking := timers.await_silence(self._arrays.packed, row, False):
                    self._arrays.room(lacking)
        self.changes()

    def _recall(self, known: KnownObject, event: Event, group: Group) -> None:
        track = self._tracks.place(group, known.object, known.at, known.number, event)
        self._arrays.tables.tracks[track, [t.GONE, t.GIVEN_UP]] = known.gone, known.given_up
        gone = known.gone if known.gone != FOREVER else 0
        self._seq = max(self._seq, known.number, gone, known.given_up)
        for visit in known.visits:
            state = t.IN if visit.inside else t.DOUBT
            state |= t.DWELT if visit.dwelt else 0
            of = self._roll.row_of(visit.fence_id), track, state, visit.entered
            while lacking := beginnings.recall(self._arrays.packed, *of):
                self._arrays.room(lacking)


def _size_of(place: Facing) -> float:
    return 1.0 + abs(place.x) + abs(place.y)
