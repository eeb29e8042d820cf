"""Clauses with a word and a place: the kernels of `pivot`'s word cells.

A quadtree over the plane cuts it into cells of some hundred clauses each; a clause stands in
every cell that its region reaches. An event looks into the cells that it meets, whatever the
number of its words and of the clauses elsewhere. Within a cell clauses stand by one of their
words, the rarest, on boards like those of a hash table: an event of few words looks at the
boards of each, one of many holds all words of the cell against a bitmap of its own.

The tree is over whole numbers: coordinates on a grid of 2 ** 34 lines a side. What lies outside
of the grid belongs to its edge: the map rises with the coordinate, and nothing else is asked
of it. An entry knows its sides within its cell, as codes of 15 bits: four of them in one number,
so that a box is held against another by one subtraction.

What came since a cell was last put in order stands behind its ordered part. Cells lie in one
pool, in spans; a cell that outgrows its span is divided, or moves if its clauses are as large
as itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.pivot.kernels import by_event
from nearcast.jit import brief_kernel, kernel, prefetcher
from nearcast.kernels.rows import event_satisfies, longer
from nearcast.kernels.sorting import order_of, sort
from nearcast.kernels.tokens import first_not_below

#: What the head of a cell says.
START, LENGTH, ORDERED, ROOM, DEAD = 0, 1, 2, 3, 4
#: What an entry has beside its word and its sides: three more words (the first again for none)
#: and its row: −1 once it is gone, −2 − row if more is to be asked of the clause.
SECOND, THIRD, FOURTH, ROW = 0, 1, 2, 3
GONE = -1
#: Lines of the grid, and the fewest of a cell, as powers of two.
BITS = 34
LEAST = 14
#: Clauses up to which a cell is not divided.
LEAF = 512
#: How many clauses the quarters of a cell may have together, for each of its own.
COPIES = 1.8
#: Cells that a clause may stand in, and clauses of a cell that is as small as they let it be.
MOST_CELLS = 64
MOST = 1 << 16
_TAIL = 32
_SMALLEST = 5  # spans have at least 32 places
#: Visits that go through each pass together, and the most words of events that do.
TOGETHER = 16
FEW = 64
#: What is known of a visit: the event, entries of the cell (begin, begin of its unordered tail,
#: end), and its boards, 0 if the event has too many words for them.
NUMBER, BEGIN, TAIL, END, BOARDS = 0, 1, 2, 3, 4
NONE, ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_SIX, _SIXTY_THREE = np.uint64(6), np.uint64(63)
#: Four codes in one number: the bit above each, its lowest bit, and the largest code.
_ABOVE = np.uint64(0x8000800080008000)
_LOWEST = np.uint64(0x0001000100010001)
_TOP = 0x7FFF
#: The sides of an entry that is gone: no box meets them.
_NOWHERE = np.uint64(0x7FFF7FFF7FFF7FFF)
_LEFT, _LOWER = np.uint64(0x7FFF), np.uint64(0x7FFF0000)

prefetch = prefetcher()


class Cells(NamedTuple):
    """What kernels see."""

    # By node.
    child: npt.NDArray[np.int32]
    """The first of its four children, 0: none, it is a cell."""
    head: npt.NDArray[np.int64]
    """(node, 5): start in the pool, length, how much of it is in order, room, dead."""
    # By entry, all cells in one pool.
    shelf: npt.NDArray[np.int32]
    """Where the boards of a cell begin, counted from its start; a quarter of its places."""
    word: npt.NDArray[np.int32]
    """The word it stands under."""
    sides: npt.NDArray[np.uint64]
    rest: npt.NDArray[np.int32]
    """(entry, 4): see `SECOND`; of a free span, the last leads to the next."""
    # One each.
    plan: npt.NDArray[np.float64]
    """x and y where the grid begins, lines a unit of x and of y."""
    used: npt.NDArray[np.int64]
    """Places of the pool, nodes, and clauses that came from outside of the grid."""
    free: npt.NDArray[np.int64]
    """By power of two: a free span, −1 for none."""


# --- the grid ---------------------------------------------------------------------------------


@kernel
def line(v, origin, scale):
    """The grid line of a coordinate."""
    at = (v - origin) * scale
    if not at > 0.0:
        return np.int64(0)
    return np.int64((1 << BITS) - 1) if at >= (1 << BITS) else np.int64(at)


@kernel
def _lines(c_start, c_low, c_high, row, plan):
    """The lines between which a clause with a place lies: x0, y0, x1, y1."""
    k = np.int64(c_start[row])
    return (
        line(c_low[k], plan[0], plan[2]),
        line(c_low[k + 1], plan[1], plan[3]),
        line(c_high[k], plan[0], plan[2]),
        line(c_high[k + 1], plan[1], plan[3]),
    )


@kernel
def all_lines(c_start, c_low, c_high, rows, plan):
    """`_lines` of many."""
    lines = np.empty((rows.size, 4), np.int64)
    for i in range(rows.size):
        lines[i] = _lines(c_start, c_low, c_high, rows[i], plan)
    return lines


@kernel
def _code(at, origin, bits):
    """Where a line lies within a cell: 0 before it, above 2 ** 14 behind it."""
    if at < origin:
        return np.int64(0)
    return min(1 + ((at - origin) >> (bits - LEAST)), np.int64((1 << LEAST) + 1))


@kernel
def _packed(a, b, c, d):
    return np.uint64(a | (b << 16) | (c << 32) | (d << 48))


@kernel
def sides_in(x0, y0, x1, y1, x, y, bits):
    """The sides of an entry within a cell. Of those where it ends, the distance to the top, so
    that each side must be at most its counterpart of a box that it meets.
    """
    return _packed(
        _code(x0, x, bits),
        _code(y0, y, bits),
        _TOP - _code(x1, x, bits),
        _TOP - _code(y1, y, bits),
    )


@kernel
def is_placed(c_start, c_count, c_attr, c_low, c_high, row):
    """Whether a clause has a place, and that ends on all sides."""
    k = np.int64(c_start[row])
    return (
        c_count[row] >= 2
        and c_attr[k] == 0
        and c_attr[k + 1] == 1
        and -np.inf < c_low[k] <= c_high[k] < np.inf
        and -np.inf < c_low[k + 1] <= c_high[k + 1] < np.inf
    )


@kernel
def placed(c_start, c_count, c_attr, c_low, c_high, rows):
    """Which rows have a place that ends, and the longer sides of those."""
    flags = np.zeros(rows.size, np.bool_)
    size = np.zeros(rows.size)
    for i in range(rows.size):
        if is_placed(c_start, c_count, c_attr, c_low, c_high, rows[i]):
            k = np.int64(c_start[rows[i]])
            flags[i] = True
            size[i] = max(c_high[k] - c_low[k], c_high[k + 1] - c_low[k + 1])
    return flags, size


@kernel
def extent(c_start, c_low, c_high, rows):
    """The hull of places: x0, y0, x1, y1."""
    hull = np.array([np.inf, np.inf, -np.inf, -np.inf])
    for row in rows:
        k = np.int64(c_start[row])
        for j in range(2):
            hull[j] = min(hull[j], c_low[k + j])
            hull[2 + j] = max(hull[2 + j], c_high[k + j])
    return hull


# --- the tree ---------------------------------------------------------------------------------


@kernel
def _quarters(lines, item, first, stop, x, y, counts):
    """How many items reach into each quarter around (x, y); all together."""
    counts[:] = 0
    for k in range(first, stop):
        i = item[k]
        left, right = lines[i, 0] < x, lines[i, 2] >= x
        lower, upper = lines[i, 1] < y, lines[i, 3] >= y
        counts[0] += left & lower
        counts[1] += right & lower
        counts[2] += left & upper
        counts[3] += right & upper
    return counts[0] + counts[1] + counts[2] + counts[3]


@kernel
def _in_quarter(lines, i, q, x, y):
    return (lines[i, 2] >= x if q & 1 else lines[i, 0] < x) and (
        lines[i, 3] >= y if q >> 1 else lines[i, 1] < y
    )


@kernel
def divided(lines):
    """A tree over entries: (child, cells, items). A cell is (node, x, y, bits of its side, the
    end of its items).
    """
    n = lines.shape[0]
    child = np.zeros(64, np.int32)
    nodes = 1
    cells = np.empty((64, 5), np.int64)
    n_cells = 0
    done = np.empty(2 * n + 16, np.int32)
    used = 0
    item = np.empty(2 * n + 16, np.int32)
    for i in range(n):
        item[i] = i
    counts = np.empty(4, np.int64)
    # node, x, y, bits and the items of what is still to be looked at; those lie one behind
    # another, so that the last is always at the end.
    stack = np.empty((4 * BITS, 6), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, 0, 0, BITS
    stack[0, 4], stack[0, 5] = 0, n
    top = 1
    while top > 0:
        top -= 1
        node, x, y, bits = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        first, stop = stack[top, 4], stack[top, 5]
        size = stop - first
        half = 1 << (bits - 1)
        if size > LEAF and bits > LEAST:
            copies = _quarters(lines, item, first, stop, x + half, y + half, counts)
            if copies <= COPIES * size:
                if stop + copies > item.size:
                    item = longer(item, stop, stop + copies)
                if nodes + 4 > child.size:
                    child = longer(child, nodes, nodes + 4)
                child[node] = nodes
                child[nodes : nodes + 4] = 0
                at = stop
                for q in range(4):
                    for k in range(first, stop):
                        if _in_quarter(lines, item[k], q, x + half, y + half):
                            item[at] = item[k]
                            at += 1
                # The quarters take the place of their whole, once all are dealt.
                for k in range(copies):
                    item[first + k] = item[stop + k]
                at = first
                for q in range(4):
                    stack[top, 0], stack[top, 3] = nodes + q, bits - 1
                    stack[top, 1], stack[top, 2] = x + half * (q & 1), y + half * (q >> 1)
                    stack[top, 4], stack[top, 5] = at, at + counts[q]
                    at += counts[q]
                    top += 1
                nodes += 4
                continue
        if n_cells == cells.shape[0]:
            cells = longer(cells, n_cells, 0)
        if used + size > done.size:
            done = longer(done, used, used + size)
        for k in range(size):
            done[used + k] = item[first + k]
        used += size
        cells[n_cells, 0], cells[n_cells, 1], cells[n_cells, 2] = node, x, y
        cells[n_cells, 3], cells[n_cells, 4] = bits, used
        n_cells += 1
    return child[:nodes], cells[:n_cells], done[:used]


@kernel
def crowded(cells, item, n):
    """Which of n entries are in a cell that has too many."""
    flags = np.zeros(n, np.bool_)
    first = 0
    for k in range(cells.shape[0]):
        if cells[k, 4] - first > MOST:
            flags[item[first : cells[k, 4]]] = True
        first = cells[k, 4]
    return flags


@kernel
def span_for(size):
    """Places that a cell of so many clauses is given."""
    return (size + (size >> 3) + 32) & ~15


@kernel
def places_for(cells):
    """Places of the pool that `fill` takes."""
    total, first = 0, 0
    for k in range(cells.shape[0]):
        total += span_for(cells[k, 4] - first)
        first = cells[k, 4]
    return total


@kernel
def boards_of(room):
    """How many boards a cell with so many places has: a power of two, less than a quarter."""
    boards = 4
    while 8 * boards < room:
        boards *= 2
    return boards


@kernel
def _enter(t, c_start, c_low, c_high, node, x, y, bits, start, room, word, rest, items):
    """Let a cell be these items of `word` and `rest`, by board, in this span of the pool."""
    boards = boards_of(room)
    keys = np.empty(items.size, np.int64)
    for k in range(items.size):
        own = np.int64(word[items[k]])
        keys[k] = ((own & (boards - 1)) << 32) | own
    order = order_of(keys)
    base = start >> 2
    t.shelf[base : base + boards + 1] = 0
    for k in range(items.size):
        i = items[order[k]]
        _put(t, c_start, c_low, c_high, x, y, bits, start + k, word[i], rest[i])
        t.shelf[base + (np.int64(word[i]) & (boards - 1)) + 1] += 1
    for b in range(base + 1, base + boards + 1):
        t.shelf[b] += t.shelf[b - 1]
    t.head[node, START], t.head[node, ROOM], t.head[node, DEAD] = start, room, 0
    t.head[node, LENGTH], t.head[node, ORDERED] = items.size, items.size


@kernel
def row_of(entry):
    """The row of an entry that is not gone."""
    return max(np.int64(entry), -2 - np.int64(entry))


@kernel
def _put(t, c_start, c_low, c_high, x, y, bits, k, word, rest):
    """Write one entry."""
    x0, y0, x1, y1 = _lines(c_start, c_low, c_high, row_of(rest[ROW]), t.plan)
    t.word[k] = word
    t.sides[k] = sides_in(x0, y0, x1, y1, x, y, bits)
    for j in range(4):
        t.rest[k, j] = rest[j]


@kernel
def fill(t, c_start, c_low, c_high, cells, item, word, rest):
    """Enter what `divided` has dealt into a pool without entries."""
    at = 0
    first = 0
    for k in range(cells.shape[0]):
        items = item[first : cells[k, 4]]
        room = span_for(items.size)
        _enter(
            t, c_start, c_low, c_high, cells[k, 0], cells[k, 1], cells[k, 2], cells[k, 3],
            at, room, word, rest, items,
        )  # fmt: skip
        at += room
        first = cells[k, 4]
    t.used[0] = at


@kernel
def entry_of(c_count, extra, word_start, word_count, words, row, own, rest):
    """What stands in the cells of a clause under one of its words, beside that."""
    rest[SECOND], rest[THIRD], rest[FOURTH], rest[ROW] = own, own, own, row
    place = extra[row]
    if place >= 0:
        others = 0
        w0 = np.int64(word_start[place])
        for w in range(w0, w0 + np.int64(word_count[place])):
            if words[w] == own:
                continue
            if others < 3:
                rest[SECOND + others] = words[w]
            else:
                rest[ROW] = -2 - row
            others += 1
    if c_count[row] > 2:
        rest[ROW] = -2 - row


@kernel
def entries_of(c_count, extra, word_start, word_count, words, rows, home):
    """(word, rest) of rows; those without words stand under the first."""
    word = np.empty(rows.size, np.int32)
    rest = np.empty((rows.size, 4), np.int32)
    for i in range(rows.size):
        word[i] = max(home[rows[i]], 0)
        entry_of(c_count, extra, word_start, word_count, words, rows[i], word[i], rest[i])
    return word, rest


@kernel
def cells_met(child, x0, y0, x1, y1, met):
    """The cells that lines x0 … x1, y0 … y1 meet: (node, x, y, bits of its side), how many."""
    n = 0
    stack = np.empty((4 * BITS, 4), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, 0, 0, BITS
    top = 1
    while top > 0:
        top -= 1
        node, x, y, bits = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        first = np.int64(child[node])
        if first == 0:
            if n == met.shape[0]:
                met = longer(met, n, 0)
            met[n, 0], met[n, 1], met[n, 2], met[n, 3] = node, x, y, bits
            n += 1
            continue
        half = 1 << (bits - 1)
        for q in range(4):
            if (x1 >= x + half if q & 1 else x0 < x + half) and (
                y1 >= y + half if q >> 1 else y0 < y + half
            ):
                stack[top, 0], stack[top, 3] = first + q, bits - 1
                stack[top, 1], stack[top, 2] = x + half * (q & 1), y + half * (q >> 1)
                top += 1
    return met, n


# --- changes ----------------------------------------------------------------------------------


@kernel
def _span_class(size):
    """The smallest span that holds so many, as a power of two."""
    found = _SMALLEST
    while (1 << found) < size:
        found += 1
    return found


@kernel
def _take_span(t, of):
    start = t.free[of]
    if start >= 0:
        t.free[of] = t.rest[start, ROW]
        return start
    start = t.used[0]
    t.used[0] = start + (1 << of)
    return start


@kernel
def _give_span(t, start, room):
    """A span serves the next cell that needs no more places than its power of two."""
    of = _SMALLEST
    while (2 << of) <= room:
        of += 1
    t.rest[start, ROW] = t.free[of]
    t.free[of] = start


@kernel
def _live_of(t, node):
    """Copies of what stands in a cell: word, rest, and their numbers."""
    a = t.head[node, START]
    kept = np.empty(t.head[node, LENGTH], np.int64)
    n = 0
    for k in range(a, a + t.head[node, LENGTH]):
        if t.rest[k, ROW] != GONE:
            kept[n] = k
            n += 1
    kept = kept[:n]
    return t.word[kept], t.rest[kept], np.arange(n)


@kernel
def _tidy(t, c_start, c_low, c_high, node, x, y, bits):
    """Put a cell in order, where it is, without its dead."""
    word, rest, items = _live_of(t, node)
    start, room = t.head[node, START], t.head[node, ROOM]
    _enter(t, c_start, c_low, c_high, node, x, y, bits, start, room, word, rest, items)


@kernel
def _make_room(t, c_start, c_low, c_high, node, x, y, bits):
    """Divide a cell that is full, or give it a larger span."""
    word, rest, items = _live_of(t, node)
    n = word.size
    start, room = t.head[node, START], t.head[node, ROOM]
    if 4 * n < 3 * room:
        _enter(t, c_start, c_low, c_high, node, x, y, bits, start, room, word, rest, items)
        return
    if n > LEAF and bits > LEAST:
        lines = np.empty((n, 4), np.int64)
        for i in range(n):
            lines[i] = _lines(c_start, c_low, c_high, row_of(rest[i, ROW]), t.plan)
        half = 1 << (bits - 1)
        counts = np.empty(4, np.int64)
        copies = _quarters(lines, items, 0, n, x + half, y + half, counts)
        if copies <= COPIES * n:
            first = t.used[1]
            t.used[1] += 4
            for q in range(4):
                some = np.empty(counts[q], np.int64)
                m = 0
                for i in range(n):
                    if _in_quarter(lines, i, q, x + half, y + half):
                        some[m] = i
                        m += 1
                t.child[first + q] = 0
                of = _span_class(span_for(m))
                _enter(
                    t, c_start, c_low, c_high, first + q,
                    x + half * (q & 1), y + half * (q >> 1), bits - 1,
                    _take_span(t, of), 1 << of, word, rest, some,
                )  # fmt: skip
            _give_span(t, start, room)
            t.child[node] = first
            t.head[node] = 0
            return
    of = _span_class(span_for(n))
    at = _take_span(t, of)
    _enter(t, c_start, c_low, c_high, node, x, y, bits, at, 1 << of, word, rest, items)
    _give_span(t, start, room)


@kernel
def insert(t, c_start, c_low, c_high, word, rest):
    """Enter a clause: 0 if it is in, −1 if it reaches too many cells, or one that is full for
    good. Otherwise nothing was done: the pool must have so many more places, and 4 nodes for
    each of `MOST_CELLS`.
    """
    x0, y0, x1, y1 = _lines(c_start, c_low, c_high, row_of(rest[ROW]), t.plan)
    met, n = cells_met(t.child, x0, y0, x1, y1, np.empty((8, 4), np.int64))
    if n > MOST_CELLS:
        return -1
    wanted = 0
    for k in range(n):
        if t.head[met[k, 0], LENGTH] == t.head[met[k, 0], ROOM]:
            if t.head[met[k, 0], ROOM] >= MOST:
                return -1
            wanted += 6 * (t.head[met[k, 0], ROOM] + 64)
    if wanted > 0:
        if t.used[0] + wanted > t.word.size or t.used[1] + 4 * n > t.child.size:
            return wanted
        for k in range(n):
            if t.head[met[k, 0], LENGTH] == t.head[met[k, 0], ROOM]:
                _make_room(
                    t, c_start, c_low, c_high, met[k, 0], met[k, 1], met[k, 2], met[k, 3]
                )  # fmt: skip
        met, n = cells_met(t.child, x0, y0, x1, y1, met)
    for k in range(n):
        node, x, y, bits = met[k, 0], met[k, 1], met[k, 2], met[k, 3]
        end = t.head[node, START] + t.head[node, LENGTH]
        _put(t, c_start, c_low, c_high, x, y, bits, end, word, rest)
        t.head[node, LENGTH] += 1
        tail = t.head[node, LENGTH] - t.head[node, ORDERED]
        if tail > max(_TAIL, t.head[node, ORDERED] >> 4):
            _tidy(t, c_start, c_low, c_high, node, x, y, bits)
    last = (1 << BITS) - 1
    t.used[2] += x0 == 0 or y0 == 0 or x1 == last or y1 == last
    return 0


@kernel
def insert_many(
    t, c_start, c_count, c_attr, c_low, c_high, extra, word_start, word_count, words,
    rows, home, taken, first,
):  # fmt: skip
    """Enter rows from `first` on and note which are taken: (how many are done, places of the
    pool that the next needs).
    """
    rest = np.empty(4, np.int32)
    for i in range(first, rows.size):
        row = rows[i]
        if not is_placed(c_start, c_count, c_attr, c_low, c_high, row):
            continue
        own = np.int32(max(home[row], 0))
        entry_of(c_count, extra, word_start, word_count, words, row, own, rest)
        done = insert(t, c_start, c_low, c_high, own, rest)
        if done > 0:
            return i, done
        taken[i] = done == 0
    return rows.size, 0


@kernel
def _position(t, node, word, row):
    """Where a clause stands in a cell."""
    a = t.head[node, START]
    board = (a >> 2) + (np.int64(word) & (boards_of(t.head[node, ROOM]) - 1))
    for k in range(a + t.shelf[board], a + t.shelf[board + 1]):
        if t.rest[k, ROW] == row or t.rest[k, ROW] == -2 - row:
            return k
    for k in range(a + t.head[node, ORDERED], a + t.head[node, LENGTH]):
        if t.rest[k, ROW] == row or t.rest[k, ROW] == -2 - row:
            return k
    return np.int64(-1)  # not to be: who removes a clause has added it


@kernel
def remove(t, c_start, c_low, c_high, word, row):
    """Take a clause out of all of its cells."""
    x0, y0, x1, y1 = _lines(c_start, c_low, c_high, row, t.plan)
    met, n = cells_met(t.child, x0, y0, x1, y1, np.empty((8, 4), np.int64))
    for m in range(n):
        node = met[m, 0]
        k = _position(t, node, word, row)
        if k < 0:
            continue
        t.rest[k, ROW] = GONE
        t.sides[k] = _NOWHERE
        t.head[node, DEAD] += 1
        if 4 * t.head[node, DEAD] > t.head[node, LENGTH] + 2 * _TAIL:
            _tidy(t, c_start, c_low, c_high, node, met[m, 1], met[m, 2], met[m, 3])


@kernel
def remove_many(t, c_start, c_low, c_high, rows, home):
    """Take rows out."""
    for row in rows:
        remove(t, c_start, c_low, c_high, np.int32(max(home[row], 0)), row)


@brief_kernel
def insert_one(
    c_start, c_count, c_attr, c_low, c_high, extra, word_start, word_count, words,
    child, head, shelf, word, sides, rest, plan, used, free, own, row,
):  # fmt: skip
    """Enter one clause under a word; whether that was all there is to do. Arrays one by one."""
    if not is_placed(c_start, c_count, c_attr, c_low, c_high, row):
        return False
    t = Cells(child, head, shelf, word, sides, rest, plan, used, free)
    entry = np.empty(4, np.int32)
    entry_of(c_count, extra, word_start, word_count, words, row, own, entry)
    return insert(t, c_start, c_low, c_high, own, entry) == 0


@brief_kernel
def remove_one(
    c_start, c_low, c_high, child, head, shelf, word, sides, rest, plan, used, free, own, row
):
    """Take one clause out."""
    t = Cells(child, head, shelf, word, sides, rest, plan, used, free)
    remove(t, c_start, c_low, c_high, own, row)


# --- matching ---------------------------------------------------------------------------------


@kernel
def _bit(bits, word, mask):
    """1 if an event has a word, as far as a bitmap of its words can tell."""
    slot = np.uint64(word) & mask
    return (bits[slot >> _SIX] >> (slot & _SIXTY_THREE)) & ONE


@kernel
def _has_words(words, w, w_stop, bits, mask, sure, word, w0, w1):
    """Whether an event has all of a clause's words."""
    for k in range(w, w_stop):
        if _bit(bits, words[k], mask) == NONE:
            return False
        if not sure:
            at = first_not_below(word, w0, w1, words[k])
            if at == w1 or word[at] != words[k]:
                return False
    return True


