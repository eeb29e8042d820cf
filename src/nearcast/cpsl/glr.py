"""The publisher's safe rectangle (Grus §4.6.1, GLR): positions that need not be sent.

A publisher who moves keeps a rectangle that no unary location subscription reaches into. As
long as it stays inside, no subscription can match, and nothing is sent. The map is cut into
cells; the broker answers a position with the boxes that reach into its cell, and the
publisher grows the rectangle among them: `greedy`, nearest boxes first, or by `quadrants`, as the
paper has it: of the boxes' corners in each quadrant those count that no other one dominates. Both
are O(n log n) in the boxes of a cell, and both give one rectangle that is free of them.

Only points are filtered, and only where all subscriptions are bounded: `DIST(R;>;l)` wants
nearly every place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.cpsl import kernels
from nearcast.cpsl.location_index import RegionTest, reach_of
from nearcast.cpsl.operators.spatial import Relations
from nearcast.errors import ValidationError
from nearcast.model.geometry import Box, Point

__all__ = ["METHODS", "SafeRectangles", "check_method", "rectangle"]

F8: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]


#: How a rectangle is grown among boxes.
METHODS = {"greedy": kernels.safe_rectangle, "quadrants": kernels.quadrant_rectangle}


def check_method(field: str, method: object) -> None:
    """Refuse a method that nobody knows."""
    if not isinstance(method, str) or method not in METHODS:
        raise ValidationError(field, method, f"give one of {', '.join(METHODS)}")


def rectangle(place: Point, frame: F8, boxes: F8, method: str) -> Box | None:
    """The safe rectangle of a place inside a frame; None where a box holds it."""
    xmin, ymin, xmax, ymax = METHODS[method](place.x, place.y, frame, boxes)
    safe = xmin < place.x < xmax and ymin < place.y < ymax
    return Box(xmin, ymin, xmax, ymax) if safe else None


def _staircase(test: RegionTest, relations: Relations) -> list[tuple[float, float, float, float]]:
    """Four boxes that cover a disc on a plane with a tenth too much, where one has a quarter."""
    kind, params = test
    if relations.globe or kind != "distance" or len(params[0]) != 1 or params[1] != "<":
        return []
    (x, y), radius = params[0][0], params[2] * (1 + 1e-9)
    angles = [math.pi / 8 * step for step in range(5)]
    halves = [
        (radius * math.cos(low), radius * math.sin(high))
        for low, high in itertools.pairwise(angles)
    ]
    return [(x - w, y - h, x + w, y + h) for w, h in halves]


class SafeRectangles:
    """The boxes of unary location subscriptions by cell, and safe rectangles among them.

    `extent` is the map; outside of it there is no safe rectangle. `cells` is the number of
    columns and of rows: a rectangle never reaches beyond its cell. `method` says how it is grown.
    """

    def __init__(
        self, tests: Iterable[RegionTest], relations: Relations, extent: Box, cells: int,
        method: str = "greedy",
    ) -> None:  # fmt: skip
        check_method("method", method)
        if extent.xmin >= extent.xmax or extent.ymin >= extent.ymax:
            raise ValidationError("extent", extent, "give a box with an area")
        if cells < 1:
            raise ValidationError("cells", cells, "give a positive number")
        boxes: list[tuple[float, float, float, float]] = []
        for test in tests:
            reach = reach_of(test, relations)
            if reach is None:
                raise ValidationError(
                    "tests", test, "a rectangle is safe from bounded regions only"
                )
            boxes += _staircase(test, relations) or reach
        self.extent = extent
        self._method = method
        self._columns = cells
        self._boxes: F8 = np.array(boxes, np.float64).reshape(-1, 4)
        width = (extent.xmax - extent.xmin) / cells
        height = (extent.ymax - extent.ymin) / cells
        frame = np.array([extent.xmin, extent.ymin, width, height, cells, cells], np.float64)
        owners = np.arange(len(self._boxes), dtype=np.int32)
        self._starts, self._members = kernels.fill_grid(self._boxes, owners, frame)

    def around(self, place: Point) -> Box | None:
        """The safe rectangle of a position; None where a region holds it. Its border is unsafe."""
        extent, n = self.extent, self._columns
        inside = extent.xmin <= place.x < extent.xmax and extent.ymin <= place.y < extent.ymax
        if not inside:
            return None
        width, height = (extent.xmax - extent.xmin) / n, (extent.ymax - extent.ymin) / n
        cx = min(n - 1, int((place.x - extent.xmin) / width))
        cy = min(n - 1, int((place.y - extent.ymin) / height))
        left, low = extent.xmin + cx * width, extent.ymin + cy * height
        cell = np.array([left, low, left + width, low + height])
        at = cy * n + cx
        near = self._boxes[self._members[self._starts[at] : self._starts[at + 1]]]
        return rectangle(place, cell, near, self._method)

    def sent(self, movers: npt.NDArray[np.int64], xs: F8, ys: F8, matching: Flags) -> Flags:
        """Which positions of a stream publishers send who keep their safe rectangles.

        `matching` says which positions some region wants. O(boxes of a cell) a position sent.
        """
        extent = self.extent
        frame = np.array([extent.xmin, extent.ymin, extent.xmax, extent.ymax])
        found: Flags = kernels.filter_positions(
            movers, xs, ys, matching, frame, self._columns, self._columns,
            self._starts, self._members, self._boxes, self._method == "quadrants",
        )  # fmt: skip
        return found
