"""Places as numbers: the shapes of `kernels.geometry` and the boxes an index can hold.

On the globe an event at longitude 180 is encoded at −180, and a region becomes one or
two boxes within −180 … 180, so an index never has to know that the earth is round.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.kernels import geometry, plain
from nearcast.model.geometry import Around, Box, Circle, Location, Point, Polygon, Space
from nearcast.model.placing import Facing, Placed

__all__ = [
    "Bounds",
    "PlainPlace",
    "Shape",
    "cap_bounds_many",
    "index_boxes",
    "pieces",
    "plain_place",
    "search_boxes",
    "shape_floats",
    "square_bounds_many",
]

#: xmin, ymin, xmax, ymax.
Bounds: TypeAlias = tuple[float, float, float, float]
#: kind and floats, see `nearcast.kernels.geometry`.
Shape: TypeAlias = tuple[int, tuple[float, ...]]
#: kind and up to four numbers, see `nearcast.kernels.plain`.
PlainPlace: TypeAlias = tuple[int, float, float, float, float]

_WORLD: Bounds = (-180.0, -90.0, 180.0, 90.0)


def shape_floats(place: Circle | Location | Placed) -> Shape:
    """A place in the encoding of the geometry kernels."""
    if isinstance(place, Point):
        return geometry.POINT, (place.x, place.y)
    if isinstance(place, Circle):
        return geometry.CIRCLE, (place.x, place.y, place.radius_m)
    if isinstance(place, Box):
        return geometry.BOX, (place.xmin, place.ymin, place.xmax, place.ymax)
    if isinstance(place, Placed):
        return geometry.PLACED, (place.x, place.y, place.reach_m, *shape_floats(place.shape)[1])
    numbers = [float(len(place.rings)), *(float(len(ring)) for ring in place.rings)]
    for ring in place.rings:
        for x, y in ring:
            numbers += (x, y)
    return geometry.POLYGON, tuple(numbers)


def pieces(bounds: Bounds, space: Space) -> list[Bounds]:
    """Bounds cut to −180 … 180 on the globe; a box that touches 180 also holds −180."""
    if space == "planar":
        return [bounds]
    xmin, ymin, xmax, ymax = bounds
    if xmax - xmin >= 360.0:
        return [(-180.0, ymin, 180.0, ymax)]
    found = []
    for turn in (-360.0, 0.0, 360.0):
        low, high = max(xmin + turn, -180.0), min(xmax + turn, 180.0)
        if low <= high:
            found.append((low, ymin, high, ymax))
    return found


def index_boxes(region: Circle | Box | Polygon | Placed, space: Space) -> list[Bounds]:
    """The boxes that cover a region: one, or two where it crosses the antimeridian."""
    if isinstance(region, Placed):
        return _placed_boxes(region, space)
    if isinstance(region, Circle):
        if space == "planar":
            return [_around(region.x, region.y, region.radius_m)]
        return pieces(_cap_bounds(region.x, region.y, region.radius_m), space)
    if isinstance(region, Box):
        if region.xmin > region.xmax:  # cut, not turned: adding 360 would round the ends
            west = (-180.0, region.ymin, region.xmax, region.ymax)
            return [west, (region.xmin, region.ymin, 180.0, region.ymax)]
        return pieces((region.xmin, region.ymin, region.xmax, region.ymax), space)
    return pieces(region.bounds, space)


def plain_place(
    region: Circle | Box | Polygon | Around, space: Space, at: Point | Facing | None
) -> PlainPlace | None:
    """A region that is right as it stands, for `kernels.plain`; None for others.

    A circle that does not fit into one box is left to the kernel.
    """
    if isinstance(region, Box):
        xmin, ymin, xmax, ymax = region.xmin, region.ymin, region.xmax, region.ymax
        if xmin > xmax or (
            space != "planar" and not (xmin > -180 and xmax < 180 and ymin >= -90 and ymax <= 90)
        ):
            return None
        return plain.BOXED, xmin, ymin, xmax, ymax
    if isinstance(region, Circle):
        x, y, radius = region.x, region.y, region.radius_m
    elif isinstance(region, Around) and region.radius_m is not None and isinstance(at, Point):
        x, y, radius = at.x, at.y, region.radius_m
    else:
        return None
    if space == "planar":
        return plain.DISC, x, y, radius, 0.0
    if -180 <= x <= 180 and -90 <= y <= 90:
        return plain.CAP, x, y, radius, 0.0
    return None


def _placed_boxes(region: Placed, space: Space) -> list[Bounds]:
    """Boxes of the shape of somebody: on the globe, of a cap round the middle of its own box.

    Distances look no shorter on a map than they are, so a cap as wide as the farthest corner looks
    holds every place of the shape.
    """
    xmin, ymin, xmax, ymax = region.shape.bounds
    if space == "planar":
        more = 1e-12 * (region.reach_m + abs(region.x) + abs(region.y))
        x, y = region.x, region.y
        return [(x + xmin - more, y + ymin - more, x + xmax + more, y + ymax + more)]
    u, v = (xmin + xmax) / 2, (ymin + ymax) / 2
    far = max(math.hypot(a - u, b - v) for a, b in region.shape.exterior)
    lon, lat = geometry.undrawn(u, v, region.x, region.y)
    return pieces(_cap_bounds(lon, lat, far * (1 + 1e-9) + 1e-6), space)


def _around(x: float, y: float, radius: float) -> Bounds:
    xmin, ymin, xmax, ymax = geometry.square_bounds(x, y, radius)
    return xmin, ymin, xmax, ymax


def _cap_bounds(lon: float, lat: float, radius_m: float) -> Bounds:
    xmin, ymin, xmax, ymax = geometry.cap_bounds(lon, lat, radius_m)
    return xmin, ymin, xmax, ymax


def square_bounds_many(circles: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The boxes of circles (x, y, radius) on a plane."""
    boxes: npt.NDArray[np.float64] = geometry.bounds_many(circles, False)
    return boxes


def cap_bounds_many(circles: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The boxes of circles (lon, lat, metres) on the globe, which may pass ±180."""
    boxes: npt.NDArray[np.float64] = geometry.bounds_many(circles, True)
    return boxes


def search_boxes(location: Box | Polygon, space: Space) -> list[Bounds]:
    """Where regions that may meet an extended location have to be looked for.

    On the globe a circle meets it by a projection in which the pieces of its edges, of at most
    1°, are straight. Within a hemisphere and 1° more that stretches a piece to no more than 1.6
    times its length; so what reaches the piece is within 0.8 of its length of one of its ends.
    Of pieces that lie beyond, only the ends count.
    """
    own = index_boxes(location, space)
    if space == "planar":
        return own
    kind, floats = shape_floats(location)
    polygon = geometry.as_polygon(kind, np.array(floats), 0)
    xmin, ymin, xmax, ymax = geometry.bounds(polygon)
    side = min(1.0, math.hypot(xmax - xmin, ymax - ymin))
    # The widest cap round a piece's end is that of the end nearest to a pole.
    lat = max(ymin, ymax, key=abs)
    west, _, east, _ = _cap_bounds(0.0, lat, 0.8 * math.radians(side) * geometry.EARTH_RADIUS_M)
    south, north = max(-90.0, ymin - side), min(90.0, ymax + side)
    return pieces((xmin + west, south, xmax + east, north), space)
