"""Spark's answer is the matcher's, whatever the plan, the partitions and the data."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nearcast import Box, Circle, Event, Matcher, Point, Polygon, Subscription
from nearcast.errors import CapabilityError, NearcastError, SparkError, ValidationError
from nearcast.model.codec import events_to_arrow, subscriptions_to_arrow
from nearcast.spark import explain, match, rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# `scan` everywhere but where the index matters: plans do not depend on it.
SCAN: dict[str, Any] = {"index": "scan"}
BROADCAST = {"plan": "broadcast", "direction": "event-matching", **SCAN}
REVERSED = {"plan": "broadcast", "direction": "subscription-matching", **SCAN}
CELLS: dict[str, Any] = {"plan": "partitioned", "cell_rows": 60, **SCAN}
PLANS = [
    pytest.param(BROADCAST, id="broadcast"),
    pytest.param(REVERSED, id="reversed"),
    pytest.param(CELLS, id="cells"),
]
HOUR = 3_600_000_000
MIDNIGHT = 1_793_491_200_000_000  # 2026-11-01T00:00:00Z, some hours before New York's clocks change


def places(random: Random) -> Point:
    return Point(random.choice([179.99, 180, -180, 10, 10.01]), random.choice([50, 50.01, 50.02]))


def a_subscription(random: Random, number: int) -> Subscription:
    where = random.choice(
        [None, "price < 50", "price BETWEEN 20 AND 40 AND size > 3", "brand = 'A' OR price > 90",
         "brand <> 'A'", "open = TRUE AND size < 5", "size IS NULL", "name LIKE 'P%'"]
    )  # fmt: skip
    at = places(random)
    region = random.choice(
        [None, Circle(at.x, at.y, 1500), Box(9.9, 49.9, 10.005, 50.015), Box(179, 49, -179, 51),
         Polygon([(9, 49), (11, 49), (10, 52)])]
    )  # fmt: skip
    return Subscription(
        id=f"s{number}",
        subscriber="ann",
        where=where,
        keywords=random.choice([(), (), {"sale"}]),
        region=region,
        expires=random.choice([None, None, MIDNIGHT + random.randrange(12) * HOUR]),
    )


def an_event(random: Random, number: int) -> Event:
    attributes: dict[str, Any] = {
        "price": random.choice([10, 30.5, 50, 95]),
        "size": random.choice([1, 4, 9]),
        "brand": random.choice("AB"),
        "open": random.random() < 0.5,
        "name": random.choice(["P30", "Q30"]),
    }
    for name in list(attributes):
        if random.random() < 0.3:
            del attributes[name]
    return Event(
        id=f"e{number}",
        attributes=attributes,
        keywords=random.choice([(), {"Sale", "new"}]),
        location=random.choice([None, places(random), places(random), Box(9.95, 49.95, 10.1, 50.1)])
        if number % 20 == 0
        else places(random),
        end=random.choice([None, MIDNIGHT + random.randrange(12) * HOUR + random.randrange(2)]),
    )


def frame(spark: SparkSession, table: pa.Table, partitions: int = 2) -> DataFrame:
    return spark.createDataFrame(table).repartition(partitions)


def counted(pairs: pa.Table) -> Counter[tuple[str, str]]:
    assert pairs.column_names == ["event_id", "subscription_id"]
    return Counter(zip(*pairs.to_pydict().values(), strict=True))


class Case:
    """Subscriptions and events as tables, and what the matcher says about them."""

    def __init__(self, subscriptions: pa.Table, events: pa.Table, space: Any = "globe") -> None:
        self.subscriptions, self.events, self.space = subscriptions, events, space
        matcher = Matcher("scan", space)
        matcher.add_subscriptions(subscriptions)
        self.wanted = counted(matcher.match_events(events))

    def answer(
        self, spark: SparkSession, partitions: int = 2, **options: Any
    ) -> Counter[tuple[str, str]]:
        events = frame(spark, self.events, partitions)
        subscriptions = frame(spark, self.subscriptions, partitions)
        return counted(match(events, subscriptions, space=self.space, **options).toArrow())


@pytest.fixture(scope="module")
def rich() -> Case:
    random = Random(1)
    subscriptions = [a_subscription(random, number) for number in range(120)]
    events = [an_event(random, number) for number in range(160)]
    case = Case(subscriptions_to_arrow(subscriptions), events_to_arrow(events))
    assert len(case.wanted) > 300
    return case


@pytest.mark.parametrize("options", PLANS)
def test_two_hundred_partitions_many_of_them_empty(
    spark: SparkSession, rich: Case, options: dict[str, Any]
):
    few = Case(rich.subscriptions.slice(0, 60), rich.events.slice(0, 60))
    assert few.wanted
    streaming = 2 if options is REVERSED else 200
    events = frame(spark, few.events, streaming)
    subscriptions = frame(spark, few.subscriptions, 202 - streaming)
    assert counted(match(events, subscriptions, **options).toArrow()) == few.wanted


@pytest.mark.parametrize("options", PLANS)
def test_nothing_in_is_nothing_out(spark: SparkSession, rich: Case, options: dict[str, Any]):
    events = frame(spark, rich.events).where("false")
    subscriptions = frame(spark, rich.subscriptions).where("false")
    assert match(events, frame(spark, rich.subscriptions), **options).count() == 0
    assert match(frame(spark, rich.events), subscriptions, **options).count() == 0


def test_nine_of_ten_events_at_one_place(spark: SparkSession):
    random = Random(2)
    events = [
        Event(id=f"e{n}", attributes={"price": n % 7}, location=Point(10, 50))
        if n % 10
        else Event(id=f"e{n}", attributes={"price": n % 7}, location=places(random))
        for n in range(400)
    ]
    subscriptions = [
        Subscription(id=f"s{n}", where=f"price = {n % 7}", region=Circle(10, 50, 900 + n))
        for n in range(40)
    ]
    case = Case(subscriptions_to_arrow(subscriptions), events_to_arrow(events))
    given = frame(spark, case.events), frame(spark, case.subscriptions)
    found = match(*given, **{**CELLS, "cell_rows": 50})
    assert counted(found.toArrow()) == case.wanted
    assert len(case.wanted) > 1000


@pytest.mark.parametrize("options", PLANS)
def test_every_plan_gives_the_matchers_answer_in_one_partition_and_any_zone(
    spark: SparkSession, rich: Case, options: dict[str, Any]
):
    """The clocks of New York go back on 1 November 2026: 01:30 comes twice."""
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert rich.answer(spark, 1, **options) == rich.wanted
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_an_hour_that_comes_twice(spark: SparkSession):
    subscriptions = spark.sql(
        "select 's' as id, timestamp '2026-11-01 01:30:00 America/New_York' as expires"
    )
    events = spark.sql(
        "select id, timestamp_micros(at) as end from values "
        f"('first 01:29', {MIDNIGHT + 5 * HOUR + HOUR // 60 * 29}), "
        f"('first 01:30', {MIDNIGHT + 5 * HOUR + HOUR // 2}), "
        f"('second 01:29', {MIDNIGHT + 6 * HOUR + HOUR // 60 * 29}), ('never', null) as t(id, at)"
    )
    found = match(events, subscriptions, **BROADCAST).toArrow()
    assert set(found["event_id"].to_pylist()) == {"first 01:29", "never"}


@pytest.mark.parametrize("options", PLANS)
def test_an_event_twice_is_reported_twice_and_a_subscription_twice_is_one(
    spark: SparkSession, options: dict[str, Any]
):
    subscriptions = [("s", "price < 5"), ("s", "price < 5"), ("t", "price < 9")]
    conflict = [("u", "price < 5"), ("u", "price < 6")]
    wanted = spark.createDataFrame([*subscriptions, *conflict], "id string, where string")
    events = spark.sql(
        "select id, named_struct('price', 3.0D) as attributes from values ('e'), ('e') as t(id)"
    )
    found = counted(match(events, wanted, **options).toArrow())
    assert found == {("e", "s"): 2, ("e", "t"): 2}
    with pytest.raises(NearcastError, match="'u' exists already"):
        match(events, wanted, strict=True, **options)


def test_an_index_of_live_events_streams_subscriptions(spark: SparkSession, rich: Case):
    assert rich.answer(spark, index="beq-tree") == rich.wanted
    with pytest.raises(CapabilityError, match="beq-tree"):
        rich.answer(spark, index="beq-tree", plan="partitioned")


def test_any_index_and_its_options(spark: SparkSession, rich: Case):
    for index in ("auto", "mo-tree"):
        assert rich.answer(spark, **{**BROADCAST, "index": index}) == rich.wanted
    with pytest.raises(ValidationError, match="does not take them"):
        rich.answer(spark, options={"depth": 3}, **BROADCAST)
    with pytest.raises(ValidationError, match="there are"):
        rich.answer(spark, **{**BROADCAST, "index": "motree"})


def test_intervals_order_of_columns_and_columns_of_no_use(spark: SparkSession):
    """mapInArrow knows positions only: columns of one type must not change places."""
    subscriptions = spark.sql(
        "select 1 as lonely, array(named_struct('attribute', 'b', 'low', 1.0D, 'high', 2.0D)) as "
        "intervals, 50.0D as lat, 1000.0D as radius_m, 's' as id, 10.0D as lon, 'x' as note"
    )
    events = spark.sql(
        "select 'no' as note, 50.0D as lat, named_struct('a', 5.0D, 'b', 1.5D, 'z', 's') as "
        "attributes, 'e' as id, 10.0D as lon, current_timestamp() as end, 7 as weight"
    )
    for options in (BROADCAST, REVERSED, CELLS):
        (row,) = match(events, subscriptions, **options).collect()
        assert (row.event_id, row.subscription_id) == ("e", "s")
    swapped = events.withColumnsRenamed({"lat": "t", "lon": "lat"}).withColumnRenamed("t", "lon")
    assert match(swapped, subscriptions, **BROADCAST).count() == 0


def test_attributes_of_mixed_types_and_planar_space(spark: SparkSession):
    events = [
        Event(id="number", attributes={"v": 1}, location=Point(500, 500)),
        Event(id="text", attributes={"v": "1"}, location=Point(500, 500)),
        Event(id="far", attributes={"v": 1}, location=Point(5000, 500)),
    ]
    subscriptions = [
        Subscription(id="s", where="v = 1", region=Circle(500, 499, 1)),
        Subscription(id="t", where="v = '1'"),
    ]
    case = Case(subscriptions_to_arrow(subscriptions), events_to_arrow(events), "planar")
    assert "attributes_json" in case.events.column_names
    assert set(case.wanted) == {("number", "s"), ("text", "t")}
    for options in (BROADCAST, {**CELLS, "cell_rows": 1}):
        assert case.answer(spark, **options) == case.wanted


def test_decimals_are_the_numbers_they_say(spark: SparkSession):
    """Arrow's own cast makes 0.30000000000000004 of the decimal 0.3."""
    events = spark.sql(
        "select 'e' as id, named_struct('p', cast(0.3 as decimal(38, 18))) as attributes"
    )
    subscriptions = spark.createDataFrame([("s", "p = 0.3")], "id string, where string")
    for options in (BROADCAST, CELLS):
        assert match(events, subscriptions, **options).count() == 1


