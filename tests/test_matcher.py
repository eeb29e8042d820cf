"""The facade: every method, every error, objects and tables alike."""

from __future__ import annotations

import math
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Around, Box, Circle, Event, Matcher, Point, Polygon, Subscription
from nearcast.datasets import workload
from nearcast.errors import (
    BatchError,
    CapabilityError,
    CapacityError,
    DuplicateIdError,
    NearcastError,
    UnknownIdError,
    ValidationError,
)
from nearcast.index import pivot, registry
from nearcast.index.clauses import Clauses, ClauseStore, table_of_one
from nearcast.index.pivot.boxed import PlacedClauses
from nearcast.matcher import extended
from nearcast.matcher.lock import ReadWriteLock
from nearcast.model.codec import (
    events_to_arrow,
    subscriptions_from_arrow,
    subscriptions_to_arrow,
)
from nearcast.model.geometry import Location, Region, Space
from tests import oracle
from tests.strategies import (
    keywords,
    locations,
    points,
    subscription_lists,
    times,
)

UTC_MICROS = pa.timestamp("us", tz="UTC")


def pairs(table) -> list[tuple[str, str]]:
    assert table.column_names == ["event_id", "subscription_id"]
    return sorted(
        zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True)
    )


def sold(price: float, **more: Any) -> Event:
    return Event(id="e", attributes={"price": price}, **more)


@pytest.fixture
def matcher() -> Matcher:
    made = Matcher()
    made.add_subscriptions([Subscription(id="s1", where="price < 3300", keywords={"sale"})])
    return made


# --- making one -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"space": "mars"}, "space"),
        ({"space": None}, "space"),
        ({"index": "nothing like it"}, "index"),
        ({"index": 5}, "index"),
        ({"schema": {}}, "schema"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": "1M"}, "max_bytes"),
        ({"threads": 0}, "threads"),
        ({"speed": 11}, "options"),
    ],
)
def test_bad_options_are_named(options, field) -> None:
    with pytest.raises(ValidationError) as caught:
        Matcher(**options)
    assert caught.value.field == field


def test_a_mistyped_index_is_guessed() -> None:
    with pytest.raises(ValidationError, match="did you mean 'mo-tree'"):
        Matcher("mo-tre")
    assert Matcher("auto").entry.name == registry.AUTO


@pytest.mark.parametrize("name", registry.names())
def test_what_an_index_cannot_do_names_those_that_can(name) -> None:
    matcher = Matcher(name)
    if matcher.entry.events is None:
        for act in (
            lambda: matcher.add_events([]),
            lambda: matcher.match_subscription(Subscription(id="s")),
        ):
            with pytest.raises(CapabilityError, match="subscription matching") as caught:
                act()
            assert caught.value.able == tuple(registry.names(events=True))
    if matcher.entry.subscriptions is None:
        for act in (
            lambda: matcher.add_subscriptions([]),
            lambda: matcher.match_event(Event(id="e")),
            lambda: matcher.match_events([]),
        ):
            with pytest.raises(CapabilityError, match="event matching") as caught:
                act()
            assert caught.value.able == tuple(registry.names(subscriptions=True))


# --- adding, removing, updating ---------------------------------------------------------------


def test_add_update_remove(matcher) -> None:
    event = sold(3200, keywords={"Sale"})
    assert len(matcher) == 1
    assert "s1" in matcher
    assert matcher.match_event(event) == ["s1"]
    matcher.update_subscription(Subscription(id="s1", where="price < 3000"))
    assert matcher.match_event(event) == []
    matcher.add_subscriptions(Subscription(id="s0"))
    assert matcher.match_event(event) == ["s0"]
    matcher.remove_subscription("s1")
    assert "s1" not in matcher
    assert len(matcher) == 1
    matcher.check_invariants()


@pytest.mark.parametrize("id", ["nobody", "", "\ud800", None, 5])
def test_unknown_ids_are_refused(matcher, id) -> None:
    for act in (
        lambda: matcher.remove_subscription(id),
        lambda: matcher.remove_event(id),
        lambda: matcher.explain(id, sold(1)),
    ):
        with pytest.raises(UnknownIdError):
            act()
    assert id not in matcher
    with pytest.raises(UnknownIdError):
        matcher.update_subscription(Subscription(id="nobody"))
    assert len(matcher) == 1


def test_wrong_types_are_refused(matcher) -> None:
    for act, field in (
        (lambda: matcher.add_subscriptions(5), "subscriptions"),
        (lambda: matcher.add_subscriptions(None), "subscriptions"),
        (lambda: matcher.add_events(5), "events"),
        (lambda: matcher.match_events(None), "events"),
        (lambda: matcher.match_event("e"), "event"),
        (lambda: matcher.match_event(None), "event"),
        (lambda: matcher.explain("s1", "e"), "event"),
        (lambda: matcher.update_subscription("s1"), "subscription"),
        (lambda: matcher.match_subscription("s1"), "subscription"),
        (lambda: matcher.match_event(sold(1), now=datetime(2026, 1, 1)), "now"),
        (lambda: matcher.match_events([], now=1.5), "now"),
        (lambda: matcher.expire(None), "now"),
    ):
        with pytest.raises(ValidationError) as caught:
            act()
        assert caught.value.field == field
    for act in (
        lambda: matcher.add_subscriptions("abc"),
        lambda: matcher.add_subscriptions([Event(id="e")]),
        lambda: matcher.add_events([Event(id="e"), Subscription(id="s")]),
        lambda: matcher.match_events(["e"]),
    ):
        with pytest.raises(BatchError):
            act()
    assert (len(matcher), matcher.event_count) == (1, 0)


def test_nothing_to_add(matcher) -> None:
    empty = pa.schema([("id", pa.string())]).empty_table()
    nothings: list[Any] = [[], iter(()), empty, pa.table({"id": pa.array([], pa.string())})]
    for nothing in nothings:
        matcher.add_subscriptions(nothing)
        matcher.add_events(nothing)
        assert matcher.match_events(nothing).num_rows == 0
    assert (len(matcher), matcher.event_count) == (1, 0)


def test_an_iterable_may_ask_the_matcher(matcher) -> None:
    event = sold(3200, keywords={"sale"})
    matcher.add_events(event for _ in range(1) if matcher.match_event(event))
    matcher.add_subscriptions(Subscription(id=f"x{len(matcher)}") for _ in range(1))
    found = matcher.match_events(
        event for _ in range(1) if matcher.match_subscription(Subscription(id="q"))
    )
    assert pairs(found) == [("e", "s1"), ("e", "x1")]


ODD_IDS = ["a", "a\0", "\0", "日本", "🙂", " ", "\n\t", "x" * 500, "\u00e9", "e\u0301"]


def test_odd_ids_survive() -> None:
    matcher = Matcher()
    matcher.add_subscriptions([Subscription(id=id) for id in ODD_IDS[:5]])
    matcher.add_subscriptions(pa.table({"id": ODD_IDS[5:]}))
    events = [Event(id=id) for id in ODD_IDS]
    assert matcher.match_event(events[0]) == sorted(ODD_IDS)
    assert pairs(matcher.match_events(events)) == sorted((e, s) for e in ODD_IDS for s in ODD_IDS)
    matcher.add_events(events)
    assert matcher.match_subscription(Subscription(id="q")) == sorted(ODD_IDS)
    for id in ODD_IDS:
        matcher.remove_subscription(id)
        matcher.remove_event(id)
    assert (len(matcher), matcher.event_count) == (0, 0)
    matcher.check_invariants()


