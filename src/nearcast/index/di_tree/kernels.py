"""The DI-Tree in flat arrays: planting, posting, splitting, walking, matching.

One tree a column, over the 65 536 cells of its domain. A *blue* node holds intervals with
both ends in its range. A blue branch has four children: the left blue node, the low-green
and the high-green node with the ends of the intervals that cross the split point, and the
right blue node. A green branch has two, left and right.

A leaf's entries are lists of (position, end): a green leaf has one, a blue leaf two beside
each other, of lows and of highs in the same order. So every interval is stored as two
ends, wherever it is.

In loops, arrays are taken out of their NamedTuples first: numba counts references at each
access under a condition, which costs more than the work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.bitset import LINE, clear_bit, clear_bit_if, members, set_bit
from nearcast.kernels.cells import HALVINGS, cell
from nearcast.kernels.counting import reached
from nearcast.kernels.rows import grow

#: Kinds of nodes.
BLUE = 0
LOW_GREEN = 1
HIGH_GREEN = 2
#: What is left to compare in a node: nothing, the lower end, the upper end, both.
ALL = 0
LOW = 1
HIGH = 2
BOTH = 3
_NONE = np.uint64(0)
_ONE = np.uint64(1)


class Tree(NamedTuple):
    """What kernels see of the nodes."""

    root: np.ndarray
    """By column."""
    child: np.ndarray
    """By node: the first of its children, −1 for a leaf."""
    kind: np.ndarray
    layer: np.ndarray
    """0 for a root."""
    column: np.ndarray
    leaf: np.ndarray
    """By node: the list of a leaf, of its lows if it is blue; −1 for a branch."""
    node: np.ndarray
    """By list: its node."""
    halvings: np.ndarray
    """By column: how deep the shortcuts reach."""
    offset: np.ndarray
    """By column: where its shortcuts begin."""
    shortcut: np.ndarray
    """By crossing layer and cell, as `census` counts: the leaf at the time of planting."""


class Veto(NamedTuple):
    """Bitsets of who cannot match, one for each cell of some columns' upper layers."""

    depth: np.ndarray
    """By column: halvings down to the layer of its cells, −1 for a column without."""
    first: np.ndarray
    """By column: the row of its first cell. The last row is for events that lack the column."""
    order: np.ndarray
    """The columns that have bitsets, those that fail most first."""
    bits: np.ndarray
    """(rows, words). Row 0: who has predicates on columns without bitsets."""


# -- planting ----------------------------------------------------------------------------


@kernel
def _length(number):
    """Bits of a number below 2^16, without branches."""
    length = 0
    for step in (8, 4, 2, 1):
        more = step if number >> step else 0
        number >>= more
        length += more
    return length + number


@kernel
def census(c, rows, domains, halvings, offset):
    """Ends by column, crossing layer and cell: what each node of a full tree would hold.

    Row r of a column's table counts the ends of intervals that cross a split point of
    layer r; lows and highs lie in different halves. The last row counts intervals within a
    cell.
    """
    counts = np.zeros(offset[-1], np.int64)
    attr, low, high = c.attr, c.low, c.high
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = attr[k]
            h = halvings[column]
            at = cell(domains, column, low[k]) >> (HALVINGS - h)
            to = cell(domains, column, high[k]) >> (HALVINGS - h)
            table = offset[column] + ((h - _length(at ^ to)) << h)
            counts[table + at] += 1
            if at != to:
                counts[table + to] += 1
    return counts


@kernel
def _sum(counts, first, stop):
    total = 0
    for k in range(first, stop):
        total += counts[k]
    return total


@kernel
def _held(counts, table, h, kind, row, first, stop):
    """Intervals that a node over the cells first … stop would hold; `row`: crossing or layer."""
    if kind != BLUE:
        return _sum(counts, table + (row << h) + first, table + (row << h) + stop)
    ends = 0
    for r in range(row, h):
        ends += _sum(counts, table + (r << h) + first, table + (r << h) + stop)
    return (ends >> 1) + _sum(counts, table + (h << h) + first, table + (h << h) + stop)


