"""Primitives found by an event's own values: the same as by the definition."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Composite, Event, Point
from nearcast.cpsl import ast
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.dispatch import Dispatch
from nearcast.cpsl.instances import Instance
from nearcast.cpsl.leaves import leaf_of
from nearcast.cpsl.operators.filters import decided, unary
from nearcast.cpsl.operators.passing import Primitive
from nearcast.cpsl.operators.spatial import Relations
from nearcast.cpsl.parser import parse
from nearcast.cpsl.predicates import evaluate
from tests.cpsl_expressions import primitives

NAMES = st.sampled_from("abc")
NUMBERS = st.sampled_from([0.0, 1.0, 2.0, 2.0**53])
TEXTS = st.sampled_from(["", "x", "xy", "1"])
VARIABLE = st.builds(ast.Variable, st.sampled_from("pq"))
COMPARED = st.builds(ast.Variable, st.sampled_from("pq"), st.sampled_from([None, "+"]), NUMBERS)


def _typed(kind: str, tests: st.SearchStrategy) -> st.SearchStrategy:
    every = st.lists(tests, min_size=1, max_size=3).map(tuple)
    return st.builds(
        ast.TypedPredicate, st.just(kind), st.lists(every, min_size=1, max_size=2).map(tuple)
    )


def _sound(predicate: ast.TypedPredicate) -> bool:
    """A variable does not stand beside an |."""
    tests = [test for each in predicate.any_of for test in each]
    with_variable = any(isinstance(getattr(t, "value", 0), ast.Variable) for t in tests)
    return len(predicate.any_of) == 1 or not with_variable


ARITH = st.one_of(
    st.builds(ast.ArithTest, NAMES, st.just("="), NUMBERS),
    st.builds(ast.ArithTest, NAMES, st.sampled_from(["<", "!=", ">="]), NUMBERS),
    st.builds(ast.ArithTest, NAMES, st.just("="), VARIABLE),
    st.builds(ast.ArithTest, NAMES, st.sampled_from(["<", "="]), COMPARED),
    st.builds(ast.RangeTest, NAMES, NUMBERS, NUMBERS, st.booleans(), st.booleans()),
)
STRING = st.one_of(
    st.builds(ast.StringTest, NAMES, st.sampled_from(["=", "=", "!", ">*"]), TEXTS),
    st.builds(
        ast.StringTest, NAMES, st.just("="), VARIABLE.map(lambda v: ast.Variable("s" + v.name))
    ),
    st.builds(ast.SetTest, NAMES, st.lists(TEXTS, min_size=1, max_size=2).map(tuple)),
)
PRIMITIVES = st.builds(
    ast.Primitive,
    st.lists(
        st.one_of(_typed("ARITH", ARITH), _typed("STRING", STRING)).filter(_sound),
        min_size=1,
        max_size=2,
    ).map(tuple),
)
VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 2**53 + 1, 1.0, float("nan"), -0.0]), st.booleans(), TEXTS
)
EVENTS = st.dictionaries(NAMES, VALUES, max_size=3).map(lambda given: Event("e", given, end=0))


@settings(max_examples=200, deadline=None)
@given(primitives)
def test_a_primitive_is_its_form_and_its_constants(primitive: ast.Primitive):
    assert leaf_of(primitive).primitive() == primitive


@settings(max_examples=150, deadline=None)
@given(st.lists(PRIMITIVES, min_size=1, max_size=12), st.lists(EVENTS, min_size=1, max_size=4))
def test_events_find_what_they_satisfy(wanted: list[ast.Primitive], events: list[Event]):
    dispatch = Dispatch("planar")
    nodes = []
    for order, leaf in enumerate(dict.fromkeys(leaf_of(each) for each in wanted)):
        node = Primitive(leaf)
        node.order = order
        dispatch.add(node)
        nodes.append(node)
    dispatch.learn()
    many = dispatch.match_many(events) if dispatch.matching else [[] for _ in events]
    for event, matched in zip(events, many, strict=True):
        direct = dispatch.find(event)
        assert len(set(direct)) == len(direct)
        assert not any(node in matched for node in direct)
        found = {}
        for node in (*direct, *matched):
            match = evaluate(ast.Primitive(()), event)  # nothing is asked: nothing is bound
            match = match if node.reader is None else node.reader.check(event, "planar")
            if match is not None:
                found[node.order] = (dict(match.bindings), match.opens)
        wanted_of = {}
        for node in nodes:
            match = evaluate(node.leaf.primitive(), event, "planar")
            if match is not None:
                wanted_of[node.order] = (dict(match.bindings), match.opens)
        assert found == wanted_of
    for node in nodes:
        dispatch.remove(node)
    assert not dispatch.matching
    assert not dispatch._by_value


def test_what_many_share_is_left_to_the_matcher():
    dispatch = Dispatch("planar")
    nodes = []
    for order in range(20):
        text = f'STRING: type = "TAXI", ARITH: price < {order}'
        node = Primitive(leaf_of(parse(text).expression))  # type: ignore[arg-type]
        node.order = order
        dispatch.add(node)
        nodes.append(node)
    assert [node.home is None for node in nodes] == [False] * 8 + [True] * 12
    dispatch.learn()
    event = Event("e", {"type": "TAXI", "price": 12.5}, end=0)
    assert not dispatch.find(event)
    assert {node.order for node in dispatch.match_one(event)} == set(range(13, 20))


def test_a_number_is_no_truth_value_and_is_compared_as_a_float():
    detector = Detector("planar")
    detector.add(Composite("c", text=f"ARITH: a = 1 || ARITH: a = {2**53}"))
    given: list[Any] = [True, 1, 1.0, "1", 2**53, 2**53 + 1]
    found = detector.feed([Event(f"e{i}", {"a": a}, end=i) for i, a in enumerate(given)])
    assert [one.parts for one in found] == [("e1",), ("e2",), ("e4",), ("e5",)]


# --- a few location tests over a primitive -------------------------------------------------------

COORDINATES = st.one_of(st.integers(-6, 6).map(float), st.floats(-7, 7))
PLACES = st.tuples(COORDINATES, COORDINATES)
RECTANGLES = st.tuples(PLACES, st.integers(1, 5), st.integers(1, 5)).map(
    lambda r: [
        (r[0][0] + dx * r[1], r[0][1] + dy * r[2]) for dx, dy in [(0, 0), (1, 0), (1, 1), (0, 1)]
    ]
)
REGIONS = st.one_of(RECTANGLES, st.lists(PLACES, min_size=1, max_size=5))


@settings(max_examples=400, deadline=None)
@given(
    REGIONS,
    st.sampled_from(["happen-in", "overlap", "same-place", "distance"]),
    st.sampled_from("<=>"),
    st.one_of(st.integers(0, 8).map(float), st.floats(0, 9)),
    st.lists(PLACES, min_size=1, max_size=8),
)
def test_what_a_box_decides_is_right(
    region: Any, kind: str, op: str, metres: float, places: list[tuple[float, float]]
):
    params: tuple[Any, ...] = (array("d", [n for p in region for n in p]).tobytes(),)
    if kind == "distance":
        params = (*params, op, metres)
    relations = Relations("planar", 1.0)
    tell, test = decided(kind, params, relations), unary(kind, params, relations)
    for x, y in [*places, *region]:
        instance = Instance(1, 0, 0, Event("e", location=Point(x, y), end=0))
        assert tell(x, y) in (None, test(instance))


@pytest.mark.parametrize("space", ["planar", "globe"])
def test_few_regions_and_many_are_told_alike(space: Any):
    few, many = Detector(space), Detector(space)
    texts = [f"@(({i},0),({i + 3},0),({i + 3},3),({i},3))(ARITH: a = 1)" for i in range(9)]
    for number in (3, 1):
        few.add(Composite(f"c{number}", text=texts[number]))
    for number, text in enumerate(texts):
        many.add(Composite(f"c{number}", text=text))
    events = [Event(f"e{x}", {"a": 1}, location=Point(x / 2, 1), end=x) for x in range(25)]
    wanted = [(f"c{n}", f"e{x}") for x in range(25) for n in (3, 1) if n <= x / 2 <= n + 3]
    assert not few._graph.locations
    assert len(many._graph.locations) == 9
    assert [(one.composite_id, *one.parts) for one in few.feed(events)] == wanted
    found = [(one.composite_id, *one.parts) for one in many.feed(events)]
    assert sorted(each for each in found if each[0] in ("c1", "c3")) == sorted(wanted)
    for number in (0, 2, 4, 5, 6, 7, 8):
        many.remove(f"c{number}")
    more = [Event(f"f{x}", {"a": 1}, location=Point(x / 2, 1), end=30 + x) for x in range(25)]
    again = sorted((one.composite_id, one.parts[0]) for one in many.feed(more))
    assert again == sorted((c, "f" + e[1:]) for c, e in wanted)
    for detector in (few, many):
        detector.check_invariants()


# --- many events at once --------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from("uvw")), max_size=12),
    st.integers(0, 12),
    st.integers(1, 4),
    st.booleans(),
)
def test_many_at_once_are_taken_as_one_by_one(
    given: list[tuple[int, str]], cut: int, most: int, ordered: bool
):
    rows = sorted(given) if ordered else given
    events = [Event(id, {"a": 1}, end=end) for end, id in rows]
    both = [Detector("planar", max_pending=most) for _ in range(2)]
    found: list[Any] = [[], []]
    for number, detector in enumerate(both):
        detector.add(Composite("c", text="ARITH: a = 1"))
        pieces = [events[:cut], events[cut:]] if number else [[event] for event in events]
        for piece in pieces:
            found[number] += [(one.parts, one.end) for one in detector.feed(piece)]
    one, other = (
        SimpleNamespace(late=d.late, twice=d.duplicates, seen=list(d._seen), now=d.now)
        for d in both
    )
    assert one == other
    assert found[0] == found[1]
