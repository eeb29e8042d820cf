"""The detector: composites and events in, composite events out."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from nearcast.clock import NEVER, Micros, Time, to_micros
from nearcast.cpsl import state
from nearcast.cpsl.compile import compile_pattern
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.dag import Graph, Registration
from nearcast.cpsl.durations import to_duration
from nearcast.cpsl.instances import CompositeEvent, GlobeInstance, Instance, detection
from nearcast.cpsl.operators.passing import Filter, Primitive
from nearcast.cpsl.operators.spatial import Relations
from nearcast.errors import BatchError, DuplicateIdError, UnknownIdError, ValidationError
from nearcast.model.events import Event
from nearcast.model.geometry import Point, Space, check_space

__all__ = ["Detector"]

#: end, order of arrival, start, event
Timed: TypeAlias = tuple[Micros, int, Micros, Event]
_PIECE = 8192  # events that are matched together


class Detector:
    """Recognises composites in a stream of events.

    `space` is "globe" or "planar". `lateness` is how long after a later event one may still
    come: events are held back that long and processed in order of their `end`; one that
    comes later still is dropped and counted in `late`. `longest` bounds the intervals of plain
    events (an event that lasts longer is refused): without it, what could be concurrent with an
    event of any length waits for ever. `tolerance_m` is that of `SPL` and `DIST(…;=;…)`.
    `max_pending` bounds every operator's queue: a full one lets its oldest instance go,
    counted in `overflows`. Durations are timedeltas, ISO 8601 or seconds.

    One thread at a time.

    >>> detector = Detector()
    >>> detector.add(Composite(id="c1", text='=|(ARITH: a = 1; 10)(ARITH: a = 2)'))
    >>> detector.feed([Event(id="e1", attributes={"a": 1}, end=0),
    ...                Event(id="e2", attributes={"a": 2}, end=5_000_000)])[0].parts
    ('e1', 'e2')
    """

    def __init__(
        self,
        space: Space = "globe",
        lateness: object = 0,
        *,
        longest: object = None,
        tolerance_m: float = 1.0,
        max_pending: int = 100_000,
    ) -> None:
        if not isinstance(max_pending, int) or isinstance(max_pending, bool) or max_pending < 1:
            raise ValidationError("max_pending", max_pending, "give a positive whole number")
        self.lateness = _span(lateness, "lateness")
        self.longest = None if longest is None else _span(longest, "longest")
        self.late = 0
        self.duplicates = 0
        self._graph = Graph(Relations(space, tolerance_m), max_pending)
        self._registrations: dict[str, Registration] = {}
        self._added = 0
        self._epoch = 0
        self._received = 0
        self._newest: Micros = NEVER
        self._closed: Micros = NEVER
        self._held: list[Timed] = []
        self._seen: dict[Micros, set[str]] = {}
        self._seen_ends: list[Micros] = []

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
        return sum(len(node.pending()) for node in self._graph.nodes.values())

    # -- composites --------------------------------------------------------------

    def add(self, composite: Composite) -> None:
        """Detect a composite from now on: what came before does not count. O(size)."""
        if not isinstance(composite, Composite):
            raise ValidationError("composite", composite, "give a Composite")
        if composite.id in self._registrations:
            raise DuplicateIdError("composite", composite.id, "remove it first")
        self._register(composite, self._epoch)

    def _register(self, composite: Composite, epoch: int) -> Registration:
        plan = compile_pattern(composite.pattern, self.longest)
        for node in _regions(composite):
            check_space(node, self.space, "text")
        root = self._graph.add(plan, composite.consume, epoch)
        self._added += 1
        registration = Registration(composite, root, self._added, epoch)
        root.roots = (*root.roots, registration)
        self._registrations[composite.id] = registration
        return registration

    def remove(self, id: str) -> None:
        """Forget a composite and what only it waited for; raises UnknownIdError."""
        registration = self._registrations.pop(id, None)
        if registration is None:
            raise UnknownIdError("composite", id)
        root = registration.root
        root.roots = tuple(other for other in root.roots if other is not registration)
        self._graph.release(root)

    # -- events ------------------------------------------------------------------

    def feed(self, events: Event | Iterable[Event]) -> list[CompositeEvent]:
        """Take events; returns what they complete, in order of detection.

        All of them or none: a bad event is a BatchError that names its row. An event without
        `end` ends at its `start`, one with neither happens now. Many at once are quicker than
        one by one, and find the same. With no events, it makes composites ready that are new,
        so that the next event need not wait for that.
        """
        given = [events] if isinstance(events, Event) else _listed(events)
        checked = self._checked(given)
        ready: list[Timed] = []
        for start, end, event in checked:
            self._accept(start, end, event, ready)
        found: list[CompositeEvent] = []
        self._process_all(ready, found)
        return found

    def _checked(self, events: list[Event]) -> list[tuple[Micros, Micros, Event]]:
        """Events with their times; nothing is taken if one is bad."""
        checked = []
        now = max(self._newest, self._closed)
        for row, event in enumerate(events):
            try:
                if not isinstance(event, Event):
                    raise ValidationError("event", event, "give an Event")
                if event.location is not None:
                    check_space(event.location, self.space, "location")
                start, end = event.start, event.end
                if end is None:
                    end = now if start is None else start
                    if end == NEVER:
                        raise ValidationError("end", None, "say when, or advance the detector")
                start = end if start is None else start
                if self.longest is not None and end - start > self.longest:
                    raise ValidationError("end", end, "the event lasts longer than `longest`")
            except ValidationError as error:
                raise BatchError(row, error) from error
            now = max(now, end)
            checked.append((start, end, event))
        return checked

    def _accept(self, start: Micros, end: Micros, event: Event, ready: list[Timed]) -> None:
        """Hold an event back, or let it and what waited for it go; late ones are dropped."""
        if end <= self._closed or end < self._newest - self.lateness:
            self.late += 1
            return
        known = self._seen.get(end)
        if known is None:
            self._seen[end] = {event.id}
            heappush(self._seen_ends, end)
        elif event.id in known:
            self.duplicates += 1
            return
        else:
            known.add(event.id)
        self._received += 1
        if end > self._newest:
            self._newest = end
            oldest = end - self.lateness
            while self._seen_ends[0] < oldest:
                del self._seen[heappop(self._seen_ends)]
        entry = (end, self._received, start, event)
        if self.lateness == 0:
            ready.append(entry)
            return
        heappush(self._held, entry)
        # An event as old as the bound may still come: only what is older is settled.
        while self._held and self._held[0][0] < self._newest - self.lateness:
            ready.append(heappop(self._held))

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
        return found

    def _process_all(self, ready: list[Timed], found: list[CompositeEvent]) -> None:
        self._graph.learn()
        for first in range(0, len(ready), _PIECE):
            with _without_collections():
                self._process(ready[first : first + _PIECE], found)

    def _process(self, ready: list[Timed], found: list[CompositeEvent]) -> None:
        """Match a piece of the stream at once, then go through it step by step."""
        graph = self._graph
        timers = graph.timers
        kind = GlobeInstance if graph.relations.globe else Instance
        matched = self._matched([entry[3] for entry in ready])
        for (end, _, start, event), primitives in zip(ready, matched, strict=True):
            while timers.due and timers.due[0][0] < end:
                graph.fire()
                self._collect(found)
            graph.move_to(end)
            if primitives is None:
                continue
            graph.step += 1
            plain = kind(graph.serial(), start, end, event)
            for primitive, passed in primitives:
                self._enter(primitive, passed, plain, event)
            graph.settle()
            if graph.found:
                self._collect(found)
        self._epoch += len(ready)

    def _enter(
        self, primitive: Primitive, passed: list[int] | None, plain: Instance, event: Event
    ) -> None:
        """An event that the matcher let through: the rest of its tests, then up the graph."""
        graph = self._graph
        instance = plain
        if primitive.reader is not None:
            match = primitive.reader.check(event, self.space)
            if match is None:
                return
            if match.bindings or match.opens:
                instance = plain.knowing(match.bindings, match.opens)
        graph.emit(primitive, instance)
        if passed is None:
            return
        for number in passed:
            node = graph.nodes[number]
            assert isinstance(node, Filter)
            name = node.names[0]
            graph.emit(node, instance if name is None else instance.bound(name))

    def _matched(
        self, events: list[Event]
    ) -> list[list[tuple[Primitive, list[int] | None]] | None]:
        """For each event its primitives, each with the location tests over it that hold."""
        graph = self._graph
        out: list[list[tuple[Primitive, list[int] | None]] | None] = [None] * len(events)
        if not graph.nodes:
            return out
        if len(events) == 1:
            numbers, ids = [0], graph.matcher.match_event(events[0])
            numbers *= len(ids)
        else:
            rows, ids = graph.matcher.match_numbers(events)
            numbers = rows.tolist()
        placed: list[tuple[int, int, list[int]]] = []
        for number, id in zip(numbers, ids, strict=True):
            order = int(id)
            primitive = graph.nodes[order]
            assert isinstance(primitive, Primitive)
            passed: list[int] | None = None
            if order in graph.locations:
                passed = []
                location = events[number].location
                if isinstance(location, Point):
                    placed.append((number, order, passed))
                elif location is not None:
                    passed += self._extended(order, events[number])
            entries = out[number]
            if entries is None:
                out[number] = [(primitive, passed)]
            else:
                entries.append((primitive, passed))
        if placed:
            self._place(events, placed)
        return out

    def _place(self, events: list[Event], placed: list[tuple[int, int, list[int]]]) -> None:
        """Look up many positions at once; fills the lists of tests that hold."""
        spots = [events[number].location for number, _, _ in placed]
        xs = np.array([spot.x for spot in spots if isinstance(spot, Point)])
        ys = np.array([spot.y for spot in spots if isinstance(spot, Point)])
        orders = np.array([order for _, order, _ in placed], np.int64)
        rows, found = self._graph.locations.lookup(orders, xs, ys)
        for row, number in zip(rows.tolist(), found.tolist(), strict=True):
            placed[row][2].append(number)

    def _extended(self, order: int, event: Event) -> list[int]:
        """The location tests that hold of an event with an extended place."""
        graph = self._graph
        instance = Instance(0, 0, 0, event)
        passed = []
        for number in graph.locations.members(order):
            node = graph.nodes[number]
            assert isinstance(node, Filter)
            if node.holds(instance):
                passed.append(number)
        return passed

    def _collect(self, found: list[CompositeEvent]) -> None:
        """Turn what reached the roots in this step into composite events."""
        waiting = self._graph.found
        if len(waiting) > 1:
            waiting.sort(key=lambda pair: pair[0].order)
        for registration, instance in waiting:
            if instance.opens:
                continue  # a comparison with a variable that nothing bound
            registration.count += 1
            found.append(detection(registration.composite.id, registration.count, instance))
        waiting.clear()

    # -- state -------------------------------------------------------------------

    def save(self) -> bytes:
        """The composites and everything that waits, to be restored later or elsewhere."""
        return state.save(self)

    @classmethod
    def restore(cls, saved: bytes) -> Detector:
        """The detector that `save` saw; take only bytes you trust (they are a pickle)."""
        return state.restore(cls, saved)

    def memory(self) -> dict[str, int]:
        """Bytes by part: matcher, locations, nodes, instances, held events, and their total."""
        return state.memory(self)

    def check_invariants(self) -> None:
        """Raise AssertionError where the graph contradicts itself or keeps what cannot match."""
        state.check(self)


@contextmanager
def _without_collections() -> Iterator[None]:
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


def _regions(composite: Composite) -> list[Point]:
    """Every corner of every region of a composite."""
    from nearcast.cpsl import ast

    bodies = [composite.pattern.expression, *(d.body for d in composite.pattern.definitions)]
    found = []
    for body in bodies:
        for node in ast.walk(body):
            region = getattr(node, "region", getattr(node, "place", None))
            if isinstance(region, ast.Region):
                found += [Point(_turned(x), y) for x, y in region.points]
    return found


def _turned(x: float) -> float:
    """A longitude that goes on past 180, back in its range."""
    return x - 360.0 if 180.0 < x <= 360.0 else x + 360.0 if -360.0 <= x < -180.0 else x
