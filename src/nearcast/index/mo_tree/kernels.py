"""MO-Tree, compiled: cells, buckets, Algorithms 1 and 2.

A bucket's members are one *extent* of a pool: consecutive places that hold the row and,
beside it, what the row says of the indexing attributes (`facts`), in float32. Rounding
to the nearest float32 keeps ≤, so a comparison of rounded numbers never loses a match;
the few members it lets through are compared exactly with the store.

Helpers that run once a bucket or once a member are written out in the loops: handing a
tuple of arrays to a function costs two atomic operations an array, some 200 ns in all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel, prefetcher
from nearcast.kernels.rows import clear, fill, find_value, grow

#: Sizes of extents: powers of two and one and a half times them, so at most a third is spare.
ROOMS = np.array([1, 2] + [s for k in range(1, 30) for s in (3 << (k - 1), 2 << k)], np.int64)

#: Places in `Side.state`.
USED, LIVE, SQUARES, NEED = 0, 1, 2, 3

#: Buckets that a match asks for ahead of the one it looks at; values and facts in a cache line.
_AHEAD, _LINE, _FACTS = 8, 8, 16
prefetch = prefetcher()

#: `home` of rows that are not here.
ABSENT = -1


class Layout(NamedTuple):
    """What the layers index: everything that maps a value or an interval to a cell."""

    layer_of: np.ndarray
    """Layer of each column, −1 for the columns that are not indexed; int8."""
    domain: np.ndarray
    """(layers, 3): low, high and 1 / (high − low), or 0 where they are equal."""
    cell: np.ndarray
    """(layers, cells, 2): ends of the overlapping cells; a layer may have fewer than there is
    room for."""
    level: np.ndarray
    """(layers, levels + 1): first overlapping cell of each level; all that a layer has, from the
    end of its last level on."""
    disjoint: np.ndarray
    """Number of disjoint cells of each layer; the null cell comes after them."""


class Runs(NamedTuple):
    """The predicates of a clause table, without what the index does not look at."""

    start: np.ndarray
    length: np.ndarray
    attr: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Side(NamedTuple):
    """The buckets of one side, clauses or events."""

    cells: np.ndarray
    """Fan-out of each layer."""
    mask: np.ndarray
    """Bit c of a prefix: something is stored under its cell c. Layer after layer; int64."""
    layer: np.ndarray
    """First mask of each layer."""
    extent: np.ndarray
    """(buckets, 2): first place in the pool, number of members."""
    room: np.ndarray
    """Size class of each bucket's extent; uint8."""
    row: np.ndarray
    """Pool: the store's row. In a free extent, its first place holds the next free one."""
    facts: np.ndarray
    """Pool: what the members say of each layer, float32. Low and high of clauses, (layers,
    places, 2), layer by layer in memory, as the first layers refuse most of a long extent.
    Value of events, (layers + 1, places, 1), event by event in memory, as their extents
    are short; the additional layer is the time they expire."""
    home: np.ndarray
    """(rows, 2): bucket and place of each row; ABSENT for a bucket if it has none."""
    free: np.ndarray
    """First free extent of each size class, −1 for none."""
    state: np.ndarray
    """Places used, members, Σ (members of a bucket)², places lacking."""


@kernel
def normalised(value, domain, h):
    """Where a value lies in layer h's domain, 0 … 1; what lies outside goes to the nearest end."""
    low = domain[h, 0]
    return min((min(max(value, low), domain[h, 1]) - low) * domain[h, 2], 1.0)


@kernel
def single(value):
    """The value in float32; what is too large for it is infinite, without complaint."""
    if value > 3.4e38:
        return np.float32(np.inf)
    if value < -3.4e38:
        return np.float32(-np.inf)
    return np.float32(value)


@kernel
def disjoint_cell(place, cells):
    """The disjoint cell of a normalised value."""
    return min(np.int64(place * cells), cells - 1)


