"""Saving and restoring: a detector that was saved midway goes on as if nothing had happened."""

from __future__ import annotations

import pickle
from itertools import pairwise
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
    other = Detector.restore(detector.save(plans=cut % 2 == 0))
    other.check_invariants()
    assert other.pending() == detector.pending()
    assert other.feed(history[cut:]) == detector.feed(history[cut:])
    assert other.advance(60) == detector.advance(60)
    assert (other.late, other.duplicates, other.now) == (
        detector.late, detector.duplicates, detector.now,
    )  # fmt: skip


def _twins(patterns: list[ast.Pattern], mode: Any, count: int) -> list[Detector]:
    """Detectors with the same composites."""
    made = [Detector("planar", lateness=2 / 1_000_000) for _ in range(count)]
    for detector in made:
        for i, pattern in enumerate(patterns):
            try:
                detector.add(Composite(id=f"c{i}", text=pattern, consume=mode))
            except PatternError:
                assume(False)
    return made


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed, max_examples=40)
@given(
    patterns=st.lists(
        st.one_of(cases.patterns(), cases.variable_patterns(), cases.shared_patterns()),
        min_size=1,
        max_size=3,
    ),
    histories=st.tuples(cases.histories(), cases.histories()),
    cuts=st.lists(st.integers(0, 12), min_size=1, max_size=4),
)
def test_what_waits_goes_on_in_any_graph_of_the_same_composites(
    patterns: list[ast.Pattern],
    histories: tuple[list[Event], list[Event]],
    mode: Any,
    cuts: list[int],
) -> None:
    """As workers do: one that has been busy with another stream takes over at random points."""
    history, others = histories
    whole, *workers = _twins(patterns, mode, 3)
    for worker in workers:
        worker.feed(others[: len(others) // 2])
    saved = workers[0].save_waiting()  # of the other stream: not wanted here
    workers[1].load_waiting(saved)
    fresh = _twins(patterns, mode, 1)[0]
    saved = fresh.save_waiting()
    expected = whole.feed(history) + whole.advance(60)
    found = []
    points = sorted({0, *(cut for cut in cuts if cut < len(history)), len(history)})
    for turn, (first, stop) in enumerate(pairwise(points)):
        worker = workers[turn % 2]
        worker.load_waiting(saved)
        found += worker.feed(history[first:stop])
        worker.check_invariants()
        saved = worker.save_waiting()
    workers[0].load_waiting(saved)
    found += workers[0].advance(60)
    workers[0].check_invariants()
    assert found == expected
    assert workers[0].pending() == whole.pending()
    assert (workers[0].late, workers[0].duplicates, workers[0].now) == (
        whole.late, whole.duplicates, whole.now,
    )  # fmt: skip


CROSSINGS = (
    "ENTER((0,0),(10,0),(10,10),(0,10); 1)(ARITH: who = &w)",
    "EXIT((0,0),(10,0),(10,10),(0,10); 0)(ARITH: who = &w)",
    "DWELL((0,0),(10,0),(10,10),(0,10); 3; 1)(ARITH: who = &w)",
    "APPROACH((0,0),(10,0),(10,10),(0,10); 4; 1)(ARITH: who = &w)",
)


@pytest.mark.parametrize("mode", MODES)
@_relaxed
@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([5, 10.5, 12, 30])), min_size=4),
    cuts=st.lists(st.integers(0, 20), min_size=1, max_size=4),
)
def test_borders_go_on_in_any_graph(steps: list[Any], cuts: list[int], mode: Any) -> None:
    composites = [Composite(f"c{i}", text=text, consume=mode) for i, text in enumerate(CROSSINGS)]
    events = [
        Event(f"e{i}", {"who": who}, location=Point(x, 5), end=i * 1_000_000)
        for i, (who, x) in enumerate(steps)
    ]
    whole, *workers = (Detector("planar") for _ in range(3))
    for detector in (whole, *workers):
        for composite in composites:
            detector.add(composite)
    saved = workers[0].save_waiting()
    workers[1].feed(events[::-1][:3])
    expected = whole.feed(events) + whole.advance(10**9)
    found = []
    points = sorted({0, *(cut for cut in cuts if cut < len(events)), len(events)})
    for turn, (first, stop) in enumerate(pairwise(points)):
        workers[turn % 2].load_waiting(saved)
        found += workers[turn % 2].feed(events[first:stop])
        saved = workers[turn % 2].save_waiting()
    workers[1].load_waiting(saved)
    assert found + workers[1].advance(10**9) == expected
    workers[1].check_invariants()


