"""PT-Quadtree (LFilter §4) over flat arrays.

Cells are half-open, and those at the rim go on for ever, so a point is in one cell of each
level and an answer belongs to the cell that holds the lower left corner of what message and
clause share: no answer is found twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.jit import kernel
from nearcast.kernels.rows import grow
from nearcast.kernels.tokens import (
    ANY,
    all_in,
    first_not_below,
    lookup,
    meets,
    message_tokens,
    rest_holds,
    room_for,
    sets_meet,
    slot_of,
    table_size,
)

#: Node 0 holds what has no region; node 1 is the root of the cells, if there are any.
EVERYWHERE, ROOT = 0, 1
_DEEPEST = 30
#: Cells that the boxes of a list may reach over on average, the longer way.
_LONGEST = 2.0
#: Places in lists that a clause may take on average.
_MOST_COPIES = 12

# What a step costs, in nanoseconds: fitted to messages of all kinds at a million clauses. An
# item is passed over by its edges, or its first token is compared; if the message has that,
# the clause is looked up, and mostly misses the cache.
VISIT = 200.0
SKIP = 2.0
SCAN = 5.0
CHECK = 110.0


class Cells(NamedTuple):
    """Node i: its cell, its children child[i] … child[i] + 3 (0: a leaf), its list."""

    cell: npt.NDArray[np.float64]
    child: npt.NDArray[np.int32]
    start: npt.NDArray[np.int64]
    """The list of node i is item[start[i]:start[i + 1]]."""
    item: npt.NDArray[np.int32]
    """Entries, ascending: in token-set order."""
    head: npt.NDArray[np.int32]
    """The first token of each item."""
    edge: npt.NDArray[np.uint8]
    """Which edges of each item's box are in the cell: 1 the left one, 2 the lower one."""
    lists: npt.NDArray[np.int32]
    """Nodes with a list in the subtree."""
    items: npt.NDArray[np.int64]
    """Items of those lists."""
    cover: npt.NDArray[np.int64]
    """(n, 2): the run of the node's cover set in `pivot`."""
    rest: npt.NDArray[np.int64]
    """(n, 2): the run of its non-cover set."""
    pivot: npt.NDArray[np.int32]
    extent: npt.NDArray[np.float64]


