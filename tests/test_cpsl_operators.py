"""Every operator against the naive interpreter, alone and nested, in every mode."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nearcast.cpsl import ast
from nearcast.cpsl.composite import MODES, Composite
from nearcast.cpsl.detector import Detector
from nearcast.errors import PatternError
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Point
from tests import cpsl_cases as cases
from tests.cpsl_naive import kept, naive

UNTIL = 60
_relaxed = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def agree(pattern: ast.Pattern, history: list[Event], mode: Any, longest: int | None) -> int:
    try:
        composite = Composite(id="c", text=pattern, consume=mode)
    except PatternError:
        assume(False)
    options = {} if longest is None else {"longest": longest / 1_000_000}
    found = cases.detected(composite, history, UNTIL, **options)
    assert found == naive(composite.pattern, history, mode, UNTIL, longest)
    return len(found)


def _alone() -> dict[str, ast.Expression]:
    a, b, c = cases.kind(1), cases.kind(2), cases.kind(3)
    region, spot = cases.REGION, cases.SPOT
    return {
        "!(T;t)A": ast.Negation(ast.Fixed(3, 4), a),
        "!(A;t)B": ast.Negation(ast.Following(a, 3), b),
        "!(A;B)C": ast.Negation(ast.Enclosed(a, b), c),
        "=|(T;t)A": ast.HappenBetween(ast.Fixed(2, 5), a),
        "=|(A;t)B": ast.HappenBetween(ast.Following(a, 4), b),
        "=|(A;B)C": ast.HappenBetween(ast.Enclosed(a, b), c),
        "|=(T;t)A": ast.HappenAfter(ast.Fixed(2, 2), a),
        "|=(A;t)B": ast.HappenAfter(ast.Following(a, 2), b),
        "|=(A;B)C": ast.HappenAfter(ast.Enclosed(a, b), c),
        "|(A)B": ast.Concurrent(a, b),
        "@(R)A": ast.HappenIn(region, a),
        "IN(A)B": ast.Inside(a, b),
        "OVLP(R)A": ast.Overlap(region, a),
        "OVLP(A)B": ast.Overlap(a, b),
        "SPL(R)A": ast.SamePlace(region, a),
        "SPL(A)B": ast.SamePlace(a, b),
        "DIST(R;<;l)A": ast.Distance(spot, "<", 1.7, a),
        "DIST(R;=;l)A": ast.Distance(region, "=", 1.7, a),
        "DIST(R;>;l)A": ast.Distance(region, ">", 0.5, a),
        "DIST(A;<;l)B": ast.Distance(a, "<", 1.7, b),
        "DIST(A;=;l)B": ast.Distance(a, "=", 1.7, b),
        "DIST(A;>;l)B": ast.Distance(a, ">", 1.7, b),
        "A && B": ast.And((a, b)),
        "A || B": ast.Or((a, b)),
        "Q(n)A": ast.Count(2, a),
        "P(t)A": ast.Period(4, a),
        "S(n;t;k)A": ast.Sliding(2, 3, 2, a),
    }


@pytest.mark.parametrize("form", _alone())
@settings(_relaxed, max_examples=12)
@given(history=cases.histories(), mode=st.sampled_from(MODES), longest=st.sampled_from([None, 2]))
def test_an_operator_alone(form: str, history: list[Event], mode: Any, longest: int | None) -> None:
    agree(ast.Pattern(_alone()[form]), history, mode, longest)


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed)
@given(pattern=cases.patterns(), history=cases.histories(), longest=st.sampled_from([None, 2]))
def test_operators_over_operators(
    mode: Any, pattern: ast.Pattern, history: list[Event], longest: int | None
) -> None:
    agree(pattern, history, mode, longest)


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed, max_examples=15)
@given(pattern=cases.patterns(3), history=cases.histories(size=16))
def test_three_levels(mode: Any, pattern: ast.Pattern, history: list[Event]) -> None:
    agree(pattern, history, mode, 2)


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed)
@given(pattern=cases.variable_patterns(), history=cases.histories())
def test_variables(mode: Any, pattern: ast.Pattern, history: list[Event]) -> None:
    agree(pattern, history, mode, 2)


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed)
@given(pattern=cases.twin_patterns(), history=cases.histories(size=8))
def test_operators_that_differ_in_their_variables_only(
    mode: Any, pattern: ast.Pattern, history: list[Event]
) -> None:
    agree(pattern, history, mode, 2)


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed)
@given(
    pattern=cases.chained_patterns(),
    history=cases.histories(size=16, least=8),
    longest=st.sampled_from([None, 2]),
)
def test_values_that_tie_some_inputs_each(
    mode: Any, pattern: ast.Pattern, history: list[Event], longest: int | None
) -> None:
    agree(pattern, history, mode, longest)


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed)
@given(
    pattern=cases.enclosed_negations(),
    history=cases.histories(),
    longest=st.sampled_from([None, 2]),
)
def test_negations_between_operands_that_come_late(
    mode: Any, pattern: ast.Pattern, history: list[Event], longest: int | None
) -> None:
    agree(pattern, history, mode, longest)


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed)
@given(
    pattern=cases.shared_patterns(),
    history=cases.histories(size=10),
    longest=st.sampled_from([None, 2]),
)
def test_variables_that_tie_many_inputs(
    mode: Any, pattern: ast.Pattern, history: list[Event], longest: int | None
) -> None:
    agree(pattern, history, mode, longest)


@pytest.mark.parametrize("mode", MODES)
@settings(_relaxed)
@given(
    pattern=st.one_of(
        cases.shared_patterns(),
        cases.chained_patterns(),
        cases.variable_patterns(),
        cases.patterns(),
    ),
    history=cases.histories(longest=0, size=10),
    later=st.integers(0, 4),
)
def test_what_can_still_match_waits_and_nothing_else(
    mode: Any, pattern: ast.Pattern, history: list[Event], later: int
) -> None:
    try:
        composite = Composite(id="c", text=pattern, consume=mode)
    except PatternError:
        assume(False)
    until = (history[-1].end or 0) + later
    waiting = cases.pending(composite, history, until, longest=0)
    assert waiting == kept(composite.pattern, history, mode, until, 0)


def _spot(id: str, k: int, place: Any, end: int) -> Event:
    return Event(id, {"k": k}, location=place, end=end)


@pytest.mark.parametrize(
    ("place", "overlaps"),
    [
        (Box(1, 1, 3, 3), True),  # in part
        (Box(2, 0, 3, 1), True),  # an edge
        (Box(2, 2, 3, 3), True),  # a corner
        (Box(0.5, 0.5, 1, 1), False),  # inside
        (Box(0, 0, 1, 1), False),  # inside, at the border
        (Box(0, 0, 2, 2), False),  # equal
        (Box(-1, -1, 3, 3), False),  # around
        (Box(3, 3, 4, 4), False),  # apart
        (Point(1, 1), False),
        (Point(2, 2), False),
        (None, False),
    ],
)
@pytest.mark.parametrize("text", ["OVLP((0,0),(2,0),(2,2),(0,2)){}", "OVLP(ARITH: k = 1){}"])
@pytest.mark.parametrize("space", ["planar", "globe"])
def test_what_overlaps(text: str, place: Any, overlaps: bool, space: Any) -> None:
    detector = Detector(space)
    detector.add(Composite(id="c", text=text.format("(ARITH: k = 2)")))
    found = detector.feed([_spot("e1", 1, Box(0, 0, 2, 2), 1), _spot("e2", 2, place, 2)])
    assert bool(found) == overlaps
