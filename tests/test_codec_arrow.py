"""Events and subscriptions as Arrow tables: there and back, other types, and what is refused."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import BatchError, FilterError, NearcastError, ValidationError
from nearcast.model.codec import (
    EVENT_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    check_event_columns,
    check_subscription_columns,
    events_from_arrow,
    events_to_arrow,
    subscriptions_from_arrow,
    subscriptions_to_arrow,
)
from nearcast.model.codec.wkb import read_wkb, write_wkb
from nearcast.model.events import Event, Value
from nearcast.model.geometry import Around, Box, Circle, Point, Polygon, Region
from nearcast.model.subscriptions import Subscription
from tests import strategies
from tests.oracle import wants

NAN, INF = float("nan"), float("inf")
TIME = pa.timestamp("us", tz="UTC")
INTERVALS = SUBSCRIPTION_COLUMNS.field("intervals").type


def same(first: Event, second: Event) -> bool:
    """Equal events; NaN equals itself."""
    return repr(normal(first)) == repr(normal(second))


def normal(event):
    numbers = {
        name: float(value) if type(value) is int and float(value) == value else value
        for name, value in sorted(event.attributes.items())
    }
    place, words = event.location, sorted(event.keywords)
    return event.id, numbers, words, place, event.start, event.end, event.expires


def refused(read, table) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        read(table)
    assert caught.value.remedy
    return caught.value


def bad_row(read, table) -> BatchError:
    with pytest.raises(BatchError) as caught:
        read(table)
    return caught.value


# --- there and back -----------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["globe", "planar"])
def test_events_come_back_as_they_were(space):
    @settings(max_examples=60)
    @given(strategies.event_lists(space))
    def check(events):
        table = events_to_arrow(events)
        assert set(table.column_names) <= set(EVENT_COLUMNS.names)
        back = events_from_arrow(table, space=space)
        assert len(back) == len(events)
        assert all(map(same, back, events))

    check()


@pytest.mark.parametrize("space", ["globe", "planar"])
def test_subscriptions_come_back_as_they_were(space):
    @settings(max_examples=60)
    @given(strategies.subscription_lists(space, around=True))
    def check(subscriptions):
        table = subscriptions_to_arrow(subscriptions)
        assert table.schema.names == SUBSCRIPTION_COLUMNS.names
        assert subscriptions_from_arrow(table, space=space) == subscriptions

    check()


def test_the_columns_of_events():
    events = [
        Event(id="a", attributes={"x": 1, "brand": "b", "new": True, "odd": 1}, start=1, end=2),
        Event(id="b", attributes={"odd": "text"}, location=Point(1, 2), expires=3),
        Event(id="c", location=Box(1, 2, 3, 4), keywords=frozenset({"B", "a"})),
    ]
    table = events_to_arrow(events)
    fields = {field.name: field.type for field in table.schema.field("attributes").type}
    assert fields == {"x": pa.float64(), "brand": pa.string(), "new": pa.bool_()}
    for name in set(table.column_names) - {"attributes"}:
        assert table.schema.field(name).type == EVENT_COLUMNS.field(name).type
    rows = table.to_pylist()
    assert rows[0]["attributes_json"] == [("odd", "1")]
    assert rows[1]["attributes_json"] == [("odd", '"text"')]
    assert rows[2]["attributes_json"] is None
    assert (rows[1]["lon"], rows[1]["lat"], rows[1]["geometry"]) == (1, 2, None)
    assert shapely.from_wkb(rows[2]["geometry"]).equals(shapely.box(1, 2, 3, 4))
    assert rows[2]["keywords"] == ["a", "b"]
    assert rows[0]["end"] == datetime(1970, 1, 1, 0, 0, 0, 2, tzinfo=UTC)


def test_numbers_that_json_or_a_float_cannot_hold():
    events = [
        Event(id="a", attributes={"mixed": NAN, "large": 2**53 + 1}),
        Event(id="b", attributes={"mixed": "text", "large": 1}),
        Event(id="c", attributes={"mixed": -INF}),
    ]
    table = events_to_arrow(events)
    assert all(map(same, events_from_arrow(table), events))
    assert table.to_pylist()[0]["attributes_json"] == [("large", str(2**53 + 1))]


@pytest.mark.parametrize(
    "value", [2**53, 2**53 + 2, 2**60, -(2**60), 2**63, 2**64, 2**1000, 10**20]
)
def test_large_integers_that_a_float_holds_are_numbers(value):
    events = [
        Event(id="a", attributes={"x": value}),
        Event(id="b", attributes={"x": 0.5}),
        Event(id="c"),
    ]
    table = events_to_arrow(events)
    assert table.column_names.count("attributes_json") == 0
    assert all(map(same, events_from_arrow(table), events))
    assert events_from_arrow(table)[0].attributes["x"] == value


def test_null_in_json_is_a_missing_attribute():
    column = json_map([("x", "null"), ("y", None), ("z", "true")])
    table = pa.table({"id": ["a"], "attributes_json": column})
    assert dict(events_from_arrow(table)[0].attributes) == {"z": True}


def test_no_events_and_no_attributes():
    assert events_from_arrow(events_to_arrow([])) == []
    assert subscriptions_from_arrow(subscriptions_to_arrow([])) == []
    table = events_to_arrow([Event(id="a")])
    assert "attributes" not in table.column_names
    assert events_from_arrow(table) == [Event(id="a")]


def test_missing_columns_are_null():
    table = pa.table({"id": ["a", "b"]})
    assert events_from_arrow(table) == [Event(id="a"), Event(id="b")]
    assert subscriptions_from_arrow(table) == [Subscription(id="a"), Subscription(id="b")]


def test_the_regions_of_subscriptions():
    polygon = Polygon(((0, 0), (1, 0), (0, 1)))
    regions: list[Region | None] = [Circle(1, 2, 3), Box(170, 2, -170, 4), polygon, Around(5), None]
    wanted = [Subscription(id=str(i), region=region) for i, region in enumerate(regions)]
    rows = subscriptions_to_arrow(wanted).to_pylist()
    assert [rows[0][name] for name in ("lon", "lat", "radius_m")] == [1, 2, 3]
    assert [rows[1][name] for name in ("xmin", "ymin", "xmax", "ymax")] == [170, 2, -170, 4]
    assert shapely.from_wkb(rows[2]["geometry"]).equals(shapely.Polygon(polygon.exterior))
    assert [rows[3][name] for name in ("lon", "lat", "radius_m")] == [None, None, 5]
    assert subscriptions_from_arrow(subscriptions_to_arrow(wanted), space="globe") == wanted


# --- other types --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([["a"], ["b"]]),
        pa.array(["a", "b"], pa.large_string()),
        pa.array(["a", "b"], pa.string_view()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.chunked_array(
            [pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()]
        ),
    ],
    ids=str,
)
def test_strings_in_other_forms(column):
    for check in (check_event_columns, check_subscription_columns):
        checked = check(pa.table({"id": column}))
        assert checked.schema.field("id").type == pa.string()
        assert checked.column("id").num_chunks == 1
        assert checked.column("id").to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    "type",
    [
        pa.list_(pa.string()),
        pa.list_(pa.field("element", pa.large_string(), nullable=False)),
        pa.large_list(pa.string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=str,
)
def test_lists_of_words_in_other_forms(type):
    table = pa.table({"id": ["a", "b", "c"], "keywords": pa.array([["x", "Y"], [], None], type)})
    assert check_event_columns(table).schema.field("keywords").type == pa.list_(pa.string())
    assert [sorted(e.keywords) for e in events_from_arrow(table)] == [["x", "y"], [], []]


@pytest.mark.parametrize(
    ("type", "given"),
    [
        (pa.timestamp("s", tz="UTC"), 1),
        (pa.timestamp("ms", tz="UTC"), 1_000),
        (pa.timestamp("us", tz="Europe/Berlin"), 1_000_000),
        (pa.timestamp("ns", tz="America/New_York"), 1_000_000_999),
        (pa.timestamp("us", tz="+02:00"), 1_000_000),
    ],
    ids=str,
)
def test_times_in_other_units_and_zones(type, given):
    table = pa.table({"id": ["a", "b"], "end": pa.array([given, None], type)})
    assert check_event_columns(table).schema.field("end").type == TIME
    assert [event.end for event in events_from_arrow(table)] == [1_000_000, None]


def test_nanoseconds_before_the_epoch_round_down():
    table = pa.table({"id": ["a"], "end": pa.array([-1], pa.timestamp("ns", tz="UTC"))})
    assert events_from_arrow(table)[0].end == -1


@pytest.mark.parametrize(
    "type", [pa.float32(), pa.int8(), pa.uint64(), pa.decimal128(5, 2)], ids=str
)
def test_numbers_in_other_forms(type):
    values = [Decimal(2), None] if pa.types.is_decimal(type) else [2, None]
    column = pa.array(values, type)
    attributes = pa.StructArray.from_arrays([column], names=["x"])
    table = pa.table({"id": ["a", "b"], "lon": column, "lat": column, "attributes": attributes})
    first, second = events_from_arrow(table)
    assert (first.location, dict(first.attributes)) == (Point(2, 2), {"x": 2})
    assert (second.location, dict(second.attributes)) == (None, {})


def test_columns_without_a_type_are_null():
    nothing = pa.nulls(1)
    names = [name for name in SUBSCRIPTION_COLUMNS.names if name != "id"]
    table = pa.table({"id": ["a"]} | dict.fromkeys(names, nothing))
    assert subscriptions_from_arrow(table) == [Subscription(id="a")]
    names = [name for name in EVENT_COLUMNS.names if name != "id"]
    table = pa.table({"id": ["a"]} | dict.fromkeys(names, nothing))
    assert events_from_arrow(table) == [Event(id="a")]
    attributes = pa.StructArray.from_arrays([nothing, pa.array([1])], names=["x", "y"])
    table = pa.table({"id": ["a"], "attributes": attributes})
    assert events_from_arrow(table) == [Event(id="a", attributes={"y": 1})]


def test_record_batches_and_order_of_columns():
    batch = pa.record_batch({"lat": [2.0], "lon": [1.0], "id": ["a"]})
    assert check_event_columns(batch).column_names == ["id", "lon", "lat"]
    assert events_from_arrow(batch) == [Event(id="a", location=Point(1, 2))]


def test_what_is_canonical_is_not_copied():
    table = events_to_arrow([Event(id="a", attributes={"x": 1}, location=Point(1, 2))])
    checked = check_event_columns(table)
    for name in table.column_names:
        given, kept = (each.column(name).chunk(0).buffers() for each in (table, checked))
        assert [b and b.address for b in given] == [b and b.address for b in kept]


# --- columns refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"id": ["a"], "price": [1.0]}, "price"),
        ({"lon": [1.0]}, "id"),
        ({"id": [1]}, "id"),
        ({"id": ["a"], "lon": ["1"], "lat": [1.0]}, "lon"),
        ({"id": ["a"], "lon": [True], "lat": [1.0]}, "lon"),
        ({"id": ["a"], "geometry": ["POINT(1 2)"]}, "geometry"),
        ({"id": ["a"], "end": [datetime(2026, 1, 1)]}, "end"),
        ({"id": ["a"], "end": [0]}, "end"),
        ({"id": ["a"], "end": ["2026-01-01T00:00:00Z"]}, "end"),
        ({"id": ["a"], "end": pa.array([10**14], pa.timestamp("s", tz="UTC"))}, "end"),
        ({"id": ["a"], "keywords": ["sale"]}, "keywords"),
        ({"id": ["a"], "keywords": [[1]]}, "keywords"),
        ({"id": ["a"], "attributes": ["{}"]}, "attributes"),
        ({"id": ["a"], "attributes": [{"x": [1.0]}]}, "attributes.x"),
        ({"id": ["a"], "attributes": [{"x": datetime(2026, 1, 1)}]}, "attributes.x"),
        ({"id": ["a"], "attributes": [{"": 1.0}]}, "attributes"),
        ({"id": ["a"], "attributes_json": [{"x": "1"}]}, "attributes_json"),
    ],
)
def test_bad_columns_of_events_are_named(columns, field):
    error = refused(check_event_columns, pa.table(columns))
    assert error.field == field
    assert refused(events_from_arrow, pa.table(columns)).field == field


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"id": ["a"], "attributes": [{"x": 1.0}]}, "attributes"),
        ({"id": ["a"], "where": [1]}, "where"),
        ({"id": ["a"], "intervals": [[{"attribute": "x", "low": 1.0}]]}, "intervals"),
        ({"id": ["a"], "intervals": [[{"attribute": "x", "low": 1.0, "high": "2"}]]}, "intervals"),
        (
            {
                "id": ["a"],
                "intervals": [[{"attribute": "x", "low": 1.0, "high": 2.0, "open": True}]],
            },
            "intervals",
        ),
        ({"id": ["a"], "expires": [datetime(2026, 1, 1)]}, "expires"),
        ({"id": ["a"], "radius_m": ["5"]}, "radius_m"),
    ],
)
def test_bad_columns_of_subscriptions_are_named(columns, field):
    assert refused(check_subscription_columns, pa.table(columns)).field == field


def test_the_message_says_what_was_given_and_what_is_wanted():
    error = refused(check_event_columns, pa.table({"id": ["a"], "lon": ["1"]}))
    assert "string" in str(error)
    assert "double" in str(error)
    naive = pa.table({"id": ["a"], "end": pa.array([1], pa.timestamp("us"))})
    assert "naive" in str(refused(check_event_columns, naive))


def test_a_column_twice_and_no_table_at_all():
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["id", "id"])
    assert refused(check_event_columns, twice).field == "id"
    fields = pa.StructArray.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["x", "x"])
    refused(check_event_columns, pa.table({"id": ["a"], "attributes": fields}))
    for other in (None, [], {"id": ["a"]}, [Event(id="a")]):
        assert refused(check_event_columns, other).field == "events"
        assert refused(check_subscription_columns, other).field == "subscriptions"


def test_strings_that_are_no_text():
    broken = pa.array([b"\xff"]).view(pa.string())
    for columns in (
        {"id": broken},
        {"id": ["a"], "keywords": pa.ListArray.from_arrays([0, 1], broken)},
    ):
        refused(events_from_arrow, pa.table(columns))


def test_a_geometry_of_an_extension_type():
    stored = pa.array([write_wkb(Point(1, 2))], pa.large_binary())
    column = pa.ExtensionArray.from_storage(pa.opaque(stored.type, "wkb", "test"), stored)
    table = pa.table({"id": ["a"], "geometry": column})
    assert events_from_arrow(table) == [Event(id="a", location=Point(1, 2))]


# --- rows refused -------------------------------------------------------------------------------


def json_map(*rows):
    return pa.array(rows, pa.map_(pa.string(), pa.string()))


@pytest.mark.parametrize(
    ("columns", "row", "field"),
    [
        ({"id": ["a", None]}, 1, "id"),
        ({"id": ["a", ""]}, 1, "id"),
        ({"id": ["a", "b"], "keywords": [["x"], ["y", None]]}, 1, "keywords"),
        ({"id": ["a", "b"], "keywords": [None, [" "]]}, 1, "keywords"),
        ({"id": ["a", "b"], "lon": [1.0, 1.0], "lat": [1.0, None]}, 1, "lat"),
        ({"id": ["a", "b"], "lon": [1.0, NAN], "lat": [1.0, 1.0]}, 1, "x"),
        ({"id": ["a", "b"], "lat": [None, 1.0]}, 1, "lon"),
        ({"id": ["a"], "geometry": [b""]}, 0, "geometry"),
        ({"id": ["a"], "geometry": [b"\x01\x02\x03"]}, 0, "geometry"),
        ({"id": ["a"], "geometry": [shapely.LineString([(0, 0), (1, 1)]).wkb]}, 0, "geometry"),
        ({"id": ["a"], "geometry": [shapely.Point(0, 0, 0).wkb]}, 0, "geometry"),
        ({"id": ["a"], "geometry": [shapely.Point().wkb]}, 0, "geometry"),
        ({"id": ["a"], "geometry": [shapely.Polygon().wkb]}, 0, "geometry"),
        (
            {"id": ["a"], "geometry": [write_wkb(Point(0, 0))], "lon": [1.0]},
            0,
            "geometry",
        ),
        ({"id": ["a"], "attributes_json": json_map([("x", "[1]")])}, 0, "attributes_json['x']"),
        ({"id": ["a"], "attributes_json": json_map([("x", "NaN")])}, 0, "attributes_json['x']"),
        ({"id": ["a"], "attributes_json": json_map([("x", "1e999")])}, 0, "attributes_json['x']"),
        ({"id": ["a"], "attributes_json": json_map([("x", "oops")])}, 0, "attributes_json['x']"),
        (
            {"id": ["a"], "attributes_json": json_map([("x", "[" * 9999)])},
            0,
            "attributes_json['x']",
        ),
        (
            {"id": ["a"], "attributes_json": json_map([("x", "9" * 9999)])},
            0,
            "attributes_json['x']",
        ),
        (
            {"id": ["a"], "attributes_json": json_map([("x", "1"), ("x", "2")])},
            0,
            "attributes_json['x']",
        ),
        (
            {"id": ["a"], "attributes": [{"x": 1.0}], "attributes_json": json_map([("x", "1")])},
            0,
            "attributes_json['x']",
        ),
        (
            {
                "id": ["a", "b"],
                "start": pa.array([1, 5], TIME),
                "end": pa.array([1, 4], TIME),
            },
            1,
            "end",
        ),
        ({"id": ["a"], "end": pa.array([2**62], TIME)}, 0, "end"),
    ],
)
def test_bad_rows_of_events_are_named(columns, row, field):
    error = bad_row(events_from_arrow, pa.table(columns))
    assert (error.row, error.field) == (row, field)


def intervals(*rows):
    return pa.array(rows, INTERVALS)


def interval(attribute, low, high):
    return {"attribute": attribute, "low": low, "high": high}


@pytest.mark.parametrize(
    ("columns", "row", "field"),
    [
        ({"id": ["a", None]}, 1, "id"),
        ({"id": ["a"], "subscriber": [""]}, 0, "subscriber"),
        ({"id": ["a"], "lon": [1.0], "lat": [1.0]}, 0, "radius_m"),
        ({"id": ["a"], "lon": [1.0], "radius_m": [1.0]}, 0, "lat"),
        ({"id": ["a"], "radius_m": [-1.0]}, 0, "radius_m"),
        ({"id": ["a"], "xmin": [1.0], "ymin": [1.0], "xmax": [2.0]}, 0, "ymax"),
        (
            {"id": ["a"], "xmin": [0.0], "ymin": [1.0], "xmax": [2.0], "ymax": [0.0]},
            0,
            "ymin",
        ),
        ({"id": ["a"], "radius_m": [1.0], "geometry": [b""]}, 0, "region"),
        ({"id": ["a"], "radius_m": [1.0], "xmin": [0.0]}, 0, "region"),
        ({"id": ["a"], "geometry": [write_wkb(Point(1, 2))]}, 0, "geometry"),
        ({"id": ["a", "b"], "intervals": intervals(None, [None])}, 1, "intervals[0]"),
        ({"id": ["a"], "intervals": intervals([interval("", 1, 2)])}, 0, "intervals[0]"),
        ({"id": ["a"], "intervals": intervals([interval(None, 1, 2)])}, 0, "intervals[0]"),
        ({"id": ["a"], "intervals": intervals([interval("x", None, 2)])}, 0, "intervals[0].low"),
        ({"id": ["a"], "intervals": intervals([interval("x", 1, NAN)])}, 0, "intervals[0].high"),
    ],
)
def test_bad_rows_of_subscriptions_are_named(columns, row, field):
    error = bad_row(subscriptions_from_arrow, pa.table(columns))
    assert (error.row, error.field) == (row, field)


@pytest.mark.parametrize("where", ["x <", "", "x = 1) OR (y = 2"])
def test_a_bad_filter_is_named_by_its_row(where):
    ready = intervals(None, [interval("x", 1, 2)])
    for columns in ({}, {"intervals": ready}):
        table = pa.table({"id": ["a", "b"], "where": ["x = 1", where]} | columns)
        error = bad_row(subscriptions_from_arrow, table)
        assert error.row == 1
        assert isinstance(error.cause, FilterError)


def test_the_space_is_checked_when_asked():
    table = pa.table({"id": ["a", "b"], "lon": [1.0, 500.0], "lat": [1.0, 1.0]})
    assert events_from_arrow(table)[1].location == Point(500, 1)
    assert events_from_arrow(table, space="planar")[1].location == Point(500, 1)
    with pytest.raises(BatchError) as caught:
        events_from_arrow(table, space="globe")
    assert caught.value.row == 1
    corners = {"xmin": [5.0], "ymin": [1.0], "xmax": [1.0], "ymax": [2.0]}
    with pytest.raises(BatchError):
        subscriptions_from_arrow(pa.table({"id": ["a"]} | corners), space="planar")


# --- ready intervals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "inside"),
    [
        (1, 2, [1.0, 1.5, 2.0]),
        (-INF, 1, [-INF, 0.0, 1.0]),
        (2, INF, [2.0, 3.0, INF]),
        (-INF, INF, [-INF, 0.0, 1.0, 1.5, 2.0, 3.0, INF]),
        (INF, INF, [INF]),
        (-INF, -INF, [-INF]),
        (2, 1, []),
        (0.1 + 0.2, 0.1 + 0.2, []),
        (1.5, 1.5, [1.5]),
    ],
)
def test_intervals_are_closed_and_want_a_number(low, high, inside):
    table = pa.table({"id": ["s"], "intervals": intervals([interval("a b", low, high)])})
    (subscription,) = subscriptions_from_arrow(table)
    pool: list[Value] = [-INF, 0.0, 1.0, 1.5, 2.0, 3.0, INF, NAN, "1.5", True]
    found = [x for x in pool if wants(subscription, Event(id="e", attributes={"a b": x}))]
    assert found == inside
    assert not wants(subscription, Event(id="e"))


@pytest.mark.parametrize("where", ["y = 1 OR y = 2", '{"op": ">", "args": [{"property": "y"}, 0]}'])
def test_intervals_are_anded_with_where(where):
    ready = intervals([interval("x", 0, 1), interval("z", -INF, 5)])
    table = pa.table({"id": ["s"], "where": [where], "intervals": ready})
    (subscription,) = subscriptions_from_arrow(table)
    good = {"x": 1, "y": 2, "z": -3}
    assert wants(subscription, Event(id="e", attributes=good))
    for change in ({"x": 2}, {"y": -3}, {"z": 6}):
        assert not wants(subscription, Event(id="e", attributes=good | change))


@given(st.floats(allow_nan=False), st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_intervals_are_exact(low, high, x):
    table = pa.table({"id": ["s"], "intervals": intervals([interval("x", low, high)])})
    (subscription,) = subscriptions_from_arrow(table)
    assert wants(subscription, Event(id="e", attributes={"x": x})) == (low <= x <= high)


# --- well-known binary ----------------------------------------------------------------------------


@given(strategies.locations("globe"))
def test_wkb_is_what_shapely_reads_and_writes(place):
    shape = shapely.from_wkb(write_wkb(place))
    assert read_wkb(write_wkb(place), "globe") == place
    if isinstance(place, Polygon):
        assert shape.equals(shapely.Polygon(place.exterior, place.holes))
        for order in (0, 1):
            assert read_wkb(shapely.to_wkb(shape, byte_order=order), "globe") == place
    elif isinstance(place, Point):
        assert (shape.x, shape.y) == (place.x, place.y)
    else:
        width = place.xmax - place.xmin + (360 if place.xmin > place.xmax else 0)
        assert math.isclose(shape.area, width * (place.ymax - place.ymin))


@given(st.floats(-180, 180), st.floats(-90, 90), st.floats(-180, 180), st.floats(-90, 90))
def test_boxes_come_back_to_the_last_bit(xmin, y1, xmax, y2):
    box = Box(xmin, min(y1, y2), xmax, max(y1, y2))
    assert read_wkb(write_wkb(box), "globe") == box


def test_a_rectangle_of_others_is_a_polygon():
    assert read_wkb(shapely.box(0, 0, 1, 2).wkb, "globe") == Polygon(
        tuple(shapely.box(0, 0, 1, 2).exterior.coords)
    )


def test_parts_that_join_at_the_antimeridian():
    parts = shapely.MultiPolygon([shapely.box(170, 0, 180, 5), shapely.box(-180, 0, -170, 5)])
    place = read_wkb(parts.wkb, "globe")
    assert isinstance(place, Polygon)
    assert list(place.bounds) == [170, 0, 190, 5]
    for space in ("planar", None):
        with pytest.raises(ValidationError):
            read_wkb(parts.wkb, space)
    single = shapely.MultiPolygon([shapely.box(0, 0, 1, 1)])
    assert isinstance(read_wkb(single.wkb, None), Polygon)


def test_collections_nested_without_end_are_refused():
    nested = struct.pack("<BII", 1, 7, 1) * 1_000_000
    for data in (nested, struct.pack("<BII", 1, 6, 1) + nested):
        with pytest.raises(ValidationError):
            read_wkb(data, "globe")


def ring_bytes(*corners):
    numbers = [number for corner in corners for number in corner]
    return struct.pack(f"<BIII{len(numbers)}d", 1, 3, 1, len(corners), *numbers)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too early"),
        (b"\x07", "neither 0 nor 1"),
        (struct.pack("<BI", 1, 2), "type 2"),
        (struct.pack("<BI", 1, 0x20000001), "type"),
        (write_wkb(Point(1, 2)) + b"\0", "follow"),
        (write_wkb(Point(1, 2))[:-1], "too early"),
        (struct.pack("<BII", 1, 3, 0), "empty"),
        (struct.pack("<BII", 1, 6, 0), "empty"),
        (struct.pack("<BIII", 1, 3, 1, 2**32 - 1), "too early"),
        (ring_bytes((0, 0), (1, 0), (1, 1)), "ends where it begins"),
        (ring_bytes((0, 0), (1, 0), (1, 1), (0, 1)), "ends where it begins"),
        (struct.pack("<BII", 1, 6, 1) + write_wkb(Point(1, 2)), "made of polygons"),
    ],
)
def test_bad_wkb_says_what_is_wrong(data, reason):
    with pytest.raises(ValidationError, match=reason):
        read_wkb(data, "globe")


def test_a_repeated_corner_alone_makes_no_box():
    backwards = read_wkb(ring_bytes((2, 2), (2, 2), (0, 2), (0, 0), (2, 0), (2, 2)), None)
    assert backwards == Polygon(((2, 2), (0, 2), (0, 0), (2, 0)))
    slanted = read_wkb(ring_bytes((0, 0), (0, 0), (2, 1), (3, 3), (1, 2), (0, 0)), None)
    assert slanted == Polygon(((0, 0), (2, 1), (3, 3), (1, 2)))


@given(st.one_of(st.binary(max_size=60), strategies.locations("globe").map(write_wkb)), st.data())
def test_damaged_wkb_raises_nothing_else(data, draw):
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(0, 3))):
        if damaged:
            at = draw.draw(st.integers(0, len(damaged) - 1))
            damaged[at] = draw.draw(st.integers(0, 255))
    try:
        place = read_wkb(bytes(damaged[: draw.draw(st.integers(0, len(damaged)))]), "globe")
    except NearcastError:
        return
    assert read_wkb(write_wkb(place), "globe") == place
