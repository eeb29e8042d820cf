"""CQL2 literals: how names, values and shapes are written, so that they read back the same."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TypeAlias

from nearcast.model.geometry import Box, Point, Polygon, Ring

__all__ = ["Scalar", "Shape", "name_text", "number_text", "shape_text", "value_text", "values_text"]

Scalar: TypeAlias = float | str | bool
#: A geometry literal; a tuple is a MULTIPOLYGON.
Shape: TypeAlias = Point | Box | Polygon | tuple[Polygon, ...]

_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_RESERVED = frozenset(
    {
        *("and", "or", "not", "in", "like", "between", "is", "null", "true", "false", "div"),
        *("casei", "accenti", "date", "timestamp", "interval", "bbox", "point", "linestring"),
        *("polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection"),
    }
)


def name_text(name: str) -> str:
    """A property's name, in double quotes where it needs them.

    >>> name_text("price"), name_text("unit price"), name_text("and")
    ('price', '"unit price"', '"and"')
    """
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def number_text(value: float) -> str:
    """The shortest text of a finite number that reads back as the same float64.

    >>> number_text(3300.0), number_text(0.1), number_text(1e300)
    ('3300', '0.1', '1e+300')
    """
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e16 else repr(number)


def value_text(value: Scalar) -> str:
    """A number, a string in single quotes, TRUE or FALSE."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return number_text(value)


def values_text(values: tuple[Scalar, ...]) -> str:
    """A list of values in parentheses."""
    return "(" + ", ".join(map(value_text, values)) + ")"


def shape_text(shape: Shape) -> str:
    """A geometry literal: POINT, BBOX, POLYGON or MULTIPOLYGON.

    >>> shape_text(Box(0, 0, 1.5, 1))
    'BBOX(0, 0, 1.5, 1)'
    """
    if isinstance(shape, Point):
        return f"POINT({_position(shape.x, shape.y)})"
    if isinstance(shape, Box):
        corners = (shape.xmin, shape.ymin, shape.xmax, shape.ymax)
        return "BBOX(" + ", ".join(map(number_text, corners)) + ")"
    if isinstance(shape, Polygon):
        return f"POLYGON{_rings(shape)}"
    return "MULTIPOLYGON(" + ", ".join(map(_rings, shape)) + ")"


def _rings(polygon: Polygon) -> str:
    return "(" + ", ".join(map(_ring, polygon.rings)) + ")"


def _ring(ring: Ring) -> str:
    return "(" + ", ".join(_position(x, y) for x, y in (*ring, ring[0])) + ")"


def _position(x: float, y: float) -> str:
    return f"{_coordinate(x)} {_coordinate(y)}"


def _coordinate(value: float) -> str:
    # The grammar of WKT coordinates has no exponents.
    text = number_text(value)
    return format(Decimal(text), "f") if "e" in text else text
