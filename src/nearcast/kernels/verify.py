"""What is left to check on an index's answer, and how answers become pairs of slots."""

from __future__ import annotations

import numpy as np

from nearcast.jit import brief_kernel, kernel
from nearcast.kernels.geometry import cap_bounds, point_in_shape, square_bounds, within
from nearcast.kernels.rows import contains_sorted, event_satisfies, find_value
from nearcast.kernels.sorting import sort


@kernel
def words_hold(c, extra, word, w0, w1):
    """Whether the ascending words w0 … w1 of an event contain all words of the clause."""
    s0 = np.int64(c.word_start[extra])
    return contains_sorted(word, w0, w1, c.word, s0, s0 + np.int64(c.word_count[extra]))


@kernel
def shapes_hold(c, extra, x, y, globe):
    """Whether the point lies in every exact shape of the clause."""
    at = np.int64(c.shape_start[extra])
    for _ in range(c.shape_count[extra]):
        size = np.int64(c.shape[at + 1])
        if not point_in_shape(int(c.shape[at]), c.shape, at + 2, x, y, globe):
            return False
        at += 2 + size
    return True


@kernel
def keep_pairs(c, batch, events, rows, now, expires, globe, check_words):
    """Pairs that survive expiry, words (if the index left them) and exact shapes.

    Works in place: the surviving pairs are moved to the front; returns their number.
    """
    n = 0
    for i in range(rows.size):
        row = rows[i]
        at = events[i]
        if expires[c.owner[row]] <= now[at]:
            continue
        extra = c.extra[row]
        if extra >= 0:
            if check_words and not words_hold(
                c, extra, batch.word, batch.word_start[at], batch.word_start[at + 1]
            ):
                continue
            if c.shape_count[extra] > 0:
                s0, s1 = batch.start[at], batch.start[at + 1]
                x = find_value(batch.attr, batch.value, s0, s1, 0)
                y = find_value(batch.attr, batch.value, s0, s1, 1)
                if not shapes_hold(c, extra, x, y, globe):
                    continue
        events[n] = at
        rows[n] = row
        n += 1
    return n


@kernel
def keep_true(c, batch, events, rows):
    """Pairs whose intervals really hold, moved to the front: for approximate indexes."""
    n = 0
    for i in range(rows.size):
        row, at = rows[i], events[i]
        c0 = np.int64(c.start[row])
        if event_satisfies(
            c.attr, c.low, c.high, c0, c0 + np.int64(c.count[row]),
            batch.attr, batch.value, batch.start[at], batch.start[at + 1],
        ):  # fmt: skip
            events[n] = at
            rows[n] = row
            n += 1
    return n


@kernel
def unique_owners(owner, events, rows):
    """(events, owners) of pairs sorted by event, each pair once, owners ascending."""
    n = rows.size
    out_events = np.empty(n, np.int32)
    owners = np.empty(n, np.int32)
    m = 0
    i = 0
    while i < n:
        j = i
        while j < n and events[j] == events[i]:
            j += 1
        group = np.empty(j - i, np.int32)
        for k in range(i, j):
            group[k - i] = owner[rows[k]]
        sort(group)
        for k in range(group.size):
            if k == 0 or group[k] != group[k - 1]:
                out_events[m] = events[i]
                owners[m] = group[k]
                m += 1
        i = j
    return out_events[:m], owners[:m]


@kernel
def keep_events(c, row, live, found, now, globe, check_words):
    """Live events that survive expiry, words and exact shapes of one clause, moved to the front."""
    n = 0
    extra = c.extra[row]
    for i in range(found.size):
        e = found[i]
        if live.slot[e] < 0 or live.expires[e] <= now:
            continue
        if extra >= 0:
            w0 = live.word_start[e]
            if check_words and not words_hold(c, extra, live.word, w0, w0 + live.word_count[e]):
                continue
            if c.shape_count[extra] > 0:
                e0 = live.start[e]
                e1 = e0 + live.count[e]
                x = find_value(live.attr, live.value, e0, e1, 0)
                y = find_value(live.attr, live.value, e0, e1, 1)
                if not shapes_hold(c, extra, x, y, globe):
                    continue
        found[n] = e
        n += 1
    return n


@brief_kernel
def put_circle(low, high, shape, x, y, radius, globe):
    """Put a circle into a clause of one, whose place stands in front; False: one box has no room.

    Then nothing has changed.
    """
    if globe:
        xmin, ymin, xmax, ymax = cap_bounds(x, y, radius)
        if not (-180.0 <= x <= 180.0 and xmin > -180.0 and xmax < 180.0):
            return False
    else:
        xmin, ymin, xmax, ymax = square_bounds(x, y, radius)
    low[0], high[0], low[1], high[1] = xmin, xmax, ymin, ymax
    shape[2], shape[3], shape[4] = x, y, radius
    return True


@kernel
def spots_within(live, found, now, x, y, radius, globe):
    """Of live events those that have not expired and are points in a circle: slots, x and y."""
    slots, xs, ys = np.empty(found.size, np.int32), np.empty(found.size), np.empty(found.size)
    n = 0
    for i in range(found.size):
        e = found[i]
        if live.slot[e] < 0 or live.expires[e] <= now:
            continue
        e0 = live.start[e]
        e1 = e0 + live.count[e]
        xs[n] = find_value(live.attr, live.value, e0, e1, 0)
        ys[n] = find_value(live.attr, live.value, e0, e1, 1)
        if within(x, y, xs[n], ys[n], radius, globe):
            slots[n] = live.slot[e]
            n += 1
    return slots[:n], xs[:n], ys[:n]


@brief_kernel
def few_spots_within(live, found, now, x, y, radius, globe):
    """`spots_within` where it takes no longer than to get the GIL back."""
    return spots_within(live, found, now, x, y, radius, globe)


@kernel
def holds_elsewhere(c, row, attr, value, e0, e1, word, w0, w1):
    """Whether an event satisfies a clause in everything but its place."""
    for k in range(c.start[row], c.start[row] + np.int64(c.count[row])):
        column = c.attr[k]
        if column > 1:
            v = find_value(attr, value, e0, e1, column)
            if not (c.low[k] <= v <= c.high[k]):
                return False
    extra = c.extra[row]
    return extra < 0 or words_hold(c, extra, word, w0, w1)


@kernel
def keep_elsewhere(c, rows, attr, value, word):
    """Keep the rows that have an owner and hold for an event in everything but their place.

    Returns how many; they stand first.
    """
    count = 0
    for row in rows:
        if row < c.owner.size and c.owner[row] >= 0:
            rows[count] = row
            if holds_elsewhere(c, row, attr, value, 0, attr.size, word, 0, word.size):
                count += 1
    return count