@kernel
def interval_cell(ends, level, a, b):
    """The smallest cell that contains [a, b]; of several, the one with the nearest centre.

    The last level has one cell, which contains whatever the others do not.
    """
    for i in range(level.size - 1):
        best = -1
        nearest = 4.0
        for cell in range(level[i], level[i + 1]):
            if ends[cell, 0] <= a and b <= ends[cell, 1]:
                off = abs(ends[cell, 0] + ends[cell, 1] - (a + b))
                if off < nearest:
                    nearest = off
                    best = cell
        if best >= 0:
            return best
    return level[level.size - 1] - 1


@kernel
def locate_clauses(layout, runs, rows):
    """(buckets, facts) of clauses: one cell a layer, the topmost where there is no predicate."""
    layers = layout.domain.shape[0]
    layer_of, level, ends = layout.layer_of, layout.level, layout.cell
    last = level.shape[1] - 1
    bucket = np.empty(rows.size, np.int32)
    facts = np.empty((rows.size, layers, 2), np.float32)
    cell = np.empty(layers, np.int64)
    for i in range(rows.size):
        for h in range(layers):
            cell[h] = level[h, last] - 1
            facts[i, h, 0] = -np.inf
            facts[i, h, 1] = np.inf
        first = np.int64(runs.start[rows[i]])
        for k in range(first, first + np.int64(runs.length[rows[i]])):
            column = np.int64(runs.attr[k])
            if column >= layer_of.size or layer_of[column] < 0:
                continue
            h = np.int64(layer_of[column])
            a = normalised(runs.low[k], layout.domain, h)
            b = normalised(runs.high[k], layout.domain, h)
            cell[h] = interval_cell(ends[h], level[h], a, b)
            facts[i, h, 0] = single(runs.low[k])
            facts[i, h, 1] = single(runs.high[k])
        number = 0
        for h in range(layers):
            number = number * np.int64(level[h, last]) + cell[h]
        bucket[i] = number
    return bucket, facts


@kernel
def locate_events(layout, live, rows):
    """(buckets, facts) of events: one cell a layer, the null cell where there is no value."""
    layers = layout.domain.shape[0]
    layer_of = layout.layer_of
    null = layout.disjoint
    bucket = np.empty(rows.size, np.int32)
    facts = np.empty((rows.size, layers + 1, 1), np.float32)
    cell = np.empty(layers, np.int64)
    for i in range(rows.size):
        for h in range(layers):
            cell[h] = null[h]
            facts[i, h, 0] = np.nan
        facts[i, layers, 0] = live.expires[rows[i]]
        first = live.start[rows[i]]
        for k in range(first, first + np.int64(live.count[rows[i]])):
            column = np.int64(live.attr[k])
            if column >= layer_of.size or layer_of[column] < 0 or np.isnan(live.value[k]):
                continue
            h = np.int64(layer_of[column])
            place = normalised(live.value[k], layout.domain, h)
            cell[h] = disjoint_cell(place, null[h])
            facts[i, h, 0] = single(live.value[k])
        number = 0
        for h in range(layers):
            number = number * (null[h] + 1) + cell[h]
        bucket[i] = number
    return bucket, facts


# -- buckets -------------------------------------------------------------------


@kernel
def _mark(s, bucket):
    """Tell the prefixes that the bucket is no longer empty."""
    node = bucket
    for h in range(s.layer.size - 1, -1, -1):
        cell = node % s.cells[h]
        node = node // s.cells[h]
        at = s.layer[h] + node
        before = s.mask[at]
        s.mask[at] = before | (np.int64(1) << cell)
        if before != 0:
            return


@kernel
def _unmark(s, bucket):
    """Tell the prefixes that the bucket is empty now."""
    node = bucket
    for h in range(s.layer.size - 1, -1, -1):
        cell = node % s.cells[h]
        node = node // s.cells[h]
        at = s.layer[h] + node
        s.mask[at] &= ~(np.int64(1) << cell)
        if s.mask[at] != 0:
            return


@kernel
def _copy(s, source, target):
    """Copy one member to another place of the pool."""
    s.row[target] = s.row[source]
    for h in range(s.facts.shape[0]):
        for j in range(s.facts.shape[2]):
            s.facts[h, target, j] = s.facts[h, source, j]
    s.home[s.row[target], 1] = target