@kernel
def build(box, leaf, least_area, most_copies, once):
    """(cell, child, start, item, extent): the tree, its cells and lists.

    A node is divided if its list has more than `leaf` items and its cell (within the
    extent) an area above `least_area`; not if the children's lists would be more than
    `most_copies` times as long in all. An item whose box covers the whole cell stays where
    it is. With `once` (MX-CIF) an item goes down only while one child holds all of it.
    """
    n = box.shape[0]
    extent = np.array([np.inf, np.inf, -np.inf, -np.inf])
    placed = 0
    for i in range(n):
        if box[i, 0] > -np.inf:
            placed += 1
            extent[0], extent[1] = min(extent[0], box[i, 0]), min(extent[1], box[i, 1])
            extent[2], extent[3] = max(extent[2], box[i, 2]), max(extent[3], box[i, 3])
    item = np.empty(max(16, 2 * n), np.int32)
    now = np.empty(max(16, 2 * n), np.int32)
    later = np.empty(max(16, 2 * n), np.int32)
    size = 64
    cell = np.empty((size, 4))
    child = np.zeros(size, np.int32)
    starts = np.zeros(size, np.int64)
    first = np.zeros(size, np.int64)
    last = np.zeros(size, np.int64)
    cell[0] = np.array([-np.inf, -np.inf, np.inf, np.inf])
    cell[1] = cell[0]
    used = 0
    for i in range(n):
        if box[i, 0] > -np.inf:
            now[last[1]] = i
            last[1] += 1
        else:
            item[used] = i
            used += 1
    starts[1] = used
    count = 2 if placed > 0 else 1
    node = 1
    level_end = 2
    depth = 0
    used_later = 0
    while node < count:
        if node == level_end:
            now, later = later, now
            used_later = 0
            level_end = count
            depth += 1
        a, b = first[node], last[node]
        if starts.size < count + 6:
            cell2 = np.empty((2 * starts.size, 4))
            cell2[:count] = cell[:count]
            cell = cell2
            child, starts = grow(child, child.size), grow(starts, starts.size)
            first, last = grow(first, first.size), grow(last, last.size)
        child[node] = 0
        x0, y0 = max(cell[node, 0], extent[0]), max(cell[node, 1], extent[1])
        x1, y1 = min(cell[node, 2], extent[2]), min(cell[node, 3], extent[3])
        cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
        split = b - a > leaf and (x1 - x0) * (y1 - y0) > least_area and depth < _DEEPEST
        split = split and cx > x0 and cy > y0
        stays, copies, length = 0, 0, 0.0
        if split:
            for k in range(a, b):
                i = now[k]
                parts = parts_of(box, i, x0, y0, x1, y1, cx, cy, once)
                wide, high = (
                    (box[i, 2] - box[i, 0]) / (x1 - x0),
                    (box[i, 3] - box[i, 1]) / (y1 - y0),
                )
                length += max(wide, high)
                if parts == 0:
                    stays += 1
                for q in range(4):
                    copies += (parts >> q) & 1
            moved = b - a - stays
            split = moved > 0 and copies <= most_copies * moved
            if not once:
                # A thin box has no end of cells; and what all of them take is bounded too.
                split = split and length <= _LONGEST * (b - a)
                split = split and used + used_later + copies <= _MOST_COPIES * n + 4096
        item = room_for(item, used, b - a)
        if not split:
            item[used : used + b - a] = now[a:b]
            used += b - a
            node += 1
            starts[node] = used
            continue
        later = room_for(later, used_later, copies)
        child[node] = count
        for q in range(4):
            low_x = q & 1
            low_y = q >> 1
            cell[count + q, 0] = cell[node, 0] if low_x == 0 else cx
            cell[count + q, 2] = cx if low_x == 0 else cell[node, 2]
            cell[count + q, 1] = cell[node, 1] if low_y == 0 else cy
            cell[count + q, 3] = cy if low_y == 0 else cell[node, 3]
            first[count + q] = used_later
            for k in range(a, b):
                if parts_of(box, now[k], x0, y0, x1, y1, cx, cy, once) >> q & 1:
                    later[used_later] = now[k]
                    used_later += 1
            last[count + q] = used_later
        for k in range(a, b):
            if parts_of(box, now[k], x0, y0, x1, y1, cx, cy, once) == 0:
                item[used] = now[k]
                used += 1
        count += 4
        node += 1
        starts[node] = used
    return (
        cell[:count].copy(), child[:count].copy(), starts[: count + 1].copy(),
        item[:used].copy(), extent,
    )  # fmt: skip


@kernel
def described(box, start, token, cell, child, starts, item):
    """(head, edge, lists, items): what a tree knows of its lists without looking into them."""
    head = np.empty(item.size, np.int32)
    edge = np.empty(item.size, np.uint8)
    count = child.size
    for node in range(count):
        for k in range(starts[node], starts[node + 1]):
            i = item[k]
            head[k] = token[start[i]]
            edge[k] = (1 if box[i, 0] >= cell[node, 0] else 0) + (
                2 if box[i, 1] >= cell[node, 1] else 0
            )
    lists = np.zeros(count, np.int32)
    items = np.zeros(count, np.int64)
    for node in range(count - 1, -1, -1):
        own = starts[node + 1] - starts[node]
        lists[node] = 1 if own > 0 else 0
        items[node] = own
        if child[node] > 0:
            for q in range(child[node], child[node] + 4):
                lists[node] += lists[q]
                items[node] += items[q]
    return head, edge, lists, items


@kernel
def parts_of(box, i, x0, y0, x1, y1, cx, cy, once):
    """Bit q is set if box i goes to child q; 0 if it stays."""
    left, right = box[i, 0] < cx, box[i, 2] >= cx
    below, above = box[i, 1] < cy, box[i, 3] >= cy
    if once:
        if (left and right) or (below and above):
            return 0
    elif box[i, 0] <= x0 and box[i, 2] >= x1 and box[i, 1] <= y0 and box[i, 3] >= y1:
        return 0
    parts = 0
    if below:
        parts += (1 if left else 0) + (2 if right else 0)
    if above:
        parts += (4 if left else 0) + (8 if right else 0)
    return parts


