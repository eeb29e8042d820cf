"""The index of unary location subscriptions against the plain loop and the single tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.instances import Instance
from nearcast.cpsl.location_index import LocationIndex, RegionTest, reach_of
from nearcast.cpsl.operators.filters import unary
from nearcast.cpsl.operators.spatial import Relations
from nearcast.datasets.grus import shopping, taxis
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Location, Point, Polygon

KINDS = ["happen-in", "overlap", "same-place", "<", "=", ">"]


def regions_of(space: Any, seed: int, count: int) -> list[RegionTest]:
    """Regions of all kinds; on the globe some across the antimeridian and near the poles."""
    rng = np.random.default_rng(seed)
    unit = 1.0 if space == "planar" else 100_000.0
    made: list[RegionTest] = []
    for i in range(count):
        kind = KINDS[i % len(KINDS)]
        if space == "planar":
            x, y = rng.uniform(0, 20, 2)
        else:
            x, y = rng.choice([-179.5, 0.0, 179.5]) + rng.uniform(-1, 1), rng.choice([0, 60, 85])
        points: tuple[tuple[float, float], ...] = ((float(x), float(y)),)
        if i % 2 or kind in ("happen-in", "overlap"):
            w, h = rng.uniform(0.5, 2, 2)
            points = ((x, y), (x + w, y), (x + w / 2, y + h))
        if space == "globe" and len(points) == 1 and not -180 <= x <= 180:
            points = (((x + 180) % 360 - 180, y),)
        if kind in ("<", "=", ">"):
            made.append(("distance", (points, kind, float(rng.uniform(0.5, 3)) * unit)))
        else:
            made.append((kind, (points,)))
    return made


def spots(space: Any, seed: int, count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed + 1)
    if space == "planar":
        return rng.uniform(-1, 23, count), rng.uniform(-1, 23, count)
    xs = (rng.choice([-179.5, 0.0, 179.5], count) + rng.uniform(-3, 3, count) + 180) % 360 - 180
    xs[:3] = 180.0
    return xs, np.clip(rng.choice([0, 60, 85], count) + rng.uniform(-3, 3, count), -90, 90)


@pytest.mark.parametrize("space", ["planar", "globe"])
@pytest.mark.parametrize("count", [6, 400])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000))
def test_lookup_scan_and_single_tests_agree(space: Any, count: int, seed: int) -> None:
    relations = Relations(space, 0.5 if space == "planar" else 60_000.0)
    tests = regions_of(space, seed, count)
    index = LocationIndex(relations)
    for number, test in enumerate(tests):
        index.add(number, 7, test)
    xs, ys = spots(space, seed, 40)
    places = [
        Instance(0, 0, 0, Event(id="e", location=Point(x, y)))
        for x, y in zip(xs.tolist(), ys.tolist(), strict=True)
    ]
    holds = [unary(kind, params, relations) for kind, params in tests]
    wanted = {(i, j) for i, p in enumerate(places) for j, test in enumerate(holds) if test(p)}
    for rows, found in (index.lookup(np.full(40, 7), xs, ys), index.scan(range(count), xs, ys)):
        pairs = list(zip(rows.tolist(), found.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) == wanted
    one_by_one = [(i, j) for i in range(40) for j in index.at(7, Point(float(xs[i]), float(ys[i])))]
    assert len(set(one_by_one)) == len(one_by_one)
    assert set(one_by_one) == wanted


@pytest.mark.parametrize("kind", ["<", "="])
def test_large_regions_on_the_globe_are_found_by_their_edges_and_from_inside(kind: Any) -> None:
    """A region's edges are parallels: between its corners they may be far from its centre."""
    relations = Relations("globe", 100_000.0)
    large = [(-170.0, 60.0, 170.0, 70.0), (-60.0, 40.0, 60.0, 60.0), (100.0, -80.0, 250.0, -60.0)]
    large += [(-179.0, -85.0, 179.0, 85.0), (-180.0, 0.0, 180.0, 10.0), (10.0, 20.0, 11.0, 21.0)]
    index = LocationIndex(relations)
    tests: list[RegionTest] = []
    for number in range(60):
        xmin, ymin, xmax, ymax = large[number % len(large)]
        ring = ((xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax))
        tests.append(("distance", (ring, kind, 1000.0 + 10_000 * number)))
        index.add(number, 7, tests[-1])
    rng = np.random.default_rng(3)
    xs, ys = rng.uniform(-180, 180, 300), np.degrees(np.arcsin(rng.uniform(-1, 1, 300)))
    rows, found = index.lookup(np.full(300, 7), xs, ys)
    pairs = set(zip(rows.tolist(), found.tolist(), strict=True))
    rows, found = index.scan(range(60), xs, ys)
    assert pairs == set(zip(rows.tolist(), found.tolist(), strict=True))
    assert len(pairs) > 300


