"""Safe and impact regions on a grid of square cells, grown cell by cell (Elaps §3.4, §3.5).

All of it happens on a flat map (`nearcast.mobility.plane`). A grid has its corner at
(x0, y0), cells of side `cell`, `columns` × `rows` of them; cell number = row · columns +
column. Obstacles are events to keep away from: x, y and how far (`reach`); of extended ones
the edges are *bars* (ax, ay, bx, by, reach), and the inside is marked on its own.
"""

from __future__ import annotations

import math

import numpy as np

from nearcast.jit import brief_kernel, kernel
from nearcast.kernels.geometry import (
    EARTH_RADIUS_M,
    POINT,
    POLYGON,
    _edges,
    point_in_polygon,
    segment_distance,
    shapes_distance,
)
from nearcast.kernels.sorting import sort

FREE, PARTLY, UNSAFE = 0, 1, 2
#: By how much one size is larger than another that `best_shape` tries.
_STEP, _FOUR_STEPS = 1.15, 1.15**4


@kernel
def _gap(v, low, high):
    """How far v lies outside of low … high."""
    if v < low:
        return low - v
    if v > high:
        return v - high
    return 0.0


@kernel
def _column_of(v, origin, cell, count):
    """The column or row of a coordinate, moved to the nearest one of the grid."""
    at = math.floor((v - origin) / cell)
    if not at > 0:
        return 0
    return count - 1 if at >= count else int(at)


@kernel
def mark(x0, y0, cell, columns, rows, x, y, reach, discs):
    """What each cell is: FREE, PARTLY within reach of an obstacle, or UNSAFE.

    The first `discs` obstacles are tested by the client itself, so cells that they cover
    in part stay usable; a cell that meets any other obstacle is UNSAFE.
    """
    state = np.zeros(columns * rows, np.uint8)
    for i in range(x.size):
        ox, oy, far = x[i], y[i], reach[i]
        square = far * far
        first, last = (
            _column_of(ox - far, x0, cell, columns),
            _column_of(ox + far, x0, cell, columns),
        )
        low, high = _column_of(oy - far, y0, cell, rows), _column_of(oy + far, y0, cell, rows)
        for row in range(low, high + 1):
            bottom = y0 + row * cell
            dy = _gap(oy, bottom, bottom + cell)
            far_y = max(abs(oy - bottom), abs(oy - bottom - cell))
            for column in range(first, last + 1):
                left = x0 + column * cell
                dx = _gap(ox, left, left + cell)
                if dx * dx + dy * dy > square:
                    continue
                at = row * columns + column
                if i >= discs:
                    state[at] = UNSAFE
                    continue
                far_x = max(abs(ox - left), abs(ox - left - cell))
                if far_x * far_x + far_y * far_y <= square:
                    state[at] = UNSAFE
                elif state[at] == FREE:
                    state[at] = PARTLY
    return state


@kernel
def _bar_gap(ax, ay, bx, by, left, bottom, cell):
    """The distance between a segment and a square cell; 0 where they meet."""
    low, high = 0.0, 1.0  # the part of the segment between the cell's sides, if any
    for k in range(2):
        start, end = (ax, bx) if k == 0 else (ay, by)
        near = left if k == 0 else bottom
        step = end - start
        if step == 0.0:
            if start < near or start > near + cell:
                high = -1.0
            continue
        first, last = (near - start) / step, (near + cell - start) / step
        low, high = max(low, min(first, last)), min(high, max(first, last))
    if low <= high:
        return 0.0
    best = min(
        math.hypot(_gap(ax, left, left + cell), _gap(ay, bottom, bottom + cell)),
        math.hypot(_gap(bx, left, left + cell), _gap(by, bottom, bottom + cell)),
    )
    for k in range(4):
        x, y = left + (k & 1) * cell, bottom + (k >> 1) * cell
        best = min(best, segment_distance(x, y, ax, ay, bx, by))
    return best


