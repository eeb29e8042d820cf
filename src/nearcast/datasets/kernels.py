"""Compiled helpers of the city: shortest ways through its roads."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from nearcast.jit import kernel

__all__ = ["ways_to"]


@kernel
def ways_to(
    first: NDArray[np.int64],
    head: NDArray[np.int64],
    reverse: NDArray[np.int64],
    cost: NDArray[np.float64],
    targets: NDArray[np.int64],
) -> NDArray[np.int32]:
    """For each target and node, the arc that leads on towards the target (−1 at it).

    Dijkstra from every target backwards: O(targets · arcs · log nodes). `reverse` is each
    arc's opposite; an arc and its opposite cost the same.
    """
    nodes = first.size - 1
    way = np.full((targets.size, nodes), -1, np.int32)
    for row in range(targets.size):
        distance = np.full(nodes, np.inf)
        distance[targets[row]] = 0.0
        heap = [(0.0, targets[row])]
        while len(heap) > 0:
            reached, node = heappop(heap)
            if reached > distance[node]:
                continue
            for arc in range(first[node], first[node + 1]):
                further = reached + cost[arc]
                if further < distance[head[arc]]:
                    distance[head[arc]] = further
                    way[row, head[arc]] = reverse[arc]
                    heappush(heap, (further, head[arc]))
    return way