@kernel
def _holds(c_start, c_count, c_attr, c_low, c_high, clause, box, attr, value, b0, b1):
    """Whether an event that is everywhere in a box satisfies the predicates of a clause, the
    first two of which are its place.
    """
    p = np.int64(c_start[clause])
    p1 = p + np.int64(c_count[clause])
    for j in range(2):
        if not (c_low[p + j] <= box[2 + j] and box[j] <= c_high[p + j]):
            return False
    return event_satisfies(c_attr, c_low, c_high, p + 2, p1, attr, value, b0, b1)


@kernel
def _places(start, attr, value, word_start, boxes, first, stop, plan, child):
    """Where events are: their boxes, the lines of those, the cells of their lower left corners
    (node, bits of its side), and the events in the order of these.

    An event without a place, or without words, is left out.
    """
    n = stop - first
    at = np.empty((n, 4))
    lines = np.empty((n, 4), np.int64)
    cell = np.empty((n, 2), np.int64)
    keys = np.empty(n, np.int64)
    used = 0
    for i in range(n):
        e = first + i
        if boxes.shape[0] > 0:
            for j in range(4):
                at[i, j] = boxes[e, j]
        else:
            at[i] = np.nan
            for k in range(start[e], start[e + 1]):
                if attr[k] < 2:
                    at[i, attr[k]] = value[k]
                    at[i, attr[k] + 2] = value[k]
        if word_start[e] == word_start[e + 1] or not (
            at[i, 0] <= at[i, 2] and at[i, 1] <= at[i, 3]
        ):
            continue
        for j in range(4):
            lines[i, j] = line(at[i, j], plan[j & 1], plan[2 + (j & 1)])
        node = np.int64(0)
        bits = np.int64(BITS)
        while child[node] > 0:
            bits -= 1
            node = np.int64(child[node]) + ((lines[i, 0] >> bits) & 1)
            node += 2 * ((lines[i, 1] >> bits) & 1)
        cell[i, 0], cell[i, 1] = node, bits
        keys[used] = (node << 32) | i
        used += 1
    order = keys[:used]
    if used > 1:
        sort(order)
    return at, lines, cell, order & 0xFFFFFFFF


