"""CPSL as values: one frozen dataclass a construct, equal when they say the same.

Times and durations are integer microseconds, distances metres, places (x, y) pairs. The
span says where in the text a node stood; it takes no part in equality or hashing, so equal
expressions can be found and shared. Tests are kept as an OR of ANDs, as `&` binds tighter
than `|`. `str(node)` is CPSL again (nearcast.cpsl.printer).

A temporal operator has a window and a body::

    !(A; t)B        Negation(Following(A, t), B)
    =|(A; B)C       HappenBetween(Enclosed(A, B), C)
    |=(T; t)A       HappenAfter(Fixed(T, t), A)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias

from nearcast.clock import Micros

__all__ = [
    "And",
    "Approach",
    "ArithTest",
    "Arithmetic",
    "Code",
    "Comparison",
    "Concurrent",
    "Count",
    "CqlPredicate",
    "Crossing",
    "Definition",
    "Distance",
    "DistanceOp",
    "Dwell",
    "Enclosed",
    "Enter",
    "Exit",
    "Expression",
    "Fixed",
    "Following",
    "HappenAfter",
    "HappenBetween",
    "HappenIn",
    "Inside",
    "Negation",
    "Node",
    "Or",
    "Overlap",
    "Pattern",
    "Period",
    "Place",
    "Predicate",
    "Primitive",
    "RangeTest",
    "Reference",
    "Region",
    "RfidTest",
    "SamePlace",
    "SetTest",
    "Sliding",
    "Span",
    "StringOp",
    "StringTest",
    "Temporal",
    "Test",
    "TypedPredicate",
    "Variable",
    "Window",
    "children",
    "forget_spans",
    "parts_of",
    "walk",
]

Comparison: TypeAlias = Literal["<", "<=", "=", "!=", ">=", ">"]
Arithmetic: TypeAlias = Literal["+", "-", "*", "/"]
DistanceOp: TypeAlias = Literal["<", "=", ">"]
StringOp: TypeAlias = Literal["=", "!", ">*", "*<", "*=", "<*", "*>", "=*"]


@dataclass(frozen=True, slots=True)
class Span:
    """Where a node stands in its text: offsets of its first character and past its last."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Node:
    """Anything that stands somewhere in a text."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __str__(self) -> str:
        from nearcast.cpsl.printer import format_node

        return format_node(self)


# Tests of one attribute, and what they are compared with.


@dataclass(frozen=True, slots=True)
class Variable(Node):
    """`&x`, `&x * 2`: a value that another test bound, perhaps with some arithmetic."""

    name: str
    op: Arithmetic | None = None
    number: float = 0.0


@dataclass(frozen=True, slots=True)
class Code(Node):
    """A hexadecimal or binary code: `0x3F`, `0101b`."""

    value: int
    base: Literal[2, 16] = 16


@dataclass(frozen=True, slots=True)
class ArithTest(Node):
    """`price < 10`, `id = &x`: a number against a number or a variable.

    `=` with a variable that has no arithmetic binds it; every other use compares.
    """

    name: str
    op: Comparison
    value: float | Variable


@dataclass(frozen=True, slots=True)
class RangeTest(Node):
    """`price IN [10, 20)`: a number in an interval; a square bracket includes the end."""

    name: str
    low: float
    high: float
    low_closed: bool = True
    high_closed: bool = True


@dataclass(frozen=True, slots=True)
class StringTest(Node):
    """`type = "TAXI"`: a string against a string or a variable.

    `=` equals, `!` differs, `>*` starts with, `*<` ends with, `*=` contains; `<*`, `*>` and
    `=*` are the converses: the operand starts with, ends with, contains the value.
    """

    name: str
    op: StringOp
    value: str | Variable


@dataclass(frozen=True, slots=True)
class SetTest(Node):
    """`state IN ("free", "busy")`: a string is one of some, or, negated, none of them."""

    name: str
    values: tuple[str, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class RfidTest(Node):
    """`PRODUCT = (0;7) 0x3F`: the bits first..last of a code, 0 the leftmost, as a number.

    `name` is the attribute that holds the code; `role` what the code is, where that is not the
    attribute's name: `PRODUCT = (0;7;epc) 0x3F`.
    """

    name: str
    op: Comparison
    first: int
    last: int
    value: Code | Variable
    role: Literal["PRODUCT", "READER"] | None = None


Test: TypeAlias = ArithTest | RangeTest | StringTest | SetTest | RfidTest


@dataclass(frozen=True, slots=True)
class TypedPredicate(Node):
    """`ARITH: a = 1 & b < 2 | c > 3`: tests of one type, as an OR of ANDs."""

    kind: Literal["ARITH", "STRING", "RFID"]
    any_of: tuple[tuple[Test, ...], ...]


@dataclass(frozen=True, slots=True)
class CqlPredicate(Node):
    """`CQL2: "price < 10"`: a filter of nearcast's own."""

    text: str