# --- batches are atomic -----------------------------------------------------------------------

OUTSIDE = Circle(500, 0, 1)


@pytest.mark.parametrize(
    ("batch", "row"),
    [
        ([Subscription(id="a"), Subscription(id="a")], 1),
        ([Subscription(id="a"), Subscription(id="b"), Subscription(id="s1")], 2),
        ([Subscription(id="a"), Subscription(id="b", region=OUTSIDE)], 1),
        ([Subscription(id="a"), Subscription(id="b", region=Around(5))], 1),
        ([Subscription(id="a"), Subscription(id="b", where="S_WITHIN(location, POINT(0 95))")], 1),
        (pa.table({"id": ["a", "a"]}), 1),
        (pa.table({"id": ["a", "b", "s1"]}), 2),
        (pa.table({"id": ["a", ""]}), 1),
        (pa.table({"id": ["a", None]}), 1),
        (pa.table({"id": ["a", "b"], "subscriber": [None, ""]}), 1),
        (pa.table({"id": ["a", "b"], "where": [None, "price <"]}), 1),
        (pa.table({"id": ["a", "b"], "where": ["price < 5", "nix(price)"]}), 1),
        (pa.table({"id": ["a", "b"], "keywords": [["w"], [" "]]}), 1),
        (pa.table({"id": ["a", "b"], "lon": [0.0, 0], "lat": [0.0, 91], "radius_m": [1.0, 1]}), 1),
        (pa.table({"id": ["a", "b"], "lon": [0.0, 0], "lat": [0.0, 0], "radius_m": [1, -1]}), 1),
        (pa.table({"id": ["a", "b"], "lon": [0.0, 0], "lat": [0.0, 0], "radius_m": [1, None]}), 1),
        (pa.table({"id": ["a", "b"], "geometry": [None, b"junk"]}), 1),
        (
            pa.table({
                "id": ["a", "b"], "xmin": [0.0, 0], "ymin": [0.0, 2], "xmax": [1.0, 1],
                "ymax": [1.0, 1],
            }),
            1,
        ),
        (
            pa.table({
                "id": ["a", "b"],
                "intervals": [None, [{"attribute": "x", "low": math.nan, "high": 1.0}]],
            }),
            1,
        ),
        (pa.table({"id": ["a", "b"], "expires": pa.array([1, 2**62], UTC_MICROS)}), 1),
    ],
)  # fmt: skip
def test_a_bad_subscription_stops_its_batch(matcher, batch, row) -> None:
    memory = matcher.memory()
    with pytest.raises(BatchError, match="nothing of this batch was added") as caught:
        matcher.add_subscriptions(batch)
    assert caught.value.row == row
    assert isinstance(caught.value.cause, NearcastError)
    assert len(matcher) == 1
    assert "a" not in matcher
    assert matcher.match_event(Event(id="e")) == []
    matcher.check_invariants()
    assert matcher.memory()["schema"] == memory["schema"]


BOX = Box(0, 0, 1, 1)
WKB = shapely.to_wkb(shapely.box(0, 0, 1, 1))


@pytest.mark.parametrize(
    ("batch", "row"),
    [
        ([Event(id="a"), Event(id="a")], 1),
        ([Event(id="a"), Event(id="e0")], 1),
        ([Event(id="a", location=BOX), Event(id="a")], 1),
        ([Event(id="a"), Event(id="e0", location=BOX)], 1),
        ([Event(id="a", location=BOX), Event(id="b", location=Point(181, 0))], 1),
        ([Event(id="a"), Event(id="b", location=Box(0, 0, 200, 1))], 1),
        (pa.table({"id": ["a", "a"]}), 1),
        (pa.table({"id": ["a", "e0"]}), 1),
        (pa.table({"id": ["a", None]}), 1),
        (pa.table({"id": ["a", "a"], "geometry": [WKB, WKB]}), 1),
        (pa.table({"id": ["a", "b"], "lon": [1.0, 1], "lat": [1.0, None]}), 1),
        (pa.table({"id": ["a", "b"], "lon": [1.0, 1], "lat": [1.0, math.nan]}), 1),
        (pa.table({"id": ["a", "b"], "lon": [1.0, 181], "lat": [1.0, 1]}), 1),
        (pa.table({"id": ["a", "b"], "keywords": [["w"], [""]]}), 1),
        (
            pa.table({
                "id": ["a", "b"], "start": pa.array([1, 2], UTC_MICROS),
                "end": pa.array([1, 1], UTC_MICROS),
            }),
            1,
        ),
        (pa.table({"id": ["a", "b"], "end": pa.array([1, 2**62], UTC_MICROS)}), 1),
    ],
)  # fmt: skip
def test_a_bad_event_stops_its_batch(batch, row) -> None:
    matcher = Matcher()
    matcher.add_events([Event(id="e0")])
    with pytest.raises(BatchError) as caught:
        matcher.add_events(batch)
    assert caught.value.row == row
    assert matcher.event_count == 1
    assert matcher.match_subscription(Subscription(id="q")) == ["e0"]
    matcher.check_invariants()


def test_a_taken_id_is_the_cause(matcher) -> None:
    with pytest.raises(BatchError) as caught:
        matcher.add_subscriptions([Subscription(id="s1")])
    assert isinstance(caught.value.cause, DuplicateIdError)
    assert "update_subscription" in str(caught.value)


def test_a_refused_update_changes_nothing(matcher) -> None:
    for region in (OUTSIDE, Around(5)):
        with pytest.raises(ValidationError):
            matcher.update_subscription(Subscription(id="s1", region=region))
    assert matcher.match_event(sold(1, keywords={"sale"})) == ["s1"]


@pytest.mark.parametrize("table", [{"where": ["a = 1"]}, {"id": [1]}, {"id": ["a"], "colour": [1]}])
def test_bad_columns_are_refused_as_such(matcher, table) -> None:
    with pytest.raises(ValidationError) as caught:
        matcher.add_subscriptions(pa.table(table))
    assert caught.value.field in ("id", "colour")
    assert len(matcher) == 1


# --- bounds -----------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_before_anything_changes() -> None:
    matcher = Matcher(max_bytes=100_000)
    matcher.add_subscriptions([Subscription(id="s", where="price < 3")])
    before = matcher.memory()
    crowd = [Subscription(id=f"x{k}", where=f"a{k % 50} < 3") for k in range(1500)]
    events = [Event(id=f"e{k}", attributes={"price": k}) for k in range(1500)]
    for act in (
        lambda: matcher.add_subscriptions(crowd),
        lambda: matcher.add_subscriptions(pa.table({"id": [s.id for s in crowd]})),
        lambda: matcher.add_events(events),
        lambda: matcher.add_events(pa.table({"id": [e.id for e in events]})),
        lambda: matcher.update_subscription(
            Subscription(id="s", region=Polygon(
                (math.cos(k / 5000 * math.tau), math.sin(k / 5000 * math.tau)) for k in range(5000)
            ))
        ),
    ):  # fmt: skip
        with pytest.raises(CapacityError, match="max_bytes") as caught:
            act()
        assert caught.value.limit == 100_000
        assert caught.value.needed > 100_000
    assert matcher.memory() == before
    matcher.update_subscription(Subscription(id="s", where="price < 4"))
    assert (len(matcher), matcher.event_count) == (1, 0)