@kernel
def _widen(s, bucket):
    """Give the bucket an extent of the next size; False if the pool has no place for it."""
    n = np.int64(s.extent[bucket, 1])
    size = 0 if n == 0 else np.int64(s.room[bucket]) + 1
    start = np.int64(s.free[size])
    if start >= 0:
        s.free[size] = s.row[start]
    else:
        start = s.state[USED]
        if start + ROOMS[size] > s.row.size:
            s.state[NEED] = ROOMS[size]
            return False
        s.state[USED] = start + ROOMS[size]
    old = np.int64(s.extent[bucket, 0])
    for k in range(n):
        _copy(s, old + k, start + k)
    if n > 0:
        s.row[old] = s.free[size - 1]
        s.free[size - 1] = old
    s.extent[bucket, 0] = start
    s.room[bucket] = size
    return True


@kernel
def insert(s, rows, bucket, facts, first):
    """Add rows from number `first` on; returns how far the pool's room went."""
    for i in range(first, rows.size):
        b = np.int64(bucket[i])
        n = np.int64(s.extent[b, 1])
        if (n == 0 or n == ROOMS[s.room[b]]) and not _widen(s, b):
            return i
        p = np.int64(s.extent[b, 0]) + n
        s.row[p] = rows[i]
        for h in range(s.facts.shape[0]):
            for j in range(s.facts.shape[2]):
                s.facts[h, p, j] = facts[i, h, j]
        s.home[rows[i], 0] = b
        s.home[rows[i], 1] = p
        s.extent[b, 1] = n + 1
        s.state[LIVE] += 1
        s.state[SQUARES] += 2 * n + 1
        if n == 0:
            _mark(s, b)
    return rows.size


@kernel
def add_clauses(layout, runs, s, rows, first):
    """`locate_clauses` and `insert` in one call from Python, which costs 5 µs each time."""
    bucket, facts = locate_clauses(layout, runs, rows)
    return insert(s, rows, bucket, facts, first)


@kernel
def add_events(layout, live, s, rows, first):
    """`locate_events` and `insert` in one call."""
    bucket, facts = locate_events(layout, live, rows)
    return insert(s, rows, bucket, facts, first)


@kernel
def _drop(s, row):
    """Forget one row: the bucket's last member takes its place."""
    b = np.int64(s.home[row, 0])
    p = np.int64(s.home[row, 1])
    n = np.int64(s.extent[b, 1]) - 1
    last = np.int64(s.extent[b, 0]) + n
    if p != last:
        _copy(s, last, p)
    s.home[row, 0] = ABSENT
    s.extent[b, 1] = n
    s.state[LIVE] -= 1
    s.state[SQUARES] -= 2 * n + 1
    if n == 0:
        start = s.extent[b, 0]
        size = s.room[b]
        s.row[start] = s.free[size]
        s.free[size] = start
        _unmark(s, b)


@kernel
def remove(s, rows):
    """Forget rows; those that are not here are passed over."""
    for i in range(rows.size):
        if rows[i] >= s.home.shape[0]:
            continue
        if s.home[rows[i], 0] >= 0:
            _drop(s, rows[i])


@kernel
def rewrite(s, rows, bucket, facts):
    """New contents of rows: those whose bucket stays are rewritten in place.

    Returns a mask of the others, which are dropped here and must be inserted again.
    """
    moved = np.zeros(rows.size, np.bool_)
    for i in range(rows.size):
        row = rows[i]
        if s.home[row, 0] != bucket[i]:
            moved[i] = True
            if s.home[row, 0] >= 0:
                _drop(s, row)
            continue
        p = np.int64(s.home[row, 1])
        for h in range(s.facts.shape[0]):
            for j in range(s.facts.shape[2]):
                s.facts[h, p, j] = facts[i, h, j]
    return moved


@kernel
def plan(s, bucket):
    """Lay the extents of empty buckets out in order for these members; returns the room needed."""
    for i in range(bucket.size):
        s.extent[bucket[i], 1] += 1
    used = 0
    for b in range(s.extent.shape[0]):
        n = np.int64(s.extent[b, 1])
        if n == 0:
            continue
        size = 0
        while ROOMS[size] < n:
            size += 1
        s.extent[b, 0] = used
        s.extent[b, 1] = 0
        s.room[b] = size
        used += ROOMS[size]
        s.state[SQUARES] += n * n
        _mark(s, b)
    s.state[USED] = used
    s.state[LIVE] = bucket.size
    return used


