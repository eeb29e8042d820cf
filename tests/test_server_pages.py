"""Pages: as many as are asked for and as fit, in order, and with their gaps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect

from nearcast.server.run import Running
from tests.served import client, feature, serving

KB = 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Ten events of 100 kB, all told to ann, and ten large subscriptions."""
    with serving(tmp_path_factory.mktemp("pages") / "x.db", page_bytes=250 * KB) as running:
        with client(running) as http:
            http.put("/v1/subscriptions/all", json={"subscriber": "ann"})
            for n in range(10):
                said = feature(f"e{n}", 1.0, n=n, text="x" * 100 * KB)
                assert http.post("/v1/events", json=said).status_code == 200
                words = [f"{n} {word}" for word in range(12_000)]
                wish = {"subscriber": "many", "keywords": words}
                assert http.put(f"/v1/subscriptions/s{n}", json=wish).status_code == 201
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with client(server) as made:
        yield made


def pages(http: httpx2.Client, path: str, member: str, after: Any) -> list[list[Any]]:
    """All of them, one after the other."""
    found: list[list[Any]] = []
    while True:
        join = "&" if "?" in path else "?"
        answer = http.get(f"{path}{join}after={after}&limit=1000")
        assert len(answer.content) < 300 * KB
        page = answer.json()
        if not page[member]:
            return found
        found.append(page[member])
        after = page["next"]


@pytest.mark.parametrize(
    ("path", "member", "after"),
    [
        ("/v1/subscribers/ann/notifications", "notifications", 0),
        ("/v1/log", "events", 0),
        ("/v1/changes", "changes", 1),
        ("/v1/events", "features", 0),
        ("/v1/subscriptions?subscriber=many", "subscriptions", ""),
    ],
)
def test_a_page_is_cut_where_it_is_large(http: httpx2.Client, path: str, member: str, after: Any):
    found = pages(http, path, member, after)
    assert [len(page) for page in found] == [2, 2, 2, 2, 2]
    each = [one for page in found for one in page]
    names = [one["event"]["id"] if "event" in one else one["id"] for one in each]
    assert [int(name[1:]) for name in names] == list(range(10))


def test_a_late_joiner_and_a_preview_have_a_page_of_it(http: httpx2.Client):
    made = http.put("/v1/subscriptions/late", json={"subscriber": "bob"})
    assert [told["seq"] for told in made.json()["notifications"]] == [1, 2]
    assert len(pages(http, "/v1/subscribers/bob/notifications", "notifications", 0)) == 5
    http.delete("/v1/subscriptions/late")
    found = http.post("/v1/preview", json={"filters": [{"cql2": "n >= 3"}]}).json()
    assert [each["properties"]["n"] for each in found["features"]] == [3, 4]


def test_one_that_is_larger_than_a_page_comes_alone(tmp_path: Path):
    with serving(tmp_path / "x.db", page_bytes=10) as server, client(server) as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        http.post("/v1/events", json=[feature(f"e{n}", n=n) for n in range(3)])
        found = pages(http, "/v1/subscribers/ann/notifications", "notifications", 0)
        assert [[told["seq"] for told in page] for page in found] == [[1], [2], [3]]


def test_frames_are_cut_as_well(server: Running):
    with connect(server.url.replace("http", "ws") + "/v1/socket", open_timeout=120) as end:
        end.send(json.dumps({"type": "hello", "subscriber": "ann", "after": 0}))
        assert json.loads(end.recv(timeout=120))["type"] == "welcome"
        for n in range(1, 11):
            told = json.loads(end.recv(timeout=120))
            assert [each["seq"] for each in told["notifications"]] == [n]


def test_what_is_beyond_retention_is_a_gap_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("nearcast.storage.retention._STEP", 10)
    monkeypatch.setattr("nearcast.storage.retention._LOOKED_AT", 1000)
    with serving(tmp_path / "x.db", retention_s=0.0) as server, client(server) as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        for n in range(60):
            soon = {"expirytime": "2026-01-01T00:00:00Z"}
            http.post("/v1/events", json=feature(f"e{n}") | soon)
            http.post("/v1/events", json=feature(f"kept{n}"))
        found = http.get("/v1/log?after=0").json()
        there = {each["offset"] for each in found["events"]}
        assert found["forgotten"] == max({*range(1, found["last"] + 1)} - there) > 0
        path = "/v1/subscribers/ann/notifications"
        page = http.get(f"{path}?after=0").json()
        first = page["notifications"][0]["seq"]
        assert page["lost"] == first - 1 > 0
        lost = page["lost"]
        with http.stream("GET", "/v1/subscribers/ann/stream?after=0") as stream:
            lines = stream.iter_lines()
            while (line := next(lines)) != "event: gap":
                assert not line.startswith("id:")
            data = next(lines)
            assert json.loads(data.removeprefix("data: "))["lost"] >= lost
        with connect(server.url.replace("http", "ws") + "/v1/socket", open_timeout=120) as end:
            end.send(json.dumps({"type": "hello", "subscriber": "ann", "after": 0}))
            assert json.loads(end.recv(timeout=120))["type"] == "welcome"
            told = json.loads(end.recv(timeout=120))
            assert told["lost"] >= lost
            assert told["notifications"][0]["seq"] == told["lost"] + 1
