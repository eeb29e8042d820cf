"""CPSL as values: equal where they say the same, whatever stands around them."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings

from nearcast import Composite
from nearcast.cpsl import ast
from nearcast.cpsl.composite import MODES
from nearcast.cpsl.parser import parse
from nearcast.errors import PatternError, ValidationError
from tests.cpsl_expressions import expressions


def test_spans_do_not_count():
    one, two = parse("ARITH: a = 1").expression, parse("  (ARITH:a=1)").expression
    assert one.span != two.span
    assert one == two
    assert hash(one) == hash(two)
    assert len({one, two}) == 1
    assert "span" not in repr(one)


@settings(max_examples=50, deadline=None)
@given(expressions)
def test_walking_meets_every_child_once_and_in_order(expression: ast.Expression):
    def recursively(node: ast.Expression) -> list[ast.Expression]:
        return [node] + [n for child in ast.children(node) for n in recursively(child)]

    walked = list(ast.walk(expression))
    assert [id(n) for n in walked] == [id(n) for n in recursively(expression)]
    assert pickle.loads(pickle.dumps(expression)) == expression


def test_definitions_are_found_by_name():
    pattern = parse("$x;, $x; = (ARITH: a = 1)")
    assert pattern.definition("x") == parse("ARITH: a = 1").expression
    with pytest.raises(KeyError):
        pattern.definition("y")


def test_a_composite_keeps_its_text():
    composite = Composite(id="c1", subscriber="ops", text="Q( 2 )ARITH: a=1", consume="chronicle")
    assert composite.text == "Q( 2 )ARITH: a=1"
    assert str(composite.pattern) == "Q(2)(ARITH: a = 1)"
    assert pickle.loads(pickle.dumps(composite)) == composite
    assert pickle.loads(pickle.dumps(composite)).pattern == composite.pattern
    assert {
        composite,
        Composite(id="c1", subscriber="ops", text=composite.text, consume="chronicle"),
    } == {composite}


def test_a_composite_with_named_regions_says_their_points():
    composite = Composite(id="c", text="SPL(depot)(ARITH: a = 1)", regions={"depot": (1, 2)})
    assert composite.text == "SPL((1, 2))(ARITH: a = 1)"
    assert Composite(id="c", text=composite.text) == composite


def test_a_composite_of_values_has_their_text():
    expression = parse("ARITH: a=1").expression
    assert Composite(id="c", text=expression).text == "ARITH: a = 1"
    assert Composite(id="c", text=ast.Pattern(expression)).text == "ARITH: a = 1"


def test_the_modes():
    assert MODES == ("first-matching", "chronicle", "recent", "continuous", "cumulative")
    assert Composite(id="c", text="ARITH: a = 1").consume == "first-matching"
    for mode in MODES:
        assert Composite(id="c", text="ARITH: a = 1", consume=mode).consume == mode


@pytest.mark.parametrize(
    ("given_fields", "error"),
    [
        ({"id": ""}, ValidationError),
        ({"id": "c", "subscriber": ""}, ValidationError),
        ({"id": "c", "text": 3}, ValidationError),
        ({"id": "c", "text": ""}, PatternError),
        ({"id": "c", "text": "ARITH: a = 1", "consume": "all"}, ValidationError),
        ({"id": "c", "text": "$x;"}, PatternError),
    ],
)
def test_what_a_composite_refuses(given_fields: dict, error: type[Exception]):
    with pytest.raises(error):
        Composite(**given_fields)
