"""Exact geometry on encoded shapes.

A shape is a kind and a run of float64 at an offset of one array:

====== ======== ==========================================================
kind   name     floats
====== ======== ==========================================================
0      POINT    x, y
1      CIRCLE   x, y, radius
2      BOX      xmin, ymin, xmax, ymax (xmin > xmax: across the antimeridian)
3      POLYGON  number of rings, length of each ring, then x, y, x, y, …
4      PLACED   x, y, reach, then a polygon on the map of somebody at (x, y)
====== ======== ==========================================================

A region only is PLACED: `nearcast.model.placing` says what its map is, and what meets it.

Borders belong to shapes. Signs of orientations are exact: a float filter decides
nearly always, an exact expansion decides the rest (of numbers of any size, if those of
one place are 0 or within a factor of 1e150 of each other). On the globe, boxes and polygons
have straight edges in lon/lat and are tried with longitudes shifted by a full turn.
"""

from __future__ import annotations

import math

import numpy as np

from nearcast.jit import brief_kernel, kernel
from nearcast.kernels.sorting import sort

POINT, CIRCLE, BOX, POLYGON, PLACED = 0, 1, 2, 3, 4
EARTH_RADIUS_M = 6_371_008.8

# Shewchuk's bound for the float filter of a 2-D orientation: (3 + 16 ε) ε, ε = 2⁻⁵³.
_ORIENT_BOUND = (3.0 + 16.0 * 2.0**-53) * 2.0**-53
_LARGE, _SMALL = 1e140, 1e-100  # products of such numbers, and their errors, stay in float64
_SHRINK, _STRETCH = 2.0**-540, 2.0**540
_SPLITTER = 134217729.0  # 2²⁷ + 1, halves a float64 for an exact product
_ROUNDING = 1e-12  # far more than a computed point is off, for coordinates of up to 1
_QUARTER_M = EARTH_RADIUS_M * math.pi / 2


@kernel
def haversine_m(lon1, lat1, lon2, lat2):
    """Great-circle metres between two points."""
    p1 = math.radians(lat1)
    p2 = math.radians(lat2)
    s = math.sin((p2 - p1) / 2)
    t = math.sin(math.radians(lon2 - lon1) / 2)
    a = s * s + math.cos(p1) * math.cos(p2) * t * t
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(a)))


@kernel
def _two_product(a, b):
    """a · b as an exact sum of two floats."""
    p = a * b
    c = _SPLITTER * a
    ah = c - (c - a)
    al = a - ah
    c = _SPLITTER * b
    bh = c - (c - b)
    bl = b - bh
    return p, al * bl - (((p - ah * bh) - al * bh) - ah * bl)


@kernel
def _add_product(terms, n, a, b):
    """Append the two floats of a · b to `terms`."""
    high, low = _two_product(a, b)
    terms[n] = low
    terms[n + 1] = high
    return n + 2


@kernel
def _sign_of_sum(terms, n):
    """The sign of the exact sum of n floats, by growing a non-overlapping expansion."""
    expansion = np.zeros(n)
    for size in range(n):
        q = terms[size]
        for i in range(size):
            e = expansion[i]
            s = q + e
            bb = s - q
            expansion[i] = (q - (s - bb)) + (e - bb)
            q = s
        expansion[size] = q
    for i in range(n - 1, -1, -1):
        if expansion[i] > 0.0:
            return 1
        if expansion[i] < 0.0:
            return -1
    return 0


@kernel
def _orient_exact(ax, ay, bx, by, cx, cy):
    """The sign of the orientation as an exact sum of six products."""
    top = max(max(abs(ax), abs(ay)), max(max(abs(bx), abs(by)), max(abs(cx), abs(cy))))
    if top > _LARGE or top < _SMALL:
        s = _SHRINK if top > _LARGE else _STRETCH
        ax, ay, bx, by, cx, cy = ax * s, ay * s, bx * s, by * s, cx * s, cy * s
    terms = np.empty(12)
    n = _add_product(terms, 0, ax, by)
    n = _add_product(terms, n, -ax, cy)
    n = _add_product(terms, n, -cx, by)
    n = _add_product(terms, n, -ay, bx)
    n = _add_product(terms, n, ay, cx)
    n = _add_product(terms, n, cy, bx)
    return _sign_of_sum(terms, n)


