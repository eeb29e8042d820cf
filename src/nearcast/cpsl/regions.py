"""Regions as people give them: values, WKT, pairs of numbers; as CPSL's points inside."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from nearcast.cpsl.ast import Region
from nearcast.errors import ValidationError
from nearcast.model.geometry import Box, Circle, Point, Polygon

__all__ = ["GivenRegion", "Regions", "is_flat", "packed", "to_region", "unpacked"]

#: A place as people give it.
GivenRegion: TypeAlias = (
    Region | Point | Box | Polygon | str | tuple[float, float] | Iterable[Sequence[float]]
)
#: Named regions for the parser.
Regions: TypeAlias = Mapping[str, GivenRegion]

_REMEDY = "give a Point, a Box, a convex Polygon, (x, y) pairs or WKT"


def to_region(given: object, field: str = "region") -> Region:
    """The region of a value: exact, so a polygon must be convex and have no holes.

    Pairs of numbers stand for their convex hull, as in the text. Raises a ValidationError.
    """
    if isinstance(given, Region):
        return given
    if isinstance(given, Point):
        return Region(((given.x, given.y),))
    if isinstance(given, Box):
        return Region(_corners(given))
    if isinstance(given, Polygon):
        return _convex(given, field)
    if isinstance(given, str):
        return _from_wkt(given, field)
    if isinstance(given, Circle):
        raise ValidationError(field, given, "use the distance from its centre: DIST((x,y);<;r)A")
    return _from_pairs(given, field)


def _corners(box: Box) -> tuple[tuple[float, float], ...]:
    right = box.xmax + 360.0 if box.xmin > box.xmax else box.xmax
    corners = (
        (box.xmin, box.ymin),
        (right, box.ymin),
        (right, box.ymax),
        (box.xmin, box.ymax),
    )
    return tuple(dict.fromkeys(corners))


def _convex(polygon: Polygon, field: str) -> Region:
    if polygon.holes or not _turns_one_way(polygon.exterior):
        raise ValidationError(
            field, polygon, "a region of CPSL is convex: cut it into convex pieces and join with ||"
        )
    return Region(polygon.exterior)


def _turns_one_way(ring: Sequence[tuple[float, float]]) -> bool:
    """Whether a simple ring is convex."""
    signs = set()
    for i, (x, y) in enumerate(ring):
        (px, py), (nx, ny) = ring[i - 1], ring[(i + 1) % len(ring)]
        turn = (x - px) * (ny - y) - (y - py) * (nx - x)
        signs.add((turn > 0) - (turn < 0))
    return not {1, -1} <= signs


def _from_wkt(text: str, field: str) -> Region:
    import shapely

    try:
        shape = shapely.from_wkt(text)
    except (shapely.errors.GEOSException, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValidationError(field, text, f"write WKT: POINT or POLYGON ({reason})") from None
    if shape is None or shape.is_empty:
        raise ValidationError(field, text, "an empty region holds nothing: give it points")
    if shape.has_z or shape.geom_type not in ("Point", "Polygon"):
        raise ValidationError(field, text, "write a POINT or a POLYGON of x and y")
    if shape.geom_type == "Point":
        return to_region(Point(shape.x, shape.y))
    return to_region(
        Polygon(
            list(shape.exterior.coords), [list(interior.coords) for interior in shape.interiors]
        ),
        field,
    )


def _from_pairs(given: Any, field: str) -> Region:
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise ValidationError(field, given, _REMEDY)
    pairs = list(given)
    if len(pairs) == 2 and all(isinstance(each, int | float) for each in pairs):
        pairs = [pairs]
    if not pairs:
        raise ValidationError(field, given, "an empty region holds nothing: give it points")
    points = []
    for pair in pairs:
        if isinstance(pair, Point):
            pair = (pair.x, pair.y)
        if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValidationError(field, pair, _REMEDY)
        point = Point(pair[0], pair[1])
        points.append((point.x, point.y))
    return Region(tuple(points))


def packed(points: Iterable[tuple[float, float]]) -> bytes:
    """Points as bytes: a tenth of the memory, and quick to compare."""
    return array("d", [number for point in points for number in point]).tobytes()


def unpacked(points: bytes) -> list[tuple[float, float]]:
    """The points of `packed`."""
    flat = array("d", points)
    return list(zip(flat[::2], flat[1::2], strict=True))


def is_flat(points: Sequence[tuple[float, float]]) -> bool:
    """Whether several points have no area between them: they lie on one line.

    Measured against their extent, so that rounding in large coordinates makes no area.
    """
    x0, y0 = points[0]
    far = max(points, key=lambda p: math.hypot(p[0] - x0, p[1] - y0))
    dx, dy = far[0] - x0, far[1] - y0
    length = math.hypot(dx, dy)
    scale = max(max(abs(x), abs(y)) for x, y in points)
    if length <= 1e-15 * scale or length == 0:
        return True
    away = max(abs((x - x0) * dy - (y - y0) * dx) / length for x, y in points)
    return away <= 1e-14 * max(scale, length)
