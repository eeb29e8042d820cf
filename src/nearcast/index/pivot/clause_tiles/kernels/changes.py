"""Single clauses that come to a tile, move and go."""

from __future__ import annotations

import numpy as np

from nearcast.index.pivot.clause_tiles.kernels.layout import (
    AT_ONCE,
    LINE,
    NO_DIM,
    ROW,
    SHELF,
    cell_of,
    code_at,
    codes_of,
    column_start,
    null_cell,
    stride_of,
    unpack_tiles,
    write_codes,
    write_no_codes,
    write_row,
)
from nearcast.index.pivot.kernels import (
    MAIN,
    NOTHING,
    ONE,
    TILE,
    WORDS,
    descend,
    free_position,
    leave,
)
from nearcast.jit import brief_kernel, kernel, prefetcher
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

prefetch = prefetcher()


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
    null = null_cell(d)
    return cell_of(lo, null), cell_of(hi, null)


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
    stride = stride_of(codes)
    at = position * (3 * stride + ROW)
    flat = bits.reshape(-1)
    line = shelf * bits.shape[1] + (tile % SHELF) * WORDS + word
    k0 = np.int64(c_start[row])
    k1 = k0 + np.int64(c_count[row])
    known = rest[tile, word] & bit == 0
    used = dims[shelf]
    cells = np.empty((4, used), np.int64)  # first and last by column: now, and before
    for d in range(used):
        cells[0, d], cells[1, d] = 0, null_cell(d)  # any value, and none
        cells[2, d], cells[3, d] = 0, null_cell(d)
    for j in range(stride):
        k = code_at(at, j)
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
        lo, hi = codes_of(c_low[k], c_high[k], dim_low[shelf, d], dim_scale[shelf, d])
        cells[0, d], cells[1, d] = _cells(lo, hi, d)
        _ask(order, asked, tile, d)
        if j < stride:
            write_codes(codes, tile, at, j, d, lo, hi)
            j += 1
        else:
            left = True
    write_no_codes(codes, tile, at, stride, j)
    if known:
        for d in range(used):
            a, b, c, e = _differing(cells[0, d], cells[1, d], cells[2, d], cells[3, d])
            cells[0, d], cells[1, d], cells[2, d], cells[3, d] = a, b, c, e
            _call_for(flat, column_start(d) + line, a, b)
            _call_for(flat, column_start(d) + line, c, e)
    for d in range(used):
        first = column_start(d) + line
        if known:
            _flip(flat, first, bit, cells[2, d], cells[3, d])
        else:
            for cell in range(null_cell(d) + 1):
                flat[first + cell * LINE] &= ~bit
        _flip(flat, first, bit, cells[0, d], cells[1, d])
    if left:  # some predicate has no codes here
        rest[tile, word] |= bit
    else:
        rest[tile, word] &= ~bit
    alive[tile, word] |= bit
    t_rows[tile, position] = row
    write_row(codes, tile, at + 3 * stride + ROW, row)
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
def insert_few(tiles, c_attr, rows, first, root):
    """`insert_many` for a few."""
    return insert_many(tiles, c_attr, rows, first, root)


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
