"""BEQ-Tree's kernels: a quadtree, sorted lists in its leaves, counting over them.

Nothing here lengthens an array. A kernel that lacks room notes in `Tree.need` how much,
before it changes anything; the shell makes room and calls again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.quadtree import (
    BEYOND,
    CHILD,
    COUNT,
    HALF,
    IN_LEAF,
    IN_SLOT,
    LEAF,
    NOWHERE,
    ROOT,
    RUN,
    SPARE_CELLS,
    STACK,
    TOP,
    USED,
    Cells,
    X,
    Y,
    add_point,
    covers,
    drop_point,
    fill_slot,
    fit_root_to,
    free_slots,
    give_slots,
    grow_root,
    leaf_at,
    location_of,
    may_split,
    merge_empty,
    must_split,
    quarter_of,
    reachable,
    slot_room,
    split,
    split_room,
    take_quad,
)
from nearcast.kernels.rows import grow
from nearcast.kernels.runs import capacity, class_for
from nearcast.kernels.sorted_lists import (
    LIST,
    PLAIN,
    SIZE,
    Lists,
    deal,
    deal_room,
    delete,
    delete_plain,
    entry_room,
    find_name,
    first_above,
    first_at_least,
    free_lists,
    free_plain,
    has_name,
    insert,
    insert_plain,
    name_room,
    plain_room,
    reserve_names,
    set_directory,
    set_list,
    set_plain,
    sort_entries,
)

#: No more room, as a plain integer: a literal would make numba compile callees once more.
NONE = np.int64(0)
#: Entries of `Tree.need`: the room that was missing, and the most slots a leaf ever had.
NEED_SLOTS, NEED_ENTRIES, NEED_NAMES, LARGEST = range(4)


class Tree(NamedTuple):
    """What kernels see. The holder of a leaf's lists has the leaf's number."""

    need: np.ndarray
    cells: Cells
    lists: Lists


@kernel
def _lacks(tree, slots, entries, names):
    """Whether there is too little room for this much more; then what to ask for is noted."""
    need, q, ls = tree
    need[NEED_SLOTS] = slots
    need[NEED_ENTRIES] = entries
    need[NEED_NAMES] = names
    return (
        q.node.shape[0] - q.state[USED] < SPARE_CELLS
        or q.slot_row.size - q.heap[0] < slots
        or ls.value.size - ls.heap[0] < entries
        or ls.name.shape[0] - ls.name_heap[0] < names
    )


# --- distances --------------------------------------------------------------------------------


@kernel
def _distance2(q, node, x, y):
    """Squared distance to the cell's centre. Rounding keeps it monotone in |dx| and |dy|."""
    dx = x - q.geo[node, X]
    dy = y - q.geo[node, Y]
    return dx * dx + dy * dy


@kernel
def _list_distances(tree, node):
    """Make the distance list of a leaf that has points and no such list."""
    _, q, ls = tree
    slot = np.empty(q.node[node, COUNT], np.int32)
    far = np.empty(slot.size)
    n = 0
    for s in range(q.node[node, TOP]):
        k = q.node[node, RUN] + s
        if q.slot_row[k] >= 0:
            slot[n] = s
            far[n] = _distance2(q, node, q.slot_at[k, X], q.slot_at[k, Y])
            n += 1
    sort_entries(far, slot, np.empty(far.size), np.empty(far.size, np.int32))
    set_plain(ls, node, far, slot)


# --- adding one -------------------------------------------------------------------------------


@kernel
def _listed(attr, value):
    """Whether an event's value has an entry: places have their own list, NaN none."""
    return attr > 1 and not np.isnan(value)


@kernel
def _room_in_leaf(tree, live, node, row):
    """(entries, new names) that one more event may take in a leaf."""
    _, q, ls = tree
    entries = plain_room(ls, node, q.node[node, COUNT]) if node >= ROOT else 0
    new = 0
    start = live.start[row]
    for k in range(start, start + live.count[row]):
        if _listed(live.attr[k], live.value[k]):
            room = entry_room(ls, node, live.attr[k])
            entries += abs(room)
            new += room < 0
    return entries, new


