"""`broker`: what a call of the broker costs, from the outside, with many subscriptions there.

Fixed subscriptions of ten predicates and a box each; events that a given number of them want, each
live for a second. Publishing one by one and many at once, subscribing from CQL2 text, subscribers
that move, and what is kept of events that are over.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Task, Trial
from nearcast.bootstrap import Broker
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Box, Point
from nearcast.model.subscriptions import Subscription

__all__ = ["EXPERIMENT"]

PUBLISH, SUBSCRIBE, MOVE, STRANGERS = "publish", "subscribe", "move", "publish strangers"

PUBLISH_READ, MANY_READ = "publish and read", "publish_many and read"

_LARGE = 100_000  # subscriptions at which targets count
_SIDE, _TOP = 1000.0, 1000.0  # the plane, and the highest value of an attribute
_NAMES = [f"a{i}" for i in range(10)]
_WIDTH = 0.98  # share of the events that pass one predicate, roughly
_LIFE = 1_000_000
_STEP = 1_000  # microseconds between two events
_MANY = 50_000  # strangers a run from which on memory must be flat

F8 = npt.NDArray[np.float64]
Pairs = list[tuple[str, str]]


class _Town:
    """Subscriptions and the places and values of events, with the pairs that match."""

    def __init__(self, plan: Plan, size: int, matches: float, more: int = 0) -> None:
        rng = np.random.default_rng(plan.seed)
        total = size + more
        self.size = size
        side = _SIDE * float(np.sqrt(matches / size / _WIDTH ** len(_NAMES)))
        corner = rng.uniform(0.0, _SIDE, (total, 2)) - side / 2
        self.low = np.column_stack([corner, np.floor(rng.uniform(0, 20, (total, len(_NAMES))))])
        self.high = np.column_stack([corner + side, self.low[:, 2:] + _WIDTH * _TOP])
        events = plan.number("events")
        values = np.floor(rng.uniform(0, _TOP, (events, len(_NAMES))))
        self.events = np.column_stack([rng.uniform(0.0, _SIDE, (events, 2)), values])

    def subscription(self, i: int) -> Subscription:
        low, high = self.low[i].tolist(), self.high[i].tolist()
        ranges = zip(_NAMES, low[2:], high[2:], strict=True)
        where = " AND ".join(f"{name} BETWEEN {a:g} AND {b:g}" for name, a, b in ranges)
        region = Box(low[0], low[1], high[0], high[1])
        return Subscription(f"s{i}", f"u{i % 1000}", where, (), region)

    def subscriptions(self, first: int, stop: int) -> list[Subscription]:
        return [self.subscription(i) for i in range(first, stop)]

    def event(self, i: int, id: str, end: int, life: int | None = _LIFE) -> Event:
        x, y, *values = self.events[i].tolist()
        expires = None if life is None else end + life
        attributes = dict(zip(_NAMES, values, strict=True))
        return Event(id, attributes, (), Point(x, y), None, end, expires)

    def broker(self) -> Broker:
        broker = Broker("planar")
        broker.subscribe_many(self.subscriptions(0, self.size))
        return broker

    def pairs(self, first: int, stop: int) -> set[tuple[int, int]]:
        """(event, subscription) by comparing all, for the subscriptions of a range."""
        low, high = self.low[first:stop], self.high[first:stop]
        found: set[tuple[int, int]] = set()
        for e, event in enumerate(self.events):
            near = np.flatnonzero((low[:, 0] <= event[0]) & (event[0] <= high[:, 0]))
            holds = ((low[near] <= event) & (event <= high[near])).all(axis=1)
            found |= {(e, first + s) for s in near[holds].tolist()}
        return found


def _trials(plan: Plan) -> Iterator[Trial]:
    parts = plan.texts("parts")
    for size in plan.numbers("subscriptions"):
        if "publish" in parts:
            for matches in plan.numbers("matches"):
                yield _publishing(plan, size, matches)
        if "subscribe" in parts:
            yield _subscribing(plan, size)
        if "move" in parts:
            yield _moving(plan, size)
    if "memory" in parts:
        yield _strangers(plan)


# --- publishing ----------------------------------------------------------------------------------


def _publishing(plan: Plan, size: int, matches: int) -> Trial:
    town = _Town(plan, size, max(matches, 1e-3))
    opened = partial(_Stream, town)
    return Trial(
        PUBLISH,
        (
            Contender("publish", lambda: opened().task(many=False)),
            Contender(PUBLISH_READ, lambda: opened().task(many=False, read=True)),
            Contender("publish_many", lambda: opened().task(many=True)),
            Contender(MANY_READ, lambda: opened().task(many=True, read=True)),
        ),
        lambda: town.pairs(0, size),
        {"subscriptions": size, "matches": matches},
        len(town.events),
        "event",
    )


class _Stream:
    """A broker, and the same events again and again under new ids, while time goes on."""

    def __init__(self, town: _Town) -> None:
        self.town, self.broker = town, town.broker()
        self.events: list[Event] = []
        self.round = 0

    def before(self) -> None:
        self.round += 1
        begin = self.round * len(self.town.events) * _STEP
        self.events = [
            self.town.event(i, f"{i}.{self.round}", begin + i * _STEP)
            for i in range(len(self.town.events))
        ]

    def task(self, *, many: bool, read: bool = False) -> Task:
        """`read`: every notification is looked at, too, which is when most are made."""

        def run() -> object:
            if many:
                replies = [self.broker.publish_many(self.events)]
            else:
                replies = [self.broker.publish(event) for event in self.events]
            return [*map(tuple, replies)] if read else replies

        return Task(run, before=self.before, answer=_pairs)


def _pairs(replies: Any) -> object:
    return {
        (int(told.event.id.split(".")[0]), int(told.subscription_id[1:]))
        for reply in replies
        for told in reply
    }


# --- subscribing ---------------------------------------------------------------------------------


def _subscribing(plan: Plan, size: int) -> Trial:
    more = plan.number("more")
    town = _Town(plan, size, 5, more)
    return Trial(
        SUBSCRIBE,
        (
            Contender("subscribe", lambda: _joining(plan, town, more, many=False)),
            Contender("subscribe_many", lambda: _joining(plan, town, more, many=True)),
        ),
        lambda: {pair for pair in town.pairs(size, size + more) if pair[0] < plan.number("live")},
        {"subscriptions": size},
        more,
        "subscription",
    )


def _joining(plan: Plan, town: _Town, more: int, *, many: bool) -> Task:
    """From the text on; some events are live, and told to whom they concern."""
    broker, first = town.broker(), town.size
    live = min(plan.number("live"), len(town.events))
    broker.publish_many([town.event(i, f"{i}.0", 0, None) for i in range(live)])
    given = town.subscriptions(first, first + more)
    said = [(each.id, each.subscriber, str(each.where), each.region) for each in given]

    def made() -> Iterator[Subscription]:
        return (Subscription(id, who, where, (), region) for id, who, where, region in said)

    def before() -> None:
        for each in given:
            if each.id in broker:
                broker.unsubscribe(each.id)

    def run() -> object:
        if many:
            return [broker.subscribe_many(made())]
        return [broker.subscribe(each) for each in made()]

    return Task(run, before=before, answer=_pairs)


# --- moving --------------------------------------------------------------------------------------


def _moving(plan: Plan, size: int) -> Trial:
    town = _Town(plan, size, 5)
    return Trial(
        MOVE,
        (Contender("move", lambda: _Walk(plan, town).task()),),
        lambda: True,
        {"subscriptions": size, "movers": plan.number("movers")},
        plan.number("movers"),
        "move",
    )


class _Walk:
    """Movers among live events; each report is somewhere else."""

    def __init__(self, plan: Plan, town: _Town) -> None:
        self.broker, self.radius = town.broker(), 20.0
        live = min(plan.number("live"), len(town.events))
        self.spots = town.events[:live, :2]
        self.rng = np.random.default_rng(plan.seed + 1)
        self.names = [f"m{i}" for i in range(plan.number("movers"))]
        for name in self.names:
            self.broker.subscribe(Subscription(name, name, region=Around(self.radius)))
        self.broker.publish_many([town.event(i, f"{i}.0", 0, None) for i in range(live)])
        self.told: set[tuple[str, int]] = set()
        self.places: F8 = np.empty((0, 2))

    def before(self) -> None:
        self.places = self.rng.uniform(0.0, _SIDE, (len(self.names), 2))

    def run(self) -> object:
        reports = zip(self.names, self.places.tolist(), strict=True)
        return [self.broker.move(name, Point(*place)) for name, place in reports]

    def answer(self, replies: Any) -> object:
        """Right if each was told of what is within reach and was not told before."""
        within = set()
        for name, place in zip(self.names, self.places, strict=True):
            near = np.hypot(*(self.spots - place).T) <= self.radius
            within |= {(name, e) for e in np.flatnonzero(near).tolist()}
        told = {(n.subscription_id, int(n.event.id.split(".")[0])) for r in replies for n in r}
        right = told == within - self.told
        self.told |= within
        return right

    def task(self) -> Task:
        return Task(self.run, before=self.before, answer=self.answer)


# --- memory --------------------------------------------------------------------------------------


def _strangers(plan: Plan) -> Trial:
    count = plan.number("strangers")
    return Trial(
        STRANGERS,
        (Contender("publish_many", lambda: _passing(count)),),
        lambda: count,
        {"strangers": count},
        count,
        "event",
    )


def _passing(count: int) -> Task:
    """Events that nobody has seen before, with an id, a word and a string of their own."""
    broker = Broker("planar")
    broker.subscribe(Subscription("s", "ann", "name = 'nobody' OR a0 >= 0", (), None))
    seen: list[int] = []
    first = [0]

    def run() -> object:
        told = 0
        for start in range(first[0], first[0] + count, 1000):
            stop = min(start + 1000, first[0] + count)
            told += len(broker.publish_many([_stranger(i) for i in range(start, stop)]))
        first[0] += count
        seen.append(_resident())
        return told

    def memory() -> Mapping[str, int]:
        kept = sum(matcher.memory()["total"] for matcher in _matchers(broker))
        return {"resident, first": seen[0], "resident, last": seen[-1], "matchers": kept,
                "runs": len(seen)}  # fmt: skip

    return Task(run, memory=memory)


def _matchers(broker: Broker) -> tuple[Any, Any]:
    return broker._subscriptions._matcher, broker._live._matcher


def _stranger(i: int) -> Event:
    end = i * _STEP
    return Event(f"e{i}", {"a0": 1, "name": f"n{i}"}, {f"w{i}"}, Point(1, 1), None, end,
                 end + _LIFE)  # fmt: skip


def _resident() -> int:
    """Bytes of this process at their highest."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# --- claims --------------------------------------------------------------------------------------


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    each: dict[tuple[str, int], dict[int, float]] = {}
    for m in measurements:
        size = int(m.parameters.get("subscriptions", 0))
        micros = 1e6 * m.spread.median / m.work
        if m.operation == PUBLISH:
            each.setdefault((m.contender, size), {})[int(m.parameters["matches"])] = micros
        elif m.operation == SUBSCRIBE:
            target = {"subscribe": 20_000.0, "subscribe_many": 60_000.0}[m.contender]
            name = f"{m.contender}, {size:,} there"
            claims.append(Claim(name, m.rate, "/s", target if size == _LARGE else None))
        elif m.operation == MOVE:
            claims.append(Claim(f"move, {size:,} there", micros, "µs"))
        else:
            claims.append(_flat(m))
    for (contender, size), by_matches in each.items():
        claims += _publishing_claims(contender, size, by_matches)
    return claims


