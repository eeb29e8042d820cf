"""Exact geometry on encoded shapes.

A shape is a kind and a run of float64 at an offset of one array:

====== ======== ==========================================================
kind   name     floats
====== ======== ==========================================================
0      POINT    x, y
1      CIRCLE   x, y, radius
2      BOX      xmin, ymin, xmax, ymax (xmax may pass 180 on the globe)
3      POLYGON  number of rings, length of each ring, then x, y, x, y, …
====== ======== ==========================================================

Borders belong to shapes. Signs of orientations are exact: a float filter decides
nearly always, an exact expansion decides the rest (of numbers of any size, if those of
one place are 0 or within a factor of 1e150 of each other). On the globe, boxes and polygons
have straight edges in lon/lat and are tried with longitudes shifted by a full turn.
"""

from __future__ import annotations

import math

import numpy as np

from nearcast.jit import kernel

POINT, CIRCLE, BOX, POLYGON = 0, 1, 2, 3
EARTH_RADIUS_M = 6_371_008.8

# Shewchuk's bound for the float filter of a 2-D orientation: (3 + 16 ε) ε, ε = 2⁻⁵³.
_ORIENT_BOUND = (3.0 + 16.0 * 2.0**-53) * 2.0**-53
_LARGE, _SMALL = 1e140, 1e-100  # products of such numbers, and their errors, stay in float64
_SHRINK, _STRETCH = 2.0**-540, 2.0**540
_SPLITTER = 134217729.0  # 2²⁷ + 1, halves a float64 for an exact product


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
def _polygon_covers(a, b, shift):
    """Whether polygon a covers polygon b, moved by `shift`: every point of b is in a."""
    ea = _edges(a)
    eb = _edges(b)
    for j in range(len(eb)):
        x1, y1 = eb[j, 0] + shift, eb[j, 1]
        x2, y2 = eb[j, 2] + shift, eb[j, 3]
        if not point_in_polygon(a, 0, x1, y1):
            return False
        # Between two crossings with a's border an edge of b is wholly in a or wholly out:
        # the middles of all such pieces decide.
        cuts = np.empty(2 * len(ea) + 2)
        cuts[0] = 0.0
        cuts[1] = 1.0
        n = 2
        for i in range(len(ea)):
            n = _cut(ea[i], x1, y1, x2, y2, cuts, n)
        pieces = np.sort(cuts[:n])
        for k in range(n - 1):
            if pieces[k + 1] > pieces[k]:
                t = (pieces[k] + pieces[k + 1]) / 2
                px, py = x1 + t * (x2 - x1), y1 + t * (y2 - y1)
                if not _near_or_in(a, ea, px, py):
                    return False
    for r in range(1, int(a[0])):  # a hole of a strictly inside b leaves points uncovered
        at = 1 + int(a[0])
        for q in range(r):
            at += 2 * int(a[1 + q])
        hole = np.empty(2 + 2 * int(a[1 + r]))
        hole[0] = 1.0
        hole[1] = a[1 + r]
        for k in range(2 * int(a[1 + r])):
            hole[2 + k] = a[at + k]
        cx, cy = _inner_point(hole)
        if point_in_polygon(b, 0, cx - shift, cy):
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
def _near_or_in(a, ea, x, y):
    """Whether a computed (rounded) point is in a, or on its border up to rounding."""
    if point_in_polygon(a, 0, x, y):
        return True
    scale = max(1.0, abs(x), abs(y)) * 1e-12
    for i in range(len(ea)):
        if segment_distance(x, y, ea[i, 0], ea[i, 1], ea[i, 2], ea[i, 3]) <= scale:
            return True
    return False


@kernel
def _inner_point(ring):
    """A point strictly inside a simple ring: the middle of the widest span at a height
    between two vertices."""
    n = int(ring[1])
    ys = np.sort(ring[3 : 2 + 2 * n : 2].copy())
    best_x, best_y, best = ring[2], ring[3], -1.0
    for k in range(n - 1):
        if ys[k + 1] > ys[k]:
            y = (ys[k] + ys[k + 1]) / 2
            xs = np.empty(n)
            m = 0
            for i in range(n):
                j = i + 1 if i + 1 < n else 0
                ay, by = ring[3 + 2 * i], ring[3 + 2 * j]
                if (ay > y) != (by > y):
                    ax, bx = ring[2 + 2 * i], ring[2 + 2 * j]
                    xs[m] = ax + (y - ay) / (by - ay) * (bx - ax)
                    m += 1
            row = np.sort(xs[:m])
            for i in range(0, m - 1, 2):
                if row[i + 1] - row[i] > best:
                    best = row[i + 1] - row[i]
                    best_x, best_y = (row[i] + row[i + 1]) / 2, y
    return best_x, best_y


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
def polygon_distance(p, x, y):
    """Euclidean distance of a point from a polygon, 0 inside."""
    if point_in_polygon(p, 0, x, y):
        return 0.0
    edges = _edges(p)
    best = np.inf
    for i in range(len(edges)):
        d = segment_distance(x, y, edges[i, 0], edges[i, 1], edges[i, 2], edges[i, 3])
        best = min(best, d)
    return best


@kernel
def _corner_distance(p):
    """Distance of the nearest corner of a projected polygon from the projection's centre."""
    best = np.inf
    for i in range(1 + int(p[0]), len(p), 2):
        best = min(best, math.hypot(p[i], p[i + 1]))
    return best


