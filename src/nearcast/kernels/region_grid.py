"""Boxes in hashed cells of several sizes: who may hold a point, or meet a box.

A box stands in the cells that it touches among cells at least as wide and as high as itself,
so in four at the most; their width is a power of two, which makes the cell of a coordinate
exact. A point is looked up in one cell of each width in use. Boxes belong to groups, which do
not see each other, and boxes of no bounds stand in a list of their group.

`slots` is an open-addressed table: (group and width, cell, first entry) a row; `entries` are
linked lists of (row, next, number of the row's box, 0 if it has but one, hull). Cells stay when
they are empty, until the table is made anew. A *hull* is where in the cell the box is, by 128
steps a side: it spares most rows that a point shares a cell with, and the look at their regions.
"""

from __future__ import annotations

import math

import numpy as np

from nearcast.jit import inlined, kernel

#: Widths are 2^-24 … 2^37, by numbers 0 … 61; then the list of boxes without bounds.
WIDTHS = 62
EVERYWHERE = WIDTHS
_SMALLEST = -24
#: Cells are numbered by 31 bits a side; what lies farther out in small cells is everywhere.
_FARTHEST_BITS = 30
_FARTHEST = 2.0**_FARTHEST_BITS
#: No group has this key.
VACANT = -1
KEY, CELL, HEAD = 0, 1, 2
ROW, NEXT, PART, HULL = 0, 1, 2, 3
ENTRY_COLUMNS = 4
_STEPS = 128  # of a hull; four of them and a sign fit into 32 bits


@inlined
def _width(number):
    return math.ldexp(1.0, int(number) + _SMALLEST)


@inlined
def _exceeds(low, high, side):
    """Whether a side is longer than the number that it was rounded to, if it is that one."""
    return high - low == side and (high - side != low or low + side != high)


@kernel
def width_of(xmin, ymin, xmax, ymax):
    """The number of the width of cells for a box: the smallest that is as wide and reaches it.

    A box from a hair's breadth below 0 to 1 is wider than 1, though the difference is 1: it would
    touch three columns of cells of that width.
    """
    side = max(xmax - xmin, ymax - ymin)
    far = max(max(abs(xmin), abs(xmax)), max(abs(ymin), abs(ymax)))
    if not (side < np.inf and far < np.inf):
        return EVERYWHERE
    share, bits = math.frexp(side)
    if side == 0.0:
        bits = _SMALLEST
    elif share == 0.5 and not _exceeds(xmin, xmax, side) and not _exceeds(ymin, ymax, side):
        bits -= 1
    _, far_bits = math.frexp(far)
    number = max(max(bits, far_bits - _FARTHEST_BITS) - _SMALLEST, 0)
    return min(number, EVERYWHERE)


@inlined
def _cell(column, row):
    return (np.int64(column) << 32) ^ (np.int64(row) & 0xFFFFFFFF)


@inlined
def _step(away):
    """Which of the steps of a cell a coordinate is in, so many widths from where the cell begins.

    What lies before the cell is in the first, what lies behind it in the last.
    """
    return int(min(max(away * _STEPS, 0.0), _STEPS - 1.0))


@kernel
def _seek(slots, key, cell):
    """Where in the table a cell stands, or the vacant place where it would."""
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(32)) ^ np.uint64(cell)) * np.uint64(0xD6E8FEB86659FD93)
    mask = len(slots) - 1
    at = np.int64(h >> np.uint64(20)) & mask
    while slots[at, KEY] != VACANT and (slots[at, KEY] != key or slots[at, CELL] != cell):
        at = (at + 1) & mask
    return at


@kernel
def insert(slots, entries, free, group, row, part, box):
    """Enter a box; `free` are entries that serve. Returns how many cells became occupied.

    The number of entries taken is written behind them.
    """
    number = width_of(box[0], box[1], box[2], box[3])
    key = group * 64 + number
    taken = 0
    fresh = 0
    x0 = y0 = x1 = y1 = 0
    xmin, ymin, xmax, ymax = 0.0, 0.0, 1.0, 1.0
    if number != EVERYWHERE:
        width = _width(number)
        xmin, ymin, xmax, ymax = box[0] / width, box[1] / width, box[2] / width, box[3] / width
        x0, x1 = int(np.floor(xmin)), int(np.floor(xmax))
        y0, y1 = int(np.floor(ymin)), int(np.floor(ymax))
    for column in range(x0, x1 + 1):
        for line in range(y0, y1 + 1):
            cell = _cell(column, line)
            at = _seek(slots, key, cell)
            if slots[at, KEY] == VACANT:
                slots[at, KEY], slots[at, CELL], slots[at, HEAD] = key, cell, -1
                fresh += 1
            entry = free[taken]
            taken += 1
            entries[entry, ROW], entries[entry, PART] = row, part
            low = _step(xmin - column) + _STEPS * _step(ymin - line)
            high = _step(xmax - column) + _STEPS * _step(ymax - line)
            entries[entry, HULL] = low + _STEPS * _STEPS * high
            entries[entry, NEXT] = slots[at, HEAD]
            slots[at, HEAD] = entry
    return taken, fresh


