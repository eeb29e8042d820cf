"""Impact regions: where a new matching event would break a safe region (closed, d ≤ r)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nearcast.mobility import kernels
from nearcast.mobility.grid import Grid
from nearcast.mobility.plane import distance
from nearcast.mobility.shapes import gap_of, outline_of
from nearcast.model.geometry import Location, Space

__all__ = ["BallImpact", "CellImpact", "Impact"]


class Impact(Protocol):
    """What the tracker asks of an impact region."""

    def covers(self, x: float, y: float) -> bool:
        """Whether an event at this place may break the safe region. Never too small."""

    def meets(self, location: Location) -> bool:
        """Whether an extended event may break the safe region."""

    def around(self) -> tuple[float, float, float] | None:
        """A circle (x, y, radius) that holds all of it; None for everywhere."""


@dataclass(frozen=True, slots=True)
class CellImpact:
    """Cells within r of a safe cell: one look into a bitmap."""

    grid: Grid
    """No larger than it is."""
    cells: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, grid: Grid, numbers: npt.NDArray[np.int32]) -> CellImpact:
        """From the numbers of its cells."""
        return cls.framed(grid, *kernels.framed(grid.columns, numbers))

    @classmethod
    def framed(cls, grid: Grid, left: int, low: int, box: npt.NDArray[np.bool_]) -> CellImpact:
        """From the part of a grid that holds it."""
        rows, columns = box.shape
        corner = grid.x0 + left * grid.cell, grid.y0 + low * grid.cell
        return cls(Grid(grid.plane, *corner, grid.cell, columns, rows), box.ravel())

    def covers(self, x: float, y: float) -> bool:
        """Whether the cell of a place belongs to it."""
        at = self.grid.cell_at(*self.grid.plane.to_map(x, y))
        return at >= 0 and bool(self.cells[at])

    def meets(self, location: Location) -> bool:
        """Whether a cell that the shape meets belongs to it."""
        circle, g = self.around(), self.grid
        if circle is None or gap_of(location, g.plane.space, *circle) > 0:
            return False
        outline = outline_of(location, g.plane, 0.0)
        if outline is None:
            return True
        where = (g.x0, g.y0, g.cell, g.columns, g.rows)
        rim = outline.slop + 1e-9 * g.cell
        bars = np.hstack([outline.edges, np.full((len(outline.edges), 1), rim)])
        state = np.zeros(self.cells.size, np.uint8)
        kernels.mark_bars(*where, bars, 0, False, state)
        kernels.mark_inside(*where, outline.polygon, state)
        return bool(np.any((state == kernels.UNSAFE) & self.cells))

    def around(self) -> tuple[float, float, float] | None:
        """The circle round its bounding box."""
        g = self.grid
        if not self.cells.size:
            return g.plane.x0, g.plane.y0, -1.0
        x0, x1 = g.x0, g.x0 + g.columns * g.cell
        y0, y1 = g.y0, g.y0 + g.rows * g.cell
        half = math.hypot(x1 - x0, y1 - y0) / 2
        lon, lat = g.plane.from_map((x0 + x1) / 2, (y0 + y1) / 2)
        return lon, lat, half * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class BallImpact:
    """A ball, larger by r than the safe one."""

    space: Space
    x: float
    y: float
    radius: float

    def covers(self, x: float, y: float) -> bool:
        """Whether a place is near enough."""
        return distance(self.space, x, y, self.x, self.y) <= self.radius

    def meets(self, location: Location) -> bool:
        """Whether a shape comes near enough."""
        return gap_of(location, self.space, self.x, self.y, self.radius) <= 0

    def around(self) -> tuple[float, float, float] | None:
        """Itself."""
        return None if self.radius == math.inf else (self.x, self.y, self.radius)
