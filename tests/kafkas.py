"""A real Kafka: one node in KRaft mode on this machine, stopped, killed and started again.

Maven gets its jars once, into the user's cache. `python -m tests.kafkas PORT` runs one by hand.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import platformdirs
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from nearcast.bench.load.kafka import Node
from tests.served import free_port

__all__ = ["Kafka"]

_POM = Path(__file__).with_name("kafka_pom.xml")
_VERSION = "4.3.1"


def jars() -> Path:
    """The folder of Kafka's jars; got by Maven if they are not there yet."""
    folder = Path(platformdirs.user_cache_dir("nearcast-tests")) / f"kafka-{_VERSION}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="kafka-", dir=folder.parent))
        command = [
            "mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies",
            f"-DoutputDirectory={scratch}", "-DincludeScope=runtime",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        try:
            scratch.rename(folder)
        except OSError:  # somebody else was quicker
            shutil.rmtree(scratch)
    return folder


class Kafka(Node):
    """A node with ports and a folder of its own."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        super().__init__(folder, jars(), port or free_port(), free_port())

    def produce(self, topic: str, messages: Iterable[Any]) -> None:
        """Values, or dicts of what `produce` takes."""
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5, "log_level": 0})
        for each in messages:
            producer.produce(topic, **(each if isinstance(each, dict) else {"value": each}))
            producer.poll(0)
        assert producer.flush(60) == 0

    def read(self, topic: str, level: str = "read_committed") -> list[Message]:
        """All that is in a topic now, by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address, "group.id": f"read-{uuid.uuid4()}",
                "isolation.level": level, "enable.partition.eof": True, "log_level": 0,
                "auto.offset.reset": "earliest", "enable.auto.commit": False,
            }
        )  # fmt: skip
        found: list[Message] = []
        until = time.monotonic() + 240
        try:
            open_ = self._partitions(consumer, topic, until)
            consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in open_])
            while open_:
                assert time.monotonic() < until, "the topic has no end"
                for message in consumer.consume(1000, 1.0):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        open_.discard(message.partition())
        finally:
            consumer.close()
        return sorted(found, key=lambda each: (each.partition(), each.offset()))

    def _partitions(self, consumer: Consumer, topic: str, until: float) -> set[int]:
        """Those of a topic. A node that has just started answers before it knows its topics."""
        while True:
            try:
                about = consumer.list_topics(topic, timeout=60).topics[topic]
                if about.error is None and about.partitions:
                    return {*about.partitions}
                said = about.error
            except KafkaException as error:
                said = error.args[0]
            assert time.monotonic() < until, said
            time.sleep(0.1)


def _main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="kafka-"))
    node = Kafka(folder, int(sys.argv[1]) if len(sys.argv) > 1 else 9092)
    node.start()
    print(f"kafka://{node.address}/, until Ctrl-C", flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        node.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    _main()
