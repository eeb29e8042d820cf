"""The oracle's geometry: exact, slow, and written to be read.

A `Shape` is a list of rings of rational points: the exterior, then the holes. A point is a
ring of one vertex, a degenerate box a ring without area: one set of rules serves all. Every
relation is closed (the borders of the exterior and of the holes belong to the shape) and
decided with `Fraction`, so nothing here depends on rounding. Only two things are floats, and
both are given by formula: haversine distances and the azimuthal equidistant projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise

from nearcast.model.geometry import Box, Circle, Location, Point, Polygon, Region

EARTH_RADIUS_M = 6_371_008.8

Vertex = tuple[Fraction, Fraction]
Ring = list[Vertex]
Shape = list[Ring]
Segment = tuple[Vertex, Vertex]
FloatPair = tuple[float, float]
Project = Callable[[float, float], FloatPair]

# Two polygons with longitudes in −360 … 360 may lie two turns apart.
_TURNS = (-720, -360, 0, 360, 720)


# --- shapes ---------------------------------------------------------------------------------


def corners(place: Point | Box | Polygon) -> list[list[FloatPair]]:
    """The rings of a place as floats; a box across the antimeridian goes on past 180."""
    if isinstance(place, Point):
        return [[(place.x, place.y)]]
    if isinstance(place, Polygon):
        return [list(ring) for ring in place.rings]
    xmax = place.xmax + 360 if place.xmin > place.xmax else place.xmax
    return [
        [(place.xmin, place.ymin), (xmax, place.ymin), (xmax, place.ymax), (place.xmin, place.ymax)]
    ]


def exact(place: Point | Box | Polygon) -> Shape:
    """The place with rational coordinates (every float is a rational number)."""
    if isinstance(place, Box) and place.xmin > place.xmax:
        xmin, ymin, xmax, ymax = map(Fraction, (place.xmin, place.ymin, place.xmax, place.ymax))
        return [[(xmin, ymin), (xmax + 360, ymin), (xmax + 360, ymax), (xmin, ymax)]]
    return rational(corners(place))


def rational(rings: list[list[FloatPair]]) -> Shape:
    """Rings of floats as rings of rationals."""
    return [[(Fraction(x), Fraction(y)) for x, y in ring] for ring in rings]


def shifted(shape: Shape, turn: int) -> Shape:
    """The shape `turn` degrees further east: on the globe, the same shape."""
    return [[(x + turn, y) for x, y in ring] for ring in shape] if turn else shape


def segments(shape: Shape) -> Iterator[Segment]:
    """Every edge of every ring; a ring of one vertex has one edge without length."""
    for ring in shape:
        yield from zip(ring, ring[1:] + ring[:1], strict=True)


# --- relations of points, segments and shapes in the plane ------------------------------------


def orientation(a: Vertex, b: Vertex, c: Vertex) -> int:
    """1 if a, b, c turn left, −1 if right, 0 if they lie on one line."""
    cross = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
    return (cross > 0) - (cross < 0)


def on_segment(p: Vertex, segment: Segment) -> bool:
    """Whether p lies on the closed segment."""
    a, b = segment
    return (
        orientation(a, b, p) == 0
        and min(a[0], b[0]) <= p[0] <= max(a[0], b[0])
        and min(a[1], b[1]) <= p[1] <= max(a[1], b[1])
    )


def segments_meet(first: Segment, second: Segment) -> bool:
    """Whether two closed segments share a point."""
    (a, b), (c, d) = first, second
    if on_segment(a, second) or on_segment(b, second):
        return True
    if on_segment(c, first) or on_segment(d, first):
        return True
    return (
        orientation(a, b, c) * orientation(a, b, d) < 0
        and orientation(c, d, a) * orientation(c, d, b) < 0
    )


def inside_ring(p: Vertex, ring: Ring) -> bool:
    """Whether p, which is not on the ring, is inside it: count the crossings of a ray."""
    inside = False
    for a, b in segments([ring]):
        if (a[1] > p[1]) != (b[1] > p[1]):
            crossing = a[0] + (p[1] - a[1]) * (b[0] - a[0]) / (b[1] - a[1])
            inside ^= p[0] < crossing
    return inside


def contains_point(shape: Shape, p: Vertex) -> bool:
    """Whether p lies in the closed shape."""
    if any(on_segment(p, edge) for edge in segments(shape)):
        return True
    exterior, *holes = shape
    return inside_ring(p, exterior) and not any(inside_ring(p, hole) for hole in holes)


def shapes_meet(first: Shape, second: Shape) -> bool:
    """Whether two closed shapes share a point.

    If no edges meet, each exterior lies wholly inside or outside of the other shape (a hole
    counts as outside), so one vertex of each decides.
    """
    if any(segments_meet(e, f) for e in segments(first) for f in segments(second)):
        return True
    return contains_point(second, first[0][0]) or contains_point(first, second[0][0])


def covers(outer: Shape, inner: Shape) -> bool:
    """Whether every point of `inner` lies in `outer`.

    All edges of `inner` must; and then a hole of `outer` lies wholly inside or wholly outside
    of `inner`, so one point of it decides.
    """
    if not all(_edge_within(edge, outer) for edge in segments(inner)):
        return False
    return not any(contains_point(inner, inner_point(hole)) for hole in outer[1:])


def _edge_within(edge: Segment, shape: Shape) -> bool:
    """Cut the edge wherever it meets the shape's edges: no piece changes sides midway."""
    a, b = edge
    cuts = {Fraction(0), Fraction(1)}
    for other in segments(shape):
        cuts.update(_cuts(edge, other))
    stops = sorted(cuts)
    middles = [(s + t) / 2 for s, t in pairwise(stops)]
    return all(
        contains_point(shape, (a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])))
        for t in stops + middles
    )


