"""A packed R-tree: boxes sorted along the Hilbert curve, cut into nodes of equal size.

Leaf i holds the boxes order[i * FANOUT:(i + 1) * FANOUT]; a node of a higher level holds as
many nodes of the level below. Levels lie one after the other, leaves first, the root last.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel

#: Children of a node: a set of them is one 64-bit word.
FANOUT = 64
_BITS = 16


@kernel
def _hilbert(x, y):
    """The place of a cell on the Hilbert curve through 2^16 × 2^16 cells."""
    d = np.int64(0)
    s = np.int64(1) << (_BITS - 1)
    while s > 0:
        rx = np.int64(1) if x & s else np.int64(0)
        ry = np.int64(1) if y & s else np.int64(0)
        d += s * s * ((3 * rx) ^ ry)
        if ry == 0:
            if rx == 1:
                x, y = s - 1 - (x & (s - 1)), s - 1 - (y & (s - 1))
            x, y = y, x
        s >>= 1
    return d


@kernel
def curve_keys(box):
    """Sort keys of boxes by their centres; boxes without end come first, all together."""
    x0, y0, x1, y1 = np.inf, np.inf, -np.inf, -np.inf
    for i in range(box.shape[0]):
        if box[i, 0] > -np.inf:
            x0, y0 = min(x0, box[i, 0]), min(y0, box[i, 1])
            x1, y1 = max(x1, box[i, 2]), max(y1, box[i, 3])
    most = (1 << _BITS) - 1
    sx = most / (x1 - x0) if x1 > x0 else 0.0
    sy = most / (y1 - y0) if y1 > y0 else 0.0
    key = np.empty(box.shape[0], np.int64)
    for i in range(box.shape[0]):
        if box[i, 0] == -np.inf:
            key[i] = -1
            continue
        cx = ((box[i, 0] / 2 + box[i, 2] / 2) - x0) * sx
        cy = ((box[i, 1] / 2 + box[i, 3] / 2) - y0) * sy
        key[i] = _hilbert(
            np.int64(min(max(cx, 0.0), float(most))), np.int64(min(max(cy, 0.0), float(most)))
        )
    return key


@kernel
def levels_of(n):
    """Where each level starts among the nodes; the last number is how many nodes there are."""
    starts = np.zeros(12, np.int64)
    count = 0
    size = n
    levels = 0
    while True:
        size = (size + FANOUT - 1) // FANOUT
        starts[levels] = count
        count += size
        levels += 1
        if size <= 1:
            break
    starts[levels] = count
    return starts[: levels + 1]


@kernel
def hulls(box, order, levels):
    """The rectangle round each node."""
    mbr = np.empty((levels[-1], 4))
    mbr[:, 0], mbr[:, 1] = np.inf, np.inf
    mbr[:, 2], mbr[:, 3] = -np.inf, -np.inf
    for k in range(order.size):
        node, i = k // FANOUT, order[k]
        mbr[node, 0] = min(mbr[node, 0], box[i, 0])
        mbr[node, 1] = min(mbr[node, 1], box[i, 1])
        mbr[node, 2] = max(mbr[node, 2], box[i, 2])
        mbr[node, 3] = max(mbr[node, 3], box[i, 3])
    for level in range(1, levels.size - 1):
        for k in range(levels[level - 1], levels[level]):
            node = levels[level] + (k - levels[level - 1]) // FANOUT
            mbr[node, 0] = min(mbr[node, 0], mbr[k, 0])
            mbr[node, 1] = min(mbr[node, 1], mbr[k, 1])
            mbr[node, 2] = max(mbr[node, 2], mbr[k, 2])
            mbr[node, 3] = max(mbr[node, 3], mbr[k, 3])
    return mbr
