"""Malformed patterns by the thousand: an error with a place, never a crash, never a hang."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Composite
from nearcast.cpsl import ast
from nearcast.cpsl.analyze import MAX_DEPTH, MAX_NODES, analyze, problems
from nearcast.cpsl.parser import MAX_TEXT, parse
from nearcast.errors import PatternError
from tests.cpsl_expressions import patterns

SEEDS = [
    'DIST((8.5,47.4);<;2000)(STRING: type = "TAXI", STRING: state = "uncarry")',
    "=|($e1;; 600)$e2;, $e1; = (|($A;)$B; && DIST($A;;<;50)$B;), $e2; = (Q(2)ARITH: id = 1),"
    " $A; = (ARITH: id = 1), $B; = (ARITH: id = 2)",
    "!(2026-03-01T12:00:00Z; PT10M)(ARITH: a = 1 & b < &x * 2,"
    " ARITH: c IN [1,2) | d = 3, ARITH: x = &x)",
    'S(2;PT5S;1)P(0.5)(RFID: PRODUCT = (0;7) 0x3F & READER != (1;2)01b, CQL2: "a < 3")',
    '@("POLYGON ((0 0, 1 0, 1 1, 0 0))")(STRING: a NOT IN ("x", "y") || ARITH: b != -1.5e3)',
]
PIECES = [
    *"()[];,$&|!=<>@:#\"'*+-/. \n\t\0é😀",
    "&&",
    "||",
    "=|",
    "|=",
    "IN",
    "OVLP",
    "SPL",
    "DIST",
]
PIECES += ["Q", "P", "S", "ARITH:", "STRING:", "RFID:", "CQL2:", "NOT", "PRODUCT", "PT10M", "$x;"]
PIECES += ["&x", "0x1F", "01b", "1e999", "-1", "2026-01-01T00:00:00Z", '"a"', "(1,2)", "9" * 40]
TOKEN = re.compile(r'"[^"]*"|\w+|\s+|.', re.DOTALL)


def outcome(text: str) -> str:
    """What becomes of a text: fine, or an error that points into it."""
    try:
        pattern = parse(text)
    except PatternError as error:
        found = [error]
    else:
        found = problems(pattern, text)
    for each in found:
        assert 0 <= each.position <= len(text)
        assert each.line >= 1
        assert each.column >= 1
        assert "^" in str(each).splitlines()[-1]
    return "wrong" if found else "fine"


def mutated(text: str, chance: random.Random) -> str:
    tokens = TOKEN.findall(text)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(tokens) + 1)
        act = chance.randrange(5)
        if act == 0:
            tokens.insert(at, chance.choice(PIECES))
        elif act == 1 and tokens:
            del tokens[min(at, len(tokens) - 1)]
        elif act == 2 and tokens:
            tokens[min(at, len(tokens) - 1)] = chance.choice(PIECES)
        elif act == 3 and tokens:
            tokens.insert(at, chance.choice(tokens))
        else:
            tokens = tokens[:at]
    return "".join(tokens)


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_mutations_are_fine_or_wrong_somewhere(seed: int):
    chance = random.Random(seed)
    outcomes = [outcome(mutated(SEEDS[seed], chance)) for _ in range(600)]
    assert {"fine", "wrong"} == set(outcomes)
    assert outcomes.count("wrong") > 300


def test_random_pieces():
    chance = random.Random(99)
    for _ in range(2000):
        outcome("".join(chance.choices(PIECES, k=chance.randint(1, 12))))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text(text: str):
    outcome(text)


@settings(max_examples=100, deadline=None)
@given(patterns)
def test_any_pattern_is_analysed_the_same_with_and_without_its_text(pattern: ast.Pattern):
    text = str(pattern)
    with_text = [str(error) for error in problems(parse(text), text)]
    assert [str(error) for error in problems(pattern)] == with_text


@pytest.mark.parametrize(
    "text",
    [
        "(" * (MAX_TEXT - 1),
        "!(" * (MAX_TEXT // 2),
        "(" * 40_000 + "ARITH: a = 1" + ")" * 39_999,
        "Q(1)" * 20_000 + "ARITH: a = 1",
        "|(ARITH: a = 1)" * 5_000 + "ARITH: a = 1",
        "ARITH: a = 1 && " * 5_000 + "ARITH: a = 1",
        "ARITH: a = 1" + " & a = 1" * 10_000 + " &",
        "," * MAX_TEXT,
        "ARITH: a = 1," + " " * 90_000,
        "ARITH: a = 1," + "#\n" * 45_000,
        '"' * (MAX_TEXT - 1),
        "=" * MAX_TEXT,
        "1" * MAX_TEXT,
        "P" * MAX_TEXT,
        "ARITH: a = " + "1" * 90_000,
        "RFID: PRODUCT = (0;1)0x" + "F" * 90_000,
        "$x;, " + ", ".join(f"$x{i}; = ($x{i + 1};)" for i in range(900)),
        ", ".join(["$x0; && $x0;", *(f"$x{i}; = ($x{i + 1}; && $x{i + 1};)" for i in range(200))]),
    ],
    ids=lambda text: f"{text[:12]}…",
)
def test_deep_and_long_texts_end_in_an_error(text: str):
    assert outcome(text) == "wrong"


def test_parentheses_alone_are_no_depth():
    assert outcome("(" * 5_000 + "ARITH: a = 1" + ")" * 5_000) == "fine"


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 20_000])
def test_nesting_is_bounded_for_built_patterns_too(depth: int):
    expression: ast.Expression = parse("ARITH: a = 1").expression
    for _ in range(depth - 1):
        expression = ast.Count(1, expression)
    if depth == MAX_DEPTH:
        assert Composite(id="c", text=expression).pattern.expression == expression
        return
    with pytest.raises(PatternError, match=r"too deep|too large"):
        analyze(ast.Pattern(expression))


def test_depth_counts_through_definitions():
    links = [f"$x{i}; = (Q(1)$x{i + 1};)" for i in range(40)]
    text = ", ".join(["$x0;", *links, "$x40; = (ARITH: a = 1)"])
    with pytest.raises(PatternError, match="too deep"):
        analyze(parse(text), text)


def test_the_number_of_operators_is_bounded():
    text = " && ".join(["ARITH: a = 1"] * MAX_NODES)
    with pytest.raises(PatternError, match="too large"):
        analyze(parse(text), text)
    text = " && ".join(["ARITH: a = 1"] * (MAX_NODES - 1))
    assert analyze(parse(text), text)


def test_variables_that_double_each_other_are_counted_as_written_out():
    links = [f"$x{i}; = ($x{i + 1}; && $x{i + 1};)" for i in range(25)]
    text = ", ".join(["$x0;", *links, "$x25; = (ARITH: a = 1)"])
    with pytest.raises(PatternError, match="too large: written out"):
        analyze(parse(text), text)
