"""Events from topics of Kafka: each taken once, in the order of its partition.

How far each partition was read is in the store, in the transaction that has the events: after a
crash neither is there without the other. Kafka is told afterwards, for those who watch its groups,
and for stores that forget. Partitions are assigned, not subscribed to: one server reads all.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from nearcast.errors import NearcastError
from nearcast.server.desk import Desk
from nearcast.server.kafka import Topic, client, topics_of
from nearcast.server.logs import log
from nearcast.server.sources.envelopes import read
from nearcast.server.sources.figures import Tally
from nearcast.server.sources.intake import MISTAKE, Intake, Message

__all__ = ["KafkaSource"]

_POLL_S = 0.25
_ASK_S = 10.0  # for an answer about topics
_LOOK_S = 30.0  # how often new partitions are looked for
_SOON_S = 3.0  # the same for topics that are not there
_AGAIN_S = 1.0
_PREFIX = "ce_"
_MEMORY_KB = 16_384  # fetched and not looked at yet: with that it waits for the core


class _Part(NamedTuple):
    """A partition."""

    topic: Topic
    number: int

    @property
    def place(self) -> str:
        return f"{self.topic.name}/{self.number}"


class KafkaSource:
    """One server's; `run` in the loop, what waits for Kafka in a thread of its own."""

    def __init__(self, desk: Desk, tally: Tally) -> None:
        self._desk = desk
        self._settings = desk.settings
        self._tally = tally
        self._intake = Intake("KAFKA", desk, tally)
        self._topics = {each.name: each for each in topics_of(self._settings.kafka_in)}
        self._thread = ThreadPoolExecutor(1, "nearcast-kafka-in")
        self._cluster = ""
        self._parts: dict[tuple[str, int], _Part] = {}
        self._at: dict[_Part, int] = {}
        """The next message of each."""
        self._looked = float("-inf")
        self._missing: set[str] = set()
        self._ended = False
        self._consumer: Any = client(
            "Consumer", self._settings, group_id=self._settings.kafka_group,
            enable_auto_commit=False, auto_offset_reset="error", isolation_level="read_committed",
            queued_max_messages_kbytes=_MEMORY_KB, error_cb=self._trouble,
        )  # fmt: skip

    async def run(self) -> None:
        """Read until cancelled."""
        taking: asyncio.Task[None] | None = None
        try:
            while True:
                await self._look()
                batch = await self._in_thread(self._next)
                if taking is not None:
                    await taking
                    taking = None
                if batch:  # is read while the next ones are fetched
                    taking = asyncio.create_task(self._take(batch))
        finally:
            self._ended = True
            if taking is not None:
                taking.cancel()
                with suppress(asyncio.CancelledError, NearcastError):
                    await taking
            self._thread.submit(self._consumer.close)
            self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Any, *of: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *of)

    async def _take(self, batch: Sequence[tuple[_Part, Message]]) -> None:
        by_tenant: dict[str, list[Message]] = {}
        done: dict[_Part, int] = {}
        for part, message in batch:
            by_tenant.setdefault(part.topic.tenant, []).append(message)
            done[part] = message.number + 1
        for tenant, messages in by_tenant.items():
            await self._intake.take(tenant, messages)
        await self._in_thread(self._commit, done)

    # -- which partitions ------------------------------------------------------------

    async def _look(self) -> None:
        """Read partitions that are new, each from where the store says."""
        if monotonic() - self._looked < _LOOK_S:
            return
        found = await self._in_thread(self._ask)
        if found is None:
            await asyncio.sleep(_AGAIN_S)
            return
        self._looked = monotonic() - (_LOOK_S - _SOON_S if self._missing else 0)
        for part, known in found:
            position = await self._intake.position(part.topic.tenant, self._place(part))
            await self._in_thread(self._assign, part, known if position is None else position)

    def _place(self, part: _Part) -> str:
        return f"kafka/{self._cluster}/{part.place}"

    def _ask(self) -> list[tuple[_Part, int | None]] | None:
        """Partitions that nobody reads yet, each with what its group knows; None: no answer."""
        from confluent_kafka import KafkaException, TopicPartition

        found: list[tuple[_Part, int | None]] = []
        try:
            self._cluster = self._consumer.cluster_id(_ASK_S)
            for topic in self._topics.values():
                about = self._consumer.list_topics(topic.name, timeout=_ASK_S).topics[topic.name]
                if about.error is not None:  # others need not wait for it
                    if topic.name not in self._missing:
                        log.warning("no such topic", topic=topic.name, why=about.error.str())
                    self._missing.add(topic.name)
                    continue
                self._missing.discard(topic.name)
                fresh = [n for n in sorted(about.partitions) if (topic.name, n) not in self._parts]
                asked = [TopicPartition(topic.name, number) for number in fresh]
                for each in self._consumer.committed(asked, timeout=_ASK_S) if asked else ():
                    known = each.offset if each.offset >= 0 else None
                    found.append((_Part(topic, each.partition), known))
        except KafkaException as error:
            self._trouble(error.args[0])
            return None
        self._tally.up = True
        return found

    def _assign(self, part: _Part, at: int | None) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        start = OFFSET_BEGINNING if at is None else at
        log.info("reads a partition", place=part.place, at=at or 0)
        self._parts[part.topic.name, part.number] = part
        self._at[part] = at or 0
        self._consumer.incremental_assign([TopicPartition(part.topic.name, part.number, start)])

    def _recover(self, name: str, number: int) -> None:
        """What was to be read is not there: it was let go of, or the topic was made anew."""
        from confluent_kafka import KafkaException, TopicPartition

        part = self._parts.pop((name, number))
        where = TopicPartition(name, number)
        self._consumer.incremental_unassign([where])
        self._looked = float("-inf")  # if there is no answer it is assigned later
        try:
            low, _ = self._consumer.get_watermark_offsets(where, timeout=_ASK_S)
        except KafkaException:
            return
        missed = low - self._at[part]
        if missed > 0:
            self._tally.missed += missed
            log.error("messages were gone before they were read", place=part.place, missed=missed)
        else:
            log.error("a topic is not the one it was: read from its beginning", place=part.place)
        self._assign(part, low)

    # -- in the thread -----------------------------------------------------------------

    def _trouble(self, error: Any) -> None:
        """Kafka does not answer; it is tried again all the time."""
        if self._tally.up and not self._ended:
            log.warning("Kafka does not answer", why=error.str())
        self._tally.up = False

    def _next(self) -> list[tuple[_Part, Message]]:
        """What has come, decoded; waits a little for it."""
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return []
        rest = self._consumer.consume(self._settings.kafka_batch - 1, 0)
        found: list[tuple[_Part, Message]] = []
        for message in (first, *rest):
            error = message.error()
            if error is None:
                part = self._parts[message.topic(), message.partition()]
                found.append((part, self._read(part, message)))
            elif error.code() == error._AUTO_OFFSET_RESET:
                self._recover(message.topic(), message.partition())
            else:
                self._trouble(error)
        if found:
            self._tally.up = True
            done = {part: message.number + 1 for part, message in found}
            self._at |= done
            self._measure(done)
        return found

    def _measure(self, next: dict[_Part, int]) -> None:
        from confluent_kafka import TopicPartition

        for part, number in next.items():
            where = TopicPartition(part.topic.name, part.number)
            bounds = self._consumer.get_watermark_offsets(where, cached=True)
            if bounds is not None:
                self._tally.behind[part.place] = max(0, bounds[1] - number)

    def _read(self, part: _Part, message: Any) -> Message:
        number = message.offset()
        mark = self._place(part), number + 1
        whole = lambda: _as_json(message)  # noqa: E731
        try:
            headers = dict(_texts(message.headers() or ()))
            attributes = {
                name.removeprefix(_PREFIX): value
                for name, value in headers.items() if name.startswith(_PREFIX)
            }  # fmt: skip
            events = read(attributes, headers.get("content-type"), message.value(), self._desk)
        except NearcastError as error:
            return Message(part.place, number, whole, wrong=str(error), mark=mark)
        except Exception as error:  # one that we did not think of must not stop those behind it
            log.error("mistake", where="in a message", place=part.place, exc_info=error)
            return Message(part.place, number, whole, wrong=MISTAKE, mark=mark)
        return Message(part.place, number, whole, tuple(events), mark=mark)

    def _commit(self, done: dict[_Part, int]) -> None:
        """Tell Kafka how far the store is, for whoever looks there."""
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [TopicPartition(part.topic.name, part.number, at) for part, at in done.items()]
        with suppress(KafkaException):  # the next one says it, too
            self._consumer.commit(offsets=offsets, asynchronous=True)


def _texts(headers: Sequence[tuple[str, bytes | None]]) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        if value is not None:
            yield name.lower(), value.decode("utf-8", "replace")


def _as_json(message: Any) -> str:
    """A message as a dead letter keeps it."""
    said: dict[str, Any] = {
        "topic": message.topic(), "partition": message.partition(), "offset": message.offset(),
        "headers": dict(_texts(message.headers() or ())),
    }  # fmt: skip
    for name, value in (("key", message.key()), ("value", message.value())):
        if value is None:
            continue
        try:
            said[name] = value.decode()
        except UnicodeDecodeError:
            said[f"{name}_base64"] = b64encode(value).decode()
    return json.dumps(said)
