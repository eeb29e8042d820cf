"""Events held against the tiles, alone or in batches; see `layout`."""

from __future__ import annotations

import numpy as np

from nearcast.index.pivot.clause_tiles.kernels.layout import (
    ANY,
    AT_ONCE,
    CODES,
    GROUP,
    LINE,
    NO_DIM,
    ROW,
    SHELF,
    cell_of,
    code_of,
    column_start,
    null_cell,
    stride_of,
    unpack_tiles,
)
from nearcast.index.pivot.kernels import (
    NOTHING,
    ONE,
    ROOT,
    TILE,
    WORDS,
    bit_number,
    by_event,
    deeper,
)
from nearcast.jit import brief_kernel, inlined, kernel, prefetcher, word_reader
from nearcast.kernels.rows import longer

#: Candidates that are decided together.
CANDIDATES = 4096
#: The highest bit of each byte, the lowest, and the others but the highest.
HIGHEST = np.uint64(0x8080808080808080)
LOWEST = np.uint64(0x0101010101010101)
LOWER = np.uint64(0x7F7F7F7F7F7F7F7F)
ZERO = np.uint64(0)
#: The bytes of a word in which they are compared, and the first of these.
USED = np.uint64(0xFFFFFFFF)
BYTE = np.uint64(0xFF)
prefetch = prefetcher()
read_word = word_reader()


@inlined
def _locate(shelf, dims, dim_attr, dim_low, dim_scale, dense, e, line, q):
    """Find the line of each column of a shelf for an event, and its codes (0: missing)."""
    q[e, NO_DIM] = ANY
    for d in range(dims[shelf]):
        v = dense[e, dim_attr[shelf, d]]
        code = 0
        cell = null = null_cell(d)
        if v == v:
            code = code_of(v, dim_low[shelf, d], dim_scale[shelf, d])
            cell = cell_of(code, null)
        q[e, d] = code
        line[e, d] = column_start(d) + cell * LINE


@inlined
def _call_for_lines(base, tile, order, asked, line, bits):
    """Ask for what `_survivors` will want of a tile for the first event."""
    for j in range(asked[tile]):
        prefetch(bits, base + (tile % SHELF) * WORDS + line[0, order[tile, j]])


@inlined
def _survivors(bits, base, order, asked, line, e, alive, tile, mask):
    """AND the lines of a tile into `mask`; False if nothing is left."""
    m0, m1, m2, m3 = alive[tile, 0], alive[tile, 1], alive[tile, 2], alive[tile, 3]
    m4, m5, m6, m7 = alive[tile, 4], alive[tile, 5], alive[tile, 6], alive[tile, 7]
    j = 0
    while j < asked[tile]:
        stop = min(j + 4, asked[tile])  # a look at the result costs as much as a line or two
        while j < stop:
            k = np.uint64(
                base + line[e, order[tile, j]]
            )  # unsigned: no test for indexes from the end
            m0 &= bits[k]
            m1 &= bits[k + ONE]
            m2 &= bits[k + np.uint64(2)]
            m3 &= bits[k + np.uint64(3)]
            m4 &= bits[k + np.uint64(4)]
            m5 &= bits[k + np.uint64(5)]
            m6 &= bits[k + np.uint64(6)]
            m7 &= bits[k + np.uint64(7)]
            j += 1
        if (m0 | m1 | m2 | m3 | m4 | m5 | m6 | m7) == 0:
            return False
    mask[0], mask[1], mask[2], mask[3] = m0, m1, m2, m3
    mask[4], mask[5], mask[6], mask[7] = m4, m5, m6, m7
    return (m0 | m1 | m2 | m3 | m4 | m5 | m6 | m7) != 0


@inlined
def _note(tile, e, mask, place, of, n, codes, width):
    """Write down the places of a mask behind the n that are there; returns their number.

    Their codes, `width` bytes each, are asked for: in a large index they are seldom at hand.
    """
    for w in range(WORDS):
        left = mask[w]
        while left != 0:
            bit = left & (~left + ONE)
            left ^= bit
            place[n] = tile * TILE + w * 64 + bit_number(bit)
            prefetch(codes, place[n] * width)
            of[n] = e
            n += 1
    return n


@inlined
def _at_least(x, y):
    """The highest bit of each byte of x that is no less than that of y."""
    unlike = x ^ y
    return ((x & ~y) | (~unlike & ((x | HIGHEST) - (y & LOWER)))) & HIGHEST


