"""Pages of notifications that are pulled: whole, in pieces, by who does not read; and gaps."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from nearcast.errors import StoreError
from nearcast.server import gate
from nearcast.server.desk import Desk
from nearcast.server.run import Running
from tests.served import client, feature, serving
from tests.test_server_streams import Talk, messages
from tests.test_server_streams import socket as connected

MANY, PATH = 600, "/v1/subscribers/ann/notifications"


def tell(http: httpx2.Client, count: int, size: int = 2000) -> None:
    http.put("/v1/subscriptions/s", json={"subscriber": "ann"}).raise_for_status()
    for first in range(0, count, 100):
        many = [feature(f"e{first + n}", text="x" * size) for n in range(min(100, count - first))]
        http.post("/v1/events", json=many).raise_for_status()


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving() as running, client(running) as http:
        tell(http, MANY)
        yield running


@pytest.fixture(scope="module")
def http(server: Running) -> Iterator[httpx2.Client]:
    with client(server) as made:
        yield made


def numbers(page: dict[str, Any]) -> list[int]:
    return [each["seq"] for each in page["notifications"]]


def test_a_page_in_pieces_is_a_page(http: httpx2.Client):
    size = len(http.get(f"{PATH}?after=0&limit=1").content)
    for after, limit in ((0, 1), (0, 17), (0, 300), (5, 50), (MANY - 40, 1000), (0, 1000)):
        answer = http.get(f"{PATH}?after={after}&limit={limit}")
        page = answer.json()
        most = min(limit, MANY - after, 2**20 // (size - 60))
        assert numbers(page) == [*range(after + 1, after + 1 + len(numbers(page)))]
        assert most - 12 <= len(numbers(page)) <= most
        assert most > 400 or len(numbers(page)) == most
        assert (page["next"], page["lost"], page["request"]) == (numbers(page)[-1], 0, None)
        assert answer.headers["content-type"] == "application/json"
        assert len(answer.content) <= 2**20 + 200
    assert http.head(f"{PATH}?after=0").status_code == 200
    found: list[int] = []
    while page := numbers(http.get(f"{PATH}?after={len(found)}").json()):
        found += page
    assert found == [*range(1, MANY + 1)]


def test_a_page_has_no_more_bytes_than_it_may():
    with serving(page_bytes=50_000) as server, client(server) as http:
        tell(http, 60)
        for limit in (1000, 3):
            page = http.get(f"{PATH}?after=0&limit={limit}")
            assert len(page.content) < 50_200
            assert numbers(page.json()) == [*range(1, page.json()["next"] + 1)]
            assert page.json()["next"] >= min(limit, 20)


def test_a_page_that_cannot_go_on_ends_where_it_is(
    server: Running, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
):
    page, asked = Desk.page, 0

    async def fail(self: Desk, *of: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked > 3:
            raise StoreError("it cannot be read")
        return await page(self, *of, **more)

    monkeypatch.setattr(Desk, "page", fail)
    found = http.get(f"{PATH}?after=0").json()
    assert numbers(found) == [*range(1, found["next"] + 1)]
    assert 3 <= found["next"] < 100
    monkeypatch.undo()
    assert numbers(http.get(f"{PATH}?after={found['next']}&limit=1").json()) == [found["next"] + 1]


# --- who does not read --------------------------------------------------------------------------


def deaf(server: Running, path: str) -> socket.socket:
    end = socket.socket()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    end.connect(("127.0.0.1", server.port))
    end.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return end


def test_what_nobody_reads_is_left_in_the_store(server: Running):
    sent = server.desk.metrics.sent
    before = sent["pull"]
    with deaf(server, f"{PATH}?after=0"):
        time.sleep(1)
        assert 0 < sent["pull"] - before < MANY / 3


def test_an_answer_that_nobody_reads_is_given_up(server: Running, monkeypatch: pytest.MonkeyPatch):
    """A stream is not: it may wait for its reader."""
    monkeypatch.setattr(gate, "_STILL_S", 1.5)
    known: set[Any] = server._server.server_state.connections
    paths = (f"{PATH}?after=0", "/v1/log", "/v1/subscribers/ann/stream?after=0")
    ends = [deaf(server, path) for path in paths]
    mine = {end.getsockname()[1] for end in ends}

    def left() -> set[int]:
        return {each.client[1] for each in [*known] if each.client} & mine

    until = time.monotonic() + 60
    while left() != mine and time.monotonic() < until:
        time.sleep(0.05)
    while len(left()) > 1 and time.monotonic() < until:
        time.sleep(0.05)
    assert left() == {ends[2].getsockname()[1]}
    time.sleep(3)
    assert left() == {ends[2].getsockname()[1]}
    for end in ends:
        end.close()


def test_an_answer_that_is_read_slowly_comes_whole(
    server: Running, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gate, "_STILL_S", 3.0)
    with deaf(server, f"{PATH}?after=0") as end:
        end.settimeout(60)
        found, until = b"", time.monotonic() + 6
        while not found.endswith(b"0\r\n\r\n"):
            if time.monotonic() < until:
                time.sleep(0.05)
            found += end.recv(16_384)
        assert b'"next":' in found[-100:]


# --- numbers that nobody was given ---------------------------------------------------------------


def test_who_is_beyond_the_last_number_is_told_of_a_gap():
    """And is told what comes next, which is under numbers that it knows as others."""
    with serving(tail_bytes=4096) as server, client(server) as http:
        tell(http, 2, 10)
        page = http.get(f"{PATH}?after=7&wait=30").json()
        assert (page["notifications"], page["next"], page["lost"]) == ([], 2, 5)
        page = http.get(f"{PATH}?after=2").json()
        assert (page["next"], page["lost"]) == (2, 0)
        assert messages(server, "ann", 1, after="7") == [(None, "gap", {"lost": 5, "next": 2})]
        with connected(server) as end:
            talk = Talk(end)
            talk.say("hello", subscriber="ann", after=7)
            gap = talk.hear("notifications")
            assert (gap["notifications"], gap["next"], gap["lost"]) == ([], 2, 5)
            http.post("/v1/events", json=feature("new")).raise_for_status()
            told = talk.hear("notifications")
            assert (numbers(told), told["lost"]) == ([3], 0)
        assert json.loads(http.get(f"{PATH}?after=3").content)["lost"] == 0
