"""`fences`: what positions and moves cost where many fences watch, from the outside.

Circles that objects drive through, regions that follow their subscribers, polygons in a city of
many objects, and what a million fences and the objects inside them take. Every object drives a
closed loop, so that each run begins where the one before it ended and tells the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Task, Trial
from nearcast.bootstrap import Broker
from nearcast.broker.replies import Reply
from nearcast.fences.kernels import tables as t
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Circle, Point, Polygon
from nearcast.model.moves import Move

__all__ = ["EXPERIMENT"]

CIRCLES, ROAMING, POLYGONS, KEPT = "circles", "roaming", "polygons", "kept"

_LON, _LAT = 8.5, 47.4
_METRE = 180.0 / (np.pi * 6_371_008.8)  # in degrees of latitude
_WEST_EAST = _METRE / np.cos(np.radians(_LAT))
_STEP_M = 50.0  # between two positions of an object: five seconds of a car in town
_PAUSE = 5_000_000  # microseconds between them; a position lives until the next
_BATCH = 4_000
_REACH_M, _PACK = 500.0, 1_000  # how far a vehicle sees, and how many report together
# How large a run must be for its targets to count.
_CIRCLES, _VEHICLES, _POLYGONS, _MANY = 23_000, 5_000, 100_000, 1_000_000

F8 = npt.NDArray[np.float64]
#: Which object, at which fence, what, at which of its positions.
Told = set[tuple[int, int, str, int]]


class _Traffic:
    """Objects that drive loops: each turn every one of them reports a place."""

    def __init__(self, plan: Plan, objects: int, side_m: float) -> None:
        self.rng, self.side_m = np.random.default_rng(plan.seed), side_m
        self.count, self.turns = objects, plan.number("turns")
        centre, begin = self.places(objects), self.rng.uniform(0, 2 * np.pi, objects)
        radius = _STEP_M / 2 / np.sin(np.pi / self.turns)
        angle = begin[:, None] + 2 * np.pi * np.arange(self.turns) / self.turns
        self.xs = centre[:, :1] + radius * _WEST_EAST * np.cos(angle)
        self.ys = centre[:, 1:] + radius * _METRE * np.sin(angle)
        self.round = 0

    def places(self, count: int) -> F8:
        """Somewhere in the city, uniformly."""
        side = self.rng.uniform(-self.side_m / 2, self.side_m / 2, (count, 2))
        return np.column_stack([_LON + side[:, 0] * _WEST_EAST, _LAT + side[:, 1] * _METRE])

    def points(self, turn: int) -> list[Point]:
        return [Point(x, y) for x, y in zip(self.xs[:, turn], self.ys[:, turn], strict=True)]

    def positions(self, turn: int, number: int) -> list[Event]:
        """All report once; `number` counts the turns of all runs."""
        begin, wait = number * _PAUSE, _PAUSE // self.count
        return [
            Event(f"{i}.{number}", {"car": i}, (), place, None, end, end + _PAUSE)
            for i, (place, end) in enumerate(
                zip(self.points(turn), range(begin, begin + _PAUSE, wait), strict=False)
            )
        ]

    def loop(self) -> list[list[Event]]:
        """The positions of one run, after the turn that came before all runs."""
        first = 1 + self.round * self.turns
        self.round += 1
        return [self.positions(turn, first + turn) for turn in range(self.turns)]

    def changes(self, inside: Sequence[set[tuple[int, int]]]) -> Told:
        """Enter and exit by the pairs that are inside at each turn."""
        told: Told = set()
        for turn in range(self.turns):
            before, after = inside[turn - 1], inside[turn]
            told |= {(*pair, "enter", turn) for pair in after - before}
            told |= {(*pair, "exit", turn) for pair in before - after}
        return told


def _told(replies: Iterable[Reply], turns: int) -> Told:
    found: list[tuple[int, int, str, int]] = []
    for reply in replies:
        for told in reply:
            who, number = map(int, told.event.id.split("."))
            assert told.object == who
            fence = int(told.subscription_id)
            found.append((who, fence, str(told.transition), (number - 1) % turns))
    return set(found) if len(set(found)) == len(found) else set()  # no pair is told twice


def _haversine_m(x: F8, y: F8, others_x: F8, others_y: F8) -> F8:
    a, b = np.radians(y), np.radians(others_y)
    h = np.sin((b - a) / 2) ** 2
    h = h + np.cos(a) * np.cos(b) * np.sin(np.radians(others_x - x) / 2) ** 2
    away: F8 = 2 * 6_371_008.8 * np.arcsin(np.sqrt(h))
    return away


def _within(xs: F8, ys: F8, centres: F8, radius: float) -> set[tuple[int, int]]:
    """(place, centre) that are no farther apart than that: each place against those beside it."""
    order = np.argsort(centres[:, 1])
    lats = centres[order, 1]
    reach = 1.01 * radius * _METRE
    firsts, stops = np.searchsorted(lats, ys - reach), np.searchsorted(lats, ys + reach)
    found: set[tuple[int, int]] = set()
    for i, (first, stop) in enumerate(zip(firsts, stops, strict=True)):
        some = order[first:stop]
        away = _haversine_m(xs[i], ys[i], centres[some, 0], centres[some, 1])
        found |= {(i, fence) for fence in some[away <= radius].tolist()}
    return found


def _trials(plan: Plan) -> Iterator[Trial]:
    parts = plan.texts("parts")
    if CIRCLES in parts:
        yield _circles(plan)
    if ROAMING in parts:
        yield _roaming(plan)
    if POLYGONS in parts:
        yield _polygons(plan)
    if KEPT in parts:
        yield _kept(plan)


# --- circles and polygons ------------------------------------------------------------------------


class _Fixed:
    """Fences that stay, and traffic through them, with one broker a contender."""

    full: int

    def __init__(self, plan: Plan, objects: int, count: int) -> None:
        self.plan, self.objects, self.count = plan, objects, count

    def fresh(self) -> _Traffic:
        """In a square of 40 km at the size that has targets, as dense as that at others."""
        return _Traffic(self.plan, self.objects, 40_000.0 * float(np.sqrt(self.count / self.full)))

    @cached_property
    def traffic(self) -> _Traffic:
        return self.fresh()

    def fences(self) -> Iterator[Fence]:
        raise NotImplementedError

    def inside(self, turn: int) -> set[tuple[int, int]]:
        raise NotImplementedError

    def truth(self) -> Told:
        turns = range(self.traffic.turns)
        return self.traffic.changes([self.inside(turn) for turn in turns])

    def task(self, *, batch: int) -> Task:
        traffic, broker = self.fresh(), Broker()
        broker.subscribe_many(self.fences())
        broker.publish_many(traffic.positions(traffic.turns - 1, 0))
        coming: list[Event] = []

        def before() -> None:
            coming[:] = [event for turn in traffic.loop() for event in turn]

        def run() -> list[Reply]:
            if batch == 1:
                return [broker.publish(event) for event in coming]
            parts = range(0, len(coming), batch)
            return [broker.publish_many(coming[i : i + batch]) for i in parts]

        return Task(run, before=before, answer=partial(_told, turns=traffic.turns))


class _Circles(_Fixed):
    full, radius = _CIRCLES, 150.0

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, plan.number("objects"), plan.number("fences"))

    @cached_property
    def centres(self) -> F8:
        return self.traffic.places(self.count)

    def fences(self) -> Iterator[Fence]:
        for i, (x, y) in enumerate(self.centres.tolist()):
            yield Fence(str(i), f"u{i % 1000}", "car", Circle(x, y, self.radius))

    def inside(self, turn: int) -> set[tuple[int, int]]:
        traffic = self.traffic
        return _within(traffic.xs[:, turn], traffic.ys[:, turn], self.centres, self.radius)


class _Polygons(_Fixed):
    """Stars of eight corners, turned anyhow."""

    full, radius = _POLYGONS, 100.0

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, plan.number("crowd"), plan.number("polygons"))

    @cached_property
    def corners(self) -> F8:
        centres, rng = self.traffic.places(self.count), self.traffic.rng
        begin = rng.uniform(0, 2 * np.pi, self.count)
        angles = begin[:, None] + 2 * np.pi * np.arange(8) / 8
        reach = self.radius * rng.uniform(0.5, 1.0, (self.count, 8))
        x = centres[:, :1] + reach * _WEST_EAST * np.cos(angles)
        y = centres[:, 1:] + reach * _METRE * np.sin(angles)
        return np.stack([x, y], axis=2)

    def fences(self) -> Iterator[Fence]:
        for i, corners in enumerate(self.corners.tolist()):
            yield Fence(str(i), f"u{i % 1000}", "car", Polygon(corners))

    def inside(self, turn: int) -> set[tuple[int, int]]:
        """By the edges that lie to the east of a place, of the polygons beside it."""
        xs, ys = self.traffic.xs[:, turn], self.traffic.ys[:, turn]
        low, high = self.corners[:, :, 1].min(axis=1), self.corners[:, :, 1].max(axis=1)
        order = np.argsort(low)
        firsts = np.searchsorted(low[order], ys - 2 * self.radius * _METRE)
        stops = np.searchsorted(low[order], ys, side="right")
        west, east = self.corners[:, :, 0].min(axis=1), self.corners[:, :, 0].max(axis=1)
        found: set[tuple[int, int]] = set()
        for i, (first, stop) in enumerate(zip(firsts, stops, strict=True)):
            some = order[first:stop]
            near = (high[some] >= ys[i]) & (west[some] <= xs[i]) & (xs[i] <= east[some])
            some = some[near]
            a, b = self.corners[some], np.roll(self.corners[some], -1, axis=1)
            over = (a[:, :, 1] > ys[i]) != (b[:, :, 1] > ys[i])
            with np.errstate(divide="ignore", invalid="ignore"):
                share = (ys[i] - a[:, :, 1]) / (b[:, :, 1] - a[:, :, 1])
                at = a[:, :, 0] + share * (b[:, :, 0] - a[:, :, 0])
            odd = (over & (at > xs[i])).sum(axis=1) % 2 == 1
            found |= {(i, fence) for fence in some[odd].tolist()}
        return found


def _circles(plan: Plan) -> Trial:
    of = _Circles(plan)
    return Trial(
        CIRCLES,
        (
            Contender("publish", lambda: of.task(batch=1)),
            Contender("publish_many", lambda: of.task(batch=_BATCH)),
        ),
        of.truth,
        {"fences": of.count, "objects": of.objects},
        of.objects * plan.number("turns"),
        "position",
    )


def _polygons(plan: Plan) -> Trial:
    of = _Polygons(plan)
    return Trial(
        POLYGONS,
        (Contender("publish_many", lambda: of.task(batch=50_000)),),
        of.truth,
        {"fences": of.count, "objects": of.objects},
        of.objects * plan.number("turns"),
        "position",
    )


# --- regions that follow -------------------------------------------------------------------------


def _roaming(plan: Plan) -> Trial:
    vehicles = plan.number("vehicles")
    return Trial(
        ROAMING,
        (Contender("publish_many + move_many", lambda: _driving(plan, vehicles)),),
        lambda: _roamed(_vehicles(plan)),
        {"vehicles": vehicles},
        vehicles * plan.number("turns"),
        "position",
    )


def _vehicles(plan: Plan) -> _Traffic:
    count = plan.number("vehicles")
    return _Traffic(plan, count, 40_000.0 * float(np.sqrt(count / _VEHICLES)))


def _driving(plan: Plan, vehicles: int) -> Task:
    """Some vehicles after the other: their positions, then their regions, which go with them."""
    traffic, broker = _vehicles(plan), Broker()
    names = [f"v{i}" for i in range(vehicles)]
    broker.subscribe_many(
        Fence(str(i), name, "car", Around(_REACH_M)) for i, name in enumerate(names)
    )
    last = traffic.turns - 1
    broker.publish_many(traffic.positions(last, 0))
    broker.move_many(map(Move, names, traffic.points(last)))
    coming: list[tuple[list[Event], list[Move]]] = []

    def before() -> None:
        coming.clear()
        for turn in traffic.loop():
            for first in range(0, vehicles, _PACK):
                some = turn[first : first + _PACK]
                places = [Point(e.location.x, e.location.y) for e in some]  # type: ignore[union-attr]
                coming.append((some, [*map(Move, names[first : first + _PACK], places)]))

    def run() -> list[Reply]:
        replies = []
        for events, moves in coming:
            replies += [broker.publish_many(events), broker.move_many(moves)]
        return replies

    def answer(replies: list[Reply]) -> object:
        """Told in order, with the pack of vehicles that reported before it was told."""
        packs = -(-vehicles // _PACK)
        return [
            (i // 2 // packs, i // 2 % packs, i % 2, told.subscription_id, told.object,
             told.transition)
            for i, reply in enumerate(replies)
            for told in sorted(reply, key=lambda n: (n.subscription_id, str(n.object)))
        ]  # fmt: skip

    return Task(run, before=before, answer=answer)


def _roamed(traffic: _Traffic) -> list[tuple[int, int, int, str, int, str]]:
    """The same by comparing all: who is within reach of whom before and after each pack moves."""
    count, last = traffic.count, traffic.turns - 1
    cars = np.column_stack([traffic.xs[:, last], traffic.ys[:, last]])
    centres = cars.copy()
    told: list[tuple[int, int, int, str, int, str]] = []
    before = _within(cars[:, 0], cars[:, 1], centres, _REACH_M)
    for turn in range(traffic.turns):
        for pack, first in enumerate(range(0, count, _PACK)):
            some = slice(first, first + _PACK)
            for kind, places in enumerate((cars, centres)):
                places[some, 0] = traffic.xs[some, turn]
                places[some, 1] = traffic.ys[some, turn]
                after = _within(cars[:, 0], cars[:, 1], centres, _REACH_M)
                changed = [(f, c, "enter") for c, f in after - before]
                changed += [(f, c, "exit") for c, f in before - after]
                changed.sort(key=lambda each: (str(each[0]), str(each[1])))
                told += [(turn, pack, kind, str(f), c, what) for f, c, what in changed]
                before = after
    return told


# --- what is kept --------------------------------------------------------------------------------


def _kept(plan: Plan) -> Trial:
    count, side = plan.number("many"), plan.number("visits")
    return Trial(
        KEPT,
        (Contender("subscribe_many", lambda: _standing(plan, count, side)),),
        lambda: side * side,
        {"fences": count},
        side * side,
        "visit",
        at_most=1,
    )


def _standing(plan: Plan, count: int, side: int) -> Task:
    """Circles all over a country; then objects come into fences that count stays."""
    rng = np.random.default_rng(plan.seed)
    broker = Broker()
    for first in range(0, count, 10_000):
        spots = rng.uniform((5.0, 45.0), (10.0, 48.0), (min(10_000, count - first), 2))
        broker.subscribe_many(
            Fence(f"fence {first + i}", f"u{i % 1000}", "car", Circle(x, y, 500.0))
            for i, (x, y) in enumerate(spots.tolist())
        )
    watch = broker._fences._watch
    weighed = {"arrays": sum(watch.nbytes().values())}
    yard, rounds = Circle(20.0, 50.0, 1000.0), [0]

    def before() -> None:
        rounds[0] += 1
        broker.subscribe_many(
            Fence(f"yard {rounds[0]} {i}", "ops", "truck", yard, f"round = {rounds[0]}", (),
                  ("dwell",), dwell=3600)
            for i in range(side)
        )  # fmt: skip

    def run() -> object:
        pairs, number = watch.pairs, rounds[0]
        broker.publish_many(
            Event(f"{number}.{i}", {"truck": i, "round": number}, (), Point(20.0, 50.0), None, 1, 2)
            for i in range(side)
        )
        return watch.pairs - pairs

    def memory() -> dict[str, int]:
        tables = watch._arrays.tables
        of_pairs = (tables.pairs, tables.entered, tables.buckets, tables.heap)
        size = sum(int(array.nbytes) for array in of_pairs)
        used = watch.pairs * (
            tables.pairs.itemsize * tables.pairs.shape[1] + tables.entered.itemsize
        )
        used += tables.buckets.nbytes + int(tables.counters[t.HEAP]) * tables.heap[0].nbytes
        return weighed | {"pairs": watch.pairs, "bytes of pairs": used, "with room": size}

    return Task(run, before=before, memory=memory)


# --- claims --------------------------------------------------------------------------------------

_TARGETS = {
    (CIRCLES, "publish"): ("fences", _CIRCLES, 30_000.0),
    (CIRCLES, "publish_many"): ("fences", _CIRCLES, 100_000.0),
    (ROAMING, "publish_many + move_many"): ("vehicles", _VEHICLES, 60_000.0),
    (POLYGONS, "publish_many"): ("fences", _POLYGONS, 200_000.0),
}


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    for m in measurements:
        if m.operation == KEPT:
            claims += _weights(m)
            continue
        size, large, target = _TARGETS[m.operation, m.contender]
        count = int(m.parameters[size])
        name = f"{m.contender}, {count:,} {size} ({m.operation})"
        claims.append(Claim(name, m.rate, "positions/s", target if count >= large else None))
    return claims


def _weights(m: Measurement) -> list[Claim]:
    count, weighed = int(m.parameters["fences"]), m.memory
    large = count >= _MANY
    pair = weighed["bytes of pairs"] / max(weighed["pairs"], 1)
    return [
        Claim(f"resident memory a fence, {count:,}", (m.resident_bytes or 0) / count, "bytes",
              600.0 if large else None, "at most"),
        Claim(f"arrays of a fence, {count:,}", weighed["arrays"] / count, "bytes"),
        Claim(f"state of a fence and an object, {weighed['pairs']:,}", pair, "bytes",
              64.0 if large else None, "at most"),
        Claim("the same with room to grow", weighed["with room"] / max(weighed["pairs"], 1),
              "bytes"),
    ]  # fmt: skip


EXPERIMENT = Experiment(
    name="fences",
    summary="fences from the outside: circles, regions that follow, polygons, and what is kept",
    settings=(
        Setting("parts", (CIRCLES, ROAMING, POLYGONS, KEPT), (CIRCLES, ROAMING, POLYGONS, KEPT),
                "what is measured"),
        Setting("turns", (4,), (4,), "how often each object reports a place in a run"),
        Setting("fences", (23_000,), (300,), "how many circles there are"),
        Setting("objects", (10_000,), (120,), "how many objects drive through them"),
        Setting("vehicles", (5_000,), (150,), "how many have a region of their own"),
        Setting("polygons", (100_000,), (400,), "how many polygons there are"),
        Setting("crowd", (100_000,), (200,), "how many objects drive through those"),
        Setting("many", (1_000_000,), (500,), "how many fences are weighed"),
        Setting("visits", (700,), (20,), "so many objects come into as many more fences"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(Figure("circles", "Positions through circles", CIRCLES, "rate", x="fences"),),
)  # fmt: skip
