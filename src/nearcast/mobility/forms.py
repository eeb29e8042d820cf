"""Shapes that follow their subscriber without turning, as obstacles see them: reflected.

Somebody at p has an event at e in their shape S just if p lies in e − S. So every event keeps
them out of the shape reflected about it, not out of a circle. What a phone can test are *bars*, all
places within a reach of a segment; a few of them cover the shape, often with little waste.

On the globe a shape lies on its subscriber's own map, with their own north up; regions are built on
another one. From place to place north turns and maps stretch: `drawn_bars` says by how much at
most, and bars are that much wider. Near a pole, and for shapes of a thousand kilometres, that says
nothing; a circle stands for the shape there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import shapely

from nearcast.matcher.places import shape_floats
from nearcast.mobility import kernels
from nearcast.mobility.plane import EARTH_RADIUS_M, Plane
from nearcast.model.geometry import Polygon

__all__ = ["Form", "drawn_bars", "form_gaps", "form_of", "stamp_bars"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: Shapes that reach farther, or nearer to a pole, are circles on the globe.
_WIDEST_M = 1_000_000.0
_NORTHMOST = 88.0
#: Beyond this, areas of shapes are no numbers any more.
_HUGE = 1e100
#: A cover is refined while it is that much larger than the shape, so often at most.
_WASTE = 1.25
_DEPTH = 2
_GAIN = 0.85


class Form(NamedTuple):
    """A shape about its subscriber: its floats, bars that cover it, and how far it reaches.

    `breadth` is the radius of the circle that sweeps as much ground when it moves.
    """

    polygon: Floats
    bars: Floats
    reach: float
    breadth: float


def form_of(shape: Polygon) -> Form:
    """A shape with its cover; O(its corners)."""
    _, floats = shape_floats(shape)
    polygon = np.array(floats)
    reach = max(math.hypot(x, y) for x, y in shape.exterior) * (1 + 1e-12)
    if not 1e-100 < reach < _HUGE:
        return Form(polygon, np.array([[0.0, 0.0, 0.0, 0.0, reach]]), reach, reach)
    area = shapely.Polygon(*shape.rings[:1], shape.rings[1:])
    bars = np.array(_cover(area, _DEPTH))
    bars[:, 4] += 1e-9 * reach  # what cutting may have rounded away
    return Form(polygon, bars, reach, float(shapely.convex_hull(area).length) / (2 * math.pi))


def _cover(shape: Any, depth: int) -> list[tuple[float, float, float, float, float]]:
    """Bars that hold a shape: one along its narrowest box, or those of its halves."""
    one = _bar(shape)
    if depth == 0 or _bar_area(one) <= _WASTE * shape.area:
        return [one]
    ax, ay, bx, by, _ = one
    mx, my = (ax + bx) / 2, (ay + by) / 2
    dx, dy = bx - ax, by - ay
    if dx == dy == 0.0:
        dx, dy = 1.0, 0.0
    far = 2 * float(shapely.length(shape)) / math.hypot(dx, dy)
    parts: list[Any] = []
    for side in (-far, far):
        half = shapely.Polygon([
            (mx - far * dy, my + far * dx), (mx + far * dy, my - far * dx),
            (mx + far * dy + side * dx, my - far * dx + side * dy),
            (mx - far * dy + side * dx, my + far * dx + side * dy),
        ])  # fmt: skip
        cut = shapely.get_parts(shapely.intersection(shape, half))
        parts += [part for part in cut if part.area > 0]
    bars = [bar for part in parts for bar in _cover(part, depth - 1)]
    return bars if parts and sum(map(_bar_area, bars)) < _GAIN * _bar_area(one) else [one]


def _bar(shape: Any) -> tuple[float, float, float, float, float]:
    """The bar along the narrowest box round a shape, or the disc round it if that is smaller."""
    corners = shapely.points(shapely.get_coordinates(shape))
    disc = shapely.minimum_bounding_circle(shape)
    middle = (shapely.envelope(shape) if disc.is_empty else disc).centroid  # of slivers it has none
    radius = float(shapely.distance(middle, corners).max())
    round_ = (middle.x, middle.y, middle.x, middle.y, radius * (1 + 1e-6))
    box = shapely.oriented_envelope(shape)
    if box.geom_type != "Polygon":
        return round_
    a, b, c, d = list(box.exterior.coords)[:4]
    if math.dist(a, b) < math.dist(b, c):
        a, b, c, d = b, c, d, a
    ends = ((a[0] + d[0]) / 2, (a[1] + d[1]) / 2), ((b[0] + c[0]) / 2, (b[1] + c[1]) / 2)
    # The box is the best one up to rounding only: take the reach from the corners themselves.
    axis = shapely.LineString(ends)
    found = (*ends[0], *ends[1], float(shapely.distance(axis, corners).max()))
    return found if _bar_area(found) < _bar_area(round_) else round_


def _bar_area(bar: tuple[float, float, float, float, float]) -> float:
    ax, ay, bx, by, reach = bar
    return 2 * reach * math.hypot(bx - ax, by - ay) + math.pi * reach * reach


# --- on a map -------------------------------------------------------------------------------------


def drawn_bars(form: Form, x: Floats, y: Floats, plane: Plane) -> tuple[Floats, Flags]:
    """Bars on a map that keep the form's subscriber away from events; which events have any.

    Let p have e in the shape at s, and d = |s| ≤ `reach`. Seen from e, p lies at −s turned by
    what meridians converge on the way, at most d/R · tan φ (Clairaut); that is off by d times as
    much. From e's own map to this one, directions turn by γ, which is known at e and changes by
    less than ρ/R² a metre at ρ from the map's centre; and lengths across stretch by `stretch`.
    """
    u, v = plane.to_map_many(x, y)
    if plane.space == "planar":
        cos, sin, slop = np.ones(x.size), np.zeros(x.size), np.zeros(x.size)
        fine = np.ones(x.size, np.bool_)
    else:
        cos, sin = _northing(u, v, x, y, plane)
        slop, fine = _slop(form, np.hypot(u, v), y)
        u, v, cos, sin, slop = u[fine], v[fine], cos[fine], sin[fine], slop[fine]
    bars = np.empty((u.size, len(form.bars), 5))
    for end in (0, 2):
        a, b = form.bars[:, end], form.bars[:, end + 1]
        bars[:, :, end] = u[:, None] - (cos[:, None] * a + sin[:, None] * b)
        bars[:, :, end + 1] = v[:, None] - (cos[:, None] * b - sin[:, None] * a)
    bars[:, :, 4] = form.bars[:, 4] + slop[:, None]
    return bars.reshape(-1, 5), fine


def form_gaps(form: Form, xs: Floats, ys: Floats, away: Floats, plane: Plane) -> Floats:
    """How far somebody may go without having events in the form; never too far.

    `plane` is a map with them in its centre, `away` are the distances of the events.
    """
    gaps = away - form.reach
    near = np.flatnonzero(away <= 3 * form.reach)
    if not near.size:
        return gaps
    u, v = plane.to_map_many(xs[near], ys[near])
    if plane.space == "planar":
        gaps[near] = np.maximum(gaps[near], kernels.polygon_gaps(form.polygon, u, v))
        return gaps
    cos, sin = _northing(u, v, xs[near], ys[near], plane)
    slop, fine = _slop(form, away[near], ys[near])
    angle = min(4 * form.reach / EARTH_RADIUS_M, 1.0)
    stretch = angle / math.sin(angle)
    # Turned back, so that the event stands where the subscriber's shape would show it.
    found = kernels.polygon_gaps(form.polygon, cos * u - sin * v, sin * u + cos * v)
    gaps[near] = np.where(fine, np.maximum(gaps[near], found / stretch - slop), gaps[near])
    return gaps


def stamp_bars(form: Form, plane: Plane) -> Floats | None:
    """Bars about any place of a map that hold what its form may hold there; None: nobody knows."""
    if plane.space == "planar":
        return form.bars
    slop, fine = _slop(form, np.array([plane.reach_m]), np.array([plane.y0]))
    northmost = math.radians(abs(plane.y0)) + plane.reach_m / EARTH_RADIUS_M
    if not fine[0] or northmost > math.radians(_NORTHMOST):
        return None
    turn = plane.reach_m / EARTH_RADIUS_M * math.tan(northmost)
    bars = form.bars.copy()
    bars[:, 4] += slop[0] + form.reach * turn
    return bars


def _northing(u: Floats, v: Floats, x: Floats, y: Floats, plane: Plane) -> tuple[Floats, Floats]:
    """By which angle north at places is turned clockwise on a map: cosines and sines."""
    turn, p0, p1 = np.radians(plane.x0 - x), math.radians(plane.y0), np.radians(y)
    back_east = math.cos(p0) * np.sin(turn)
    back_north = np.cos(p1) * math.sin(p0) - np.sin(p1) * math.cos(p0) * np.cos(turn)
    # Outward from the centre: (u, v) on the map, the way back reversed at the place itself.
    seen, true = np.arctan2(u, v), np.arctan2(-back_east, -back_north)
    angle = np.where((u == 0.0) & (v == 0.0), 0.0, seen - true)
    return np.cos(angle), np.sin(angle)


def _slop(form: Form, far: Floats, lat: Floats) -> tuple[Floats, Flags]:
    """By how much places at `far` from a map's centre may be off, and where that says anything."""
    reach = form.reach
    angle = (far + reach) / EARTH_RADIUS_M
    northmost = np.radians(np.abs(lat)) + reach / EARTH_RADIUS_M
    fine = (reach <= _WIDEST_M) & (angle < 1.0) & (northmost <= math.radians(_NORTHMOST))
    angle, northmost = np.where(fine, angle, 0.5), np.where(fine, northmost, 0.0)
    bent = reach * reach / EARTH_RADIUS_M * (np.tan(northmost) + angle)
    stretched = reach * (angle / np.sin(angle) - 1.0)
    return (bent + stretched) * 1.01 + 1e-6 + 1e-9 * reach, fine
