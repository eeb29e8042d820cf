"""Values: what constructors take, what they refuse and how they say so."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from nearcast import Around, Box, Circle, Event, NearcastError, Point, Polygon, Subscription
from nearcast.clock import EARLIEST, LATEST, format_micros, to_datetime, to_micros
from nearcast.errors import (
    BatchError,
    CapabilityError,
    CapacityError,
    DuplicateIdError,
    FilterError,
    FilterTooLarge,
    MissingExtraError,
    UnknownIdError,
    ValidationError,
)
from nearcast.model.filters import Filter
from nearcast.model.geometry import check_space
from nearcast.model.words import normalise_word, normalise_words

NAN, INF = math.nan, math.inf
SQUARE = [(0, 0), (4, 0), (4, 4), (0, 4)]


def refused(make, field: str) -> ValidationError:
    """The error of a constructor: of the tree, and it names field, value and remedy."""
    with pytest.raises(ValidationError) as caught:
        make()
    error = caught.value
    assert isinstance(error, NearcastError)
    assert isinstance(error, ValueError)
    assert error.field == field
    assert error.remedy
    assert str(error).startswith(f"{field}: ")
    assert error.remedy in str(error)
    return error


# --- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [NAN, INF, -INF, True, False, np.bool_(True), "1", None, [1], 1j, 10**400]
)
@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda v: Point(v, 0), "x"),
        (lambda v: Point(0, v), "y"),
        (lambda v: Circle(v, 0, 1), "x"),
        (lambda v: Circle(0, v, 1), "y"),
        (lambda v: Circle(0, 0, v), "radius_m"),
        (lambda v: Box(v, 0, 1, 1), "xmin"),
        (lambda v: Box(0, v, 1, 1), "ymin"),
        (lambda v: Box(0, 0, v, 1), "xmax"),
        (lambda v: Box(0, 0, 1, v), "ymax"),
        (Around, "radius_m"),
        (lambda v: Polygon([(0, 0), (1, v), (0, 1)]), "exterior[1].y"),
        (lambda v: Polygon(SQUARE, [[(1, 1), (v, 2), (2, 1)]]), "holes[0][1].x"),
    ],
)
def test_what_is_no_finite_number_is_refused(make, field, wrong) -> None:
    assert refused(lambda: make(wrong), field).value is wrong


@pytest.mark.parametrize("given", [1, 1.0, np.float32(1), np.int64(1), Decimal(1)])
def test_numbers_of_other_types_become_floats(given) -> None:
    point = Point(given, given)
    assert (point.x, point.y, point.lon, point.lat) == (1.0, 1.0, 1.0, 1.0)
    assert type(point.x) is float


def test_minus_zero_is_zero() -> None:
    assert math.copysign(1, Point(-0.0, 0).x) == 1


@pytest.mark.parametrize("make", [lambda: Circle(0, 0, -1e-300), lambda: Around(-1)])
def test_a_negative_radius_is_refused(make) -> None:
    assert "negative" in str(refused(make, "radius_m"))


def test_no_radius_is_a_point() -> None:
    assert Circle(1, 2, 0).radius_m == 0


def test_a_box_upside_down_is_refused() -> None:
    assert "ymax" in str(refused(lambda: Box(0, 2, 1, 1), "ymin"))


# --- polygons ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rings", "field"),
    [
        ([[(0, 0), (2, 2), (2, 0), (0, 2)]], "exterior"),  # crosses itself
        ([[(0, 0), (1, 0), (2, 0)]], "exterior"),  # a line
        ([[(0, 0), (1, 0)]], "exterior"),
        ([[]], "exterior"),
        ([[(0, 0), (1, 0), (0, 0), (1, 0)]], "exterior"),
        ([SQUARE, [(5, 5), (6, 5), (5, 6)]], "exterior"),  # a hole outside
        ([SQUARE, [(3, 1), (5, 1), (5, 3), (3, 3)]], "exterior"),  # a hole across the border
        ([SQUARE, [(0, 0), (4, 0), (4, 4), (0, 4)]], "exterior"),  # all hole
        ([SQUARE, [(1, 1), (2, 1)]], "holes[0]"),
        (["abc"], "exterior"),
        ([5], "exterior"),
        ([[(0, 0, 1), (1, 0, 1), (0, 1, 1)]], "exterior[0]"),
        ([["ab", (1, 0), (0, 1)]], "exterior[0]"),
        ([[(0, 0), 5, (0, 1)]], "exterior[1]"),
    ],
)
def test_rings_that_are_no_polygon_are_refused(rings, field) -> None:
    refused(lambda: Polygon(rings[0], rings[1:]), field)


@pytest.mark.parametrize("holes", ["abc", 5, None])
def test_holes_are_a_list_of_rings(holes) -> None:
    refused(lambda: Polygon(SQUARE, holes), "holes")


def test_rings_may_be_open_closed_of_points_or_pairs() -> None:
    wanted = Polygon(((0, 0), (4, 0), (4, 4), (0, 4)))
    assert Polygon([*SQUARE, SQUARE[0]]) == wanted
    assert Polygon(Point(x, y) for x, y in SQUARE) == wanted
    assert Polygon([list(pair) for pair in SQUARE]) == wanted
    assert wanted.rings == (wanted.exterior,)
    assert list(wanted.bounds) == [0, 0, 4, 4]


# --- spaces -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "field"),
    [
        (Point(180.5, 0), "f.x"),
        (Point(0, 91), "f.y"),
        (Circle(-181, 0, 1), "f.x"),
        (Circle(0, -90.1, 1), "f.y"),
        (Box(-181, 0, 1, 1), "f.xmin"),
        (Box(0, 0, 181, 1), "f.xmax"),
        (Box(0, -91, 1, 1), "f.ymin"),
        (Box(0, 0, 1, 91), "f.ymax"),
        (Polygon([(0, 0), (1, 0), (0, 91)]), "f"),
        (Polygon([(0, 0), (1, 0), (0, -91)]), "f"),
        (Polygon([(-361, 0), (1, 0), (0, 1)]), "f"),
        (Polygon([(-10, 0), (351, 0), (0, 1)]), "f"),
    ],
)
def test_the_globe_has_an_end_and_a_plane_has_none(place, field) -> None:
    refused(lambda: check_space(place, "globe", "f"), field)
    check_space(place, "planar", "f")


def test_a_box_across_the_antimeridian_is_of_the_globe() -> None:
    check_space(Box(170, 0, -170, 1), "globe", "region")
    refused(lambda: check_space(Box(170, 0, -170, 1), "planar", "region"), "region.xmin")


def test_swapped_coordinates_are_guessed() -> None:
    error = refused(lambda: check_space(Point(36.2, 121.4), "globe", "location"), "location.y")
    assert "swapped" in error.remedy


def test_the_ends_of_the_globe_belong_to_it() -> None:
    for place in (Point(180, 90), Point(-180, -90), Box(-180, -90, 180, 90), Around(5)):
        check_space(place, "globe", "region")


# --- events and subscriptions -----------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["", None, 5, b"a", "\ud800"])
def test_ids_are_strings_with_something_in_them(wrong) -> None:
    refused(lambda: Event(id=wrong), "id")
    refused(lambda: Subscription(id=wrong), "id")
    if wrong is not None:
        refused(lambda: Subscription(id="s", subscriber=wrong), "subscriber")


@pytest.mark.parametrize("wrong", ["sale", b"sale", 5, [5], [""], ["  "], ["\ud800"], [None]])
def test_keywords_are_a_set_of_words(wrong) -> None:
    refused(lambda: Event(id="e", keywords=wrong), "keywords")
    refused(lambda: Subscription(id="s", keywords=wrong), "keywords")


def test_words_are_compared_after_nfkc_and_case_folding() -> None:
    assert Event(id="e", keywords=["STRAẞE", "ＦＵＬＬ", "Sale", "sale"]).keywords == {
        "strasse",
        "full",
        "sale",
    }
    assert normalise_words(None) == frozenset()
    assert normalise_word("Ǆ") == normalise_word("ǆ")


def test_a_normalised_word_is_its_own() -> None:
    """Or a word that was written down and read again would match others than before."""
    marks = ["", "\u0301", "\u0308", "\u0345", "\u0327\u0301"]
    letters = [
        chr(code)
        for code in range(0x80, 0x30000)
        if not 0xD800 <= code < 0xE000 and chr(code).casefold() != chr(code)
    ]
    for letter in [*letters, "ΐ", "ΰ", "ΐ", "가", "ﬃ"]:
        for mark in marks:
            word = normalise_word(letter + mark)
            assert normalise_word(word) == word, letter + mark
    assert normalise_word("\u03aa\u0301") == normalise_word("\u03ca\u0301")
    assert normalise_word("\u03aa\u0301") == normalise_word("\u0390")


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ([("a", 1)], "attributes"),
        (None, "attributes"),
        ({"": 1}, "attributes"),
        ({5: 1}, "attributes"),
        ({"\ud800": 1}, "attributes"),
        ({"a": [1]}, "attributes['a']"),
        ({"a": {}}, "attributes['a']"),
        ({"a": 1j}, "attributes['a']"),
        ({"a": b"x"}, "attributes['a']"),
        ({"a": "\ud800"}, "attributes['a']"),
        ({"a": 10**400}, "attributes['a']"),
        ({"a": np.array([1, 2])}, "attributes['a']"),
    ],
)
def test_attributes_are_names_with_numbers_strings_or_bools(attributes, field) -> None:
    refused(lambda: Event(id="e", attributes=attributes), field)


def test_attributes_of_other_types() -> None:
    given: Any = {"a": np.float64(1.5), "b": np.bool_(True), "c": None, "d": np.int32(7), "e": NAN}
    event = Event(id="e", attributes=given)
    assert list(event.attributes) == ["a", "b", "d", "e"]
    assert event.attributes["b"] is True
    assert type(event.attributes["d"]) is int


@pytest.mark.parametrize("wrong", [Circle(0, 0, 1), Around(5), (1, 2), "POINT(1 2)", 5])
def test_locations_are_points_boxes_or_polygons(wrong) -> None:
    refused(lambda: Event(id="e", location=wrong), "location")


@pytest.mark.parametrize("wrong", [Point(0, 0), (0, 0, 1), "x", 5])
def test_regions_are_circles_boxes_polygons_or_around(wrong) -> None:
    refused(lambda: Subscription(id="s", region=wrong), "region")


@pytest.mark.parametrize("wrong", [5, ["price < 3"], b"price < 3"])
def test_a_filter_is_text_or_json(wrong) -> None:
    refused(lambda: Subscription(id="s", where=wrong), "where")


def test_a_filter_is_kept_as_text() -> None:
    tree = {"op": "<", "args": [{"property": "price"}, 3]}
    for given in ("price < 3", tree, Filter.parse("price < 3")):
        made = Subscription(id="s", where=given)
        assert made.where == "price < 3"
        assert made.filter.clauses[0].intervals[0].high < 3
    with pytest.raises(FilterError):
        Subscription(id="s", where="price <")


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        Event(id="e", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        Subscription(id="s", colour="red")  # type: ignore[call-arg]


# --- time -------------------------------------------------------------------------------------

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "wrong",
    [
        *(datetime(2026, 3, 1), "2026-03-01T12:00:00", "2026-03-01", "noon", "", True, 1.5, [1]),
        *("2026-13-01T12:00:00Z", "2026-02-30T12:00:00Z", "2026-03-01T25:00:00Z", b"1"),
        *(
            EARLIEST - 1,
            LATEST + 1,
            2**63,
            "9999-12-31T23:59:59-00:01",
            "0001-01-01T00:00:00+00:01",
        ),
        *("9999-12-31T23:59:60Z", datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
    ],
)
def test_times_without_a_zone_or_out_of_range_are_refused(wrong) -> None:
    for field in ("start", "end", "expires"):
        refused(lambda field=field: Event(id="e", **{field: wrong}), field)
    refused(lambda: Subscription(id="s", expires=wrong), "expires")


def test_one_moment_written_in_many_ways() -> None:
    micros = 1_772_366_400_000_000
    ways: list[Any] = [
        *(NOON, NOON.astimezone(timezone(timedelta(hours=5, minutes=30))), micros),
        *("2026-03-01T12:00:00Z", "2026-03-01t13:00:00.000+01:00", np.int64(micros)),
    ]
    for given in ways:
        assert Event(id="e", end=given).end == micros
        assert type(Event(id="e", end=given).end) is int
    assert to_datetime(micros) == NOON


@pytest.mark.parametrize(
    ("fraction", "micros"),
    [(".5", 500_000), (".05", 50_000), (".000001", 1), (".1234567", 123_456), (".0000009", 0)],
)
def test_fractions_of_a_second_are_decimals_cut_at_microseconds(fraction: str, micros: int) -> None:
    assert Event(id="e", end=f"1970-01-01T00:00:00{fraction}Z").end == micros


def test_a_leap_second_is_the_second_after() -> None:
    """RFC 3339 has 23:59:60; time without leap seconds has midnight for it."""
    leap, midnight = "2016-12-31T23:59:60.25Z", "2017-01-01T00:00:00.25Z"
    assert Event(id="e", end=leap).end == Event(id="e", end=midnight).end


@pytest.mark.parametrize("micros", [EARLIEST, -1, 0, 1, 999_999, 1_500_000, LATEST])
def test_what_is_written_is_read_back(micros) -> None:
    assert to_micros(format_micros(micros)) == micros


def test_an_event_ends_and_expires_no_sooner_than_it_starts() -> None:
    refused(lambda: Event(id="e", start=2, end=1), "end")
    refused(lambda: Event(id="e", start=NOON, expires=NOON - timedelta(seconds=1)), "expires")
    Event(id="e", start=2, end=2, expires=2)


# --- values -----------------------------------------------------------------------------------

VALUES = [
    Point(1, 2),
    Circle(1, 2, 3),
    Box(1, 2, 3, 4),
    Around(5),
    Polygon(SQUARE, [[(1, 1), (2, 1), (1, 2)]]),
    Event("e", {"a": 1, "b": "x"}, ["w"], Point(1, 2), 1, 2, 3),
    Subscription("s", "ann", "a < 1", ["w"], Circle(1, 2, 3), 5),
    Subscription("s", region=Polygon(SQUARE)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_frozen_comparable_hashable_and_picklable(value) -> None:
    for twin in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value), replace(value)):
        assert twin == value
        assert hash(twin) == hash(value)
        assert repr(twin) == repr(value)
    name = value.__slots__[0]
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, 1)
    assert value != VALUES[VALUES.index(value) - 1]


def test_attributes_cannot_be_changed() -> None:
    given = {"a": 1}
    event = Event(id="e", attributes=given)
    given["a"] = 2
    assert event.attributes == {"a": 1}
    with pytest.raises(TypeError):
        event.attributes["a"] = 2  # type: ignore[index]


def test_replace_gives_a_checked_copy() -> None:
    subscription = Subscription(id="s", where="a < 1")
    other = replace(subscription, where="a < 2")
    assert other.filter.clauses[0].intervals[0].high > 1
    refused(lambda: replace(subscription, id=""), "id")


# --- errors -----------------------------------------------------------------------------------

ERRORS = [
    ValidationError("f", [1], "r"),
    BatchError(3, ValidationError("f", 1, "r")),
    BatchError(3, DuplicateIdError("event", "e", "r")),
    FilterError("m", "a <", 2),
    FilterTooLarge(100, 64, "a < 1"),
    DuplicateIdError("event", "e", "remove it"),
    UnknownIdError("event", "e"),
    CapabilityError("di-tree", "x", ["scan"]),
    CapacityError("bytes", 10, 5, "r"),
    MissingExtraError("pyspark", "spark"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_cross_processes_whole(error) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert twin.__dict__.keys() == error.__dict__.keys()


def test_long_values_are_cut_in_messages() -> None:
    given: Any = "x" * 5000
    error = refused(lambda: Event(id="e", location=given), "location")
    assert len(str(error)) < 300
    assert error.value is given


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1.0, 1e160, 1e308])
@pytest.mark.filterwarnings("error")
def test_polygons_of_any_size(size: float) -> None:
    square = [(-size, -size), (size, -size), (size, size), (-size, size)]
    half = [(x / 2, y / 2) for x, y in square]
    assert Polygon(square, [half]).exterior == tuple(square)
    with pytest.raises(ValidationError, match="must not cross"):
        Polygon([square[0], square[2], square[1], square[3]])
    with pytest.raises(ValidationError, match="must not cross"):
        Polygon(half, [square])
    with pytest.raises(ValidationError, match="on one line"):
        Polygon([(0, 0), (size / 2, size / 2), (size, size)])
