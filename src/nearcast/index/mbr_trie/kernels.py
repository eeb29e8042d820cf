"""MBRTrie (LFilter §3) over flat arrays: nodes in breadth-first order, children side by side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.jit import kernel
from nearcast.kernels.rows import grow
from nearcast.kernels.tokens import (
    all_in,
    first_not_below,
    lookup,
    meets,
    message_tokens,
    rest_holds,
    room_for,
    slot_of,
    table_size,
)

#: How a node's children are found: see `Trie` in the package.
TOKEN_SET, TRIE, COST, BINARY = 0, 1, 2, 3

# What a step costs, in nanoseconds: those of asking from runs at 100 000 to 300 000 clauses,
# of which only the relation matters; the others fitted to messages of all kinds at a million.
# A child that asks the message is one of many in a row; a token that asks the trie may miss
# the cache, and a node that is visited does.
ASK_MESSAGE = 3.0
ASK_ROOT = 15.0
ASK_NODE, ASK_NODE_STEP = 4.0, 2.0
VISIT = 250.0
CHECK = 8.5


class Trie(NamedTuple):
    """Node i: its token, its entries lo … hi, its children first[i] … first[i + 1].

    Entries lo … end are those whose token set ends here. Without children, the entries
    end … hi have further tokens of their own. Node 0 is the root.
    """

    token: npt.NDArray[np.int32]
    lo: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]
    hi: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    mbr: npt.NDArray[np.float64]
    key: npt.NDArray[np.int32]
    """The root's children by token, as a hash table: -1 for nobody."""
    child: npt.NDArray[np.int32]


@kernel
def build(start, token, box, bucket):
    """The arrays of a `Trie` over entries in token-set order."""
    n = start.size - 1
    size = 64
    t_token = np.zeros(size, np.int32)
    lo = np.zeros(size, np.int32)
    end = np.zeros(size, np.int32)
    hi = np.zeros(size, np.int32)
    first = np.zeros(size, np.int32)
    depth = np.zeros(size, np.int32)
    hi[0] = n
    count = 1
    i = 0
    while i < count:
        d = depth[i]
        e = lo[i]
        while e < hi[i] and start[e + 1] - start[e] == d:
            e += 1
        end[i] = e
        first[i] = count
        if i == 0 or hi[i] - e > bucket:
            while e < hi[i]:
                t = token[start[e] + d]
                stop = e + 1
                while stop < hi[i] and token[start[stop] + d] == t:
                    stop += 1
                if count + 1 == size:
                    t_token, lo, end = grow(t_token, size), grow(lo, size), grow(end, size)
                    hi, first, depth = grow(hi, size), grow(first, size), grow(depth, size)
                    size = t_token.size
                t_token[count] = t
                lo[count] = e
                hi[count] = stop
                depth[count] = d + 1
                count += 1
                e = stop
        i += 1
    first[count] = count
    mbr = np.empty((count, 4))
    for i in range(count - 1, -1, -1):
        x0, y0, x1, y1 = np.inf, np.inf, -np.inf, -np.inf
        a, b = first[i], first[i + 1]
        for k in range(lo[i], end[i] if b > a else hi[i]):
            x0, y0 = min(x0, box[k, 0]), min(y0, box[k, 1])
            x1, y1 = max(x1, box[k, 2]), max(y1, box[k, 3])
        for k in range(a, b):
            x0, y0 = min(x0, mbr[k, 0]), min(y0, mbr[k, 1])
            x1, y1 = max(x1, mbr[k, 2]), max(y1, mbr[k, 3])
        mbr[i, 0], mbr[i, 1], mbr[i, 2], mbr[i, 3] = x0, y0, x1, y1
    slots = 16
    while slots < 2 * (first[1] - first[0]):
        slots *= 2
    key = np.full(slots, -1, np.int32)
    child = np.zeros(slots, np.int32)
    for k in range(first[0], first[1]):
        s = slot_of(t_token[k], slots - 1)
        while key[s] >= 0:
            s = (s + 1) & (slots - 1)
        key[s] = t_token[k]
        child[s] = k
    return (
        t_token[:count].copy(), lo[:count].copy(), end[:count].copy(), hi[:count].copy(),
        first[: count + 1].copy(), mbr, key, child,
    )  # fmt: skip


