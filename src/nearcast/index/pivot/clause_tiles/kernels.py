"""Clauses in tiles: the kernels of event matching in `pivot`.

A tile holds up to 512 clause rows. A binary tree over the tiles tests one interval on one
column at each node: the hull of what lies below. Tiles that are near each other in the tree
stand on one shelf, 32 of them, and agree on their most telling columns. For each of these a
shelf keeps 15 cells (63 for the first two) and a null cell, with one bit a clause: "a value
of this cell may satisfy it". 512 bits are a cache line; a match ANDs one line a column and
tile, and as the lines of one cell lie side by side for all tiles of the shelf, memory is
read in streams.

What survives is compared by 8-bit codes of its predicates, which stand together in one or
two cache lines a clause: (column of the shelf, code of low, code of high), four predicates
at once, each in a byte of a machine word. Codes are monotone: lo ≤ v ≤ hi implies
code(lo) ≤ code(v) ≤ code(hi), and strictly between the codes means strictly between the
values, so only where a value has the same code as an end do the exact floats of the store
decide. Values have the codes 1 … 254; 0 and 255 are infinite ends.
"""

from __future__ import annotations

import numpy as np

from nearcast.index.pivot.kernels import (
    AHEAD,
    MAIN,
    NOTHING,
    ONE,
    ROOT,
    TILE,
    WORDS,
    bit_number,
    by_event,
    deeper,
    descend,
    free_position,
    leave,
)
from nearcast.jit import brief_kernel, inlined, kernel, packing, prefetcher, word_reader
from nearcast.kernels.plain import (
    DENIED,
    UNFIT,
    arranged,
    fits,
    one_row,
    overwrite,
    unpack_standing,
)
from nearcast.kernels.rows import write_clause
from nearcast.kernels.strings import find, insert
from nearcast.kernels.strings import remove as remove_id

#: Tiles of a shelf.
SHELF = 32
#: Cells of a column, the last of which is for events that lack it; its first columns, which
#: tell most, have FINER times as many: that leaves a quarter fewer clauses to be compared.
CELLS = 16
FINE, FINER = 2, 4
#: Words from one cell of a column to the next.
LINE = SHELF * WORDS
#: Words of a column that is not fine.
BLOCK = CELLS * LINE
#: Stands for a column where a clause has no more predicates, and the code that events have there.
NO_DIM = 31
ANY = 128
#: Codes that an event has, by column of the shelf; those that it lacks are 0.
CODES = 32
#: Rows of a shelf by which its columns are chosen.
SAMPLE = 2048
#: Candidates that are decided together.
CANDIDATES = 4096
#: The highest bit of each byte, the lowest, and the others but the highest.
HIGHEST = np.uint64(0x8080808080808080)
LOWEST = np.uint64(0x0101010101010101)
LOWER = np.uint64(0x7F7F7F7F7F7F7F7F)
ZERO = np.uint64(0)
#: Predicates that are compared at once, and the bytes of their codes: columns, lows, highs.
AT_ONCE = 4
GROUP = 3 * AT_ONCE
#: The bytes of the row behind the codes of a clause.
ROW = 4
#: The bytes of a word in which they are compared, and the first of these.
USED = np.uint64(0xFFFFFFFF)
BYTE = np.uint64(0xFF)
prefetch = prefetcher()
read_word = word_reader()
#: What changes work on, but for `attr` of the store: its start, count, low and high; attr, low,
#: high, kid, split, at, bottom and top of the nodes; of the tiles live, alive, rest, order, asked,
#: rows, codes, entered, limit, dims, dim_attr, dim_low, dim_scale, bits and where.
pack_tiles, unpack_tiles = packing(
    "u4", "u2", "f8", "f8",
    "i4", "f8", "f8", "i4", "i4", "f8", "f8", "f8",
    "i8", "u8:2", "u8:2", "u1:2", "i8", "i4:2", "u1:2", "i8", "i8",
    "i8", "i4:2", "f8:2", "f8:2", "u8:2", "i4",
)  # fmt: skip


