"""Regions in a quadtree: each in the largest cells it covers and the leaves it meets in part.

Inside, a region is its box in float32, rounded outward: 16 bytes a piece, and every
candidate is compared exactly in the end anyway.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.quadtree import BEYOND, DEEPEST, HALF, LEAF, NOWHERE, ROOT, UNUSED, X, Y
from nearcast.kernels.rows import clear, fill, grow, intervals_hold
from nearcast.kernels.runs import NO_RUN, capacity, class_for, give, take

#: Columns of `node`: tree, rows whose region covers the cell, rows that meet the leaf in
#: part, and the number of those from which on it is worth trying to split it.
CHILD, PARENT, COVER, COVERS, COVER_CLASS, PART, PARTS, PART_CLASS, LIMIT = range(9)
#: Entries of `state`: cells ever used, first free group of four; rows with a region, and
#: those of them that reach beyond the root although they are finite.
USED, FREE_QUADS, LOCATED, STRAY = range(4)
#: Entries of `need`.
NEED_COVERS, NEED_PARTS = range(2)
#: `place` of a row that is not here, and of one that is in the tree only.
ABSENT = -1
INSIDE = -2
#: A split must leave most regions in at most so many leaves, about.
PIECES = 8
STACK = 3 * DEEPEST + 8
SPARE_CELLS = 4 * DEEPEST


class Boxes(NamedTuple):
    """What kernels see."""

    state: np.ndarray
    need: np.ndarray
    node: np.ndarray
    geo: np.ndarray
    """A row a cell: the centre's x and y, half of the side."""
    cover_heap: np.ndarray
    cover_row: np.ndarray
    part_heap: np.ndarray
    part_row: np.ndarray
    part_box: np.ndarray
    """xmin, ymin, xmax, ymax of the whole region."""
    place: np.ndarray
    """By row: its number in the list of `NOWHERE` (no region) or `BEYOND` (not all of it
    within the root), which are kept beside the tree."""


# --- boxes ------------------------------------------------------------------------------------


@kernel
def _below(value):
    """The greatest float32 that is not above."""
    rounded = np.float32(value)
    return np.nextafter(rounded, np.float32(-np.inf)) if rounded > value else rounded


@kernel
def _above(value):
    """The least float32 that is not below."""
    rounded = np.float32(value)
    return np.nextafter(rounded, np.float32(np.inf)) if rounded < value else rounded


@kernel
def box_of(c, row, box):
    """Write the clause's region to `box`; False if it has none."""
    k = np.int64(c.start[row])
    if c.count[row] < 2 or c.attr[k] != 0 or c.attr[k + 1] != 1:
        return False
    box[0] = _below(c.low[k])
    box[1] = _below(c.low[k + 1])
    box[2] = _above(c.high[k])
    box[3] = _above(c.high[k + 1])
    return True


@kernel
def boxes_of(c, rows):
    """The regions of many clauses; NaN for none."""
    out = np.full((rows.size, 4), np.nan, np.float32)
    for i in range(rows.size):
        box_of(c, rows[i], out[i])
    return out


@kernel
def _within_root(b, box):
    x, y, half = b.geo[ROOT, X], b.geo[ROOT, Y], b.geo[ROOT, HALF]
    return (
        half > 0.0
        and box[0] >= x - half
        and box[2] < x + half
        and box[1] >= y - half
        and box[3] < y + half
    )


@kernel
def _meets_root(b, box):
    x, y, half = b.geo[ROOT, X], b.geo[ROOT, Y], b.geo[ROOT, HALF]
    return (
        half > 0.0
        and box[0] < x + half
        and box[2] >= x - half
        and box[1] < y + half
        and box[3] >= y - half
    )


@kernel
def _covers(b, node, box):
    x, y, half = b.geo[node, X], b.geo[node, Y], b.geo[node, HALF]
    return box[0] <= x - half and box[2] >= x + half and box[1] <= y - half and box[3] >= y + half