@kernel
def _visit(visit, near, v, number, few, head, node, x, y, side, lines):
    """Note that an event, here within lines, looks into a cell."""
    start, room = head[node, START], head[node, ROOM]
    boards = boards_of(room)
    visit[v, NUMBER], visit[v, BEGIN] = number, start
    visit[v, TAIL] = start + head[node, ORDERED]
    visit[v, END] = start + head[node, LENGTH]
    visit[v, BOARDS] = boards if few < boards else 0
    # No answer in two cells: it belongs to that of the lower left corner of what they share,
    # so one of them must begin here, in x and in y.
    x_begins, y_begins = _code(lines[0], x, side), _code(lines[1], y, side)
    near[v, 0] = _ABOVE | _packed(
        _code(lines[2], x, side), _code(lines[3], y, side), _TOP - x_begins, _TOP - y_begins
    )
    near[v, 1] = _LEFT if x_begins > 0 else NONE
    near[v, 2] = _LOWER if y_begins > 0 else NONE


@kernel
def _ask_for_words(visit, v0, v1, shelf, entry_word, word_start, word, first):
    """Ask for the boards of some visits, then for the words on them; how many there are."""
    for v in range(v0, v1):
        boards, base = visit[v, BOARDS], visit[v, BEGIN] >> 2
        if boards > 0:
            e = first + visit[v, NUMBER]
            for w in range(word_start[e], word_start[e + 1]):
                prefetch(shelf, base + (np.int64(word[w]) & (boards - 1)))
    total = 0
    for v in range(v0, v1):
        boards, begin = visit[v, BOARDS], visit[v, BEGIN]
        if boards == 0:
            total += visit[v, END] - begin
            continue
        total += visit[v, END] - visit[v, TAIL]
        e = first + visit[v, NUMBER]
        for w in range(word_start[e], word_start[e + 1]):
            board = (begin >> 2) + (np.int64(word[w]) & (boards - 1))
            k = begin + shelf[board]
            size = shelf[board + 1] - shelf[board]
            prefetch(entry_word, k)
            prefetch(entry_word, k + size)
            total += size
    return total