@kernel
def plant(columns, counts, halvings, offset, threshold):
    """The nodes of all trees: those that would hold more than the threshold are split.

    Returns (root, child, kind, layer, column), what each node holds, and the shortcuts.
    """
    root = np.empty(columns, np.int32)
    child = np.empty(64, np.int32)
    kind = np.empty(64, np.int8)
    layer = np.empty(64, np.int8)
    owner = np.empty(64, np.int32)
    held = np.empty(64, np.int64)
    shortcut = np.empty(offset[-1], np.int32)
    used = 0
    # Nodes to look at: their number, their crossing (or the layer of a blue one), first cell.
    waiting = np.empty((4 * HALVINGS + 8, 3), np.int64)
    for column in range(columns):
        h, table = halvings[column], offset[column]
        root[column] = used
        waiting[0, 0], waiting[0, 1], waiting[0, 2] = used, 0, 0
        child = grow(child, used)
        kind = grow(kind, used)
        layer = grow(layer, used)
        owner = grow(owner, used)
        held = grow(held, used)
        kind[used], layer[used] = BLUE, 0
        used += 1
        top = 1
        while top > 0:
            top -= 1
            node, row, first = waiting[top, 0], waiting[top, 1], waiting[top, 2]
            cells = 1 << (h - np.int64(layer[node]))
            child[node], owner[node] = -1, column
            held[node] = _held(counts, table, h, kind[node], row, first, first + cells)
            is_blue = kind[node] == BLUE
            if cells == 1 or held[node] <= threshold:
                for r in range(row, (h if is_blue else row) + 1):
                    for k in range(first, first + cells):
                        shortcut[table + (r << h) + k] = node
                continue
            child[node] = used
            for j in range(4 if is_blue else 2):
                child = grow(child, used)
                kind = grow(kind, used)
                layer = grow(layer, used)
                owner = grow(owner, used)
                held = grow(held, used)
                layer[used] = layer[node] + 1
                kind[used] = (BLUE, LOW_GREEN, HIGH_GREEN, BLUE)[j] if is_blue else kind[node]
                waiting[top, 0] = used
                waiting[top, 1] = row + 1 if is_blue and (j == 0 or j == 3) else row
                waiting[top, 2] = first + (cells >> 1 if j >= (2 if is_blue else 1) else 0)
                used += 1
                top += 1
    nodes = (child[:used], kind[:used], layer[:used], owner[:used])
    return root, nodes, held[:used], shortcut


# -- posting -----------------------------------------------------------------------------


@kernel
def enumerate_ends(c, rows, positions, domains, tree, entries):
    """Both ends of each predicate as entries of their leaves; returns how many."""
    attr, low, high = c.attr, c.low, c.high
    child, kind, layer, leaf = tree.child, tree.kind, tree.layer, tree.leaf
    halvings, offset, shortcut = tree.halvings, tree.offset, tree.shortcut
    target, item, value = entries.target, entries.item, entries.value
    n = 0
    for i in range(rows.size):
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = attr[k]
            lows = cell(domains, column, low[k])
            highs = cell(domains, column, high[k])
            h = halvings[column]
            at, to = lows >> (HALVINGS - h), highs >> (HALVINGS - h)
            table = offset[column] + ((h - _length(at ^ to)) << h)
            node, other = np.int64(shortcut[table + at]), np.int64(shortcut[table + to])
            while kind[node] == BLUE and child[node] >= 0:
                base = np.int64(child[node])
                shift = HALVINGS - 1 - np.int64(layer[node])
                a, b = (lows >> shift) & 1, (highs >> shift) & 1
                node = base + 3 * a if a == b else base + 1
                other = base + 2
            if kind[node] == BLUE:
                target[n], target[n + 1] = leaf[node], leaf[node] + 1
            else:
                while child[node] >= 0:
                    shift = HALVINGS - 1 - np.int64(layer[node])
                    node = np.int64(child[node]) + ((lows >> shift) & 1)
                while child[other] >= 0:
                    shift = HALVINGS - 1 - np.int64(layer[other])
                    other = np.int64(child[other]) + ((highs >> shift) & 1)
                target[n], target[n + 1] = leaf[node], leaf[other]
            item[n], item[n + 1] = positions[i], positions[i]
            value[n, 0], value[n + 1, 0] = low[k], high[k]
            n += 2
    return n


@kernel
def overfull(tree, lists, first, stop, threshold, deepest):
    """Leaves with a list in first … stop that hold more than the threshold and can be split."""
    return overfull_among(tree, lists, np.arange(first, stop), threshold, deepest)


@kernel
def overfull_among(tree, lists, some, threshold, deepest):
    """Leaves among those of some lists that hold more than the threshold and can be split."""
    found = np.empty(16, np.int32)
    n = 0
    for k in range(some.size):
        at = some[k]
        if lists.size[at] <= threshold:
            continue
        node = tree.node[at]
        if tree.leaf[node] == at and tree.layer[node] < deepest:
            found = grow(found, n)
            found[n] = node
            n += 1
    return found[:n]


