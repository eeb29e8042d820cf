"""Unary location subscriptions by primitive and place (Grus §4.6.2).

Regions stand in hashed cells (`nearcast.index.region_grid`) of the primitive below them, instead
of the paper's R-tree: they come and go one at a time, and one cell of each width in use tells
who may want a position. `scan` is the plain version: every position against every region.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.cpsl import kernels
from nearcast.cpsl.instances import Shape, corners
from nearcast.cpsl.operators.spatial import Relations, region_shape
from nearcast.index.columns import Spans, grown
from nearcast.index.region_grid import RegionGrid
from nearcast.kernels import geometry
from nearcast.matcher.places import Bounds, index_boxes, pieces, search_boxes, shape_floats
from nearcast.model.geometry import Circle, Location, Point

__all__ = ["LocationIndex", "RegionTest", "reach_of"]

F8: TypeAlias = npt.NDArray[np.float64]
I4: TypeAlias = npt.NDArray[np.int32]
_WORLD: Bounds = (-180.0, -90.0, 180.0, 90.0)
_QUARTER_M = geometry.EARTH_RADIUS_M * math.pi / 2
_OPS = {
    "happen-in": kernels.HAPPEN_IN,
    "overlap": kernels.OVERLAP,
    "same-place": kernels.SAME_PLACE,
}
_DISTANCE = {"<": kernels.NEARER, "=": kernels.AT, ">": kernels.FARTHER}

#: kind of the operator and its parameters, as in a plan.
RegionTest: TypeAlias = tuple[str, tuple[Any, ...]]


def reach_of(test: RegionTest, relations: Relations) -> list[Bounds] | None:
    """Boxes that hold every point which passes the test; None if nearly all places do."""
    kind, params = test
    shape = region_shape(params[0])
    if kind == "distance" and params[1] == ">":
        return None
    if kind in ("happen-in", "overlap"):
        return _own_boxes(shape, relations)
    if kind == "same-place":
        x, y = kernels.centre_of(shape[0], shape[1], 0)
        return index_boxes(Circle(float(x), float(y), relations.tolerance), relations.space)
    metres = params[2] + (relations.tolerance if params[1] == "=" else 0.0)
    x, y = kernels.centre_of(shape[0], shape[1], 0)
    far = max(relations.distance((0, np.array([x, y])), (0, c)) for c in _border(shape, relations))
    if relations.globe and far > _QUARTER_M:  # what is inside may be farther away than the border
        return [_WORLD]
    # Distances from the centre are true in the projection, so the triangle rule holds there.
    radius = (far + metres) * (1 + 1e-9) + 1e-6
    return index_boxes(Circle(_wrapped(float(x), relations), float(y), radius), relations.space)


def _border(shape: Shape, relations: Relations) -> F8:
    """The corners between which a region's edges are straight where distances are taken."""
    if not relations.globe:
        return corners(shape)
    cut = geometry.segmentized(geometry.as_polygon(shape[0], shape[1], 0))
    found: F8 = cut[1 + int(cut[0]) :].reshape(-1, 2)
    return found


def _wrapped(lon: float, relations: Relations) -> float:
    return (lon + 180.0) % 360.0 - 180.0 if relations.globe else lon


def _own_boxes(shape: Shape, relations: Relations) -> list[Bounds]:
    ring = corners(shape)
    (xmin, ymin), (xmax, ymax) = ring.min(axis=0).tolist(), ring.max(axis=0).tolist()
    return pieces((xmin, ymin, xmax, ymax), relations.space)


