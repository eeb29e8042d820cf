"""A Kafka of one node in KRaft mode on this machine, started from a folder of its jars."""

from __future__ import annotations

import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import platformdirs

from nearcast.errors import BenchError, MissingExtraError

__all__ = ["Node", "found_jars"]

_START_S = 240.0
#: Small and on its own: everything has one replica, and caches are for a few topics.
_CONFIG = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={folder}/data
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.dedupe.buffer.size=4194304
auto.create.topics.enable=false
message.timestamp.after.max.ms=9223372036854775807
"""


def found_jars(said: str) -> Path:
    """The folder of Kafka's jars: the one that is said, or the one that the tests have got."""
    if said:
        return Path(said)
    folders = Path(platformdirs.user_cache_dir("nearcast-tests")).glob("kafka-*")
    found = sorted(each for each in folders if each.is_dir() and any(each.glob("*.jar")))
    if not found:
        raise BenchError(
            "there are no jars of Kafka: say where they are (--set jars=FOLDER), or have the tests "
            "get them (python -m tests.kafkas)"
        )
    return found[-1]


class Node:
    """A node with two ports and a folder of its own, formatted and not started."""

    def __init__(self, folder: Path, jars: Path, port: int, control: int) -> None:
        self.folder = folder
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "server.properties"
        self._config.write_text(_CONFIG.format(port=port, control=control, folder=folder))
        id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        self._java("kafka.tools.StorageTool", "format", "-t", id, "-c", str(self._config)).wait(240)

    def _java(self, *more: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "kafka.log").open("ab")
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{self._jars}/*", *more]
        try:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        except FileNotFoundError:
            raise BenchError("there is no java: install a runtime") from None
        finally:
            log.close()

    def start(self) -> None:
        """Returns when it answers."""
        from confluent_kafka import KafkaException

        self._process = self._java("kafka.Kafka", str(self._config))
        until = time.monotonic() + _START_S
        while True:
            try:
                self.admin().list_topics(timeout=2)
                return
            except KafkaException:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise BenchError(f"Kafka does not start:\n{self.said()}") from None

    def said(self) -> str:
        """The end of its log."""
        return (self.folder / "kafka.log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """As an operator stops it, or, if that takes long, as a power cut does."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """As a power cut does, but for what the system has still in its memory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    # -- at its other end --------------------------------------------------------------

    def admin(self) -> Any:
        """Somebody who may make topics."""
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError:
            raise MissingExtraError("confluent_kafka", "kafka") from None
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def url(self, topic: str) -> str:
        """As streams name a topic."""
        return f"kafka://{self.address}/{topic}"

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """A topic that is new; its URL."""
        from confluent_kafka.cimpl import NewTopic

        admin = self.admin()  # kept until it has answered
        (made,) = admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
        made.result(60)
        return self.url(name)