@kernel
def mark_bars(x0, y0, cell, columns, rows, bars, tested, solid, state):
    """Mark cells within reach of bars, as `mark` does.

    The client tests the first `tested` bars. If they are not `solid` but the edges of something,
    it tests no inside: where a bar reaches less far than a cell is long, a cell that it meets may
    hold some of it.
    """
    for i in range(len(bars)):
        ax, ay, bx, by, far = bars[i, 0], bars[i, 1], bars[i, 2], bars[i, 3], bars[i, 4]
        exactly = i < tested and (solid or far >= 1.4143 * cell)
        first = _column_of(min(ax, bx) - far, x0, cell, columns)
        last = _column_of(max(ax, bx) + far, x0, cell, columns)
        low = _column_of(min(ay, by) - far, y0, cell, rows)
        high = _column_of(max(ay, by) + far, y0, cell, rows)
        for row in range(low, high + 1):
            bottom = y0 + row * cell
            for column in range(first, last + 1):
                at = row * columns + column
                left = x0 + column * cell
                if state[at] == UNSAFE or _bar_gap(ax, ay, bx, by, left, bottom, cell) > far:
                    continue
                covered = True
                for k in range(4):
                    x, y = left + (k & 1) * cell, bottom + (k >> 1) * cell
                    covered = covered and segment_distance(x, y, ax, ay, bx, by) <= far
                state[at] = UNSAFE if covered or not exactly else PARTLY


@kernel
def mark_inside(x0, y0, cell, columns, rows, polygon, state):
    """Mark cells whose middle lies in a polygon UNSAFE: all others are crossed by its edges."""
    rings = int(polygon[0])
    total = (polygon.size - 1 - rings) // 2
    cross = np.empty(total)
    for row in range(rows):
        y = y0 + (row + 0.5) * cell
        at, count = 1 + rings, 0
        for r in range(rings):
            n = int(polygon[1 + r])
            for i in range(n):
                j = i + 1 if i + 1 < n else 0
                ax, ay = polygon[at + 2 * i], polygon[at + 2 * i + 1]
                bx, by = polygon[at + 2 * j], polygon[at + 2 * j + 1]
                if (ay > y) != (by > y):
                    cross[count] = ax + (y - ay) / (by - ay) * (bx - ax)
                    count += 1
            at += 2 * n
        spans = cross[:count].copy()
        sort(spans)
        for k in range(0, count - 1, 2):
            first = _column_of(spans[k] - cell / 2, x0, cell, columns)
            last = _column_of(spans[k + 1] + cell / 2, x0, cell, columns)
            for column in range(first, last + 1):
                if spans[k] <= x0 + (column + 0.5) * cell <= spans[k + 1]:
                    state[row * columns + column] = UNSAFE


@kernel
def bar_gaps(bars, x, y):
    """How far a place is from the reach of each bar."""
    out = np.empty(len(bars))
    for i in range(len(bars)):
        out[i] = segment_distance(x, y, bars[i, 0], bars[i, 1], bars[i, 2], bars[i, 3]) - bars[i, 4]
    return out


@kernel
def polygon_gaps(polygon, x, y):
    """How far places are from a polygon; 0 inside."""
    edges = _edges(polygon)
    out = np.zeros(x.size)
    for i in range(x.size):
        if point_in_polygon(polygon, 0, x[i], y[i]):
            continue
        out[i] = np.inf
        for e in edges:
            out[i] = min(out[i], segment_distance(x[i], y[i], e[0], e[1], e[2], e[3]))
    return out


@kernel
def touched_bars(x0, y0, cell, columns, rows, safe, bars):
    """Which bars come within reach of some chosen cell."""
    chosen = np.zeros(columns * rows, np.bool_)
    for at in safe:
        chosen[at] = True
    out = np.zeros(len(bars), np.bool_)
    for i in range(len(bars)):
        ax, ay, bx, by, far = bars[i, 0], bars[i, 1], bars[i, 2], bars[i, 3], bars[i, 4]
        first = _column_of(min(ax, bx) - far, x0, cell, columns)
        last = _column_of(max(ax, bx) + far, x0, cell, columns)
        low = _column_of(min(ay, by) - far, y0, cell, rows)
        high = _column_of(max(ay, by) + far, y0, cell, rows)
        for row in range(low, high + 1):
            for column in range(first, last + 1):
                if out[i] or not chosen[row * columns + column]:
                    continue
                left, bottom = x0 + column * cell, y0 + row * cell
                out[i] = _bar_gap(ax, ay, bx, by, left, bottom, cell) <= far
    return out