def test_an_index_that_begins_with_much_is_foreseen() -> None:
    subscriptions = [Subscription(id=f"s{k}", where=f"a < {k}") for k in range(64)]
    matcher = Matcher(index="pivot", max_bytes=1_000_000)
    matcher.add_subscriptions(subscriptions)
    with pytest.raises(CapacityError):
        matcher.add_subscriptions([Subscription(id="one more", where="a < 3")])
    matcher.add_subscriptions(
        [Subscription(id=f"w{k}", keywords={f"word {k}"}) for k in range(200)]
    )
    assert matcher.memory()["total"] < 1_000_000
    roomy = Matcher(index="pivot", max_bytes=3_000_000)
    roomy.add_subscriptions(subscriptions)
    for k in range(64, 512):
        roomy.add_subscriptions([Subscription(id=f"s{k}", where=f"a < {k}")])
    assert roomy.memory()["total"] < 3_000_000


@pytest.mark.parametrize("expected", [100, 1])
def test_what_boxes_are_matched_with_is_within_the_bound(monkeypatch, expected: int) -> None:
    monkeypatch.setattr("nearcast.index.pivot.boxed._TAKES", expected)
    rng = np.random.default_rng(5)
    low = rng.random((3000, 2)) * 9
    subscriptions = [
        Subscription(id=f"s{k}", where=f"a < {k % 7}", region=Box(x, y, x + 0.5, y + 0.2))
        for k, (x, y) in enumerate(low.tolist())
    ]
    subscriptions += [Subscription(id=f"w{k}", where=f"a < {k}") for k in range(9)]
    matcher = Matcher(index="pivot", space="planar")
    matcher.add_subscriptions(subscriptions)
    events = [
        Event(id="box", attributes={"a": 3}, location=Box(2, 3, 4, 4)),
        Event(id="area", attributes={"a": 5}, location=Polygon(((1, 1), (5, 1), (3, 4)))),
    ]
    wanted = [sorted(oracle.match_event(subscriptions, each, "planar")) for each in events]
    held = matcher.memory()["total"]
    matcher.max_bytes = held + 50_000
    made: list[object] = []

    def counted(*given) -> object:
        made.append(given)
        return PlacedClauses(*given)

    monkeypatch.setattr(pivot, "PlacedClauses", counted)
    for _ in range(2):
        assert [matcher.match_event(each) for each in events] == wanted
    assert matcher.memory()["total"] == held
    assert len(made) == (0 if expected == 100 else 1)
    matcher.max_bytes = held + 2_000_000
    assert [matcher.match_event(each) for each in events] == wanted
    assert held < matcher.memory()["total"] < matcher.max_bytes
    matcher.check_invariants()


def test_boxes_of_one_matcher_do_not_wait_for_those_of_another() -> None:
    one, other = (Matcher(index="pivot", space="planar") for _ in range(2))
    for matcher in (one, other):
        matcher.add_subscriptions(
            [Subscription(id=f"s{k}", region=Box(k, 0, k + 1, 1)) for k in range(100)]
        )
    with one.index._making, ThreadPoolExecutor(1) as pool:
        found = pool.submit(other.match_event, Event(id="e", location=Box(3.5, 0, 3.6, 1)))
        assert found.result(timeout=240) == ["s3"]


def test_memory_is_told_by_part(matcher) -> None:
    before = matcher.memory()
    assert before["total"] == sum(v for k, v in before.items() if k != "total")
    assert set(before) == {"clauses", "regions", "ids", "index", "events", "schema", "total"}
    matcher.add_events([Event(id=f"e{k}", location=BOX) for k in range(50)])
    after = matcher.memory()
    assert after["events"] > before["events"]
    for k in range(50):
        matcher.remove_event(f"e{k}")
    assert matcher.memory()["events"] < after["events"]


# --- Around -----------------------------------------------------------------------------------


def test_around_stands_where_its_subscriber_is() -> None:
    matcher = Matcher()
    near = Subscription(id="s", region=Around(1000))
    with pytest.raises(BatchError, match=r"at=Point"):
        matcher.add_subscriptions([near])
    with pytest.raises(BatchError) as caught:
        matcher.add_subscriptions([near], at=(8, 47))  # type: ignore[arg-type]
    assert caught.value.field == "at"
    with pytest.raises(BatchError) as caught:
        matcher.add_subscriptions([near], at=Point(8, 97))
    assert caught.value.field == "at.y"
    matcher.add_subscriptions([near], at=Point(8, 47))
    here, there = Event(id="h", location=Point(8.01, 47)), Event(id="t", location=Point(9, 47))
    assert matcher.match_event(here) == ["s"]
    matcher.update_subscription(near, at=Point(9, 47))
    assert matcher.match_event(here) == []
    assert matcher.match_event(there) == ["s"]
    with pytest.raises(ValidationError):
        matcher.update_subscription(near)
    assert matcher.match_event(there) == ["s"]
    matcher.add_events([here, there])
    assert matcher.match_subscription(near, at=Point(8, 47)) == ["h"]
    with pytest.raises(ValidationError):
        matcher.match_subscription(near)


# --- time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", registry.names(events=True))
def test_a_plain_subscription_takes_the_short_way_to_the_same_events(index: str) -> None:
    """Nothing but intervals and a box goes without a store, unless an event is itself a box."""
    rng = np.random.default_rng(3)
    events = [
        Event(id=f"e{i}", attributes={"a": a, "b": b}, location=Point(x, y), expires=100 + i % 2)
        for i, (a, b, x, y) in enumerate(rng.uniform(0, 10, (200, 4)).tolist())
    ]
    short, long = Matcher(index, space="planar"), Matcher(index, space="planar")
    short.add_events(events)
    long.add_events([*events, Event(id="far", location=Box(90, 90, 91, 91))])
    asked = [
        Subscription(id="q", where="a >= 2 AND b < 7", region=Box(1, 1, 8, 8)),
        Subscription(id="q", where="b BETWEEN 3 AND 4"),
        Subscription(id="q", region=Box(-1e9, 2, 5, 1e9)),
        Subscription(id="q", where="a > 1", region=Box(0, 0, 9, 9), expires=50),
        Subscription(id="q", where="a > 1 AND never < 2"),
        Subscription(id="q", where="a > 100"),
    ]
    assert short.match_subscription(asked[0])
    for now in (None, 20, 60, 100):  # time does not go back
        for query in asked:
            found = short.match_subscription(query, now)
            assert found == oracle.match_subscription(query, events, "planar", now)
            assert found == long.match_subscription(query, now)
        assert bool(short.match_subscription(asked[3], now)) == (now in (None, 20))


def test_a_table_of_one_is_what_a_store_would_hold() -> None:
    attr, low, high = np.array([0, 1, 9], np.int32), np.arange(3.0), np.arange(3.0) + 1
    store = ClauseStore()
    store.append(0, attr, low, high, None)
    made = table_of_one(attr, low, high, 10)
    for name in Clauses._fields:
        one, other = getattr(made, name), getattr(store.table, name)
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()
    wide = table_of_one(np.array([70_000], np.int32), low[:1], high[:1], 70_001)
    assert wide.attr.tolist() == [70_000]


