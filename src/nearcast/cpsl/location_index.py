"""Unary location subscriptions by operator, primitive and place (Grus §4.6.2).

Regions are kept in three levels: the operator, the primitive below it, and, where a group
is large, a grid of cells over the boxes of its regions (a fixed grid instead of the
paper's R-tree: one multiplication finds the cell of a position). Small groups are
compared one by one, in the same compiled pass. `scan` is the plain version: every position
against every region.
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
from nearcast.kernels import geometry
from nearcast.matcher.places import Bounds, index_boxes, pieces
from nearcast.model.geometry import Circle

__all__ = ["LocationIndex", "RegionTest", "reach_of"]

F8: TypeAlias = npt.NDArray[np.float64]
I4: TypeAlias = npt.NDArray[np.int32]
_FEW = 32  # regions of a group that are cheaper to compare than to look up
_PER_CELL = 2  # cells a region: more make lookups shorter and the grid larger
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
    """Tests as flat arrays, in rows."""

    def __init__(self, tests: Iterable[RegionTest], relations: Relations) -> None:
        ops, limits, kinds, offsets, cxs, cys = [], [], [], [], [], []
        floats: list[F8] = []
        used = 0
        for kind, params in tests:
            shape = region_shape(params[0])
            distance = kind == "distance"
            ops.append(_DISTANCE[params[1]] if distance else _OPS[kind])
            limits.append(params[2] if distance else 0.0)
            kinds.append(shape[0])
            offsets.append(used)
            x, y = kernels.centre_of(shape[0], shape[1], 0)
            cxs.append(float(x))
            cys.append(float(y))
            floats.append(shape[1])
            used += shape[1].size
        self.size = len(ops)
        self.arrays = (
            np.array(ops, np.int64),
            np.array(limits, np.float64),
            np.full(len(ops), relations.tolerance),
            np.array(kinds, np.int64),
            np.array(offsets, np.int64),
            np.array(cxs, np.float64),
            np.array(cys, np.float64),
            np.concatenate(floats) if floats else np.empty(0),
        )

    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays)


class _Grid:
    """The cells of one large group; regions without bounds are compared with every position."""

    def __init__(self, tests: list[RegionTest], relations: Relations) -> None:
        boxes: list[Bounds] = []
        owners: list[int] = []
        for row, test in enumerate(tests):
            for box in reach_of(test, relations) or [_WORLD]:
                boxes.append(box)
                owners.append(row)
        table = np.array(boxes, np.float64).reshape(-1, 4)
        self.tests = _Tests(tests, relations)
        self.frame = _frame(table, len(tests))
        self.starts, self.regions = kernels.fill_grid(table, np.array(owners, np.int32), self.frame)

    def lookup(self, xs: F8, ys: F8, globe: bool) -> tuple[I4, I4]:
        found: tuple[I4, I4] = kernels.grid_lookup(
            self.tests.arrays, self.frame, self.starts, self.regions, xs, ys, globe
        )
        return found

    def nbytes(self) -> int:
        return self.tests.nbytes() + int(self.starts.nbytes + self.regions.nbytes)


def _frame(boxes: F8, regions: int) -> F8:
    """Lower left corner, cell size, columns and rows, for about `_PER_CELL` cells a region."""
    (xmin, ymin), (xmax, ymax) = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    side = max(1, min(4096, math.isqrt(_PER_CELL * regions)))
    width, height = max(xmax - xmin, 1e-9) / side, max(ymax - ymin, 1e-9) / side
    return np.array([xmin, ymin, width, height, side, side], np.float64)


class LocationIndex:
    """Which unary location subscriptions a plain event at a point satisfies.

    Subscriptions are added under a number; the arrays are made anew by `prepare`, at the latest
    at the first lookup after a change. A lookup costs O(1 + regions in the position's cell) a
    group.
    """

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self._groups: dict[int, dict[int, RegionTest]] = {}  # by primitive, by number
        self._changed = True
        self._small: _Tests | None = None
        self._small_numbers: I4 = np.empty(0, np.int32)
        self._spans: dict[int, tuple[int, int]] = {}
        self._large: dict[int, list[tuple[_Grid, I4]]] = {}

    def add(self, number: int, primitive: int, test: RegionTest) -> None:
        """Add a subscription over a primitive."""
        self._groups.setdefault(primitive, {})[number] = test
        self._changed = True

    def remove(self, number: int, primitive: int) -> None:
        """Forget a subscription."""
        members = self._groups[primitive]
        del members[number]
        if not members:
            del self._groups[primitive]
        self._changed = True

    def __contains__(self, primitive: int) -> bool:
        return primitive in self._groups

    def members(self, primitive: int) -> list[int]:
        """The subscriptions over a primitive."""
        return list(self._groups.get(primitive, ()))

    def _build(self) -> None:
        few: list[RegionTest] = []
        numbers: list[int] = []
        self._spans, self._large = {}, {}
        for primitive, every in self._groups.items():
            first = len(few)
            for operator, members in _by_operator(every).items():
                if len(members) < _FEW or operator == ">":
                    few += members.values()
                    numbers += members
                else:
                    grid = _Grid(list(members.values()), self._relations)
                    ids = np.fromiter(members, np.int32, len(members))
                    self._large.setdefault(primitive, []).append((grid, ids))
            if len(few) > first:
                self._spans[primitive] = (first, len(few))
        self._small = _Tests(few, self._relations)
        self._small_numbers = np.array(numbers, np.int32)
        self._changed = False

    def prepare(self) -> None:
        """Make the arrays if there was a change. O(n)."""
        if self._changed:
            self._build()

    def lookup(self, primitives: npt.NDArray[np.int64], xs: F8, ys: F8) -> tuple[I4, I4]:
        """Pairs (row, subscription) of events that passed a primitive, each at a position."""
        self.prepare()
        globe = self._relations.globe
        if globe:
            xs = np.where(xs == 180.0, -180.0, xs)
        rows: list[I4] = []
        found: list[I4] = []
        if self._spans:
            assert self._small is not None
            spans = [self._spans.get(p, (0, 0)) for p in primitives.tolist()]
            table = np.array(spans, np.int64).reshape(-1, 2)
            first, second = kernels.scan_groups(
                self._small.arrays, table[:, 0], table[:, 1], xs, ys, globe
            )
            rows.append(first)
            found.append(self._small_numbers[second])
        for primitive, grids in self._large.items():
            at = np.flatnonzero(primitives == primitive)
            for grid, numbers in grids if at.size else ():
                first, second = grid.lookup(xs[at], ys[at], globe)
                rows.append(at[first].astype(np.int32))
                found.append(numbers[second])
        if len(rows) == 1:
            return rows[0], found[0]
        if not rows:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        return np.concatenate(rows), np.concatenate(found)

    def at(self, primitive: int, x: float, y: float) -> list[int]:
        """`lookup` for one event: the subscriptions over its primitive."""
        self.prepare()
        globe = self._relations.globe
        if globe and x == 180.0:
            x = -180.0
        found: list[int] = []
        span = self._spans.get(primitive)
        if span is not None:
            assert self._small is not None
            rows = kernels.scan_group(self._small.arrays, *span, x, y, globe)
            found += self._small_numbers[rows].tolist()
        for grid, numbers in self._large.get(primitive, ()):
            _, rows = grid.lookup(np.array([x]), np.array([y]), globe)
            found += numbers[rows].tolist()
        return found

    def scan(self, primitive: int, xs: F8, ys: F8) -> tuple[I4, I4]:
        """The plain version: every position against every region over a primitive."""
        members = self._groups[primitive]
        tests = _Tests(members.values(), self._relations)
        numbers = np.fromiter(members, np.int32, len(members))
        rows, found = kernels.scan_regions(tests.arrays, xs, ys, self._relations.globe)
        return rows, numbers[found]

    def nbytes(self) -> int:
        """Bytes of the arrays and of the tests they are made from."""
        self.prepare()
        assert self._small is not None
        kept = sum(232 + 100 * len(members) for members in self._groups.values())
        large = sum(grid.nbytes() + ids.nbytes for g in self._large.values() for grid, ids in g)
        return kept + self._small.nbytes() + self._small_numbers.nbytes + large


def _by_operator(members: dict[int, RegionTest]) -> dict[str, dict[int, RegionTest]]:
    """The subscriptions over a primitive by operator; distances by their comparison."""
    found: dict[str, dict[int, RegionTest]] = {}
    for number, test in members.items():
        operator = str(test[1][1]) if test[0] == "distance" else test[0]
        found.setdefault(operator, {})[number] = test
    return found
