"""Logs that are topics of Kafka: read by librdkafka in the worker, a range of a partition a task.

A message is a row as JSON, with the columns of docs/wire.md, or a CloudEvent. A position is the
next offset of each partition. What librdkafka needs beside the address (TLS, SASL) is JSON in the
environment of driver and workers, `NEARCAST_KAFKA`: it stands in no URL and no checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa

from nearcast.errors import MissingExtraError, SparkError, ValidationError
from nearcast.model.codec import EVENT_COLUMNS
from nearcast.model.geometry import Space
from nearcast.spark.stream.changes import CHANGES, canonical
from nearcast.spark.stream.lines import rows_of
from nearcast.spark.stream.moments import newest_of
from nearcast.spark.stream.patience import passing
from nearcast.spark.stream.spool import SpooledPiece

__all__ = ["ChangeTopic", "EventTopic", "Topic"]

Position = dict[str, int]
_TOGETHER = 50_000
_WAIT_S = 30.0
_GLANCE_S = 0.2
_SETTINGS = "NEARCAST_KAFKA"


@dataclass(frozen=True)
class Topic:
    """A topic of a cluster."""

    servers: str
    name: str

    @classmethod
    def of(cls, url: str, what: str) -> Topic:
        """From `kafka://host:port[,host:port]/topic`."""
        servers, slash, name = url.removeprefix("kafka://").partition("/")
        if not servers or not slash or not name or "/" in name:
            raise ValidationError(what, url, "write kafka://host:port/topic")
        return cls(servers, name)

    def _consumer(self) -> Any:
        try:
            from confluent_kafka import Consumer
        except ImportError as error:
            raise MissingExtraError("confluent_kafka", "kafka") from error
        more = json.loads(os.environ.get(_SETTINGS) or "{}")
        return Consumer(
            {
                "bootstrap.servers": self.servers, "group.id": "nearcast",
                "enable.auto.commit": False, "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "allow.auto.create.topics": False, **more,
            }
        )  # fmt: skip

    def bounds(self) -> dict[str, tuple[int, int]]:
        """The first and the next offset of each partition."""
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumer()
        try:
            about = consumer.list_topics(self.name, timeout=_WAIT_S).topics[self.name]
            if about.error is not None:
                said = f"kafka://{self.servers}/{self.name}: {about.error.str()}"
                raise passing(SparkError(said))
            return {
                str(number): consumer.get_watermark_offsets(
                    TopicPartition(self.name, number), timeout=_WAIT_S
                )
                for number in sorted(about.partitions)
            }
        except KafkaException as error:
            raise passing(SparkError(f"kafka://{self.servers}/{self.name}: {error}")) from None
        finally:
            consumer.close()

    def messages(self, number: int, start: int, stop: int) -> list[bytes]:
        """What is in [start, stop) of a partition; what is no message there is passed over."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        consumer = self._consumer()
        found: list[bytes] = []
        at = start
        try:
            consumer.assign([TopicPartition(self.name, number, start)])
            until = monotonic() + _WAIT_S
            while at < stop:
                # It waits for as many as it is asked for, and ends of transactions are none.
                several = consumer.consume(min(10_000, stop - at), timeout=_GLANCE_S)
                if several:
                    until = monotonic() + _WAIT_S
                elif monotonic() > until:
                    said = f"no answer for offset {at} of partition {number}"
                    raise passing(
                        SparkError(
                            f"kafka://{self.servers}/{self.name}: {said} within {_WAIT_S:.0f} s"
                        )
                    )
                for message in several:
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        at = max(at, stop)
                    elif error is not None:
                        raise SparkError(
                            f"kafka://{self.servers}/{self.name}: {error.str()}; offset {at} of "
                            f"partition {number} may have been let go of"
                        )
                    elif message.offset() < stop:
                        at = message.offset() + 1
                        if message.value() is not None:
                            found.append(message.value())
                    else:
                        at = stop
            return found
        except KafkaException as error:
            raise passing(SparkError(f"kafka://{self.servers}/{self.name}: {error}")) from None
        finally:
            consumer.close()


# --- logs -----------------------------------------------------------------------------------------


