"""Compiled geometry of the detector: hulls, and unary location tests over many pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.geometry import (
    POINT,
    as_polygon,
    centroid,
    haversine_m,
    orient,
    point_in_shape,
    shape_covers,
    shapes_distance,
    shapes_meet,
)
from nearcast.kernels.region_grid import at_point
from nearcast.kernels.sorting import order_of, stable_order

# What a unary location subscription asks of a place.
HAPPEN_IN, OVERLAP, SAME_PLACE, NEARER, AT, FARTHER = 0, 1, 2, 3, 4, 5


@kernel
def convex_hull(points):
    """The vertices of the convex hull, anticlockwise from the lowest x; Andrew's monotone chain."""
    n = len(points)
    order = stable_order(points[:, 1].copy())
    order = order[stable_order(points[order, 0])]
    kept = np.empty(n, np.int64)
    m = 0
    for k in range(n):  # each place once
        i = order[k]
        if m and points[kept[m - 1], 0] == points[i, 0] and points[kept[m - 1], 1] == points[i, 1]:
            continue
        kept[m] = i
        m += 1
    if m < 3:
        return points[kept[:m]]
    hull = np.empty(2 * m, np.int64)
    size = 0
    for k in range(m):
        i = kept[k]
        while size >= 2 and _turn(points, hull[size - 2], hull[size - 1], i) <= 0:
            size -= 1
        hull[size] = i
        size += 1
    lower = size + 1
    for k in range(m - 2, -1, -1):
        i = kept[k]
        while size >= lower and _turn(points, hull[size - 2], hull[size - 1], i) <= 0:
            size -= 1
        hull[size] = i
        size += 1
    return points[hull[: size - 1]]


@kernel
def _turn(points, i, j, k):
    return orient(
        points[i, 0], points[i, 1], points[j, 0], points[j, 1], points[k, 0], points[k, 1]
    )


@kernel
def distance_of_point(kind, floats, off, x, y, globe):
    """The distance of a point from a region; the region comes first, as in `shapes_distance`."""
    if kind == POINT:
        if globe:
            return haversine_m(floats[off], floats[off + 1], x, y)
        dx, dy = x - floats[off], y - floats[off + 1]
        return np.sqrt(dx * dx + dy * dy)
    place = np.empty(2)
    place[0] = x
    place[1] = y
    return shapes_distance(kind, floats, off, POINT, place, 0, globe)


class RegionTests(NamedTuple):
    """Tests in rows: (op, kind of region, where its floats begin) and (limit, centre x, y)."""

    codes: Any
    numbers: Any
    floats: Any
    tolerance: float


OP, KIND, OFFSET = 0, 1, 2
LIMIT, CENTRE_X, CENTRE_Y = 0, 1, 2


@kernel
def point_passes(tests, row, x, y, globe):
    """Whether a point satisfies a unary location subscription."""
    op, kind, off = tests.codes[row, OP], tests.codes[row, KIND], tests.codes[row, OFFSET]
    if op == OVERLAP:
        return False  # what a point meets, it lies in
    if op == HAPPEN_IN:
        return point_in_shape(kind, tests.floats, off, x, y, globe)
    if op == SAME_PLACE:
        cx, cy = tests.numbers[row, CENTRE_X], tests.numbers[row, CENTRE_Y]
        return _apart(cx, cy, x, y, globe) <= tests.tolerance
    d = distance_of_point(kind, tests.floats, off, x, y, globe)
    return _far_enough(op, d, tests.numbers[row, LIMIT], tests.tolerance)


@kernel
def _apart(x1, y1, x2, y2, globe):
    """The distance of two points."""
    if globe:
        return haversine_m(x1, y1, x2, y2)
    dx, dy = x2 - x1, y2 - y1
    return np.sqrt(dx * dx + dy * dy)


@kernel
def _far_enough(op, distance, limit, tolerance):
    if op == NEARER:
        return distance < limit
    if op == FARTHER:
        return distance > limit
    return abs(distance - limit) <= tolerance


@kernel
def shape_passes(tests, row, kind, floats, globe):
    """Whether an extended place satisfies a unary location subscription."""
    op, own, off = tests.codes[row, OP], tests.codes[row, KIND], tests.codes[row, OFFSET]
    if op == HAPPEN_IN:
        return shape_covers(own, tests.floats, off, kind, floats, 0, globe)
    if op == OVERLAP:
        return shapes_overlap(own, tests.floats, off, kind, floats, 0, globe)
    if op == SAME_PLACE:
        cx, cy = tests.numbers[row, CENTRE_X], tests.numbers[row, CENTRE_Y]
        x, y = centre_of(kind, floats, 0)
        return _apart(cx, cy, x, y, globe) <= tests.tolerance
    d = shapes_distance(own, tests.floats, off, kind, floats, 0, globe)
    return _far_enough(op, d, tests.numbers[row, LIMIT], tests.tolerance)