@kernel
def _within_exact(x1, y1, x2, y2, radius):
    """Whether the Euclidean distance is at most the radius, in exact arithmetic."""
    terms = np.empty(14)
    n = 0
    for k in range(2):
        a, b = (x2, x1) if k == 0 else (y2, y1)
        d = a - b  # with its rounding error e: a − b = d + e exactly
        bb = a - d
        e = (a - (d + bb)) + (bb - b)
        n = _add_product(terms, n, d, d)
        n = _add_product(terms, n, 2.0 * d, e)
        n = _add_product(terms, n, e, e)
    n = _add_product(terms, n, -radius, radius)
    return _sign_of_sum(terms, n) <= 0


@kernel
def within(x1, y1, x2, y2, radius, globe):
    """Whether two points are at most `radius` apart; exact on a plane."""
    if globe:
        return haversine_m(x1, y1, x2, y2) <= radius
    top = max(max(abs(x2 - x1), abs(y2 - y1)), radius)
    if top > _LARGE or (top < _SMALL and top > 0.0):
        # Squares would overflow or vanish. What has no distance along an axis is moved to 0
        # there, or stretching could overflow; the rest is of the size of its differences.
        s = _SHRINK if top > _LARGE else _STRETCH
        x1, x2 = (0.0, 0.0) if x1 == x2 else (x1 * s, x2 * s)
        y1, y2 = (0.0, 0.0) if y1 == y2 else (y1 * s, y2 * s)
        radius = radius * s
    square = (x2 - x1) * (x2 - x1) + (y2 - y1) * (y2 - y1)
    limit = radius * radius
    slack = 1e-15 * (square + limit)
    if square > limit + slack:
        return False
    if square < limit - slack:
        return True
    return _within_exact(x1, y1, x2, y2, radius)


@kernel
def orient(ax, ay, bx, by, cx, cy):
    """1 if a, b, c turn left, −1 if right, 0 if on one line; exact."""
    left = (ax - cx) * (by - cy)
    right = (ay - cy) * (bx - cx)
    det = left - right
    bound = _ORIENT_BOUND * (abs(left) + abs(right))
    if det > bound:
        return 1
    if det < -bound:
        return -1
    return _orient_exact(ax, ay, bx, by, cx, cy)


@kernel
def _in_span(a, b, v):
    """Whether v lies between a and b, in whatever order they come."""
    return (a <= v <= b) or (b <= v <= a)


@kernel
def point_in_polygon(f, off, x, y):
    """Whether (x, y) lies in the polygon at `off`, borders of rings included."""
    rings = int(f[off])
    at = off + 1 + rings
    inside = False
    for r in range(rings):
        n = int(f[off + 1 + r])
        for i in range(n):
            j = i + 1 if i + 1 < n else 0
            ax, ay = f[at + 2 * i], f[at + 2 * i + 1]
            bx, by = f[at + 2 * j], f[at + 2 * j + 1]
            if (ay > y and by > y) or (ay < y and by < y):
                continue
            side = orient(ax, ay, bx, by, x, y)
            if side == 0 and _in_span(ax, bx, x) and _in_span(ay, by, y):
                return True
            if (ay > y) != (by > y) and (side > 0) == (by > ay):
                inside = not inside
        at += 2 * n
    return inside


