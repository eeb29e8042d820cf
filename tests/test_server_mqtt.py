"""Events, positions and last wills by MQTT, and notifications, against a real Mosquitto."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Client as Asks

from nearcast.broker.service import Service
from nearcast.errors import ValidationError
from nearcast.server import mqtt
from nearcast.server.run import Running
from nearcast.server.settings import Settings, describe, gather
from nearcast.server.sources import envelopes
from nearcast.server.sources.intake import Intake
from tests.killable import Killable
from tests.mosquittos import Mosquitto, Phone, mosquitto
from tests.served import client, feature, make_keys, serving
from tests.test_server_kafka import cloud_event, figures, insist, live
from tests.test_sinks import until

pytestmark = pytest.mark.needs("mosquitto")

QUICK: dict[str, Any] = {
    "sink_backoff_s": 0.05, "sink_backoff_max_s": 0.5, "sink_timeout_s": 20.0, "tick_s": 0.05,
    "sink_attempts": 1000,
}  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path / "mosquitto") as made:
        yield made


@contextmanager
def beside(
    broker: Mosquitto, store: str = "memory:", **more: Any
) -> Iterator[tuple[Running, Asks]]:
    """A server with that broker, and somebody who asks it."""
    settings = QUICK | {"mqtt": broker.url} | more
    with serving(store, **settings) as server, client(server) as asks:
        until(lambda: is_up(asks))
        yield server, asks


def is_up(asks: Asks) -> float:
    return figures(asks)['nearcast_source_up{protocol="MQTT"}']


def came(asks: Asks, result: str) -> float:
    return figures(asks)[f'nearcast_source_total{{protocol="MQTT",result="{result}"}}']


def now() -> str:
    return datetime.now(UTC).isoformat()


def told(asks: Asks, name: str = "ops") -> list[Any]:
    page = asks.get(f"/v1/subscribers/{name}/notifications", params={"after": 0}).json()
    return [
        (each["subscription"], each.get("transition"), each.get("object"))
        for each in page["notifications"]
    ]


def fence(asks: Asks, object: str, *on: str, **more: Any) -> None:
    region = {"type": "Polygon", "coordinates": [[[8, 47], [9, 47], [9, 48], [8, 48], [8, 47]]]}
    said = {"subscriber": "ops", "object": object, "region": region, "on": [*on]} | more
    answer = asks.put("/v1/fences/f", json=said)
    assert answer.status_code in (200, 201), answer.text


def test_events_come_in_both_modes_and_what_is_none_is_set_aside(broker: Mosquitto):
    with beside(broker) as (_, asks):
        phone = Phone(broker, "shop")
        whole = cloud_event("a", price=3)
        del whole["data"]["id"]
        topic = "nearcast/default/events"
        phone.publish(topic, whole, ContentType="application/cloudevents+json")
        data = whole.pop("data")
        beside_it = [*(whole | {"id": "b"}).items()]
        phone.publish(topic, data, ContentType="application/geo+json", UserProperty=beside_it)
        phone.publish(topic, feature("c", price=3), qos=0)
        phone.publish(topic, b"no JSON")
        phone.publish("nearcast/nobody/events", feature("d", price=3))
        until(lambda: live(asks) == {"a", "b", "c"})
        until(lambda: (came(asks, "refused"), came(asks, "ignored")) == (1, 1))
        (letter,) = asks.get("/v1/dead-letters").json()["dead_letters"]
        assert letter["notification"] == {"topic": topic, "properties": {}, "value": "no JSON"}
        answer = asks.post(f"/v1/dead-letters/{letter['id']}/replay")
        assert answer.status_code == 409
        phone.leave()


#: Whatever can be said, by OwnTracks' apps and ours, that no event can be made of.
POISON: list[tuple[str, dict[str, Any]]] = [
    ("nearcast/default/positions/truck/t7", {"lon": 1, "lat": 1, "time": "9999-12-31T23:59:59Z"}),
    ("nearcast/default/positions/truck/t7", {"lon": 1, "lat": 1, "time": [5]}),
    ("nearcast/default/positions/truck/t7", {"lon": 1, "lat": 1, "expires": 5}),
    ("nearcast/default/positions/truck/t7", {"lon": 1, "lat": 1, "keywords": 5}),
    ("nearcast/default/positions/truck/t7", {"lon": 10**400, "lat": 1}),
    ("owntracks/u/d", {"_type": "location", "lon": 1, "lat": 1, "tst": 1e12}),
    ("owntracks/u/d", {"_type": "location", "lon": 1, "lat": 1, "tst": 1e305}),
    ("owntracks/u/d", {"_type": "location", "lon": 1, "lat": 1, "tst": 253402300799}),
    ("owntracks/u/d", {"_type": "location", "lon": 1, "lat": 1, "tst": True}),
    ("owntracks/u/d", {"_type": "location", "lon": 1, "lat": 1, "tst": 1, "inregions": 5}),
]


def test_a_tenant_has_no_more_by_mqtt_than_it_may_and_all_of_it_is_counted(broker: Mosquitto):
    with beside(broker, tenant_events=3) as (_, asks):
        phone = Phone(broker, "shop")
        for id in ("a", "b", "a", "c", "d", "b", "e"):
            phone.publish("nearcast/default/events", feature(id, price=3))
        until(lambda: came(asks, "refused") == 2)
        until(lambda: came(asks, "repeated") == 2)
        assert live(asks) == {"a", "b", "c"}
        found = asks.get("/v1/dead-letters").json()["dead_letters"]
        assert [json.loads(each["notification"]["value"])["id"] for each in found] == ["d", "e"]
        assert all("this tenant may have 3 events" in each["why"] for each in found)
        said = figures(asks)
        assert said['nearcast_events_total{result="accepted"}'] == 3
        assert said['nearcast_events_total{result="repeated"}'] == 2
        assert said['nearcast_tenant_accepted_total{tenant=""}'] == 3
        assert said['nearcast_tenant_repeated_total{tenant=""}'] == 2
        assert said['nearcast_tenant_refused_total{tenant=""}'] == 2
        for id in ("a", "b"):  # where there is room again, more is taken
            assert asks.delete(f"/v1/events/{id}").status_code == 204
        phone.publish("nearcast/default/events", feature("f", price=3))
        until(lambda: live(asks) == {"c", "f"})
        phone.leave()


def test_whatever_is_said_what_comes_behind_it_is_read(broker: Mosquitto):
    with beside(broker, mqtt_owntracks=True) as (_, asks):
        phone = Phone(broker, "shop")
        for topic, said in POISON:
            phone.publish(topic, said)
        phone.publish("nearcast/default/events", feature("behind", price=3))
        until(lambda: live(asks) == {"behind"})
        until(lambda: came(asks, "refused") == len(POISON))
        found = asks.get("/v1/dead-letters").json()["dead_letters"]
        assert [json.loads(each["notification"]["value"]) for each in found] == [
            said for _, said in POISON
        ]
        assert not any("mistake" in each["why"] for each in found), "each says what is wrong"
        phone.leave()


def test_a_message_that_breaks_what_reads_it_is_set_aside_alone(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
):
    together = envelopes.read

    def read(attributes: Any, content_type: Any, body: bytes, desk: Any) -> Any:
        if b"bad" in body:
            raise RuntimeError("a mistake")
        return together(attributes, content_type, body, desk)

    monkeypatch.setattr("nearcast.server.sources.mqtt.read", read)
    with beside(broker) as (_, asks):
        phone = Phone(broker, "shop")
        for id in ("a", "bad", "b"):
            phone.publish("nearcast/default/events", feature(id, price=3))
        until(lambda: live(asks) == {"a", "b"})
        (letter,) = until(lambda: asks.get("/v1/dead-letters").json()["dead_letters"])
        assert json.loads(letter["notification"]["value"])["id"] == "bad"
        assert "mistake" in letter["why"]
        phone.leave()


def test_what_breaks_the_broker_is_set_aside_alone(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
):
    together = Service.publish_many

    def publish_many(self: Service, events: Any, **more: Any) -> Any:
        given = list(events)
        if any(each.id == "bad" for each in given):
            raise RuntimeError("a mistake")
        return together(self, given, **more)

    monkeypatch.setattr(Service, "publish_many", publish_many)
    with beside(broker) as (_, asks):
        phone = Phone(broker, "shop")
        for id in ("a", "bad", "b"):
            phone.publish("nearcast/default/events", feature(id, price=3))
        until(lambda: live(asks) == {"a", "b"})
        (letter,) = until(lambda: asks.get("/v1/dead-letters").json()["dead_letters"])
        assert json.loads(letter["notification"]["value"])["id"] == "bad"
        phone.leave()


def test_positions_cross_fences_and_a_last_will_loses_its_object(broker: Mosquitto):
    with beside(broker) as (_, asks):
        fence(asks, "truck", "enter", "exit", "lost", lost="PT10H")
        will = {"topic": "nearcast/default/lost/truck/t%2F7", "payload": b"", "qos": 1}
        phone = Phone(broker, "t7", **will)
        topic = "nearcast/default/positions/truck/t%2F7"
        phone.publish(topic, {"lon": 8.5, "lat": 47.5, "time": now(), "speed": 13.5})
        until(lambda: told(asks) == [("f", "enter", "t/7")])
        place = {"type": "Point", "coordinates": [7.0, 47.5]}
        phone.publish(topic, {"type": "Feature", "geometry": place, "properties": {"load": 3}})
        until(lambda: told(asks)[1:] == [("f", "exit", "t/7")])
        phone.publish(topic, {"lon": "east", "lat": 47.5})
        until(lambda: came(asks, "refused") == 1)
        phone.die()
        until(lambda: told(asks)[2:] == [("f", "lost", "t/7")])
        events = asks.get("/v1/events").json()["features"]
        known = {key: v for each in events for key, v in each["properties"].items()}
        assert known == {"truck": "t/7", "speed": 13.5, "load": 3}


def test_owntracks_is_understood_as_it_is(broker: Mosquitto):
    with beside(broker, mqtt_owntracks=True) as (_, asks):
        fence(asks, "device", "enter", "lost", lost="PT10H", keywords=["home"])
        will = json.dumps({"_type": "lwt", "tst": 1_700_000_000}).encode()
        phone = Phone(broker, "ot", topic="owntracks/ann/pixel", payload=will, qos=1)
        at = int(time.time())
        location = {
            "_type": "location", "acc": 12, "alt": 443, "batt": 87, "bs": 1, "cog": 271,
            "conn": "w", "created_at": at, "inregions": ["home"], "inrids": ["6da9cf"],
            "lat": 47.37, "lon": 8.54, "m": 1, "t": "u", "tid": "an", "tst": at, "vac": 3,
            "vel": 4, "_id": "c3f2",
        }  # fmt: skip
        phone.publish("owntracks/ann/pixel", location)
        phone.publish("owntracks/ann/pixel", location)
        phone.publish("owntracks/ann/pixel", {"_type": "status", "android": {}})
        until(lambda: told(asks) == [("f", "enter", "ann/pixel")])
        until(lambda: (came(asks, "repeated"), came(asks, "ignored")) == (1, 1))
        (event,) = asks.get("/v1/events").json()["features"]
        assert event["geometry"] == {"type": "Point", "coordinates": [8.54, 47.37]}
        assert event["properties"] == {
            "user": "ann", "device": "ann/pixel", "tid": "an", "acc": 12, "alt": 443, "batt": 87,
            "bs": 1, "cog": 271, "conn": "w", "created_at": at, "m": 1, "t": "u", "vac": 3,
            "vel": 4,
        }  # fmt: skip
        phone.die()
        until(lambda: told(asks)[1:] == [("f", "lost", "ann/pixel")])


def wish(asks: Asks, broker: Mosquitto, id: str = "s", subscriber: str = "ann") -> None:
    said = {"subscriber": subscriber, "filters": [{"cql2": "price < 10"}], "sink": broker.url}
    answer = asks.put(f"/v1/subscriptions/{id}", json=said)
    assert answer.status_code in (200, 201), answer.text


def test_notifications_are_kept_until_somebody_hears_them(broker: Mosquitto):
    with beside(broker) as (_, asks):
        wish(asks, broker, subscriber="ann/#1")
        for n in range(3):
            asks.post("/v1/events", json=feature(f"e{n}", price=3)).raise_for_status()
        sent = 'nearcast_sent_total{protocol="MQTT",result='
        until(lambda: figures(asks)[f'{sent}"failed"}}'] > 2)
        assert "nobody" in asks.get("/v1/sinks/1").json()["why"]
        phone = Phone(broker, "ann")
        phone.subscribe("nearcast/default/notifications/ann%2F%231")
        until(lambda: len(phone.heard) == 3)
        pulled = asks.get("/v1/subscribers/ann%2F%231/notifications", params={"after": 0}).json()
        assert [each["seq"] for each in phone.said()] == [1, 2, 3]
        assert phone.said() == pulled["notifications"] or pulled["notifications"] == []
        about: Any = phone.heard[0].properties
        assert about.ContentType == "application/json"
        until(lambda: asks.get("/v1/sinks/1").json()["upto"] == 3)
        phone.leave()


@pytest.mark.slow
def test_a_broker_that_is_restarted_loses_nothing(broker: Mosquitto, tmp_path: Path):
    with beside(broker, f"sqlite:///{tmp_path}/a.db") as (_, asks):
        wish(asks, broker)
        phone = Phone(broker, "ann")
        phone.subscribe("nearcast/default/notifications/ann")
        expected: set[str] = set()
        for turn in range(2):
            device = Phone(broker, f"device-{turn}")
            for n in range(20):
                device.publish("nearcast/default/events", feature(f"d{turn}-{n}", price=3))
                expected.add(f"d{turn}-{n}")
            device.leave()
            broker.stop()
            until(lambda: not is_up(asks))
            for n in range(20):
                asks.post("/v1/events", json=feature(f"h{turn}-{n}", price=3)).raise_for_status()
                expected.add(f"h{turn}-{n}")
            broker.start()
            until(lambda: is_up(asks))
            until(lambda: {each["event"]["id"] for each in phone.said()} == expected)
        numbers = [each["seq"] for each in phone.said()]
        assert sorted({*numbers}) == [*range(1, 81)]
        first = [seq for at, seq in enumerate(numbers) if seq not in numbers[:at]]
        assert first == sorted(first), "in order, but for what is said twice"
        phone.leave()


def test_a_message_is_acknowledged_after_its_commit(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What a server has read and not committed comes again to the next one."""

    async def never(*_: Any) -> None:
        read.set()
        await asyncio.Event().wait()

    store, read = f"sqlite:///{tmp_path}/a.db", threading.Event()
    device = Phone(broker, "device")
    with monkeypatch.context() as patch:
        patch.setattr(Intake, "take", never)
        with beside(broker, store):
            device.publish("nearcast/default/events", feature("e", price=3))
            assert read.wait(120)
    with beside(broker, store) as (_, asks):
        until(lambda: live(asks) == {"e"})
    device.leave()


