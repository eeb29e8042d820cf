"""The five modes on histories that can be followed by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.model.events import Event

S = 1_000_000


def event(name: str, at: float, **attributes: Any) -> Event:
    """a1 is the first event of kind a."""
    return Event(id=name, attributes={"kind": name[0], **attributes}, end=int(at * S))


def run(text: str, mode: Any, *events: Event, until: float = 1000) -> list[tuple[str, ...]]:
    text = re.sub(r"\b[ABC]\b", lambda m: f'(STRING: kind = "{m[0].lower()}")', text)
    detector = Detector("planar")
    detector.add(Composite(id="c", text=text, consume=mode))
    found = detector.feed(events) + detector.advance(int(until * S))
    detector.check_invariants()
    return [one.parts for one in found]


SEQUENCE = [event(n, t) for n, t in (("a1", 1), ("a2", 2), ("b1", 3), ("b2", 4), ("b3", 20))]


@pytest.mark.parametrize(
    ("mode", "found"),
    [
        ("first-matching", [("a1", "b1"), ("a2", "b2")]),
        ("chronicle", [("a1", "b1"), ("a2", "b2")]),
        ("recent", [("a2", "b1"), ("a2", "b2")]),
        ("continuous", [("a1", "b1"), ("a2", "b1")]),
        ("cumulative", [("a1", "a2", "b1")]),
    ],
)
def test_a_sequence(mode: str, found: list[tuple[str, ...]]) -> None:
    assert run("=|(A; 10)B", mode, *SEQUENCE) == found


@pytest.mark.parametrize(
    ("mode", "found"),
    [
        ("first-matching", [("a1", "b1", "c1")]),
        ("chronicle", [("a1", "b1", "c1")]),
        ("recent", [("a2", "b1", "c1")]),
        ("continuous", [("a1", "b1", "c1"), ("a2", "b1", "c1")]),
        ("cumulative", [("a1", "a2", "b1", "b2", "c1")]),
    ],
)
def test_a_body_between_two_events(mode: str, found: list[tuple[str, ...]]) -> None:
    steps = [event(n, t) for n, t in (("a1", 1), ("a2", 2), ("b1", 3), ("b2", 4), ("c1", 5))]
    expected = [("a2", "b2", "c1")] if mode == "recent" else found
    assert run("=|(A; C)B", mode, *steps) == expected


def test_chronicle_takes_the_oldest_or_nothing() -> None:
    text = '(ARITH: v = &x, STRING: kind = "a") && (ARITH: v = &x, STRING: kind = "b")'
    steps = [event("a1", 1, v=1), event("a2", 2, v=2), event("b1", 3, v=2), event("b2", 4, v=1)]
    assert run(text, "chronicle", *steps) == []
    assert run(text, "first-matching", *steps) == [("a2", "b1"), ("a1", "b2")]


def test_what_is_too_old_is_not_the_oldest() -> None:
    steps = [event("a1", 1), event("a2", 8), event("b1", 15)]
    assert run("=|(A; 10)B", "chronicle", *steps) == [("a2", "b1")]


@pytest.mark.parametrize("mode", ["first-matching", "chronicle", "continuous", "cumulative"])
def test_a_negation_consumes_its_opener_only(mode: str) -> None:
    # One b closes every window it falls in, and is not used up by it.
    steps = [event("a1", 1), event("a2", 2), event("b1", 3), event("a3", 4)]
    assert run("!(A; 5)B", mode, *steps) == [("a3",)]


def test_a_newer_opener_replaces_an_open_window_in_recent() -> None:
    assert run("!(A; 5)B", "recent", event("a1", 1), event("a2", 2)) == [("a2",)]
    assert run("!(A; 5)B", "recent", event("a1", 1), event("a2", 7)) == [("a1",), ("a2",)]


@pytest.mark.parametrize(
    ("mode", "found"),
    [
        ("first-matching", [("a1", "a2"), ("a3", "a4")]),
        ("chronicle", [("a1", "a2"), ("a3", "a4")]),
        ("recent", [("a1", "a2"), ("a2", "a3"), ("a3", "a4")]),
        ("continuous", [("a1", "a2"), ("a2", "a3"), ("a3", "a4")]),
        ("cumulative", [("a1", "a2"), ("a3", "a4")]),
    ],
)
def test_counting(mode: str, found: list[tuple[str, ...]]) -> None:
    assert run("Q(2)A", mode, *(event(f"a{i}", i) for i in range(1, 5))) == found


def test_an_alternative_consumes_nothing() -> None:
    steps = [event("a1", 1), event("b1", 2)]
    # Both sides keep both events, so they meet as (a1, b1) and as (b1, a1).
    assert run("(A || B) && (A || B)", "first-matching", *steps) == [("a1", "b1")] * 2


def test_consumption_by_one_composite_does_not_affect_another() -> None:
    detector = Detector("planar")
    a, b = '(STRING: kind = "a")', '(STRING: kind = "b")'
    detector.add(Composite(id="one", text=f"=|({a}; 10){b}"))
    detector.add(Composite(id="same", text=f"=|({a}; 10){b}"))
    detector.add(Composite(id="other", text=f"=|({a}; 10){b}", consume="recent"))
    assert detector.nodes == 4  # two primitives, one shared joint, one of another mode
    found = detector.feed([event("a1", 1), event("b1", 2), event("b2", 3)])
    assert [one.id for one in found] == ["one#1", "same#1", "other#1", "other#2"]


def test_an_event_is_not_its_own_partner() -> None:
    text = '(ARITH: v > 0) && (STRING: kind = "a")'
    assert run(text, "first-matching", event("a1", 1, v=1)) == []
    assert run(text, "first-matching", event("a1", 1, v=1), event("a2", 2)) == [("a1", "a2")]


@pytest.mark.parametrize(
    "text",
    [
        "($y; && $y;) && ($x; && $x;), $x; = (A), $y; = (A)",
        "(A && B) && ($x; && $y;), $x; = (A), $y; = (B)",
        "Q(1)($u; && $v;) && Q(1)($x; && $y;), $x; = (A), $y; = (B), $u; = (A), $v; = (B)",
    ],
)
@pytest.mark.parametrize(
    "mode", ["first-matching", "chronicle", "recent", "continuous", "cumulative"]
)
def test_operators_over_other_variables_are_others(mode: str, text: str) -> None:
    """Though the variables are defined alike: each has an instance, and these are partners."""
    assert run(text, mode, event("a1", 1)) == ([("a1",)] if "B" not in text else [])
    found = run(text, mode, event("a1", 1), event("b1", 2))
    assert found == [("a1", "b1") if "B" in text else ("a1",)]


def test_each_of_two_operators_is_an_alternative() -> None:
    text = "($x; && $y;) || ($u; && $v;), $x; = (A), $y; = (B), $u; = (A), $v; = (B)"
    found = run(text, "first-matching", event("a1", 1), event("b1", 2))
    assert found == [("a1", "b1"), ("a1", "b1")]


def test_variables_that_nothing_depends_on_are_left_out() -> None:
    detector = Detector("planar")
    a, b = '(STRING: kind = "a")', '(STRING: kind = "b")'
    for at, (x, y) in enumerate((("x", "y"), ("u", "v"))):
        text = f"|(${x};)${y}; && OVLP(${x};)${y};, ${x}; = {a}, ${y}; = {b}"
        detector.add(Composite(id=f"c{at}", text=text))
    assert detector.nodes == 3  # they are one, whatever their variables are called