@kernel
def segments_meet(ax, ay, bx, by, px, py, qx, qy):
    """Whether two closed segments share a point; points count as segments."""
    if max(ax, bx) < min(px, qx) or max(px, qx) < min(ax, bx):
        return False
    if max(ay, by) < min(py, qy) or max(py, qy) < min(ay, by):
        return False
    o1 = orient(ax, ay, bx, by, px, py)
    o2 = orient(ax, ay, bx, by, qx, qy)
    o3 = orient(px, py, qx, qy, ax, ay)
    o4 = orient(px, py, qx, qy, bx, by)
    if o1 * o2 < 0 and o3 * o4 < 0:
        return True
    if o1 == 0 and _in_span(ax, bx, px) and _in_span(ay, by, py):
        return True
    if o2 == 0 and _in_span(ax, bx, qx) and _in_span(ay, by, qy):
        return True
    if o3 == 0 and _in_span(px, qx, ax) and _in_span(py, qy, ay):
        return True
    return o4 == 0 and _in_span(px, qx, bx) and _in_span(py, qy, by)


@kernel
def as_polygon(kind, f, off):
    """Any point, box or polygon as polygon floats of its own (a point is a ring of one)."""
    if kind == POLYGON:
        rings = int(f[off])
        points = 0
        for r in range(rings):
            points += int(f[off + 1 + r])
        return f[off : off + 1 + rings + 2 * points].copy()
    if kind == POINT:
        return np.array([1.0, 1.0, f[off], f[off + 1]])
    xmin, ymin, xmax, ymax = f[off], f[off + 1], f[off + 2], f[off + 3]
    if xmin > xmax:
        xmax += 360.0
    return np.array([1.0, 4.0, xmin, ymin, xmax, ymin, xmax, ymax, xmin, ymax])


@kernel
def _edges(p):
    """The edges of polygon floats, one row each: ax, ay, bx, by."""
    rings = int(p[0])
    total = 0
    for r in range(rings):
        total += int(p[1 + r])
    out = np.empty((total, 4))
    at = 1 + rings
    row = 0
    for r in range(rings):
        n = int(p[1 + r])
        for i in range(n):
            j = i + 1 if i + 1 < n else 0
            out[row, 0] = p[at + 2 * i]
            out[row, 1] = p[at + 2 * i + 1]
            out[row, 2] = p[at + 2 * j]
            out[row, 3] = p[at + 2 * j + 1]
            row += 1
        at += 2 * n
    return out


@kernel
def _polygons_meet(a, b, shift):
    """Whether two polygons share a point, the second one moved by `shift` along x."""
    ea = _edges(a)
    eb = _edges(b)
    for i in range(len(ea)):
        for j in range(len(eb)):
            if segments_meet(
                ea[i, 0], ea[i, 1], ea[i, 2], ea[i, 3],
                eb[j, 0] + shift, eb[j, 1], eb[j, 2] + shift, eb[j, 3],
            ):  # fmt: skip
                return True
    # No borders meet: one lies wholly inside the other (or in a hole), or they are apart.
    if point_in_polygon(a, 0, eb[0, 0] + shift, eb[0, 1]):
        return True
    return point_in_polygon(b, 0, ea[0, 0] - shift, ea[0, 1])


@kernel
def _edges_near(polygons, box):
    """The edges of several polygons of which the bounds reach into a box, one row each."""
    out = np.empty((0, 4))
    for p in polygons:
        edges = _edges(p)
        n = 0
        for i in range(len(edges)):
            ax, ay, bx, by = edges[i, 0], edges[i, 1], edges[i, 2], edges[i, 3]
            if max(ax, bx) < box[0] or min(ax, bx) > box[2]:
                continue
            if max(ay, by) < box[1] or min(ay, by) > box[3]:
                continue
            edges[n] = edges[i]
            n += 1
        out = np.concatenate((out, edges[:n]))
    return out


@kernel
def bounds(p):
    """xmin, ymin, xmax, ymax of polygon floats."""
    start = 1 + int(p[0])
    xs, ys = p[start::2], p[start + 1 :: 2]
    return xs.min(), ys.min(), xs.max(), ys.max()


