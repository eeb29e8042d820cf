"""The process: how it begins, ends and fails; what leaves when; what a deaf client costs."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from nearcast.errors import StoreError
from nearcast.server.core import Answer
from tests.served import client, feature, serving


@contextmanager
def process(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`nearcast serve` with its first line; ended if it has not."""
    command = [sys.executable, "-c", "from nearcast.cli import main; main()", "serve"]
    running = subprocess.Popen(
        [*command, "--port", "0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=os.environ | environment,
    )  # fmt: skip
    assert running.stdout is not None
    try:
        yield running, running.stdout.readline()
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def ready(line: str) -> str:
    """The address in a first line, once it answers."""
    found = re.search(r"http://\S+:\d+", line)
    assert found, line
    for _ in range(2400):
        try:
            if httpx2.get(f"{found[0]}/readyz", verify=False).status_code == 200:
                return found[0]
        except httpx2.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError("never ready")


def until(so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    for _ in range(2400):
        if so():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def lets_in(port: int) -> bool:
    """Whether somebody new is let in. Who knocks while a door closes is refused, or thrown out."""
    try:
        socket.create_connection(("127.0.0.1", port), 120).close()
    except ConnectionError:
        return False
    return True


def test_a_process_from_its_first_line_to_its_last(tmp_path: Path):
    store = f"sqlite:///{tmp_path}/p.db"
    with process("--store", store) as (running, line):
        assert "WITHOUT KEYS" in line
        url = ready(line)
        with httpx2.Client(base_url=url, verify=False, timeout=240) as http:
            http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
            assert http.post("/v1/events", json=feature("e1")).status_code == 200
            with process("--store", store) as (second, nothing):
                _, said = second.communicate(timeout=120)
                assert (second.returncode, nothing) == (2, "")
                assert "in use by another process" in said
            with process("--store", f"{tmp_path}/q.db", "--port", url.rpartition(":")[2]) as (
                second,
                nothing,
            ):
                _, said = second.communicate(timeout=120)
                assert (second.returncode, nothing) == (2, "")
                assert "in use" in said
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=120)
        assert running.returncode == 0
        assert not (tmp_path / "p.db-socket").exists()
    with process("--store", store) as (running, line):
        url = ready(line)
        told = httpx2.get(
            f"{url}/v1/subscribers/ann/notifications", verify=False, timeout=240
        ).json()
        assert [each["seq"] for each in told["notifications"]] == [1]
        running.kill()  # and what it leaves behind is in nobody's way
        running.wait()
    with process("--store", store) as (running, line):
        ready(line)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)
        assert running.returncode == 0


def test_the_settings_are_shown():
    with process("--show-config", NEARCAST_HOST="localhost") as (running, line):
        assert running.stdout is not None
        rest = running.stdout.read()
        running.wait(240)
    assert running.returncode == 0
    assert "store" in line
    assert re.search(r'^host = "localhost" +# NEARCAST_HOST$', rest, re.MULTILINE)
    assert re.search(r"^port = 0 +# flag$", rest, re.MULTILINE)


def test_nothing_leaves_before_its_commit(tmp_path: Path):
    with serving(tmp_path / "n.db") as server, client(server) as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        with connect(server.url.replace("http", "ws") + "/v1/socket", open_timeout=240) as end:
            end.send('{"type": "hello", "subscriber": "ann"}')
            assert json.loads(end.recv(timeout=120))["type"] == "welcome"
            database = server.house.database
            assert database is not None
            flush, go = database.flush, threading.Event()

            def held() -> None:
                assert go.wait(120)
                flush()

            database.flush = held  # type: ignore[method-assign]
            answers: list[Any] = []
            asking = threading.Thread(
                target=lambda: answers.append(http.post("/v1/events", json=feature("e1")).json())
            )
            asking.start()
            with pytest.raises(TimeoutError):
                end.recv(timeout=0.5)
            assert answers == []
            go.set()
            told = json.loads(end.recv(timeout=120))["notifications"]
            assert [each["event"]["id"] for each in told] == ["e1"]
            asking.join(600)
            assert answers[0]["accepted"] == 1