Predicate: TypeAlias = TypedPredicate | CqlPredicate


# Expressions: what an event, plain or composite, can satisfy.


@dataclass(frozen=True, slots=True)
class Expression(Node):
    """What an event, plain or composite, can satisfy."""

    symbol: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Region(Node):
    """Points as written: one is a place of its own, more stand for their convex hull."""

    points: tuple[tuple[float, float], ...]


Place: TypeAlias = Region | Expression


@dataclass(frozen=True, slots=True)
class Primitive(Expression):
    """A plain event that passes all predicates."""

    predicates: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Reference(Expression):
    """`$x;`: the event behind a definition, the same one at every use."""

    name: str
    symbol: ClassVar[str] = "$"


@dataclass(frozen=True, slots=True)
class And(Expression):
    """`A && B && …`: all of them, in any order."""

    parts: tuple[Expression, ...]
    symbol: ClassVar[str] = "&&"


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """`A || B || …`: any of them."""

    parts: tuple[Expression, ...]
    symbol: ClassVar[str] = "||"


@dataclass(frozen=True, slots=True)
class Fixed(Node):
    """`T; t`: from an instant, for a duration."""

    at: Micros
    length: Micros


@dataclass(frozen=True, slots=True)
class Following(Node):
    """`A; t`: from the end of an event, for a duration."""

    opener: Expression
    length: Micros


@dataclass(frozen=True, slots=True)
class Enclosed(Node):
    """`A; B`: from the end of one event to another."""

    opener: Expression
    closer: Expression


Window: TypeAlias = Fixed | Following | Enclosed


@dataclass(frozen=True, slots=True)
class Temporal(Expression):
    """An operator with a window in time."""

    window: Window
    body: Expression


@dataclass(frozen=True, slots=True)
class Negation(Temporal):
    """`!(…)A`: no such event in the window."""

    symbol: ClassVar[str] = "!"


@dataclass(frozen=True, slots=True)
class HappenBetween(Temporal):
    """`=|(…)A`: such an event in the window."""

    symbol: ClassVar[str] = "=|"


@dataclass(frozen=True, slots=True)
class HappenAfter(Temporal):
    """`|=(…)A`: such an event after the window."""

    symbol: ClassVar[str] = "|="


@dataclass(frozen=True, slots=True)
class Concurrent(Expression):
    """`|(A)B`: two events whose intervals share an instant."""

    other: Expression
    body: Expression
    symbol: ClassVar[str] = "|"


@dataclass(frozen=True, slots=True)
class HappenIn(Expression):
    """`@(R)A`: an event inside a region."""

    region: Region
    body: Expression
    symbol: ClassVar[str] = "@"


@dataclass(frozen=True, slots=True)
class Inside(Expression):
    """`IN(A)B`: the second event (`body`) inside the first (`other`)."""

    other: Expression
    body: Expression
    symbol: ClassVar[str] = "IN"


@dataclass(frozen=True, slots=True)
class Overlap(Expression):
    """`OVLP(R)A`, `OVLP(A)B`: the places meet, and neither lies in the other."""

    place: Place
    body: Expression
    symbol: ClassVar[str] = "OVLP"


@dataclass(frozen=True, slots=True)
class SamePlace(Expression):
    """`SPL(R)A`, `SPL(A)B`: the centres lie within a tolerance."""

    place: Place
    body: Expression
    symbol: ClassVar[str] = "SPL"


