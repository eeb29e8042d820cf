"""A disk that fails, a clock that is set, a store that is another's: clear errors, nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import httpx2
import pytest

from nearcast import Event
from nearcast.broker.replies import Reply
from nearcast.broker.service import Service
from nearcast.clock import system_now
from nearcast.errors import StoreError
from nearcast.server.core import Answer
from nearcast.server.house import House
from nearcast.server.run import Running
from nearcast.server.settings import Settings
from nearcast.storage.keys import Keys
from nearcast.storage.sqlite import Database
from tests.forgetful import Disk
from tests.served import client, feature, make_keys, serving
from tests.watched import watched

LONG = int(os.environ.get("NEARCAST_CRASHES", "0")) > 100
S = 1_000_000


def seen(http: httpx2.Client) -> tuple[set[str], list[int], list[str]]:
    """Events of the log, and ann's numbers and what is behind them."""
    log = http.get("/v1/log").json()["events"]
    told = http.get("/v1/subscribers/ann/notifications?after=0").json()["notifications"]
    ids = [each["event"]["id"] for each in told]
    return {each["id"] for each in log}, [each["seq"] for each in told], ids


# --- a disk that fails ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.needs("strace")
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [("pwrite64", "ENOSPC", "the disk is full"), ("fdatasync", "EIO", "disk I/O error")],
)
def test_a_real_process_whose_disk_fails(tmp_path: Path, call: str, error: str, says: str):
    folder = tmp_path / "s"
    answered: list[str] = []
    inject = f"inject={call}:error={error}:when=120+"
    prefix = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
    with watched(folder, *prefix) as server, server.http() as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        refused = None
        with suppress(httpx2.TransportError):
            while refused is None:
                id = f"e{len(answered)}"
                answer = http.post("/v1/events", json=feature(id))
                if answer.status_code == 200:
                    answered.append(id)
                else:
                    refused = answer
        assert refused is not None, "it was cut off without a word"
        assert refused.status_code == 503
        assert refused.headers["content-type"] == "application/problem+json"
        assert says in refused.json()["detail"]
        server.process.wait(240)
        assert server.process.returncode not in (0, None)
        assert says in server.log
    assert answered
    with watched(folder) as server, server.http() as http:
        logged, numbers, told = seen(http)
        assert logged >= set(answered)
        assert numbers == list(range(1, len(numbers) + 1))
        assert told[: len(answered)] == answered
        assert http.post("/v1/events", json=feature(f"e{len(answered)}")).status_code == 200


def on_a_disk(disk: Disk, file: type[Database] = Database) -> Callable[[Settings], House]:
    """Houses whose store is in memory, on a disk that may fail."""
    return lambda settings: House(settings, file("w.db", vfs=disk.name))


class Deaf(Database):
    """Takes a commit that failed for one that was made."""

    def flush(self) -> None:
        with suppress(StoreError):
            super().flush()


def fail(
    monkeypatch: pytest.MonkeyPatch, nth: int, error: type[Exception],
    file: type[Database] = Database,
) -> bool:  # fmt: skip
    """A server whose nth write or sync fails; afterwards everything that it answered is there.

    Whether it came to that.
    """
    disk = Disk(nth)
    answered: list[str] = []
    acknowledged = 0
    monkeypatch.setattr(House, "open", staticmethod(on_a_disk(disk, file)))
    # the store's own socket would lie where no file is
    monkeypatch.setattr("nearcast.server.run._bound_beside", lambda _: None)
    try:
        with serving("w.db", tick_s=0.02) as server, client(server) as http:
            assert http.put("/v1/subscriptions/s", json={"subscriber": "ann"}).status_code == 201
            disk.error, disk.fail_at = error, disk.calls + nth
            for number in range(30):
                try:
                    answer = http.post("/v1/events", json=feature(f"e{number}"))
                except httpx2.TransportError:
                    break  # it has ended: its clock's own commit may fail as well
                if answer.status_code != 200:
                    assert answer.status_code == 503, answer.text
                    break
                answered.append(f"e{number}")
                if number % 5 == 4:
                    with suppress(httpx2.TransportError):
                        answer = http.post("/v1/subscribers/ann/ack", json={"upto": number})
                        if answer.status_code == 200:
                            acknowledged = number
        reached = server.error is not None
        assert not reached or isinstance(server.error, StoreError)
        disk.crash()
        with serving("w.db") as server, client(server) as http:
            logged, _, _ = seen(http)
            assert logged >= set(answered)
            page = http.get("/v1/subscribers/ann/notifications").json()
            numbers = [each["seq"] for each in page["notifications"]]
            assert numbers[:1] >= [acknowledged + 1] or not numbers
            assert numbers[-1:] >= [len(answered)] or acknowledged >= len(answered)
    finally:
        disk.leave()
        disk.close()
    return reached


