"""Clauses held against blocks of 64 events: a word has a bit for each.

Events lie in slabs along one column, and in a slab in blocks along another (x and y where
there are places), so that a clause meets few blocks. For each of the frequent columns a block
has 32 bins, and for each bin a word: which events
lie below. Two words tell which lie between the bins of an interval's ends, and after a few
predicates no bit is left. What is left is compared exactly.
"""

from __future__ import annotations

import numpy as np

from nearcast.index.pivot.kernels import ONE, bit_number, find
from nearcast.jit import inlined, kernel
from nearcast.kernels.rows import grow

BLOCK = 64
BINS = 32
#: Words of a column in a block.
WORDS = BINS + 1
#: Predicates of a clause that are held against a block together, without a branch.
AT_ONCE = 4
#: Predicates of a clause that are held against blocks.
MANY = 32
#: About how long it takes, in nanoseconds: a clause, a slab or block whose hull is looked at, a
#: predicate held against a block, an event that is compared.
COSTS = np.array([85.0, 1.0, 6.2, 12.0])


@kernel
def spread(start, attr, value, first, stop, columns):
    """(how many events have each column, values by event and column, NaN for none)."""
    counts = np.zeros(columns, np.int64)
    dense = np.full((stop - first, columns), np.nan)
    for e in range(first, stop):
        for k in range(start[e], start[e + 1]):
            if value[k] == value[k]:
                counts[attr[k]] += 1
                dense[e - first, attr[k]] = value[k]
    return counts, dense


@inlined
def _bin(v, low, scale):
    """The bin of a value; monotone, clamped at the ends, without a branch. NaN counts as low."""
    t = (v - low) * scale
    t = t if t > 0.0 else 0.0
    return int(t if t < BINS - 1.0 else BINS - 1.0)


@kernel
def _fit(low, high, dim_low, dim_scale, d):
    """Set the bins of a column between two values."""
    width = high - low
    dim_low[d] = low if np.isfinite(low) else 0.0
    scale = BINS / width if width > 0.0 and np.isfinite(width) else 0.0
    dim_scale[d] = scale if np.isfinite(scale) else 0.0


@kernel
def fill(event, dense, columns, keys):
    """(low, scale, low and scale of keys by block, below), see `Blocks`."""
    blocks = event.size // BLOCK
    dims = columns.size
    dim_low, dim_scale = np.zeros(dims), np.zeros(dims)
    key_low, key_scale = np.zeros((blocks, 2)), np.zeros((blocks, 2))
    width = dims * WORDS + 2
    below = np.zeros(blocks * width, np.uint64)
    for b in range(blocks):  # behind them: no event, and all of them
        for i in range(BLOCK):
            if event[b * BLOCK + i] >= 0:
                below[(b + 1) * width - 1] |= ONE << np.uint64(i)
    for d in range(dims):
        column = columns[d]
        key = 0 if column == keys[0] else (1 if column == keys[1] else -1)
        if key < 0:
            low, high = np.inf, -np.inf
            for e in range(dense.shape[0]):
                v = dense[e, column]
                if v == v:
                    low = min(low, v)
                    high = max(high, v)
            _fit(low, high, dim_low, dim_scale, d)
        for b in range(blocks):
            if key >= 0:
                low, high = np.inf, -np.inf
                for i in range(b * BLOCK, (b + 1) * BLOCK):
                    if event[i] >= 0:
                        v = dense[event[i], column]
                        if v == v:
                            low = min(low, v)
                            high = max(high, v)
                _fit(low, high, key_low[b], key_scale[b], key)
                base, scale = key_low[b, key], key_scale[b, key]
            else:
                base, scale = dim_low[d], dim_scale[d]
            at = b * width + d * WORDS
            for i in range(BLOCK):
                e = event[b * BLOCK + i]
                if e >= 0:
                    v = dense[e, column]
                    if v == v:
                        below[at + 1 + _bin(v, base, scale)] |= ONE << np.uint64(i)
            for i in range(BINS):
                below[at + 1 + i] |= below[at + i]
    return dim_low, dim_scale, key_low, key_scale, below


@kernel
def hulls(event, dense, keys, slab):
    """Hulls on two columns: of slabs on the first (low, high), of blocks on both (low, high).

    The hull of events without a value is ∞ … −∞: an interval meets it only if it is −∞ … ∞.
    """
    slabs = slab.size - 1
    slab_low, slab_high = np.full(slabs, np.inf), np.full(slabs, -np.inf)
    blocks = event.size // BLOCK
    low, high = np.full((blocks, 2), np.inf), np.full((blocks, 2), -np.inf)
    for s in range(slabs):
        for b in range(slab[s], slab[s + 1]):
            for i in range(b * BLOCK, (b + 1) * BLOCK):
                if event[i] >= 0:
                    for key in range(2):
                        v = dense[event[i], keys[key]]
                        if v == v:
                            low[b, key] = min(low[b, key], v)
                            high[b, key] = max(high[b, key], v)
            slab_low[s] = min(slab_low[s], low[b, 0])
            slab_high[s] = max(slab_high[s], high[b, 0])
    return slab_low, slab_high, low, high


@inlined
def _met(x0, x1, y0, y1, slab, slab_low, slab_high, low, high, todo):
    """The blocks whose hulls an interval on each key meets, into `todo`: (number, hulls seen).

    Whether a hull is met cannot be foretold: there is no branch to be foretold wrongly.
    """
    n = 0
    seen = slab.size - 1
    for s in range(slab.size - 1):
        if slab_low[s] <= x1 and x0 <= slab_high[s]:
            seen += slab[s + 1] - slab[s]
            for b in range(slab[s], slab[s + 1]):
                todo[n] = b
                n += (low[b, 1] <= y1) & (y0 <= high[b, 1]) & (low[b, 0] <= x1) & (x0 <= high[b, 0])
    return n, seen


