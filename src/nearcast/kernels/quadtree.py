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
from nearcast.kernels.runs import NO_RUN, capacity, class_for, give, new_heap, take

#: Cells with a fixed number.
NOWHERE = 0
BEYOND = 1
ROOT = 2
#: `child` of a leaf and of a cell that is not in use.
LEAF = -1
UNUSED = -2
#: Entries of `state`.
USED = 0
FREE_QUADS = 1
GROWN = 2
#: A cell is split at most so many times below the root, and the root grows so often.
DEEPEST = 40
MOST_GROWTH = 60
#: What a traversal may have to keep: three siblings a level and the last four.
STACK = 3 * (DEEPEST + MOST_GROWTH) + 8
#: Spare cells that make any insertion safe: a split chain and a growing root.
SPARE_CELLS = 4 * (DEEPEST + MOST_GROWTH)
#: Farther coordinates are not worth a tree, and their squares would overflow.
_FARTHEST = 1e100


class Cells(NamedTuple):
    """What kernels see of the tree."""

    state: np.ndarray
    """Cells ever used, first free group of four, how often the root grew."""
    child: np.ndarray
    """First of four children (x below and above the centre, then the same for larger y)."""
    parent: np.ndarray
    x: np.ndarray
    """The cell's centre."""
    y: np.ndarray
    half: np.ndarray
    """Half of the cell's side; 0 while the root has no place yet."""
    count: np.ndarray
    """Points in the leaf."""
    top: np.ndarray
    """Slots in use or freed."""
    hole: np.ndarray
    """The first freed slot, −1 for none."""
    run: np.ndarray
    run_class: np.ndarray
    heap: np.ndarray
    slot_row: np.ndarray
    """The point's row; −2 − next in a freed slot."""
    slot_x: np.ndarray
    slot_y: np.ndarray
    leaf: np.ndarray
    """By row: the leaf it is in, −1 for none."""
    slot: np.ndarray
    """By row: its slot there."""


def new_cells() -> Cells:
    """A tree of one empty leaf that has no place yet."""
    cells = Cells(
        state=np.array([3, -1, 0], np.int64),
        child=np.full(3, LEAF, np.int32),
        parent=np.full(3, -1, np.int32),
        x=np.zeros(3),
        y=np.zeros(3),
        half=np.zeros(3),
        count=np.zeros(3, np.int32),
        top=np.zeros(3, np.int32),
        hole=np.full(3, -1, np.int32),
        run=np.zeros(3, np.int64),
        run_class=np.full(3, NO_RUN, np.int8),
        heap=new_heap(),
        slot_row=np.empty(0, np.int32),
        slot_x=np.empty(0),
        slot_y=np.empty(0),
        leaf=np.empty(0, np.int32),
        slot=np.empty(0, np.int32),
    )
    return with_cells(cells, SPARE_CELLS)


def lengthened(array: np.ndarray, used: int, spare: int, fill: int | None = None) -> np.ndarray:
    """The array, or a copy with room for `spare` items behind `used` and an eighth more."""
    if array.size - used >= spare:
        return array
    longer = np.empty(used + spare + (used >> 3), array.dtype)
    longer[:used] = array[:used]
    if fill is not None:
        longer[used:] = fill
    return longer


def with_cells(cells: Cells, spare: int) -> Cells:
    """The tree with room for so many more cells."""
    used = int(cells.state[USED])
    names = ("parent", "x", "y", "half", "count", "top", "hole", "run", "run_class")
    longer = {name: lengthened(getattr(cells, name), used, spare) for name in names}
    return cells._replace(child=lengthened(cells.child, used, spare, UNUSED), **longer)


def with_slots(cells: Cells, spare: int) -> Cells:
    """The tree with room for so many more slots."""
    used = int(cells.heap[0])
    names = ("slot_row", "slot_x", "slot_y")
    return cells._replace(**{n: lengthened(getattr(cells, n), used, spare) for n in names})


def with_rows(cells: Cells, rows: int) -> Cells:
    """The tree with room for points of so many rows."""
    used = cells.leaf.size
    if used >= rows:
        return cells
    leaf = lengthened(cells.leaf, used, rows - used, -1)
    return cells._replace(leaf=leaf, slot=lengthened(cells.slot, used, rows - used, -1))


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
    half = q.half[ROOT]
    return (
        half > 0.0
        and q.x[ROOT] - half <= x < q.x[ROOT] + half
        and q.y[ROOT] - half <= y < q.y[ROOT] + half
    )


