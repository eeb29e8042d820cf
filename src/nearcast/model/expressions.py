"""The tree of a filter as it was written: what `str` and `to_json` give back.

Expressions are trusting: whoever builds them without `nearcast.model.cql2_json` gives
finite numbers and known operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from nearcast.model.cql2_literals import (
    Scalar,
    Shape,
    name_text,
    number_text,
    shape_text,
    value_text,
    values_text,
)
from nearcast.model.geometry import Box, Point, Polygon
from nearcast.model.predicates import Relation

__all__ = [
    "And",
    "Between",
    "Comparison",
    "Constant",
    "Contains",
    "Expression",
    "Membership",
    "Not",
    "Null",
    "Operator",
    "Or",
    "Pattern",
    "Spatial",
    "attributes_of",
]

Operator = Literal["=", "<>", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE or FALSE."""

    value: bool

    def __str__(self) -> str:
        return "TRUE" if self.value else "FALSE"

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return self.value


@dataclass(frozen=True, slots=True)
class Comparison:
    """An attribute compared with a value; a bare boolean property is one with TRUE."""

    attribute: str
    operator: Operator
    value: Scalar

    def __str__(self) -> str:
        return f"{name_text(self.attribute)} {self.operator} {value_text(self.value)}"

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return _call(self.operator, _property(self.attribute), _plain(self.value))


@dataclass(frozen=True, slots=True)
class Between:
    """An attribute between two numbers or two strings, both included."""

    attribute: str
    low: float | str
    high: float | str

    def __str__(self) -> str:
        return self.text("BETWEEN")

    def text(self, word: str) -> str:
        """The predicate with BETWEEN or NOT BETWEEN."""
        low, high = value_text(self.low), value_text(self.high)
        return f"{name_text(self.attribute)} {word} {low} AND {high}"

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return _call("between", _property(self.attribute), _plain(self.low), _plain(self.high))


@dataclass(frozen=True, slots=True)
class Membership:
    """An attribute among values, possibly of several types, in the order given."""

    attribute: str
    values: tuple[Scalar, ...]

    def __str__(self) -> str:
        return self.text("IN")

    def text(self, word: str) -> str:
        """The predicate with IN or NOT IN."""
        return f"{name_text(self.attribute)} {word} {values_text(self.values)}"

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return _call("in", _property(self.attribute), [_plain(value) for value in self.values])


@dataclass(frozen=True, slots=True)
class Pattern:
    """An attribute like a pattern."""

    attribute: str
    pattern: str

    def __str__(self) -> str:
        return self.text("LIKE")

    def text(self, word: str) -> str:
        """The predicate with LIKE or NOT LIKE."""
        return f"{name_text(self.attribute)} {word} {value_text(self.pattern)}"

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return _call("like", _property(self.attribute), self.pattern)


@dataclass(frozen=True, slots=True)
class Null:
    """An attribute that is missing."""

    attribute: str

    def __str__(self) -> str:
        return self.text("IS NULL")

    def text(self, word: str) -> str:
        """The predicate with IS NULL or IS NOT NULL."""
        return f"{name_text(self.attribute)} {word}"

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return _call("isNull", _property(self.attribute))


@dataclass(frozen=True, slots=True)
class Contains:
    """Keywords that contain all the words, kept as they were written."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"A_CONTAINS(keywords, {values_text(self.words)})"

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return _call("a_contains", _property("keywords"), list(self.words))


@dataclass(frozen=True, slots=True)
class Spatial:
    """A relation between the event's location and a shape."""

    relation: Relation
    shape: Shape
    distance_m: float | None = None

    def __str__(self) -> str:
        distance = "" if self.distance_m is None else f", {number_text(self.distance_m)}"
        return f"S_{self.relation.upper()}(location, {shape_text(self.shape)}{distance})"

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        distance = () if self.distance_m is None else (_plain(self.distance_m),)
        return _call(f"s_{self.relation}", _property("location"), _geojson(self.shape), *distance)


@dataclass(frozen=True, slots=True)
class Not:
    """A negation."""

    part: Expression

    def __str__(self) -> str:
        part = self.part
        if isinstance(part, Between):
            return part.text("NOT BETWEEN")
        if isinstance(part, Membership):
            return part.text("NOT IN")
        if isinstance(part, Pattern):
            return part.text("NOT LIKE")
        if isinstance(part, Null):
            return part.text("IS NOT NULL")
        return f"NOT {part}" if isinstance(part, Contains | Spatial) else f"NOT ({part})"

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return _call("not", self.part.to_json())


@dataclass(frozen=True, slots=True)
class And:
    """A conjunction of at least two parts, none of which is one."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({p})" if isinstance(p, Or) else str(p) for p in self.parts)

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return _call("and", *(part.to_json() for part in self.parts))


@dataclass(frozen=True, slots=True)
class Or:
    """A disjunction of at least two parts, none of which is one."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({p})" if isinstance(p, And) else str(p) for p in self.parts)

    def to_json(self) -> Any:
        """The CQL2 JSON of it."""
        return _call("or", *(part.to_json() for part in self.parts))


_OfAttribute: TypeAlias = Comparison | Between | Membership | Pattern | Null
Expression: TypeAlias = Constant | _OfAttribute | Contains | Spatial | Not | And | Or


def attributes_of(expression: Expression) -> Iterator[str]:
    """The attributes a tree mentions, as often as it does."""
    if isinstance(expression, And | Or):
        for part in expression.parts:
            yield from attributes_of(part)
    elif isinstance(expression, Not):
        yield from attributes_of(expression.part)
    elif not isinstance(expression, Constant | Contains | Spatial):
        yield expression.attribute


def _call(op: str, *args: Any) -> dict[str, Any]:
    return {"op": op, "args": list(args)}


def _property(name: str) -> dict[str, str]:
    return {"property": name}


def _plain(value: Scalar) -> Scalar:
    """A value with whole numbers as integers, as JSON writers prefer them."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _geojson(shape: Shape) -> dict[str, Any]:
    if isinstance(shape, Point):
        return {"type": "Point", "coordinates": [shape.x, shape.y]}
    if isinstance(shape, Box):
        return {"bbox": [shape.xmin, shape.ymin, shape.xmax, shape.ymax]}
    if isinstance(shape, Polygon):
        return {"type": "Polygon", "coordinates": _rings(shape)}
    return {"type": "MultiPolygon", "coordinates": [_rings(part) for part in shape]}


def _rings(polygon: Polygon) -> list[list[list[float]]]:
    return [[[x, y] for x, y in (*ring, ring[0])] for ring in polygon.rings]
