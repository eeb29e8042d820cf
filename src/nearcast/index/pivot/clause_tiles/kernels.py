"""Clauses in tiles: the kernels of event matching in `pivot`.

A tile holds up to 512 clause rows. A binary tree over the tiles tests one interval on one
column at each node: the hull of what lies below. A tile keeps, for each of its most
telling columns, 15 cells and a null cell with one bit a clause: "a value of this cell may
satisfy it". 512 bits are a cache line, and a match ANDs one line a column.

What survives is compared by 7-bit codes, a low and a high one for every column of the
tile, eight columns in a 64-bit word, and only where a value falls into the same code as
an end of the interval, with the exact floats of the store. Codes are tile-local and
monotone: lo ≤ v ≤ hi implies code(lo) ≤ code(v) ≤ code(hi), and strictly between the codes
means strictly between the values. Values have the codes 1 … 126, so that 0 and 127 can
stand for "any". The eighth bit catches the borrow of eight subtractions at once.
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
    descend,
    find,
    free_position,
)
from nearcast.jit import kernel

CELLS = 16
NULL_CELL = 15
BLOCK = CELLS * WORDS
HIGH_BITS = np.uint64(0x8080808080808080)
EACH = np.uint64(0x0101010101010101)
ANY_HIGH = np.uint64(0x7F7F7F7F7F7F7F7F)


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
    width = codes.size // (2 * TILE)
    base = position * 2 * width
    for w in range(width):
        codes[base + w] = 0
        codes[base + width + w] = ANY_HIGH
    k0 = np.int64(c_start[row])
    k1 = k0 + np.int64(c_count[row])
    written = 0
    for d in range(dims):
        k = find(c_attr, k0, k1, dim_attr[d])
        at = d * BLOCK + word
        if k < 0:
            for cell in range(CELLS):
                bits[at + cell * WORDS] |= bit
            continue
        lo = _code(c_low[k], dim_low[d], dim_scale[d])
        hi = _code(c_high[k], dim_low[d], dim_scale[d])
        low_cell = (lo * NULL_CELL) >> 7
        high_cell = (hi * NULL_CELL) >> 7
        for cell in range(CELLS):
            if low_cell <= cell <= high_cell:
                bits[at + cell * WORDS] |= bit
            else:
                bits[at + cell * WORDS] &= ~bit
        shift = np.uint64(8 * (d & 7))
        codes[base + (d >> 3)] |= np.uint64(lo) << shift
        codes[base + width + (d >> 3)] ^= np.uint64(127 - hi) << shift
        written += 1
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
    """Find the line of each column for an event: offsets to `at`, codes to the bytes `q`.

    Reads the first word of every line, so that all of them are on their way from memory
    at once; returns something of them, or the compiler would not read.
    """
    touched = np.uint64(0)
    for d in range(dims[tile]):
        v = dense[e, dim_attr[tile, d]]
        cell = NULL_CELL
        code = 64  # inside "any"
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
def _candidates(tile, visit, mask, place, visit_of, n):
    """Write down the surviving positions of a tile; returns their number with those before."""
    for w in range(WORDS):
        m = mask[w]
        while m != 0:
            bit = m & (~m + ONE)
            m ^= bit
            place[n] = tile * TILE + w * 64 + bit_number(bit)
            visit_of[n] = visit
            n += 1
    return n


@kernel
def _settle(
    place, visit_of, n, visit_q, visit_event, codes, rest, t_rows,
    c_start, c_count, c_attr, c_low, c_high, dense, edge, sink, out, events, m,
):  # fmt: skip
    """Decide n candidates by their codes, and by the exact floats where those do not tell.

    Appends the clause rows that hold to `out` behind the m that are there, their events to
    `events`; returns both (they may have moved) and their number.

    Every step goes over all candidates and first reads one word of each: loads that do
    not wait for each other overlap, and in a large index loads are most of the time.
    What is read ahead goes to `sink`, or the compiler would not read it.
    """
    if m + n > out.size:
        out, events = _longer(out, m, m + n), _longer(events, m, m + n)
    width = visit_q.shape[1]
    touched = np.uint64(0)
    for i in range(n):
        touched |= codes[place[i] >> 9, (place[i] & 511) * 2 * width]
    edges = np.int64(touched >> np.uint64(63))  # always 0, but the loads must not be dropped
    for i in range(n):
        tile = place[i] >> 9
        position = place[i] & 511
        base = position * 2 * width
        visit = visit_of[i]
        inside = HIGH_BITS
        sure = HIGH_BITS
        for k in range(width):
            lo = codes[tile, base + k]
            hi = codes[tile, base + width + k] | HIGH_BITS
            v = visit_q[visit, k]
            inside &= ((v | HIGH_BITS) - lo) & (hi - v)
            sure &= (((v - EACH) | HIGH_BITS) - lo) & (hi - (v + EACH))
        if inside & HIGH_BITS != HIGH_BITS:
            continue
        more = rest[tile, position >> 6] >> np.uint64(position & 63) & ONE
        if sure & HIGH_BITS == HIGH_BITS and more == 0:
            out[m] = t_rows[tile, position]
            events[m] = visit_event[visit]
            m += 1
        else:
            edge[edges, 0] = t_rows[tile, position]
            edge[edges, 1] = visit_event[visit]
            edges += 1
    total = 0.0
    for i in range(edges):
        edge[i, 2] = c_start[edge[i, 0]]
        edge[i, 3] = edge[i, 2] + np.int64(c_count[edge[i, 0]])
    for i in range(edges):
        if edge[i, 2] < edge[i, 3]:
            total += c_low[edge[i, 2]] - c_high[edge[i, 2]] + c_attr[edge[i, 2]]
    sink[0] = total
    for i in range(edges):
        k = edge[i, 2]
        e = edge[i, 1]
        while k < edge[i, 3]:
            x = dense[e, c_attr[k]]
            if not (c_low[k] <= x <= c_high[k]):
                break
            k += 1
        if k == edge[i, 3]:
            out[m] = edge[i, 0]
            events[m] = e
            m += 1
    return out, events, m


@kernel
def _longer(array, used, wanted):
    larger = np.empty(max(2 * array.size, wanted), array.dtype)
    larger[:used] = array[:used]
    return larger


#: Visits of a tile by an event, and candidates, that are settled together.
VISITS, CANDIDATES = 256, 8192


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
    width = codes.shape[1] // (2 * TILE)
    mask = np.empty(WORDS, np.uint64)
    q = np.full((2, 8 * width), 64, np.uint8)
    lines = np.empty((2, dim_attr.shape[1]), np.int64)
    visit_q = np.empty((min(VISITS, tiles), width), np.uint64)
    visit_event = np.zeros(min(VISITS, tiles), np.int64)
    room = min(CANDIDATES, TILE * tiles)
    place = np.empty(room, np.int64)
    visit_of = np.empty(room, np.int64)
    edge = np.empty((room, 4), np.int64)
    sink = np.empty(1)
    out = np.empty(256, np.int32)
    events = np.empty(256, np.int32)
    n, m, visit = 0, 0, 0
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
            if visit == VISITS or n + TILE > room:
                out, events, m = _settle(
                    place, visit_of, n, visit_q, visit_event, codes, rest, t_rows,
                    c_start, c_count, c_attr, c_low, c_high, dense, edge, sink, out, events, m,
                )  # fmt: skip
                n, visit = 0, 0
            visit_q[visit] = q[turn].view(np.uint64)
            n = _candidates(todo[i - 1], visit, mask, place, visit_of, n)
            visit += 1
    out, events, m = _settle(
        place, visit_of, n, visit_q, visit_event, codes, rest, t_rows,
        c_start, c_count, c_attr, c_low, c_high, dense, edge, sink, out, events, m,
    )  # fmt: skip
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
    width = codes.shape[1] // (2 * TILE)
    mask = np.empty(WORDS, np.uint64)
    q = np.full(8 * width, 64, np.uint8)
    words = q.view(np.uint64)
    lines = np.empty(dim_attr.shape[1], np.int64)
    visit_q = np.empty((VISITS, width), np.uint64)
    visit_event = np.zeros(VISITS, np.int64)
    place = np.empty(CANDIDATES, np.int64)
    visit_of = np.empty(CANDIDATES, np.int64)
    edge = np.empty((CANDIDATES, 4), np.int64)
    sink = np.empty(1)
    events = np.empty(1024, np.int32)
    out = np.empty(1024, np.int32)
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
        n, visit = 0, 0
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
                    if visit == VISITS or n + TILE > CANDIDATES:
                        out, events, m = _settle(
                            place, visit_of, n, visit_q, visit_event, codes, rest, t_rows,
                            c_start, c_count, c_attr, c_low, c_high, dense, edge, sink,
                            out, events, m,
                        )  # fmt: skip
                        n, visit = 0, 0
                    visit_q[visit] = words
                    visit_event[visit] = e
                    n = _candidates(tile, visit, mask, place, visit_of, n)
                    visit += 1
                counters[0] += 1
                counters[1] += TILE * (b - a)
                continue
            # Lists of nodes that wait lie below this one's: the room behind it is free.
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
        out, events, m = _settle(
            place, visit_of, n, visit_q, visit_event, codes, rest, t_rows,
            c_start, c_count, c_attr, c_low, c_high, dense, edge, sink, out, events, m,
        )  # fmt: skip
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
