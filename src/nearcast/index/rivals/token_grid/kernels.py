"""Inverted lists by the first (rarest) token, each long list cut by a grid of its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.jit import kernel
from nearcast.kernels.rows import grow
from nearcast.kernels.tokens import (
    all_in,
    lookup,
    meets,
    message_tokens,
    rest_holds,
    room_for,
    slot_of,
    table_size,
)

#: A list up to this long has no grid; a grid has about as many clauses a cell.
SHORT = 32
#: A clause in more cells than this is kept beside the grid, for every message to see.
_MOST_CELLS = 16
_MOST_SIDE = 1024


class Lists(NamedTuple):
    """List k: its clauses beside the grid, then those of each cell, row by row.

    Run first[k] of `run` is the one beside the grid, first[k] + 1 + cell that of a cell:
    item[run[r]:run[r + 1]]. side[k] cells a side, 0 without a grid.
    """

    key: npt.NDArray[np.int32]
    """Lists by token, as a hash table: -1 for nobody."""
    number: npt.NDArray[np.int32]
    first: npt.NDArray[np.int64]
    side: npt.NDArray[np.int32]
    grid: npt.NDArray[np.float64]
    """(lists, 4): x0, y0 and cells a unit in x and y."""
    run: npt.NDArray[np.int64]
    item: npt.NDArray[np.int32]


@kernel
def cell_of(value, origin, scale, side):
    """The column (or row) of a coordinate; rises with it."""
    c = (value - origin) * scale
    if not c > 0.0:
        return 0
    return side - 1 if c >= side else int(c)


@kernel
def build(start, token, box):
    """The arrays of `Lists` over entries in token-set order: a list is a stretch of them."""
    n = start.size - 1
    lists = 0
    for i in range(n):
        if i == 0 or token[start[i]] != token[start[i - 1]]:
            lists += 1
    bounds = np.empty(lists + 1, np.int64)
    k = 0
    for i in range(n):
        if i == 0 or token[start[i]] != token[start[i - 1]]:
            bounds[k] = i
            k += 1
    bounds[lists] = n
    first = np.empty(lists + 1, np.int64)
    side = np.zeros(lists, np.int32)
    grid = np.zeros((lists, 4))
    runs = 0
    for k in range(lists):
        first[k] = runs
        a, b = bounds[k], bounds[k + 1]
        runs += 1
        if b - a <= SHORT:
            continue
        x0, y0, x1, y1 = np.inf, np.inf, -np.inf, -np.inf
        wide, high, placed = 0.0, 0.0, 0
        for i in range(a, b):
            if box[i, 0] > -np.inf:
                x0, y0 = min(x0, box[i, 0]), min(y0, box[i, 1])
                x1, y1 = max(x1, box[i, 2]), max(y1, box[i, 3])
                wide += box[i, 2] - box[i, 0]
                high += box[i, 3] - box[i, 1]
                placed += 1
        if placed <= SHORT or not (x1 > x0 and y1 > y0):
            continue
        s = 1
        while s < _MOST_SIDE and s * s * SHORT < placed:
            s *= 2
        # Cells smaller than a box only make copies of it.
        while s > 1 and (wide / placed * s > x1 - x0 or high / placed * s > y1 - y0):
            s //= 2
        if s < 2:
            continue
        side[k] = s
        grid[k, 0], grid[k, 1] = x0, y0
        grid[k, 2], grid[k, 3] = s / (x1 - x0), s / (y1 - y0)
        runs += s * s
    first[lists] = runs
    run = np.zeros(runs + 1, np.int64)
    item = np.empty(max(16, 2 * n), np.int32)
    used = 0
    for k in range(lists):
        a, b = bounds[k], bounds[k + 1]
        if side[k] == 0:
            item = room_for(item, used, b - a)
            for i in range(a, b):
                item[used] = i
                used += 1
            run[first[k] + 1] = used
            continue
        item, used = _fill(box, a, b, first[k], side[k], grid[k], run, item, used)
    slots = 16
    while slots < 2 * lists:
        slots *= 2
    key = np.full(slots, -1, np.int32)
    number = np.zeros(slots, np.int32)
    for k in range(lists):
        t = token[start[bounds[k]]]
        s = slot_of(t, slots - 1)
        while key[s] >= 0:
            s = (s + 1) & (slots - 1)
        key[s] = t
        number[s] = k
    return key, number, first, side, grid, run, item[:used].copy()


@kernel
def _fill(box, a, b, first, side, grid, run, item, used):
    """Deal one list to its cells: count, then place. (item, how much of it is used)"""
    size = side * side
    ends = np.zeros(size + 2, np.int64)
    for i in range(a, b):
        c0, r0, c1, r1 = _cells(box, i, grid, side)
        if (c1 - c0 + 1) * (r1 - r0 + 1) > _MOST_CELLS:
            ends[1] += 1
            continue
        for r in range(r0, r1 + 1):
            for c in range(c0, c1 + 1):
                ends[2 + r * side + c] += 1
    ends[0] = used
    for cell in range(size + 1):
        ends[cell + 1] += ends[cell]
        run[first + cell + 1] = ends[cell + 1]
    item = room_for(item, used, ends[size + 1] - used)
    for i in range(a, b):
        c0, r0, c1, r1 = _cells(box, i, grid, side)
        if (c1 - c0 + 1) * (r1 - r0 + 1) > _MOST_CELLS:
            item[ends[0]] = i
            ends[0] += 1
            continue
        for r in range(r0, r1 + 1):
            for c in range(c0, c1 + 1):
                at = 1 + r * side + c
                item[ends[at]] = i
                ends[at] += 1
    return item, run[first + size + 1]


@kernel
def _cells(box, i, grid, side):
    """Columns and rows that box i reaches: c0, r0, c1, r1."""
    if box[i, 0] == -np.inf:
        return 0, 0, _MOST_CELLS, 0
    return (
        cell_of(box[i, 0], grid[0], grid[2], side),
        cell_of(box[i, 1], grid[1], grid[3], side),
        cell_of(box[i, 2], grid[0], grid[2], side),
        cell_of(box[i, 3], grid[1], grid[3], side),
    )


@kernel
def match(t, e, c, rank, batch, boxes, counters):
    """(events, rows) of a batch whose event i is everywhere in boxes[i].

    An answer belongs to the cell that holds the lower left corner of what message and
    clause share, so that no clause is found in two cells.
    """
    key, number, first, side = t.key, t.number, t.first, t.side
    grid, run, item = t.grid, t.run, t.item
    row, box, start, token, more = e.row, e.box, e.start, e.token, e.more
    c_start, c_count, attr, low, high = c.start, c.count, c.attr, c.low, c.high
    b_start, b_attr, b_value = batch.start, batch.attr, batch.value
    w_start, word = batch.word_start, batch.word
    slots = table_size(batch)
    keys = np.empty(slots, np.int32)
    where = np.empty(slots, np.int32)
    tokens = np.empty(slots, np.int32)
    events = np.empty(256, np.int32)
    found = np.empty(256, np.int32)
    runs, candidates, n = 0, 0, 0
    for at in range(b_start.size - 1):
        n_tokens, mask = message_tokens(
            word, w_start[at], w_start[at + 1], rank, tokens, keys, where
        )
        x0, y0, x1, y1 = boxes[at, 0], boxes[at, 1], boxes[at, 2], boxes[at, 3]
        for j in range(n_tokens):
            slot = lookup(key, key.size - 1, tokens[j])
            if slot < 0:
                continue
            k = number[slot]
            s = side[k]
            gx, gy, sx, sy = grid[k, 0], grid[k, 1], grid[k, 2], grid[k, 3]
            c0, r0, c1, r1 = 0, 0, -1, -1
            if s > 0 and x0 <= x1:
                c0, r0 = cell_of(x0, gx, sx, s), cell_of(y0, gy, sy, s)
                c1, r1 = cell_of(x1, gx, sx, s), cell_of(y1, gy, sy, s)
            width = c1 - c0 + 1
            for m in range(1 + width * (r1 - r0 + 1)):
                r, col = -1, -1
                at_run = first[k]
                if m > 0:
                    r, col = r0 + (m - 1) // width, c0 + (m - 1) % width
                    at_run += 1 + r * s + col
                runs += 1
                candidates += run[at_run + 1] - run[at_run]
                for q in range(run[at_run], run[at_run + 1]):
                    i = item[q]
                    if not meets(box, i, x0, y0, x1, y1):
                        continue
                    got = row[i]
                    if got < 0 or not all_in(token, start[i] + 1, start[i + 1], keys, mask):
                        continue
                    if more[i] and not rest_holds(
                        c_start, c_count, attr, low, high, got, b_attr, b_value,
                        b_start[at], b_start[at + 1],
                    ):  # fmt: skip
                        continue
                    if m > 0 and (
                        cell_of(max(box[i, 0], x0), gx, sx, s) != col
                        or cell_of(max(box[i, 1], y0), gy, sy, s) != r
                    ):
                        continue
                    if n == found.size:
                        events, found = grow(events, n), grow(found, n)
                    events[n], found[n] = at, got
                    n += 1
    counters[0] += runs
    counters[1] += candidates
    counters[2] += n
    return events[:n], found[:n]