@kernel
def _in_one_of(polygons, x, y):
    """Whether a point lies in one of the polygons."""
    for p in polygons:
        if point_in_polygon(p, 0, x, y):
            return True
    return False


@kernel
def _near_one_of(polygons, edges, x, y):
    """Whether a computed (rounded) point lies in one of the polygons, or that near to an edge."""
    if _in_one_of(polygons, x, y):
        return True
    for i in range(len(edges)):
        e = edges[i]
        if segment_distance(x, y, e[0], e[1], e[2], e[3]) <= _ROUNDING * max(1.0, abs(x), abs(y)):
            return True
    return False


@kernel
def _covered(b, polygons):
    """Whether every point of b lies in one of the polygons.

    What is not covered has a border, made of pieces of b's edges and the polygons'. So all
    edges are cut where they meet, and beside the middle of each piece, on both sides, what
    is in b must be in a polygon. Corners are exact, the rest up to rounding.
    """
    own = _edges(b)
    for i in range(len(own)):
        if not _in_one_of(polygons, own[i, 0], own[i, 1]):
            return False
    theirs = _edges_near(polygons, bounds(b))
    edges = np.concatenate((own, theirs))
    cuts = np.empty(2 * len(edges) + 2)
    for i in range(len(edges)):
        x1, y1, x2, y2 = edges[i, 0], edges[i, 1], edges[i, 2], edges[i, 3]
        length = math.hypot(x2 - x1, y2 - y1)
        if length == 0.0:
            continue
        cuts[0] = 0.0
        cuts[1] = 1.0
        n = 2
        for j in range(len(edges)):
            n = _cut(edges[j], x1, y1, x2, y2, cuts, n)
        stops = cuts[:n].copy()
        sort(stops)
        for k in range(n - 1):
            t = (stops[k] + stops[k + 1]) / 2
            x, y = x1 + t * (x2 - x1), y1 + t * (y2 - y1)
            aside = _ROUNDING * max(1.0, abs(x), abs(y))
            if (stops[k + 1] - stops[k]) * length < 4.0 * aside:
                continue
            if i < len(own) and not _near_one_of(polygons, theirs, x, y):
                return False
            dx, dy = aside * (y1 - y2) / length, aside * (x2 - x1) / length
            for side in (-1.0, 1.0):
                px, py = x + side * dx, y + side * dy
                if point_in_polygon(b, 0, px, py) and not _in_one_of(polygons, px, py):
                    return False
    return True


@kernel
def _cut(edge, x1, y1, x2, y2, cuts, n):
    """Add to `cuts` where the edge meets the segment, as parameters of the segment."""
    dx, dy = x2 - x1, y2 - y1
    ex, ey = edge[2] - edge[0], edge[3] - edge[1]
    den = dx * ey - dy * ex
    if den != 0.0:
        t = ((edge[0] - x1) * ey - (edge[1] - y1) * ex) / den
        u = ((edge[0] - x1) * dy - (edge[1] - y1) * dx) / den
        if -1e-12 <= u <= 1 + 1e-12 and 0.0 < t < 1.0:
            cuts[n] = t
            n += 1
        return n
    length = dx * dx + dy * dy
    if length > 0.0:  # parallel: the ends of the edge are the places to cut at
        for k in range(2):
            t = ((edge[2 * k] - x1) * dx + (edge[2 * k + 1] - y1) * dy) / length
            if 0.0 < t < 1.0 and n < len(cuts):
                cuts[n] = t
                n += 1
    return n


@kernel
def segment_distance(x, y, ax, ay, bx, by):
    """Euclidean distance of a point from a segment."""
    dx, dy = bx - ax, by - ay
    length = dx * dx + dy * dy
    t = 0.0
    if length > 0.0:
        t = min(1.0, max(0.0, ((x - ax) * dx + (y - ay) * dy) / length))
    ex, ey = ax + t * dx - x, ay + t * dy - y
    return math.sqrt(ex * ex + ey * ey)