@kernel
def leaf_at(q, x, y):
    """The leaf a point belongs to, as the tree is now."""
    if np.isnan(x) or np.isnan(y):
        return NOWHERE
    if not covers(q, x, y):
        return BEYOND
    node = ROOT
    while q.child[node] >= 0:
        node = q.child[node] + (x >= q.x[node]) + 2 * (y >= q.y[node])
    return node


@kernel
def leaves_at(q, x, y):
    """`leaf_at` of many points."""
    out = np.empty(x.size, np.int32)
    for i in range(x.size):
        out[i] = leaf_at(q, x[i], y[i])
    return out


# --- the root's place -------------------------------------------------------------------------


@kernel
def reachable(x, y):
    """Whether a root may cover the place at all."""
    return abs(x) <= _FARTHEST and abs(y) <= _FARTHEST


@kernel
def fit_root(q, xmin, ymin, xmax, ymax):
    """Give a root that is a leaf the smallest place that covers the box; twice as large as
    the one it had, at least, so that a growing box costs little.
    """
    far = max(max(abs(xmin), abs(xmax)), max(abs(ymin), abs(ymax)))
    least = max(max(xmax - xmin, ymax - ymin), max(far * 2.0**-40, 1e-100))
    least = max(least, q.half[ROOT])
    half = 1.0
    while half <= least:
        half *= 2.0
    while half * 0.5 > least:
        half *= 0.5
    while True:
        x = np.floor((xmin + 0.5 * (xmax - xmin)) / half + 0.5) * half
        y = np.floor((ymin + 0.5 * (ymax - ymin)) / half + 0.5) * half
        if x - half <= xmin and xmax < x + half and y - half <= ymin and ymax < y + half:
            break
        half *= 2.0
    q.x[ROOT] = x
    q.y[ROOT] = y
    q.half[ROOT] = half


@kernel
def fit_root_to(q, x, y):
    """Let a root that is a leaf cover its points and one more place."""
    xmin = xmax = x
    ymin = ymax = y
    start = q.run[ROOT]
    for k in range(start, start + q.top[ROOT]):
        if q.slot_row[k] >= 0:
            xmin = min(xmin, q.slot_x[k])
            xmax = max(xmax, q.slot_x[k])
            ymin = min(ymin, q.slot_y[k])
            ymax = max(ymax, q.slot_y[k])
    fit_root(q, xmin, ymin, xmax, ymax)


@kernel
def grow_root(q, x, y):
    """Double a root that has children until it covers the place; False where it may not.

    The old root becomes one child of the new one and the root keeps its number.
    """
    reach = max(abs(x - q.x[ROOT]), abs(y - q.y[ROOT]))
    if not reachable(x, y) or reach > q.half[ROOT] * 2.0 ** (MOST_GROWTH - q.state[GROWN] - 1):
        return False
    while not covers(q, x, y):
        half = q.half[ROOT]
        old_x, old_y = q.x[ROOT], q.y[ROOT]
        new_x = old_x + half if x >= old_x else old_x - half
        new_y = old_y + half if y >= old_y else old_y - half
        if abs(new_x - old_x) != half or abs(new_y - old_y) != half:
            return False
        q.state[GROWN] += 1
        inner = q.child[ROOT]
        q.x[ROOT] = new_x
        q.y[ROOT] = new_y
        q.half[ROOT] = 2.0 * half
        first = _take_quad(q, ROOT)
        moved = first + (old_x >= new_x) + 2 * (old_y >= new_y)
        q.child[moved] = inner
        for i in range(4):
            q.parent[inner + i] = moved
    return True


# --- cells ------------------------------------------------------------------------------------


@kernel
def _take_quad(q, node):
    """Give a cell four empty leaves; returns the first."""
    first = q.state[FREE_QUADS]
    if first >= 0:
        q.state[FREE_QUADS] = q.parent[first]
    else:
        first = q.state[USED]
        q.state[USED] = first + 4
    quarter = 0.5 * q.half[node]
    for i in range(4):
        leaf = first + i
        q.child[leaf] = LEAF
        q.parent[leaf] = node
        q.x[leaf] = q.x[node] + (quarter if i & 1 else -quarter)
        q.y[leaf] = q.y[node] + (quarter if i & 2 else -quarter)
        q.half[leaf] = quarter
        _empty(q, leaf)
    q.child[node] = first
    return first


