"""Impact regions: where a new matching event would break a safe region (closed, d ≤ r)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nearcast.mobility.grid import Grid
from nearcast.mobility.plane import distance
from nearcast.model.geometry import Space

__all__ = ["AnywhereImpact", "BallImpact", "CellImpact", "Impact"]


class Impact(Protocol):
    """What the tracker asks of an impact region."""

    def covers(self, x: float, y: float) -> bool:
        """Whether an event at this place may break the safe region. Never too small."""

    def around(self) -> tuple[float, float, float] | None:
        """A circle (x, y, radius) that holds all of it; None for everywhere."""


@dataclass(frozen=True, slots=True)
class CellImpact:
    """Cells within r of a safe cell: one look into a bitmap."""

    grid: Grid
    cells: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, grid: Grid, numbers: npt.NDArray[np.int32]) -> CellImpact:
        """From the numbers of its cells."""
        cells = np.zeros(grid.columns * grid.rows, np.bool_)
        cells[numbers] = True
        return cls(grid, cells)

    def covers(self, x: float, y: float) -> bool:
        """Whether the cell of a place belongs to it."""
        at = self.grid.cell_at(*self.grid.plane.to_map(x, y))
        return at >= 0 and bool(self.cells[at])

    def around(self) -> tuple[float, float, float] | None:
        """The circle round its bounding box."""
        rows = self.cells.reshape(self.grid.rows, self.grid.columns)
        across, up = np.flatnonzero(rows.any(axis=0)), np.flatnonzero(rows.any(axis=1))
        if across.size == 0:
            return self.grid.plane.x0, self.grid.plane.y0, -1.0
        g = self.grid
        x0, x1 = g.x0 + across[0] * g.cell, g.x0 + (across[-1] + 1) * g.cell
        y0, y1 = g.y0 + up[0] * g.cell, g.y0 + (up[-1] + 1) * g.cell
        half = math.hypot(x1 - x0, y1 - y0) / 2
        lon, lat = g.plane.from_map_many((x0 + x1) / 2, (y0 + y1) / 2)
        return float(lon), float(lat), half * (1 + 1e-9)


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

    def around(self) -> tuple[float, float, float] | None:
        """Itself."""
        return None if self.radius == math.inf else (self.x, self.y, self.radius)


@dataclass(frozen=True, slots=True)
class AnywhereImpact:
    """Everywhere: any matching event may break the region."""

    def covers(self, x: float, y: float) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def around(self) -> tuple[float, float, float] | None:
        """Everywhere."""
        return None
