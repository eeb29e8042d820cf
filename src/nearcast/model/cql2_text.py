"""CQL2 text, read into CQL2 JSON by the `cql2` library, with errors a person can use.

The library descends recursively without bounds: chains of some thousand operators
overflow its stack (and end the process), and a mistake inside n parentheses costs it
2ⁿ steps. Short and shallow texts go to it whole. The others are first cut here at AND,
OR, NOT and their parentheses, and the library reads the predicates between the cuts.
It also reads one coordinate in ten a little wrong (the last bit), and takes a stray
keyword for a name: both are mended here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import cql2

from nearcast.errors import FilterError

__all__ = ["locate", "read_text", "stray_keyword"]

#: What the library is trusted with in one piece. An operator takes it up to 2 kB of stack.
_WHOLE_LENGTH = 2000
_WHOLE_PARENTHESES = 6
_WHOLE_OPERATORS = 100
#: The longest run of tokens without a comma or parenthesis in one predicate.
_LONGEST_RUN = 100
#: The deepest parentheses in one predicate: a MULTIPOLYGON in a function needs 4.
_DEEPEST = 5

_STRING = r"'[^']*+(?:''[^']*+)*+'"
_QUOTED = r'"[^"]*+(?:""[^"]*+)*+"'
_NUMBER = r"[+-]?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?"
_POSITION = rf"{_NUMBER}(?:\s++{_NUMBER}){{0,3}}+"
_TOKEN = re.compile(
    rf"(?P<value>{_STRING}|{_QUOTED})"
    rf"|(?P<numbers>(?:{_POSITION}\s*+(?:,\s*+|(?=\))))++)"  # a list or a ring in one token
    rf"|(?P<number>{_NUMBER})"
    r"|(?P<word>[^\W\d_][\w.:]*+)"
    r"|(?P<sign>\S)"
)


def read_text(text: str) -> Any:
    """The CQL2 JSON of a text; a FilterError with a caret where it cannot be read.

    Costs 20 µs for three predicates and grows linearly, for malformed texts too.
    """
    return _parse(text, text, 0) if _is_tame(text) else _Cutter(text).read()


def _is_tame(text: str) -> bool:
    """Whether the library can be given the whole text; wrongly no does no harm."""
    if len(text) > _WHOLE_LENGTH or text.count("(") > _WHOLE_PARENTHESES:
        return False
    if len(text) <= _WHOLE_OPERATORS:
        return True
    capitals = text.upper()
    return sum(map(capitals.count, _NESTING)) <= _WHOLE_OPERATORS


#: What makes the library descend; AND and OR hardly do.
_NESTING = (*"-+*/%^=<>", "NOT", "IN", "IS", "LIKE", "DIV")


def locate(text: str, pattern: str, occurrence: int = 0) -> int | None:
    """Where a regular expression (or its group `at`) matches outside the quoted strings.

    Upper and lower case are the same. None if it does not occur so often.
    """
    for at, found in enumerate(re.finditer(pattern, _without_strings(text), re.IGNORECASE)):
        if at == occurrence:
            return found.start("at") if "at" in found.groupdict() else found.start()
    return None


def _without_strings(text: str) -> str:
    """The text with what stands in single quotes blanked out."""
    if "'" not in text:
        return text
    return re.sub(_STRING, lambda found: "'" + "\0" * (len(found[0]) - 2) + "'", text)


def stray_keyword(text: str, names: Iterable[str]) -> str | None:
    """The first name that is a keyword and does not stand in double quotes in the text."""
    for name in names:
        if name.upper() in _KEYWORDS and f'"{name}"' not in text:
            return name
    return None


_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS"})


def _parse(piece: str, text: str, offset: int) -> Any:
    try:
        tree = cql2.parse_text(piece).to_json()
    except cql2.ParseError as error:
        raise _readable(str(error), piece, text, offset) from None
    except UnicodeEncodeError as error:
        raise FilterError(
            "lone surrogates are not text; take them out", text, offset + error.start
        ) from None
    except Exception as error:  # the library's own, for geometries it cannot convert
        raise FilterError(f"the filter cannot be read: {error}", text) from None
    return _with_exact_coordinates(tree, piece) if "(" in piece else tree


def _with_exact_coordinates(tree: Any, piece: str) -> Any:
    """The tree with the coordinates of its shapes rounded correctly, from the text."""
    written = list(_WKT.finditer(_without_strings(piece)))
    if not written:
        return tree
    shapes = (node for node in _objects(tree) if node.get("type") in _WKT_TYPES)
    for found, shape in zip(written, shapes, strict=False):
        numbers = [float(number) for number in re.findall(_NUMBER, found[1])]
        if len(numbers) == sum(1 for _ in _flat(shape["coordinates"])):
            shape["coordinates"] = _refilled(shape["coordinates"], iter(numbers))
    return tree


_RING = r"\([^()]*+\)"
_RINGS = rf"\((?:[^()]++|{_RING})*+\)"
_WKT = re.compile(
    rf"\b(?:POINT|POLYGON|MULTIPOLYGON)\b[\sZM]*+(\((?:[^()]++|{_RINGS})*+\))", re.IGNORECASE
)
_WKT_TYPES = ("Point", "Polygon", "MultiPolygon")


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    """The objects of a tree, in the order of the text."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(reversed(node.get("args", ())))
        elif isinstance(node, list):
            waiting.extend(reversed(node))