@kernel
def _reach(b, node, box, i):
    """Whether a box that meets the cell meets its child number i."""
    x, y = b.geo[node, X], b.geo[node, Y]
    return (box[2] >= x if i & 1 else box[0] < x) and (box[3] >= y if i & 2 else box[1] < y)


@kernel
def _finite(box):
    return (
        abs(box[0]) <= 1e15 and abs(box[1]) <= 1e15 and abs(box[2]) <= 1e15 and abs(box[3]) <= 1e15
    )


@kernel
def pieces(b, box):
    """The cells a box stands in: those it covers, then the leaves it meets in part."""
    covered = np.empty(16, np.int64)
    met = np.empty(16, np.int64)
    n = m = 0
    stack = np.empty(STACK, np.int64)
    waiting = 0
    if _meets_root(b, box):
        stack[0] = ROOT
        waiting = 1
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        if _covers(b, node, box):
            covered = grow(covered, n)
            covered[n] = node
            n += 1
        elif b.node[node, CHILD] == LEAF:
            met = grow(met, m)
            met[m] = node
            m += 1
        else:
            for i in range(4):
                if _reach(b, node, box, i):
                    stack[waiting] = b.node[node, CHILD] + i
                    waiting += 1
    return covered[:n], met[:m]


# --- buckets ----------------------------------------------------------------------------------


@kernel
def _add_cover(b, node, row):
    count, size_class = b.node[node, COVERS], b.node[node, COVER_CLASS]
    if count == capacity(size_class):
        old = b.node[node, COVER]
        new = take(b.cover_heap, b.cover_row, size_class + 1)
        for k in range(count):
            b.cover_row[new + k] = b.cover_row[old + k]
        give(b.cover_heap, b.cover_row, old, size_class)
        b.node[node, COVER] = new
        b.node[node, COVER_CLASS] = size_class + 1
    b.cover_row[b.node[node, COVER] + count] = row
    b.node[node, COVERS] = count + 1


@kernel
def _add_part(b, node, row, box):
    count, size_class = b.node[node, PARTS], b.node[node, PART_CLASS]
    if count == capacity(size_class):
        old = b.node[node, PART]
        new = take(b.part_heap, b.part_row, size_class + 1)
        for k in range(count):
            b.part_row[new + k] = b.part_row[old + k]
            for j in range(4):
                b.part_box[new + k, j] = b.part_box[old + k, j]
        give(b.part_heap, b.part_row, old, size_class)
        b.node[node, PART] = new
        b.node[node, PART_CLASS] = size_class + 1
    at = b.node[node, PART] + count
    b.part_row[at] = row
    for j in range(4):
        b.part_box[at, j] = box[j]
    b.node[node, PARTS] = count + 1


@kernel
def _drop_cover(b, node, at):
    """Take out the cover at this place of the heap; the last one fills the gap."""
    last = b.node[node, COVER] + b.node[node, COVERS] - 1
    b.cover_row[at] = b.cover_row[last]
    b.node[node, COVERS] -= 1
    if b.node[node, COVERS] == 0:
        give(b.cover_heap, b.cover_row, b.node[node, COVER], b.node[node, COVER_CLASS])
        b.node[node, COVER_CLASS] = NO_RUN


@kernel
def _drop_part(b, node, at):
    last = b.node[node, PART] + b.node[node, PARTS] - 1
    b.part_row[at] = b.part_row[last]
    for j in range(4):
        b.part_box[at, j] = b.part_box[last, j]
    b.node[node, PARTS] -= 1
    if b.node[node, PARTS] == 0:
        _free_parts(b, node)


@kernel
def _free_parts(b, node):
    give(b.part_heap, b.part_row, b.node[node, PART], b.node[node, PART_CLASS])
    b.node[node, PARTS] = 0
    b.node[node, PART_CLASS] = NO_RUN


@kernel
def _place_of(rows, start, count, row):
    """Where a row stands in a bucket."""
    k = start
    while k < start + count and rows[k] != row:
        k += 1
    return k


# --- cells ------------------------------------------------------------------------------------


