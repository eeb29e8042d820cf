"""`serve`: the server from outside: a process of its own on a file, the load beside it.

The plane is cut into tiles, each wanted by a fixed number of subscriptions, so that every event
in the middle of one has just as many notifications, as each row says. Beside rates stands the
processor time that the server took, since the load has a core of the same machine.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nearcast.bench.experiments.base import Experiment, Plan, Setting
from nearcast.bench.load import Posts, Process, Sockets, request
from nearcast.bench.plots import Figure
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Task, Timed, Trial
from nearcast.bootstrap import Broker
from nearcast.model.geometry import Around, Box
from nearcast.model.subscriptions import Subscription

__all__ = ["EXPERIMENT"]

POST, TELL, MOVE, RESTART, CONNECT = "post", "tell", "move", "restart", "connect"
_SIDE = 1000.0
_PEOPLE = 1000
_SINGLE, _BATCH = "single, 64 connections", "batches of 100"
Pairs = set[tuple[int, int]]


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Runs of at most so many."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


class _Tiles:
    """Subscriptions to the tiles of a plane: each tile is wanted by `each` of them."""

    def __init__(self, size: int, each: int) -> None:
        self.size, self.each = size, each
        self.across = max(1, int((size / each) ** 0.5))
        self.count = self.across**2
        self.step = _SIDE / self.across

    def corner(self, tile: int) -> tuple[float, float]:
        return tile % self.across * self.step, tile // self.across * self.step

    def subscriptions(self) -> Iterator[Subscription]:
        for number in range(self.count * self.each):
            x, y = self.corner(number // self.each)
            inside = Box(x, y, x + 0.9 * self.step, y + 0.9 * self.step)
            yield Subscription(f"s{number}", f"u{number % _PEOPLE}", "price < 100", (), inside)

    def wanting(self, tile: int) -> range:
        return range(tile * self.each, (tile + 1) * self.each)

    def feature(self, tile: int, id: str) -> dict[str, Any]:
        x, y = (low + 0.4 * self.step for low in self.corner(tile))
        place = {"type": "Point", "coordinates": [x, y]}
        return {"type": "Feature", "id": id, "geometry": place, "properties": {"price": 5}}


class _Served:
    """A server on a new file that already holds some subscriptions."""

    def __init__(self, subscriptions: Iterator[Subscription]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))
        self.store = self.folder / "bench.db"
        with Broker.open(self.store, "planar") as broker:
            for some in _batches(subscriptions, 20_000):
                broker.subscribe_many(some)
        self.process = Process(self.store)
        self.cpu_s: list[float] = []

    def timed(self, work: Callable[[], object]) -> Timed:
        """Seconds of some work, and what it cost the server meanwhile."""
        cpu, started = self.process.cpu_s, time.perf_counter()
        value = work()
        elapsed = time.perf_counter() - started
        self.cpu_s.append(self.process.cpu_s - cpu)
        return Timed(elapsed, value)

    def cost(self, work: int) -> dict[str, int]:
        """Microseconds of the server's processor for a unit, after the warm-up."""
        taken = self.cpu_s[1:] or self.cpu_s
        return {"cpu µs": round(1e6 * sum(taken) / len(taken) / work)}

    def close(self) -> None:
        self.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _trials(plan: Plan) -> Iterator[Trial]:
    parts, size, events = plan.texts("parts"), plan.number("subscriptions"), plan.number("events")
    if POST in parts:
        each = plan.number("notifications")
        named = {"subscriptions": size, "notifications": each}
        tiles = _Tiles(size, each)
        ways = ((_SINGLE, 64, 1), (_BATCH, 4, 100))
        contenders = tuple(
            Contender(name, partial(_posting, plan, tiles, lines, together))
            for name, lines, together in ways
        )
        yield Trial(POST, contenders, lambda: _pairs(plan, tiles), named, events, "event")
    if TELL in parts:
        tiles = _Tiles(_PEOPLE * 4, 20)
        named = {"sockets": _PEOPLE, "notifications": tiles.each}
        telling = Contender("websocket", partial(_telling, plan, tiles))
        work = events * tiles.each
        yield Trial(TELL, (telling,), lambda: _pairs(plan, tiles), named, work, "notification")
    if MOVE in parts:
        movers = plan.number("movers")
        moving = Contender("websocket", partial(_moving, plan, movers))
        yield Trial(MOVE, (moving,), lambda: movers, {"movers": movers}, movers, "move")
    if CONNECT in parts:
        count = plan.number("sockets")
        idle = Contender("websocket", partial(_connecting, count))
        yield Trial(CONNECT, (idle,), lambda: count, {"sockets": count}, count, "socket", 1)
    if RESTART in parts:
        count = plan.number("restart")
        ways_back = tuple(Contender(name, partial(_restarting, name, count)) for name in _BACK)
        named = {"subscriptions": count}
        yield Trial(RESTART, ways_back, lambda: 4, named, 1, "restart", 3)


