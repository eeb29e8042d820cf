"""Events from a topic of Kafka, notifications to another: all the way through, each once."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

from nearcast.bench.experiments.base import Plan
from nearcast.bench.load import Posts, request
from nearcast.bench.load.kafka import Node, found_jars
from nearcast.bench.serving.served import Served, batches
from nearcast.bench.serving.tiles import Pairs, Round, Tiles, told_pairs
from nearcast.bench.trial import Task
from nearcast.errors import BenchError
from nearcast.model.codec import subscription_to_json

__all__ = ["piping"]

_IN, _OUT = "bench-in", "bench-out"
_PARTITIONS = 4
_PATIENCE_S = 300.0


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class _Pipe:
    """A Kafka, a server between two topics of it, and both ends."""

    def __init__(self, plan: Plan, tiles: Tiles) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nearcast-kafka-"))
        try:
            port, control = _free_ports(2)
            self.node = Node(self.folder, found_jars(plan.texts("jars")[0]), port, control)
            self.node.start()
            self._begin(plan, tiles)
        except BaseException:
            self.close()
            raise

    def _begin(self, plan: Plan, tiles: Tiles) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        for name in (_IN, _OUT):
            self.node.topic(name, _PARTITIONS)
        address = self.node.address
        self.served = Served((), kafka_servers=address, kafka_in=_IN, kafka_out=_OUT)
        posts = Posts(self.served.process.address, 1)
        goes = {"sink": f"kafka://{address}/{_OUT}"}
        people = plan.number("sinks")
        for some in batches(tiles.subscriptions(people), 5_000):
            written = [subscription_to_json(each) | goes for each in some]
            posts.send([request("POST", "/subscriptions", written)])
        posts.close()
        self._producer: Any = Producer(
            {"bootstrap.servers": address, "linger.ms": 5, "log_level": 0,
             "queue.buffering.max.messages": 1_000_000}
        )  # fmt: skip
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": address, "group.id": "bench", "log_level": 0,
                "isolation.level": "read_committed", "enable.auto.commit": False,
            }
        )  # fmt: skip
        self._consumer.assign([TopicPartition(_OUT, each, 0) for each in range(_PARTITIONS)])

    def send(self, values: list[bytes]) -> None:
        """To the one topic, by partition in turns."""
        for number, value in zip(count(), values):
            self._producer.produce(_IN, value, partition=number % _PARTITIONS)
        self._producer.poll(0)

    def hear(self, awaited: int) -> list[bytes]:
        """From the other one, committed."""
        found: list[bytes] = []
        until = time.monotonic() + _PATIENCE_S
        while len(found) < awaited:
            for message in self._consumer.consume(5_000, 0.05):
                if message.error() is not None:
                    raise BenchError(f"Kafka: {message.error().str()}")
                found.append(message.value())
            if time.monotonic() > until:
                raise BenchError(f"{len(found)} of {awaited} notifications came")
        return found

    def close(self) -> None:
        if hasattr(self, "_consumer"):
            self._consumer.close()
        if hasattr(self, "served"):
            self.served.close()
        if hasattr(self, "node"):
            self.node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def piping(plan: Plan, tiles: Tiles) -> Task:
    """Events into a topic as fast as they go; the time is over when the last one is told of."""
    pipe = _Pipe(plan, tiles)
    events = Round(plan, tiles, 1)
    ready: list[list[bytes]] = []
    awaited = plan.number("events") * tiles.each

    def run() -> list[bytes]:
        pipe.send(ready.pop())
        return pipe.hear(awaited)

    def answer(values: Any) -> Pairs:
        return told_pairs(map(json.loads, values))

    return Task(
        lambda: pipe.served.timed(run),
        before=lambda: ready.append([json.dumps(each).encode() for each in events.features()]),
        answer=answer, memory=lambda: pipe.served.cost(plan.number("events")), close=pipe.close,
    )  # fmt: skip
