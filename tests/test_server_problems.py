"""Whatever is wrong has a status, names field and remedy, and changes nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from nearcast.errors import ValidationError
from nearcast.server.core import Answer
from nearcast.server.run import Running
from nearcast.server.settings import Settings, describe, gather
from tests.served import client, feature, serving

RING = [[0, 0], [1, 0], [1, 1], [0, 0]]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(max_body=100_000, max_batch=50, max_filter=2000) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: Running) -> Iterator[httpx2.Client]:
    with client(server) as made:
        yield made


CLOUD = {"specversion": "1.0", "id": "cloud", "source": "/deep", "type": "t", "data": None}


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("method", "path", "said", "status", "field"),
    [
        ("POST", "/v1/events", b"", 400, None),
        ("POST", "/v1/events", b"{", 400, None),
        ("POST", "/v1/events", b'{"a": NaN}', 400, None),
        ("POST", "/v1/events", b"\xff\xfe", 400, None),
        ("POST", "/v1/events", b"[" * 90_000, 400, None),
        ("POST", "/v1/events", feature("e") | {"bbox": deep(80)}, 400, None),
        ("POST", "/v1/events", CLOUD | {"comment": deep(64)}, 400, None),
        ("POST", "/v1/events", [feature("e"), CLOUD | {"comment": deep(63)}], 400, None),
        ("POST", "/v1/events", b" " * 100_001, 413, "body"),
        ("POST", "/v1/events", [feature(str(n)) for n in range(51)], 413, "events"),
        ("POST", "/v1/events", 7, 422, "event"),
        ("POST", "/v1/events", b"null", 422, "event"),
        ("POST", "/v1/events", {}, 422, "specversion"),
        ("POST", "/v1/events", {"type": "FeatureCollection"}, 422, "features"),
        ("POST", "/v1/events", {"type": "Feature"}, 422, "id"),
        ("POST", "/v1/events", feature("e") | {"id": True}, 422, "id"),
        ("POST", "/v1/events", feature("e", a=[1]), 422, "properties['a']"),
        ("POST", "/v1/events", feature("e", a=10**400), 422, "properties['a']"),
        ("POST", "/v1/events", feature("e") | {"time": "yesterday"}, 422, "time"),
        ("POST", "/v1/events", feature("e") | {"time": "2999-01-01T00:00:00Z"}, 422, "end"),
        ("POST", "/v1/events", feature("e") | {"more": 1}, 422, "more"),
        ("PUT", "/v1/subscriptions/s", [], 422, "subscription"),
        ("PUT", "/v1/subscriptions/s", {"subscriber": ""}, 422, "subscriber"),
        ("PUT", "/v1/subscriptions/s", {"nonsense": 1}, 422, "nonsense"),
        ("PUT", "/v1/subscriptions/s", {"filters": [{"cql2": "a <"}]}, 422, "where"),
        ("PUT", "/v1/subscriptions/s", {"filters": [{"cql2": "x" * 3000}]}, 413, "filters"),
        ("PUT", "/v1/subscriptions/s", {"filters": deep(80)}, 400, None),
        ("PUT", "/v1/subscriptions/s", {"region": {"type": "Around", "radius_m": 5}}, 422,
         "subscriber"),
        ("PUT", "/v1/subscriptions/s", {"sink": "https://x.example"}, 422, "subscriber"),
        ("PUT", "/v1/subscriptions/s", {"sink": "x", "subscriber": "a"}, 422, "sink"),
        ("PUT", "/v1/subscriptions/s", {"sink": "http://[::1]/", "subscriber": "a"}, 422, "sink"),
        ("PUT", "/v1/subscriptions/s", {"protocol": "HTTP", "subscriber": "a"}, 422, "protocol"),
        ("PUT", "/v1/subscriptions/s", {"region": {"type": "Polygon", "coordinates": [RING[:2]]}},
         422, None),
        ("POST", "/v1/subscriptions", {"id": "s"}, 422, "id"),
        ("PUT", "/v1/fences/f", {"object": "truck"}, 422, "region"),
        ("PUT", "/v1/composites/c", {"text": "Q(("}, 422, "text"),
        ("PUT", "/v1/composites/c", {}, 422, "text"),
        ("GET", "/v1/composites/c", None, 404, "id"),
        ("PUT", "/v1/subscribers/a/place", {}, 422, "coordinates"),
        ("PUT", "/v1/subscribers/a/place", {"coordinates": [0, 99]}, 422, "place.y"),
        ("PUT", "/v1/subscribers/a/place", {"coordinates": ["0", 1]}, 422, "coordinates"),
        ("PUT", "/v1/subscribers/a/place", {"coordinates": [0, 1], "epoch": -1}, 422, "epoch"),
        ("PUT", "/v1/subscribers/a/place", {"coordinates": [0, 1], "epoch": 2**70}, 422, "epoch"),
        ("PUT", "/v1/subscribers/a/place", {"coordinates": [0, 1], "speed": -1}, 422, "speed"),
        ("POST", "/v1/subscribers/a/ack", {"upto": 10**30}, 422, "upto"),
        ("POST", "/v1/subscribers/a/ack", {"upto": "1"}, 422, "upto"),
        ("GET", "/v1/subscribers/a/notifications?after=-1", None, 400, "after"),
        ("GET", "/v1/subscribers/a/notifications?limit=0", None, 400, "limit"),
        ("GET", "/v1/subscribers/a/notifications?wait=soon", None, 400, "wait"),
        ("GET", "/v1/events?bbox=1,2,3", None, 400, "bbox"),
        ("GET", "/v1/events?bbox=0,0,0,999", None, 422, None),
        ("GET", "/v1/events?where=a%20%3C", None, 422, "where"),
        ("POST", "/v1/check", {}, 422, "body"),
        ("POST", "/v1/check", {"cpsl": 7}, 422, "cpsl"),
        ("POST", "/v1/explain", {"subscription": "nobody", "event": "none"}, 404, "id"),
        ("POST", "/v1/explain", {"subscription": {}}, 422, "event"),
        ("POST", "/v1/keys", {"role": "admin"}, 409, None),
        ("POST", "/v1/backup", {"file": "relative.db"}, 422, "file"),
        ("POST", "/v1/subscribers/a/ack", {"upto": 0, "more": 1}, 422, "more"),
        ("GET", "/v1/socket", None, 426, "upgrade"),
        ("POST", "/v1/socket", {}, 426, "upgrade"),
        ("GET", "/nothing", None, 404, None),
        ("PATCH", "/v1/events", None, 405, None),
    ],
)  # fmt: skip
def test_every_kind_of_wrong(
    http: httpx2.Client, method: str, path: str, said: Any, status: int, field: str | None
):
    sent = {"content": said} if isinstance(said, bytes) else {"json": said}
    answer = http.request(method, path, **({} if method == "GET" else sent))
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) >= {"type", "title", "status", "detail", "field", "value", "remedy"}
    assert (problem["status"], problem["field"] if field else None) == (status, field)
    assert problem["detail"]
    assert problem["remedy"]
    assert len(answer.content) < 3000
    assert http.get("/v1/subscriptions").json()["subscriptions"] == []


def test_what_nobody_reads_may_be_as_deep_as_the_rest(http: httpx2.Client):
    said = CLOUD | {"comment": deep(63), "data": {"type": "Feature", "geometry": None}}
    assert http.post("/v1/events", json=said).status_code == 200
    assert http.post("/v1/events", json=said | {"comment": deep(64)}).status_code == 400


def test_a_bad_filter_is_pointed_at(http: httpx2.Client):
    said = {"filters": [{"cql2": "price < 3 AND\nbrand == 'x'"}]}
    problem = http.put("/v1/subscriptions/s", json=said).json()
    assert (problem["line"], problem["column"]) == (2, 8)
    assert problem["length"] >= 1


def test_check_says_the_normal_form_or_what_is_wrong(http: httpx2.Client):
    good = http.post("/v1/check", json={"where": "price<3300 and NOT brand='x'"}).json()
    assert good["ok"] is True
    assert "brand <> 'x'" in good["normal"] or "brand" in good["normal"]
    pattern = 'Q(3)(STRING: type = "alarm")'
    assert http.post("/v1/check", json={"cpsl": pattern}).json()["ok"] is True
    for said in ({"where": "price <\n AND"}, {"cpsl": "Q(\n("}):
        bad = http.post("/v1/check", json=said)
        assert bad.status_code == 200
        found = bad.json()
        assert (found["ok"], found["line"]) == (False, 2)
        assert found["column"] >= 1
        assert found["length"] >= 1
        assert found["detail"]


def test_preview_and_explain_make_nothing():
    with serving() as server, client(server) as http:
        http.post("/v1/events", json=[feature("p1", 1.0, 1.0, n=1), feature("p2", 2.0, 2.0, n=2)])
        found = http.post("/v1/preview", json={"filters": [{"cql2": "n > 1"}]}).json()
        assert [each["id"] for each in found["features"]] == ["p2"]
        around = {"subscriber": "mo", "region": {"type": "Around", "radius_m": 1000}}
        assert http.post("/v1/preview", json=around).json()["features"] == []
        http.put("/v1/subscribers/mo/place", json={"coordinates": [1, 1]})
        found = http.post("/v1/preview", json=around).json()
        assert [each["id"] for each in found["features"]] == ["p1"]
        assert http.get("/v1/subscriptions").json()["subscriptions"] == []
        http.put("/v1/subscriptions/big", json={"filters": [{"cql2": "n > 1"}]})
        for event in ("p1", feature("x", n=1)):
            told = http.post("/v1/explain", json={"subscription": "big", "event": event}).json()
            assert told["matched"] is False
            (check,) = told["clauses"][0]["checks"]
            assert (check["held"], "n" in check["wanted"]) == (False, True)
        told = http.post("/v1/explain", json={"subscription": around, "event": "p2"}).json()
        assert told["matched"] is False
        assert http.get("/v1/events/x").status_code == 404


def test_metrics_count(server: Running):
    with client(server) as http:
        http.post("/v1/events", json=feature("m1"))
        text = http.get("/metrics").text
    assert 'nearcast_events_total{result="accepted"}' in text
    assert "nearcast_commit_seconds_bucket" in text
    assert 'nearcast_kept{what="live_events"}' in text
    assert 'path="/v1/events",status="200"' in text
    for name in (
        "nearcast_notifications_total", "nearcast_calling_seconds_bucket", "nearcast_queue_calls",
        "nearcast_queue_seconds", 'nearcast_delivered_total{transport="sse"}',
        'nearcast_waiting{transport="websocket"}', 'nearcast_kept{what="index_bytes"}',
        "nearcast_mistakes_total",
    ):  # fmt: skip
        assert name in text


def test_a_full_queue_says_when_to_come_again(server: Running):
    """A call that waits fills the core; what comes then is refused, and answered later."""
    held, go = threading.Event(), threading.Event()

    def hold(_: Any) -> Answer:
        held.set()
        go.wait(120)
        return Answer(None)

    def fill() -> None:
        server.desk.core.submit("", hold, weight=10**12)

    loop = server.desk.core._loop
    assert loop is not None
    loop.call_soon_threadsafe(fill)
    assert held.wait(120)
    with client(server) as http:
        answer = http.post("/v1/events", json=feature("busy"))
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert http.get("/healthz").status_code == 200
        go.set()
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            answer = http.post("/v1/events", json=feature("busy"))
            if answer.status_code == 200:
                break
        assert answer.json()["accepted"] == 1


def test_a_slow_sender_holds_up_nobody(server: Running):
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        with client(server) as http:
            assert http.get("/readyz").status_code == 200
        slow.sendall(b"ngth: 10\r\n\r\n{")


def test_settings_from_everywhere(tmp_path: Any):
    file = tmp_path / "n.toml"
    file.write_text('port = 1\nhost = "::1"\nmax_body = 5\n')
    said = {"NEARCAST_HOST": "localhost", "NEARCAST_DEMO": "yes"}
    settings, origins = gather({"port": 3, "store": None}, file, said)
    assert (settings.port, settings.host, settings.max_body) == (3, "localhost", 5)
    assert settings.demo is True
    assert (origins["port"], origins["host"]) == ("flag", "NEARCAST_HOST")
    shown = tmp_path / "shown.toml"
    shown.write_text(describe(settings, origins))
    assert gather({}, shown, {})[0] == settings
    for bad in ({"port": 70000}, {"space": "flat"}, {"tick_s": -1}, {"log": "loud"}):
        with pytest.raises(ValidationError):
            gather(bad, None, {})
    with pytest.raises(ValidationError, match="NEARCAST_PORT"):
        gather({}, None, {"NEARCAST_PORT": "many"})
    file.write_text("nonsense = 1")
    with pytest.raises(ValidationError, match="nonsense"):
        gather({}, file, {})
    assert Settings() == gather({}, None, {})[0]


def test_an_id_may_end_as_a_path_does(http: httpx2.Client):
    for id in ("x/pause", "y/resume", "pause/pause"):
        path = f"/v1/subscriptions/{quote(id, safe='')}"
        assert http.put(path, json={"subscriber": "ann"}).status_code == 201
        assert http.get(path).json()["id"] == id
        assert http.post(f"{path}/pause").json() == {"id": id, "status": "INACTIVE"}
        assert http.delete(path).status_code == 204
        assert http.get(path).status_code == 404
    made = http.post("/v1/subscriptions", json=[{"id": "z/pause", "subscriber": "ann"}])
    assert made.status_code == 200
    assert http.delete("/v1/subscriptions/z%2Fpause").status_code == 204
    refused = http.patch("/v1/subscriptions/z%2Fpause")
    assert refused.status_code == 405
    assert {*refused.headers["allow"].split(", ")} == {"GET", "PUT", "DELETE", "POST"}
    assert http.delete("/v1/sinks/x").headers["allow"] == "GET"