@kernel
def steps_of(size):
    """Steps of a binary search among so many."""
    steps = 1
    while (1 << steps) < size:
        steps += 1
    return steps


@kernel
def tokens_search(tokens, children):
    """Whether tokens search the children, by §3.3: |T| log |n| < |n| log |T|."""
    return tokens * steps_of(children) < children * steps_of(tokens)


@kernel
def tokens_should_ask(tokens, children):
    """Whether the message's tokens ask the trie (ProbeTrie) rather than the other way round."""
    steps = 1
    while (1 << steps) < children:
        steps += 1
    return tokens * (ASK_NODE + ASK_NODE_STEP * steps) < children * ASK_MESSAGE


@kernel
def root_children(key, child, mbr, tokens, n, x0, y0, x1, y1, found, index):
    """The root's children that the message has and meets, ascending; how many.

    `found` takes the nodes, `index` the number of the token behind the node's own.
    """
    mask = key.size - 1
    m = 0
    for j in range(n):
        s = lookup(key, mask, tokens[j])
        if s < 0:
            continue
        c = child[s]
        if meets(mbr, c, x0, y0, x1, y1):
            found[m] = c
            index[m] = j + 1
            m += 1
    return m


@kernel
def walk(
    t_token, t_lo, t_end, t_hi, t_first, t_mbr, t_key, t_child,
    row, box, start, token, more,
    c_start, c_count, attr, low, high, b_attr, b_value, e0, e1,
    tokens, n_tokens, keys, where, mask, x0, y0, x1, y1,
    probe, stack, top, out, n, work,
):  # fmt: skip
    """Go down from the nodes stack[:top] (node, next token, depth): Algorithm 1.

    Rows found are put behind out[:n]; work counts nodes, entries and cost. Returns
    (out, n, stack).
    """
    nodes, entries, cost = 0, 0, 0.0
    while top > 0:
        top -= 1
        node, j, depth = stack[top, 0], stack[top, 1], stack[top, 2]
        nodes += 1
        a, b = np.int64(t_first[node]), np.int64(t_first[node + 1])
        stop = t_hi[node] if a == b else t_end[node]
        end = t_end[node]
        for i in range(t_lo[node], stop):
            if not meets(box, i, x0, y0, x1, y1):
                continue
            r = row[i]
            if r < 0:
                continue
            if i >= end and not all_in(token, start[i] + depth, start[i + 1], keys, mask):
                continue
            if more[i] and not rest_holds(
                c_start, c_count, attr, low, high, r, b_attr, b_value, e0, e1
            ):
                continue
            if n == out.size:
                out = grow(out, n)
            out[n] = r
            n += 1
        entries += stop - t_lo[node]
        left = n_tokens - j
        if a == b or left == 0:
            continue
        while top + min(b - a, left) > stack.shape[0]:
            larger = np.empty((2 * stack.shape[0], 3), np.int64)
            larger[:top] = stack[:top]
            stack = larger
        ask = probe
        if probe == BINARY:
            if tokens_search(left, b - a):
                cost += left * ASK_NODE_STEP * steps_of(b - a)
                for k in range(j, n_tokens):
                    a = first_not_below(t_token, a, b, tokens[k])
                    if a == b:
                        break
                    if t_token[a] == tokens[k] and meets(t_mbr, a, x0, y0, x1, y1):
                        stack[top, 0], stack[top, 1], stack[top, 2] = a, k + 1, depth + 1
                        top += 1
            else:
                cost += (b - a) * ASK_NODE_STEP * steps_of(left)
                k = j
                for c in range(a, b):
                    k = first_not_below(tokens, k, n_tokens, t_token[c])
                    if k == n_tokens:
                        break
                    if tokens[k] == t_token[c] and meets(t_mbr, c, x0, y0, x1, y1):
                        stack[top, 0], stack[top, 1], stack[top, 2] = c, k + 1, depth + 1
                        top += 1
            continue
        if probe == COST:
            if node == 0:
                ask = TRIE if left * ASK_ROOT < (b - a) * ASK_MESSAGE else TOKEN_SET
            else:
                ask = TRIE if tokens_should_ask(left, b - a) else TOKEN_SET
        if ask == TOKEN_SET:
            cost += (b - a) * ASK_MESSAGE
            for c in range(a, b):
                s = lookup(keys, mask, t_token[c])
                if s >= 0 and meets(t_mbr, c, x0, y0, x1, y1):
                    stack[top, 0], stack[top, 1], stack[top, 2] = c, where[s] + 1, depth + 1
                    top += 1
        elif node == 0:
            cost += left * ASK_ROOT
            root_mask = t_key.size - 1
            for k in range(j, n_tokens):
                s = lookup(t_key, root_mask, tokens[k])
                if s < 0:
                    continue
                c = np.int64(t_child[s])
                if meets(t_mbr, c, x0, y0, x1, y1):
                    stack[top, 0], stack[top, 1], stack[top, 2] = c, k + 1, 1
                    top += 1
        else:
            cost += left * ASK_NODE
            for k in range(j, n_tokens):
                a = first_not_below(t_token, a, b, tokens[k])
                if a == b:
                    break
                if t_token[a] == tokens[k] and meets(t_mbr, a, x0, y0, x1, y1):
                    stack[top, 0], stack[top, 1], stack[top, 2] = a, k + 1, depth + 1
                    top += 1
    work[0] += nodes
    work[1] += entries
    work[2] += int(cost + nodes * VISIT + entries * CHECK)
    return out, n, stack


