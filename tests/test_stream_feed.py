"""Events as rows of a stream: from any log, what is wrong told of, and time while it is idle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BooleanType, StructField, StructType

from nearcast.errors import NearcastError, SparkError, ValidationError
from nearcast.model.codec import events_to_json
from nearcast.model.events import Event
from nearcast.spark import detect, event_stream
from nearcast.spark.packs import beating
from nearcast.spark.stream import feed, sinks
from nearcast.spark.stream.feed import Feeding, FeedReader, general_columns
from nearcast.spark.stream.running import Run, supervise
from tests.patterned import SECOND, composites, detected, history
from tests.served import client, feature, make_keys, serving
from tests.stream_cases import write_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = 1_772_366_400_000_000


class Clock:
    """Stands for the time of the machine."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(feed, "time", made)
    return made


def _columns(*, beats: bool = False, offsets: bool = False) -> str:
    columns = general_columns(offsets=offsets)
    if beats:
        columns = StructType([*columns.fields, StructField("heartbeat", BooleanType())])
    return json.dumps(columns.jsonValue())


def _put(folder: Path, name: str, rows: list[Any]) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)
    (folder / f".{name}").write_text(text, "utf-8")
    (folder / f".{name}").rename(folder / f"{name}.jsonl")


def _next(reader: FeedReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The end of the next batch, and its rows: through JSON and pickle, as Spark does."""
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    rows: list[dict[str, Any]] = []
    if end != start:
        for task in reader.partitions(start, end):
            for batch in reader.read(task):
                rows += batch.to_pylist()
    return end, rows


def test_rows_come_once_and_what_is_no_event_is_told_of(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    _put(tmp_path / "events", "a", [
        {"id": "e1", "attributes": {"n": 1, "word": "x"}, "end": "2026-03-01T12:00:00Z"},
        "no row at all",
        {"id": "e2", "lon": 999.0, "lat": 1.0, "end": "2026-03-01T12:00:01Z"},
    ])  # fmt: skip
    reader = FeedReader(Feeding(str(tmp_path / "events"), _columns(), shared=str(shared)))
    start = reader.initialOffset()
    end, rows = _next(reader, start)
    (row,) = rows
    assert row["id"] == "e1"
    assert dict(row["attributes_json"]) == {"n": "1", "word": '"x"'}
    (told,) = (shared / "rejected").glob("*.jsonl")
    assert [json.loads(line)["id"] for line in told.read_text().splitlines()] == [None, "e2"]
    assert _next(reader, end) == (end, [])
    assert _next(FeedReader(reader.feeding), start)[1] == rows  # again, after a kill
    other = FeedReader(Feeding(str(tmp_path), _columns()))
    with pytest.raises(SparkError, match="belongs to another job"):
        other.latestOffset(end, ReadAllAvailable())


def test_an_idle_source_says_how_time_goes_on(tmp_path: Path, clock: Clock) -> None:
    columns = _columns(beats=True)
    given = Feeding(str(tmp_path / "events"), columns, shared=str(tmp_path / "s"), heartbeat_s=10)
    write_events(tmp_path / "events", "a", [Event("e1", {"n": 1}, end=NOON)])
    reader = FeedReader(given)
    at, rows = _next(reader, reader.initialOffset())
    assert [row["heartbeat"] for row in rows] == [None]
    clock.now += 5000.0  # a long batch is no idle source
    assert _next(reader, at) == (at, [])
    clock.now += 9.0
    assert _next(reader, at) == (at, [])
    clock.now += 3.0
    at, rows = _next(reader, at)
    assert [(r["id"], r["heartbeat"], _micros(r["end"])) for r in rows] == [
        (None, True, NOON + 12 * SECOND)
    ]
    assert _next(reader, at) == (at, [])
    again = FeedReader(given)  # what went by while nobody looked does not count
    clock.now += 900.0
    assert _next(again, at) == (at, [])
    clock.now += 11.0
    at, rows = _next(again, at)
    assert [_micros(r["end"]) for r in rows] == [NOON + 23 * SECOND]
    write_events(tmp_path / "events", "b", [Event("e2", {"n": 1}, end=NOON + 20 * SECOND)])
    at, rows = _next(again, at)
    assert [r["id"] for r in rows] == ["e2"]
    clock.now += 11.0  # it was awake a moment ago
    assert _next(again, at) == (at, [])


def _micros(moment: Any) -> int:
    value: int = pa.scalar(moment, pa.timestamp("us", tz="UTC")).cast(pa.int64()).as_py()
    return value


def test_a_column_of_somebodys_own_is_no_heartbeat() -> None:
    table = pa.table({"id": ["a"], "heartbeat": ["strong"]})
    assert beating(table)[0].to_pydict() == {"id": ["a"]}


def test_the_log_of_a_server(tmp_path: Path) -> None:
    file = tmp_path / "n.db"
    (key,) = make_keys(file, {"role": "admin"})
    with serving(file) as server, client(server, key) as http:
        assert http.post("/v1/events", json=feature("e1", price=5)).status_code == 200
        sinks.post(server.url, [sinks.row_event({"event_id": "e1", "subscription_id": "s1"})], key)
        columns = _columns(offsets=True)
        reader = FeedReader(Feeding(server.url, columns, shared=str(tmp_path / "s"), key=key))
        end, rows = _next(reader, reader.initialOffset())
        assert [(r["id"], dict(r["attributes_json"]), r["offset"]) for r in rows] == [
            ("e1", {"price": "5.0"}, 1)
        ]
        assert end["events"] == 2  # what a stream has told is not told again


def test_a_source_that_is_away_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    _put(tmp_path / "events", "a", [{"id": "e1", "end": "2026-03-01T12:00:00Z"}])
    given = Feeding(str(tmp_path / "events"), _columns(), shared=str(tmp_path / "s"))
    reader = FeedReader(given)
    start = reader.initialOffset()
    (tmp_path / "events").rename(tmp_path / "gone")
    assert _next(reader, start) == (start, [])
    (tmp_path / "gone").rename(tmp_path / "events")
    assert [row["id"] for row in _next(reader, start)[1]] == ["e1"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"heartbeat": 0}, "heartbeat"), ({"heartbeat": "soon"}, "heartbeat"),
     ({"max_rows": 0}, "max_rows"),
     ({"events": "ftp://x/y"}, "events")],
)  # fmt: skip
def test_what_is_asked_wrongly_is_refused(
    spark: SparkSession, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(NearcastError, match=said):
        event_stream(spark, **({"events": tmp_path} | settings))
    with pytest.raises(ValidationError, match="first file"):
        event_stream(spark, tmp_path)


def test_patterns_in_lines_of_json_are_what_one_detector_finds(
    stateful: SparkSession, tmp_path: Path
) -> None:
    """Poison among them; a batch a file, in the order of their names; stopped and gone on with."""
    wanted, events = composites()[::5], history(4, 60)
    folder, out = tmp_path / "events", tmp_path / "out"
    last = max(event.end or 0 for event in events)
    beat = Event("beat", {"kind": "z", "n": 9, "who": 9}, end=last + 100 * SECOND)
    files = [events[:30], events[30:], [beat]]

    def go_on() -> None:
        frame = event_stream(stateful, folder, "planar", max_rows=1, shared=tmp_path / "shared")
        answer = detect(frame, wanted, 1, space="planar", shards=2)
        run = Run(str(out), str(tmp_path / "state"), once=True)
        supervise(lambda: run.start(answer), lambda beat: None)

    for number, part in enumerate(files):
        rows = events_to_json(part)
        _put(folder, f"{number}", [*rows, "{", "null"])
        if number:
            go_on()
    found = sorted(
        (r["composite_id"], tuple(r["event_ids"]), r["start"], r["end"])
        for r in stateful.read.parquet(str(out)).selectExpr(
            "composite_id", "event_ids", "unix_micros(start) as start", "unix_micros(end) as end"
        ).collect()
    )  # fmt: skip
    assert found == detected(events, wanted, last + 99 * SECOND - 1000)
    assert found
    assert len(list((tmp_path / "shared" / "rejected").glob("*.jsonl"))) == len(files)
