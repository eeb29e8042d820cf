"""The oracle's geometry: exact, slow, and written to be read.

A `Shape` is a list of rings of rational points: the exterior, then the holes. A point is a
ring of one vertex, a degenerate box a ring without area: one set of rules serves all. Every
relation is closed (the borders of the exterior and of the holes belong to the shape) and
decided with `Fraction`, so nothing here depends on rounding. Only distances on the globe are
floats, and they are given by formula: haversine, and the azimuthal equidistant projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from nearcast.model.geometry import Box, Circle, Location, Point, Polygon, Region

EARTH_RADIUS_M = 6_371_008.8

Vertex = tuple[Fraction, Fraction]
Ring = list[Vertex]
Shape = list[Ring]
Segment = tuple[Vertex, Vertex]
FloatPair = tuple[float, float]
Piece = tuple[FloatPair, FloatPair]
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


def covers(outers: list[Shape], inner: Shape) -> bool:
    """Whether every point of `inner` lies in one of the closed shapes.

    A shape with an area is the closure of its inside, and the shapes are closed, so open pieces
    decide. All edges cut the plane into slabs between the levels x at which one begins, ends
    or meets another, and each slab into trapezoids: one point of each stands for it.
    """
    if _moments(inner[0])[0] == 0:
        return all(_edge_covered(edge, outers) for edge in segments(inner))
    edges = [edge for shape in (inner, *outers) for edge in segments(shape)]
    for axis in (0, 1):  # what passes by the inner one cuts nothing of it
        low, high = min(v[axis] for v in inner[0]), max(v[axis] for v in inner[0])
        edges = [
            (a, b)
            for a, b in edges
            if min(a[axis], b[axis]) <= high and low <= max(a[axis], b[axis])
        ]
    levels = {x for edge in edges for x, _ in edge}
    levels |= {_along(edge, t)[0] for edge in edges for other in edges for t in _cuts(edge, other)}
    for left, right in pairwise(sorted(levels)):
        x = (left + right) / 2
        heights = sorted(
            {
                a[1] + (x - a[0]) * (b[1] - a[1]) / (b[0] - a[0])
                for a, b in edges
                if min(a[0], b[0]) < x < max(a[0], b[0])
            }
        )
        for low, high in pairwise(heights):
            p = x, (low + high) / 2
            if contains_point(inner, p) and not any(contains_point(o, p) for o in outers):
                return False
    return True


def _edge_covered(edge: Segment, shapes: list[Shape]) -> bool:
    """Cut the edge wherever it meets an edge of the shapes: no piece changes sides midway."""
    cuts = {Fraction(0), Fraction(1)}
    for shape in shapes:
        for other in segments(shape):
            cuts.update(_cuts(edge, other))
    stops = sorted(cuts)
    middles = [(s + t) / 2 for s, t in pairwise(stops)]
    points = [_along(edge, t) for t in stops + middles]
    return all(any(contains_point(shape, p) for shape in shapes) for p in points)


def _along(edge: Segment, t: Fraction) -> Vertex:
    """The point of an edge at t, 0 … 1."""
    a, b = edge
    return a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])


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
        short = lon - lon0 - 360 * math.floor((lon - lon0) / 360 + 0.5)  # the short way round
        phi, turn = math.radians(lat), math.radians(short)
        east = math.cos(phi) * math.sin(turn)
        north = math.cos(phi0) * math.sin(phi) - math.sin(phi0) * math.cos(phi) * math.cos(turn)
        distance = EARTH_RADIUS_M * central_angle(0.0, lat0, short, lat)
        length = math.hypot(east, north)
        if length == 0:
            return 0.0, distance  # the centre, or its antipode, which has no bearing
        return distance * (east / length), distance * (north / length)

    return project


def pieces(place: Point | Box | Polygon) -> Iterator[Piece]:
    """The edges of a place, each in equal pieces of at most one degree."""
    for ring in corners(place):
        for (ax, ay), (bx, by) in zip(ring, ring[1:] + ring[:1], strict=True):
            dx, dy = bx - ax, by - ay
            n = max(1, math.ceil(math.sqrt(dx * dx + dy * dy)))
            stops = [(ax + dx * k / n, ay + dy * k / n) for k in range(n)]
            yield from pairwise([*stops, (bx, by)])


def globe_distance(first: Point | Box | Polygon, second: Point | Box | Polygon) -> float:
    """Metres between two places: 0 where they meet in lon/lat, else between the pieces of their
    edges, straight in the azimuthal equidistant projection at the first one's centroid."""
    if isinstance(first, Point) and isinstance(second, Point):
        return haversine(first.x, first.y, second.x, second.y)
    if places_meet(first, second, "globe"):
        return 0.0
    project = azimuthal_equidistant(*centroid(first))
    one, two = ([(project(*a), project(*b)) for a, b in pieces(p)] for p in (first, second))
    nearest = math.inf
    for a in one:
        for b in two:
            if math.dist(a[0], b[0]) - math.dist(*a) - math.dist(*b) < nearest:  # else it cannot be
                nearest = min(nearest, piece_distance(a, b))
    return nearest


