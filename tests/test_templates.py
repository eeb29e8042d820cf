"""Filters of known forms: the same clauses, texts and errors as by the full way."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearcast.errors import FilterError, FilterTooLarge, NearcastError
from nearcast.model import filters, known_forms, templates
from nearcast.model.filters import Filter
from nearcast.model.normal_form import normal_form
from nearcast.model.predicates import Clause

# --- the full way -------------------------------------------------------------------------


def by_the_full_way(text: str, max_clauses: int = 64) -> Any:
    """Expression and clauses of a text that is read as if no form were known; or the error."""
    try:
        expression = filters._read(text, text)
        try:
            return expression, normal_form(expression, max_clauses)
        except FilterTooLarge as error:
            raise FilterTooLarge(error.needed, error.limit, text) from None
    except NearcastError as error:
        return type(error), str(error), vars(error)


def as_parsed(text: str, max_clauses: int = 64) -> Any:
    try:
        parsed = Filter.parse(text, max_clauses)
    except NearcastError as error:
        return type(error), str(error), vars(error)
    return parsed.expression, parsed.clauses


def exact(clauses: tuple[Clause, ...]) -> str:
    """The clauses so that 0.0 and −0.0 differ."""
    return repr(clauses)


def check(text: str, max_clauses: int = 64) -> None:
    """Compare a text, met seldom and met often, with the same read by the full way."""
    expected = by_the_full_way(text, max_clauses)
    check_once(text, max_clauses, expected)
    with forms_known_at_once():
        as_parsed(text, max_clauses)
        check_once(text, max_clauses, expected)


@contextmanager
def forms_known_at_once() -> Iterator[None]:
    """Every form is well known as soon as it was met, and none was before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_forms, "_OFTEN", 1)
        patch.setattr(known_forms, "_FORMS", known_forms._Forms())
        yield


def check_once(text: str, max_clauses: int = 64, expected: Any = None) -> None:
    if expected is None:
        expected = by_the_full_way(text, max_clauses)
    found = as_parsed(text, max_clauses)
    assert found == expected, text
    if isinstance(expected[0], type):
        return
    assert exact(found[1]) == exact(expected[1])
    assert str(found[0]) == str(expected[0])
    parsed = Filter.parse(text, max_clauses)
    whole = Filter(*expected)
    check_simple(parsed, whole)
    assert parsed == whole
    assert pickle.loads(pickle.dumps(parsed)).clauses == whole.clauses


def check_simple(parsed: Filter, whole: Filter) -> None:
    ours, theirs = parsed.simple, whole.simple
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        assert ours.names == theirs.names
        assert ours.equals == theirs.equals
        for mine, other in ((ours.low, theirs.low), (ours.high, theirs.high)):
            assert mine.dtype == other.dtype == np.float64
            assert mine.tobytes() == other.tobytes()


# --- texts in many spellings ----------------------------------------------------------------