@kernel
def _blank(b, node, parent):
    b.node[node, CHILD] = LEAF
    b.node[node, PARENT] = parent
    b.node[node, COVERS] = 0
    b.node[node, COVER_CLASS] = NO_RUN
    b.node[node, PARTS] = 0
    b.node[node, PART_CLASS] = NO_RUN
    b.node[node, LIMIT] = 0


@kernel
def _take_quad(b, node):
    first = b.state[FREE_QUADS]
    if first >= 0:
        b.state[FREE_QUADS] = b.node[first, PARENT]
    else:
        first = b.state[USED]
        b.state[USED] = first + 4
    quarter = 0.5 * b.geo[node, HALF]
    for i in range(4):
        _blank(b, first + i, node)
        b.geo[first + i, X] = b.geo[node, X] + (quarter if i & 1 else -quarter)
        b.geo[first + i, Y] = b.geo[node, Y] + (quarter if i & 2 else -quarter)
        b.geo[first + i, HALF] = quarter
    b.node[node, CHILD] = first
    return first


@kernel
def _merge_empty(b, leaf):
    """Undo splits, from a leaf upward, while all four leaves of a cell hold nothing."""
    node = b.node[leaf, PARENT]
    while node >= 0:
        first = b.node[node, CHILD]
        for i in range(4):
            child = first + i
            if b.node[child, CHILD] != LEAF or b.node[child, PARTS] + b.node[child, COVERS] > 0:
                return
        for i in range(4):
            b.node[first + i, CHILD] = UNUSED
        b.node[first, PARENT] = b.state[FREE_QUADS]
        b.state[FREE_QUADS] = first
        b.node[node, CHILD] = LEAF
        b.node[node, LIMIT] = 0
        node = b.node[node, PARENT]


@kernel
def may_split(b, node):
    """Whether the quarters' centres are exact and the tree is not too deep."""
    quarter = 0.5 * b.geo[node, HALF]
    x, y = b.geo[node, X], b.geo[node, Y]
    return (
        b.geo[node, HALF] > b.geo[ROOT, HALF] * 2.0 ** (1 - DEEPEST)
        and (x + quarter) - x == quarter
        and x - (x - quarter) == quarter
        and (y + quarter) - y == quarter
        and y - (y - quarter) == quarter
    )


@kernel
def _worth_splitting(b, node):
    """Whether at least half of the leaf's regions are small enough for its quarters.

    A region of side s has about 4 s / w pieces in leaves of side w, and the comparisons
    saved halve with each level while the pieces double.
    """
    side = b.geo[node, HALF]
    small = 0
    start = b.node[node, PART]
    for k in range(start, start + b.node[node, PARTS]):
        width = b.part_box[k, 2] - b.part_box[k, 0]
        height = b.part_box[k, 3] - b.part_box[k, 1]
        small += 2.0 * (width + height) <= PIECES * side
    return 2 * small >= b.node[node, PARTS]


@kernel
def _split(b, node):
    """Split a leaf; False if room is missing."""
    first = _take_quad(b, node)
    start, count = b.node[node, PART], b.node[node, PARTS]
    covers = np.zeros(4, np.int64)
    parts = np.zeros(4, np.int64)
    for k in range(start, start + count):
        for i in range(4):
            if _reach(b, node, b.part_box[k], i):
                if _covers(b, first + i, b.part_box[k]):
                    covers[i] += 1
                else:
                    parts[i] += 1
    room_covers = room_parts = 0
    for i in range(4):
        room_covers += capacity(class_for(covers[i]))
        room_parts += capacity(class_for(parts[i]))
    if _lacks(b, room_covers, room_parts):
        _merge_empty(b, first)
        return False
    for i in range(4):
        b.node[first + i, COVER_CLASS] = class_for(covers[i])
        b.node[first + i, COVER] = take(b.cover_heap, b.cover_row, class_for(covers[i]))
        b.node[first + i, PART_CLASS] = class_for(parts[i])
        b.node[first + i, PART] = take(b.part_heap, b.part_row, class_for(parts[i]))
    for k in range(start, start + count):
        for i in range(4):
            if _reach(b, node, b.part_box[k], i):
                if _covers(b, first + i, b.part_box[k]):
                    _add_cover(b, first + i, b.part_row[k])
                else:
                    _add_part(b, first + i, b.part_row[k], b.part_box[k])
    _free_parts(b, node)
    return True