@kernel
def split_ends(tree, lists, domains, node, list_, entries):
    """A leaf's entries as those of its children, whose lists begin at `list_`.

    Blue children have their lists in the order left, low-green, high-green, right: two,
    one, one and two.
    """
    item, value = lists.item, lists.value
    at = tree.leaf[node]
    column = tree.column[node]
    shift = HALVINGS - 1 - np.int64(tree.layer[node])
    lows = lists.start[at]
    size = lists.size[at]
    if tree.kind[node] != BLUE:
        for k in range(size):
            bit = (cell(domains, column, value[lows + k, 0]) >> shift) & 1
            entries.target[k] = list_ + bit
            entries.item[k] = item[lows + k]
            entries.value[k, 0] = value[lows + k, 0]
        return size
    highs = lists.start[at + 1]
    n = 0
    for k in range(size):
        a = (cell(domains, column, value[lows + k, 0]) >> shift) & 1
        b = (cell(domains, column, value[highs + k, 0]) >> shift) & 1
        crossing = a != b
        entries.target[n] = list_ + (2 if crossing else 4 * a)
        entries.target[n + 1] = list_ + (3 if crossing else 4 * a + 1)
        entries.item[n], entries.item[n + 1] = item[lows + k], item[lows + k]
        entries.value[n, 0] = value[lows + k, 0]
        entries.value[n + 1, 0] = value[highs + k, 0]
        n += 2
    return n


# -- bitsets -----------------------------------------------------------------------------


@kernel
def set_vetoes(c, rows, positions, domains, veto, forward, weight):
    """Set the bits of the rows' predicates; adds the bits set to the columns' weights.

    Backward, a cell vetoes the intervals that lie beside it; forward, those that do not
    cover it entirely: their comparisons may take the veto back. Returns how many
    predicates of each row are on columns without bitsets.
    """
    attr, low, high = c.attr, c.low, c.high
    depth, first, bits = veto.depth, veto.first, veto.bits
    margin = 0 if forward else 1
    others = np.zeros(rows.size, np.int64)
    for i in range(rows.size):
        word = positions[i] >> 6
        bit = _ONE << np.uint64(positions[i] & 63)
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = attr[k]
            d = np.int64(depth[column])
            if d < 0:
                others[i] += 1
                continue
            row = np.int64(first[column])
            below = (cell(domains, column, low[k]) >> (HALVINGS - d)) + 1 - margin
            above = (cell(domains, column, high[k]) >> (HALVINGS - d)) + margin
            above = max(above, below)
            for r in range(row, row + below):
                bits[r, word] |= bit
            for r in range(row + above, row + (1 << d) + 1):
                bits[r, word] |= bit
            weight[column] += below + (1 << d) - above
        if others[i] > 0:
            bits[0, word] |= bit
    return others


@kernel
def toggle_vetoes(c, rows, positions, domains, veto, forward, weight):
    """The same for bitsets that are all zero: only where a bit changes from cell to cell.

    To be followed by `spread_vetoes`. Three writes a predicate instead of one a cell.
    """
    attr, low, high = c.attr, c.low, c.high
    depth, first, bits = veto.depth, veto.first, veto.bits
    margin = 0 if forward else 1
    others = np.zeros(rows.size, np.int64)
    for i in range(rows.size):
        word = positions[i] >> 6
        bit = _ONE << np.uint64(positions[i] & 63)
        start = np.int64(c.start[rows[i]])
        for k in range(start, start + np.int64(c.count[rows[i]])):
            column = attr[k]
            d = np.int64(depth[column])
            if d < 0:
                others[i] += 1
                continue
            row = np.int64(first[column])
            below = (cell(domains, column, low[k]) >> (HALVINGS - d)) + 1 - margin
            above = (cell(domains, column, high[k]) >> (HALVINGS - d)) + margin
            above = max(above, below)
            bits[row, word] ^= bit
            if below < 1 << d:
                bits[row + below, word] ^= bit
            if above < 1 << d:
                bits[row + above, word] ^= bit
            bits[row + (1 << d), word] |= bit
            weight[column] += below + (1 << d) - above
        if others[i] > 0:
            bits[0, word] |= bit
    return others


@kernel
def spread_vetoes(veto):
    """Turn the changes from cell to cell into the bits of each cell."""
    bits = veto.bits
    for k in range(veto.order.size):
        row = np.int64(veto.first[veto.order[k]])
        for r in range(row + 1, row + (1 << np.int64(veto.depth[veto.order[k]]))):
            for w in range(bits.shape[1]):
                bits[r, w] ^= bits[r - 1, w]


