"""The builder says what the text says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from nearcast import Box, Composite, Point
from nearcast.cpsl.ast import Expression, Pattern
from nearcast.cpsl.builder import (
    absent,
    at_distance,
    both,
    cpsl,
    either,
    event,
    every,
    far,
    happens,
    inside,
    later,
    near,
    number,
    overlapping,
    pattern,
    ref,
    same_place,
    seq,
    string,
    times,
    together,
)
from nearcast.cpsl.parser import parse
from nearcast.errors import ValidationError

A, B, C = event(id=1), event(kind="b"), event("price < 10")
AT, BT, CT = "ARITH: id = 1", 'STRING: kind = "b"', 'CQL2: "price < 10"'
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (A, AT),
        (event("x > 1", a=1, b="t"), 'CQL2: "x > 1", ARITH: a = 1, STRING: b = "t"'),
        (event(id=number("x"), name=string("y")), "ARITH: id = &x, STRING: name = &y"),
        (event(open=True), 'CQL2: "open = TRUE"'),
        (event(_x=1), 'CQL2: """_x"" = 1"'),
        (cpsl("Q(2)ARITH: a = 1"), "Q(2)ARITH: a = 1"),
        (both(A, B, C), f"{AT} && {BT} && {CT}"),
        (either(A, both(B, C)), f"{AT} || {BT} && {CT}"),
        (both(either(A, B), C), f"({AT} || {BT}) && {CT}"),
        (seq(A, B, within="PT10M"), f"=|({AT}; 600){BT}"),
        (seq(A, B, C, within=5), f"=|(=|({AT}; 5)({BT}); 5){CT}"),
        (seq(A, B), f"|=({AT}; 0){BT}"),
        (absent(B, after=A, within=timedelta(minutes=1)), f"!({AT}; 60){BT}"),
        (absent(C, after=A, before=B), f"!({AT}; {BT}){CT}"),
        (absent(A, after=NOON, within=0.5), f"!(2026-03-01T12:00:00Z; 0.5){AT}"),
        (happens(B, after=A, within="5"), f"=|({AT}; 5){BT}"),
        (happens(C, after=A, before=B), f"=|({AT}; {BT}){CT}"),
        (happens(A, after="2026-03-01T12:00:00Z", within=5), f"=|(2026-03-01T12:00:00Z; 5){AT}"),
        (later(B, after=A), f"|=({AT}; 0){BT}"),
        (later(B, after=A, by="PT1H"), f"|=({AT}; 3600){BT}"),
        (later(C, after=A, then=B), f"|=({AT}; {BT}){CT}"),
        (later(A, after=NOON, by=5), f"|=(2026-03-01T12:00:00Z; 5){AT}"),
        (together(A, B), f"|({AT}){BT}"),
        (inside(Box(0, 0, 1, 1), A), f"@((0,0),(1,0),(1,1),(0,1)){AT}"),
        (inside(A, B), f"IN({AT}){BT}"),
        (overlapping([(0, 0), (1, 0), (0, 1)], A), f"OVLP((0,0),(1,0),(0,1)){AT}"),
        (overlapping(A, B), f"OVLP({AT}){BT}"),
        (same_place(Point(1, 2), A), f"SPL((1,2)){AT}"),
        (same_place(A, B), f"SPL({AT}){BT}"),
        (near((8.5, 47.4), A, 2000), f"DIST((8.5,47.4);<;2000){AT}"),
        (far(A, B, 10), f"DIST({AT};>;10){BT}"),
        (at_distance("POINT (1 2)", A, 10.5), f"DIST((1,2);=;10.5){AT}"),
        (times(3, A), f"Q(3){AT}"),
        (times(3, A, within=60), f"S(3;60;3){AT}"),
        (times(3, A, within=60, step=1), f"S(3;60;1){AT}"),
        (every("PT1H", A), f"P(3600){AT}"),
    ],
)
def test_the_builder_yields_what_the_text_says(built: Expression, text: str):
    assert built == parse(text).expression
    assert Composite(id="c", text=both(built, built)).pattern.expression == both(built, built)


def test_patterns_have_definitions():
    built = pattern(both(together(ref("a"), ref("b")), near(ref("a"), ref("b"), 50)), a=A, b=B)
    assert built == parse(f"|($a;)$b; && DIST($a;;<;50)$b;, $a; = ({AT}), $b; = ({BT})")
    assert isinstance(built, Pattern)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: event(None),
        lambda: event(id=None),  # type: ignore[arg-type]
        lambda: event(_x=number("y")),
        lambda: cpsl("$x;, $x; = (ARITH: a = 1)"),
        lambda: both(A),
        lambda: both(A, "ARITH: a = 1"),  # type: ignore[arg-type]
        lambda: pattern("ARITH: a = 1"),  # type: ignore[arg-type]
        lambda: seq(A),
        lambda: seq(A, B, within="soon"),
        lambda: seq(A, B, within=True),
        lambda: seq(A, B, within=float("inf")),
        lambda: absent(A, after=B),
        lambda: absent(A, after=B, within=5, before=C),
        lambda: absent(A, after=NOON, before=C),
        lambda: times(3, A, step=2),
        lambda: near("LINESTRING (0 0, 1 1)", A, 5),
    ],
)
def test_what_the_builder_refuses(wrong):
    with pytest.raises(ValidationError):
        wrong()
