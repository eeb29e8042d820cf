"""Predicates: what a filter is made of once it is normalised.

A `Clause` is one conjunction. Its intervals, equalities, words and regions can be
indexed; its residuals are checked on the candidates an index finds. All of them agree
on missing and mistyped attributes: a test of an attribute that the event lacks, or
that has another type, is false (`IsNull` alone is true of a missing one). Number,
string and bool are three types; NaN passes no test of its value.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from nearcast.errors import ValidationError
from nearcast.model.cql2_literals import (
    Scalar,
    Shape,
    name_text,
    number_text,
    shape_text,
    value_text,
    values_text,
)
from nearcast.model.geometry import Box, Circle, Point, Polygon

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from nearcast.model.events import Event

__all__ = [
    "AttributeResidual",
    "Clause",
    "Equals",
    "In",
    "Interval",
    "IsNull",
    "LacksWords",
    "Like",
    "NotEquals",
    "NotIn",
    "NotNull",
    "Relation",
    "Residual",
    "Simple",
    "SpatialResidual",
    "StringRange",
    "as_region",
    "like_literal",
    "like_prefix",
    "residual_bytes",
]

Relation = Literal["intersects", "within", "dwithin"]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _OnAttribute:
    """A test of the value of one attribute, false where there is none."""

    __slots__ = ()
    attribute: str

    def accepts(self, value: Any) -> bool:
        """Whether a present value passes."""
        raise NotImplementedError

    def test(self, event: Event) -> bool:
        """Whether the event passes."""
        value = event.attributes.get(self.attribute)
        return value is not None and self.accepts(value)


@dataclass(frozen=True, slots=True)
class Interval(_OnAttribute):
    """A number attribute lies in low..high, both ends included; they may be infinite.

    `x < v` is the interval up to the float64 just below v, and prints as `x < v`.

    >>> str(Interval("price", -math.inf, math.nextafter(3300, 0)))
    'price < 3300'
    """

    attribute: str
    low: float
    high: float

    def accepts(self, value: Any) -> bool:
        """Whether a present value is a number in the interval."""
        return _is_number(value) and self.low <= float(value) <= self.high

    def __str__(self) -> str:
        name, low, high = name_text(self.attribute), self.low, self.high
        if low == high and math.isfinite(low):
            return f"{name} = {number_text(low)}"
        if low == -math.inf and high == math.inf:
            return f"({name} < 0 OR {name} >= 0)"
        lower, upper = _bound(low, -1), _bound(high, 1)
        if lower and upper and lower[0] == ">=" and upper[0] == "<=":
            return f"{name} BETWEEN {lower[1]} AND {upper[1]}"
        return " AND ".join(f"{name} {end[0]} {end[1]}" for end in (lower, upper) if end)


def _bound(end: float, side: int) -> tuple[str, str] | None:
    """The comparison that says `end`: open where the open one is shorter or the only one."""
    if end == side * math.inf:
        return None
    strict, closed = (">", ">=") if side < 0 else ("<", "<=")
    beyond = number_text(neighbour) if math.isfinite(neighbour := _beyond(end, side)) else None
    if math.isinf(end):
        return strict, str(beyond)
    own = number_text(end)
    return (strict, beyond) if beyond is not None and len(beyond) < len(own) else (closed, own)


def _beyond(end: float, side: int) -> float:
    return math.nextafter(end, side * math.inf) + 0.0


@dataclass(frozen=True, slots=True)
class Equals(_OnAttribute):
    """A string or bool attribute has this value."""

    attribute: str
    value: str | bool

    def accepts(self, value: Any) -> bool:
        """Whether a present value is this one; 1 is not TRUE."""
        return isinstance(value, bool) is isinstance(self.value, bool) and bool(value == self.value)

    def __str__(self) -> str:
        return f"{name_text(self.attribute)} = {value_text(self.value)}"


@dataclass(frozen=True, slots=True)
class NotEquals(_OnAttribute):
    """An attribute of the value's type has another value (`<>`)."""

    attribute: str
    value: Scalar

    def accepts(self, value: Any) -> bool:
        """Whether a present value has the type and differs; NaN does not pass."""
        if isinstance(self.value, str | bool):
            return _type_of(value) is _type_of(self.value) and bool(value != self.value)
        return _is_number(value) and not math.isnan(value) and float(value) != self.value

    def __str__(self) -> str:
        return f"{name_text(self.attribute)} <> {value_text(self.value)}"


