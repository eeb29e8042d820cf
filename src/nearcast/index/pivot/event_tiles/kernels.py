"""Live events in tiles: the kernels of subscription matching in `pivot`.

A tile holds up to 512 events and, for each of the most frequent columns, an 8-bit code of
every event's value side by side, so that a predicate is tested on 32 events with one
instruction. Codes are tile-local and monotone; 0 is a missing value. Where a value falls
into the same code as an end of the interval, the exact floats of the store decide.
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
    free_position,
)
from nearcast.jit import brief_kernel, inlined, kernel, packing, prefetcher
from nearcast.kernels.rows import find_value, longer

prefetch = prefetcher()
#: What a match works on: start, count, attr and value of the store; attr, low, high, kid and split
#: of the nodes; of the tiles dim_low, dim_scale, hull_low, hull_high, full, alive, expires, codes
#: and rows; their columns.
pack_tiles, unpack_tiles = packing(
    "i8", "u2", "i4", "f8",
    "i4", "f8", "f8", "i4", "i4",
    "f4:2", "f4:2", "f8:2", "f8:2", "u1:2", "u8:2", "i8:2", "u1:2", "i4:2",
    "i4",
)  # fmt: skip
_LOW_BYTES, _ADD_UP = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0001000100010001)


@kernel
def _code(v, low, scale):
    """The code of a value in a tile's column, 1 … 255; monotone, clamped at the ends."""
    t = (v - low) * scale
    if t >= 254.0:
        return 255
    if t > 0.0:
        return 1 + int(t)
    return 1


@kernel
def _enter(
    start, count, attr, value, expires,
    live, dim_low, dim_scale, hull_low, hull_high, full, alive, t_expires, codes, t_rows, where,
    columns, tile, position, row,
):  # fmt: skip
    """Write one event into a free position of a tile."""
    word = position >> 6
    bit = ONE << np.uint64(position & 63)
    e0 = start[row]
    e1 = e0 + np.int64(count[row])
    for d in range(columns.size):
        v = find_value(attr, value, e0, e1, columns[d])
        if v == v:
            hull_low[tile, d] = min(hull_low[tile, d], v)
            hull_high[tile, d] = max(hull_high[tile, d], v)
            code = _code(v, dim_low[tile, d], dim_scale[tile, d])
        else:
            full[tile, d] = 0
            code = 0
        codes[tile, d * TILE + position] = code
    alive[tile, word] |= bit
    t_rows[tile, position] = row
    t_expires[tile, position] = expires[row]
    live[tile] += 1
    where[row] = tile * TILE + position


@kernel
def fill(live, t, kid, columns, rows, runs, tiles):
    """Make a tile of each run of rows. Runs are independent: threads may share the work."""
    start, count, attr, value, expires = (
        live.start, live.count, live.attr, live.value, live.expires,
    )  # fmt: skip
    for i in range(len(runs)):
        tile = np.int64(tiles[i])
        first, stop = runs[i, 1], runs[i, 2]
        t.alive[tile] = 0
        t.live[tile] = 0
        t.limit[tile] = min(TILE, 2 * (stop - first) + 8)
        for d in range(columns.size):
            low = np.inf
            high = -np.inf
            for j in range(first, stop):
                row = rows[j]
                e0 = start[row]
                v = find_value(attr, value, e0, e0 + np.int64(count[row]), columns[d])
                if np.isfinite(v):
                    low = min(low, v)
                    high = max(high, v)
            t.hull_low[tile, d] = np.inf
            t.hull_high[tile, d] = -np.inf
            t.full[tile, d] = 1
            t.dim_low[tile, d] = low if low <= high else 0.0
            scale = 0.0
            if high > low and np.isfinite(high - low):
                scale = 254.0 / (high - low)
            t.dim_scale[tile, d] = scale if np.isfinite(scale) else 0.0
        for j in range(first, stop):
            _enter(
                start, count, attr, value, expires,
                t.live, t.dim_low, t.dim_scale, t.hull_low, t.hull_high, t.full, t.alive,
                t.expires, t.codes, t.rows, t.where, columns, tile, j - first, rows[j],
            )  # fmt: skip
        kid[runs[i, 0]] = -1 - tile