def test_what_waits_for_other_composites_is_refused() -> None:
    one, other, later = (Detector("planar") for _ in range(3))
    one.add(Composite(id="c", text="Q(2)(ARITH: k = 1)"))
    other.add(Composite(id="c", text="Q(3)(ARITH: k = 1)"))
    with pytest.raises(ValidationError, match="other composites"):
        other.load_waiting(one.save_waiting())
    later.feed(Event("e", {"k": 1}, end=0))
    later.add(Composite(id="c", text="Q(2)(ARITH: k = 1)"))
    with pytest.raises(ValidationError, match="other composites"):
        later.load_waiting(one.save_waiting())
    with pytest.raises(ValidationError, match="version"):
        one.load_waiting(pickle.dumps({"version": 3}))
    assert len(one.feed([Event(str(i), {"k": 1}, end=i) for i in range(2)])) == 1


def test_time_begins_where_it_is_said_to() -> None:
    text = "P(10)(ARITH: k = 1)"
    one, other, idle = (Detector("planar") for _ in range(3))
    for detector in (one, other, idle):
        detector.add(Composite(id="c", text=text))
    event = Event("e", {"k": 1}, end=7_000_000)
    one.feed(Event("first", {"k": 9}, end=4_000_000))
    other.begin(4_000_000)
    other.begin(4_000_000)
    assert other.now == 4_000_000
    one.feed(event), other.feed(event), idle.feed(event)
    assert one.due == other.due == 14_000_000
    assert idle.due == 17_000_000
    with pytest.raises(ValidationError, match="begin before the first event"):
        other.begin(4_000_000)


def test_a_composite_that_was_one_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector("planar")
    detector.add(Composite(id="c", text="=|(ARITH: only = 77; 10)(ARITH: here = 78)"))
    detector.feed(Event("a", {"only": 77}, end=0))
    saved = detector.save(plans=True)
    told = pickle.dumps(Composite(id="d", text="Q(2)(STRING: only = 'here')".replace("'", '"')))

    def parsed(*_: object) -> None:
        raise AssertionError("it was parsed")

    with monkeypatch.context() as patched:
        patched.setattr("nearcast.cpsl.composite._parsed", parsed)
        other = Detector.restore(saved)
        composite = pickle.loads(told)
    assert [d.parts for d in other.feed(Event("b", {"here": 78}, end=1))] == [("a", "b")]
    assert composite.pattern == Composite(id="d", text=composite.text).pattern


def test_what_the_release_before_saved_is_read() -> None:
    """Its nodes went by composite and place; it had the counts beside the composites."""
    text = "=|(ARITH: k = 1; 10)(ARITH: k = 2)"
    detector = Detector("planar")
    detector.add(Composite(id="c", text=text))
    events = [Event(id=str(i), attributes={"k": k}, end=i) for i, k in enumerate((1, 2, 1))]
    assert len(detector.feed(events)) == 1
    known = pickle.loads(detector.save())
    waiting = known.pop("waiting")
    ((composite, _, *about),) = known.pop("composites")
    known |= waiting | {"version": 3, "composites": [(composite, *about, 1)]}
    known["nodes"] = {("c", number): dumped for number, dumped in waiting["nodes"].items()}
    due, stale, count = waiting["timers"]
    known["timers"] = due, [(*e[:2], ("c", e[2]), *e[3:]) for e in stale], count
    other = Detector.restore(pickle.dumps(known))
    (found,) = other.feed(Event(id="3", attributes={"k": 2}, end=5))
    assert (found.id, found.parts) == ("c#2", ("2", "3"))


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