@kernel
def _add_to_leaf(tree, live, node, row, x, y, new):
    need, q, ls = tree
    reserve_names(ls, node, new)
    before = q.node[node, COUNT]
    slot = add_point(q, node, row, x, y)
    need[LARGEST] = max(need[LARGEST], q.node[node, TOP])
    if node >= ROOT:
        insert_plain(ls, node, before, _distance2(q, node, x, y), slot)
    start = live.start[row]
    for k in range(start, start + live.count[row]):
        if _listed(live.attr[k], live.value[k]):
            insert(ls, node, live.attr[k], live.value[k], slot)


@kernel
def _cover(tree, x, y):
    """Let the root cover a place, if it may (NaN is no place)."""
    _, q, ls = tree
    if covers(q, x, y) or not reachable(x, y):
        return
    if q.node[ROOT, CHILD] != LEAF:
        grow_root(q, x, y)
        return
    fit_root_to(q, x, y)
    root = np.int64(ROOT)
    if q.node[root, COUNT] > 0:
        free_plain(ls, root)
        _list_distances(tree, root)


@kernel
def cover_box(tree, xmin, ymin, xmax, ymax):
    """Let the root cover a box before many points come; False if room for it is missing.

    A box of NaN is nowhere.
    """
    if _lacks(tree, NONE, 2 * tree.cells.node[ROOT, COUNT] + 8, NONE):
        return False
    for i in range(4):
        _cover(tree, xmax if i & 1 else xmin, ymax if i & 2 else ymin)
    return True


@kernel
def _split_leaf(tree, node):
    """Split a leaf and its lists, in time linear in its entries."""
    _, q, ls = tree
    to_child = np.empty(q.node[node, TOP], np.int32)
    to_slot = np.empty(q.node[node, TOP], np.int32)
    first = split(q, node, to_child, to_slot)
    deal(ls, node, first, to_child, to_slot)
    for i in range(4):
        if q.node[first + i, COUNT] > 0:
            _list_distances(tree, first + i)


@kernel
def add(tree, live, rows, at, most):
    """Add rows[at:] one by one; returns how far it came before room was missing."""
    _, q, ls = tree
    while at < rows.size:
        row = rows[at]
        x, y = location_of(live, row)
        if _lacks(tree, NONE, 2 * q.node[ROOT, COUNT] + 8, NONE):
            return at
        _cover(tree, x, y)
        node = leaf_at(q, x, y)
        while must_split(q, node, most, x, y):
            entries, names = deal_room(ls, node, q.node[node, COUNT])
            if _lacks(tree, split_room(q, node), entries, names):
                return at
            _split_leaf(tree, node)
            node = leaf_at(q, x, y)
        entries, new = _room_in_leaf(tree, live, node, row)
        if _lacks(tree, slot_room(q, node), entries, name_room(ls, node, new)):
            return at
        _add_to_leaf(tree, live, node, row, x, y, new)
        at += 1
    return at


# --- adding many ------------------------------------------------------------------------------


@kernel
def gather(tree, rows, x, y, leaf, order, singly):
    """Prepare `build`: (rows, x, y, jobs, how many) of the leaves that will be made anew.

    `order` sorts the new rows by leaf. A leaf that gets few in comparison with what it has
    keeps its lists, and its new rows are marked to be added singly. The others give up
    what they hold, so that old and new are built together.
    """
    _, q, ls = tree
    total = rows.size
    for node in range(q.state[USED]):
        total += q.node[node, COUNT]
    out = np.empty(total, np.int32)
    out_x = np.empty(total)
    out_y = np.empty(total)
    jobs = np.empty((rows.size + STACK, 3), np.int64)
    n = 0
    waiting = 0
    start = 0
    while start < rows.size:
        node = np.int64(leaf[order[start]])
        stop = start
        while stop < rows.size and leaf[order[stop]] == node:
            stop += 1
        if 4 * (stop - start) < q.node[node, COUNT]:
            for i in range(start, stop):
                singly[order[i]] = True
            start = stop
            continue
        low = n
        for k in range(q.node[node, RUN], q.node[node, RUN] + q.node[node, TOP]):
            if q.slot_row[k] >= 0:
                out[n] = q.slot_row[k]
                out_x[n] = q.slot_at[k, X]
                out_y[n] = q.slot_at[k, Y]
                n += 1
        for i in range(start, stop):
            out[n] = rows[order[i]]
            out_x[n] = x[order[i]]
            out_y[n] = y[order[i]]
            n += 1
        if n - low > stop - start:
            free_lists(ls, node)
            free_slots(q, node)
        jobs[waiting, 0] = node
        jobs[waiting, 1] = low
        jobs[waiting, 2] = n
        waiting += 1
        start = stop
    return out[:n], out_x[:n], out_y[:n], jobs, waiting