@kernel
def insert_many(
    start, count, attr, value, expires,
    n_attr, n_low, n_high, n_kid, n_split, n_at, n_bottom, n_top,
    live, limit, dim_low, dim_scale, hull_low, hull_high, full, alive, t_expires, codes, t_rows,
    where, columns, rows, first, root,
):  # fmt: skip
    """Enter rows from number `first` on; see the clauses' `insert_many`."""
    for i in range(first, rows.size):
        row = rows[i]
        node, odd = descend(
            start, count, attr, value, value,
            n_attr, n_low, n_high, n_kid, n_split, n_at, n_bottom, n_top, row, root,
        )  # fmt: skip
        kid = np.int64(n_kid[node])
        tile = -1 - kid
        if kid == NOTHING or live[tile] >= limit[tile]:
            return i, node, odd
        _enter(
            start, count, attr, value, expires,
            live, dim_low, dim_scale, hull_low, hull_high, full, alive, t_expires, codes, t_rows,
            where, columns, tile, free_position(alive, tile), row,
        )  # fmt: skip
    return rows.size, -1, False


@brief_kernel
def insert_few(
    start, count, attr, value, expires,
    n_attr, n_low, n_high, n_kid, n_split, n_at, n_bottom, n_top,
    live, limit, dim_low, dim_scale, hull_low, hull_high, full, alive, t_expires, codes, t_rows,
    where, columns, rows, first, root,
):  # fmt: skip
    """`insert_many` for a few."""
    return insert_many(
        start, count, attr, value, expires,
        n_attr, n_low, n_high, n_kid, n_split, n_at, n_bottom, n_top,
        live, limit, dim_low, dim_scale, hull_low, hull_high, full, alive, t_expires, codes, t_rows,
        where, columns, rows, first, root,
    )  # fmt: skip


@inlined
def _narrow(codes, at, low, high, ok, okay, sure):
    """Keep in `ok` the positions whose code lies in low … high, in `sure` those strictly inside.

    The codes of a tile's column begin at `at`. Returns how many are left in `ok`; `okay` is the
    same eight bytes at a time.
    """
    first = np.uint64(at)  # unsigned: a test for indexes from the end would be no instruction of 32
    for i in range(TILE):
        c = codes[first + np.uint64(i)]
        ok[i] &= np.uint8((c >= low) & (c <= high))
        sure[i] &= np.uint8((c > low) & (c < high))
    # Eight sums of up to 64 ones side by side, added up in the end.
    sums = np.uint64(0)
    for i in range(okay.size):
        sums += okay[i]
    pairs = (sums & _LOW_BYTES) + ((sums >> np.uint64(8)) & _LOW_BYTES)
    return np.int64((pairs * _ADD_UP) >> np.uint64(48))


@kernel
def _walk(
    node_attr, node_low, node_high, node_kid, node_split, hull_low, hull_high,
    wanted, wanted_low, wanted_high, stack, todo,
):  # fmt: skip
    """Tiles that a clause meets, into `todo`: (their number, −1 for want of room; nodes).

    See the clauses' `_walk`.
    """
    dims = hull_low.shape[1]
    bottoms, tops = hull_low.reshape(-1), hull_high.reshape(-1)
    stack[0] = ROOT
    depth = 1
    visited = 0
    tiles = 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        kid = np.int64(node_kid[node])
        visited += 1
        if kid >= 0:
            if depth + 3 > stack.size:
                return -1, 0
            split = node_split[node]
            for j in range(kid, kid + 3):
                if node_kid[j] == NOTHING:
                    continue
                a = node_attr[j]
                if a >= 0:
                    if wanted_low[a] > node_high[j] or wanted_high[a] < node_low[j]:
                        continue
                elif split >= 0 and wanted[split]:
                    continue  # those that lack what is asked for
                stack[depth] = j
                depth += 1
            continue
        if tiles == todo.size:
            return -1, 0
        tile = -1 - kid
        todo[tiles] = tile
        for d in range(0, dims, 8):
            prefetch(bottoms, tile * dims + d)
            prefetch(tops, tile * dims + d)
        tiles += 1
    return tiles, visited


@inlined
def _call_for_codes(codes, at):
    """Ask for the codes of a tile's column."""
    for i in range(0, TILE, 64):
        prefetch(codes, at + i)