def _cuts(edge: Segment, other: Segment) -> Iterator[Fraction]:
    """Where on the edge (0 … 1) it meets the other segment; the ends of a shared stretch."""
    (a, b), (c, d) = edge, other
    ux, uy = b[0] - a[0], b[1] - a[1]
    vx, vy = d[0] - c[0], d[1] - c[1]
    cross = ux * vy - uy * vx
    if cross != 0:
        t = ((c[0] - a[0]) * vy - (c[1] - a[1]) * vx) / cross
        if 0 <= t <= 1:
            yield t
        return
    length = ux * ux + uy * uy
    if length == 0:
        return
    for p in other:
        t = ((p[0] - a[0]) * ux + (p[1] - a[1]) * uy) / length
        if 0 <= t <= 1:
            yield t


def inner_point(ring: Ring) -> Vertex:
    """A point strictly inside a ring: half-way between the first two crossings of a level
    that passes through no vertex."""
    low, high = sorted({y for _, y in ring})[:2]
    y = (low + high) / 2
    crossings = sorted(
        a[0] + (y - a[1]) * (b[0] - a[0]) / (b[1] - a[1])
        for a, b in segments([ring])
        if (a[1] > y) != (b[1] > y)
    )
    return (crossings[0] + crossings[1]) / 2, y


def point_segment_squared(p: Vertex, segment: Segment) -> Fraction:
    """The squared distance from p to a closed segment."""
    a, b = segment
    ux, uy = b[0] - a[0], b[1] - a[1]
    length = ux * ux + uy * uy
    t = Fraction(0)
    if length:
        t = min(Fraction(1), max(t, ((p[0] - a[0]) * ux + (p[1] - a[1]) * uy) / length))
    dx, dy = p[0] - a[0] - t * ux, p[1] - a[1] - t * uy
    return dx * dx + dy * dy


def distance_squared(first: Shape, second: Shape) -> Fraction:
    """The squared distance between two closed shapes: 0 if they meet.

    Between segments that do not meet, an end of one of them is nearest.
    """
    if shapes_meet(first, second):
        return Fraction(0)
    ends = [(v, e) for e in segments(second) for v, _ in segments(first)]
    ends += [(v, e) for e in segments(first) for v, _ in segments(second)]
    return min(point_segment_squared(v, e) for v, e in ends)


def near(first: Shape, second: Shape, distance: float) -> bool:
    """Whether two shapes in one plane are at most `distance` apart."""
    return distance_squared(first, second) <= Fraction(distance) ** 2


# --- the globe ----------------------------------------------------------------------------------


