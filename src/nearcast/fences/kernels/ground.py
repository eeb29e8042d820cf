"""Where regions are: the boxes of fences in the cells of a grid."""

from __future__ import annotations

import numpy as np

from nearcast.fences.kernels.judging import circle_box, pieces
from nearcast.fences.kernels.tables import (
    BOX,
    BOXES,
    CLASS_NEXT,
    CROSS,
    DONE,
    DOUBTS,
    FIRST,
    FLAGS,
    GROUP,
    HEAD,
    MASK,
    MORE_SLOTS,
    OCCUPIED,
    OFFSET,
    OUT_HEAD,
    OUT_NEXT,
    OUTS,
    OUTSIDE,
    PLACED,
    RUN,
    T_HEAD,
    TURNS,
    Tables,
    lacks,
    remove_pair,
    unpack_tables,
)
from nearcast.jit import inlined, kernel
from nearcast.kernels import region_grid
from nearcast.kernels.region_grid import in_box, insert, remove


@kernel
def settle(tables, fence, x, y, cos, sin, globe):
    """A region that moves gets its first place; nobody is told."""
    s = Tables(*unpack_tables(tables))
    if 2 * (s.counters[OCCUPIED] + 24) > len(s.slots):
        return lacks(s, MORE_SLOTS, s.counters[OCCUPIED] + 24)
    boxes = np.empty((3, 4))
    parts = boxes_at(s, fence, x, y, boxes, globe)
    put(s, fence, np.int64(s.fences[fence, GROUP]), x, y, cos, sin, boxes, parts)
    return DONE


@inlined
def boxes_at(s, fence, x, y, boxes, globe):
    """The boxes of a region that moves, at a place; how many there are."""
    radius = s.floats[s.fences[fence, OFFSET] + 2]
    if s.fences[fence, FLAGS] & DOUBTS:
        radius += s.margins[fence]
    xmin, ymin, xmax, ymax = circle_box(x, y, radius, globe)
    return pieces(xmin, ymin, xmax, ymax, globe, boxes)


@kernel
def turn(floats, at, cos, sin):
    """Turn a polygon clockwise: the one that stands behind it, as drawn for a heading of 0."""
    rings = np.int64(floats[at])
    corners = 0
    for r in range(rings):
        corners += np.int64(floats[at + 1 + r])
    size = 1 + rings + 2 * corners
    for i in range(at + 1 + rings, at + size, 2):
        x, y = floats[i + size], floats[i + size + 1]
        floats[i], floats[i + 1] = x * cos + y * sin, y * cos - x * sin


@inlined
def put(s, fence, group, x, y, cos, sin, boxes, parts):
    """Enter a region that moves at its new place in the grid; three boxes are reserved for it."""
    floats, first = s.fences[fence, OFFSET], s.fences[fence, BOX]
    _leave(s, fence, group)
    s.floats[floats], s.floats[floats + 1] = x, y
    if s.fences[fence, FLAGS] & TURNS:
        turn(s.floats, floats + 3, cos, sin)
    for i in range(parts):
        s.boxes[first + i] = boxes[i]
    s.fences[fence, BOXES], s.fences[fence, PLACED] = parts, 1
    _stand(s, fence, group)


@inlined
def _stand(s, fence, group):
    """Enter a fence's boxes into the grid; those that ask for crossings stand there twice."""
    first, parts = s.fences[fence, BOX], s.fences[fence, BOXES]
    twice = 2 if s.fences[fence, FLAGS] & CROSS else 1
    entries = np.empty(4, np.int32)
    run = s.fences[fence, RUN]
    for i in range(parts):
        box = s.boxes[first + i]
        width = region_grid.width_of(box[0], box[1], box[2], box[3])
        for k in range(twice):
            for j in range(4):
                entries[j] = 4 * (run + twice * i + k) + j
            part = i + 1 if parts > 1 else 0
            _, fresh = insert(s.slots, s.entries, entries, 2 * group + k, fence, part, box)
            s.counters[OCCUPIED] += fresh
            s.groups[group, MASK + k] |= 1 << width


@inlined
def _leave(s, fence, group):
    """Take a fence's boxes out of the grid."""
    first, parts = s.fences[fence, BOX], s.fences[fence, BOXES]
    twice = 2 if s.fences[fence, FLAGS] & CROSS else 1
    freed = np.empty(4, np.int32)
    for i in range(parts):
        part = i + 1 if parts > 1 else 0
        for k in range(twice):
            remove(s.slots, s.entries, freed, 2 * group + k, fence, part, s.boxes[first + i])
    s.fences[fence, BOXES] = 0


@kernel
def stand(tables, fence):
    """Enter a fence into the grid; there is room."""
    s = Tables(*unpack_tables(tables))
    _stand(s, fence, np.int64(s.fences[fence, GROUP]))


@kernel
def leave(tables, fence):
    """Take a fence out of the grid, and its pairs away."""
    s = Tables(*unpack_tables(tables))
    _leave(s, fence, np.int64(s.fences[fence, GROUP]))
    while s.fences[fence, HEAD] >= 0:
        remove_pair(s, np.int64(s.fences[fence, HEAD]))


@kernel
def let_go(tables, track):
    """Take the pairs of a track away."""
    s = Tables(*unpack_tables(tables))
    while s.tracks[track, T_HEAD] >= 0:
        remove_pair(s, s.tracks[track, T_HEAD])


@kernel
def unlist(tables, fence, kind):
    """Take a fence out of the list of its class (−1: it has none) and of those told of outsides."""
    s = Tables(*unpack_tables(tables))
    if kind >= 0:
        if s.classes[kind, FIRST] == fence:
            s.classes[kind, FIRST] = s.fences[fence, CLASS_NEXT]
        else:
            at = s.classes[kind, FIRST]
            while s.fences[at, CLASS_NEXT] != fence:
                at = s.fences[at, CLASS_NEXT]
            s.fences[at, CLASS_NEXT] = s.fences[fence, CLASS_NEXT]
    if s.fences[fence, FLAGS] & OUTSIDE:
        group = np.int64(s.fences[fence, GROUP])
        s.groups[group, OUTS] -= 1
        if s.groups[group, OUT_HEAD] == fence:
            s.groups[group, OUT_HEAD] = s.fences[fence, OUT_NEXT]
        else:
            at = s.groups[group, OUT_HEAD]
            while s.fences[at, OUT_NEXT] != fence:
                at = s.fences[at, OUT_NEXT]
            s.fences[at, OUT_NEXT] = s.fences[fence, OUT_NEXT]


@kernel
def near(tables, group, box):
    """The fences of a group that may meet a box, some repeatedly."""
    s = Tables(*unpack_tables(tables))
    found = np.empty(256, np.int32)
    mask = s.groups[group, MASK]
    count = in_box(s.slots, s.entries, mask, 2 * group, box, found)
    if count > len(found):
        found = np.empty(count, np.int32)
        in_box(s.slots, s.entries, mask, 2 * group, box, found)
    return found[:count]
