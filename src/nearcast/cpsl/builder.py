"""Patterns in Python: functions that yield the same values as the text does.

::

    from nearcast.cpsl.builder import absent, event, number, seq

    scan = event(kind="scan", parcel=number("p"))
    load = event(kind="load", parcel=number("p"))
    absent(load, after=scan, within="PT10M")     # !(scan; 600)load, for each parcel

Durations are seconds, ISO 8601 text or timedeltas; instants are RFC 3339 text, aware datetimes
or microseconds; places are `Point`, `Box`, a convex `Polygon`, (x, y) pairs, WKT or another
expression, whose events' places are meant. Nothing is analysed here: `Composite` does that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import Literal, TypeAlias

from nearcast.clock import Time, to_micros
from nearcast.cpsl import ast
from nearcast.cpsl.ast import Expression, Pattern
from nearcast.cpsl.parser import parse
from nearcast.cpsl.regions import GivenRegion, Regions, to_region
from nearcast.errors import ValidationError
from nearcast.model.cql2_literals import name_text, value_text
from nearcast.model.durations import to_duration

__all__ = [
    "Binding",
    "Duration",
    "absent",
    "at_distance",
    "both",
    "cpsl",
    "either",
    "event",
    "every",
    "far",
    "happens",
    "inside",
    "later",
    "near",
    "number",
    "overlapping",
    "pattern",
    "ref",
    "same_place",
    "seq",
    "string",
    "times",
    "together",
]

Duration: TypeAlias = float | str | timedelta
GivenPlace: TypeAlias = Expression | GivenRegion


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Binding:
    """The value of an attribute, known as `&name` and the same wherever that is used."""

    name: str
    kind: Literal["ARITH", "STRING"]


def number(name: str) -> Binding:
    """`ARITH: … = &name`: a number that several events share."""
    return Binding(name, "ARITH")


def string(name: str) -> Binding:
    """`STRING: … = &name`: a text that several events share."""
    return Binding(name, "STRING")


# --- primitives, variables, text ----------------------------------------------------------------


def event(where: str | None = None, /, **equals: float | str | bool | Binding) -> ast.Primitive:
    """A plain event: a CQL2 filter, and attributes that equal values or are bound.

    >>> str(event("price < 10", type="TAXI", id=number("x")))
    'CQL2: "price < 10", STRING: type = "TAXI", ARITH: id = &x'
    """
    predicates: list[ast.Predicate] = [] if where is None else [ast.CqlPredicate(where)]
    predicates += [_equality(name, value) for name, value in equals.items()]
    if not predicates:
        raise ValidationError("where", where, "say something about the event")
    return ast.Primitive(tuple(predicates))


def _equality(name: str, value: object) -> ast.Predicate:
    if isinstance(value, bool) or not _NAME.fullmatch(name):
        if not isinstance(value, bool | int | float | str):
            raise ValidationError(name, value, "CPSL names are letters, digits and _")
        return ast.CqlPredicate(f"{name_text(name)} = {value_text(value)}")
    if isinstance(value, int | float):
        return ast.TypedPredicate("ARITH", ((ast.ArithTest(name, "=", float(value)),),))
    if isinstance(value, str):
        return ast.TypedPredicate("STRING", ((ast.StringTest(name, "=", value),),))
    if isinstance(value, Binding):
        variable = ast.Variable(value.name)
        if value.kind == "ARITH":
            return ast.TypedPredicate("ARITH", ((ast.ArithTest(name, "=", variable),),))
        return ast.TypedPredicate("STRING", ((ast.StringTest(name, "=", variable),),))
    raise ValidationError(name, value, "give a number, a string, a bool, number(…) or string(…)")


def cpsl(text: str, regions: Regions | None = None) -> Expression:
    """An expression from CPSL text without definitions."""
    read = parse(text, regions)
    if read.definitions:
        raise ValidationError("text", text, "definitions belong to pattern(…)")
    return read.expression


def ref(name: str) -> ast.Reference:
    """`$name;`: one event, the same at every use; `pattern` says what it is."""
    return ast.Reference(name)


def pattern(expression: Expression, /, **definitions: Expression) -> Pattern:
    """An expression and what its variables stand for.

    >>> str(pattern(together(ref("a"), ref("b")), a=event(id=1), b=event(id=2)))
    '|($a;)$b;, $a; = (ARITH: id = 1), $b; = (ARITH: id = 2)'
    """
    return Pattern(
        _checked(expression),
        tuple(ast.Definition(name, _checked(body)) for name, body in definitions.items()),
    )


def _checked(given: object) -> Expression:
    if not isinstance(given, Expression):
        raise ValidationError("operand", given, "give event(…), cpsl(…) or another expression")
    return given


# --- logic and repetition -----------------------------------------------------------------------


def both(*parts: Expression) -> ast.And:
    """`A && B && …`: all of them, in any order."""
    return ast.And(_several(parts))


def either(*parts: Expression) -> ast.Or:
    """`A || B || …`: any of them."""
    return ast.Or(_several(parts))


def _several(parts: tuple[Expression, ...]) -> tuple[Expression, ...]:
    if len(parts) < 2:
        raise ValidationError("parts", parts, "give at least two expressions")
    return tuple(map(_checked, parts))


def times(
    n: int, body: Expression, *, within: Duration | None = None, step: int | None = None
) -> ast.Count | ast.Sliding:
    """`Q(n)A`; with `within`, `S(n; t; k)A`: windows start `step` (n) occurrences apart."""
    if within is not None:
        return ast.Sliding(n, to_duration(within, "within"), step or n, _checked(body))
    if step is not None:
        raise ValidationError("step", step, "a step goes with within=…")
    return ast.Count(n, _checked(body))


def every(length: Duration, body: Expression) -> ast.Period:
    """`P(t)A`: all occurrences of each period."""
    return ast.Period(to_duration(length, "length"), _checked(body))


# --- time ---------------------------------------------------------------------------------------


def seq(*steps: Expression, within: Duration | None = None) -> Expression:
    """One after the other, each within a duration of the one before (or at any time after it).

    >>> str(seq(event(id=1), event(id=2), within="PT10M"))
    '=|(ARITH: id = 1; 600)(ARITH: id = 2)'
    """
    first, *rest = _several(steps)
    if within is None:
        return reduce(lambda a, b: ast.HappenAfter(ast.Following(a, 0), b), rest, first)
    length = to_duration(within, "within")
    return reduce(lambda a, b: ast.HappenBetween(ast.Following(a, length), b), rest, first)


def absent(
    body: Expression,
    *,
    after: Expression | Time,
    within: Duration | None = None,
    before: Expression | None = None,
) -> ast.Negation:
    """`!(…)A`: none within a duration after an event or an instant, or none between two events."""
    return ast.Negation(_window(after, within, before), _checked(body))


def happens(
    body: Expression,
    *,
    after: Expression | Time,
    within: Duration | None = None,
    before: Expression | None = None,
) -> ast.HappenBetween:
    """`=|(…)A`: one within a duration after an event or an instant, or between two events."""
    return ast.HappenBetween(_window(after, within, before), _checked(body))


def later(
    body: Expression,
    *,
    after: Expression | Time,
    by: Duration | None = None,
    then: Expression | None = None,
) -> ast.HappenAfter:
    """`|=(…)A`: one more than a duration after an event or an instant, or after `then` followed."""
    delay: Duration | None = 0 if by is None and then is None else by
    return ast.HappenAfter(_window(after, delay, then), _checked(body))


def _window(
    after: Expression | Time, within: Duration | None, before: Expression | None
) -> ast.Window:
    if (within is None) == (before is None):
        raise ValidationError("within", within, "give a duration or a closing event, not both")
    if not isinstance(after, Expression):
        if within is None:
            raise ValidationError("after", after, "between two events both are expressions")
        return ast.Fixed(to_micros(after, "after"), to_duration(within, "within"))
    if before is not None:
        return ast.Enclosed(after, _checked(before))
    return ast.Following(after, to_duration(within, "within"))


def together(first: Expression, second: Expression) -> ast.Concurrent:
    """`|(A)B`: their intervals share an instant."""
    return ast.Concurrent(_checked(first), _checked(second))


# --- space --------------------------------------------------------------------------------------


def inside(place: GivenPlace, body: Expression) -> ast.HappenIn | ast.Inside:
    """`@(R)A` or `IN(A)B`: inside a region, or inside another event's place."""
    if isinstance(place, Expression):
        return ast.Inside(place, _checked(body))
    return ast.HappenIn(to_region(place), _checked(body))


def overlapping(place: GivenPlace, body: Expression) -> ast.Overlap:
    """`OVLP(…)A`: the places meet, and neither lies in the other."""
    return ast.Overlap(_place(place), _checked(body))


def same_place(place: GivenPlace, body: Expression) -> ast.SamePlace:
    """`SPL(…)A`: the centres lie within a tolerance."""
    return ast.SamePlace(_place(place), _checked(body))


def near(place: GivenPlace, body: Expression, metres: float) -> ast.Distance:
    """`DIST(…; <; l)A`: less than so many metres away."""
    return ast.Distance(_place(place), "<", float(metres), _checked(body))


def far(place: GivenPlace, body: Expression, metres: float) -> ast.Distance:
    """`DIST(…; >; l)A`: more than so many metres away."""
    return ast.Distance(_place(place), ">", float(metres), _checked(body))


def at_distance(place: GivenPlace, body: Expression, metres: float) -> ast.Distance:
    """`DIST(…; =; l)A`: so many metres away, within a tolerance."""
    return ast.Distance(_place(place), "=", float(metres), _checked(body))


def _place(given: GivenPlace) -> ast.Place:
    return given if isinstance(given, Expression) else to_region(given)