@inlined
def _has_zero(x):
    """Not 0 if some byte of x is 0."""
    return (x - LOWEST) & ~x & HIGHEST


@inlined
def _compare(codes, first, stop, q, e):
    """Hold an event against the predicates of a clause, four at once, a byte of a word each.

    Returns (whether all may hold, whether a value has the code of an end).
    """
    holds = HIGHEST
    touched = ZERO
    own = e * CODES
    for k in range(first, stop, GROUP):
        word = read_word(codes, k)
        low = word >> np.uint64(32)
        high = (read_word(codes, k + AT_ONCE) >> np.uint64(32)) | ~USED
        value = (
            (HIGHEST & ~USED)  # ANY, in the lanes left over
            | np.uint64(q[own + np.int64(word & BYTE)])
            | np.uint64(q[own + np.int64((word >> np.uint64(8)) & BYTE)]) << np.uint64(8)
            | np.uint64(q[own + np.int64((word >> np.uint64(16)) & BYTE)]) << np.uint64(16)
            | np.uint64(q[own + np.int64((word >> np.uint64(24)) & BYTE)]) << np.uint64(24)
        )
        holds &= _at_least(value, low) & _at_least(high, value)
        touched |= _has_zero(value ^ low) | _has_zero(value ^ high)
    return holds == HIGHEST, touched != ZERO


@kernel
def _decide(place, of, n, q, codes, stride, rest, out, events, m, doubt, doubt_of, u):
    """Decide n places by their codes.

    Rows that hold for certain go to `out` behind the m that are there, those on which the
    floats must decide to `doubt` behind the u there, with their events. Returns both numbers.

    Whether a place holds is anybody's guess, so nothing branches on it: those that do are
    moved to the front.
    """
    held = 0
    width = 3 * stride + ROW
    flat = q.reshape(-1)
    for i in range(n):
        at = place[i]
        e = np.int64(of[i])
        holds, touched = _compare(codes, at * width, at * width + 3 * stride, flat, e)
        place[held] = (at << 1) | np.int64(touched)
        of[held] = e
        held += np.int64(holds)
    for i in range(held):
        at = place[i] >> 1
        row = np.int32(read_word(codes, at * width + width - 8) >> np.uint64(32))
        left = (rest[at >> 6] >> np.uint64(at & 63)) & ONE
        open_ = (place[i] & 1) | np.int64(left)
        out[m] = row
        events[m] = of[i]
        doubt[u] = row
        doubt_of[u] = of[i]
        m += 1 - open_
        u += open_
    return m, u


@kernel
def _settle(doubt, of, n, c_start, c_count, c_attr, c_low, c_high, dense, out, events, m):
    """Decide n rows by the exact floats of the store.

    Appends those that hold to `out` behind the m that are there, their events to
    `events`; returns the number of all. Reads ahead as `_decide` does.
    """
    for i in range(n):
        prefetch(c_start, doubt[i])
        prefetch(c_count, doubt[i])
    for i in range(n):
        k = np.int64(c_start[doubt[i]])
        prefetch(c_attr, k)
        prefetch(c_low, k)
        prefetch(c_high, k)
    for i in range(n):
        row = doubt[i]
        e = of[i]
        k = np.int64(c_start[row])
        stop = k + np.int64(c_count[row])
        while k < stop:
            x = dense[e, c_attr[k]]
            if not (c_low[k] <= x <= c_high[k]):
                break
            k += 1
        if k == stop:
            out[m] = row
            events[m] = e
            m += 1
    return m


# Where a name is given to another array inside a loop, references are counted at every turn, by
# atomic instructions. So the next two work with what room they are given, and tell if it is short.


@kernel
def _walk(node_attr, node_low, node_high, node_kid, order, alive, asked, dense, stack, todo):
    """Tiles that one event meets, into `todo`: (their number, −1 for want of room; nodes)."""
    most = order.shape[1]
    flat_order, flat_alive = order.reshape(-1), alive.reshape(-1)
    stack[0] = ROOT
    depth = 1
    visited = 0
    tiles = 0
    while depth > 0:
        depth -= 1
        kid = np.int64(node_kid[stack[depth]])
        visited += 1
        if kid >= 0:
            if depth + 3 > stack.size:
                return -1, 0
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
        if tiles == todo.size:
            return -1, 0
        todo[tiles] = -1 - kid
        prefetch(flat_order, (-1 - kid) * most)
        prefetch(flat_alive, (-1 - kid) * WORDS)
        prefetch(asked, -1 - kid)
        tiles += 1
    return tiles, visited