def test_a_tuning_can_be_given(spark: SparkSession, rich: Case, tmp_path: Path):
    tuning = {
        "nearcast_tuning": 1, "index": "mo-tree", "why": "it was measured",
        "options": {"mo-tree": {"attributes": [{"name": "price", "low": 0, "high": 100}]}},
    }  # fmt: skip
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(tuning))
    wanted = {**BROADCAST, "index": "auto"}
    given = frame(spark, rich.events), frame(spark, rich.subscriptions)
    found = match(*given, tuning=path, **wanted)
    assert "index      mo-tree: the tuning says so (it was measured)" in explain(found)
    assert "settings   most_bytes=2_000_000_000" in explain(found)
    assert counted(found.toArrow()) == rich.wanted
    named = match(*given, options={"tuning": tuning}, **BROADCAST)
    assert "index      scan: it was asked for" in explain(named)
    with pytest.raises(ValidationError, match="tuning"):
        match(*given, tuning={"index": "scan"}, **wanted)


def test_subscriptions_that_are_all_bad(spark: SparkSession):
    events = spark.sql("select 'e' as id, named_struct('price', 3.0D) as attributes")
    bad = spark.createDataFrame([("s", "price <")], "id string, where string")
    for options in (BROADCAST, CELLS):
        assert match(events, bad, **options).count() == 0


