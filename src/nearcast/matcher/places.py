"""Places as numbers: the shapes of `kernels.geometry` and the boxes an index can hold.

On the globe an event at longitude 180 is encoded at −180, and a region becomes one or
two boxes within −180 … 180, so an index never has to know that the earth is round.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.kernels import geometry, plain
from nearcast.model.geometry import Around, Box, Circle, Location, Point, Polygon, Space

__all__ = [
    "Bounds",
    "PlainPlace",
    "Shape",
    "cap_bounds_many",
    "index_boxes",
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


def shape_floats(place: Circle | Location) -> Shape:
    """A place in the encoding of the geometry kernels."""
    if isinstance(place, Point):
        return geometry.POINT, (place.x, place.y)
    if isinstance(place, Circle):
        return geometry.CIRCLE, (place.x, place.y, place.radius_m)
    if isinstance(place, Box):
        turn = 360.0 if place.xmin > place.xmax else 0.0
        return geometry.BOX, (place.xmin, place.ymin, place.xmax + turn, place.ymax)
    numbers = [float(len(place.rings)), *(float(len(ring)) for ring in place.rings)]
    for ring in place.rings:
        for x, y in ring:
            numbers += (x, y)
    return geometry.POLYGON, tuple(numbers)


def _pieces(bounds: Bounds, space: Space) -> list[Bounds]:
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


def index_boxes(region: Circle | Box | Polygon, space: Space) -> list[Bounds]:
    """The boxes that cover a region: one, or two where it crosses the antimeridian."""
    if isinstance(region, Circle):
        if space == "planar":
            return [_around(region.x, region.y, region.radius_m)]
        return _pieces(_cap_bounds(region.x, region.y, region.radius_m), space)
    if isinstance(region, Box):
        if region.xmin > region.xmax:  # cut, not turned: adding 360 would round the ends
            west = (-180.0, region.ymin, region.xmax, region.ymax)
            return [west, (region.xmin, region.ymin, 180.0, region.ymax)]
        return _pieces((region.xmin, region.ymin, region.xmax, region.ymax), space)
    return _pieces(region.bounds, space)


def plain_place(
    region: Circle | Box | Polygon | Around, space: Space, at: Point | None
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
        x, y = region.x, region.y
    elif isinstance(region, Around) and isinstance(at, Point):
        x, y = at.x, at.y
    else:
        return None
    if space == "planar":
        return plain.DISC, x, y, region.radius_m, 0.0
    if -180 <= x <= 180 and -90 <= y <= 90:
        return plain.CAP, x, y, region.radius_m, 0.0
    return None


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

    On the globe a circle meets it by a projection in which edges are straight, so the
    location can reach beyond its own longitudes and latitudes, but not beyond a cap round
    one of its corners, 3.8 times as wide as the farthest other corner is away (the projection
    stretches distances by no more than π/2 within a hemisphere, and by 2.3 where a small
    location crosses its rim; of one that lies beyond, only corners count).
    """
    own = index_boxes(location, space)
    if space == "planar":
        return own
    kind, floats = shape_floats(location)
    corners = geometry.as_polygon(kind, np.array(floats), 0)
    points: npt.NDArray[np.float64] = corners[1 + int(corners[0]) :].reshape(-1, 2)
    lon, lat = float(points[0, 0]), float(points[0, 1])
    reach = max(float(geometry.haversine_m(lon, lat, float(x), float(y))) for x, y in points)
    if reach > 1_500_000:
        return [_WORLD]
    return own + _pieces(_cap_bounds(lon, lat, 3.8 * reach + 1.0), space)