@dataclass
class _Log:
    """What both kinds of logs have."""

    topic: Topic
    root: Path
    space: Space = "globe"

    @property
    def first(self) -> Position:
        """Before all that is kept."""
        return {}

    def end(self) -> Position:
        """Behind all messages."""
        return {number: stop for number, (_, stop) in self.topic.bounds().items()}

    def _reach(
        self, start: Position, most: int | None, until: Position | None
    ) -> tuple[Position, int]:
        bounds = self.topic.bounds()
        begins = {n: start.get(n, low) for n, (low, _) in bounds.items()}
        for number, (_, high) in bounds.items():
            if begins[number] > high:
                raise SparkError(
                    f"kafka://{self.topic.servers}/{self.topic.name}: partition {number} ends at "
                    f"{high}, before {begins[number]}, which was read: it is another topic under "
                    "the same name; give the stream a new checkpoint"
                )
        ends = {n: high if until is None else min(high, until.get(n, begins[n]))
                for n, (_, high) in bounds.items()}  # fmt: skip
        rows = {n: max(0, ends[n] - begins[n]) for n in bounds}
        total = sum(rows.values())
        if total == 0:
            return start, 0
        if most is not None and total > most:
            rows = _shares(rows, most, total)
        return {n: begins[n] + rows[n] for n in bounds}, sum(rows.values())

    def _ranges(self, start: Position, stop: Position) -> list[tuple[int, int, int]]:
        lows: dict[str, tuple[int, int]] | None = None
        made = []
        for number, last in stop.items():
            at = start.get(number)
            if at is None:
                lows = lows or self.topic.bounds()
                at = min(last, lows[number][0])
            while at < last:
                upto = min(last, at + _TOGETHER)
                made.append((int(number), at, upto))
                at = upto
        return made


def _shares(rows: dict[str, int], most: int, total: int) -> dict[str, int]:
    """`most` of `total` rows, shared out; what rounding leaves goes where it took most."""
    shares = {n: each * most // total for n, each in rows.items()}
    left = most - sum(shares.values())
    for n in sorted(rows, key=lambda n: -(rows[n] * most % total))[:left]:
        shares[n] += 1
    return shares


@dataclass
class EventTopic(_Log):
    """Events."""

    def latest(
        self, start: Position, most: int | None, until: Position | None
    ) -> tuple[Position, int]:
        """(how far to read, the messages up to there)."""
        return self._reach(start, most, until)

    def fetch(self, number: int, start: int, stop: int) -> Any:
        """The events in [start, stop) of a partition."""
        return rows_of(self.topic.messages(number, start, stop), EVENT_COLUMNS, self.space)

    def pieces(self, start: Position, stop: Position) -> list[SpooledPiece]:
        """Ranges of partitions."""
        digest = hashlib.blake2b(repr(self.topic).encode(), digest_size=4).hexdigest()
        folder = self.root / "spool"
        return [
            SpooledPiece(
                str(folder / f"{digest}-{number}-{a:012d}-{b:012d}.parquet"), b - a,
                partial(self.fetch, number, a, b),
            )
            for number, a, b in self._ranges(start, stop)
        ]  # fmt: skip

    def newest(self, start: Position, stop: Position) -> int | None:
        """The greatest `end` in between."""
        return newest_of(self.pieces(start, stop))

    def behind(self, start: Position) -> int:
        """Messages that are not read yet."""
        return sum(
            max(0, stop - start.get(n, low)) for n, (low, stop) in self.topic.bounds().items()
        )

    def tidy(self, oldest: Position) -> None:
        """Remove files of ranges that end before the oldest that is remembered."""
        for path in (self.root / "spool").glob("*-*-*-*.parquet"):
            _, number, _, stop = path.stem.split("-")
            if int(stop) <= oldest.get(number, 0):
                path.unlink(missing_ok=True)


@dataclass
class ChangeTopic(_Log):
    """Changes of subscriptions: rows with `op` and `seq`."""

    plain = False

    def latest(self, start: Position, most: int | None, until: Position | None) -> Position:
        """How far to read."""
        return self._reach(start, most, until)[0]

    def reaches(self, first: Position, second: Position) -> bool:
        """Whether the second position is not before the first."""
        return all(second.get(number, 0) >= at for number, at in first.items())

    def read(self, start: Position, stop: Position) -> Any:
        """The changes in between."""
        tables = []
        for number, a, b in self._ranges(start, stop):
            table = rows_of(self.topic.messages(number, a, b), CHANGES, self.space)
            for field in (CHANGES.field("op"), CHANGES.field("seq")):
                if field.name not in table.column_names:  # and so every row is rejected
                    table = table.append_column(field, pa.nulls(table.num_rows, field.type))
            tables.append(canonical(table, f"{self.topic.name}, partition {number}"))
        return pa.concat_tables(tables) if tables else None
