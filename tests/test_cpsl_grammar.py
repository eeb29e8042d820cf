"""CPSL's text: what can be written, and where an error is shown."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given, settings

from nearcast import Box, Circle, Point, Polygon
from nearcast.clock import to_micros
from nearcast.cpsl import ast
from nearcast.cpsl.parser import MAX_TEXT, parse, parser
from nearcast.cpsl.printer import format_lines
from nearcast.errors import PatternError
from tests.cpsl_expressions import patterns

A = ast.Primitive((ast.TypedPredicate("ARITH", ((ast.ArithTest("a", "=", 1.0),),)),))
B = ast.Primitive((ast.TypedPredicate("ARITH", ((ast.ArithTest("b", "=", 2.0),),)),))
C = ast.Primitive((ast.TypedPredicate("ARITH", ((ast.ArithTest("c", "=", 3.0),),)),))
TEXTS = {"A": "ARITH: a = 1", "B": "ARITH: b = 2", "C": "ARITH: c = 3"}
SQUARE = ast.Region(((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)))
POINT = ast.Region(((8.5, 47.4),))
R = "(0,0),(1,0),(1,1),(0,1)"
NOON = to_micros("2026-03-01T12:00:00Z")
S = 1_000_000


def written(text: str) -> str:
    """A text with A, B and C for primitives."""
    return re.sub(r"\b[ABC]\b", lambda found: TEXTS[found[0]], text)


def read(text: str) -> ast.Expression:
    return parse(written(text)).expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A", A),
        ("(A)", A),
        ("!(1772366400; 600)A", ast.Negation(ast.Fixed(NOON, 600 * S), A)),
        ("!(2026-03-01T12:00:00Z; PT10M)A", ast.Negation(ast.Fixed(NOON, 600 * S), A)),
        ("!(A; 600)B", ast.Negation(ast.Following(A, 600 * S), B)),
        ("!(A; B)C", ast.Negation(ast.Enclosed(A, B), C)),
        ("=|(1772366400; 0.5)A", ast.HappenBetween(ast.Fixed(NOON, S // 2), A)),
        ("=|(A; P1DT2H)B", ast.HappenBetween(ast.Following(A, 26 * 3600 * S), B)),
        ("=|(A; B)C", ast.HappenBetween(ast.Enclosed(A, B), C)),
        ("|=(1772366400; 1)A", ast.HappenAfter(ast.Fixed(NOON, S), A)),
        ("|=(A; P1W)B", ast.HappenAfter(ast.Following(A, 7 * 86400 * S), B)),
        ("|=(A; B)C", ast.HappenAfter(ast.Enclosed(A, B), C)),
        ("=|(A; P(5)B)C", ast.HappenBetween(ast.Enclosed(A, ast.Period(5 * S, B)), C)),
        ("|(A)B", ast.Concurrent(A, B)),
        (f"@({R})A", ast.HappenIn(SQUARE, A)),
        ("IN(A)B", ast.Inside(A, B)),
        (f"OVLP({R})A", ast.Overlap(SQUARE, A)),
        ("OVLP(A)B", ast.Overlap(A, B)),
        ("SPL((8.5,47.4))A", ast.SamePlace(POINT, A)),
        ("SPL((A))B", ast.SamePlace(A, B)),
        ("DIST((8.5,47.4);<;2000)A", ast.Distance(POINT, "<", 2000.0, A)),
        (f"DIST({R};=;5.5)A", ast.Distance(SQUARE, "=", 5.5, A)),
        ("DIST(A;>;10)B", ast.Distance(A, ">", 10.0, B)),
        ("A && B && C", ast.And((A, B, C))),
        ("(A && B) && C", ast.And((ast.And((A, B)), C))),
        ("A || B && C", ast.Or((A, ast.And((B, C))))),
        ("A && B || C", ast.Or((ast.And((A, B)), C))),
        ("A && (B || C)", ast.And((A, ast.Or((B, C))))),
        ("A || |(B)C", ast.Or((A, ast.Concurrent(B, C)))),
        ("A |||(B)C", ast.Or((A, ast.Concurrent(B, C)))),
        ("Q(3)A", ast.Count(3, A)),
        ("P(PT1H)A", ast.Period(3600 * S, A)),
        ("S(3; PT1M; 2)A", ast.Sliding(3, 60 * S, 2, A)),
        (
            "!(A;5)Q(2)@((0,0),(1,0),(1,1))B && C",
            ast.And(
                (
                    ast.Negation(
                        ast.Following(A, 5 * S),
                        ast.Count(2, ast.HappenIn(ast.Region(((0, 0), (1, 0), (1, 1))), B)),
                    ),
                    C,
                )
            ),
        ),
    ],
)
def test_every_operator_reads_as_what_it_says(text: str, expected: ast.Expression):
    assert read(text) == expected


def test_whitespace_and_comments_are_free():
    text = "=|(\n  $e1;; 600) # after that\n$e2;,\n# the first\n$e1;=(A)  , # next\n\n $e2; = (B)"
    assert parse(written(text)) == ast.Pattern(
        ast.HappenBetween(ast.Following(ast.Reference("e1"), 600 * S), ast.Reference("e2")),
        (ast.Definition("e1", A), ast.Definition("e2", B)),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price < 10", ast.ArithTest("price", "<", 10.0)),
        ("price>=-1.5e3", ast.ArithTest("price", ">=", -1500.0)),
        ("price != 3", ast.ArithTest("price", "!=", 3.0)),
        ("id = &x", ast.ArithTest("id", "=", ast.Variable("x"))),
        ("price < &x * 2", ast.ArithTest("price", "<", ast.Variable("x", "*", 2.0))),
        ("price < &x-2", ast.ArithTest("price", "<", ast.Variable("x", "-", 2.0))),
        ("price < &x - -2", ast.ArithTest("price", "<", ast.Variable("x", "-", -2.0))),
        ("price IN [1, 2)", ast.RangeTest("price", 1.0, 2.0, True, False)),
        ("price IN (1, 2]", ast.RangeTest("price", 1.0, 2.0, False, True)),
        ("Q IN [1, 2]", ast.RangeTest("Q", 1.0, 2.0)),
        ("IN = 3", ast.ArithTest("IN", "=", 3.0)),
        ("ARITH = 3", ast.ArithTest("ARITH", "=", 3.0)),
    ],
)
def test_arithmetic_tests(text: str, expected: ast.Test):
    assert parse(f"ARITH: {text}").expression == ast.Primitive(
        (ast.TypedPredicate("ARITH", ((expected,),)),)
    )


@pytest.mark.parametrize("op", ["=", "!", ">*", "*<", "*=", "<*", "*>", "=*"])
def test_string_tests(op: str):
    primitive = parse(f'STRING: n{op}"a""b" & m {op} &x').expression
    tests = (ast.StringTest("n", op, 'a"b'), ast.StringTest("m", op, ast.Variable("x")))  # type: ignore[arg-type]
    assert primitive == ast.Primitive((ast.TypedPredicate("STRING", (tests,)),))


def test_a_string_may_differ_with_two_characters():
    assert parse('STRING: n != "a"') == parse('STRING: n ! "a"')


def test_sets_codes_and_cql2():
    text = (
        'STRING: s IN ("a", "b") | t NOT IN ("c"), RFID: PRODUCT = (0;7) 0x3F & READER<(1;2)01b,'
        ' RFID: READER >= (0;3)&r, CQL2: "price < 10 AND ""unit price"" > 2"'
    )
    assert parse(text).expression == ast.Primitive(
        (
            ast.TypedPredicate(
                "STRING",
                ((ast.SetTest("s", ("a", "b")),), (ast.SetTest("t", ("c",), negated=True),)),
            ),
            ast.TypedPredicate(
                "RFID",
                (
                    (
                        ast.RfidTest("PRODUCT", "=", 0, 7, ast.Code(63, 16)),
                        ast.RfidTest("READER", "<", 1, 2, ast.Code(1, 2)),
                    ),
                ),
            ),
            ast.TypedPredicate("RFID", ((ast.RfidTest("READER", ">=", 0, 3, ast.Variable("r")),),)),
            ast.CqlPredicate('price < 10 AND "unit price" > 2'),
        )
    )


def test_and_binds_tighter_than_or_between_tests():
    typed = parse("ARITH: a = 1 & b = 2 | c = 3").expression
    a, b, c = (ast.ArithTest(n, "=", float(v)) for n, v in (("a", 1), ("b", 2), ("c", 3)))
    assert typed == ast.Primitive((ast.TypedPredicate("ARITH", ((a, b), (c,))),))


def test_subscription_4_of_the_paper():
    text = 'DIST((8.5,47.4);<;2000)(STRING: type = "TAXI", STRING: state = "uncarry")'
    taxi, state = (
        ast.TypedPredicate("STRING", ((ast.StringTest(name, "=", value),),))
        for name, value in (("type", "TAXI"), ("state", "uncarry"))
    )
    assert parse(text).expression == ast.Distance(POINT, "<", 2000.0, ast.Primitive((taxi, state)))


# --- regions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_region", "points"),
    [
        (Point(1, 2), ((1.0, 2.0),)),
        ((1, 2), ((1.0, 2.0),)),
        (Box(0, 0, 1, 1), SQUARE.points),
        (Box(170, 0, -170, 1), ((170.0, 0.0), (190.0, 0.0), (190.0, 1.0), (170.0, 1.0))),
        (Polygon([(0, 0), (1, 0), (0, 1)]), ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))),
        ([(0, 0), Point(1, 0), (0, 1)], ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))),
        ("POINT (3 4)", ((3.0, 4.0),)),
        (SQUARE, SQUARE.points),
    ],
)
def test_a_named_region_is_what_was_given(given_region: object, points: object):
    pattern = parse("SPL(depot)ARITH: a = 1", {"depot": given_region})  # type: ignore[dict-item]
    assert pattern.expression == ast.SamePlace(ast.Region(points), A)  # type: ignore[arg-type]


def test_wkt_is_a_region():
    assert read('@("POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))")A') == ast.HappenIn(SQUARE, A)


@pytest.mark.parametrize(
    ("text", "regions", "message"),
    [
        ("@(depot)A", {}, "no region is named 'depot' (known: none was given)"),
        ("@(depot)A", {"yard": (1, 2)}, "(known: yard)"),
        ('@("POLYGON ((0 0, 2 0, 2 2, 1 0.5, 0 0))")A', {}, "convex"),
        ('@("POLYGON ((0 0,9 0,9 9,0 9,0 0),(1 1,2 1,2 2,1 1))")A', {}, "convex"),
        ('@("POLYGON EMPTY")A', {}, "an empty region"),
        ('@("LINESTRING (0 0, 1 1)")A', {}, "a POINT or a POLYGON"),
        ('@("POLYGON ((0 0, 1 0")A', {}, "write WKT"),
        ("@(depot)A", {"depot": Circle(0, 0, 5)}, "DIST"),
        ("@(depot)A", {"depot": []}, "an empty region"),
        ("@(depot)A", {"depot": 3}, "give a Point"),
        ("@(depot)A", {"depot": ["x"]}, "give a Point"),
    ],
)
def test_a_region_that_cannot_be_used(text: str, regions: dict, message: str):
    with pytest.raises(PatternError, match=re.escape(message)) as caught:
        parse(written(text), regions)
    assert caught.value.position == 2


# --- round trip -----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(patterns)
def test_what_is_printed_reads_back_the_same(pattern: ast.Pattern):
    text = str(pattern)
    again = parse(text)
    assert again == pattern
    assert hash(again) == hash(pattern)
    assert str(again) == text
    assert parse(format_lines(pattern)) == pattern


@settings(max_examples=50, deadline=None)
@given(patterns)
def test_every_node_stands_where_its_text_is(pattern: ast.Pattern):
    text = str(pattern)
    read = parse(text)
    roots = [read.expression, *(definition.body for definition in read.definitions)]
    for root in roots:
        for node in ast.walk(root):
            assert node.span is not None
            assert parse(text[node.span.start : node.span.stop]).expression == node
    for definition in read.definitions:
        assert definition.span is not None
        assert text[definition.span.start :].startswith(f"${definition.name};")


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "the text ends too early; expected a predicate"),
        ("ARITH: a=", 10, "the text ends too early; expected '&' or a number"),
        ("ARITH: a == 1", 11, "'=' does not fit here"),
        ("ARITH: a = 1 &", 15, "expected a name"),
        ("(ARITH: a = 1))", 15, "expected ', $' and a definition or the end"),
        ("STRING: a = 3", 13, "'3' does not fit here; expected '&' or a text in \"quotes\""),
        ('STRING: a = "abc', 13, "not closed"),
        ("Q(2.5)ARITH: a = 1", 4, "expected ')'"),
        ("Q(0)ARITH: a = 1", 3, "1 to 1,000,000"),
        ("Q(99999999999999999999)ARITH: a = 1", 3, "too large"),
        ("P(-1)ARITH: a = 1", 3, "not negative"),
        ("P(P1M)ARITH: a = 1", 3, "without years and months"),
        ("P(PT)ARITH: a = 1", 3, "ISO 8601"),
        ("P(0.0000001)ARITH: a = 1", 3, "a microsecond is the smallest unit"),
        ("P(1e99)ARITH: a = 1", 3, "ten thousand years"),
        ("!(1e15; 5)ARITH: a = 1", 3, "ten thousand years"),
        ("!(2026-13-01T12:00:00Z; 5)ARITH: a = 1", 3, "mend the date"),
        ("DIST((1,2);<;-1)ARITH: a = 1", 14, "not negative"),
        ("DIST((1,2);<=;1)ARITH: a = 1", 13, "expected ';'"),
        ("ARITH: a = 1e999", 12, "float64"),
        ("@((1,1e999))ARITH: a = 1", 6, "float64"),
        ("ARITH: a = 1\n&& é", 4, "'é' does not fit here"),
        ("ARITH: a-b = 1", 9, "'-' does not fit here"),
        ("$x", 3, "expected ';'"),
        ("ARITH: a = 1, $x; = ARITH: b = 2", 21, "expected '('"),
        ("RFID: PRODUKT = (0;1) 0x1", 7, "expected PRODUCT or READER"),
    ],
)
def test_an_error_stands_under_its_column(text: str, column: int, message: str):
    with pytest.raises(PatternError) as caught:
        parse(text)
    error = caught.value
    assert message in str(error)
    assert error.column == column
    shown, caret = str(error).splitlines()[-2:]
    assert shown.strip() == text.splitlines()[-1].strip() if text else True
    assert caret.index("^") == column - 1 + 2
    assert error.line == text.count("\n") + 1


def test_a_text_has_a_bound():
    with pytest.raises(PatternError, match="at most 100,000 characters"):
        parse(" " * MAX_TEXT + "ARITH: a = 1")


def test_an_error_survives_pickling():
    import pickle

    with pytest.raises(PatternError) as caught:
        parse("ARITH: a =\n\n!")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.line, again.column) == (str(caught.value), 3, 1)


# --- the lexer ------------------------------------------------------------------------------------

SAMPLES = re.findall(
    r"\S+",
    """
    0 1 12 -1 +1 1.5 -1.5e3 1e5 0x1F 0X0 01b 1B 0b 2026-03-01T12:00:00Z P1D PT10M PT0.5S -PT5M P1W
    a A1 b1b PT P1 IN Q x_1 "a" "a""b" "" , $ ,$ < <= = != >= > ! >* *< *= <* *> =* + - * / ( ) [ ]
    PRODUCT READER
    """,
)


def test_no_two_patterns_compete_in_one_state():
    """In any state of the parser a text is one token or none: the strict mode of the lexer."""
    found = parser()
    lexer = found.parser.lexer
    patterns = {
        t.name: re.compile(t.pattern.to_regexp()) for t in found.terminals if t.pattern.type == "re"
    }
    together = {
        frozenset(pair)
        for state in lexer.lexers.values()
        for pair in combinations([t.name for t in state.terminals if t.name in patterns], 2)
    }
    assert len(together) > 20
    for first, second in map(sorted, together):
        both = [
            s for s in SAMPLES if patterns[first].fullmatch(s) and patterns[second].fullmatch(s)
        ]
        assert both == [], (first, second, both)
