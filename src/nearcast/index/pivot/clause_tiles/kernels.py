"""Clauses in tiles: the kernels of event matching in `pivot`.

A tile holds up to 512 clause rows. A binary tree over the tiles tests one interval on one
column at each node: the hull of what lies below. A tile keeps, for each of its most
telling columns, 15 cells and a null cell with one bit a clause: "a value of this cell may
satisfy it". 512 bits are a cache line, and a match ANDs one line a column.

Few survivors are compared with the exact floats of the store at once. Many are first
compared by 7-bit codes of their ends, all 512 side by side: the codes are kept bit by bit,
a line for every bit, and a few logical operations a line compare a value with all of them.
Codes are tile-local and monotone: lo ≤ v ≤ hi implies code(lo) ≤ code(v) ≤ code(hi), and
strictly between the codes means strictly between the values, so only where a value falls
into the same code as an end do the floats have to decide. Values have the codes 1 … 126, so
that 0 and 127 can stand for "any".
"""

from __future__ import annotations

import numpy as np

from nearcast.index.pivot.kernels import (
    NOTHING,
    ONE,
    ROOT,
    TILE,
    WORDS,
    bit_number,
    deeper,
    descend,
    find,
    free_position,
)
from nearcast.jit import kernel

CELLS = 16
NULL_CELL = 15
BLOCK = CELLS * WORDS
PLANES = 7
#: Words of a column's codes: a line for each bit of the low and of the high code.
CODE_BLOCK = 2 * PLANES * WORDS
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
#: Survivors of a tile from which on all of its codes are compared first: some 1.2 µs for
#: 20 columns, against 50 ns or more for each survivor that goes to the store (an estimate).
MANY = 24


@kernel
def _code(v, low, scale):
    """The code of a value in a tile's column; monotone, clamped at the ends."""
    t = (v - low) * scale
    if t >= 125.0:
        return 126
    if t > 0.0:
        return 1 + int(t)
    return 1


@kernel
def _tell(c_start, c_count, c_attr, c_low, c_high, rows, first, stop, count, seen, hull):
    """The columns of some rows with their hulls and how much they tell; (number, weights).

    A column tells much that many rows ask for and with narrow intervals. hull is
    (2, columns); count is left zero.
    """
    columns = 0
    for i in range(first, stop):
        row = rows[i]
        k0 = np.int64(c_start[row])
        for k in range(k0, k0 + np.int64(c_count[row])):
            a = c_attr[k]
            if count[a] == 0:
                if columns == seen.size:
                    continue
                seen[columns] = a
                columns += 1
                hull[0, a] = np.inf
                hull[1, a] = -np.inf
            count[a] += 1
            if np.isfinite(c_low[k]):
                hull[0, a] = min(hull[0, a], c_low[k])
                hull[1, a] = max(hull[1, a], c_low[k])
            if np.isfinite(c_high[k]):
                hull[0, a] = min(hull[0, a], c_high[k])
                hull[1, a] = max(hull[1, a], c_high[k])
    weight = np.zeros(columns)
    for j in range(columns):
        count[seen[j]] = j + 1
    for i in range(first, stop):
        row = rows[i]
        k0 = np.int64(c_start[row])
        for k in range(k0, k0 + np.int64(c_count[row])):
            a = c_attr[k]
            j = count[a] - 1
            if j < 0:
                continue
            width = hull[1, a] - hull[0, a]
            if width > 0.0:
                lo = max(c_low[k], hull[0, a])
                hi = min(c_high[k], hull[1, a])
                weight[j] += 1.0 - (hi - lo) / width
            weight[j] += 0.05  # an event may lack the column altogether
    for j in range(columns):
        count[seen[j]] = 0
    return columns, weight


