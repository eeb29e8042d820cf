"""The partitioned plan without Spark: every pair meets in one unit, and in one only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Matcher
from nearcast.errors import BatchError
from nearcast.model.codec import events_to_arrow, subscriptions_to_arrow
from nearcast.model.geometry import Space
from nearcast.spark.boxes import asked_columns, clause_boxes, event_points
from nearcast.spark.partitioning import Cells, Sample, cut_cells
from nearcast.spark.workers import EventUnits, SubscriptionUnits, UnitMatching
from tests.strategies import event_lists, subscription_lists

NUMBERS = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 5.0, float("nan")])
ENDS = st.sampled_from([-np.inf, 0.0, 1.0, 2.0, 3.0, 4.0, np.inf])


def cells_of(points: np.ndarray, low: np.ndarray, high: np.ndarray, rows: int) -> Cells:
    names = tuple(f".{k}" for k in range(points.shape[1]))
    return cut_cells(Sample(points, low, high, 1.0, 1.0), names, rows)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_event_and_a_clause_that_match_share_exactly_one_unit(data: st.DataObject):
    width = data.draw(st.integers(1, 3))
    rows_of = st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=1, max_size=25)
    points = np.array(data.draw(rows_of))
    ends = st.lists(st.lists(ENDS, min_size=width, max_size=width), min_size=1, max_size=20)
    low = np.array(data.draw(ends))
    high = np.maximum(low, np.resize(np.array(data.draw(ends)), low.shape))
    cells = cells_of(points, low, high, data.draw(st.integers(1, 12)))
    hashes = np.array([data.draw(st.integers(0, 2**40)) for _ in points])
    others = np.array([data.draw(st.integers(0, 2**40)) for _ in low])
    offsets, units = cells.event_units(cells.cells_of_points(points), hashes)
    clauses, met = cells.cells_of_clauses(low, high)
    starts, theirs = cells.subscription_units(met, others[clauses])
    for e, point in enumerate(points):
        mine = units[offsets[e] : offsets[e + 1]].tolist()
        assert len(set(mine)) == len(mine) >= 1
        for c in range(low.shape[0]):
            shared = [
                unit
                for k in np.flatnonzero(clauses == c).tolist()
                for unit in theirs[starts[k] : starts[k + 1]].tolist()
                if unit in mine
            ]
            wanted = (low[c] == -np.inf) & (high[c] == np.inf)  # not asked: missing is fine
            holds = wanted | ((low[c] <= point) & (point <= high[c]))
            assert len(shared) == 1 if holds.all() else len(shared) <= 1
    assert max(units.max(initial=0), theirs.max(initial=0)) < cells.units


def test_cells_follow_the_density():
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal(0, 0.01, (9000, 2)), rng.uniform(-50, 50, (1000, 2))])
    boxes = rng.uniform(-50, 50, (500, 2))
    cells = cells_of(points, boxes - 0.1, boxes + 0.1, 500)
    sizes = np.bincount(cells.cells_of_points(points), minlength=cells.count)
    assert sizes.max() < 750
    assert cells.count > 15
    assert (cells.event_shards == 1).all()


def test_what_no_cut_makes_lighter_is_split_into_shards():
    points = np.zeros((1000, 2))
    everywhere = np.full((300, 2), np.inf)
    cells = cells_of(points, -everywhere, everywhere, 100)
    assert cells.count == 1
    assert (cells.event_shards[0], cells.subscription_shards[0]) == (10, 3)
    assert cells.units == 30


def test_clauses_without_a_place_are_cut_by_a_number():
    rng = np.random.default_rng(2)
    points = rng.uniform(0, 1, (2000, 3))
    low = np.full((2000, 3), -np.inf)
    high = np.full((2000, 3), np.inf)
    low[:, 2] = rng.uniform(0, 1, 2000)
    high[:, 2] = low[:, 2] + 0.001
    cells = cells_of(points, low, high, 500)
    assert set(cells.axis.tolist()) == {-1, 2}
    assert cells.cells_of_clauses(low, high)[0].size < 2100


def lists(array: pa.Array) -> list[Any]:
    return list(array.to_pylist())


def by_cells(subscriptions: list, events: list, space: Space, rows: int, strict: bool = False):
    """The plan as Spark would carry it out, on tables."""
    wanted, given_events = subscriptions_to_arrow(subscriptions), events_to_arrow(events)
    wanted = wanted.drop_columns(["subscriber"])
    columns: tuple[str, ...] = ("@x", "@y")
    if "attributes_json" not in given_events.column_names:
        columns += asked_columns(wanted, space, 3)
    arrays = {n: given_events[n].combine_chunks() for n in ("lon", "lat", "geometry")}
    if "attributes" in given_events.column_names:
        attributes = given_events["attributes"].combine_chunks()
        for column in columns[2:]:
            at = attributes.type.get_field_index(column[1:])
            if at >= 0 and pa.types.is_floating(attributes.type[at].type):
                arrays[column] = attributes.field(at)
    points = event_points(arrays, columns, space)
    _, low, high = clause_boxes(wanted, columns, space, strict)
    cells = cut_cells(Sample(points, low, high, 1.0, 1.0), columns, rows)
    hashes = pa.array([hash(event.id) for event in events], pa.int64())
    others = pa.array([hash(each.id) for each in subscriptions], pa.int64())
    to_units = EventUnits(cells, (*arrays, "#"), space)
    units = lists(to_units(*arrays.values(), hashes))
    to_homes = SubscriptionUnits(cells, (*wanted.column_names, "#"), space, strict)
    homes = lists(to_homes(*(wanted[n].combine_chunks() for n in wanted.column_names), others))
    work = UnitMatching("scan", space, strict)
    found: list[Any] = []
    for unit in range(cells.units):
        mine = [row for row, some in enumerate(units) if unit in some]
        theirs = [(r, s["home"]) for r, some in enumerate(homes) for s in some if s["unit"] == unit]
        left = given_events.take(pa.array(mine, pa.int64()))
        right = wanted.take(pa.array([row for row, _ in theirs], pa.int64()))
        left = left.append_column("_unit", pa.array([unit] * len(mine), pa.int32()))
        right = right.append_column("_unit", pa.array([unit] * len(theirs), pa.int32()))
        right = right.append_column("_home", pa.array([h for _, h in theirs], pa.bool_()))
        found += zip(*work(left, right).to_pydict().values(), strict=True)
    return sorted(found), cells


@settings(max_examples=60, deadline=None)
@given(data=st.data(), space=st.sampled_from(["globe", "planar"]), rows=st.integers(1, 6))
def test_unit_by_unit_is_the_whole(data: st.DataObject, space: Space, rows: int):
    subscriptions = data.draw(subscription_lists(space, max_size=8))
    events = data.draw(event_lists(space, max_size=8))
    matcher = Matcher("scan", space)
    try:
        matcher.add_subscriptions(subscriptions)
    except BatchError:  # Around: it stands nowhere
        return
    whole = matcher.match_events(events)
    if not subscriptions or not events:
        return
    found, _ = by_cells(subscriptions, events, space, rows)
    assert found == sorted(zip(*whole.to_pydict().values(), strict=True))


def test_a_bad_subscription_goes_nowhere_unless_it_is_to_be_an_error():
    table = pa.table({"id": ["a", "b", "c"], "where": ["x < 1", "x <", "x > 1 OR y > 1"]})
    owner, low, _ = clause_boxes(table, ("@x", "@y", ".x"), "globe", False)
    assert owner.tolist() == [0, 2, 2]
    assert low.shape == (3, 3)
    with pytest.raises(BatchError, match="row 1"):
        clause_boxes(table, ("@x", "@y"), "globe", True)