class _Tests:
    """Tests as rows of flat arrays, which come and go."""

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self._floats = Spans()
        self._free: list[int] = []
        self.rows = 0
        self.table = kernels.RegionTests(
            np.empty((0, 3), np.int64), np.empty((0, 3)), np.empty(0), relations.tolerance
        )

    def add(self, test: RegionTest) -> int:
        """The row of a new test."""
        kind, params = test
        shape, floats = region_shape(params[0])
        distance = kind == "distance"
        op = _DISTANCE[params[1]] if distance else _OPS[kind]
        offset = self._floats.take(floats.size)
        row = self._free.pop() if self._free else self.rows
        self.rows = max(self.rows, row + 1)
        codes, numbers, pool, tolerance = self.table
        codes, numbers = grown(codes, self.rows), grown(numbers, self.rows)
        pool = grown(pool, self._floats.used)
        codes[row] = op, shape, offset
        numbers[row] = params[2] if distance else 0.0, *kernels.centre_of(shape, floats, 0)
        pool[offset : offset + floats.size] = floats
        self.table = kernels.RegionTests(codes, numbers, pool, tolerance)
        return row

    def remove(self, row: int, test: RegionTest) -> None:
        """Free the row of a test."""
        size = region_shape(test[1][0])[1].size
        self._floats.give_back(int(self.table.codes[row, kernels.OFFSET]), size)
        self._free.append(row)

    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(int(array.nbytes) for array in self.table[:3]) + 40 * len(self._free)


class LocationIndex:
    """Which unary location subscriptions an event that passed a primitive satisfies.

    Subscriptions are added under a number and removed one at a time, at the cost of some
    cells. A lookup costs O(widths of cells in use + regions in those cells).
    """

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self._tests = _Tests(relations)
        self._grid = RegionGrid()
        self._numbers = np.empty(0, np.int32)
        self._members: dict[int, tuple[int, RegionTest]] = {}
        self._groups: dict[int, int] = {}  # primitives that have any, by numbers without gaps
        self._free_groups: list[int] = []

    def add(self, number: int, primitive: int, test: RegionTest) -> None:
        """Add a subscription over a primitive."""
        row = self._tests.add(test)
        group = self._groups.get(primitive)
        if group is None:
            group = self._free_groups.pop() if self._free_groups else len(self._groups)
            self._groups[primitive] = group
        self._grid.add(row, group, reach_of(test, self._relations))
        self._members[number] = row, test
        self._numbers = grown(self._numbers, self._tests.rows)
        self._numbers[row] = number

    def remove(self, number: int, primitive: int) -> None:
        """Forget a subscription."""
        row, test = self._members.pop(number)
        group = self._groups[primitive]
        self._grid.remove(row, group, reach_of(test, self._relations))
        self._tests.remove(row, test)
        if group not in self._grid:
            self._free_groups.append(self._groups.pop(primitive))

    def __len__(self) -> int:
        """The number of subscriptions."""
        return len(self._members)

    def __contains__(self, primitive: int) -> bool:
        return primitive in self._groups

    def lookup(self, primitives: npt.NDArray[np.int64], xs: F8, ys: F8) -> tuple[I4, I4]:
        """Pairs (row, subscription) of events that passed a primitive, each at a position."""
        globe = self._relations.globe
        if globe:
            xs = np.where(xs == 180.0, -180.0, xs)
        known = self._groups
        groups = np.fromiter((known.get(p, -1) for p in primitives.tolist()), np.int64, len(xs))
        rows, found = kernels.lookup_points(
            self._tests.table, self._grid.table, groups, xs, ys, globe
        )
        return rows, self._numbers[found]

    def at(self, primitive: int, location: Location) -> list[int]:
        """The subscriptions over a primitive that an event at a place satisfies."""
        globe, group = self._relations.globe, self._groups.get(primitive, -1)
        if group < 0:
            return []
        if isinstance(location, Point):
            x = -180.0 if globe and location.x == 180.0 else location.x
            found = kernels.lookup_point(
                self._tests.table, self._grid.table, group, x, location.y, globe
            )
        else:
            near = self._grid.near(group, search_boxes(location, self._relations.space))
            kind, floats = shape_floats(location)
            found = kernels.passed_by(self._tests.table, near, kind, np.array(floats), globe)
        numbers: list[int] = self._numbers[found].tolist()
        return numbers

    def scan(self, numbers: Iterable[int], xs: F8, ys: F8) -> tuple[I4, I4]:
        """The plain version: every position against the regions of some subscriptions."""
        rows = np.array([self._members[number][0] for number in numbers], np.int32)
        positions, found = kernels.scan_regions(
            self._tests.table, rows, xs, ys, self._relations.globe
        )
        return positions, self._numbers[found]

    def nbytes(self) -> int:
        """Bytes of the arrays and of the tests they are made from."""
        kept = 300 * len(self._members)
        return kept + self._tests.nbytes() + self._grid.nbytes() + int(self._numbers.nbytes)
