"""A quadtree over points in flat arrays: cells, their buckets, growing and splitting.

Every point is a row of an event store. Cells are squares whose side is a power of two and
whose centre is exact in float64, so a point's cell never depends on rounding. The root's
place and size are learnt from the data; it doubles when a point falls outside. What cannot
be placed waits in two buckets beside the tree: `NOWHERE` (no location, or NaN in it) and
`BEYOND` (infinite, or so far off that the root will not grow to it).

A leaf's bucket is a run of slots. A slot keeps its number for as long as the point stays
in the leaf, so that lists may refer to it; freed slots are chained and used again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.runs import (
    NO_RUN,
    capacities,
    capacity,
    class_for,
    free_items,
    give,
    lengthened,
    new_heap,
    take,
)

#: Cells with a fixed number.
NOWHERE = 0
BEYOND = 1
ROOT = 2
#: CHILD of a leaf and of a cell that is not in use.
LEAF = -1
UNUSED = -2
#: Columns of `node`: first of four children (by y, then by x, from below to above the
#: centre), parent, points in the leaf, slots in use or freed, first freed slot, run of slots.
CHILD, PARENT, COUNT, TOP, HOLE, RUN, RUN_CLASS = range(7)
_BLANK = np.array([LEAF, -1, 0, 0, -1, 0, NO_RUN], np.int64)
#: Columns of `geo` and of `slot_at`, and of `where`.
X, Y, HALF = range(3)
IN_LEAF, IN_SLOT = range(2)
#: Entries of `state`.
USED = 0
FREE_QUADS = 1
GROWN = 2
#: A cell is split at most so many times below the root, and the root grows so often.
DEEPEST = 50
MOST_GROWTH = 60
#: What a traversal may have to keep: three siblings a level and the last four.
STACK = 3 * (DEEPEST + MOST_GROWTH) + 8
#: Spare cells that make any insertion safe: a split chain and a growing root.
SPARE_CELLS = 4 * (DEEPEST + MOST_GROWTH)
#: Farther coordinates are not worth a tree: one of them would make all others one leaf.
_FARTHEST = 1e15


class Cells(NamedTuple):
    """What kernels see of the tree. Few arrays: each costs a call from Python a third of a µs."""

    state: np.ndarray
    """Cells ever used, first free group of four, how often the root grew."""
    node: np.ndarray
    """A row a cell, its columns named above."""
    geo: np.ndarray
    """A row a cell: the centre's x and y, half of the side; 0 while the root has no place."""
    heap: np.ndarray
    slot_row: np.ndarray
    """The point's row; −2 − next in a freed slot."""
    slot_at: np.ndarray
    """The point's x and y."""
    where: np.ndarray
    """By row: the leaf the point is in (−1 for none) and its slot there."""


def new_cells() -> Cells:
    """A tree of one empty leaf that has no place yet."""
    cells = Cells(
        state=np.array([3, -1, 0], np.int64),
        node=np.tile(_BLANK, (3, 1)),
        geo=np.zeros((3, 3)),
        heap=new_heap(),
        slot_row=np.empty(0, np.int32),
        slot_at=np.empty((0, 2)),
        where=np.empty((0, 2), np.int32),
    )
    return with_cells(cells, SPARE_CELLS)


def with_cells(cells: Cells, spare: int) -> Cells:
    """The tree with room for so many more cells."""
    used = int(cells.state[USED])
    node = lengthened(cells.node, used, spare)
    return cells._replace(node=node, geo=lengthened(cells.geo, used, spare))


def with_slots(cells: Cells, spare: int) -> Cells:
    """The tree with room for so many more slots."""
    used = int(cells.heap[0])
    slot_row = lengthened(cells.slot_row, used, spare)
    return cells._replace(slot_row=slot_row, slot_at=lengthened(cells.slot_at, used, spare))


def with_rows(cells: Cells, rows: int) -> Cells:
    """The tree with room for points of so many rows."""
    used = cells.where.shape[0]
    if used >= rows:
        return cells
    where = lengthened(cells.where, used, rows - used)
    where[used:] = -1
    return cells._replace(where=where)


# --- where points are -------------------------------------------------------------------------


