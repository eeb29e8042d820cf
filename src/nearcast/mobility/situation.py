"""What a construction is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.mobility import kernels
from nearcast.mobility.grid import Grid, Lattice
from nearcast.mobility.impact_region import BallImpact, CellImpact, Impact
from nearcast.mobility.plane import Plane, distance
from nearcast.mobility.safe_region import Ball, Cells, Shape
from nearcast.model.geometry import Space

__all__ = [
    "Built",
    "Look",
    "Obstacles",
    "Rates",
    "Situation",
    "ball",
    "cells_of",
    "on_map",
    "slack",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


class Obstacles(NamedTuple):
    """Events to keep away from: places, and the distance at which each one is delivered."""

    x: Floats
    y: Floats
    reach: Floats


#: All obstacles whose place is at most so far from (x, y); others may come along.
Look: TypeAlias = Callable[[float, float, float], Obstacles]
#: Arrivals of wanted events per second and unit of area, at places.
Rates: TypeAlias = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, slots=True)
class Situation:
    """A subscriber at a moment: place, motion, largest radius, and what may arrive where.

    `known` is the size of the last region, a hint where to begin. `beta` None is adaptive.
    """

    space: Space
    x: float
    y: float
    radius: float
    speed: float
    heading: float | None
    turns: Floats
    rates: Rates
    lattice: Lattice | None = None
    beta: float | None = None
    alpha: float = 0.5
    known: float = 0.0

    @property
    def scale(self) -> float:
        """The radius, or what a second's way and rounding make of none: cells have a size."""
        least = 1.0 if self.space == "globe" else 1e-9 * (1.0 + abs(self.x) + abs(self.y))
        return max(self.radius, self.speed, least)

    @property
    def ahead(self) -> tuple[float, float]:
        """The heading as a unit vector east and north; (0, 0) if it is not known."""
        if self.heading is None:
            return 0.0, 0.0
        angle = np.radians(self.heading)
        return float(np.sin(angle)), float(np.cos(angle))


class Built(NamedTuple):
    """A safe region's shape, its impact region, and a length that says where the next may begin."""

    shape: Shape
    impact: Impact
    size: float


def slack(situation: Situation) -> float:
    """What rounding may take: far below a millimetre at the scale of a city."""
    return 1e-6 + 1e-9 * situation.radius + 1e-12 * (abs(situation.x) + abs(situation.y))


def on_map(obstacles: Obstacles, plane: Plane, more: float) -> Obstacles:
    """Obstacles on a map, their reach as long as it may look there."""
    x, y = plane.to_map_many(obstacles.x, obstacles.y)
    return Obstacles(x, y, obstacles.reach * plane.stretch + more)


def rates_on(grid: Grid, rates: Rates) -> Floats:
    """The arrival rate of each cell, from at most 24 × 24 samples."""
    across = min(24, grid.columns)
    width = grid.columns * grid.cell
    block = width / across
    up = max(1, -(-grid.rows * across // grid.columns))
    us = grid.x0 + (np.arange(across) + 0.5) * block
    vs = grid.y0 + (np.arange(up) + 0.5) * block
    mesh_u, mesh_v = np.meshgrid(us, vs)
    x, y = grid.plane.from_map_many(mesh_u.ravel(), mesh_v.ravel())
    found: Floats = kernels.raster_rates(
        grid.x0, grid.y0, grid.cell, grid.columns, grid.rows,
        grid.x0, grid.y0, block, across, up, rates(x, y),
    )  # fmt: skip
    return found


def cells_of(grid: Grid, safe: Ints, discs: tuple[tuple[float, float, float], ...] = ()) -> Cells:
    """Chosen cells as runs in z-order, numbered from the corner of their bounding box."""
    plane = grid.plane
    if safe.size == 0:
        return Cells(plane, grid.x0, grid.y0, grid.cell, 0, (), (), ())
    column, row = safe % grid.columns, safe // grid.columns
    left, low = int(column.min()), int(row.min())
    side = max(int(column.max()) - left, int(row.max()) - low) + 1
    order = max(side - 1, 0).bit_length()
    codes = np.sort(kernels.z_order(column - left, row - low))
    breaks = np.flatnonzero(np.diff(codes) > 1)
    starts = codes[np.concatenate(([0], breaks + 1))]
    stops = codes[np.concatenate((breaks, [codes.size - 1]))] + 1
    return Cells(
        plane, grid.x0 + left * grid.cell, grid.y0 + low * grid.cell, grid.cell, order,
        tuple(starts.tolist()), tuple(stops.tolist()), discs,
    )  # fmt: skip


def ball(situation: Situation, look: Look, farthest: float) -> Built:
    """The largest ball round the subscriber that no obstacle reaches; for radii beyond any map."""
    s = situation
    found = look(s.x, s.y, farthest + s.radius)
    gap = farthest
    for x, y, reach in zip(found.x.tolist(), found.y.tolist(), found.reach.tolist(), strict=True):
        gap = min(gap, distance(s.space, s.x, s.y, x, y) - reach - slack(s))
    gap = max(gap, 0.0)
    impact = BallImpact(s.space, s.x, s.y, gap + s.radius + slack(s))
    return Built(Ball(s.space, s.x, s.y, gap), impact, gap)


def cell_built(
    grid: Grid, safe: Ints, impact: Ints, discs: tuple[tuple[float, float, float], ...], size: float
) -> Built:
    """A built region of cells."""
    return Built(cells_of(grid, safe, discs), CellImpact.of(grid, impact), size)
