"""From text to values: lark's LALR(1) parser with the contextual lexer, in strict mode.

Parsing takes time linear in the text, which is bounded, and no recursion: no text makes it
hang or overflow. Whatever is wrong raises a PatternError with the place. What a text means is
the business of nearcast.cpsl.analyze.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Any, NoReturn, cast

from lark import (
    Lark,
    Token,
    Tree,
    UnexpectedCharacters,
    UnexpectedEOF,
    UnexpectedInput,
    UnexpectedToken,
)
from lark.common import LexerConf
from lark.lexer import ContextualLexer
from lark.visitors import Transformer_NonRecursive

from nearcast.clock import to_micros
from nearcast.cpsl import ast
from nearcast.cpsl.regions import Regions, to_region
from nearcast.errors import PatternError, ValidationError
from nearcast.model.durations import seconds_to_micros, to_duration

__all__ = ["MAX_COUNT", "MAX_TEXT", "grammar_text", "parse", "parser"]

#: How many characters a text may have.
MAX_TEXT = 100_000
#: How many occurrences a repetition may wait for.
MAX_COUNT = 1_000_000


def parse(text: str, regions: Regions | None = None) -> ast.Pattern:
    """The pattern that a text says, not yet analysed; `regions` are the named ones.

    Raises a PatternError where the text is no CPSL. O(length).
    """
    if not isinstance(text, str):
        raise ValidationError("text", text, "give CPSL text")
    if len(text) > MAX_TEXT:
        message = f"a pattern has at most {MAX_TEXT:,} characters, this one has {len(text):,}"
        raise PatternError(message, text, MAX_TEXT)
    try:
        tree = parser().parse(text)
    except UnexpectedInput as error:
        _refuse(error, text)
    return cast(ast.Pattern, _Reader(text, regions or {}).transform(tree))


class _Lexer(ContextualLexer):
    """The contextual lexer without lark's own check of the terminals, which needs a package
    and a second at every start: a test does it instead."""

    def __init__(self, conf: LexerConf, states: Any, always_accept: Any = ()) -> None:
        conf.skip_validation = True
        super().__init__(conf, states, always_accept)


def grammar_text() -> str:
    """The grammar, as lark reads it."""
    return files("nearcast.cpsl").joinpath("grammar.lark").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def parser() -> Lark:
    """The parser, made at its first use (30 ms)."""
    return Lark(
        grammar_text(),
        parser="lalr",
        lexer="contextual",
        start="pattern",
        strict=True,
        propagate_positions=True,
        maybe_placeholders=False,
        _plugins={"ContextualLexer": _Lexer},
    )


# --- what syntax errors say ---------------------------------------------------------------------

_TOKENS = {
    "ARITHMETIC": "an arithmetic operator",
    "BINARY": "a binary code (0101b)",
    "CLOSING": "']' or ')'",
    "COMPARISON": "a comparison",
    "DISTANCE_OP": "'<', '=' or '>'",
    "FIELD": "PRODUCT or READER",
    "HEX": "a hexadecimal code (0x3F)",
    "INT": "an integer",
    "NAME": "a name",
    "NEXT_DEFINITION": "', $' and a definition",
    "NUMBER": "a number",
    "OPENING": "'[' or '('",
    "PERIOD": "a duration (PT10M)",
    "STRING": 'a text in "quotes"',
    "STRING_OP": "a comparison of strings",
    "TIMESTAMP": "a time (2026-03-01T12:00:00Z)",
    "$END": "the end",
}
_OPERAND = {"ARITH", "DOLLAR", "OVLP"}  # in every set that accepts an expression


def _refuse(error: UnexpectedInput, text: str) -> NoReturn:
    position = len(text)
    what = "the text ends too early"
    wanted: set[str] = set()
    if isinstance(error, UnexpectedToken):
        wanted = set(error.accepts or error.expected)
        if error.token.type != "$END":
            position = error.token.start_pos or 0
            what = f"{_shortened(str(error.token))} does not fit here"
    elif isinstance(error, UnexpectedCharacters):
        wanted = set(error.allowed or ())
        position = error.pos_in_stream or 0
        character = text[position : position + 1]
        what = (
            "this text in quotes is not closed"
            if character == '"'
            else f"{character!r} does not fit here"
        )
    elif isinstance(error, UnexpectedEOF):
        wanted = set(error.expected)
    raise PatternError(f"{what}; {_expected(wanted)}", text, position) from None


def _shortened(token: str) -> str:
    return repr(token if len(token) <= 30 else token[:29] + "…")


def _expected(wanted: set[str]) -> str:
    names = set(wanted)
    told = []
    if names >= _OPERAND:
        told.append("a predicate, a variable or an operator")
        names -= set(_starters())
    told += sorted(_TOKENS.get(name) or repr(_literal(name)) for name in names if name != "COMMENT")
    if not told:
        return "nothing can follow"
    return "expected " + (" or ".join([", ".join(told[:-1]), told[-1]]) if told[1:] else told[0])


@lru_cache(maxsize=1)
def _starters() -> tuple[str, ...]:
    """The tokens an expression can start with: what the parser accepts at first."""
    state: Any = parser().parse_interactive("")
    return tuple(state.accepts())


def _literal(name: str) -> str:
    for terminal in parser().terminals:
        if terminal.name == name:
            return str(terminal.pattern.value)
    return name


# --- values from the tree -----------------------------------------------------------------------


def _span(tree: Tree[Any]) -> ast.Span:
    return ast.Span(tree.meta.start_pos, tree.meta.end_pos)


def _at(token: Token) -> ast.Span:
    start = token.start_pos or 0
    return ast.Span(start, start + len(token))


#: Rules whose children are a node's fields.
_PLAIN: dict[str, Callable[..., ast.Node]] = {
    "negation": ast.Negation,
    "happen_between": ast.HappenBetween,
    "happen_after": ast.HappenAfter,
    "concurrent": ast.Concurrent,
    "happen_in": ast.HappenIn,
    "inside": ast.Inside,
    "overlap": ast.Overlap,
    "same_place": ast.SamePlace,
    "enclosed": ast.Enclosed,
}


class _Length(int):
    """A duration that knows where it stands."""

    span: ast.Span


class _Reader(Transformer_NonRecursive[Any, Any]):
    """One method a rule of the grammar; children are values already, or tokens."""

    def __init__(self, text: str, regions: Regions) -> None:
        super().__init__()
        self._text = text
        self._regions = regions

    def _call_userfunc(self, tree: Tree[Any], new_children: list[Any] | None = None) -> Any:
        children = tree.children if new_children is None else new_children
        rule = str(tree.data)
        if rule in _PLAIN:
            return _PLAIN[rule](*children, span=_span(tree))
        method: Callable[[ast.Span, list[Any]], Any] = getattr(self, "on_" + rule)
        return method(_span(tree), children)

    def _fail(self, message: str, span: ast.Span) -> NoReturn:
        raise PatternError(message, self._text, span.start) from None

    # Patterns and operators.

    def on_pattern(self, span: ast.Span, parts: list[Any]) -> ast.Pattern:
        return ast.Pattern(parts[0], tuple(parts[1:]), span=span)

    def on_definition(self, span: ast.Span, parts: list[Any]) -> ast.Definition:
        dollar, name, body = parts
        start = (dollar.start_pos or 0) + len(dollar) - 1
        return ast.Definition(str(name), body, span=ast.Span(start, span.stop))

    def on_sub(self, span: ast.Span, parts: list[Any]) -> ast.Or:
        return ast.Or(tuple(parts), span=span)

    def on_conjunction(self, span: ast.Span, parts: list[Any]) -> ast.And:
        return ast.And(tuple(parts), span=span)

    def on_distance(self, span: ast.Span, parts: list[Any]) -> ast.Distance:
        place, op, metres, body = parts
        return ast.Distance(place, _word(op), self._metres(metres), body, span=span)

    def on_count(self, span: ast.Span, parts: list[Any]) -> ast.Count:
        return ast.Count(self._count(parts[0]), parts[1], span=span)

    def on_sliding(self, span: ast.Span, parts: list[Any]) -> ast.Sliding:
        n, length, step, body = parts
        return ast.Sliding(self._count(n), int(length), self._count(step), body, span=span)

    def on_enter(self, span: ast.Span, parts: list[Any]) -> ast.Enter:
        region, margin, body = parts
        return ast.Enter(region, self._metres(margin), body, span=span)

    def on_exit(self, span: ast.Span, parts: list[Any]) -> ast.Exit:
        region, margin, body = parts
        return ast.Exit(region, self._metres(margin), body, span=span)

    def on_dwell(self, span: ast.Span, parts: list[Any]) -> ast.Dwell:
        region, length, margin, body = parts
        return ast.Dwell(region, self._metres(margin), body, int(length), span=span)

    def on_approach(self, span: ast.Span, parts: list[Any]) -> ast.Approach:
        region, metres, margin, body = parts
        return ast.Approach(region, self._metres(margin), body, self._metres(metres), span=span)

    def on_reference(self, span: ast.Span, parts: list[Any]) -> ast.Reference:
        return ast.Reference(str(parts[0]), span=span)

    # Time. A window with a duration has the duration's span: that is what can be wrong in it.

    def on_fixed(self, _: ast.Span, parts: list[Any]) -> ast.Fixed:
        return ast.Fixed(parts[0], int(parts[1]), span=parts[1].span)

    def on_following(self, _: ast.Span, parts: list[Any]) -> ast.Following:
        return ast.Following(parts[0], int(parts[1]), span=parts[1].span)

    def on_period(self, span: ast.Span, parts: list[Any]) -> ast.Period:
        return ast.Period(int(parts[0]), parts[1], span=span)

    def on_time(self, span: ast.Span, parts: list[Any]) -> int:
        text = str(parts[0])
        try:
            micros = seconds_to_micros(text, "time") if parts[0].type == "NUMBER" else text
            return to_micros(micros, "time")
        except ValidationError as error:
            self._fail(f"{text} is no time: {error.remedy}", span)

    def on_duration(self, span: ast.Span, parts: list[Any]) -> _Length:
        try:
            length = _Length(to_duration(str(parts[0])))
        except ValidationError as error:
            self._fail(f"{parts[0]} is no duration: {error.remedy}", span)
        if length < 0:
            self._fail("a duration is not negative", span)
        length.span = span
        return length

    # Places.

    def on_points(self, span: ast.Span, parts: list[Any]) -> ast.Region:
        return ast.Region(tuple(parts), span=span)

    def on_point(self, _: ast.Span, parts: list[Any]) -> tuple[float, float]:
        return self._number(parts[0]), self._number(parts[1])

    def on_wkt(self, span: ast.Span, parts: list[Any]) -> ast.Region:
        return self._region(_unquoted(parts[0]), span)

    def on_named(self, span: ast.Span, parts: list[Any]) -> ast.Region:
        name = str(parts[0])
        if name not in self._regions:
            known = ", ".join(sorted(self._regions)) or "none was given"
            self._fail(f"no region is named {name!r} (known: {known})", span)
        return self._region(self._regions[name], span)

    def _region(self, given: object, span: ast.Span) -> ast.Region:
        try:
            return ast.Region(to_region(given).points, span=span)
        except ValidationError as error:
            self._fail(f"this region cannot be used: {error.remedy}", span)

    # Predicates.

    def on_primitive(self, span: ast.Span, parts: list[Any]) -> ast.Primitive:
        return ast.Primitive(tuple(parts), span=span)

    def on_arith(self, span: ast.Span, parts: list[Any]) -> ast.TypedPredicate:
        return ast.TypedPredicate("ARITH", parts[0], span=span)

    def on_string(self, span: ast.Span, parts: list[Any]) -> ast.TypedPredicate:
        return ast.TypedPredicate("STRING", parts[0], span=span)

    def on_rfid(self, span: ast.Span, parts: list[Any]) -> ast.TypedPredicate:
        return ast.TypedPredicate("RFID", parts[0], span=span)

    def on_cql2(self, _: ast.Span, parts: list[Any]) -> ast.CqlPredicate:
        # The span is the quoted text's: what is wrong in it is shown inside it.
        return ast.CqlPredicate(_unquoted(parts[0]), span=_at(parts[0]))

    def on_arith_tests(self, _: ast.Span, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    on_string_tests = on_rfid_tests = on_arith_tests
    on_arith_all = on_string_all = on_rfid_all = on_arith_tests

    def on_arith_compare(self, span: ast.Span, parts: list[Any]) -> ast.ArithTest:
        name, op, value = parts
        if isinstance(value, Token):
            value = self._number(value)
        return ast.ArithTest(str(name), _word(op), value, span=span)

    def on_arith_range(self, span: ast.Span, parts: list[Any]) -> ast.RangeTest:
        name, opening, low, high, closing = parts
        return ast.RangeTest(
            str(name),
            self._number(low),
            self._number(high),
            opening == "[",
            closing == "]",
            span=span,
        )

    def on_variable(self, span: ast.Span, parts: list[Any]) -> ast.Variable:
        name = str(parts[0])
        if len(parts) == 1:
            return ast.Variable(name, span=span)
        return ast.Variable(name, _word(parts[1]), self._number(parts[2]), span=span)

    def on_string_compare(self, span: ast.Span, parts: list[Any]) -> ast.StringTest:
        name, op, value = parts
        value = _unquoted(value) if isinstance(value, Token) else value
        return ast.StringTest(str(name), "!" if op == "!=" else _word(op), value, span=span)

    def on_string_in(self, span: ast.Span, parts: list[Any]) -> ast.SetTest:
        return ast.SetTest(str(parts[0]), tuple(map(_unquoted, parts[1:])), span=span)

    def on_string_not_in(self, span: ast.Span, parts: list[Any]) -> ast.SetTest:
        return ast.SetTest(str(parts[0]), tuple(map(_unquoted, parts[1:])), negated=True, span=span)

    def on_rfid_test(self, span: ast.Span, parts: list[Any]) -> ast.RfidTest:
        role, op, first, last, *named, value = parts
        bits = self._integer(first), self._integer(last)
        if isinstance(value, Token):
            value = _code(value)
        name = str(named[0]) if named else str(role)
        said = None if name == role else _word(role)
        return ast.RfidTest(name, _word(op), *bits, value, said, span=span)

    # Numbers.

    def _number(self, token: Token) -> float:
        number = float(token) + 0.0  # −0 is 0
        if not math.isfinite(number):
            self._fail(f"{_shortened(token)} does not fit a float64", _at(token))
        return number

    def _metres(self, token: Token) -> float:
        metres = self._number(token)
        if metres < 0:
            self._fail("a distance is not negative", _at(token))
        return metres

    def _count(self, token: Token) -> int:
        count = self._integer(token)
        if not 1 <= count <= MAX_COUNT:
            self._fail(f"give a number of 1 to {MAX_COUNT:,} occurrences", _at(token))
        return count

    def _integer(self, token: Token) -> int:
        if len(token) > 18:
            self._fail(f"{_shortened(token)} is too large", _at(token))
        return int(token)


def _word(token: Token) -> Any:
    """A token that the grammar lets be one of a few words."""
    return str(token)


def _unquoted(token: Token) -> str:
    return str(token)[1:-1].replace('""', '"')


def _code(token: Token) -> ast.Code:
    binary = token.type == "BINARY"
    digits = token[:-1] if binary else token[2:]
    return ast.Code(int(digits, 2 if binary else 16), 2 if binary else 16, span=_at(token))
