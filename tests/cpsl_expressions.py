"""Hypothesis strategies for CPSL: every operator, every test, and patterns with definitions.

What they make is well-formed (the printer and the parser must agree on it), and sound as far as
`sound_patterns` says so.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from nearcast.clock import EARLIEST, LATEST
from nearcast.cpsl import ast

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,6}", fullmatch=True)
numbers = st.one_of(
    st.integers(-1000, 1000).map(float),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
durations = st.one_of(st.integers(1, 10_000).map(lambda s: s * 1_000_000), st.integers(1, 10**12))
metres = st.floats(0.001, 1e9)
variables = st.builds(
    lambda name, op, number: ast.Variable(name, op, number if op else 0.0),
    names,
    st.sampled_from([None, "+", "-", "*", "/"]),
    numbers,
)
bare_variables = st.builds(ast.Variable, names)
comparisons = st.sampled_from(["<", "<=", "=", "!=", ">=", ">"])

arith_tests = st.one_of(
    st.builds(ast.ArithTest, names, comparisons, st.one_of(numbers, variables)),
    st.builds(ast.RangeTest, names, numbers, numbers, st.booleans(), st.booleans()),
)
string_tests = st.one_of(
    st.builds(
        ast.StringTest,
        names,
        st.sampled_from(["=", "!", ">*", "*<", "*=", "<*", "*>", "=*"]),
        st.one_of(texts, bare_variables),
    ),
    st.builds(
        ast.SetTest, names, st.lists(texts, min_size=1, max_size=3).map(tuple), st.booleans()
    ),
)
codes = st.builds(ast.Code, st.integers(0, 2**40), st.sampled_from([2, 16]))


def _rfid_test(named: str | None, test: ast.RfidTest) -> ast.RfidTest:
    """A test of a role's own attribute, or of one that it names."""
    if named in (None, test.name):
        return test
    return replace(test, name=named or "", role=test.name)  # type: ignore[arg-type]


rfid_tests = st.builds(
    _rfid_test,
    st.one_of(st.none(), names, st.sampled_from(["PRODUCT", "READER"])),
    st.builds(
        ast.RfidTest,
        st.sampled_from(["PRODUCT", "READER"]),
        comparisons,
        st.integers(0, 50),
        st.integers(50, 95),
        st.one_of(codes, bare_variables),
    ),
)


def _typed(kind: str, tests: st.SearchStrategy) -> st.SearchStrategy:
    every = st.lists(tests, min_size=1, max_size=2).map(tuple)
    return st.builds(
        ast.TypedPredicate, st.just(kind), st.lists(every, min_size=1, max_size=2).map(tuple)
    )


predicates = st.one_of(
    _typed("ARITH", arith_tests),
    _typed("STRING", string_tests),
    _typed("RFID", rfid_tests),
    st.builds(ast.CqlPredicate, texts),
)
primitives = st.builds(ast.Primitive, st.lists(predicates, min_size=1, max_size=2).map(tuple))
coordinates = st.floats(-180, 180, allow_nan=False).map(lambda x: x + 0.0)
regions = st.builds(
    ast.Region,
    st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=4).map(tuple),
)
instants = st.integers(EARLIEST, LATEST)
counts = st.integers(1, 9)


def operators(inner: st.SearchStrategy) -> st.SearchStrategy:
    """One operator over expressions of `inner`."""
    windows = st.one_of(
        st.builds(ast.Fixed, instants, durations),
        st.builds(ast.Following, inner, durations),
        st.builds(ast.Enclosed, inner, inner),
    )
    places = st.one_of(regions, inner)
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(ast.And, several),
        st.builds(ast.Or, several),
        st.builds(ast.Negation, windows, inner),
        st.builds(ast.HappenBetween, windows, inner),
        st.builds(ast.HappenAfter, windows, inner),
        st.builds(ast.Concurrent, inner, inner),
        st.builds(ast.HappenIn, regions, inner),
        st.builds(ast.Inside, inner, inner),
        st.builds(ast.Overlap, places, inner),
        st.builds(ast.SamePlace, places, inner),
        st.builds(ast.Distance, places, st.sampled_from(["<", "=", ">"]), metres, inner),
        st.builds(ast.Count, counts, inner),
        st.builds(ast.Period, durations, inner),
        st.builds(ast.Sliding, counts, durations, counts, inner),
        st.builds(ast.Enter, regions, metres, inner),
        st.builds(ast.Exit, regions, metres, inner),
        st.builds(ast.Dwell, regions, metres, inner, durations),
        st.builds(ast.Approach, regions, metres, inner, metres),
    )


expressions = st.recursive(
    st.one_of(primitives, st.builds(ast.Reference, names)), operators, max_leaves=6
)
definitions = st.builds(ast.Definition, names, expressions)
patterns = st.builds(ast.Pattern, expressions, st.lists(definitions, max_size=2).map(tuple))