# -- walking -----------------------------------------------------------------------------


@kernel
def walk(tree, column, place, depth, forward, nodes, tests):
    """The nodes that decide about a value in cell `place`, and what to compare there.

    Forward: nodes whose intervals may match; backward: those that may not. Nodes without
    any comparison are left out down to layer `depth`: bitsets know them. Returns how many.
    """
    child = tree.child
    n = 0
    node = np.int64(tree.root[column])
    layer = 0
    while child[node] >= 0:
        base = np.int64(child[node])
        bit = (place >> (HALVINGS - 1 - layer)) & 1
        layer += 1
        green = base + 1 + bit
        below = layer
        while child[green] >= 0:
            b = (place >> (HALVINGS - 1 - below)) & 1
            below += 1
            # The sibling holds lows left or highs right of the value, or the reverse.
            if below > depth and (b != bit) == forward:
                nodes[n], tests[n] = child[green] + 1 - b, ALL
                n += 1
            green = np.int64(child[green]) + b
        nodes[n], tests[n] = green, LOW + bit
        n += 1
        if not forward and layer > depth:
            nodes[n], tests[n] = base + 3 * (1 - bit), ALL
            n += 1
        node = base + 3 * bit
    nodes[n], tests[n] = node, BOTH
    return n + 1


#: Nodes that a walk finds at most: two a layer in each green path, and the blue ones.
MOST_NODES = HALVINGS * (HALVINGS + 3)
#: What a traversal of a subtree may keep.
_STACK = 3 * HALVINGS + 8


@kernel
def leaves(tree, nodes, tests, n, lists_of, tests_of, m):
    """Append the lists of n nodes, whole subtrees for those without comparison; their number.

    A crossing interval is met once, at its low end.
    """
    child, leaf, kind = tree.child, tree.leaf, tree.kind
    stack = np.empty(_STACK, np.int64)
    for k in range(n):
        stack[0] = nodes[k]
        top = 1
        while top > 0:
            top -= 1
            node = stack[top]
            base = child[node]
            if base < 0:
                lists_of[m], tests_of[m] = leaf[node], tests[k]
                m += 1
            elif kind[node] == BLUE:
                stack[top], stack[top + 1], stack[top + 2] = base, base + 1, base + 3
                top += 3
            else:
                stack[top], stack[top + 1] = base, base + 1
                top += 2
    return m


@kernel
def count_hits(lists, found, tests, n, value, count):
    """Count a hit for each satisfied entry of n lists; how many entries were compared."""
    start, size, item, end = lists.start, lists.size, lists.item, lists.value
    compared = 0
    for j in range(n):
        at, test = found[j], tests[j]
        first = start[at]
        stop = first + size[at]
        if test == ALL:
            for k in range(first, stop):
                count[np.uint64(item[k])] += 1
            continue
        compared += stop - first
        if test == LOW:
            for k in range(first, stop):
                count[np.uint64(item[k])] += end[k, 0] <= value
        elif test == HIGH:
            for k in range(first, stop):
                count[np.uint64(item[k])] += end[k, 0] >= value
        else:
            highs = start[at + 1] - first
            for k in range(first, stop):
                count[np.uint64(item[k])] += end[k, 0] <= value and value <= end[highs + k, 0]
    return compared


@kernel
def clear_hits(lists, found, tests, n, value, forward, bits):
    """Clear the bit of each entry of n lists that is satisfied (forward) or not (backward)."""
    start, size, item, end = lists.start, lists.size, lists.item, lists.value
    compared = 0
    for j in range(n):
        at, test = found[j], tests[j]
        first = start[at]
        stop = first + size[at]
        if test == ALL:
            for k in range(first, stop):
                clear_bit(bits, item[k])
            continue
        compared += stop - first
        if test == LOW:
            for k in range(first, stop):
                clear_bit_if(bits, item[k], (end[k, 0] <= value) == forward)
        elif test == HIGH:
            for k in range(first, stop):
                clear_bit_if(bits, item[k], (end[k, 0] >= value) == forward)
        else:
            highs = start[at + 1] - first
            for k in range(first, stop):
                holds = end[k, 0] <= value and value <= end[highs + k, 0]
                clear_bit_if(bits, item[k], holds == forward)
    return compared


# -- matching ----------------------------------------------------------------------------


