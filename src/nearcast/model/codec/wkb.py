"""Well-known binary: points, polygons and multipolygons in two dimensions.

Our own reader, because the one in GEOS follows nested collections as deep as they go and
ends the process when the stack does. A `Box` is a polygon that begins with its lower left
corner twice (two of them across the antimeridian): a `Polygon` never repeats a point, so both
come back as they were, and any other reader sees the same area.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from nearcast.errors import ValidationError
from nearcast.model.codec.places import Points, box_rings, joined
from nearcast.model.geometry import Box, Location, Point, Polygon, Space

__all__ = ["read_wkb", "write_wkb"]

_POINT, _POLYGON, _MULTIPOLYGON = 1, 3, 6


def write_wkb(place: Location) -> bytes:
    """The place as little-endian WKB."""
    if isinstance(place, Point):
        return struct.pack("<BIdd", 1, _POINT, place.x, place.y)
    if isinstance(place, Polygon):
        return _polygon_bytes(place.rings)
    parts = [_polygon_bytes([(ring[0], *ring)]) for ring in box_rings(place)]
    if len(parts) == 1:
        return parts[0]
    return struct.pack("<BII", 1, _MULTIPOLYGON, len(parts)) + b"".join(parts)


def _polygon_bytes(rings: Sequence[Points]) -> bytes:
    made = [struct.pack("<BII", 1, _POLYGON, len(rings))]
    for ring in rings:
        numbers = [number for point in (*ring, ring[0]) for number in point]
        made.append(struct.pack(f"<I{len(numbers)}d", len(ring) + 1, *numbers))
    return b"".join(made)


def read_wkb(data: bytes, space: Space | None, field: str = "geometry") -> Location:
    """The place that WKB spells; a multipolygon must be one polygon cut at the antimeridian."""
    try:
        reader = _Reader(data)
        kind = reader.header()
        if kind == _POINT:
            place: Location = Point(*reader.numbers(2))
        elif kind == _POLYGON:
            rings = reader.rings()
            place = _box(rings) or Polygon(rings[0], tuple(rings[1:]))
        elif kind == _MULTIPOLYGON:
            place = _whole(reader.parts(), space, field)
        else:
            raise _WKBError(f"type {kind} is neither point nor polygon")
        if reader.at != len(data):
            raise _WKBError("bytes follow the geometry")
        return place
    except _WKBError as error:
        raise ValidationError(
            field, data, f"give WKB of a two-dimensional point or polygon ({error})"
        ) from None
    except ValidationError as error:
        raise ValidationError(field, error.value, error.remedy) from None


class _WKBError(Exception):
    """Bytes that are no WKB we read."""


class _Reader:
    """Walks over the bytes; every count is checked against what is left."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.order = "<"

    def take(self, code: str) -> tuple[float, ...]:
        layout = self.order + code
        size = struct.calcsize(layout)
        if self.at + size > len(self.data):
            raise _WKBError("it ends too early")
        self.at += size
        return struct.unpack_from(layout, self.data, self.at - size)

    def header(self) -> int:
        (order,) = self.take("B")
        if order not in (0, 1):
            raise _WKBError("it begins with neither 0 nor 1")
        self.order = "<" if order else ">"
        return self.count()

    def count(self) -> int:
        (number,) = self.take("I")
        return int(number)

    def numbers(self, count: int) -> tuple[float, ...]:
        if 8 * count > len(self.data) - self.at:
            raise _WKBError("it ends too early")
        return self.take(f"{count}d")

    def rings(self) -> list[Points]:
        """The rings of a polygon, without their last points."""
        found: list[Points] = []
        for _ in range(self.count()):
            numbers = self.numbers(2 * self.count())
            points = tuple(zip(numbers[::2], numbers[1::2], strict=True))
            if len(points) < 4 or points[0] != points[-1]:
                raise _WKBError("a ring ends where it begins and has four points")
            found.append(points[:-1])
        if not found:
            raise _WKBError("it is empty")
        return found

    def parts(self) -> list[list[Points]]:
        found = []
        for _ in range(self.count()):
            if self.header() != _POLYGON:
                raise _WKBError("a multipolygon is made of polygons")
            found.append(self.rings())
        if not found:
            raise _WKBError("it is empty")
        return found


def _box(rings: Sequence[Points]) -> Box | None:
    """The box that a polygon spells, if it begins with its lower left corner twice."""
    ring = rings[0]
    if len(rings) != 1 or len(ring) != 5 or ring[0] != ring[1]:
        return None
    (xmin, ymin), (xmax, ymax) = ring[1], ring[3]
    if not (xmin <= xmax and ymin <= ymax):
        return None
    box = Box(xmin, ymin, xmax, ymax)
    return box if box_rings(box) == [ring[1:]] else None


def _whole(parts: Sequence[Sequence[Points]], space: Space | None, field: str) -> Box | Polygon:
    halves = [box for box in map(_box, parts) if box is not None]
    if len(parts) == len(halves) == 2:
        west, east = halves
        box = Box(west.xmin, west.ymin, east.xmax, east.ymax)
        if box_rings(box) == box_rings(west) + box_rings(east):
            return box
    polygons = [Polygon(rings[0], tuple(rings[1:])) for rings in parts]
    return polygons[0] if len(polygons) == 1 else joined(polygons, space, field)