@kernel
def segmentized(p):
    """Polygon floats with every edge cut into equal pieces of at most one degree."""
    rings = int(p[0])
    edges = _edges(p)
    parts = np.empty(len(edges), np.int64)
    for i in range(len(edges)):
        dx, dy = edges[i, 2] - edges[i, 0], edges[i, 3] - edges[i, 1]
        parts[i] = max(1, math.ceil(math.sqrt(dx * dx + dy * dy)))
    total = parts.sum()
    if total == len(edges):  # most places are small: nothing to cut
        return p
    out = np.empty(1 + rings + 2 * total)
    out[0] = p[0]
    at = 1 + rings
    i = 0
    for r in range(rings):
        first = at
        for _ in range(int(p[1 + r])):
            dx, dy = edges[i, 2] - edges[i, 0], edges[i, 3] - edges[i, 1]
            for k in range(parts[i]):
                out[at] = edges[i, 0] + dx * k / parts[i]
                out[at + 1] = edges[i, 1] + dy * k / parts[i]
                at += 2
            i += 1
        out[1 + r] = (at - first) // 2
    return out


@kernel
def _drawn(lon, lat, lon0, lat0):
    """A point in the spherical azimuthal equidistant projection at (lon0, lat0)."""
    phi0, phi = math.radians(lat0), math.radians(lat)
    s0, c0 = math.sin(phi0), math.cos(phi0)
    turn = lon - lon0
    lam = math.radians(turn - 360.0 * math.floor(turn / 360.0 + 0.5))
    # The angle from the centre by the haversine: accurate where acos is not.
    s = math.sin((phi - phi0) / 2)
    t = math.sin(lam / 2)
    h = s * s + c0 * math.cos(phi) * t * t
    c = 2 * math.asin(min(1.0, math.sqrt(h)))
    east = math.cos(phi) * math.sin(lam)
    north = c0 * math.sin(phi) - s0 * math.cos(phi) * math.cos(lam)
    length = math.hypot(east, north)
    if length > 0.0:
        return EARTH_RADIUS_M * c * (east / length), EARTH_RADIUS_M * c * (north / length)
    return 0.0, EARTH_RADIUS_M * c  # the centre, or its antipode, which has no bearing


@kernel
def undrawn(u, v, lon0, lat0):
    """The longitude and latitude of a point in that projection."""
    phi0 = math.radians(lat0)
    s0, c0 = math.sin(phi0), math.cos(phi0)
    rho = math.hypot(u, v)
    angle = rho / EARTH_RADIUS_M
    sinc = math.sin(angle) / rho if rho > 0.0 else 1 / EARTH_RADIUS_M
    up = math.cos(angle) * s0 + v * sinc * c0
    east, on = u * sinc, c0 * math.cos(angle) - s0 * v * sinc
    lon = (lon0 + math.degrees(math.atan2(east, on)) + 180.0) % 360.0 - 180.0
    return lon, math.degrees(math.atan2(up, math.hypot(east, on)))


@kernel
def project(p, lon0, lat0):
    """Polygon floats in the spherical azimuthal equidistant projection at (lon0, lat0)."""
    out = p.copy()
    for i in range(1 + int(p[0]), len(p), 2):
        out[i], out[i + 1] = _drawn(p[i], p[i + 1], lon0, lat0)
    return out