def _flat(coordinates: Any) -> Iterator[float]:
    for entry in coordinates:
        if isinstance(entry, list):
            yield from _flat(entry)
        else:
            yield entry


def _refilled(coordinates: list[Any], numbers: Iterator[float]) -> list[Any]:
    return [
        _refilled(entry, numbers) if isinstance(entry, list) else next(numbers)
        for entry in coordinates
    ]


# --- long and deep texts --------------------------------------------------------------------

_INFIX_SIGNS = "=<>!+-*/%^"
_INFIX_WORDS = ("IS", "IN", "NOT", "LIKE", "BETWEEN", "DIV")
_AFTER_OPERAND = "AND, OR, a comparison such as < 3, or the end of the filter"
_TOO_LONG = "this predicate is too long: a predicate compares one property with one value"


class _Level:
    """What stands between two parentheses: alternatives, of which the last is unfinished."""

    __slots__ = ("alternatives", "negations")

    def __init__(self) -> None:
        self.negations = 0
        self.alternatives: list[list[Any]] = [[]]

    def take(self, node: Any) -> None:
        for _ in range(self.negations):
            node = {"op": "not", "args": [node]}
        self.negations = 0
        self.alternatives[-1].append(node)

    def tree(self) -> Any:
        return _joined("or", [_joined("and", terms) for terms in self.alternatives])


