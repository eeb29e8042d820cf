"""Pushing down: what lies in inner nodes of an MX-CIF tree goes to their leaves (LFilter §4.1).

MX-CIF keeps a clause once, in the smallest cell that holds all of its region: cheap to keep, and
every message below that cell reads it. With room for copies some nodes hand their lists down;
those first that spare messages most for each copy.
"""

from __future__ import annotations

import numpy as np

from nearcast.index.pt_quadtree.kernels import ROOT, parts_of
from nearcast.jit import kernel

__all__ = ["pushed"]

_DEEP = 128  # three siblings wait on each of some 30 levels, and one is on top


@kernel
def pushed(box, cell, child, starts, item, extent, room):
    """(start, item): the lists once nodes have pushed theirs down, for at most `room` more copies.

    A node pushes all of its list or nothing. A copy goes down until it is at a leaf or covers a
    whole cell. What is spared is counted as area: a message at a place of the node reads only
    the copies that lie there. Linear in the places, and n log n in the nodes.
    """
    nodes = child.size
    stack = np.empty(_DEEP, np.int64)
    into = np.empty(1024, np.int64)
    spared = np.zeros(nodes)
    copies = np.zeros(nodes, np.int64)
    for node in range(ROOT, nodes):
        if child[node] == 0:
            continue
        for k in range(starts[node], starts[node + 1]):
            into, n = _ends(box, item[k], cell, child, extent, node, stack, into)
            left = _area(cell, extent, node)
            for e in range(n):
                left -= _area(cell, extent, into[e])
            spared[node] += left
            copies[node] += n - 1
    worth = np.full(nodes, -1.0)
    for node in range(ROOT, nodes):
        if spared[node] > 0:
            worth[node] = spared[node] / max(copies[node], 1)
    pushes = np.zeros(nodes, np.bool_)
    for node in np.argsort(-worth):
        if worth[node] > 0 and copies[node] <= room:
            pushes[node] = True
            room -= copies[node]
    home = np.empty(box.shape[0], np.int64)
    for node in range(nodes):
        for k in range(starts[node], starts[node + 1]):
            home[item[k]] = node
    begin = np.zeros(nodes + 1, np.int64)
    for i in range(home.size):
        if pushes[home[i]]:
            into, n = _ends(box, i, cell, child, extent, home[i], stack, into)
            for e in range(n):
                begin[into[e] + 1] += 1
        else:
            begin[home[i] + 1] += 1
    for node in range(nodes):
        begin[node + 1] += begin[node]
    fill = begin[:nodes].copy()
    placed = np.empty(begin[nodes], np.int32)
    for i in range(home.size):  # ascending, as lists are
        if pushes[home[i]]:
            into, n = _ends(box, i, cell, child, extent, home[i], stack, into)
        else:
            into[0] = home[i]
            n = 1
        for e in range(n):
            placed[fill[into[e]]] = i
            fill[into[e]] += 1
    return begin, placed


@kernel
def _ends(box, i, cell, child, extent, node, stack, into):
    """(into, how many): where box i ends when it is pushed down from a node that holds it."""
    n = 0
    stack[0] = node
    top = 1
    while top > 0:
        top -= 1
        at = stack[top]
        below = child[at]
        parts = 0
        if below > 0:
            parts = parts_of(
                box, i,
                max(cell[at, 0], extent[0]), max(cell[at, 1], extent[1]),
                min(cell[at, 2], extent[2]), min(cell[at, 3], extent[3]),
                cell[below + 3, 0], cell[below + 3, 1], False,
            )  # fmt: skip
        if parts == 0:
            if n == into.size:
                longer = np.empty(2 * n, np.int64)
                longer[:n] = into
                into = longer
            into[n] = at
            n += 1
            continue
        for q in range(4):
            if (parts >> q) & 1:
                stack[top] = below + q
                top += 1
    return into, n


@kernel
def _area(cell, extent, node):
    """The area of a cell within the extent."""
    x0, y0 = max(cell[node, 0], extent[0]), max(cell[node, 1], extent[1])
    x1, y1 = min(cell[node, 2], extent[2]), min(cell[node, 3], extent[3])
    return (x1 - x0) * (y1 - y0)