@kernel
def location_of(live, row):
    """x and y of an event; NaN where it has none."""
    start = live.start[row]
    if live.count[row] >= 2 and live.attr[start] == 0 and live.attr[start + 1] == 1:
        return live.value[start], live.value[start + 1]
    return np.nan, np.nan


@kernel
def locations(live, rows):
    """x and y of many events."""
    x = np.empty(rows.size)
    y = np.empty(rows.size)
    for i in range(rows.size):
        x[i], y[i] = location_of(live, rows[i])
    return x, y


@kernel
def covers(q, x, y):
    """Whether the root covers a place."""
    half = q.geo[ROOT, HALF]
    return (
        half > 0.0
        and q.geo[ROOT, X] - half <= x < q.geo[ROOT, X] + half
        and q.geo[ROOT, Y] - half <= y < q.geo[ROOT, Y] + half
    )


@kernel
def quarter_of(q, node, x, y):
    """Which of the cell's children, 0 … 3, a place in it belongs to."""
    return (x >= q.geo[node, X]) + 2 * (y >= q.geo[node, Y])


@kernel
def leaf_at(q, x, y):
    """The leaf a point belongs to, as the tree is now."""
    if np.isnan(x) or np.isnan(y):
        return NOWHERE
    if not covers(q, x, y):
        return BEYOND
    node = ROOT
    while q.node[node, CHILD] >= 0:
        node = q.node[node, CHILD] + quarter_of(q, node, x, y)
    return node


@kernel
def leaves_at(q, x, y):
    """`leaf_at` of many points."""
    out = np.empty(x.size, np.int32)
    for i in range(x.size):
        out[i] = leaf_at(q, x[i], y[i])
    return out


# --- the root's place -------------------------------------------------------------------------


