"""The server's paths, over real sockets."""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nearcast import Point, SafeRegion
from nearcast.errors import StoreError, ValidationError
from nearcast.server.run import Running
from nearcast.server.settings import Settings
from tests.served import client, feature, serving

CHEAP = {"subscriber": "ann", "filters": [{"cql2": "price < 10"}]}
ALARMS = {"subscriber": "ops", "text": 'Q(2)(STRING: type = "alarm")'}
YARD = {
    "subscriber": "ops",
    "object": "truck",
    "region": {"type": "Circle", "coordinates": [8.5, 47.4], "radius_m": 1000},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("served") / "x.db") as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with client(server) as made:
        yield made


def pulled(http: httpx2.Client, who: str, **query: Any) -> dict[str, Any]:
    answer = http.get(f"/v1/subscribers/{who}/notifications", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_it_is_alive_and_ready(http: httpx2.Client):
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ready"}
    named = http.get("/readyz?store").json()
    assert named == {"status": "ready", "store": http.get("/readyz?store").json()["store"]}


def test_from_a_subscription_to_its_acknowledgement(http: httpx2.Client):
    made = http.put("/v1/subscriptions/way", json=CHEAP | {"subscriber": "way"})
    assert (made.status_code, made.json()["created"]) == (201, True)
    cloud = {
        "specversion": "1.0", "id": "w1", "source": "/shop", "type": "offer", "extra": "ignored",
        "data": {"type": "Feature", "geometry": None, "properties": {"price": 3}},
    }  # fmt: skip
    assert http.post("/v1/events", json=cloud).json()["accepted"] == 1
    again = http.post("/v1/events", json=[cloud]).json()
    assert (again["accepted"], again["repeated"]) == (0, 1)
    many = {"type": "FeatureCollection", "features": [feature(f"w{n}", price=n) for n in (2, 11)]}
    assert http.post("/v1/events", json=many).json()["accepted"] == 2
    page = pulled(http, "way")
    assert [(told["seq"], told["event"]["id"]) for told in page["notifications"]] == [
        (1, "w1"),
        (2, "w2"),
    ]
    assert set(page["notifications"][0]) == {
        "seq", "subscription", "subscriber", "at", "event", "transition", "object", "parts",
    }  # fmt: skip
    assert page["next"] == 2
    assert page["notifications"][0]["event"]["source"] == "/shop"
    assert http.post("/v1/subscribers/way/ack", json={"upto": 1}).status_code == 200
    assert [told["seq"] for told in pulled(http, "way")["notifications"]] == [2]
    assert pulled(http, "way", after=2)["notifications"] == []
    assert http.post("/v1/subscribers/way/ack", json={"upto": 9}).status_code == 422


def test_a_batch_is_taken_whole_or_not_at_all(http: httpx2.Client):
    bad = [feature("b1", price=1), feature("b2", 999.0), feature("b3", price=1)]
    answer = http.post("/v1/events", json=bad)
    assert answer.status_code == 422
    problem = answer.json()
    assert (problem["row"], problem["field"]) == (1, "geometry.x")
    assert http.get("/v1/events/b1").status_code == 404


def test_another_event_under_a_live_id_is_refused(http: httpx2.Client):
    http.post("/v1/events", json=feature("dup", price=1))
    assert http.post("/v1/events", json=feature("dup", price=2)).status_code == 409
    assert http.delete("/v1/events/dup").status_code == 204
    assert http.delete("/v1/events/dup").status_code == 404
    assert http.post("/v1/events", json=feature("dup", price=2)).status_code == 200


@pytest.mark.parametrize(
    ("path", "said", "other"),
    [
        ("subscriptions", CHEAP, CHEAP | {"keywords": ["sale"]}),
        ("fences", YARD, YARD | {"margin_m": 5.0}),
        ("composites", ALARMS, ALARMS | {"consume": "recent"}),
    ],
)
def test_things_come_and_go(http: httpx2.Client, path: str, said: Any, other: Any):
    one = f"/v1/{path}/thing {path}/1"
    assert http.get(one).status_code == 404
    assert http.put(one, json=said).status_code == 201
    assert http.put(one, json=said).json()["created"] is False
    assert http.put(one, json=said | {"id": "another"}).status_code == 422
    got = http.get(one).json()
    assert got["id"] == f"thing {path}/1"
    assert {name: got[name] for name in said} == said
    assert http.put(one, json=other).status_code == 200
    assert {name: http.get(one).json()[name] for name in other} == other
    listed = http.get(f"/v1/{path}", params={"limit": 1000}).json()
    assert got["id"] in [each["id"] for each in listed[path]]
    for elsewhere in {"subscriptions", "fences", "composites"} - {path}:
        assert http.get(one.replace(path, elsewhere, 1)).status_code == 404
        wrong = {"subscriptions": CHEAP, "fences": YARD, "composites": ALARMS}[elsewhere]
        assert http.put(one.replace(path, elsewhere, 1), json=wrong).status_code == 409
    assert http.delete(one).status_code == 204
    assert http.delete(one).status_code == 404
    assert http.get(one).status_code == 404


def test_lists_come_in_pages(http: httpx2.Client):
    ids = [f"page{n}" for n in range(5)]
    for id in ids:
        http.put(f"/v1/subscriptions/{id}", json={"subscriber": "pages"})
    seen, after = [], ""
    while True:
        query: dict[str, Any] = {"limit": 2, "after": after, "subscriber": "pages"}
        page = http.get("/v1/subscriptions", params=query).json()
        if not page["subscriptions"]:
            break
        assert len(page["subscriptions"]) <= 2
        seen += [each["id"] for each in page["subscriptions"]]
        after = page["next"]
    assert seen == ids
    assert http.get("/v1/subscriptions", params={"limit": 10**6}).status_code == 200


def test_an_idempotency_key_makes_one_thing(http: httpx2.Client):
    headers = {"Idempotency-Key": "k1"}
    first = http.post("/v1/subscriptions", json=CHEAP, headers=headers)
    again = http.post("/v1/subscriptions", json=CHEAP, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert http.get(first.headers["location"]).status_code == 200
    other = http.post("/v1/subscriptions", json=CHEAP | {"keywords": ["x"]}, headers=headers)
    assert other.status_code == 409
    plain = [http.post("/v1/subscriptions", json=CHEAP).json()["id"] for _ in range(2)]
    assert len({first.json()["id"], *plain}) == 3


def test_fences_and_patterns_tell(http: httpx2.Client):
    http.put("/v1/fences/told yard", json=YARD | {"subscriber": "told"})
    http.put("/v1/composites/told twice", json=ALARMS | {"subscriber": "told"})
    http.post("/v1/events", json=feature("t1", 8.5, 47.4, truck="T1"))
    for n in range(2):
        http.post("/v1/events", json=feature(f"a{n}", type="alarm"))
    told = pulled(http, "told", wait=60)["notifications"]
    crossed = [each for each in told if each["subscription"] == "told yard"]
    assert [(each["transition"], each["object"]) for each in crossed] == [("enter", "T1")]
    while not (found := [each for each in told if each["parts"]]):
        told += pulled(http, "told", wait=60, after=told[-1]["seq"])["notifications"]
    assert found[0]["parts"] == ["a0", "a1"]


def test_a_mover_is_given_a_safe_region_and_told_what_is_near(http: httpx2.Client):
    around = {"subscriber": "mo", "keywords": ["cafe"],
              "region": {"type": "Around", "radius_m": 500}}  # fmt: skip
    http.put("/v1/subscriptions/near", json=around)
    there = http.put("/v1/subscribers/mo/place", json={"coordinates": [8.5, 47.4], "epoch": 1})
    assert there.status_code == 200
    assert there.json()["epoch"] == 1
    region = SafeRegion.decode(b64decode(there.json()["safe_region"]))
    assert region.contains(Point(8.5, 47.4))
    http.post("/v1/events", json=feature("cafe", 8.5, 47.4) | {"keywords": ["cafe"]})
    began = time.monotonic()
    assert pulled(http, "mo", wait=60)["request"] is not None
    said = time.monotonic()
    assert said - began < 60
    assert pulled(http, "mo", wait=0.2)["request"] is not None
    assert time.monotonic() - said > 0.1  # it was told already, so this one waits
    there = http.put("/v1/subscribers/mo/place", json={"coordinates": [8.5, 47.4], "epoch": 2})
    assert [told["event"]["id"] for told in there.json()["notifications"]] == ["cafe"]
    assert [told["event"]["id"] for told in pulled(http, "mo")["notifications"]] == ["cafe"]
    assert pulled(http, "mo")["request"] is None


def test_a_pull_waits_for_what_comes(server: Running, http: httpx2.Client):
    http.put("/v1/subscriptions/late", json={"subscriber": "late", "keywords": ["late"]})
    began = time.monotonic()
    assert pulled(http, "late", wait=0.2)["notifications"] == []
    assert time.monotonic() - began > 0.1

    def soon() -> None:
        time.sleep(0.3)
        httpx2.post(f"{server.url}/v1/events", json=feature("late") | {"keywords": ["late"]},
                    timeout=120)  # fmt: skip

    thread = threading.Thread(target=soon)
    thread.start()
    assert len(pulled(http, "late", wait=60)["notifications"]) == 1
    thread.join()


def test_the_log_and_the_live_events(http: httpx2.Client):
    end = http.post("/v1/events", json=feature("l0", 1.0, 1.0, n=0)).json()["offset"]
    some = [feature(f"l{n}", float(n), 1.0, n=n) for n in range(1, 4)]
    http.post("/v1/events", json=some)
    log = http.get("/v1/log", params={"after": end, "limit": 2}).json()
    assert [event["id"] for event in log["events"]] == ["l1", "l2"]
    assert log["next"] == log["events"][-1]["offset"]
    assert log["last"] >= log["next"]
    live = http.get("/v1/events", params={"bbox": "0.5,0,2.5,2", "where": "n >= 1"}).json()
    assert live["type"] == "FeatureCollection"
    assert [each["id"] for each in live["features"]] == ["l1", "l2"]
    rest = http.get("/v1/events", params={"after": live["next"], "where": "n >= 1"}).json()
    assert [each["id"] for each in rest["features"]] == ["l3"]
    assert http.get("/v1/events/l3").json()["data"]["properties"] == {"n": 3}
    assert http.get("/v1/events", params={"bbox": "1,2,3"}).status_code == 400


def test_what_was_answered_is_there_after_a_restart(tmp_path: Path):
    with serving(tmp_path / "y.db") as server, client(server) as http:
        http.put("/v1/subscriptions/s1", json=CHEAP)
        http.post("/v1/events", json=feature("e1", price=1))
    with serving(tmp_path / "y.db") as server, client(server) as http:
        assert [told["seq"] for told in pulled(http, "ann")["notifications"]] == [1]
        again = http.post("/v1/events", json=feature("e1", price=1)).json()
        assert again["repeated"] == 1
        http.post("/v1/events", json=feature("e2", price=1))
        assert [told["seq"] for told in pulled(http, "ann")["notifications"]] == [1, 2]


def test_a_second_server_on_the_same_store_is_refused(server: Running):
    with pytest.raises(StoreError, match="in use by another process"):
        Running(Settings(store=server.settings.store, port=0))


def test_a_port_in_use_is_refused(server: Running, tmp_path: Path):
    with pytest.raises(ValidationError, match="in use"):
        Running(Settings(store=str(tmp_path / "z.db"), port=server.port))
    with serving(tmp_path / "z.db"):  # the store was let go
        pass


def test_without_keys_it_stays_on_this_machine(tmp_path: Path):
    with pytest.raises(ValidationError, match="loopback only"):
        Running(Settings(store=str(tmp_path / "z.db"), host="0.0.0.0", port=0))