BAD = [
    ("good", "price < 5", 10.0, 50.0, 100.0),
    ("filter", "price <", 10.0, 50.0, 100.0),
    ("swapped", None, 50.0, 95.0, 100.0),
    ("half", None, 10.0, None, 100.0),
    (None, None, None, None, None),
    ("too", "price < 7", None, None, None),
]
BAD_EVENTS = [
    ("fine", 10.0, 50.0),
    ("high", 10.0, 95.0),
    ("nan", float("nan"), 50.0),
    ("nowhere", None, None),
    (None, 10.0, 50.0),
    ("half", 10.0, None),
]


@pytest.fixture
def bad(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    columns = "id string, where string, lon double, lat double, radius_m double"
    events = spark.createDataFrame(BAD_EVENTS, "id string, lon double, lat double")
    return (
        events.selectExpr("*", "named_struct('price', 3.0D) as attributes"),
        spark.createDataFrame(BAD, columns),
    )


@pytest.mark.parametrize("options", PLANS)
def test_bad_rows_are_left_out_and_the_rest_goes_on(
    bad: tuple[DataFrame, DataFrame], options: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "nearcast.spark"):
        found = counted(match(*bad, **options).toArrow())
    assert found == {("fine", "good"): 1, ("fine", "too"): 1, ("nowhere", "too"): 1}
    if options is BROADCAST:
        assert "4 subscriptions are rejected" in caplog.text


def test_bad_rows_are_told_with_reasons(bad: tuple[DataFrame, DataFrame], spark: SparkSession):
    events, subscriptions = bad
    told = {row.id: row.reason for row in rejected(subscriptions, "subscriptions").collect()}
    assert set(told) == {"filter", "swapped", "half", None}
    assert "price <" in told["filter"]
    assert "95" in told["swapped"]
    assert "come together" in told["half"]
    told = {row.id: row.reason for row in rejected(events, "events").collect()}
    assert set(told) == {"high", "nan", "half", None}
    assert "95" in told["high"]
    twice = spark.createDataFrame([("u", "a < 5"), ("u", "a < 6")], "id string, where string")
    reasons = [row.reason for row in rejected(twice, "subscriptions").collect()]
    assert len(reasons) == 2
    assert "other contents" in reasons[0]
    with pytest.raises(ValidationError, match="give one of events, subscriptions, positions"):
        rejected(events, "pairs")  # type: ignore[arg-type]


def test_strict_makes_them_errors(bad: tuple[DataFrame, DataFrame], spark: SparkSession):
    events, subscriptions = bad
    with pytest.raises(NearcastError, match="row"):
        match(events, subscriptions, strict=True, **BROADCAST)
    good = subscriptions.where("id = 'good'")
    with pytest.raises(Exception, match="is not valid"):  # Spark's, with ours inside
        match(events, good, strict=True, **BROADCAST).toArrow()


def empty(spark: SparkSession, columns: str) -> DataFrame:
    return spark.createDataFrame([], columns)


WRONG_EVENTS = [
    ("event_id string", "withColumnRenamed"),
    ("id bigint", "ids are strings"),
    ("id string, lon double", "lon, lat come together"),
    ("id string, lon string, lat double", "must be double"),
    ("id string, latitude double, longitude double", "rename it to l"),
    ("id string, Lon double, lat double", "rename it to lon"),
    ("id string, ID string", "rename it to id, or drop"),
    ("id string, end timestamp_ntz", "ambiguous"),
    ("id string, end string", "must be timestamp"),
    ("id string, geometry string", "WKB"),
    ("id string, keywords string", "array<string>"),
    ("id string, attributes struct<a: array<int>>", "attribute 'a'"),
    ("id string, attributes map<string, string>", "struct of attributes"),
    ("id string, attributes_json string", "map<string,string>"),
    ("id string", "no place"),
]


@pytest.mark.parametrize(("columns", "message"), WRONG_EVENTS)
def test_wrong_columns_are_refused_before_any_work(spark: SparkSession, columns: str, message: str):
    subscriptions = empty(spark, "id string, lon double, lat double, radius_m double")
    with pytest.raises(ValidationError, match=message):
        match(empty(spark, columns), subscriptions)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("id string, intervals array<string>", "array<struct<attribute"),
        ("id string, xmin double, ymin double", "come together"),
        ("id string, lon double, lat double", "lon, lat, radius_m come together"),
        ("id string, filter string", "rename it to where"),
        ("id string, WHERE string", "rename it to where"),
        ("id string, id string", "occurs twice"),
    ],
)
def test_wrong_columns_of_subscriptions(spark: SparkSession, columns: str, message: str):
    with pytest.raises(ValidationError, match=message):
        match(empty(spark, "id string, lon double, lat double"), empty(spark, columns))


