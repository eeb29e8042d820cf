"""The brute force, compiled.

The loops take single arrays, fetched once: fetching a field of a NamedTuple inside a loop
counts references, and made the scan eleven times slower.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import Kernel, kernel
from nearcast.kernels.rows import clear, contains_sorted, fill, find_value, grow


@kernel
def set_boxes(c, rows, box):
    """Copy the regions of rows to `box` (xmin, ymin, xmax, ymax); returns how many have one."""
    start, count, attr, low, high = c.start, c.count, c.attr, c.low, c.high
    placed = 0
    for row in rows:
        k = np.int64(start[row])
        if count[row] >= 2 and attr[k] == 0:
            box[row, 0], box[row, 1] = low[k], low[k + 1]
            box[row, 2], box[row, 3] = high[k], high[k + 1]
            placed += 1
        else:
            box[row, 0], box[row, 1] = -np.inf, -np.inf
            box[row, 2], box[row, 3] = np.inf, np.inf
    return placed


def _scanner(placed: bool) -> Kernel:
    """The loop for rows with or without regions: to ask at each row took a tenth longer."""

    @kernel
    def scan(owner, start, count, attr, low, high, box, rows, dense, out):
        """Rows whose predicates all hold in the dense event; (rows found, their number).

        Regions come first, from an array of their own: half a cache line a row. Without a
        place (NaN) no comparison excludes, and the predicates decide.
        """
        n = 0
        x, y = dense[0], dense[1]
        for row in range(rows):
            if placed and (
                (x < box[row, 0]) | (x > box[row, 2]) | (y < box[row, 1]) | (y > box[row, 3])
            ):
                continue
            k = np.int64(start[row])
            stop = k + np.int64(count[row])
            while k < stop:
                v = dense[attr[k]]
                if not (low[k] <= v <= high[k]):
                    break
                k += 1
            if k == stop and owner[row] >= 0:
                if n == out.size:
                    out = grow(out, n)
                out[n] = row
                n += 1
        return out, n

    return scan


_scan_placed, _scan_bare = _scanner(True), _scanner(False)


@kernel
def _scan(c, box, placed, rows, dense, out):
    """Rows whose predicates all hold in the dense event; (rows found, their number)."""
    if placed:
        return _scan_placed(c.owner, c.start, c.count, c.attr, c.low, c.high, box, rows, dense, out)
    return _scan_bare(c.owner, c.start, c.count, c.attr, c.low, c.high, box, rows, dense, out)


@kernel
def _with_words(c, out, n, word, w0, w1):
    """Those of the rows out[:n] whose words all occur in word[w0:w1], moved to the front."""
    extra, word_start, word_count, wanted = c.extra, c.word_start, c.word_count, c.word
    if word_start.size == 0:
        return n
    kept = 0
    for i in range(n):
        e = extra[out[i]]
        if e >= 0:
            s0 = np.int64(word_start[e])
            if not contains_sorted(word, w0, w1, wanted, s0, s0 + np.int64(word_count[e])):
                continue
        out[kept] = out[i]
        kept += 1
    return kept


@kernel
def match_event(c, box, placed, rows, batch, at, counters):
    """Clause rows below `rows` that want event `at`."""
    dense = np.full(max(2, batch.columns), np.nan)
    fill(dense, batch.start, batch.attr, batch.value, at)
    out = np.empty(256, np.int32)
    out, n = _scan(c, box, placed, rows, dense, out)
    n = _with_words(c, out, n, batch.word, batch.word_start[at], batch.word_start[at + 1])
    counters[0] += 1
    counters[1] += rows
    counters[2] += n
    return out[:n]


@kernel
def match_events(c, box, placed, rows, batch, counters):
    """(events, rows) for a whole batch, one event after another."""
    dense = np.full(max(2, batch.columns), np.nan)
    events = np.empty(1024, np.int32)
    found = np.empty(1024, np.int32)
    out = np.empty(256, np.int32)
    total = 0
    for at in range(batch.start.size - 1):
        fill(dense, batch.start, batch.attr, batch.value, at)
        out, n = _scan(c, box, placed, rows, dense, out)
        clear(dense, batch.start, batch.attr, at)
        n = _with_words(c, out, n, batch.word, batch.word_start[at], batch.word_start[at + 1])
        while total + n > events.size:
            events = grow(events, events.size)
            found = grow(found, found.size)
        for i in range(n):
            events[total + i] = at
            found[total + i] = out[i]
        total += n
    counters[0] += batch.start.size - 1
    counters[1] += rows * (batch.start.size - 1)
    counters[2] += total
    return events[:total], found[:total]


@kernel
def match_clause(live, rows, c, row, now, counters):
    """Live event rows below `rows` that clause `row` wants."""
    c0 = np.int64(c.start[row])
    c1 = c0 + np.int64(c.count[row])
    extra = c.extra[row]
    w0 = np.int64(0) if extra < 0 else np.int64(c.word_start[extra])
    w1 = w0 if extra < 0 else w0 + np.int64(c.word_count[extra])
    slot, expires, start, count = live.slot, live.expires, live.start, live.count
    event_attr, value = live.attr, live.value
    word_start, word_count, word = live.word_start, live.word_count, live.word
    attr, low, high, wanted = c.attr, c.low, c.high, c.word
    out = np.empty(256, np.int32)
    n = 0
    for e in range(rows):
        if slot[e] < 0 or expires[e] <= now:
            continue
        e0 = start[e]
        e1 = e0 + np.int64(count[e])
        k = c0
        while k < c1:
            v = find_value(event_attr, value, e0, e1, attr[k])
            if not (low[k] <= v <= high[k]):
                break
            k += 1
        if k < c1:
            continue
        v0 = word_start[e]
        if w1 > w0 and not contains_sorted(word, v0, v0 + np.int64(word_count[e]), wanted, w0, w1):
            continue
        if n == out.size:
            out = grow(out, n)
        out[n] = e
        n += 1
    counters[0] += 1
    counters[1] += rows
    counters[2] += n
    return out[:n]
