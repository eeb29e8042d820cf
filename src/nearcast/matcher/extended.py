"""The side R-tree: where an extended location meets the boxes of rows.

Indexes take points. An event whose location is a box or a polygon finds its regions
here, and so does a subscription the extended ones among the live events. The tree is
packed (shapely's STRtree) when first asked for; rows that changed since are candidates
without a test until enough of them make a new packing worth while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.matcher.places import Bounds

__all__ = ["RowTree"]

Boxes = tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]
_FEW = 1024


class RowTree:
    """Rows by their boxes. `current` tells rows and boxes (n, 4); a row may have several."""

    def __init__(self, current: Callable[[], Boxes]) -> None:
        self._current = current
        self._rows = np.empty(0, np.int32)
        self._tree: Any = None
        self._changed: set[int] = set()
        self._packing = Lock()

    def touch(self, rows: Iterable[int]) -> None:
        """Say that rows were added, removed or given other boxes."""
        if self._tree is not None:
            self._changed.update(map(int, rows))

    def forget(self) -> None:
        """Drop the tree; the next search packs a new one."""
        self._tree = None
        self._changed.clear()

    def near(self, boxes: Sequence[Bounds]) -> npt.NDArray[np.int32]:
        """Rows of which a box may meet one of these: none missed, some too many."""
        import shapely

        with self._packing:  # several readers may come at once; one packs for all
            if self._tree is None or len(self._changed) > max(_FEW, self._rows.size // 8):
                self._rows, corners = self._current()
                self._tree = shapely.STRtree(shapely.box(*corners.T))
                self._changed.clear()
        areas = shapely.box(*np.array(boxes).T)
        _, hits = self._tree.query(areas)
        found = np.unique(self._rows[hits])
        if not self._changed:
            return found
        changed = np.array([*self._changed], np.int32)
        return np.union1d(found, changed).astype(np.int32)