@pytest.mark.parametrize("space", ["planar", "globe"])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000))
def test_extended_events_under_changes(space: Any, seed: int) -> None:
    """Boxes and polygons, while subscriptions come and go, against the single tests."""
    relations = Relations(space, 0.5 if space == "planar" else 60_000.0)
    rng = np.random.default_rng(seed)
    tests = regions_of(space, seed, 60)
    index = LocationIndex(relations)
    for number, test in enumerate(tests):
        index.add(number, 7, test)
    gone = set(rng.choice(60, 25, replace=False).tolist())
    for number in gone:
        index.remove(number, 7)
    for number in list(gone)[:10]:
        index.add(number, 7, tests[number])
        gone.discard(number)
    holds = {n: unary(*tests[n], relations) for n in range(60) if n not in gone}
    xs, ys = spots(space, seed, 12)
    for i, (x, y) in enumerate(zip(xs.tolist(), ys.tolist(), strict=True)):
        w, h = rng.uniform(0, 3, 2).tolist()
        top = y + h if space == "planar" else min(90.0, y + h)
        place: Location = Box(x, y, x + w if space == "planar" else _east(x, w), top)
        if i % 2 and top > y:
            place = Polygon([(x, y), (x + w + 0.1, y), (x, top)])
        instance = Instance(0, 0, 0, Event(id="e", location=place))
        wanted = {number for number, test in holds.items() if test(instance)}
        found = index.at(7, place)
        assert len(found) == len(set(found))
        assert set(found) == wanted


def _east(x: float, width: float) -> float:
    return x + width - 360.0 if x + width > 180.0 else x + width


def test_other_primitives_and_removed_subscriptions_are_not_found() -> None:
    relations = Relations("planar", 1.0)
    index = LocationIndex(relations)
    spot: RegionTest = ("distance", (((0.0, 0.0),), "<", 5.0))
    for number in range(100):
        index.add(number, number % 2, spot)
    xs = ys = np.zeros(1)
    assert sorted(index.lookup(np.array([1]), xs, ys)[1].tolist()) == list(range(1, 100, 2))
    for number in range(1, 100, 2):
        index.remove(number, 1)
    assert index.lookup(np.array([1]), xs, ys)[1].size == 0
    assert index.at(1, Point(0, 0)) == []
    assert 1 not in index
    assert index.lookup(np.array([0]), xs, ys)[1].size == 50
    assert sorted(index.at(0, Point(0, 0))) == list(range(0, 100, 2))
    assert reach_of(("distance", (((0.0, 0.0),), ">", 5.0)), relations) is None


@pytest.mark.parametrize("make", [taxis, shopping])
def test_half_of_the_workloads_events_match(make: Any) -> None:
    source = make(400, 1000)
    detector = Detector("planar", longest=0)
    for number, text in enumerate(source.texts):
        detector.add(Composite(id=str(number), text=text))
    found = detector.feed(source.events)
    share = len({one.parts for one in found}) / len(source.events)
    assert 0.3 < share < 0.7
    assert detector.pending() == 0
    wanted = set()
    for row, event in enumerate(source.events):
        spot = event.location
        dx, dy = abs(source.centres[:, 0] - spot.x), abs(source.centres[:, 1] - spot.y)
        disc = make is taxis
        inside = (
            np.sqrt(dx * dx + dy * dy) < source.size if disc else np.maximum(dx, dy) <= source.size
        )
        mine = source.wanted == source.given[row]
        wanted |= {(str(n), event.id) for n in np.flatnonzero(inside & mine).tolist()}
    assert {(one.composite_id, one.parts[0]) for one in found} == wanted