@kernel
def place(s, rows, bucket, facts):
    """Fill the extents that `plan` laid out.

    First the order, then the members: so the pool is written from front to back, and
    each member's facts are one read at random instead of one write a layer.
    """
    order = np.full(s.state[USED], -1, np.int32)
    for i in range(rows.size):
        b = bucket[i]
        order[s.extent[b, 0] + s.extent[b, 1]] = i
        s.extent[b, 1] += 1
    layers, width = s.facts.shape[0], s.facts.shape[2]
    for p in range(order.size):
        i = order[p]
        if i < 0:
            continue
        s.row[p] = rows[i]
        for h in range(layers):
            for j in range(width):
                s.facts[h, p, j] = facts[i, h, j]
        s.home[rows[i], 0] = bucket[i]
        s.home[rows[i], 1] = p


# -- matching ------------------------------------------------------------------


@kernel
def _targets_within(mask, layer, cells, wanted, sizes, out):
    """`_targets` into `out`; returns their number, −1 if `out` has no room for them."""
    last = layer.size - 1
    node = np.zeros(last + 1, np.int64)
    at = np.zeros(last + 1, np.int64)
    below = np.zeros(last + 1, np.int64)
    below[0] = mask[0]
    n = 0
    h = 0
    while h >= 0:
        if h == last:
            if n + sizes[h] > out.size:
                return -1
            bits, base = below[h], node[h] * cells[h]
            for k in range(sizes[h]):
                if (bits >> wanted[h, k]) & 1:
                    out[n] = base + wanted[h, k]
                    n += 1
            h -= 1
            continue
        if at[h] == sizes[h]:
            h -= 1
            continue
        cell = wanted[h, at[h]]
        at[h] += 1
        if (below[h] >> cell) & 1:
            down = node[h] * cells[h] + cell
            h += 1
            node[h] = down
            at[h] = 0
            below[h] = mask[layer[h] + down]
    return n


@kernel
def _targets(mask, layer, cells, wanted, sizes, out):
    """The buckets under the wanted cells of every layer that hold anything: depth first.

    `wanted[h, :sizes[h]]` are the cells of layer h. Returns (out, number of buckets).
    """
    n = -1
    while n < 0:
        n = _targets_within(mask, layer, cells, wanted, sizes, out)
        if n < 0:
            out = np.empty(2 * out.size, out.dtype)
    return out, n


@kernel
def _stab(layout, start, attr, value, at, wanted, sizes, fact):
    """The overlapping cells that an event stabs, and its values in float32 (Algorithm 2).

    Where it lacks an attribute, only the topmost cell can hold a match. Its value is +∞
    then, which lies in the unbounded interval of a clause without that predicate.
    """
    last = layout.level.shape[1] - 1
    for h in range(sizes.size):
        wanted[h, 0] = layout.level[h, last] - 1
        sizes[h] = 1
        fact[h] = np.inf
    for k in range(start[at], start[at + 1]):
        column = np.int64(attr[k])
        if column >= layout.layer_of.size or layout.layer_of[column] < 0 or np.isnan(value[k]):
            continue
        h = np.int64(layout.layer_of[column])
        x = normalised(value[k], layout.domain, h)
        n = 0
        for cell in range(layout.level[h, last]):
            if layout.cell[h, cell, 0] <= x <= layout.cell[h, cell, 1]:
                wanted[h, n] = cell
                n += 1
        sizes[h] = n
        fact[h] = single(value[k])


@kernel
def _survivors(s, target, buckets, fact, out, counters):
    """Members of the target buckets whose float32 intervals hold. Returns (rows, how many)."""
    extent, facts, member = s.extent, s.facts, s.row
    layers = fact.size
    x = fact[0]
    n = 0
    compared = 0
    for t in range(buckets):
        p0 = np.int64(extent[target[t], 0])
        p1 = p0 + np.int64(extent[target[t], 1])
        compared += p1 - p0
        for p in range(p0, p1):
            if x < facts[0, p, 0] or x > facts[0, p, 1]:
                continue
            h = 1
            while h < layers and facts[h, p, 0] <= fact[h] <= facts[h, p, 1]:
                h += 1
            if h == layers:
                if n == out.size:
                    out = grow(out, n)
                out[n] = member[p]
                n += 1
    counters[0] += buckets
    counters[1] += compared
    return out, n


