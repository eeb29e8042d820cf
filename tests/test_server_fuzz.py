"""A server that is told nonsense for long: every answer is clear, nothing is lost, memory is flat.

By seed. Small here; `make soak` goes on for minutes.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

from tests import fuzzing
from tests.served import feature
from tests.watched import Watched, watched

#: Seconds of each kind; none: a few hundred rounds.
SECONDS = 120.0 if int(os.environ.get("NEARCAST_CRASHES", "0")) > 100 else 0.0
MB = 1 << 20
OUT = {"welcome", "notifications", "region", "request", "done", "error"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("fuzz"), stop_s=1) as running:
        yield running


class Witness:
    """Somebody who publishes and is told in the midst of it all, and must not lose anything."""

    def __init__(self, server: Watched, name: str) -> None:
        self._server = server
        self._name = f"witness of {name}"
        self._said: list[str] = []
        self._http = server.http()
        wish = {"subscriber": self._name, "filters": [{"cql2": f"witness = '{name}'"}]}
        assert self._http.put(f"/v1/subscriptions/{self._name}", json=wish).status_code == 201
        self._kind = name
        self._began = time.monotonic()
        self._early: int | None = None

    def see(self, seed: int) -> None:
        """From time to time an event; whether it is told is looked at in the end."""
        if seed % 20 == 0:
            id = f"{self._name} {seed}"
            answer = self._http.post("/v1/events", json=feature(id, witness=self._kind))
            assert answer.json()["accepted"] == 1
            self._said.append(id)
        if self._early is None and seed >= 100 and time.monotonic() > self._began + SECONDS / 3:
            self._early = self._server.rss

    def check(self) -> None:
        """All of it is there, in order, once; and the server is as it was."""
        told: list[str] = []
        while True:
            path = f"/v1/subscribers/{self._name}/notifications"
            page = self._http.get(path, params={"after": len(told)}).json()
            assert page["lost"] == 0
            told += [each["event"]["id"] for each in page["notifications"]]
            if not page["notifications"]:
                break
        assert told == self._said
        assert self._server.alive
        assert self._early is not None
        # In a short run most of what is measured are kernels that are met for the first time.
        assert self._server.rss < self._early + (40 if SECONDS else 200) * MB
        assert "nearcast_mistakes_total 0.0" in self._http.get("/metrics").text
        assert self._server.key not in self._server.log
        assert "nck_" not in self._server.log.replace("nck_…", "")
        self._http.close()


def check_problem(problem: dict[str, Any], status: int) -> None:
    assert set(problem) >= {"type", "title", "status", "detail", "field", "value", "remedy"}
    assert problem["status"] == status
    assert status in (400, 401, 403, 404, 405, 408, 409, 413, 422, 426, 429, 431, 505), problem
    assert problem["detail"]
    assert problem["remedy"]


def check_answer(method: str, status: int, kind: str, content: bytes) -> None:
    if status < 400:
        return
    assert kind == "application/problem+json", content
    if method != "HEAD":
        check_problem(json.loads(content), status)
        assert len(content) < 5000


def test_requests(server: Watched):
    witness = Witness(server, "requests")
    with server.http() as http:
        for seed in fuzzing.rounds(600, SECONDS):
            said = fuzzing.request(random.Random(seed))
            headers = [(name.encode(), value.encode()) for name, value in said.headers.items()]
            answer = http.request(said.method, said.path, content=said.body, headers=headers)
            kind = answer.headers.get("content-type", "")
            try:
                check_answer(said.method, answer.status_code, kind, answer.content)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {said}: {answer.content!r}") from error
            if answer.status_code == 201 and "location" in answer.headers:
                http.delete(answer.headers["location"])  # such things have a name of their own
            witness.see(seed)
    witness.check()


def test_plain_sockets(server: Watched):
    witness = Witness(server, "sockets")
    for seed in fuzzing.rounds(300, SECONDS):
        data = fuzzing.raw(random.Random(seed), server.key)
        with socket.create_connection(("127.0.0.1", server.port)) as end:
            end.settimeout(0.2)  # what is not whole has no answer
            found = b""
            with suppress(OSError):
                end.sendall(data)
                found = end.recv(65_536)
        try:
            check_raw(found)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {data!r}: {found!r}") from error
        witness.see(seed)
    witness.check()


def check_raw(found: bytes) -> None:
    """Nothing, or responses of which the first is whole or long."""
    if not found:
        return
    head, _, content = found.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    assert first.startswith("HTTP/1.1 "), first
    status = int(first.split()[1])
    if status < 400:
        return
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
    assert headers["content-type"] == "application/problem+json"
    if content:
        check_problem(json.loads(content[: int(headers["content-length"])]), status)


def hear(end: Any) -> None:
    """What comes, until nothing does."""
    with suppress(ConnectionClosed, TimeoutError):
        while True:
            frame = json.loads(end.recv(timeout=0.02))
            assert frame["type"] in OUT
            if frame["type"] == "error":
                check_problem(frame["problem"], frame["problem"]["status"])


def test_frames(server: Watched):
    witness = Witness(server, "frames")
    url = server.url.replace("http", "ws") + "/v1/socket"
    for seed in fuzzing.rounds(100, SECONDS):
        rng = random.Random(seed)
        headers = {} if seed % 3 == 0 else {"Authorization": f"Bearer {server.key}"}
        hello = {"type": "hello", "subscriber": "ann", "key": server.key}
        try:
            with connect(url, additional_headers=headers, open_timeout=240, close_timeout=5) as end:
                with suppress(ConnectionClosed):
                    for each in fuzzing.frames(rng, hello):
                        end.send(each)
                    if seed % 2:
                        end.socket.sendall(fuzzing.raw_frames(rng))
                hear(end)
        except (AssertionError, InvalidHandshake) as error:
            raise AssertionError(f"seed {seed}") from error
        except OSError:
            pass
        witness.see(seed * 2)
    witness.check()


def test_filters_that_do_not_parse(server: Watched):
    """Ten thousand of them in the long run, by every door that takes one."""
    count = 10_000 if SECONDS else 400
    rng = random.Random(9)
    with server.http() as http:
        before = None
        refused = 0
        for number in range(count):
            text = fuzzing.filter_that_does_not_parse(rng)
            answer = (by_check, by_put, by_query)[number % 3](http, text)
            if answer is not None:
                refused += 1
                assert answer["field"] == "where"
                assert answer["remedy"] or answer["detail"]
            if number == count // 4:
                before = server.rss
        assert refused > count / 2
        assert http.get("/v1/subscriptions?subscriber=nonsense").json()["subscriptions"] == []
    assert before is not None
    assert server.rss < before + 30 * MB


def by_check(http: httpx2.Client, text: str) -> Any:
    answer = http.post("/v1/check", json={"where": text})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return None if found["ok"] else found


def by_put(http: httpx2.Client, text: str) -> Any:
    wish = {"subscriber": "nonsense", "filters": [{"cql2": text}]}
    answer = http.put("/v1/subscriptions/nonsense", json=wish)
    if answer.status_code in (200, 201):
        assert http.delete("/v1/subscriptions/nonsense").status_code == 204
        return None
    check_problem(answer.json(), 422)
    return answer.json()


def by_query(http: httpx2.Client, text: str) -> Any:
    answer = http.get("/v1/events", params={"where": text})
    if answer.status_code == 200:
        return None
    check_problem(answer.json(), 422)
    return answer.json()


def test_guessing_keys(server: Watched):
    """A few are refused, then all are, with Retry-After; no guess is written down anywhere."""
    rng = random.Random(4)
    guesses = [f"nck_{rng.randbytes(32).hex()}" for _ in range(60)]
    statuses = []
    for guess in guesses:
        with server.http(guess) as http:
            answer = http.get("/v1/log")
            check_problem(answer.json(), answer.status_code)
            statuses.append(answer.status_code)
    assert set(statuses) <= {401, 429}
    assert statuses[-30:] == [429] * 30
    with server.http() as http:
        assert http.get("/v1/log?limit=1").status_code == 200
    kept = b"".join(path.read_bytes() for path in server.folder.glob("w.db*") if path.is_file())
    for key in (server.key, *guesses):
        assert key not in server.log
        assert key.encode() not in kept
