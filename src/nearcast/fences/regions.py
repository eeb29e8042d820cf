"""Regions of fences as numbers: shapes, and boxes that cover them with their margin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nearcast.kernels import geometry
from nearcast.matcher.places import Bounds, Shape, index_boxes, pieces, shape_floats
from nearcast.model.geometry import Around, Box, Circle, Point, Polygon, Space
from nearcast.model.placing import placed

__all__ = ["FixedRegion", "boxes_of", "region_of", "roaming_floats"]

FixedRegion = Circle | Box | Polygon
_QUARTER_M = geometry.EARTH_RADIUS_M * math.pi / 2
_WORLD: Bounds = (-180.0, -90.0, 180.0, 90.0)


def boxes_of(region: FixedRegion, margin_m: float, space: Space) -> list[Bounds]:
    """Boxes that hold every place which is no farther from a region than the margin."""
    if margin_m == 0.0:
        return index_boxes(region, space)
    if isinstance(region, Circle):
        return index_boxes(Circle(region.x, region.y, region.radius_m + margin_m), space)
    kind, floats = shape_floats(region)
    polygon = geometry.as_polygon(kind, np.array(floats), 0)
    if space == "planar":
        xmin, ymin, xmax, ymax = geometry.bounds(polygon)
        reach = margin_m + 1e-12 * (margin_m + max(abs(xmin), abs(ymin), abs(xmax), abs(ymax)))
        return [(xmin - reach, ymin - reach, xmax + reach, ymax + reach)]
    lon, lat = geometry.centroid(polygon)
    cut = geometry.segmentized(polygon)
    border = cut[1 + int(cut[0]) :].reshape(-1, 2)
    far = max(float(geometry.haversine_m(lon, lat, x, y)) for x, y in border.tolist())
    if far + margin_m > _QUARTER_M:
        return [_WORLD]
    # Distances from the centre are true in the projection, so the triangle rule holds there.
    radius = (far + margin_m) * (1 + 1e-9) + 1e-6
    cap = geometry.cap_bounds((lon + 180.0) % 360.0 - 180.0, lat, radius)
    return pieces((cap[0], cap[1], cap[2], cap[3]), space)


def roaming_floats(region: Around) -> Shape:
    """The floats of a region that follows somebody, who is not placed yet.

    Those of a shape that turns stand there twice: as it is turned, and as it was drawn.
    """
    kind, floats = shape_floats(placed(region, Point(0.0, 0.0)))
    return kind, (*floats, *floats[3:]) if region.turns else floats


def region_of(kind: int, floats: Any, offset: int) -> FixedRegion:
    """The region whose `shape_floats` these are: the same numbers, which were checked."""
    if kind == geometry.CIRCLE:
        return Circle(*floats[offset : offset + 3].tolist())
    if kind == geometry.BOX:
        return Box(*floats[offset : offset + 4].tolist())
    rings = int(floats[offset])
    sizes = floats[offset + 1 : offset + 1 + rings].astype(np.int64).tolist()
    points = floats[offset + 1 + rings : offset + 1 + rings + 2 * sum(sizes)].reshape(-1, 2)
    pairs, made, first = list(map(tuple, points.tolist())), [], 0
    for size in sizes:
        made.append(tuple(pairs[first : first + size]))
        first += size
    return Polygon.checked(made[0], tuple(made[1:]))