@kernel
def build(tree, live, rows, x, y, jobs, waiting, most):
    """Work off jobs (leaf, low, high): make the empty leaf hold rows[low:high], split as needed.

    Returns how many jobs are left because room is missing.
    """
    q = tree.cells
    widest = 1
    for i in range(rows.size):
        if live.count[rows[i]] > 0:
            widest = max(widest, live.attr[live.start[rows[i]] + live.count[rows[i]] - 1])
    number = np.full(widest + 1, -1, np.int32)
    while waiting > 0:
        node = jobs[waiting - 1, 0]
        low = jobs[waiting - 1, 1]
        high = jobs[waiting - 1, 2]
        if high - low > most and may_split(q, node) and _differ(x, y, low, high):
            if _lacks(tree, NONE, NONE, NONE):
                return waiting
            waiting = _divide(q, node, rows, x, y, jobs, waiting - 1)
        else:
            if not _build_leaf(tree, live, node, rows[low:high], x[low:high], y[low:high], number):
                return waiting
            waiting -= 1
    return 0


@kernel
def _differ(x, y, low, high):
    for i in range(low + 1, high):
        if x[i] != x[low] or y[i] != y[low]:
            return True
    return False


@kernel
def _divide(q, node, rows, x, y, jobs, waiting):
    """Split a cell, sort the job's rows by quarter and put up to four jobs in its place.

    Returns how many wait.
    """
    first = take_quad(q, node)
    low = jobs[waiting, 1]
    high = jobs[waiting, 2]
    sizes = np.zeros(4, np.int64)
    child = np.empty(high - low, np.int8)
    for i in range(low, high):
        child[i - low] = quarter_of(q, node, x[i], y[i])
        sizes[child[i - low]] += 1
    ends = np.zeros(4, np.int64)
    total = low
    for c in range(4):
        ends[c] = total
        if sizes[c] > 0:
            jobs[waiting, 0] = first + c
            jobs[waiting, 1] = total
            jobs[waiting, 2] = total + sizes[c]
            waiting += 1
        total += sizes[c]
    old_rows = rows[low:high].copy()
    old_x = x[low:high].copy()
    old_y = y[low:high].copy()
    for i in range(high - low):
        at = ends[child[i]]
        ends[child[i]] += 1
        rows[at] = old_rows[i]
        x[at] = old_x[i]
        y[at] = old_y[i]
    return waiting


@kernel
def _build_leaf(tree, live, node, rows, x, y, number):
    """Fill an empty leaf by sorting; False if room is missing.

    `number` (by attribute) is −1 throughout, and again when it returns.
    """
    need, q, ls = tree
    attrs = _attributes(live, rows, number)
    ends = np.zeros(attrs.size + 1, np.int64)
    entries = capacity(class_for(rows.size))
    for i in range(attrs.size):
        ends[i + 1] = ends[i] + number[attrs[i]]
        entries += capacity(class_for(number[attrs[i]]))
        number[attrs[i]] = -1
    if _lacks(tree, capacity(class_for(rows.size)), entries, capacity(class_for(attrs.size))):
        return False
    for i in range(attrs.size):
        number[attrs[i]] = ends[i]
    give_slots(q, node, rows.size)
    need[LARGEST] = max(need[LARGEST], rows.size)
    value = np.empty(ends[-1])
    slot = np.empty(ends[-1], np.int32)
    for i in range(rows.size):
        fill_slot(q, node, i, rows[i], x[i], y[i])
        start = live.start[rows[i]]
        for k in range(start, start + live.count[rows[i]]):
            if _listed(live.attr[k], live.value[k]):
                at = number[live.attr[k]]
                number[live.attr[k]] = at + 1
                value[at] = live.value[k]
                slot[at] = i
    if node >= ROOT:
        _list_distances(tree, node)
    set_directory(ls, node, attrs.size)
    spare_value = np.empty(rows.size)
    spare_slot = np.empty(rows.size, np.int32)
    for i in range(attrs.size):
        number[attrs[i]] = -1
        v = value[ends[i] : ends[i + 1]]
        s = slot[ends[i] : ends[i + 1]]
        sort_entries(v, s, spare_value, spare_slot)
        set_list(ls, node, i, attrs[i], v, s)
    return True