@kernel
def meet(c_start, c_count, c_attr, c_low, c_high, rows, base, box, t, spent):
    """(events, rows) of the clauses among `rows` that want some of the events; see `Piece`."""
    event, dense, dim_of, below, alive = t.event, t.dense, t.dim_of, t.below, t.alive
    dim_low, dim_scale, key_low, key_scale = t.dim_low, t.dim_scale, t.key_low, t.key_scale
    slab, slab_low, slab_high, low, high = t.slab, t.slab_low, t.slab_high, t.low, t.high
    width = dim_low.size * WORDS + 2
    key_x, key_y = t.keys[0], t.keys[1]
    by_place = key_x == 0 and key_y == 1
    dim_x, dim_y = np.int64(dim_of[key_x]), np.int64(dim_of[key_y])
    events = np.empty(1024, np.int32)
    out = np.empty(1024, np.int32)
    todo = np.empty(alive.size + 1, np.int64)
    from_ = np.empty(MANY, np.int64)
    until = np.empty(MANY, np.int64)
    everything = width - 1
    nothing = width - 2
    n = 0
    looks, tests, compared = 0, 0, 0
    for row in rows:
        r = row - base
        c0 = np.int64(c_start[r])
        c1 = c0 + np.int64(c_count[r])
        # The place first, which is in front of the other predicates or beside them.
        px0, py0, px1, py1 = -np.inf, -np.inf, np.inf, np.inf
        placed = False
        if box.shape[0] > 0:
            placed = box[r, 0] == box[r, 0]
            if placed:
                px0, py0, px1, py1 = box[r, 0], box[r, 1], box[r, 2], box[r, 3]
        elif c1 - c0 >= 2 and c_attr[c0] == 0:
            placed = True
            px0, py0, px1, py1 = c_low[c0], c_low[c0 + 1], c_high[c0], c_high[c0 + 1]
            c0 += 2
        # What is asked of the keys.
        x, y = -1, -1
        has_x = has_y = placed
        x0, x1, y0, y1 = px0, px1, py0, py1
        if not by_place:
            x, y = find(c_attr, c0, c1, key_x), find(c_attr, c0, c1, key_y)
            has_x, has_y = x >= 0, y >= 0
            x0, x1 = (c_low[x], c_high[x]) if has_x else (-np.inf, np.inf)
            y0, y1 = (c_low[y], c_high[y]) if has_y else (-np.inf, np.inf)
        blocks, seen = _met(x0, x1, y0, y1, slab, slab_low, slab_high, low, high, todo)
        looks += seen
        # Where a block has the words of the first predicates that are not on a key; where there
        # are fewer, words that let every event through.
        next_ = c0
        for j in range(AT_ONCE):
            from_[j], until[j] = nothing, everything
            while next_ < c1 and (dim_of[c_attr[next_]] < 0 or next_ in (x, y)):
                next_ += 1
            if next_ < c1:
                d = np.int64(dim_of[c_attr[next_]])
                first, scale = dim_low[d], dim_scale[d]
                from_[j] = d * WORDS + _bin(c_low[next_], first, scale)
                until[j] = d * WORDS + 1 + _bin(c_high[next_], first, scale)
                next_ += 1
        f0, f1, f2, f3 = from_[0], from_[1], from_[2], from_[3]
        u0, u1, u2, u3 = until[0], until[1], until[2], until[3]
        made = AT_ONCE
        for i in range(blocks):
            b = todo[i]
            at = b * width
            left = below[at + u0] & below[at + u1] & below[at + u2] & below[at + u3]
            left &= ~(below[at + f0] | below[at + f1] | below[at + f2] | below[at + f3])
            j = AT_ONCE
            while left != 0:
                if j == made:
                    while next_ < c1 and (dim_of[c_attr[next_]] < 0 or next_ in (x, y)):
                        next_ += 1
                    if next_ == c1 or made == MANY:
                        break
                    d = np.int64(dim_of[c_attr[next_]])
                    first, scale = dim_low[d], dim_scale[d]
                    from_[made] = d * WORDS + _bin(c_low[next_], first, scale)
                    until[made] = d * WORDS + 1 + _bin(c_high[next_], first, scale)
                    made += 1
                    next_ += 1
                left &= below[at + until[j]] & ~below[at + from_[j]]
                j += 1
            tests += j
            if left == 0:
                continue
            if has_x and dim_x >= 0:
                first, scale, place = key_low[b, 0], key_scale[b, 0], at + dim_x * WORDS
                under = below[place + _bin(x0, first, scale)]
                left &= below[place + 1 + _bin(x1, first, scale)] & ~under
            if has_y and dim_y >= 0:
                first, scale, place = key_low[b, 1], key_scale[b, 1], at + dim_y * WORDS
                under = below[place + _bin(y0, first, scale)]
                left &= below[place + 1 + _bin(y1, first, scale)] & ~under
            while left != 0:
                bit = left & (~left + ONE)
                left ^= bit
                e = event[b * BLOCK + bit_number(bit)]
                compared += 1
                held = not placed or (px0 <= dense[e, 0] <= px1 and py0 <= dense[e, 1] <= py1)
                k = c0
                while held and k < c1:
                    held = c_low[k] <= dense[e, c_attr[k]] <= c_high[k]
                    k += 1
                if held:
                    if n == out.size:
                        events, out = grow(events, n), grow(out, n)
                    events[n] = e
                    out[n] = row
                    n += 1
    spent[0] += rows.size
    spent[1] += looks
    spent[2] += tests
    spent[3] += compared
    return events[:n], out[:n]
