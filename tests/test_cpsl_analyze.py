"""What a pattern must be beyond its syntax: every rule, and where its error is shown."""

from __future__ import annotations

import pytest

from nearcast.cpsl import ast
from nearcast.cpsl.analyze import analyze, problems
from nearcast.cpsl.builder import absent, both, event, number, pattern, ref, times
from nearcast.cpsl.parser import parse
from nearcast.errors import PatternError

FINE = [
    "ARITH: a = 1",
    "$x; && $x;, $x; = (ARITH: a = 1)",
    "$x;, $x; = ($y; && $y;), $y; = (ARITH: a = 1)",
    "ARITH: id = &x && ARITH: id = &x",
    "ARITH: id = &x, ARITH: other < &x",
    "Q(3)(STRING: id = &x)",
    "!(ARITH: id = &x; 5)(ARITH: id = &x)",
    "!(ARITH: id = &x; ARITH: b = 1)(ARITH: id = &x)",
    "!(ARITH: a = 1; 5)(ARITH: id = &x && ARITH: id = &x)",
    "!(ARITH: a = 1; 5)($x; && |($x;)(ARITH: b = 1)), $x; = (ARITH: c = 1)",
    "!($x;; 5)(IN($x;)(ARITH: b = 1)), $x; = (ARITH: a = 1)",
    "Q(2)(|($x;)$y; && IN($x;)$y;), $x; = (ARITH: a = 1), $y; = (ARITH: b = 1)",
    "|=(ARITH: a = 1; 0)(ARITH: b = 1)",
    "S(2; 0; 5)(ARITH: a = 1)",
    "@((0,0),(1,0),(0,1))!(ARITH: a = 1; 5)(ARITH: b = 1)",
    "!(0; 5)(ARITH: a = 1) && ARITH: b = 1",
    "DIST((1,1);>;0)(ARITH: a = 1)",
    "DIST((1,1);=;0)(ARITH: a = 1)",
    "ARITH: a IN [1, 1]",
    "RFID: PRODUCT = (0;3) 0xF",
    "RFID: PRODUCT = (0;3) &p && RFID: READER = (4;7) &p",
    "RFID: PRODUCT = (0;3;epc) &p && RFID: READER = (4;7;gate) &p",
]


@pytest.mark.parametrize("text", FINE)
def test_fine(text: str):
    assert problems(parse(text), text) == []
    assert analyze(parse(text), text) == parse(text)


WRONG = [
    ("$x; && ARITH: a = 1", 1, "$x; is not defined"),
    ("ARITH: a = 1 && $x;, $y; = (ARITH: a = 1)", 17, "$x; is not defined"),
    ("ARITH: a = 1, $x; = (ARITH: b = 1)", 15, "$x; is defined but not used"),
    ("ARITH: a = 1, $x; = ($y;), $y; = (ARITH: b = 1)", 15, "$x; is defined but not used"),
    ("$x;, $x; = (ARITH: a = 1), $x; = (ARITH: b = 1)", 28, "$x; is defined twice"),
    ("$x;, $x; = (Q(2)$x;)", 6, "$x; is defined by itself"),
    ("$x;, $x; = ($y;), $y; = ($x;)", 6, "$x; is defined by itself"),
    ("=|(ARITH: a = 1; 0)ARITH: b = 1", 18, "of no duration"),
    ("!(0; 0)ARITH: b = 1", 6, "of no duration"),
    ("P(0)ARITH: b = 1", 1, "of no duration"),
    ("@((1,1),(2,2))ARITH: a = 1", 3, "an empty region: its points lie on one line"),
    ("@((1,1),(2,2),(9,9))ARITH: a = 1", 3, "an empty region"),
    ("SPL((1,1),(1,1))ARITH: a = 1", 5, "an empty region"),
    ("@((1,1))ARITH: a = 1", 3, "use DIST or SPL"),
    ("DIST((1,1);<;0)ARITH: a = 1", 1, "no distance is less than 0"),
    ("@((0,0),(1,0),(0,1))!(0; 5)ARITH: a = 1", 21, "@ wants an event with a place"),
    ("DIST(!(0; 5)ARITH: a = 1;<;5)ARITH: a = 1", 6, "DIST wants an event with a place"),
    ("IN(ARITH: a = 1)$x;, $x; = (!(0; 5)ARITH: a = 1)", 17, "IN wants an event with a place"),
    ("OVLP(ARITH: a = 1)Q(2)!(0; 5)ARITH: a = 1", 19, "OVLP wants an event with a place"),
    ("ARITH: a IN [2, 1]", 8, "an empty range"),
    ("ARITH: a IN (1, 1]", 8, "an empty range"),
    ("RFID: PRODUCT = (5;4) 0x1", 7, "0 ≤ first ≤ last"),
    ("RFID: PRODUCT = (-1;4) 0x1", 7, "0 ≤ first ≤ last"),
    ("RFID: PRODUCT = (0;2) 0xF", 23, "0xF does not fit 3 bits"),
    ('CQL2: "price <"', 15, "CQL2:"),
    ('CQL2: """a"" = 1 AND price << 3"', 29, "CQL2:"),
    ("ARITH: a = &x", 12, "&x is bound but used nowhere else"),
    ("ARITH: a < &x && ARITH: b > &x", 12, "&x is never bound"),
    ("ARITH: a = &x + 1 && ARITH: b = &x * 2", 12, "&x is never bound"),
    ("ARITH: a = &x | b = 1, ARITH: c = &x", 12, "&x cannot stand beside an |"),
    ("ARITH: a = &x && STRING: b = &x", 30, "&x is a text here and a number elsewhere"),
    ("ARITH: a = &x && RFID: READER = (0;1)&x", 38, "&x is bits of a code here"),
    ("ARITH: a = &x && ARITH: b < &x / 0", 29, "divided by 0"),
    ("!(ARITH: a = 1; 5)(ARITH: id = &x) && ARITH: id = &x", 32, "in a negated part and elsewhere"),
    ("!(ARITH: a < &x; 5)(ARITH: id = &x)", 14, "&x is bound in negated parts only"),
    (
        "!(ARITH: a = 1; 5)$x; && $x;, $x; = (ARITH: b = 1)",
        19,
        "$x; stands in a negated part and elsewhere",
    ),
    ("Q(2)$x; && $x;, $x; = (ARITH: a = 1)", 5, "$x; stands in a repeated part and elsewhere"),
    ("P(5)$x; && $x;, $x; = (ARITH: a = 1)", 5, "$x; stands in a repeated part and elsewhere"),
]