@kernel
def _starts(start, length, rows, n):
    """First and last item of the rows' runs.

    Looked up for all rows before the first run is read: the reads do not depend on each
    other, so their cache misses overlap.
    """
    ends = np.empty((n, 2), np.int64)
    for i in range(n):
        ends[i, 0] = start[rows[i]]
        ends[i, 1] = ends[i, 0] + np.int64(length[rows[i]])
    return ends


@kernel
def match_events(layout, s, runs, batch, first, stop, counters):
    """(events, clause rows) for the events first … stop (Algorithm 2)."""
    layers = layout.domain.shape[0]
    dense = np.full(batch.columns, np.nan)
    wanted = np.empty((layers, s.cells.max()), np.int64)
    sizes = np.empty(layers, np.int64)
    fact = np.empty(layers, np.float32)
    target = np.empty(1024, np.int32)
    kept = np.empty(1024, np.int32)
    events = np.empty(256, np.int32)
    out = np.empty(256, np.int32)
    n = 0
    attr, low, high = runs.attr, runs.low, runs.high
    for at in range(first, stop):
        fill(dense, batch.start, batch.attr, batch.value, at)
        _stab(layout, batch.start, batch.attr, batch.value, at, wanted, sizes, fact)
        target, buckets = _targets(s.mask, s.layer, s.cells, wanted, sizes, target)
        kept, left = _survivors(s, target, buckets, fact, kept, counters)
        ends = _starts(runs.start, runs.length, kept, left)
        for i in range(left):
            k, k1 = ends[i, 0], ends[i, 1]
            while k < k1 and low[k] <= dense[attr[k]] <= high[k]:
                k += 1
            if k == k1:
                if n == out.size:
                    events = grow(events, n)
                    out = grow(out, n)
                events[n] = at
                out[n] = kept[i]
                n += 1
        clear(dense, batch.start, batch.attr, at)
    counters[2] += n
    return events[:n], out[:n]


@kernel
def _meet(layout, runs, row, wanted, sizes, low, high):
    """The disjoint cells that a clause's intervals meet, and the intervals in float32.

    Without a predicate on a layer, all of its cells, the null cell among them, and the
    interval is NaN (Algorithm 1).
    """
    null = layout.disjoint
    for h in range(sizes.size):
        for cell in range(null[h] + 1):
            wanted[h, cell] = cell
        sizes[h] = null[h] + 1
        low[h], high[h] = np.nan, np.nan
    first = np.int64(runs.start[row])
    for k in range(first, first + np.int64(runs.length[row])):
        column = np.int64(runs.attr[k])
        if column >= layout.layer_of.size or layout.layer_of[column] < 0:
            continue
        h = np.int64(layout.layer_of[column])
        a = normalised(runs.low[k], layout.domain, h)
        b = normalised(runs.high[k], layout.domain, h)
        n = 0
        for cell in range(disjoint_cell(a, null[h]), disjoint_cell(b, null[h]) + 1):
            wanted[h, n] = cell
            n += 1
        sizes[h] = n
        low[h] = single(runs.low[k])
        high[h] = single(runs.high[k])


@kernel
def _drop_expired(s, target, buckets, clock, dropped):
    """Drop the members of the target buckets that have expired; their rows go to `dropped`."""
    last = s.facts.shape[0] - 1
    n = 0
    for t in range(buckets):
        p = np.int64(s.extent[target[t], 0])
        p1 = p + np.int64(s.extent[target[t], 1])
        while p < p1:
            if s.facts[last, p, 0] < clock:
                dropped[n] = s.row[p]
                n += 1
                _drop(s, s.row[p])  # the last one comes here
                p1 -= 1
            else:
                p += 1