@kernel
def project(p, lon0, lat0):
    """Polygon floats in the spherical azimuthal equidistant projection at (lon0, lat0)."""
    out = p.copy()
    start = 1 + int(p[0])
    phi0 = math.radians(lat0)
    s0, c0 = math.sin(phi0), math.cos(phi0)
    for i in range(start, len(p), 2):
        phi = math.radians(p[i + 1])
        lam = math.radians(p[i] - lon0)
        # The angle from the centre by the haversine: accurate where acos is not.
        s = math.sin((phi - phi0) / 2)
        t = math.sin(lam / 2)
        h = s * s + c0 * math.cos(phi) * t * t
        c = 2 * math.asin(min(1.0, math.sqrt(h)))
        east = math.cos(phi) * math.sin(lam)
        north = c0 * math.sin(phi) - s0 * math.cos(phi) * math.cos(lam)
        length = math.hypot(east, north)
        if length > 0.0:
            out[i] = EARTH_RADIUS_M * c * (east / length)
            out[i + 1] = EARTH_RADIUS_M * c * (north / length)
        else:  # the centre, or its antipode, which has no bearing
            out[i], out[i + 1] = 0.0, EARTH_RADIUS_M * c
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
def _projected_distance(a, b):
    """Euclidean distance between two projected polygons, 0 if they meet."""
    if _polygons_meet(a, b, 0.0):
        return 0.0
    ea = _edges(a)
    eb = _edges(b)
    best = np.inf
    for i in range(len(ea)):
        for j in range(len(eb)):
            best = min(
                best,
                segment_distance(ea[i, 0], ea[i, 1], eb[j, 0], eb[j, 1], eb[j, 2], eb[j, 3]),
                segment_distance(eb[j, 0], eb[j, 1], ea[i, 0], ea[i, 1], ea[i, 2], ea[i, 3]),
            )
    return best


@kernel
def point_in_shape(kind, f, off, x, y, globe):
    """Whether the point (x, y) lies in the shape at `off`."""
    if kind == CIRCLE:
        return within(f[off], f[off + 1], x, y, f[off + 2], globe)
    turns = 1 if globe else 0  # polygons reach 360° either way, points 180°
    for k in range(-turns, turns + 1):
        px = x + 360.0 * k
        if kind == BOX:
            if f[off] <= px <= f[off + 2] and f[off + 1] <= y <= f[off + 3]:
                return True
        elif kind == POLYGON:
            if point_in_polygon(f, off, px, y):
                return True
        elif f[off] == px and f[off + 1] == y:
            return True
    return False


@kernel
def _meets_cap(kind, g, off, lon, lat, radius_m):
    """Whether a box or polygon on the globe holds a point or comes within a distance of it.

    On the far side of the globe, with every corner beyond a quarter turn, a shape lies round
    the rim of the map: it may seem to hold the centre, and straight edges between its corners
    run through the middle of the map. So only its corners count then.
    """
    if point_in_shape(kind, g, off, lon, lat, True):
        return True
    p = project(as_polygon(kind, g, off), lon, lat)
    nearest = _corner_distance(p)
    if nearest <= EARTH_RADIUS_M * math.pi / 2:
        return polygon_distance(p, 0.0, 0.0) <= radius_m
    return nearest <= radius_m


@kernel
def shapes_meet(kind, f, off, other_kind, g, other_off, globe):
    """Whether a region and an event's location share a point."""
    if other_kind == POINT:
        return point_in_shape(kind, f, off, g[other_off], g[other_off + 1], globe)
    if kind == CIRCLE and globe:
        return _meets_cap(other_kind, g, other_off, f[off], f[off + 1], f[off + 2])
    b = as_polygon(other_kind, g, other_off)
    if kind == CIRCLE:
        return polygon_distance(b, f[off], f[off + 1]) <= f[off + 2]
    a = as_polygon(kind, f, off)
    turns = 2 if globe else 0
    for k in range(-turns, turns + 1):
        if _polygons_meet(a, b, 360.0 * k):
            return True
    return False


@kernel
def shape_covers(kind, f, off, other_kind, g, other_off, globe):
    """Whether every point of an event's location lies in a box or polygon."""
    if other_kind == POINT:
        return point_in_shape(kind, f, off, g[other_off], g[other_off + 1], globe)
    a = as_polygon(kind, f, off)
    b = as_polygon(other_kind, g, other_off)
    if globe and kind == BOX and f[off + 2] - f[off] >= 360.0:  # all the way round: no seam
        for i in range(2 + int(b[0]), b.size, 2):
            if not f[off + 1] <= b[i] <= f[off + 3]:
                return False
        return True
    turns = 2 if globe else 0
    for k in range(-turns, turns + 1):
        if _polygon_covers(a, b, 360.0 * k):
            return True
    return False


@kernel
def shapes_distance(kind, f, off, other_kind, g, other_off, globe):
    """The distance between two shapes (not circles); on the globe in the azimuthal
    equidistant projection at the first one's centroid."""
    a = as_polygon(kind, f, off)
    b = as_polygon(other_kind, g, other_off)
    if globe:
        lon0, lat0 = centroid(a)
        a = project(a, lon0, lat0)
        b = project(b, lon0, lat0)
    return _projected_distance(a, b)


@kernel
def square_bounds(x, y, radius):
    """The square round a circle on a plane, a little larger than rounding can reach."""
    reach = radius + 1e-12 * (radius + abs(x) + abs(y))
    return x - reach, y - reach, x + reach, y + reach


@kernel
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