def test_subscriptions_end() -> None:
    matcher = Matcher()
    matcher.add_subscriptions([Subscription(id="s", expires=100), Subscription(id="t")])
    assert matcher.match_event(Event(id="e")) == ["s", "t"]
    assert matcher.match_event(Event(id="e", end=99)) == ["s", "t"]
    assert matcher.match_event(Event(id="e", end=100)) == ["t"]
    assert matcher.match_event(Event(id="e", end=100), now=99) == ["s", "t"]
    assert matcher.match_event(Event(id="e", end=0), now=datetime(2026, 1, 1, tzinfo=UTC)) == ["t"]
    events = [Event(id="a", end=99), Event(id="b", end=100), Event(id="c")]
    found = [("a", "s"), ("a", "t"), ("b", "t"), ("c", "s"), ("c", "t")]
    assert pairs(matcher.match_events(events)) == found
    assert pairs(matcher.match_events(events_to_arrow(events))) == found
    assert len(pairs(matcher.match_events(events, now="1970-01-01T00:00:01Z"))) == 3


def test_events_end() -> None:
    matcher = Matcher()
    matcher.add_events([Event(id="a", expires=100), Event(id="b", location=BOX, expires=200)])
    query = Subscription(id="q", expires=300)
    assert matcher.match_subscription(query) == ["a", "b"]
    assert matcher.match_subscription(query, now=99) == ["a", "b"]
    assert matcher.match_subscription(query, now=100) == ["b"]
    assert matcher.match_subscription(query, now=200) == []
    assert matcher.match_subscription(query, now=300) == []


EVENT_INDEXES = registry.names(events=True)


@pytest.mark.parametrize("index", EVENT_INDEXES)
def test_time_does_not_go_back(index) -> None:
    """What has expired once is no longer live, whether the index has met it or not."""
    matcher = Matcher(index=index)
    points = [Event(id=f"p{i:02}", location=Point(i, 0), expires=i + 10) for i in range(40)]
    matcher.add_events([*points, Event(id="wide", location=BOX, expires=30)])
    query = Subscription(id="q")
    assert len(matcher.match_subscription(query, now=9)) == 41
    assert matcher.match_subscription(query, now=29) == [e.id for e in points[20:]] + ["wide"]
    for earlier in (None, 9, 28):
        found = matcher.match_subscription(query, now=earlier)
        assert found == [e.id for e in points[20:]] + ["wide"]
    matcher.add_events([Event(id="dead", expires=20)])
    assert "dead" not in matcher.match_subscription(query, now=5)
    matcher.check_invariants()


@pytest.mark.parametrize("given", [list, events_to_arrow])
@pytest.mark.parametrize("index", EVENT_INDEXES)
def test_the_id_of_an_event_that_has_expired_can_be_used_again(index, given) -> None:
    matcher = Matcher(index=index)
    query = Subscription(id="q", where="x > 1")
    both = [Event(id="a", attributes={"x": 2}, expires=10), Event(id="b", attributes={"x": 2})]
    matcher.add_events(given(both))
    with pytest.raises(BatchError, match="a"):
        matcher.add_events(given([Event(id="a", attributes={"x": 3})]))
    assert matcher.match_subscription(query, now=9) == ["a", "b"]
    assert matcher.match_subscription(Subscription(id="q", where="x > 5"), now=10) == []
    with pytest.raises(BatchError) as caught:  # all or none
        matcher.add_events(given([Event(id="a"), Event(id="b")]))
    assert caught.value.row == 1
    assert matcher.match_subscription(query, now=10) == ["b"]
    matcher.add_events(given([Event(id="a", attributes={"x": 3}), Event(id="c")]))
    assert matcher.match_subscription(query) == ["a", "b"]
    assert matcher.event_count == 3
    matcher.remove_event("a")
    assert matcher.expire(20) == ([], [])
    matcher.check_invariants()


def test_what_a_match_drops_is_gone() -> None:
    """Algorithm 1 of MO-Tree removes expired events that it meets: from memory and count, too."""
    matcher = Matcher(index="mo-tree", space="planar")
    query = Subscription(id="q", where="x BETWEEN 0 AND 1000")
    sizes = []
    for hour in range(30):
        matcher.add_events([
            Event(
                id=f"an event with a long id, no. {hour}-{i}",
                attributes={"x": i},
                location=Box(i, 0, i + 1, 1) if i % 10 == 0 else Point(i, 0),
                keywords=["sale"],
                expires=hour * 10 + 5,
            )
            for i in range(100)
        ])  # fmt: skip
        assert len(matcher.match_subscription(query, now=hour * 10)) == 100
        assert matcher.event_count == 100
        assert matcher.match_subscription(query, now=hour * 10 + 5) == []
        assert matcher.event_count == 0
        matcher.check_invariants()
        sizes.append(matcher.memory()["total"])
    assert sizes[-1] <= 1.2 * sizes[4]
    with pytest.raises(UnknownIdError):
        matcher.remove_event("an event with a long id, no. 0-1")


def test_expire_tells_whom() -> None:
    matcher = Matcher()
    either = "a < 1 OR b < 1"
    matcher.add_subscriptions(
        [Subscription(id=f"s{k}", where=either, expires=k * 10) for k in range(5)]
        + [Subscription(id="z")]
    )
    matcher.add_events([Event(id=f"e{k}", expires=k * 10, location=BOX) for k in range(5)])
    matcher.add_events([Event(id="f", expires=5)])
    assert matcher.expire(20) == (["s0", "s1", "s2"], ["e0", "e1", "e2", "f"])
    assert matcher.expire(20) == ([], [])
    assert (len(matcher), matcher.event_count) == (3, 2)
    assert matcher.match_event(Event(id="e", attributes={"a": 0, "b": 0})) == ["s3", "s4", "z"]
    assert matcher.match_subscription(Subscription(id="q", region=BOX)) == ["e3", "e4"]
    matcher.check_invariants()


# --- reports and explanations -----------------------------------------------------------------


@pytest.mark.parametrize("index", registry.names(subscriptions=True))
def test_reports_count(index) -> None:
    matcher = Matcher(index)
    matcher.add_subscriptions([Subscription(id=f"s{k}", where=f"price < {k}") for k in range(9)])
    ids, report = matcher.match_report(sold(4.5))
    assert ids == ["s5", "s6", "s7", "s8"]
    assert report.matches >= 4
    assert report.candidates >= report.matches
    assert report.nodes >= 0


def told(matcher: Matcher, subscription: Subscription, event: Event) -> str:
    """The explanation, after a check that it says what matching says."""
    matcher.add_subscriptions([subscription])
    explanation = matcher.explain(subscription.id, event)
    assert explanation.matched is (subscription.id in matcher.match_event(event))
    verb = "matches" if explanation.matched else "does not match"
    assert str(explanation).startswith(f"{subscription.id} {verb} {event.id}")
    return str(explanation)


SEEN = Event(
    id="e",
    attributes={"price": 3200, "brand": "A", "open": True, "big": 2**53 + 1},
    keywords={"sale"},
    location=Point(8, 47),
    end=50,
)
TRIANGLE = Polygon([(7, 46), (9, 46), (8, 48)])


