"""Clauses with words: the kernels of `pivot`'s word lists.

A clause stands in the list of the rarest of its words, so that an event looks at no more
lists than it has words, and seldom at a long one. An entry carries what decides on most
events without a look elsewhere: its place as four float32, rounded outwards, and a
signature, one bit a word. A list of more than a few blocks of 16 is kept in the order of
Hilbert's curve, with the hull of every block and of every 16 blocks: an event skips what is
elsewhere.
Boxes of all three levels lie in sixteens, 16 left sides, then 16 lower, right and upper ones:
a place is held against 16 boxes with a few vector instructions. What came since the last
ordering stands behind the ordered part: pieces of 1024 ordered by themselves, and fewer than
that which are looked at one by one.

Lists lie in one pool, in spans of powers of two. A list that outgrows its span moves; the
span serves the next list of that size.
"""

from __future__ import annotations

import numpy as np

from nearcast.index.pivot.kernels import bit_number
from nearcast.jit import kernel
from nearcast.kernels.rows import contains_sorted

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
#: Set in a signature: words or predicates remain that an entry cannot decide.
MORE_WORDS = ONE << np.uint64(62)
MORE_PREDICATES = ONE << np.uint64(63)
_FLAGS = MORE_WORDS | MORE_PREDICATES
_STIR = np.uint64(0x9E3779B97F4A7C15)
_SMALLEST = 2  # spans have at least 4 places


@kernel
def _bit(word):
    """The bit of a word in a signature: one of 62."""
    return ONE << ((np.uint64(word) * _STIR >> np.uint64(32)) % np.uint64(62))


@kernel
def _below(v):
    """The largest float32 that is not above a number."""
    f = np.float32(v)
    return np.nextafter(f, np.float32(-np.inf)) if f > v else f


@kernel
def _above(v):
    """The smallest float32 that is not below a number."""
    f = np.float32(v)
    return np.nextafter(f, np.float32(np.inf)) if f < v else f


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
def _grid_line(low, high, bottom, top):
    """16 bits of the middle of an interval between two bounds; 0 for what is endless."""
    middle = 0.5 * (low + high)
    if not (np.isfinite(middle) and top > bottom):
        return 0
    return int(65535.0 * (middle - bottom) / (top - bottom))


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
        x, y = t.box[side(i, 0)] + t.box[side(i, 2)], t.box[side(i, 1)] + t.box[side(i, 3)]
        if np.isfinite(x) and np.isfinite(y):
            xmin, xmax = min(xmin, 0.5 * x), max(xmax, 0.5 * x)
            ymin, ymax = min(ymin, 0.5 * y), max(ymax, 0.5 * y)
    keys = np.empty(n, np.int64)
    for i in range(n):
        k = start + i
        x = _grid_line(t.box[side(k, 0)], t.box[side(k, 2)], xmin, xmax)
        y = _grid_line(t.box[side(k, 1)], t.box[side(k, 3)], ymin, ymax)
        keys[i] = _along(x, y)
    order = np.argsort(keys)
    rows = t.row[start:stop][order]
    signatures = t.signature[start:stop][order]
    boxes = np.empty((n, 4), np.float32)
    for i in range(n):
        for j in range(4):
            boxes[i, j] = t.box[side(start + order[i], j)]
    t.row[start:stop] = rows
    t.signature[start:stop] = signatures
    for i in range(n):
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


@kernel
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
    entry_row, entry_signature, entry_box = t.row, t.signature, t.box
    for row in rows:
        rarest = home[row]
        k = head[rarest, START] + head[rarest, LENGTH]
        signature = np.uint64(0)
        w0 = np.int64(c_word_start[c_extra[row]])
        for w in range(w0, w0 + np.int64(c_word_count[c_extra[row]])):
            if c_word[w] != rarest:
                signature |= _bit(c_word[w]) | MORE_WORDS
        k0 = np.int64(c_start[row])
        predicates = np.int64(c_count[row])
        entry_box[side(k, 0)], entry_box[side(k, 1)] = -np.inf, -np.inf
        entry_box[side(k, 2)], entry_box[side(k, 3)] = np.inf, np.inf
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
        t.dead[word] += 1
        if 2 * t.dead[word] > t.head[word, LENGTH]:
            put_in_order(t, word)


