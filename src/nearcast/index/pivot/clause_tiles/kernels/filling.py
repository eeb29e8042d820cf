"""Tiles and shelves made anew, of many clauses at once."""

from __future__ import annotations

import numpy as np

from nearcast.index.pivot.clause_tiles.kernels.layout import (
    AT_ONCE,
    CELLS,
    FINER,
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
    write_codes,
    write_no_codes,
    write_row,
)
from nearcast.index.pivot.kernels import AHEAD, ONE, TILE, WORDS
from nearcast.jit import kernel, prefetcher
from nearcast.kernels.sorting import order_of

#: Rows of a shelf by which its columns are chosen.
SAMPLE = 2048
prefetch = prefetcher()


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
    order = order_of(-weight[:columns])
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


@kernel
def _fill_tile(
    c_start, c_count, c_attr, c_low, c_high, t, tile, rows, first, stop,
    dim_of, begun, ended, open_, has, weight,
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
    stride = stride_of(codes)
    for d in range(dims):
        begun[d, : null_cell(d)] = 0
        ended[d, : null_cell(d)] = 0
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
            prefetch(c_low, ahead + 8)
            prefetch(c_high, ahead)
            prefetch(c_high, ahead + 8)
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
            lo, hi = codes_of(c_low[k], c_high[k], dim_low[shelf, d], dim_scale[shelf, d])
            has[d, word] |= bit
            weight[d] += 256 - hi + lo
            if lo <= hi:
                null = null_cell(d)
                begun[d, cell_of(lo, null), word] |= bit
                ended[d, cell_of(hi, null), word] |= bit
            if j < stride:
                write_codes(codes, tile, at, j, d, lo, hi)
                j += 1
            else:
                left = True
        write_no_codes(codes, tile, at, stride, j)
        if left:
            rest[tile, word] |= bit
        t.alive[tile, word] |= bit
        t_rows[tile, position] = row
        write_row(codes, tile, at + 3 * stride + ROW, row)
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
        null = null_cell(d)
        line = column_start(d) + slot
        for w in range(WORDS):
            open_[w] = 0
            has[d, w] = ~has[d, w]
        for cell in range(null):
            for w in range(WORDS):
                within = open_[w] | begun[d, cell, w]
                bits[shelf, line + w] = within | has[d, w]
                open_[w] = within & ~ended[d, cell, w]
            line += LINE
        for w in range(WORDS):
            bits[shelf, line + w] = has[d, w]


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
    open_ = np.empty(WORDS, np.uint64)
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
                dim_of, begun, ended, open_, has, weight,
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
    stride = stride_of(t.codes)
    total = np.zeros((tiles.size, t.dim_attr.shape[1]))
    number = np.zeros((tiles.size, t.dim_attr.shape[1]))
    for i in range(tiles.size):
        tile = tiles[i]
        for position in range(TILE):
            if not t.alive[tile, position >> 6] & (ONE << np.uint64(position & 63)):
                continue
            at = position * (3 * stride + ROW)
            for j in range(stride):
                k = code_at(at, j)
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
