"""Events from topics of Kafka and notifications to them, by a server, against a real Kafka."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from httpx2 import Client as Asks
from httpx2 import HTTPError

from nearcast.errors import NearcastError, ValidationError
from nearcast.server.core import Answer
from nearcast.server.run import Running
from nearcast.server.settings import Settings, describe, gather
from nearcast.server.sinks import engine
from nearcast.server.sinks.kafka import Carriage
from nearcast.server.sinks.runner import Runner
from nearcast.server.sources import envelopes
from tests.kafkas import Kafka
from tests.killable import Killable
from tests.served import client, feature, serving
from tests.test_sinks import until

pytestmark = pytest.mark.needs("mvn", "java")

#: Quick, for a test does not want to wait; patient, for a machine may be busy.
QUICK: dict[str, Any] = {
    "sink_backoff_s": 0.05, "sink_backoff_max_s": 0.5, "sink_timeout_s": 10.0, "tick_s": 0.05,
    "sink_attempts": 1000,
}  # fmt: skip


def name() -> str:
    return f"t-{uuid4().hex[:12]}"


def cloud_event(id: str, **properties: Any) -> dict[str, Any]:
    return {
        "specversion": "1.0", "id": id, "source": "/shop", "type": "offer",
        "data": feature(id, None, **properties) | {"id": None},
    }  # fmt: skip


def structured(id: str, price: float = 3) -> dict[str, Any]:
    said = cloud_event(id, price=price)
    del said["data"]["id"]
    return {
        "value": json.dumps(said).encode(),
        "headers": [("content-type", b"application/cloudevents+json; charset=utf-8")],
    }


def binary(id: str, price: float = 3) -> dict[str, Any]:
    said = cloud_event(id, price=price)
    data = said.pop("data")
    del data["id"]
    headers = [(f"ce_{key}", value.encode()) for key, value in said.items()]
    return {
        "value": json.dumps(data).encode(),
        "headers": [*headers, ("content-type", b"application/geo+json")],
    }


def wish(asks: Asks, kafka: Kafka, topic: str, id: str = "s", subscriber: str = "ann") -> None:
    said = {
        "subscriber": subscriber, "filters": [{"cql2": "price < 10"}],
        "sink": f"kafka://{kafka.address}", "protocol": "KAFKA",
        "protocolsettings": {"topic": topic},
    }  # fmt: skip
    answer = asks.put(f"/v1/subscriptions/{id}", json=said)
    assert answer.status_code in (200, 201), answer.text


def told(kafka: Kafka, topic: str) -> list[tuple[str, str, int]]:
    """Event, subscription and number of each notification in a topic, for committed readers."""
    found = []
    for message in kafka.read(topic):
        said = json.loads(message.value() or b"")
        assert message.key() == said["subscriber"].encode()
        found.append((said["event"]["id"], said["subscription"], said["seq"]))
    return found


def live(asks: Asks) -> set[str]:
    return {each["id"] for each in asks.get("/v1/events").json()["features"]}


def figures(asks: Asks) -> dict[str, float]:
    lines = asks.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {what: float(value) for what, value in pairs}


def came(asks: Asks, result: str) -> float:
    return figures(asks)[f'nearcast_source_total{{protocol="KAFKA",result="{result}"}}']


def is_up(asks: Asks) -> float:
    return figures(asks)['nearcast_source_up{protocol="KAFKA"}']


def test_events_come_in_both_modes_and_what_is_none_is_set_aside(kafka: Kafka):
    topic = name()
    kafka.topic(topic, 2)
    bad = [b"\xff\xfe no JSON", {"value": b"{}"}, {"value": None, "key": b"gone"}]
    plain = {"value": json.dumps(feature("plain", price=3)).encode()}
    text = {"value": b"hello", "headers": [("content-type", b"text/plain")]}
    first = {"partition": 0}
    kafka.produce(topic, [structured("a") | first, *bad, binary("b"), plain, text])
    with (
        serving(kafka_servers=kafka.address, kafka_in=topic, **QUICK) as server,
        client(server) as asks,
    ):
        again = [structured("a") | first, structured("a", price=4) | first, structured("late")]
        kafka.produce(topic, again)
        until(lambda: came(asks, "refused") == 5)
        until(lambda: live(asks) == {"a", "b", "plain", "late"})
        assert (came(asks, "accepted"), came(asks, "repeated"), is_up(asks)) == (4, 1, 1)
        assert figures(asks)['nearcast_events_total{result="accepted"}'] == 4
        assert figures(asks)['nearcast_tenant_accepted_total{tenant=""}'] == 4
        behind = {v for k, v in figures(asks).items() if "source_behind" in k}
        assert behind == {0}
        letters = asks.get("/v1/dead-letters").json()["dead_letters"]
    assert len(letters) == 5
    values = {json.dumps(each["notification"].get("value")) for each in letters}
    assert values == {"null", '"{}"', '"hello"', json.dumps(structured("a", 4)["value"].decode())}
    assert {each["sink"].partition("/")[0] for each in letters} == {topic}


def test_a_message_that_breaks_what_reads_it_is_set_aside_alone(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
):
    together = envelopes.read

    def read(attributes: Any, content_type: Any, body: bytes | None, desk: Any) -> Any:
        if b"bad" in (body or b""):
            raise RuntimeError("a mistake")
        return together(attributes, content_type, body, desk)

    monkeypatch.setattr("nearcast.server.sources.kafka.read", read)
    topic = name()
    kafka.topic(topic)
    kafka.produce(topic, [structured("a"), structured("bad"), structured("b")])
    with (
        serving(kafka_servers=kafka.address, kafka_in=topic, **QUICK) as server,
        client(server) as asks,
    ):
        until(lambda: live(asks) == {"a", "b"})
        (letter,) = until(lambda: asks.get("/v1/dead-letters").json()["dead_letters"])
        assert "mistake" in letter["why"]


def test_a_topic_is_a_tenants(kafka: Kafka, tmp_path: Path):
    ours, theirs, later = name(), name(), name()
    for each in (ours, theirs):
        kafka.topic(each)
        kafka.produce(each, [structured(f"of-{each}")])
    with serving(f"sqlite:///{tmp_path}/a.db", kafka_servers=kafka.address,
                 kafka_in=f"{later}@late, {ours}, {theirs}@acme", **QUICK) as server:  # fmt: skip
        brokers = server.house.brokers()
        until(lambda: "acme" in brokers and brokers["acme"].event_count == 1)
        until(lambda: brokers[""].event_count == 1)
        assert brokers[""].reading.event(f"of-{ours}", None).id == f"of-{ours}"
        kafka.topic(later)
        kafka.produce(later, [structured("late")])
        until(lambda: "late" in brokers and brokers["late"].event_count == 1)


def test_notifications_go_out_keyed_by_subscriber(kafka: Kafka):
    topic = kafka.topic(name()).rpartition("/")[2]
    with (
        serving(kafka_servers=kafka.address, kafka_out=f"{topic[:6]}*", **QUICK) as server,
        client(server) as asks,
    ):
        wish(asks, kafka, topic)
        wish(asks, kafka, topic, "t", "bob")
        shown = asks.get("/v1/subscriptions/s").json()
        assert shown["protocol"] == "KAFKA"
        assert shown["protocolsettings"] == {"topic": topic}
        for number in range(5):
            asks.post("/v1/events", json=feature(f"e{number}", price=number))
        pulled = asks.get("/v1/subscribers/ann/notifications", params={"after": 0}).json()
        until(lambda: len(told(kafka, topic)) == 10)
        sent = 'nearcast_sent_total{protocol="KAFKA",result="delivered"}'
        until(lambda: figures(asks)[sent] == 10)
    messages = [each for each in kafka.read(topic) if each.key() == b"ann"]
    assert [json.loads(each.value() or b"") for each in messages] == pulled["notifications"]
    assert len({dict(each.headers() or ())["nearcast-id"] for each in messages}) == 5


@pytest.mark.parametrize(
    ("sink", "settings", "field"),
    [
        ("kafka://elsewhere:9092/open", {}, "sink"),
        ("kafka://here:9092/closed", {}, "sink"),
        ("kafka://here:9092", {"topic": "closed"}, "protocolsettings.topic"),
        ("kafka://here:9092", {}, "protocolsettings.topic"),
        ("kafka://here:9092/open", {"topic": "open-2"}, "protocolsettings.topic"),
        ("kafka://here:9092/open", {"acks": 0}, "protocolsettings.acks"),
    ],
)
def test_sinks_name_topics_that_are_open_to_them(sink: str, settings: dict[str, Any], field: str):
    with serving(kafka_servers="here:9092", kafka_out="open*") as server, client(server) as asks:
        said = {"subscriber": "ann", "sink": sink, "protocolsettings": settings}
        answer = asks.put("/v1/subscriptions/s", json=said)
        assert answer.status_code == 422
        assert answer.json()["field"] == field


def test_a_message_that_kafka_does_not_take_is_a_dead_letter(kafka: Kafka):
    topic, other = name(), name()
    config: dict[str, Any] = {"max.message.bytes": "2000"}
    kafka.topic(topic, **config)
    kafka.topic(other)
    with (
        serving(kafka_servers=kafka.address, kafka_out="*", **QUICK) as server,
        client(server) as asks,
    ):
        wish(asks, kafka, topic)
        wish(asks, kafka, other, "t", "bob")
        wish(asks, kafka, "there-is-none", "u", "cid")
        batch = [feature(f"e{n}", price=3, text="x" * (5000 if n == 2 else 5)) for n in range(5)]
        asks.post("/v1/events", json={"type": "FeatureCollection", "features": batch})
        until(lambda: len(told(kafka, topic)) == 4)
        until(lambda: len(told(kafka, other)) == 5)
        letters = until(lambda: asks.get("/v1/dead-letters").json()["dead_letters"])
        assert [each["notification"]["event"]["id"] for each in letters] == ["e2"]
        sinks = asks.get("/v1/sinks").json()["sinks"]
    assert [each[2] for each in told(kafka, topic)] == [1, 2, 4, 5]
    assert [each["delivered"] for each in sinks] == [4, 5, 0]
    assert "there-is-none" in sinks[2]["why"]


def forgetful(*_: Any) -> Answer:
    """Enters nothing: as if the server had been killed before."""
    return Answer(None)


def test_what_kafka_has_is_not_sent_again(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    topic = kafka.topic(name()).rpartition("/")[2]
    store = f"sqlite:///{tmp_path}/a.db"
    settings = QUICK | {"kafka_servers": kafka.address, "kafka_out": topic}
    with monkeypatch.context() as patch:
        patch.setattr(engine, "settle", forgetful)
        with serving(store, **settings) as server, client(server) as asks:
            wish(asks, kafka, topic)
            for n in range(3):
                asks.post("/v1/events", json=feature(f"e{n}", price=3))
            until(lambda: len(told(kafka, topic)) == 3)
    with serving(store, **settings) as server, client(server) as asks:
        asks.post("/v1/events", json=feature("e3", price=3))
        until(lambda: asks.get("/v1/sinks/1").json()["waiting"] == 0)
        until(lambda: asks.get("/v1/sinks/1").json()["upto"] == 4)
    assert numbers(told(kafka, topic)) == [1, 2, 3, 4]


def test_nothing_goes_behind_a_dead_letter_before_that_is_on_disk(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What Kafka has stands for all before it: a crash would bury the letter for good."""
    topic, store = name(), f"sqlite:///{tmp_path}/a.db"
    config: dict[str, Any] = {"max.message.bytes": "2000"}
    kafka.topic(topic, **config)
    settings = QUICK | {"kafka_servers": kafka.address, "kafka_out": topic}
    with monkeypatch.context() as patch:
        patch.setattr(engine, "settle", forgetful)
        patch.setattr(Runner, "entered", forgetful)
        with serving(store, **settings) as server, client(server) as asks:
            wish(asks, kafka, topic)
            for n in range(4):
                asks.post("/v1/events", json=feature(f"e{n}", price=3, text="x" * 5000 * (n == 1)))
            until(lambda: asks.get("/v1/sinks/1").json()["dead"] == 1)
            time.sleep(1.0)  # longer than it takes what is behind it
    assert numbers(told(kafka, topic)) == [1]
    with serving(store, **settings) as server, client(server) as asks:
        until(lambda: numbers(told(kafka, topic)) == [1, 3, 4])
        (letter,) = until(lambda: asks.get("/v1/dead-letters").json()["dead_letters"])
        assert letter["seq"] == 2


