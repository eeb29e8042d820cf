"""Filters at random: the normal form against a naive evaluator, texts that read back, bad input."""

from __future__ import annotations

import json
import math
import pickle
import re
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nearcast.errors import FilterError, FilterTooLarge, NearcastError
from nearcast.model import cql2_text
from nearcast.model.cql2_json import RefusalError, read_json
from nearcast.model.events import Event
from nearcast.model.filters import MAX_INDEXED_IN, Filter
from nearcast.model.predicates import Clause, Equals, In, Interval, SpatialResidual, as_region

# --- what filters are made of -------------------------------------------------------------

PLAIN_NAMES = ("x", "y", "z")
ODD_NAMES = (
    "and",
    "NOT",
    "null",
    "in",
    "nothing",
    "a b",
    'q"q',
    "it's",
    "é",
    "🙂",
    "a.b",
    "1",
    "\0",
)
NUMBERS = (-1e300, -3.5, -1, 0, -0.0, 5e-324, 1, 2, 2.5, 3, 7, 1e16, 2**53 + 1, 1.7e308)
STRINGS = ("", "a", "ab", "b", "ba", "A", "%", "_", "\\", "it's", "é", "🙂", "\0", "1", "TRUE")
PATTERNS = ("a", "a%", "%a", "%a%b%", "_", "__%", "%", r"\%", r"a\_%", r"\\", "", "%🙂")
WORDS = ("sale", "SALE", "phone", "Straße", "it's")


def prop(name: str) -> dict[str, Any]:
    return {"property": name}


def call(op: str, *args: Any) -> dict[str, Any]:
    return {"op": op, "args": list(args)}


def numbers(any_float: bool) -> st.SearchStrategy[Any]:
    pool = st.sampled_from(NUMBERS)
    if not any_float:
        return pool
    return pool | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20)


def strings(any_text: bool) -> st.SearchStrategy[str]:
    pool = st.sampled_from(STRINGS)
    return (
        pool | st.text(st.characters(exclude_categories=["Cs"]), max_size=5) if any_text else pool
    )


@st.composite
def predicates(draw: st.DrawFn, odd: bool) -> Any:
    """A predicate on an attribute or on keywords, as CQL2 JSON."""
    names = st.sampled_from(PLAIN_NAMES + ODD_NAMES if odd else PLAIN_NAMES)
    if odd:
        names |= st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
    x = prop(draw(names.filter(lambda name: name not in ("location", "keywords"))))
    number, string = numbers(odd), strings(odd)
    scalar = st.one_of(number, string, st.booleans())
    kind = draw(st.integers(0, 8))
    if kind == 0:
        sides = [x, draw(scalar)]
        return call(draw(st.sampled_from(("=", "<>", "!="))), *draw(st.permutations(sides)))
    if kind == 1:
        sides = [x, draw(number | string)]
        return call(draw(st.sampled_from(("<", "<=", ">", ">="))), *draw(st.permutations(sides)))
    if kind == 2:
        bound = draw(st.sampled_from((number, string)))
        return call("between", x, draw(bound), draw(bound))
    if kind == 3:
        size = draw(st.sampled_from((1, 2, 3, MAX_INDEXED_IN + 2)))
        values = st.lists(scalar, min_size=1, max_size=size)
        same = st.lists(number, min_size=size, max_size=size) | st.lists(string, min_size=size)
        return call("in", x, draw(values | same))
    if kind == 4:
        return call("like", x, draw(st.sampled_from(PATTERNS)))
    if kind == 5:
        return call("isNull", x)
    if kind == 6:
        return x
    if kind == 7:
        words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2)
        return call("a_contains", prop("keywords"), draw(words))
    return draw(st.booleans())


COORDINATES = st.sampled_from((0, 1, -1.5, 1e-7, 1e-300, 179.99999999999997, 1e20)) | st.floats(
    -180, 180
)


