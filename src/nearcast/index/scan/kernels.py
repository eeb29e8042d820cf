"""The brute force, compiled."""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.rows import (
    clear,
    contains_sorted,
    event_satisfies,
    fill,
    grow,
    intervals_hold,
)


@kernel
def _wants(c, row, batch, at, dense):
    """Whether clause `row` wants event `at`, whose values are spread over `dense`."""
    if c.owner[row] < 0:
        return False
    if not intervals_hold(c.attr, c.low, c.high, c.start[row], c.count[row], dense):
        return False
    extra = c.extra[row]
    if extra < 0:
        return True
    w0 = c.word_start[extra]
    return contains_sorted(
        batch.word,
        batch.word_start[at],
        batch.word_start[at + 1],
        c.word,
        w0,
        w0 + np.int64(c.word_count[extra]),
    )


@kernel
def match_event(c, rows, batch, at, counters):
    """Clause rows below `rows` that want event `at`."""
    dense = np.full(batch.columns, np.nan)
    fill(dense, batch.start, batch.attr, batch.value, at)
    out = np.empty(256, np.int32)
    n = 0
    for row in range(rows):
        if _wants(c, row, batch, at, dense):
            out = grow(out, n)
            out[n] = row
            n += 1
    counters[0] += 1
    counters[1] += rows
    counters[2] += n
    return out[:n]


@kernel
def match_events(c, rows, batch, first, stop, counters):
    """(events, rows) for the events first … stop, one event after another."""
    dense = np.full(batch.columns, np.nan)
    events = np.empty(1024, np.int32)
    out = np.empty(1024, np.int32)
    n = 0
    for at in range(first, stop):
        fill(dense, batch.start, batch.attr, batch.value, at)
        for row in range(rows):
            if _wants(c, row, batch, at, dense):
                events = grow(events, n)
                out = grow(out, n)
                events[n] = at
                out[n] = row
                n += 1
        clear(dense, batch.start, batch.attr, at)
    counters[0] += stop - first
    counters[1] += rows * (stop - first)
    counters[2] += n
    return events[:n], out[:n]


@kernel
def match_clause(live, rows, c, row, now, counters):
    """Live event rows below `rows` that clause `row` wants."""
    c0 = np.int64(c.start[row])
    c1 = c0 + c.count[row]
    extra = c.extra[row]
    out = np.empty(256, np.int32)
    n = 0
    for e in range(rows):
        if live.slot[e] < 0 or live.expires[e] <= now:
            continue
        e0 = live.start[e]
        e1 = e0 + live.count[e]
        if not event_satisfies(
            c.attr, c.low, c.high, c0, c1, live.attr, live.value, e0, e1
        ):  # fmt: skip
            continue
        if extra >= 0:
            v0 = live.word_start[e]
            w0 = c.word_start[extra]
            if not contains_sorted(
                live.word,
                v0,
                v0 + live.word_count[e],
                c.word,
                w0,
                w0 + np.int64(c.word_count[extra]),
            ):
                continue
        out = grow(out, n)
        out[n] = e
        n += 1
    counters[0] += 1
    counters[1] += rows
    counters[2] += n
    return out[:n]