def test_wrong_words(spark: SparkSession):
    events, subscriptions = empty(spark, "id string"), empty(spark, "id string")
    wrong: list[dict[str, Any]] = [{"plan": "fast"}, {"direction": "up"}, {"space": "moon"}]
    for options in wrong:
        with pytest.raises(ValidationError, match="give"):
            match(events, subscriptions, **options)
    with pytest.raises(ValidationError, match="DataFrame"):
        match([Event(id="e")], subscriptions)  # type: ignore[arg-type]


def test_the_choice_is_made_by_size_and_told(spark: SparkSession, rich: Case):
    events, subscriptions = frame(spark, rich.events), frame(spark, rich.subscriptions)
    few = match(events, subscriptions.limit(3), **SCAN)
    assert few.nearcast.plan.direction == "event-matching"
    assert "the subscriptions fit one machine (3 rows" in explain(few)
    other = match(events.limit(3), subscriptions, **SCAN)
    assert "the events fit one machine (3 rows" in explain(other)
    assert "subscriptions stream" in explain(other)
    neither = match(events, subscriptions, most_bytes=10, **SCAN)
    assert "partitioned" in explain(neither)
    assert "cells of about" in explain(neither)
    assert counted(neither.toArrow()) == rich.wanted
    with pytest.raises(SparkError, match="very DataFrame"):
        explain(events)