@kernel
def _say(bits, mask, words, word_start, word, e, said):
    """Let the bitmap be that of event `e`, no longer that of event `said`."""
    if said >= 0:
        for w in range(word_start[said], word_start[said + 1]):
            bits[(np.uint64(word[w]) & mask) >> _SIX] = NONE
    for w in range(word_start[e], word_start[e + 1]):
        if word[w] < words:
            slot = np.uint64(word[w]) & mask
            bits[slot >> _SIX] |= ONE << (slot & _SIXTY_THREE)


@kernel
def match(
    c_start, c_count, c_attr, c_low, c_high, extra, c_word_start, c_word_count, c_word,
    child, head, shelf, entry_word, entry_sides, entry_rest, plan,
    start, attr, value, word_start, word, boxes, first, stop, words, counters,
):  # fmt: skip
    """(events, rows) for events first … stop of a batch, at their points or, if there are any,
    everywhere in their boxes. `words` is one more than the highest word of any clause: what is
    beyond, nobody asks for, and it must not be taken for what shares its bit.

    Events come in the order of cells, so that a cell is in the cache for all who meet it.
    Entries are sifted in passes without branches: what remains of a cell cannot be foreseen.
    Some visits to cells go through each pass together, and ask for what the next pass reads:
    their waits for memory overlap.
    Numbers of entries are unsigned: no test for indexes from the end.
    """
    out = np.empty(256, np.int32)
    events = np.empty(256, np.int32)
    some = np.empty(1024, np.uint64)
    m = 0
    longest = 0
    for e in range(first, stop):
        longest = max(longest, word_start[e + 1] - word_start[e])
    # A bit for every word while that stays in the cache, else for several words together.
    size = 1024
    while size < words and (size < 1 << 17 or size < 64 * longest):
        size *= 2
    sure = size >= words
    mask = np.uint64(size - 1)
    bits = np.zeros(size >> 6, np.uint64)
    said = -1
    met = np.empty((16, 4), np.int64)
    visit = np.empty((TOGETHER, 5), np.int64)
    near = np.empty((TOGETHER, 3), np.uint64)
    stops = np.empty(TOGETHER + 1, np.uint64)
    looked, visited = 0, 0
    places, lines, cell, order = _places(
        start, attr, value, word_start, boxes, first, stop, plan, child
    )  # fmt: skip
    done = 0
    while done < order.size:
        visits = 0
        while done < order.size and visits < TOGETHER:
            number = order[done]
            few = word_start[first + number + 1] - word_start[first + number]
            if few > FEW and visits > 0:
                break  # its bitmap is set once
            done += 1
            its = lines[number]
            if its[0] == its[2] and its[1] == its[3]:
                side = cell[number, 1]
                _visit(
                    visit, near, visits, number, few, head, cell[number, 0],
                    (its[0] >> side) << side, (its[1] >> side) << side, side, its,
                )  # fmt: skip
                visits += 1
            else:
                met, n_met = cells_met(child, its[0], its[1], its[2], its[3], met)
                if visits + n_met > visit.shape[0]:
                    visit = longer(visit, visits, visits + n_met)
                    near = longer(near, visits, visits + n_met)
                for c in range(n_met):
                    _visit(
                        visit, near, visits, number, few, head, met[c, 0],
                        met[c, 1], met[c, 2], met[c, 3], its,
                    )  # fmt: skip
                    visits += 1
            if few > FEW:
                break
        visited += visits
        for v0 in range(0, visits, TOGETHER):
            v1 = min(v0 + TOGETHER, visits)
            most = _ask_for_words(visit, v0, v1, shelf, entry_word, word_start, word, first)
            if most > some.size:
                some = longer(some, 0, most)
            # Under a word of the event.
            n = NONE
            for v in range(v0, v1):
                e = first + visit[v, NUMBER]
                k, boards = visit[v, BEGIN], visit[v, BOARDS]
                before = n
                if boards > 0:
                    begin = k
                    for w in range(word_start[e], word_start[e + 1]):
                        wanted = word[w]
                        board = (begin >> 2) + (np.int64(wanted) & (boards - 1))
                        for i in range(
                            np.uint64(begin + shelf[board]), np.uint64(begin + shelf[board + 1])
                        ):
                            some[n] = i
                            n += ONE if entry_word[i] == wanted else NONE
                    k = visit[v, TAIL]
                if k < visit[v, END]:
                    if said != e:
                        _say(bits, mask, words, word_start, word, e, said)
                        said = e
                    for i in range(np.uint64(k), np.uint64(visit[v, END])):
                        some[n] = i
                        n += _bit(bits, entry_word[i], mask)
                for j in range(before, n):
                    prefetch(entry_sides, some[j])
                stops[v - v0] = n
            looked += np.int64(n)
            # Near the event.
            kept = NONE
            j = NONE
            for v in range(v0, v1):
                ends, here_x, here_y = near[v, 0], near[v, 1], near[v, 2]
                before = kept
                while j < stops[v - v0]:
                    i = some[j]
                    sides = entry_sides[i]
                    some[kept] = i
                    kept += (
                        ONE
                        if ((ends - sides) & _ABOVE == _ABOVE)
                        & ((sides | here_x) & _LEFT != NONE)
                        & ((sides | here_y) & _LOWER != NONE)
                        else NONE
                    )
                    j += ONE
                for k in range(before, kept):
                    prefetch(entry_rest, some[k] << _TWO)
                stops[v - v0] = kept
            # With three more words.
            j = NONE
            for v in range(v0, v1):
                if j == stops[v - v0]:
                    continue
                number = visit[v, NUMBER]
                e = first + number
                ends = near[v, 0]
                if said != e:
                    _say(bits, mask, words, word_start, word, e, said)
                    said = e
                kept = NONE
                while j < stops[v - v0]:
                    i = some[j]
                    some[kept] = i
                    kept += (
                        _bit(bits, entry_rest[i, SECOND], mask)
                        & _bit(bits, entry_rest[i, THIRD], mask)
                        & _bit(bits, entry_rest[i, FOURTH], mask)
                    )
                    j += ONE
                most = m + np.int64(kept)
                if most > out.size:
                    out, events = longer(out, m, most), longer(events, m, most)
                for k in range(kept):
                    i = some[k]
                    clause = np.int64(entry_rest[i, ROW])
                    inside = (ends - entry_sides[i] - _LOWEST) & _ABOVE == _ABOVE
                    if not (inside and clause >= 0 and sure):
                        clause = row_of(clause)
                        if not _holds(
                            c_start, c_count, c_attr, c_low, c_high, clause, places[number],
                            attr, value, start[e], start[e + 1],
                        ):  # fmt: skip
                            continue
                        place = extra[clause]
                        if place >= 0:
                            s0 = np.int64(c_word_start[place])
                            s1 = s0 + np.int64(c_word_count[place])
                            if not _has_words(
                                c_word, s0, s1, bits, mask, sure, word,
                                word_start[e], word_start[e + 1],
                            ):  # fmt: skip
                                continue
                    out[m] = clause
                    events[m] = number
                    m += 1
    counters[0] += visited
    counters[1] += looked
    counters[2] += m
    if order.size > 1:
        return by_event(events, out, m, stop - first)
    return events[:m], out[:m]
