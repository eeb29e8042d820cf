"""Topics of Kafka as logs: against librdkafka's mock cluster, and against a real Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from nearcast.errors import SparkError, ValidationError
from nearcast.model.events import Event
from nearcast.model.geometry import Point
from nearcast.model.subscriptions import Subscription
from nearcast.spark.stream.kafka import Topic
from nearcast.spark.stream.source import Settings
from tests.kafkas import Kafka
from tests.naive_stream import Change, NaiveStream
from tests.stream_cases import Driver


@pytest.fixture(
    scope="module", params=["mock", pytest.param("real", marks=pytest.mark.needs("mvn", "java"))]
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(request.getfixturevalue("kafka") if request.param == "real" else None)
    yield made
    made.close()


class Cluster:
    """A broker of one process, and a producer."""

    def __init__(self, kafka: Kafka | None) -> None:
        self._kafka = kafka
        if kafka is None:
            self.producer = Producer({"test.mock.num.brokers": 1})
            (broker,) = self.producer.list_topics(timeout=60).brokers.values()
            self.address = f"{broker.host}:{broker.port}"
        else:
            self.producer = Producer({"bootstrap.servers": kafka.address})
            self.address = kafka.address
            for name in ("events-1", "changes-1", "events-2", "changes-2", "events-3", "changes-3",
                         "events-4"):  # fmt: skip
                kafka.topic(name)

    def url(self, topic: str) -> str:
        return f"kafka://{self.address}/{topic}"

    def send(self, topic: str, *rows: Any) -> None:
        for row in rows:
            value = row if isinstance(row, bytes) else json.dumps(row).encode()
            self.producer.produce(topic, value)
        assert self.producer.flush(60) == 0

    def close(self) -> None:
        self.producer.flush(60)


def _row(event: Event) -> dict[str, Any]:
    assert isinstance(event.location, Point)
    return {
        "id": event.id, "attributes": dict(event.attributes), "lon": event.location.x,
        "lat": event.location.y, "end": "2026-03-01T12:00:00Z",
    }  # fmt: skip


NOON = 1_772_366_400_000_000


def _event(number: int) -> Event:
    return Event(f"e{number}", {"price": 10.0 * number}, location=Point(8.5, 47.0), end=NOON)


def test_events_and_changes_from_topics(cluster: Cluster, tmp_path: Path):
    events, changes = cluster.url("events-1"), cluster.url("changes-1")
    cluster.send("changes-1", {"id": "s1", "where": "price < 50", "op": "add", "seq": 1})
    cluster.send("events-1", *[_row(_event(n)) for n in range(9)])
    driver = Driver(Settings(events, changes, shared=str(tmp_path)))
    naive = NaiveStream()
    assert driver.plan()
    first = Change("s1", 1, Subscription("s1", where="price < 50"))
    assert driver.run() == naive.batch([first], [_event(n) for n in range(9)])
    driver.done()

    late = {"id": "s2", "where": "price >= 50", "op": "add", "seq": 3}
    cluster.send("changes-1", {"id": "s1", "op": "remove", "seq": 2}, late, b"{nonsense")
    cluster.send("events-1", _row(_event(9)), b"\xff\x00", {"price": 3})
    driver.restart()
    assert driver.plan()
    second = [Change("s1", 2), Change("s2", 3, Subscription("s2", where="price >= 50"))]
    expected = naive.batch(second, [_event(9)])
    assert driver.run() == expected
    for spooled in tmp_path.glob("*/spool/*"):
        spooled.unlink()  # a cache: it is read again
    driver.restart()
    assert driver.run() == expected
    driver.done()
    assert not driver.plan()
    assert driver.reader.reportLatestOffset() == {"behind": 0}


def test_cloud_events_are_events_too(cluster: Cluster, tmp_path: Path):
    said = {
        "specversion": "1.0", "id": "c1", "source": "/shops/7", "type": "nearcast.event",
        "datacontenttype": "application/geo+json",
        "data": {"type": "Feature", "geometry": None, "properties": {"price": 5}},
    }  # fmt: skip
    cluster.send("events-2", said, b"[]", {"id": "plain", "attributes": {"price": 7}})
    cluster.send("changes-2", {"id": "s1", "op": "add", "seq": 1})
    driver = Driver(
        Settings(cluster.url("events-2"), cluster.url("changes-2"), shared=str(tmp_path))
    )
    assert driver.plan()
    assert driver.run() == [("c1", "s1", 1), ("plain", "s1", 1)]


def test_a_batch_is_bounded(cluster: Cluster, tmp_path: Path):
    cluster.send("events-3", *[_row(_event(n)) for n in range(20)])
    cluster.send("changes-3", {"id": "s1", "op": "add", "seq": 1})
    driver = Driver(
        Settings(cluster.url("events-3"), cluster.url("changes-3"), shared=str(tmp_path))
    )
    at, rows = driver.reader.plans.events.latest({}, 6, None)
    assert rows == 6
    end, rest = driver.reader.plans.events.latest(at, None, None)
    assert rows + rest == 20
    assert driver.reader.plans.events.latest(end, 6, None) == (end, 0)


@pytest.mark.parametrize("url", ["kafka://", "kafka://host:9", "kafka://host:9/a/b"])
def test_a_url_that_names_no_topic_is_refused(url: str):
    with pytest.raises(ValidationError, match="kafka://host:port/topic"):
        Topic.of(url, "events")


def test_an_offset_that_was_let_go_of_is_an_error(cluster: Cluster):
    cluster.send("events-4", {"id": "e1"})
    with pytest.raises(SparkError, match="events-4"):
        Topic(cluster.address, "events-4").messages(0, 1_000, 1_001)


@pytest.mark.needs("mvn", "java")
def test_what_a_transaction_took_back_is_no_message(kafka: Kafka):
    topic = Topic.of(kafka.topic("events-5"), "events")
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": "five"})
    producer.init_transactions(60)
    for several, keeps in (((b"1", b"2"), True), ((b"3", b"4"), False), ((b"5",), True)):
        producer.begin_transaction()
        for value in several:
            producer.produce("events-5", value)
        assert producer.flush(60) == 0
        (producer.commit_transaction if keeps else producer.abort_transaction)(60)
    stop = 8  # the ends of transactions have offsets, too
    until = time.monotonic() + 120
    while topic.bounds()["0"] != (0, stop):
        assert time.monotonic() < until, topic.bounds()
    assert topic.messages(0, 0, stop) == [b"1", b"2", b"5"]
    assert topic.messages(0, 1, 4) == [b"2"]
    assert topic.messages(0, 3, 6) == []