@kernel
def centroid(p):
    """The area centroid of polygon floats; the mean of the points where there is no area."""
    rings = int(p[0])
    at = 1 + rings
    ox, oy = p[at], p[at + 1]
    area = 0.0
    cx = 0.0
    cy = 0.0
    mx = 0.0
    my = 0.0
    first = int(p[1])
    for r in range(rings):
        n = int(p[1 + r])
        ring_area = 0.0
        rx = 0.0
        ry = 0.0
        for i in range(n):
            j = i + 1 if i + 1 < n else 0
            ax, ay = p[at + 2 * i] - ox, p[at + 2 * i + 1] - oy
            bx, by = p[at + 2 * j] - ox, p[at + 2 * j + 1] - oy
            cross = ax * by - bx * ay
            ring_area += cross
            rx += (ax + bx) * cross
            ry += (ay + by) * cross
            if r == 0:
                mx += ax
                my += ay
        sign = 1.0 if (ring_area > 0.0) == (r == 0) else -1.0
        area += sign * ring_area
        cx += sign * rx
        cy += sign * ry
        at += 2 * n
    if area == 0.0:
        return ox + mx / first, oy + my / first
    return ox + cx / (3 * area), oy + cy / (3 * area)


@kernel
def _borders_distance(a, b, globe):
    """Euclidean distance between the borders of two polygons; on the globe, projected ones.

    On the far side of the globe, more than a quarter turn from the centre of the projection,
    an edge lies along the rim of the map. The line between its ends may run through the middle;
    so an edge counts as no nearer to the centre than its nearer end there.
    """
    ea = _edges(a)
    eb = _edges(b)
    far = _far(ea, globe)
    other_far = _far(eb, globe)
    best = np.inf
    for i in range(len(ea)):
        ax, ay, bx, by = ea[i, 0], ea[i, 1], ea[i, 2], ea[i, 3]
        for j in range(len(eb)):
            px, py, qx, qy = eb[j, 0], eb[j, 1], eb[j, 2], eb[j, 3]
            if far[i] == 0.0 and other_far[j] == 0.0:
                if segments_meet(ax, ay, bx, by, px, py, qx, qy):
                    return 0.0
                # Every corner begins an edge, so it comes up with each edge of the other.
                best = min(best, segment_distance(ax, ay, px, py, qx, qy))
                best = min(best, segment_distance(px, py, ax, ay, bx, by))
            else:
                d = segment_distance(ax, ay, px, py, qx, qy)
                best = min(best, max(d, other_far[j] - math.hypot(ax, ay)))
                d = segment_distance(px, py, ax, ay, bx, by)
                best = min(best, max(d, far[i] - math.hypot(px, py)))
    return best


@kernel
def _far(edges, globe):
    """How far the nearer end of each projected edge is from the centre; 0 for edges that have
    an end within a quarter turn, and on a plane."""
    out = np.zeros(len(edges))
    if globe:
        for i in range(len(edges)):
            nearer = min(math.hypot(edges[i, 0], edges[i, 1]), math.hypot(edges[i, 2], edges[i, 3]))
            if nearer > _QUARTER_M:
                out[i] = nearer
    return out


@kernel
def _in_arc(west, east, lon):
    """Whether a longitude lies in west..east, closed; across the antimeridian if west > east."""
    if west > east:
        return lon >= west or lon <= east
    if west <= lon <= east:
        return True
    return (lon == 180.0 and west == -180.0) or (lon == -180.0 and east == 180.0)


@kernel
def seen_from(x0, y0, x, y, globe):
    """Where a point is on the map of somebody at (x0, y0): how far east and north of them."""
    if globe:
        return _drawn(x, y, x0, y0)
    return x - x0, y - y0


@kernel
def _point_in_placed(f, off, x, y, globe):
    """Whether a point lies in the shape of somebody, on their map."""
    u, v = seen_from(f[off], f[off + 1], x, y, globe)
    if not (abs(u) <= f[off + 2] and abs(v) <= f[off + 2]):
        return False
    return point_in_polygon(f, off + 3, u, v)


@kernel
def _on_map(b, f, off, globe):
    """Polygon floats on the map of the one who has the shape at `off`."""
    if globe:
        return project(segmentized(b), f[off], f[off + 1])
    out = b.copy()
    start = 1 + int(b[0])
    out[start::2] -= f[off]
    out[start + 1 :: 2] -= f[off + 1]
    return out


