"""Fences over history on Spark: what the broker tells of the same positions, and the definition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcast import Around, Box, Broker, Circle, Event, Fence, Point, Polygon
from nearcast.clock import FOREVER, NEVER
from nearcast.errors import BatchError, NearcastError, ValidationError
from nearcast.fences.history import Standing
from nearcast.kernels.sorting import order_in_groups
from nearcast.model.codec import events_to_arrow, fences_to_arrow
from nearcast.model.events import Value
from nearcast.model.fences import TRANSITIONS
from nearcast.model.geometry import Region, Space
from nearcast.spark import fences, rejected
from nearcast.spark.frames import whole_files
from nearcast.spark.objects import Kind, kind_of, shards_of
from nearcast.spark.positions import Layout, PositionPacking
from nearcast.spark.rereading import MOST_TASKS
from nearcast.spark.shipping import ship_matcher, ship_table
from nearcast.spark.sql_fences import sql_fences
from nearcast.spark.transitions import TransitionStream, standing_to_table
from tests.naive_fences import NaiveFences, Told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HOLE = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]
REGIONS: dict[Space, tuple[Region, ...]] = {
    "planar": (
        Box(-2, -2, 2, 2), Box(0, 0, 0, 4), Circle(0, 0, 2), Circle(3, 1, 1),
        Polygon([(-3, -3), (4, -3), (0, 4)]),
        Polygon([(-3, -3), (3, -3), (3, 3), (-3, 3)], [_HOLE]),
    ),
    "globe": (
        Box(179, -2, -178, 2), Circle(180, 0, 250_000), Circle(-178, 1, 111_195),
        Polygon([(-179, -3), (-172, -3), (-176, 4)]),
    ),
}  # fmt: skip
XS: dict[Space, Sequence[float]] = {
    "planar": (-5, -3, -2, -0.5, 0, 1, 2, 2.5, 4, 6),
    "globe": (180, -180, 179, 178, -179, -178, -177.5, -174, 175),
}
OBJECTS: dict[Kind, Sequence[Value | None]] = {
    "string": ("a", "b", "1", "é", "", None),
    "double": (1, 1.0, 2.5, -0.0, 0, -7, float("inf"), float("nan"), None),
    "json": (1, 1.0, "1", "a", 2.5, -0.0, 0, True, None),
}
WHERES = (None, None, None, "loaded = TRUE", "speed > 3")


def a_fence(random: Random, number: int, space: Space) -> Fence:
    on = set(random.sample(TRANSITIONS, random.randint(1, 4)))
    spans = [timedelta(microseconds=each) for each in (1, 2, 5, 12)]
    unit = 1 if space == "planar" else 111_195
    return Fence(
        f"f{number}", "ops", random.choice(["car", "car", "tag"]), random.choice(REGIONS[space]),
        random.choice(WHERES), random.choice([(), (), ("red",)]), on,
        random.choice([0, 0, 1, 10]) * unit,
        random.choice([timedelta(0), *spans]) if "dwell" in on else None,
        random.choice(spans) if "lost" in on else random.choice([None, None, spans[2]]),
        random.choice([None, None, random.randrange(40)]),
    )  # fmt: skip


def a_position(random: Random, number: int, space: Space, kind: Kind) -> Event:
    attributes: dict[str, Any] = {"speed": random.choice([1, 9])}
    for name in ("car", "tag"):
        who = random.choice(OBJECTS[kind])
        if who is not None:
            attributes[name] = who
    if random.random() < 0.7:
        attributes["loaded"] = random.random() < 0.7
    place: Any = Point(random.choice(XS[space]), random.choice([-3, -1, 0, 1, 2, 4]))
    if random.random() < 0.1:
        place = random.choice([None, Box(179, 0, 180, 1) if space == "globe" else Box(1, 1, 3, 3)])
    end = random.randrange(40)
    return Event(
        f"e{number}", attributes, random.choice([(), {"Red"}]), place, end=end,
        expires=random.choice([None, end + 3]), source=random.choice([None, None, "north"]),
    )  # fmt: skip


History = tuple[list[Fence], list[Event], list[int]]


def a_history(random: Random, space: Space, kind: Kind, count: int, watching: int) -> History:
    """Fences, and events with their offsets, in the order in which they count."""
    wanted = [a_fence(random, number, space) for number in range(watching)]
    found = [
        (a_position(random, number, space, kind), random.randrange(3)) for number in range(count)
    ]
    found.sort(key=lambda each: (each[0].end, each[1], each[0].id))
    return wanted, [event for event, _ in found], [offset for _, offset in found]


def broker_tells(
    wanted: Iterable[Fence], events: Iterable[Event], until: int | None, space: Space
) -> Counter[Told]:
    broker = Broker(space)
    for fence in wanted:
        broker.subscribe(fence)
    replies = [broker.publish(event) for event in events if until is None or end_of(event) <= until]
    if until is not None:
        replies.append(broker.advance(to=until))
    return Counter(
        (n.subscription_id, plain(n.object), str(n.transition), n.at, n.event.id)
        for reply in replies for n in reply
    )  # fmt: skip


def naively_told(
    wanted: Iterable[Fence], events: Iterable[Event], until: int, space: Space
) -> Counter[Told]:
    naive = NaiveFences(space)
    told = [each for fence in wanted for each in naive.subscribe(fence)]
    told += [each for event in events if end_of(event) <= until for each in naive.publish(event)]
    told += naive.advance(until)
    return Counter((id, plain(who), *rest) for id, who, *rest in told)


def end_of(event: Event) -> int:
    assert event.end is not None
    return event.end


def plain(who: Any) -> Any:
    """1 and 1.0 are one object."""
    return who if isinstance(who, str) else float(who) + 0.0


def as_table(events: Sequence[Event], offsets: Sequence[int], random: Random) -> Any:
    """Rows in any order, some of them repeated."""
    rows = [*range(len(events)), *random.choices(range(len(events)), k=len(events) // 5)]
    random.shuffle(rows)
    table = events_to_arrow([events[row] for row in rows])
    return table.append_column("offset", pa.array([offsets[row] for row in rows], pa.int64()))


def said(rows: Iterable[Sequence[Any]], kind: Kind) -> Counter[Told]:
    return Counter(
        (id, plain(json.loads(who) if kind == "json" else who), transition, at, event)
        for id, who, transition, at, event in rows
    )


# --- without Spark --------------------------------------------------------------------------------


def replayed(
    table: Any, wanted: list[Fence], until: int | None, space: Space, folder: str,
    kind: Kind, shards: int = 3,
) -> Counter[Told]:  # fmt: skip
    """What the workers do, in this process."""
    standing, filters = Standing.of(wanted, space)
    optional = tuple(n for n in ("offset", "source", "geometry") if n in table.column_names)
    layout = Layout(kind, optional)
    no_spark: Any = None
    ids = [fence.id for fence in wanted]
    shipped = ship_table(no_spark, standing_to_table(standing, ids), folder)
    matcher = None if filters is None else ship_matcher(no_spark, filters, folder)
    end = FOREVER if until is None else until
    packing = PositionPacking(standing.keys, matcher, layout, space, True, shards, end)
    last = max(table.column("end").cast(pa.int64()).to_pylist(), default=NEVER)
    before, closed = (last, NEVER) if until is None else (NEVER, until)
    work = TransitionStream(shipped, layout, space, before, closed)
    packed = pa.Table.from_batches([packing.pack(table)])
    rows: list[Any] = []
    picked: list[Any] = []
    for shard in range(shards):
        mine = packed.filter(pa.compute.equal(packed.column("shard"), shard))
        for batch in work(iter(mine.to_batches())):
            rows += plain_rows(batch)
        for batch in work.told(pa.Table.from_batches([packing.picked(table, shard)])):
            picked += plain_rows(batch)
    assert said(picked, kind) == said(rows, kind)
    return said(rows, kind)


def plain_rows(batch: Any) -> Iterable[Any]:
    ats = batch.column("at").cast(pa.int64())
    return zip(*[c.to_pylist() for c in batch.set_column(3, "at", ats)], strict=True)


@given(
    random=st.randoms(use_true_random=False),
    kind=st.sampled_from(["string", "double", "json"]),
    space=st.sampled_from(["planar", "globe"]),
    until=st.none() | st.integers(0, 60),
)
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_workers_tell_what_the_broker_and_the_definition_tell(
    tmp_path: Path, random: Random, kind: Kind, space: Space, until: int | None
):
    wanted, events, offsets = a_history(random, space, kind, 14, 4)
    table = as_table(events, offsets, random)
    found = replayed(table, wanted, until, space, str(tmp_path), layout_kind(table))
    assert found == broker_tells(wanted, events, until, space)
    if until is not None:
        assert found == naively_told(wanted, events, until, space)


def layout_kind(table: Any) -> Kind:
    """As the driver would say it."""
    struct = table.schema.field("attributes").type if "attributes" in table.column_names else ()
    names = {pa.string(): "string", pa.float64(): "double", pa.bool_(): "bool"}
    types: Any = [names[each.type] for each in struct if each.name in ("car", "tag")]
    return kind_of(types, mixed="attributes_json" in table.column_names)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=60))
def test_order_in_groups_is_that_of_a_stable_sort(items: list[tuple[int, int]]):
    groups, keys = (np.array([each[i] for each in items], np.int64) for i in range(2))
    found = order_in_groups(groups, keys, 5)
    assert found.tolist() == sorted(range(len(items)), key=lambda i: items[i])


def test_objects_go_to_all_shards_evenly():
    for objects in (pa.array([f"truck {n}" for n in range(4000)]), pa.array(range(4000))):
        column = objects if pa.types.is_string(objects.type) else objects.cast(pa.float64())
        counts = Counter(shards_of(column, 8).tolist())
        assert len(counts) == 8
        assert max(counts.values()) < 1.3 * 500


# --- on Spark -------------------------------------------------------------------------------------


def frame(spark: SparkSession, table: Any) -> DataFrame:
    return spark.createDataFrame(table).repartition(3)


def collected(found: DataFrame, kind: Kind) -> Counter[Told]:
    assert found.columns == ["fence_id", "object", "transition", "at", "event_id"]
    table = found.toArrow()
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    ats = table.column("at").cast(pa.int64())
    return said(zip(*[c.to_pylist() for c in table.set_column(3, "at", ats)], strict=True), kind)


@pytest.mark.parametrize(
    ("kind", "space", "until"),
    [
        ("string", "planar", None),
        ("double", "globe", 25),
        ("json", "planar", 70),
        ("json", "globe", None),
    ],
)
def test_spark_tells_what_the_broker_tells(
    spark: SparkSession, tmp_path: Path, kind: Kind, space: Space, until: int | None
):
    random = Random(f"{kind} {space} {until}")
    wanted, events, offsets = a_history(random, space, kind, 300, 25)
    table = as_table(events, offsets, random)
    should = broker_tells(wanted, events, until, space)
    assert len({told[2] for told in should}) == len(TRANSITIONS)
    said_until: Any = until
    frames = frame(spark, table), frame(spark, fences_to_arrow(wanted))
    found = fences(*frames, until=said_until, space=space)
    assert dict(found.dtypes)["object"] == ("double" if kind == "double" else "string")
    assert collected(found, kind) == should
    for part in range(2):
        (tmp_path / "p").mkdir(exist_ok=True)
        pq.write_table(table.slice(part * 200, 200), tmp_path / "p" / f"{part}.parquet")
    path = str(tmp_path / "p")
    few, many = 5, MOST_TASKS + 1  # so many tasks read all files, or rows are dealt out
    for shards in (few, many, None):
        from_files = fences(path, wanted, until=said_until, space=space, shards=shards)
        assert collected(from_files, kind) == should
    as_it_is = fences(spark.read.parquet(path), wanted, until=said_until, space=space)
    assert collected(as_it_is, kind) == should


def test_files_are_read_by_workers_where_a_frame_is_nothing_else(
    spark: SparkSession, tmp_path: Path
):
    path = str(tmp_path / "p")
    for part in range(2):
        positions(spark, ("p", "a", 1.0, 2.0, part)).write.mode("append").parquet(path)
    whole = spark.read.parquet(path)
    for same in (whole, whole.select("end", "id", "lat"), whole.drop("attributes")):
        assert sorted(whole_files(same) or ()) == sorted(whole.inputFiles())
    narrow = spark.read.schema("id string, lon float").parquet(path)
    changed = [
        whole.where("lon > 0"), whole.limit(1), whole.distinct(), whole.union(whole), narrow,
        whole.withColumnRenamed("lon", "lat2"), whole.selectExpr("lat as lon", "lon as lat"),
        whole.selectExpr("attributes.truck as id"), spark.range(3),
    ]  # fmt: skip
    assert [whole_files(other) for other in changed] == [None] * len(changed)
    whole.write.partitionBy("id").parquet(str(tmp_path / "cut"))
    assert whole_files(spark.read.parquet(str(tmp_path / "cut"))) is None


POSITIONS = "id string, attributes struct<truck: string>, lon double, lat double, end timestamp"


def positions(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """(id, truck, lon, lat, second)."""
    return spark.createDataFrame(
        [(id, (who,), lon, lat, _at(second)) for id, who, lon, lat, second in rows], POSITIONS
    )


def _at(second: int | None) -> Any:
    return None if second is None else datetime.fromtimestamp(second, UTC)


YARD = Fence("yard", "ops", "truck", Circle(8, 47, 1000))


def told(found: DataFrame) -> list[tuple[str, ...]]:
    rows = found.select("fence_id", "object", "transition", "event_id").collect()
    return sorted(tuple(row) for row in rows)


def test_bad_positions_are_left_out_and_named(spark: SparkSession):
    given = positions(
        spark, ("p1", "a", 8.0, 47.0, 10), ("p2", "a", 8.0, 95.0, 20), ("p3", "b", 8.0, 47.0, None)
    )
    assert told(fences(given, [YARD])) == [("yard", "a", "enter", "p1")]
    bad = {row.id: row.reason for row in rejected(given, "positions").collect()}
    assert set(bad) == {"p2", "p3"}
    assert "end" in bad["p3"]
    with pytest.raises(Exception, match="95"):
        fences(given, [YARD], strict=True).collect()


def test_who_is_nobody_is_not_counted_and_nobody_is_no_error(spark: SparkSession):
    given = positions(spark, ("p1", None, 8.0, 47.0, 10), ("p2", "a", None, None, 20))
    assert told(fences(given, [YARD])) == []
    assert told(fences(given.limit(0), [YARD])) == []
    assert told(fences(given, spark.createDataFrame(fences_to_arrow([YARD])).limit(0))) == []


def test_a_fence_that_comes_twice_is_one_and_two_under_one_id_are_refused(spark: SparkSession):
    given = positions(spark, ("p1", "a", 8.0, 47.0, 10))
    assert len(told(fences(given, [YARD, YARD]))) == 1
    other = Fence("yard", "ops", "truck", Circle(8, 47, 2000))
    with pytest.raises(BatchError, match="row 1: fence 'yard' exists already"):
        fences(given, [YARD, other])


def test_ids_under_other_sources_are_other_positions(spark: SparkSession):
    inside = Fence("yard", "ops", "truck", Circle(8, 47, 1000), on={"inside"})
    rows = [("p1", ("a",), 8.0, 47.0, _at(10), source) for source in ("n", "s", "n", None)]
    given = spark.createDataFrame(rows, f"{POSITIONS}, source string")
    assert told(fences(given, [inside])) == [("yard", "a", "inside", "p1")] * 3


@pytest.mark.parametrize(
    ("change", "names", "remedy"),
    [
        ({"object": None}, "object", "give"),
        ({"dwell": 60.0}, "dwell", "add 'dwell' to `on`"),
        ({"on": ["dwell"], "dwell": None}, "dwell", "how long"),
        ({"on": ["dwell"], "dwell": -1.0}, "dwell", "not negative"),
        ({"on": ["leave"]}, "on", "give some of enter"),
        ({"lost": 0.0}, "lost", "more than nothing"),
        ({"lon": None, "lat": None}, "region", "Around"),
        ({"lon": None, "lat": None, "radius_m": None}, "region", "a Circle"),
        ({"margin_m": -1.0}, "margin_m", "not negative"),
        ({"lat": 95.0}, "region", "95"),
    ],
)
def test_a_bad_fence_is_an_error_before_anything_runs(
    spark: SparkSession, change: dict[str, Any], names: str, remedy: str
):
    row = {
        "id": "yard", "object": "truck", "on": ["enter"], "lon": 8.0, "lat": 47.0,
        "radius_m": 1000.0, "margin_m": 0.0, "dwell": None, "lost": None,
    }  # fmt: skip
    kinds = (
        "id string, object string, on array<string>, lon double, lat double, radius_m double, "
        "margin_m double, dwell double, lost double"
    )
    frame = spark.createDataFrame([tuple({**row, **change}.values())], kinds)
    with pytest.raises(BatchError) as error:
        fences(positions(spark, ("p1", "a", 8.0, 47.0, 10)), frame)
    assert error.value.field.startswith("fences.")
    assert names in error.value.field
    assert remedy in str(error.value)


def test_columns_that_are_missing_or_wrong_are_named_at_once(spark: SparkSession):
    good = positions(spark, ("p1", "a", 8.0, 47.0, 10))
    yard = spark.createDataFrame(fences_to_arrow([YARD]))
    cases: list[tuple[Any, Any, str, str]] = [
        (good.drop("end"), yard, "positions.end", "when the object was there"),
        (good.drop("lon", "lat"), yard, "positions.lon", "add lon and lat"),
        (good.drop("attributes"), yard, "positions.attributes", "names the object"),
        (good.withColumn("offset", good.id), yard, "positions.offset", "bigint"),
        (good.withColumnRenamed("lat", "latitude"), yard, "positions.latitude", "rename it to lat"),
        (good, yard.drop("object"), "fences.object", "who was there"),
        (good, yard.drop("lon", "lat"), "fences.radius_m", "Around"),
        (good, yard.selectExpr("id", "object"), "fences.geometry", "regions"),
        (good, yard.withColumn("dwell", yard.id), "fences.dwell", "double"),
        (good, [Fence("f", None, "bus", Circle(8, 47, 1))], "fences.object", "they have truck"),
        (good, [Fence("f", "ann", "truck", Around(5))], "fences.region", "Around"),
        (good, "yard", "fences", "DataFrame"),
        (good, [good], "fences", "Fence values"),
        ("no such files", yard, "positions", "give Parquet files"),
        (spark.readStream.format("rate").load(), yard, "positions.id", "id of strings"),
    ]
    for frame, wanted, field, remedy in cases:
        with pytest.raises(ValidationError) as error:
            fences(frame, wanted)
        assert (error.value.field, remedy in str(error.value)) == (field, True), error.value
    for options in ({"until": "yesterday"}, {"space": "mars"}, {"shards": 0}):
        with pytest.raises(NearcastError, match=next(iter(options))):
            fences(good, yard, **options)


def test_spark_sql_says_the_same_with_windows(spark: SparkSession):
    random = Random(7)
    rows = [
        (f"p{n}", f"t{n % 5}", 8 + 0.004 * random.randrange(8), 47 + 0.004 * random.randrange(6), n)
        for n in range(200)
    ]
    given = positions(spark, *rows)
    wanted = [Fence(f"f{n}", "ops", "truck", Circle(8 + 0.01 * n, 47.008, 900)) for n in range(4)]
    frame = spark.createDataFrame(fences_to_arrow(wanted))
    should = collected(fences(given, frame), "string")
    assert len(should) > 50
    assert collected(sql_fences(given, frame, "truck", 0.01), "string") == should
