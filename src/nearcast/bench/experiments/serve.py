"""`serve`: the server from outside: a process of its own on a file, the load beside it.

How many notifications an event has is fixed, and each row says it. Beside rates stands the
processor time that the server took, since the load has a core of the same machine. What is done
to it is in `nearcast.bench.serving`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.experiments.fences import _Circles
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.serving.crossing import crossing
from nearcast.bench.serving.hooking import HOOKS, beside, hooking
from nearcast.bench.serving.keeping import ROWS, SNAPSHOT, connecting, delivering, restarting
from nearcast.bench.serving.moving import moving
from nearcast.bench.serving.piping import piping
from nearcast.bench.serving.publishing import posting, telling
from nearcast.bench.serving.served import PEOPLE, Served
from nearcast.bench.serving.tiles import Tiles, pairs
from nearcast.bench.serving.town import living
from nearcast.bench.trial import Contender, Trial

__all__ = ["EXPERIMENT"]

POST, TELL, TOWN, FENCES, MOVE = "post", "tell", "town", "fences", "move"
RESTART, CONNECT, PAIRS = "restart", "connect", "pairs"
WEBHOOKS, DEAD = "webhooks", "dead"
KAFKA = "kafka"
"""Not among the parts unless it is asked for: it needs Java, and Kafka's jars."""
_PARTS = (POST, TELL, TOWN, FENCES, MOVE, RESTART, CONNECT, PAIRS, WEBHOOKS, DEAD)
_SINGLE, _BATCH, _SOCKETS = "single, 64 connections", "batches of 100", "websocket"
_BATCHES = "batches"
_TOPICS = "topic to topic"
_ORDERED, _FLYING, _MANY = "one, in order", "one, 8 on their way", f"{HOOKS}, in order"
_ALIVE, _ONE_DEAD = "all answer", "one never does"


def _trials(plan: Plan) -> Iterator[Trial]:
    parts = plan.texts("parts")
    (Served.kind,) = plan.texts("store")
    makers = {
        POST: _post, TELL: _tell, TOWN: _town, FENCES: _fences, MOVE: _move, RESTART: _restart,
        CONNECT: _connect, PAIRS: _pairs, WEBHOOKS: _webhooks, DEAD: _dead, KAFKA: _kafka,
    }  # fmt: skip
    for part, make in makers.items():
        if part in parts:
            yield make(plan)


def _post(plan: Plan) -> Trial:
    size, each = plan.number("subscriptions"), plan.number("notifications")
    tiles = Tiles(size, each)
    ways = ((_SINGLE, 64, 1), (_BATCH, 4, 100))
    contenders = tuple(
        Contender(name, partial(posting, plan, tiles, lines, together))
        for name, lines, together in ways
    )
    named = {"subscriptions": size, "notifications": each}
    return Trial(
        POST, contenders, lambda: pairs(plan, tiles), named, plan.number("events"), "event"
    )


def _tell(plan: Plan) -> Trial:
    tiles = Tiles(PEOPLE * 4, 20)
    named = {"sockets": PEOPLE, "notifications": tiles.each}
    work = plan.number("events") * tiles.each
    way = Contender(_SOCKETS, partial(telling, plan, tiles))
    return Trial(TELL, (way,), lambda: pairs(plan, tiles), named, work, "notification")


def _town(plan: Plan) -> Trial:
    rate, seconds = plan.number("rate"), plan.number("seconds")
    named = {
        "movers": plan.number("people"),
        "events/s": rate,
        "s": seconds,
        "kinds": plan.number("kinds"),
    }
    way = Contender(_SOCKETS, partial(living, plan))
    return Trial(TOWN, (way,), lambda: 0, named, rate * seconds, "event", 1)


def _fences(plan: Plan) -> Trial:
    circles = _Circles(plan)
    work = circles.objects * plan.number("turns")
    told = len(circles.truth())
    named = {
        "fences": circles.count, "objects": circles.objects,
        "notifications": round(told / work, 2),
    }  # fmt: skip
    way = Contender(_BATCHES, partial(crossing, circles))
    return Trial(FENCES, (way,), circles.truth, named, work, "update")


