"""Saving and restoring: a detector that was saved midway goes on as if nothing had happened."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nearcast.cpsl import ast
from nearcast.cpsl.composite import MODES, Composite
from nearcast.cpsl.detector import Detector
from nearcast.errors import PatternError, ValidationError
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Point, Polygon
from tests import cpsl_cases as cases

_relaxed = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@_relaxed
@given(
    patterns=st.lists(
        st.one_of(cases.patterns(), cases.variable_patterns(), cases.shared_patterns()),
        min_size=1,
        max_size=3,
    ),
    history=cases.histories(),
    mode=st.sampled_from(MODES),
    cut=st.integers(0, 12),
)
def test_a_saved_detector_goes_on(
    patterns: list[ast.Pattern], history: list[Event], mode: Any, cut: int
) -> None:
    detector = Detector("planar", lateness=2 / 1_000_000, longest=2 / 1_000_000)
    for i, pattern in enumerate(patterns):
        try:
            detector.add(Composite(id=f"c{i}", text=pattern, consume=mode))
        except PatternError:
            assume(False)
    detector.feed(history[:cut])
    other = Detector.restore(detector.save())
    other.check_invariants()
    assert other.pending() == detector.pending()
    assert other.feed(history[cut:]) == detector.feed(history[cut:])
    assert other.advance(60) == detector.advance(60)
    assert (other.late, other.duplicates, other.now) == (
        detector.late, detector.duplicates, detector.now,
    )  # fmt: skip


def test_composites_registered_at_different_times_stay_apart() -> None:
    text = "=|(ARITH: k = 1; 10)(ARITH: k = 2)"
    detector = Detector("planar")
    detector.add(Composite(id="early", text=text))
    detector.feed(Event(id="a", attributes={"k": 1}, end=0))
    detector.add(Composite(id="late", text=text))
    other = Detector.restore(detector.save())
    other.check_invariants()
    found = other.feed(Event(id="b", attributes={"k": 2}, end=1))
    assert [one.composite_id for one in found] == ["early"]


def test_what_was_taken_before_the_save_is_forgotten_without_a_word() -> None:
    detector = Detector("planar")
    detector.add(Composite(id="c", text="=|(ARITH: k = 1; 10)(ARITH: k = 2)"))
    events = [Event(id=str(k), attributes={"k": k}, end=k) for k in (1, 2)]
    assert len(detector.feed(events)) == 1
    other = Detector.restore(detector.save())
    later = Event(id="3", attributes={"k": 3}, end=60_000_000)
    assert other.feed(later) == detector.feed(later) == []
    other.check_invariants()


@pytest.mark.parametrize(
    "saved", [b"", b"nonsense", pickle.dumps([1]), pickle.dumps({"version": 9})]
)
def test_other_bytes_are_refused(saved: bytes) -> None:
    with pytest.raises(ValidationError):
        Detector.restore(saved)


def test_memory_says_what_waits() -> None:
    detector = Detector("planar")
    detector.add(Composite(id="c", text="(ARITH: k = 1) && (ARITH: k = 2)"))
    idle = detector.memory()
    detector.feed([Event(id=f"e{i}", attributes={"k": 1}, end=i) for i in range(100)])
    full = detector.memory()
    assert full["instances"] > 100 * 100
    assert idle["instances"] == 0
    assert full["total"] == sum(value for name, value in full.items() if name != "total")


@pytest.mark.parametrize(
    ("places", "location"),
    [
        ([Point(1, 2)], Point(1, 2)),
        ([Point(0, 0), Point(2, 2)], Box(0, 0, 2, 2)),
        ([Point(0, 0), Point(2, 0), Point(0, 2)], Polygon([(0, 0), (2, 0), (0, 2)])),
        ([Point(0, 0), Box(1, 1, 2, 2)], Polygon([(0, 0), (2, 1), (2, 2), (1, 2)])),
    ],
)
def test_a_composite_event_is_an_event(places: list[Any], location: Any) -> None:
    detector = Detector("planar")
    detector.add(Composite(id="c", text=f"Q({len(places)})(ARITH: k = 1, ARITH: v = &x)"))
    events = [
        Event(id=f"e{i}", attributes={"k": 1, "v": 7}, location=place, start=i, end=i + 1)
        for i, place in enumerate(places)
    ]
    (found,) = detector.feed(events)
    assert isinstance(found, Event)
    assert found.location == location
    assert (found.start, found.end, found.attributes["x"]) == (0, len(places), 7)
    assert pickle.loads(pickle.dumps(found)) == found
    other = Detector("planar")
    other.add(Composite(id="d", text="ARITH: x = 7"))
    assert other.feed(found)[0].parts == ("c#1",)


def test_a_hull_may_cross_the_antimeridian() -> None:
    detector = Detector()
    detector.add(Composite(id="c", text="DIST(ARITH: k = 1;<;500000)(ARITH: k = 2)"))
    events = [
        Event(id="e1", attributes={"k": 1}, location=Box(179, 0, -179, 1), end=1),
        Event(id="e2", attributes={"k": 2}, location=Point(-178, 2), end=2),
    ]
    (found,) = detector.feed(events)
    assert found.location == Polygon([(179, 0), (181, 0), (182, 2), (179, 1)])
    text = "|($a;)$b; && DIST($a;;<;500000)$b;, $a; = (ARITH: k = 3), $b; = (ARITH: k = 4)"
    detector.add(
        Composite(
            id="d", text=f"IN(ARITH: k = 5)({text.split(', $a;')[0]}), $a;{text.split(', $a;')[1]}"
        )
    )
    points = [
        Event(id="big", attributes={"k": 5}, location=Box(170, -5, -170, 5), end=3),
        Event(id="a", attributes={"k": 3}, location=Point(179.5, 0), end=4),
        Event(id="b", attributes={"k": 4}, location=Point(-179.5, 0), end=4),
    ]
    (inside,) = detector.feed(points)
    assert inside.parts == ("big", "a", "b")