# --- pivotal tokens ---------------------------------------------------------------------------


@kernel
def pivotal(item, a, b, start, token):
    """A small set of tokens of which every item has one, ascending: greedy by what is left.

    Takes the token that most of the remaining items have, until none remains; of equals
    the last in the order. Linear in the items' tokens.
    """
    total = 0
    for k in range(a, b):
        total += start[item[k] + 1] - start[item[k]]
    slots = 16
    while slots < 2 * total:
        slots *= 2
    mask = slots - 1
    key = np.full(slots, -1, np.int32)
    local = np.zeros(slots, np.int32)
    name = np.empty(total, np.int32)
    holders = np.zeros(total + 1, np.int64)
    of = np.empty(total, np.int32)
    known = 0
    at = 0
    for k in range(a, b):
        for m in range(start[item[k]], start[item[k] + 1]):
            s = slot_of(token[m], mask)
            while key[s] >= 0 and key[s] != token[m]:
                s = (s + 1) & mask
            if key[s] < 0:
                key[s] = token[m]
                local[s] = known
                name[known] = token[m]
                known += 1
            of[at] = local[s]
            holders[local[s] + 1] += 1
            at += 1
    left = holders[1 : known + 1].copy()
    for t in range(known):
        holders[t + 1] += holders[t]
    fill = holders[:known].copy()
    member = np.empty(total, np.int32)
    begin = np.empty(b - a + 1, np.int64)
    at = 0
    for k in range(a, b):
        begin[k - a] = at
        for _ in range(start[item[k]], start[item[k] + 1]):
            member[fill[of[at]]] = k - a
            fill[of[at]] += 1
            at += 1
    begin[b - a] = at
    chain = np.full(b - a + 1, -1, np.int32)
    following = np.empty(known, np.int32)
    order = np.argsort(name[:known])
    for i in range(known):
        t = order[i]
        following[t] = chain[left[t]]
        chain[left[t]] = t
    covered = np.zeros(b - a, np.bool_)
    chosen = np.empty(known, np.int32)
    n = 0
    most = b - a
    while most > 0:
        t = chain[most]
        if t < 0:
            most -= 1
            continue
        chain[most] = following[t]
        if left[t] < most:  # counted down since it was put here
            following[t] = chain[left[t]]
            chain[left[t]] = t
            continue
        chosen[n] = name[t]
        n += 1
        for h in range(holders[t], holders[t + 1]):
            i = member[h]
            if not covered[i]:
                covered[i] = True
                for m in range(begin[i], begin[i + 1]):
                    left[of[m]] -= 1
    return np.sort(chosen[:n])


@kernel
def token_sets(child, starts, item, start, token):
    """(cover, rest, pivot): the runs of every node's cover and non-cover set."""
    nodes = child.size
    pivot = np.empty(1024, np.int32)
    used = 0
    cover = np.zeros((nodes, 2), np.int64)
    rest = np.zeros((nodes, 2), np.int64)
    whole = np.empty(1024, np.int32)  # both sets of a node in one
    whole_run = np.zeros((nodes, 2), np.int64)
    whole_used = 0
    for node in range(nodes - 1, -1, -1):
        own = pivotal(item, starts[node], starts[node + 1], start, token)
        c = child[node]
        if c == 0:
            merged = own
            common = own[:0]
        else:
            size = own.size
            for q in range(c, c + 4):
                size += whole_run[q, 1] - whole_run[q, 0]
            merged = np.empty(size, np.int32)
            common = np.empty(size, np.int32)
            n, m = _merged(whole, whole_run, c, own, merged, common)
            merged, common = merged[:n], common[:m]
            for q in range(c, c + 4):
                cover[q, 1] = _without(pivot, cover[q, 0], cover[q, 1], common)
                rest[q, 1] = _without(pivot, rest[q, 0], rest[q, 1], common)
        pivot = room_for(pivot, used, common.size + merged.size)
        cover[node, 0] = used
        pivot[used : used + common.size] = common
        used += common.size
        cover[node, 1] = used
        rest[node, 0] = used
        pivot[used : used + merged.size] = merged
        rest[node, 1] = _without(pivot, used, used + merged.size, common)
        used = rest[node, 1]
        whole = room_for(whole, whole_used, merged.size)
        whole_run[node, 0] = whole_used
        whole[whole_used : whole_used + merged.size] = merged
        whole_used += merged.size
        whole_run[node, 1] = whole_used
    return cover, rest, pivot[:used].copy()


