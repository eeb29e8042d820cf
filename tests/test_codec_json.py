"""Events and subscriptions as JSON: there and back, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.broker.wire import (
    composite_from_json,
    composite_to_json,
    notification_from_json,
    notification_to_json,
)
from nearcast.errors import BatchError, FilterError, NearcastError, ValidationError
from nearcast.model.codec import (
    delivery_from_json,
    event_from_json,
    event_to_json,
    events_from_json,
    events_to_json,
    features,
    fence_from_json,
    fence_to_json,
    subscription_from_json,
    subscription_to_json,
    subscriptions_from_json,
    subscriptions_to_json,
)
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Box, Circle, Point, Polygon
from nearcast.model.subscriptions import Subscription
from tests import strategies

NAN, INF = float("nan"), float("inf")
SQUARE = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]


def through_text(value):
    return json.loads(json.dumps(value, allow_nan=False))


def envelope(**changes):
    given = {
        "specversion": "1.0",
        "id": "e1",
        "source": "shop",
        "type": "offer",
        "data": {"type": "Feature", "geometry": None, "properties": {}},
    }
    return given | changes


def feature(**changes):
    return envelope(data={"type": "Feature", "geometry": None, "properties": {}} | changes)


def refused(read, given, **options) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        read(given, **options)
    assert caught.value.remedy
    return caught.value


# --- there and back -----------------------------------------------------------------------------


def is_finite(event: Event) -> bool:
    numbers = (value for value in event.attributes.values() if isinstance(value, float))
    return all(abs(number) < INF for number in numbers)


@pytest.mark.parametrize("space", ["globe", "planar"])
def test_events_come_back_as_they_were(space):
    @settings(max_examples=100)
    @given(strategies.events(space).filter(is_finite))
    def check(event):
        back = event_from_json(through_text(event_to_json(event)), space=space)
        assert back == event
        assert {name: type(value) for name, value in back.attributes.items()} == {
            name: type(value) for name, value in event.attributes.items()
        }

    check()


@pytest.mark.parametrize("space", ["globe", "planar"])
def test_subscriptions_come_back_as_they_were(space):
    @settings(max_examples=100)
    @given(strategies.subscriptions(space, around=True))
    def check(subscription):
        given = through_text(subscription_to_json(subscription))
        assert subscription_from_json(given, space=space) == subscription

    check()


@given(st.floats(-180, 180), st.floats(-90, 90), st.floats(-180, 180), st.floats(-90, 90))
def test_boxes_come_back_to_the_last_bit(xmin, y1, xmax, y2):
    event = Event(id="e", location=Box(xmin, min(y1, y2), xmax, max(y1, y2)))
    assert event_from_json(through_text(event_to_json(event))) == event


def test_the_envelope():
    event = Event(
        id="e1",
        attributes={"brand": "Huawei", "price": 3200, "new": True},
        keywords=frozenset({"Phone", "sale"}),
        location=Point(121.44, 36.16),
        start=1_000_000,
        end=1_500_000,
        expires=2_000_001,
    )
    assert event_to_json(event, source="/shops/7", type="org.example.offer") == {
        "specversion": "1.0",
        "id": "e1",
        "source": "/shops/7",
        "type": "org.example.offer",
        "time": "1970-01-01T00:00:01.5Z",
        "expirytime": "1970-01-01T00:00:02.000001Z",
        "datacontenttype": "application/geo+json",
        "data": {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [121.44, 36.16]},
            "properties": {"brand": "Huawei", "price": 3200, "new": True},
            "keywords": ["phone", "sale"],
            "start": "1970-01-01T00:00:01Z",
        },
    }


def test_a_box_is_a_polygon_with_its_bbox():
    geometry = event_to_json(Event(id="e", location=Box(0, 1, 2, 3)))["data"]["geometry"]
    assert geometry["type"] == "Polygon"
    assert geometry["bbox"] == [0, 1, 2, 3]
    assert geometry["coordinates"] == [[[0, 1], [2, 1], [2, 3], [0, 3], [0, 1]]]


def test_a_box_across_the_antimeridian_is_cut_in_two():
    geometry = event_to_json(Event(id="e", location=Box(170, -1, -160, 1)))["data"]["geometry"]
    assert geometry["type"] == "MultiPolygon"
    assert geometry["bbox"] == [170, -1, -160, 1]
    east, west = geometry["coordinates"]
    assert east == [[[170, -1], [180, -1], [180, 1], [170, 1], [170, -1]]]
    assert west == [[[-180, -1], [-160, -1], [-160, 1], [-180, 1], [-180, -1]]]


def test_a_bbox_beside_another_polygon_says_nothing_new():
    triangle = [[0, 0], [2, 0], [2, 2], [0, 0]]
    geometry = {"type": "Polygon", "coordinates": [triangle], "bbox": [0, 0, 2, 2]}
    assert event_from_json(feature(geometry=geometry)).location == Polygon(((0, 0), (2, 0), (2, 2)))
    square = {"type": "Polygon", "coordinates": [SQUARE]}
    location = event_from_json(feature(geometry=square)).location
    assert location == Polygon(((0, 0), (2, 0), (2, 2), (0, 2)))


def test_a_polygon_past_180_keeps_its_coordinates():
    polygon = Polygon(((170, 0), (190, 0), (190, 5)))
    assert event_from_json(event_to_json(Event(id="e", location=polygon))).location == polygon


def test_a_polygon_cut_at_the_antimeridian_is_joined():
    east = [[[170, 0], [180, 0], [180, 5], [170, 5], [170, 0]]]
    west = [[[-180, 0], [-170, 0], [-170, 5], [-180, 5], [-180, 0]]]
    geometry = {"type": "MultiPolygon", "coordinates": [east, west]}
    location = event_from_json(feature(geometry=geometry)).location
    assert isinstance(location, Polygon)
    assert list(location.bounds) == [170, 0, 190, 5]
    refused(event_from_json, feature(geometry=geometry), space="planar")


@pytest.mark.parametrize(
    "parts",
    [
        [[SQUARE], [[[5, 5], [6, 5], [6, 6], [5, 5]]]],
        [[SQUARE], [SQUARE]],
        [
            [SQUARE],
            [[[2, 0], [4, 0], [4, 2], [2, 0]]],
            [[[-180, 0], [-170, 0], [-170, 5], [-180, 0]]],
        ],
        [],
    ],
)
def test_an_event_has_one_place(parts):
    geometry = {"type": "MultiPolygon", "coordinates": parts}
    refused(event_from_json, feature(geometry=geometry))


def test_a_multipolygon_of_one_part_is_a_polygon():
    geometry = {"type": "MultiPolygon", "coordinates": [[SQUARE]]}
    location = event_from_json(feature(geometry=geometry)).location
    assert location == Polygon(((0, 0), (2, 0), (2, 2), (0, 2)))


# --- events refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (None, "event"),
        ([], "event"),
        ({}, "specversion"),
        (envelope(specversion="0.3"), "specversion"),
        (envelope(id=""), "id"),
        (envelope(id=7), "id"),
        (envelope(source=""), "source"),
        (envelope(source=None), "source"),
        (envelope(type=None), "type"),
        (envelope(type="\ud800"), "type"),
        (envelope(time=0), "time"),
        (envelope(time="yesterday"), "time"),
        (envelope(time="2026-01-01T00:00:00"), "time"),
        (envelope(expirytime=True), "expirytime"),
        (envelope(datacontenttype="text/xml"), "datacontenttype"),
        (envelope(data_base64="AAAA"), "data_base64"),
        (envelope(subject="x"), "subject"),
        (envelope(traceparent="00-1"), "traceparent"),
        (envelope(Upper=1), "Upper"),
        (envelope(data=None), "data"),
        (envelope(data=[]), "data"),
        (envelope(data={"type": "Point", "coordinates": [1, 2]}), "data.coordinates"),
        (envelope(data={"properties": {}}), "data.type"),
        (feature(id="x"), "data.id"),
        (feature(bbox=[0, 0, 1, 1]), "data.bbox"),
        (feature(properties=[]), "data.properties"),
        (feature(properties={"x": NAN}), "data.properties['x']"),
        (feature(properties={"x": -INF}), "data.properties['x']"),
        (feature(properties={"x": {}}), "data.properties['x']"),
        (feature(properties={"x": [1]}), "data.properties['x']"),
        (feature(properties={"": 1}), "data.properties"),
        (feature(keywords="sale"), "data.keywords"),
        (feature(keywords=[1]), "data.keywords"),
        (feature(keywords=[" "]), "data.keywords"),
        (feature(start=12), "data.start"),
        (envelope(time="2026-01-01T00:00:00Z") | {"expirytime": "no"}, "expirytime"),
    ],
)
def test_bad_events_name_the_member(given, field):
    assert refused(event_from_json, given).field == field


@pytest.mark.parametrize(
    ("geometry", "field"),
    [
        ("POINT(1 2)", "data.geometry"),
        ({}, "data.geometry.type"),
        ({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}, "data.geometry.type"),
        ({"type": "Circle", "coordinates": [0, 0], "radius_m": 1}, "data.geometry.type"),
        ({"type": "Point"}, "data.geometry.coordinates"),
        ({"type": "Point", "coordinates": [1]}, "data.geometry.coordinates"),
        ({"type": "Point", "coordinates": [1, 2, 3]}, "data.geometry.coordinates"),
        ({"type": "Point", "coordinates": [NAN, 2]}, "data.geometry.coordinates.x"),
        ({"type": "Point", "coordinates": [1, "2"]}, "data.geometry.coordinates.y"),
        ({"type": "Point", "coordinates": [True, 2]}, "data.geometry.coordinates.x"),
        ({"type": "Point", "coordinates": [181, 2]}, "data.geometry.x"),
        ({"type": "Point", "coordinates": [1, 91]}, "data.geometry.y"),
        ({"type": "Point", "coordinates": [1, 2], "crs": {}}, "data.geometry.crs"),
        ({"type": "Point", "coordinates": [1, 2], "bbox": [1]}, "data.geometry.bbox"),
        ({"type": "Polygon", "coordinates": []}, "data.geometry.coordinates"),
        ({"type": "Polygon", "coordinates": [[]]}, "data.geometry.coordinates[0]"),
        ({"type": "Polygon", "coordinates": [SQUARE[:-1]]}, "data.geometry.coordinates[0]"),
        ({"type": "Polygon", "coordinates": [[[0, 0]] * 4]}, "data.geometry.coordinates.exterior"),
        (
            {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]},
            "data.geometry.coordinates.exterior",
        ),
        (
            {"type": "Polygon", "coordinates": [SQUARE], "bbox": [0, 2, 2, 0]},
            "data.geometry.bbox.ymin",
        ),
        ({"type": "MultiPolygon", "coordinates": [SQUARE]}, "data.geometry.coordinates[0][0][0]"),
    ],
)
def test_bad_geometries_name_the_member(geometry, field):
    assert refused(event_from_json, feature(geometry=geometry)).field == field


def test_places_on_a_plane_have_no_limits():
    geometry = {"type": "Point", "coordinates": [5000, -4000]}
    refused(event_from_json, feature(geometry=geometry))
    assert event_from_json(feature(geometry=geometry), space="planar").location == Point(
        5000, -4000
    )


def test_an_expiry_before_the_start_is_named_as_on_the_wire():
    given = envelope(
        expirytime="2026-01-01T00:00:00Z",
        data={"type": "Feature", "geometry": None, "start": "2026-01-02T00:00:00Z"},
    )
    assert refused(event_from_json, given).field == "expirytime"


def test_extensions_are_ignored_only_when_asked():
    given = envelope(subject="x", traceparent="00-1", dataschema="http://x/")
    assert event_from_json(given, extensions="ignore").id == "e1"
    assert refused(event_from_json, envelope(Bad=1), extensions="ignore").field == "Bad"


@pytest.mark.parametrize(
    "content", ["application/geo+json", "application/json; charset=utf-8", None]
)
def test_content_types(content):
    assert event_from_json(envelope(datacontenttype=content)).id == "e1"


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_numbers_that_are_no_json_are_not_written(value):
    error = refused(event_to_json, Event(id="e", attributes={"x": value}))
    assert error.field == "attributes['x']"
    assert "Arrow" in error.remedy


def test_a_missing_property_is_a_missing_attribute():
    assert event_from_json(feature(properties={"x": None, "y": 1})).attributes == {"y": 1}
    assert event_from_json(feature(properties=None)).attributes == {}


# --- subscriptions ------------------------------------------------------------------------------


def test_a_subscription_on_the_wire():
    subscription = Subscription(
        id="s1",
        subscriber="ann",
        where="price < 3300",
        keywords=frozenset({"Sale"}),
        region=Circle(8.54, 47.37, 500),
        expires=1_000_000,
    )
    delivery = {"sink": "https://example.org/hook", "protocol": "HTTP"}
    given = subscription_to_json(subscription, delivery)
    assert given == {
        "id": "s1",
        "types": ["nearcast.event"],
        "subscriber": "ann",
        "filters": [{"cql2": "price < 3300"}],
        "keywords": ["sale"],
        "region": {"type": "Circle", "coordinates": [8.54, 47.37], "radius_m": 500},
        "config": {"subscriptionExpireTime": "1970-01-01T00:00:01Z"},
        "sink": "https://example.org/hook",
        "protocol": "HTTP",
    }
    assert subscription_from_json(given) == subscription
    assert delivery_from_json(delivery) == delivery


@pytest.mark.parametrize(
    ("given", "region"),
    [
        ({"type": "Around", "radius_m": 50}, Around(50)),
        ({"type": "Circle", "coordinates": [1, 2], "radius_m": 0}, Circle(1, 2, 0)),
        (
            {"type": "Polygon", "coordinates": [SQUARE], "bbox": [0, 0, 2, 2]},
            Box(0, 0, 2, 2),
        ),
        ("POLYGON((0 0, 2 0, 2 2, 0 0))", Polygon(((0, 0), (2, 0), (2, 2)))),
        (" multipolygon (((0 0, 2 0, 2 2, 0 0)))", Polygon(((0, 0), (2, 0), (2, 2)))),
        (
            "POLYGON((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 2 1, 2 2, 1 1))",
            Polygon(((0, 0), (9, 0), (9, 9), (0, 9)), (((1, 1), (2, 1), (2, 2)),)),
        ),
    ],
)
def test_regions(given, region):
    assert subscription_from_json({"id": "s", "region": given}).region == region


@pytest.mark.parametrize(
    ("region", "field"),
    [
        ("POINT(1 2)", "region"),
        ("", "region"),
        ("POLYGON((0 0, 1 1", "region"),
        ("POLYGON EMPTY", "region"),
        ("POLYGON((0 0, 1 0, nan 2, 0 0))", "region"),
        ("POLYGON((0 0, 1 0, 1e999 2, 0 0))", "region"),
        ("POLYGON" + "(" * 1_000_000, "region"),
        ("POLYGON Z((0 0 1, 1 0 1, 1 1 1, 0 0 1))", "region"),
        ("POLYGON((0 0 1, 1 0 1, 1 1 1, 0 0 1))", "region"),
        ("GEOMETRYCOLLECTION(" * 100_000, "region"),
        ("POLYGON((0 0, 500 0, 500 2, 0 0))", "region"),
        (3, "region"),
        ({"type": "Point", "coordinates": [1, 2]}, "region.type"),
        ({"type": "Circle", "coordinates": [1, 2]}, "region.radius_m"),
        ({"type": "Circle", "coordinates": [1, 2], "radius_m": -1}, "region.radius_m"),
        ({"type": "Circle", "coordinates": [1, 2], "radius": 5}, "region.radius"),
        ({"type": "Circle", "coordinates": [200, 2], "radius_m": 5}, "region.x"),
        ({"type": "Around"}, "region.radius_m"),
        ({"type": "Around", "radius_m": 1, "coordinates": [0, 0]}, "region.coordinates"),
    ],
)
def test_bad_regions_name_the_member(region, field):
    assert refused(subscription_from_json, {"id": "s", "region": region}).field == field


@pytest.mark.parametrize(
    ("filters", "where"),
    [
        ([], None),
        ([{"cql2": "x = 1"}], "x = 1"),
        ([{"cql2": {"op": "=", "args": [{"property": "x"}, 1]}}], "x = 1"),
        ([{"cql2": "x = 1"}, {"cql2": "y = 2 OR z = 3"}], "(x = 1) AND (y = 2 OR z = 3)"),
        ([{"any": [{"cql2": "x = 1"}, {"cql2": "y = 2"}]}], "((x = 1) OR (y = 2))"),
        ([{"all": [{"cql2": "x = 1"}]}, {"not": {"cql2": "y = 2"}}], "((x = 1)) AND (NOT (y = 2))"),
        ([{"not": {"cql2": {"op": "=", "args": [{"property": "x"}, 1]}}}], "(NOT (x = 1))"),
    ],
)
def test_filters_of_every_dialect(filters, where):
    assert subscription_from_json({"id": "s", "filters": filters}).where == where


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"cql2": "x = 1"}, "filters"),
        (["x = 1"], "filters[0]"),
        ([{}], "filters[0]"),
        ([{"cql2": "x = 1", "not": {}}], "filters[0]"),
        ([{"cql2": 3}], "filters[0].cql2"),
        ([{"exact": {"type": "x"}}], "filters[0].exact"),
        ([{"sql": "x = 1"}], "filters[0].sql"),
        ([{"any": []}], "filters[0].any"),
        ([{"not": []}], "filters[0].not"),
        ([{"all": [{"any": {}}]}], "filters[0].all[0].any"),
    ],
)
def test_bad_filters_name_the_member(filters, field):
    assert refused(subscription_from_json, {"id": "s", "filters": filters}).field == field


@pytest.mark.parametrize(
    "filters",
    [
        [{"cql2": "x ="}],
        [{"cql2": ""}],
        [{"cql2": "x = 1) OR (y = 2"}, {"cql2": "z = 3"}],
        [{"not": {"cql2": "x = 1) OR (y = 2"}}],
        [{"cql2": {"op": "casei", "args": []}}],
    ],
)
def test_a_filter_that_cannot_be_read(filters):
    with pytest.raises(FilterError):
        subscription_from_json({"id": "s", "filters": filters})


def test_filters_nested_without_end():
    filters: dict = {"cql2": "x = 1"}
    for _ in range(400):
        filters = {"not": filters}
    assert "deep" in refused(subscription_from_json, {"id": "s", "filters": [filters]}).remedy


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (None, "subscription"),
        ({}, "id"),
        ({"id": ""}, "id"),
        ({"id": "s", "subscriber": 3}, "subscriber"),
        ({"id": "s", "source": "shop"}, "source"),
        ({"id": "s", "types": ["other"]}, "types"),
        ({"id": "s", "where": "x = 1"}, "where"),
        ({"id": "s", "expires": "2026-01-01T00:00:00Z"}, "expires"),
        ({"id": "s", "keywords": "sale"}, "keywords"),
        ({"id": "s", "keywords": {"sale": 1}}, "keywords"),
        ({"id": "s", "config": []}, "config"),
        ({"id": "s", "config": {"initialEvent": 1}}, "config.initialEvent"),
        ({"id": "s", "config": {"protocol": 1}}, "config.protocol"),
        ({"id": "s", "config": {"subscriptionExpireTime": 5}}, "config.subscriptionExpireTime"),
        ({"id": "s", "config": {"subscriptionExpireTime": "x"}}, "config.subscriptionExpireTime"),
        ({"id": "s", "sink": ""}, "sink"),
        ({"id": "s", "protocol": 3}, "protocol"),
        ({"id": "s", "protocolsettings": []}, "protocolsettings"),
    ],
)
def test_bad_subscriptions_name_the_member(given, field):
    assert refused(subscription_from_json, given).field == field


# --- batches --------------------------------------------------------------------------------------


def test_batches():
    events = [Event(id="a", attributes={"x": 1}), Event(id="b", location=Point(1, 2))]
    assert events_from_json(through_text(events_to_json(events))) == events
    wanted = [Subscription(id="a", where="x = 1"), Subscription(id="b", region=Around(5))]
    assert subscriptions_from_json(through_text(subscriptions_to_json(wanted))) == wanted


def test_a_bad_entry_is_named_by_its_row():
    with pytest.raises(BatchError) as caught:
        events_from_json([envelope(), envelope(id="e2"), feature(start="never")])
    assert (caught.value.row, caught.value.field) == (2, "data.start")
    with pytest.raises(BatchError) as caught:
        subscriptions_from_json([{"id": "s"}, {"id": "t", "filters": [{"cql2": "x <"}]}])
    assert caught.value.row == 1
    assert isinstance(caught.value.cause, FilterError)
    with pytest.raises(BatchError) as caught:
        events_to_json([Event(id="a"), Event(id="b", attributes={"x": NAN})])
    assert caught.value.row == 1
    refused(events_from_json, envelope())
    refused(subscriptions_from_json, {"id": "s"})


# --- anything at all ------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        ["1.0", "Feature", "Point", "Polygon", "MultiPolygon", "Circle", "Around", "x = 1"]
    ),
)
keys = st.sampled_from(
    ["type", "coordinates", "radius_m", "bbox", "geometry", "properties", "keywords", "cql2", "all"]
)
garbage = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(keys | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def only_ours(read, given) -> None:
    with suppress(NearcastError):
        read(given)


@settings(max_examples=200)
@given(garbage, st.dictionaries(st.sampled_from(list(envelope())), garbage, max_size=2))
def test_garbage_for_an_event_raises_nothing_else(given, changes):
    only_ours(event_from_json, given)
    only_ours(event_from_json, envelope(**changes))
    only_ours(event_from_json, feature(geometry=given))


@settings(max_examples=200)
@given(garbage)
def test_garbage_for_a_subscription_raises_nothing_else(given):
    only_ours(subscription_from_json, given)
    only_ours(subscription_from_json, {"id": "s", "region": given})
    only_ours(subscription_from_json, {"id": "s", "filters": [given]})


def test_the_examples_of_the_documentation_are_read():
    page = (Path(__file__).parents[1] / "docs" / "wire.md").read_text()
    event, subscription, fence, composite, told = map(
        json.loads, re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    )
    assert event_to_json(event_from_json(event), source="/shops/7") == event
    delivery = {name: subscription[name] for name in ("sink", "protocol")}
    assert subscription_to_json(subscription_from_json(subscription), delivery) == subscription
    written = fence_to_json(fence_from_json(fence))
    assert {name: written[name] for name in fence} == fence
    assert composite_to_json(composite_from_json(composite)) == composite
    assert notification_to_json(notification_from_json(told)) == told


def test_json_needs_no_arrow():
    code = (
        "import sys, nearcast.model.codec as codec\n"
        "codec.event_to_json\n"
        "assert not {'pyarrow', 'shapely', 'numba'} & set(sys.modules)\n"
        "assert codec.events_to_arrow and 'pyarrow' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_has_what_it_lists():
    from nearcast.model import codec

    assert all(hasattr(codec, name) for name in codec.__all__)
    with pytest.raises(AttributeError):
        codec.nothing_of_the_kind  # noqa: B018


@pytest.mark.parametrize("space", ["globe", "planar"])
def test_a_plain_feature_is_read_as_any_other(monkeypatch: pytest.MonkeyPatch, space: Any):
    def read(given: object) -> object:
        try:
            return features.feature_from_json(given, space=space)
        except ValidationError as error:
            return str(error)

    plain: dict[str, Any] = {
        "type": "Feature", "id": "e", "properties": {"a": 1, "b": None, "c": "x", "d": 1.5},
        "geometry": {"type": "Point", "coordinates": [1, 2.5]},
        "time": "2026-03-01T12:00:00.25+01:00", "expirytime": "2026-03-01T12:00:00Z",
    }  # fmt: skip
    changes: list[dict[str, Any]] = [
        {}, {"id": 7}, {"id": ""}, {"id": "\ud800"}, {"type": "feature"}, {"time": 7},
        {"time": "2026-02-30T12:00:00Z"}, {"expirytime": None}, {"source": "/shop"},
        {"source": ""}, {"source": 7}, {"source": "nearcast"}, {"keywords": ["a"]},
        {"start": "2026-03-01T10:00:00Z"}, {"text": "sale"}, {"odd": 1}, {"geometry": None},
        {"properties": None}, {"properties": {"a": float("nan")}}, {"properties": {"a": [1]}},
        {"properties": {"": 1}}, {"properties": {"a": 10**400}}, {"properties": {"a": True}},
        {"geometry": {"type": "Point", "coordinates": [1]}},
        {"geometry": {"type": "Point", "coordinates": [True, 1]}},
        {"geometry": {"type": "Point", "coordinates": [1, 91]}},
        {"geometry": {"type": "Point", "coordinates": [1, 2], "bbox": [1, 2, 1, 2]}},
        {"geometry": {"type": "Circle", "coordinates": [1, 2]}},
    ]  # fmt: skip
    given = [plain | change for change in changes]
    quick = [read(each) for each in given]
    monkeypatch.setattr(features, "_plain", lambda *_: None)
    assert quick == [read(each) for each in given]
    assert sum(not isinstance(each, str) for each in quick) > 10
