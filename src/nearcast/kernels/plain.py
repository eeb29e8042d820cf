"""Changes of plain subscriptions in one call: one clause of nothing but intervals and a place.

Each call from Python costs a microsecond or two, as much as any step of such a change, and
half a microsecond more for every five arrays: so what seldom changes comes as a pack.

`standing` is the pack of a matcher's subscriptions. An id is the first `id_size` bytes of its
last array. `numbers` are columns, lows and highs; `kind` says what a, b, c, d are: nothing,
the corners of a box (xmin, ymin, xmax, ymax), or x, y and radius of a circle.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import brief_kernel, kernel, packing
from nearcast.kernels.arrange import arrange_one
from nearcast.kernels.geometry import CIRCLE, cap_bounds, square_bounds
from nearcast.kernels.strings import find

#: Why nothing was done: an id is taken, or nobody has it; it takes more than this.
DENIED, UNFIT = -1, -2
#: Kinds of places. A disc is a circle on the plane, a cap one on the globe.
NOWHERE, BOXED, DISC, CAP = 0, 1, 2, 3
#: start, count, low, high, owner and extra of the clauses; table, cells and blob of the ids;
#: by slot when they end and their only row; the domains' bottom and top; word_count, shape_start,
#: shape_count and shape of the clauses; an id.
pack_standing, unpack_standing = packing(
    "u4", "u2", "f8", "f8", "i4", "i4", "i4", "u8:2", "u1", "i8", "i4", "f8", "f8",
    "u2", "u4", "u2", "f8", "u1",
)  # fmt: skip


@kernel
def _bounds(kind, a, b, c, d):
    """The box round a place, and whether it is one box."""
    if kind == DISC:
        xmin, ymin, xmax, ymax = square_bounds(a, b, c)
        return xmin, ymin, xmax, ymax, True
    if kind == CAP:
        xmin, ymin, xmax, ymax = cap_bounds(a, b, c)
        return xmin, ymin, xmax, ymax, xmin > -180.0 and xmax < 180.0
    return a, b, c, d, True


@kernel
def arranged(standing, numbers, kind, a, b, c, d, columns):
    """(attr, low, high) of a clause as its row has them, and whether it teaches nothing new.

    That is, its columns are among so many and its ends in the domains so far.
    """
    bottom, top = unpack_standing(standing)[11], unpack_standing(standing)[12]
    size = numbers.shape[1] + (0 if kind == NOWHERE else 2)
    attr, low, high = np.empty(size, np.int32), np.empty(size), np.empty(size)
    xmin, ymin, xmax, ymax, whole = _bounds(kind, a, b, c, d)
    known = whole and arrange_one(
        numbers[0], numbers[1], numbers[2], 0, xmin, ymin, xmax, ymax, bottom, top, attr, low, high
    )
    for k in range(numbers.shape[1]):
        known = known and numbers[0, k] < columns
    return attr, low, high, known


@kernel
def one_row(standing, id_size, until):
    """(slot, row) of a subscription that has one row and this end; or a slot below 0: why not."""
    _, _, _, _, _, _, table, cells, blob, expires, row_of, _, _, _, _, _, _, id = unpack_standing(
        standing
    )
    slot = find(table, cells, blob, id, 0, id_size)
    if slot < 0:
        return np.int64(DENIED), np.int64(-1)
    row = np.int64(row_of[slot])
    if row < 0 or expires[slot] != until:
        return np.int64(UNFIT), np.int64(-1)
    return slot, row


@kernel
def fits(standing, row, size, kind):
    """Whether a clause of this size with this kind of place can be put into a row."""
    (
        _, count, _, _, _, extra, _, _, _, _, _, _, _,
        word_count, shape_start, shape_count, shape, _,
    ) = unpack_standing(standing)  # fmt: skip
    if count[row] != size:
        return False
    place = extra[row]
    if kind < DISC:
        return place < 0
    if place < 0 or word_count[place] != 0 or shape_count[place] != 1:
        return False
    return shape[shape_start[place]] == CIRCLE


@kernel
def overwrite(standing, attr, row, new_attr, new_low, new_high, kind, a, b, c):
    """Put a clause into a row that it fits."""
    start, _, low, high, _, extra, _, _, _, _, _, _, _, _, shape_start, _, shape, _ = (
        unpack_standing(standing)
    )
    at = np.int64(start[row])
    for k in range(new_attr.size):
        attr[at + k], low[at + k], high[at + k] = new_attr[k], new_low[k], new_high[k]
    if kind >= DISC:
        at = np.int64(shape_start[extra[row]])
        shape[at + 2], shape[at + 3], shape[at + 4] = a, b, c


@brief_kernel
def replace_beside(standing, c_attr, id_size, until, numbers, kind, a, b, c, d, columns, left):
    """Write a subscription's new clause into `left`, a row that nobody looks at any more.

    Returns its slot and its row so far, or a slot below 0: why nothing was done.
    """
    slot, row = one_row(standing, id_size, until)
    if slot < 0:
        return slot, row
    new_attr, new_low, new_high, known = arranged(standing, numbers, kind, a, b, c, d, columns)
    if not known or not fits(standing, left, new_attr.size, kind):
        return np.int64(UNFIT), row
    overwrite(standing, c_attr, left, new_attr, new_low, new_high, kind, a, b, c)
    unpack_standing(standing)[4][left] = slot
    return slot, row