def _chosen(plan: Plan, tiles: _Tiles) -> list[int]:
    """In which tile each event of a round is."""
    rng = np.random.default_rng(plan.seed)
    return [int(tile) for tile in rng.integers(0, tiles.count, plan.number("events"))]


def _pairs(plan: Plan, tiles: _Tiles) -> Pairs:
    found = enumerate(_chosen(plan, tiles))
    return {(number, each) for number, tile in found for each in tiles.wanting(tile)}


# --- publishing ----------------------------------------------------------------------------------


class _Round:
    """The events of a round under new ids, as requests of some size."""

    def __init__(self, plan: Plan, tiles: _Tiles, together: int) -> None:
        self.tiles, self.tiled, self.together = tiles, _chosen(plan, tiles), together
        self.number = 0

    def requests(self) -> list[bytes]:
        self.number += 1
        said = [self.tiles.feature(tile, f"{n}.{self.number}") for n, tile in enumerate(self.tiled)]
        if self.together == 1:
            return [request("POST", "/events", each) for each in said]
        return [
            request("POST", "/events", {"type": "FeatureCollection", "features": some})
            for some in _batches(said, self.together)
        ]


def _pair(told: Any) -> tuple[int, int]:
    """The event and the subscription of a notification."""
    return int(told["event"]["id"].split(".")[0]), int(told["subscription"][1:])


def _posting(plan: Plan, tiles: _Tiles, connections: int, together: int) -> Task:
    served = _Served(tiles.subscriptions())
    posts = Posts(served.process.address, connections)
    events = _Round(plan, tiles, together)
    ready: list[list[bytes]] = []
    read = dict.fromkeys((f"u{number}" for number in range(_PEOPLE)), 0)

    def pulled(_: object) -> Pairs:
        """What everybody was told, once each; acknowledged, so that the next round begins anew."""
        found: list[Any] = []
        waiting = dict(read)
        while waiting:
            asked = (
                request("GET", f"/subscribers/{who}/notifications?after={after}")
                for who, after in waiting.items()
            )
            waiting = {}
            for page in posts.send(asked):
                told = page["notifications"]
                found += told
                if told:
                    who = told[0]["subscriber"]
                    assert [each["seq"] for each in told] == list(
                        range(read[who] + 1, read[who] + 1 + len(told))
                    )
                    waiting[who] = read[who] = page["next"]
        acks = (
            request("POST", f"/subscribers/{who}/ack", {"upto": upto})
            for who, upto in read.items()
            if upto
        )
        posts.send(acks)
        pairs = [_pair(told) for told in found]
        assert len(pairs) == len(set(pairs))
        return set(pairs)

    def close() -> None:
        posts.close()
        served.close()

    return Task(
        lambda: served.timed(lambda: posts.send(ready.pop())),
        before=lambda: ready.append(events.requests()),
        answer=pulled,
        memory=lambda: served.cost(plan.number("events")),
        close=close,
    )