@kernel
def shape_gap(polygon, x, y, globe):
    """The distance from a place to a box or polygon, 0 inside: by the definition of a match."""
    place = np.array([x, y])
    return shapes_distance(POINT, place, 0, POLYGON, polygon, 0, globe)


@kernel
def stamp_of(reach, cell):
    """Half-widths, row by row, of the cells that a cell's neighbourhood of `reach` meets."""
    high = math.floor(reach / cell) + 1
    half = np.empty(2 * high + 1, np.int64)
    for k in range(-high, high + 1):
        dy = max(abs(k) - 1, 0) * cell
        rest = reach * reach - dy * dy
        half[k + high] = -1 if rest < 0.0 else math.floor(math.sqrt(rest) / cell) + 1
    return half


@kernel
def both_ways(half):
    """A stamp as rows (first, last): the columns that a cell's neighbourhood meets."""
    stamp = np.empty((half.size, 2), np.int64)
    for k in range(half.size):
        stamp[k, 0], stamp[k, 1] = (-half[k], half[k]) if half[k] >= 0 else (1, 0)
    return stamp


@kernel
def add_bars(stamp, bars, cell):
    """Add to a stamp the cells that bars about any place of a cell meet."""
    high = len(stamp) // 2
    for i in range(len(bars)):
        ax, ay, bx, by, far = bars[i, 0], bars[i, 1], bars[i, 2], bars[i, 3], bars[i, 4]
        west = max(math.floor((min(ax, bx) - far) / cell) - 1, -high)
        east = min(math.ceil((max(ax, bx) + far) / cell) + 1, high)
        south = max(math.floor((min(ay, by) - far) / cell) - 1, -high)
        north = min(math.ceil((max(ay, by) + far) / cell) + 1, high)
        for row in range(south, north + 1):
            for column in range(west, east + 1):
                left, bottom = (column - 1) * cell, (row - 1) * cell
                if _bar_gap(ax, ay, bx, by, left, bottom, 2 * cell) > far * (1 + 1e-9):
                    continue
                first, last = stamp[row + high, 0], stamp[row + high, 1]
                stamp[row + high, 0] = column if first > last else min(first, column)
                stamp[row + high, 1] = column if first > last else max(last, column)


@kernel
def extra_rate(size, eccentricity, speed, arrivals, deliveries, cosine, weight, rim=0.0):
    """Messages a second that deliver nothing, for a region of this size.

    A region lasts until its subscriber leaves it (after T), an event arrives in its impact
    region (rate `arrivals`) or something is delivered (rate `deliveries`, which costs nothing
    extra). Headings turn by angles of known `cosine` with known `weight`; the border lies at
    size / (1 − eccentricity · cosine), or, where that is made of cells of twice the `rim`, as much
    nearer, but not within the first one.
    """
    if speed <= 0.0:
        return arrivals
    total = arrivals + deliveries
    cost, length = 0.0, 0.0
    for k in range(cosine.size):
        stay = max(size / (1.0 - eccentricity * cosine[k]) - rim, rim) / speed
        x = total * stay
        gone = -math.expm1(-x)
        lasting = stay if x < 1e-9 else gone / total
        cost += weight[k] * ((1.0 - gone) + arrivals * lasting)
        length += weight[k] * lasting
    return cost / length if length > 0.0 else np.inf


