"""Notifications as messages of Kafka, exactly once for whoever reads what is committed.

A transaction has notifications of many sinks, keyed by subscriber, and of each sink the number up
to which it has everything. That number is the truth: it is read back before the first transaction
and after any whose end is not known, and what it covers is not sent again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nearcast.errors import NearcastError, ValidationError
from nearcast.server import kafka
from nearcast.server.logs import log
from nearcast.server.sinks.ports import DELIVERED, Letter, Means, Outcome, Terms, never, retry
from nearcast.storage.sinks import Sink

if TYPE_CHECKING:
    from nearcast.server.settings import Settings

__all__ = ["Kafka"]

_MOST = 20_000  # letters of one transaction
_BATCH = 1000  # of one sink
_LINGER_S = 0.02
_TRANSACTION_S = 60.0
_TOPICS_S = 30.0  # how long it is believed that a topic is there
_TYPE = ("content-type", b"application/json")


class Kafka:
    """The protocol."""

    name = "KAFKA"
    schemes: tuple[str, ...] = ("kafka",)

    def check(self, uri: str, given: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
        """One of the server's own topics, of those that are open to subscriptions."""
        for name in given:
            if name != "topic":
                raise ValidationError(f"protocolsettings.{name}", given[name], "known is topic")
        parts = urlsplit(uri)
        servers = kafka.servers_of(settings.kafka_servers)
        if parts.netloc not in servers or parts.query or parts.fragment:
            known = " or ".join(f"kafka://{each}/TOPIC" for each in servers)
            remedy = f"the server sends to its own Kafka only: {known}"
            raise ValidationError("sink", uri, remedy if servers else "the server has no Kafka "
                                  "(kafka_servers)")  # fmt: skip
        inside, beside = parts.path.removeprefix("/"), given.get("topic")
        topic = inside or beside
        if not isinstance(topic, str) or (inside and beside not in (None, inside)):
            raise ValidationError("protocolsettings.topic", beside, "name one topic, here or in "
                                  "the sink's path")  # fmt: skip
        if not kafka.is_open(topic, settings.kafka_out):
            raise ValidationError("protocolsettings.topic" if beside else "sink", topic,
                                  f"topics open to subscriptions are: {settings.kafka_out or '-'} "
                                  "(kafka_out)")  # fmt: skip
        return {"topic": topic}

    def complete(
        self,
        given: Mapping[str, Any],
        known: Mapping[str, Any] | None,  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """There is nothing secret in them."""
        return dict(given), {}

    def shown(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """All of them."""
        return dict(settings)

    def open(self, sink: Sink, means: Means, tenant: str) -> _Channel:
        """A way there, by the one producer that all share."""
        return _Channel(sink, means, tenant)


@dataclass(eq=False, slots=True)
class _Job:
    """Letters of one sink that want to go."""

    key: str
    """Under which the sink's position is kept."""
    topic: str
    to: bytes
    letters: Sequence[Letter]
    done: asyncio.Future[list[Outcome]]
    upto: int = 0
    """What the store says that the sink has."""
    last: int | None = None
    """What the store says that there is; asked by `begin` only."""


class _Channel:
    """One sink's part of the shared producer."""

    def __init__(self, sink: Sink, means: Means, tenant: str) -> None:
        self.terms = Terms(flight=1, batch=_BATCH, exact=True)
        carriage = means.shared.get("kafka")
        if carriage is None:
            carriage = means.shared["kafka"] = Carriage(means)
        assert isinstance(carriage, Carriage)
        self._carriage = carriage
        self._key = f"{means.identity()}/{tenant}/{sink.number}"
        self._topic: str = sink.settings["topic"]
        self._to = sink.subscriber.encode("utf-8", "surrogatepass")

    async def begin(self, upto: int, last: int) -> int:
        """What Kafka has of this sink, by what was committed there."""
        job = _Job(self._key, self._topic, self._to, (), _future(), upto, last)
        (outcome,) = await self._carriage.carry(job)
        if outcome.kind != "delivered":
            raise OSError(outcome.why)
        return max(upto, self._carriage.position(self._key))

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        """With the next transaction."""
        return await self._carriage.carry(
            _Job(self._key, self._topic, self._to, letters, _future())
        )

    async def close(self) -> None:
        """The producer is closed with the server."""


def _future() -> asyncio.Future[list[Outcome]]:
    return asyncio.get_running_loop().create_future()


class _FailedError(NearcastError):
    """A transaction did not go through. `of_messages`: because of what was in it."""

    def __init__(self, why: str, code: str = "", *, of_messages: bool = False) -> None:
        self.code = code
        self.of_messages = of_messages
        super().__init__(why)


class Carriage:
    """The one transactional producer of a server, in a thread of its own."""

    def __init__(self, means: Means) -> None:
        self._settings = means.settings
        self._patience_s = means.settings.sink_timeout_s
        self._identity = means.identity()
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._producer: Any = None
        self._positions: dict[str, int] = {}
        self._stale: dict[str, tuple[int, int]] = {}
        """Positions that are not true any more, and what is, by key."""
        self._topics: dict[str, float] = {}
        """Topics that are there, and until when that is believed."""
        self._wrong: list[Any] = []
        """What single messages failed for."""
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="nearcast-kafka-out", daemon=True)
        self._thread.start()

    # -- in the loop -----------------------------------------------------------------

    async def carry(self, job: _Job) -> list[Outcome]:
        """Have letters sent; what became of each."""
        self._queue.put(job)
        return await job.done

    def position(self, key: str) -> int:
        """The number up to which a sink has everything, as Kafka has it."""
        return self._positions.get(key, 0)

    async def close(self) -> None:
        """Stop; what is in the middle of a transaction is not in it any more."""
        self._ended = True
        self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, self._patience_s)

    def _tell(self, done: list[tuple[_Job, list[Outcome]]]) -> None:
        for job, outcomes in done:
            if not job.done.done():
                job.done.set_result(outcomes)

    # -- in the thread -----------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            jobs = self._waiting()
            if not jobs:
                break
            try:
                done = self._carry(jobs)
            except Exception as error:
                if not isinstance(error, _FailedError):
                    log.error("mistake", where="in the sinks of Kafka", exc_info=error)
                self._drop()
                done = [(job, _all(job, retry(str(error)))) for job in jobs]
            if not self._ended:
                self._loop.call_soon_threadsafe(self._tell, done)
        self._drop()

    def _waiting(self) -> list[_Job]:
        """What wants to go, with what comes within a moment."""
        job = self._queue.get()
        jobs: list[_Job] = []
        until, count = monotonic() + _LINGER_S, 0
        while job is not None:
            jobs.append(job)
            count += len(job.letters)
            if count >= _MOST:
                break
            try:
                job = self._queue.get(timeout=max(0.0, until - monotonic()))
            except Empty:
                break
        return [] if job is None else jobs

    def _carry(self, jobs: list[_Job]) -> list[tuple[_Job, list[Outcome]]]:
        self._ready()
        done: list[tuple[_Job, list[Outcome]]] = []
        going: list[_Job] = []
        for job in jobs:
            if job.last is not None:
                self._check(job, job.last)
            known = self.position(job.key)
            fresh = [each for each in job.letters if each.number is not None or each.seq > known]
            if fresh:
                why = self._missing(job.topic)
                if why is None:
                    going.append(job)
                    continue
                done.append((job, _all(job, retry(why))))
            else:
                done.append((job, _all(job, DELIVERED)))
        return done + (self._apart(going) if going else [])

    def _check(self, job: _Job, last: int) -> None:
        """A position that is beyond the store was made by one that is no more: of a backup."""
        known = self.position(job.key)
        if known > last:
            log.error("Kafka has more than the store: was that put back? what it tells is sent",
                      topic=job.topic, kafka=known, store=last)  # fmt: skip
            self._stale[job.key] = known, job.upto
            self._positions[job.key] = job.upto

    def _apart(self, jobs: list[_Job]) -> list[tuple[_Job, list[Outcome]]]:
        """One transaction; if a message spoils it, one for each sink, then one for each message."""
        try:
            self._transact([(job, job.letters) for job in jobs])
        except _FailedError as error:
            if not error.of_messages:
                raise
            if len(jobs) > 1:
                return [pair for job in jobs for pair in self._apart([job])]
            (job,) = jobs
            return [(job, self._singly(job))]
        return [(job, _all(job, DELIVERED)) for job in jobs]

    def _singly(self, job: _Job) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for letter in job.letters:
            if outcomes and outcomes[-1].kind != "delivered":  # order is kept, and exact
                outcomes.append(retry("it waits for what is before it"))
                continue
            try:
                self._transact([(job, [letter])])
                outcomes.append(DELIVERED)
            except _FailedError as error:
                large = error.code == "MSG_SIZE_TOO_LARGE"
                outcomes.append(never(str(error)) if large else retry(str(error)))
        return outcomes

    def _transact(self, going: Sequence[tuple[_Job, Sequence[Letter]]]) -> None:
        """Send and commit, all or nothing; a _FailedError says that it is nothing, or unknown."""
        from confluent_kafka import KafkaException

        self._ready()
        producer, until = self._producer, monotonic() + self._patience_s
        moved: dict[str, int] = {}
        self._wrong = []
        try:
            producer.begin_transaction()
            for job, letters in going:
                known = self.position(job.key)
                for letter in letters:
                    if letter.number is None:
                        if letter.seq <= known:
                            continue
                        moved[job.key] = letter.seq
                    self._produce(
                        until, job.topic, value=letter.text, key=job.to,
                        headers=[_TYPE, ("nearcast-id", letter.id.encode())],
                    )  # fmt: skip
            for key, seq in moved.items():
                said = str(seq).encode()
                self._produce(until, self._settings.kafka_positions, value=said, key=key.encode())
            producer.commit_transaction(max(1.0, until - monotonic()))
        except KafkaException as error:
            raise self._undone(error.args[0]) from None
        self._positions |= moved

    def _produce(self, until: float, topic: str, **message: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, **message)
            except BufferError:
                if monotonic() > until:
                    raise _FailedError("Kafka takes too long") from None
                self._producer.poll(0.1)
            else:
                return

    def _undone(self, error: Any) -> _FailedError:
        """A transaction has failed: it is void, or nobody knows. The next producer finds out.

        The same one would go on with numbers that the broker does not expect.
        """
        wrong = [each for each in self._wrong if each.name() in _OF_MESSAGES]
        cause = wrong[0] if wrong else error
        self._drop()
        of_messages = cause.name() in _OF_MESSAGES
        return _FailedError(cause.str(), cause.name(), of_messages=of_messages)

    # -- a producer that may be used ------------------------------------------------------

    def _drop(self) -> None:
        """What it was about is not known any more; the next one finds it out."""
        producer, self._producer = self._producer, None
        self._topics.clear()
        if producer is not None:
            producer.purge()

    def _ready(self) -> None:
        """Have a producer, whoever was before ended, and know how far each sink is."""
        from confluent_kafka import KafkaException

        if self._producer is not None:
            return
        producer = kafka.client(
            "Producer", self._settings, transactional_id=f"nearcast-{self._identity}",
            transaction_timeout_ms=round(_TRANSACTION_S * 1000), delivery_report_only_error=True,
            message_timeout_ms=round(min(_TRANSACTION_S, self._patience_s) * 1000), linger_ms=5,
            on_delivery=self._hear, error_cb=lambda _: None,
        )  # fmt: skip
        try:
            self._make_topic()
            producer.init_transactions(self._patience_s)
            self._positions = self._read_positions()
            for key, (stale, upto) in self._stale.items():
                if self._positions.get(key) == stale:
                    self._positions[key] = upto
        except KafkaException as error:
            raise _FailedError(error.args[0].str()) from None
        self._producer = producer

    def _hear(self, error: Any, _: Any) -> None:
        if error is not None:
            self._wrong.append(error)

    def _missing(self, topic: str) -> str | None:
        """What is wrong with a topic: nothing is sent to one that is not there, for a transaction
        would fail for all others, too."""
        from confluent_kafka import KafkaException

        if self._topics.get(topic, 0.0) > monotonic():
            return None
        try:
            about = self._producer.list_topics(topic, timeout=self._patience_s).topics[topic]
        except KafkaException as error:
            raise _FailedError(error.args[0].str()) from None
        if about.error is not None:
            return f"topic {topic}: {about.error.str()}"
        self._topics[topic] = monotonic() + _TOPICS_S
        return None

    def _make_topic(self) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        name = self._settings.kafka_positions
        admin = kafka.client("AdminClient", self._settings)
        about = admin.list_topics(name, timeout=self._patience_s).topics[name]
        if about.error is None:
            return
        wanted = NewTopic(name, 1, -1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([wanted])[name].result(self._patience_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _FailedError(
                    f"topic {name} cannot be made ({error.args[0].str()}): make it, compacted"
                ) from None

    def _read_positions(self) -> dict[str, int]:
        """All that is committed. Transactions of others that are open are waited for."""
        from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

        name, found = self._settings.kafka_positions, dict[str, int]()
        until = monotonic() + _TRANSACTION_S + self._patience_s
        options = {"group_id": "nearcast-positions", "enable_auto_commit": False}
        reader = kafka.client("Consumer", self._settings, isolation_level="read_uncommitted",
                              **options)  # fmt: skip
        about = reader.list_topics(name, timeout=self._patience_s).topics[name]
        if about.error is not None or not about.partitions:
            # A node that has just started may not know its topics yet. To take that for an empty
            # one would be to send everything once more.
            reader.close()
            raise _FailedError(f"topic {name} is not there yet")
        parts = [TopicPartition(name, each) for each in about.partitions]
        ends = {
            each.partition: reader.get_watermark_offsets(each, timeout=self._patience_s)[1]
            for each in parts
        }
        reader.close()
        reader = kafka.client("Consumer", self._settings, isolation_level="read_committed",
                              enable_partition_eof=True, fetch_wait_max_ms=20,
                              **options)  # fmt: skip
        reader.assign([TopicPartition(name, each.partition, OFFSET_BEGINNING) for each in parts])
        left = {number for number, end in ends.items() if end > 0}
        mine = f"{self._identity}/".encode()
        try:
            while left and not self._ended:
                if monotonic() > until:
                    raise _FailedError(f"topic {name} could not be read to its end")
                for message in reader.consume(1000, 0.05):
                    error = message.error()
                    if error is None:
                        if message.key() is not None and message.key().startswith(mine):
                            found[message.key().decode()] = int(message.value())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        if message.offset() >= ends[message.partition()]:
                            left.discard(message.partition())
                    else:
                        raise _FailedError(error.str())
        finally:
            reader.close()
        return found


#: Errors that are a message's, and not the cluster's.
_OF_MESSAGES = frozenset({
    "MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG", "TOPIC_AUTHORIZATION_FAILED",
    "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "INVALID_REQUIRED_ACKS",
})  # fmt: skip


def _all(job: _Job, outcome: Outcome) -> list[Outcome]:
    return [outcome] * max(1, len(job.letters))
