"""A server's log holds events and changes: each event sees exactly the changes before it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from nearcast.errors import ServerError
from nearcast.model.codec import event_to_json, subscription_to_json
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription
from nearcast.spark.stream import layering, served, sinks, source, worker
from nearcast.spark.stream.source import Settings
from tests.naive_joint import NaiveJoint
from tests.naive_stream import Change
from tests.served import client, feature, serving
from tests.stream_cases import Beside, Driver, Histories


class Logs:
    """Both logs of a server, without the server."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.changes: list[tuple[int, Change]] = []
        self.forgotten = 0

    def enter(self, entry: Change | Event) -> None:
        if isinstance(entry, Event):
            self.events.append(entry)
        else:
            self.changes.append((len(self.events), entry))

    def request(self, url: str, _key: str | None) -> dict[str, Any]:
        path, query = urlsplit(url).path, dict(parse_qsl(urlsplit(url).query))
        after, limit = int(query["after"]), int(query["limit"])
        if path == "/v1/log":
            found = [
                event_to_json(event) | {"offset": offset}
                for offset, event in enumerate(self.events, 1)
                if offset > after
            ][:limit]
            next = found[-1]["offset"] if found else after
            return {"events": found, "next": next, "last": len(self.events)}
        assert path == "/v1/changes"
        altered = [_said(offset, each) for offset, each in self.changes if each.seq > after][:limit]
        next = altered[-1]["seq"] if altered else after
        last = self.changes[-1][1].seq if self.changes else 0
        return {"changes": altered, "next": next, "last": last, "forgotten": self.forgotten}


def _said(offset: int, change: Change) -> dict[str, Any]:
    said = {"seq": change.seq, "offset": offset, "id": change.id, "op": "remove"}
    if change.subscription is None:
        return said
    return said | {"op": "update", "subscription": subscription_to_json(change.subscription)}


def _entries(history: Histories, most: int) -> list[Change | Event]:
    changes = history.changes(most)
    history.seq += len(changes)
    entries: list[Change | Event] = [*history.batch(2 * most), *changes]
    history.random.shuffle(entries)
    numbers = iter(range(history.seq - len(changes) + 1, history.seq + 1))
    return [
        each if isinstance(each, Event)
        else Change(each.id, next(numbers), None if each.bad else each.subscription)
        for each in entries
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_each_event_sees_exactly_the_changes_before_it(tmp_path: Path, monkeypatch, seed: int):
    logs = Logs()
    monkeypatch.setattr(sinks, "request", logs.request)
    monkeypatch.setattr(served, "_PAGE", 4)
    monkeypatch.setattr(layering, "_LEAST_DELTA", 4)
    monkeypatch.setattr(worker, "_FEW", 5)
    monkeypatch.setattr(source, "_SEGMENT", 15)  # and remembered events are indexed
    monkeypatch.setattr(source, "_PER_VERSION", seed % 2)
    monkeypatch.setattr(source, "_PASSES", 0)
    monkeypatch.setattr("subprocess.Popen", Beside)
    monkeypatch.setattr("os.nice", lambda _: 0)
    chance, history = random.Random(seed), Histories(seed)
    remember = chance.choice([1_000_000, 20, 0])
    settings = Settings(
        "http://server", "http://server/", remember=remember, shared=str(tmp_path),
        max_rows=chance.choice([7, 1000]), max_changes=chance.choice([None, 3]),
    )  # fmt: skip
    driver, naive = Driver(settings), NaiveJoint(remember)
    waiting: list[Change | Event] = []
    batches = 0
    for _ in range(12):
        new = _entries(history, 6)
        for entry in new:
            logs.enter(entry)
        waiting += new
        if chance.random() < 0.25:
            driver.restart()
        while driver.plan():
            assert driver.planned is not None
            if chance.random() < 0.2:
                driver.restart()
            offset, seq = driver.planned["events"], driver.planned["changes"]
            known = {id(event): number for number, event in enumerate(logs.events, 1)}
            mine = [
                each for each in waiting
                if (known[id(each)] <= offset if isinstance(each, Event) else each.seq <= seq)
            ]  # fmt: skip
            assert mine == waiting[: len(mine)]  # a batch is a piece of the one log
            found = driver.run()
            assert found == naive.entries(mine)
            waiting = waiting[len(mine) :]
            if chance.random() < 0.2:
                driver.restart()  # killed before it was written down
                assert driver.run() == found
            driver.done()
            batches += 1
        assert not waiting
    assert batches >= 8
    driver.reader.stop()


def test_a_stream_that_has_been_away_for_too_long_is_told(tmp_path: Path, monkeypatch):
    logs = Logs()
    monkeypatch.setattr(sinks, "request", logs.request)
    settings = Settings("http://server", "http://server", shared=str(tmp_path), patience_s=0.0)
    driver = Driver(settings)
    logs.enter(Change("s1", 1, Subscription("s1")))
    assert driver.plan()
    driver.run()
    driver.done()
    logs.enter(Change("s2", 9, Subscription("s2")))
    logs.forgotten = 5
    fresh = Driver(settings)
    assert fresh.plan()  # who begins now has missed nothing
    assert fresh.planned is not None
    fresh.at, fresh.planned = fresh.planned, None
    assert not fresh.plan()
    with pytest.raises(ServerError, match="not kept any more"):
        driver.plan()


def test_who_was_removed_is_not_kept_for_ever(tmp_path: Path, monkeypatch):
    """A server's log is in order: no older change comes later and brings anybody back."""
    logs = Logs()
    monkeypatch.setattr(sinks, "request", logs.request)
    monkeypatch.setattr(layering, "_LEAST_DELTA", 4)
    monkeypatch.setattr("subprocess.Popen", Beside)
    monkeypatch.setattr("os.nice", lambda _: 0)
    driver = Driver(Settings("http://server", "http://server", shared=str(tmp_path)))
    naive, number = NaiveJoint(), 0
    for turn in range(12):
        entries: list[Change | Event] = [Event(f"e{turn}")]
        for _ in range(3):
            number += 1
            wanted = Subscription(f"s{number % 4}") if turn % 4 else None
            entries.append(Change(f"s{number % 4}" if turn % 4 else f"s{number}", number, wanted))
        for entry in entries:
            logs.enter(entry)
        assert driver.plan()
        assert driver.run() == naive.entries(entries)
        driver.done()
    base = driver.reader.plans.register.base
    assert base is not None
    assert base.removed == {}
    driver.reader.stop()


def test_events_and_changes_of_a_real_server(tmp_path: Path):
    cheap = {"subscriber": "ann", "filters": [{"cql2": "price < 50"}]}
    with serving(tmp_path / "n.db") as server, client(server) as http:

        def post(n: int) -> None:
            assert http.post("/v1/events", json=feature(f"e{n}", price=n)).status_code == 200

        driver = Driver(Settings(server.url, server.url, shared=str(tmp_path / "s"), remember=0))
        assert http.put("/v1/subscriptions/s1", json=cheap).status_code == 201
        post(1)
        assert http.put("/v1/subscriptions/s2", json=cheap).status_code == 201
        post(2)
        assert http.delete("/v1/subscriptions/s1").status_code == 204
        post(3)
        assert http.put("/v1/subscriptions/s2", json=cheap | {"keywords": ["x"]}).status_code == 200
        post(4)
        assert driver.plan()
        told = [(event, wanted) for event, wanted, _ in driver.run()]
        assert told == [("e1", "s1"), ("e2", "s1"), ("e2", "s2"), ("e3", "s2")]
        driver.done()
        assert not driver.plan()
        assert driver.reader.reportLatestOffset() == {"behind": 0}
