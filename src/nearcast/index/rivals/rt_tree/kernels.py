"""R^t++-tree: a packed R-tree with representative tokens in its nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.jit import kernel
from nearcast.kernels.packing import FANOUT
from nearcast.kernels.rows import grow
from nearcast.kernels.tokens import (
    all_in,
    lookup,
    meets,
    message_tokens,
    rest_holds,
    room_for,
    sets_meet,
    table_size,
)


class Nodes(NamedTuple):
    """The tree of `nearcast.kernels.packing`; node i's tokens are pivot[start[i]:start[i + 1]]."""

    order: npt.NDArray[np.int32]
    head: npt.NDArray[np.int32]
    """The first token of each entry, in that order."""
    levels: npt.NDArray[np.int64]
    mbr: npt.NDArray[np.float64]
    start: npt.NDArray[np.int64]
    pivot: npt.NDArray[np.int32]


@kernel
def representatives(order, levels, start, token):
    """(start, pivot): the representative tokens of every node, ascending.

    On level h, counted from the leaves, an entry is represented by its token number h
    (from the first on again beyond its last): leaves have the rarest ones.
    """
    nodes = levels[-1]
    runs = np.zeros(nodes + 1, np.int64)
    pivot = np.empty(max(16, 2 * order.size), np.int32)
    used = 0
    width = 1
    for level in range(levels.size - 1):
        width *= FANOUT
        for node in range(levels[level], levels[level + 1]):
            a = (node - levels[level]) * width
            b = min(a + width, order.size)
            tokens = np.empty(b - a, np.int32)
            for k in range(a, b):
                i = order[k]
                tokens[k - a] = token[start[i] + level % (start[i + 1] - start[i])]
            tokens.sort()
            pivot = room_for(pivot, used, b - a)
            for k in range(tokens.size):
                if k == 0 or tokens[k] != tokens[k - 1]:
                    pivot[used] = tokens[k]
                    used += 1
            runs[node + 1] = used
    return runs, pivot[:used].copy()


@kernel
def match(t, e, c, rank, batch, boxes, counters):
    """(events, rows) of a batch whose event i is everywhere in boxes[i]."""
    order, head, levels, mbr, runs, pivot = t.order, t.head, t.levels, t.mbr, t.start, t.pivot
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
            if not meets(mbr, node, x0, y0, x1, y1):
                continue
            nodes += 1
            if not sets_meet(pivot, runs[node], runs[node + 1], tokens, n_tokens, keys, mask):
                continue
            first = (node - levels[level]) * FANOUT
            if level > 0:
                first += levels[level - 1]
                for k in range(first, min(first + FANOUT, levels[level])):
                    stack[top, 0], stack[top, 1] = level - 1, k
                    top += 1
                continue
            stop = min(first + FANOUT, order.size)
            candidates += stop - first
            for k in range(first, stop):
                if lookup(keys, mask, head[k]) < 0:
                    continue
                i = order[k]
                if not meets(box, i, x0, y0, x1, y1):
                    continue
                r = row[i]
                if r < 0 or not all_in(token, start[i] + 1, start[i + 1], keys, mask):
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