@kernel
def _meet(
    c_start, c_count, c_attr, c_low, c_high,
    alive, rest, order, asked, codes, dims, dim_attr, dim_low, dim_scale, bits_,
    dense, todo, tiles, i, room, place, of, doubt, doubt_of, u, out, events, m,
):  # fmt: skip
    """Hold one event against the tiles from number i on: (the tile to go on with, u, m).

    `room` candidates are noted before they are decided; m rows are in `out`, u in `doubt`.
    Where `out` has no room for those of a shelf, the shelf is left to the next call.
    """
    bits, words = bits_.reshape(-1), bits_.shape[1]
    flat, flat_rest = codes.reshape(-1), rest.reshape(-1)
    mask = np.empty(WORDS, np.uint64)
    q = np.empty((1, CODES), np.uint8)
    line = np.empty((1, order.shape[1]), np.int64)
    stride = stride_of(codes)
    n = 0
    begun = i
    here = np.int64(-1)
    while True:
        shelf = todo[i] // SHELF if i < tiles else np.int64(-2)
        if n > 0 and (shelf != here or n + TILE > room):
            if m + u + n > out.size:
                return begun, u, m
            if u + n > room:
                m = _settle(
                    doubt, doubt_of, u, c_start, c_count, c_attr, c_low, c_high, dense, out,
                    events, m,
                )  # fmt: skip
                u = 0
            m, u = _decide(
                place, of, n, q, flat, stride, flat_rest, out, events, m, doubt, doubt_of, u
            )
            n = 0
        if n == 0:
            begun = i
        if i == tiles:
            return i, u, m
        if shelf != here:
            here = shelf
            _locate(shelf, dims, dim_attr, dim_low, dim_scale, dense, 0, line, q)
        tile = todo[i]
        if i + 1 < tiles and todo[i + 1] // SHELF == shelf:
            _call_for_lines(shelf * words, todo[i + 1], order, asked, line, bits)
        base = shelf * words + (tile % SHELF) * WORDS
        if _survivors(bits, base, order, asked, line, 0, alive, tile, mask):
            n = _note(tile, 0, mask, place, of, n, flat, 3 * stride + ROW)
        i += 1


@kernel
def match_event(pack, c_attr, start, attr, value, columns, at, counters):
    """Clause rows that want event `at`.

    A pack, not NamedTuples: to be handed these took longer than the match.
    """
    (
        c_start, c_count, c_low, c_high,
        node_attr, node_low, node_high, node_kid, _, _, _, _,
        _, alive, rest, order, asked, _, codes, _, _,
        dims, dim_attr, dim_low, dim_scale, bits, _,
    ) = unpack_tiles(pack)  # fmt: skip
    dense = np.full((1, columns), np.nan)
    for k in range(start[at], start[at + 1]):
        dense[0, attr[k]] = value[k]
    todo = np.empty(256, np.int64)
    tiles, visited = -1, 0
    while tiles < 0:
        stack = np.empty(2 * todo.size, np.int64)
        tiles, visited = _walk(
            node_attr, node_low, node_high, node_kid, order, alive, asked, dense, stack, todo
        )
        if tiles < 0:
            todo = np.empty(2 * todo.size, np.int64)
    room = min(CANDIDATES, TILE * tiles)
    place = np.empty(room, np.int64)
    of = np.zeros(room, np.int32)
    out = np.empty(room, np.int32)
    events = np.empty(room, np.int32)
    doubt = np.empty(room, np.int32)
    doubt_of = np.empty(room, np.int32)
    i, m, u = 0, 0, 0
    while True:
        i, u, m = _meet(
            c_start, c_count, c_attr, c_low, c_high,
            alive, rest, order, asked, codes, dims, dim_attr, dim_low, dim_scale, bits,
            dense, todo, tiles, i, room, place, of, doubt, doubt_of, u, out, events, m,
        )  # fmt: skip
        if i == tiles and m + u <= out.size:
            break
        out, events = longer(out, m, m + 2 * room), longer(events, m, m + 2 * room)
    m = _settle(doubt, doubt_of, u, c_start, c_count, c_attr, c_low, c_high, dense, out, events, m)
    counters[0] += visited
    counters[1] += tiles * TILE
    counters[2] += m
    return out[:m]


@brief_kernel
def match_event_briefly(pack, c_attr, start, attr, value, columns, at, counters):
    """`match_event` where it takes no longer than to get the GIL back."""
    return match_event(pack, c_attr, start, attr, value, columns, at, counters)