@kernel
def _placed_meets(f, off, b, globe):
    """Whether the shape of somebody meets a box or polygon, given as polygon floats."""
    shape, seen = as_polygon(POLYGON, f, off + 3), _on_map(b, f, off, globe)
    if not globe:
        return _polygons_meet(shape, seen, 0.0)
    own, other = _edges(shape), _edges(seen)
    far = _far(other, True)
    for j in range(len(other)):
        if far[j] > 0.0:
            continue
        for i in range(len(own)):
            if segments_meet(
                own[i, 0], own[i, 1], own[i, 2], own[i, 3],
                other[j, 0], other[j, 1], other[j, 2], other[j, 3],
            ):  # fmt: skip
                return True
    # No borders meet. A corner of the place decides on the map, one of the shape in lon/lat:
    # what holds the antipode lies inside out on the map.
    if point_in_polygon(shape, 0, other[0, 0], other[0, 1]):
        return True
    lon, lat = undrawn(own[0, 0], own[0, 1], f[off], f[off + 1])
    for k in range(-1, 2):
        if point_in_polygon(b, 0, lon + 360.0 * k, lat):
            return True
    return False


@kernel
def point_in_shape(kind, f, off, x, y, globe):
    """Whether the point (x, y) lies in the shape at `off`."""
    if kind == CIRCLE:
        return within(f[off], f[off + 1], x, y, f[off + 2], globe)
    if kind == BOX:
        if not f[off + 1] <= y <= f[off + 3]:
            return False
        return _in_arc(f[off], f[off + 2], x) if globe else f[off] <= x <= f[off + 2]
    if kind == PLACED:
        return _point_in_placed(f, off, x, y, globe)
    turns = 1 if globe else 0  # polygons reach 360° either way, points 180°
    for k in range(-turns, turns + 1):
        px = x + 360.0 * k
        if kind == POLYGON:
            if point_in_polygon(f, off, px, y):
                return True
        elif f[off] == px and f[off + 1] == y:
            return True
    return False


@kernel
def _places_meet(kind, f, off, other_kind, g, other_off, globe):
    """Whether two points, boxes or polygons share a point."""
    if other_kind == POINT:
        return point_in_shape(kind, f, off, g[other_off], g[other_off + 1], globe)
    if kind == POINT:
        return point_in_shape(other_kind, g, other_off, f[off], f[off + 1], globe)
    if kind == BOX and other_kind == BOX:  # no turns: 360 more or less would round the ends
        if f[off + 1] > g[other_off + 3] or g[other_off + 1] > f[off + 3]:
            return False
        w1, e1, w2, e2 = f[off], f[off + 2], g[other_off], g[other_off + 2]
        if globe:
            return _in_arc(w1, e1, w2) or _in_arc(w2, e2, w1)
        return w1 <= e2 and w2 <= e1
    a = as_polygon(kind, f, off)
    b = as_polygon(other_kind, g, other_off)
    turns = 2 if globe else 0
    for k in range(-turns, turns + 1):
        if _polygons_meet(a, b, 360.0 * k):
            return True
    return False


@kernel
def shapes_distance(kind, f, off, other_kind, g, other_off, globe):
    """The distance between two shapes (not circles), 0 where they meet.

    On the globe in the azimuthal equidistant projection at the first one's centroid, with
    edges cut to at most 1° first.
    """
    if _places_meet(kind, f, off, other_kind, g, other_off, globe):
        return 0.0
    a = as_polygon(kind, f, off)
    b = as_polygon(other_kind, g, other_off)
    if globe:
        lon0, lat0 = centroid(a)
        a = project(segmentized(a), lon0, lat0)
        b = project(segmentized(b), lon0, lat0)
    return _borders_distance(a, b, globe)