@kernel
def _attributes(live, rows, number):
    """The attributes of these rows, ascending; `number` tells how often each occurs."""
    attrs = np.empty(32, np.int32)
    found = 0
    for i in range(rows.size):
        start = live.start[rows[i]]
        for k in range(start, start + live.count[rows[i]]):
            a = live.attr[k]
            if _listed(a, live.value[k]):
                if number[a] < 0:
                    attrs = grow(attrs, found)
                    attrs[found] = a
                    number[a] = 0
                    found += 1
                number[a] += 1
    return np.sort(attrs[:found])


# --- removing ---------------------------------------------------------------------------------


@kernel
def remove(tree, live, rows):
    """Forget rows; those that are not there are no error."""
    _, q, ls = tree
    for i in range(rows.size):
        row = rows[i]
        if row >= q.where.shape[0] or q.where[row, IN_LEAF] < 0:
            continue
        node = np.int64(q.where[row, IN_LEAF])
        slot = np.int64(q.where[row, IN_SLOT])
        start = live.start[row]
        for k in range(start, start + live.count[row]):
            if _listed(live.attr[k], live.value[k]):
                delete(ls, node, live.attr[k], live.value[k], slot)
        if node >= ROOT:
            place = q.node[node, RUN] + slot
            far = _distance2(q, node, q.slot_at[place, X], q.slot_at[place, Y])
            delete_plain(ls, node, q.node[node, COUNT], far, slot)
        drop_point(q, row)
        if q.node[node, COUNT] == 0:
            merge_empty(q, node)


# --- matching ---------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A clause taken apart: its region, and its other predicates with their place in a leaf."""

    box: np.ndarray
    """xmin, ymin, xmax, ymax; all infinite where there is no region."""
    attr: np.ndarray
    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    last: np.ndarray


@kernel
def _wanted(c, row):
    """Take a clause apart; says too whether it has a region."""
    start = np.int64(c.start[row])
    count = np.int64(c.count[row])
    box = np.array([-np.inf, -np.inf, np.inf, np.inf])
    attr = np.empty(count, np.int64)
    low = np.empty(count)
    high = np.empty(count)
    n = 0
    for k in range(start, start + count):
        a = np.int64(c.attr[k])
        if a < 2:
            box[a] = c.low[k]
            box[2 + a] = c.high[k]
        else:
            attr[n] = a
            low[n] = c.low[k]
            high[n] = c.high[k]
            n += 1
    first = np.empty(n, np.int64)
    last = np.empty(n, np.int64)
    return Wanted(box, attr[:n], low[:n], high[:n], first, last), n < count


@kernel
def _ranges(ls, node, wanted):
    """Find every predicate's range in the leaf's lists; False if one is empty (lines 2–8)."""
    for p in range(wanted.attr.size):
        at = find_name(ls, node, wanted.attr[p])
        if not has_name(ls, node, at, wanted.attr[p]):
            return False
        start = ls.name[at, LIST]
        stop = start + ls.name[at, SIZE]
        first = first_at_least(ls.value, start, stop, wanted.low[p])
        last = first_above(ls.value, first, stop, wanted.high[p])
        if first == last:
            return False
        wanted.first[p] = first
        wanted.last[p] = last
    return True


@kernel
def _count(ls, wanted, counts):
    """One more for every entry in the ranges (lines 9–10)."""
    for p in range(wanted.attr.size):
        for k in range(wanted.first[p], wanted.last[p]):
            counts[np.uint32(ls.slot[k])] += 1


