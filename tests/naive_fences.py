"""Fences by definition: every fence looks at every position, every timer at every step.

Plain Python after docs/fences.md and the oracle's geometry; nothing is shared with the
package but the values. A told transition is (fence id, object, transition, at, event id).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

from nearcast.model.events import Event, Value
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Box, Circle, Location, Point, Polygon
from tests import oracle, oracle_geometry
from tests.oracle_geometry import Seen

Told = tuple[str, Value, str, int, str]
Key = tuple[str, str | None, frozenset[str]]
Object = tuple[int, float, str]
Pair = tuple[float, float]
NEVER = -(2**63)
LAST = 2**62  # at one moment losses come after everything else


@dataclass
class Last:
    """The newest position of an object."""

    at: int
    number: int
    place: Location
    event: Event
    value: Value


@dataclass
class Visit:
    """What a fence knows of an object of which it has counted a position."""

    state: str = "unknown"
    entered: int = 0
    dwelt: bool = False


@dataclass
class Loss:
    """Somebody says that an object is lost."""

    attribute: str
    value: Value


@dataclass
class Watched:
    """A fence and what it knows."""

    fence: Fence
    number: int
    visits: dict[Object, Visit] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.fence.object, self.fence.where, self.fence.keywords

    @property
    def lost(self) -> int | None:
        return _micros(self.fence.lost)

    @property
    def dwell(self) -> int | None:
        return _micros(self.fence.dwell)


class NaiveFences:
    """A broker that has fences only."""

    def __init__(self, space: str, hold: int = 0) -> None:
        self.space = space
        self.hold = hold
        self.now: int | None = None
        self.before = NEVER  # timers due before this have fired
        self.closed = NEVER  # and those due up to this
        self.fences: dict[str, Watched] = {}
        self.known: dict[Key, dict[Object, Last]] = {}
        self.live: dict[str, tuple[int, int, Event]] = {}  # when, number, what
        self.places: dict[str, Point] = {}
        self.headings: dict[str, float] = {}
        self.waiting: list[tuple[int, int, object]] = []
        self.taken: set[int] = set()  # numbers of the events that were processed
        self.number = 0
        self.late = 0
        self.told: list[Told] = []

    # -- verbs -----------------------------------------------------------------

    def subscribe(self, fence: Fence) -> list[Told]:
        if fence.id in self.fences and self.fences[fence.id].fence == fence:
            return self._done()
        self._drop(fence.id)
        if not _valid(fence.expires, self.now):
            return self._done()
        self.number += 1
        self._come(Watched(fence, self.number))
        return self._done()

    def unsubscribe(self, id: str) -> list[Told]:
        self._drop(id)
        return self._done()

    def publish(self, event: Event) -> list[Told]:
        end = self.end_of(event)
        self._reach(end if self.now is None else max(end, self.now))
        self.number += 1
        if _valid(event.expires, self.now):
            self.live[event.id] = end, self.number, event
        if self.hold:
            self.waiting.append((end, self.number, event))
        else:
            self._position(end, self.number, event)
        return self._done()

    def retract(self, id: str) -> list[Told]:
        del self.live[id]
        return self._done()

    def move(self, subscriber: str, place: Point, heading: float | None = None) -> list[Told]:
        self.number += 1
        self._come((subscriber, place, heading))
        return self._done()

    def lose(self, attribute: str, value: Value, at: int) -> list[Told]:
        """Its device has said so: the fences that lose objects, and know this one, lose it."""
        at = at if self.now is None else max(at, self.now)
        self.closed = max(self.closed, at - self.hold)
        self._reach(at)
        self.number += 1
        if self.hold:
            self.waiting.append((at, LAST + self.number, Loss(attribute, value)))
        else:
            self._lost(Loss(attribute, value), at)
        return self._done()

    def _lost(self, loss: Loss, at: int) -> None:
        value = loss.value
        who = (1, 0.0, value) if isinstance(value, str) else (0, float(value), "")
        for watched in sorted(self.fences.values(), key=lambda each: each.number):
            counts = watched.fence.object == loss.attribute and watched.lost is not None
            if counts and who in watched.visits:
                del watched.visits[who]
                self._tell(watched, who, "lost", at)

    def advance(self, to: int) -> list[Told]:
        to = to if self.now is None else max(to, self.now)
        self.closed = max(self.closed, to - self.hold)
        self._reach(to)
        return self._done()

    # -- time ------------------------------------------------------------------

    def end_of(self, event: Event) -> int:
        if event.end is not None:
            return event.end
        return max((t for t in (self.now, event.start) if t is not None), default=0)

    def _come(self, what: Watched | tuple[str, Point, float | None]) -> None:
        """A fence or a move: it counts from now on."""
        if isinstance(what, Watched):
            self.fences[what.fence.id] = what
        if self.hold and self.now is not None:
            self.waiting.append((self.now, self.number, what))
        else:
            self._happen(0 if self.now is None else self.now, self.number, what)

    def _happen(self, moment: int, number: int, what: object) -> None:
        if isinstance(what, Event):
            self._position(moment, number, what)
        elif isinstance(what, Loss):
            self._lost(what, moment)
        elif isinstance(what, Watched):
            if self.fences.get(what.fence.id) is what:
                self._begin(what)
        else:
            assert isinstance(what, tuple)
            subscriber, place, heading = what
            if heading is not None:
                self.headings[subscriber] = heading
            self._moved(subscriber, place, moment)

    def _reach(self, now: int) -> None:
        """Everything that is due before `now` (up to it if that is closed), moment by moment."""
        until = now - self.hold
        while True:
            ripe = sorted(w[:2] for w in self.waiting if w[0] < until or w[0] <= self.closed)
            timers = [t for t in self._timers() if t[0] < until or t[0] <= self.closed]
            due = min(timers, default=None)
            if ripe and (
                due is None
                or ripe[0][0] < due[0]
                or (ripe[0][0] == due[0] and ripe[0][1] < LAST)  # a loss comes after dwells
            ):
                moment, number = ripe[0]
                self._expire(moment + self.hold)
                what = next(w for w in self.waiting if w[1] == number)
                self.waiting.remove(what)
                self.before = max(self.before, moment + (number > LAST))
                self._happen(*what)
            elif due is not None:
                self._expire(due[0] + self.hold)
                if due in self._timers():
                    self._fire(due)
            else:
                break
            self._forget()
        self._expire(now)
        self.before = max(self.before, until)
        self._forget()

    def _expire(self, now: int) -> None:
        if self.now is not None and now < self.now:
            now = self.now
        for id, (_, _, event) in list(self.live.items()):
            if not _valid(event.expires, now):
                del self.live[id]
        for id, watched in list(self.fences.items()):
            if watched.fence.expires is not None and watched.fence.expires + self.hold <= now:
                self._drop(id)
        self.now = now

    def _timers(self) -> list[tuple[int, int, int, Object, str]]:
        found = []
        for watched in self.fences.values():
            for who, visit in watched.visits.items():
                if watched.dwell is not None and visit.state == "inside" and not visit.dwelt:
                    due = visit.entered + watched.dwell
                    found.append((due, 0, watched.number, who, watched.fence.id))
                if watched.lost is not None:
                    due = self.known[watched.key][who].at + watched.lost
                    found.append((due, 1, watched.number, who, watched.fence.id))
        return found

    def _fire(self, timer: tuple[int, int, int, Object, str]) -> None:
        due, kind, _, who, id = timer
        watched = self.fences[id]
        if kind == 0:
            watched.visits[who].dwelt = True
            self._tell(watched, who, "dwell", due)
        else:
            del watched.visits[who]
            self._tell(watched, who, "lost", due)

    def _forget(self) -> None:
        """An object that all fences of its kind have lost is unknown again."""
        for key, objects in self.known.items():
            here = [w for w in self.fences.values() if w.key == key and not self._is_waiting(w)]
            spans = [w.lost for w in here]
            if not spans or None in spans:
                continue
            longest = max(span for span in spans if span is not None)
            for who, last in list(objects.items()):
                due = last.at + longest
                if (due < self.before or due <= self.closed) and not any(
                    who in w.visits for w in here
                ):
                    del objects[who]

    # -- what happens ----------------------------------------------------------

    def _begin(self, watched: Watched) -> None:
        before = self.known.get(watched.key, {})
        self.known[watched.key] = known = {}
        for at, number, event in sorted(self.live.values(), key=lambda each: each[:2]):
            if not self.hold or number in self.taken:
                self._note(watched.key, at, number, event)
        known.update(before)  # others of its kind know better
        for who, last in sorted(known.items(), key=lambda each: (each[1].at, each[0])):
            there = self.live.get(last.event.id)
            if there is None or there[1] != last.number:
                continue
            watched.visits[who] = Visit()
            if self._judge(watched, who) > 0:
                watched.visits[who] = Visit("inside", last.at)
                self._tell(watched, who, "enter", last.at)
            elif self._judge(watched, who) < 0:
                watched.visits[who] = Visit("outside")

    def _note(self, key: Key, at: int, number: int, event: Event) -> Object | None:
        """The object of which this is the newest position, if it is one of these fences."""
        name, where, keywords = key
        value = event.attributes.get(name)
        if value is None or isinstance(value, bool) or value != value or event.location is None:
            return None
        if not keywords <= event.keywords:
            return None
        if where is not None and not oracle.holds(oracle.parsed(where), event, self.space):
            return None
        who = (1, 0.0, value) if isinstance(value, str) else (0, float(value), "")
        last = self.known[key].get(who)
        if last is not None and at < last.at:
            self.late += 1
            return None
        self.known[key][who] = Last(at, number, event.location, event, value)
        return who

    def _position(self, at: int, number: int, event: Event) -> None:
        self.taken.add(number)
        before = {key: dict(objects) for key, objects in self.known.items()}
        who = {key: self._note(key, at, number, event) for key in self.known}
        for watched in sorted(self.fences.values(), key=lambda each: each.number):
            counted = None if self._is_waiting(watched) else who[watched.key]
            if counted is not None:
                self._step(watched, counted, at, before[watched.key].get(counted))

    def _is_waiting(self, watched: Watched) -> bool:
        return any(what is watched for _, _, what in self.waiting)

    def _step(self, watched: Watched, who: Object, at: int, before: Last | None) -> None:
        visit = watched.visits.setdefault(who, Visit())
        was, judged = visit.state, self._judge(watched, who)
        if judged > 0:
            visit.state = "inside"
            if was != "inside":
                visit.entered, visit.dwelt = at, False
                self._tell(watched, who, "enter", at)
        elif judged < 0:
            visit.state = "outside"
            if was == "inside":
                self._tell(watched, who, "exit", at)
        if was == visit.state == "outside" and before is not None:
            region, here = self._region(watched), self.known[watched.key][who].place
            if region is not None and crosses(before.place, here, region, self.space):
                self._tell(watched, who, "cross", at)
        if visit.state != "unknown":
            self._tell(watched, who, visit.state, at)

    def _moved(self, subscriber: str, place: Point, at: int) -> None:
        self.places[subscriber] = place
        for watched in sorted(self.fences.values(), key=lambda each: each.number):
            fence = watched.fence
            if not isinstance(fence.region, Around) or fence.subscriber != subscriber:
                continue
            for who, visit in sorted(watched.visits.items()):
                judged = self._judge(watched, who)
                if judged > 0 and visit.state != "inside":
                    watched.visits[who] = Visit("inside", at)
                    self._tell(watched, who, "enter", at)
                elif judged < 0 and visit.state == "inside":
                    watched.visits[who] = Visit("outside")
                    self._tell(watched, who, "exit", at)
                elif judged < 0:
                    visit.state = "outside"

    # -- definitions -----------------------------------------------------------

    def _region(self, watched: Watched) -> Circle | Box | Polygon | Seen | None:
        who = watched.fence.subscriber or ""
        at, heading = self.places.get(who), self.headings.get(who, 0.0)
        return oracle_geometry.fixed(watched.fence.region, at, heading)

    def _judge(self, watched: Watched, who: Object) -> int:
        """1: the last position is inside; −1: farther away than the margin; 0: neither."""
        region, place = self._region(watched), self.known[watched.key][who].place
        if region is None:
            return 0
        if oracle_geometry.place_in_region(place, region, self.space):
            return 1
        margin = watched.fence.margin_m
        if isinstance(region, Seen):
            return 0 if oracle_geometry.seen_near(place, region, margin, self.space) else -1
        if isinstance(region, Circle):
            centre, reach = Point(region.x, region.y), region.radius_m + margin
            return 0 if oracle_geometry.places_near(centre, place, reach, self.space) else -1
        return 0 if oracle_geometry.places_near(region, place, margin, self.space) else -1

    def _tell(self, watched: Watched, who: Object, transition: str, at: int) -> None:
        if transition in watched.fence.on:
            last = self.known[watched.key][who]
            told = watched.fence.id, last.value, transition, at, last.event.id
            self.told.append(told)

    def _drop(self, id: str) -> None:
        watched = self.fences.pop(id, None)
        if watched is not None and not any(
            w.key == watched.key and not self._is_waiting(w) for w in self.fences.values()
        ):
            self.known.pop(watched.key, None)
        self._forget()

    def _done(self) -> list[Told]:
        if self.now is not None:
            self._reach(self.now)
        told, self.told = self.told, []
        return told


def crosses(a: Location, b: Location, region: Circle | Box | Polygon | Seen, space: str) -> bool:
    """Whether the straight line between two points meets a region; the short way round."""
    if not isinstance(a, Point) or not isinstance(b, Point):
        return False
    bx = b.x
    if space == "globe" and abs(b.x - a.x) > 180:
        bx = b.x - 360 if b.x > a.x else b.x + 360
    if isinstance(region, Seen):
        return _crosses_seen((a.x, a.y), (bx, b.y), region, space)
    line = oracle_geometry.rational([[(a.x, a.y), (bx, b.y)]])
    place = Point(region.x, region.y) if isinstance(region, Circle) else region
    shape = oracle_geometry.exact(place)
    copies = list(oracle_geometry.copies(line, shape, space))
    if any(oracle_geometry.shapes_meet(turned, shape) for turned in copies):
        return True
    if not isinstance(region, Circle):
        return False
    if space == "planar":
        return oracle_geometry.near(line, shape, region.radius_m)
    project = oracle_geometry.azimuthal_equidistant(region.x, region.y)
    pieces = [(project(*p), project(*q)) for p, q in _cut((a.x, a.y), (bx, b.y))]
    centre = (0.0, 0.0), (0.0, 0.0)
    return min(oracle_geometry.piece_distance(centre, p) for p in pieces) <= region.radius_m


def _crosses_seen(a: Pair, b: Pair, seen: Seen, space: str) -> bool:
    """Neither end is in the shape: the line, drawn on the map, meets its border or does not."""
    if space == "planar":
        drawn = [tuple((x - seen.x, y - seen.y) for x, y in (a, b))]
    else:
        project = oracle_geometry.azimuthal_equidistant(seen.x, seen.y)
        drawn = [(project(*p), project(*q)) for p, q in _cut(a, b)]
    shape = oracle_geometry.rational([list(ring) for ring in seen.shape.rings])
    return any(
        oracle_geometry.shapes_meet(oracle_geometry.rational([list(piece)]), shape)
        for piece in drawn
    )


def _cut(a: tuple[float, float], b: tuple[float, float]) -> Iterator[tuple]:
    """A line in equal pieces of at most one degree."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    n = max(1, math.ceil(math.sqrt(dx * dx + dy * dy)))
    yield from pairwise([*((a[0] + dx * k / n, a[1] + dy * k / n) for k in range(n)), b])


def _micros(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(microseconds=1)


def _valid(expires: int | None, now: int | None) -> bool:
    return expires is None or now is None or now < expires
