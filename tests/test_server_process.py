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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
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


def test_a_process_from_its_first_line_to_its_last(tmp_path: Path):
    store = f"sqlite:///{tmp_path}/p.db"
    with process("--store", store) as (running, line):
        assert "WITHOUT KEYS" in line
        url = ready(line)
        with httpx2.Client(base_url=url, verify=False, timeout=60) as http:
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
            f"{url}/v1/subscribers/ann/notifications", verify=False, timeout=60
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
        running.wait(60)
    assert running.returncode == 0
    assert "store" in line
    assert re.search(r'^host = "localhost" +# NEARCAST_HOST$', rest, re.MULTILINE)
    assert re.search(r"^port = 0 +# flag$", rest, re.MULTILINE)


def test_nothing_leaves_before_its_commit(tmp_path: Path):
    with serving(tmp_path / "n.db") as server, client(server) as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        with connect(server.url.replace("http", "ws") + "/v1/socket") as end:
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
            asking.join(120)
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
        for _ in range(2400):
            if server.error is not None:
                break
            time.sleep(0.05)
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
        while server.desk.core.calls < 6:
            time.sleep(0.01)
        server.stop()
        with suppress(ConnectionRefusedError):
            while True:  # nobody new is let in, sooner or later
                socket.create_connection(("127.0.0.1", port)).close()
        go.set()
        for thread in asking:
            thread.join(120)
        assert statuses == [200] * 5
    with serving(tmp_path / "g.db") as server, client(server) as http:
        assert len(http.get("/v1/log").json()["events"]) == 5


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
            figures = http.get("/metrics").text
            sent = re.search(r'delivered_total\{transport="sse"\} (\S+)', figures)
            assert sent
            assert float(sent[1]) < 3000  # 2 MB were told, and most of it waits on disk
            waits = re.search(r'waiting\{transport="sse"\} (\S+)', figures)
            assert waits
            assert float(waits[1]) == 3000 - float(sent[1])
            page = http.get("/v1/subscribers/ann/notifications?after=2999").json()
            assert [each["seq"] for each in page["notifications"]] == [3000]


def test_a_city_lives_in_it(tmp_path: Path):
    with serving(tmp_path / "c.db", demo=True) as server, client(server) as http:
        for _ in range(1200):
            if server.city is not None and http.get("/v1/events?limit=1").json()["features"]:
                break
            time.sleep(0.1)
        assert http.get("/v1/fences").json()["fences"]
        live = http.get("/v1/events").json()["features"]
        assert {each.get("source") for each in live} >= {"/city/shops", "/city/vans"}
