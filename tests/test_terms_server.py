"""Terms over HTTP: said, read back, paused and resumed; digests to webhooks as one request."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Client as Asks
from standardwebhooks.webhooks import Webhook
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from nearcast import QuietHours, Subscription, Terms
from nearcast.client import AsyncClient, Client
from nearcast.errors import UnknownIdError
from tests.hooks import answers, hooking, takes
from tests.served import client, serving
from tests.test_sinks import QUICK, acknowledged, begin, publish, until

CONFIG: dict[str, Any] = {
    "subscriptionMaxEvents": 100, "initialEvent": False, "digest": "PT600S", "whilePaused": "keep",
    "quietHours": {"start": "22:00", "end": "07:00", "zone": "Europe/Zurich", "keep": True},
}  # fmt: skip


def pulled(asks: Asks, name: str = "ann") -> list[str]:
    page = asks.get(f"/v1/subscribers/{name}/notifications", params={"after": 0}).json()
    return [each["event"]["id"] for each in page["notifications"]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("subscriptions", {}),
        ("fences", {"object": "car", "region": {"type": "Circle", "coordinates": [0, 0],
                                                "radius_m": 1000}}),
        ("composites", {"text": 'Q(1)(STRING: kind = "alarm")'}),
    ],
)  # fmt: skip
def test_terms_are_read_back_and_things_pause(path: str, body: dict[str, Any]):
    config = dict(CONFIG)
    if path == "composites":
        del config["initialEvent"]
    with serving() as server, client(server) as asks:
        one = f"/v1/{path}/s"
        assert asks.put(one, json={"subscriber": "ann", "config": config} | body).is_success
        shown = asks.get(one).json()
        assert shown["config"] == config
        assert "status" not in shown
        for _ in range(2):  # twice is harmless
            said = asks.post(f"{one}/pause")
            assert (said.status_code, said.json()) == (200, {"id": "s", "status": "INACTIVE"})
        shown = asks.get(one).json()
        assert shown["status"] == "INACTIVE"
        assert asks.get(f"/v1/{path}").json()[path] == [shown]
        assert not asks.put(one, json=shown).json()["created"]  # what was read may be written
        assert asks.get(one).json() == shown
        assert asks.post(f"{one}/resume").json() == {"id": "s", "status": "ACTIVE"}
        assert "status" not in asks.get(one).json()
        assert asks.post(f"/v1/{path}/other/pause").status_code == 404
        bad = {"config": {"quietHours": {"start": "22:00", "end": "7"}}}
        problem = asks.put(one, json={"subscriber": "ann"} | body | bad).json()
        assert problem["field"] == "config.quietHours.end"


def test_clients_pause_and_resume():
    terms = Terms(while_paused="keep", quiet_hours=QuietHours("00:00", "00:01"))
    with serving() as server, client(server) as asks, Client(server.url) as ours:
        ours.subscribe(Subscription("s", "ann", terms=Terms(while_paused="keep", max_events=2)))
        ours.subscribe(Subscription("t", "bob", "x > 1000", terms=terms))
        ours.pause("s")
        publish(asks, "e1")
        assert pulled(asks) == []
        ours.resume("s")
        assert pulled(asks) == ["e1"]
        publish(asks, "e2", "e3")
        assert pulled(asks) == ["e1", "e2"]
        with pytest.raises(UnknownIdError):
            ours.pause("s")
        (known,), _ = ours.things()
        assert known == Subscription("t", "bob", "x > 1000", terms=terms)


def test_awaited_clients_pause_and_resume():
    async def go(url: str) -> None:
        async with AsyncClient(url) as ours:
            await ours.subscribe(Subscription("s", "ann"))
            await ours.pause("s")
            await ours.resume("s")
            with pytest.raises(UnknownIdError):
                await ours.resume("t")

    with serving() as server:
        asyncio.run(go(server.url))


def test_a_digest_is_one_request(tmp_path: Path):
    with hooking(takes) as (hook,):
        with serving(f"sqlite:///{tmp_path}/a.db", **QUICK) as server, client(server) as asks:
            done = begin(asks, hook, config={"digest": 2})
            publish(asks, "e1", "e2", "e3")
            until(lambda: hook.requests)
            seen = [
                told["event"]["id"] for each in hook.requests
                for told in each.said["notifications"]
            ]  # fmt: skip
            until(lambda: acknowledged(asks) == len(seen))
        first = hook.requests[0]
        verifies = Webhook(done["protocolsettings"]["secret"])
        assert verifies.verify(first.body, first.headers) == first.said
        behind = [told["digest"] for told in first.said["notifications"]]
        assert behind == [*reversed(range(len(behind)))]
        seqs = [told["seq"] for told in first.said["notifications"]]
        assert seqs == [*range(1, len(seqs) + 1)]
        assert first.said["next"] == seqs[-1]
        assert first.headers["webhook-id"].endswith(f"_{seqs[-1]}")


def test_a_digest_that_nobody_takes_is_one_dead_letter(tmp_path: Path):
    settings = QUICK | {"sink_attempts": 2, "sink_queue": 2}
    store = f"sqlite:///{tmp_path}/a.db"
    with hooking(answers(500)) as (hook,):
        with serving(store, **settings) as server, client(server) as asks:
            begin(asks, hook, config={"whilePaused": "keep", "digest": 1})
            asks.post("/v1/subscriptions/s/pause")
            publish(asks, *(f"e{i}" for i in range(5)))
            asks.post("/v1/subscriptions/s/resume")
            until(lambda: asks.get("/v1/dead-letters").json()["dead_letters"])
            (dead,) = asks.get("/v1/dead-letters").json()["dead_letters"]
            told = dead["notification"]["notifications"]
            assert [each["event"]["id"] for each in told] == [f"e{i}" for i in range(5)]
            assert dead["seq"] == 5
            until(lambda: acknowledged(asks) == 5)
        hook.behave = takes
        before = len(hook.requests)
        with serving(store, **settings) as server, client(server) as asks:
            asks.post(f"/v1/dead-letters/{dead['id']}/replay")
            until(lambda: not asks.get("/v1/dead-letters").json()["dead_letters"])
    assert hook.requests[before].said == dead["notification"]
    assert hook.requests[before].headers["webhook-id"] == hook.requests[0].headers["webhook-id"]


def test_a_digest_that_was_not_sent_is_sent_whole_after_a_restart(tmp_path: Path):
    store, more = f"sqlite:///{tmp_path}/a.db", QUICK | {"sink_queue": 2}
    with hooking(answers(500)) as (hook,):
        with serving(store, **more) as server, client(server) as asks:
            begin(asks, hook, config={"whilePaused": "keep", "digest": 1})
            asks.post("/v1/subscriptions/s/pause")
            publish(asks, *(f"e{i}" for i in range(5)))
            asks.post("/v1/subscriptions/s/resume")
            until(lambda: len(hook.requests) > 1)
        hook.behave = takes
        with serving(store, **more) as server, client(server) as asks:
            until(lambda: acknowledged(asks) == 5)
    last = hook.requests[-1].said
    assert [each["seq"] for each in last["notifications"]] == [1, 2, 3, 4, 5]
    assert Counter(len(each.said["notifications"]) for each in hook.requests).keys() == {5}


def test_what_ended_as_it_began_is_sent():
    with hooking() as (hook,), serving(**QUICK) as server, client(server) as asks:
        publish(asks, "e1", "e2", "e3")
        done = begin(asks, hook, config={"subscriptionMaxEvents": 2})
        assert len(done["notifications"]) == 2
        until(lambda: len(hook.requests) == 2)
        assert asks.get("/v1/subscriptions/s").status_code == 404
        assert hook.seqs == [1, 2]
        until(lambda: not asks.get("/v1/sinks").json()["sinks"])


def test_what_told_enough_and_is_put_again_is_not_begun_again():
    with hooking() as (hook,), serving(**QUICK) as server, client(server) as asks:
        publish(asks, "e1", "e2", "e3")
        config = {"subscriptionMaxEvents": 2}
        begin(asks, hook, config=config)
        again = begin(asks, hook, config=config)
        assert (again["created"], again["notifications"]) == (False, [])
        plain = {"id": "t", "subscriber": "ann", "config": config}
        for counts in ({"accepted": 1, "repeated": 0}, {"accepted": 0, "repeated": 1}):
            assert asks.post("/v1/subscriptions", json=[plain]).json() == counts
        assert asks.put("/v1/subscriptions/t", json=plain).status_code == 200
        until(lambda: len(hook.requests) == 2)
        until(lambda: not asks.get("/v1/sinks").json()["sinks"])
        assert pulled(asks) == ["e1", "e2", "e1", "e2"]


def test_a_socket_pauses():
    with serving() as server, client(server) as asks:
        asks.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        url = server.url.replace("http", "ws") + "/v1/socket"
        with connect(url, subprotocols=[Subprotocol("nearcast.v1")]) as line:
            line.send('{"type": "hello", "subscriber": "ann"}')
            assert "welcome" in str(line.recv())
            for type, status in (("pause", "INACTIVE"), ("resume", "ACTIVE")):
                line.send(f'{{"type": "{type}", "id": "s", "ref": 1}}')
                assert f'"status":"{status}"' in str(line.recv())