def test_a_matcher_and_a_saved_one_can_be_given(spark: SparkSession, rich: Case, tmp_path: Path):
    matcher = Matcher("scan")
    matcher.add_subscriptions(rich.subscriptions)
    matcher.save(tmp_path / "saved")
    events = frame(spark, rich.events)
    assert counted(match(events, matcher).toArrow()) == rich.wanted
    assert counted(match(events, tmp_path / "saved").toArrow()) == rich.wanted
    shared = match(events, matcher, shared=tmp_path)
    assert str(tmp_path) in explain(shared)
    with pytest.raises(ValidationError, match="the matcher's is 'globe'"):
        match(events, matcher, space="planar")
    useless: list[dict[str, Any]] = [
        {"plan": "partitioned"}, {"direction": "subscription-matching"}, {"index": "mo-tree"},
        {"options": {"height": 2}},
    ]  # fmt: skip
    for options in useless:
        with pytest.raises(ValidationError, match="a matcher was given"):
            match(events, matcher, **options)


def test_workers_read_parquet_by_themselves(spark: SparkSession, rich: Case, tmp_path: Path):
    source = tmp_path / "events"
    frame(spark, rich.events).write.parquet(str(source))
    subscriptions = frame(spark, rich.subscriptions, 1)
    found = match(source, subscriptions, **BROADCAST)
    assert counted(found.toArrow()) == rich.wanted
    assert "workers read 2 files" in explain(found)
    assert counted(match(str(source), subscriptions, **CELLS).toArrow()) == rich.wanted
    with pytest.raises(ValidationError, match="give Parquet files"):
        match(tmp_path / "nothing", subscriptions)
    for damaged in source.glob("part-*.parquet"):  # the one whose schema Spark takes, or not
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:-20] + bytes(20))
        with pytest.raises((SparkError, ValidationError), match="Parquet"):
            match(source, subscriptions, **BROADCAST)
        damaged.write_bytes(whole)


def test_a_stream_of_events(spark: SparkSession, rich: Case, tmp_path: Path):
    source, found = str(tmp_path / "events"), str(tmp_path / "found")
    frame(spark, rich.events).write.parquet(source)
    stream = spark.readStream.schema(spark.read.parquet(source).schema).parquet(source)
    with pytest.raises(ValidationError, match="stream of events"):
        match(stream, frame(spark, rich.subscriptions), plan="partitioned")
    pairs = match(stream, frame(spark, rich.subscriptions), **SCAN)
    query = (
        pairs.writeStream.format("parquet").option("path", found)
        .option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert counted(spark.read.parquet(found).toArrow()) == rich.wanted
