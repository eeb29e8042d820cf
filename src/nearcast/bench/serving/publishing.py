"""Events in by HTTP, notifications out by pulling or over WebSockets."""

from __future__ import annotations

import json
from typing import Any

from nearcast.bench.experiments.base import Plan
from nearcast.bench.load import Posts, Sockets
from nearcast.bench.serving.served import PEOPLE, Outboxes, Served, batches
from nearcast.bench.serving.tiles import Pairs, Round, Tiles, told_pairs
from nearcast.bench.trial import Task

__all__ = ["posting", "telling"]

_PUBLISHERS = 4


def posting(plan: Plan, tiles: Tiles, connections: int, together: int) -> Task:
    """Requests from several connections; what is told is pulled when the time is taken."""
    served = Served(tiles.subscriptions())
    posts = Posts(served.process.address, connections)
    events, outboxes = Round(plan, tiles, together), Outboxes(posts)
    ready: list[list[bytes]] = []

    def close() -> None:
        posts.close()
        served.close()

    return Task(
        lambda: served.timed(lambda: posts.send(ready.pop())),
        before=lambda: ready.append(events.requests()),
        answer=lambda _: told_pairs(outboxes.emptied()),
        memory=lambda: served.cost(plan.number("events")),
        close=close,
    )


def telling(plan: Plan, tiles: Tiles) -> Task:
    """Four publishers with batches of 100, and a socket for everybody who is told."""
    served = Served(tiles.subscriptions())
    sockets = Sockets(served.process.address, [f"u{number}" for number in range(PEOPLE)])
    publishers = Posts(served.process.address, _PUBLISHERS)
    events = Round(plan, tiles, 100)
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

        for some in batches(ready.pop(), _PUBLISHERS):
            publishers.send(some)
            sockets.pump(taken, 0.0)
        while seen < awaited:
            sockets.pump(taken)
        return frames

    def answer(frames: Any) -> Pairs:
        return told_pairs(told for each in frames for told in json.loads(each)["notifications"])

    def close() -> None:
        sockets.close()
        publishers.close()
        served.close()

    return Task(
        lambda: served.timed(run), before=lambda: ready.append(events.requests()), answer=answer,
        memory=lambda: served.cost(awaited), close=close,
    )  # fmt: skip
