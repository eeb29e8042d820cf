"""Streams and sockets: order, resuming, and what movers hear."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from nearcast import Point, SafeRegion
from nearcast.broker.replies import Reply
from nearcast.server.feeds import Feeds, Who
from nearcast.server.run import Running
from tests.served import client, feature, make_keys, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("streams") / "x.db", tail_bytes=4096) as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with client(server) as made:
        yield made


def socket(server: Running, key: str | None = None) -> ClientConnection:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    url = server.url.replace("http", "ws") + "/v1/socket"
    return connect(
        url, subprotocols=["nearcast.v1"], additional_headers=headers, open_timeout=240  # type: ignore[list-item]
    )  # fmt: skip


class Talk:
    """One end of a socket, frame by frame."""

    def __init__(self, end: ClientConnection) -> None:
        self.end = end
        self.waiting: list[dict[str, Any]] = []

    def say(self, type: str, **said: Any) -> None:
        self.end.send(json.dumps({"type": type, **said}))

    def hear(self, *types: str) -> dict[str, Any]:
        """The next frame of a type; others wait, and errors are errors unless asked for."""
        for known in self.waiting:
            if known["type"] in types:
                self.waiting.remove(known)
                return known
        while True:
            frame: dict[str, Any] = json.loads(self.end.recv(timeout=120))
            if frame["type"] in types:
                return frame
            assert frame["type"] != "error", frame
            self.waiting.append(frame)

    def done(self, type: str, **said: Any) -> dict[str, Any]:
        self.say(type, ref="r", **said)
        frame = self.hear("done")
        assert frame["ref"] == "r"
        return frame


def wish(http: httpx2.Client, who: str) -> None:
    body = {"subscriber": who, "filters": [{"cql2": f"to = '{who}'"}]}
    assert http.put(f"/v1/subscriptions/{who}", json=body).status_code == 201


def send(http: httpx2.Client, who: str, *numbers: int) -> None:
    events = [feature(f"{who}-{n}", to=who, n=n) for n in numbers]
    assert http.post("/v1/events", json=events).status_code == 200


def messages(server: Running, who: str, count: int, after: str | None = None) -> list[Any]:
    """The first messages of a stream: (id, event, data)."""
    headers = {} if after is None else {"Last-Event-ID": after}
    found: list[Any] = []
    url = f"{server.url}/v1/subscribers/{who}/stream"
    with httpx2.stream("GET", url, headers=headers, timeout=120) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "data" in fields:
                data = json.loads(fields["data"])
                found.append((fields.get("id"), fields.get("event"), data))
                fields = {}
                if len(found) == count:
                    return found
    raise AssertionError(found)


def test_a_stream_resumes(server: Running, http: httpx2.Client):
    wish(http, "eve")
    send(http, "eve", *range(1, 6))
    found = messages(server, "eve", 5)
    assert [id for id, _, _ in found] == ["1", "2", "3", "4", "5"]
    assert [data["event"]["id"] for _, _, data in found] == [f"eve-{n}" for n in range(1, 6)]
    assert [id for id, _, _ in messages(server, "eve", 2, after="3")] == ["4", "5"]
    http.post("/v1/subscribers/eve/ack", json={"upto": 4})
    assert [id for id, _, _ in messages(server, "eve", 1)] == ["5"]
    bad = http.get("/v1/subscribers/eve/stream", headers={"Last-Event-ID": "x"})
    assert bad.status_code == 400


def test_a_socket_tells_in_order_and_resumes(server: Running, http: httpx2.Client):
    wish(http, "bob")
    send(http, "bob", 1, 2)
    with socket(server) as end:
        assert end.subprotocol == "nearcast.v1"
        talk = Talk(end)
        talk.say("hello", subscriber="bob", after=1)
        assert talk.hear("welcome")["after"] == 1
        seen = [told["seq"] for told in talk.hear("notifications")["notifications"]]
        for first in range(3, 103, 50):  # more at once than the tail holds
            send(http, "bob", *range(first, first + 50))
        while seen[-1] < 102:
            frame = talk.hear("notifications")
            seen += [told["seq"] for told in frame["notifications"]]
            assert frame["next"] == seen[-1]
        assert seen == list(range(2, 103))
        talk.done("ack", upto=100)
    with socket(server) as end:
        talk = Talk(end)
        talk.say("hello", subscriber="bob")
        assert talk.hear("welcome")["after"] == 100
        assert [told["seq"] for told in talk.hear("notifications")["notifications"]] == [101, 102]


def test_everything_a_subscriber_does_by_socket(server: Running):
    with socket(server) as end:
        talk = Talk(end)
        talk.say("hello", subscriber="sol")
        talk.hear("welcome")
        wanted = {"id": "sol-1", "filters": [{"cql2": "sol = 1"}]}
        assert talk.done("subscribe", subscription=wanted)["created"] is True
        fence = {"id": "sol-f", "object": "van",
                 "region": {"type": "Circle", "coordinates": [0, 0], "radius_m": 100}}  # fmt: skip
        assert talk.done("fence", fence=fence)["id"] == "sol-f"
        pattern = {"id": "sol-c", "text": 'Q(2)(STRING: kind = "sol")'}
        assert talk.done("composite", composite=pattern)["created"] is True
        assert talk.done("publish", event=feature("sol-e", sol=1))["accepted"] == 1
        (told,) = talk.hear("notifications")["notifications"]
        assert (told["subscription"], told["seq"]) == ("sol-1", 1)
        assert talk.done("publish", events=[feature("v", 0.0, van="V1")])["accepted"] == 1
        (told,) = talk.hear("notifications")["notifications"]
        assert (told["transition"], told["object"]) == ("enter", "V1")
        talk.done("ack", upto=2)
        talk.done("retract", id="v")
        talk.done("ping")
        for id in ("sol-1", "sol-f", "sol-c"):
            talk.done("unsubscribe", id=id)
        talk.say("unsubscribe", id="sol-1", ref=7)
        error = talk.hear("error")
        assert (error["ref"], error["problem"]["status"]) == (7, 404)


def test_a_mover_on_a_socket(server: Running, http: httpx2.Client):
    around = {"id": "mia", "keywords": ["cafe"], "region": {"type": "Around", "radius_m": 300}}
    with socket(server) as end:
        talk = Talk(end)
        talk.say("hello", subscriber="mia")
        talk.hear("welcome")
        talk.done("subscribe", subscription=around)
        talk.say("place", coordinates=[8.5, 47.4], epoch=1)
        region = talk.hear("region")
        assert region["epoch"] == 1
        assert SafeRegion.decode(b64decode(region["safe_region"])).contains(Point(8.5, 47.4))
        http.post("/v1/events", json=feature("mia-cafe", 8.5, 47.4) | {"keywords": ["cafe"]})
        after = talk.hear("request")["after"]
        assert after == 1
        talk.say("place", coordinates=[8.5, 47.4], epoch=after + 1)
        assert talk.hear("notifications")["notifications"][0]["event"]["id"] == "mia-cafe"


@pytest.mark.parametrize(
    ("frame", "status"),
    [
        ("{", 400),
        ("[]", 400),
        ("", 400),
        ('{"type": "place", "coordinates": [0, 0]}', 409),
        ('{"type": "nonsense"}', 422),
        ('{"type": 7}', 422),
        ('{"type": "hello", "after": -1}', 422),
        ('{"type": "hello", "subscriber": 3}', 422),
        ('{"type": "hello", "more": 3}', 422),
        ('{"type": "hello", "ref": []}', 422),
        ("[" * 100_000, 400),
    ],
)
def test_a_bad_first_frame_is_refused_and_the_next_may_be_better(
    server: Running, frame: str, status: int
):
    with socket(server) as end:
        talk = Talk(end)
        end.send(frame)
        assert talk.hear("error")["problem"]["status"] == status
        talk.say("hello", subscriber="may")
        talk.hear("welcome")
        talk.say("hello", subscriber="may")
        assert talk.hear("error")["problem"]["status"] == 409
        talk.say("place", coordinates=[0, 99], ref=1)
        assert talk.hear("error")["problem"]["field"] == "place.y"


def test_a_socket_asks_for_a_key(tmp_path: Path):
    ann, publish = make_keys(
        tmp_path / "k.db", {"role": "subscribe", "subscriber": "ann"}, {"role": "publish"}
    )
    with serving(tmp_path / "k.db") as server:
        with pytest.raises(InvalidStatus) as refused:
            socket(server, publish)
        assert refused.value.response.status_code == 403
        with pytest.raises(InvalidStatus) as refused:
            socket(server, "nck_wrong")
        assert refused.value.response.status_code == 401
        with socket(server, ann) as end:
            talk = Talk(end)
            talk.say("hello")
            assert talk.hear("welcome")["subscriber"] == "ann"
            talk.say("publish", event=feature("e"))
            assert talk.hear("error")["problem"]["status"] == 403
            talk.say("place", subscriber="bob", coordinates=[0, 0])
            assert talk.hear("error")["problem"]["status"] == 404
        with socket(server) as end:
            talk = Talk(end)
            talk.say("hello", key=ann)
            assert talk.hear("welcome")["subscriber"] == "ann"
        with socket(server) as end:
            talk = Talk(end)
            talk.say("hello", key=ann, subscriber="bob")
            assert talk.hear("error")["problem"]["status"] == 404
        for said in ({"key": "nck_wrong"}, {}):
            with socket(server) as end:
                talk = Talk(end)
                talk.say("hello", **said)
                assert talk.hear("error")["problem"]["status"] == 401
                with pytest.raises(ConnectionClosed):
                    end.recv(timeout=120)


def test_streams_go_on_where_they_were_after_a_restart(tmp_path: Path):
    with serving(tmp_path / "r.db") as server, client(server) as http:
        wish(http, "ann")
        send(http, "ann", 1, 2, 3)
        with socket(server) as end:
            talk = Talk(end)
            talk.say("hello", subscriber="ann")
            assert talk.hear("notifications")["next"] == 3
            server.stop()
            with pytest.raises(ConnectionClosed):
                end.recv(timeout=120)
    with serving(tmp_path / "r.db") as server, client(server) as http:
        send(http, "ann", 4)
        assert [id for id, _, _ in messages(server, "ann", 2, after="2")] == ["3", "4"]
        with socket(server) as end:
            talk = Talk(end)
            talk.say("hello", subscriber="ann", after=3)
            assert talk.hear("notifications")["notifications"][0]["seq"] == 4


def test_who_is_followed_by_nothing_any_more_is_asked_nothing(server: Running, http: httpx2.Client):
    around = {"subscriber": "mo", "region": {"type": "Around", "radius_m": 100}}
    path, page = "/v1/subscriptions/mo", "/v1/subscribers/mo/notifications"
    feeds, who = server.desk.feeds, Who("", "mo")
    for last in ("delete", "replace"):
        for id in ("mo", "mo2"):
            http.put(f"/v1/subscriptions/{id}", json=around).raise_for_status()
        http.put("/v1/subscribers/mo/place", json={"coordinates": [50, 50]}).raise_for_status()
        http.post("/v1/events", json=feature(f"mo-{last}", 50.001, 50)).raise_for_status()
        asked = http.get(page).json()["request"]
        assert asked is not None
        http.delete("/v1/subscriptions/mo2").raise_for_status()
        assert http.get(page).json()["request"] == asked
        if last == "delete":
            http.delete(path).raise_for_status()
        else:
            http.put(path, json={"subscriber": "mo"}).raise_for_status()
        assert http.get(page).json()["request"] is None
        assert who not in feeds._asked
        assert who not in feeds._pulled


def test_who_is_not_asked_again_is_forgotten(monkeypatch: pytest.MonkeyPatch):
    """What followed it has expired, perhaps."""
    now = 0.0
    monkeypatch.setattr("nearcast.server.feeds.monotonic", lambda: now)
    feeds = Feeds(4096)
    for name in ("ann", "bob"):
        feeds.release([("", Reply(requests={name: 1}))])
        assert feeds.news(Who("", name))
    now = 600.0
    feeds.release([("", Reply(requests={"ann": 2}))])
    now = 1000.0
    feeds.release([("", Reply(requests={"cat": 3}))])
    assert [feeds.asked(Who("", name)) for name in ("ann", "bob", "cat")] == [2, None, 3]
    assert [*feeds._pulled] == [Who("", "ann")]