@dataclass(frozen=True, slots=True)
class In(_OnAttribute):
    """An attribute has one of the values; they are of one type, kept sorted, each once.

    A test costs O(log n).
    """

    attribute: str
    values: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _one_type(self.values))

    def accepts(self, value: Any) -> bool:
        """Whether a present value is one of them."""
        return _member(value, self.values) is True

    def __str__(self) -> str:
        return f"{name_text(self.attribute)} IN {values_text(self.values)}"


@dataclass(frozen=True, slots=True)
class NotIn(_OnAttribute):
    """An attribute of the values' type has none of the values; kept as in `In`."""

    attribute: str
    values: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _one_type(self.values))

    def accepts(self, value: Any) -> bool:
        """Whether a present value has the type and is none of them; NaN does not pass."""
        return _member(value, self.values) is False

    def __str__(self) -> str:
        return f"{name_text(self.attribute)} NOT IN {values_text(self.values)}"


def _type_of(value: object) -> type | None:
    if isinstance(value, bool):
        return bool
    if isinstance(value, str):
        return str
    return float if isinstance(value, int | float) else None


def _one_type(values: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    kinds = {_type_of(value) for value in values}
    if len(kinds) != 1 or None in kinds:
        raise ValidationError("values", values, "give values of one type, and at least one")
    if kinds == {float}:
        return tuple(sorted({float(value) + 0.0 for value in values}))
    return tuple(sorted(set(values)))


def _member(value: Any, values: tuple[Scalar, ...]) -> bool | None:
    """Whether the value is one of the sorted values; None if it cannot be compared."""
    kind = _type_of(value)
    if kind is not _type_of(values[0]):
        return None
    if kind is float:
        value = float(value)
        if math.isnan(value):
            return None
    at = bisect_left(values, value)
    return at < len(values) and bool(values[at] == value)


@dataclass(frozen=True, slots=True)
class Like(_OnAttribute):
    r"""A string attribute matches a pattern, or, negated, does not.

    `%` stands for any text, `_` for one character, `\` takes the next character
    literally; case counts. A test costs O(length of the value), whatever the pattern.
    """

    attribute: str
    pattern: str
    negated: bool = False

    def accepts(self, value: Any) -> bool:
        """Whether a present value is a string that passes."""
        if not isinstance(value, str):
            return False
        return (_matcher(self.pattern).fullmatch(value) is None) is self.negated

    def __str__(self) -> str:
        word = "NOT LIKE" if self.negated else "LIKE"
        return f"{name_text(self.attribute)} {word} {value_text(self.pattern)}"


_PIECES = re.compile(r"\\(.)|([%_])|([^\\%_]+)", re.DOTALL)


def like_literal(pattern: str) -> str | None:
    r"""The one string a pattern without wildcards matches; None if it has wildcards.

    >>> like_literal(r"100\%"), like_literal("100%")
    ('100%', None)
    """
    if "\\" not in pattern:
        return None if "%" in pattern or "_" in pattern else pattern
    pieces = _PIECES.findall(pattern)
    if any(wildcard for _, wildcard, _ in pieces):
        return None
    return "".join(escaped or plain for escaped, _, plain in pieces)


def like_prefix(pattern: str) -> str:
    r"""What a pattern says about the beginning: all in front of the first wildcard.

    >>> like_prefix("abc%d"), like_prefix(r"5\\%_"), like_prefix("%x")
    ('abc', '5%', '')
    """
    found = ""
    for escaped, wildcard, plain in _PIECES.findall(pattern):
        if wildcard:
            break
        found += escaped or plain
    return found


@lru_cache(maxsize=4096)
def _matcher(pattern: str) -> re.Pattern[str]:
    # Between two % the leftmost occurrence is always a right choice: atomic groups keep
    # it, so that '%a%a%a%a%b' cannot make the matching polynomial in its number of %.
    segments = [""]
    for escaped, wildcard, plain in _PIECES.findall(pattern):
        if wildcard == "%":
            segments.append("")
        else:
            segments[-1] += "." if wildcard else re.escape(escaped or plain)
    if len(segments) == 1:
        return re.compile(segments[0], re.DOTALL)
    first, *middle, last = segments
    inner = "".join(f"(?>.*?{segment})" for segment in middle if segment)
    return re.compile(f"{first}{inner}.*{last}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StringRange(_OnAttribute):
    """A string attribute lies between two strings, by code point; None is no bound."""

    attribute: str
    low: str | None
    high: str | None
    low_closed: bool = True
    high_closed: bool = True

    def accepts(self, value: Any) -> bool:
        """Whether a present value is a string in the range."""
        if not isinstance(value, str):
            return False
        if self.low is not None and not (
            value >= self.low if self.low_closed else value > self.low
        ):
            return False
        return self.high is None or (value <= self.high if self.high_closed else value < self.high)

    def __str__(self) -> str:
        name = name_text(self.attribute)
        if self.low is not None and self.high is not None and self.low_closed and self.high_closed:
            return f"{name} BETWEEN {value_text(self.low)} AND {value_text(self.high)}"
        ends = []
        if self.low is not None:
            ends.append(f"{name} {'>=' if self.low_closed else '>'} {value_text(self.low)}")
        if self.high is not None:
            ends.append(f"{name} {'<=' if self.high_closed else '<'} {value_text(self.high)}")
        return " AND ".join(ends)


@dataclass(frozen=True, slots=True)
class IsNull:
    """The event lacks the attribute."""

    attribute: str

    def test(self, event: Event) -> bool:
        """Whether the event passes."""
        return self.attribute not in event.attributes

    def __str__(self) -> str:
        return f"{name_text(self.attribute)} IS NULL"


@dataclass(frozen=True, slots=True)
class NotNull:
    """The event has the attribute, whatever its value."""

    attribute: str

    def test(self, event: Event) -> bool:
        """Whether the event passes."""
        return self.attribute in event.attributes

    def __str__(self) -> str:
        return f"{name_text(self.attribute)} IS NOT NULL"


@dataclass(frozen=True, slots=True)
class LacksWords:
    """At least one of the words is not among the event's keywords."""

    words: frozenset[str]

    def test(self, event: Event) -> bool:
        """Whether the event passes; one without keywords does."""
        return not self.words <= event.keywords

    def __str__(self) -> str:
        return f"NOT {_contains_text(self.words)}"


@dataclass(frozen=True, slots=True)
class SpatialResidual:
    """A test of the event's location that no region says; false without a location.

    It carries data only: whoever knows the space does the geometry. `shape` is a tuple
    where the filter has a MULTIPOLYGON, and then stands for the union of its members.
    `distance_m` is there for the relation "dwithin".
    """

    relation: Relation
    shape: Shape
    distance_m: float | None = None
    negated: bool = False

    def __str__(self) -> str:
        distance = "" if self.distance_m is None else f", {number_text(self.distance_m)}"
        call = f"S_{self.relation.upper()}(location, {shape_text(self.shape)}{distance})"
        return f"NOT {call}" if self.negated else call


AttributeResidual: TypeAlias = NotEquals | In | NotIn | Like | StringRange | IsNull | NotNull
Residual: TypeAlias = AttributeResidual | LacksWords | SpatialResidual
Numbers: TypeAlias = "tuple[tuple[str, ...], npt.NDArray[np.float64], npt.NDArray[np.float64]]"


def residual_bytes(value: object) -> int:
    """Roughly the bytes of residual predicates and what they consist of."""
    if isinstance(value, str):
        return 50 + 2 * len(value)  # that of LIKE is kept in pieces, too
    if isinstance(value, tuple | frozenset):
        return 50 + sum(8 + residual_bytes(each) for each in value) if value else 0
    if is_dataclass(value):
        return 50 + sum(8 + residual_bytes(getattr(value, each.name)) for each in fields(value))
    return 24


class Simple(NamedTuple):
    """What a clause says that consists of intervals and equalities only; see `Clause`."""

    names: tuple[str, ...]
    """The attributes of the intervals."""
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    equals: tuple[Equals, ...]

    def clause(self) -> Clause:
        """The same as a clause."""
        ends = zip(self.names, self.low.tolist(), self.high.tolist(), strict=True)
        return Clause(tuple([Interval(*each) for each in ends]), self.equals)


@dataclass(frozen=True, slots=True)
class Clause:
    """One conjunction of a filter's disjunctive normal form: all of it must hold.

    `intervals` and `equals` have at most one entry an attribute and are sorted by it.
    The event's keywords must contain all `words`, its location must intersect each of
    the `regions`. An `In` of numbers comes with its hull among the intervals, a test
    S_WITHIN of one shape with that shape among the regions.
    """

    intervals: tuple[Interval, ...] = ()
    equals: tuple[Equals, ...] = ()
    words: frozenset[str] = frozenset()
    regions: tuple[Circle | Box | Polygon, ...] = ()
    residuals: tuple[Residual, ...] = ()
    _numbers: Numbers | None = field(init=False, repr=False, compare=False, default=None)

    def numbers(self) -> Numbers:
        """The intervals as names, lows and highs: made once, for subscriptions that move often."""
        if self._numbers is None:
            import numpy as np  # who only writes filters does without

            ends = np.array([(i.low, i.high) for i in self.intervals], np.float64).reshape(-1, 2)
            names = tuple(interval.attribute for interval in self.intervals)
            made = names, ends[:, 0].copy(), ends[:, 1].copy()
            object.__setattr__(self, "_numbers", made)
            return made
        return self._numbers

    def simple(self) -> Simple | None:
        """The same as arrays; None where there are words, regions or residuals."""
        if self.words or self.regions or self.residuals:
            return None
        return Simple(*self.numbers(), self.equals)

    def __str__(self) -> str:
        return " AND ".join(map(str, self._parts())) or "TRUE"

    def _parts(self) -> list[object]:
        """What is said, without what residuals imply."""
        hulls = {test.attribute for test in self.residuals if isinstance(test, In)}
        within = {
            as_region(test.shape)
            for test in self.residuals
            if isinstance(test, SpatialResidual) and test.relation == "within" and not test.negated
        }
        parts: list[object] = [i for i in self.intervals if i.attribute not in hulls]
        parts += self.equals
        if self.words:
            parts.append(_contains_text(self.words))
        parts += [_region_text(region) for region in self.regions if region not in within]
        return parts + list(self.residuals)


def as_region(shape: Shape) -> Box | Polygon | None:
    """The region that a location must intersect to intersect the shape; None for a union."""
    if isinstance(shape, Point):
        return Box(shape.x, shape.y, shape.x, shape.y)
    return None if isinstance(shape, tuple) else shape


def _contains_text(words: frozenset[str]) -> str:
    return f"A_CONTAINS(keywords, {values_text(tuple(sorted(words)))})"


def _region_text(region: Circle | Box | Polygon) -> str:
    if isinstance(region, Circle):
        centre = shape_text(Point(region.x, region.y))
        return f"S_DWITHIN(location, {centre}, {number_text(region.radius_m)})"
    return f"S_INTERSECTS(location, {shape_text(region)})"
