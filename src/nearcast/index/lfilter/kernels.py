"""LFilter (§5): which of the two structures, and list pruning with both."""

from __future__ import annotations

import numpy as np

from nearcast.index.mbr_trie.kernels import (
    ASK_MESSAGE,
    ASK_NODE,
    ASK_NODE_STEP,
    ASK_ROOT,
    COST,
    root_children,
    steps_of,
    tokens_should_ask,
    walk,
)
from nearcast.index.mbr_trie.kernels import CHECK as TRIE_CHECK
from nearcast.index.mbr_trie.kernels import VISIT as TRIE_VISIT
from nearcast.index.pt_quadtree.kernels import (
    CHECK,
    EVERYWHERE,
    ROOT,
    SCAN,
    SKIP,
    VISIT,
    candidate_lists,
    edges_asked,
    inside,
    scan_lists,
)
from nearcast.jit import kernel
from nearcast.kernels.rows import grow
from nearcast.kernels.tokens import (
    ANY,
    all_in,
    first_not_below,
    lookup,
    meets,
    message_tokens,
    rest_holds,
    room_for,
    table_size,
)

#: The choices, as `nearcast.index.base.CHOICES` names them.
BY_TRIE, BY_LISTS, BY_PRUNING = 0, 1, 2

# A step of a binary search in a list, the call that prunes lists, and a look at what is known
# of a word, in nanoseconds.
STEP = 6.0
PRUNE = 1000.0
WEIGH = 40.0
#: Words of a long message that are weighed: they stand for the others.
_WEIGHED = 48


@kernel
def lists_ahead(cell, child, starts, lists, items, extent, x0, y0, x1, y1, stack):
    """About how many lists a message will reach, and how many items: cand_Q of §5.3.

    Goes down while a cell is larger than the message (for a point, to its leaf: exact),
    and takes the share that the message covers of a smaller one.
    """
    n = 1.0 if starts[EVERYWHERE + 1] > starts[EVERYWHERE] else 0.0
    m = np.float64(starts[EVERYWHERE + 1] - starts[EVERYWHERE])
    if child.size == 1 or not (
        extent[0] <= x1 and extent[2] >= x0 and extent[1] <= y1 and extent[3] >= y0
    ):
        return n, m
    top = 1
    stack[0, 0] = ROOT
    while top > 0:
        top -= 1
        node = stack[top, 0]
        c = np.int64(child[node])
        own = starts[node + 1] - starts[node]
        if c > 0:
            left, bottom = max(cell[node, 0], extent[0]), max(cell[node, 1], extent[1])
            right, upper = min(cell[node, 2], extent[2]), min(cell[node, 3], extent[3])
            if right - left <= x1 - x0 and upper - bottom <= y1 - y0:
                share = (min(right, x1) - max(left, x0)) * (min(upper, y1) - max(bottom, y0))
                share = max(0.0, share) / ((right - left) * (upper - bottom))
                n += lists[node] * share
                m += items[node] * share
                continue
            cx, cy = cell[c, 2], cell[c, 3]
            for q in range(4):
                if (x1 >= cx if q & 1 else x0 < cx) and (y1 >= cy if q >> 1 else y0 < cy):
                    stack[top, 0] = c + q
                    top += 1
        if own > 0:
            n += 1
            m += own
    return n, m


@kernel
def beginning(lists, copies):
    """The share of items that begin in their cell as far as the message asks for it.

    A clause is in as many lists as `copies` says. Of the lists that the message reaches,
    taken to be as many across as upwards, those at its left ask nothing of the left edge
    and those at its bottom nothing of the lower one; all others ask for both.
    """
    across = np.sqrt(max(lists, 1.0))
    along = (1.0 + (across - 1.0) / np.sqrt(max(copies, 1.0))) / across
    return along * along


@kernel
def node_cost(t_lo, t_end, t_hi, t_first, node, left, share, near, nodes_each):
    """The cost of the trie from a child of the root on: Cost_T of §3.3.

    `left` tokens of the message come behind the node's own. An entry's next token is one of
    them with the probability `share`: the part of all occurrences of words that the
    message's words make up, where the paper takes words to be equally frequent. It also
    takes every rectangle to be met; but the message meets only the share `near` of all
    entries, and the rectangle round one entry as rarely. That round k places anywhere is
    (k - 1) / (k + 1) as long as the extent, on average. Below the children there are as many
    nodes for an entry, `nodes_each`, as anywhere, with a second word to be had and few entries.
    """
    children = t_first[node + 1] - t_first[node]
    below = t_hi[node] - t_end[node]
    cost = TRIE_VISIT + (t_end[node] - t_lo[node]) * TRIE_CHECK
    if children == 0:
        cost += below * TRIE_CHECK
    elif left > 0:
        ask = left * (ASK_NODE + ASK_NODE_STEP * steps_of(children))
        cost += min(ask, children * ASK_MESSAGE)
        each = below / children
        side = (each - 1.0) / (each + 1.0)
        met = near + (1.0 - near) * side * side
        cost += share * met * (children * TRIE_VISIT + below * TRIE_CHECK)
        deeper = max(0.0, below * nodes_each - children)
        cost += share * share * near * deeper * TRIE_VISIT
    return cost


