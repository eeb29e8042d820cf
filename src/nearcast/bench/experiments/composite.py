"""`composite`: detecting patterns in space and time, as Grus measures it (§5.1 to §5.3).

Logistics: batches and single events, and the modified SIENA, where the broker only matches
plain events and clients do the composite part. Taxis and shopping: unary location
subscriptions by a plain compiled loop and by the index, whole detection, memory before and
after, and the safe rectangles that keep positions on the publishers' side. Borders: objects that
were often seen outside of a region come in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Scalar, Task, Trial
from nearcast.cpsl import motion
from nearcast.cpsl.builder import event, string
from nearcast.cpsl.compile import compile_pattern
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.glr import SafeRectangles
from nearcast.cpsl.location_index import LocationIndex, RegionTest
from nearcast.cpsl.operators.spatial import Relations
from nearcast.datasets.grus import GRUS, CompositeWorkload
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Point

__all__ = ["EXPERIMENT"]

DETECT = "logistics: detect"
CURVE = "logistics: detect, by events"
FIND = "find location subscriptions"
GROWING = "{}: find location subscriptions, by their number"
STREAM = "detect location subscriptions"
SAFE = "keep safe rectangles"
REGISTER = "register composites"
CHANGE = "a region that comes among many"
EXTENT = "an event with an extent among many regions"
ENTRY = "objects come in"

_COMPOSITES, _SUBSCRIPTIONS, _OBJECTS = 15_000, 10_000, 1_000  # from which targets count
_CLIENTS = 4
_PER_CELL = 1.25  # regions a cell of the safe rectangles' map
_CHUNK = 500
_SEEN = 10  # positions of an object outside of a border
_FEW = 200  # regions that come, and events with an extent
_HALF = 5.03  # of an event's side: no border of it meets that of a region


def _trials(plan: Plan) -> Iterator[Trial]:
    parts = plan.texts("parts")
    if "logistics" in parts:
        yield _logistics(plan)
        yield _registering(plan)
    if "borders" in parts:
        yield _entering(plan)
    if "places" in parts:
        for name in plan.texts("scenarios"):
            source = GRUS[name](plan.number("subscriptions"), plan.number("positions"), plan.seed)
            yield from _Places(source).trials()
    if "curves" in parts:
        yield from _curves(plan)


def _curves(plan: Plan) -> Iterator[Trial]:
    """Figures 7 to 9 along their axes, memory included."""
    for events in plan.numbers("curve_events"):
        yield _logistics_curve(GRUS["logistics"](plan.number("composites"), events, plan.seed))
    for name in plan.texts("scenarios"):
        for subscriptions in plan.numbers("curve_subscriptions"):
            for positions in plan.numbers("curve_positions"):
                source = GRUS[name](subscriptions, positions, plan.seed)
                yield _Places(source).curve()


def _composites(source: CompositeWorkload) -> list[Composite]:
    return [Composite(id=str(i), text=text) for i, text in enumerate(source.texts)]


def _filled(composites: Sequence[Composite]) -> Detector:
    detector = Detector("planar", longest=0)
    for composite in composites:
        detector.add(composite)
    detector.feed(())
    return detector


# --- §5.1 ----------------------------------------------------------------------------------------


def _logistics(plan: Plan) -> Trial:
    source = GRUS["logistics"](plan.number("composites"), plan.number("events"), plan.seed)
    composites = _composites(source)
    point: dict[str, Scalar] = {"composites": len(composites)}
    return Trial(
        DETECT,
        (
            Contender("batch", partial(_feeding, source, composites, False)),
            Contender("one by one", partial(_feeding, source, composites, True)),
            Contender("clients detect (SIENA)", partial(_siena, source, composites)),
        ),
        lambda: sorted((str(number), parts) for number, parts in source.runs),
        point,
        len(source.events),
        "event",
        at_most=3,
    )


def _logistics_curve(source: CompositeWorkload) -> Trial:
    """Who detects, and what that takes of the broker and of the busiest client."""
    composites = _composites(source)
    point: dict[str, Scalar] = {"events": len(source.events)}
    return Trial(
        CURVE,
        (
            Contender("Grus", partial(_feeding, source, composites, True)),
            Contender("clients detect (SIENA)", partial(_siena, source, composites)),
        ),
        lambda: sorted((str(number), parts) for number, parts in source.runs),
        point,
        len(source.events),
        "event",
        at_most=1,
    )


def _registering(plan: Plan) -> Trial:
    """From texts to a detector that waits."""
    source = GRUS["logistics"](plan.number("composites"), plan.number("events"), plan.seed)
    task = Task(lambda: _filled(_composites(source)), answer=len)
    point: dict[str, Scalar] = {"composites": len(source.texts)}
    work = len(source.texts)
    contenders = (Contender("from text", lambda: task),)
    return Trial(REGISTER, contenders, lambda: work, point, work, "composite", at_most=3)


def _answer(found: Sequence[Any]) -> object:
    return sorted((one.composite_id, one.parts) for one in found)


def _feeding(source: CompositeWorkload, composites: list[Composite], singly: bool) -> Task:
    """A detector of its own a repetition: a stream cannot be fed twice."""
    detector = [_filled(composites)]
    idle = detector[0].memory()["total"]

    def before() -> None:
        detector[0] = _filled(composites)

    def run() -> object:
        if not singly:
            return detector[0].feed(source.events)
        return [one for event in source.events for one in detector[0].feed(event)]

    def memory() -> Mapping[str, int]:
        # The broker sends one message a detection, and clients keep nothing.
        after = detector[0].memory()["total"]
        return {
            "idle": idle, "after": after, "messages": len(source.runs), "total": after, "client": 0,
        }  # fmt: skip

    return Task(run, before=before, answer=_answer, memory=memory)


def _siena(source: CompositeWorkload, composites: list[Composite]) -> Task:
    """The broker forwards plain events to clients, each of which has a part of the composites."""
    shares = [composites[client::_CLIENTS] for client in range(_CLIENTS)]
    brokers: list[Detector] = []
    messages = [0]

    def before() -> None:
        brokers[:] = [_filled(share) for share in shares]

    def run() -> object:
        found: list[Any] = []
        messages[0] = 0
        for client in brokers:  # a client hears of an event if one of its primitives matches
            graph = client._graph
            heard = [event for event in source.events if graph.dispatch.find(event)]
            messages[0] += len(heard)
            found += client.feed(heard)
        return found

    def memory() -> Mapping[str, int]:
        """The broker has the plain subscriptions, each client all that waits for its composites."""
        held = [client.memory() for client in brokers]
        plain = sum(client["matcher"] for client in held)
        most = max((client["total"] for client in held), default=0)
        return {"messages": messages[0], "total": plain, "client": most}

    return Task(run, before=before, answer=_answer, memory=memory)


# --- borders --------------------------------------------------------------------------------------


def _entering(plan: Plan) -> Trial:
    """Objects that were seen outside many times come in, one by one."""
    objects = plan.number("objects")
    contenders = (Contender("one by one", partial(_crossing, objects)),)
    point: dict[str, Scalar] = {"objects": objects}
    truth = [(f"0 {number}", f"{_SEEN} {number}") for number in range(objects)]
    return Trial(ENTRY, contenders, lambda: truth, point, objects, "entry", at_most=3)


def _crossing(objects: int) -> Task:
    text = motion.enter(event(kind="position", id=string("who")), Box(0, 0, 10, 10), margin_m=3)
    composites = [Composite(id="border", text=text)]
    rounds = [
        [
            Event(
                f"{turn} {number}",
                {"kind": "position", "id": str(number)},
                (),
                Point(100.0 + number if turn < _SEEN else 5.0, 5.0),
                end=(turn * objects + number) * 1_000_000,
            )
            for number in range(objects)
        ]
        for turn in range(_SEEN + 1)
    ]
    detector = [_filled(composites)]
    waiting = [0]

    def before() -> None:
        detector[0] = _filled(composites)
        for outside in rounds[:-1]:
            detector[0].feed(outside)
        waiting[0] = detector[0].pending()

    return Task(
        lambda: [one for entry in rounds[-1] for one in detector[0].feed(entry)],
        before=before,
        answer=lambda found: [one.parts for one in found],
        memory=lambda: {"waiting": waiting[0]},
    )


# --- §5.2 and §5.3 --------------------------------------------------------------------------------


class _Places:
    """A workload of unary location subscriptions, and the pairs that match."""

    def __init__(self, source: CompositeWorkload) -> None:
        self.source = source
        self.composites = _composites(source)
        plans = [compile_pattern(composite.pattern) for composite in self.composites]
        self.tests: list[RegionTest] = [(plan.kind, plan.params) for plan in plans]
        spots = [event.location for event in source.events]
        self.xs = np.array([spot.x for spot in spots if isinstance(spot, Point)])
        self.ys = np.array([spot.y for spot in spots if isinstance(spot, Point)])
        assert source.given is not None
        assert source.wanted is not None
        assert source.movers is not None
        assert source.centres is not None
        self.given, self.wanted = source.given, source.wanted
        self.movers, self.centres = source.movers, source.centres
        self.relations = Relations("planar", 1.0)
        self.truth = self._pairs()

    def trials(self) -> Iterator[Trial]:
        name, subscriptions = self.source.name, len(self.tests)
        point: dict[str, Scalar] = {"scenario": name, "subscriptions": subscriptions}
        work = len(self.source.events)
        contenders = (Contender("plain loop", self._scan), Contender("index", self._lookup))
        yield Trial(FIND, contenders, lambda: self.truth, point, work, "event", at_most=3)
        stream = (Contender("detector", self._stream),)
        yield Trial(STREAM, stream, lambda: self.truth, point, work, "event", at_most=3)
        few = min(_FEW, work)
        change = (Contender("detector", partial(self._change, few)),)
        yield Trial(CHANGE, change, lambda: few, point, few, "region", at_most=3)
        extent = (Contender("detector", partial(self._extents, few)),)
        yield Trial(EXTENT, extent, lambda: self._boxed(few), point, few, "event", at_most=3)
        safe = (
            Contender("publishers", partial(self._safe, "greedy")),
            Contender("publishers, quadrants", partial(self._safe, "quadrants")),
        )
        yield Trial(SAFE, safe, lambda: True, point, work, "event", at_most=3)

    def curve(self) -> Trial:
        """One point of figure 8 or 9: looked up by a plain loop, by the index, and all of it."""
        point: dict[str, Scalar] = {
            "subscriptions": len(self.tests), "positions": len(self.source.events),
        }  # fmt: skip
        ways = {"plain loop": self._scan, "index": self._lookup, "detector": self._stream}
        among = tuple(Contender(name, way) for name, way in ways.items())
        name, work = GROWING.format(self.source.name), len(self.source.events)
        return Trial(name, among, lambda: self.truth, point, work, "event", at_most=1)

    def _keys(self, rows: npt.NDArray[Any], subscriptions: npt.NDArray[Any]) -> bytes:
        """Pairs in a form that can be compared."""
        return np.sort(rows.astype(np.int64) * len(self.tests) + subscriptions).tobytes()

    def _pairs(self) -> bytes:
        """By the definition, with NumPy: nothing of the detector is used."""
        rows, found = [], []
        x, y, size = self.centres[:, 0], self.centres[:, 1], self.source.size
        for first in range(0, len(self.xs), _CHUNK):
            dx = np.abs(self.xs[first : first + _CHUNK, None] - x)
            dy = np.abs(self.ys[first : first + _CHUNK, None] - y)
            if self.source.name == "taxis":
                inside = np.sqrt(dx * dx + dy * dy) < size
            else:
                inside = (dx <= size) & (dy <= size)
            inside &= self.given[first : first + _CHUNK, None] == self.wanted
            at, which = np.nonzero(inside)
            rows.append(at + first)
            found.append(which)
        every = np.concatenate(rows)
        self.matching = np.zeros(len(self.xs), np.bool_)
        self.matching[every] = True
        return self._keys(every, np.concatenate(found))

    def _index(self) -> LocationIndex:
        index = LocationIndex(self.relations)
        for number, test in enumerate(self.tests):
            index.add(number, int(self.wanted[number]), test)
        return index

    def _scan(self) -> Task:
        index = self._index()
        groups = [
            (np.flatnonzero(self.wanted == group).tolist(), np.flatnonzero(self.given == group))
            for group in np.unique(self.given).tolist()
        ]

        def run() -> object:
            return [(at, *index.scan(members, self.xs[at], self.ys[at])) for members, at in groups]

        def answer(found: Any) -> object:
            rows = np.concatenate([at[row] for at, row, _ in found])
            return self._keys(rows, np.concatenate([which for _, _, which in found]))

        return Task(run, answer=answer, memory=lambda: {"total": index.nbytes()})

    def _lookup(self) -> Task:
        index = self._index()
        return Task(
            lambda: index.lookup(self.given, self.xs, self.ys),
            answer=lambda found: self._keys(*found),
            memory=lambda: {"index": index.nbytes(), "total": index.nbytes()},
        )

    def _stream(self) -> Task:
        detector = [_filled(self.composites)]
        idle = detector[0].memory()["total"]

        def before() -> None:
            detector[0] = _filled(self.composites)

        def answer(found: Any) -> object:
            rows = np.array([int(one.parts[0][1:]) for one in found])
            return self._keys(rows, np.array([int(one.composite_id) for one in found]))

        def memory() -> Mapping[str, int]:
            after = detector[0].memory()["total"]
            return {"idle": idle, "after": after, "total": after}

        return Task(
            lambda: detector[0].feed(self.source.events),
            before=before,
            answer=answer,
            memory=memory,
        )

    def _change(self, few: int) -> Task:
        """New regions, one at a time, each known when the next comes."""
        detector = _filled(self.composites)
        texts = GRUS[self.source.name](few, few, 1000).texts
        known: list[str] = []

        def before() -> None:
            while known:
                detector.remove(known.pop())

        def run() -> int:
            for number, text in enumerate(texts):
                known.append(f"new {number}")
                detector.add(Composite(id=known[-1], text=text))
                detector.feed(())
            return len(detector) - len(self.composites)

        return Task(run, before=before)

    def _extents(self, few: int) -> Task:
        detector = [_filled(self.composites)]
        events = [self._box(number) for number in range(few)]

        def before() -> None:
            detector[0] = _filled(self.composites)

        def answer(found: Any) -> object:
            rows = np.array([int(one.parts[0][1:]) for one in found])
            return self._keys(rows, np.array([int(one.composite_id) for one in found]))

        def run() -> object:
            return [one for event in events for one in detector[0].feed(event)]

        return Task(run, before=before, answer=answer)

    def _box(self, number: int) -> Event:
        event, x, y = self.source.events[number], self.xs[number], self.ys[number]
        place = Box(x - _HALF, y - _HALF, x + _HALF, y + _HALF)
        return Event(event.id, event.attributes, (), place, event.start, event.end)

    def _boxed(self, few: int) -> bytes:
        """What the boxes find, by the definition."""
        dx = np.abs(self.xs[:few, None] - self.centres[:, 0])
        dy = np.abs(self.ys[:few, None] - self.centres[:, 1])
        if self.source.name == "taxis":  # the metres between a point and a box
            gaps = np.maximum(dx - _HALF, 0.0), np.maximum(dy - _HALF, 0.0)
            fits = np.hypot(*gaps) < self.source.size
        else:
            fits = (dx + _HALF <= self.source.size) & (dy + _HALF <= self.source.size)
        fits &= self.given[:few, None] == self.wanted
        return self._keys(*np.nonzero(fits))

    def _safe(self, method: str) -> Task:
        """Publishers of each group among the regions of that group."""
        groups = np.unique(self.given).tolist()
        side = float(max(self.xs.max(), self.ys.max(), self.centres.max())) + 1.0
        maps = []
        for group in groups:
            mine = np.flatnonzero(self.wanted == group).tolist()
            tests = [self.tests[number] for number in mine]
            cells = max(1, int(np.sqrt(len(tests) / _PER_CELL)))
            extent = Box(0, 0, side, side)
            maps.append(SafeRectangles(tests, self.relations, extent, cells, method))
        kept = [0]

        def run() -> npt.NDArray[np.bool_]:
            sent = np.zeros(len(self.xs), np.bool_)
            for group, rectangles in zip(groups, maps, strict=True):
                at = np.flatnonzero(self.given == group)
                sent[at] = rectangles.sent(
                    self.movers[at], self.xs[at], self.ys[at], self.matching[at]
                )
            return sent

        def answer(sent: npt.NDArray[np.bool_]) -> object:
            """Right if every position that somebody wants was sent."""
            quiet = ~self.matching
            kept[0] = int(1000 * float((quiet & ~sent).sum()) / max(1.0, float(quiet.sum())))
            return not bool((self.matching & ~sent).any())

        return Task(run, answer=answer, memory=lambda: {"kept per mille": kept[0]})


# --- claims ---------------------------------------------------------------------------------------


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    curves = {CURVE, *(GROWING.format(name) for name in GRUS)}
    by_name = {
        (m.operation, m.contender, m.parameters.get("scenario")): m
        for m in measurements
        if m.operation not in curves
    }
    for (operation, contender, scenario), m in by_name.items():
        if operation == DETECT:
            claims += _logistics_claims(m, contender)
            continue
        if operation == REGISTER:
            goal = 5_000 if int(m.parameters["composites"]) >= _COMPOSITES else None
            claims.append(Claim("register", m.rate, "composites/s", goal))
            continue
        if operation == ENTRY:
            claims += _entry_claims(m)
            continue
        large = int(m.parameters["subscriptions"]) >= _SUBSCRIPTIONS
        if operation == FIND and contender == "index":
            plain = by_name[(FIND, "plain loop", scenario)]
            factor = plain.spread.median / m.spread.median
            name = f"index against the plain loop, {scenario}"
            claims.append(Claim(name, factor, "times", 20 if large else None))
        elif operation == STREAM:
            rate = Claim(f"detect, {scenario}", m.rate, "events/s", 20_000 if large else None)
            claims.append(rate)
            grown = m.memory["after"] / m.memory["idle"]
            flat = 1.1 if large else None
            claims.append(
                Claim(f"memory after / before, {scenario}", grown, "times", flat, "at most")
            )
        elif operation in (CHANGE, EXTENT):
            most = 1.0 if large else None
            name = f"{operation}, {scenario}"
            claims.append(Claim(name, 1000 / m.rate, "ms", most, "at most"))
        elif operation == SAFE:
            share = m.memory["kept per mille"] / 10
            name = f"kept by {contender}, {scenario}"
            goal = 80 if large and contender == "publishers" else None
            claims.append(Claim(name, share, "%", goal))
    return claims


def _entry_claims(m: Measurement) -> list[Claim]:
    objects = int(m.parameters["objects"])
    large = objects >= _OBJECTS
    each = m.memory["waiting"] / objects
    return [
        Claim("an object comes in", 1e6 / m.rate, "µs", 100 if large else None, "at most"),
        Claim("kept of an object outside", each, "positions", 1 if large else None, "at most"),
    ]


def _logistics_claims(m: Measurement, contender: str) -> list[Claim]:
    composites = int(m.parameters["composites"])
    large = composites >= _COMPOSITES
    target = {"batch": 100_000.0, "one by one": 50_000.0}.get(contender) if large else None
    claims = [
        Claim(f"detect, {contender}", m.rate, "events/s", target),
        Claim(f"messages, {contender}", m.memory["messages"], "messages"),
    ]
    if contender == "batch":
        each = m.memory["idle"] / composites
        most = 3072 if large else None
        claims.append(Claim("an idle composite", each, "bytes", most, "at most"))
    return claims


_PARTS = ("logistics", "borders", "places", "curves")
_CURVE_EVENTS = (12_000, 24_000, 36_000, 48_000, 60_000)
_SIZES = (1_000, 2_500, 5_000, 7_500, 10_000)


def _growing_figures() -> Iterator[Figure]:
    for number, name in ((8, "taxis"), (9, "shopping")):
        title = f"Unary location subscriptions of {name} (Grus, {number}"
        of = GROWING.format(name)
        yield Figure(f"fig{number}a", f"{title}a)", of, "seconds", x="subscriptions", log_y=True)
        yield Figure(f"fig{number}b", f"{title}b)", of, "bytes", x="subscriptions", log_y=True)


EXPERIMENT = Experiment(
    name="composite",
    summary="composite events: logistics, taxis and shopping of Grus, and safe rectangles",
    settings=(
        Setting("composites", (15_000,), (30,), "how many in the logistics scenario"),
        Setting("events", (60_000,), (120,), "how many in the logistics scenario"),
        Setting("objects", (1_000,), (20,), "how many come in at a border"),
        Setting("scenarios", ("taxis", "shopping"), ("taxis", "shopping"), "of unary locations"),
        Setting("subscriptions", (10_000,), (200,), "how many unary location subscriptions"),
        Setting("positions", (80_000,), (400,), "how many events in those scenarios"),
        Setting("curve_events", _CURVE_EVENTS, (60, 120), "of figure 7, each a multiple of 12"),
        Setting("curve_subscriptions", _SIZES, (100, 200), "of figures 8 and 9"),
        Setting("curve_positions", (10_000, 20_000, 40_000, 80_000), (200, 400), "of the same"),
        Setting("parts", _PARTS, _PARTS, "which to run"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure("detect", "Logistics (§5.1)", DETECT, "rate"),
        Figure(
            "find", "Unary location subscriptions (§5.2, §5.3)", FIND, "rate", x="subscriptions"
        ),
        Figure("fig7a", "Logistics: time (Grus, 7a)", CURVE, "seconds", x="events"),
        Figure("fig7b", "Logistics: messages (Grus, 7b)", CURVE, "messages", x="events"),
        Figure("fig7c", "Logistics: the broker's memory (Grus, 7c)", CURVE, "bytes", x="events"),
        Figure("fig7d", "Logistics: a client's memory (Grus, 7d)", CURVE, "client", x="events"),
        *_growing_figures(),
    ),
)