@pytest.mark.slow
def test_what_comes_while_the_server_is_away_waits_for_it(broker: Mosquitto, tmp_path: Path):
    device = Phone(broker, "device")
    sent = 0
    settings = QUICK | {"mqtt": broker.url, "mqtt_batch": 20}
    with Killable(tmp_path / "a.db", **settings) as server, Asks(base_url=server.url) as asks:
        insist(lambda: asks.get("/readyz").raise_for_status())
        until(lambda: insist(lambda: is_up(asks)))
        for _ in range(4):
            for _ in range(60):
                device.publish("nearcast/default/events", feature(f"e{sent}", price=3))
                sent += 1
            server.kill()
            for _ in range(20):
                device.publish("nearcast/default/events", feature(f"e{sent}", price=3))
                sent += 1
            server.start()
            insist(lambda: asks.get("/readyz").raise_for_status())
        until(lambda: len(live(asks)) == sent)
        log = insist(lambda: asks.get("/v1/log", params={"limit": 1000}).json())
    assert [each["id"] for each in log["events"]] == [f"e{n}" for n in range(sent)]
    device.leave()


def test_a_broker_that_asks_for_a_password(tmp_path: Path):
    users = {"nearcast": "open-sesame"}
    with mosquitto(tmp_path / "mosquitto", users) as broker:
        with serving(mqtt=broker.url, **QUICK) as server, client(server) as asks:
            wish(asks, broker)
            asks.post("/v1/events", json=feature("e", price=3))
            until(lambda: "Not authorized" in str(asks.get("/v1/sinks/1").json()["why"]))
            assert not is_up(asks)
        said = {"mqtt_user": "nearcast", "mqtt_password": "open-sesame"}
        with beside(broker, **said) as (_, asks):
            wish(asks, broker)
            asks.post("/v1/events", json=feature("e", price=3))
            until(lambda: "nobody" in str(asks.get("/v1/sinks/1").json()["why"]))