@kernel
def match(t, e, c, rank, batch, boxes, probe, counters):
    """(events, rows) of a batch whose event i is everywhere in boxes[i]."""
    t_token, t_lo, t_end, t_hi, t_first, t_mbr = t.token, t.lo, t.end, t.hi, t.first, t.mbr
    t_key, t_child = t.key, t.child
    row, box, start, token, more = e.row, e.box, e.start, e.token, e.more
    c_start, c_count, attr, low, high = c.start, c.count, c.attr, c.low, c.high
    b_start, b_attr, b_value = batch.start, batch.attr, batch.value
    w_start, word = batch.word_start, batch.word
    slots = table_size(batch)
    keys = np.empty(slots, np.int32)
    where = np.empty(slots, np.int32)
    tokens = np.empty(slots, np.int32)
    stack = np.empty((64, 3), np.int64)
    events = np.empty(256, np.int32)
    found = np.empty(256, np.int32)
    work = np.zeros(3, np.int64)
    n = 0
    for at in range(b_start.size - 1):
        n_tokens, mask = message_tokens(
            word, w_start[at], w_start[at + 1], rank, tokens, keys, where
        )
        stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, 0
        before = n
        found, n, stack = walk(
            t_token, t_lo, t_end, t_hi, t_first, t_mbr, t_key, t_child,
            row, box, start, token, more,
            c_start, c_count, attr, low, high, b_attr, b_value, b_start[at], b_start[at + 1],
            tokens, n_tokens, keys, where, mask,
            boxes[at, 0], boxes[at, 1], boxes[at, 2], boxes[at, 3],
            probe, stack, 1, found, n, work,
        )  # fmt: skip
        events = room_for(events, before, n - before)
        events[before:n] = at
    counters[0] += work[0]
    counters[1] += work[1]
    counters[2] += n
    return events[:n], found[:n]
