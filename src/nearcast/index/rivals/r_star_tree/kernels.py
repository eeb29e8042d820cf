"""Rectangles out of the stores, and the comparison of what the R*-tree found."""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.quadtree import location_of
from nearcast.kernels.rows import clear, event_satisfies, fill, grow, intervals_hold


@kernel
def regions(c, rows):
    """xmin, ymin, xmax, ymax of the clauses' regions; NaN for none."""
    out = np.full((rows.size, 4), np.nan)
    for i in range(rows.size):
        k = np.int64(c.start[rows[i]])
        if c.count[rows[i]] >= 2 and c.attr[k] == 0 and c.attr[k + 1] == 1:
            out[i, 0] = c.low[k]
            out[i, 1] = c.low[k + 1]
            out[i, 2] = c.high[k]
            out[i, 3] = c.high[k + 1]
    return out


@kernel
def event_places(live, rows):
    """Each event's place as a box; NaN where x or y is missing."""
    out = np.full((rows.size, 4), np.nan)
    for i in range(rows.size):
        x, y = location_of(live, rows[i])
        if not (np.isnan(x) or np.isnan(y)):
            out[i, 0] = x
            out[i, 1] = y
            out[i, 2] = x
            out[i, 3] = y
    return out


@kernel
def places(batch, events):
    """The place of events of a batch as boxes; NaN where x or y is missing."""
    out = np.full((events.size, 4), np.nan)
    for i in range(events.size):
        k = batch.start[events[i]]
        if batch.start[events[i] + 1] - k >= 2 and batch.attr[k] == 0 and batch.attr[k + 1] == 1:
            x, y = batch.value[k], batch.value[k + 1]
            if not (np.isnan(x) or np.isnan(y)):
                out[i, 0] = x
                out[i, 1] = y
                out[i, 2] = x
                out[i, 3] = y
    return out


@kernel
def compare_clauses(c, hits, counts, apart, batch, events, counters):
    """(events, clause rows) out of each event's run of hits and the rows kept apart."""
    dense = np.full(batch.columns, np.nan)
    out_events = np.empty(256, np.int32)
    out = np.empty(256, np.int32)
    n = 0
    start = 0
    for i in range(events.size):
        fill(dense, batch.start, batch.attr, batch.value, events[i])
        stop = start + counts[i]
        for k in range(start, stop + apart.size):
            row = hits[k] if k < stop else apart[k - stop]
            if intervals_hold(c.attr, c.low, c.high, c.start[row], c.count[row], dense):
                out = grow(out, n)
                out_events = grow(out_events, n)
                out[n] = row
                out_events[n] = events[i]
                n += 1
        clear(dense, batch.start, batch.attr, events[i])
        counters[1] += stop - start + apart.size
        start = stop
    counters[0] += events.size
    counters[2] += n
    return out_events[:n], out[:n]


@kernel
def compare_events(live, candidates, c, row, now, counters):
    """Those of the candidate event rows that are live and that the clause wants."""
    first = np.int64(c.start[row])
    stop = first + c.count[row]
    out = np.empty(256, np.int32)
    n = 0
    for i in range(candidates.size):
        e = candidates[i]
        if live.expires[e] <= now:
            continue
        e0 = live.start[e]
        e1 = e0 + live.count[e]
        if event_satisfies(c.attr, c.low, c.high, first, stop, live.attr, live.value, e0, e1):
            out = grow(out, n)
            out[n] = e
            n += 1
    counters[0] += 1
    counters[1] += candidates.size
    counters[2] += n
    return out[:n]
