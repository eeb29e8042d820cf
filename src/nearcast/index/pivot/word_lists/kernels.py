"""Clauses with words: the kernels of `pivot`'s word lists.

A clause stands in the list of the rarest of its words, so that an event looks at no more
lists than it has words, and seldom at a long one. An entry carries what decides on most
events without a look elsewhere: its place as four float32, rounded outwards, and a
signature, one bit a word. A list of more than a few blocks of 16 is kept in Z-order of the
places, with the hull of every block and of every 16 blocks: an event skips what is elsewhere. What
came since the last ordering stands behind the ordered part: pieces of 1024 ordered by
themselves, and fewer than that which are looked at one by one.

Lists lie in one pool, in spans of powers of two. A list that outgrows its span moves; the
span serves the next list of that size.
"""

from __future__ import annotations

import numpy as np

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
            t.box[target + i, j] = t.box[source + i, j]
        if row >= 0:
            t.where[row] = target + i
    for b in range(t.head[word, ORDERED] // BLOCK):
        for j in range(4):
            t.hull[target // BLOCK + b, j] = t.hull[source // BLOCK + b, j]
    for g in range(t.head[word, ORDERED] // GROUP):
        for j in range(4):
            t.group[target // GROUP + g, j] = t.group[source // GROUP + g, j]
    t.head[word, START] = target


@kernel
def _spread(v):
    """The bits of a 16-bit number with a gap after each."""
    v = (v | (v << 8)) & 0x00FF00FF
    v = (v | (v << 4)) & 0x0F0F0F0F
    v = (v | (v << 2)) & 0x33333333
    return (v | (v << 1)) & 0x55555555


@kernel
def _z_order(low, high, bottom, top):
    """16 bits of the middle of an interval between two bounds; 0 for what is endless."""
    middle = 0.5 * (low + high)
    if not (np.isfinite(middle) and top > bottom):
        return 0
    return int(65535.0 * (middle - bottom) / (top - bottom))


@kernel
def _hull_of(box, first, stop, out, at):
    """The hull of some boxes."""
    for j in range(4):
        out[at, j] = box[first, j]
    for i in range(first + 1, stop):
        for j in range(2):
            out[at, j] = min(out[at, j], box[i, j])
            out[at, 2 + j] = max(out[at, 2 + j], box[i, 2 + j])


@kernel
def _apart(box, i, x_below, x_above, y_below, y_above):
    """Whether a place is not in a box."""
    return not (
        box[i, 0] <= x_below
        and x_above <= box[i, 2]
        and box[i, 1] <= y_below
        and y_above <= box[i, 3]
    )


@kernel
def _order_from(t, word, first):
    """Order the entries of a list by place from the block at `first` on."""
    start, stop = t.head[word, START] + first, t.head[word, START] + t.head[word, LENGTH]
    n = stop - start
    xmin, ymin, xmax, ymax = np.inf, np.inf, -np.inf, -np.inf
    for i in range(start, stop):
        x, y = t.box[i, 0] + t.box[i, 2], t.box[i, 1] + t.box[i, 3]
        if np.isfinite(x) and np.isfinite(y):
            xmin, xmax = min(xmin, 0.5 * x), max(xmax, 0.5 * x)
            ymin, ymax = min(ymin, 0.5 * y), max(ymax, 0.5 * y)
    keys = np.empty(n, np.int64)
    for i in range(n):
        k = start + i
        x = _z_order(t.box[k, 0], t.box[k, 2], xmin, xmax)
        keys[i] = _spread(x) | (_spread(_z_order(t.box[k, 1], t.box[k, 3], ymin, ymax)) << 1)
    order = np.argsort(keys)
    rows = t.row[start:stop][order]
    signatures = t.signature[start:stop][order]
    boxes = t.box[start:stop][order]
    t.row[start:stop] = rows
    t.signature[start:stop] = signatures
    t.box[start:stop] = boxes
    for i in range(start, stop):
        if t.row[i] >= 0:
            t.where[t.row[i]] = i
    t.head[word, ORDERED] = t.head[word, LENGTH] // BLOCK * BLOCK
    for b in range(start // BLOCK, stop // BLOCK):
        _hull_of(t.box, b * BLOCK, (b + 1) * BLOCK, t.hull, b)
    for g in range(start // GROUP, stop // GROUP):
        _hull_of(t.hull, g * GROUP // BLOCK, (g + 1) * GROUP // BLOCK, t.group, g)


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
                t.box[start + n, j] = t.box[i, j]
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
        entry_box[k, 0], entry_box[k, 1] = -np.inf, -np.inf
        entry_box[k, 2], entry_box[k, 3] = np.inf, np.inf
        if predicates >= 2 and c_attr[k0] == 0 and c_attr[k0 + 1] == 1:
            for j in range(2):
                if c_low[k0 + j] <= c_high[k0 + j]:
                    entry_box[k, j] = _below(c_low[k0 + j])
                    entry_box[k, 2 + j] = _above(c_high[k0 + j])
                else:  # holds nothing, and a NaN would spoil the hulls of others
                    entry_box[k, j] = np.inf
                    entry_box[k, 2 + j] = -np.inf
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
        t.box[k, 0], t.box[k, 2] = np.inf, -np.inf
        t.home[row] = -1
        t.dead[word] += 1
        if 2 * t.dead[word] > t.head[word, LENGTH]:
            put_in_order(t, word)


@kernel
def _longer(array, used):
    larger = np.empty(2 * array.size, array.dtype)
    larger[:used] = array[:used]
    return larger


@kernel
def match(c, t, batch, first, stop, counters):
    """(events, rows) for events first … stop of a batch."""
    c_start, c_count, c_attr, c_low, c_high = c.start, c.count, c.attr, c.low, c.high
    extra, c_word_start, c_word_count, c_word = c.extra, c.word_start, c.word_count, c.word
    head = t.head
    entry_row, entry_signature, entry_box = t.row, t.signature, t.box
    hull, group = t.hull, t.group
    start, attr, value = batch.start, batch.attr, batch.value
    word_start, word = batch.word_start, batch.word
    dense = np.full(max(batch.columns, 2), np.nan)
    out = np.empty(1024, np.int32)
    events = np.empty(1024, np.int32)
    ahead = np.empty(64, np.int64)
    sink = np.empty(1)
    touched = 0.0
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
        lacking = ~has
        # What will be looked at is read ahead: loads that do not wait for each other overlap.
        if ahead.size < w1 - w0:
            ahead = np.empty(2 * (w1 - w0), np.int64)
        for w in range(w0, w1):
            ahead[w - w0] = -1
            if word[w] < head.shape[0] and head[word[w], LENGTH] > 0:
                ahead[w - w0] = head[word[w], START]
        for w in range(w1 - w0):
            if ahead[w] >= 0:
                k = ahead[w]
                touched += hull[k // BLOCK, 0] + group[k // GROUP, 0] + entry_box[k, 0]
                touched += entry_signature[k] & ONE
        for w in range(w0, w1):
            if ahead[w - w0] < 0:
                continue
            begin = ahead[w - w0]
            end = begin + head[word[w], LENGTH]
            split = begin + head[word[w], ORDERED]
            k = begin
            while k < end:
                upto = end
                if k < split:
                    whole = k & (GROUP - 1) == 0 and k + GROUP <= split
                    if whole and _apart(group, k // GROUP, x_below, x_above, y_below, y_above):
                        k += GROUP
                        continue
                    upto = k + BLOCK
                    if _apart(hull, k // BLOCK, x_below, x_above, y_below, y_above):
                        k = upto
                        continue
                candidates += upto - k
                if m + upto - k > out.size:
                    while m + upto - k > out.size:
                        out, events = _longer(out, m), _longer(events, m)
                for i in range(k, upto):
                    if entry_signature[i] & lacking:
                        continue
                    if _apart(entry_box, i, x_below, x_above, y_below, y_above):
                        continue
                    row = entry_row[i]
                    sure = (
                        entry_signature[i] & MORE_PREDICATES == 0
                        and entry_box[i, 0] < x_below and x_above < entry_box[i, 2]
                        and entry_box[i, 1] < y_below and y_above < entry_box[i, 3]
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
                k = upto
        for k in range(start[e], start[e + 1]):
            dense[attr[k]] = np.nan
        counters[0] += w1 - w0
    sink[0] = touched  # or nothing would be read ahead
    counters[1] += candidates
    counters[2] += m
    return events[:m], out[:m]