@kernel
def _merged(whole, run, c, own, merged, common):
    """The union of four children's sets and `own`, and what all four children have."""
    p0, p1, p2, p3, p4 = run[c, 0], run[c + 1, 0], run[c + 2, 0], run[c + 3, 0], 0
    s0, s1, s2, s3 = run[c, 1], run[c + 1, 1], run[c + 2, 1], run[c + 3, 1]
    n, m = 0, 0
    nobody = np.int64(1) << 40
    while True:
        t0 = np.int64(whole[p0]) if p0 < s0 else nobody
        t1 = np.int64(whole[p1]) if p1 < s1 else nobody
        t2 = np.int64(whole[p2]) if p2 < s2 else nobody
        t3 = np.int64(whole[p3]) if p3 < s3 else nobody
        t4 = np.int64(own[p4]) if p4 < own.size else nobody
        least = min(min(min(t0, t1), min(t2, t3)), t4)
        if least == nobody:
            return n, m
        merged[n] = least
        n += 1
        if t0 == least and t1 == least and t2 == least and t3 == least:
            common[m] = least
            m += 1
        p0 += 1 if t0 == least else 0
        p1 += 1 if t1 == least else 0
        p2 += 1 if t2 == least else 0
        p3 += 1 if t3 == least else 0
        p4 += 1 if t4 == least else 0


@kernel
def _without(pivot, a, b, gone):
    """Take the ascending `gone` out of the ascending pivot[a:b]; the run's new end."""
    out = a
    g = 0
    for k in range(a, b):
        while g < gone.size and gone[g] < pivot[k]:
            g += 1
        if g == gone.size or gone[g] != pivot[k]:
            pivot[out] = pivot[k]
            out += 1
    return out


# --- matching ---------------------------------------------------------------------------------


@kernel
def candidate_lists(
    cell, child, starts, cover, rest, pivot, extent,
    tokens, n_tokens, keys, mask, x0, y0, x1, y1, stack, lists,
):  # fmt: skip
    """The nodes whose lists may have answers: PT-Quadtree-Filter. (lists, how many, visits, stack)

    A node whose cover set the message meets is taken with all below that it reaches.
    """
    n, visits = 0, 0
    top = 0
    stack[top, 0], stack[top, 1] = EVERYWHERE, 0
    top += 1
    if child.size > 1 and (
        extent[0] <= x1 and extent[2] >= x0 and extent[1] <= y1 and extent[3] >= y0
    ):
        stack[top, 0], stack[top, 1] = ROOT, 0
        top += 1
    while top > 0:
        top -= 1
        node, taken = stack[top, 0], stack[top, 1]
        visits += 1
        if taken == 0:
            if sets_meet(pivot, cover[node, 0], cover[node, 1], tokens, n_tokens, keys, mask):
                taken = 1
            elif not sets_meet(pivot, rest[node, 0], rest[node, 1], tokens, n_tokens, keys, mask):
                continue
        if starts[node + 1] > starts[node]:
            if n == lists.size:
                lists = grow(lists, n)
            lists[n] = node
            n += 1
        c = np.int64(child[node])
        if c == 0:
            continue
        if top + 4 > stack.shape[0]:
            larger = np.empty((2 * stack.shape[0], 2), np.int64)
            larger[:top] = stack[:top]
            stack = larger
        cx, cy = cell[c, 2], cell[c, 3]
        for q in range(4):
            if (x1 >= cx if q & 1 else x0 < cx) and (y1 >= cy if q >> 1 else y0 < cy):
                stack[top, 0], stack[top, 1] = c + q, taken
                top += 1
    return lists, n, visits, stack


@kernel
def edges_asked(cell, node, x0, y0):
    """The edges that a box must have in the cell, so that each answer is found in one cell.

    An answer belongs to the cell that holds the lower left corner of what message and box
    share. Both reach the cell: if the message begins left of it, the box must begin in it.
    """
    return (1 if cell[node, 0] > x0 else 0) + (2 if cell[node, 1] > y0 else 0)