def piece_distance(first: Piece, second: Piece) -> float:
    """The distance of two projected pieces.

    One that lies on the far side of the globe, with both ends more than a quarter turn from
    the centre, is on the rim of the map: the line between its ends may run through the middle,
    so the piece is no nearer to the centre than its nearer end.
    """
    far = [min(math.hypot(*end) for end in piece) for piece in (first, second)]
    far = [nearer if nearer > EARTH_RADIUS_M * math.pi / 2 else 0.0 for nearer in far]
    if far == [0, 0] and float_segments_cross(first, second):
        return 0.0
    return min(
        max(float_point_segment(end, piece), limit - math.hypot(*end))
        for ends, piece, limit in ((first, second, far[1]), (second, first, far[0]))
        for end in ends
    )


def float_segments_cross(first: Piece, second: Piece) -> bool:
    """Whether the ends of each segment lie on two sides of the other."""

    def side(a: FloatPair, b: FloatPair, c: FloatPair) -> float:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    (a, b), (c, d) = first, second
    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def float_point_segment(p: FloatPair, segment: Piece) -> float:
    """The distance of a point from a closed segment."""
    (ax, ay), (bx, by) = segment
    ux, uy = bx - ax, by - ay
    length = ux * ux + uy * uy
    t = 0.0
    if length > 0:
        t = min(1.0, max(0.0, ((p[0] - ax) * ux + (p[1] - ay) * uy) / length))
    return math.hypot(p[0] - ax - t * ux, p[1] - ay - t * uy)


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


def place_in_region(place: Location, region: Circle | Box | Polygon | Seen, space: str) -> bool:
    """Whether an event's place meets a region."""
    if isinstance(region, Seen):
        return in_seen(place, region, space)
    if isinstance(region, Circle):
        return places_near(Point(region.x, region.y), place, region.radius_m, space)
    return places_meet(place, region, space)


def places_meet(first: Location, second: Location, space: str) -> bool:
    """Whether two places share a point."""
    one, two = exact(first), exact(second)
    return any(shapes_meet(turned, two) for turned in copies(one, two, space))


def place_within(inner: Location, outers: Sequence[Location], space: str) -> bool:
    """Whether `inner` lies in `outers`, all of them together, borders included."""
    small = exact(inner)
    return covers([t for outer in outers for t in copies(exact(outer), small, space)], small)


def places_near(first: Location, second: Location, distance_m: float, space: str) -> bool:
    """Whether two places come within a distance; the first one fixes the projection."""
    if space == "planar":
        return near(exact(first), exact(second), distance_m)
    return globe_distance(first, second) <= distance_m


def copies(shape: Shape, other: Shape, space: str) -> Iterator[Shape]:
    """The shape on every turn round the globe on which it can meet the other one."""
    xs, others = [x for x, _ in shape[0]], [x for x, _ in other[0]]
    for turn in _TURNS if space == "globe" else (0,):
        if min(xs) + turn <= max(others) and min(others) <= max(xs) + turn:
            yield shifted(shape, turn)


