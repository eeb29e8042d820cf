"""Rows as JSON: what is wrong is rejected alone, and what Arrow would misread or die of too."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from nearcast.errors import ServerError, SparkError
from nearcast.model.codec import EVENT_COLUMNS
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription
from nearcast.spark.stream import served
from nearcast.spark.stream.kafka import EventTopic, Topic
from nearcast.spark.stream.lines import rows_of
from nearcast.spark.stream.source import Settings
from tests.naive_stream import Change, NaiveStream
from tests.stream_cases import Driver, Histories, write_changes, write_events

GOOD = {"id": "good", "attributes": {"price": 1}}


def rows(*said: Any) -> list[dict[str, Any]]:
    given = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in said]
    return rows_of(given, EVENT_COLUMNS, "globe").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "poison",
    [
        b"", b" ", b"null", b"3", b"[]", b"{nonsense", b"\xff\x00", b'{"id": "\xff"}',
        b'{"id": "a"} {"id": "b"}', b'{"id": "a", "id": "b"}', b'{"id": 5}', b'{"lon": 1}',
        b'{"id": "a", "lon": "east"}', b'{"id": "a", "end": "soon"}', b'{"id": "a", "lon": 1e999}',
        b'{"id": "a", "attributes": 5}', b'{"id": "a", "attributes": {"price": [1]}}',
        b'{"id": "a", "attributes": {"price": {"net": 1}}}', b'{"id": "a", "geometry": "POINT"}',
        b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, b'{"specversion": "1.0", "id": "a"}',
    ],
)  # fmt: skip
def test_what_is_no_row_is_rejected_alone(poison: bytes):
    found = rows(GOOD, poison, GOOD)
    assert len(found) == 3
    assert [row["id"] for row in found] == ["good", None, "good"]
    assert [(row["attributes"] or {}).get("price") for row in found] == [1, None, 1]


def test_text_that_looks_like_a_date_is_text():
    found = rows({"id": "a", "attributes": {"day": "2026-03-01"}}, GOOD)
    assert found[0]["attributes"] == {"day": "2026-03-01", "price": None}


def test_an_attribute_of_several_types_keeps_them():
    found = rows(GOOD, {"id": "a", "attributes": {"price": "5"}},
                 {"id": "b", "attributes": {"price": True, "kind": None}})  # fmt: skip
    assert [dict(row["attributes_json"]) for row in found] == [
        {"price": "1"}, {"price": '"5"'}, {"price": "true"},
    ]  # fmt: skip


def test_attributes_that_say_nothing_can_be_kept_in_files():
    assert "attributes" not in rows({"id": "a", "attributes": {}})[0]
    assert "attributes" not in rows({"id": "a", "attributes": {"price": None}})[0]
    assert rows({"id": "a", "attributes": None}, GOOD)[0]["attributes"] is None
    deep = {"id": "a", "unknown": [[[1]]] * 100, "attributes": {"price": 2}}
    assert rows(deep, GOOD)[0]["attributes"] == {"price": 2}


# --- folders --------------------------------------------------------------------------------------


def _lines(path: Path, *said: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in said), "utf-8")


def test_folders_of_lines_are_logs_like_others(tmp_path: Path):
    events, changes = tmp_path / "events", tmp_path / "changes"
    driver_of = Settings(str(events), str(changes), shared=str(tmp_path / "shared"))
    naive = NaiveStream()
    wants = Subscription("s1", where="price < 50")
    _lines(changes / "c1.jsonl", {"id": "s1", "where": "price < 50", "op": "add", "seq": 1})
    _lines(
        events / "e1.json",
        *[{"id": f"e{n}", "attributes": {"price": 10 * n}, "end": "2026-03-01T12:00:00Z"}
          for n in range(9)],
    )  # fmt: skip
    driver = Driver(driver_of)
    assert driver.plan()
    noon = 1_772_366_400_000_000
    first = [Event(f"e{n}", {"price": 10 * n}, end=noon) for n in range(9)]
    assert driver.run() == naive.batch([Change("s1", 1, wants)], first)
    driver.done()
    late = Subscription("s2", where="price >= 50", expires=noon)  # over when the others end
    _lines(changes / "c2.ndjson",
           {"id": "s2", "where": "price >= 50", "op": "add", "seq": 2,
            "expires": "2026-03-01T12:00:00Z"},
           {"id": "s3", "where": "price >= 70", "op": "add", "seq": 3})  # fmt: skip
    _lines(events / "e2.jsonl", {"id": "e9", "attributes": {"price": 60}})
    driver.restart()
    assert driver.plan()
    new = [Change("s2", 2, late), Change("s3", 3, Subscription("s3", where="price >= 70"))]
    expected = naive.batch(new, [Event("e9", {"price": 60})])
    assert driver.run() == expected
    for spooled in (tmp_path / "shared").glob("*/spool/*"):
        spooled.unlink()  # a cache: it is read again
    driver.restart()
    assert driver.run() == expected
    driver.done()
    assert not driver.plan()


def test_lines_of_subscriptions_without_an_order_never_change(tmp_path: Path):
    _lines(tmp_path / "plain" / "s.jsonl", {"id": "s1", "where": "price < 5"}, {"id": "s2"})
    write_events(tmp_path / "events", "e0", [Event("e1", {"price": 10})])
    driver = Driver(Settings(str(tmp_path / "events"), str(tmp_path / "plain")))
    assert driver.plan()
    assert driver.run() == [("e1", "s2", 0)]


def test_a_file_that_comes_too_late_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    write_changes(tmp_path / "changes", "c0", [Change("s1", 1, Subscription("s1"))])
    write_events(tmp_path / "events", "e5", [Event("e5")])
    driver = Driver(Settings(str(tmp_path / "events"), str(tmp_path / "changes")))
    assert driver.plan()
    driver.run()
    driver.done()
    with caplog.at_level(logging.WARNING, "nearcast.spark"):
        assert not driver.plan()
        assert not caplog.records
        write_events(tmp_path / "events", "e3", [Event("e3")])
        assert not driver.plan()
        assert not driver.plan()
    (record,) = caplog.records
    assert "e3.parquet came when files behind it had been read" in record.getMessage()


# --- logs that are others under the same name ---------------------------------------------------


def test_a_topic_that_was_made_anew_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = EventTopic(Topic("host:9", "t"), tmp_path)
    monkeypatch.setattr(Topic, "bounds", lambda _: {"0": (0, 4)})
    assert log.latest({"0": 4}, None, None) == ({"0": 4}, 0)
    with pytest.raises(SparkError, match="another topic"):
        log.latest({"0": 5}, None, None)


def test_a_server_that_was_made_anew_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said = {"events": [], "changes": [], "last": 4, "next": 4, "forgotten": 0}
    monkeypatch.setattr("nearcast.spark.stream.sinks.request", lambda *_: said)
    with pytest.raises(ServerError, match="another log"):
        served.EventLog("http://here", None, tmp_path).latest(5, None, None)
    with pytest.raises(ServerError, match="another log"):
        served.ChangeLog("http://here", None).latest(5, None, None)


# --- nothing in a batch ---------------------------------------------------------------------------


@pytest.mark.parametrize("empty", ["events", "changes"])
def test_empty_files_are_batches_of_nothing(tmp_path: Path, empty: str):
    history, naive = Histories(3), NaiveStream()
    for name in ("events", "changes"):
        (tmp_path / name).mkdir()
    driver = Driver(Settings(str(tmp_path / "events"), str(tmp_path / "changes")))
    for number in range(3):
        changes = history.changes(6) if number != 1 or empty != "changes" else []
        events = history.batch(9) if number != 1 or empty != "events" else []
        write_changes(tmp_path / "changes", f"c{number}", changes)
        write_events(tmp_path / "events", f"e{number}", events)
        assert driver.plan()
        assert driver.run() == naive.batch(changes, events)
        driver.done()
