"""Clauses in tiles: how `pivot` lays them out for event matching.

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

from nearcast.index.pivot.kernels import TILE, WORDS
from nearcast.jit import inlined, packing

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
#: Predicates that are compared at once, and the bytes of their codes: columns, lows, highs.
AT_ONCE = 4
GROUP = 3 * AT_ONCE
#: The bytes of the row behind the codes of a clause.
ROW = 4
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
def code_of(v, low, scale):
    """The code of a value in a shelf's column; monotone, clamped at the ends."""
    t = (v - low) * scale
    if t >= 253.0:
        return 254
    if t > 0.0:
        return 1 + int(t)
    return 1


@inlined
def codes_of(lo, hi, low, scale):
    """The codes of an interval; of one that holds nothing, codes that hold nothing."""
    if not lo <= hi:
        return 255, 0
    a = 0 if lo == -np.inf else code_of(lo, low, scale)
    b = 255 if hi == np.inf else code_of(hi, low, scale)
    return a, b


def words_of_shelf(dims: int) -> int:
    """Words of a shelf's bits, with room for so many columns."""
    return (dims + FINE * (FINER - 1)) * BLOCK


@inlined
def null_cell(d):
    """The cell of a column for events that lack it: its last."""
    return FINER * CELLS - 1 if d < FINE else CELLS - 1


@inlined
def column_start(d):
    """Where the bits of a column begin."""
    return FINER * d * BLOCK if d < FINE else (d + FINE * (FINER - 1)) * BLOCK


@inlined
def cell_of(code, null):
    """The cell of a code in a column whose null cell is `null`."""
    return (code * null) >> 8


@inlined
def stride_of(codes):
    """Predicates of a clause that there are codes for."""
    return (codes.shape[1] // TILE - ROW) // 3


@inlined
def write_row(codes, tile, stop, row):
    """Write a clause's row behind its codes, which end with it at `stop`.

    It is in `rows` too. Here it comes with the codes: a cache line less for every match.
    """
    for i in range(ROW):
        codes[tile, stop - ROW + i] = (row >> (8 * i)) & 255


@inlined
def code_at(at, j):
    """Where predicate j of the clause whose codes begin at `at` has its column.

    Its low end stands AT_ONCE bytes behind it, its high end as far behind that.
    """
    return at + (j // AT_ONCE) * GROUP + j % AT_ONCE


@inlined
def write_codes(codes, tile, at, j, d, lo, hi):
    """Write predicate j of a clause: the column it is on, and the codes of its ends."""
    k = code_at(at, j)
    codes[tile, k] = d
    codes[tile, k + AT_ONCE] = lo
    codes[tile, k + 2 * AT_ONCE] = hi


@inlined
def write_no_codes(codes, tile, at, stride, j):
    """Fill the places behind j predicates with some that every event satisfies."""
    while j < stride:
        write_codes(codes, tile, at, j, NO_DIM, 0, 255)
        j += 1
