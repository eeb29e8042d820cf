"""LFilter as it is printed: Eqs 1 to 6 choose, and HybridPrune is one walk with all lists.

Costs are counted in steps, as in the paper: there are no constants, and words are equally
frequent and independent. The trie is searched in two ways (§3.3), as by `probe="binary"`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.lfilter.kernels import BY_LISTS, BY_PRUNING, BY_TRIE, lists_ahead
from nearcast.index.mbr_trie.kernels import BINARY, tokens_search, walk
from nearcast.index.pt_quadtree.kernels import candidate_lists, edges_asked, inside
from nearcast.jit import kernel
from nearcast.kernels.rows import grow
from nearcast.kernels.tokens import (
    all_in,
    first_not_below,
    meets,
    message_tokens,
    rest_holds,
    room_for,
    table_size,
)


class Measures(NamedTuple):
    """What the equations take from the structures."""

    level: npt.NDArray[np.float64]
    """L_i: nodes in each level of the trie, the root in level 0."""
    distinct: float
    """D: distinct tokens."""
    words: float
    """S_avg: tokens of a clause on average."""
    pivots: float
    """Avg_RT: pivotal tokens of a node of the quadtree on average."""
    height: float
    """H_q of the quadtree."""


@kernel
def _log(x):
    """The binary logarithm, of at least one step."""
    return max(1.0, np.log2(max(x, 1.0)))


@kernel
def cost_of_trie(level, distinct, n):
    """Cost_T of Eq. 1 for a message of n tokens."""
    cost, reach = 0.0, 1.0
    for i in range(1, level.size):
        fan_out = level[i] / level[i - 1]
        cost += min(_log(n) * level[i], n * _log(fan_out) * level[i - 1]) * reach
        reach *= n / distinct
    return cost


@kernel
def cost_of_cells(height, candidates, pivots, n):
    """Cost_Q of Eq. 3 for a message of n tokens that reaches so many leaves."""
    return height * candidates * min(_log(n) * pivots, _log(pivots) * n)


@kernel
def cost_of_pruning(level, distinct, depth, left, lists, items):
    """C_L of Eq. 5 at a node in a level, with `left` tokens to come; `lists` is Σ log |I|."""
    one = level[depth + 1] if depth + 1 < level.size else 0.0
    two = level[depth + 2] if depth + 2 < level.size else 0.0
    share = left / distinct
    by_nodes = one * _log(left) + two * share * _log(left)
    by_tokens = _log(one) * left + _log(two) * share * left
    return min(by_nodes, by_tokens) + lists + items


@kernel
def cost_of_verifying(words, left, items):
    """C_V of Eq. 6."""
    return items * words * _log(left)


@kernel
def hybrid_prune(
    cell, item, edge, segment, n_segments, level, distinct, words,
    t_token, t_lo, t_end, t_hi, t_first, t_mbr,
    row, box, start, token, more,
    c_start, c_count, attr, low, high, b_attr, b_value, e0, e1,
    tokens, n_tokens, keys, mask, x0, y0, x1, y1, stack, out, n, work,
):  # fmt: skip
    """One walk of the trie with the lists `segment[:n_segments]` (node, first, stop) of a message.

    At every node either all that is left of the lists is verified (C_L > C_V, and at leaves), or
    the walk goes on to the children that the message has and meets, each with its part of
    every list. Returns (out, n, segment, stack, whether any list was pruned).
    """
    visits, looked = 0, 0
    pruned = False
    top = 1
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3], stack[0, 4] = 0, 0, 0, 0, n_segments
    used = n_segments
    while top > 0:
        top -= 1
        node, j, depth = stack[top, 0], stack[top, 1], stack[top, 2]
        s0, s1 = stack[top, 3], stack[top, 4]
        visits += 1
        a, b = np.int64(t_first[node]), np.int64(t_first[node + 1])
        end = t_end[node]
        left = n_tokens - j
        items, searches = 0, 0.0
        for s in range(s0, s1):
            size = segment[s, 2] - segment[s, 1]
            items += size
            searches += _log(size)
        deeper = a < b and left > 0
        if deeper:
            by_lists = cost_of_pruning(level, distinct, depth, left, searches, items)
            deeper = by_lists <= cost_of_verifying(words, left, items)
        pruned = pruned or deeper
        for s in range(s0, s1):
            list_node = segment[s, 0]
            asked = edges_asked(cell, list_node, x0, y0)
            covered = inside(cell, list_node, x0, y0, x1, y1)
            for k in range(segment[s, 1], segment[s, 2]):
                i = item[k]
                if deeper and i >= end:
                    break
                looked += 1
                if edge[k] & asked != asked or not (covered or meets(box, i, x0, y0, x1, y1)):
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
        if not deeper:
            continue
        while top + min(b - a, left) > stack.shape[0]:
            larger = np.empty((2 * stack.shape[0], 5), np.int64)
            larger[:top] = stack[:top]
            stack = larger
        asking = tokens_search(left, b - a)
        at, k = a, j  # a child and a token, of which one runs and the other is searched for
        while at < b and k < n_tokens:
            if asking:
                at = first_not_below(t_token, at, b, tokens[k])
            else:
                k = first_not_below(tokens, k, n_tokens, t_token[at])
            if at == b or k == n_tokens:
                break
            if t_token[at] == tokens[k] and meets(t_mbr, at, x0, y0, x1, y1):
                while used + s1 - s0 > segment.shape[0]:
                    longer = np.empty((2 * segment.shape[0], 3), np.int64)
                    longer[:used] = segment[:used]
                    segment = longer
                begun = used
                for s in range(s0, s1):
                    first = first_not_below(item, segment[s, 1], segment[s, 2], t_lo[at])
                    stop = first_not_below(item, first, segment[s, 2], t_hi[at])
                    if first < stop:
                        segment[used, 0] = segment[s, 0]
                        segment[used, 1], segment[used, 2] = first, stop
                        used += 1
                if used > begun:
                    stack[top, 0], stack[top, 1], stack[top, 2] = at, k + 1, depth + 1
                    stack[top, 3], stack[top, 4] = begun, used
                    top += 1
            if asking:
                k += 1
            else:
                at += 1
    work[0] += visits
    work[1] += looked
    return out, n, segment, stack, pruned


@kernel
def match(t, q, e, c, rank, p, batch, boxes, counters):
    """(events, rows) of a batch whose event i is everywhere in boxes[i]: Algorithm 3."""
    cell, child, starts, item, edge = q.cell, q.child, q.start, q.item, q.edge
    cover, rest, pivot, extent = q.cover, q.rest, q.pivot, q.extent
    row, box, start, token, more = e.row, e.box, e.start, e.token, e.more
    c_start, c_count, attr, low, high = c.start, c.count, c.attr, c.low, c.high
    w_start, word = batch.word_start, batch.word
    slots = table_size(batch)
    keys = np.empty(slots, np.int32)
    where = np.empty(slots, np.int32)
    tokens = np.empty(slots, np.int32)
    trie_stack = np.empty((64, 3), np.int64)
    cell_stack = np.empty((256, 2), np.int64)
    stack = np.empty((64, 5), np.int64)
    segment = np.empty((64, 3), np.int64)
    lists = np.empty(64, np.int64)
    events = np.empty(256, np.int32)
    found = np.empty(256, np.int32)
    work = np.zeros(3, np.int64)
    n = 0
    for at in range(batch.start.size - 1):
        n_tokens, mask = message_tokens(
            word, w_start[at], w_start[at + 1], rank, tokens, keys, where
        )
        x0, y0, x1, y1 = boxes[at, 0], boxes[at, 1], boxes[at, 2], boxes[at, 3]
        e0, e1 = batch.start[at], batch.start[at + 1]
        before = n
        candidates = 1.0
        if x1 > x0 or y1 > y0:
            candidates, _ = lists_ahead(
                cell, child, starts, q.lists, q.items, extent, x0, y0, x1, y1, cell_stack
            )
        by_trie = cost_of_trie(p.level, p.distinct, n_tokens)
        by_cells = cost_of_cells(p.height, candidates, p.pivots, n_tokens)
        counters[3] += int(min(by_trie, by_cells))
        if by_cells > by_trie:
            choice = BY_TRIE
            trie_stack[0, 0], trie_stack[0, 1], trie_stack[0, 2] = 0, 0, 0
            found, n, trie_stack = walk(
                t.token, t.lo, t.end, t.hi, t.first, t.mbr, t.key, t.child,
                row, box, start, token, more,
                c_start, c_count, attr, low, high, batch.attr, batch.value, e0, e1,
                tokens, n_tokens, keys, where, mask, x0, y0, x1, y1,
                BINARY, trie_stack, 1, found, n, work,
            )  # fmt: skip
        else:
            lists, n_lists, visits, cell_stack = candidate_lists(
                cell, child, starts, cover, rest, pivot, extent,
                tokens, n_tokens, keys, mask, x0, y0, x1, y1, cell_stack, lists,
            )  # fmt: skip
            work[0] += visits
            while n_lists > segment.shape[0]:
                segment = np.empty((2 * segment.shape[0], 3), np.int64)
            for k in range(n_lists):
                segment[k, 0] = lists[k]
                segment[k, 1], segment[k, 2] = starts[lists[k]], starts[lists[k] + 1]
            found, n, segment, stack, pruned = hybrid_prune(
                cell, item, edge, segment, n_lists, p.level, p.distinct, p.words,
                t.token, t.lo, t.end, t.hi, t.first, t.mbr,
                row, box, start, token, more,
                c_start, c_count, attr, low, high, batch.attr, batch.value, e0, e1,
                tokens, n_tokens, keys, mask, x0, y0, x1, y1, stack, found, n, work,
            )  # fmt: skip
            choice = BY_PRUNING if pruned else BY_LISTS
        counters[5 + choice] += 1
        events = room_for(events, before, n - before)
        events[before:n] = at
    counters[0] += work[0]
    counters[1] += work[1]
    counters[2] += n
    counters[4] += work[0] + work[1]  # steps: what `walk` counts besides are nanoseconds
    return events[:n], found[:n]
