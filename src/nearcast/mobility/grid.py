"""Grids: the N × N cells of an extent, and windows of them or of a grid round a subscriber."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nearcast.mobility.plane import FARTHEST_M, Plane
from nearcast.model.geometry import Box, Space

__all__ = ["Grid", "Lattice", "fits", "lattice_of", "local_window"]

#: No window has more cells than this along a side.
WIDEST = 420


@dataclass(frozen=True, slots=True)
class Grid:
    """`columns` × `rows` square cells on a map, from the corner (x0, y0) on."""

    plane: Plane
    x0: float
    y0: float
    cell: float
    columns: int
    rows: int

    def cell_at(self, u: float, v: float) -> int:
        """The cell of a point of the map, or −1 outside."""
        if not (math.isfinite(u) and math.isfinite(v)):
            return -1
        column, row = math.floor((u - self.x0) / self.cell), math.floor((v - self.y0) / self.cell)
        inside = 0 <= column < self.columns and 0 <= row < self.rows
        return row * self.columns + column if inside else -1


@dataclass(frozen=True, slots=True)
class Lattice:
    """The cells that all grids of one extent share."""

    plane: Plane
    x0: float
    y0: float
    x1: float
    y1: float
    cell: float

    def covers(self, u: float, v: float) -> bool:
        """Whether a point of the map lies in the extent."""
        return self.x0 <= u <= self.x1 and self.y0 <= v <= self.y1

    def window(self, u: float, v: float, half: float) -> Grid:
        """The cells within `half` of a point, whole cells, beyond the extent if need be."""
        first = math.floor((u - half - self.x0) / self.cell)
        low = math.floor((v - half - self.y0) / self.cell)
        count = math.ceil(2 * half / self.cell) + 1
        return Grid(
            self.plane, self.x0 + first * self.cell, self.y0 + low * self.cell, self.cell,
            count, count,
        )  # fmt: skip

    def whole(self, margin: int) -> Grid:
        """All cells of the extent with `margin` more on each side."""
        columns = math.ceil((self.x1 - self.x0) / self.cell - 1e-9) + 2 * margin
        rows = math.ceil((self.y1 - self.y0) / self.cell - 1e-9) + 2 * margin
        return Grid(
            self.plane, self.x0 - margin * self.cell, self.y0 - margin * self.cell, self.cell,
            max(columns, 1), max(rows, 1),
        )  # fmt: skip


def lattice_of(extent: Box, space: Space, cells: int) -> Lattice | None:
    """The lattice of `cells` × `cells` over an extent; None where no map of it is true enough.

    On the globe the extent may cross the antimeridian; beyond about 2000 km across, or at a
    pole, grids are local.
    """
    if space == "planar":
        width, height = extent.xmax - extent.xmin, extent.ymax - extent.ymin
        plane = Plane("planar", extent.xmin, extent.ymin, math.inf)
        side = max(width, height)
        return Lattice(plane, 0.0, 0.0, width, height, side / cells) if side > 0 else None
    turn = 360.0 if extent.xmin > extent.xmax else 0.0
    width = extent.xmax + turn - extent.xmin
    if width > 60 or extent.ymax - extent.ymin > 20 or max(-extent.ymin, extent.ymax) > 85:
        return None
    lon, lat = extent.xmin + width / 2, (extent.ymin + extent.ymax) / 2
    lon = (lon + 180.0) % 360.0 - 180.0
    wide = Plane("globe", lon, lat, FARTHEST_M)
    xs, ys = np.meshgrid(extent.xmin + width * np.linspace(0, 1, 9),
                         np.linspace(extent.ymin, extent.ymax, 9))  # fmt: skip
    u, v = wide.to_map_many(xs, ys)
    far = float(np.hypot(u, v).max())
    if not 0 < far < 1_000_000:
        return None
    plane = Plane("globe", lon, lat, min(2 * far, FARTHEST_M))
    x0, y0, x1, y1 = float(u.min()), float(v.min()), float(u.max()), float(v.max())
    return Lattice(plane, x0, y0, x1, y1, max(x1 - x0, y1 - y0) / cells)


def fits(lattice: Lattice | None, x: float, y: float, radius: float) -> bool:
    """Whether a subscriber's regions can use the lattice: inside, with cells ≤ radius/4."""
    if lattice is None or lattice.cell > radius / 4 * 1.000001:
        return False
    reach = lattice.plane.reach_m
    if 3 * radius > reach:
        return False
    return lattice.covers(*lattice.plane.to_map(x, y))


def local_window(plane: Plane, u: float, v: float, half: float, cell: float) -> Grid:
    """A window of cells round a point of a subscriber's own map."""
    count = 2 * math.ceil(half / cell) + 1
    return Grid(plane, u - count / 2 * cell, v - count / 2 * cell, cell, count, count)