@pytest.mark.parametrize(
    ("subscription", "line"),
    [
        (Subscription(id="s"), "✓ no restriction"),
        (Subscription(id="s", where="price < 3300"), "✓ price < 3300: the event has 3200"),
        (Subscription(id="s", where="price > 3200"), "✗ price > 3200: the event has 3200"),
        (Subscription(id="s", where="price <= 10"), "✗ price ≤ 10.0"),
        (Subscription(id="s", where="price BETWEEN 1 AND 2"), "✗ price ≥ 1.0 and ≤ 2.0"),
        (Subscription(id="s", where="price = 3200"), "✓ price = 3200"),
        (Subscription(id="s", where="big = 9007199254740992"), "✓ big = 9007199254740992"),
        (Subscription(id="s", where="price = 'a'"), "✗ price = 'a': the event has 3200, a number"),
        (Subscription(id="s", where="brand = 'A'"), "✓ brand = 'A': the event has 'A'"),
        (Subscription(id="s", where="brand = 'B'"), "✗ brand = 'B': the event has 'A'"),
        (Subscription(id="s", where="open = FALSE"), "✗ open = FALSE: the event has True"),
        (Subscription(id="s", where="size < 3"), "✗ size < 3: the event has no such attribute"),
        (Subscription(id="s", where="size IS NULL"), "✓ size IS NULL"),
        (Subscription(id="s", where="brand <> 'A'"), "✗ brand <> 'A': the event has 'A'"),
        (Subscription(id="s", where="brand LIKE 'B%'"), "✗ brand LIKE 'B%': the event has 'A'"),
        (Subscription(id="s", where="size <> 3"), "the event has no such attribute"),
        (Subscription(id="s", where="price < 1 AND price > 2"), "contradicts itself"),
        (Subscription(id="s", where="price < 1 OR brand = 'A'"), "clause 2 of 2 holds"),
        (Subscription(id="s", where="price < 1 OR brand = 'B'"), "clause 2 of 2 fails"),
        (Subscription(id="s", keywords={"Sale"}), "✓ keyword 'sale': it is there"),
        (Subscription(id="s", keywords={"new"}), "✗ keyword 'new': the event has sale"),
        (Subscription(id="s", where="A_CONTAINS(keywords, ('new'))"), "✗ keyword 'new'"),
        (Subscription(id="s", where="NOT A_CONTAINS(keywords, ('new'))"), "✓ NOT"),
        (Subscription(id="s", region=Circle(8, 47, 10)), "✓ location within 10 m of (8, 47)"),
        (Subscription(id="s", region=Circle(8, 48, 10)), "111195 m away"),
        (Subscription(id="s", region=BOX), "✗ location in the box (0, 0) – (1, 1)"),
        (Subscription(id="s", region=Box(7, 46, 8, 47)), "✓ location in the box"),
        (Subscription(id="s", region=TRIANGLE), "✓ location in the polygon of 3 points"),
        (Subscription(id="s", where="S_DWITHIN(location, POINT(8 48), 5, meters)"), "✗ location"),
        (Subscription(id="s", expires=51), "✓ valid until 1970-01-01T00:00:00.000051Z"),
        (Subscription(id="s", expires=50), "✗ valid until 1970-01-01T00:00:00.00005Z: it is"),
    ],
)
def test_explanations_say_what_decided(subscription, line) -> None:
    assert line in told(Matcher(), subscription, SEEN)


def test_explanations_of_places() -> None:
    matcher = Matcher()
    nowhere = Event(id="e")
    assert "the event has no location" in told(matcher, Subscription(id="a", region=BOX), nowhere)
    wide = Event(id="e", location=Box(7, 46, 9, 48))
    assert "the event covers a box" in told(matcher, Subscription(id="b", region=TRIANGLE), wide)
    pacific = Subscription(id="c", region=Circle(180, 0, 200_000))
    assert "✓ location within" in told(matcher, pacific, Event(id="e", location=Point(-179, 0)))
    away = told(matcher, Subscription(id="d", region=Circle(179.5, 0, 9)), SEEN)
    assert away.count("✗") == 1
    either = Subscription(id="f", where="x < 1 OR y < 1", region=Circle(180, 0, 200_000))
    assert "clause 2 of 2 fails" in told(matcher, either, Event(id="e", location=Point(-179, 0)))
    for id, where in (("g", None), ("h", "x < 1 OR y < 1")):
        across = Subscription(id=id, where=where, region=Box(170, 0, -170, 1))
        for x, mark in ((175, "✓"), (-175, "✓"), (0, "✗")):
            seen = Event(id="e", attributes={"x": 0}, location=Point(x, 0))
            story = told(matcher, across, seen)
            assert f"{mark} location in the box (170, 0) – (-170, 1)" in story
            assert ("of 2" in story) is (where is not None)
            assert "of 4" not in story
            matcher.remove_subscription(id)
    with pytest.raises(ValidationError):
        matcher.explain("a", Event(id="e", location=Point(0, 95)))
    plane = Matcher(space="planar")
    assert "5 away" in told(plane, Subscription(id="a", region=Circle(5, 47 + 4, 5)), SEEN)


def test_what_is_nowhere_is_neither_inside_nor_outside():
    nowhere, there = Event(id="n"), Event(id="t", location=Point(50, 5))
    matcher = Matcher()
    matcher.add_subscriptions(
        [
            Subscription(id="in", where="S_INTERSECTS(location, POINT(50 5))"),
            Subscription(id="out", where="NOT S_INTERSECTS(location, POINT(10 10))"),
        ]
    )
    assert matcher.match_event(nowhere) == []
    assert matcher.match_event(there) == ["in", "out"]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), space=st.sampled_from(["globe", "planar"]))
def test_explanations_agree_with_the_oracle(data, space: Space) -> None:
    matcher = Matcher("scan", space)
    subscriptions = data.draw(subscription_lists(space, max_size=4))
    matcher.add_subscriptions(subscriptions)
    event = data.draw(plain_events(space, extended=True))
    for subscription in subscriptions:
        wanted = oracle.matches(subscription, event, space)
        explanation = matcher.explain(subscription.id, event)
        assert explanation.matched is wanted
        assert str(explanation)


# --- tables give what objects give ------------------------------------------------------------


def plain_events(space: str, extended: bool = False) -> st.SearchStrategy[Event]:
    """Events whose attributes have one type each, so that a table holds them in columns."""
    numbers = st.sampled_from([-1, 0, 0.5, 2, 3, 1e300, 2**53, math.nan, math.inf])
    strings = st.sampled_from(["", "a", "ab", "é"])
    attributes = st.fixed_dictionaries(
        {},
        optional={
            "price": numbers, "size": numbers, "brand": strings, "name": strings,
            "open": st.booleans(),
        },
    )  # fmt: skip
    places = st.none() | (locations(space) if extended else points(space))
    ids = st.integers(0, 99).map("e{}".format)
    return st.builds(
        lambda id, attributes, words, place, end: Event(
            id, attributes, words, place, None, end, end
        ),
        ids, attributes, keywords(), places, st.none() | times(),
    )  # fmt: skip


