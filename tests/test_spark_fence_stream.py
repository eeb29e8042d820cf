"""Fences on a stream: what the broker tells of the same positions, however they come."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcast import Box, Event, Fence, Point
from nearcast.clock import FOREVER, NEVER, to_micros
from nearcast.errors import ValidationError
from nearcast.fences.history import Standing
from nearcast.model.codec import events_to_arrow
from nearcast.model.geometry import Space
from nearcast.spark.crossings import Crossings, CrossingsOf, PositionPacks
from nearcast.spark.objects import Kind
from nearcast.spark.packs import read_table, unpacked
from nearcast.spark.positions import Layout, PositionPacking
from nearcast.spark.shipping import ship_matcher, ship_table
from nearcast.spark.transitions import standing_to_table
from tests.naive_fences import Told
from tests.test_spark_fences import a_history, broker_tells, end_of, said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECOND = 1_000_000
_EPOCH = 1_772_323_200 * _SECOND


def batches_of(events: list[Event], offsets: list[int], random: Random) -> list[tuple[Any, int]]:
    """The events out of order in some batches; with each the moment until which all have come."""
    late = [end_of(event) + random.choice([0, 0, 5, 20]) for event in events]
    arriving = sorted(range(len(events)), key=late.__getitem__)
    arriving += random.choices(arriving, k=len(arriving) // 5)  # some come twice
    whole = events_to_arrow(events).append_column("offset", pa.array(offsets, pa.int64()))
    cuts = sorted({0, *random.choices(range(len(arriving)), k=4), len(arriving)})
    found = []
    for first, stop in pairwise(cuts):
        table = whole.take(pa.array(arriving[first:stop]))
        to_come = [end_of(events[row]) for row in arriving[stop:]]
        found.append((table, min(to_come, default=FOREVER) - 1))
    return found


def streamed(
    wanted: list[Fence], batches: list[tuple[Any, int]], until: int, space: Space, kind: Kind,
    folder: str, random: Random, lateness: int | None = None,
) -> tuple[Counter[Told], int]:  # fmt: skip
    """What workers do, in this process: shards are taken up where others left them.

    With a lateness time goes as far as Spark's watermark; and until when that was in the end.
    """
    standing, filters = Standing.of(wanted, space)
    names = batches[0][0].column_names
    optional = tuple(name for name in ("offset", "source", "geometry") if name in names)
    layout = Layout(kind, optional)
    no_spark: Any = None
    ids = [fence.id for fence in wanted]
    shipped = ship_table(no_spark, standing_to_table(standing, ids), folder)
    matcher = None if filters is None else ship_matcher(no_spark, filters, folder)
    last = FOREVER if lateness is None else until
    packing = PositionPacking(standing.keys, matcher, layout, space, True, 2, last)
    work = PositionPacks(packing, (11, 7))
    opener = CrossingsOf(shipped, "these", layout, space, until)
    workers = [Crossings(opener) for _ in range(3)]
    saved: dict[int, bytes | None] = {11: None, 7: None}
    rows: list[Any] = []
    closed = seen = NEVER
    for table, ended in [*batches, (None, until)]:
        given = [] if table is None else work(iter(table.to_batches()))
        packs = [row for batch in given for row in batch.to_pylist()]
        for key, known in saved.items():
            worker = random.choice(workers)
            worker.load(known)
            told = worker.take(unpacked(p for p in packs if p["shard"] == key), closed)
            saved[key] = worker.save()
            if told is not None:
                found = read_table(told)
                ats = found.column("at").cast(pa.int64())
                found = found.set_column(3, "at", ats)
                rows += zip(*[c.to_pylist() for c in found.columns], strict=True)
            assert worker.counted() == (0, 0, 0) or lateness is not None
        closed = ended
        if lateness is not None:  # as Spark: of the rows that have a time, the greatest one
            times = [micros for p in packs if (micros := _micros(p["t"])) is not None]
            seen = max([seen, *times])
            closed = seen - lateness
    end = until if lateness is None else min(closed, until)
    for known in saved.values():
        workers[0].load(known)
        told = workers[0].take([], end)
        if told is not None:
            found = read_table(told)
            ats = found.column("at").cast(pa.int64())
            rows += zip(
                *[c.to_pylist() for c in found.set_column(3, "at", ats).columns], strict=True
            )
        assert workers[0].due > end
    return said(rows, kind), end


def _micros(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


@given(
    random=st.randoms(use_true_random=False),
    kind=st.sampled_from(["string", "double", "json"]),
    space=st.sampled_from(["planar", "globe"]),
    until=st.integers(40, 70),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_shards_that_move_from_worker_to_worker_tell_what_the_broker_tells(
    random: Random, kind: Kind, space: Space, until: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wanted, events, offsets = a_history(random, space, kind, 40, 8)
    folder = str(tmp_path_factory.mktemp("shipped"))
    batches = batches_of(events, offsets, random)
    found, _ = streamed(wanted, batches, until, space, kind, folder, random)
    assert found == broker_tells(wanted, events, until, space)


@given(
    random=st.randoms(use_true_random=False),
    space=st.sampled_from(["planar", "globe"]),
    until=st.integers(10, 30) | st.just(1_000),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_time_is_that_of_all_events_and_no_farther_than_until(
    random: Random, space: Space, until: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of those that no fence counts, too, and of those behind `until`."""
    wanted, events, offsets = a_history(random, space, "string", 30, 3)
    batches = batches_of(events, offsets, random)
    folder = str(tmp_path_factory.mktemp("shipped"))
    found, end = streamed(wanted, batches, until, space, "string", folder, random, lateness=21)
    assert end == min(max(map(end_of, events)) - 21, until)
    assert found == broker_tells(wanted, events, end, space)


