"""The detector: composites and events in, composite events out."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from operator import le
from typing import ClassVar, TypeAlias

import numpy as np

from nearcast.clock import NEVER, Micros, Time, to_micros
from nearcast.cpsl import state
from nearcast.cpsl.compile import Op, Plan
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.dag import Graph, Registration, Scope
from nearcast.cpsl.expiries import Expiries
from nearcast.cpsl.instances import CompositeEvent, Detection, GlobeInstance, Instance
from nearcast.cpsl.lineage import DEEPEST, Happening, Lineage, claim, lineage_of
from nearcast.cpsl.operators.crossings import BORDERS
from nearcast.cpsl.operators.filters import SPATIAL
from nearcast.cpsl.operators.passing import Primitive
from nearcast.cpsl.operators.spatial import Relations
from nearcast.cpsl.regions import unpacked
from nearcast.errors import BatchError, DuplicateIdError, UnknownIdError, ValidationError
from nearcast.model.durations import to_duration
from nearcast.model.events import Event
from nearcast.model.geometry import Point, Space, check_space

__all__ = ["Detector"]

#: end, order of arrival, start, event
Timed: TypeAlias = tuple[Micros, int, Micros, Event]
_PIECE = 8192  # events that are matched together
_NOBODY: frozenset[str] = frozenset()


class Detector:
    """Recognises composites in a stream of events.

    `space` is "globe" or "planar". `lateness` is how long after a later event one may still
    come: events are held back that long and processed in order of their `end`; one that
    comes later still is dropped and counted in `late`. `longest` bounds the intervals of plain
    events (an event that lasts longer is refused): without it, what could be concurrent with an
    event of any length waits for ever. `tolerance_m` is that of `SPL` and `DIST(…;=;…)`.
    `max_pending` bounds every operator's queue: a full one lets its oldest instance go,
    counted in `overflows`; and the ids by which duplicates are known, the latest of them.
    `unique` says that no event is given twice: then no ids are kept. `nested` says that
    detections are given again as events: see `nearcast.cpsl.lineage` for what bounds that.
    Durations are timedeltas, ISO 8601 or seconds.

    One thread at a time.

    >>> detector = Detector()
    >>> detector.add(Composite(id="c1", text='=|(ARITH: a = 1; 10)(ARITH: a = 2)'))
    >>> detector.feed([Event(id="e1", attributes={"a": 1}, end=0),
    ...                Event(id="e2", attributes={"a": 2}, end=5_000_000)])[0].parts
    ('e1', 'e2')
    """

    _lasting: ClassVar[bool] = False
    """Whether composites that are over stay, and are only detected no more."""

    def __init__(
        self,
        space: Space = "globe",
        lateness: object = 0,
        *,
        longest: object = None,
        tolerance_m: float = 1.0,
        max_pending: int = 100_000,
        unique: bool = False,
        nested: bool = False,
    ) -> None:
        if not isinstance(max_pending, int) or isinstance(max_pending, bool) or max_pending < 1:
            raise ValidationError("max_pending", max_pending, "give a positive whole number")
        self.lateness = _span(lateness, "lateness")
        self.longest = None if longest is None else _span(longest, "longest")
        self.late = 0
        self.duplicates = 0
        self.unique = unique
        self.nested = nested
        self._graph = Graph(Relations(space, tolerance_m), max_pending)
        self._registrations: dict[str, Registration] = {}
        self._expiries = Expiries(self._registrations)
        self._added = 0
        self._epoch = 0
        self._received = 0
        self._newest: Micros = NEVER
        self._closed: Micros = NEVER
        self._held: list[Timed] = []
        self._seen: dict[tuple[Micros, str], None] = {}
        """Ends and ids of events, in the order of arrival: a duplicate may still come."""

    def __len__(self) -> int:
        """The number of composites."""
        return len(self._registrations)

    def __contains__(self, composite_id: object) -> bool:
        return composite_id in self._registrations

    @property
    def space(self) -> Space:
        """The space of all places."""
        return self._graph.relations.space

    @property
    def now(self) -> Micros | None:
        """The time it has come to; None before the first event."""
        return self._graph.now if self._graph.started else None

    @property
    def due(self) -> Micros:
        """When the next time event fires; FOREVER if none is waiting."""
        return self._graph.timers.next()

    @property
    def overflows(self) -> int:
        """How many waiting instances full queues have let go."""
        return self._graph.overflows

    @property
    def nodes(self) -> int:
        """How many nodes the detection graph has."""
        return len(self._graph.nodes)

    def pending(self) -> int:
        """How many instances wait at the operators. O(nodes)."""
        return sum(len(node.pending()) for node in self._graph.nodes)

    # -- composites --------------------------------------------------------------

    def add(self, composite: Composite, since: Time | None = None) -> None:
        """Detect a composite from now on: what came before does not count. O(size).

        Periods are counted from `since`, by default from where time stands, before the first
        event from that. A composite that cannot be detected is refused, and nothing changes; of
        one that is over nothing is kept.
        """
        plan = self.plan(composite)
        if composite.id in self._registrations:
            raise DuplicateIdError("composite", composite.id, "remove it first")
        if composite.expires is not None and composite.expires <= max(self._newest, self._closed):
            return
        begin = None if since is None else to_micros(since, "since")
        self._register(composite, plan, self._epoch, begin)

    def check(self, composite: Composite) -> None:
        """Refuse a composite that cannot be detected; changes nothing. O(size)."""
        self.plan(composite)

    def plan(self, composite: Composite) -> Plan:
        """The plan of a composite that can be detected here; others are refused. O(size)."""
        if not isinstance(composite, Composite):
            raise ValidationError("composite", composite, "give a Composite")
        plan = composite.plan(self.longest)
        for x, y in _corners(plan):
            if self._graph.relations.globe or not (math.isfinite(x) and math.isfinite(y)):
                check_space(Point(_turned(x), y), self.space, "text")
        self._graph.check(plan)
        return plan

    def _register(
        self, composite: Composite, plan: Plan, epoch: int, since: Micros | None
    ) -> Registration:
        scope = Scope(epoch, since, composite.id if self.nested else None)
        root = self._graph.add(plan, composite.consume, scope)
        self._added += 1
        registration = Registration(composite, root, self._added, epoch, since)
        root.roots = (*root.roots, registration)
        if self.nested and root.gated:  # then nobody shares it
            root.gate = lambda instances: claim(registration.order, instances)
        self._registrations[composite.id] = registration
        self._expiries.add(registration)
        return registration

    def _let_go(self, now: Micros) -> None:
        """Composites that are over go, with all that waits for them."""
        if self._lasting:
            return
        for id in self._expiries.over(now):
            self.remove(id)

    def remove(self, id: str) -> None:
        """Forget a composite and what only it waited for; raises UnknownIdError."""
        registration = self._registrations.pop(id, None)
        if registration is None:
            raise UnknownIdError("composite", id)
        root = registration.root
        root.roots = tuple(other for other in root.roots if other is not registration)
        self._graph.release(root)

    # -- events ------------------------------------------------------------------

    def begin(self, at: Time) -> None:
        """Time begins at a moment, as if an event had come then that nobody waits for.

        Periods are counted from there. For detectors that share a stream and do not all see its
        first event. Refused once time has begun, unless it has come to that very moment.
        """
        moment = to_micros(at, "at")
        if self._graph.started and self._graph.now != moment:
            raise ValidationError("at", at, "time has begun already: begin before the first event")
        self._graph.move_to(moment)

    def feed(self, events: Event | Iterable[Event]) -> list[CompositeEvent]:
        """Take events; returns what they complete, in order of detection.

        All of them or none: a bad event is a BatchError that names its row. An event without
        `end` ends at its `start`, one with neither happens now. Many at once are quicker than
        one by one, and find the same. With no events, it makes composites ready that are new,
        so that the next event need not wait for that.
        """
        given = [events] if isinstance(events, Event) else _listed(events)
        starts, ends = self._times(given)
        found: list[CompositeEvent] = []
        self._learn()
        if len(given) == 1:
            self._process_all(self._accept(given, starts, ends), found)
        else:
            for first in range(0, len(given), _PIECE):
                piece = slice(first, first + _PIECE)
                with _collector_off():
                    ready = self._accept(given[piece], starts[piece], ends[piece])
                self._process_all(ready, found)
        return found

    def _times(self, events: list[Event]) -> tuple[list[Micros], list[Micros]]:
        """When events start and end; nothing is taken if one is bad."""
        starts, ends = [], []
        space, longest = self.space, self.longest
        anywhere = Point if space == "planar" else None  # what needs no look
        now = max(self._newest, self._closed)
        for row, event in enumerate(events):
            try:
                if not isinstance(event, Event):
                    raise ValidationError("event", event, "give an Event")
                location = event.location
                if location is not None and type(location) is not anywhere:
                    check_space(location, space, "location")
                start, end = event.start, event.end
                if end is None:
                    end = now if start is None else start
                    if end == NEVER:
                        raise ValidationError("end", None, "say when, or advance the detector")
                start = end if start is None else start
                if longest is not None and end - start > longest:
                    raise ValidationError("end", end, "the event lasts longer than `longest`")
            except ValidationError as error:
                raise BatchError(row, error) from error
            if end > now:
                now = end
            starts.append(start)
            ends.append(end)
        return starts, ends

    def _accept(self, events: list[Event], starts: list[Micros], ends: list[Micros]) -> list[Timed]:
        """Hold events back, or let them and what waited for them go; late ones are dropped."""
        if len(events) > 1 and self._is_plain(events, ends):
            count = self._received
            self._received += len(events)
            self._newest = ends[-1]
            return list(
                zip(ends, range(count + 1, self._received + 1), starts, events, strict=True)
            )
        ready: list[Timed] = []
        held = self._held
        oldest = self._newest - self.lateness
        for event, start, end in zip(events, starts, ends, strict=True):
            if end <= self._closed or end < oldest:
                self.late += 1
                continue
            if not self.unique and self._is_duplicate(end, event.id):
                self.duplicates += 1
                continue
            self._received += 1
            if end > self._newest:
                self._newest = end
                oldest = end - self.lateness
            if self.lateness == 0:
                ready.append((end, self._received, start, event))
                continue
            heappush(held, (end, self._received, start, event))
            # An event as old as the bound may still come: only what is older is settled.
            while held and held[0][0] < oldest:
                ready.append(heappop(held))
        return ready

    def _is_plain(self, events: list[Event], ends: list[Micros]) -> bool:
        """Whether many events come in order and each for the first time; then they have."""
        if self.lateness or ends[0] <= self._closed or ends[0] < self._newest:
            return False
        if not all(map(le, ends, ends[1:])):
            return False
        if not self.unique:
            keys = dict.fromkeys(zip(ends, [event.id for event in events], strict=True))
            if len(keys) < len(ends) or not keys.keys().isdisjoint(self._seen):
                return False
            last = [key for key in (*self._seen, *keys) if key[0] == ends[-1]]
            self._seen = dict.fromkeys(last[-self._graph.max_pending :])
        return True

    def _is_duplicate(self, end: Micros, id: str) -> bool:
        """Whether an event has come before; from now on it has."""
        seen, key = self._seen, (end, id)
        if key in seen:
            return True
        oldest = max(self._newest, end) - self.lateness
        while seen:  # mostly one look: events come in order, or nearly
            first = next(iter(seen))
            if first[0] >= oldest and len(seen) < self._graph.max_pending:
                break
            del seen[first]
        seen[key] = None
        return False

    def advance(self, to: Time) -> list[CompositeEvent]:
        """Time has come to `to`, and nothing that ended until then is still under way.

        Lets go what was held back and fires time events until then. A clock that jumps back
        changes nothing.
        """
        moment = to_micros(to, "to")
        found: list[CompositeEvent] = []
        if moment <= self._closed:
            return found
        ready: list[Timed] = []
        while self._held and self._held[0][0] <= moment:
            ready.append(heappop(self._held))
        self._learn()
        self._process_all(ready, found)
        if not self._graph.started:
            self._graph.move_to(moment)
        while self._graph.timers.next() <= moment:
            self._graph.fire()
            self._collect(found)
        self._graph.move_to(moment)
        self._closed = moment
        self._newest = max(self._newest, moment)
        self._epoch += 1
        self._let_go(self._graph.now)
        return found

    def _process_all(self, ready: list[Timed], found: list[CompositeEvent]) -> None:
        """Go through what is ready in pieces; one event is not worth the ceremony."""
        if len(ready) == 1:
            self._process(ready, found)
            return
        for first in range(0, len(ready), _PIECE):
            with _collector_off():
                self._process(ready[first : first + _PIECE], found)

    def _process(self, ready: list[Timed], found: list[CompositeEvent]) -> None:
        """Match a piece of the stream at once, then go through it step by step."""
        graph = self._graph
        timers = graph.timers
        kind = GlobeInstance if graph.relations.globe else Instance
        matched, places = self._matched(ready)
        find, nested = graph.dispatch.find, self.nested
        for row, (end, _, start, event) in enumerate(ready):
            while timers.due and timers.due[0][0] < end:
                graph.fire()
                self._collect(found)
            if end > graph.now or not graph.started:
                graph.move_to(end)
            entries = find(event) if matched is None else matched[row]
            if not entries:
                continue
            graph.step += 1
            serial = graph.serial()
            if nested:
                event = _with_lineage(event, serial)
                if event.lineage.depth >= DEEPEST:
                    continue
                graph.barred = event.lineage.composites
            plain = kind(serial, start, end, event)
            for primitive in entries:
                instance = plain
                if primitive.reader is not None:
                    match = primitive.reader.check(event, self.space)
                    if match is None:
                        continue
                    if match.bindings or match.opens:
                        instance = plain.knowing(match.bindings, match.opens)
                if places is None:
                    graph.enter(primitive, instance)
                else:
                    graph.enter(primitive, instance, places.get((row, primitive.order)))
            if graph.arrivals:
                graph.settle()
            graph.barred = _NOBODY
            if graph.found:
                self._collect(found)
        self._epoch += len(ready)
        self._let_go(self._graph.now)

    def _matched(
        self, ready: list[Timed]
    ) -> tuple[list[list[Primitive]] | None, dict[tuple[int, int], list[int]] | None]:
        """What is better found for many events at once than for each.

        For each event its primitives, None if values of its own will find them; and by row and
        primitive the location tests that hold, as far as an index is asked.
        """
        graph = self._graph
        locations = graph.locations
        if not self._ahead and not locations:
            return None, None
        events = [timed[3] for timed in ready]
        found = self._primitives(events)
        if not locations or len(events) == 1:
            return found, None
        keys: list[tuple[int, int]] = []
        xs: list[float] = []
        ys: list[float] = []
        for row, (event, primitives) in enumerate(zip(events, found, strict=True)):
            if isinstance(event.location, Point):
                for primitive in primitives:
                    if primitive.order in locations:
                        keys.append((row, primitive.order))
                        xs.append(event.location.x)
                        ys.append(event.location.y)
        places: dict[tuple[int, int], list[int]] = {key: [] for key in keys}
        orders = np.array([order for _, order in keys], np.int64)
        rows, numbers = locations.lookup(orders, np.array(xs), np.array(ys))
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            places[keys[row]].append(number)
        return found, places

    @property
    def _ahead(self) -> bool:
        """Whether primitives are better found for many events at once."""
        return self._graph.dispatch.matching

    def _learn(self) -> None:
        """Make ready what finds primitives."""
        self._graph.learn()

    def _primitives(self, events: list[Event]) -> list[list[Primitive]]:
        """For each event the primitives that it may satisfy."""
        dispatch = self._graph.dispatch
        found = [dispatch.find(event) for event in events]
        if dispatch.matching:
            if len(events) == 1:
                found[0] += dispatch.match_one(events[0])
            else:
                for mine, more in zip(found, dispatch.match_many(events), strict=True):
                    mine += more
        return found

    def _collect(self, found: list[CompositeEvent]) -> None:
        """Turn what reached the roots in this step into composite events."""
        waiting = self._graph.found
        if len(waiting) > 1:
            waiting.sort(key=lambda pair: pair[0].order)
        for registration, instance in waiting:
            if instance.opens or registration.over(self._graph.now):
                continue  # a comparison with a variable that nothing bound; or over in a batch
            if self.nested and not self._claimed(registration, instance):
                continue
            registration.count += 1
            made = Detection(registration.composite.id, registration.count, instance)
            if self.nested:
                parts = lineage_of((instance,))
                object.__setattr__(made, "lineage", parts.under(made.composite_id, instance.serial))
            found.append(made)
        waiting.clear()

    @staticmethod
    def _claimed(registration: Registration, instance: Instance) -> bool:
        """Whether a nested detection may be told; some nodes have asked before they took it."""
        return registration.root.gate is not None or claim(registration.order, (instance,))

    # -- state -------------------------------------------------------------------

    def save(self, plans: bool = False) -> bytes:
        """The composites and everything that waits, to be restored later or elsewhere.

        With `plans` nothing has to be parsed then; it takes some time more now, and room.
        """
        return state.save(self, plans)

    @classmethod
    def restore(cls, saved: bytes) -> Detector:
        """The detector that `save` saw; take only bytes you trust (they are a pickle)."""
        return state.restore(cls, saved)

    def save_waiting(self) -> bytes:
        """What waits, and how far time has come, without the composites. O(nodes + pending)."""
        return state.save_waiting(self)

    def load_waiting(self, saved: bytes) -> None:
        """Go on where the detector stopped that `save_waiting` saw: one with the same composites.

        What waited here is forgotten; the graph stays, so that nothing is built. Bytes of a
        detector with other composites are refused. Take only bytes you trust (they are a pickle).
        """
        state.load_waiting(self, saved)

    def memory(self) -> dict[str, int]:
        """Bytes by part: matcher, locations, nodes, instances, held events, and their total."""
        return state.memory(self)

    def check_invariants(self) -> None:
        """Raise AssertionError where the graph contradicts itself or keeps what cannot match."""
        state.check(self)


def _with_lineage(event: Event, number: int) -> Happening:
    if isinstance(event, Happening):
        return event
    known: Lineage | None = getattr(event, "lineage", None)
    return Happening(event, Lineage.plain(number) if known is None else known)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Put Python's cyclic collector off for a piece of the stream.

    Detections stay, and make it look through thousands of composites again and again in
    search of cycles that are not there: a third of the time of a batch.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _span(value: object, field: str) -> Micros:
    span = to_duration(value, field)
    if span < 0:
        raise ValidationError(field, value, "a duration is not negative")
    return span


def _listed(events: object) -> list[Event]:
    if not isinstance(events, Iterable):
        raise ValidationError("events", events, "give an Event, or several")
    return list(events)


def _corners(plan: Plan) -> Iterator[tuple[float, float]]:
    """Every corner of every region of a plan."""
    waiting: list[Plan | Op] = [plan]
    while waiting:
        one = waiting.pop()
        if one.kind in SPATIAL or one.kind in BORDERS:
            yield from unpacked(one.params[0])
        if isinstance(one, Op):
            waiting += [operand for operand in one.operands if isinstance(operand, Op)]
            continue
        if one.kind == "joint":
            waiting.append(one.params[0])
        waiting += [given.plan for given in one.inputs]


def _turned(x: float) -> float:
    """A longitude that goes on past 180, back in its range."""
    return x - 360.0 if 180.0 < x <= 360.0 else x + 360.0 if -360.0 <= x < -180.0 else x