def test_a_cluster_that_does_not_know_its_topics_yet_is_not_one_without_positions(
    monkeypatch: pytest.MonkeyPatch,
):
    """As it says just after a start; taken for an empty topic, everything would go once more."""
    settings = Settings(store="memory:", kafka_servers="here:9092", kafka_out="*")
    carriage = object.__new__(Carriage)
    carriage._settings, carriage._patience_s = settings, 1.0
    unknown = SimpleNamespace(error=object(), partitions={})
    reader = SimpleNamespace(
        list_topics=lambda name, timeout: SimpleNamespace(topics={name: unknown}),
        close=lambda: None,
    )
    monkeypatch.setattr("nearcast.server.kafka.client", lambda *_, **__: reader)
    with pytest.raises(NearcastError, match="not there yet"):
        carriage._read_positions()


def test_a_backup_reads_on_from_where_it_was(kafka: Kafka, tmp_path: Path):
    """And not from where Kafka has been told that its group is."""
    topic = kafka.topic(name()).rpartition("/")[2]
    store, backup = tmp_path / "a.db", tmp_path / "b.db"
    settings = QUICK | {"kafka_servers": kafka.address, "kafka_in": topic}
    kafka.produce(topic, [structured("e0")])
    with serving(f"sqlite:///{store}", **settings) as server, client(server) as asks:
        until(lambda: live(asks) == {"e0"})
        asks.post("/v1/backup", json={"file": str(backup)}).raise_for_status()
        kafka.produce(topic, [structured("e1"), structured("e2")])
        until(lambda: live(asks) == {"e0", "e1", "e2"})
        time.sleep(1.0)  # for Kafka to be told
    with serving(f"sqlite:///{backup}", **settings) as server, client(server) as asks:
        until(lambda: live(asks) == {"e0", "e1", "e2"})
        assert came(asks, "accepted") == 2


