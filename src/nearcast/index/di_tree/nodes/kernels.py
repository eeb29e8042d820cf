"""The DI-Tree in flat arrays: planting, posting, splitting, walking.

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
from nearcast.kernels.cells import HALVINGS, cell
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