@kernel
def _cost_of(e, size, speed, density, radius, deliveries, cosine, weight):
    """`extra_rate` of an ellipse with the subscriber in a focus, for events spread evenly."""
    long, short = size / (1.0 - e * e), size / math.sqrt(1.0 - e * e)
    around = math.pi * (3 * (long + short) - math.sqrt((3 * long + short) * (long + 3 * short)))
    area = math.pi * long * short + around * radius + math.pi * radius * radius
    return extra_rate(size, e, speed, density * area, deliveries, cosine, weight)


@brief_kernel
def best_shape(
    speed, density, radius, deliveries, cosine, weight, eccentricities, smallest, largest
):
    """The eccentricity and the size with the fewest extra messages, for events spread evenly.

    The region is an ellipse with the subscriber in one focus, longer ahead than behind. Sizes grow
    by 15 %; as costs mostly fall to one valley and rise from there, every fourth is looked at and
    then those about the best, of eccentricities that may still win.
    """
    best, best_e, best_size = np.inf, 0.0, smallest
    for e in eccentricities:
        least, at, size = np.inf, smallest, smallest
        while size <= largest:
            cost = _cost_of(e, size, speed, density, radius, deliveries, cosine, weight)
            if cost < least:
                least, at = cost, size
            size *= _FOUR_STEPS
        if least > 1.4 * best:
            continue
        if least < best:
            best, best_e, best_size = least, e, at
        size = at / _FOUR_STEPS * _STEP
        for _ in range(7):
            if size > smallest and size < largest:
                cost = _cost_of(e, size, speed, density, radius, deliveries, cosine, weight)
                if cost < best:
                    best, best_e, best_size = cost, e, size
            size *= _STEP
    return best_e, best_size, best


@kernel
def _sift_up(key, item, at):
    k, v = key[at], item[at]
    while at > 0:
        up = (at - 1) >> 1
        if key[up] <= k:
            break
        key[at], item[at] = key[up], item[up]
        at = up
    key[at], item[at] = k, v


@kernel
def _pop(key, item, size):
    """Move the least entry to the end of the heap's `size` entries."""
    size -= 1
    k, v = key[size], item[size]
    key[size], item[size] = key[0], item[0]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and key[child + 1] < key[child]:
            child += 1
        if key[child] >= k:
            break
        key[at], item[at] = key[child], item[child]
        at = child
    if size > 0:
        key[at], item[at] = k, v


@kernel
def _add_impact(cell_at, columns, stamp, inside, impact, found, chosen, rate):
    """Add what a new safe cell brings to the impact region; returns its size and its rate.

    Next to a cell that is safe already only the far ends of the stamp's rows are new.
    """
    row, column = cell_at // columns, cell_at % columns
    high = len(stamp) // 2
    left = column > 0 and chosen[cell_at - 1]
    right = column + 1 < columns and chosen[cell_at + 1]
    more = 0.0
    for k in range(len(stamp)):
        low, far = stamp[k, 0], stamp[k, 1]
        if low > far:
            continue
        base = (row + k - high) * columns + column
        first = base + far if left else base + low
        last = base + low if right else base + far
        at = first
        while at <= last:
            if not inside[at]:
                inside[at] = True
                impact[found] = at
                found += 1
                more += rate[at]
            at += 1
    return found, more