@kernel
def _empty(q, leaf):
    q.count[leaf] = 0
    q.top[leaf] = 0
    q.hole[leaf] = -1
    q.run[leaf] = 0
    q.run_class[leaf] = NO_RUN


@kernel
def merge_empty(q, leaf):
    """Undo splits, from a leaf upward, while all four leaves of a cell are empty."""
    node = q.parent[leaf] if leaf != ROOT else -1
    while node >= 0:
        first = q.child[node]
        for i in range(4):
            if q.child[first + i] != LEAF or q.count[first + i] > 0:
                return
        for i in range(4):
            q.child[first + i] = UNUSED
        q.parent[first] = q.state[FREE_QUADS]
        q.state[FREE_QUADS] = first
        q.child[node] = LEAF
        _empty(q, node)
        node = q.parent[node] if node != ROOT else -1


@kernel
def may_split(q, node):
    """Whether the cell is no bucket beside the tree and its quarters' centres are exact."""
    if node < ROOT:
        return False
    quarter = 0.5 * q.half[node]
    x, y = q.x[node], q.y[node]
    return (
        q.half[node] > q.half[ROOT] * 2.0**-DEEPEST
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
    if q.count[node] < most or not may_split(q, node):
        return False
    start = q.run[node]
    overfull = q.count[node] > most
    for k in range(start, start + q.top[node]):
        if q.slot_row[k] < 0:
            continue
        if q.slot_x[k] != x or q.slot_y[k] != y:
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
    start = q.run[node]
    top = q.top[node]
    sizes = np.zeros(4, np.int64)
    for s in range(top):
        to_child[s] = -1
        if q.slot_row[start + s] >= 0:
            c = (q.slot_x[start + s] >= q.x[node]) + 2 * (q.slot_y[start + s] >= q.y[node])
            to_child[s] = c
            to_slot[s] = sizes[c]
            sizes[c] += 1
    first = _take_quad(q, node)
    for i in range(4):
        give_slots(q, first + i, sizes[i])
    for s in range(top):
        if to_child[s] >= 0:
            leaf = first + to_child[s]
            _fill(q, leaf, to_slot[s], q.slot_row[start + s], q.slot_x[start + s], q.slot_y[start + s])
    give(q.heap, q.slot_row, start, q.run_class[node])
    _empty(q, node)
    return first


@kernel
def divide(q, node):
    """Give an empty leaf four leaves of its own."""
    return _take_quad(q, node)


@kernel
def split_room(q, node):
    """Slots that splitting a leaf may take."""
    return 16 + q.count[node] + (q.count[node] >> 1)


# --- slots ------------------------------------------------------------------------------------


@kernel
def give_slots(q, leaf, points):
    """Let an empty leaf have so many slots, to be filled by `fill_slot` in order."""
    q.run_class[leaf] = class_for(points)
    q.run[leaf] = take(q.heap, q.slot_row, q.run_class[leaf])
    q.count[leaf] = points
    q.top[leaf] = points
    q.hole[leaf] = -1


@kernel
def _fill(q, leaf, s, row, x, y):
    k = q.run[leaf] + s
    q.slot_row[k] = row
    q.slot_x[k] = x
    q.slot_y[k] = y
    q.leaf[row] = leaf
    q.slot[row] = s


@kernel
def fill_slot(q, leaf, s, row, x, y):
    """Put a point into a slot that `give_slots` made."""
    _fill(q, leaf, s, row, x, y)


@kernel
def slot_room(q, leaf):
    """Slots that one more point in the leaf may take."""
    if q.hole[leaf] >= 0 or q.top[leaf] < capacity(q.run_class[leaf]):
        return 0
    return capacity(q.run_class[leaf] + 1)


@kernel
def add_point(q, leaf, row, x, y):
    """Put a point into a leaf; returns its slot."""
    s = q.hole[leaf]
    if s >= 0:
        q.hole[leaf] = -2 - q.slot_row[q.run[leaf] + s]
    else:
        s = q.top[leaf]
        if s == capacity(q.run_class[leaf]):
            _move_slots(q, leaf)
        q.top[leaf] = s + 1
    q.count[leaf] += 1
    _fill(q, leaf, s, row, x, y)
    return s


@kernel
def _move_slots(q, leaf):
    old, old_class = q.run[leaf], q.run_class[leaf]
    new = take(q.heap, q.slot_row, old_class + 1)
    for s in range(q.top[leaf]):
        q.slot_row[new + s] = q.slot_row[old + s]
        q.slot_x[new + s] = q.slot_x[old + s]
        q.slot_y[new + s] = q.slot_y[old + s]
    give(q.heap, q.slot_row, old, old_class)
    q.run[leaf] = new
    q.run_class[leaf] = old_class + 1


@kernel
def drop_point(q, row):
    """Take a point out of its leaf, which may be left empty; returns the leaf."""
    leaf, s = q.leaf[row], q.slot[row]
    q.slot_row[q.run[leaf] + s] = -2 - q.hole[leaf]
    q.hole[leaf] = s
    q.count[leaf] -= 1
    q.leaf[row] = -1
    if q.count[leaf] == 0:
        free_slots(q, leaf)
    return leaf


@kernel
def free_slots(q, leaf):
    """Give back all slots of a leaf."""
    give(q.heap, q.slot_row, q.run[leaf], q.run_class[leaf])
    _empty(q, leaf)


# --- checking ---------------------------------------------------------------------------------


def check_cells(q: Cells, most: int) -> None:
    """Raise AssertionError where the tree contradicts itself."""
    from nearcast.kernels.runs import free_items

    used = int(q.state[USED])
    seen = np.zeros(used, bool)
    seen[[NOWHERE, BEYOND]] = True
    taken = 0
    stack = [ROOT]
    while stack:
        node = stack.pop()
        assert not seen[node], "a cell has two parents"
        seen[node] = True
        first = int(q.child[node])
        if first == LEAF:
            continue
        assert first > ROOT, "an unused cell is part of the tree"
        assert int(q.count[node]) == 0, "an inner cell holds points"
        for i in range(4):
            assert int(q.parent[first + i]) == node
            sign = (1 if i & 1 else -1, 1 if i & 2 else -1)
            assert q.half[first + i] * 2 == q.half[node]
            assert q.x[first + i] == q.x[node] + sign[0] * q.half[first + i]
            assert q.y[first + i] == q.y[node] + sign[1] * q.half[first + i]
            stack.append(first + i)
    quad = int(q.state[FREE_QUADS])
    while quad >= 0:
        assert not seen[quad : quad + 4].any(), "a free cell is part of the tree"
        assert bool((q.child[quad : quad + 4] == UNUSED).all())
        seen[quad : quad + 4] = True
        quad = int(q.parent[quad])
    assert bool(seen.all()), "a cell is neither part of the tree nor free"
    points = 0
    for node in np.flatnonzero(q.child[:used] == LEAF).tolist():
        _check_leaf(q, node, most)
        points += int(q.count[node])
        taken += int(capacity(int(q.run_class[node])))
    assert points == int((q.leaf >= 0).sum()), "a point is lost"
    assert taken + free_items(q.heap, q.slot_row) == int(q.heap[0]), "slots leak"


def _check_leaf(q: Cells, node: int, most: int) -> None:
    start, top, count = int(q.run[node]), int(q.top[node]), int(q.count[node])
    rows = q.slot_row[start : start + top]
    x, y = q.slot_x[start : start + top], q.slot_y[start : start + top]
    live = rows >= 0
    assert int(live.sum()) == count
    assert top <= int(capacity(int(q.run_class[node])))
    holes, hole = 0, int(q.hole[node])
    while hole >= 0:
        assert not live[hole], "a live slot counts as free"
        holes, hole = holes + 1, -2 - int(rows[hole])
    assert holes + count == top
    assert bool((q.leaf[rows[live]] == node).all())
    assert bool((q.slot[rows[live]] == np.flatnonzero(live)).all())
    for row, px, py in zip(rows[live].tolist(), x[live].tolist(), y[live].tolist(), strict=True):
        assert leaf_at(q, px, py) == node, f"row {row} is in the wrong leaf"
    if count > most and may_split(q, node):
        assert np.unique(x[live]).size == np.unique(y[live]).size == 1, "a leaf is overfull"
