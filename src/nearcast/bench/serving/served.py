"""A server with something in it, what it costs, and what it has told."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nearcast.bench.load import PostgresNode, Posts, Process, request
from nearcast.bench.trial import Timed
from nearcast.bootstrap import Broker
from nearcast.model.fences import Fence
from nearcast.model.geometry import Space
from nearcast.model.subscriptions import Subscription

__all__ = ["PEOPLE", "Outboxes", "Served", "batches"]

#: Whom subscriptions and fences belong to, in turns: u0, u1, …
PEOPLE = 1000

T = TypeVar("T")


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Runs of at most so many."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


class Served:
    """A server on a new store that already holds some subscriptions or fences."""

    kind: ClassVar[str] = "sqlite"
    """Which: a file, or a database in a PostgreSQL that is started for it."""

    def __init__(
        self, things: Iterable[Subscription | Fence], space: Space = "planar", **settings: str
    ) -> None:  # fmt: skip
        self.folder = Path(tempfile.mkdtemp(prefix="nearcast-bench-"))
        self._node = self._started() if self.kind == "postgresql" else None
        self.store = str(self.folder / "bench.db")
        if self._node is not None:
            self.store = self._node.url("bench")
        self.space: Space = space
        with Broker.open(self.store, space) as broker:
            for some in batches(things, 20_000):
                broker.subscribe_many(some)
        self.process = Process(self.store, space, settings=settings)
        self.cpu_s: list[float] = []

    @staticmethod
    def _started() -> PostgresNode:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        node = PostgresNode(port)
        node.start()
        return node

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
        """Stop it, and throw the file away."""
        self.process.stop()
        if self._node is not None:
            self._node.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


class Outboxes:
    """What everybody is told, pulled and acknowledged, so that the next round begins anew."""

    def __init__(self, posts: Posts) -> None:
        self._posts = posts
        self._read = dict.fromkeys((f"u{number}" for number in range(PEOPLE)), 0)

    def emptied(self) -> list[Any]:
        """All notifications since the last time; numbers without holes, or an AssertionError."""
        found: list[Any] = []
        read, waiting = self._read, dict(self._read)
        while waiting:
            asked = (
                request("GET", f"/subscribers/{who}/notifications?after={after}")
                for who, after in waiting.items()
            )
            waiting = {}
            for page in self._posts.send(asked):
                told = page["notifications"]
                found += told
                if told:
                    who = told[0]["subscriber"]
                    first = read[who] + 1
                    assert [each["seq"] for each in told] == [*range(first, first + len(told))]
                    waiting[who] = read[who] = page["next"]
        self._posts.send(
            request("POST", f"/subscribers/{who}/ack", {"upto": upto})
            for who, upto in read.items()
            if upto
        )
        return found