@st.composite
def spatial(draw: st.DrawFn) -> Any:
    """A test of the location, as CQL2 JSON."""
    x, y = draw(COORDINATES), draw(COORDINATES)
    ring = [[0, 0], [4, 0], [4, 4.5], [0, 4], [0, 0]]
    hole = [[1, 1], [2, 1], [1, 2], [1, 1]]
    far = [[8, 8], [9, 8], [9, 9], [8, 8]]
    shape = draw(
        st.sampled_from(
            (
                {"type": "Point", "coordinates": [x, y]},
                {"bbox": [x, min(y, 0), draw(COORDINATES), max(y, 0)]},
                {"type": "Polygon", "coordinates": [ring]},
                {"type": "Polygon", "coordinates": [ring, hole]},
                {"type": "MultiPolygon", "coordinates": [[ring, hole], [far]]},
            )
        )
    )
    op = draw(st.sampled_from(("s_intersects", "s_within", "S_DWITHIN")))
    distance = [draw(st.sampled_from((0, 0.5, 1e-7, 1000, 1e9)))] if op == "S_DWITHIN" else []
    return call(op, prop("location"), shape, *distance)


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Filters as CQL2 JSON."""
    return st.recursive(
        leaves,
        lambda part: st.one_of(
            part.map(lambda node: call("not", node)),
            st.lists(part, min_size=1, max_size=3).map(lambda nodes: call("and", *nodes)),
            st.lists(part, min_size=1, max_size=3).map(lambda nodes: call("or", *nodes)),
        ),
        max_leaves=8,
    )


VALUES = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(STRINGS),
    st.booleans(),
    st.sampled_from((math.nan, math.inf, -math.inf, math.nextafter(3, 0))),
)
EVENTS = st.builds(
    Event,
    id=st.just("e"),
    attributes=st.dictionaries(st.sampled_from(PLAIN_NAMES), VALUES),
    keywords=st.frozensets(st.sampled_from(WORDS)),
)


# --- two evaluators -----------------------------------------------------------------------


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number"


def compare(op: str, value: Any, literal: Any) -> bool:
    """A comparison of a present value; false where the types differ or with NaN."""
    if kind(value) != kind(literal):
        return False
    if kind(value) == "number":
        value, literal = float(value), float(literal)
        if math.isnan(value):
            return False
    tests = {
        "=": lambda: value == literal,
        "<>": lambda: value != literal,
        "!=": lambda: value != literal,
        "<": lambda: value < literal,
        "<=": lambda: value <= literal,
        ">": lambda: value > literal,
        ">=": lambda: value >= literal,
    }
    return bool(tests[op]())


OPPOSITE = {"=": "<>", "<>": "=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def like(pattern: str, value: str) -> bool:
    """The textbook recursion."""
    if not pattern:
        return not value
    if pattern[0] == "%":
        return any(like(pattern[1:], value[i:]) for i in range(len(value) + 1))
    if pattern[0] == "\\":
        pattern = pattern[1:]
    elif pattern[0] == "_":
        return bool(value) and like(pattern[1:], value[1:])
    return value[:1] == pattern[0] and like(pattern[1:], value[1:])


def holds(node: Any, event: Event, negated: bool = False) -> bool:
    """A filter on an event, straight from the rules: NOT reaches the predicates first."""
    if isinstance(node, bool):
        return node is not negated
    if "property" in node:
        return holds(call("=", node, True), event, negated)
    op, args = node["op"], node["args"]
    if op == "not":
        return holds(args[0], event, not negated)
    if op in ("and", "or"):
        every = (op == "and") is not negated
        return (all if every else any)(holds(part, event, negated) for part in args)
    if op == "a_contains":
        words = {word.casefold() for word in args[1]}
        return (words <= event.keywords) is not negated
    if op in OPPOSITE and not isinstance(args[0], dict):
        return holds(call(FLIPPED.get(op, op), args[1], args[0]), event, negated)
    name = args[0]["property"]
    if op == "isNull":
        return (name not in event.attributes) is not negated
    if name not in event.attributes:
        return False
    value = event.attributes[name]
    if op in OPPOSITE:
        return compare(OPPOSITE[op] if negated else op, value, args[1])
    if op == "between":
        if negated:
            return compare("<", value, args[1]) or compare(">", value, args[2])
        return compare(">=", value, args[1]) and compare("<=", value, args[2])
    if op == "in":
        if negated:
            return all(compare("<>", value, member) for member in args[1])
        return any(compare("=", value, member) for member in args[1])
    assert op == "like"
    return isinstance(value, str) and like(args[1], value) is not negated


def clause_holds(clause: Clause, event: Event) -> bool:
    """A clause on an event, without `accepts` for what indexes evaluate themselves."""
    for interval in clause.intervals:
        value = event.attributes.get(interval.attribute)
        if isinstance(value, str | bool | None):
            return False
        if not interval.low <= float(value) <= interval.high:
            return False
    for equals in clause.equals:
        value = event.attributes.get(equals.attribute)
        if value != equals.value or isinstance(value, bool) is not isinstance(equals.value, bool):
            return False
    if not clause.words <= event.keywords:
        return False
    return all(
        test.test(event) for test in clause.residuals if not isinstance(test, SpatialResidual)
    )


def parse(tree: Any, max_clauses: int = 512) -> Filter:
    try:
        return Filter.parse(tree, max_clauses)
    except FilterTooLarge:
        assume(False)
        raise


@settings(max_examples=400, deadline=None)
@given(trees(predicates(odd=False)), st.lists(EVENTS, min_size=1, max_size=6))
def test_the_normal_form_means_what_the_tree_means(tree: Any, events: list[Event]) -> None:
    filter = parse(tree)
    for event in events:
        expected = holds(tree, event)
        assert any(clause_holds(clause, event) for clause in filter.clauses) is expected
        tests = [(*clause.intervals, *clause.equals) for clause in filter.clauses]
        for clause, indexed in zip(filter.clauses, tests, strict=True):
            inside = all(test.test(event) for test in indexed)
            assert inside or not clause_holds(clause, event)


@settings(max_examples=200, deadline=None)
@given(trees(predicates(odd=False)), st.lists(EVENTS, min_size=1, max_size=6))
def test_keeping_ins_whole_changes_nothing(tree: Any, events: list[Event]) -> None:
    whole = parse(tree)
    for limit in range(1, len(whole.clauses)):
        try:
            tight = Filter.parse(tree, limit)
        except FilterTooLarge:
            continue
        assert tight == whole
        assert len(tight.clauses) <= limit
        for event in events:
            assert any(clause_holds(c, event) for c in tight.clauses) is holds(tree, event)
        break


@settings(max_examples=200, deadline=None)
@given(trees(predicates(odd=True) | spatial()))
def test_clauses_keep_their_contract(tree: Any) -> None:
    filter = parse(tree)
    assert len(set(filter.clauses)) == len(filter.clauses)
    for clause in filter.clauses:
        for kept in (clause.intervals, clause.equals):
            names = [entry.attribute for entry in kept]
            assert names == sorted(set(names))
        for interval in clause.intervals:
            assert type(interval.low) is type(interval.high) is float
            assert interval.low <= interval.high
            assert not any(end == 0 and math.copysign(1, end) < 0 for end in _ends(interval))
        typed = {i.attribute for i in clause.intervals}, {e.attribute for e in clause.equals}
        assert typed[0].isdisjoint(typed[1])
        for test in clause.residuals:
            if isinstance(test, In) and not isinstance(test.values[0], str):
                hull = Interval(test.attribute, float(test.values[0]), float(test.values[-1]))
                assert hull in clause.intervals
            if isinstance(test, SpatialResidual) and test.relation == "within":
                region = as_region(test.shape)
                assert test.negated or region is None or region in clause.regions


def _ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


# --- texts that read back -----------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(trees(predicates(odd=True) | spatial()))
def test_text_and_json_read_back(tree: Any) -> None:
    filter = parse(tree)
    for again in (
        Filter.parse(str(filter), 512),
        Filter.parse(filter.to_json(), 512),
        Filter.parse(json.loads(json.dumps(filter.to_json())), 512),
        pickle.loads(pickle.dumps(filter)),
    ):
        assert again == filter
        assert hash(again) == hash(filter)
        assert again.clauses == filter.clauses
        assert again.attributes == filter.attributes


@settings(max_examples=200, deadline=None)
@given(trees(predicates(odd=True) | spatial()))
def test_a_clause_reads_back(tree: Any) -> None:
    for clause in parse(tree).clauses:
        again = Filter.parse(str(clause), 1)  # an IN stays whole
        assert again.clauses == (clause,)


@settings(max_examples=200, deadline=None)
@given(trees(predicates(odd=True) | spatial()), st.randoms(use_true_random=False))
def test_a_text_that_is_cut_reads_the_same(tree: Any, random: Any) -> None:
    filter = parse(tree)
    text = re.sub(
        r"'[^']*'|\"[^\"]*\"| AND | OR |\(",
        lambda found: (
            found[0].lower() + " \n\t"[: random.randrange(4)]
            if found[0] in (" AND ", " OR ", "(")
            else found[0]
        ),
        str(filter),
    )
    wrapped = "(" * 8 + text + ")" * 8
    assert Filter.parse(wrapped, 512) == filter
    assert read_json(cql2_text._Cutter(text).read()) == read_json(cql2_text.read_text(text))


# --- bad input ----------------------------------------------------------------------------

TOKENS = (
    *("x", "y", '"a b"', "location", "keywords", "3", "-1", "1e400", "0.5", "'a'", "'%b'", "TRUE"),
    *("NULL", "AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "(", ")", ",", "=", "<", ">="),
    *("<>", "+", "-", "*", "'", '"', "S_INTERSECTS(", "S_DWITHIN(", "A_CONTAINS(", "CASEI(", "f("),
    *("POINT(1 2)", "POINT(", "POLYGON((0 0,1 0,1 1,0 0))", "POLYGON((", "BBOX(0,0,1,1)", "EMPTY"),
    *("DATE('2020-01-01')", "{", "}", "[", "]", ".", ";", "\0", "🙂", "\n", "\r\n", "\\", "$", "_"),
)


def outcome(text: str) -> str:
    try:
        return str(Filter.parse(text))
    except FilterError as error:
        place = error.position or 0
        return "refused" if 0 <= place <= len(text) else f"a place outside the text: {place}"


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=14), st.sampled_from(("", " ")))
def test_only_filter_errors_come_out_of_tokens(tokens: list[str], glue: str) -> None:
    text = glue.join(tokens)
    read = outcome(text)
    assert cut_outcome(text) == read


def cut_outcome(text: str) -> str:
    """The same text, cut as if it were long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cql2_text, "_WHOLE_LENGTH", 0)
        return outcome(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
@example("\ud800")
@example("S_INTERSECTS(location, POINT EMPTY)")
@example("S_INTERSECTS(location, POINT(1 2 3 4 5))")
@example("BBOX()")
@example("INTERVAL()")
@example("DATE()")
@example("NOT")
def test_only_filter_errors_come_out_of_text(text: str) -> None:
    assert "outside" not in outcome(text)


@settings(max_examples=300, deadline=None)
@given(trees(predicates(odd=True) | spatial()), st.data())
def test_only_filter_errors_come_out_of_a_spoilt_filter(tree: Any, data: st.DataObject) -> None:
    text = str(parse(tree))
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 5)))
    spoilt = text[:start] + data.draw(st.sampled_from(TOKENS)) + text[stop:]
    assert "outside" not in outcome(spoilt)
    assert "outside" not in outcome("(" * 8 + spoilt + ")" * 8)