def _move(plan: Plan) -> Trial:
    movers, live = plan.number("movers"), plan.number("live")
    way = Contender(_SOCKETS, partial(moving, plan, movers))
    return Trial(MOVE, (way,), lambda: movers, {"movers": movers, "live": live}, movers, "move")


def _restart(plan: Plan) -> Trial:
    count = plan.number("restart")
    ways = tuple(Contender(way, partial(restarting, way, count)) for way in (SNAPSHOT, ROWS))
    return Trial(RESTART, ways, lambda: 4, {"subscriptions": count}, 1, "restart", 3)


def _connect(plan: Plan) -> Trial:
    count = plan.number("sockets")
    idle = Contender(_SOCKETS, partial(connecting, count))
    return Trial(CONNECT, (idle,), lambda: count, {"sockets": count}, count, "socket", 1)


def _pairs(plan: Plan) -> Trial:
    tiles = Tiles(PEOPLE * 4, 40)
    work = plan.number("events") * tiles.each
    way = Contender("pulled and acknowledged", partial(delivering, plan, tiles))
    return Trial(PAIRS, (way,), lambda: work, {"notifications": tiles.each}, work, "pair", 3)


def _kafka(plan: Plan) -> Trial:
    size, each, people = (plan.number(name) for name in ("subscriptions", "notifications", "sinks"))
    tiles = Tiles(size, each)
    named = {"subscriptions": size, "notifications": each, "sinks": people}
    way = Contender(_TOPICS, partial(piping, plan, tiles))
    return Trial(KAFKA, (way,), lambda: pairs(plan, tiles), named, plan.number("events"), "event")


def _webhooks(plan: Plan) -> Trial:
    ways = ((_ORDERED, 1, 1), (_FLYING, 1, 8), (_MANY, HOOKS, 1))
    contenders = tuple(
        Contender(name, partial(hooking, plan, sinks, flight)) for name, sinks, flight in ways
    )
    count = plan.number("events")
    return Trial(WEBHOOKS, contenders, lambda: count, {}, count, "webhook")


def _dead(plan: Plan) -> Trial:
    told, seconds = plan.number("told"), plan.number("hooked")
    contenders = tuple(
        Contender(name, partial(beside, plan, dead))
        for name, dead in ((_ALIVE, False), (_ONE_DEAD, True))
    )
    named = {"webhooks": HOOKS, "notifications/s over sockets": told, "s": seconds}
    return Trial(DEAD, contenders, lambda: 0, named, max(1, told * seconds), "notification", 3)


# --- claims --------------------------------------------------------------------------------------


#: By what is measured and how: the goal, and how many units a round must have for it to count.
_GOALS = {
    (POST, _SINGLE): (3_000.0, 6_000),
    (POST, _BATCH): (8_000.0, 6_000),
    (TELL, _SOCKETS): (30_000.0, 100_000),
    (FENCES, _BATCHES): (15_000.0, 40_000),
    (MOVE, _SOCKETS): (800.0, 2_000),
    (KAFKA, _TOPICS): (5_000.0, 20_000),
    (WEBHOOKS, _ORDERED): (2_000.0, 6_000),
    (WEBHOOKS, _FLYING): (2_000.0, 6_000),
    (WEBHOOKS, _MANY): (2_000.0, 6_000),
}
_WORSE, _LONG = 1.2, 100_000
_MOST_BYTES = {CONNECT: (40_000.0, 1_000, "a socket"), PAIRS: (16.0, 200_000, "a pair")}
_BACK_S, _LARGE = {SNAPSHOT: 5.0, ROWS: 60.0}, 1_000_000
#: In a minute of 500 events a second: milliseconds from the publication to its notifications.
_DELAYS, _MINUTE = {"p50": 5.0, "p99": 40.0}, 30_000


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    for m in measurements:
        point = ", ".join(f"{value:,} {name}" for name, value in m.parameters.items())
        name = f"{m.operation}, {m.contender} ({point})"
        if m.operation == RESTART:
            large = int(m.parameters["subscriptions"]) >= _LARGE
            goal = _BACK_S[m.contender] if large else None
            claims.append(Claim(name, m.spread.median, "s", goal, "at most"))
        elif m.operation in _MOST_BYTES:
            most, least, each = _MOST_BYTES[m.operation]
            goal = most if m.work >= least else None
            claims.append(Claim(name, m.memory["bytes"], f"bytes {each}", goal, "at most"))
        elif m.operation == TOWN:
            claims += _delays(m, name)
        elif m.operation == DEAD:
            claims += [
                Claim(f"{name}: {what.removesuffix(' µs')}", value / 1000, "ms")
                for what, value in m.memory.items()
                if what.endswith(" µs") and what != "cpu µs"
            ]
            claims.append(_cost(m, name))
        else:
            rate, least = _GOALS[m.operation, m.contender]
            claims.append(Claim(name, m.rate, f"{m.unit}s/s", rate if m.work >= least else None))
            claims.append(_cost(m, name))
    return [*claims, *_beside_the_dead(measurements)]