def test_secrets_are_not_shown():
    around = {"NEARCAST_MQTT": "mqtts://broker", "NEARCAST_MQTT_PASSWORD": "open-sesame"}
    settings, origins = gather({}, None, around)
    assert settings.mqtt_password == "open-sesame"
    assert "sesame" not in describe(settings, origins) + repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mqtt", "http://broker"),
        ("mqtt", "mqtt://broker/topic"),
        ("mqtt", "mqtt://broker:x"),
        ("mqtt", "mqtt://nearcast:open-sesame@broker"),
        ("mqtt_prefix", "near/#"),
        ("mqtt_prefix", "/near"),
        ("mqtt_batch", 0),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, value: Any):
    given: dict[str, Any] = {"mqtt": "mqtt://broker", name: value}
    with pytest.raises(ValidationError) as raised:
        Settings(**given)
    assert raised.value.field == name
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize(
    ("sink", "settings", "field"),
    [
        ("mqtt://elsewhere", {}, "sink"),
        ("mqtts://broker:1883", {}, "sink"),
        ("mqtt://broker/topic", {}, "sink"),
        ("mqtt://broker", {"topicname": "nearcast/default/events"}, "protocolsettings.topicname"),
    ],
)
def test_sinks_are_at_the_servers_own_broker(sink: str, settings: dict[str, Any], field: str):
    with serving(mqtt="mqtt://broker") as server, client(server) as asks:
        said = {"subscriber": "ann", "sink": sink, "protocolsettings": settings}
        answer = asks.put("/v1/subscriptions/s", json=said)
        assert (answer.status_code, answer.json()["field"]) == (422, field)