@kernel
def _enter(c_start, c_count, c_attr, c_low, c_high, t, tile, position, row):
    """Write one clause into a free position of a tile."""
    word = position >> 6
    bit = ONE << np.uint64(position & 63)
    dims = np.int64(t.dims[tile])
    bits = t.bits[tile]
    dim_attr, dim_low, dim_scale = t.dim_attr[tile], t.dim_low[tile], t.dim_scale[tile]
    codes = t.codes[tile]
    k0 = np.int64(c_start[row])
    k1 = k0 + np.int64(c_count[row])
    written = 0
    for d in range(dims):
        k = find(c_attr, k0, k1, dim_attr[d])
        low_cell, high_cell, lo, hi = 0, NULL_CELL, 0, 127  # any value, and none
        if k >= 0:
            lo = _code(c_low[k], dim_low[d], dim_scale[d])
            hi = _code(c_high[k], dim_low[d], dim_scale[d])
            low_cell = (lo * NULL_CELL) >> 7
            high_cell = (hi * NULL_CELL) >> 7
            written += 1
        at = d * BLOCK + word
        for cell in range(CELLS):
            if low_cell <= cell <= high_cell:
                bits[at + cell * WORDS] |= bit
            else:
                bits[at + cell * WORDS] &= ~bit
        at = d * CODE_BLOCK + word
        for plane in range(PLANES):
            if lo >> plane & 1:
                codes[at + plane * WORDS] |= bit
            else:
                codes[at + plane * WORDS] &= ~bit
            if hi >> plane & 1:
                codes[at + (PLANES + plane) * WORDS] |= bit
            else:
                codes[at + (PLANES + plane) * WORDS] &= ~bit
    if written < k1 - k0:  # some predicate is on none of the tile's columns
        t.rest[tile, word] |= bit
    else:
        t.rest[tile, word] &= ~bit
    t.alive[tile, word] |= bit
    t.rows[tile, position] = row
    t.live[tile] += 1
    t.where[row] = tile * TILE + position


@kernel
def _fill_tile(
    c_start, c_count, c_attr, c_low, c_high, t, tile, rows, first, stop, count, seen, hull,
):  # fmt: skip
    """Make a tile of at most 512 rows anew."""
    columns, weight = _tell(
        c_start, c_count, c_attr, c_low, c_high, rows, first, stop, count, seen, hull
    )
    dims = min(columns, t.dim_attr.shape[1])
    order = np.argsort(-weight[:columns])
    t.alive[tile] = 0
    t.live[tile] = 0
    t.limit[tile] = min(TILE, 2 * (stop - first) + 8)
    t.dims[tile] = dims
    for d in range(dims):
        a = seen[order[d]]
        width = hull[1, a] - hull[0, a]
        t.dim_attr[tile, d] = a
        t.dim_low[tile, d] = hull[0, a] if np.isfinite(hull[0, a]) else 0.0
        scale = 0.0
        if width > 0.0 and np.isfinite(width):
            scale = 125.0 / width
            if not np.isfinite(scale):
                scale = 0.0
        t.dim_scale[tile, d] = scale
    for i in range(first, stop):
        _enter(c_start, c_count, c_attr, c_low, c_high, t, tile, i - first, rows[i])


@kernel
def fill(c, t, kid, rows, runs, tiles, columns):
    """Make a tile of each run of rows. Runs are independent: threads may share the work."""
    c_start, c_count, c_attr, c_low, c_high = c.start, c.count, c.attr, c.low, c.high
    count = np.zeros(columns, np.int64)
    seen = np.empty(min(columns, 4096), np.int64)
    hull = np.empty((2, columns))
    for i in range(len(runs)):
        tile = np.int64(tiles[i])
        _fill_tile(
            c_start, c_count, c_attr, c_low, c_high, t, tile, rows, runs[i, 1], runs[i, 2],
            count, seen, hull,
        )  # fmt: skip
        kid[runs[i, 0]] = -1 - tile


@kernel
def insert_many(c, nodes, t, rows, first, root):
    """Enter rows from number `first` on.

    Returns (next number, −1, False), or where another tile is needed first: (number,
    node, whether it is an odd one).
    """
    c_start, c_count, c_attr, c_low, c_high = c.start, c.count, c.attr, c.low, c.high
    for i in range(first, rows.size):
        row = rows[i]
        node, odd = descend(c_start, c_count, c_attr, c_low, c_high, nodes, row, root)
        kid = np.int64(nodes.kid[node])
        tile = -1 - kid
        if kid == NOTHING or t.live[tile] >= t.limit[tile]:
            return i, node, odd
        position = free_position(t.alive, tile)
        _enter(c_start, c_count, c_attr, c_low, c_high, t, tile, position, row)
    return rows.size, -1, False


@kernel
def _locate(tile, bits, dims, dim_attr, dim_low, dim_scale, dense, e, at, q):
    """Find the line of each column for an event: offsets to `at`, codes to `q` (0: missing).

    Reads the first word of every line, so that all of them are on their way from memory
    at once; returns something of them, or the compiler would not read.
    """
    touched = np.uint64(0)
    for d in range(dims[tile]):
        v = dense[e, dim_attr[tile, d]]
        cell = NULL_CELL
        code = 0
        if v == v:
            code = _code(v, dim_low[tile, d], dim_scale[tile, d])
            cell = (code * NULL_CELL) >> 7
        q[d] = code
        at[d] = d * BLOCK + cell * WORDS
        touched |= bits[tile, at[d]]
    return touched


