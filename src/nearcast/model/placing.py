"""Where a region that follows its subscriber lies, by definition.

The subscriber has a map, with themselves in the middle and north up: on a plane coordinates less
their own, on the globe the azimuthal equidistant projection at their place, in metres. What
`Around` is drawn in are the coordinates of that map. A shape that turns is turned by the heading,
clockwise; quarter turns are exact.

An event's place meets the shape if, drawn on that map, they share a point; borders belong to both.
On the globe the edges of a place are cut into equal pieces of at most 1° first, which are straight
on the map, and a piece that lies beyond a quarter turn from the subscriber meets nothing; a place
with an area that holds the shape's first corner in lon/lat meets it, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from nearcast.errors import ValidationError
from nearcast.model.geometry import Around, Circle, Point, Polygon, Ring

__all__ = [
    "Facing",
    "Placed",
    "Whereabouts",
    "at_heading",
    "check_heading",
    "placed",
    "turn_of",
    "turned",
]

_QUARTERS = {0.0: (1.0, 0.0), 90.0: (0.0, 1.0), 180.0: (-1.0, 0.0), 270.0: (0.0, -1.0)}


@dataclass(frozen=True, slots=True)
class Placed:
    """A shape on the map of somebody at (x, y), turned already; no corner is beyond `reach_m`."""

    x: float
    y: float
    reach_m: float
    shape: Polygon


@dataclass(frozen=True, slots=True)
class Facing:
    """Where somebody is, and the heading in which they look."""

    x: float
    y: float
    heading: float


#: Where the subscriber of an `Around` is; without a heading they look north.
Whereabouts: TypeAlias = Point | Facing | None


def at_heading(at: Point | None, heading: float | None) -> Whereabouts:
    """A place and a heading in one; ValidationError for one that is none."""
    if heading is None:
        return at
    if not isinstance(at, Point):
        raise ValidationError("at", at, "a heading needs a place: give at=Point(…)")
    return Facing(at.x, at.y, check_heading(heading))


def check_heading(heading: object) -> float:
    """A heading in degrees clockwise from north: any finite number."""
    if isinstance(heading, bool) or not isinstance(heading, int | float):
        raise ValidationError("heading", heading, "give degrees clockwise from north")
    if not math.isfinite(heading):
        raise ValidationError("heading", heading, "give a finite number, or leave it out")
    return float(heading)


def turn_of(heading: float) -> tuple[float, float]:
    """The cosine and sine of a heading; exact at quarter turns."""
    degrees = heading % 360.0 % 360.0  # a hair below 0 gives 360 at first
    exact = _QUARTERS.get(degrees)
    if exact is not None:
        return exact
    angle = math.radians(degrees)
    return math.cos(angle), math.sin(angle)


def turned(shape: Polygon, heading: float) -> Polygon:
    """A shape drawn for somebody who looks north, as it is when they look elsewhere."""
    cos, sin = turn_of(heading)
    if (cos, sin) == (1.0, 0.0):
        return shape

    def ring(points: Ring) -> Ring:
        return tuple((x * cos + y * sin, y * cos - x * sin) for x, y in points)

    return Polygon.checked(ring(shape.exterior), tuple(map(ring, shape.holes)))


def placed(region: Around, at: Point | Facing) -> Circle | Placed:
    """The region of a subscriber who is somewhere and, if it turns, looks somewhere."""
    if region.shape is None:
        assert region.radius_m is not None
        return Circle(at.x, at.y, region.radius_m)
    shape = region.shape
    if region.turns and isinstance(at, Facing):
        shape = turned(shape, at.heading)
    return Placed(at.x, at.y, region.reach_m * (1 + 1e-12), shape)
