"""The detector's edges: time, order, sharing, bad input, bounds."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nearcast.cpsl import ast
from nearcast.cpsl.composite import MODES, Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.lineage import Happening
from nearcast.errors import (
    BatchError,
    DuplicateIdError,
    PatternError,
    UnknownIdError,
    ValidationError,
)
from nearcast.model.events import Event
from nearcast.model.geometry import Point
from tests import cpsl_cases as cases

S = 1_000_000
A, B = "(ARITH: k = 1)", "(ARITH: k = 2)"
_relaxed = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def made(text: str, mode: Any = "first-matching", **options: Any) -> Detector:
    detector = Detector("planar", **options)
    detector.add(Composite(id="c", text=text, consume=mode))
    return detector


def event(id: str, kind: int, at: float | None, **more: Any) -> Event:
    end = None if at is None else int(at * S)
    return Event(id=id, attributes={"k": kind}, end=end, **more)


# --- time events ------------------------------------------------------------------------------


def test_at_equal_times_the_normal_event_comes_first() -> None:
    detector = made(f"!({A}; 10){B}")
    assert detector.feed([event("a", 1, 0), event("b", 2, 10)]) == []
    assert detector.advance(20 * S) == []  # the window (0, 10] is closed at its end
    detector = made(f"!({A}; 10){B}")
    (found,) = detector.feed([event("a", 1, 0), event("b", 2, 10.000001)])
    assert (found.parts, found.start, found.end) == (("a",), 0, 10 * S)


def test_a_window_ends_with_no_event_needed() -> None:
    detector = made(f"!(100; 5){A}")
    assert detector.feed(event("b", 2, 99)) == []
    (found,) = detector.advance(105 * S)
    assert (found.parts, found.start, found.end) == ((), 100 * S, 105 * S)
    assert found.location is None
    assert detector.advance(200 * S) == []


def test_a_window_that_was_over_at_registration_never_fires() -> None:
    detector = Detector("planar")
    detector.advance(1000 * S)
    detector.add(Composite(id="c", text=f"!(100; 5){A}"))
    assert detector.advance(2000 * S) == []


def test_inner_windows_fire_before_those_around_them() -> None:
    # The inner negation ends at 10, which lies in the outer window (0, 10].
    detector = made(f"!(0; 10)(!({A}; 5){B})")
    detector.feed([event("x", 3, 0), event("a", 1, 5)])
    assert detector.advance(20 * S) == []


def test_periods_are_counted_from_registration() -> None:
    detector = Detector("planar")
    detector.advance(3 * S)
    detector.add(Composite(id="c", text=f"P(10){A}"))
    found = detector.feed([event(f"a{t}", 1, t) for t in (4, 13, 14, 40)])
    found += detector.advance(100 * S)
    assert [one.parts for one in found] == [("a4", "a13"), ("a14",), ("a40",)]
    assert [one.end for one in found] == [13 * S, 14 * S, 40 * S]


def test_what_comes_at_the_end_of_a_period_is_of_it() -> None:
    detector = Detector("planar")
    detector.advance(3 * S)
    detector.add(Composite(id="c", text=f"P(10){A}"))
    found = detector.feed([event(f"a{t}", 1, t) for t in (13, 14)])
    found += detector.advance(100 * S)
    assert [one.parts for one in found] == [("a13",), ("a14",)]


# --- what operators say, by hand --------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "until", "found"), [(5, 11, 1), (5, 11.000001, 0), (1.000001, 11, 1), (1, 11, 0)]
)
def test_all_of_an_event_lies_within_the_window(since: float, until: float, found: int) -> None:
    """`=|(A;t)B`: b begins after a, and is over at a.end + t at the latest."""
    detector = made(f"=|({A}; 10){B}", longest=60)
    history = [event("a", 1, 1, start=0), event("b", 2, until, start=round(since * S))]
    assert len(detector.feed(history) + detector.advance(99 * S)) == found


def test_what_both_sides_of_an_alternative_want_is_one_occurrence() -> None:
    detector = made(f"@((0,0),(9,0),(9,9),(0,9)){A} || {A}")
    found = detector.feed([event("in", 1, 1, location=Point(5, 5)), event("out", 1, 2)])
    assert [one.parts for one in found] == [("in",), ("out",)]


@pytest.mark.parametrize(("op", "metres"), [("<", [7]), ("=", [5]), (">", [3])])
def test_distances_compare_strictly(op: str, metres: list[int]) -> None:
    for length in (3, 5, 7):  # about is within a metre
        here, there = event("b", 2, 0, location=Point(0, 0)), event("a", 1, 1, location=Point(3, 4))
        for text in (f"DIST((0,0); {op}; {length}){A}", f"DIST({B}; {op}; {length}){A}"):
            found = made(text).feed([here, there])
            assert bool(found) == (length in metres), text


# --- order of arrival -------------------------------------------------------------------------


@_relaxed
@given(
    pattern=st.one_of(cases.patterns(), cases.shared_patterns()), history=cases.histories(),
    mode=st.sampled_from(MODES), seed=st.integers(0, 99),
)  # fmt: skip
def test_disorder_within_the_lateness_does_not_matter(
    pattern: ast.Pattern, history: list[Event], mode: Any, seed: int
) -> None:
    try:
        composite = Composite(id="c", text=pattern, consume=mode)
    except PatternError:
        assume(False)
    # Ends are made different: events that end together count in order of arrival.
    ordered = [
        Event(e.id, e.attributes, location=e.location, start=e.start, end=(e.end or 0) * 20 + i)
        for i, e in enumerate(history)
    ]
    draw = random.Random(seed)
    mixed = sorted(ordered, key=lambda e: (e.end or 0) + draw.uniform(0, 60))
    one, other = Detector("planar"), Detector("planar", lateness=60 / S)
    for detector in (one, other):
        detector.add(composite)
    found = one.feed(ordered) + one.advance(2000)
    late = [d for e in mixed for d in other.feed(e)]
    other.check_invariants()
    late += other.advance(2000)
    assert other.late == 0
    bodies = [pattern.expression, *(d.body for d in pattern.definitions)]
    if not any(isinstance(n, ast.Period) for body in bodies for n in ast.walk(body)):
        assert [cases.seen(d) for d in late] == [cases.seen(d) for d in found]


def test_what_comes_too_late_is_dropped_and_counted() -> None:
    detector = made(f"=|({A}; 100){B}", lateness=5)
    assert detector.feed([event("x", 3, 10), event("a", 1, 5), event("y", 1, 4)]) == []
    assert detector.late == 1
    assert [d.parts for d in detector.feed([event("b", 2, 20), event("z", 3, 30)])] == [("a", "b")]


def test_a_clock_that_jumps_back_changes_nothing() -> None:
    detector = made(f"!({A}; 10){B}")
    detector.feed(event("a", 1, 0))
    assert len(detector.advance(50 * S)) == 1
    assert detector.advance(20 * S) == []
    assert detector.now == 50 * S
    assert detector.feed(event("a2", 1, 50)) == []
    assert detector.late == 1


def test_an_event_that_comes_twice_counts_once() -> None:
    detector = made(f"Q(2){A}", lateness=10)
    detector.feed([event("a", 1, 1), event("a", 1, 1), event("b", 2, 5), event("a", 1, 1)])
    assert detector.advance(100 * S) == []
    assert detector.duplicates == 2
    detector = made(f"Q(2){A}")
    detector.feed([event("a", 1, 1), event("a", 1, 1)])
    assert detector.duplicates == 1
    assert len(detector.feed(event("a", 1, 2))) == 1  # the same name later is another event


@_relaxed
@given(
    pattern=st.one_of(cases.patterns(), cases.shared_patterns()), history=cases.histories(),
    mode=st.sampled_from(MODES),
)  # fmt: skip
def test_many_at_once_find_what_one_by_one_does(
    pattern: ast.Pattern, history: list[Event], mode: Any
) -> None:
    try:
        composite = Composite(id="c", text=pattern, consume=mode)
    except PatternError:
        assume(False)
    one, other = Detector("planar"), Detector("planar")
    one.add(composite)
    other.add(composite)
    found = [d for e in history for d in one.feed(e)]
    assert found == other.feed(history)
    one.check_invariants()


@_relaxed
@given(
    patterns=st.lists(cases.patterns(), min_size=2, max_size=4), history=cases.histories(),
    mode=st.sampled_from(MODES),
)  # fmt: skip
def test_sharing_changes_nothing(
    patterns: list[ast.Pattern], history: list[Event], mode: Any
) -> None:
    composites = []
    for i, pattern in enumerate(patterns):
        try:
            composites.append(Composite(id=f"c{i}", text=pattern, consume=mode))
        except PatternError:
            assume(False)
    shared = Detector("planar", longest=2 / S)
    for composite in composites:
        shared.add(composite)
    together = shared.feed(history) + shared.advance(60)
    shared.check_invariants()
    for composite in composites:
        alone = cases.detected(composite, history, 60, longest=2 / S)
        assert [cases.seen(d) for d in together if d.composite_id == composite.id] == alone


# --- composites come and go -------------------------------------------------------------------


def test_what_came_before_a_composite_does_not_count() -> None:
    detector = made(f"=|({A}; 10){B}")
    detector.feed(event("a", 1, 1))
    detector.add(Composite(id="later", text=f"=|({A}; 10){B}"))
    assert [d.composite_id for d in detector.feed(event("b", 2, 2))] == ["c"]
    detector.check_invariants()


def test_removing_frees_what_nobody_else_uses() -> None:
    detector = made(f"=|({A}; 10){B}")
    detector.add(Composite(id="d", text=f"!({A}; 10)(@((0,0),(1,1),(1,0)){B})"))
    detector.feed(event("a", 1, 1))
    detector.remove("d")
    detector.check_invariants()
    assert [d.id for d in detector.feed(event("b", 2, 2))] == ["c#1"]
    detector.remove("c")
    assert detector.nodes == 0
    assert detector.pending() == 0
    assert len(detector) == 0
    assert detector.feed(event("b2", 2, 3)) == []
    detector.check_invariants()


def test_ids_of_composites() -> None:
    detector = made(A)
    with pytest.raises(DuplicateIdError):
        detector.add(Composite(id="c", text=B))
    with pytest.raises(UnknownIdError):
        detector.remove("x")
    with pytest.raises(ValidationError, match="Composite"):
        detector.add(A)  # type: ignore[arg-type]
    assert "c" in detector
    assert len(detector) == 1


# --- bad input --------------------------------------------------------------------------------


def test_events_without_time_happen_now() -> None:
    detector = made(f"=|({A}; 10){B}")
    with pytest.raises(BatchError, match="say when"):
        detector.feed(event("a", 1, None))
    detector.feed([event("a", 1, 5), event("x", 3, 7)])
    (found,) = detector.feed(event("b", 2, None))
    assert (found.start, found.end) == (5 * S, 7 * S)


def test_events_without_place_meet_nothing() -> None:
    detector = made(f"DIST({A};<;5){B}")
    assert detector.feed([event("a", 1, 1), event("b", 2, 2, location=Point(0, 0))]) == []
    (found,) = made(f"{A} && {B}").feed([event("a", 1, 1), event("b", 2, 2, location=Point(3, 4))])
    assert found.location == Point(3, 4)


def test_a_bad_event_leaves_the_whole_batch_out() -> None:
    detector = made(f"{A} && {B}")
    with pytest.raises(BatchError, match="row 1"):
        detector.feed([event("a", 1, 1), "b"])  # type: ignore[list-item]
    assert detector.pending() == 0
    assert detector.now is None
    globe = Detector()
    with pytest.raises(BatchError, match="latitude"):
        globe.feed(event("a", 1, 1, location=Point(0, 95)))
    with pytest.raises(ValidationError):
        detector.feed(7)  # type: ignore[arg-type]


def test_an_event_longer_than_declared_is_refused() -> None:
    detector = made(f"|({A}){B}", longest=2)
    with pytest.raises(BatchError, match="longest"):
        detector.feed(Event(id="a", attributes={"k": 1}, start=0, end=3 * S))


@pytest.mark.parametrize(
    "options",
    [{"space": "flat"}, {"lateness": -1}, {"longest": -1}, {"max_pending": 0}, {"tolerance_m": -1}],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Detector(**options)


def test_many_partial_matches_are_bounded() -> None:
    detector = made(f"{A} && {B}", max_pending=1000)
    for first in range(0, 20_000, 5000):
        detector.feed([event(f"a{i}", 1, i) for i in range(first, first + 5000)])
    assert detector.pending() == 1000
    assert detector.overflows == 19_000
    (found,) = detector.feed(event("b", 2, 30_000))
    assert found.parts == ("a19000", "b")  # the oldest of those that are left
    detector.check_invariants()


def test_windows_that_pass_leave_nothing_behind() -> None:
    texts = [f"=|({A}; 5){B}", f"!({A}; 5){B}", f"!({A}; {B})(ARITH: k = 3)", f"S(3;5;1){A}"]
    detector = Detector("planar", longest=0)
    for i, text in enumerate(texts):
        detector.add(Composite(id=f"c{i}", text=text))
    for t in range(0, 3000, 10):
        detector.feed([event(f"a{t}", 1, t), event(f"x{t}", 3, t + 8)])
        detector.check_invariants()
        assert detector.pending() <= 6
    assert len(detector._graph.timers.due) + len(detector._graph.timers.stale) < 10


def test_values_join_by_type() -> None:
    text = "(ARITH: k = 1, STRING: v = &x) && (ARITH: k = 2, STRING: v = &x)"
    detector = made(text)
    values: list[tuple[int, Any]] = [(1, "1"), (2, 1), (2, True), (2, "1")]
    events = [
        Event(id=f"e{i}", attributes={"k": k, "v": v}, end=i) for i, (k, v) in enumerate(values)
    ]
    (found,) = detector.feed(events)
    assert found.parts == ("e0", "e3")
    assert found.attributes == {"x": "1"}


def test_what_cannot_be_learnt_now_is_learnt_later(monkeypatch):
    detector = Detector("planar")
    detector.add(Composite("c1", text="ARITH: a < 2"))  # no equality: the matcher's business
    with monkeypatch.context() as patched:
        patched.setattr(detector._graph.dispatch.matcher, "add_subscriptions", _no_room)
        with pytest.raises(MemoryError):
            detector.feed(Event("e1", {"a": 1}, end=0))
    for id in ("e1", "e2"):
        assert [each.parts for each in detector.feed(Event(id, {"a": 1}, end=0))] == [(id,)]


def _no_room(subscriptions: object) -> None:
    raise MemoryError


def test_a_composite_that_is_refused_leaves_nothing_behind():
    detector = Detector()
    bad = '=|(ARITH: a = 1; 10)(CQL2: "S_INTERSECTS(location, POINT(47 121))")'
    with pytest.raises(ValidationError, match=r"text\.ymin: 121\.0"):
        detector.add(Composite("c1", text=bad))
    assert (detector.nodes, len(detector)) == (0, 0)
    detector.check_invariants()


def test_ids_are_kept_while_time_stands_still_but_not_all_of_them():
    detector = Detector("planar", max_pending=100)
    detector.add(Composite("c1", text="ARITH: a = 1"))
    for i in range(1000):
        detector.feed(Event(f"e{i}", {"a": 1}, end=7))
    assert len(detector._seen) == 100
    assert not detector.feed(Event("e999", {"a": 1}, end=7))
    assert detector.duplicates == 1
    detector.feed(Event("e0", {"a": 1}, end=8))
    assert len(detector._seen) == 1


def test_a_nested_detector_goes_on_where_it_was_saved():
    detector = Detector("planar", nested=True, unique=True)
    for id, text in (("one", "ARITH: a = 1"), ("two", 'Q(2)(CQL2: "composite IS NOT NULL")')):
        detector.add(Composite(id, text=text), since=0)
    (found,) = detector.feed(Event("e1", {"a": 1}, end=1))
    named = Event("one#1", {"composite": "one"}, end=1)
    assert not detector.feed(Happening(named, found.lineage))
    again = Detector.restore(detector.save())
    assert (again.nested, again.unique) == (True, True)
    (found,) = again.feed(Event("e2", {"a": 1}, end=2))
    (both,) = again.feed(Happening(Event("one#2", {"composite": "one"}, end=2), found.lineage))
    assert both.lineage.composites == {"one", "two"}
    assert (both.lineage.depth, len(both.lineage.origins)) == (2, 2)
