"""Proximity graphs: which points are neighbours in the way crossroads are.

A Gabriel edge has no third point in the circle on its length; an edge of the relative
neighbourhood graph has none nearer to both ends than they are to each other. The first
graph is planar and contains the second, the second contains a minimum spanning tree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["gabriel_edges", "nearest"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_NEIGHBOURS = 14
_CHUNK = 512


def nearest(points: Array, count: int) -> Indices:
    """The `count` nearest other points of each, nearest first: O(n²) in chunks."""
    found = np.empty((len(points), count), np.int64)
    for start in range(0, len(points), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(points)))
        distance = _squares(points[rows], points)
        distance[np.arange(rows.size), rows] = np.inf
        close = np.argpartition(distance, count, axis=1)[:, :count]
        order = np.argsort(np.take_along_axis(distance, close, axis=1), axis=1, kind="stable")
        found[rows] = np.take_along_axis(close, order, axis=1)
    return found


def _squares(left: Array, right: Array) -> Array:
    squares: Array = (left[:, None, 0] - right[None, :, 0]) ** 2
    squares += (left[:, None, 1] - right[None, :, 1]) ** 2
    return squares


def gabriel_edges(points: Array) -> tuple[Indices, NDArray[np.bool_]]:
    """Edges (i, j), i < j, one a row, and which of them are relative neighbours too.

    A point that rules out (i, j) is nearer to i than j is, so i's own list of neighbours
    holds all of them; edges to farther points than the 14 nearest are not looked for.
    """
    near = nearest(points, min(_NEIGHBOURS, len(points) - 1))
    there = points[near]
    reach = ((there - points[:, None]) ** 2).sum(axis=2)  # i to each neighbour, squared
    apart = ((there[:, :, None] - there[:, None]) ** 2).sum(axis=3)  # between neighbours
    between = (reach[:, :, None] + apart < reach[:, None, :]).any(axis=1)
    closer = (np.maximum(reach[:, :, None], apart) < reach[:, None, :]).any(axis=1)
    i, place = np.nonzero(~between)
    edges = np.sort(np.stack([i, near[i, place]], axis=1), axis=1)
    edges, first = np.unique(edges, axis=0, return_index=True)
    return edges, ~closer[i, place][first]