@kernel
def cheapest(t_lo, t_end, t_hi, t_first, nodes, index, m, n_tokens, share, lists, items, begin, n):
    """(cost, choice, cut): nodes[:cut] are left to the trie, the others to the lists.

    Tokens are in the order of their frequency as a rule, so first come those that the trie
    has little below, and their clauses are also the first in each list: what is left of the
    lists is read, or searched for each of nodes[cut:]. Of the lists it is known how many
    there are ahead, with how many items, and which share of them begins there; those of a
    node are taken to be as many as among all n entries. With cut = m the trie does it all.
    """
    reached = 0
    for k in range(m):
        reached += t_hi[nodes[k]] - t_lo[nodes[k]]
    step = steps_of(1 + items / max(lists, 1.0)) * STEP
    each = items / n
    near = min(1.0, each * begin)
    nodes_each = t_lo.size / n
    check, scan = each * begin * CHECK, each * (SKIP + begin * SCAN)
    least, choice, cut = np.inf, BY_TRIE, m
    by_trie = 0.0
    for k in range(m):
        node = nodes[k]
        both = by_trie + lists * (VISIT + step) + reached * check
        read = both + (n - t_lo[node]) * scan
        searched = both + PRUNE + lists * (m - k) * step
        if read < least:
            least, choice, cut = read, BY_LISTS, k
        if searched < least:
            least, choice, cut = searched, BY_PRUNING, k
        reached -= t_hi[node] - t_lo[node]
        # Further tokens are commoner than this one, and the message has more of the commoner.
        further = max(share, reached / max(1, n - t_hi[node]))
        left = n_tokens - index[k]
        by_trie += node_cost(t_lo, t_end, t_hi, t_first, node, left, further, near, nodes_each)
    if by_trie < least:
        least, choice, cut = by_trie, BY_TRIE, m
    return least, choice, cut


@kernel
def long_lists_first(lists, n, starts, m, read):
    """Move the lists to the front that are cheaper to search than to read; how many.

    To read an item costs `read`.
    """
    front = 0
    for k in range(n):
        size = starts[lists[k] + 1] - starts[lists[k]]
        if m * steps_of(size) * STEP < size * read:
            lists[front], lists[k] = lists[k], lists[front]
            front += 1
    return front