# --- telling -------------------------------------------------------------------------------------


def _telling(plan: Plan, tiles: _Tiles) -> Task:
    served = _Served(tiles.subscriptions())
    sockets = Sockets(served.process.address, [f"u{number}" for number in range(_PEOPLE)])
    publisher = Posts(served.process.address, 1)
    events = _Round(plan, tiles, 100)
    ready: list[list[bytes]] = []
    awaited = plan.number("events") * tiles.each

    def run() -> object:
        frames: list[bytes] = []
        seen = 0

        def taken(_: int, text: bytes) -> None:
            nonlocal seen
            if b'"notifications"' in text:
                frames.append(text)
                seen += text.count(b'"seq":')

        for each in ready.pop():
            publisher.send([each])
            sockets.pump(taken, 0.0)
        while seen < awaited:
            sockets.pump(taken)
        return frames

    def answer(frames: Any) -> Pairs:
        pairs = [_pair(told) for each in frames for told in json.loads(each)["notifications"]]
        assert len(pairs) == len(set(pairs))
        return set(pairs)

    def close() -> None:
        sockets.close()
        publisher.close()
        served.close()

    return Task(
        lambda: served.timed(run), before=lambda: ready.append(events.requests()), answer=answer,
        memory=lambda: served.cost(awaited), close=close,
    )  # fmt: skip


# --- moving --------------------------------------------------------------------------------------


def _moving(plan: Plan, movers: int) -> Task:
    """Each of many subscribers reports a place, a hundred at a time; events are live about them."""
    names = [f"m{number}" for number in range(movers)]
    reach = 20.0
    served = _Served(Subscription(name, name, region=Around(reach)) for name in names)
    lines = 100
    sockets = Sockets(served.process.address, [None] * lines)
    posts = Posts(served.process.address, 1)
    rng = np.random.default_rng(plan.seed)
    spots = rng.uniform(0.0, _SIDE, (plan.number("live"), 2)).tolist()
    events = [
        {"type": "Feature", "id": f"e{number}", "properties": {},
         "geometry": {"type": "Point", "coordinates": spot}}
        for number, spot in enumerate(spots)
    ]  # fmt: skip
    posts.send([request("POST", "/events", {"type": "FeatureCollection", "features": events})])
    places: list[list[float]] = []

    def before() -> None:
        places[:] = rng.uniform(0.0, _SIDE, (movers, 2)).tolist()

    def run() -> object:
        waiting = iter(zip(names, places, strict=True))
        done = 0

        def report(line: int) -> None:
            each = next(waiting, None)
            if each is not None:
                frame = {"type": "place", "subscriber": each[0], "coordinates": each[1], "ref": 1}
                sockets.say(line, frame)

        def taken(line: int, text: bytes) -> None:
            nonlocal done
            if b'"done"' in text and b'"safe_region"' in text:
                done += 1
                report(line)

        for line in range(lines):
            report(line)
        while done < movers:
            sockets.pump(taken)
        return done

    def close() -> None:
        sockets.close()
        posts.close()
        served.close()

    return Task(
        lambda: served.timed(run), before=before, memory=lambda: served.cost(movers), close=close
    )


# --- connections ---------------------------------------------------------------------------------