def _joined(op: str, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else {"op": op, "args": parts}


class _Cutter:
    """Cuts a text at its logical operators, with a stack of levels instead of recursion."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            (str(found.lastgroup), found.start(), found.end()) for found in _TOKEN.finditer(text)
        ]
        self.closing = dict(self._pairs())
        self.levels = [_Level()]

    def read(self) -> Any:
        at, operand_next = 0, True
        while at < len(self.tokens):
            word = self._word(at)
            if not operand_next:
                operand_next = self._joint(at, word)
            elif word == "NOT":
                self._negate(at)
            elif self._is_group(at):
                self.levels.append(_Level())
            else:
                at, operand_next = self._predicate(at), False
                continue
            at += 1
        if operand_next:
            self._fail("the filter ends too early; expected a predicate", len(self.text))
        return self.levels[0].tree()

    def _joint(self, at: int, word: str) -> bool:
        """Take what follows an operand: AND, OR or `)`; whether an operand comes next."""
        if word == "OR":
            self.levels[-1].alternatives.append([])
        elif word != "AND":
            if self._sign(at) != ")":
                self._fail(f"expected {_AFTER_OPERAND}", self.tokens[at][1])
            closed = self.levels.pop()
            self.levels[-1].take(closed.tree())
        return bool(word)

    def _negate(self, at: int) -> None:
        self.levels[-1].negations += 1
        if self.levels[-1].negations > _LONGEST_RUN:
            self._fail("there are too many NOTs in a row", self.tokens[at][1])

    def _predicate(self, at: int) -> int:
        """Take a predicate; the token after it."""
        stop = self._predicate_end(at)
        start = self.tokens[at][1]
        end = self.tokens[stop - 1][2] if stop > at else start
        self.levels[-1].take(_parse(self.text[start:end], self.text, start))
        return stop

    def _predicate_end(self, at: int) -> int:
        """The next AND (but BETWEEN's), OR or `)` after a predicate's first token."""
        between, run = False, 0
        while at < len(self.tokens):
            word = self._word(at)
            if at in self.closing:
                self._check_inside(at)
                at, run = self.closing[at], 0
            elif word == "BETWEEN":
                between = True
            elif word == "AND" and between:
                between = False
            elif word in ("AND", "OR") or self._sign(at) == ")":
                break
            at, run = at + 1, run + 1
            if run > _LONGEST_RUN:
                self._fail(_TOO_LONG, self.tokens[at - 1][1])
        return at

    def _check_inside(self, at: int) -> None:
        """Refuse what the library could not bear inside the parentheses of a predicate."""
        depth, run = 0, 0
        for inner in range(at, self.closing[at] + 1):
            kind, start, _ = self.tokens[inner]
            sign = self._sign(inner)
            depth += (sign == "(") - (sign == ")")
            run = 0 if kind == "numbers" or sign in ("(", ")", ",") else run + 1
            if depth > _DEEPEST:
                self._fail("these parentheses are nested too deeply; leave some out", start)
            if run > _LONGEST_RUN:
                self._fail(_TOO_LONG, start)

    def _is_group(self, at: int) -> bool:
        """Whether a parenthesis holds a filter, not an operand as in `(x) = 3`."""
        if at not in self.closing:
            return False
        after = self.closing[at] + 1
        return after == len(self.tokens) or not (
            self._sign(after) in _INFIX_SIGNS or self._word(after) in _INFIX_WORDS
        )

    def _pairs(self) -> Iterator[tuple[int, int]]:
        opened: list[int] = []
        for at, (_, start, _) in enumerate(self.tokens):
            sign = self._sign(at)
            if sign == "(":
                opened.append(at)
            elif sign == ")":
                if not opened:
                    self._fail("this parenthesis closes nothing", start)
                yield opened.pop(), at
        if opened:
            self._fail("this parenthesis is never closed", self.tokens[opened[-1]][1])

    def _word(self, at: int) -> str:
        kind, start, stop = self.tokens[at]
        return self.text[start:stop].upper() if kind == "word" and stop - start < 8 else ""

    def _sign(self, at: int) -> str:
        kind, start, _ = self.tokens[at]
        return self.text[start] if kind == "sign" else " "

    def _fail(self, message: str, position: int) -> NoReturn:
        raise FilterError(message, self.text, position)


# --- errors ---------------------------------------------------------------------------------

_PLACE = re.compile(r"-->\s*(\d+):(\d+)")
_EXPECTED = re.compile(r"= (?:un)?expected (.*)", re.DOTALL)
_HINTS = tuple(
    (re.compile(sign), remedy)
    for sign, remedy in (
        (r"(?<==)=", "write = for equality"),
        (r"&&", "write AND"),
        (r"\|\|", "write OR; joining strings is not supported"),
        (r"!", "write NOT, or <> for inequality"),
        (r"[‘’“”´`]", "put strings in straight single quotes: 'text'"),
        (r"'", "the string that starts here is never closed; a quote inside it is ''"),
        (r'"', 'the name that starts here is never closed; a quote inside it is ""'),
        (r"\[", "lists stand in parentheses: ('a', 'b')"),
        (r"\.\d", "write a digit before the point: 0.5"),
        (r"(?<=\d)\w", "numbers look like 3, -0.5 or 1e6, and names begin with a letter"),
        (r"[_$@]", 'a name begins with a letter; put others in double quotes: "_x"'),
    )
)


def _readable(message: str, piece: str, text: str, offset: int) -> FilterError:
    """The library's error as ours: what a person would type, and where."""
    place = _PLACE.search(message)
    if place is None:
        return FilterError(f"the filter cannot be read: {message.strip()}", text)
    line, column = int(place[1]), int(place[2])
    lines = piece.split("\n")
    position = offset + sum(len(earlier) + 1 for earlier in lines[: line - 1]) + column - 1
    if not text.strip():
        return FilterError("the filter is empty; leave it out or write TRUE", text, 0)
    expected = _EXPECTED.search(message)
    rules = frozenset(re.findall(r"\w+", expected[1])) if expected else frozenset()
    hint = _hint(text, position)
    return FilterError(f"expected {_expectation(rules)}{hint}", text, min(position, len(text)))


def _expectation(rules: frozenset[str]) -> str:
    """Names of grammar rules as what one would type."""
    if any("COORD" in rule for rule in rules):
        return "coordinates such as 8.54 47.37"
    if "SingleQuotedString" in rules:
        return "a value such as 3, 'text' or TRUE, or the name of a property"
    if "EOI" in rules:
        return _AFTER_OPERAND
    if "And" in rules:
        return "a closing parenthesis, a comma, AND, OR or a comparison such as < 3"
    if "Add" in rules:
        return "AND and the upper bound of BETWEEN"
    if rules == {"NotFlag"}:
        return "NULL or NOT NULL"
    return "a predicate such as price < 3300, or a value such as 3, 'text' or TRUE"


def _hint(text: str, position: int) -> str:
    for sign, remedy in _HINTS:
        if sign.match(text, position):
            return f": {remedy}"
    return ""
