"""IR-tree: a packed R-tree with an inverted file in each node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.jit import kernel
from nearcast.kernels.packing import FANOUT
from nearcast.kernels.rows import grow
from nearcast.kernels.tokens import (
    all_in,
    first_not_below,
    lookup,
    meets,
    message_tokens,
    rest_holds,
    room_for,
    table_size,
)


class Nodes(NamedTuple):
    """The tree of `nearcast.kernels.packing`; node i's file is word, who [start[i]:start[i + 1]].

    Bit k of `who` says that child number k of the node has the word somewhere below it.
    """

    order: npt.NDArray[np.int32]
    levels: npt.NDArray[np.int64]
    mbr: npt.NDArray[np.float64]
    start: npt.NDArray[np.int64]
    word: npt.NDArray[np.int32]
    who: npt.NDArray[np.uint64]


@kernel
def files(order, levels, start, token):
    """(start, word, who): the inverted file of every node."""
    nodes = levels[-1]
    runs = np.zeros(nodes + 1, np.int64)
    word = np.empty(max(16, token.size), np.int32)
    who = np.empty(word.size, np.uint64)
    pair = np.empty(1024, np.int64)
    used = 0
    for level in range(levels.size - 1):
        for node in range(levels[level], levels[level + 1]):
            first = (node - levels[level]) * FANOUT
            if level == 0:
                stop = min(first + FANOUT, order.size)
            else:
                first += levels[level - 1]
                stop = min(first + FANOUT, levels[level])
            m = 0
            for k in range(first, stop):
                if level == 0:
                    a, b = start[order[k]], start[order[k] + 1]
                else:
                    a, b = runs[k], runs[k + 1]
                pair = room_for(pair, m, b - a)
                for t in range(a, b):
                    name = token[t] if level == 0 else word[t]
                    pair[m] = (np.int64(name) << 6) | (k - first)
                    m += 1
            pair[:m].sort()
            while used + m > word.size:
                word, who = grow(word, word.size), grow(who, who.size)
            for k in range(m):
                bit = np.uint64(1) << np.uint64(pair[k] & 63)
                if k > 0 and pair[k] >> 6 == pair[k - 1] >> 6:
                    who[used - 1] |= bit
                else:
                    word[used] = pair[k] >> 6
                    who[used] = bit
                    used += 1
            runs[node + 1] = used
    return runs, word[:used].copy(), who[:used].copy()


@kernel
def children_with(word, who, a, b, tokens, n, keys, mask):
    """The children that have a token of the message, as bits."""
    bits = np.uint64(0)
    if b - a <= 4 * n:
        for k in range(a, b):
            if lookup(keys, mask, word[k]) >= 0:
                bits |= who[k]
        return bits
    for j in range(n):
        a = first_not_below(word, a, b, tokens[j])
        if a == b:
            break
        if word[a] == tokens[j]:
            bits |= who[a]
    return bits


@kernel
def match(t, e, c, rank, batch, boxes, counters):
    """(events, rows) of a batch whose event i is everywhere in boxes[i]."""
    order, levels, mbr, runs, names, who = t.order, t.levels, t.mbr, t.start, t.word, t.who
    row, box, start, token, more = e.row, e.box, e.start, e.token, e.more
    c_start, c_count, attr, low, high = c.start, c.count, c.attr, c.low, c.high
    b_start, b_attr, b_value = batch.start, batch.attr, batch.value
    w_start, word = batch.word_start, batch.word
    slots = table_size(batch)
    keys = np.empty(slots, np.int32)
    where = np.empty(slots, np.int32)
    tokens = np.empty(slots, np.int32)
    stack = np.empty((FANOUT * levels.size + 1, 2), np.int64)
    events = np.empty(256, np.int32)
    found = np.empty(256, np.int32)
    nodes, candidates, n = 0, 0, 0
    for at in range(b_start.size - 1):
        n_tokens, mask = message_tokens(
            word, w_start[at], w_start[at + 1], rank, tokens, keys, where
        )
        x0, y0, x1, y1 = boxes[at, 0], boxes[at, 1], boxes[at, 2], boxes[at, 3]
        stack[0, 0], stack[0, 1] = levels.size - 2, levels[-1] - 1
        top = 1
        while top > 0:
            top -= 1
            level, node = stack[top, 0], stack[top, 1]
            nodes += 1
            bits = children_with(
                names, who, runs[node], runs[node + 1], tokens, n_tokens, keys, mask
            )
            first = (node - levels[level]) * FANOUT
            if level > 0:
                first += levels[level - 1]
                for k in range(first, min(first + FANOUT, levels[level])):
                    if (bits >> np.uint64(k - first)) & np.uint64(1) and meets(
                        mbr, k, x0, y0, x1, y1
                    ):
                        stack[top, 0], stack[top, 1] = level - 1, k
                        top += 1
                continue
            for k in range(first, min(first + FANOUT, order.size)):
                if not (bits >> np.uint64(k - first)) & np.uint64(1):
                    continue
                candidates += 1
                i = order[k]
                if not meets(box, i, x0, y0, x1, y1):
                    continue
                r = row[i]
                if r < 0 or not all_in(token, start[i] + 0, start[i + 1], keys, mask):
                    continue
                if more[i] and not rest_holds(
                    c_start, c_count, attr, low, high, r, b_attr, b_value,
                    b_start[at], b_start[at + 1],
                ):  # fmt: skip
                    continue
                if n == found.size:
                    events, found = grow(events, n), grow(found, n)
                events[n], found[n] = at, r
                n += 1
    counters[0] += nodes
    counters[1] += candidates
    counters[2] += n
    return events[:n], found[:n]