@kernel
def inside(cell, node, x0, y0, x1, y1):
    """Whether the message covers the cell, so that it meets every box there."""
    return (
        cell[node, 0] >= x0 and cell[node, 1] >= y0 and cell[node, 2] <= x1 and cell[node, 3] <= y1
    )


@kernel
def scan_lists(
    cell, starts, item, head, edge, lists, first, stop, least,
    row, box, start, token, more,
    c_start, c_count, attr, low, high, b_attr, b_value, e0, e1,
    keys, mask, x0, y0, x1, y1, out, n, work,
):  # fmt: skip
    """Compare the items of lists[first:stop] from token `least` on: PT-Quadtree-Verify. (out, n)

    Items come in token-set order, so those of one first token are side by side, and those
    with a first token of at least `least` are the end of a list. All lists in one call, for
    a call with so many arrays takes as long as a hundred items.
    """
    entries, scanned, looked = 0, 0, 0
    for number in range(first, stop):
        node = lists[number]
        asked = edges_asked(cell, node, x0, y0)
        covered = inside(cell, node, x0, y0, x1, y1)
        last = np.int32(-1)
        hit = False
        begin, end = starts[node], starts[node + 1]
        if least > ANY:
            begin = first_not_below(head, begin, end, least)
        entries += end - begin
        for k in range(begin, end):
            if edge[k] & asked != asked:
                continue
            scanned += 1
            if head[k] != last:
                last = head[k]
                hit = lookup(keys, mask, last) >= 0
            if not hit:
                continue
            looked += 1
            i = item[k]
            if not (covered or meets(box, i, x0, y0, x1, y1)):
                continue
            r = row[i]
            if r < 0 or not all_in(token, start[i] + 1, start[i + 1], keys, mask):
                continue
            if more[i] and not rest_holds(
                c_start, c_count, attr, low, high, r, b_attr, b_value, e0, e1
            ):
                continue
            if n == out.size:
                out = grow(out, n)
            out[n] = r
            n += 1
    work[1] += entries
    work[2] += int(entries * SKIP + scanned * SCAN + looked * CHECK)
    return out, n


@kernel
def match(q, e, c, rank, batch, boxes, counters):
    """(events, rows) of a batch whose event i is everywhere in boxes[i]."""
    cell, child, starts, item, head = q.cell, q.child, q.start, q.item, q.head
    edge = q.edge
    cover, rest, pivot, extent = q.cover, q.rest, q.pivot, q.extent
    row, box, start, token, more = e.row, e.box, e.start, e.token, e.more
    c_start, c_count, attr, low, high = c.start, c.count, c.attr, c.low, c.high
    b_start, b_attr, b_value = batch.start, batch.attr, batch.value
    w_start, word = batch.word_start, batch.word
    slots = table_size(batch)
    keys = np.empty(slots, np.int32)
    where = np.empty(slots, np.int32)
    tokens = np.empty(slots, np.int32)
    stack = np.empty((64, 2), np.int64)
    lists = np.empty(64, np.int64)
    events = np.empty(256, np.int32)
    found = np.empty(256, np.int32)
    work = np.zeros(3, np.int64)
    n = 0
    for at in range(b_start.size - 1):
        n_tokens, mask = message_tokens(
            word, w_start[at], w_start[at + 1], rank, tokens, keys, where
        )
        x0, y0, x1, y1 = boxes[at, 0], boxes[at, 1], boxes[at, 2], boxes[at, 3]
        lists, n_lists, visits, stack = candidate_lists(
            cell, child, starts, cover, rest, pivot, extent,
            tokens, n_tokens, keys, mask, x0, y0, x1, y1, stack, lists,
        )  # fmt: skip
        work[0] += visits
        before = n
        found, n = scan_lists(
            cell, starts, item, head, edge, lists, 0, n_lists, ANY,
            row, box, start, token, more,
            c_start, c_count, attr, low, high, b_attr, b_value, b_start[at], b_start[at + 1],
            keys, mask, x0, y0, x1, y1, found, n, work,
        )  # fmt: skip
        events = room_for(events, before, n - before)
        events[before:n] = at
    counters[0] += work[0]
    counters[1] += work[1]
    counters[2] += n
    return events[:n], found[:n]