@kernel
def match_clause(pack, c_attr, c_low, c_high, c0, c1, now, columns, counters):
    """Live event rows that satisfy the predicates c0 … c1."""
    (
        start, count, attr, value,
        node_attr, node_low, node_high, node_kid, node_split,
        dim_low, dim_scale, hull_low, hull_high, full, alive, expires, codes_, t_rows,
        dims,
    ) = unpack_tiles(pack)  # fmt: skip
    wanted_low = np.full(columns, -np.inf)
    wanted_high = np.full(columns, np.inf)
    wanted = np.zeros(columns, np.uint8)
    dim_of = np.full(columns, -1, np.int64)
    for d in range(dims.size):
        dim_of[dims[d]] = d
    rest = False
    for k in range(c0, c1):
        a = c_attr[k]
        if a >= columns or not c_low[k] <= c_high[k]:  # a column that no live event has
            return np.empty(0, np.int32)
        wanted[a] = 1
        wanted_low[a] = c_low[k]
        wanted_high[a] = c_high[k]
        rest = rest or dim_of[a] < 0
    todo = np.empty(256, np.int64)
    tiles, visited = -1, 0
    while tiles < 0:
        stack = np.empty(2 * todo.size, np.int64)
        tiles, visited = _walk(
            node_attr, node_low, node_high, node_kid, node_split, hull_low, hull_high,
            wanted, wanted_low, wanted_high, stack, todo,
        )  # fmt: skip
        if tiles < 0:
            todo = np.empty(2 * todo.size, np.int64)
    codes, width = codes_.reshape(-1), codes_.shape[1]
    # Tiles that the clause does not pass by, and of those the codes that are looked at first.
    met = 0
    for i in range(tiles):
        tile = todo[i]
        apart = False
        for k in range(c0, c1):
            d = dim_of[c_attr[k]]
            if d >= 0 and (c_low[k] > hull_high[tile, d] or c_high[k] < hull_low[tile, d]):
                apart = True
                break
        if apart:
            continue
        todo[met] = tile
        met += 1
        for k in range(c0, min(c1, c0 + 2)):
            if dim_of[c_attr[k]] >= 0:
                _call_for_codes(codes, tile * width + dim_of[c_attr[k]] * TILE)
    ok = np.empty(TILE, np.uint8)
    sure = np.empty(TILE, np.uint8)
    okay = ok.view(np.uint64)
    out = np.empty(TILE, np.int32)
    n = 0
    for i in range(met):
        tile = todo[i]
        ok[:] = 1
        sure[:] = 0 if rest else 1
        left = TILE
        for k in range(c0, c1):
            if left == 0:
                break
            d = dim_of[c_attr[k]]
            if d < 0 or (
                full[tile, d] and c_low[k] <= hull_low[tile, d] and hull_high[tile, d] <= c_high[k]
            ):
                continue
            if k + 2 < c1 and dim_of[c_attr[k + 2]] >= 0:
                _call_for_codes(codes, tile * width + dim_of[c_attr[k + 2]] * TILE)
            low = np.uint8(_code(c_low[k], dim_low[tile, d], dim_scale[tile, d]))
            high = np.uint8(_code(c_high[k], dim_low[tile, d], dim_scale[tile, d]))
            left = _narrow(codes, tile * width + d * TILE, low, high, ok, okay, sure)
        if left == 0:
            continue
        if n + left > out.size:
            out = longer(out, n, 2 * (n + left))
        for w in range(WORDS):
            m = alive[tile, w]
            for b in range(8):  # eight positions a word of `okay`
                if okay[8 * w + b] == 0:
                    m &= ~(np.uint64(0xFF) << np.uint64(8 * b))
            while m != 0:
                bit = m & (~m + ONE)
                m ^= bit
                position = w * 64 + bit_number(bit)
                if ok[position] == 0 or expires[tile, position] <= now:
                    continue
                row = t_rows[tile, position]
                if not sure[position]:
                    e0 = start[row]
                    e1 = e0 + np.int64(count[row])
                    k = c0
                    while k < c1:
                        v = find_value(attr, value, e0, e1, c_attr[k])
                        if not (c_low[k] <= v <= c_high[k]):
                            break
                        k += 1
                    if k < c1:
                        continue
                out[n] = row
                n += 1
    counters[0] += visited
    counters[1] += met * TILE
    counters[2] += n
    return out[:n]


@brief_kernel
def match_clause_briefly(pack, c_attr, c_low, c_high, c0, c1, now, columns, counters):
    """`match_clause` where it takes no longer than to get the GIL back."""
    return match_clause(pack, c_attr, c_low, c_high, c0, c1, now, columns, counters)
