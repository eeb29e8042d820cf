"""What a primitive asks of an event: an exact evaluator, and its translation to a filter.

`evaluate` is the definition: it tests every predicate and says what the variables are bound
to. `translate` splits the work for the detector: a CQL2 filter that the `Matcher` decides for
all composites with one lookup, and the rest, which is checked on what the filter lets through.

The meaning of tests is that of nearcast's filters: a test of an attribute that is missing or
of another type is false; number, string and bool are three types; NaN passes nothing.

- ``NAME = &x`` (no arithmetic) binds x; every other test with a variable stays *open* until
  the variable is known and is then decided by `OpenTest.holds`.
- An RFID test reads the attribute PRODUCT or READER, or the one that it names: a string such as
  ``0x3FA0`` or ``0101b``. Bits count from 0 at the left; a code too short for the last bit
  fails the test.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from nearcast.cpsl import ast
from nearcast.errors import FilterTooLarge, ValidationError
from nearcast.model.cql2_literals import name_text, number_text, value_text, values_text
from nearcast.model.events import Event
from nearcast.model.filters import Filter
from nearcast.model.geometry import Space
from nearcast.model.schema import Schema
from nearcast.model.subscriptions import Subscription

__all__ = [
    "Bound",
    "Match",
    "OpenTest",
    "Translation",
    "binds",
    "check_filters",
    "evaluate",
    "holds",
    "kind_of",
    "read",
    "translate",
    "variables",
]

Kind: TypeAlias = Literal["number", "string", "bits"]
#: What a variable is bound to: values of different kinds are never equal.
Bound: TypeAlias = tuple[Kind, float | str | int]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_STRINGS: dict[str, Callable[[str, str], bool]] = {
    "=": operator.eq,
    "!": operator.ne,
    ">*": str.startswith,
    "*<": str.endswith,
    "*=": operator.contains,
    "<*": lambda value, operand: operand.startswith(value),
    "*>": lambda value, operand: operand.endswith(value),
    "=*": lambda value, operand: value in operand,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_CODE = re.compile(r"0[xX]([0-9A-Fa-f]+)|([01]+)[bB]", re.ASCII)


@dataclass(frozen=True, slots=True)
class OpenTest:
    """A comparison with a variable, of a value that is known: `price < &x * 2`."""

    op: str
    arithmetic: ast.Arithmetic | None = None
    number: float = 0.0

    def holds(self, left: Bound, right: Bound) -> bool:
        """Whether it holds once the variable is bound; other kinds and NaN never do."""
        kind, value = left
        if right[0] != kind:
            return False
        operand: Any = right[1]
        if kind == "string":
            return _STRINGS[self.op](str(value), operand)
        if self.arithmetic is not None:
            operand = _ARITHMETIC[self.arithmetic](float(operand), self.number)
            if math.isnan(operand):
                return False
        return _COMPARE[self.op](value, operand)


class Match(NamedTuple):
    """How an event satisfies a primitive: what it binds, and what stays open.

    Names carry their `&`. An open comparison is (the event's value, the test, the name).
    """

    bindings: Mapping[str, Bound]
    opens: tuple[tuple[Bound, OpenTest, str], ...]


_PLAIN = Match({}, ())


def binds(test: ast.Test) -> bool:
    """Whether a test gives its variable a value: `=`, and no arithmetic."""
    value = getattr(test, "value", None)
    return isinstance(value, ast.Variable) and getattr(test, "op", "") == "=" and value.op is None


def kind_of(test: ast.Test) -> Kind:
    """What a test compares."""
    if isinstance(test, ast.RfidTest):
        return "bits"
    return "number" if isinstance(test, ast.ArithTest | ast.RangeTest) else "string"


def variables(primitive: ast.Primitive) -> Iterator[tuple[ast.Test, ast.Variable, bool]]:
    """Every use of a variable: its test, itself, and whether it stands beside an `|`."""
    for predicate in primitive.predicates:
        if isinstance(predicate, ast.TypedPredicate):
            for tests in predicate.any_of:
                for test in tests:
                    value = getattr(test, "value", None)
                    if isinstance(value, ast.Variable):
                        yield test, value, len(predicate.any_of) > 1


# --- evaluation ---------------------------------------------------------------------------------


def evaluate(primitive: ast.Primitive, event: Event, space: Space = "globe") -> Match | None:
    """How the event satisfies the primitive, None if it does not. O(tests)."""
    return _passed(primitive.predicates, event, space)


def _passed(predicates: tuple[ast.Predicate, ...], event: Event, space: Space) -> Match | None:
    bindings: dict[str, Bound] = {}
    opens: list[tuple[Bound, OpenTest, str]] = []
    for predicate in predicates:
        if isinstance(predicate, ast.CqlPredicate):
            if not _cql2_holds(predicate.text, event, space):
                return None
        elif not any(_all_hold(tests, event, bindings, opens) for tests in predicate.any_of):
            return None
    if not bindings and not opens:
        return _PLAIN
    waiting = []
    for left, test, name in opens:
        if name not in bindings:
            waiting.append((left, test, name))
        elif not test.holds(left, bindings[name]):
            return None
    return Match(bindings, tuple(waiting))


def _all_hold(
    tests: tuple[ast.Test, ...],
    event: Event,
    bindings: dict[str, Bound],
    opens: list[tuple[Bound, OpenTest, str]],
) -> bool:
    # Variables never stand beside an |, so what a failing alternative leaves behind is nothing.
    for test in tests:
        value = read(test, event.attributes.get(test.name))
        if value is None:
            return False
        operand = getattr(test, "value", None)
        if not isinstance(operand, ast.Variable):
            if not holds(test, value):
                return False
            continue
        name = "&" + operand.name
        left = (kind_of(test), value)
        if binds(test):
            if bindings.setdefault(name, left) != left:
                return False
        else:
            op: Any = getattr(test, "op", "")
            opens.append((left, OpenTest(op, operand.op, operand.number), name))
    return True


def read(test: ast.Test, value: object) -> float | str | int | None:
    """What a test sees in the value of its attribute; None if that has another type."""
    if isinstance(test, ast.RfidTest):
        return _bits(value, test.first, test.last) if isinstance(value, str) else None
    if isinstance(test, ast.StringTest | ast.SetTest):
        return value if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value)
    return None if math.isnan(number) else number


def _bits(text: str, first: int, last: int) -> int | None:
    found = _CODE.fullmatch(text)
    if found is None:
        return None
    width = 4 * len(found[1]) if found[1] else len(found[2])
    if last >= width:
        return None
    code = int(found[1], 16) if found[1] else int(found[2], 2)
    return (code >> (width - 1 - last)) & ((1 << (last - first + 1)) - 1)


def holds(test: ast.Test, value: Any) -> bool:
    """Whether a test with a constant holds of what it sees."""
    match test:
        case ast.ArithTest(op=op, value=operand):
            return _COMPARE[op](value, operand)
        case ast.RangeTest(low=low, high=high):
            above = value >= low if test.low_closed else value > low
            return bool(above and (value <= high if test.high_closed else value < high))
        case ast.StringTest(op=op, value=str(operand)):
            return _STRINGS[op](value, operand)
        case ast.SetTest(values=values):
            return (value in values) is not test.negated
        case ast.RfidTest(op=op, value=ast.Code(value=operand)):
            return _COMPARE[op](value, operand)
        case _:
            raise AssertionError(test)


# --- CQL2 inside CPSL ---------------------------------------------------------------------------


def _cql2_holds(text: str, event: Event, space: Space) -> bool:
    from nearcast.matcher.places import shape_floats
    from nearcast.matcher.residual import Place, residuals_hold, shape_meets

    place = None
    if event.location is not None:
        place = Place(shape_floats(event.location), space == "globe")
    for clause in _parsed(text).clauses:
        if not all(test.test(event) for test in (*clause.intervals, *clause.equals)):
            continue
        if not clause.words <= event.keywords:
            continue
        if clause.regions and place is None:
            continue
        if any(
            place is not None and not shape_meets(kind, floats, place)
            for kind, floats in map(_floats, clause.regions)
        ):
            continue
        if residuals_hold(clause.residuals, event, place):
            return True
    return False


def _floats(region: Any) -> tuple[int, Any]:
    import numpy as np

    from nearcast.matcher.places import shape_floats

    kind, numbers = shape_floats(region)
    return kind, np.array(numbers)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Filter:
    return Filter.parse(text)


# --- translation --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Translation:
    """A primitive as a filter for the `Matcher` and what is left to check.

    `where` lets through every event that satisfies the primitive; where `residual` is empty
    it lets through no other.
    """

    where: str | None
    residual: tuple[ast.Predicate, ...]

    def subscription(self, id: str) -> Subscription:
        """The filter as a subscription. Parsing it again would take longer than all the rest."""
        return Subscription(id=id, where=None if self.where is None else _parsed(self.where))

    def check(self, event: Event, space: Space = "globe") -> Match | None:
        """The rest of the tests on an event that passed the filter. O(residual tests)."""
        return _passed(self.residual, event, space) if self.residual else _PLAIN


@lru_cache(maxsize=4096)
def translate(primitive: ast.Primitive) -> Translation:
    """Split a primitive between the matcher and a check. Some 100 µs, remembered."""
    conditions: list[str] = []
    residual: list[ast.Predicate] = []
    for predicate in primitive.predicates:
        text, exact = _condition(predicate)
        if text is not None and not _fits([*conditions, text]):
            text, exact = None, False
        if text is not None:
            conditions.append(text)
        if not exact:
            residual.append(predicate)
    return Translation(_joined(conditions), tuple(residual))


def check_filters(primitive: ast.Primitive, space: Space) -> None:
    """Refuse a primitive that no matcher of this space can learn, or no event be held against."""
    from nearcast.matcher.encode import encode_subscription

    translation = translate(primitive)
    left = [
        _parsed(each.text) for each in translation.residual if isinstance(each, ast.CqlPredicate)
    ]
    beside = [Subscription(id="beside", where=where) for where in left]
    for subscription in (translation.subscription("filter"), *beside):
        try:
            encode_subscription(subscription, Schema(), space)
        except ValidationError as error:
            field = error.field.replace("where", "text", 1)
            raise ValidationError(field, error.value, error.remedy) from None


def _joined(conditions: list[str]) -> str | None:
    return " AND ".join(f"({text})" for text in conditions) or None


def _fits(conditions: list[str]) -> bool:
    """Whether the filter's normal form is small enough: what is not is left to the check."""
    try:
        _parsed(_joined(conditions) or "TRUE")
    except FilterTooLarge:
        return False
    return True


def _condition(predicate: ast.Predicate) -> tuple[str | None, bool]:
    """A necessary condition as CQL2 (None: nothing), and whether it says all."""
    if isinstance(predicate, ast.CqlPredicate):
        return predicate.text, True
    exact = True
    alternatives = []
    for tests in predicate.any_of:
        parts = []
        for test in tests:
            text, whole = _test(test)
            parts.append(text)
            exact = exact and whole
        alternatives.append(" AND ".join(f"({part})" for part in parts))
    return " OR ".join(f"({text})" for text in alternatives), exact


def _test(test: ast.Test) -> tuple[str, bool]:
    name = name_text(test.name)
    match test:
        case ast.ArithTest(op=op, value=int() | float() as number):
            return f"{name} {'<>' if op == '!=' else op} {number_text(number)}", True
        case ast.RangeTest(low=low, high=high):
            above, below = ">=" if test.low_closed else ">", "<=" if test.high_closed else "<"
            low_text, high_text = number_text(low), number_text(high)
            return f"{name} {above} {low_text} AND {name} {below} {high_text}", True
        case ast.StringTest(op="=" | "!" as op, value=str(text)):
            return f"{name} {'=' if op == '=' else '<>'} {value_text(text)}", True
        case ast.StringTest(op=">*" | "*<" | "*=" as op, value=str(text)):
            before, after = "%" * (op != ">*"), "%" * (op != "*<")
            return f"{name} LIKE {value_text(before + _like(text) + after)}", True
        case ast.SetTest(values=values, negated=negated):
            return f"{name} {'NOT IN' if negated else 'IN'} {values_text(values)}", True
        case _:
            return f"{name} IS NOT NULL", False


def _like(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)