@kernel
def prune_lists(
    cell, starts, item, edge, lists, n_lists, nodes, index, cut, m,
    t_token, t_lo, t_end, t_hi, t_first,
    row, box, start, token, more,
    c_start, c_count, attr, low, high, b_attr, b_value, e0, e1,
    tokens, n_tokens, keys, where, mask, x0, y0, x1, y1, stack, out, n, work,
):  # fmt: skip
    """HybridPrune over lists[:n_lists]: only items below trie nodes that the message reaches.

    nodes[cut:m] are children of the root; below them, whatever is cheaper at each node: compare
    what is left of the list, or ask the trie on. Returns (out, n, stack).
    """
    visits, looked, cost = 0, 0, 0.0
    for number in range(n_lists):
        list_node = lists[number]
        asked = edges_asked(cell, list_node, x0, y0)
        covered = inside(cell, list_node, x0, y0, x1, y1)
        last = starts[list_node + 1]
        position = starts[list_node]
        steps = steps_of(last - position)
        for first in range(cut, m):
            c = nodes[first]
            cost += steps * STEP
            position = first_not_below(item, position, last, t_lo[c])
            if position == last:
                break
            if item[position] >= t_hi[c]:
                continue
            stop = first_not_below(item, position, last, t_hi[c])
            top = 1
            stack[0, 0], stack[0, 1], stack[0, 2] = c, index[first], 1
            stack[0, 3], stack[0, 4] = position, stop
            position = stop
            while top > 0:
                top -= 1
                node, j, depth = stack[top, 0], stack[top, 1], stack[top, 2]
                s, e = stack[top, 3], stack[top, 4]
                visits += 1
                a, b = np.int64(t_first[node]), np.int64(t_first[node + 1])
                end = t_end[node]
                here = s
                while here < e and item[here] < end:
                    here += 1
                deeper = False
                if a < b and here < e and n_tokens > j:
                    ask = (n_tokens - j) * (ASK_NODE + ASK_NODE_STEP * steps_of(b - a))
                    deeper = min(ask, (b - a) * ASK_MESSAGE) < (e - here) * CHECK
                for k in range(s, here if deeper else e):
                    if edge[k] & asked != asked:
                        continue
                    i = item[k]
                    if not (covered or meets(box, i, x0, y0, x1, y1)):
                        continue
                    r = row[i]
                    if r < 0:
                        continue
                    if k >= here and not all_in(token, start[i] + depth, start[i + 1], keys, mask):
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
                    looked += e - s
                    continue
                looked += here - s
                while top + min(b - a, n_tokens - j) > stack.shape[0]:
                    larger = np.empty((2 * stack.shape[0], 5), np.int64)
                    larger[:top] = stack[:top]
                    stack = larger
                if tokens_should_ask(n_tokens - j, b - a):
                    cost += (n_tokens - j) * ASK_NODE
                    for k in range(j, n_tokens):
                        a = first_not_below(t_token, a, b, tokens[k])
                        if a == b:
                            break
                        if t_token[a] == tokens[k]:
                            here = first_not_below(item, here, e, t_lo[a])
                            after = first_not_below(item, here, e, t_hi[a])
                            if after > here:
                                stack[top, 0], stack[top, 1], stack[top, 2] = a, k + 1, depth + 1
                                stack[top, 3], stack[top, 4] = here, after
                                top += 1
                            here = after
                else:
                    cost += (b - a) * ASK_MESSAGE
                    for child in range(a, b):
                        slot = lookup(keys, mask, t_token[child])
                        if slot < 0:
                            continue
                        here = first_not_below(item, here, e, t_lo[child])
                        after = first_not_below(item, here, e, t_hi[child])
                        if after > here:
                            stack[top, 0], stack[top, 1] = child, where[slot] + 1
                            stack[top, 2], stack[top, 3], stack[top, 4] = depth + 1, here, after
                            top += 1
                        here = after
    work[0] += visits
    work[1] += looked
    work[2] += int(cost + visits * TRIE_VISIT + looked * CHECK)
    return out, n, stack