@kernel
def match_events(c, nodes, t, batch, counters):
    """(events, rows) for a whole batch: the events walk down the tree together.

    A tile's lines are fetched once for all events that reach it.
    """
    node_attr, node_low, node_high, node_kid = nodes.attr, nodes.low, nodes.high, nodes.kid
    dims, dim_attr, dim_low, dim_scale = t.dims, t.dim_attr, t.dim_low, t.dim_scale
    alive, rest, codes = t.alive, t.rest, t.codes
    bits, order, asked = t.bits.reshape(-1), t.order, t.asked
    words = t.bits.shape[1]
    c_start, c_count, c_attr, c_low, c_high = c.start, c.count, c.attr, c.low, c.high
    start, attr, value = batch.start, batch.attr, batch.value
    total = start.size - 1
    chunk = min(total, max(16, min(1024, (1 << 21) // max(1, batch.columns))))
    most = dim_attr.shape[1]
    mask = np.empty(WORDS, np.uint64)
    q = np.empty((chunk, CODES), np.uint8)
    line = np.empty((chunk, most), np.int64)
    located = np.full(chunk, -1, np.int64)
    stride = stride_of(codes)
    flat, flat_rest = codes.reshape(-1), rest.reshape(-1)
    place = np.empty(CANDIDATES, np.int64)
    of = np.empty(CANDIDATES, np.int32)
    doubt = np.empty(CANDIDATES, np.int32)
    doubt_of = np.empty(CANDIDATES, np.int32)
    events = np.empty(2 * CANDIDATES, np.int32)
    out = np.empty(2 * CANDIDATES, np.int32)
    m = 0
    stack = np.empty((512, 3), np.int64)
    lists = np.empty(8 * chunk, np.int32)
    dense = np.full((chunk, batch.columns), np.nan)
    for first in range(0, total, max(1, chunk)):
        size = min(chunk, total - first)
        for e in range(size):
            for k in range(start[first + e], start[first + e + 1]):
                dense[e, attr[k]] = value[k]
            lists[e] = e
        located[:] = -1
        begun = m
        n, u = 0, 0
        stack[0, 0], stack[0, 1], stack[0, 2] = ROOT, 0, size
        depth = 1
        while depth > 0:
            depth -= 1
            node, a, b = stack[depth, 0], stack[depth, 1], stack[depth, 2]
            kid = np.int64(node_kid[node])
            counters[0] += b - a
            if kid < 0:
                tile = -1 - kid
                shelf = tile // SHELF
                base = shelf * words + (tile % SHELF) * WORDS
                counters[1] += TILE * (b - a)
                for i in range(a, b + 1):
                    if n > 0 and (i == b or n + TILE > CANDIDATES):
                        if m + u + n > out.size:
                            out = longer(out, m, m + u + n)
                            events = longer(events, m, m + u + n)
                        if u + n > CANDIDATES:
                            m = _settle(
                                doubt, doubt_of, u, c_start, c_count, c_attr, c_low, c_high,
                                dense, out, events, m,
                            )  # fmt: skip
                            u = 0
                        m, u = _decide(
                            place, of, n, q, flat, stride, flat_rest, out, events, m,
                            doubt, doubt_of, u,
                        )  # fmt: skip
                        n = 0
                    if i == b:
                        break
                    e = lists[i]
                    if located[e] != shelf:
                        located[e] = shelf
                        _locate(shelf, dims, dim_attr, dim_low, dim_scale, dense, e, line, q)
                    if _survivors(bits, base, order, asked, line, e, alive, tile, mask):
                        n = _note(tile, e, mask, place, of, n, flat, 3 * stride + ROW)
                continue
            # Lists of nodes that wait lie below this one's: the room behind it is free.
            stack = deeper(stack, depth)
            top = b
            if top + 3 * (b - a) > lists.size:
                lists = longer(lists, top, top + 3 * (b - a))
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
        if m + u > out.size:
            out, events = longer(out, m, m + u), longer(events, m, m + u)
        m = _settle(
            doubt, doubt_of, u, c_start, c_count, c_attr, c_low, c_high, dense, out,
            events, m,
        )  # fmt: skip
        for i in range(begun, m):
            events[i] += first
        for e in range(size):
            for k in range(start[first + e], start[first + e + 1]):
                dense[e, attr[k]] = np.nan
    counters[2] += m
    return by_event(events, out, m, total)