@pytest.mark.parametrize("text", ["ann", "a/b", "+", "#", "a%2Fb", "Zoë", "a b", "\0", "default"])
def test_levels_say_what_they_stand_for(text: str):
    level = mqtt.level(text)
    assert not set(level) & set("+#/\0")
    assert mqtt.text_of(level) == text
    assert mqtt.tenant_of(mqtt.tenant_level(text)) == text


def test_a_tenant_called_as_ours_is_has_topics_of_its_own(broker: Mosquitto, tmp_path: Path):
    ours, theirs = make_keys(
        tmp_path / "a.db", {"role": "admin"}, {"role": "admin", "tenant": "default"}
    )
    store = f"sqlite:///{tmp_path}/a.db"
    phone = Phone(broker, "shop")
    phone.subscribe("nearcast/+/notifications/#")
    with (
        serving(store, mqtt=broker.url, **QUICK) as server,
        client(server, ours) as we,
        client(server, theirs) as they,
    ):
        until(lambda: is_up(we))
        phone.publish("nearcast/default/events", feature("ours", price=3))
        phone.publish("nearcast/%64efault/events", feature("theirs", price=3))
        until(lambda: live(we) == {"ours"})
        until(lambda: live(they) == {"theirs"})
        for asks in (they, we):
            said = {"subscriber": "ann", "sink": broker.url}
            assert asks.put("/v1/subscriptions/s", json=said).status_code == 201
        until(lambda: len(phone.heard) == 2)
    heard = {each.topic: json.loads(each.payload)["event"]["id"] for each in phone.heard}
    assert heard == {
        "nearcast/default/notifications/ann": "ours",
        "nearcast/%64efault/notifications/ann": "theirs",
    }
    phone.leave()