@kernel
def match(t, q, e, c, rank, shares, batch, boxes, forced, counters):
    """(events, rows) of a batch whose event i is everywhere in boxes[i]: Algorithm 3.

    `forced` is the choice to make, -1 to let the model choose.
    """
    t_token, t_lo, t_end, t_hi, t_first, t_mbr = t.token, t.lo, t.end, t.hi, t.first, t.mbr
    t_key, t_child = t.key, t.child
    cell, child, starts, item, head = q.cell, q.child, q.start, q.item, q.head
    edge = q.edge
    node_lists, node_items = q.lists, q.items
    cover, rest, pivot, extent = q.cover, q.rest, q.pivot, q.extent
    row, box, start, token, more = e.row, e.box, e.start, e.token, e.more
    c_start, c_count, attr, low, high = c.start, c.count, c.attr, c.low, c.high
    b_start, b_attr, b_value = batch.start, batch.attr, batch.value
    w_start, word = batch.word_start, batch.word
    slots = table_size(batch)
    keys = np.empty(slots, np.int32)
    where = np.empty(slots, np.int32)
    tokens = np.empty(slots, np.int32)
    nodes = np.empty(slots, np.int64)
    index = np.empty(slots, np.int64)
    stack = np.empty((256, 3), np.int64)
    cell_stack = np.empty((256, 2), np.int64)
    list_stack = np.empty((64, 5), np.int64)
    lists = np.empty(64, np.int64)
    events = np.empty(256, np.int32)
    found = np.empty(256, np.int32)
    work = np.zeros(3, np.int64)
    n = 0
    for at in range(b_start.size - 1):
        n_tokens, mask = message_tokens(
            word, w_start[at], w_start[at + 1], rank, tokens, keys, where
        )
        x0, y0, x1, y1 = boxes[at, 0], boxes[at, 1], boxes[at, 2], boxes[at, 3]
        e0, e1 = b_start[at], b_start[at + 1]
        before = n
        at_point = x0 >= x1 and y0 >= y1
        n_lists, visits = 0, 0
        if at_point:  # to find the lists is to count them
            lists, n_lists, visits, cell_stack = candidate_lists(
                cell, child, starts, cover, rest, pivot, extent,
                tokens, n_tokens, keys, mask, x0, y0, x1, y1, cell_stack, lists,
            )  # fmt: skip
            ahead, items = float(n_lists), 0.0
            for k in range(n_lists):
                items += starts[lists[k] + 1] - starts[lists[k]]
        else:
            ahead, items = lists_ahead(
                cell, child, starts, node_lists, node_items, extent, x0, y0, x1, y1, cell_stack
            )
        begin = 1.0 if at_point else beginning(ahead, item.size / row.size)
        read = SKIP + begin * SCAN
        estimate = ahead * VISIT + items * (read + begin * CHECK)
        choice = BY_LISTS
        m, cut = 0, 0
        asked = n_tokens * (ASK_ROOT + WEIGH)
        n_words = w_start[at + 1] - w_start[at]
        every = 1 + n_words // _WEIGHED
        look_on = items * (read + begin * CHECK) > n_words // every * WEIGH + PRUNE
        share, heads = 0.0, 0.0
        if look_on:
            for k in range(w_start[at], w_start[at + 1], every):
                if word[k] < shares.shape[0]:
                    share += shares[word[k], 0]
                    heads += shares[word[k], 1]
            share = min(1.0, share * every)
            heads = min(1.0, heads * every)
            estimate = ahead * VISIT + items * (read + heads * begin * CHECK)
            # A word has a child of the root as likely as any, and half of those are elsewhere.
            likely = 0.5 * n_tokens * (t_first[1] - t_first[0]) / max(1, shares.shape[0])
            search = likely * steps_of(items / max(ahead, 1.0)) * STEP
            pruned = PRUNE + ahead * (VISIT + search) + items * heads * begin * CHECK
            shorter = estimate - 0.5 * items * read  # rare words are half of a list
            by_trie = 0.5 * heads * row.size * TRIE_CHECK
            look_on = estimate > asked + min(pruned, shorter, by_trie)
        if look_on or forced >= 0:
            m = root_children(t_key, t_child, t_mbr, tokens, n_tokens, x0, y0, x1, y1, nodes, index)
            cost, choice, cut = cheapest(
                t_lo, t_end, t_hi, t_first, nodes, index, m, n_tokens, share,
                ahead, items, begin, row.size,
            )  # fmt: skip
            estimate = asked + cost
            work[2] += int(asked)
        if forced >= 0:
            choice, cut = forced, m if forced == BY_TRIE else 0
        counters[3] += int(estimate)
        counters[5 + choice] += 1
        if cut > 0:
            while cut > stack.shape[0]:
                stack = np.empty((2 * stack.shape[0], 3), np.int64)
            for k in range(cut):
                stack[k, 0], stack[k, 1], stack[k, 2] = nodes[k], index[k], 1
            found, n, stack = walk(
                t_token, t_lo, t_end, t_hi, t_first, t_mbr, t_key, t_child,
                row, box, start, token, more,
                c_start, c_count, attr, low, high, b_attr, b_value, e0, e1,
                tokens, n_tokens, keys, where, mask, x0, y0, x1, y1,
                COST, stack, cut, found, n, work,
            )  # fmt: skip
        if choice != BY_TRIE:
            if not at_point:
                lists, n_lists, visits, cell_stack = candidate_lists(
                    cell, child, starts, cover, rest, pivot, extent,
                    tokens, n_tokens, keys, mask, x0, y0, x1, y1, cell_stack, lists,
                )  # fmt: skip
            work[0] += visits
            work[2] += int(visits * VISIT)
            long = 0
            if choice == BY_PRUNING:
                long = n_lists
                if forced < 0:
                    long = long_lists_first(lists, n_lists, starts, m - cut, read)
            if long > 0:
                found, n, list_stack = prune_lists(
                    cell, starts, item, edge, lists, long, nodes, index, cut, m,
                    t_token, t_lo, t_end, t_hi, t_first,
                    row, box, start, token, more,
                    c_start, c_count, attr, low, high, b_attr, b_value, e0, e1,
                    tokens, n_tokens, keys, where, mask, x0, y0, x1, y1,
                    list_stack, found, n, work,
                )  # fmt: skip
            if long < n_lists:
                least = t_token[nodes[cut]] if cut < m else np.int32(ANY)
                found, n = scan_lists(
                    cell, starts, item, head, edge, lists, long, n_lists, least,
                    row, box, start, token, more,
                    c_start, c_count, attr, low, high, b_attr, b_value, e0, e1,
                    keys, mask, x0, y0, x1, y1, found, n, work,
                )  # fmt: skip
        events = room_for(events, before, n - before)
        events[before:n] = at
    counters[0] += work[0]
    counters[1] += work[1]
    counters[2] += n
    counters[4] += work[2]
    return events[:n], found[:n]