def test_a_store_that_was_put_back_loses_nothing(kafka: Kafka, tmp_path: Path):
    topic = kafka.topic(name()).rpartition("/")[2]
    store, backup = tmp_path / "a.db", tmp_path / "b.db"
    settings = QUICK | {"kafka_servers": kafka.address, "kafka_out": topic}
    with serving(f"sqlite:///{store}", **settings) as server, client(server) as asks:
        wish(asks, kafka, topic)
        asks.post("/v1/backup", json={"file": str(backup)}).raise_for_status()
        for n in range(3):
            asks.post("/v1/events", json=feature(f"e{n}", price=3))
        until(lambda: len(told(kafka, topic)) == 3)
    with serving(f"sqlite:///{backup}", **settings) as server, client(server) as asks:
        asks.post("/v1/events", json=feature("another", price=3))
        until(lambda: len(told(kafka, topic)) == 4)
    assert told(kafka, topic)[-1] == ("another", "s", 1)


def insist(what: Any) -> Any:
    """Ask until it answers: a server that was killed takes a moment."""
    end = time.monotonic() + 240
    while True:
        try:
            return what()
        except HTTPError:
            assert time.monotonic() < end
            time.sleep(0.05)


def numbers(found: Iterable[tuple[str, str, int]]) -> list[int]:
    return [seq for _, _, seq in found]