@dataclass(frozen=True)
class Seen:
    """The shape of somebody at (x, y), turned already: metres (units) on their own map."""

    x: float
    y: float
    shape: Polygon


def fixed(
    region: Region, at: Point | None, heading: float = 0.0
) -> Circle | Box | Polygon | Seen | None:
    """The region on the map: one that follows its subscriber is where they are."""
    if isinstance(region, Circle | Box | Polygon):
        return region
    if at is None:
        return None
    if region.shape is None:
        return Circle(at.x, at.y, region.reach_m)
    heading = heading % 360 if region.turns else 0.0
    cos, sin = math.cos(math.radians(heading)), math.sin(math.radians(heading))
    if heading % 90 == 0:
        cos, sin = float(round(cos)), float(round(sin))
    rings = [
        tuple((x * cos + y * sin, y * cos - x * sin) for x, y in ring)
        for ring in region.shape.rings
    ]
    return Seen(at.x, at.y, Polygon.checked(rings[0], tuple(rings[1:])))


def in_seen(place: Location, seen: Seen, space: str) -> bool:
    """Whether a place, drawn on somebody's map, meets their shape."""
    shape = rational([list(ring) for ring in seen.shape.rings])
    if space == "planar":
        return shapes_meet(shape, rational(_seen_rings(place, seen)))
    project = azimuthal_equidistant(seen.x, seen.y)
    if isinstance(place, Point):
        return contains_point(shape, rational([[project(place.x, place.y)]])[0][0])
    drawn = [(project(*a), project(*b)) for a, b in pieces(place)]
    quarter = EARTH_RADIUS_M * math.pi / 2
    near_by = [piece for piece in drawn if min(math.hypot(*end) for end in piece) <= quarter]
    edges = [rational([list(piece)])[0] for piece in near_by]
    if any(segments_meet((a, b), f) for a, b in edges for f in segments(shape)):
        return True
    if contains_point(shape, rational([[drawn[0][0]]])[0][0]):
        return True
    corner = on_globe(seen.x, seen.y, *seen.shape.exterior[0])
    return places_meet(Point(*corner), place, "globe")


def seen_distance(place: Location, seen: Seen, space: str) -> float:
    """How far a place is from somebody's shape, on their map."""
    if in_seen(place, seen, space):
        return 0.0
    rings = seen.shape.rings
    own = [edge for ring in rings for edge in zip(ring, ring[1:] + ring[:1], strict=True)]
    if space == "planar":
        other = [
            edge for r in _seen_rings(place, seen) for edge in zip(r, r[1:] + r[:1], strict=True)
        ]
    else:
        project = azimuthal_equidistant(seen.x, seen.y)
        other = [(project(*a), project(*b)) for a, b in pieces(place)]
    return min(piece_distance(a, b) for a in own for b in other)


def seen_near(place: Location, seen: Seen, distance_m: float, space: str) -> bool:
    """Whether a place is at most so far from somebody's shape, on their map."""
    if space == "planar":
        own = rational([list(ring) for ring in seen.shape.rings])
        return near(own, rational(_seen_rings(place, seen)), distance_m)
    return seen_distance(place, seen, space) <= distance_m


def _seen_rings(place: Location, seen: Seen) -> list[list[FloatPair]]:
    return [[(x - seen.x, y - seen.y) for x, y in ring] for ring in corners(place)]


def on_globe(lon0: float, lat0: float, east: float, north: float) -> FloatPair:
    """The place that lies so far to the east and north on the map of (lon0, lat0)."""
    angle, bearing = math.hypot(east, north) / EARTH_RADIUS_M, math.atan2(east, north)
    phi0 = math.radians(lat0)
    up = math.sin(phi0) * math.cos(angle) + math.cos(phi0) * math.sin(angle) * math.cos(bearing)
    turn = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(phi0), math.cos(angle) - math.sin(phi0) * up
    )
    lon = (lon0 + math.degrees(turn) + 180) % 360 - 180
    return lon, math.degrees(math.asin(max(-1.0, min(1.0, up))))
