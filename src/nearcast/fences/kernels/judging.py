"""Where a position is: in a region, beyond its margin, or on the other side of it."""

from __future__ import annotations

import math

import numpy as np

from nearcast.fences.kernels.tables import FLAGS, KIND, OFFSET, WIDENED
from nearcast.jit import inlined, kernel
from nearcast.kernels.geometry import (
    CIRCLE,
    EARTH_RADIUS_M,
    PLACED,
    POINT,
    POLYGON,
    cap_bounds,
    placed_distance,
    point_in_shape,
    shapes_distance,
    shapes_meet,
    square_bounds,
    within,
)


@inlined
def meets(s, fence, kind, offset, x, y, globe):
    """Whether a place meets a fence's region; (x, y) if it is a point."""
    own, at = np.int64(s.fences[fence, KIND]), np.int64(s.fences[fence, OFFSET])
    if s.fences[fence, FLAGS] & WIDENED:
        return _distance(s, own, at, kind, offset, x, y, globe) <= s.floats[at - 1]
    if kind == POINT:
        return point_in_shape(own, s.floats, at, x, y, globe)
    return shapes_meet(own, s.floats, at, kind, s.places, offset, globe)


@kernel
def _distance(s, own, at, kind, offset, x, y, globe):
    """How far a place is from a shape; (x, y) if it is a point."""
    places = s.places
    if kind == POINT:
        places, offset = np.array([x, y]), 0
    if own == PLACED:
        return placed_distance(s.floats, at, kind, places, offset, globe)
    return shapes_distance(own, s.floats, at, kind, places, offset, globe)


@inlined
def is_beyond(s, fence, kind, offset, x, y, globe):
    """Whether a place that does not meet the region is farther away than the margin."""
    return s.margins[fence] == 0.0 or _is_beyond_margin(s, fence, kind, offset, x, y, globe)


@kernel
def _is_beyond_margin(s, fence, kind, offset, x, y, globe):
    margin = s.margins[fence]
    own, at = np.int64(s.fences[fence, KIND]), np.int64(s.fences[fence, OFFSET])
    if kind == POINT:
        if own == CIRCLE:
            reach = s.floats[at + 2] + margin
            return not within(s.floats[at], s.floats[at + 1], x, y, reach, globe)
    elif own == CIRCLE:
        away = shapes_distance(POINT, s.floats, at, kind, s.places, offset, globe)
        return away > s.floats[at + 2] + margin
    return _distance(s, own, at, kind, offset, x, y, globe) > margin


@kernel
def short_way(x, other, globe):
    """The second longitude, a turn further on if that is the short way from the first."""
    if globe and abs(other - x) > 180.0:
        return other - 360.0 if other > x else other + 360.0
    return other


@kernel
def crosses(s, fence, px, py, x, y, globe):
    """Whether the straight line between two points meets a fence's region."""
    own, at = np.int64(s.fences[fence, KIND]), np.int64(s.fences[fence, OFFSET])
    line = np.array([1.0, 2.0, px, py, short_way(px, x, globe), y])
    if own == CIRCLE:
        away = shapes_distance(POINT, s.floats, at, POLYGON, line, 0, globe)
        return away <= s.floats[at + 2]
    return shapes_meet(own, s.floats, at, POLYGON, line, 0, globe)


@kernel
def line_box(px, py, x, y, globe):
    """Where regions that may meet the line have to be looked for.

    On the globe with what the projection at a circle's centre may bend its pieces of 1°:
    `nearcast.matcher.places.search_boxes` says why.
    """
    other = short_way(px, x, globe)
    xmin, xmax = min(px, other), max(px, other)
    ymin, ymax = min(py, y), max(py, y)
    if not globe:
        return xmin, ymin, xmax, ymax
    side = min(1.0, math.hypot(xmax - xmin, ymax - ymin))
    lat = ymin if abs(ymin) > abs(ymax) else ymax
    west, _, east, _ = cap_bounds(0.0, lat, 0.8 * math.radians(side) * EARTH_RADIUS_M)
    return xmin + west, max(-90.0, ymin - side), xmax + east, min(90.0, ymax + side)


@kernel
def pieces(xmin, ymin, xmax, ymax, globe, out):
    """Bounds cut to −180 … 180 on the globe, written to `out`; how many there are."""
    if not globe or xmax - xmin >= 360.0:
        out[0, 0], out[0, 1], out[0, 2], out[0, 3] = xmin, ymin, xmax, ymax
        if globe:
            out[0, 0], out[0, 2] = -180.0, 180.0
        return 1
    count = 0
    for k in range(-1, 2):
        low, high = max(xmin + 360.0 * k, -180.0), min(xmax + 360.0 * k, 180.0)
        if low <= high:
            out[count, 0], out[count, 1], out[count, 2], out[count, 3] = low, ymin, high, ymax
            count += 1
    return count


@kernel
def circle_box(x, y, radius, globe):
    """The box of a circle, which may pass ±180."""
    if globe:
        return cap_bounds(x, y, radius)
    return square_bounds(x, y, radius)