POINTS = range(1, 100, 1 if LONG else 14)


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
def test_a_server_whose_disk_fails_at_any_commit_point(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
):
    reached = [fail(monkeypatch, nth, error) for nth in POINTS]
    assert sum(reached) > 2


def test_control_a_server_that_overhears_a_failed_commit_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
):
    with pytest.raises(AssertionError):
        [fail(monkeypatch, nth, apsw.FullError, Deaf) for nth in POINTS]


# --- a store that is another's ----------------------------------------------------------------

_HOLD = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1])
file.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_store_that_another_process_has_locked_is_refused(tmp_path: Path):
    make_keys(tmp_path / "x.db", {"role": "admin"})
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "x.db")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match="in use by another process; stop that one first"):
            Running(Settings(store=str(tmp_path / "x.db"), port=0))
        other.communicate("")
    with serving(tmp_path / "x.db"):
        pass


def test_nobody_locks_the_store_of_a_running_server(tmp_path: Path):
    """Somebody who tries is refused, and the server does not notice."""
    with serving(tmp_path / "x.db") as server, client(server) as http:
        http.post("/v1/events", json=feature("e1"))
        other = subprocess.run(
            [sys.executable, "-c", _HOLD, str(tmp_path / "x.db")],
            input="", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "database is locked" in other.stderr
        assert http.post("/v1/events", json=feature("e2")).status_code == 200


# --- a clock that is set ----------------------------------------------------------------------


class Clock:
    """The system's, set forward or back."""

    def __init__(self) -> None:
        self.off_s = 0.0

    def __call__(self) -> int:
        return system_now() + round(self.off_s * S)


def at(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment // S))


def test_a_clock_that_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, begin = Clock(), House.open

    def opened(settings: Settings) -> House:
        house = begin(settings)
        house.clock = clock
        return house

    monkeypatch.setattr(House, "open", staticmethod(opened))

    def publish(http: httpx2.Client, id: str, **more: Any) -> int:
        return int(http.post("/v1/events", json=feature(id) | more).status_code)

    with serving(tmp_path / "c.db", tick_s=0.02) as server, client(server) as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"})
        assert publish(http, "e1", expirytime=at(clock() + 600 * S)) == 200
        clock.off_s = -3600
        assert publish(http, "e2") == 200
        assert publish(http, "e3", time=at(clock())) == 200  # as whoever sends it has it
        assert publish(http, "e4", time=at(clock() + 2 * 3600 * S)) == 422
        assert http.get("/v1/events/e1").status_code == 200
        assert seen(http)[1:] == ([1, 2, 3], ["e1", "e2", "e3"])
        page = http.get("/v1/subscribers/ann/notifications?after=0").json()
        times = [each["at"] for each in page["notifications"]]
        assert times == sorted(times)
    with serving(tmp_path / "c.db", tick_s=0.02) as server, client(server) as http:  # still back
        assert publish(http, "e5") == 200
        assert http.get("/v1/events/e1").status_code == 200
        assert seen(http)[1:] == ([1, 2, 3, 4], ["e1", "e2", "e3", "e5"])
        clock.off_s = 1200
        deadline = time.monotonic() + 240
        while http.get("/v1/events/e1").status_code == 200:
            assert time.monotonic() < deadline
        assert publish(http, "e6") == 200


# --- a store that fails in the midst of a turn ---------------------------------------------------


class Together:
    """Requests that wait behind a call, and are made in one turn when that is let go."""

    def __init__(self, server: Running) -> None:
        self._core = server.desk.core
        self._server = server
        self._waits, self._go = threading.Event(), threading.Event()
        self._asking: list[threading.Thread] = []
        self.answers: list[httpx2.Response] = []

    def __enter__(self) -> Together:
        self._core.post(self._begin)
        assert self._waits.wait(240)
        return self

    def _begin(self) -> None:
        self._core.note("", self._wait)

    def _wait(self, _: Service) -> Answer:
        self._waits.set()
        assert self._go.wait(240)
        return Answer(None)

    def ask(self, method: str, path: str, body: Any) -> None:
        """One more, behind those before it."""
        before = self._core.calls

        def ask() -> None:
            with client(self._server) as http:
                self.answers.append(http.request(method, path, json=body))

        self._asking.append(threading.Thread(target=ask))
        self._asking[-1].start()
        while self._core.calls == before:
            time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        self._go.set()
        for each in self._asking:
            each.join(240)


def test_requests_that_are_joined_fail_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And what the first half of them staged is not committed."""
    publish = Service.publish_many

    def fail(self: Service, *of: Any, **more: Any) -> Any:
        publish(self, *of, **more)
        raise StoreError("a read failed in the middle")

    with serving(tmp_path / "t.db", tick_s=60) as server, client(server) as http:
        http.put("/v1/subscriptions/s", json={"subscriber": "ann"}).raise_for_status()
        with monkeypatch.context() as patched, Together(server) as together:
            patched.setattr(Service, "publish_many", fail)
            for number in range(3):
                together.ask("POST", "/v1/events", feature(f"e{number}"))
    assert [each.status_code for each in together.answers] == [503] * 3
    with serving(tmp_path / "t.db") as server, client(server) as http:
        assert seen(http) == (set(), [], [])


def test_a_failure_while_time_goes_on_stops_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    advance, armed = Service.advance, threading.Event()

    def fail(self: Service, *of: Any) -> Any:
        advance(self, *of)
        if armed.is_set():
            self.publish(Event("half"))
            raise StoreError("a read failed in the middle")
        return Reply()

    monkeypatch.setattr(Service, "advance", fail)
    with serving(tmp_path / "t.db", tick_s=0.02) as server:
        armed.set()
        until = time.monotonic() + 60
        while server.error is None and time.monotonic() < until:
            time.sleep(0.01)
    assert isinstance(server.error, StoreError)
    armed.clear()
    with serving(tmp_path / "t.db") as server, client(server) as http:
        assert seen(http) == (set(), [], [])


def test_a_key_is_committed_with_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And not with half of it."""
    commits: list[Any] = []
    commit = Database._commit

    def count(self: Database, runs: Any) -> None:
        commits.append(runs)
        commit(self, runs)

    with serving(tmp_path / "t.db", tick_s=60) as server:
        with monkeypatch.context() as patched, Together(server) as together:
            patched.setattr(Database, "_commit", count)
            together.ask("POST", "/v1/events", feature("e"))
            together.ask("POST", "/v1/keys", {"role": "admin"})
            together.ask("POST", "/v1/events", feature("f"))
        assert sorted(each.status_code for each in together.answers) == [200, 200, 201]
        tables = [{name for name in ("keys", "log") for text, _ in runs if f"INTO {name}" in text}
                  for runs in commits]  # fmt: skip
        assert [each for each in tables if each] == [{"keys", "log"}]
        (made,) = [each.json() for each in together.answers if each.status_code == 201]
        with client(server, made["key"]) as http:
            assert [each["name"] for each in http.get("/v1/keys").json()["keys"]] == [made["name"]]


def test_a_key_is_made_or_revoked_by_whoever_commits(tmp_path: Path):
    database = Database(tmp_path / "t.db")
    keys = Keys(database)
    key, what = keys.make("admin", 1, tenant="new")
    assert keys.find(key) is None
    database.flush()
    assert keys.find(key) == what
    digest = keys.end(key)
    assert [known for known, _ in keys.all()] == [digest]
    database.flush()
    assert keys.all() == []
    database.close()
