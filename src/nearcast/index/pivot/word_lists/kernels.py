"""Clauses with words: the kernels of `pivot`'s word lists.

A clause stands in the list of the rarest of its words, so that an event looks at no more
lists than it has words, and seldom at a long one. An entry carries what decides on most
events without a look elsewhere: its place as four float32, rounded outwards, a signature,
one bit a word, and two more of its words. A list of more than a few blocks of 16 is kept in
the order of Hilbert's curve, with the hull of every block and of every 16 blocks: an event
skips what is elsewhere.
Boxes of all three levels lie in sixteens, 16 left sides, then 16 lower, right and upper ones:
a place is held against 16 boxes with a few vector instructions. What came since the last
ordering stands behind the ordered part: pieces of 1024 ordered by themselves, and fewer than
that which are looked at one by one.

Lists lie in one pool, in spans of powers of two. A list that outgrows its span moves; the
span serves the next list of that size.
"""

from __future__ import annotations

import numpy as np

from nearcast.index.pivot.kernels import bit_number, by_event
from nearcast.index.pivot.word_cells import kernels as cells
from nearcast.index.pivot.word_cells.kernels import Cells
from nearcast.jit import brief_kernel, kernel
from nearcast.kernels.rows import contains_sorted, longer
from nearcast.kernels.sorting import order_of
from nearcast.kernels.tokens import first_not_below

BLOCK = 16
#: Entries under one hull of the second level.
GROUP = 16 * BLOCK
#: Entries from which on a list is ordered by place.
LONG = 2 * BLOCK
#: Entries behind the ordered part that are worth an order of their own.
PIECE = 4 * GROUP
ONE = np.uint64(1)
#: What the head of a list says.
START, LENGTH, ORDERED, ROOM, WHOLE = 0, 1, 2, 3, 4
#: Instead of its place: a clause that stands in cells and in no list.
IN_CELLS = -2
#: Set in a signature: words beside two, or predicates, remain that an entry cannot decide.
MORE_WORDS = ONE << np.uint64(62)
MORE_PREDICATES = ONE << np.uint64(63)
_FLAGS = MORE_WORDS | MORE_PREDICATES
#: Two words beside the home of a clause, NO_WORD for none.
_WORD_BITS = np.uint64(32)
NO_WORD = np.uint64(0xFFFFFFFF)
_NO_OTHERS = (NO_WORD << _WORD_BITS) | NO_WORD
_STIR = np.uint64(0x9E3779B97F4A7C15)
#: Where a box ends that ends nowhere: unlike of infinities, differences are numbers.
_FAR = np.float32(np.finfo(np.float32).max)
_INSIDE = np.float32(0.0)
_SMALLEST = 2  # spans have at least 4 places
#: Events that go through the lists together, until they have so many words; and how many
#: bits tell them apart.
_EVENTS = 4096
_WORDS = 1 << 16
_EVENT_BITS = np.uint64(16)
_EVENT = np.uint64(0xFFFF)
#: Pairs of a word and an event that are looked at level by level.
_TOGETHER = 256
#: Bits of a word that one pass of the sort looks at.
_DIGIT = 11


@kernel
def _bit(word):
    """The bit of a word in a signature: one of 62."""
    return ONE << ((np.uint64(word) * _STIR >> np.uint64(32)) % np.uint64(62))


@kernel
def _below(v):
    """The largest float32 that is not above a number; never endless."""
    f = np.float32(v)
    if f > v:
        f = np.nextafter(f, np.float32(-np.inf))
    return min(max(f, -_FAR), _FAR)


@kernel
def _above(v):
    """The smallest float32 that is not below a number; never endless."""
    f = np.float32(v)
    if f < v:
        f = np.nextafter(f, np.float32(np.inf))
    return min(max(f, -_FAR), _FAR)


@kernel
def side(k, j):
    """Where side j (left, lower, right, upper) of box k stands."""
    return ((k >> 4) << 6) + (j << 4) + (k & 15)


@kernel
def _span_class(size):
    found = _SMALLEST
    while (1 << found) < size:
        found += 1
    return found