@pytest.mark.parametrize(("text", "column", "message"), WRONG)
def test_wrong(text: str, column: int, message: str):
    with pytest.raises(PatternError) as caught:
        analyze(parse(text), text)
    assert message in caught.value.message
    assert caught.value.column == column


def test_all_problems_come_at_once_in_order():
    text = "@((1,1),(2,2))(ARITH: a IN [2,1]) && ARITH: b = &x && P(0)ARITH: c = 1"
    found = problems(parse(text), text)
    assert [error.column for error in found] == [3, 23, 49, 55]


@pytest.mark.parametrize(
    ("space", "text", "message"),
    [
        ("globe", "DIST((8.5, 95);<;5)ARITH: a = 1", "a latitude lies in"),
        ("globe", "DIST((500, 5);<;5)ARITH: a = 1", "a longitude lies in"),
    ],
)
def test_coordinates_of_a_space(space: str, text: str, message: str):
    assert problems(parse(text), text) == []
    assert problems(parse(text), text, space="planar") == []
    with pytest.raises(PatternError, match=message) as caught:
        analyze(parse(text), text, space=space)  # type: ignore[arg-type]
    assert caught.value.column == 6


def test_a_region_may_go_on_past_the_antimeridian():
    text = "@((170,0),(190,0),(190,5))ARITH: a = 1"
    assert problems(parse(text), text, space="globe") == []


def test_a_built_pattern_is_shown_in_its_normal_form():
    with pytest.raises(PatternError) as caught:
        analyze(pattern(both(ref("a"), ref("b")), a=event(id=1)))
    assert caught.value.text == "$a; && $b;, $a; = (ARITH: id = 1)"
    assert caught.value.column == 8


def test_one_object_in_two_places_is_two_expressions():
    nobody = absent(event(id=number("x")), after=event(kind="a"), within=5)
    with pytest.raises(PatternError, match="in a negated part and elsewhere"):
        analyze(ast.Pattern(both(nobody, nobody)))
    thrice = times(3, ref("a"))
    with pytest.raises(PatternError, match="in a repeated part and elsewhere"):
        analyze(pattern(both(thrice, thrice), a=event(id=1)))


@pytest.mark.parametrize(
    "expression",
    [
        ast.And((event(id=1),)),
        ast.Primitive(()),
        ast.Count(0, event(id=1)),
        ast.Period(-5, event(id=1)),
        ast.Distance(ast.Region(((0.0, 0.0),)), "<", -3.0, event(id=1)),
        ast.HappenIn(ast.Region(()), event(id=1)),
        ast.Negation(ast.Fixed(10**20, 5), event(id=1)),
        ast.Primitive((ast.TypedPredicate("STRING", ((ast.SetTest("a", ()),),)),)),
        ast.Reference("no name"),
        ast.HappenAfter(ast.Following(event(id=1), 10**20), event(id=1)),
    ],
)
def test_what_only_python_can_build_wrong_is_an_error_too(expression: ast.Expression):
    with pytest.raises(PatternError):
        analyze(ast.Pattern(expression))