@kernel
def _copy_lines(left, source, row, to):
    """Copy a bitset where something is left; how many lines that are."""
    lines = 0
    for w in range(0, left.size, LINE):
        some = _NONE
        for j in range(w, w + LINE):
            some |= left[j]
        if some != _NONE:
            lines += 1
            for j in range(w, w + LINE):
                to[j] = source[row, j]
    return lines


@kernel
def _veto(left, bits):
    """Take a bitset out of what is left."""
    for w in range(left.size):
        left[w] &= ~bits[w]


@kernel
def _veto_row(left, bits, row):
    """Take a row of bitsets out of what is left."""
    for w in range(left.size):
        left[w] &= ~bits[row, w]


@kernel
def match_forward(live, row, need, domains, tree, veto, lists, batch, at, counters):
    """Forward matching: fDI-Tree where no column has bitsets, fDI-Tree-o where they do.

    Columns without bitsets are counted first: who has all its predicates on them
    satisfied joins those that have none. Then each column with bitsets takes out its
    vetoes, less those that the comparisons in its leaves lift.
    """
    nodes = np.empty(MOST_NODES, np.int64)
    tests = np.empty(MOST_NODES, np.int8)
    found = np.empty(tree.node.size, np.int32)
    found_tests = np.empty(tree.node.size, np.int8)
    left = live.copy()
    _veto_row(left, veto.bits, 0)
    dense = np.full(tree.root.size, np.nan)
    counted = False
    for e in range(batch.start[at], batch.start[at + 1]):
        if batch.attr[e] < dense.size:
            dense[batch.attr[e]] = batch.value[e]
            counted = counted or veto.depth[batch.attr[e]] < 0
    if counted:
        count = np.zeros(need.size, need.dtype)
        for e in range(batch.start[at], batch.start[at + 1]):
            column = batch.attr[e]
            if column >= dense.size or veto.depth[column] >= 0:
                continue
            value = dense[column]
            if np.isnan(value):
                continue
            n = walk(tree, column, cell(domains, column, value), -1, True, nodes, tests)
            m = leaves(tree, nodes, tests, n, found, found_tests, 0)
            counters[0] += m
            counters[1] += count_hits(lists, found, found_tests, m, value, count)
        for position in reached(count, need):
            set_bit(left, position)
    bits = np.empty(left.size, np.uint64)
    for k in range(veto.order.size):
        column = veto.order[k]
        d = np.int64(veto.depth[column])
        value = dense[column]
        if np.isnan(value):
            _veto_row(left, veto.bits, veto.first[column] + (1 << d))
            continue
        place = cell(domains, column, value)
        lines = _copy_lines(left, veto.bits, veto.first[column] + (place >> (HALVINGS - d)), bits)
        if lines == 0:
            break
        n = walk(tree, column, place, d, True, nodes, tests)
        m = leaves(tree, nodes, tests, n, found, found_tests, 0)
        counters[0] += m
        counters[1] += clear_hits(lists, found, found_tests, m, value, True, bits)
        _veto(left, bits)
    answer = members(left, row)
    counters[2] += answer.size
    return answer


@kernel
def match_backward(live, row, domains, tree, veto, lists, batch, at, counters):
    """Backward matching: bDI-Tree where no column has bitsets, bDI-Tree-o where they do."""
    nodes = np.empty(MOST_NODES, np.int64)
    tests = np.empty(MOST_NODES, np.int8)
    found = np.empty(tree.node.size, np.int32)
    found_tests = np.empty(tree.node.size, np.int8)
    left = live.copy()
    e, stop = batch.start[at], batch.start[at + 1]
    for column in range(tree.root.size):
        while e < stop and batch.attr[e] < column:
            e += 1
        d = np.int64(veto.depth[column])
        if e == stop or batch.attr[e] != column or np.isnan(batch.value[e]):
            if d >= 0:
                _veto_row(left, veto.bits, veto.first[column] + (1 << d))
                continue
            nodes[0], tests[0] = tree.root[column], ALL
            n = 1
            value = 0.0
        else:
            value = batch.value[e]
            place = cell(domains, column, value)
            if d >= 0:
                _veto_row(left, veto.bits, veto.first[column] + (place >> (HALVINGS - d)))
            n = walk(tree, column, place, d, False, nodes, tests)
        m = leaves(tree, nodes, tests, n, found, found_tests, 0)
        counters[0] += m
        counters[1] += clear_hits(lists, found, found_tests, m, value, False, left)
    answer = members(left, row)
    counters[2] += answer.size
    return answer
