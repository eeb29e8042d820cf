"""When an input expires: not before the last combination with it is impossible, and then at once.

Histories that can be followed by hand; a1 is the first event of kind a.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from nearcast.cpsl.composite import MODES, Composite
from nearcast.cpsl.detector import Detector
from nearcast.model.events import Event
from nearcast.model.geometry import Point

S = 1_000_000
CHAIN = "=|($a;;10)$b; && =|($b;;10)C, $a; = A, $b; = B"
FORK = "=|($a;;10)B && =|($a;;10)C, $a; = A"
LATER = "|=($a;;1)B && |=($a;;1)C, $a; = A"
NEAR = "=|($a;;10)$b; && DIST($b;;<;100)C, $a; = A, $b; = B"
MEETING = "|($x;)$y; && =|($x;;100)C, $x; = A, $y; = B"
OPEN = "=|($a;;10)B && |=($a;;1)C, $a; = A"


def event(name: str, end: float, start: float | None = None, **attributes: Any) -> Event:
    begin = int((end if start is None else start) * S)
    values = {"kind": name[0], **attributes}
    return Event(name, values, location=Point(3, 4), start=begin, end=int(end * S))


def detector_of(text: str, mode: Any = "first-matching", **options: Any) -> Detector:
    text = re.sub(r"\b[ABC]\b", lambda m: f'(STRING: kind = "{m[0].lower()}")', text)
    detector = Detector("planar", **options)
    detector.add(Composite(id="c", text=text, consume=mode))
    return detector


def run(text: str, mode: Any, *events: Event, **options: Any) -> list[tuple[str, ...]]:
    detector = detector_of(text, mode, **options)
    found = []
    for each in events:
        found += detector.feed(each)
        detector.check_invariants()
    found += detector.advance(1000 * S)
    detector.check_invariants()
    return [one.parts for one in found]


# --- a variable that ties three inputs ----------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("text", "times", "longest"),
    [
        (CHAIN, (0, 5, 9), None),
        (CHAIN, (0, 10, 20), None),
        (FORK, (0, 5, 9), None),
        (FORK, (0, 10, 10), None),
        (LATER, (0, 5, 9), None),
        (NEAR, (0, 5, 9), None),
        (NEAR, (0, 5, 500), None),
        (MEETING, (0, 0, 9), 0),
        (MEETING, (0, 0, 100), 0),
        (OPEN, (0, 10, 900), None),
    ],
)
def test_what_waits_already_need_not_come_any_more(
    text: str, times: tuple[int, int, int], longest: Any, mode: str
) -> None:
    events = [event(name, at) for name, at in zip(("a1", "b1", "c1"), times, strict=True)]
    assert run(text, mode, *events, longest=longest) == [("a1", "b1", "c1")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("text", "times"),
    [(CHAIN, (0, 5, 16)), (CHAIN, (0, 11, 12)), (FORK, (0, 5, 11)), (LATER, (0, 1, 9)),
     (NEAR, (0, 11, 12)), (MEETING, (0, 0, 101)), (OPEN, (0, 11, 12))],
)  # fmt: skip
def test_what_is_too_late_for_one_operator_is_no_detection(
    text: str, times: tuple[int, int, int], mode: str
) -> None:
    events = [event(name, at) for name, at in zip(("a1", "b1", "c1"), times, strict=True)]
    assert run(text, mode, *events, longest=0) == []


_BY_MODE = [
    ("first-matching", [("a1", "b1", "c1"), ("a2", "b2", "c2")]),
    ("chronicle", [("a1", "b1", "c1"), ("a2", "b2", "c2")]),
    ("recent", [("a2", "b2", "c1"), ("a2", "b2", "c2")]),
    ("continuous", [("a1", "b1", "c1"), ("a2", "b1", "c1")]),
]


@pytest.mark.parametrize(("mode", "found"), _BY_MODE)
@pytest.mark.parametrize("text", [CHAIN, FORK, LATER, NEAR])
def test_every_mode(text: str, mode: str, found: list[tuple[str, ...]]) -> None:
    times = {"a1": 0, "a2": 1, "b1": 5, "b2": 6, "c1": 8, "c2": 9}
    assert run(text, mode, *(event(name, at) for name, at in times.items())) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # A variable stands for one event, in a detection of many too.
        (FORK, [("a1", "b1", "b2", "c1")]),
        (LATER, [("a1", "b1", "b2", "c1")]),
        (CHAIN, [("a1", "b1", "c1"), ("a2", "b2", "c2")]),
        (NEAR, [("a1", "b1", "c1"), ("a2", "b2", "c2")]),
    ],
)
def test_all_that_fits_at_once(text: str, found: list[tuple[str, ...]]) -> None:
    times = {"a1": 0, "a2": 1, "b1": 5, "b2": 6, "c1": 8, "c2": 9}
    assert run(text, "cumulative", *(event(name, at) for name, at in times.items())) == found


@pytest.mark.parametrize(
    ("mode", "found"),
    [
        ("first-matching", [("a1", "b1", "c1"), ("a2", "b2", "c2")]),
        ("chronicle", [("a1", "b1", "c1"), ("a2", "b2", "c2")]),
        ("recent", [("a2", "b2", "c1"), ("a2", "b2", "c2")]),
        ("continuous", [("a1", "b1", "c1"), ("a2", "b2", "c1")]),
        ("cumulative", [("a1", "b1", "c1"), ("a2", "b2", "c2")]),
    ],
)
def test_a_meeting_in_every_mode(mode: str, found: list[tuple[str, ...]]) -> None:
    times = {"a1": 0, "b1": 0, "a2": 1, "b2": 1, "c1": 8, "c2": 9}
    events = [event(name, at) for name, at in times.items()]
    assert run(MEETING, mode, *events, longest=0) == found


@pytest.mark.parametrize("mode", MODES)
def test_one_input_under_two_names_of_itself_waits_for_nobody(mode: str) -> None:
    text = '($a; && $a;) && (STRING: kind = "b", ARITH: v = &x)'
    text += ', $a; = (STRING: kind = "a", ARITH: v = &x)'
    assert run(text, mode, event("a1", 0, v=7), event("b1", 1, v=7)) == [("a1", "b1")]


@pytest.mark.parametrize("mode", MODES)
def test_three_inputs_joined_on_a_value(mode: str) -> None:
    a, b, c = (f'(STRING: kind = "{name}", ARITH: v = &x)' for name in "abc")
    text = f"=|({a}; {b}){c}"
    events = [event("a1", 0, v=1), event("c1", 1, v=1), event("b1", 2, v=1)]
    assert run(text, mode, *events) == [("a1", "c1", "b1")]
    assert run(text, mode, events[0], event("c1", 1, v=2), events[2]) == []


# --- what is dead is gone -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", [CHAIN, FORK, OPEN, MEETING])
def test_combinations_that_stay_incomplete_leave_nothing_behind(text: str, mode: str) -> None:
    detector = detector_of(text, mode, longest=0)
    for t in range(0, 20_000, 40):
        if text == OPEN:  # b comes too late
            detector.feed([event(f"a{t}", t), event(f"b{t}", t + 11)])
        elif text == MEETING:  # nobody meets
            detector.feed([event(f"a{t}", t), event(f"b{t}", t + 5)])
        else:  # c never comes
            detector.feed([event(f"a{t}", t), event(f"b{t}", t + 5)])
        assert detector.pending() <= 4
    detector.check_invariants()
    timers = detector._graph.timers
    assert len(timers.due) + len(timers.stale) < 20


def test_what_counts_on_an_instance_goes_with_it() -> None:
    detector = detector_of(OPEN)
    detector.feed([event("a1", 0), event("a2", 1), event("b1", 5), event("x", 20)])
    assert detector.pending() == 3  # b1 keeps both alive, for ever
    (found,) = detector.feed(event("c1", 30))
    assert found.parts == ("a1", "b1", "c1")
    assert detector.pending() == 0  # there is no b left for a2, and none can come
    detector.check_invariants()


def test_a_newer_partner_takes_over_in_recent() -> None:
    events = [event("a1", 0), event("b1", 5), event("b2", 7), event("x", 20), event("c1", 30)]
    assert run(OPEN, "recent", *events) == [("a1", "b2", "c1")]


def test_a_dead_instance_is_not_the_oldest() -> None:
    # No b came for a1 within its ten seconds.
    events = [event("a1", 0), event("a2", 20), event("b1", 25), event("c1", 30)]
    assert run(OPEN, "chronicle", *events) == [("a2", "b1", "c1")]
    # a1 has its b1 and is alive: c1 finds the oldest of both, and they fit.
    events = [event("a1", 0), event("b1", 5), event("a2", 20), event("b2", 25), event("c1", 30)]
    assert run(OPEN, "chronicle", *events) == [("a1", "b1", "c1")]


def test_a_full_queue_takes_those_along_that_counted_on_its_oldest() -> None:
    detector = detector_of(OPEN, max_pending=1)
    detector.feed([event("a1", 0), event("b1", 5), event("b2", 20)])
    assert detector.pending() == 2  # b2 is of no use to anybody, and makes nobody leave
    detector.feed([event("a2", 21)])
    assert detector.overflows == 1
    assert detector.pending() == 1  # b1 was of use to a1 only
    detector.check_invariants()


def test_a_saved_detector_knows_who_counts_on_whom() -> None:
    detector = detector_of(OPEN)
    detector.feed([event("a1", 0), event("a2", 1), event("b1", 5), event("x", 20)])
    other = Detector.restore(detector.save())
    other.check_invariants()
    assert [one.parts for one in other.feed(event("c1", 30))] == [("a1", "b1", "c1")]
    assert other.pending() == 0


# --- between ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("last", "absent", "present"),
    [
        # (c, b): whether c keeps !(A;B)C from firing, and whether =|(A;B)C has it.
        ((event("c1", 5), event("b1", 5)), False, False),
        ((event("b1", 5), event("c1", 5)), False, False),
        ((event("c1", 4), event("b1", 5)), True, True),
        ((event("c1", 5, 2), event("b1", 6, 4)), True, True),
        ((event("c1", 5, 0), event("b1", 6)), True, False),
        ((event("c1", 0), event("b1", 6)), False, False),
    ],
)
def test_between_is_open_at_both_ends(
    mode: str, last: tuple[Event, Event], absent: bool, present: bool
) -> None:
    events = [event("a1", 0), *last]
    assert run("!(A; B)C", mode, *events) == ([] if absent else [("a1", "b1")])
    found = run("=|(A; B)C", mode, *events)
    assert [set(parts) for parts in found] == ([{"a1", "b1", "c1"}] if present else [])


@pytest.mark.parametrize("mode", MODES)
def test_a_closer_follows_its_opener(mode: str) -> None:
    events = [event("a1", 1), event("c1", 3), event("b1", 6, 1)]
    assert run("!(A; B)C", mode, events[0], events[2]) == []
    assert run("=|(A; B)C", mode, *events) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_body_that_ends_with_one_closer_lies_before_the_next(mode: str) -> None:
    at_once = [event("b1", 5, 0), event("c1", 5)]  # b1 does not follow a1
    for pair in (at_once, at_once[::-1]):
        events = [event("a1", 1), *pair, event("b2", 6)]
        assert run("!(A; B)C", mode, *events) == []
        assert run("=|(A; B)C", mode, *events) == [("a1", "c1", "b2")]


# --- openers of negations -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "recent"])
def test_a_closed_window_is_not_the_oldest(mode: str) -> None:
    # Periods end at 4, 7, 10: b1 comes at 10. Closers that ended before c1 could come until 5.
    events = [event("a1", 1), event("c1", 2), event("a2", 3), event("b1", 8)]
    assert run("!(A; P(3)B)C", mode, *events) == [("a2", "b1")]


def test_a_closer_that_ended_before_the_body_still_opens_nothing() -> None:
    # b1 ended at 2 and comes at 4, after c1: the window (1, 2) is empty.
    events = [event("a1", 1), event("b1", 2), event("c1", 3), event("x", 5)]
    assert run("!(A; P(3)B)C", "chronicle", *events) == [("a1", "b1")]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "recent"])
def test_a_body_with_variables_of_its_own_closes_windows(mode: str) -> None:
    text = '!(A; B)(STRING: kind = "c", ARITH: v = &x, ARITH: w < &x)'
    events = [event("a1", 0), event("c1", 1, v=2, w=1), event("a2", 2), event("b1", 3)]
    assert run(text, mode, *events) == [("a2", "b1")]


def test_closed_windows_leave_nothing_behind() -> None:
    detector = detector_of("!(A; P(3)B)C")
    for t in range(0, 20_000, 10):
        detector.feed([event(f"a{t}", t), event(f"c{t}", t + 1), event(f"x{t}", t + 9)])
        assert detector.pending() <= 3
    detector.check_invariants()
    assert len(detector._graph.timers.stale) < 10