JSON_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers() | st.just(10**400),
    st.floats(),
    st.text(max_size=3) | st.sampled_from(("x", "location", "keywords", "m", "Point", "Polygon")),
    st.sampled_from(({"property": "x"}, {"property": "location"}, {"property": "keywords"})),
    st.sampled_from(({"bbox": [0, 0, 1, 1]}, {"type": "Point", "coordinates": [0, 1]})),
)
OPERATORS = st.sampled_from(
    (
        *("and", "or", "not", "=", "<>", "<", ">=", "between", "in", "like", "isNull", "casei"),
        *("s_intersects", "s_within", "s_dwithin", "a_contains", "+", "div", "t_after", "f"),
    )
)


def json_trees() -> st.SearchStrategy[Any]:
    return st.recursive(
        JSON_LEAVES,
        lambda part: st.one_of(
            st.lists(part, max_size=4),
            st.fixed_dictionaries({"op": OPERATORS, "args": st.lists(part, max_size=4)}),
            st.dictionaries(
                st.sampled_from(
                    ("op", "args", "property", "type", "coordinates", "bbox", "date", "interval")
                ),
                part,
                max_size=3,
            ),
        ),
        max_leaves=12,
    )


@settings(max_examples=600, deadline=None)
@given(json_trees())
def test_only_our_errors_come_out_of_json(tree: Any) -> None:
    try:
        filter = Filter.parse(tree)
    except NearcastError:
        return
    assert Filter.parse(str(filter)) == filter


def test_the_tests_can_fail() -> None:
    """The evaluators disagree where they should: a wrong normal form is noticed."""
    event = Event(id="e", attributes={"x": 3})
    tree = call("<", prop("x"), 3)
    assert not holds(tree, event)
    wrong = Clause(intervals=(Interval("x", -math.inf, 3.0),), equals=())
    assert clause_holds(wrong, event)
    assert not clause_holds(Clause(equals=(Equals("x", True),)), Event(id="e", attributes={"x": 1}))
    with pytest.raises(RefusalError):
        read_json(call("f", prop("x")))