@kernel
def _longer(array, used):
    larger = np.empty((2 * array.shape[0], *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


@kernel
def _descend(box, runs, count, x_below, x_above, y_below, y_above, lanes, out, width, sink):
    """Runs (first, how many) of boxes that a place may lie in, from runs of boxes to look at.

    No run crosses a sixteen. `width` is what a box stands for one level below: 16, or 1 of
    an entry itself. Returns (runs, their number, boxes looked at).
    """
    words = lanes.view(np.uint64)
    touched = np.float32(0.0)
    for r in range(count):  # loads that do not wait for each other overlap
        base = side(runs[r, 0], 0)
        touched += box[base] + box[base + 16] + box[base + 32] + box[base + 48]
    sink[0] = touched  # or nothing would be read ahead
    n = 0
    looked = 0
    for r in range(count):
        first, number = runs[r, 0], runs[r, 1]
        looked += number
        words[0], words[1] = 0, 0
        base = np.uint64(side(first, 0))  # unsigned: no test for indexes from the end
        for j in range(np.uint64(number)):
            k = base + j
            lanes[j] = (
                np.uint8(box[k] <= x_below)
                & np.uint8(box[k + np.uint64(16)] <= y_below)
                & np.uint8(x_above <= box[k + np.uint64(32)])
                & np.uint8(y_above <= box[k + np.uint64(48)])
            )
        if words[0] | words[1] == 0:
            continue
        if n + 16 > out.shape[0]:
            out = _longer(out, n)
        for half in range(2):
            left = words[half]
            while left != 0:
                bit = left & (~left + ONE)
                left ^= bit
                out[n, 0] = (first + 8 * half + (bit_number(bit) >> 3)) * width
                out[n, 1] = width
                n += 1
    return out, n, looked


@kernel
def _with_run(runs, used, first, number):
    """Runs with one more behind those used."""
    if used == runs.shape[0]:
        runs = _longer(runs, used)
    runs[used, 0], runs[used, 1] = first, number
    return runs


@kernel
def _levels(head, words, w0, w1, groups, blocks, entries):
    """What an event must look at of the lists of its words, as runs of boxes by level.

    Returns the runs of groups, of blocks and of entries, each with their number.
    """
    g, b, e = 0, 0, 0
    for w in range(w0, w1):
        word = words[w]
        if word >= head.shape[0] or head[word, LENGTH] == 0:
            continue
        k = head[word, START]
        split, end = k + head[word, ORDERED], k + head[word, LENGTH]
        stop = split >> 8
        at = k >> 8
        if split - k >= GROUP:  # then the list begins with a group
            while at < stop:
                n = min(16 - (at & 15), stop - at)
                groups = _with_run(groups, g, at, n)
                g += 1
                at += n
            k = stop << 8
        if k < split:  # fewer than 16 blocks, in one sixteen: spans begin at their own size
            blocks = _with_run(blocks, b, k >> 4, (split - k) >> 4)
            b += 1
            k = split
        while k < end:
            n = min(16 - (k & 15), end - k)
            entries = _with_run(entries, e, k, n)
            e += 1
            k += n
    return groups, g, blocks, b, entries, e


@kernel
def _behind(runs, count, more, number):
    """Runs with others behind them."""
    while count + number > runs.shape[0]:
        runs = _longer(runs, count)
    runs[count : count + number] = more[:number]
    return runs


@kernel
def match(c, t, batch, first, stop, counters):
    """(events, rows) for events first … stop of a batch.

    Level by level: what all lists of an event have to show on one level is looked at before
    anything on the next, so that the waits for memory overlap.
    """
    c_start, c_count, c_attr, c_low, c_high = c.start, c.count, c.attr, c.low, c.high
    extra, c_word_start, c_word_count, c_word = c.extra, c.word_start, c.word_count, c.word
    head = t.head
    entry_row, entry_signature, box, hull, group = t.row, t.signature, t.box, t.hull, t.group
    start, attr, value = batch.start, batch.attr, batch.value
    word_start, word = batch.word_start, batch.word
    dense = np.full(max(batch.columns, 2), np.nan)
    out = np.empty(1024, np.int32)
    events = np.empty(1024, np.int32)
    groups = np.empty((64, 2), np.int64)
    blocks = np.empty((64, 2), np.int64)
    entries = np.empty((64, 2), np.int64)
    found = np.empty((64, 2), np.int64)
    hits = np.empty((64, 2), np.int64)
    lanes = np.zeros(16, np.uint8)
    sink = np.empty(1, np.float32)
    touched = np.uint64(0)
    m = 0
    candidates = 0
    for e in range(first, stop):
        w0, w1 = word_start[e], word_start[e + 1]
        if w0 == w1:
            continue
        for k in range(start[e], start[e + 1]):
            dense[attr[k]] = value[k]
        placed = dense[0] == dense[0] and dense[1] == dense[1]
        # An event without a place meets entries without one only: those that end nowhere.
        x, y = (dense[0], dense[1]) if placed else (-np.inf, -np.inf)
        x_below, x_above, y_below, y_above = _below(x), _above(x), _below(y), _above(y)
        has = _FLAGS
        for w in range(w0, w1):
            has |= _bit(word[w])
            if word[w] < head.shape[0]:
                touched += np.uint64(head[word[w], LENGTH])
        lacking = ~has
        groups, n_groups, blocks, n_blocks, entries, n_entries = _levels(
            head, word, w0, w1, groups, blocks, entries
        )
        found, n, _ = _descend(
            group, groups, n_groups, x_below, x_above, y_below, y_above, lanes, found, 16, sink
        )
        blocks = _behind(blocks, n_blocks, found, n)
        found, n, _ = _descend(
            hull, blocks, n_blocks + n, x_below, x_above, y_below, y_above, lanes, found, 16, sink
        )
        entries = _behind(entries, n_entries, found, n)
        hits, n, looked = _descend(
            box, entries, n_entries + n, x_below, x_above, y_below, y_above, lanes, hits, 1, sink
        )
        candidates += looked
        kept = 0
        for h in range(n):
            i = hits[h, 0]
            hits[kept, 0] = i
            kept += entry_signature[i] & lacking == 0
        while m + kept > out.size:
            out, events = _longer(out, m), _longer(events, m)
        for h in range(kept):
            i = hits[h, 0]
            row = entry_row[i]
            k = side(i, 0)
            sure = (
                entry_signature[i] & MORE_PREDICATES == 0
                and box[k] < x_below and x_above < box[k + 32]
                and box[k + 16] < y_below and y_above < box[k + 48]
            )  # fmt: skip
            if not sure:
                p = np.int64(c_start[row])
                p1 = p + np.int64(c_count[row])
                while p < p1:
                    v = dense[c_attr[p]]
                    if not (c_low[p] <= v <= c_high[p]):
                        break
                    p += 1
                if p < p1:
                    continue
            if entry_signature[i] & MORE_WORDS:
                s0 = np.int64(c_word_start[extra[row]])
                s1 = s0 + np.int64(c_word_count[extra[row]])
                if not contains_sorted(word, w0, w1, c_word, s0, s1):
                    continue
            out[m] = row
            events[m] = e - first
            m += 1
        for k in range(start[e], start[e + 1]):
            dense[attr[k]] = np.nan
        counters[0] += w1 - w0
    sink[0] = touched  # or nothing would be read ahead
    counters[1] += candidates
    counters[2] += m
    return events[:m], out[:m]