@kernel
def shapes_overlap(kind, floats, off, kind2, floats2, off2, globe):
    """Whether two places share a point and neither lies in the other."""
    if not shapes_meet(kind, floats, off, kind2, floats2, off2, globe):
        return False
    if shape_covers(kind, floats, off, kind2, floats2, off2, globe):
        return False
    return not shape_covers(kind2, floats2, off2, kind, floats, off, globe)


@kernel
def centre_of(kind, floats, off):
    """The centre of gravity of a region."""
    return centroid(as_polygon(kind, floats, off))


@kernel
def scan_regions(tests, rows, xs, ys, globe):
    """The plain version: every position against every region. Pairs (position, row)."""
    positions = np.empty(1024, np.int32)
    regions = np.empty(1024, np.int32)
    found = 0
    for i in range(len(xs)):
        for j in rows:
            if point_passes(tests, j, xs[i], ys[i], globe):
                if found == len(positions):
                    positions = np.concatenate((positions, np.empty_like(positions)))
                    regions = np.concatenate((regions, np.empty_like(regions)))
                positions[found] = i
                regions[found] = j
                found += 1
    return positions[:found], regions[:found]


@kernel
def lookup_points(tests, grid, groups, xs, ys, globe):
    """The optimised version: only regions of the position's group whose cells it lies in."""
    positions = np.empty(1024, np.int32)
    regions = np.empty(1024, np.int32)
    near = np.empty(64, np.int32)
    found = 0
    for i in range(len(xs)):
        count, near = _near_point(grid, groups[i], xs[i], ys[i], near)
        for k in range(count):
            if point_passes(tests, near[k], xs[i], ys[i], globe):
                if found == len(positions):
                    positions = np.concatenate((positions, np.empty_like(positions)))
                    regions = np.concatenate((regions, np.empty_like(regions)))
                positions[found] = i
                regions[found] = near[k]
                found += 1
    return positions[:found], regions[:found]


@kernel
def lookup_point(tests, grid, group, x, y, globe):
    """The same for one position: the rows of regions."""
    count, near = _near_point(grid, group, x, y, np.empty(64, np.int32))
    found = 0
    for k in range(count):
        if point_passes(tests, near[k], x, y, globe):
            near[found] = near[k]
            found += 1
    return near[:found]


@kernel
def _near_point(grid, group, x, y, near):
    """(how many, which) rows of a group may want a point; the room for them grows."""
    if group < 0:
        return 0, near
    mask = grid.masks[group]
    count = at_point(grid.slots, grid.entries, mask, group, x, y, near)
    if count > len(near):
        near = np.empty(2 * count, np.int32)
        count = at_point(grid.slots, grid.entries, mask, group, x, y, near)
    return count, near


@kernel
def passed_by(tests, rows, kind, floats, globe):
    """Those of the rows whose test an extended place passes."""
    kept = np.empty(len(rows), np.int32)
    found = 0
    for row in rows:
        if shape_passes(tests, row, kind, floats, globe):
            kept[found] = row
            found += 1
    return kept[:found]


@kernel
def fill_grid(boxes, owners, grid):
    """Regions by cell: starts of cells, and the regions whose boxes reach in, each once."""
    columns, rows = int(grid[4]), int(grid[5])
    starts = np.zeros(columns * rows + 1, np.int64)
    last = np.full(columns * rows, -1, np.int64)
    for j in range(len(boxes)):
        x0, x1 = _cells(boxes[j, 0], boxes[j, 2], grid[0], grid[2], columns)
        y0, y1 = _cells(boxes[j, 1], boxes[j, 3], grid[1], grid[3], rows)
        for cy in range(y0, y1 + 1):
            for cx in range(x0, x1 + 1):
                c = cy * columns + cx
                if last[c] != owners[j]:
                    last[c] = owners[j]
                    starts[c + 1] += 1
    for c in range(columns * rows):
        starts[c + 1] += starts[c]
    regions = np.empty(starts[columns * rows], np.int32)
    fill = starts[:-1].copy()
    last[:] = -1
    for j in range(len(boxes)):
        x0, x1 = _cells(boxes[j, 0], boxes[j, 2], grid[0], grid[2], columns)
        y0, y1 = _cells(boxes[j, 1], boxes[j, 3], grid[1], grid[3], rows)
        for cy in range(y0, y1 + 1):
            for cx in range(x0, x1 + 1):
                c = cy * columns + cx
                if last[c] != owners[j]:
                    last[c] = owners[j]
                    regions[fill[c]] = owners[j]
                    fill[c] += 1
    return starts, regions


@kernel
def _cells(low, high, origin, width, count):
    """The cells that a side of a box reaches into, with slack for rounding."""
    first = int(np.floor((low - origin) / width - 1e-9))
    last = int(np.floor((high - origin) / width + 1e-9))
    return max(0, min(count - 1, first)), max(0, min(count - 1, last))