def test_a_failed_commit_ends_it_and_what_was_answered_is_there(tmp_path: Path):
    with serving(tmp_path / "f.db") as server, client(server) as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        http.post("/v1/events", json=feature("kept"))
        database = server.house.database
        assert database is not None

        def full() -> None:
            raise StoreError("the disk is full")

        database.flush = full  # type: ignore[method-assign]
        answer = http.post("/v1/events", json=feature("lost"))
        assert answer.status_code == 503
        assert "the disk is full" in answer.json()["detail"]
        until(lambda: server.error is not None)
        assert isinstance(server.error, StoreError)
    with serving(tmp_path / "f.db") as server, client(server) as http:
        assert http.get("/v1/events/kept").status_code == 200
        assert http.get("/v1/events/lost").status_code == 404
        assert http.post("/v1/events", json=feature("lost")).json()["accepted"] == 1


def test_who_is_asked_to_stop_answers_what_was_asked_before(tmp_path: Path):
    """Calls that wait are made and answered, then it ends, and they are there afterwards."""
    statuses: list[int] = []
    with serving(tmp_path / "g.db", stop_s=60.0) as server:
        port = server.port
        held, go = threading.Event(), threading.Event()

        def hold(_: Any) -> Answer:
            held.set()
            assert go.wait(120)
            return Answer(None)

        loop = server.desk.core._loop
        assert loop is not None
        loop.call_soon_threadsafe(server.desk.core.submit, "", hold)
        assert held.wait(120)

        def post(id: str) -> None:
            with client(server) as http:
                statuses.append(http.post("/v1/events", json=feature(id)).status_code)

        asking = [threading.Thread(target=post, args=(f"e{n}",)) for n in range(5)]
        for thread in asking:
            thread.start()
        try:
            until(lambda: server.desk.core.calls >= 6)
            server.stop()
            until(lambda: not lets_in(port))
        finally:
            go.set()
        for thread in asking:
            thread.join(600)
        assert statuses == [200] * 5
    with serving(tmp_path / "g.db") as server, client(server) as http:
        assert len(http.get("/v1/log").json()["events"]) == 5


def test_what_was_sent_before_the_stop_is_answered_though_nobody_had_read_it(tmp_path: Path):
    """On a connection that was idle, on one that knocks, and after half a request."""
    head = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    def request(id: str) -> bytes:
        body = json.dumps(feature(id))
        return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    def answered(end: socket.socket) -> bytes:
        with end, end.makefile("rb") as file:
            return file.read()  # up to its end: the server lets go

    with serving(tmp_path / "h.db", stop_s=60.0) as server:
        address = ("127.0.0.1", server.port)
        known, idle, half = (socket.create_connection(address, 120) for _ in range(3))
        for each in (known, idle):
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in each.recv(65_536)
        half.sendall(request("half")[:40])
        until(lambda: len(server._server.server_state.connections) == 3)
        go, held, end = threading.Event(), threading.Event(), server.desk.end

        def hold() -> None:
            held.set()
            assert go.wait(120)
            end()

        server.desk.end = hold  # type: ignore[method-assign]
        server.stop()
        try:  # the loop has begun to stop, and reads nothing
            assert held.wait(120)
            known.sendall(request("known"))
            new = socket.create_connection(address, 120)
            new.sendall(request("new"))
        finally:
            go.set()
        until(lambda: not lets_in(server.port))
        half.sendall(request("half")[40:])
        for each in (known, new, half):
            answer = answered(each)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in answer
        assert answered(idle) == b""
    with serving(tmp_path / "h.db") as server, client(server) as http:
        for id in ("known", "new", "half"):
            assert http.get(f"/v1/events/{id}").status_code == 200


