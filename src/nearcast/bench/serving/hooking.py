"""Notifications out to webhooks: how many, and what one that is dead does to the others.

Events of the second come on time whatever the server does, as people in town have them: beside
what the hooks get, sockets get as much as is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nearcast.bench.experiments.base import Plan
from nearcast.bench.load import Hooks, Posts, Sockets, request
from nearcast.bench.serving.served import Served, batches
from nearcast.bench.trial import Task
from nearcast.errors import BenchError
from nearcast.model.subscriptions import Subscription

__all__ = ["HOOKS", "beside", "hooking"]

#: Webhooks, of which one may be dead.
HOOKS = 100
_EACH = 20  # sockets that hear of an event
_PUBLISHERS, _TOGETHER, _TICK_S = 4, 100, 0.01
_PATIENCE_S, _END_S = 120.0, 2.0


def _begin(served: Served, hooks: Hooks, wanted: dict[str, dict[str, Any]]) -> None:
    """Subscriptions that send to hooks, each to its own."""
    posts = Posts(served.process.address, _PUBLISHERS)
    posts.send(
        request(
            "PUT", f"/subscriptions/{name}",
            {"subscriber": name, "sink": hooks.url(name)} | said,
        )
        for name, said in wanted.items()
    )  # fmt: skip
    posts.close()


def _number(body: bytes) -> int:
    """Which event a notification is of."""
    return _after(b'"id":"e', b'"', body)


def _after(what: bytes, end: bytes, body: bytes) -> int:
    at = body.index(what) + len(what)
    return int(body[at : body.index(end, at)])


def _features(first: int, count: int, **more: Callable[[int], Any]) -> Iterator[dict[str, Any]]:
    for n in range(first, first + count):
        said = {name: of(n) for name, of in more.items()}
        yield {"type": "Feature", "id": f"e{n}", "geometry": None, "properties": said}


def _until(what: Callable[[], bool]) -> None:
    until = time.perf_counter() + _PATIENCE_S
    while not what():
        if time.perf_counter() > until:
            raise BenchError("webhooks did not get what they wanted")
        time.sleep(0.001)


def hooking(plan: Plan, sinks: int, flight: int) -> Task:
    """Batches of events, each told to one of some hooks."""
    served, hooks = Served((), sink_private="true"), Hooks()
    settings = {"protocolsettings": {"flight": flight}}
    _begin(served, hooks, {
        f"h{i}": {"filters": [{"cql2": f"hook = {i}"}], **settings} for i in range(sinks)
    })  # fmt: skip
    posts = Posts(served.process.address, _PUBLISHERS)
    count, ready = plan.number("events"), list[list[bytes]]()
    first = 0

    def before() -> None:
        nonlocal first
        hooks.clear()
        made = _features(first, count, hook=lambda n: n % sinks)
        first += count
        ready.append([
            request("POST", "/events", {"type": "FeatureCollection", "features": some})
            for some in batches(made, _TOGETHER)
        ])  # fmt: skip

    def run() -> int:
        posts.send(ready.pop())
        _until(lambda: hooks.count >= count)
        return first

    def answer(_: object) -> int:
        if flight == 1:
            for name in (f"h{i}" for i in range(sinks)):
                seqs = [_after(b'"seq":', b",", body) for _, body in hooks.of(name)]
                first_seq = seqs[0] if seqs else 0
                whole = [*range(first_seq, first_seq + len(seqs))]
                assert seqs == whole, "a webhook lacks something, or has it out of order"
        return len({_number(body) for came in hooks.came.values() for _, body in came})

    def close() -> None:
        posts.close()
        served.close()
        hooks.close()

    return Task(
        lambda: served.timed(run), before=before, answer=answer,
        memory=lambda: served.cost(count), close=close,
    )  # fmt: skip


class _Beside:
    """A hundred hooks, and sockets, at a rate."""

    def __init__(self, plan: Plan, dead: bool) -> None:
        self.rate = max(1, plan.number("told") // _EACH)
        self.seconds = plan.number("hooked")
        groups = max(1, plan.number("sockets") // _EACH)
        self.groups, self.people = groups, groups * _EACH
        self.served = Served(
            (
                Subscription(f"s{i}", f"p{i}", f"grp = {i % groups}")
                for i in range(self.people)
            ),
            sink_private="true",
        )  # fmt: skip
        self.dead = "h0" if dead else None
        self.hooks = Hooks(() if self.dead is None else (self.dead,))
        wanted = {f"h{i}": {"filters": [{"cql2": f"hook = {i}"}]} for i in range(HOOKS)}
        _begin(self.served, self.hooks, wanted)
        address = self.served.process.address
        self.sockets = Sockets(address, [f"p{i}" for i in range(self.people)])
        self.posts = Posts(address, _PUBLISHERS)
        self.work = self.rate * self.seconds * (_EACH + 1)
        self.first = 0
        self.delays: dict[str, list[float]] = {"hooks": [], "sockets": []}
        self.warm = True

    def run(self) -> int:
        """Some seconds of it; how many notifications got nowhere they should have got."""
        self.hooks.clear()
        begun, first = time.perf_counter(), self.first
        count = int(self.rate * (2 if self.warm else self.seconds))
        published, told = 0, list[float]()

        def due(number: int) -> float:
            return begun + (number - first) / self.rate

        def taken(_: int, text: bytes) -> None:
            if b'"notifications"' in text:
                now, at = time.perf_counter(), 0
                while (at := text.find(b'"id":"e', at) + 7) > 6:
                    told.append(now - due(int(text[at : text.index(b'"', at)])))

        until = begun + count / self.rate + _PATIENCE_S
        good = len({n for n in range(first, first + count) if f"h{n % HOOKS}" != self.dead})
        while len(told) < count * _EACH or self.hooks.count < good:
            now = time.perf_counter()
            late = min(count, int((now - begun) * self.rate) + 1) - published
            if late > 0:
                some = [*_features(first + published, late, hook=lambda n: n % HOOKS,
                                   grp=lambda n: n % self.groups)]  # fmt: skip
                body = {"type": "FeatureCollection", "features": some}
                self.posts.put(request("POST", "/events", body))
                published += late
            self.posts.pump()
            self.sockets.pump(taken, _TICK_S / 10)
            if now > until:
                break
        self.posts.drained()
        self.first += count
        if not self.warm:
            self.delays["sockets"] += told
            for i in range(HOOKS):
                if f"h{i}" != self.dead:
                    self.delays["hooks"] += (
                        at - due(_number(body)) for at, body in self.hooks.of(f"h{i}")
                        if _number(body) >= first
                    )  # fmt: skip
        self.warm = False
        return count * _EACH - len(told) + good - self.hooks.count

    def figures(self) -> dict[str, int]:
        """Delays in microseconds."""
        return {
            f"{who} p{share} µs": round(1e6 * float(np.percentile(delays, share)))
            for who, delays in self.delays.items() if delays
            for share in (50, 99)
        }  # fmt: skip

    def close(self) -> None:
        """Everybody goes home."""
        self.sockets.close()
        self.posts.close()
        self.served.close()
        self.hooks.close()


def beside(plan: Plan, dead: bool) -> Task:
    """A hundred webhooks, one of them dead or not, beside sockets."""
    found = _Beside(plan, dead)
    return Task(
        lambda: found.served.timed(found.run), close=found.close,
        memory=lambda: found.figures() | found.served.cost(found.work),
    )  # fmt: skip