@inlined
def _code(v, low, scale):
    """The code of a value in a shelf's column; monotone, clamped at the ends."""
    t = (v - low) * scale
    if t >= 253.0:
        return 254
    if t > 0.0:
        return 1 + int(t)
    return 1


@inlined
def _codes(lo, hi, low, scale):
    """The codes of an interval; of one that holds nothing, codes that hold nothing."""
    if not lo <= hi:
        return 255, 0
    a = 0 if lo == -np.inf else _code(lo, low, scale)
    b = 255 if hi == np.inf else _code(hi, low, scale)
    return a, b


def words_of_shelf(dims: int) -> int:
    """Words of a shelf's bits, with room for so many columns."""
    return (dims + FINE * (FINER - 1)) * BLOCK


@inlined
def _null_cell(d):
    """The cell of a column for events that lack it: its last."""
    return FINER * CELLS - 1 if d < FINE else CELLS - 1


@inlined
def _column(d):
    """Where the bits of a column begin."""
    return FINER * d * BLOCK if d < FINE else (d + FINE * (FINER - 1)) * BLOCK


@inlined
def _cell(code, null):
    return (code * null) >> 8


@kernel
def _tell(c_start, c_count, c_attr, c_low, c_high, rows, runs, count, seen, hull):
    """The columns of some rows with their hulls and how much they tell; (number, weights).

    A column tells much that many rows ask for and with narrow intervals. hull is
    (2, columns); count is left zero. Of many rows a sample is looked at: what lies outside
    of its hulls has the codes of their ends.
    """
    total = 0
    for r in range(len(runs)):
        total += runs[r, 2] - runs[r, 1]
    step = max(1, total // SAMPLE)
    columns = 0
    for r in range(len(runs)):
        for i in range(runs[r, 1], runs[r, 2], step):
            k0 = np.int64(c_start[rows[i]])
            for k in range(k0, k0 + np.int64(c_count[rows[i]])):
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
    for r in range(len(runs)):
        for i in range(runs[r, 1], runs[r, 2], step):
            k0 = np.int64(c_start[rows[i]])
            for k in range(k0, k0 + np.int64(c_count[rows[i]])):
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
def _fit(c_start, c_count, c_attr, c_low, c_high, t, shelf, rows, runs, count, seen, hull):
    """Choose the columns of a shelf, and its codes, by the rows that will stand there."""
    columns, weight = _tell(c_start, c_count, c_attr, c_low, c_high, rows, runs, count, seen, hull)
    dims = min(columns, t.dim_attr.shape[1])
    order = np.argsort(-weight[:columns])
    total = 0
    for r in range(len(runs)):
        total += runs[r, 2] - runs[r, 1]
    t.entered[shelf] = total
    t.limit[shelf] = 2 * total + 8
    t.dims[shelf] = dims
    for d in range(dims):
        a = seen[order[d]]
        width = hull[1, a] - hull[0, a]
        t.dim_attr[shelf, d] = a
        t.dim_low[shelf, d] = hull[0, a] if np.isfinite(hull[0, a]) else 0.0
        scale = 0.0
        if width > 0.0 and np.isfinite(width):
            scale = 253.0 / width
            if not np.isfinite(scale):
                scale = 0.0
        t.dim_scale[shelf, d] = scale


@inlined
def _stride(codes):
    """Predicates of a clause that there are codes for."""
    return (codes.shape[1] // TILE - ROW) // 3


@inlined
def _write_row(codes, tile, stop, row):
    """Write a clause's row behind its codes, which end with it at `stop`.

    It is in `rows` too. Here it comes with the codes: a cache line less for every match.
    """
    for i in range(ROW):
        codes[tile, stop - ROW + i] = (row >> (8 * i)) & 255


@inlined
def _code_at(at, j):
    """Where predicate j of the clause whose codes begin at `at` has its column.

    Its low end stands AT_ONCE bytes behind it, its high end as far behind that.
    """
    return at + (j // AT_ONCE) * GROUP + j % AT_ONCE


@inlined
def _write_codes(codes, tile, at, j, d, lo, hi):
    k = _code_at(at, j)
    codes[tile, k] = d
    codes[tile, k + AT_ONCE] = lo
    codes[tile, k + 2 * AT_ONCE] = hi


@inlined
def _write_no_codes(codes, tile, at, stride, j):
    """Fill the places behind j predicates with some that every event satisfies."""
    while j < stride:
        _write_codes(codes, tile, at, j, NO_DIM, 0, 255)
        j += 1


@kernel
def _fill_tile(
    c_start, c_count, c_attr, c_low, c_high, t, tile, rows, first, stop,
    dim_of, begun, ended, has, weight,
):  # fmt: skip
    """Make a tile of at most 512 rows anew; `dim_of` has the shelf's column numbers.

    `begun` and `ended` (column, cell, word) receive where the clauses' cells begin and end;
    a sweep over the cells makes lines of them. `weight` receives how many clauses a column
    turns away on average: lines are read in that order, and columns that nobody here asks
    for are not read at all.
    """
    shelf = tile // SHELF
    slot = (tile % SHELF) * WORDS
    dims = t.dims[shelf]
    bits, codes, t_rows, where = t.bits, t.codes, t.rows, t.where
    dim_low, dim_scale, rest = t.dim_low, t.dim_scale, t.rest
    stride = _stride(codes)
    begun[:dims] = 0
    ended[:dims] = 0
    has[:dims] = 0
    weight[:dims] = 0
    t.alive[tile] = 0
    rest[tile] = 0
    for i in range(first, stop):
        if i + 2 * AHEAD < stop:
            prefetch(c_start, rows[i + 2 * AHEAD])
            prefetch(c_count, rows[i + 2 * AHEAD])
            ahead = np.int64(c_start[rows[i + AHEAD]])
            prefetch(c_attr, ahead)
            prefetch(c_low, ahead)
            prefetch(c_high, ahead)
        row = rows[i]
        position = i - first
        word = position >> 6
        bit = ONE << np.uint64(position & 63)
        at = position * (3 * stride + ROW)
        j = 0
        left = False
        k0 = np.int64(c_start[row])
        for k in range(k0, k0 + np.int64(c_count[row])):
            d = dim_of[c_attr[k]]
            if d < 0:
                left = True
                continue
            lo, hi = _codes(c_low[k], c_high[k], dim_low[shelf, d], dim_scale[shelf, d])
            has[d, word] |= bit
            weight[d] += 256 - hi + lo
            if lo <= hi:
                null = _null_cell(d)
                begun[d, _cell(lo, null), word] |= bit
                ended[d, _cell(hi, null), word] |= bit
            if j < stride:
                _write_codes(codes, tile, at, j, d, lo, hi)
                j += 1
            else:
                left = True
        _write_no_codes(codes, tile, at, stride, j)
        if left:
            rest[tile, word] |= bit
        t.alive[tile, word] |= bit
        t_rows[tile, position] = row
        _write_row(codes, tile, at + 3 * stride + ROW, row)
        where[row] = tile * TILE + position
    for position in range(stop - first, TILE):
        codes[tile, position * (3 * stride + ROW)] = NO_DIM  # as all ones below say; see `_enter`
    t.live[tile] = stop - first
    asked = 0
    for d in range(dims):
        if weight[d] > 0:
            j = asked
            while j > 0 and weight[t.order[tile, j - 1]] < weight[d]:
                t.order[tile, j] = t.order[tile, j - 1]
                j -= 1
            t.order[tile, j] = d
            asked += 1
    t.asked[tile] = asked
    for d in range(dims):
        null = _null_cell(d)
        for w in range(WORDS):
            none = ~has[d, w]
            open_ = np.uint64(0)
            k = _column(d) + slot + w
            for cell in range(null):
                open_ |= begun[d, cell, w]
                bits[shelf, k + cell * LINE] = open_ | none
                open_ &= ~ended[d, cell, w]
            bits[shelf, k + null * LINE] = none


@kernel
def fill(c, t, kid, rows, runs, tiles, fits, columns):
    """Make a tile of each run of rows; with `fits` also the shelf that the tiles stand on.

    Runs are (node, first, stop). The tiles of one shelf must follow each other, and with
    `fits` be all of it. Shelves are independent: threads may share them.
    """
    c_start, c_count, c_attr, c_low, c_high = c.start, c.count, c.attr, c.low, c.high
    most = t.dim_attr.shape[1]
    count = np.zeros(columns, np.int64)
    seen = np.empty(min(columns, 4096), np.int64)
    hull = np.empty((2, columns))
    dim_of = np.full(columns, -1, np.int32)
    begun = np.empty((most, FINER * CELLS, WORDS), np.uint64)
    ended = np.empty((most, FINER * CELLS, WORDS), np.uint64)
    has = np.empty((most, WORDS), np.uint64)
    weight = np.empty(most, np.int64)
    i = 0
    while i < len(runs):
        shelf = np.int64(tiles[i]) // SHELF
        stop = i
        while stop < len(runs) and tiles[stop] // SHELF == shelf:
            stop += 1
        if fits:
            _fit(
                c_start, c_count, c_attr, c_low, c_high, t, shelf, rows, runs[i:stop],
                count, seen, hull,
            )  # fmt: skip
        for d in range(t.dims[shelf]):
            dim_of[t.dim_attr[shelf, d]] = d
        for r in range(i, stop):
            tile = np.int64(tiles[r])
            _fill_tile(
                c_start, c_count, c_attr, c_low, c_high, t, tile, rows, runs[r, 1], runs[r, 2],
                dim_of, begun, ended, has, weight,
            )  # fmt: skip
            kid[runs[r, 0]] = -1 - tile
            t.leaf[tile] = runs[r, 0]
        for d in range(t.dims[shelf]):
            dim_of[t.dim_attr[shelf, d]] = -1
        i = stop


@kernel
def gather(t, tiles):
    """The rows of some tiles, and a run (leaf, first, stop) for each."""
    total = 0
    for tile in tiles:
        total += t.live[tile]
    rows = np.empty(total, np.int32)
    runs = np.empty((tiles.size, 3), np.int64)
    n = 0
    for i in range(tiles.size):
        tile = tiles[i]
        runs[i, 0], runs[i, 1] = t.leaf[tile], n
        for position in range(TILE):
            if t.alive[tile, position >> 6] & (ONE << np.uint64(position & 63)):
                rows[n] = t.rows[tile, position]
                n += 1
        runs[i, 2] = n
    return rows, runs


@kernel
def centres(t, tiles):
    """By tile and column of their shelf: the mean middle of the codes, −1 where there are none."""
    stride = _stride(t.codes)
    total = np.zeros((tiles.size, t.dim_attr.shape[1]))
    number = np.zeros((tiles.size, t.dim_attr.shape[1]))
    for i in range(tiles.size):
        tile = tiles[i]
        for position in range(TILE):
            if not t.alive[tile, position >> 6] & (ONE << np.uint64(position & 63)):
                continue
            at = position * (3 * stride + ROW)
            for j in range(stride):
                k = _code_at(at, j)
                d = t.codes[tile, k]
                if d == NO_DIM:
                    break
                lo = np.int64(t.codes[tile, k + AT_ONCE])
                total[i, d] += lo + np.int64(t.codes[tile, k + 2 * AT_ONCE])
                number[i, d] += 2.0
    for i in range(tiles.size):
        for d in range(total.shape[1]):
            total[i, d] = total[i, d] / number[i, d] if number[i, d] > 0.0 else -1.0
    return total


@kernel
def _ask(order, asked, tile, d):
    """See to it that a column's lines are read in a tile."""
    for j in range(asked[tile]):
        if order[tile, j] == d:
            return
    order[tile, asked[tile]] = d
    asked[tile] += 1


@kernel
def _cells(lo, hi, d):
    """(first, last) cell of a column between two codes."""
    if lo > hi:
        return 1, 0
    null = _null_cell(d)
    return _cell(lo, null), _cell(hi, null)


@kernel
def _dim_of(dim_attr, shelf, dims, column):
    for d in range(dims):
        if dim_attr[shelf, d] == column:
            return d
    return -1


@kernel
def _differing(a, b, was_a, was_b):
    """The cells that are in one of two ranges, as two ranges."""
    if a <= was_b and was_a <= b:
        return min(a, was_a), max(a, was_a) - 1, min(b, was_b) + 1, max(b, was_b)
    return a, b, was_a, was_b


@kernel
def _flip(bits, at, bit, a, b):
    """Turn a bit over in the cells a … b of a column."""
    for cell in range(a, b + 1):
        bits[at + cell * LINE] ^= bit


@kernel
def _call_for(bits, at, a, b):
    """Ask for what `_flip` will want."""
    for cell in range(a, b + 1):
        prefetch(bits, at + cell * LINE)


@kernel
def _enter(
    c_start, c_count, c_attr, c_low, c_high,
    live, alive, rest, order, asked, t_rows, codes, entered, dims, dim_attr, dim_low, dim_scale,
    bits, where, tile, position, row,
):  # fmt: skip
    """Write one clause into a free position of a tile.

    Who was there last has left bits and codes behind. Where they are all there is to it, only
    bits that differ are written: each lies in a cache line of its own, hundreds in all.
    """
    shelf = tile // SHELF
    word = position >> 6
    bit = ONE << np.uint64(position & 63)
    stride = _stride(codes)
    at = position * (3 * stride + ROW)
    flat = bits.reshape(-1)
    line = shelf * bits.shape[1] + (tile % SHELF) * WORDS + word
    k0 = np.int64(c_start[row])
    k1 = k0 + np.int64(c_count[row])
    known = rest[tile, word] & bit == 0
    used = dims[shelf]
    cells = np.empty((4, used), np.int64)  # first and last by column: now, and before
    for d in range(used):
        cells[0, d], cells[1, d] = 0, _null_cell(d)  # any value, and none
        cells[2, d], cells[3, d] = 0, _null_cell(d)
    for j in range(stride):
        k = _code_at(at, j)
        d = codes[tile, k]
        if d == NO_DIM:
            break
        lo, hi = np.int64(codes[tile, k + AT_ONCE]), np.int64(codes[tile, k + 2 * AT_ONCE])
        cells[2, d], cells[3, d] = _cells(lo, hi, d)
    left = False
    j = 0
    for k in range(k0, k1):
        d = _dim_of(dim_attr, shelf, used, c_attr[k])
        if d < 0:
            left = True
            continue
        lo, hi = _codes(c_low[k], c_high[k], dim_low[shelf, d], dim_scale[shelf, d])
        cells[0, d], cells[1, d] = _cells(lo, hi, d)
        _ask(order, asked, tile, d)
        if j < stride:
            _write_codes(codes, tile, at, j, d, lo, hi)
            j += 1
        else:
            left = True
    _write_no_codes(codes, tile, at, stride, j)
    if known:
        for d in range(used):
            a, b, c, e = _differing(cells[0, d], cells[1, d], cells[2, d], cells[3, d])
            cells[0, d], cells[1, d], cells[2, d], cells[3, d] = a, b, c, e
            _call_for(flat, _column(d) + line, a, b)
            _call_for(flat, _column(d) + line, c, e)
    for d in range(used):
        first = _column(d) + line
        if known:
            _flip(flat, first, bit, cells[2, d], cells[3, d])
        else:
            for cell in range(_null_cell(d) + 1):
                flat[first + cell * LINE] &= ~bit
        _flip(flat, first, bit, cells[0, d], cells[1, d])
    if left:  # some predicate has no codes here
        rest[tile, word] |= bit
    else:
        rest[tile, word] &= ~bit
    alive[tile, word] |= bit
    t_rows[tile, position] = row
    _write_row(codes, tile, at + 3 * stride + ROW, row)
    live[tile] += 1
    entered[shelf] += 1
    where[row] = tile * TILE + position


@kernel
def _insert(tiles, c_attr, row, root):
    """Enter a row; (−1, False), or where room must be made first: (node, whether odd)."""
    (
        c_start, c_count, c_low, c_high,
        n_attr, n_low, n_high, n_kid, n_split, n_at, n_bottom, n_top,
        live, alive, rest, order, asked, t_rows, codes, entered, limit,
        dims, dim_attr, dim_low, dim_scale, bits, where,
    ) = unpack_tiles(tiles)  # fmt: skip
    node, odd = descend(
        c_start, c_count, c_attr, c_low, c_high,
        n_attr, n_low, n_high, n_kid, n_split, n_at, n_bottom, n_top, row, root,
    )  # fmt: skip
    kid = np.int64(n_kid[node])
    if kid == NOTHING:
        return node, odd
    tile = -1 - kid
    shelf = tile // SHELF
    if live[tile] == TILE or entered[shelf] >= limit[shelf]:
        return node, odd
    _enter(
        c_start, c_count, c_attr, c_low, c_high,
        live, alive, rest, order, asked, t_rows, codes, entered, dims, dim_attr, dim_low,
        dim_scale, bits, where, tile, free_position(alive, tile), row,
    )  # fmt: skip
    return np.int64(-1), False


@kernel
def insert_many(tiles, c_attr, rows, first, root):
    """Enter rows from number `first` on.

    Returns (next number, −1, False), or where room must be made first: (number, node,
    whether it is an odd one).
    """
    for i in range(first, rows.size):
        node, odd = _insert(tiles, c_attr, rows[i], root)
        if node >= 0:
            return i, node, odd
    return rows.size, -1, False


@brief_kernel
def insert_few(*given):
    """`insert_many` for a few."""
    return insert_many(*given)


@kernel
def _leave(tiles, row):
    live, alive, where = unpack_tiles(tiles)[12], unpack_tiles(tiles)[13], unpack_tiles(tiles)[-1]
    leave(alive, live, where, row)


@brief_kernel
def move_plain(tiles, standing, c_attr, id_size, until, numbers, kind, a, b, c, d, columns):
    """Replace the one clause of a subscription by another of the same length.

    Returns (row, node, odd), the latter two as `_insert` does; a row below 0 says why nothing
    was done. See `kernels.plain` for what is given.
    """
    slot, row = one_row(standing, id_size, until)
    if slot < 0:
        return slot, np.int64(-1), False
    new_attr, new_low, new_high, known = arranged(standing, numbers, kind, a, b, c, d, columns)
    if not known or not fits(standing, row, new_attr.size, kind):
        return np.int64(UNFIT), np.int64(-1), False
    _leave(tiles, row)
    overwrite(standing, c_attr, row, new_attr, new_low, new_high, kind, a, b, c)
    node, odd = _insert(tiles, c_attr, row, MAIN)
    return row, node, odd


@brief_kernel
def add_plain(
    tiles, standing, c_attr, id_size, until, numbers, kind, a, b, c, d, columns,
    used, slot, at, row, place,
):  # fmt: skip
    """Enter a subscription of one clause into a slot, a row and its run at `at`, all free.

    A circle stands ready at `place` of the side rows. Returns (bytes used by ids, node, odd),
    the latter two as `_insert` does; bytes below 0 say why nothing was done.
    """
    (
        c_start, c_count, c_low, c_high, owner, extra, table, cells, blob, expires, row_of,
        _, _, _, _, _, _, id,
    ) = unpack_standing(standing)  # fmt: skip
    prefetch(c_start, row)
    prefetch(c_count, row)
    prefetch(owner, row)
    prefetch(extra, row)
    prefetch(unpack_tiles(tiles)[-1], row)
    prefetch(c_attr, at)
    prefetch(c_low, at)
    prefetch(c_high, at)
    prefetch(cells, 2 * slot)
    prefetch(expires, slot)
    prefetch(row_of, slot)
    new_attr, new_low, new_high, known = arranged(standing, numbers, kind, a, b, c, d, columns)
    if not known:
        return np.int64(UNFIT), np.int64(-1), False
    used = insert(table, cells, blob, used, slot, id[:id_size])
    if used < 0:
        return np.int64(DENIED), np.int64(-1), False
    expires[slot] = until
    row_of[slot] = row
    write_clause(
        c_start, c_count, owner, extra, c_attr, c_low, c_high, row, at, new_attr, new_low, new_high
    )
    extra[row] = place
    owner[row] = slot
    node, odd = _insert(tiles, c_attr, row, MAIN)
    return used, node, odd


@brief_kernel
def remove_plain(tiles, standing, id_size):
    """Forget a subscription of one clause that has neither words nor shapes.

    Returns its slot, row, the row's run (start, length) and the first word of its id's cell; a
    slot below 0 says why nothing was done.
    """
    (
        c_start, c_count, _, _, owner, extra, table, cells, blob, _, row_of,
        _, _, _, _, _, _, id,
    ) = unpack_standing(standing)  # fmt: skip
    nothing = np.int64(0)
    slot = find(table, cells, blob, id, 0, id_size)
    if slot < 0:
        return np.int64(DENIED), nothing, nothing, nothing, np.uint64(0)
    row = np.int64(row_of[slot])
    if row < 0 or extra[row] >= 0:
        return np.int64(UNFIT), nothing, nothing, nothing, np.uint64(0)
    remove_id(table, cells, blob, slot)
    _leave(tiles, row)
    length = np.int64(c_count[row])
    owner[row] = -1
    c_count[row] = 0
    return slot, row, np.int64(c_start[row]), length, cells[slot, 0]


@inlined
def _locate(shelf, dims, dim_attr, dim_low, dim_scale, dense, e, line, q):
    """Find the line of each column of a shelf for an event, and its codes (0: missing)."""
    q[e, NO_DIM] = ANY
    for d in range(dims[shelf]):
        v = dense[e, dim_attr[shelf, d]]
        code = 0
        cell = null = _null_cell(d)
        if v == v:
            code = _code(v, dim_low[shelf, d], dim_scale[shelf, d])
            cell = _cell(code, null)
        q[e, d] = code
        line[e, d] = _column(d) + cell * LINE


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


@kernel
def _longer(array, used, wanted):
    larger = np.empty(max(2 * array.size, wanted), array.dtype)
    larger[:used] = array[:used]
    return larger


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
    stride = _stride(codes)
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
        out, events = _longer(out, m, m + 2 * room), _longer(events, m, m + 2 * room)
    m = _settle(doubt, doubt_of, u, c_start, c_count, c_attr, c_low, c_high, dense, out, events, m)
    counters[0] += visited
    counters[1] += tiles * TILE
    counters[2] += m
    return out[:m]


@brief_kernel
def match_event_briefly(*given):
    """`match_event` where it takes no longer than to get the GIL back."""
    return match_event(*given)


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
    stride = _stride(codes)
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
                            out = _longer(out, m, m + u + n)
                            events = _longer(events, m, m + u + n)
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
        if m + u > out.size:
            out, events = _longer(out, m, m + u), _longer(events, m, m + u)
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