def bulk_of(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """A box of these places that leaves far outliers out: they would make it shapeless.

    NaN where there is no place.
    """
    there = (np.abs(x) <= _FARTHEST) & (np.abs(y) <= _FARTHEST)
    if not there.any():
        return np.nan, np.nan, np.nan, np.nan
    (xmin, xmax), (ymin, ymax) = _bulk_of_one(x[there]), _bulk_of_one(y[there])
    return xmin, ymin, xmax, ymax


def _bulk_of_one(values: np.ndarray) -> tuple[float, float]:
    low, high = (float(q) for q in np.quantile(values, (0.01, 0.99)))
    reach = 1024 * (high - low) if high > low else np.inf
    return max(float(values.min()), low - reach), min(float(values.max()), high + reach)


@kernel
def reachable(x, y):
    """Whether a root may cover the place at all."""
    return abs(x) <= _FARTHEST and abs(y) <= _FARTHEST


@kernel
def root_place(xmin, ymin, xmax, ymax, least):
    """(x, y, half) of a cell larger than `least` that covers the box."""
    far = max(max(abs(xmin), abs(xmax)), max(abs(ymin), abs(ymax)))
    extent = max(xmax - xmin, ymax - ymin)
    if extent == 0.0:
        extent = max(far, 1.0)
    least = max(max(extent, far * 2.0**-40), least)
    half = 1.0
    while half <= least:
        half *= 2.0
    while half * 0.5 > least:
        half *= 0.5
    while True:
        x = np.floor((xmin + 0.5 * (xmax - xmin)) / half + 0.5) * half
        y = np.floor((ymin + 0.5 * (ymax - ymin)) / half + 0.5) * half
        if x - half <= xmin and xmax < x + half and y - half <= ymin and ymax < y + half:
            return x, y, half
        half *= 2.0


@kernel
def fit_root_to(q, x, y):
    """Let a root that is a leaf cover its points and one more place.

    With points in it, it becomes twice as large at least: then it cannot happen often.
    """
    least = q.geo[ROOT, HALF] if q.node[ROOT, COUNT] > 0 else 0.0
    xmin = xmax = x
    ymin = ymax = y
    start = q.node[ROOT, RUN]
    for k in range(start, start + q.node[ROOT, TOP]):
        if q.slot_row[k] >= 0:
            xmin = min(xmin, q.slot_at[k, X])
            xmax = max(xmax, q.slot_at[k, X])
            ymin = min(ymin, q.slot_at[k, Y])
            ymax = max(ymax, q.slot_at[k, Y])
    x, y, half = root_place(xmin, ymin, xmax, ymax, least)
    q.geo[ROOT, X] = x
    q.geo[ROOT, Y] = y
    q.geo[ROOT, HALF] = half
    q.state[GROWN] = 0


@kernel
def grow_root(q, x, y):
    """Double a root that has children until it covers the place; False where it may not.

    The old root becomes one child of the new one and the root keeps its number.
    """
    reach = max(abs(x - q.geo[ROOT, X]), abs(y - q.geo[ROOT, Y]))
    if reach > q.geo[ROOT, HALF] * 2.0 ** (MOST_GROWTH - q.state[GROWN] - 1):
        return False
    while not covers(q, x, y):
        half = q.geo[ROOT, HALF]
        old_x, old_y = q.geo[ROOT, X], q.geo[ROOT, Y]
        new_x = old_x + half if x >= old_x else old_x - half
        new_y = old_y + half if y >= old_y else old_y - half
        if abs(new_x - old_x) != half or abs(new_y - old_y) != half:
            return False
        q.state[GROWN] += 1
        inner = q.node[ROOT, CHILD]
        q.geo[ROOT, X] = new_x
        q.geo[ROOT, Y] = new_y
        q.geo[ROOT, HALF] = 2.0 * half
        first = take_quad(q, ROOT)
        moved = first + quarter_of(q, ROOT, old_x, old_y)
        q.node[moved, CHILD] = inner
        for i in range(4):
            q.node[inner + i, PARENT] = moved
    return True


# --- cells ------------------------------------------------------------------------------------


@kernel
def take_quad(q, node):
    """Give a cell four empty leaves; returns the first."""
    first = q.state[FREE_QUADS]
    if first >= 0:
        q.state[FREE_QUADS] = q.node[first, PARENT]
    else:
        first = q.state[USED]
        q.state[USED] = first + 4
    quarter = 0.5 * q.geo[node, HALF]
    for i in range(4):
        leaf = first + i
        q.node[leaf, CHILD] = LEAF
        q.node[leaf, PARENT] = node
        q.geo[leaf, X] = q.geo[node, X] + (quarter if i & 1 else -quarter)
        q.geo[leaf, Y] = q.geo[node, Y] + (quarter if i & 2 else -quarter)
        q.geo[leaf, HALF] = quarter
        _empty(q, leaf)
    q.node[node, CHILD] = first
    return first


@kernel
def _empty(q, leaf):
    q.node[leaf, COUNT] = 0
    q.node[leaf, TOP] = 0
    q.node[leaf, HOLE] = -1
    q.node[leaf, RUN] = 0
    q.node[leaf, RUN_CLASS] = NO_RUN


@kernel
def merge_empty(q, leaf):
    """Undo splits, from a leaf upward, while all four leaves of a cell are empty."""
    node = q.node[leaf, PARENT]
    while node >= 0:
        first = q.node[node, CHILD]
        for i in range(4):
            if q.node[first + i, CHILD] != LEAF or q.node[first + i, COUNT] > 0:
                return
        for i in range(4):
            q.node[first + i, CHILD] = UNUSED
        q.node[first, PARENT] = q.state[FREE_QUADS]
        q.state[FREE_QUADS] = first
        q.node[node, CHILD] = LEAF
        _empty(q, node)
        node = q.node[node, PARENT]


@kernel
def may_split(q, node):
    """Whether the cell is no bucket beside the tree and its quarters' centres are exact."""
    if node < ROOT:
        return False
    quarter = 0.5 * q.geo[node, HALF]
    x, y = q.geo[node, X], q.geo[node, Y]
    return (
        q.geo[node, HALF] > q.geo[ROOT, HALF] * 2.0**-DEEPEST
        and (x + quarter) - x == quarter
        and x - (x - quarter) == quarter
        and (y + quarter) - y == quarter
        and y - (y - quarter) == quarter
    )


@kernel
def must_split(q, node, most, x, y):
    """Whether a leaf that is to take one more point, at (x, y), has to be split first.

    Points that are all at one place stay together, however many: then, in a leaf that is
    overfull already, one of them speaks for all.
    """
    if q.node[node, COUNT] < most or not may_split(q, node):
        return False
    start = q.node[node, RUN]
    overfull = q.node[node, COUNT] > most
    for k in range(start, start + q.node[node, TOP]):
        if q.slot_row[k] < 0:
            continue
        if q.slot_at[k, X] != x or q.slot_at[k, Y] != y:
            return True
        if overfull:
            return False
    return False


@kernel
def split(q, node, to_child, to_slot):
    """Deal the points of a leaf to four new leaves; needs `split_room` slots.

    The two arrays tell, for every slot, the child (0 … 3, −1 for a hole) and the slot there;
    slots keep their order.
    """
    start = q.node[node, RUN]
    top = q.node[node, TOP]
    sizes = np.zeros(4, np.int64)
    for s in range(top):
        to_child[s] = -1
        if q.slot_row[start + s] >= 0:
            c = quarter_of(q, node, q.slot_at[start + s, X], q.slot_at[start + s, Y])
            to_child[s] = c
            to_slot[s] = sizes[c]
            sizes[c] += 1
    first = take_quad(q, node)
    for i in range(4):
        give_slots(q, first + i, sizes[i])
    for s in range(top):
        if to_child[s] >= 0:
            leaf = first + to_child[s]
            k = start + s
            fill_slot(q, leaf, to_slot[s], q.slot_row[k], q.slot_at[k, X], q.slot_at[k, Y])
    give(q.heap, q.slot_row, start, q.node[node, RUN_CLASS])
    _empty(q, node)
    return first


@kernel
def split_room(q, node):
    """Slots that splitting a leaf may take."""
    return 16 + q.node[node, COUNT] + (q.node[node, COUNT] >> 1)


# --- slots ------------------------------------------------------------------------------------


@kernel
def give_slots(q, leaf, points):
    """Let an empty leaf have so many slots, to be filled by `fill_slot` in order."""
    q.node[leaf, RUN_CLASS] = class_for(points)
    q.node[leaf, RUN] = take(q.heap, q.slot_row, q.node[leaf, RUN_CLASS])
    q.node[leaf, COUNT] = points
    q.node[leaf, TOP] = points
    q.node[leaf, HOLE] = -1


@kernel
def fill_slot(q, leaf, s, row, x, y):
    """Put a point into a slot that `give_slots` made."""
    k = q.node[leaf, RUN] + s
    q.slot_row[k] = row
    q.slot_at[k, X] = x
    q.slot_at[k, Y] = y
    q.where[row, IN_LEAF] = leaf
    q.where[row, IN_SLOT] = s


@kernel
def slot_room(q, leaf):
    """Slots that one more point in the leaf may take."""
    if q.node[leaf, HOLE] >= 0 or q.node[leaf, TOP] < capacity(q.node[leaf, RUN_CLASS]):
        return 0
    return capacity(q.node[leaf, RUN_CLASS] + 1)


@kernel
def add_point(q, leaf, row, x, y):
    """Put a point into a leaf; returns its slot."""
    s = q.node[leaf, HOLE]
    if s >= 0:
        q.node[leaf, HOLE] = -2 - q.slot_row[q.node[leaf, RUN] + s]
    else:
        s = q.node[leaf, TOP]
        if s == capacity(q.node[leaf, RUN_CLASS]):
            _move_slots(q, leaf)
        q.node[leaf, TOP] = s + 1
    q.node[leaf, COUNT] += 1
    fill_slot(q, leaf, s, row, x, y)
    return s


@kernel
def _move_slots(q, leaf):
    old, old_class = q.node[leaf, RUN], q.node[leaf, RUN_CLASS]
    new = take(q.heap, q.slot_row, old_class + 1)
    for s in range(q.node[leaf, TOP]):
        q.slot_row[new + s] = q.slot_row[old + s]
        q.slot_at[new + s, X] = q.slot_at[old + s, X]
        q.slot_at[new + s, Y] = q.slot_at[old + s, Y]
    give(q.heap, q.slot_row, old, old_class)
    q.node[leaf, RUN] = new
    q.node[leaf, RUN_CLASS] = old_class + 1


@kernel
def drop_point(q, row):
    """Take a point out of its leaf, which may be left empty; returns the leaf."""
    leaf, s = np.int64(q.where[row, IN_LEAF]), np.int64(q.where[row, IN_SLOT])
    q.slot_row[q.node[leaf, RUN] + s] = -2 - q.node[leaf, HOLE]
    q.node[leaf, HOLE] = s
    q.node[leaf, COUNT] -= 1
    q.where[row, IN_LEAF] = -1
    if q.node[leaf, COUNT] == 0:
        free_slots(q, leaf)
    return leaf


@kernel
def free_slots(q, leaf):
    """Give back all slots of a leaf."""
    give(q.heap, q.slot_row, q.node[leaf, RUN], q.node[leaf, RUN_CLASS])
    _empty(q, leaf)


# --- checking ---------------------------------------------------------------------------------


def check_cells(q: Cells, most: int) -> None:
    """Raise AssertionError where the tree contradicts itself."""
    used = int(q.state[USED])
    seen = np.zeros(used, bool)
    seen[[NOWHERE, BEYOND]] = True
    stack = [ROOT]
    while stack:
        node = stack.pop()
        assert not seen[node], "a cell has two parents"
        seen[node] = True
        first = int(q.node[node, CHILD])
        if first == LEAF:
            continue
        assert first > ROOT, "an unused cell is part of the tree"
        assert int(q.node[node, COUNT]) == 0, "an inner cell holds points"
        for i in range(4):
            assert int(q.node[first + i, PARENT]) == node
            sign = (1 if i & 1 else -1, 1 if i & 2 else -1)
            assert q.geo[first + i, HALF] * 2 == q.geo[node, HALF]
            assert q.geo[first + i, X] == q.geo[node, X] + sign[0] * q.geo[first + i, HALF]
            assert q.geo[first + i, Y] == q.geo[node, Y] + sign[1] * q.geo[first + i, HALF]
            stack.append(first + i)
    quad = int(q.state[FREE_QUADS])
    while quad >= 0:
        assert not seen[quad : quad + 4].any(), "a free cell is part of the tree"
        assert bool((q.node[quad : quad + 4, CHILD] == UNUSED).all())
        seen[quad : quad + 4] = True
        quad = int(q.node[quad, PARENT])
    assert bool(seen.all()), "a cell is neither part of the tree nor free"
    leaves = np.flatnonzero(q.node[:used, CHILD] == LEAF)
    empty = q.node[leaves, COUNT] == 0
    assert bool((q.node[leaves[empty]][:, [TOP, HOLE, RUN_CLASS]] == (0, -1, NO_RUN)).all())
    for node in leaves[~empty].tolist():
        _check_leaf(q, node, most)
    points = int(q.node[leaves, COUNT].sum())
    assert points == int((q.where[:, IN_LEAF] >= 0).sum()), "a point is lost"
    taken = int(capacities(q.node[leaves, RUN_CLASS]).sum())
    assert taken + free_items(q.heap, q.slot_row) == int(q.heap[0]), "slots leak"


def _check_leaf(q: Cells, node: int, most: int) -> None:
    start, top, count = int(q.node[node, RUN]), int(q.node[node, TOP]), int(q.node[node, COUNT])
    rows = q.slot_row[start : start + top]
    x, y = q.slot_at[start : start + top, X], q.slot_at[start : start + top, Y]
    live = rows >= 0
    assert int(live.sum()) == count
    assert top <= int(capacity(int(q.node[node, RUN_CLASS])))
    holes, hole = 0, int(q.node[node, HOLE])
    while hole >= 0:
        assert not live[hole], "a live slot counts as free"
        holes, hole = holes + 1, -2 - int(rows[hole])
    assert holes + count == top
    assert bool((q.where[rows[live], IN_LEAF] == node).all())
    assert bool((q.where[rows[live], IN_SLOT] == np.flatnonzero(live)).all())
    if node != BEYOND:  # what was beyond the root's reach stays there when the root grows
        assert bool((leaves_at(q, x[live], y[live]) == node).all()), "a point is in a wrong leaf"
    if count > most and may_split(q, node):
        assert np.unique(x[live]).size == np.unique(y[live]).size == 1, "a leaf is overfull"
