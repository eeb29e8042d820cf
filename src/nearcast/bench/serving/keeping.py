"""What a server holds: idle connections, pairs that were delivered; and how it begins again."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

from nearcast.bench.experiments.base import Plan
from nearcast.bench.load import Posts, Process, Sockets, request
from nearcast.bench.serving.served import PEOPLE, Outboxes, Served
from nearcast.bench.serving.tiles import Round, Tiles
from nearcast.bench.trial import Task, Timed
from nearcast.clock import format_micros, system_now
from nearcast.storage.urls import parse_url

__all__ = ["ROWS", "SNAPSHOT", "connecting", "delivering", "restarting"]

SNAPSHOT, ROWS = "from the snapshot", "from rows"
_LIFE_S = 5


def connecting(count: int) -> Task:
    """Sockets that say hello, and nothing else."""
    served = Served(Tiles(100, 1).subscriptions())
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


def delivering(plan: Plan, tiles: Tiles) -> Task:
    """Events that expire, told, pulled, acknowledged: what is left of a pair.

    The first round is left out, in which tables, caches and queues come to their size.
    """
    served = Served(tiles.subscriptions())
    posts = Posts(served.process.address, 4)
    events, outboxes = Round(plan, tiles, 100), Outboxes(posts)
    pairs = plan.number("events") * tiles.each
    held: list[int] = []

    def run() -> object:
        expires = format_micros(system_now() + _LIFE_S * 1_000_000)
        posts.send(events.requests(expirytime=expires))
        told = len(outboxes.emptied())
        time.sleep(_LIFE_S + 1)  # until all of them are over
        held.append(served.process.resident)
        return told

    def left() -> dict[str, int]:
        rounds = len(held) - 1
        return {"bytes": max(0, held[-1] - held[0]) // (pairs * rounds) if rounds else 0}

    def close() -> None:
        posts.close()
        served.close()

    return Task(run, memory=left, close=close)


def _beside(store: str) -> Path:
    """Where the matchers that are saved of a store begin their names."""
    if not store.startswith("postgresql:"):
        return Path(f"{store}-matcher")
    from nearcast.storage.postgres import PostgresDatabase

    database = PostgresDatabase(parse_url(store), guest=True)
    try:
        return database.beside("matcher")
    finally:
        database.close()


def restarting(way: str, count: int) -> Task:
    """From the start of the process until it answers, with the matcher saved or not."""
    tiles = Tiles(count, 4)
    served = Served(tiles.subscriptions())
    served.process.stop()
    numbers = iter(range(1, 1_000_000))

    def before() -> None:
        if way == ROWS:
            beside = _beside(served.store)
            for saved in beside.parent.glob(f"{beside.name}-*"):
                shutil.rmtree(saved) if saved.is_dir() else saved.unlink()

    def run() -> Timed:
        served.process = Process(served.store, served.space)
        posts = Posts(served.process.address, 1)
        tile, id = tiles.count // 2, f"e{next(numbers)}"
        posts.send([request("POST", "/events", tiles.feature(tile, id))])
        told = sum(map(partial(_told, posts, id), tiles.wanting(tile)))
        posts.close()
        ready_s = served.process.ready_s
        served.process.stop()
        return Timed(ready_s, told)

    return Task(run, before=before, close=served.close)


def _told(posts: Posts, id: str, subscription: int) -> bool:
    """Whether somebody is told of an event by a subscription; it acknowledges that."""
    path = f"/subscribers/u{subscription % PEOPLE}/notifications"
    (page,) = posts.send([request("GET", path)])
    posts.send([request("POST", path.replace("notifications", "ack"), {"upto": page["next"]})])
    found = {(each["subscription"], each["event"]["id"]) for each in page["notifications"]}
    return (f"s{subscription}", id) in found