@kernel
def _live_survivors(s, target, buckets, low, high, now, counters):
    """Members of the target buckets whose float32 values lie in the intervals.

    Members that have expired are dropped. Returns the rows of the survivors, and theirs.

    Whether a member lies in an interval is anybody's guess, so nothing branches on it. Ends of
    layers without a predicate are NaN, and a comparison with that refuses nobody.
    """
    extent, facts, member = s.extent, s.facts, s.row
    layers = low.size
    clock = np.float32(now)
    members = 0
    for t in range(min(2 * _AHEAD, buckets)):
        prefetch(extent, 2 * np.int64(target[t]))
    for t in range(buckets):
        if t + 2 * _AHEAD < buckets:
            prefetch(extent, 2 * np.int64(target[t + 2 * _AHEAD]))
        members += np.int64(extent[target[t], 1])
    place = np.empty(members, np.int32)
    n = 0
    stale = 0
    for t in range(buckets):
        if t + _AHEAD < buckets:
            ahead = np.int64(extent[target[t + _AHEAD], 0]) * (layers + 1)
            for line in range(3):  # five members of six layers
                prefetch(facts, ahead + line * _FACTS)
        first = np.int64(extent[target[t], 0])
        for p in range(first, first + np.int64(extent[target[t], 1])):
            expired = facts[layers, p, 0] < clock
            refused = expired
            for h in range(layers):
                v = facts[h, p, 0]
                refused |= (v < low[h]) | (v > high[h])
            place[n] = p
            n += 1 - np.int64(refused)
            stale += np.int64(expired)
    rows = np.empty(n, np.int32)
    for i in range(n):
        rows[i] = member[place[i]]
    dropped = np.empty(stale, np.int32)
    if stale > 0:
        _drop_expired(s, target, buckets, clock, dropped)
    counters[0] += buckets
    counters[1] += members
    return rows, dropped


@kernel
def _undecided_first(layout, runs, row):
    """The clause's predicates, those that no layer has looked at in front."""
    first = np.int64(runs.start[row])
    length = np.int64(runs.length[row])
    order = np.empty(length, np.int64)
    n = 0
    for indexed in (False, True):
        for k in range(first, first + length):
            column = np.int64(runs.attr[k])
            if (column < layout.layer_of.size and layout.layer_of[column] >= 0) == indexed:
                order[n] = k
                n += 1
    return order


@kernel
def match_clause(layout, s, runs, row, live, now, counters):
    """Event rows that clause `row` wants, and the expired ones dropped on the way (Algorithm 1).

    In float32 an event may look alive for two minutes too long: matches are looked up.
    """
    layers = layout.domain.shape[0]
    wanted = np.empty((layers, s.cells.max()), np.int64)
    sizes = np.empty(layers, np.int64)
    low = np.empty(layers, np.float32)
    high = np.empty(layers, np.float32)
    _meet(layout, runs, row, wanted, sizes, low, high)
    target, buckets = _targets(
        s.mask, s.layer, s.cells, wanted, sizes, np.empty(1024, np.int32)
    )  # fmt: skip
    kept, dropped = _live_survivors(s, target, buckets, low, high, now, counters)
    left = kept.size
    ends = _starts(live.start, live.count, kept, left)
    order = _undecided_first(layout, runs, row)
    attr, value, expires = live.attr, live.value, live.expires
    for i in range(left):
        for k in range(ends[i, 0], ends[i, 1], _LINE):
            prefetch(attr, k)
            prefetch(value, k)
    r_attr, r_low, r_high = runs.attr, runs.low, runs.high
    n = 0
    late = np.empty(left, np.int32)
    m = 0
    for i in range(left):
        j = 0
        while j < order.size:
            k = order[j]
            v = find_value(attr, value, ends[i, 0], ends[i, 1], r_attr[k])
            if not (r_low[k] <= v <= r_high[k]):
                break
            j += 1
        if j < order.size:
            continue
        if expires[kept[i]] <= now:
            late[m] = kept[i]
            m += 1
            _drop(s, kept[i])
            continue
        kept[n] = kept[i]
        n += 1
    counters[2] += n
    if m > 0:
        dropped = np.concatenate((dropped, late[:m]))
    return kept[:n], dropped