# --- adding and removing ----------------------------------------------------------------------


@kernel
def _lacks(b, covers, parts):
    b.need[NEED_COVERS] = covers
    b.need[NEED_PARTS] = parts
    return (
        b.node.shape[0] - b.state[USED] < SPARE_CELLS
        or b.cover_row.size - b.cover_heap[0] < covers
        or b.part_row.size - b.part_heap[0] < parts
    )


@kernel
def _split_full(b, met, most):
    """Split those leaves that are full, where it helps: 1 if one was, −1 if room is missing."""
    done = 0
    for i in range(met.size):
        node = met[i]
        if b.node[node, PARTS] < max(b.node[node, LIMIT], most) or not may_split(b, node):
            continue
        if not _worth_splitting(b, node):
            b.node[node, LIMIT] = 2 * b.node[node, PARTS]
        elif not _split(b, node):
            return -1
        else:
            done = 1
    return done


@kernel
def _add(b, c, row, most, box):
    """Add one clause; False if room is missing."""
    if not box_of(c, row, box):
        if _lacks(b, capacity(b.node[NOWHERE, COVER_CLASS] + 1), 0):
            return False
        b.place[row] = b.node[NOWHERE, COVERS]
        _add_cover(b, NOWHERE, row)
        return True
    if _lacks(b, 0, 0):
        return False
    covered, met = pieces(b, box)
    splits = _split_full(b, met, most)
    while splits > 0:
        if _lacks(b, 0, 0):
            return False
        covered, met = pieces(b, box)
        splits = _split_full(b, met, most)
    if splits < 0:
        return False
    beyond = not _within_root(b, box)
    room_covers = 0
    room_parts = capacity(b.node[BEYOND, PART_CLASS] + 1) if beyond else 0
    for i in range(covered.size):
        room_covers += capacity(b.node[covered[i], COVER_CLASS] + 1)
    for i in range(met.size):
        room_parts += capacity(b.node[met[i], PART_CLASS] + 1)
    if _lacks(b, room_covers, room_parts):
        return False
    for i in range(covered.size):
        _add_cover(b, covered[i], row)
    for i in range(met.size):
        _add_part(b, met[i], row, box)
    b.state[LOCATED] += 1
    b.place[row] = INSIDE
    if beyond:
        b.state[STRAY] += _finite(box)
        b.place[row] = b.node[BEYOND, PARTS]
        _add_part(b, BEYOND, row, box)
    return True


@kernel
def add(b, c, rows, at, most):
    """Add rows[at:]; returns how far it came before room was missing."""
    box = np.empty(4, np.float32)
    while at < rows.size and _add(b, c, rows[at], most, box):
        at += 1
    return at


@kernel
def remove(b, c, rows):
    """Forget rows."""
    box = np.empty(4, np.float32)
    for i in range(rows.size):
        row = rows[i]
        if row >= b.place.size or b.place[row] == ABSENT:
            continue
        if not box_of(c, row, box):
            at = b.node[NOWHERE, COVER] + b.place[row]
            last = b.node[NOWHERE, COVER] + b.node[NOWHERE, COVERS] - 1
            b.place[b.cover_row[last]] = b.place[row]
            _drop_cover(b, NOWHERE, at)
        else:
            _remove(b, row, box)
        b.place[row] = ABSENT