def _beside_the_dead(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    """What one that never answers does to the others."""
    found = {m.contender: m for m in measurements if m.operation == DEAD}
    if found.keys() != {_ALIVE, _ONE_DEAD}:
        return
    goal = _WORSE if found[_ALIVE].work >= _LONG else None
    for who in ("hooks", "sockets"):
        with_dead, without = (found[each].memory[f"{who} p99 µs"] for each in (_ONE_DEAD, _ALIVE))
        name = f"{DEAD}: p99 of the other {who}, by what it is if all answer"
        yield Claim(name, with_dead / max(1, without), "×", goal, "at most")


def _cost(m: Measurement, name: str) -> Claim:
    return Claim(f"{name}: the server", m.memory["cpu µs"], f"CPU-µs {_a(m.unit)}")


def _a(unit: str) -> str:
    return f"{'an' if unit[0] in 'aeiou' else 'a'} {unit}"


def _delays(m: Measurement, name: str) -> Iterator[Claim]:
    counts = m.work >= _MINUTE
    for share, most in _DELAYS.items():
        delay = m.memory[f"{share} µs"] / 1000
        yield Claim(f"{name}: {share}", delay, "ms", most if counts else None, "at most")
    yield Claim(f"{name}: never told", m.memory["lost"], "pairs", 0 if counts else None, "at most")
    for what in ("told", "reports"):
        yield Claim(f"{name}: {what}", m.memory[f"{what} of 1000"] / 1000, "an event")
    yield _cost(m, name)


EXPERIMENT = Experiment(
    name="serve",
    summary="the server from outside: events in, notifications out, moves, connections, restarts",
    settings=(
        Setting("parts", _PARTS, _PARTS, "what is measured; kafka, too, if it is asked for"),
        Setting("store", ("sqlite",), ("sqlite",), "where things are: sqlite or postgresql"),
        Setting("subscriptions", (100_000,), (400,), "how many are there"),
        Setting("notifications", (4,), (4,), "how many an event has"),
        Setting("events", (6_000,), (200,), "how many are published, each round"),
        Setting("sinks", (1_000,), (10,), "how many subscribers have a topic of Kafka for a sink"),
        Setting("jars", ("",), ("",), "a folder with Kafka's jars; by itself the tests' own"),
        Setting("people", (2_000,), (60,), "how many are about in town"),
        Setting("kinds", (200,), (2,), "of events, of which everybody wants one"),
        Setting("rate", (500,), (40,), "events a second there"),
        Setting("seconds", (60,), (3,), "how long that lasts"),
        Setting("fences", (23_000,), (300,), "how many circles there are"),
        Setting("objects", (10_000,), (120,), "how many objects drive through them"),
        Setting("turns", (4,), (4,), "how often each reports a place in a round"),
        Setting("movers", (2_000,), (120,), "how many subscribers move"),
        Setting("live", (1_000,), (50,), "how many events are live about them"),
        Setting("sockets", (1_000,), (20,), "how many connections are idle"),
        Setting("told", (10_000,), (200,), "notifications a second over sockets beside webhooks"),
        Setting("hooked", (20,), (2,), "how many seconds that lasts"),
        Setting("restart", (1_000_000,), (400,), "subscriptions of a server that starts again"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure("post", "Events, each on disk when it is answered", POST, "rate"),
        Figure("tell", "Notifications over WebSockets", TELL, "rate"),
    ),
)