@kernel
def safe_rectangle(x, y, frame, boxes):
    """A rectangle round (x, y) inside `frame` that no box reaches into; empty if one holds it.

    Greedy, nearest boxes first: each box that reaches into the rectangle cuts it on the side
    that leaves the largest area with the position in it. Returns xmin, ymin, xmax, ymax; the
    position is safe strictly inside.
    """
    n = len(boxes)
    gaps = np.empty(n)
    for j in range(n):
        dx = max(boxes[j, 0] - x, max(0.0, x - boxes[j, 2]))
        dy = max(boxes[j, 1] - y, max(0.0, y - boxes[j, 3]))
        gaps[j] = dx * dx + dy * dy
    xmin, ymin, xmax, ymax = frame[0], frame[1], frame[2], frame[3]
    for j in order_of(gaps):
        a, b, c, d = boxes[j, 0], boxes[j, 1], boxes[j, 2], boxes[j, 3]
        if a >= xmax or c <= xmin or b >= ymax or d <= ymin:
            continue
        best = 0.0
        cut = -1
        if c < x:
            cut, best = 0, (xmax - c) * (ymax - ymin)
        if a > x and (a - xmin) * (ymax - ymin) > best:
            cut, best = 1, (a - xmin) * (ymax - ymin)
        if d < y and (xmax - xmin) * (ymax - d) > best:
            cut, best = 2, (xmax - xmin) * (ymax - d)
        if b > y and (xmax - xmin) * (b - ymin) > best:
            cut, best = 3, (xmax - xmin) * (b - ymin)
        if cut == 0:
            xmin = c
        elif cut == 1:
            xmax = a
        elif cut == 2:
            ymin = d
        elif cut == 3:
            ymax = b
        else:
            return x, y, x, y
    return xmin, ymin, xmax, ymax


@kernel
def quadrant_rectangle(x, y, frame, boxes):
    """`safe_rectangle` by quadrants and dominance, as Grus has it (Fig. 5).

    In each quadrant about the position, of the boxes' nearest corners those count that no other
    one dominates; between two of them in order stands the corner of a free rectangle (the tension
    points). Of each quadrant's corners the one is taken that leaves the largest area, one quadrant
    after the other. O(n log n).
    """
    n = len(boxes)
    reach = np.array([frame[2] - x, frame[3] - y, x - frame[0], y - frame[1]])
    near = np.empty((n, 2))
    for quadrant in range(4):
        across, up = 2 * (quadrant % 2), 1 + 2 * (quadrant // 2)
        count = 0
        for j in range(n):
            if across == 0:
                w, far_w = boxes[j, 0] - x, boxes[j, 2] - x
            else:
                w, far_w = x - boxes[j, 2], x - boxes[j, 0]
            if up == 1:
                h, far_h = boxes[j, 1] - y, boxes[j, 3] - y
            else:
                h, far_h = y - boxes[j, 3], y - boxes[j, 1]
            if far_w >= 0.0 and far_h >= 0.0:
                near[count, 0], near[count, 1] = max(w, 0.0), max(h, 0.0)
                count += 1
        best, best_w, best_h = 0.0, 0.0, 0.0
        lowest = np.inf
        beyond_w, beyond_h = reach[2 - across], reach[4 - up]
        order = order_of(near[:count, 0])
        for i in range(count + 1):
            corner_w = near[order[i], 0] if i < count else np.inf
            if i == count or near[order[i], 1] < lowest:
                w, h = min(corner_w, reach[across]), min(lowest, reach[up])
                area = (w + beyond_w) * (h + beyond_h)
                if w > 0.0 and h > 0.0 and area > best:
                    best, best_w, best_h = area, w, h
                if i < count:
                    lowest = near[order[i], 1]
        if best == 0.0:
            return x, y, x, y
        reach[across], reach[up] = best_w, best_h
    return x - reach[2], y - reach[3], x + reach[0], y + reach[1]


@kernel
def filter_positions(
    movers, xs, ys, matching, frame, columns, rows, starts, members, boxes, quadrants
):
    """Publishers that keep safe rectangles: which of their positions they send.

    `matching` marks positions that some region wants: a sent one of these needs no rectangle
    (the next position is sent, too). Returns a flag a position.
    """
    count = 0
    for i in range(len(movers)):
        count = max(count, movers[i] + 1)
    held = np.zeros((count, 4))
    sent = np.ones(len(xs), np.bool_)
    width, height = (frame[2] - frame[0]) / columns, (frame[3] - frame[1]) / rows
    cell = np.empty(4)
    for i in range(len(xs)):
        x, y, m = xs[i], ys[i], movers[i]
        if held[m, 0] < x < held[m, 2] and held[m, 1] < y < held[m, 3]:
            sent[i] = False
            continue
        cx = max(0, min(columns - 1, int((x - frame[0]) / width)))
        cy = max(0, min(rows - 1, int((y - frame[1]) / height)))
        if matching[i]:
            held[m, :] = 0.0
            continue
        cell[0] = frame[0] + cx * width
        cell[1] = frame[1] + cy * height
        cell[2] = cell[0] + width
        cell[3] = cell[1] + height
        c = cy * columns + cx
        near = boxes[members[starts[c] : starts[c + 1]]]
        if quadrants:
            found = quadrant_rectangle(x, y, cell, near)
        else:
            found = safe_rectangle(x, y, cell, near)
        held[m, 0], held[m, 1], held[m, 2], held[m, 3] = found
    return sent