@kernel
def _distances(q, node, box):
    """The least and greatest squared distance from the centre to the region within the cell.

    The paper's d_min and d_max (lines 11–16), for a box.
    """
    x, y, half = q.geo[node, X], q.geo[node, Y], q.geo[node, HALF]
    left = max(box[0], x - half) - x
    right = min(box[2], x + half) - x
    below = max(box[1], y - half) - y
    above = min(box[3], y + half) - y
    near_x = max(max(left, -right), 0.0)
    near_y = max(max(below, -above), 0.0)
    far_x = max(abs(left), abs(right))
    far_y = max(abs(below), abs(above))
    return near_x * near_x + near_y * near_y, far_x * far_x + far_y * far_y


@kernel
def _contains(box, x, y):
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


@kernel
def _match_leaf(tree, live, node, wanted, placed, now, counts, counters, out, n):
    """Algorithm 2 on one leaf: appends the events found to out; returns (out, size)."""
    _, q, ls = tree
    if not _ranges(ls, node, wanted):
        return out, n
    size = wanted.attr.size
    if size > 0:
        counts[: q.node[node, TOP]] = 0
        _count(ls, wanted, counts)
    listed = placed and node >= ROOT
    first, last = np.int64(0), q.node[node, TOP]
    if listed:
        nearest, farthest = _distances(q, node, wanted.box)
        start = ls.holder[node, PLAIN]
        stop = start + q.node[node, COUNT]
        first = first_at_least(ls.value, start, stop, nearest)
        last = first_above(ls.value, first, stop, farthest)
    counters[1] += last - first
    run = q.node[node, RUN]
    for k in range(first, last):
        s = np.int64(ls.slot[k]) if listed else k
        if size > 0 and counts[s] != size:
            continue
        row = q.slot_row[run + s]
        if row < 0 or live.expires[row] <= now:
            continue
        if placed and not _contains(wanted.box, q.slot_at[run + s, X], q.slot_at[run + s, Y]):
            continue
        out = grow(out, n)
        out[n] = row
        n += 1
    return out, n


@kernel
def match(tree, live, c, row, now, counters):
    """Live event rows that the clause wants."""
    wanted, placed = _wanted(c, row)
    return _walk(tree, live, wanted, placed, placed, np.empty(0, np.bool_), now, counters)


@kernel
def match_new(tree, live, c, row, seen, now, counters):
    """Rows that the clause's predicates want in leaves that its region meets and nobody has seen.

    All rows of such a leaf, also outside of the region, and the leaf is `seen` from then on.
    """
    wanted, placed = _wanted(c, row)
    return _walk(tree, live, wanted, placed, False, seen, now, counters)


@kernel
def _walk(tree, live, wanted, placed, within, seen, now, counters):
    """Ask the leaves that a region meets; `within`: for rows in it only; `seen`: which to skip.

    Empty `seen`: none is skipped.
    """
    q = tree.cells
    box = wanted.box
    counts = np.empty(tree.need[LARGEST], np.uint16)
    out = np.empty(256, np.int32)
    n = np.int64(0)
    # Without a region every leaf is asked, and then the two beside the tree come first.
    stack = np.empty(STACK, np.int32)
    stack[0] = ROOT
    stack[1] = BEYOND
    stack[2] = NOWHERE
    waiting = 2 if placed else 3
    while waiting > 0:
        waiting -= 1
        node = np.int64(stack[waiting])
        counters[0] += 1
        child = q.node[node, CHILD]
        if child == LEAF:
            if seen.size > 0:
                if seen[node]:
                    continue
                seen[node] = True
            if q.node[node, COUNT] > 0:
                out, n = _match_leaf(
                    tree, live, node, wanted, within, now, counts, counters, out, n
                )
            continue
        west, east = box[0] < q.geo[node, X], box[2] >= q.geo[node, X]
        south, north = box[1] < q.geo[node, Y], box[3] >= q.geo[node, Y]
        for i in range(4):
            if (east if i & 1 else west) and (north if i & 2 else south):
                stack[waiting] = child + i
                waiting += 1
    counters[2] += n
    return out[:n]
