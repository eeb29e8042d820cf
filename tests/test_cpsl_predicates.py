"""Primitives: what each test means, and that filter and check together mean the same."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Event, Matcher, Point
from nearcast.cpsl import ast
from nearcast.cpsl.parser import parse
from nearcast.cpsl.predicates import Match, OpenTest, evaluate, translate, variables
from tests import oracle


def primitive(text: str) -> ast.Primitive:
    found = parse(text).expression
    assert isinstance(found, ast.Primitive)
    return found


def happened(**attributes: object) -> Event:
    return Event(id="e", attributes=attributes, keywords={"sale"}, location=Point(8.5, 47.4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "attributes", "holds"),
    [
        ("ARITH: a < 5", {"a": 4}, True),
        ("ARITH: a < 5", {"a": 5}, False),
        ("ARITH: a <= 5", {"a": 5.0}, True),
        ("ARITH: a = 5", {"a": 5}, True),
        ("ARITH: a != 5", {"a": 6}, True),
        ("ARITH: a != 5", {}, False),
        ("ARITH: a != 5", {"a": "6"}, False),
        ("ARITH: a = 1", {"a": True}, False),
        ("ARITH: a != 5", {"a": math.nan}, False),
        ("ARITH: a > 5", {"a": math.inf}, True),
        ("ARITH: a IN [1, 2)", {"a": 1}, True),
        ("ARITH: a IN [1, 2)", {"a": 2}, False),
        ("ARITH: a IN (1, 2]", {"a": 1}, False),
        ("ARITH: a = 1 & b = 2 | c = 3", {"a": 1, "b": 2}, True),
        ("ARITH: a = 1 & b = 2 | c = 3", {"a": 1, "c": 3}, True),
        ("ARITH: a = 1 & b = 2 | c = 3", {"a": 1, "b": 3}, False),
        ("ARITH: a = 1, ARITH: b = 2", {"a": 1}, False),
        ('STRING: s = "ab"', {"s": "ab"}, True),
        ('STRING: s ! "ab"', {"s": "abc"}, True),
        ('STRING: s ! "ab"', {}, False),
        ('STRING: s ! "ab"', {"s": 5}, False),
        ('STRING: s >* "ab"', {"s": "abc"}, True),
        ('STRING: s >* "ab"', {"s": "cab"}, False),
        ('STRING: s *< "ab"', {"s": "cab"}, True),
        ('STRING: s *< "ab"', {"s": "abc"}, False),
        ('STRING: s *= "ab"', {"s": "cabc"}, True),
        ('STRING: s *= "a%"', {"s": "abc"}, False),
        ('STRING: s *= "a%"', {"s": "xa%x"}, True),
        ('STRING: s >* "a_"', {"s": "ab"}, False),
        ('STRING: s >* "\\"', {"s": "\\x"}, True),
        ('STRING: s <* "abc"', {"s": "ab"}, True),
        ('STRING: s <* "abc"', {"s": "bc"}, False),
        ('STRING: s *> "abc"', {"s": "bc"}, True),
        ('STRING: s *> "abc"', {"s": "ab"}, False),
        ('STRING: s =* "abc"', {"s": "b"}, True),
        ('STRING: s =* "abc"', {"s": "d"}, False),
        ('STRING: s IN ("a", "b")', {"s": "b"}, True),
        ('STRING: s NOT IN ("a", "b")', {"s": "c"}, True),
        ('STRING: s NOT IN ("a", "b")', {}, False),
        ("RFID: PRODUCT = (0;3) 0xA", {"PRODUCT": "0xA5"}, True),
        ("RFID: PRODUCT = (4;7) 0x5", {"PRODUCT": "0xA5"}, True),
        ("RFID: PRODUCT = (2;5) 1001b", {"PRODUCT": "10100101b"}, True),
        ("RFID: PRODUCT > (0;3) 0x9", {"PRODUCT": "0xA5"}, True),
        ("RFID: PRODUCT != (0;8) 0x0", {"PRODUCT": "0xA5"}, False),
        ("RFID: PRODUCT != (0;3) 0x0", {"PRODUCT": "A5"}, False),
        ("RFID: PRODUCT != (0;3) 0x0", {"PRODUCT": 165}, False),
        ("RFID: PRODUCT = (0;3;epc) 0xA", {"epc": "0xA5", "PRODUCT": "0x05"}, True),
        ("RFID: PRODUCT = (0;3;epc) 0xA", {"PRODUCT": "0xA5"}, False),
        ("RFID: PRODUCT = (0;3;PRODUCT) 0xA", {"PRODUCT": "0xA5"}, True),
        ("RFID: PRODUCT = (0;3;READER) 0xA", {"READER": "0xA5"}, True),
        ("RFID: READER < (0;3) 0x1 | PRODUCT < (0;3) 0x1", {"PRODUCT": "0x05"}, True),
        ("CQL2: \"a < 5 AND s LIKE 'a%'\"", {"a": 4, "s": "ab"}, True),
        ('CQL2: "a IS NULL"', {}, True),
        ("CQL2: \"A_CONTAINS(keywords, ('sale'))\"", {}, True),
        ("CQL2: \"A_CONTAINS(keywords, ('sold'))\"", {}, False),
        ('CQL2: "S_INTERSECTS(location, BBOX(8, 47, 9, 48))"', {}, True),
        ('CQL2: "S_DWITHIN(location, POINT(8.5 47.5), 1000)"', {}, False),
        ('CQL2: "NOT S_WITHIN(location, BBOX(8, 47, 9, 48))"', {}, False),
    ],
)
def test_what_a_test_means(text: str, attributes: dict, holds: bool):
    asked, event = primitive(text), happened(**attributes)
    assert evaluate(asked, event) == (Match({}, ()) if holds else None)
    assert split(asked, event) == evaluate(asked, event)


def split(asked: ast.Primitive, event: Event) -> Match | None:
    """What filter and check say together."""
    translated = translate(asked)
    if not oracle.wants(translated.subscription("s"), event, "globe"):
        return None
    return translated.check(event)


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("ARITH: a < 5 | b != 3, ARITH: c IN [1, 2)", True),
        ('STRING: s >* "a" & t *= "b" | u NOT IN ("x")', True),
        ('CQL2: "a < 3"', True),
        ("ARITH: a = &x", False),
        ('STRING: s =* "abc"', False),
        ("RFID: PRODUCT = (0;1) 0x1", False),
    ],
)
def test_the_filter_says_all_it_can(text: str, exact: bool):
    translated = translate(primitive(text))
    assert translated.where is not None
    assert (translated.residual == ()) is exact


def test_a_filter_that_would_be_too_large_is_left_to_the_check():
    wide = " | ".join(f"a{n} = 1 & b{n} = 1" for n in range(9))
    asked = primitive(
        f"ARITH: {wide}, ARITH: {wide.replace('a', 'c').replace('b', 'd')}, ARITH: z = 1"
    )
    translated = translate(asked)
    assert len(translated.residual) == 1
    good = happened(a1=1, b1=1, c2=1, d2=1, z=1)
    bad = happened(a1=1, b1=1, c2=1, d3=1, z=1)
    assert split(asked, good) == Match({}, ())
    assert split(asked, bad) is None


def test_the_matcher_takes_the_filter():
    matcher = Matcher()
    asked = primitive('ARITH: a < 5, STRING: s *= "b", ARITH: id = &x')
    matcher.add_subscriptions([translate(asked).subscription("p")])
    assert matcher.match_event(happened(a=4, s="abc", id=7)) == ["p"]
    assert matcher.match_event(happened(a=4, s="abc")) == []
    assert translate(asked).check(happened(a=4, s="abc", id="7")) is None


# --- variables ------------------------------------------------------------------------------------


def test_equality_binds():
    found = evaluate(primitive("ARITH: id = &x, STRING: s = &y"), happened(id=7, s="a"))
    assert found == Match({"&x": ("number", 7.0), "&y": ("string", "a")}, ())


def test_bits_bind_as_numbers():
    found = evaluate(primitive("RFID: READER = (4;7) &r"), happened(READER="0xA5"))
    assert found == Match({"&r": ("bits", 5)}, ())


def test_two_bindings_in_one_primitive_must_agree():
    asked = primitive("ARITH: a = &x & b = &x")
    assert evaluate(asked, happened(a=1, b=1)) == Match({"&x": ("number", 1.0)}, ())
    assert evaluate(asked, happened(a=1, b=2)) is None


def test_a_comparison_with_what_the_primitive_binds_is_decided_at_once():
    asked = primitive("ARITH: b > &x + 1, ARITH: a = &x")
    assert evaluate(asked, happened(a=1, b=3)) == Match({"&x": ("number", 1.0)}, ())
    assert evaluate(asked, happened(a=1, b=2)) is None


def test_other_comparisons_stay_open():
    found = evaluate(primitive("ARITH: price < &x * 2"), happened(price=5))
    assert found is not None
    ((left, test, name),) = found.opens
    assert (left, test, name) == (("number", 5.0), OpenTest("<", "*", 2.0), "&x")
    assert test.holds(left, ("number", 2.6))
    assert not test.holds(left, ("number", 2.5))
    assert not test.holds(left, ("string", "9"))
    assert not test.holds(left, ("bits", 9))


@pytest.mark.parametrize(
    ("test", "left", "right", "holds"),
    [
        (OpenTest("="), ("number", 1.0), ("number", 1.0), True),
        (OpenTest("!="), ("number", 1.0), ("number", 1.0), False),
        (OpenTest("<=", "-", 1.0), ("number", 1.0), ("number", 2.0), True),
        (OpenTest(">", "/", 2.0), ("number", 1.0), ("number", 2.0), False),
        (OpenTest("<", "*", 0.0), ("number", 1.0), ("number", math.inf), False),
        (OpenTest(">*"), ("string", "abc"), ("string", "ab"), True),
        (OpenTest("=*"), ("string", "b"), ("string", "abc"), True),
        (OpenTest("!"), ("string", "b"), ("string", "b"), False),
        (OpenTest("<"), ("bits", 3), ("bits", 4), True),
    ],
)
def test_open_tests(test: OpenTest, left, right, holds: bool):
    assert test.holds(left, right) is holds


def test_variables_are_listed_with_their_tests():
    asked = primitive("ARITH: a = &x & b < &y | c = 1, STRING: s = &z")
    assert [(v.name, beside) for _, v, beside in variables(asked)] == [
        ("x", True),
        ("y", True),
        ("z", False),
    ]


# --- filter and check against the evaluator -------------------------------------------------------

values = st.one_of(
    st.sampled_from([0, 1, 2.5, -3, "a", "ab", "b%", "0x5", "0xA5", "0101b", "", True, math.nan])
)
events = st.builds(
    lambda attributes: Event(id="e", attributes=attributes),
    st.dictionaries(st.sampled_from(["a", "b", "PRODUCT", "READER"]), values),
)
names = st.sampled_from(["a", "b"])
numbers = st.sampled_from([0.0, 1.0, 2.5, -3.0])
texts = st.sampled_from(["", "a", "ab", "b%", "_"])
plain_or_bound = st.sampled_from(
    [ast.Variable("x"), ast.Variable("y"), ast.Variable("x", "*", 2.0)]
)
comparisons = st.sampled_from(["<", "<=", "=", "!=", ">=", ">"])
string_ops = st.sampled_from(["=", "!", ">*", "*<", "*=", "<*", "*>", "=*"])
arith = st.one_of(
    st.builds(ast.ArithTest, names, comparisons, numbers),
    st.builds(ast.RangeTest, names, numbers, numbers, st.booleans(), st.booleans()),
)
strings = st.one_of(
    st.builds(ast.StringTest, names, string_ops, texts),
    st.builds(ast.SetTest, names, st.lists(texts, min_size=1).map(tuple), st.booleans()),
)
codes = st.builds(
    ast.RfidTest,
    st.sampled_from(["PRODUCT", "READER"]),
    comparisons,
    st.integers(0, 2),
    st.integers(2, 4),
    st.builds(ast.Code, st.integers(0, 15)),
)


def typed(kind: str, tests: st.SearchStrategy) -> st.SearchStrategy:
    conjunctions = st.lists(tests, min_size=1, max_size=2).map(tuple)
    return st.builds(
        ast.TypedPredicate, st.just(kind), st.lists(conjunctions, min_size=1, max_size=3).map(tuple)
    )


bound = st.builds(
    lambda test: ast.TypedPredicate("ARITH", ((test,),)),
    st.builds(ast.ArithTest, names, comparisons, plain_or_bound),
)
primitives = st.builds(
    ast.Primitive,
    st.lists(
        st.one_of(typed("ARITH", arith), typed("STRING", strings), typed("RFID", codes), bound),
        min_size=1,
        max_size=3,
    ).map(tuple),
)


@settings(max_examples=200, deadline=None)
@given(primitives, st.lists(events, min_size=1, max_size=5))
def test_filter_and_check_say_what_the_evaluator_says(asked: ast.Primitive, history: list[Event]):
    for event in history:
        assert split(asked, event) == evaluate(asked, event)