@kernel
def _remove(b, row, box):
    covered, met = pieces(b, box)
    for i in range(covered.size):
        node = covered[i]
        _drop_cover(b, node, _place_of(b.cover_row, b.node[node, COVER], b.node[node, COVERS], row))
    for i in range(met.size):
        node = met[i]
        _drop_part(b, node, _place_of(b.part_row, b.node[node, PART], b.node[node, PARTS], row))
    b.state[LOCATED] -= 1
    if b.place[row] != INSIDE:
        b.state[STRAY] -= _finite(box)
        last = b.node[BEYOND, PART] + b.node[BEYOND, PARTS] - 1
        b.place[b.part_row[last]] = b.place[row]
        _drop_part(b, BEYOND, b.node[BEYOND, PART] + b.place[row])
    _merge_all(b, covered)
    _merge_all(b, met)


@kernel
def _merge_all(b, nodes):
    """Merge what became empty. A cell of the list may be gone by the time it comes up."""
    for i in range(nodes.size):
        if b.node[nodes[i], CHILD] == LEAF:
            _merge_empty(b, nodes[i])


# --- matching ---------------------------------------------------------------------------------


@kernel
def _check_covers(b, node, c, dense, counters, out, n):
    """Compare the rows that cover a cell; returns (out, size)."""
    start = b.node[node, COVER]
    for k in range(start, start + b.node[node, COVERS]):
        row = b.cover_row[k]
        if intervals_hold(c.attr, c.low, c.high, c.start[row], c.count[row], dense):
            out = grow(out, n)
            out[n] = row
            n += 1
    counters[1] += b.node[node, COVERS]
    return out, n


@kernel
def _check_parts(b, node, c, dense, counters, out, n):
    """Compare the rows whose box, kept in the leaf, holds the event's place."""
    x, y = dense[0], dense[1]
    start = b.node[node, PART]
    for k in range(start, start + b.node[node, PARTS]):
        if not (b.part_box[k, 0] <= x <= b.part_box[k, 2]):
            continue
        if not (b.part_box[k, 1] <= y <= b.part_box[k, 3]):
            continue
        counters[1] += 1
        row = b.part_row[k]
        if intervals_hold(c.attr, c.low, c.high, c.start[row], c.count[row], dense):
            out = grow(out, n)
            out[n] = row
            n += 1
    return out, n


@kernel
def _match(b, c, dense, counters, out, n):
    """Append the clause rows that want the event spread over `dense`."""
    out, n = _check_covers(b, NOWHERE, c, dense, counters, out, n)
    counters[0] += 1
    if dense.size < 2 or np.isnan(dense[0]) or np.isnan(dense[1]):
        return out, n
    x, y, half = b.geo[ROOT, X], b.geo[ROOT, Y], b.geo[ROOT, HALF]
    if not (x - half <= dense[0] < x + half and y - half <= dense[1] < y + half):
        counters[0] += 1
        return _check_parts(b, BEYOND, c, dense, counters, out, n)
    node = np.int64(ROOT)
    while True:
        counters[0] += 1
        out, n = _check_covers(b, node, c, dense, counters, out, n)
        first = b.node[node, CHILD]
        if first == LEAF:
            return _check_parts(b, node, c, dense, counters, out, n)
        node = first + (dense[0] >= b.geo[node, X]) + 2 * (dense[1] >= b.geo[node, Y])


@kernel
def match_event(b, c, batch, at, counters):
    """Clause rows that want event `at`."""
    dense = np.full(batch.columns, np.nan)
    fill(dense, batch.start, batch.attr, batch.value, at)
    out, n = _match(b, c, dense, counters, np.empty(256, np.int32), np.int64(0))
    counters[2] += n
    return out[:n]


@kernel
def match_events(b, c, batch, counters):
    """(events, rows) for the whole batch."""
    dense = np.full(batch.columns, np.nan)
    out = np.empty(1024, np.int32)
    ends = np.zeros(batch.start.size, np.int64)
    n = np.int64(0)
    for at in range(batch.start.size - 1):
        fill(dense, batch.start, batch.attr, batch.value, at)
        out, n = _match(b, c, dense, counters, out, n)
        clear(dense, batch.start, batch.attr, at)
        ends[at + 1] = n
    events = np.empty(n, np.int32)
    for at in range(batch.start.size - 1):
        events[ends[at] : ends[at + 1]] = at
    counters[2] += n
    return events, out[:n]