@pytest.mark.slow
def test_a_server_that_is_killed_loses_and_repeats_nothing(kafka: Kafka, tmp_path: Path):
    """Kafka in to Kafka out, with SIGKILL at any moment; the same as without."""
    rng = random.Random(27)
    source, sink = name(), name()
    kafka.topic(source, 2)
    kafka.topic(sink, 2)
    settings = QUICK | {
        "kafka_servers": kafka.address, "kafka_in": source, "kafka_out": sink, "kafka_batch": 20,
    }  # fmt: skip
    sent = 0
    with Killable(tmp_path / "a.db", **settings) as server, Asks(base_url=server.url) as asks:
        insist(lambda: asks.get("/readyz").raise_for_status())
        wish(asks, kafka, sink)
        wish(asks, kafka, sink, "t", "bob")
        for _ in range(6):
            kafka.produce(source, [structured(f"e{n}") for n in range(sent, sent + 150)])
            sent += 150
            time.sleep(rng.uniform(0.0, 0.5))  # somewhere in the middle of it
            server.kill()
            server.start()
            insist(lambda: asks.get("/readyz").raise_for_status())
        until(lambda: len(told(kafka, sink)) >= 2 * sent, 240)
        found = told(kafka, sink)
        log = insist(lambda: asks.get("/v1/log", params={"limit": 1000}).json())
    assert Counter((event, thing) for event, thing, _ in found) == {
        (f"e{n}", thing): 1 for n in range(sent) for thing in "st"
    }
    for thing in "st":
        assert numbers(each for each in found if each[1] == thing) == [*range(1, sent + 1)]
    assert len(log["events"]) == sent, "every event is in the log once"


