"""Texts that differ in constants only: the same plans and the same errors as the full way."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Composite
from nearcast.cpsl import ast, templates
from nearcast.cpsl.analyze import analyze, problems
from nearcast.cpsl.compile import compile_pattern
from nearcast.cpsl.parser import parse
from nearcast.cpsl.templates import learn, recognise
from nearcast.errors import PatternError
from tests.cpsl_cases import variable_patterns
from tests.cpsl_expressions import patterns

DEPARTURE = (
    "=|(@((0,0),(10,0),(10,10),(0,10))(ARITH: id = 7); 600)(DIST((5,5);>;500)(ARITH: id = 7))"
)
LITERAL = re.compile(r'"[^"]*"|(?<![\w.$])-?\d+(\.\d+)?')


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch):
    for name in ("_templates", "_fixed", "_once"):
        monkeypatch.setattr(templates, name, {})


def full(text: str, **options: Any) -> Any:
    """What the full way makes of a text: a plan, or an error."""
    try:
        return compile_pattern(analyze(parse(text), text), **options)
    except PatternError as error:
        return str(error)


def quick(text: str, **options: Any) -> Any:
    """The same through templates, where there is one."""
    try:
        composite = Composite("c", text=text)
    except PatternError as error:
        return str(error)
    return composite.plan(options.get("longest"))


def taught(text: str) -> None:
    for _ in range(2):
        learn(text, analyze(parse(text), text))


def is_known(text: str) -> bool:
    return recognise(text) is not None


def test_only_the_constants_of_a_form_that_came_twice_are_read():
    Composite("c1", text=DEPARTURE)
    assert not is_known(DEPARTURE)
    Composite("c2", text=DEPARTURE.replace("7", "8"))
    other = DEPARTURE.replace("7", "-9.25").replace("10", "20").replace("500", "7")
    assert is_known(other)
    assert Composite("c3", text=other).plan(5) == full(other, longest=5)
    assert Composite("c3", text=other).pattern == parse(other)


def test_what_is_computed_once_makes_another_form():
    taught(DEPARTURE)
    later = DEPARTURE.replace("600", "700")
    assert not is_known(later)
    taught(later)
    assert is_known(later)
    assert is_known(DEPARTURE)
    assert quick(later) == full(later) != full(DEPARTURE)


@pytest.mark.parametrize(
    "change",
    [
        ("(10,10),(0,10)", "(20,0),(30,0)"),  # a flat region
        ("(10,10)", '"POINT (1 2)"'),
        (">;500", ">;-500"),
        (">;500", ">;0"),
        ("id = 7", "id = 1e999"),
        ("id = 7", "id = 007.50"),
        ("id = 7", 'id = "7"'),
        ("id = 7", "id = &x"),
        ("; 600", "; -600"),
        ("; 600", "; 0"),
        ("5,5", "5, 5 # five\n"),
        ("id = 7", f"id = {'9' * 400}"),
    ],
)
def test_constants_that_may_be_wrong_are_told_as_the_full_way_does(change: tuple[str, str]):
    taught(DEPARTURE)
    text = DEPARTURE.replace(*change)
    assert text != DEPARTURE
    assert quick(text) == full(text)


@pytest.mark.parametrize(
    "text",
    [
        "ARITH: a IN [1, 2] & b = 3",
        'STRING: s = "x" & t >* "y", ARITH: a < 4',
        'STRING: s = "a""b", ARITH: a = 1',
        "Q(3)(ARITH: a = 1)",
        'S(2; PT5S; 1)(STRING: s = "x")',
        '!(STRING: s = "x", STRING: p = &p; PT10M)(STRING: s = "y", STRING: p = &p)',
        "=|(ARITH: a = &x; 10)(ARITH: b > &x * 2 & c = 5)",
        "=|(ARITH: a = &x; 10)(ARITH: b > &x -2, ARITH: c = 5)",
        "!(1000; 5)(ARITH: a = 1)",
        'OVLP((0,0),(1,0),(1,1))(CQL2: "a < 3") || SPL((2, 3))(ARITH: a != 1)',
        'RFID: PRODUCT = (0;7) 0x3F, ARITH: a = 1 | b = 2, STRING: s IN ("x", "y")',
        '@("POLYGON ((0 0, 1 0, 1 1, 0 0))")(ARITH: a = 1)',
        "$x; && |=($x;; 5)(DIST((1,2); <; 3)$y;), $x; = (ARITH: a = 1), $y; = (ARITH: a = 2)",
    ],
)
@pytest.mark.parametrize("number", ["2", "4.5", "-3", "1e3"])
def test_every_construct(text: str, number: str):
    taught(text)
    assert quick(text) == full(text)
    for found in LITERAL.finditer(text):
        with_other = '"z 1"' if found[0][0] == '"' else number
        changed = text[: found.start()] + with_other + text[found.end() :]
        assert quick(changed) == full(changed), changed


def test_ties_follow_the_constants():
    first, second = "P(5)(ARITH: a = 1)", "P(5)(ARITH: a = 2)"
    taught(first)
    assert is_known(second)
    assert quick(second).tie == full(second).tie != full(first).tie


def test_variables_that_tell_operators_apart_do_so_with_any_constants():
    text = "($y; && $y;) && ($x; && $x;), $x; = (ARITH: a = 1), $y; = (ARITH: a = 2)"
    same = text.replace("2", "1")
    taught(text)
    assert is_known(same)
    first, second = quick(same).inputs
    assert first.plan != second.plan
    assert quick(same) == full(same)


@settings(max_examples=150, deadline=None)
@given(st.one_of(patterns, variable_patterns()), st.data())
def test_any_pattern_with_other_constants(pattern: ast.Pattern, data: st.DataObject):
    text = str(pattern)
    if problems(parse(text), text):
        return
    taught(text)
    assert quick(text, longest=3) == full(text, longest=3)
    numbers = st.sampled_from(["0", "1", "-7", "2.5", "1000000", "5e1"])
    strings = st.sampled_from(['"a"', '""', '"x y"'])
    parts = [
        data.draw(strings if found[0][0] == '"' else numbers)
        if data.draw(st.integers(0, 3)) == 0
        else found[0]
        for found in LITERAL.finditer(text)
    ]
    places = [0, *(at for found in LITERAL.finditer(text) for at in found.span()), len(text)]
    between = [text[a:b] for a, b in zip(places[::2], places[1::2], strict=True)]
    changed = "".join(a + b for a, b in zip(between, [*parts, ""], strict=True))
    assert quick(changed) == full(changed)


def test_forms_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(templates, "_MOST", 3)
    for i in range(10):
        taught(f"ARITH: a{i} = 1")
        taught(f"=|(ARITH: a = 1; {i + 1})(ARITH: a = 2)")
    assert len(templates._templates) == len(templates._fixed) == 3
    assert len(templates._once) == 3
    assert max(map(len, templates._templates.values())) <= 3
    assert quick("ARITH: a9 = 4") == full("ARITH: a9 = 4")
