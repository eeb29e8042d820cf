"""Composites on Spark, in bulk and on a stream: what one detector finds of the same history."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from nearcast.cpsl.composite import Composite
from nearcast.errors import BatchError, ValidationError
from nearcast.model.codec import events_to_arrow
from nearcast.model.events import Event
from tests.patterned import SECOND, composites, detected, history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def put(folder: Path, number: int, events: list[Event], like: list[Event]) -> None:
    """A file of events, with the columns of others, younger than the files before."""
    table = events_to_arrow([*events, *like]).slice(0, len(events))
    path = folder / f"{number:04}.parquet"
    scratch = folder / f".{number:04}"
    pq.write_table(table, scratch)
    os.utime(scratch, (1_800_000_000 + number, 1_800_000_000 + number))
    scratch.rename(path)


def told(rows: Any) -> list[Any]:
    """Rows as tests compare them: instants are whole microseconds."""
    return sorted((r["composite_id"], tuple(r["event_ids"]), r["start"], r["end"]) for r in rows)


def numbers(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return frame.withColumns({name: F.unix_micros(name) for name in ("start", "end")})


def test_history_is_what_one_detector_finds(spark: SparkSession, tmp_path: Path) -> None:
    from nearcast.spark import detect

    wanted, events = composites(), history(1, 160, jitter=20)
    for number in range(2):
        put(tmp_path, number, events[number::2], events)
    frame = spark.read.parquet(str(tmp_path))
    expected = detected(events, wanted, max(event.end or 0 for event in events) - 1)
    found = told(numbers(detect(frame, wanted, space="planar", shards=3)).collect())
    assert found == expected
    assert len({one[0] for one in found}) > 0.9 * len(wanted)


def test_a_stream_is_what_one_detector_finds_at_the_watermark(
    stateful: SparkSession, tmp_path: Path
) -> None:
    """Out of order, late beyond what was declared, stopped and gone on with, then an idle time."""
    from nearcast.spark import detect

    folder, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    folder.mkdir()
    wanted, lateness = composites(), 5
    events = history(2, 150, jitter=lateness)
    size = len(events) // 3 + 1
    files = [events[first : first + size] for first in range(0, len(events), size)]
    last = max(event.end or 0 for event in events)
    files[1].append(Event("late", {"kind": "a", "n": 3, "who": 1}, end=events[0].end))
    files.append([Event("beat", {"kind": "z", "n": 9, "who": 9}, end=last + 100 * SECOND)])
    found: list[Any] = []
    progress: list[Any] = []

    def go_on() -> None:
        schema = stateful.read.parquet(str(folder)).schema
        frame = stateful.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        answer = numbers(
            detect(frame.parquet(str(folder)), wanted, lateness, space="planar", shards=3)
        )
        query = (
            answer.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress.extend(query.recentProgress)

    for number, part in enumerate(files[:2]):
        put(folder, number, part, events)
    go_on()
    half = len(found)
    for number, part in enumerate(files[2:], 2):
        put(folder, number, part, events)
    go_on()
    assert 0 < half < len(found)
    # The watermark has come to the last event's end, less what may be late, in whole milliseconds.
    until = last + (100 - lateness) * SECOND - 1000
    assert told(found) == detected(events, wanted, until // 1000 * 1000)
    counted = [p.observedMetrics for p in progress if "nearcast" in p.observedMetrics]
    assert sum(c["nearcast"]["late"] or 0 for c in counted) == 1
    assert sum(c["nearcast"]["duplicates"] or 0 for c in counted) > 0
    assert sum(c["nearcast_sent"]["events"] or 0 for c in counted) == sum(map(len, files))


def test_what_cannot_be_detected_is_named(spark: SparkSession) -> None:
    from nearcast.spark import detect

    schema = "id string, end timestamp, lon double, lat double"
    events = spark.createDataFrame([], schema)
    good = Composite("a", text="Q(2)(ARITH: k = 1)")
    for given, field in (
        ([good, good], "row 1"),
        (spark.createDataFrame([("a", "Q(")], "id string, text string"), "row 0"),
        (spark.createDataFrame([("a", None)], "id string, text string"), "composites.text"),
    ):
        with pytest.raises(BatchError, match=field):
            detect(events, given)
    with pytest.raises(ValidationError, match=r"composites\.text"):
        detect(events, spark.createDataFrame([("a",)], "id string"))
    with pytest.raises(ValidationError, match="lateness"):
        detect(events, [good], "soon")
    with pytest.raises(ValidationError, match=r"events\.end"):
        detect(events.drop("end"), [good])
    assert detect(events, [good]).collect() == []


def test_shards_lie_where_they_are_said_to(spark: SparkSession) -> None:
    from nearcast.spark.spreading import keys_of, partition_of

    rows = spark.sql("select pmod(hash(int(id)), 7) as at from range(40)").collect()
    assert [row["at"] for row in rows] == [partition_of(key, 7) for key in range(40)]
    keys = keys_of(10, 4)
    assert [partition_of(key, 4) for key in keys] == [shard % 4 for shard in range(10)]
    assert len(set(keys)) == 10
