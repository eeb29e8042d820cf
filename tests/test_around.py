"""Regions of any shape that follow their subscriber: values, and whom they match."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Around, Box, Event, Matcher, Point, Polygon, Subscription
from nearcast.errors import NearcastError, ValidationError
from nearcast.kernels import geometry
from nearcast.matcher.places import shape_floats
from nearcast.model.codec import (
    subscription_from_json,
    subscription_to_json,
    subscriptions_to_arrow,
)
from nearcast.model.geometry import WIDEST_SHAPE, Space
from nearcast.model.placing import Facing, placed, turned
from nearcast.storage.rows import subscription_from_text, subscription_to_text
from tests import oracle, oracle_geometry, strategies

LANE = Polygon([(-50, 0), (50, 0), (50, 2000), (-50, 2000)])
_MODEST = settings(max_examples=25, deadline=None)
SPACES = pytest.mark.parametrize("space", ["globe", "planar"])


# --- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "radius_m"),
        ({"radius_m": -1}, "radius_m"),
        ({"radius_m": "far"}, "radius_m"),
        ({"radius_m": 5, "shape": LANE}, "shape"),
        ({"shape": [(0, 0), (1, 0), (0, 1)]}, "shape"),
        ({"shape": Box(0, 0, 1, 1)}, "shape"),
        ({"shape": LANE, "turns": 1}, "turns"),
        ({"shape": LANE, "turns": None}, "turns"),
        ({"radius_m": 5, "turns": True}, "turns"),
    ],
)
def test_what_is_no_region_is_named(options, field) -> None:
    with pytest.raises(ValidationError) as refused:
        Around(**options)
    assert refused.value.field == field


def test_a_shape_is_a_value() -> None:
    lane, same = Around(shape=LANE, turns=True), Around(None, Polygon(LANE.exterior), True)
    assert lane == same
    assert hash(lane) == hash(same)
    assert pickle.loads(pickle.dumps(lane)) == lane
    assert lane != Around(shape=LANE)
    assert lane.reach_m == math.hypot(50, 2000)
    assert repr(Around(5)) == "Around(radius_m=5.0)"
    assert eval(repr(lane)) == lane


@_MODEST
@given(st.sampled_from(["globe", "planar"]).flatmap(strategies.shapes))
def test_shapes_survive_json_and_the_store(region: Around) -> None:
    subscription = Subscription(id="s", subscriber="ann", region=region)
    assert subscription_from_json(subscription_to_json(subscription)) == subscription
    text = subscription_to_text(subscription)
    assert subscription_from_text("s", "ann", None, text) == subscription


@pytest.mark.parametrize(
    ("region", "field"),
    [
        ({"type": "Around"}, "radius_m"),
        ({"type": "Around", "shape": {"type": "Point", "coordinates": [0, 0]}}, "shape.type"),
        ({"type": "Around", "shape": 5}, "shape"),
        ({"type": "Around", "radius_m": 5, "turns": True}, "turns"),
        ({"type": "Around", "radius_m": 5, "shape": "polygon"}, "shape"),
        (
            {"type": "Around", "shape": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}},
            "shape.coordinates[0]",
        ),
        ({"type": "Around", "shape": {"type": "Polygon", "coordinates": []}}, "shape.coordinates"),
        ({"type": "Around", "radius_m": 5, "speed": 1}, "speed"),
    ],
)
def test_bad_json_is_named(region, field) -> None:
    with pytest.raises(ValidationError) as refused:
        subscription_from_json({"id": "s", "region": region})
    assert refused.value.field == f"region.{field}"


def test_tables_have_no_columns_for_it() -> None:
    with pytest.raises(NearcastError, match="JSON"):
        subscriptions_to_arrow([Subscription(id="s", region=Around(shape=LANE))])


@SPACES
def test_a_shape_does_not_reach_everywhere(space: Space) -> None:
    far = WIDEST_SHAPE[space]
    fits = Around(shape=Polygon([(0, 0), (far, 0), (0, far)]))
    wide = Around(shape=Polygon([(0, 0), (far * (1 + 1e-9), 0), (0, far)]))
    matcher = Matcher(space=space)
    matcher.match_subscription(Subscription(id="s", region=fits), at=Point(0, 0))
    with pytest.raises(ValidationError) as refused:
        matcher.match_subscription(Subscription(id="s", region=wide), at=Point(0, 0))
    assert refused.value.field == "region.shape"


@pytest.mark.parametrize("heading", [math.nan, math.inf, "north", True])
def test_a_heading_is_a_number(heading) -> None:
    wanted = Subscription(id="s", region=Around(shape=LANE, turns=True))
    with pytest.raises(ValidationError) as refused:
        Matcher().match_subscription(wanted, at=Point(0, 0), heading=heading)
    assert refused.value.field == "heading"


def test_a_heading_needs_a_place() -> None:
    wanted = Subscription(id="s", region=Around(shape=LANE, turns=True))
    with pytest.raises(ValidationError) as refused:
        Matcher().match_subscription(wanted, heading=90.0)
    assert refused.value.field == "at"


# --- where they lie -------------------------------------------------------------------------


def test_quarter_turns_are_exact() -> None:
    assert turned(LANE, 90).exterior == ((0, 50), (0, -50), (2000, -50), (2000, 50))
    assert turned(LANE, -90) == turned(LANE, 270) == turned(turned(LANE, 90), 180)
    assert turned(LANE, 720) == LANE == turned(LANE, -1e-30)


def test_a_shape_looks_ahead() -> None:
    """North as it is drawn; to the east with a heading of 90°, if it turns."""
    matcher = Matcher()
    north, east = Point(8.5, 47.41), Point(8.51, 47.4)
    matcher.add_events([Event(id="north", location=north), Event(id="east", location=east)])
    lane = Subscription(id="s", region=Around(shape=LANE, turns=True))
    still = Subscription(id="s", region=Around(shape=LANE))
    at = Point(8.5, 47.4)
    assert matcher.match_subscription(lane, at=at) == ["north"]
    assert matcher.match_subscription(lane, at=at, heading=90) == ["east"]
    assert matcher.match_subscription(lane, at=at, heading=45) == []
    assert matcher.match_subscription(still, at=at, heading=90) == ["north"]


def test_borders_belong_to_it() -> None:
    matcher = Matcher(space="planar")
    places = {"corner": (50, 2000), "edge": (-50, 7), "back": (3, 0), "out": (3, -1e-9)}
    matcher.add_events([Event(id=id, location=Point(*at)) for id, at in places.items()])
    lane = Subscription(id="s", region=Around(shape=LANE))
    assert matcher.match_subscription(lane, at=Point(0, 0)) == ["back", "corner", "edge"]


def test_an_explanation_says_where_the_event_is() -> None:
    matcher = Matcher(space="planar")
    lane = Subscription(id="s", region=Around(shape=LANE, turns=True))
    matcher.add_subscriptions([lane], at=Point(10, 10), heading=180)
    told = str(matcher.explain("s", Event(id="e", location=Point(70, 20))))
    assert "shape of 4 points about (10, 10)" in told
    assert "60 to the east and 10 to the north" in told
    matcher.update_subscription(lane, at=Point(10, 10), heading=90)
    assert matcher.match_event(Event(id="e", location=Point(70, 20))) == ["s"]


INDEXES = pytest.mark.parametrize("index", ["pivot", "mo-tree", "scan"])


@SPACES
@INDEXES
@_MODEST
@given(st.data())
def test_matches_are_those_of_the_definition(space: Space, index: str, data) -> None:
    events = data.draw(strategies.event_lists(space))
    region, at = data.draw(strategies.shapes(space)), data.draw(strategies.points(space))
    heading = data.draw(strategies.headings())
    wanted = Subscription(id="s", subscriber="ann", region=region)
    matcher = Matcher(index=index, space=space)
    matcher.add_events(events)
    found = matcher.match_subscription(wanted, at=at, heading=heading)
    assert found == oracle.match_subscription(wanted, events, space, at=at, heading=heading)
    matcher.add_subscriptions([wanted], at=at, heading=heading)
    for event in events:
        wants = oracle.wants(wanted, event, space, at, heading)
        assert matcher.match_event(event, now=0) == (["s"] if wants else [])
        assert matcher.explain("s", event, now=0).matched == wants


@SPACES
@_MODEST
@given(st.data())
def test_distances_are_those_of_the_definition(space: Space, data) -> None:
    region, at = data.draw(strategies.shapes(space)), data.draw(strategies.points(space))
    heading, place = data.draw(strategies.headings()), data.draw(strategies.locations(space))
    seen = oracle_geometry.fixed(region, at, heading)
    assert isinstance(seen, oracle_geometry.Seen)
    _, mine = shape_floats(placed(region, Facing(at.x, at.y, heading)))
    kind, floats = shape_floats(place)
    import numpy as np

    found = geometry.placed_distance(np.array(mine), 0, kind, np.array(floats), 0, space == "globe")
    wanted = oracle_geometry.seen_distance(place, seen, space)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-5 if space == "globe" else 1e-12)


def test_a_country_holds_a_shape_on_the_far_side_of_its_border() -> None:
    """A place that holds the whole shape meets it, however large it is; its hole does not."""
    wanted = Subscription(id="s", region=Around(shape=LANE))
    half = Polygon([(-90, -80), (90, -80), (90, 80), (-90, 80)], [[(9, 9), (11, 9), (10, 11)]])
    matcher = Matcher()
    matcher.add_events([Event(id="half", location=half)])
    assert matcher.match_subscription(wanted, at=Point(40, 9.5)) == ["half"]
    assert matcher.match_subscription(wanted, at=Point(10, 9.5)) == []
    assert matcher.match_subscription(wanted, at=Point(175, 9.5)) == []