def _connecting(count: int) -> Task:
    served = _Served(_Tiles(100, 1).subscriptions())
    grown: list[int] = []
    held: list[Sockets] = []

    def run() -> object:
        before = served.process.resident
        held.append(Sockets(served.process.address, [f"u{number}" for number in range(count)]))
        grown.append((served.process.resident - before) // count)
        return count

    def before() -> None:
        for each in held:
            each.close()
        held.clear()

    def close() -> None:
        before()
        served.close()

    return Task(run, before=before, memory=lambda: {"bytes": max(grown)}, close=close)


# --- restarting ----------------------------------------------------------------------------------

_BACK = ("from the snapshot", "from rows")


def _restarting(way: str, count: int) -> Task:
    """From the start of the process until it answers, with the matcher saved or not."""
    tiles = _Tiles(count, 4)
    served = _Served(tiles.subscriptions())
    served.process.stop()

    def before() -> None:
        if way == "from rows":
            for saved in served.folder.glob("*-matcher-*"):
                shutil.rmtree(saved) if saved.is_dir() else saved.unlink()

    number = [0]

    def run() -> Timed:
        served.process = Process(served.store)
        posts = Posts(served.process.address, 1)
        number[0] += 1
        tile = tiles.count // 2
        posts.send([request("POST", "/events", tiles.feature(tile, f"e{number[0]}"))])
        told = 0
        for each in tiles.wanting(tile):
            path = f"/subscribers/u{each % _PEOPLE}/notifications"
            (page,) = posts.send([request("GET", path)])
            found = page["notifications"]
            told += (f"s{each}", f"e{number[0]}") in {
                (one["subscription"], one["event"]["id"]) for one in found
            }
            upto = {"upto": page["next"]}
            posts.send([request("POST", path.replace("notifications", "ack"), upto)])
        posts.close()
        ready_s = served.process.ready_s
        served.process.stop()
        return Timed(ready_s, told)

    return Task(run, before=before, close=served.close)


# --- claims --------------------------------------------------------------------------------------


#: By what is measured and how: the goal, and how many units a round must have for it to count.
_GOALS = {
    (POST, _SINGLE): (3_000.0, 6_000),
    (POST, _BATCH): (8_000.0, 6_000),
    (TELL, "websocket"): (30_000.0, 100_000),
    (MOVE, "websocket"): (800.0, 2_000),
}
_MOST_BYTES, _MANY = 40_000.0, 1_000
_BACK_S, _LARGE = {"from the snapshot": 5.0, "from rows": 60.0}, 1_000_000


def _claims(measurements: Sequence[Measurement]) -> list[Claim]:
    claims: list[Claim] = []
    for m in measurements:
        point = ", ".join(f"{value:,} {name}" for name, value in m.parameters.items())
        name = f"{m.operation}, {m.contender} ({point})"
        if m.operation == RESTART:
            large = int(m.parameters["subscriptions"]) >= _LARGE
            goal = _BACK_S[m.contender] if large else None
            claims.append(Claim(name, m.spread.median, "s", goal, "at most"))
        elif m.operation == CONNECT:
            most = _MOST_BYTES if m.work >= _MANY else None
            claims.append(Claim(name, m.memory["bytes"], "bytes a socket", most, "at most"))
        else:
            rate, least = _GOALS[m.operation, m.contender]
            claims.append(Claim(name, m.rate, f"{m.unit}s/s", rate if m.work >= least else None))
            cost = m.memory["cpu µs"]
            claims.append(Claim(f"{name}: the server", cost, f"CPU-µs a {m.unit}"))
    return claims


_PARTS = (POST, TELL, MOVE, CONNECT, RESTART)

EXPERIMENT = Experiment(
    name="serve",
    summary="the server from outside: events in, notifications out, moves, connections, restarts",
    settings=(
        Setting("parts", _PARTS, (POST, TELL, MOVE, CONNECT, RESTART), "what is measured"),
        Setting("subscriptions", (100_000,), (400,), "how many are there"),
        Setting("notifications", (4,), (4,), "how many an event has"),
        Setting("events", (6_000,), (200,), "how many are published, each round"),
        Setting("movers", (2_000,), (120,), "how many subscribers move"),
        Setting("live", (1_000,), (50,), "how many events are live about them"),
        Setting("sockets", (1_000,), (20,), "how many connections are idle"),
        Setting("restart", (1_000_000,), (400,), "subscriptions of a server that starts again"),
    ),
    trials=_trials,
    claims=_claims,
    figures=(
        Figure("post", "Events, each on disk when it is answered", POST, "rate"),
        Figure("tell", "Notifications over WebSockets", TELL, "rate"),
    ),
)