def with_intervals(table: pa.Table, data: st.DataObject) -> pa.Table:
    """The table with ready intervals, and no `where` in about half of its rows."""
    ends = st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 2.0, 3.0, 1e300, math.inf])
    names = st.sampled_from(["price", "size", "brand"])
    interval = st.fixed_dictionaries({"attribute": names, "low": ends, "high": ends})
    n = table.num_rows
    rows = data.draw(st.lists(st.none() | st.lists(interval, max_size=3), min_size=n, max_size=n))
    kept = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    where = [w if keep else None for w, keep in zip(table["where"].to_pylist(), kept, strict=True)]
    table = table.set_column(
        table.column_names.index("where"), "where", pa.array(where, pa.string())
    )
    struct = pa.struct([("attribute", pa.string()), ("low", pa.float64()), ("high", pa.float64())])
    column = pa.array(rows, pa.list_(struct))
    if "intervals" in table.column_names:
        return table.set_column(table.column_names.index("intervals"), "intervals", column)
    return table.append_column("intervals", column)


@pytest.mark.parametrize("space", ["globe", "planar"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_tables_of_subscriptions_match_as_objects_do(space: Space, data) -> None:
    table = subscriptions_to_arrow(data.draw(subscription_lists(space, max_size=6)))
    table = with_intervals(table, data)
    objects = subscriptions_from_arrow(table)
    cut = data.draw(st.integers(0, table.num_rows))
    matcher = Matcher(space=space)
    matcher.add_subscriptions(table.slice(0, cut))
    matcher.add_subscriptions(pa.concat_tables([table.slice(cut), table.slice(0, 0)]))
    matcher.check_invariants()
    assert len(matcher) == len(objects)
    events = data.draw(st.lists(plain_events(space, True), max_size=4, unique_by=lambda e: e.id))
    for event in events:
        wanted = oracle.match_event(objects, event, space)
        assert matcher.match_event(event) == wanted
        for subscription in objects:
            told = matcher.explain(subscription.id, event).matched
            assert told is (subscription.id in wanted)
    for subscription in objects[::2]:
        matcher.remove_subscription(subscription.id)
    for event in events:
        assert matcher.match_event(event) == oracle.match_event(objects[1::2], event, space)


@pytest.mark.parametrize("space", ["globe", "planar"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_tables_of_events_match_as_objects_do(space: Space, data) -> None:
    extended = data.draw(st.booleans())
    events = data.draw(
        st.lists(plain_events(space, extended), max_size=6, unique_by=lambda e: e.id)
    )
    subscriptions = data.draw(subscription_lists(space, max_size=5))
    table = events_to_arrow(events)
    matcher = Matcher(space=space)
    matcher.add_subscriptions(subscriptions)
    wanted = sorted(
        (e.id, id) for e in events for id in oracle.match_event(subscriptions, e, space)
    )
    assert pairs(matcher.match_events(table)) == wanted
    assert pairs(matcher.match_events(events)) == wanted
    matcher.add_events(table)
    matcher.check_invariants()
    now = data.draw(st.none() | times())
    for subscription in subscriptions:
        found = matcher.match_subscription(subscription, now)
        assert found == oracle.match_subscription(subscription, events, space, now)


def test_nan_is_there_though_no_interval_holds_it() -> None:
    events = [Event(id="nan", attributes={"x": math.nan}), Event(id="none")]
    for given_events in (events, events_to_arrow(events)):
        matcher = Matcher()
        matcher.add_subscriptions([Subscription(id="null", where="x IS NULL")])
        matcher.add_events(given_events)
        assert matcher.match_subscription(Subscription(id="q", where="x IS NULL")) == ["none"]
        assert pairs(matcher.match_events(given_events)) == [("none", "null")]
        assert matcher.match_subscription(Subscription(id="q", where="x > 0 OR x <= 0")) == []


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["a", "b", "c"], pa.large_string()),
        pa.array(["a", "b", "c"], pa.string_view()),
        pa.array(["a", "b", "c"]).dictionary_encode(),
        pa.chunked_array([["a"], [], ["b", "c"]], pa.string()),
        pa.array(["0", "a", "b", "c", "1"]).slice(1, 3),
    ],
)
def test_strings_in_every_form(ids) -> None:
    matcher = Matcher()
    matcher.add_subscriptions(pa.table({"id": ids}))
    matcher.add_events(pa.table({"id": ids}))
    assert pairs(matcher.match_events(pa.table({"id": ids}))) == [
        (e, s) for e in "abc" for s in "abc"
    ]
    assert matcher.match_subscription(Subscription(id="q")) == ["a", "b", "c"]
    matcher.check_invariants()


@pytest.mark.parametrize("type", [pa.int8(), pa.uint64(), pa.float32()])
def test_numbers_in_every_form(type) -> None:
    matcher = Matcher()
    interval = pa.struct([("attribute", pa.string()), ("low", type), ("high", type)])
    wanted: Any = [[{"attribute": "price", "low": 1, "high": 3}]]
    matcher.add_subscriptions(
        pa.table({"id": ["s"], "intervals": pa.array(wanted, pa.list_(interval))})
    )
    struct = pa.StructArray.from_arrays([pa.array([2, 4, None]).cast(type)], names=["price"])
    events = pa.table({"id": ["a", "b", "c"], "attributes": struct})
    assert pairs(matcher.match_events(events)) == [("a", "s")]


@pytest.mark.parametrize(("unit", "value"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_times_in_every_unit(unit, value) -> None:
    matcher = Matcher()
    expires = pa.array([value, None], pa.timestamp(unit, tz="Europe/Berlin"))
    matcher.add_subscriptions(pa.table({"id": ["s", "t"], "expires": expires}))
    assert matcher.match_event(Event(id="e", end=999_999)) == ["s", "t"]
    assert matcher.match_event(Event(id="e", end=1_000_000)) == ["t"]


def test_columns_of_nulls_are_no_columns() -> None:
    columns = ["where", "intervals", "keywords", "lon", "lat", "radius_m", "geometry", "expires"]
    matcher = Matcher()
    matcher.add_subscriptions(pa.table({"id": ["s"], **{name: pa.nulls(1) for name in columns}}))
    nothing = {name: pa.nulls(1) for name in ("attributes", "lon", "lat", "keywords", "end")}
    assert pairs(matcher.match_events(pa.table({"id": ["e"], **nothing}))) == [("e", "s")]


def test_a_batch_large_enough_for_several_threads() -> None:
    matcher = Matcher(threads=3, space="planar")
    matcher.add_subscriptions(
        [
            Subscription(id="odd", where="k <> 4 AND odd = TRUE"),
            Subscription(id="near", region=Circle(0, 0, 10)),
            Subscription(id="late", expires=200),
        ]
    )
    events = [
        Event(id=str(k), attributes={"k": k, "odd": k % 2 == 1}, location=Point(k, 0), end=k)
        for k in range(300)
    ]
    wanted = sorted(
        [(str(k), "odd") for k in range(1, 300, 2)]
        + [(str(k), "near") for k in range(11)]
        + [(str(k), "late") for k in range(200)]
    )
    assert pairs(matcher.match_events(events)) == wanted
    assert pairs(matcher.match_events(events_to_arrow(events))) == wanted


# --- places -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mo", "di", "lf", "city"])
@pytest.mark.parametrize("index", ["pivot", "scan"])
def test_batches_take_the_places_of_those_that_left(name: str, index: str) -> None:
    """What comes and goes in batches for ever takes no more memory than what is there at once."""
    source = workload(name, seed=3)
    rounds, size = 12, 60
    wanted, told = source.subscription_table(rounds * size), source.event_table(rounds * size)
    matcher = Matcher(index=index, space=source.space)
    here: deque[tuple[pa.Table, pa.Table]] = deque()
    taken = []
    for i in range(rounds):
        here.append((wanted.slice(i * size, size), told.slice(i * size, size)))
        matcher.add_subscriptions(here[-1][0])
        matcher.add_events(here[-1][1])
        if len(here) > 2:
            old = here.popleft()
            for id in old[0]["id"].to_pylist()[::-1]:
                matcher.remove_subscription(id)
            for id in old[1]["id"].to_pylist():
                matcher.remove_event(id)
        taken.append(matcher._standing.store.rows + matcher._live.store.rows)
        matcher.check_invariants()
        afresh = Matcher(index="scan", space=source.space)
        afresh.add_subscriptions(pa.concat_tables([pair[0] for pair in here]))
        asked = told.slice(0, 20)
        assert pairs(matcher.match_events(asked)) == pairs(afresh.match_events(asked))
    assert taken[-1] == taken[len(taken) // 2]


def test_the_antimeridian_is_one_line() -> None:
    matcher = Matcher()
    regions: dict[str, Region] = {
        "west": Box(-180, -1, -179, 1),
        "east": Box(179, -1, 180, 1),
        "across": Box(179, -1, -179, 1),
        "line": Box(180, -1, -180, 1),
        "circle": Circle(180, 0, 1000),
        "other": Circle(-180, 0, 1000),
        "polygon": Polygon([(179, -1), (181, -1), (180, 1)]),
        "far": Polygon([(-181, -1), (-179, -1), (-180, 1)]),
    }
    matcher.add_subscriptions([Subscription(id=k, region=r) for k, r in regions.items()])
    for x in (180, -180):
        spots: list[Location] = [Point(x, 0), Box(x, 0, x, 0)]
        for spot in spots:
            assert matcher.match_event(Event(id="e", location=spot)) == sorted(regions)
        table = pa.table({"id": ["e"], "lon": [float(x)], "lat": [0.0]})
        assert len(pairs(matcher.match_events(table))) == len(regions)
        matcher.add_events(
            [Event(id=f"{x}", location=spots[0]), Event(id=f"{x} box", location=spots[1])]
        )
    for region in regions.values():
        assert len(matcher.match_subscription(Subscription(id="q", region=region))) == 4
    assert matcher.match_event(Event(id="e", location=Point(178.5, 0))) == []


def test_a_box_across_the_antimeridian_keeps_its_borders() -> None:
    for xmax in (-0.1, -1e-20, 0.3, 100.7):
        matcher = Matcher()
        matcher.add_subscriptions([Subscription(id="s", region=Box(170.1, 0, xmax, 1))])
        beyond = math.nextafter(xmax, 180)
        for x, wanted in ((xmax, ["s"]), (beyond, []), (170.1, ["s"]), (170.0, [])):
            assert matcher.match_event(Event(id="e", location=Point(x, 1))) == wanted


def test_poles() -> None:
    matcher = Matcher()
    matcher.add_subscriptions(
        [
            Subscription(id="cap", region=Circle(0, 90, 100_000)),
            Subscription(id="near", region=Circle(10, 89.5, 100_000)),
            Subscription(id="top", region=Box(-180, 89, 180, 90)),
            Subscription(id="south", region=Circle(0, -90, 100_000)),
        ]
    )
    assert matcher.match_event(Event(id="e", location=Point(123, 90))) == ["cap", "near", "top"]
    assert matcher.match_event(Event(id="e", location=Point(-170, 89.7))) == ["cap", "near", "top"]
    assert matcher.match_event(Event(id="e", location=Point(55, -90))) == ["south"]
    strip = Event(id="e", location=Box(-180, 89.9, 180, 90))
    assert matcher.match_event(strip) == ["cap", "near", "top"]


@pytest.mark.parametrize("space", ["globe", "planar"])
def test_extended_locations_after_many_changes(space: Space, monkeypatch) -> None:
    monkeypatch.setattr(extended, "_FEW", 3)
    choose = np.random.default_rng(7)
    matcher = Matcher(space=space)
    standing: dict[str, Subscription] = {}
    live: dict[str, Event] = {}
    frame = Polygon([(0, 0), (4, 0), (4, 4), (0, 4)], [[(1, 1), (3, 1), (3, 3), (1, 3)]])
    places: list[Location] = [BOX, Box(2, 2, 3, 3), TRIANGLE, frame, Point(0.5, 0.5)]
    regions: list[Region | None] = [BOX, Circle(2, 2, 0.5), TRIANGLE, Box(1.5, 1.5, 2.5, 2.5), None]
    if space == "globe":
        places += [Box(179, 0, -179, 1), Polygon([(178, 0), (182, 0), (180, 3)])]
        regions += [Box(179.5, 0, -170, 1), Circle(-179.9, 0.5, 50_000)]
    for step in range(60):
        id = f"{step % 17}"
        region = regions[choose.integers(len(regions))]
        subscription = Subscription(id=id, where="a = 1 OR b = 1" if step % 3 else None,
                                    region=region)  # fmt: skip
        if id not in standing:
            matcher.add_subscriptions([subscription])
        elif step % 2:
            matcher.update_subscription(subscription)
        else:
            matcher.remove_subscription(id)
            del standing[id]
        if id in matcher:
            standing[id] = subscription
        if id in live:
            matcher.remove_event(id)
            del live[id]
        place = places[choose.integers(len(places))]
        live[id] = Event(id=id, attributes={"a": step % 2, "b": 1 - step % 2}, location=place)
        matcher.add_events([live[id]])
        assert matcher.match_event(live[id]) == oracle.match_event(
            standing.values(), live[id], space
        )
        assert matcher.match_subscription(subscription) == oracle.match_subscription(
            subscription, live.values(), space
        )
    matcher.check_invariants()


# --- threads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["auto", "scan", "r-star-tree"])
def test_each_match_sees_one_state(index, monkeypatch) -> None:
    monkeypatch.setattr(extended, "_FEW", 2)
    matcher = Matcher(index)
    always = [Subscription(id=f"a{k}", region=BOX) for k in range(20)]
    matcher.add_subscriptions(always)
    base = sorted(s.id for s in always)
    both = [Subscription(id="x", region=BOX), Subscription(id="y", where="p < 5 OR q < 5")]
    allowed = [sorted(base + more) for more in ([], ["x", "y"], ["y"])]
    spots = [Event(id="e", attributes={"p": 1}, location=spot) for spot in (Point(0.5, 0.5), BOX)]
    wrong: list[object] = []
    done = threading.Event()

    def write() -> None:
        try:
            for _ in range(25):
                matcher.add_subscriptions(both)
                matcher.remove_subscription("x")
                matcher.remove_subscription("y")
        except Exception as error:
            wrong.append(error)
        finally:
            done.set()

    def read() -> None:
        try:
            while not done.is_set():
                for event in spots:
                    found = matcher.match_event(event)
                    if found not in allowed:
                        wrong.append(found)
                table = matcher.match_events(spots[:1])
                if sorted(table["subscription_id"].to_pylist()) not in allowed:
                    wrong.append(table)
                matcher.memory()
                assert "a0" in matcher
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)] + [threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert matcher.match_event(spots[0]) == base
    matcher.check_invariants()


def test_a_writer_that_gives_up_blocks_nobody(monkeypatch) -> None:
    lock = ReadWriteLock()
    with lock.read():

        def interrupted(timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(lock._changed, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt), lock.write():
                raise AssertionError("a reader holds the lock")
        with lock.read():  # would wait forever for the writer that left
            pass
    with lock.write():
        pass


def test_readers_get_their_turn_while_a_writer_never_rests() -> None:
    lock = ReadWriteLock()
    stop = threading.Event()

    def write_on() -> None:
        while not stop.is_set():
            with lock.write():
                pass

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        reads = 0
        while reads < 200:  # would hardly ever get in behind a writer that is preferred
            with lock.read():
                reads += 1
    finally:
        stop.set()
        writer.join()
    assert reads == 200


def test_who_prepares_a_change_holds_off_writers_and_no_readers() -> None:
    lock = ReadWriteLock()
    entered = threading.Event()

    def write() -> None:
        with lock.write():
            entered.set()

    writer = threading.Thread(target=write)
    with lock.change():
        writer.start()
        with lock.read():
            assert not entered.wait(0.05)
        with lock.alone():
            assert not entered.is_set()
    writer.join(240)
    assert entered.is_set()


def test_an_interrupted_reader_does_not_strand_a_writer(monkeypatch) -> None:
    lock = ReadWriteLock()
    lock._writing = True
    told: list[None] = []

    def interrupted(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(lock._changed, "wait", interrupted)
    monkeypatch.setattr(lock._changed, "notify_all", lambda: told.append(None))
    with pytest.raises(KeyboardInterrupt), lock.read():
        raise AssertionError("a writer holds the lock")
    assert told


# --- places in filters ------------------------------------------------------------------------

HALVES = (
    "MULTIPOLYGON(((170 0, 180 0, 180 9, 170 9, 170 0)),"
    " ((-180 0, -170 0, -170 9, -180 9, -180 0)))"
)
BAND = "POLYGON((-180 0, 180 0, 180 9, -180 9, -180 0))"
LARGE = "POLYGON((-60 40, 60 40, 60 60, -60 60, -60 40))"
END = math.nextafter(-100.1, 0)


@pytest.mark.parametrize(
    ("where", "location", "wanted"),
    [
        (f"S_WITHIN(location, {HALVES})", Box(175, 1, -175, 2), True),
        (f"S_WITHIN(location, {HALVES})", Polygon([(175, 1), (185, 1), (185, 2)]), True),
        (f"S_WITHIN(location, {HALVES})", Box(175, 1, -169, 2), False),
        (f"NOT S_WITHIN(location, {HALVES})", Box(175, 1, -169, 2), True),
        (f"S_WITHIN(location, {BAND})", Box(175, 1, -175, 2), True),
        (f"NOT S_WITHIN(location, {BAND})", Box(175, 1, -175, 2), False),
        ("S_WITHIN(location, BBOX(-180, 0, 180, 9))", Box(175, 1, -175, 2), True),
        ("S_WITHIN(location, BBOX(-180, 0, 180, 9))", Box(175, 1, -175, 10), False),
        ("NOT S_INTERSECTS(location, BBOX(170, 0, -100.1, 9))", Point(-100.1, 1), False),
        ("NOT S_INTERSECTS(location, BBOX(170, 0, -100.1, 9))", Point(END, 1), True),
        ("NOT S_INTERSECTS(location, BBOX(170, 0, -100.1, 9))", Box(END, 1, -90, 2), True),
        ("S_INTERSECTS(location, BBOX(170, 0, -100.1, 9))", Box(END, 1, -90, 2), False),
        (f"S_DWITHIN(location, {LARGE}, 1)", Point(0, 59.9), True),
        (f"S_DWITHIN(location, {LARGE}, 1)", Box(-0.1, 59.7, 0.1, 59.9), True),
        (f"S_DWITHIN(location, {LARGE}, 112000)", Point(0, 61), True),
        (f"S_DWITHIN(location, {LARGE}, 100000)", Point(0, 61), False),
        (f"NOT S_DWITHIN(location, {LARGE}, 100000)", Point(0, 61), True),
        ("S_DWITHIN(location, POINT(0 61), 112000)", Box(-60, 40, 60, 60), True),
        ("S_DWITHIN(location, POINT(0 0), 10000000)", Box(180, -2, 180, 2), False),
        ("S_DWITHIN(location, BBOX(-1, -1, 1, 1), 10000000)", Box(180, -2, 180, 2), False),
        ("S_DWITHIN(location, BBOX(-180, -85, 180, 85), 0)", Box(179, 1, -179, 2), True),
    ],
)
def test_places_across_the_antimeridian_and_large_ones(where, location, wanted) -> None:
    event = Event(id="e", location=location)
    subscription = Subscription(id="s", where=where)
    assert oracle.matches(subscription, event) is wanted
    for index in ("scan", "pivot"):
        matcher = Matcher(index=index)
        matcher.add_subscriptions([subscription])
        assert matcher.match_event(event) == ["s"] * wanted
        assert matcher.explain("s", event).matched is wanted
        matcher.add_events([event])
        assert matcher.match_subscription(subscription) == ["e"] * wanted


@pytest.mark.parametrize("space", ["planar", "globe"])
@pytest.mark.parametrize("index", ["pivot", "scan"])
def test_spots_are_those_of_the_events_that_match(space: Space, index: str):
    """Points and halls with their places, events without one left out; ids when asked for."""
    rng = np.random.default_rng(5)
    matcher = Matcher(index=index, space=space)
    places: dict[str, Any] = {}
    unit = 1.0 if space == "planar" else 1e-5
    for i in range(300):
        x, y = (rng.uniform(-1, 1, 2) * 1000 * unit).tolist()
        x = x + 180.0 if x < 0 and space == "globe" and i % 2 else x
        location: Any = Point(x, y)
        if i % 10 == 0:
            east = x + 50 * unit
            location = Box(x, y, min(east, 180.0) if space == "globe" else east, y + 50 * unit)
        elif i % 10 == 1:
            location = None
        places[f"e{i}"] = location
        few = {} if i % 10 == 2 else {"kind": float(i % 3)}
        matcher.add_events([Event(id=f"e{i}", attributes=few, location=location)])
        if i == 150:
            extended_later = matcher.match_spots(Subscription(id="s", region=Circle(0, 0, 500)))
            assert extended_later.extended
    for where in (None, "kind < 2", "kind = 1 OR kind = 2"):
        for region in (None, Circle(0, 0, 700), Circle(180 if space == "globe" else 3, 0, 800)):
            wanted = Subscription(id="s", where=where, region=region)
            spots = matcher.match_spots(wanted)
            ids = matcher.event_ids(spots.numbers)
            found = [id for id in matcher.match_subscription(wanted) if places[id] is not None]
            assert sorted(ids) == found
            for at, id in enumerate(ids):
                if isinstance(places[id], Point):
                    assert (spots.x[at], spots.y[at]) == (places[id].x, places[id].y)
                else:
                    assert spots.extended[at] == places[id]