def central_angle(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """The haversine formula, in radians."""
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    a = (
        math.sin((phi2 - phi1) / 2) ** 2
        + math.cos(phi1) * math.cos(phi2) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    )
    return 2 * math.asin(min(1.0, math.sqrt(a)))


def haversine(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Metres along the great circle."""
    return EARTH_RADIUS_M * central_angle(lon1, lat1, lon2, lat2)


def azimuthal_equidistant(lon0: float, lat0: float) -> Project:
    """The projection that keeps distance and bearing from (lon0, lat0), in metres."""
    phi0 = math.radians(lat0)

    def project(lon: float, lat: float) -> FloatPair:
        phi, turn = math.radians(lat), math.radians(lon - lon0)
        east = math.cos(phi) * math.sin(turn)
        north = math.cos(phi0) * math.sin(phi) - math.sin(phi0) * math.cos(phi) * math.cos(turn)
        distance, length = haversine(lon0, lat0, lon, lat), math.hypot(east, north)
        if length == 0:
            return 0.0, distance  # the centre, or its antipode, which has no bearing
        return distance * (east / length), distance * (north / length)

    return project


def projected(place: Point | Box | Polygon, project: Project) -> Shape:
    """The place with projected corners, and straight edges between them."""
    return rational([[project(x, y) for x, y in ring] for ring in corners(place)])


def centroid(place: Point | Box | Polygon) -> FloatPair:
    """The area's centre of gravity in (x, y); the middle of a box; a point itself."""
    if not isinstance(place, Polygon):
        ring = exact(place)[0]
        xs, ys = [x for x, _ in ring], [y for _, y in ring]
        return float((min(xs) + max(xs)) / 2), float((min(ys) + max(ys)) / 2)
    area = moment_x = moment_y = Fraction(0)
    for index, ring in enumerate(exact(place)):
        ring_area, ring_x, ring_y = _moments(ring)
        sign = 1 if (ring_area > 0) == (index == 0) else -1  # holes are taken away
        area += sign * ring_area
        moment_x += sign * ring_x
        moment_y += sign * ring_y
    return float(moment_x / area), float(moment_y / area)


def _moments(ring: Ring) -> tuple[Fraction, Fraction, Fraction]:
    area = moment_x = moment_y = Fraction(0)
    for (x1, y1), (x2, y2) in segments([ring]):
        cross = x1 * y2 - x2 * y1
        area += cross / 2
        moment_x += cross * (x1 + x2) / 6
        moment_y += cross * (y1 + y2) / 6
    return area, moment_x, moment_y


# --- places, in a space ---------------------------------------------------------------------------


def place_in_region(place: Location, region: Circle | Box | Polygon, space: str) -> bool:
    """Whether an event's place meets a region."""
    if isinstance(region, Circle):
        return place_near_point(place, Point(region.x, region.y), region.radius_m, space)
    return places_meet(place, region, space)


def places_meet(first: Location, second: Location, space: str) -> bool:
    """Whether two places share a point."""
    one, two = exact(first), exact(second)
    return any(shapes_meet(turned, two) for turned in copies(one, two, space))


def place_within(inner: Location, outer: Location, space: str) -> bool:
    """Whether `inner` lies in `outer`, borders included."""
    small, large = exact(inner), exact(outer)
    if space == "globe" and isinstance(outer, Box) and outer.xmax - outer.xmin == 360:
        low, high = Fraction(outer.ymin), Fraction(outer.ymax)  # all the way round: no seam
        west, east = Fraction(-1080), Fraction(1080)
        large = [[(west, low), (east, low), (east, high), (west, high)]]
    return any(covers(large, turned) for turned in copies(small, large, space))


def place_near_point(place: Location, centre: Point, radius_m: float, space: str) -> bool:
    """Whether a place comes within a radius of a point."""
    if space == "planar":
        return near(exact(place), exact(centre), radius_m)
    if isinstance(place, Point):
        return haversine(centre.x, centre.y, place.x, place.y) <= radius_m
    if places_meet(centre, place, space):  # large shapes are no longer themselves in the projection
        return True
    away = [haversine(centre.x, centre.y, x, y) for ring in corners(place) for x, y in ring]
    if min(away) > EARTH_RADIUS_M * math.pi / 2:
        # On the far side of the globe a shape lies round the rim of the map: it only seems to
        # hold the middle, and lines between its corners run through it. So its corners count.
        return min(away) <= radius_m
    shape = projected(place, azimuthal_equidistant(centre.x, centre.y))
    return near(shape, [[(Fraction(0), Fraction(0))]], radius_m)


def places_near(first: Location, second: Location, distance_m: float, space: str) -> bool:
    """Whether two places come within a distance; the first one fixes the projection."""
    if isinstance(first, Point):
        return place_near_point(second, first, distance_m, space)
    if space == "planar":
        return near(exact(first), exact(second), distance_m)
    project = azimuthal_equidistant(*centroid(first))
    return near(projected(first, project), projected(second, project), distance_m)


def copies(shape: Shape, other: Shape, space: str) -> Iterator[Shape]:
    """The shape on every turn round the globe on which it can meet the other one."""
    xs, others = [x for x, _ in shape[0]], [x for x, _ in other[0]]
    for turn in _TURNS if space == "globe" else (0,):
        if min(xs) + turn <= max(others) and min(others) <= max(xs) + turn:
            yield shifted(shape, turn)


def fixed(region: Region, at: Point | None) -> Circle | Box | Polygon | None:
    """The region on the map: one that follows its subscriber is a circle where they are."""
    if isinstance(region, Circle | Box | Polygon):
        return region
    return None if at is None else Circle(at.x, at.y, region.radius_m)