@kernel
def _take_span(t, wanted):
    """The start of a span of 2 ** wanted places; the pool must have room."""
    start = t.free[wanted]
    if start >= 0:
        t.free[wanted] = t.row[start]
        return start
    size = 1 << wanted
    start = t.used[0]
    if size >= BLOCK:  # so that blocks and groups have places of their own
        whole = min(size, GROUP)
        start = (start + whole - 1) & ~(whole - 1)
    t.used[0] = start + size
    return start


@kernel
def _give_span(t, start, of):
    t.row[start] = t.free[of]
    t.free[of] = start


@kernel
def _move(t, word, target):
    """Copy a list to another span."""
    source = t.head[word, START]
    for i in range(t.head[word, LENGTH]):
        row = t.row[source + i]
        t.row[target + i] = row
        t.signature[target + i] = t.signature[source + i]
        t.others[target + i] = t.others[source + i]
        for j in range(4):
            t.box[side(target + i, j)] = t.box[side(source + i, j)]
        if row >= 0:
            t.where[row] = target + i
    for b in range(t.head[word, ORDERED] // BLOCK):
        for j in range(4):
            t.hull[side(target // BLOCK + b, j)] = t.hull[side(source // BLOCK + b, j)]
    for g in range(t.head[word, ORDERED] // GROUP):
        for j in range(4):
            t.group[side(target // GROUP + g, j)] = t.group[side(source // GROUP + g, j)]
    t.head[word, START] = target


@kernel
def _along(x, y):
    """How far along Hilbert's curve two 16-bit numbers lie."""
    d = 0
    s = 1 << 15
    while s > 0:
        rx = 1 if x & s else 0
        ry = 1 if y & s else 0
        d += s * s * ((3 * rx) ^ ry)
        if ry == 0:
            if rx == 1:
                x = 65535 - x
                y = 65535 - y
            x, y = y, x
        s >>= 1
    return d


@kernel
def _ends(low, high):
    """Whether a side of a box is one, and ends."""
    return -_FAR < low <= high < _FAR


@kernel
def _grid_line(low, high, bottom, top):
    """16 bits of the middle of an interval between two bounds; 0 for what is endless."""
    if not (_ends(low, high) and top > bottom):
        return 0
    return int(65535.0 * (0.5 * (low + high) - bottom) / (top - bottom))


@kernel
def _hull_of(box, sixteen, out, at):
    """The hull of 16 boxes."""
    base = sixteen << 6
    for j in range(2):
        low, high = box[base + 16 * j], box[base + 16 * j + 32]
        for i in range(base + 16 * j + 1, base + 16 * j + 16):
            low = min(low, box[i])
            high = max(high, box[i + 32])
        out[side(at, j)] = low
        out[side(at, 2 + j)] = high


@kernel
def _order_from(t, word, first):
    """Order the entries of a list by place from the block at `first` on."""
    start, stop = t.head[word, START] + first, t.head[word, START] + t.head[word, LENGTH]
    n = stop - start
    xmin, ymin, xmax, ymax = np.inf, np.inf, -np.inf, -np.inf
    for i in range(start, stop):
        left, lower = t.box[side(i, 0)], t.box[side(i, 1)]
        right, upper = t.box[side(i, 2)], t.box[side(i, 3)]
        if _ends(left, right) and _ends(lower, upper):
            x, y = 0.5 * (left + right), 0.5 * (lower + upper)
            xmin, xmax = min(xmin, x), max(xmax, x)
            ymin, ymax = min(ymin, y), max(ymax, y)
    keys = np.empty(n, np.int64)
    for i in range(n):
        k = start + i
        x = _grid_line(t.box[side(k, 0)], t.box[side(k, 2)], xmin, xmax)
        y = _grid_line(t.box[side(k, 1)], t.box[side(k, 3)], ymin, ymax)
        keys[i] = _along(x, y)
    order = order_of(keys)
    rows = t.row[start:stop][order]
    signatures = t.signature[start:stop][order]
    others = t.others[start:stop][order]
    boxes = np.empty((n, 4), np.float32)
    for i in range(n):
        for j in range(4):
            boxes[i, j] = t.box[side(start + order[i], j)]
    for i in range(n):
        t.row[start + i] = rows[i]
        t.signature[start + i] = signatures[i]
        t.others[start + i] = others[i]
        for j in range(4):
            t.box[side(start + i, j)] = boxes[i, j]
    for i in range(start, stop):
        if t.row[i] >= 0:
            t.where[t.row[i]] = i
    t.head[word, ORDERED] = t.head[word, LENGTH] // BLOCK * BLOCK
    for b in range(start // BLOCK, stop // BLOCK):
        _hull_of(t.box, b, t.hull, b)
    for g in range(start // GROUP, stop // GROUP):
        _hull_of(t.hull, g, t.group, g)


@kernel
def put_in_order(t, word):
    """Drop the dead of a list, and order a long one by place."""
    start = t.head[word, START]
    n = 0
    for i in range(start, start + t.head[word, LENGTH]):
        if t.row[i] >= 0:
            t.row[start + n] = t.row[i]
            t.signature[start + n] = t.signature[i]
            t.others[start + n] = t.others[i]
            for j in range(4):
                t.box[side(start + n, j)] = t.box[side(i, j)]
            t.where[t.row[i]] = start + n
            n += 1
    t.head[word, LENGTH] = n
    t.dead[word] = 0
    t.head[word, ORDERED] = 0
    if n >= LONG:
        _order_from(t, word, 0)
    t.head[word, WHOLE] = t.head[word, ORDERED]


@kernel
def count_words(c, rows, frequency, change):
    """Note that clauses with these words have come, or gone."""
    for row in rows:
        extra = c.extra[row]
        w0 = np.int64(c.word_start[extra])
        for w in range(w0, w0 + np.int64(c.word_count[extra])):
            frequency[c.word[w]] += change


@brief_kernel
def with_homes(home, rows):
    """Which of these rows have a home."""
    out = np.zeros(rows.size, np.bool_)
    for i in range(rows.size):
        out[i] = rows[i] < home.size and home[rows[i]] >= 0
    return out


@brief_kernel
def with_words(extra, word_count, rows):
    """Which of these rows have words."""
    out = np.zeros(rows.size, np.bool_)
    for i in range(rows.size):
        place = extra[rows[i]]
        out[i] = place >= 0 and word_count[place] > 0
    return out


@kernel
def choose(c, rows, frequency, home):
    """The rarest word of each row becomes its home."""
    for row in rows:
        extra = c.extra[row]
        w0 = np.int64(c.word_start[extra])
        rarest = c.word[w0]
        for w in range(w0 + 1, w0 + np.int64(c.word_count[extra])):
            if frequency[c.word[w]] < frequency[rarest]:
                rarest = c.word[w]
        home[row] = rarest


@kernel
def _rarest(extra, word_start, word_count, words, row, frequency, change):
    """Count the words of a clause, and find the rarest."""
    w0 = np.int64(word_start[extra[row]])
    rarest = words[w0]
    for w in range(w0, w0 + np.int64(word_count[extra[row]])):
        frequency[words[w]] += change
        if frequency[words[w]] < frequency[rarest]:
            rarest = words[w]
    return rarest


@brief_kernel
def add_one(
    c_start, c_count, c_attr, c_low, c_high, extra, word_start, word_count, words,
    frequency, home, where, child, head, shelf, word, sides, rest, plan, used, free, row,
):  # fmt: skip
    """Count and choose the words of one clause, and put it into its cells: its home, or −1 if
    it is in no cell yet.

    Arrays one by one, and the GIL kept: see `match`, and `brief_kernel`.
    """
    home[row] = _rarest(extra, word_start, word_count, words, row, frequency, 1)
    if not cells.is_placed(c_start, c_count, c_attr, c_low, c_high, row):
        return -1
    t = Cells(child, head, shelf, word, sides, rest, plan, used, free)
    entry = np.empty(4, np.int32)
    cells.entry_of(c_count, extra, word_start, word_count, words, row, home[row], entry)
    if cells.insert(t, c_start, c_low, c_high, home[row], entry) != 0:
        return -1
    where[row] = IN_CELLS
    return home[row]


@brief_kernel
def remove_one(
    c_start, c_low, c_high, extra, word_start, word_count, words,
    frequency, home, where, child, head, shelf, word, sides, rest, plan, used, free, row,
):  # fmt: skip
    """Forget one clause if it is in cells; whether it was."""
    if where[row] != IN_CELLS:
        return False
    _rarest(extra, word_start, word_count, words, row, frequency, -1)
    t = Cells(child, head, shelf, word, sides, rest, plan, used, free)
    cells.remove(t, c_start, c_low, c_high, home[row], row)
    home[row], where[row] = -1, -1
    return True


@kernel
def places_for(t, words, coming):
    """How many places of the pool the lists of some words take, at most, for what is coming."""
    total = 0
    for i in range(words.size):
        size = t.head[words[i], LENGTH] + coming[i]
        if size > t.head[words[i], ROOM]:
            span = 1 << _span_class(size)
            total += span + min(span, GROUP)  # and what alignment may skip
    return total


@kernel
def make_room(t, words, coming):
    """Give the lists of some words spans for what is coming; the pool must have the places."""
    for i in range(words.size):
        word = words[i]
        if (
            t.head[word, LENGTH] + coming[i] > t.head[word, ROOM]
            and 4 * t.dead[word] > t.head[word, LENGTH]
        ):
            put_in_order(t, word)  # the dead make room
        length = t.head[word, LENGTH]
        if length + coming[i] <= t.head[word, ROOM]:
            continue
        wanted = _span_class(length + coming[i])
        source, room = t.head[word, START], t.head[word, ROOM]
        _move(t, word, _take_span(t, wanted))
        if room > 0:
            _give_span(t, source, _span_class(room))
        t.head[word, ROOM] = 1 << wanted


@kernel
def insert_many(c, t, rows):
    """Enter rows behind the lists of their homes, which have room."""
    c_start, c_count, c_attr, c_low, c_high = c.start, c.count, c.attr, c.low, c.high
    c_word, c_word_start, c_word_count, c_extra = c.word, c.word_start, c.word_count, c.extra
    head, home, where = t.head, t.home, t.where
    entry_row, entry_signature, entry_box, entry_others = t.row, t.signature, t.box, t.others
    for row in rows:
        rarest = home[row]
        k = head[rarest, START] + head[rarest, LENGTH]
        signature = np.uint64(0)
        entry_others[k] = _NO_OTHERS
        w0 = np.int64(c_word_start[c_extra[row]])
        others = 0
        for w in range(w0, w0 + np.int64(c_word_count[c_extra[row]])):
            if c_word[w] == rarest:
                continue
            signature |= _bit(c_word[w])
            if others < 2:
                entry_others[k] = (entry_others[k] << _WORD_BITS) | np.uint64(c_word[w])
            else:
                signature |= MORE_WORDS
            others += 1
        k0 = np.int64(c_start[row])
        predicates = np.int64(c_count[row])
        entry_box[side(k, 0)], entry_box[side(k, 1)] = -_FAR, -_FAR
        entry_box[side(k, 2)], entry_box[side(k, 3)] = _FAR, _FAR
        if predicates >= 2 and c_attr[k0] == 0 and c_attr[k0 + 1] == 1:
            for j in range(2):
                if c_low[k0 + j] <= c_high[k0 + j]:
                    entry_box[side(k, j)] = _below(c_low[k0 + j])
                    entry_box[side(k, 2 + j)] = _above(c_high[k0 + j])
                else:  # holds nothing, and a NaN would spoil the hulls of others
                    entry_box[side(k, j)] = np.inf
                    entry_box[side(k, 2 + j)] = -np.inf
            predicates -= 2
        if predicates > 0:
            signature |= MORE_PREDICATES
        entry_signature[k] = signature
        entry_row[k] = row
        head[rarest, LENGTH] += 1
        where[row] = k


@kernel
def order_some(t, words):
    """Put those lists in order that have much behind their ordered part.

    All of a list is ordered when a quarter of it has come since; in a longer one, a piece
    that has come is first ordered by itself.
    """
    for word in words:
        new = t.head[word, LENGTH] - t.head[word, WHOLE]
        if new >= LONG and 4 * new > t.head[word, LENGTH]:
            put_in_order(t, word)
        elif t.head[word, LENGTH] - t.head[word, ORDERED] >= PIECE:
            _order_from(t, word, t.head[word, ORDERED])


@kernel
def remove(t, rows):
    """Take rows out; a list half of which is dead is put in order."""
    for row in rows:
        word = t.home[row]
        if word < 0:
            continue
        k = t.where[row]
        t.row[k] = -1
        t.box[side(k, 0)], t.box[side(k, 2)] = np.inf, -np.inf
        t.home[row] = -1
        t.where[row] = -1
        t.dead[word] += 1
        if 2 * t.dead[word] > t.head[word, LENGTH]:
            put_in_order(t, word)


@kernel
def _descend(box, runs, count, bounds, out, width):
    """Runs (first, how many, event) of boxes that the place of their event may lie in, from
    runs of boxes to look at.

    No run crosses a sixteen. `width` is what a box stands for one level below: 16, or 1 of
    an entry itself. Returns (runs, their number, boxes looked at).
    """
    masks = np.empty(count, np.uint64)
    for r in range(count):  # no branch, no wait: the loads of many runs overlap
        event = runs[r, 2]
        x_below, x_above = bounds[event, 0], bounds[event, 1]
        y_below, y_above = bounds[event, 2], bounds[event, 3]
        base = np.uint64((runs[r, 0] >> 4) << 6)  # unsigned: no test for indexes from the end
        mask = np.int32(0)
        for j in range(np.uint64(16)):
            k = base + j
            # How far outside; differences become vector instructions, comparisons do not.
            out_x = max(box[k] - x_below, x_above - box[k + np.uint64(32)])
            out_y = max(box[k + np.uint64(16)] - y_below, y_above - box[k + np.uint64(48)])
            mask |= np.int32(1) << np.int32(j) if max(out_x, out_y) <= _INSIDE else np.int32(0)
        masks[r] = mask
    n = 0
    looked = 0
    for r in range(count):
        first, number = runs[r, 0], runs[r, 1]
        looked += number
        if n + 16 > out.shape[0]:
            out = longer(out, n, 0)
        left = (masks[r] >> np.uint64(first & 15)) & ((ONE << np.uint64(number)) - ONE)
        while left != 0:
            bit = left & (~left + ONE)
            left ^= bit
            out[n, 0] = (first + bit_number(bit)) * width
            out[n, 1] = width
            out[n, 2] = runs[r, 2]
            n += 1
    return out, n, looked


@kernel
def _with_run(runs, used, first, number, event):
    """Runs with one more behind those used."""
    if used == runs.shape[0]:
        runs = longer(runs, used, 0)
    runs[used, 0], runs[used, 1], runs[used, 2] = first, number, event
    return runs


@kernel
def _levels(head, pairs, p0, p1, groups, blocks, entries):
    """What events must look at of the lists of their words, as runs of boxes by level.

    Returns the runs of groups, of blocks and of entries, each with their number.
    """
    g, b, e = 0, 0, 0
    for p in range(p0, p1):
        word, event = np.int64(pairs[p] >> _EVENT_BITS), np.int64(pairs[p] & _EVENT)
        length = head[word, LENGTH]
        if length == 0:
            continue
        k = head[word, START]
        split, end = k + head[word, ORDERED], k + length
        stop = split >> 8
        at = k >> 8
        if split - k >= GROUP:  # then the list begins with a group
            while at < stop:
                n = min(16 - (at & 15), stop - at)
                groups = _with_run(groups, g, at, n, event)
                g += 1
                at += n
            k = stop << 8
        if k < split:  # fewer than 16 blocks, in one sixteen: spans begin at their own size
            blocks = _with_run(blocks, b, k >> 4, (split - k) >> 4, event)
            b += 1
            k = split
        while k < end:
            n = min(16 - (k & 15), end - k)
            entries = _with_run(entries, e, k, n, event)
            e += 1
            k += n
    return groups, g, blocks, b, entries, e


@kernel
def _behind(runs, count, more, number):
    """Runs with others behind them."""
    while count + number > runs.shape[0]:
        runs = longer(runs, count, 0)
    for i in range(number):
        for j in range(runs.shape[1]):
            runs[count + i, j] = more[i, j]
    return runs


@kernel
def _by_word(pairs, used, other, top):
    """Pairs in the order of their words, up to `top`, and of events: a radix sort of stable
    passes. `other` is as long; one of the two is returned.
    """
    shift = _EVENT_BITS
    count = np.empty(1 << _DIGIT, np.int64)
    mask = np.uint64((1 << _DIGIT) - 1)
    while top > 0:
        count[:] = 0
        for p in range(used):
            count[(pairs[p] >> shift) & mask] += 1
        at = 0
        for d in range(count.size):
            at, count[d] = at + count[d], at
        for p in range(used):
            d = (pairs[p] >> shift) & mask
            other[count[d]] = pairs[p]
            count[d] += 1
        pairs, other = other, pairs
        shift += np.uint64(_DIGIT)
        top >>= _DIGIT
    return pairs


@kernel
def _place(start, attr, value, boxes, e):
    """Where an event is: x0, y0, x1, y1; −inf if it is nowhere."""
    if boxes.shape[0] > 0:
        if boxes[e, 0] <= boxes[e, 2] and boxes[e, 1] <= boxes[e, 3]:
            return boxes[e, 0], boxes[e, 1], boxes[e, 2], boxes[e, 3]
        return -np.inf, -np.inf, -np.inf, -np.inf
    x, y = np.nan, np.nan
    for k in range(start[e], start[e + 1]):
        if attr[k] == 0:
            x = value[k]
        elif attr[k] == 1:
            y = value[k]
    if not (x == x and y == y):
        x, y = -np.inf, -np.inf
    return x, y, x, y


@kernel
def _asked(head, start, attr, value, word_start, word, boxes, first, stop, bounds, lacking):
    """What a few events ask of which lists: pairs (word, event) in the order of words.

    Notes the places of the events, and the bits of signatures that they lack.
    """
    pairs = np.empty(word_start[stop] - word_start[first], np.uint64)
    used = 0
    top = 0
    for e in range(first, stop):
        # An event without a place meets entries without one only: those that end nowhere.
        x0, y0, x1, y1 = _place(start, attr, value, boxes, e)
        i = e - first
        bounds[i, 0], bounds[i, 1] = _below(x1), _above(x0)
        bounds[i, 2], bounds[i, 3] = _below(y1), _above(y0)
        has = _FLAGS
        for w in range(word_start[e], word_start[e + 1]):
            has |= _bit(word[w])
            if word[w] < head.shape[0] and head[word[w], LENGTH] > 0:
                pairs[used] = (np.uint64(word[w]) << _EVENT_BITS) | np.uint64(i)
                top = max(top, word[w])
                used += 1
        lacking[i] = ~has
    if stop - first == 1:
        return pairs[:used]
    return _by_word(pairs, used, np.empty_like(pairs), top)[:used]


@kernel
def _has(word, first, stop, wanted):
    """Whether an ascending run of words has one, or it is none."""
    if wanted == NO_WORD:
        return True
    code = np.int64(wanted)
    at = first_not_below(word, first, stop, code)
    return at < stop and word[at] == code


@kernel
def _candidates(
    head, row, signature, others, box, hull, group,
    pairs, words, word_start, bounds, lacking, sink, counters,
):  # fmt: skip
    """(events, rows): those that want their event, and −1 − row of those that may.

    Level by level: what some pairs have to show on one level is looked at before anything on
    the next, so that the waits for memory overlap.
    """
    groups = np.empty((64, 3), np.int64)
    blocks = np.empty((64, 3), np.int64)
    entries = np.empty((64, 3), np.int64)
    found = np.empty((64, 3), np.int64)
    hits = np.empty((64, 3), np.int64)
    out = np.empty(256, np.int32)
    events = np.empty(256, np.int32)
    m = 0
    touched = np.uint64(0)
    for p0 in range(0, pairs.size, _TOGETHER):
        p1 = min(p0 + _TOGETHER, pairs.size)
        for p in range(p0, p1):
            touched += np.uint64(head[pairs[p] >> _EVENT_BITS, LENGTH])
        groups, n_groups, blocks, n_blocks, entries, n_entries = _levels(
            head, pairs, p0, p1, groups, blocks, entries
        )
        found, n, _ = _descend(group, groups, n_groups, bounds, found, 16)
        blocks = _behind(blocks, n_blocks, found, n)
        found, n, _ = _descend(hull, blocks, n_blocks + n, bounds, found, 16)
        entries = _behind(entries, n_entries, found, n)
        hits, n, looked = _descend(box, entries, n_entries + n, bounds, hits, 1)
        counters[1] += looked
        while m + n > out.size:
            out, events = longer(out, m, 0), longer(events, m, 0)
        kept = 0
        for h in range(n):
            i, event = hits[h, 0], hits[h, 2]
            touched += others[i] + np.uint64(row[i])
            hits[kept, 0], hits[kept, 2] = i, event
            kept += signature[i] & lacking[event] == 0
        for h in range(kept):
            i, event = hits[h, 0], hits[h, 2]
            if others[i] != _NO_OTHERS:
                w0, w1 = word_start[event], word_start[event + 1]
                if not (
                    _has(words, w0, w1, others[i] & NO_WORD)
                    and _has(words, w0, w1, others[i] >> _WORD_BITS)
                ):
                    continue
            k = side(i, 0)
            sure = (
                signature[i] & _FLAGS == 0
                and box[k] < bounds[event, 0] and bounds[event, 1] < box[k + 32]
                and box[k + 16] < bounds[event, 2] and bounds[event, 3] < box[k + 48]
            )  # fmt: skip
            events[m] = event
            out[m] = row[i] if sure else -1 - row[i]
            m += 1
    sink[0] = touched  # or nothing would be read ahead
    return events[:m], out[:m]


@kernel
def match(
    c_start, c_count, c_attr, c_low, c_high, extra, c_word_start, c_word_count, c_word,
    head, row, signature, others, box, hull, group,
    start, attr, value, word_start, word, columns, boxes, first, stop, counters,
):  # fmt: skip
    """(events, rows) for events first … stop of a batch, at their points or, if there are any,
    everywhere in their boxes.

    Events that come together go through the lists in the order of words, so that a list is
    in the cache for all who ask for it. Arrays one by one: as tuples they take as long to
    hand over as one event to match.
    """
    dense = np.full((max(columns, 2), 2), np.nan)  # by column: from where to where
    out = np.empty(1024, np.int32)
    events = np.empty(1024, np.int32)
    few = min(_EVENTS, stop - first)
    bounds = np.empty((few, 4), np.float32)
    lacking = np.empty(few, np.uint64)
    sink = np.empty(1, np.float32)
    m = 0
    e1 = first
    while e1 < stop:
        e0, e1 = e1, e1 + 1
        while e1 < min(e0 + _EVENTS, stop) and word_start[e1] - word_start[e0] < _WORDS:
            e1 += 1
        pairs = _asked(
            head, start, attr, value, word_start, word, boxes, e0, e1, bounds, lacking
        )  # fmt: skip
        whose, rows = _candidates(
            head, row, signature, others, box, hull, group,
            pairs, word, word_start[e0:], bounds, lacking, sink, counters,
        )  # fmt: skip
        if e1 - e0 > 1:
            whose, rows = by_event(whose, rows, whose.size, e1 - e0)
        while m + whose.size > out.size:
            out, events = longer(out, m, 0), longer(events, m, 0)
        filled = -1
        for h in range(whose.size):
            clause, e = rows[h], e0 + whose[h]
            if clause < 0:
                clause = -1 - clause
                if filled != e:
                    if filled >= 0:
                        for k in range(start[filled], start[filled + 1]):
                            dense[attr[k]] = np.nan
                    for k in range(start[e], start[e + 1]):
                        dense[attr[k]] = value[k]
                    if boxes.shape[0] > 0:
                        dense[:2] = np.nan
                        if boxes[e, 0] <= boxes[e, 2] and boxes[e, 1] <= boxes[e, 3]:
                            dense[0, 0], dense[0, 1] = boxes[e, 0], boxes[e, 2]
                            dense[1, 0], dense[1, 1] = boxes[e, 1], boxes[e, 3]
                    filled = e
                p = np.int64(c_start[clause])
                p1 = p + np.int64(c_count[clause])
                while p < p1:
                    if not (c_low[p] <= dense[c_attr[p], 1] and dense[c_attr[p], 0] <= c_high[p]):
                        break
                    p += 1
                if p < p1:
                    continue
                s0 = np.int64(c_word_start[extra[clause]])
                s1 = s0 + np.int64(c_word_count[extra[clause]])
                if not contains_sorted(word, word_start[e], word_start[e + 1], c_word, s0, s1):
                    continue
            out[m] = clause
            events[m] = e - first
            m += 1
        if filled >= 0:
            for k in range(start[filled], start[filled + 1]):
                dense[attr[k]] = np.nan
    counters[0] += word_start[stop] - word_start[first]
    counters[2] += m
    return events[:m], out[:m]