@kernel
def shapes_meet(kind, f, off, other_kind, g, other_off, globe):
    """Whether a region and an event's location share a point."""
    if other_kind == POINT:
        return point_in_shape(kind, f, off, g[other_off], g[other_off + 1], globe)
    if kind == CIRCLE:  # its first two floats are its centre
        return shapes_distance(POINT, f, off, other_kind, g, other_off, globe) <= f[off + 2]
    if kind == PLACED:
        return _placed_meets(f, off, as_polygon(other_kind, g, other_off), globe)
    return _places_meet(kind, f, off, other_kind, g, other_off, globe)


@kernel
def placed_distance(f, off, other_kind, g, other_off, globe):
    """The distance between the shape of somebody and a place, on their map; 0 where they meet."""
    if shapes_meet(PLACED, f, off, other_kind, g, other_off, globe):
        return 0.0
    b = as_polygon(other_kind, g, other_off)
    return _borders_distance(as_polygon(POLYGON, f, off + 3), _on_map(b, f, off, globe), globe)


@kernel
def shapes_cover(kinds, f, offsets, other_kind, g, other_off, globe):
    """Whether boxes and polygons, all together, hold every point of an event's location."""
    if other_kind == POINT:
        for i in range(len(kinds)):
            if point_in_shape(kinds[i], f, offsets[i], g[other_off], g[other_off + 1], globe):
                return True
        return False
    b = as_polygon(other_kind, g, other_off)
    xmin, ymin, xmax, ymax = bounds(b)
    turns = 2 if globe else 0
    near = [b]  # a list has to know what it is made of
    near.clear()
    for i in range(len(kinds)):
        a = as_polygon(kinds[i], f, offsets[i])
        west, south, east, north = bounds(a)
        for k in range(-turns, turns + 1):
            turn = 360.0 * k
            if west + turn <= xmax and xmin <= east + turn and south <= ymax and ymin <= north:
                turned = a.copy()
                turned[1 + int(a[0]) :: 2] += turn
                near.append(turned)
    return len(near) > 0 and _covered(b, near)


@kernel
def shape_covers(kind, f, off, other_kind, g, other_off, globe):
    """Whether every point of an event's location lies in a box or polygon."""
    if other_kind == POINT:
        return point_in_shape(kind, f, off, g[other_off], g[other_off + 1], globe)
    kinds = np.full(1, kind)
    return shapes_cover(kinds, f, np.full(1, off), other_kind, g, other_off, globe)


@kernel
def square_bounds(x, y, radius):
    """The square round a circle on a plane, a little larger than rounding can reach."""
    reach = radius + 1e-12 * (radius + abs(x) + abs(y))
    return x - reach, y - reach, x + reach, y + reach


@brief_kernel
def cap_bounds(lon, lat, radius_m):
    """Longitudes and latitudes of a cap of the globe; all longitudes where it holds a pole."""
    angle = radius_m / EARTH_RADIUS_M
    slack = 1e-9 + 1e-12 * abs(lon)
    reach = math.degrees(angle) * (1 + 1e-12) + slack
    south, north = lat - reach, lat + reach
    if south <= -90.0 or north >= 90.0 or angle >= math.pi / 2:
        return -180.0, max(south, -90.0), 180.0, min(north, 90.0)
    ratio = math.sin(angle) / math.cos(math.radians(lat))
    if ratio >= 1.0:
        return -180.0, south, 180.0, north
    width = math.degrees(math.asin(ratio)) * (1 + 1e-9) + slack
    return lon - width, south, lon + width, north


@kernel
def bounds_many(circles, globe):
    """The boxes of many circles, one row each."""
    out = np.empty((len(circles), 4))
    for i in range(len(circles)):
        x, y, radius = circles[i, 0], circles[i, 1], circles[i, 2]
        box = cap_bounds(x, y, radius) if globe else square_bounds(x, y, radius)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = box
    return out