@kernel
def remove(slots, entries, freed, group, row, part, box):
    """Take a box out again, as it was entered; the entries it had. How many there are."""
    number = width_of(box[0], box[1], box[2], box[3])
    key = group * 64 + number
    count = 0
    x0 = y0 = x1 = y1 = 0
    if number != EVERYWHERE:
        width = _width(number)
        x0, x1 = int(np.floor(box[0] / width)), int(np.floor(box[2] / width))
        y0, y1 = int(np.floor(box[1] / width)), int(np.floor(box[3] / width))
    for column in range(x0, x1 + 1):
        for line in range(y0, y1 + 1):
            at = _seek(slots, key, _cell(column, line))
            before = -1
            entry = slots[at, HEAD]
            while entries[entry, ROW] != row or entries[entry, PART] != part:
                before = entry
                entry = entries[entry, NEXT]
            if before < 0:
                slots[at, HEAD] = entries[entry, NEXT]
            else:
                entries[before, NEXT] = entries[entry, NEXT]
            freed[count] = entry
            count += 1
    return count


@kernel
def rehash(slots, larger):
    """Move the cells that hold something to a larger table; how many there are."""
    used = 0
    for i in range(len(slots)):
        if slots[i, KEY] != VACANT and slots[i, HEAD] >= 0:
            at = _seek(larger, slots[i, KEY], slots[i, CELL])
            larger[at, KEY] = slots[i, KEY]
            larger[at, CELL] = slots[i, CELL]
            larger[at, HEAD] = slots[i, HEAD]
            used += 1
    return used


@kernel
def at_point(slots, entries, mask, group, x, y, found):
    """The rows of a group with a box that may hold a point, each once; how many there are.

    A count larger than the room means that it has to be asked again with as much; there may
    be fewer then, for a row with several boxes is noticed only where it was written down.
    """
    count = 0
    number = 0
    while mask != 0:
        while mask & 15 == 0:
            mask >>= 4
            number += 4
        if mask & 1:
            count = _at_width(slots, entries, group, number, x, y, found, count)
        mask >>= 1
        number += 1
    return count


@kernel
def _at_width(slots, entries, group, number, x, y, found, count):
    """Append the rows of a cell whose hulls hold the point; those beyond the room only count."""
    cell = np.int64(0)
    step_x = step_y = 0
    if number != EVERYWHERE:
        width = _width(number)
        if not (abs(x) < width * _FARTHEST and abs(y) < width * _FARTHEST):
            return count
        at_x, at_y = x / width, y / width
        column, line = np.floor(at_x), np.floor(at_y)
        cell = _cell(int(column), int(line))
        step_x, step_y = _step(at_x - column), _step(at_y - line)
    at = _seek(slots, group * 64 + number, cell)
    if slots[at, KEY] == VACANT:
        return count
    entry = slots[at, HEAD]
    while entry >= 0:
        hull = entries[entry, HULL]
        if (
            hull % _STEPS <= step_x <= (hull >> 14) % _STEPS
            and (hull >> 7) % _STEPS <= step_y <= hull >> 21
            and not _is_found(entries, entry, found, count)
        ):
            if count < len(found):
                found[count] = entries[entry, ROW]
            count += 1
        entry = entries[entry, NEXT]
    return count


@inlined
def _is_found(entries, entry, found, count):
    """Whether a row with several boxes was found already."""
    if entries[entry, PART] == 0:
        return False
    for k in range(min(count, len(found))):
        if found[k] == entries[entry, ROW]:
            return True
    return False


@inlined
def _nearer(number):
    """A cell that is there, and a number that fits into an integer."""
    return min(max(number, -_FARTHEST), _FARTHEST)


@kernel
def in_box(slots, entries, mask, group, box, found):
    """The rows of a group with a box that may meet a box, some repeatedly; how many there are.

    A count larger than the room means that the rest was only counted.
    """
    count = 0
    for number in range(WIDTHS + 1):
        if (mask >> number) & 1 == 0:
            continue
        key = group * 64 + number
        x0 = y0 = x1 = y1 = 0.0
        if number != EVERYWHERE:
            width = _width(number)
            x0, x1 = np.floor(box[0] / width), np.floor(box[2] / width)
            y0, y1 = np.floor(box[1] / width), np.floor(box[3] / width)
            if (x1 - x0 + 1) * (y1 - y0 + 1) > len(slots):  # rather look at every cell
                for at in range(len(slots)):
                    if slots[at, KEY] == key:
                        count = _all(entries, slots[at, HEAD], found, count)
                continue
        x0, x1 = _nearer(x0), _nearer(x1)
        y0, y1 = _nearer(y0), _nearer(y1)
        for column in range(int(x0), int(x1) + 1):
            for line in range(int(y0), int(y1) + 1):
                at = _seek(slots, key, _cell(column, line))
                if slots[at, KEY] != VACANT:
                    count = _all(entries, slots[at, HEAD], found, count)
    return count


@kernel
def _all(entries, entry, found, count):
    while entry >= 0:
        if count < len(found):
            found[count] = entries[entry, ROW]
        count += 1
        entry = entries[entry, NEXT]
    return count
