"""Positions of objects that drive through circles, in batches."""

from __future__ import annotations

from typing import Any

from nearcast.bench.experiments.fences import Told, _Circles
from nearcast.bench.load import Posts, request
from nearcast.bench.serving.served import Outboxes, Served, batches
from nearcast.bench.trial import Task
from nearcast.clock import format_micros, system_now

__all__ = ["LINES", "crossing"]

LINES, _MOST = 2, 1000
_LIFE = 600_000_000  # microseconds that a position is live


def crossing(circles: _Circles) -> Task:
    """All drive their loop once a round, over two connections; who is told pulls afterwards."""
    traffic = circles.fresh()
    served = Served(circles.fences(), "globe")
    posts = Posts(served.process.address, LINES)
    outboxes = Outboxes(posts)
    # What waits on both lines together is less than a turn: nobody's positions change places.
    together = max(1, min(_MOST, circles.objects // (2 * LINES)))
    ready: list[list[bytes]] = []

    def requests(turns: list[list[tuple[int, int, float, float]]]) -> list[bytes]:
        """(object, number of its turn, x, y) as positions of this moment, one behind the other."""
        now = system_now()
        said = [
            {
                "type": "Feature",
                "id": f"{who}.{number}",
                "geometry": {"type": "Point", "coordinates": [x, y]},
                "properties": {"car": who},
                "time": format_micros(now + at),
                "expirytime": format_micros(now + at + _LIFE),
            }
            for at, (who, number, x, y) in enumerate(each for turn in turns for each in turn)
        ]
        return [request("POST", "/events", some) for some in _collections(said, together)]

    def turn(at: int, number: int) -> list[tuple[int, int, float, float]]:
        places = zip(traffic.xs[:, at].tolist(), traffic.ys[:, at].tolist(), strict=True)
        return [(who, number, x, y) for who, (x, y) in enumerate(places)]

    posts.send(requests([turn(traffic.turns - 1, 0)]))
    outboxes.emptied()

    def before() -> None:
        first = 1 + traffic.round * traffic.turns
        traffic.round += 1
        ready.append(requests([turn(at, first + at) for at in range(traffic.turns)]))

    def answer(_: object) -> Told:
        found = [
            (
                int(each["object"]), int(each["subscription"]), str(each["transition"]),
                (int(each["event"]["id"].split(".")[1]) - 1) % traffic.turns,
            )
            for each in outboxes.emptied()
        ]  # fmt: skip
        return set(found) if len(set(found)) == len(found) else set()

    def close() -> None:
        posts.close()
        served.close()

    return Task(
        lambda: served.timed(lambda: posts.send(ready.pop())), before=before, answer=answer,
        memory=lambda: served.cost(circles.objects * traffic.turns), close=close,
    )  # fmt: skip


def _collections(features: list[Any], size: int) -> list[Any]:
    return [{"type": "FeatureCollection", "features": some} for some in batches(features, size)]