NAMES = st.sampled_from(
    (
        *("x", "y", "price", "a1", "a.b:c", "X", "nullable", "notx", "android", "é", "inx"),
        *('"x"', '"unit price"', '"in"', '"a 5"', '"it\'s"', "in", "not", "trueish"),
        *("location", "keywords"),
    )
)
SPACES = st.sampled_from((" ", " ", " ", "  ", "\n", "\t ", "\r\n", "\u00a0", ""))
NUMBERS = st.one_of(
    st.integers(-20, 20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, places=3).map(str),
    st.sampled_from(
        (
            *("0", "-0", "-0.0", "+5", "5.", ".5", "-.5", "1e5", "1E+5", "1e-400", "1e400"),
            *("1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "-1e999", "1_000"),
            *("- 5", "007", "1" * 400, "0." + "1" * 60, "٣", "nan", "inf", "9007199254740993"),
            *("7310000001", "7310000002", "2 -3", "2-3", "3e", "2.5.1", "0x5", "1e5.5", "--5"),
        )
    ),
)
STRINGS = st.one_of(
    st.sampled_from(("a", "b", "Huawei", "", "5", "it''s", "a%", "_b%", r"\%", "é", "\ud800", '"'))
    | st.sampled_from(("constant 7310000001", " AND ", "x = 5", "''", "km", "2020-01-01", "\0")),
    st.text(max_size=6).map(lambda text: text.replace("'", "''")),
).map(lambda text: f"'{text}'")
VALUES = st.one_of(
    NUMBERS, NUMBERS, STRINGS, st.sampled_from(("TRUE", "false", "NULL", "y", "DATE('2020-01-01')"))
)
OPERATORS = st.sampled_from(("=", "<", "<=", ">", ">=", "<>", "!=", "==", "=<"))


@st.composite
def spelt(draw: st.DrawFn, *parts: st.SearchStrategy[str] | str) -> str:
    """The parts with white space between them; words in any case."""
    text = ""
    for part in parts:
        if isinstance(part, str):
            spelling = draw(st.sampled_from((part, part, part.lower(), part.title())))
            text += draw(SPACES) + spelling + draw(SPACES)
        else:
            text += draw(part)
    return text


def listed(values: st.SearchStrategy[str], most: int = 4) -> st.SearchStrategy[str]:
    joined = st.sampled_from((", ", ",", " ,", " "))
    return st.builds(
        lambda members, comma: "(" + comma.join(members) + ")",
        st.lists(values, min_size=1, max_size=most) | st.lists(values, min_size=8, max_size=10),
        joined,
    )


COORDINATES = NUMBERS | st.integers(-180, 180).map(str)
SHAPES = st.one_of(
    st.builds(lambda x, y: f"POINT({x} {y})", COORDINATES, COORDINATES),
    st.lists(COORDINATES, min_size=4, max_size=4).map(lambda c: f"BBOX({', '.join(c)})"),
    st.builds(lambda x: f"POLYGON((0 0, {x} 0, 4 4, 0 0))", COORDINATES),
    st.just("LINESTRING(0 0, 1 1)"),
)
PREDICATES = st.one_of(
    spelt(NAMES, SPACES, OPERATORS, SPACES, VALUES),
    spelt(NAMES, SPACES, OPERATORS, SPACES, NUMBERS),
    spelt(VALUES, SPACES, OPERATORS, SPACES, NAMES),
    spelt(NAMES, "BETWEEN", NUMBERS, "AND", NUMBERS),
    spelt(NAMES, "NOT BETWEEN", VALUES, "AND", VALUES),
    spelt(NAMES, "IN", listed(VALUES)),
    spelt(NAMES, "NOT IN", listed(NUMBERS)),
    spelt(NAMES, "LIKE", STRINGS),
    spelt(NAMES, "NOT LIKE", STRINGS),
    spelt(NAMES, "IS NULL"),
    spelt(NAMES, "IS NOT NULL"),
    NAMES,
    st.sampled_from(("TRUE", "FALSE")),
    spelt("A_CONTAINS(keywords,", listed(STRINGS, 3), st.just(")")),
    spelt("S_INTERSECTS(location,", SHAPES, st.just(")")),
    spelt("S_WITHIN(location,", SHAPES, st.just(")")),
    spelt("S_DWITHIN(location,", SHAPES, st.just(","), NUMBERS, st.just(")")),
    spelt("S_DWITHIN(location,", SHAPES, st.just(","), NUMBERS, st.just(", 'km')")),
)
PLAIN = st.one_of(
    st.builds(
        lambda name, operator, value: f"{name} {operator} {value}",
        st.sampled_from("abcde"),
        st.sampled_from(("=", "<", "<=", ">", ">=")),
        st.integers(-9, 9).map(str) | st.floats(-1e3, 1e3).map(repr) | STRINGS,
    ),
    st.builds(
        lambda name, low, high: f"{name} BETWEEN {low} AND {high}",
        st.sampled_from("abcde"),
        st.integers(-9, 9),
        st.integers(-9, 9),
    ),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Predicates joined by AND, OR, NOT and parentheses; some with a mistake."""
    parts = draw(st.lists(PREDICATES, min_size=1, max_size=3))
    text: str = parts[0]
    for part in parts[1:]:
        word = draw(st.sampled_from(("AND", "AND", "and", "OR", "AND NOT", "ANDNOT")))
        text = f"{text}{draw(SPACES)}{word}{draw(SPACES)}{part}"
        if draw(st.integers(0, 5)) == 0:
            text = draw(st.sampled_from(("({})", "NOT ({})", "NOT {}", " {} "))).format(text)
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(text)))
        stray = draw(st.sampled_from(("", "'", '"', "(", ")", "{", " AND ", "\0", "\\", "5", "-")))
        text = text[:at] + stray + text[at + draw(st.integers(0, 2)) :]
    return text


# --- properties -------------------------------------------------------------------------------


@settings(max_examples=600, deadline=None)
@given(texts())
@example("x = 5 AND y = '7310000001'")
@example("x = 7310000001. AND y = 3")
@example("x = '' AND y = 2")
@example("POINT(1 2)")
@example("x = 1 AND y = 2 OR z = 3")
@example("x BETWEEN 'a'5 AND y < 1")
@example("x < 1 AND ")
@example("x < 1 AND AND y < 2")
@example("\"it's\" = 'x'")
@example("x = \0 AND y = 3")
@example('{"op": "=", "args": [{"property": "x"}, 5]}')
def test_a_text_is_read_as_by_the_full_way(text: str) -> None:
    check(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(PLAIN, min_size=1, max_size=8), st.data())
def test_conjunctions_are_read_as_by_the_full_way(parts: list[str], data: st.DataObject) -> None:
    check(" AND ".join(parts))


@settings(max_examples=300, deadline=None)
@given(texts(), st.lists(VALUES, min_size=1, max_size=12))
def test_a_known_form_takes_other_constants(text: str, values: list[str]) -> None:
    """Whatever the constants that the form was met with first."""
    check(text)
    found = templates.cut(text)
    if found is not None:
        form, _, _ = found
        holes = form.split(templates.HOLE)
        others = [values[i % len(values)] for i in range(len(holes) - 1)]
        other = "".join([a + b for a, b in zip(holes, [*others, ""], strict=True)])
        check(other)
        with forms_known_at_once():
            as_parsed(text)
            check_once(other)


@settings(max_examples=100, deadline=None)
@given(texts(), st.integers(1, 4))
def test_a_filter_that_needs_too_many_clauses_is_refused_alike(text: str, most: int) -> None:
    check(text, most)


# --- what must not be taken for granted ---------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x BETWEEN 1 AND 2", "x BETWEEN 2 AND 1"),
        ("x > 1 AND x < 2", "x > 2 AND x < 1"),
        ("x > 1 AND x < 2", "x > 1 AND x < 1"),
        ("x IN (1, 2)", "x IN (1, 1)"),
        ("x IN ('a', 'b')", "x IN ('a', 'a')"),
        ("m LIKE 'a%'", "m LIKE 'a'"),
        ("x < 1", "x < 1e999"),
        ("x < 1", "x < -0"),
        ("x >= 0.0", "x >= -0.0"),
        ("x > 1", "x > 1.7976931348623157e308"),
        ("x = 'a'", "x = '\ud800'"),
        ("x = 1 AND x = 2", "x = 1 AND x = 1"),
        ("x = 'a' AND x = 'b'", "x = 'a' AND x = 'a'"),
        ("x = 1 AND x = 'b'", "x = 2 AND x = 'b'"),
        ("A_CONTAINS(keywords, ('a', 'b'))", "A_CONTAINS(keywords, ('a', 'a'))"),
        ("A_CONTAINS(keywords, ('a'))", "A_CONTAINS(keywords, (' '))"),
        ("S_DWITHIN(location, POINT(1 2), 5)", "S_DWITHIN(location, POINT(1 2), -5)"),
        ("S_DWITHIN(location, POINT(1 2), 5)", "S_DWITHIN(location, POINT(1e1 2), 5)"),
        ("S_DWITHIN(location, POINT(1 2), 5)", "S_DWITHIN(location, POINT(+1 2), 5)"),
        ("S_INTERSECTS(location, BBOX(0, 0, 1, 1))", "S_INTERSECTS(location, BBOX(0, 1, 1, 0))"),
        ("S_INTERSECTS(location, BBOX(0, 0, 1, 1))", "S_INTERSECTS(location, BBOX(1, 0, 0, 1))"),
        ("x < 3", "x < 3 -5"),
        ("a AND x < 3", "and AND x < 3"),
    ],
)
def test_constants_that_change_what_a_form_means(first: str, second: str) -> None:
    for text in (first, second, first):
        check(text)
    with forms_known_at_once():
        for text in (first, second, first):
            check_once(text)


def test_a_known_form_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Filter.parse("known1 BETWEEN 1 AND 2 AND known2 = 'a' AND S_DWITHIN(location, POINT(1 2), 5)")

    def refuse(text: str) -> Any:
        raise AssertionError(text)

    monkeypatch.setattr(templates, "read_text", refuse)
    monkeypatch.setattr(filters, "read_text", refuse)
    text = "known1 BETWEEN -1.5 AND 2e3 AND known2 = 'b' AND S_DWITHIN(location, POINT(-1 2.5), 0)"
    assert str(Filter.parse(text)) == text.replace("2e3", "2000")


def test_predicates_are_known_in_other_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    Filter.parse("met1 < 3 AND met2 = 'a' AND met3 IN (1, 2)")
    monkeypatch.setattr(templates, "read_text", pytest.fail)
    parsed = Filter.parse("met3 IN (5, 7) AND met1 < 9")
    assert str(parsed) == "met3 IN (5, 7) AND met1 < 9"


def test_templates_are_bounded() -> None:
    for i in range(3000):
        Filter.parse(f"bounded{i} < 1 AND other{i} = 2")
    for cache in (templates.template, templates._predicate, templates._whole_predicate):
        info = cache.cache_info()
        assert info.currsize <= (info.maxsize or 0) <= 4096


def test_errors_keep_their_place() -> None:
    Filter.parse("x < 1 AND y < 2")
    with pytest.raises(FilterError) as first:
        Filter.parse("x < 1 AND y < 1e999")
    with pytest.raises(FilterError) as second:
        Filter.parse("x < 1 AND\n y <")
    assert first.value.position == 14
    assert second.value.position == 14


def test_the_last_bit_of_a_number_counts() -> None:
    for number in ("0.1", "0.30000000000000004", "9007199254740993", "2.2250738585072011e-308"):
        (clause,) = Filter.parse(f"x >= {number}").clauses
        assert clause.intervals[0].low == float(number)
        assert clause.intervals[0].high == math.inf


# --- well known forms -----------------------------------------------------------------------


def test_a_text_of_a_well_known_form_is_read_when_somebody_asks() -> None:
    with forms_known_at_once():
        Filter.parse("often1 < 3 AND often2 = 'a'")
        parsed = Filter.parse("often1 < -4.5e3 AND often2 = 'b c'")
        assert parsed.unread == "often1 < -4.5e3 AND often2 = 'b c'"
        assert str(parsed) == "often1 < -4500 AND often2 = 'b c'"
        assert parsed.unread is not None
        assert parsed.clauses == Filter.parse("often2 = 'b c' AND often1 < -4500").clauses
        assert parsed.unread is None


def test_a_well_known_form_that_nothing_satisfies() -> None:
    with forms_known_at_once():
        Filter.parse("x BETWEEN 1 AND 2")
        empty = Filter.parse("x BETWEEN 2 AND 1")
        assert empty.unread is not None
        assert empty.clauses == ()
        assert empty.simple is None
        assert empty.unread is None


@pytest.mark.parametrize(
    "text",
    [
        "x < 1e999", "x < " + "1" * 400, "x < 1e-400", "x = '\ud800'", "x = 'it''s'", "x = '\\'",
        "x < 1 ", "x<1", "x < 1.", "x < .5", "x < 1_0", "x < ٣", "x < 1e", "x <1", "y < 1",
        "x < 1\n", "x = 'a' ", "x < 1 AND x < 1", "x1 < 1", "1x < 1",
    ],
)  # fmt: skip
def test_only_what_is_surely_right_is_left_unread(text: str) -> None:
    with forms_known_at_once():
        for known in ("x < 1", "x = 'a'"):
            Filter.parse(known)
        form = known_forms._FORMS.find(text)
        assert form is None
        check_once(text)


def test_well_known_forms_are_bounded() -> None:
    with forms_known_at_once():
        for i in range(1500):
            Filter.parse(f"b{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)} < 1")
            Filter.parse(f"alike{i} < 1")
        by_look = known_forms._FORMS._by_look
        assert sum(map(len, by_look.values())) == known_forms._FORMS._count <= 1024
        assert max(map(len, by_look.values())) <= 16


def test_a_form_is_well_known_once_it_came_often() -> None:
    found = [Filter.parse(f"thrice < {i}").unread for i in range(103)]
    assert found[:100] == [None] * 100
    assert found[100:] == ["thrice < 100", "thrice < 101", "thrice < 102"]
