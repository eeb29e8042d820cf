"""Changes of plain subscriptions, of one clause that is nothing but intervals, in one call.

Each call from Python costs a microsecond or two, as much as any step of such a change.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import brief_kernel, kernel
from nearcast.kernels.arrange import arrange_one
from nearcast.kernels.strings import find

#: Why nothing was done: an id is taken, or nobody has it; it takes more than this.
DENIED, UNFIT = -1, -2


@kernel
def arranged(attr, low, high, box, placed, bottom, top, columns):
    """(attr, low, high) of a clause as its row has them, and whether it teaches nothing new.

    That is, its columns are among so many and its ends in the domains bottom … top.
    """
    size = attr.size + 2 * placed
    out_attr, out_low, out_high = np.empty(size, np.int32), np.empty(size), np.empty(size)
    known = arrange_one(
        attr, low, high, 0, box[0], box[1], box[2], box[3], bottom, top,
        out_attr, out_low, out_high,
    )  # fmt: skip
    for k in range(attr.size):
        known = known and attr[k] < columns
    return out_attr, out_low, out_high, known


@kernel
def one_row(table, cells, blob, expires, row_of, id, until):
    """(slot, row) of a subscription that has one row and this end; or a slot below 0: why not."""
    slot = find(table, cells, blob, id, 0, id.size)
    if slot < 0:
        return np.int64(DENIED), np.int64(-1)
    row = np.int64(row_of[slot])
    if row < 0 or expires[slot] != until:
        return np.int64(UNFIT), np.int64(-1)
    return slot, row


@kernel
def overwrite(start, attr, low, high, row, new_attr, new_low, new_high):
    """Put a clause of the same length into a row."""
    at = np.int64(start[row])
    for k in range(new_attr.size):
        attr[at + k], low[at + k], high[at + k] = new_attr[k], new_low[k], new_high[k]


@brief_kernel
def replace_beside(
    c_start, c_count, c_attr, c_low, c_high, owner, left,
    extra, table, cells, blob, expires, row_of, bottom, top,
    id, until, attr, low, high, box, placed, columns,
):  # fmt: skip
    """Write a subscription's new clause into `left`, a row that nobody looks at any more.

    Returns its slot and its row so far, or a slot below 0: why nothing was done.
    """
    slot, row = one_row(table, cells, blob, expires, row_of, id, until)
    if slot < 0:
        return slot, row
    if c_count[left] != attr.size + 2 * placed or extra[left] >= 0:
        return np.int64(UNFIT), row
    new_attr, new_low, new_high, known = arranged(
        attr, low, high, box, placed, bottom, top, columns
    )
    if not known:
        return np.int64(UNFIT), row
    overwrite(c_start, c_attr, c_low, c_high, left, new_attr, new_low, new_high)
    owner[left] = slot
    return slot, row
