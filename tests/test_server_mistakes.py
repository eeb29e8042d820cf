"""A mistake in one call is that call's alone: the others are made, and what is there is right."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from nearcast.broker.service import Service
from nearcast.model.events import Event
from nearcast.server.run import Running
from tests.served import client, feature, serving

Breaks = Callable[[Service], None]


def by_itself(_: Service) -> None:
    raise RuntimeError("a mistake of ours")


def in_the_store(broker: Service) -> None:
    """What it staged last is half of a change, and there is no more of it."""
    broker._outlet.store._facts["entry"] = None  # type: ignore[attr-defined]
    raise TypeError("a change that nobody can write")


def at_the_commit(broker: Service) -> None:
    """SQLite does not take such a text; nobody notices before the commit."""
    store: Any = broker._outlet.store
    store.database.stage("INSERT INTO facts VALUES (1, ?, 1)", ("\ud800",))


def against_a_constraint(broker: Service) -> None:
    store: Any = broker._outlet.store
    for _ in range(2):
        store.database.stage("INSERT INTO facts VALUES (1, 'twice', 1)", ())


def break_at_poison(monkeypatch: pytest.MonkeyPatch, breaks: Breaks) -> None:
    """Events named so are published, in memory, before it breaks."""
    publish = Service.publish

    def poisoned(self: Service, event: Event, **of: Any) -> Any:
        reply = publish(self, event, **of)
        if event.id.startswith("poison"):
            breaks(self)
        return reply

    publish_many = Service.publish_many

    def poisoned_many(self: Service, events: list[Event], **of: Any) -> Any:
        reply = publish_many(self, events, **of)
        if any(event.id.startswith("poison") for event in events):
            breaks(self)
        return reply

    monkeypatch.setattr(Service, "publish", poisoned)
    monkeypatch.setattr(Service, "publish_many", poisoned_many)


def post_all(server: Running, ids: list[str]) -> dict[str, int]:
    """Statuses of events that are posted at once."""
    found: dict[str, int] = {}
    lock = threading.Lock()

    def post(id: str) -> None:
        with client(server) as http:
            answer = http.post("/v1/events", json=feature(id, price=1))
            if answer.status_code == 500:
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["remedy"]
            with lock:
                found[id] = answer.status_code

    threads = [threading.Thread(target=post, args=(id,)) for id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def told(server: Running) -> list[tuple[int, str]]:
    with client(server) as http:
        page = http.get("/v1/subscribers/ann/notifications?after=0").json()
    return [(each["seq"], each["event"]["id"]) for each in page["notifications"]]


@pytest.mark.parametrize("breaks", [by_itself, in_the_store, at_the_commit, against_a_constraint])
def test_a_mistake_in_one_call_is_that_calls_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: Breaks
):
    break_at_poison(monkeypatch, breaks)
    good = [f"e{n}" for n in range(12)]
    bad = ["poison1", "poison2"]
    with serving(tmp_path / "m.db") as server:
        with client(server) as http:
            http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
            http.put(
                "/v1/composites/c", json={"subscriber": "ops", "text": 'Q(2)(STRING: a = "b")'}
            )
            assert http.post("/v1/events", json=feature("first", price=1)).status_code == 200
            statuses = post_all(server, [*good[:6], *bad, *good[6:]])
            assert statuses == dict.fromkeys(good, 200) | dict.fromkeys(bad, 500)
            assert http.get("/readyz").status_code == 200
            for id in bad:
                assert http.get(f"/v1/events/{id}").status_code == 404
            assert http.post("/v1/events", json=feature("last", price=1)).status_code == 200
            log = http.get("/v1/log").json()
            assert "nearcast_mistakes_total 0.0" not in http.get("/metrics").text
        before = told(server)
        assert [seq for seq, _ in before] == list(range(1, len(good) + 3))
        assert {id for _, id in before} == {*good, "first", "last"}
        assert [each["id"] for each in log["events"]] == [id for _, id in before]
        assert server.error is None
    with serving(tmp_path / "m.db") as server:
        assert told(server) == before


def test_a_store_in_memory_goes_on_as_well(monkeypatch: pytest.MonkeyPatch):
    break_at_poison(monkeypatch, by_itself)
    with serving() as server:
        with client(server) as http:
            http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        assert post_all(server, ["e1", "poison", "e2"]) == {"e1": 200, "poison": 500, "e2": 200}
        assert {id for _, id in told(server)} == {"e1", "e2"}


def test_a_socket_hears_of_the_mistake_and_of_all_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    break_at_poison(monkeypatch, by_itself)
    around = {"id": "near", "region": {"type": "Around", "radius_m": 300}}
    url = "/v1/socket"
    with (
        serving(tmp_path / "s.db") as server,
        connect(server.url.replace("http", "ws") + url, open_timeout=240) as end,
    ):
        heard: list[dict[str, Any]] = []

        def say(**frame: Any) -> None:
            end.send(json.dumps(frame))

        def hear(type: str) -> dict[str, Any]:
            """The next frame of a type, or one that came while another was waited for."""
            while not (found := [frame for frame in heard if frame["type"] == type]):
                heard.append(json.loads(end.recv(timeout=240)))
            heard.remove(found[0])
            return found[0]

        say(type="hello", subscriber="ann")
        hear("welcome")
        say(type="subscribe", subscription=around, ref=1)
        hear("done")
        say(type="place", coordinates=[8.5, 47.4], epoch=1, ref=2)
        hear("done")
        say(type="publish", event=feature("poison", 8.5, 47.4), ref=3)
        problem = hear("error")
        assert (problem["ref"], problem["problem"]["status"]) == (3, 500)
        say(type="publish", event=feature("near", 8.5, 47.4), ref=4)
        asked = hear("request")
        say(type="place", coordinates=[8.5, 47.4], epoch=asked["after"] + 1)
        (there,) = hear("notifications")["notifications"]
        assert (there["seq"], there["event"]["id"]) == (1, "near")


def test_a_mistake_of_time_itself_stops_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serving(tmp_path / "t.db") as server:
        with client(server) as http:
            http.post("/v1/events", json=feature("kept"))
        monkeypatch.setattr(Service, "advance", by_itself)
        server.desk.core._thread.join(240)
        assert not server.desk.core._thread.is_alive()
    monkeypatch.undo()
    assert isinstance(server.error, RuntimeError)
    with serving(tmp_path / "t.db") as server, client(server) as http:
        assert http.get("/v1/events/kept").status_code == 200


def test_a_failure_to_send_on_what_was_told_keeps_nobody_waiting(tmp_path: Path):
    with serving(tmp_path / "r.db") as server, client(server) as http:
        server.desk.feeds.release = by_itself  # type: ignore[assignment,method-assign]
        assert http.post("/v1/events", json=feature("e")).status_code == 200
        assert http.get("/v1/events/e").status_code == 200


def test_every_tenant_has_its_matcher_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A store that several brokers share is closed by whoever opened it, after all of them."""
    from tests.served import make_keys

    monkeypatch.setattr("nearcast.storage.snapshot._FEW", 1)
    keys = make_keys(tmp_path / "s.db", {"role": "admin"}, {"role": "admin", "tenant": "shop"})
    with serving(tmp_path / "s.db") as server:
        for key in keys:
            with client(server, key) as http:
                wish = {"subscriber": "ann", "filters": [{"cql2": "price < 1"}]}
                http.put("/v1/subscriptions/s", json=wish)
    with serving(tmp_path / "s.db") as server:
        for broker in server.house.brokers().values():
            store: Any = broker._outlet.store
            assert store._snapshot.used


def test_who_asks_while_it_begins_again_for_long_is_told_to_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    break_at_poison(monkeypatch, by_itself)
    monkeypatch.setattr("nearcast.server.core._AGAIN_S", 0.0)
    with serving(tmp_path / "l.db") as server, client(server) as http:
        go, begin = threading.Event(), server.house.begin_again

        def slow(tenant: str) -> None:
            assert go.wait(240)
            begin(tenant)

        server.house.begin_again = slow  # type: ignore[method-assign]
        asking = threading.Thread(target=post_all, args=(server, ["poison"]))
        asking.start()
        while http.get("/readyz").status_code == 200:
            pass
        refused = http.post("/v1/events", json=feature("e"))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        go.set()
        asking.join()
        assert http.get("/readyz").status_code == 200
        assert http.post("/v1/events", json=feature("e")).status_code == 200
