"""The tree over the tiles: what clauses and events have in common.

Both are runs of closed intervals on columns (an event's value v is the interval v … v).
A node's three children hold what lies left and right of a threshold on one column, by
the middle of the interval, and what has nothing on that column. A child knows the hull of
what lies below it on that column.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import brief_kernel, inlined, kernel, prefetcher
from nearcast.kernels.rows import event_satisfies, longer
from nearcast.kernels.sorting import sort

TILE = 512
WORDS = 8
SAMPLE = 192
ONE = np.uint64(1)
#: Rows that are entered or removed in less time than it takes to get the GIL back.
FEW = 128
#: `kid` of a child that holds nothing.
NOTHING = -(2**30)
#: The root and its first two children: the tree, and the tree of odd ones.
ROOT, MAIN, ODD = 0, 1, 2
#: Parts of a split smaller than this do not get a tile of their own.
SMALL = 48
#: Members that a planned tile should have: nearly full, with some room for what comes.
GOAL = 448
#: Rows after which comes the one that is asked for while one is worked on: in the order of a
#: tree, rows lie anywhere in the store. (Not a function: a call counts references to arrays.)
AHEAD = 8
#: Ends of intervals in a cache line: a clause has more than one of them, mostly.
LINE = 8
_STIR = np.uint64(0xD1342543DE82EF95)
prefetch = prefetcher()


@inlined
def find(attr, start, stop, column):
    """Where the predicate on a column stands in a clause's run, −1 if nowhere."""
    for k in range(start, stop):
        if attr[k] == column:
            return k
    return -1


@kernel
def deeper(stack, depth):
    """The stack, or a copy twice as large where three more might not fit."""
    if depth + 3 <= stack.shape[0]:
        return stack
    return longer(stack, depth, 0)


@inlined
def centre_of(low, high, bottom, top):
    """The middle of an interval, cut to the finite hull of its column."""
    a = max(low, bottom)
    b = min(high, top)
    return 0.5 * (a + b)


@kernel
def selected(values, q):
    """The value that would stand at `q` in ascending order; the others change places."""
    first, last = 0, values.size - 1
    while first < last:
        pivot = values[(first + last) >> 1]
        i, j = first, last
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if q <= j:
            last = j
        elif q >= i:
            first = i
        else:
            break
    return values[q]


@kernel
def _cost(lows, highs, parts, reach, without, least, most):
    """(cost, threshold, hull) of a split of some intervals on a column, into `parts` tiles.

    Infinite where there is none, or none for less than `most`. `without` is what those cost that
    have nothing on the column, `least` what a part does.
    """
    m = lows.size
    bottom = np.inf
    top = -np.inf
    for i in range(m):
        if np.isfinite(lows[i]):
            bottom = min(bottom, lows[i])
            top = max(top, lows[i])
        if np.isfinite(highs[i]):
            bottom = min(bottom, highs[i])
            top = max(top, highs[i])
    if not top > bottom:
        return np.inf, 0.0, bottom, top
    wide = reach * (top - bottom)
    width = top - bottom + wide
    covered = m * wide
    for i in range(m):
        covered += min(highs[i], top) - max(lows[i], bottom)
    if without + covered / width >= most:  # a part's hull is as wide as its widest, or more
        return np.inf, 0.0, bottom, top
    centres = np.empty(m)
    last = -np.inf
    for i in range(m):
        centre = centre_of(lows[i], highs[i], bottom, top)
        centres[i] = centre if centre <= top else top  # that of an interval of NaN is NaN
        last = max(last, centres[i])
    q = (m - 1) * (parts >> 1) // parts
    ordered = centres.copy()
    at = selected(ordered, q)
    if at == last:  # the upper half is all one value: split below it
        sort(ordered)
        while q > 0 and ordered[q - 1] == at:
            q -= 1
        if q == 0:
            return np.inf, 0.0, bottom, top
        at = ordered[q - 1]
    left_low, left_high, right_low, right_high = np.inf, -np.inf, np.inf, -np.inf
    left = 0
    for i in range(m):
        lo = max(lows[i], bottom)
        hi = min(highs[i], top)
        if centres[i] <= at:
            left += 1
            left_low = min(left_low, lo)
            left_high = max(left_high, hi)
        else:
            right_low = min(right_low, lo)
            right_high = max(right_high, hi)
    left_share = (left_high - left_low + wide) / width
    right_share = (right_high - right_low + wide) / width
    # No part is met by less than one value of those here. Nor is one by no number, of huge hulls.
    if not (left_share >= 0.5 and right_share >= 0.5):
        sort(ordered)
        distinct = 1
        for i in range(1, m):
            if ordered[i] != ordered[i - 1]:
                distinct += 1
        left_share = max(1.0 / distinct, left_share)
        right_share = max(1.0 / distinct, right_share)
    cost = without + max(float(left), least) * left_share
    cost += max(float(m - left), least) * right_share
    return cost, at, bottom, top