@pytest.mark.slow
def test_kafka_may_go_and_come_again(tmp_path: Path):
    """Killed, and started again; a node of its own, lest others wait for it."""
    node = Kafka(tmp_path / "kafka")
    node.start()
    try:
        source, sink = name(), name()
        node.topic(source)
        node.topic(sink)
        settings = QUICK | {"sink_timeout_s": 4.0, "kafka_in": source, "kafka_out": sink}
        store = f"sqlite:///{tmp_path}/a.db"
        failed = 'nearcast_sent_total{protocol="KAFKA",result="failed"}'
        with (
            serving(store, kafka_servers=node.address, **settings) as server,
            client(server) as asks,
        ):
            wish(asks, node, sink)
            node.produce(source, [structured(f"k{n}") for n in range(50)])
            node.kill()
            until(lambda: is_up(asks) == 0)
            for n in range(50, 100):
                asks.post("/v1/events", json=feature(f"k{n}", price=3)).raise_for_status()
            until(lambda: figures(asks)[failed] > 0)
            node.start()
            until(lambda: len(told(node, sink)) == 100, 240)
            until(lambda: is_up(asks) == 1)
            assert asks.get("/v1/dead-letters").json()["dead_letters"] == []
        found = told(node, sink)
        assert numbers(found) == [*range(1, 101)]
        assert {event for event, _, _ in found} == {f"k{n}" for n in range(100)}
    finally:
        node.kill()


def test_what_was_let_go_of_before_it_was_read_is_told(kafka: Kafka, tmp_path: Path):
    from confluent_kafka import TopicPartition

    topic = name()
    kafka.topic(topic)
    store = f"sqlite:///{tmp_path}/a.db"
    settings = QUICK | {"kafka_servers": kafka.address, "kafka_in": topic}
    kafka.produce(topic, [structured(f"e{n}") for n in range(3)])
    with serving(store, **settings) as server, client(server) as asks:
        until(lambda: live(asks) == {"e0", "e1", "e2"})
    kafka.produce(topic, [structured(f"e{n}") for n in range(3, 10)])
    admin = kafka.admin()
    (done,) = admin.delete_records([TopicPartition(topic, 0, 8)]).values()
    done.result(60)
    with serving(store, **settings) as server, client(server) as asks:
        until(lambda: live(asks) == {f"e{n}" for n in (0, 1, 2, 8, 9)})
        assert came(asks, "missed") == 5


SECRET = '{"sasl.password": "open-sesame", "security.protocol": "SASL_SSL"}'


def test_secrets_are_not_shown(tmp_path: Path):
    file = tmp_path / "kafka.json"
    file.write_text(SECRET)
    for said in (SECRET, str(file)):
        settings, origins = gather({}, None, {"NEARCAST_KAFKA": said})
        shown = describe(settings, origins)
        assert "sesame" not in shown + repr(settings)
        assert said not in shown
        assert "# kafka is set, and not shown" in shown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka", '{"sasl.password": open-sesame}'),
        ("kafka", '["open-sesame"]'),
        ("kafka", "/nowhere/open-sesame"),
        ("kafka_servers", "no port"),
        ("kafka_in", "a, a"),
        ("kafka_in", "no topic"),
        ("kafka_out", "no topic"),
        ("kafka_positions", ""),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, value: str):
    given: dict[str, Any] = {"kafka_servers": "here:9092", name: value}
    with pytest.raises(ValidationError) as raised:
        Settings(**given)
    assert raised.value.field == name
    assert "sesame" not in str(raised.value)


def test_topics_need_a_cluster():
    with pytest.raises(ValidationError, match="kafka_servers"):
        Settings(kafka_in="offers")


def test_a_property_that_librdkafka_does_not_know_is_named():
    wrong = Settings(
        store="memory:", port=0, kafka_servers="here:9092",
        kafka='{"sasl.pasword": "open-sesame"}',
    )  # fmt: skip
    with pytest.raises(ValidationError, match=r"refuses sasl\.pasword") as raised:
        Running(wrong)
    assert "sesame" not in str(raised.value)
