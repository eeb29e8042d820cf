"""Safe rectangles: they hold their position, no region, and keep what matches coming."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.cpsl.compile import compile_pattern
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.glr import METHODS, SafeRectangles, rectangle
from nearcast.cpsl.instances import Instance
from nearcast.cpsl.location_index import RegionTest
from nearcast.cpsl.operators.filters import unary
from nearcast.cpsl.operators.spatial import Relations
from nearcast.datasets.grus import shopping, taxis
from nearcast.errors import ValidationError
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Point

PLANE = Relations("planar", 1.0)
regions = st.one_of(
    st.builds(
        lambda x, y, r: ("distance", (((x, y),), "<", r)),
        st.floats(0, 100), st.floats(0, 100), st.floats(1, 15),
    ),
    st.builds(
        lambda x, y, w, h: ("happen-in", (((x, y), (x + w, y), (x + w, y + h), (x, y + h)),)),
        st.floats(0, 100), st.floats(0, 100), st.floats(1, 15), st.floats(1, 15),
    ),
)  # fmt: skip


def passes(test: RegionTest, x: float, y: float, relations: Relations = PLANE) -> bool:
    instance = Instance(0, 0, 0, Event(id="e", location=Point(x, y)))
    return unary(*test, relations)(instance)


@settings(max_examples=60, deadline=None)
@given(
    tests=st.lists(regions, max_size=8), x=st.floats(0, 100), y=st.floats(0, 100),
    cells=st.integers(1, 5), method=st.sampled_from([*METHODS]), data=st.data(),
)  # fmt: skip
def test_nothing_inside_a_safe_rectangle_matches(
    tests: list[Any], x: float, y: float, cells: int, method: str, data: st.DataObject
) -> None:
    safe = SafeRectangles(tests, PLANE, Box(0, 0, 100, 100), cells, method)
    found = safe.around(Point(x, y))
    if found is None:
        return
    assert found.xmin < x < found.xmax
    assert found.ymin < y < found.ymax
    for _ in range(5):
        px = data.draw(st.floats(found.xmin, found.xmax, exclude_min=True, exclude_max=True))
        py = data.draw(st.floats(found.ymin, found.ymax, exclude_min=True, exclude_max=True))
        assert not any(passes(test, px, py) for test in tests)


def test_a_rectangle_reaches_to_what_is_near() -> None:
    tests: list[RegionTest] = [("happen-in", (((60, 0), (70, 0), (70, 100), (60, 100)),))]
    safe = SafeRectangles(tests, PLANE, Box(0, 0, 100, 100), 1)
    assert safe.around(Point(10, 50)) == Box(0, 0, 60, 100)
    assert safe.around(Point(65, 50)) is None
    assert safe.around(Point(101, 50)) is None
    assert SafeRectangles([], PLANE, Box(0, 0, 100, 100), 2).around(Point(60, 60)) == Box(
        50, 50, 100, 100
    )


def free(box: Box, boxes: Any) -> bool:
    return all(
        c <= box.xmin or a >= box.xmax or d <= box.ymin or b >= box.ymax for a, b, c, d in boxes
    )


steps = st.integers(0, 12).map(float)


@settings(max_examples=80, deadline=None)
@given(
    corners=st.lists(st.tuples(steps, steps, steps, steps), max_size=7), x=steps, y=steps,
    method=st.sampled_from([*METHODS]),
)  # fmt: skip
def test_a_rectangle_is_free_of_boxes_and_there_is_one_where_no_box_is(
    corners: list[Any], x: float, y: float, method: str
) -> None:
    boxes = [(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners]
    holds = any(a <= x <= c and b <= y <= d for a, b, c, d in boxes)
    flat = np.array(boxes, np.float64).reshape(-1, 4)
    found = rectangle(Point(x, y), np.array([-1.0, -1.0, 13.0, 13.0]), flat, method)
    assert (found is None) == holds
    assert found is None or (free(found, boxes) and found.xmin < x < found.xmax)


def test_of_corners_in_a_quadrant_only_those_count_that_none_dominates() -> None:
    boxes = np.array([[2.0, 6.0, 3.0, 7.0], [5.0, 3.0, 6.0, 4.0], [5.5, 6.5, 9.0, 9.0]])
    found = rectangle(Point(0, 0), np.array([-1.0, -1.0, 8.0, 8.0]), boxes, "quadrants")
    # The tension points are (2, 8), (5, 6) and (8, 3); the third box is dominated by both others.
    assert found == Box(-1, -1, 5, 6)


def test_the_globe_takes_boxes_round_caps() -> None:
    globe = Relations("globe", 1.0)
    test: RegionTest = ("distance", (((8.5, 47.4),), "<", 2000.0))
    safe = SafeRectangles([test], globe, Box(8, 47, 9, 48), 1)
    found = safe.around(Point(8.3, 47.4))
    assert found is not None
    assert 8.47 < found.xmax < 8.5
    assert not passes(test, found.xmax, 47.4, globe)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValidationError):
        SafeRectangles([("distance", (((0, 0),), ">", 5.0))], PLANE, Box(0, 0, 1, 1), 1)
    with pytest.raises(ValidationError):
        SafeRectangles([], PLANE, Box(0, 0, 0, 1), 1)
    with pytest.raises(ValidationError):
        SafeRectangles([], PLANE, Box(0, 0, 1, 1), 0)
    with pytest.raises(ValidationError, match="greedy, quadrants"):
        SafeRectangles([], PLANE, Box(0, 0, 1, 1), 1, "best")


@pytest.mark.parametrize("method", [*METHODS])
@pytest.mark.parametrize("make", [taxis, shopping])
def test_publishers_send_every_position_that_matches(make: Any, method: str) -> None:
    source = make(300, 2000)
    tests = []
    for text, group in zip(source.texts, source.wanted.tolist(), strict=True):
        plan = compile_pattern(Composite(id="c", text=text).pattern)
        if group == 0:
            tests.append((plan.kind, plan.params))
    mine = np.flatnonzero(source.given == 0)
    xs = np.array([source.events[i].location.x for i in mine])
    ys = np.array([source.events[i].location.y for i in mine])
    holds = [unary(kind, params, PLANE) for kind, params in tests]
    matching = np.array(
        [
            any(test(Instance(0, 0, 0, Event(id="e", location=Point(x, y)))) for test in holds)
            for x, y in zip(xs.tolist(), ys.tolist(), strict=True)
        ]
    )
    side = float(max(xs.max(), ys.max())) + 1
    safe = SafeRectangles(tests, PLANE, Box(0, 0, side, side), 8, method)
    sent = safe.sent(source.movers[mine], xs, ys, matching)
    assert not (matching & ~sent).any()
    assert (~sent).sum() > 0