@kernel
def _choose_split(
    c_start, c_count, c_attr, c_low, c_high, rows, first, stop, reach, each, count, seen
):
    """(column, threshold, hull) of the split that lets the fewest through, −1 if none helps.

    Looks at a sample of the rows, each of which stands for `each`. What comes to be matched is
    taken to be spread evenly over the hull of what is here, as intervals of the share of it that
    `reach` says of the column (the last one of all further columns); what has nothing on the
    column always lets it through.
    `count` (by column, zero) and `seen` are scratch; `count` is left zero.
    """
    n = stop - first
    step = max(1, n // SAMPLE)
    columns = 0
    sampled = 0
    for i in range(first, stop, step):
        prefetch(c_start, rows[i])
        prefetch(c_count, rows[i])
    for i in range(first, stop, step):
        k = np.int64(c_start[rows[i]])
        prefetch(c_attr, k)
        prefetch(c_low, k)
        prefetch(c_low, k + LINE)
        prefetch(c_high, k)
        prefetch(c_high, k + LINE)
    for i in range(first, stop, step):
        row = rows[i]
        sampled += 1
        k0 = np.int64(c_start[row])
        for k in range(k0, k0 + np.int64(c_count[row])):
            a = c_attr[k]
            if count[a] == 0 and columns < seen.size:
                seen[columns] = a
                columns += 1
            count[a] += 1
    best_column = -1
    best_at, best_bottom, best_top = 0.0, 0.0, 0.0
    n *= each
    least = sampled * GOAL / n  # a part of a tile is a tile to look at
    best_cost = 0.98 * 2.0 * max(0.5 * sampled, least)
    # The ends of the sample's intervals by column, of those that enough ask for; from here on
    # `count` has the column's place there, from 1 on.
    frequent = 0
    for j in range(columns):
        a = seen[j]
        often = count[a] * 16 >= sampled
        seen[frequent] = a  # frequent ≤ j
        frequent += often
        count[a] = frequent if often else 0
    if columns == seen.size:  # more columns than places: those beyond were counted too
        count[:] = 0
        for j in range(frequent):
            count[seen[j]] = j + 1
    ends = np.empty((frequent, 2, sampled))
    filled = np.zeros(frequent, np.int64)
    for i in range(first, stop, step):
        row = rows[i]
        k0 = np.int64(c_start[row])
        for k in range(k0, k0 + np.int64(c_count[row])):
            j = count[c_attr[k]] - 1
            if j >= 0 and filled[j] < sampled:
                ends[j, 0, filled[j]] = c_low[k]
                ends[j, 1, filled[j]] = c_high[k]
                filled[j] += 1
    for j in range(frequent):
        a = seen[j]
        count[a] = 0
        m = filled[j]
        without = max(float(sampled - m), least) if m < sampled else 0.0
        if without >= best_cost:
            continue
        reached = reach[a] if a < reach.size else reach[-1]
        parts = max(2, -(-(n * m) // (sampled * GOAL)))  # tiles that they will make
        lows, highs = ends[j, 0, :m], ends[j, 1, :m]
        cost, at, bottom, top = _cost(lows, highs, parts, reached, without, least, best_cost)
        if cost < best_cost:
            best_cost = cost
            best_column = a
            best_at, best_bottom, best_top = at, bottom, top
    return best_column, best_at, best_bottom, best_top


@kernel
def _partition(
    c_start, c_count, c_attr, c_low, c_high, rows, spare, first, stop, column, at, bottom, top, hull
):
    """Reorder rows: centres up to `at`, centres beyond, no predicate on the column.

    Returns where the second and third part begin; `hull` receives low and high of the
    first two parts. Centres are cut to bottom and top, the hull of a sample.
    """
    left_low, left_high, right_low, right_high = np.inf, -np.inf, np.inf, -np.inf
    left = first
    right = 0
    none = stop
    for i in range(first, stop):
        if i + 2 * AHEAD < stop:
            prefetch(c_start, rows[i + 2 * AHEAD])
            prefetch(c_count, rows[i + 2 * AHEAD])
            ahead = np.int64(c_start[rows[i + AHEAD]])
            prefetch(c_attr, ahead)
            prefetch(c_low, ahead)
            prefetch(c_low, ahead + LINE)
            prefetch(c_high, ahead)
            prefetch(c_high, ahead + LINE)
        row = rows[i]
        k0 = np.int64(c_start[row])
        k = find(c_attr, k0, k0 + np.int64(c_count[row]), column)
        if k < 0:
            none -= 1
            spare[none] = row
            continue
        low, high = c_low[k], c_high[k]
        if centre_of(low, high, bottom, top) <= at:
            rows[left] = row
            left += 1
            left_low = min(left_low, low)
            left_high = max(left_high, high)
        else:
            spare[right] = row
            right += 1
            right_low = min(right_low, low)
            right_high = max(right_high, high)
    hull[0], hull[1], hull[2], hull[3] = left_low, left_high, right_low, right_high
    for i in range(right):
        rows[left + i] = spare[i]
    for i in range(none, stop):
        rows[i] = spare[i]
    return left, left + right


@kernel
def plan(
    c_start, c_count, c_attr, c_low, c_high, t, root, rows, reach, columns, keep_odd, limit, each
):
    """Split `rows` (reordered in place) below node `root` into runs of at most `limit`.

    Each row stands for `each`, of which it is a sample. Returns the runs as (node, first,
    stop), and the rows of parts too small for a tile, which belong into the tree of odd ones.
    With `keep_odd` there are none: a split with a small part gives way to equal halves. The
    node arrays must have room for three nodes a split.
    """
    node_attr, node_low, node_high, node_kid = t.attr, t.low, t.high, t.kid
    node_split, node_at, node_bottom, node_top = t.split, t.at, t.bottom, t.top
    count = np.zeros(columns, np.int64)
    seen = np.empty(min(columns, 4096), np.int64)
    spare = np.empty(rows.size, np.int32)
    parts = np.zeros(4)
    runs = np.empty((rows.size * each // SMALL + 2, 3), np.int64)
    found = 0
    odd = np.empty(rows.size, np.int32)
    odds = 0
    nodes = t.used[0]
    stack = np.empty((256, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = root, 0, rows.size
    depth = 1
    peeled = 0
    while depth > 0:
        stack = deeper(stack, depth)
        depth -= 1
        node, first, stop = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        if stop - first <= limit:
            runs[found, 0], runs[found, 1], runs[found, 2] = node, first, stop
            found += 1
            continue
        column, at, bottom, top = _choose_split(
            c_start, c_count, c_attr, c_low, c_high, rows, first, stop, reach, each, count, seen
        )
        left, right = first, first
        if column >= 0:
            left, right = _partition(
                c_start, c_count, c_attr, c_low, c_high, rows, spare, first, stop,
                column, at, bottom, top, parts,
            )  # fmt: skip
            small = min(left - first, right - left)
            if right < stop:
                small = min(small, stop - right)
            if small * each < SMALL:
                peeled += 1
                if keep_odd or small == 0 or peeled > rows.size * each // SMALL:
                    column = -1
        if column < 0:
            left, right = (first + stop) >> 1, stop
        kid = nodes
        nodes += 3
        node_kid[node] = kid
        node_split[node] = column
        node_at[node] = at
        node_bottom[node] = bottom
        node_top[node] = top
        for j in range(3):
            part_first = first if j == 0 else (left if j == 1 else right)
            part_stop = left if j == 0 else (right if j == 1 else stop)
            node_kid[kid + j] = NOTHING
            node_attr[kid + j] = -1
            if part_stop == part_first:
                continue
            if column >= 0 and (part_stop - part_first) * each < SMALL:
                for i in range(part_first, part_stop):
                    odd[odds] = rows[i]
                    odds += 1
                continue
            if column >= 0 and j < 2:
                node_attr[kid + j] = column
                node_low[kid + j] = parts[2 * j]
                node_high[kid + j] = parts[2 * j + 1]
            stack[depth, 0] = kid + j
            stack[depth, 1] = part_first
            stack[depth, 2] = part_stop
            depth += 1
    t.used[0] = nodes
    return runs[:found], odd[:odds]


@kernel
def lead(c_start, c_count, c_attr, c_low, c_high, t, root, rows, leaf, number, low, high):
    """The leaf below `root` that each of some rows belongs to, by the splits that are there.

    `number` (by node, zero) receives how many come by, `low` and `high` (infinite, and minus
    infinite) their hulls on the column of the split above.
    """
    kids, split, at, bottom, top = t.kid, t.split, t.at, t.bottom, t.top
    for i in range(rows.size):
        if i + AHEAD < rows.size:
            prefetch(c_start, rows[i + AHEAD])
            prefetch(c_count, rows[i + AHEAD])
        row = rows[i]
        k0 = np.int64(c_start[row])
        k1 = k0 + np.int64(c_count[row])
        coin = np.uint64(row)
        node = np.int64(root)
        kid = np.int64(kids[node])
        while kid >= 0:
            column = split[node]
            if column < 0:  # as `descend` has it
                coin = coin * _STIR + ONE
                node = kid + np.int64(coin >> np.uint64(63))
            else:
                k = find(c_attr, k0, k1, column)
                if k < 0:
                    node = kid + 2
                else:
                    middle = centre_of(c_low[k], c_high[k], bottom[node], top[node])
                    node = kid if middle <= at[node] else kid + 1
                    low[node] = min(low[node], c_low[k])
                    high[node] = max(high[node], c_high[k])
            number[node] += 1
            kid = np.int64(kids[node])
        leaf[i] = node


@kernel
def deal(rows, leaf, place, out):
    """Put rows behind those of their leaves that are there; `place`, by leaf, goes on."""
    for i in range(rows.size):
        node = leaf[i]
        out[place[node]] = rows[i]
        place[node] += 1


# The position of a single set bit: a de Bruijn product looks it up without a loop.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_POSITION = np.zeros(64, np.int64)
for _i in range(64):
    _POSITION[((0x03F79D71B4CB0A89 << _i) & (2**64 - 1)) >> 58] = _i


@kernel
def bit_number(bit):
    """The number of the only bit that is set."""
    return _POSITION[(bit * _DE_BRUIJN) >> np.uint64(58)]


@kernel
def descend(
    c_start, c_count, c_attr, c_low, c_high,
    n_attr, n_low, n_high, n_kid, n_split, n_at, n_bottom, n_top, row, node,
):  # fmt: skip
    """The leaf for a new row below `node` (MAIN or ODD), and whether it is an odd one.

    Hulls on the way are widened. The leaf may hold nothing yet.
    """
    k0 = np.int64(c_start[row])
    k1 = k0 + np.int64(c_count[row])
    coin = np.uint64(row)
    odd = node == ODD
    while True:
        kid = np.int64(n_kid[node])
        if kid == NOTHING and node != MAIN and not odd:
            node = ODD  # nobody of its kind is here
            odd = True
            continue
        if kid < 0:
            return node, odd
        column = n_split[node]
        if column < 0:
            # Equal halves. Each takes half of what comes, whatever the rows' numbers: the
            # lowest bit alone sent the even ones down one side for ever, a tree like a list.
            coin = coin * _STIR + ONE
            node = kid + np.int64(coin >> np.uint64(63))
            continue
        k = find(c_attr, k0, k1, column)
        if k < 0:
            node = kid + 2
            continue
        middle = centre_of(c_low[k], c_high[k], n_bottom[node], n_top[node])
        node = kid if middle <= n_at[node] else kid + 1
        if n_attr[node] < 0:  # empty until now
            n_attr[node] = column
            n_low[node] = np.inf
            n_high[node] = -np.inf
        n_low[node] = min(n_low[node], c_low[k])
        n_high[node] = max(n_high[node], c_high[k])


@kernel
def free_position(alive, tile):
    """A position of a tile that nobody holds, −1 if it is full."""
    for word in range(WORDS):
        free = ~alive[tile, word]
        if free != 0:
            return word * 64 + bit_number(free & (~free + ONE))
    return -1


@kernel
def leave(alive, live, where, row):
    """Take a row out: its bit in `alive` is cleared, the rest is left for the next comer."""
    if row >= where.size or where[row] < 0:  # never came, or is gone
        return
    place = where[row]
    tile = place // TILE
    position = place % TILE
    alive[tile, position >> 6] &= ~(ONE << np.uint64(position & 63))
    live[tile] -= 1
    where[row] = -1


@kernel
def remove(alive, live, where, rows):
    """Take rows out."""
    for row in rows:
        leave(alive, live, where, row)


@brief_kernel
def remove_few(alive, live, where, rows):
    """`remove` for a few."""
    remove(alive, live, where, rows)


@kernel
def rows_of_tile(alive, rows, tile):
    """The rows that live in a tile."""
    out = np.empty(TILE, np.int32)
    n = 0
    for position in range(TILE):
        if alive[tile, position >> 6] & (ONE << np.uint64(position & 63)):
            out[n] = rows[tile, position]
            n += 1
    return out[:n]


@kernel
def widen_hulls(c_start, c_count, c_attr, c_low, c_high, rows, bottom, top):
    """Widen the hulls of columns by the finite ends of some clauses."""
    for row in rows:
        k0 = np.int64(c_start[row])
        for k in range(k0, k0 + np.int64(c_count[row])):
            a = c_attr[k]
            for end in (c_low[k], c_high[k]):
                if np.isfinite(end):
                    bottom[a] = min(bottom[a], end)
                    top[a] = max(top[a], end)


@kernel
def expected_shares(c_start, c_count, c_attr, c_low, c_high, rows, bottom, top, out):
    """The share of events that each clause lets through, if values spread evenly over hulls.

    `out` has ones.
    """
    for i in range(rows.size):
        k0 = np.int64(c_start[rows[i]])
        for k in range(k0, k0 + np.int64(c_count[rows[i]])):
            a = c_attr[k]
            width = top[a] - bottom[a]
            if width > 0.0:
                covered = min(c_high[k], top[a]) - max(c_low[k], bottom[a])
                out[i] *= max(0.0, covered / width)


@kernel
def merged(events, rows, more_events, more_rows):
    """Two lists of (event, row), each in the order of events, as one."""
    n = events.size + more_events.size
    out_events = np.empty(n, np.int32)
    out_rows = np.empty(n, np.int32)
    i, j = 0, 0
    for k in range(n):
        if j == more_events.size or (i < events.size and events[i] <= more_events[j]):
            out_events[k], out_rows[k] = events[i], rows[i]
            i += 1
        else:
            out_events[k], out_rows[k] = more_events[j], more_rows[j]
            j += 1
    return out_events, out_rows


@kernel
def look_through(c_start, c_count, c_attr, c_low, c_high, rows, batch, first, stop, counters):
    """(events counted from `first`, rows) by comparing each event with each of a few rows."""
    start, attr, value = batch.start, batch.attr, batch.value
    events = np.empty(rows.size * (stop - first), np.int32)
    found = np.empty(events.size, np.int32)
    n = 0
    for e in range(first, stop):
        for row in rows:
            k0 = np.int64(c_start[row])
            k1 = k0 + np.int64(c_count[row])
            if event_satisfies(c_attr, c_low, c_high, k0, k1, attr, value, start[e], start[e + 1]):
                events[n] = e - first
                found[n] = row
                n += 1
    counters[1] += rows.size * (stop - first)
    counters[2] += n
    return events[:n], found[:n]


@kernel
def by_event(events, rows, n, total):
    """The pairs in the order of events: a counting sort."""
    offset = np.zeros(total + 1, np.int64)
    for i in range(n):
        offset[events[i] + 1] += 1
    for e in range(total):
        offset[e + 1] += offset[e]
    sorted_events = np.empty(n, np.int32)
    sorted_rows = np.empty(n, np.int32)
    for i in range(n):
        at = offset[events[i]]
        offset[events[i]] += 1
        sorted_events[at] = events[i]
        sorted_rows[at] = rows[i]
    return sorted_events, sorted_rows