@kernel
def grow(
    x0, y0, cell, columns, rows, px, py, state, stamp, rate, score_kind, ahead_x, ahead_y, bend,
    radius, speed, deliveries, cosine, weight, beta, limit_x, limit_y, limit, most,
):  # fmt: skip
    """Grow a safe region and its impact region from the cell of (px, py), best cell first.

    `score_kind` 0 is the distance (iGM), 1 the paper's Eq. 8 with α = `bend` (idGM), 2 a
    conic of eccentricity `bend` (disc). `rate` is the arrival rate of matching events in each
    cell, `stamp` the impact region of one cell (`both_ways`). `beta` > 0 stops at the first
    b_m > beta, `beta` = 0 at b_m > (d + r)/(2 d); `beta` < 0 keeps the prefix with the fewest
    extra messages. Cells farther than `limit` from (limit_x,
    limit_y) are not known: meeting one ends the growth.

    Returns the safe cells, the impact cells, and whether the limit ended it.
    """
    size = columns * rows
    margin = len(stamp) // 2 + 1
    chosen = np.zeros(size, np.bool_)
    seen = np.zeros(size, np.bool_)
    inside = np.zeros(size, np.bool_)
    safe = np.empty(size, np.int32)
    impact = np.empty(size, np.int32)
    key = np.empty(size, np.float64)
    item = np.empty(size, np.int32)
    held, count, found = 0, 0, 0
    arrivals = 0.0
    best, best_count, best_found = np.inf, 0, 0
    at_limit = False
    at = math.floor((px - x0) / cell) + math.floor((py - y0) / cell) * columns
    key[0], item[0] = 0.0, at
    held = 1
    seen[at] = True
    checked = -1.0
    while held > 0:
        score = key[0]
        _pop(key, item, held)
        held -= 1
        at = item[held]
        row, column = at // columns, at % columns
        cx, cy = x0 + (column + 0.5) * cell, y0 + (row + 0.5) * cell
        edge = row < margin or column < margin or row >= rows - margin or column >= columns - margin
        if edge or math.hypot(cx - limit_x, cy - limit_y) > limit:
            at_limit = True
            break
        if state[at] == UNSAFE:
            continue
        fresh, more = _add_impact(at, columns, stamp, inside, impact, found, chosen, rate)
        nearest = np.inf
        for k in range(4):
            dx, dy = (1, 0) if k == 0 else (-1, 0) if k == 1 else (0, 1) if k == 2 else (0, -1)
            near = at + dx + dy * columns
            if seen[near]:
                continue
            nx, ny = cx + dx * cell - px, cy + dy * cell - py
            centre = math.hypot(nx, ny)
            cosine_to = (nx * ahead_x + ny * ahead_y) / centre if centre > 0.0 else 1.0
            gap = math.hypot(max(abs(nx) - cell / 2, 0.0), max(abs(ny) - cell / 2, 0.0))
            nearest = min(nearest, gap)
            if score_kind == 0:
                mark_at = gap
            elif score_kind == 1:
                mark_at = bend * (1.0 - cosine_to) / 2.0 + (1.0 - bend) * gap / (10.0 * radius)
            else:
                mark_at = centre * (1.0 - bend * cosine_to)
            key[held], item[held] = mark_at, near
            _sift_up(key, item, held)
            held += 1
            seen[near] = True
        if beta >= 0.0:
            top = nearest
            if held > 0:
                other = item[0]
                nx = abs(x0 + (other % columns + 0.5) * cell - px)
                ny = abs(y0 + (other // columns + 0.5) * cell - py)
                top = min(top, math.hypot(max(nx - cell / 2, 0.0), max(ny - cell / 2, 0.0)))
            border = top / (1.0 - bend) if score_kind == 2 and top < np.inf else top
            stay = border / speed if speed > 0.0 else np.inf
            want = (
                beta if beta > 0.0 else (border + radius) / (2.0 * border) if border > 0.0 else 1.0
            )
            balance = stay * (arrivals + more) if arrivals + more > 0.0 else 0.0
            if balance > want and count > 0 and border > 0.0:
                for k in range(found, fresh):
                    inside[impact[k]] = False
                break
        chosen[at] = True
        safe[count] = at
        count += 1
        found = fresh
        arrivals += more
        best_count, best_found = (count, found) if beta >= 0.0 else (best_count, best_found)
        if beta < 0.0 and (held == 0 or key[0] >= checked + cell / 4 or count == 1):
            checked = max(score, checked)
            border = key[0] if held > 0 else np.inf
            cost = arrivals
            if border < np.inf:
                cost = extra_rate(
                    border, bend, speed, arrivals, deliveries, cosine, weight, cell / 2
                )
            if cost <= best:
                best, best_count, best_found = cost, count, found
            elif arrivals > 1.5 * best and count > 8:
                break
        if count >= most:
            break
    # Where the best prefix lies well inside of what is known, knowing more is of no use.
    at_limit = at_limit and (beta >= 0.0 or best_count > 0.95 * count)
    return safe[:best_count].copy(), impact[:best_found].copy(), at_limit


@kernel
def dilate(columns, rows, safe, half):
    """The cells of the impact region of any set of safe cells."""
    size = columns * rows
    high = half.size // 2
    gap = np.empty(size, np.int32)  # to the nearest safe cell in the same row
    far = columns + rows
    for row in range(rows):
        base = row * columns
        run = far
        for column in range(columns):
            run = 0 if safe[base + column] else run + 1
            gap[base + column] = run
        run = far
        for column in range(columns - 1, -1, -1):
            run = 0 if safe[base + column] else run + 1
            if run < gap[base + column]:
                gap[base + column] = run
    out = np.zeros(size, np.bool_)
    for row in range(rows):
        for k in range(-high, high + 1):
            other = row + k
            w = half[k + high]
            if w < 0 or other < 0 or other >= rows:
                continue
            base, from_ = row * columns, other * columns
            for column in range(columns):
                if gap[from_ + column] <= w:
                    out[base + column] = True
    return out


@kernel
def z_runs(columns, cells):
    """Cells as runs in z-order, numbered from the corner of their bounding box.

    Bit 2k of a number is from the column, bit 2k + 1 from the row. Returns the box's first
    column and row, its longer side, and where runs start and stop.
    """
    left, right, low, high = columns, 0, cells[0] // columns, 0
    for at in cells:
        row, column = at // columns, at % columns
        left, right = min(left, column), max(right, column)
        low, high = min(low, row), max(high, row)
    side = max(right - left, high - low) + 1
    code = np.empty(cells.size, np.int64)
    for i in range(cells.size):
        column, row = cells[i] % columns - left, cells[i] // columns - low
        z = 0
        for k in range(16):
            z |= ((column >> k) & 1) << (2 * k)
            z |= ((row >> k) & 1) << (2 * k + 1)
        code[i] = z
    sort(code)
    starts, stops = np.empty(code.size, np.int64), np.empty(code.size, np.int64)
    runs = 0
    for i in range(code.size):
        if i == 0 or code[i] > stops[runs - 1]:
            starts[runs] = code[i]
            runs += 1
        stops[runs - 1] = code[i] + 1
    return left, low, side, starts[:runs].copy(), stops[:runs].copy()


@kernel
def framed(columns, cells):
    """Numbers of cells as a bitmap of their bounding box: its first column and row, and rows."""
    if cells.size == 0:
        return np.int64(0), np.int64(0), np.zeros((0, 0), np.bool_)
    least, most = np.int64(cells[0]), np.int64(cells[0])
    for at in cells:
        least, most = min(least, np.int64(at)), max(most, np.int64(at))
    low, rows = least // columns, most // columns - least // columns + 1
    whole = np.zeros((rows, columns), np.bool_)
    flat = whole.ravel()  # a division for each cell would take longer than all
    for at in cells:
        flat[at - low * columns] = True
    left, right = np.int64(columns), np.int64(-1)
    for row in range(rows):
        at = 0
        while at < left and not whole[row, at]:
            at += 1
        left = at
        at = columns - 1
        while at > right and not whole[row, at]:
            at -= 1
        right = at
    box = whole[:, left : right + 1].copy()
    return left, low, box


@kernel
def place_of(x0, sin0, cos0, u, v):
    """The place on the globe of a point of a map centred there (`Plane.from_map`)."""
    rho = math.hypot(u, v)
    angle = rho / EARTH_RADIUS_M
    sinc = math.sin(angle) / rho if rho > 0.0 else 1 / EARTH_RADIUS_M
    up = math.cos(angle) * sin0 + v * sinc * cos0
    east, on = u * sinc, cos0 * math.cos(angle) - sin0 * v * sinc
    x = (x0 + math.degrees(math.atan2(east, on)) + 180.0) % 360.0 - 180.0
    return x, math.degrees(math.atan2(up, math.hypot(east, on)))


@kernel
def places_of(x0, sin0, cos0, u, v):
    """The same for many."""
    x, y = np.empty(u.size), np.empty(u.size)
    for i in range(u.size):
        x[i], y[i] = place_of(x0, sin0, cos0, u[i], v[i])
    return x, y


@kernel
def map_point(x0, sin0, cos0, x, y):
    """The point of a map of the globe at which a place lies (`Plane.to_map_many`)."""
    turn, phi = math.radians(x - x0), math.radians(y)
    sin, cos = math.sin(phi), math.cos(phi)
    east, north = cos * math.sin(turn), cos0 * sin - sin0 * cos * math.cos(turn)
    s = math.hypot(east, north)
    angle = math.atan2(s, sin0 * sin + cos0 * cos * math.cos(turn))
    scale = EARTH_RADIUS_M * (angle / s if s > 0.0 else 1.0)
    return scale * east, scale * north


@kernel
def slot_of(x, y, unit, bound, last):
    """The slot of a hashed lattice of this unit in which a place lies, 0 … last."""
    column = np.int64(math.floor(min(max(x / unit, -bound), bound)))
    row = np.int64(math.floor(min(max(y / unit, -bound), bound)))
    mixed = column * 73_856_093 ^ row * 19_349_663
    return (mixed ^ (mixed >> 17)) & last


@kernel
def slots_of(x, y, unit, bound, last):
    """The same for many."""
    slots = np.empty(x.size, np.int64)
    for i in range(x.size):
        slots[i] = slot_of(x[i], y[i], unit, bound, last)
    return slots


@brief_kernel
def density_at(field, x, y):
    """Arrivals per second and unit of area at a place (`statistics.Field`)."""
    if field.total <= 0.0:
        return 0.0
    area = field.area * (max(math.cos(math.radians(y)), 0.01) if field.globe else 1.0)
    slot = slot_of(x, y, field.unit, field.bound, field.counts.size - 1)
    return field.rate * ((field.counts[slot] + field.blur) / (field.total * 1.02) / area)


@brief_kernel
def mean_count(count, unit, bound, x, y, across, up, spread):
    """The mean count of a lattice's cells at some places about a place."""
    found = 0.0
    for k in range(len(spread)):
        at_x, at_y = x + across * spread[k, 0], y + up * spread[k, 1]
        found += count[slot_of(at_x, at_y, unit, bound, count.size - 1)]
    return found / len(spread)


@kernel
def raster_rates(x0, y0, cell, columns, rows, left, bottom, block, across, up, density):
    """The rate of each cell, from a coarse raster of densities (per unit of area)."""
    rate = np.empty(columns * rows)
    area = cell * cell
    block_of = np.empty(columns, np.int64)  # a division for each cell would take longer than all
    for column in range(columns):
        block_of[column] = _column_of(x0 + (column + 0.5) * cell, left, block, across)
    for row in range(rows):
        j = _column_of(y0 + (row + 0.5) * cell, bottom, block, up)
        for column in range(columns):
            rate[row * columns + column] = area * density[j * across + block_of[column]]
    return rate


@kernel
def touched(x0, y0, cell, columns, rows, safe, x, y, reach):
    """Which obstacles come within reach of some chosen cell."""
    chosen = np.zeros(columns * rows, np.bool_)
    for at in safe:
        chosen[at] = True
    out = np.zeros(x.size, np.bool_)
    for i in range(x.size):
        ox, oy, far = x[i], y[i], reach[i]
        first, last = (
            _column_of(ox - far, x0, cell, columns),
            _column_of(ox + far, x0, cell, columns),
        )
        low, high = _column_of(oy - far, y0, cell, rows), _column_of(oy + far, y0, cell, rows)
        for row in range(low, high + 1):
            if out[i]:
                break
            bottom = y0 + row * cell
            dy = _gap(oy, bottom, bottom + cell)
            for column in range(first, last + 1):
                if not chosen[row * columns + column]:
                    continue
                left = x0 + column * cell
                dx = _gap(ox, left, left + cell)
                if dx * dx + dy * dy <= far * far:
                    out[i] = True
                    break
    return out


@kernel
def clip_cell(planes, side):
    """A square of ± side cut by half-planes a·u + b·v ≤ c: corners, and whose edge follows each.

    The owner of an edge is the number of its half-plane, or −1 for the square's own.
    """
    corner = np.array([[-side, -side], [side, -side], [side, side], [-side, side]])
    owner = np.full(4, -1, np.int64)
    for i in range(len(planes)):
        a, b, c = planes[i, 0], planes[i, 1], planes[i, 2]
        n = len(corner)
        worst = -np.inf
        for k in range(n):
            worst = max(worst, a * corner[k, 0] + b * corner[k, 1] - c)
        if worst <= 0.0 or n == 0 or (a == 0.0 and b == 0.0):
            continue
        cut = np.empty((n + 2, 2))
        whose = np.empty(n + 2, np.int64)
        m = 0
        for k in range(n):
            j = k + 1 if k + 1 < n else 0
            d = a * corner[k, 0] + b * corner[k, 1] - c
            e = a * corner[j, 0] + b * corner[j, 1] - c
            if d <= 0.0:
                cut[m] = corner[k]
                whose[m] = owner[k]
                m += 1
            if (d <= 0.0) != (e <= 0.0):
                t = d / (d - e)
                cut[m, 0] = corner[k, 0] + t * (corner[j, 0] - corner[k, 0])
                cut[m, 1] = corner[k, 1] + t * (corner[j, 1] - corner[k, 1])
                whose[m] = i if d <= 0.0 else owner[k]
                m += 1
        corner, owner = cut[:m].copy(), whose[:m].copy()
    return corner, owner


@kernel
def polygon_gap(corner, x, y):
    """The distance from a point to a convex polygon with corners counterclockwise; 0 inside."""
    n = len(corner)
    best = np.inf
    inside = n > 2
    for k in range(n):
        j = k + 1 if k + 1 < n else 0
        ax, ay, bx, by = corner[k, 0], corner[k, 1], corner[j, 0], corner[j, 1]
        dx, dy = bx - ax, by - ay
        if dx * (y - ay) - dy * (x - ax) < 0.0:
            inside = False
        square = dx * dx + dy * dy
        t = ((x - ax) * dx + (y - ay) * dy) / square if square > 0.0 else 0.0
        t = min(max(t, 0.0), 1.0)
        best = min(best, math.hypot(x - ax - t * dx, y - ay - t * dy))
    return 0.0 if inside else best


@kernel
def sphere_gap(corner, x, y, z):
    """The angle from a unit vector to a convex polygon of great circles; 0 inside."""
    n = len(corner)
    best = np.inf
    inside = n > 2
    for k in range(n):
        j = k + 1 if k + 1 < n else 0
        ax, ay, az = corner[k, 0], corner[k, 1], corner[k, 2]
        bx, by, bz = corner[j, 0], corner[j, 1], corner[j, 2]
        nx, ny, nz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
        length = math.sqrt(nx * nx + ny * ny + nz * nz)
        off = math.hypot(math.hypot(x - ax, y - ay), z - az)
        best = min(best, 2.0 * math.asin(min(1.0, off / 2.0)))
        if length < 1e-15:
            continue
        side = (nx * x + ny * y + nz * z) / length
        if side < 0.0:
            inside = False
        # the foot of the perpendicular lies between the ends if it is on the inner side of both
        fx, fy, fz = x - side * nx / length, y - side * ny / length, z - side * nz / length
        from_a = (ny * az - nz * ay) * fx + (nz * ax - nx * az) * fy + (nx * ay - ny * ax) * fz
        to_b = (by * nz - bz * ny) * fx + (bz * nx - bx * nz) * fy + (bx * ny - by * nx) * fz
        if from_a >= 0.0 and to_b >= 0.0:
            best = min(best, abs(math.asin(min(1.0, max(-1.0, side)))))
    return 0.0 if inside else best