@kernel
def _survivors(tile, bits, dims, alive, at, mask):
    """AND the lines into `mask`; False if nothing is left."""
    for w in range(WORDS):
        mask[w] = alive[tile, w]
    for d in range(dims[tile]):
        k = at[d]
        left = np.uint64(0)
        for w in range(WORDS):
            m = mask[w] & bits[tile, k + w]
            mask[w] = m
            left |= m
        if left == 0:
            return False
    return True


@kernel
def _count(mask):
    """How many bits are set."""
    total = 0
    for w in range(WORDS):
        m = mask[w]
        m -= (m >> ONE) & np.uint64(0x5555555555555555)
        m = (m & np.uint64(0x3333333333333333)) + (
            (m >> np.uint64(2)) & np.uint64(0x3333333333333333)
        )
        m = (m + (m >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        total += np.int64((m * np.uint64(0x0101010101010101)) >> np.uint64(56))
    return total


@kernel
def _all_or_none(code, bit):
    """Every bit set if this bit of the code is."""
    return ALL if code >> bit & 1 else np.uint64(0)


@kernel
def _compare(tile, codes, dims, q, mask, sure):
    """Keep in `mask` the clauses whose codes hold the event's, in `sure` those strictly inside.

    Bit by bit from the highest: `below` has those whose low code has turned out smaller,
    `same` those still equal; `above` and `level` likewise for the high codes. Written out
    line by line, which is some 15 % faster than a loop over the bits.
    """
    plane = codes[tile]
    for d in range(dims[tile]):
        code = q[d]
        if code == 0:
            continue
        v6, v5, v4 = _all_or_none(code, 6), _all_or_none(code, 5), _all_or_none(code, 4)
        v3, v2, v1 = _all_or_none(code, 3), _all_or_none(code, 2), _all_or_none(code, 1)
        v0 = _all_or_none(code, 0)
        left = np.uint64(0)
        first = np.uint64(d * CODE_BLOCK)
        for w in range(WORDS):
            a = first + np.uint64(w)  # unsigned: no test for indexes from the end
            x = plane[a + np.uint64(48)]
            below = ~x & v6
            same = ~(x ^ v6)
            x = plane[a + np.uint64(40)]
            below |= same & ~x & v5
            same &= ~(x ^ v5)
            x = plane[a + np.uint64(32)]
            below |= same & ~x & v4
            same &= ~(x ^ v4)
            x = plane[a + np.uint64(24)]
            below |= same & ~x & v3
            same &= ~(x ^ v3)
            x = plane[a + np.uint64(16)]
            below |= same & ~x & v2
            same &= ~(x ^ v2)
            x = plane[a + np.uint64(8)]
            below |= same & ~x & v1
            same &= ~(x ^ v1)
            x = plane[a]
            below |= same & ~x & v0
            same &= ~(x ^ v0)
            x = plane[a + np.uint64(104)]
            above = x & ~v6
            level = ~(x ^ v6)
            x = plane[a + np.uint64(96)]
            above |= level & x & ~v5
            level &= ~(x ^ v5)
            x = plane[a + np.uint64(88)]
            above |= level & x & ~v4
            level &= ~(x ^ v4)
            x = plane[a + np.uint64(80)]
            above |= level & x & ~v3
            level &= ~(x ^ v3)
            x = plane[a + np.uint64(72)]
            above |= level & x & ~v2
            level &= ~(x ^ v2)
            x = plane[a + np.uint64(64)]
            above |= level & x & ~v1
            level &= ~(x ^ v1)
            x = plane[a + np.uint64(56)]
            above |= level & x & ~v0
            level &= ~(x ^ v0)
            held = mask[w] & (below | same) & (above | level)
            mask[w] = held
            sure[w] &= below & above
            left |= held
        if left == 0:
            return False
    return True


@kernel
def _take(tile, e, mask, t_rows, out, events, m):
    """Append all clauses of a mask; returns their number with those before."""
    for w in range(WORDS):
        left = mask[w]
        while left != 0:
            bit = left & (~left + ONE)
            left ^= bit
            out[m] = t_rows[tile, w * 64 + bit_number(bit)]
            events[m] = e
            m += 1
    return m


@kernel
def _settle(place, n, t_rows, c_start, c_count, c_attr, c_low, c_high, dense, sink, out, events, m):
    """Decide n candidates by the exact floats of the store.

    `place` has (tile · 512 + position, event) of each, and room for two numbers more.
    Appends the clause rows that hold to `out` behind the m that are there, their events to
    `events`; returns the number of all.

    Every step goes over all candidates and reads one word of each: loads that do not wait
    for each other overlap, and in a large index loads are most of the time. What is read
    ahead goes to `sink`, or the compiler would not read it.
    """
    for i in range(n):
        place[i, 0] = t_rows[place[i, 0] >> 9, place[i, 0] & 511]
    for i in range(n):
        place[i, 2] = c_start[place[i, 0]]
        place[i, 3] = place[i, 2] + np.int64(c_count[place[i, 0]])
    total = 0.0
    for i in range(n):
        if place[i, 2] < place[i, 3]:
            total += c_low[place[i, 2]] + c_high[place[i, 2]] + c_attr[place[i, 2]]
    sink[0] = total
    for i in range(n):
        k = place[i, 2]
        e = place[i, 1]
        while k < place[i, 3]:
            x = dense[e, c_attr[k]]
            if not (c_low[k] <= x <= c_high[k]):
                break
            k += 1
        if k == place[i, 3]:
            out[m] = place[i, 0]
            events[m] = e
            m += 1
    return m


@kernel
def _visit(tile, e, q, mask, sure, dims, codes, rest, t_rows, place, n, out, events, m):
    """Take what a tile's surviving bits tell for certain, and write the doubtful down.

    Returns (candidates written down, rows taken), each with those before.
    """
    if _count(mask) >= MANY:
        for w in range(WORDS):
            sure[w] = mask[w]
        if not _compare(tile, codes, dims, q, mask, sure):
            return n, m
        for w in range(WORDS):
            sure[w] &= ~rest[tile, w]
            mask[w] &= ~sure[w]
        m = _take(tile, e, sure, t_rows, out, events, m)
    for w in range(WORDS):
        left = mask[w]
        while left != 0:
            bit = left & (~left + ONE)
            left ^= bit
            place[n, 0] = tile * TILE + w * 64 + bit_number(bit)
            place[n, 1] = e
            n += 1
    return n, m


@kernel
def _longer(array, used, wanted):
    larger = np.empty(max(2 * array.size, wanted), array.dtype)
    larger[:used] = array[:used]
    return larger


#: Candidates that are settled together.
CANDIDATES = 8192


@kernel
def match_event(
    c_start, c_count, c_attr, c_low, c_high,
    node_attr, node_low, node_high, node_kid,
    dims, dim_attr, dim_low, dim_scale, alive, rest, bits, codes, t_rows,
    start, attr, value, columns, at, counters,
):  # fmt: skip
    """Clause rows that want event `at`.

    Single arrays, not NamedTuples: unpacking those took longer than the match.
    """
    dense = np.full((1, columns), np.nan)
    for k in range(start[at], start[at + 1]):
        dense[0, attr[k]] = value[k]
    todo = np.empty(dims.size, np.int64)
    stack = np.empty(512, np.int64)
    stack[0] = ROOT
    depth = 1
    visited = 0
    tiles = 0
    while depth > 0:
        depth -= 1
        kid = np.int64(node_kid[stack[depth]])
        visited += 1
        if kid >= 0:
            stack = deeper(stack, depth)
            for j in range(kid, kid + 3):
                if node_kid[j] == NOTHING:
                    continue
                a = node_attr[j]
                if a >= 0:
                    v = dense[0, a]
                    if not (node_low[j] <= v <= node_high[j]):
                        continue
                stack[depth] = j
                depth += 1
            continue
        todo[tiles] = -1 - kid
        tiles += 1
    mask = np.empty(WORDS, np.uint64)
    sure = np.empty(WORDS, np.uint64)
    q = np.empty((2, dim_attr.shape[1]), np.int64)
    lines = np.empty((2, dim_attr.shape[1]), np.int64)
    room = min(CANDIDATES, TILE * tiles)
    place = np.empty((room, 4), np.int64)
    sink = np.empty(1)
    out = np.empty(room, np.int32)
    events = np.empty(room, np.int32)
    n, m = 0, 0
    touched = np.uint64(0)
    for i in range(tiles + 1):
        if i < tiles:  # while one tile is worked on, the lines of the next are fetched
            touched |= _locate(
                todo[i], bits, dims, dim_attr, dim_low, dim_scale, dense, 0, lines[i & 1], q[i & 1]
            )
        if i == 0:
            continue
        turn = (i - 1) & 1
        if _survivors(todo[i - 1], bits, dims, alive, lines[turn], mask):
            if n + TILE > room:
                m = _settle(
                    place, n, t_rows, c_start, c_count, c_attr, c_low, c_high, dense, sink,
                    out, events, m,
                )  # fmt: skip
                n = 0
            if m + n + TILE > out.size:
                out, events = _longer(out, m, m + n + TILE), _longer(events, m, m + n + TILE)
            n, m = _visit(
                todo[i - 1], 0, q[turn], mask, sure, dims, codes, rest, t_rows, place, n,
                out, events, m,
            )  # fmt: skip
    m = _settle(
        place, n, t_rows, c_start, c_count, c_attr, c_low, c_high, dense, sink, out, events, m
    )
    counters[0] += visited
    counters[1] += tiles * TILE + np.int64(touched & np.uint64(0))
    counters[2] += m
    return out[:m]


@kernel
def match_events(c, nodes, t, batch, counters):
    """(events, rows) for a whole batch: the events walk down the tree together.

    A tile's lines are fetched once for all events that reach it.
    """
    node_attr, node_low, node_high, node_kid = nodes.attr, nodes.low, nodes.high, nodes.kid
    bits, dims, dim_attr, dim_low, dim_scale = t.bits, t.dims, t.dim_attr, t.dim_low, t.dim_scale
    alive, rest, codes, t_rows = t.alive, t.rest, t.codes, t.rows
    c_start, c_count, c_attr, c_low, c_high = c.start, c.count, c.attr, c.low, c.high
    start, attr, value = batch.start, batch.attr, batch.value
    total = start.size - 1
    chunk = max(16, min(1024, (1 << 21) // max(1, batch.columns)))
    mask = np.empty(WORDS, np.uint64)
    sure = np.empty(WORDS, np.uint64)
    q = np.empty(dim_attr.shape[1], np.int64)
    lines = np.empty(dim_attr.shape[1], np.int64)
    place = np.empty((CANDIDATES, 4), np.int64)
    sink = np.empty(1)
    events = np.empty(CANDIDATES, np.int32)
    out = np.empty(CANDIDATES, np.int32)
    m = 0
    stack = np.empty((512, 3), np.int64)
    lists = np.empty(8 * chunk, np.int32)
    dense = np.full((chunk, batch.columns), np.nan)
    for first in range(0, total, chunk):
        size = min(chunk, total - first)
        for e in range(size):
            for k in range(start[first + e], start[first + e + 1]):
                dense[e, attr[k]] = value[k]
            lists[e] = e
        begun = m
        n = 0
        stack[0, 0], stack[0, 1], stack[0, 2] = ROOT, 0, size
        depth = 1
        while depth > 0:
            depth -= 1
            node, a, b = stack[depth, 0], stack[depth, 1], stack[depth, 2]
            kid = np.int64(node_kid[node])
            if kid < 0:
                tile = -1 - kid
                for i in range(a, b):
                    e = lists[i]
                    _locate(tile, bits, dims, dim_attr, dim_low, dim_scale, dense, e, lines, q)
                    if not _survivors(tile, bits, dims, alive, lines, mask):
                        continue
                    if n + TILE > CANDIDATES:
                        m = _settle(
                            place, n, t_rows, c_start, c_count, c_attr, c_low, c_high, dense,
                            sink, out, events, m,
                        )  # fmt: skip
                        n = 0
                    if m + n + TILE > out.size:
                        out = _longer(out, m, m + n + TILE)
                        events = _longer(events, m, m + n + TILE)
                    n, m = _visit(
                        tile, e, q, mask, sure, dims, codes, rest, t_rows, place, n,
                        out, events, m,
                    )  # fmt: skip
                counters[0] += 1
                counters[1] += TILE * (b - a)
                continue
            # Lists of nodes that wait lie below this one's: the room behind it is free.
            stack = deeper(stack, depth)
            top = b
            if top + 3 * (b - a) > lists.size:
                lists = _longer(lists, top, top + 3 * (b - a))
            for j in range(kid, kid + 3):
                if node_kid[j] == NOTHING:
                    continue
                begin = top
                column = node_attr[j]
                if column < 0:
                    for i in range(a, b):
                        lists[top] = lists[i]
                        top += 1
                else:
                    low, high = node_low[j], node_high[j]
                    for i in range(a, b):
                        e = lists[i]
                        v = dense[e, column]
                        lists[top] = e
                        if low <= v <= high:
                            top += 1
                if top > begin:
                    stack[depth, 0], stack[depth, 1], stack[depth, 2] = j, begin, top
                    depth += 1
        m = _settle(
            place, n, t_rows, c_start, c_count, c_attr, c_low, c_high, dense, sink, out, events, m
        )
        for i in range(begun, m):
            events[i] += first
        for e in range(size):
            for k in range(start[first + e], start[first + e + 1]):
                dense[e, attr[k]] = np.nan
    counters[2] += m
    return _by_event(events, out, m, total)


@kernel
def _by_event(events, rows, n, total):
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
