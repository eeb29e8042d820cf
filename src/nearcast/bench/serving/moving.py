"""Subscribers who report places over WebSockets, as fast as they are answered."""

from __future__ import annotations

import json
import time

import numpy as np

from nearcast.bench.experiments.base import Plan
from nearcast.bench.load import Posts, Sockets, request
from nearcast.bench.serving.served import Served
from nearcast.bench.serving.tiles import SIDE
from nearcast.bench.trial import Task
from nearcast.errors import BenchError
from nearcast.model.geometry import Around
from nearcast.model.subscriptions import Subscription

__all__ = ["moving"]

_LINES = 100
_REACH = 20.0
_PAUSE_S = 0.1


def moving(plan: Plan, movers: int) -> Task:
    """Each of many reports a place, a hundred at a time; events are live about them."""
    names = [f"m{number}" for number in range(movers)]
    served = Served(Subscription(name, name, region=Around(_REACH)) for name in names)
    sockets = Sockets(served.process.address, [None] * _LINES)
    posts = Posts(served.process.address, 1)
    rng = np.random.default_rng(plan.seed)
    spots = rng.uniform(0.0, SIDE, (plan.number("live"), 2)).tolist()
    events = [
        {"type": "Feature", "id": f"e{number}", "properties": {},
         "geometry": {"type": "Point", "coordinates": spot}}
        for number, spot in enumerate(spots)
    ]  # fmt: skip
    posts.send([request("POST", "/events", {"type": "FeatureCollection", "features": events})])
    places: list[list[float]] = []

    def before() -> None:
        places[:] = rng.uniform(0.0, SIDE, (movers, 2)).tolist()

    def run() -> object:
        waiting = iter(zip(names, places, strict=True))
        said: dict[int, tuple[str, list[float]]] = {}
        done = 0

        def report(line: int) -> None:
            each = next(waiting, None)
            if each is not None:
                said[line] = each
                say(line)

        def say(line: int) -> None:
            name, place = said[line]
            frame = {"type": "place", "subscriber": name, "coordinates": place, "ref": 1}
            sockets.say(line, frame)

        def taken(line: int, text: bytes) -> None:
            nonlocal done
            frame = json.loads(text)
            if frame["type"] == "done":
                done += frame["safe_region"] is not None
                report(line)
            elif frame["type"] == "error":
                if frame["problem"]["status"] != 429:
                    raise BenchError(f"a move was refused: {frame['problem']}")
                time.sleep(_PAUSE_S)
                say(line)

        for line in range(min(_LINES, movers)):
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