YARD = [
    Fence("yard", "ops", "truck", Box(0, 0, 10, 10), on={"enter", "exit"}),
    Fence("stay", "ops", "truck", Box(0, 0, 10, 10), on={"dwell"}, dwell=20),
    Fence("gone", "ops", "truck", Box(0, 0, 10, 10), on={"lost"}, lost=30),
]  # fmt: skip


def _drive(random: Random, count: int) -> list[Event]:
    found, now = [], _EPOCH
    for number in range(count):
        now += random.choice([0, 1, 2]) * _SECOND
        place = Point(random.choice([5.0, 5.0, 20.0]), 5.0)
        wide = Box(-1, -1, 1, 1) if random.random() < 0.1 else place
        found.append(Event(f"e{number:03}", {"truck": random.choice("abcd")}, (), wide, end=now))
    return found


def test_spark_tells_at_the_watermark_what_history_does(
    stateful: SparkSession,
    tmp_path: Path,
) -> None:
    """Two starts from one checkpoint; dwells and losses by time alone; other fences are refused."""
    from pyspark.errors import StreamingQueryException

    from nearcast.spark import fences

    random = Random(5)
    events = _drive(random, 90)
    last = end_of(events[-1])
    files = [
        events[:45],
        events[45:],
        [Event("beat", {"truck": "z"}, (), Point(90, 5), end=last + 60 * _SECOND)],
    ]
    files[1] = [*files[1], Event("late", {"truck": "a"}, (), Point(5, 5), end=_EPOCH)]
    folder, checkpoint = tmp_path / "positions", str(tmp_path / "checkpoint")
    folder.mkdir()
    found: list[Any] = []
    late = 0

    def go_on(wanted: list[Fence], lateness: object = 2) -> None:
        nonlocal late
        schema = stateful.read.parquet(str(folder)).schema
        frame = stateful.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        answer = fences(
            frame.parquet(str(folder)), wanted, space="planar", lateness=lateness, shards=2
        )
        query = (
            answer.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
            .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        metrics = [p.observedMetrics.get("nearcast") for p in query.recentProgress]
        late += sum(each["late"] or 0 for each in metrics if each is not None)

    for number, part in enumerate(files):
        table = events_to_arrow([*part, *events]).slice(0, len(part))
        pq.write_table(table, folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_800_000_000 + number,) * 2)
        if number:
            go_on(YARD)
    assert late == 1
    with pytest.raises(ValidationError, match="lateness"):
        go_on(YARD, "soon")
    pq.write_table(table, folder / "9.parquet")
    os.utime(folder / "9.parquet", (1_800_000_009,) * 2)  # Spark leaves out what is much older
    with pytest.raises(StreamingQueryException, match="made with other fences"):
        go_on(YARD[:2])
    stateful.conf.set("spark.sql.shuffle.partitions", "4")  # the checkpoint has two
    with pytest.raises(StreamingQueryException, match="2 shards in 2 partitions"):
        go_on(YARD)
    stateful.conf.set("spark.sql.shuffle.partitions", "2")
    until = last + 58 * _SECOND - 1000
    kept = stateful.createDataFrame(events_to_arrow([*events, *files[2]]))
    expected = fences(kept, YARD, until, space="planar").collect()
    assert Counter(map(tuple, found)) == Counter(map(tuple, expected))
    assert {row["transition"] for row in found} == {"enter", "exit", "dwell", "lost"}