def _publishing_claims(contender: str, size: int, by_matches: Mapping[int, float]) -> list[Claim]:
    large, there = size == _LARGE, f"{size:,} there"
    few, many = min(by_matches), max(by_matches)
    if contender in ("publish_many", MANY_READ):
        rate = 1e6 / by_matches[many]
        target = 100_000.0 if large and contender == "publish_many" else None
        return [Claim(f"{contender}, {many} matches, {there}", rate, "events/s", target)]
    base = by_matches[few]
    if contender == PUBLISH_READ:
        more = (by_matches[many] - base) / max(many - few, 1)
        return [Claim(f"a notification that is read, {there}", more, "µs")]
    name = f"publish, {few} matches, {there}"
    claims = [Claim(name, base, "µs", 30.0 if large else None, "at most")]
    if many > few:
        more = (by_matches[many] - base) / (many - few)
        name = f"a notification, {there}"
        claims.append(Claim(name, more, "µs", 1.5 if large else None, "at most"))
    return claims


def _flat(m: Measurement) -> Claim:
    count = int(m.parameters["strangers"]) * max(m.memory["runs"] - 1, 1)
    grown = (m.memory["resident, last"] - m.memory["resident, first"]) / count
    target = 2.0 if int(m.parameters["strangers"]) >= _MANY else None
    return Claim("resident memory a stranger, after the first run", grown, "bytes", target,
                 "at most")  # fmt: skip


EXPERIMENT = Experiment(
    name="broker",
    summary="the broker from the outside: publish, subscribe, move, and what is kept",
    settings=(
        Setting("parts", ("publish", "subscribe", "move", "memory"),
                ("publish", "subscribe", "move", "memory"), "what is measured"),
        Setting("subscriptions", (10_000, 100_000), (300, 600), "how many are there"),
        Setting("matches", (0, 5), (0, 5), "how many want an event, on average"),
        Setting("events", (4_000,), (60,), "how many are published"),
        Setting("more", (4_000,), (40,), "how many subscribe"),
        Setting("live", (1_000,), (20,), "how many events are live when they do, or move"),
        Setting("movers", (500,), (10,), "how many subscribers move"),
        Setting("strangers", (200_000,), (300,), "how many events pass through, each run"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure("publish", "Publishing", PUBLISH, "rate", x="subscriptions"),
        Figure("subscribe", "Subscribing", SUBSCRIBE, "rate", x="subscriptions"),
    ),
)  # fmt: skip
