"""Live events in a quadtree, compared one by one."""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.quadtree import (
    BEYOND,
    CHILD,
    COUNT,
    IN_LEAF,
    LEAF,
    NOWHERE,
    ROOT,
    RUN,
    SPARE_CELLS,
    STACK,
    TOP,
    USED,
    X,
    Y,
    add_point,
    covers,
    drop_point,
    fit_root_to,
    grow_root,
    leaf_at,
    location_of,
    merge_empty,
    must_split,
    reachable,
    slot_room,
    split,
    split_room,
)
from nearcast.kernels.rows import event_satisfies, grow


@kernel
def _cover(q, x, y):
    """Let the root cover a place, if it may (NaN is no place)."""
    if covers(q, x, y) or not reachable(x, y):
        return
    if q.node[ROOT, CHILD] == LEAF:
        fit_root_to(q, x, y)
    else:
        grow_root(q, x, y)


@kernel
def cover_box(q, xmin, ymin, xmax, ymax):
    """Let the root cover a box before many points come; NaN for none."""
    if q.node[ROOT, CHILD] == LEAF:
        _cover(q, xmin, ymin)
        _cover(q, xmax, ymax)


@kernel
def _lacks(q, need, slots):
    need[0] = slots
    return q.node.shape[0] - q.state[USED] < SPARE_CELLS or q.slot_row.size - q.heap[0] < slots


@kernel
def add(q, live, rows, at, most, need):
    """Add rows[at:]; returns how far it came before room was missing, which `need` tells."""
    while at < rows.size:
        x, y = location_of(live, rows[at])
        slots = np.int64(0)
        if _lacks(q, need, slots):
            return at
        _cover(q, x, y)
        node = np.int64(leaf_at(q, x, y))
        while must_split(q, node, most, x, y):
            if _lacks(q, need, split_room(q, node)):
                return at
            top = q.node[node, TOP]
            split(q, node, np.empty(top, np.int32), np.empty(top, np.int32))
            node = np.int64(leaf_at(q, x, y))
        if _lacks(q, need, slot_room(q, node)):
            return at
        add_point(q, node, rows[at], x, y)
        at += 1
    return at


@kernel
def remove(q, rows):
    """Forget rows; those that are not there are no error."""
    for i in range(rows.size):
        if rows[i] < q.where.shape[0] and q.where[rows[i], IN_LEAF] >= 0:
            node = drop_point(q, rows[i])
            if q.node[node, COUNT] == 0:
                merge_empty(q, node)


@kernel
def match(q, live, c, row, now, counters):
    """Live event rows that the clause wants."""
    first = np.int64(c.start[row])
    stop = first + c.count[row]
    xmin, ymin, xmax, ymax = -np.inf, -np.inf, np.inf, np.inf
    placed = stop - first >= 2 and c.attr[first] == 0 and c.attr[first + 1] == 1
    if placed:
        xmin, xmax = c.low[first], c.high[first]
        ymin, ymax = c.low[first + 1], c.high[first + 1]
        first += 2
    out = np.empty(256, np.int32)
    n = 0
    stack = np.empty(STACK, np.int32)
    stack[0] = ROOT
    stack[1] = BEYOND
    stack[2] = NOWHERE
    waiting = 2 if placed else 3
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        counters[0] += 1
        child = q.node[node, CHILD]
        if child != LEAF:
            west, east = xmin < q.geo[node, X], xmax >= q.geo[node, X]
            south, north = ymin < q.geo[node, Y], ymax >= q.geo[node, Y]
            for i in range(4):
                if (east if i & 1 else west) and (north if i & 2 else south):
                    stack[waiting] = child + i
                    waiting += 1
            continue
        start = q.node[node, RUN]
        for k in range(start, start + q.node[node, TOP]):
            e = q.slot_row[k]
            if e < 0:
                continue
            x, y = q.slot_at[k, X], q.slot_at[k, Y]
            if placed and not (xmin <= x <= xmax and ymin <= y <= ymax):
                continue
            counters[1] += 1
            e0 = live.start[e]
            e1 = e0 + live.count[e]
            if event_satisfies(c.attr, c.low, c.high, first, stop, live.attr, live.value, e0, e1):
                if live.expires[e] <= now:
                    continue
                out = grow(out, n)
                out[n] = e
                n += 1
    counters[2] += n
    return out[:n]