def test_what_a_stop_does_not_wait_for_is_told_so(tmp_path: Path):
    """A call that takes longer than `stop_s`: 503, though it is made, and may be made again."""
    with serving(tmp_path / "l.db", stop_s=1.0) as server:
        go, answers = threading.Event(), list[httpx2.Response]()

        def hold(_: Any) -> Answer:
            assert go.wait(240)
            return Answer(None)

        def post() -> None:
            with client(server) as http:
                answers.append(http.post("/v1/events", json=feature("late")))

        loop = server.desk.core._loop
        assert loop is not None
        loop.call_soon_threadsafe(server.desk.core.submit, "", hold)
        asking = threading.Thread(target=post)
        asking.start()
        try:
            until(lambda: server.desk.core.calls >= 2)
            server.stop()
            asking.join(240)
        finally:
            go.set()
        (answer,) = answers
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["remedy"] == "ask again, under the same id"
    with serving(tmp_path / "l.db") as server, client(server) as http:
        again = http.post("/v1/events", json=feature("late")).json()
        assert (again["accepted"], again["repeated"]) == (0, 1)


def test_frames_that_were_sent_before_the_stop_are_answered(tmp_path: Path):
    """Those that wait for the core, and one that nobody has read; then comes a goodbye."""
    with serving(tmp_path / "w.db", stop_s=60.0) as server:
        go, held = threading.Event(), threading.Event()

        def hold(_: Any) -> Answer:
            assert go.wait(240)
            return Answer(None)

        end = server.desk.end

        def stopping() -> None:
            held.set()
            assert go.wait(240)
            end()

        with connect(
            server.url.replace("http", "ws") + "/v1/socket", open_timeout=240, close_timeout=240
        ) as line:
            line.send('{"type": "hello", "subscriber": "ann"}')
            assert json.loads(line.recv(timeout=240))["type"] == "welcome"
            loop = server.desk.core._loop
            assert loop is not None
            loop.call_soon_threadsafe(server.desk.core.submit, "", hold)
            for ref in range(3):
                line.send(json.dumps({"type": "publish", "event": feature(f"e{ref}"), "ref": ref}))
            until(lambda: server.desk.core.calls >= 4)
            server.desk.end = stopping  # type: ignore[method-assign]
            server.stop()
            try:
                assert held.wait(240)
                line.send(json.dumps({"type": "publish", "event": feature("e3"), "ref": 3}))
            finally:
                go.set()
            answers = [json.loads(line.recv(timeout=240)) for _ in range(4)]
            assert [(each["type"], each["ref"]) for each in answers] == [
                ("done", ref) for ref in range(4)
            ]
            with pytest.raises(ConnectionClosed, match="1001"):
                line.recv(timeout=240)
    with serving(tmp_path / "w.db") as server, client(server) as http:
        assert len(http.get("/v1/log").json()["events"]) == 4


def test_a_client_that_never_reads_costs_little_and_holds_up_nobody(tmp_path: Path):
    with serving(tmp_path / "d.db") as server, client(server) as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        with socket.create_connection(("127.0.0.1", server.port)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(b"GET /v1/subscribers/ann/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for first in range(0, 3000, 500):
                many = [feature(f"e{first + n}", text="x" * 300) for n in range(500)]
                assert http.post("/v1/events", json=many).status_code == 200
            (feed,) = server.desk.feeds._feeds.values()
            assert feed.size <= server.settings.tail_bytes

            def counted() -> tuple[float, float]:
                figures = http.get("/metrics").text
                sent = re.search(r'delivered_total\{transport="sse"\} (\S+)', figures)
                waits = re.search(r'waiting\{transport="sse"\} (\S+)', figures)
                assert sent
                assert waits
                return float(sent[1]), float(waits[1])

            assert counted()[0] < 3000  # 2 MB were told, and most of it waits on disk
            until(lambda: sum(counted()) == 3000)  # some may be on its way while it is counted
            page = http.get("/v1/subscribers/ann/notifications?after=2999").json()
            assert [each["seq"] for each in page["notifications"]] == [3000]


def test_a_city_lives_in_it(tmp_path: Path):
    with serving(tmp_path / "c.db", demo=True, demo_people=40) as server, client(server) as http:

        def lives() -> bool:
            live = http.get("/v1/events").json()["features"]
            return {each.get("source") for each in live} >= {"/city/shops", "/city/vans"}

        until(lives)
        assert http.get("/v1/fences").json()["fences"]
