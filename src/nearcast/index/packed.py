"""Entries in a packed R-tree: what the two rivals that are R-trees share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.kernels import packing
from nearcast.kernels.tokens import Entries

__all__ = ["Packed", "check_packed", "packed"]


class Packed(NamedTuple):
    """The tree of `nearcast.kernels.packing`."""

    order: npt.NDArray[np.int32]
    levels: npt.NDArray[np.int64]
    mbr: npt.NDArray[np.float64]


def packed(entries: Entries) -> Packed:
    """The tree over the boxes of entries. A sort."""
    keys = packing.curve_keys(entries.box)
    order = np.argsort(keys, kind="stable").astype(np.int32)
    levels = packing.levels_of(order.size)
    return Packed(order, levels, packing.hulls(entries.box, order, levels))


def check_packed(tree: Packed, entries: Entries) -> None:
    """Raise AssertionError unless every entry is in one leaf and rectangles fit."""
    assert np.array_equal(np.sort(tree.order), np.arange(entries.row.size))
    boxes = entries.box[tree.order]
    for level in range(tree.levels.size - 1):
        mbr = tree.mbr[tree.levels[level] : tree.levels[level + 1]]
        for node in range(len(mbr)):
            part = boxes[node * packing.FANOUT : (node + 1) * packing.FANOUT]
            assert tuple(mbr[node]) == (*part[:, :2].min(axis=0), *part[:, 2:].max(axis=0))
        boxes = mbr
    assert len(boxes) == 1