@dataclass(frozen=True, slots=True)
class Distance(Expression):
    """`DIST(R; <; l)A`, `DIST(A; <; l)B`: the metres between the shapes."""

    place: Place
    op: DistanceOp
    metres: float
    body: Expression
    symbol: ClassVar[str] = "DIST"


@dataclass(frozen=True, slots=True)
class Count(Expression):
    """`Q(n)A`: n occurrences."""

    n: int
    body: Expression
    symbol: ClassVar[str] = "Q"


@dataclass(frozen=True, slots=True)
class Period(Expression):
    """`P(t)A`: all occurrences of each period, counted from registration."""

    length: Micros
    body: Expression
    symbol: ClassVar[str] = "P"


@dataclass(frozen=True, slots=True)
class Sliding(Expression):
    """`S(n; t; k)A`: n occurrences within t, each window k occurrences after the last."""

    n: int
    length: Micros
    step: int
    body: Expression
    symbol: ClassVar[str] = "S"


@dataclass(frozen=True, slots=True)
class Crossing(Expression):
    """What an object does at the border of a region; `margin` is how far out it has left."""

    region: Region
    margin: float
    body: Expression


@dataclass(frozen=True, slots=True)
class Enter(Crossing):
    """`ENTER(R; m)A`: it was outside, and now is inside."""

    symbol: ClassVar[str] = "ENTER"


@dataclass(frozen=True, slots=True)
class Exit(Crossing):
    """`EXIT(R; m)A`: it was inside, and now is outside."""

    symbol: ClassVar[str] = "EXIT"


@dataclass(frozen=True, slots=True)
class Dwell(Crossing):
    """`DWELL(R; t; m)A`: it entered, and did not leave for a duration."""

    length: Micros
    symbol: ClassVar[str] = "DWELL"


@dataclass(frozen=True, slots=True)
class Approach(Crossing):
    """`APPROACH(R; l; m)A`: it was farther than l and the margin away, and now is within l."""

    metres: float
    symbol: ClassVar[str] = "APPROACH"


@dataclass(frozen=True, slots=True)
class Definition(Node):
    """`$x; = (A)`."""

    name: str
    body: Expression


@dataclass(frozen=True, slots=True)
class Pattern(Node):
    """A whole text: an expression and the definitions of its variables."""

    expression: Expression
    definitions: tuple[Definition, ...] = ()

    def definition(self, name: str) -> Expression:
        """The expression behind `$name;`; KeyError where there is none. O(definitions)."""
        for definition in self.definitions:
            if definition.name == name:
                return definition.body
        raise KeyError(name)


def parts_of(window: Window) -> tuple[Expression, ...]:
    """The expressions of a window, opener first."""
    if isinstance(window, Fixed):
        return ()
    if isinstance(window, Following):
        return (window.opener,)
    return (window.opener, window.closer)


def children(expression: Expression) -> tuple[Expression, ...]:
    """The direct operands that are expressions, in the order they are written."""
    match expression:
        case And(parts=parts) | Or(parts=parts):
            return parts
        case Temporal(window=window, body=body):
            return (*parts_of(window), body)
        case Concurrent(other=other, body=body) | Inside(other=other, body=body):
            return (other, body)
        case Overlap(place=place, body=body) | SamePlace(place=place, body=body):
            return (place, body) if isinstance(place, Expression) else (body,)
        case Distance(place=place, body=body):
            return (place, body) if isinstance(place, Expression) else (body,)
        case HappenIn(body=body) | Count(body=body) | Period(body=body) | Sliding(body=body):
            return (body,)
        case Crossing(body=body):
            return (body,)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all below it, in the order they are written; references stay closed.

    Iterative: any depth will do. O(nodes).
    """
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))


def forget_spans(pattern: Pattern) -> None:
    """Take the spans from a pattern that nobody else has.

    They say where errors are; of what is known to be right they would be a third of the bytes.
    """
    stack: list[object] = [pattern]
    while stack:
        found = stack.pop()
        if isinstance(found, Node):
            object.__setattr__(found, "span", None)
            kind: Any = type(found)
            stack += [getattr(found, name) for name in _names_of(kind)]
        elif isinstance(found, tuple):
            stack += found


@cache
def _names_of(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.name != "span")
