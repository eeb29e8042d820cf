"""What a construction is given, and what it gives back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.mobility import kernels
from nearcast.mobility.forms import Form, drawn_bars, form_gaps
from nearcast.mobility.grid import Grid, Lattice
from nearcast.mobility.impact_region import BallImpact, CellImpact, Impact
from nearcast.mobility.plane import Plane, distances
from nearcast.mobility.safe_region import Ball, Bar, Cells, Disc, Shape
from nearcast.mobility.shapes import gap_of, outline_of, spot_of
from nearcast.mobility.statistics import Field
from nearcast.model.geometry import Location, Space

__all__ = [
    "Built",
    "Drawn",
    "Look",
    "Obstacles",
    "Rates",
    "Situation",
    "ball",
    "cell_built",
    "cells_of",
    "holding",
    "on_map",
    "rates_on",
    "slack",
    "states_of",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
_NO_BARS = np.empty((0, 5))


class Obstacles(NamedTuple):
    """Events to keep away from: places, and the distance at which each one is delivered.

    `shapes` are those that are more than a point, with that distance; `formed` are points (x, y)
    that are delivered in a form, not at a distance.
    """

    x: Floats
    y: Floats
    reach: Floats
    shapes: tuple[tuple[Location, float], ...] = ()
    formed: tuple[tuple[Floats, Floats, Form], ...] = ()

    @property
    def size(self) -> int:
        """How many there are."""
        return self.x.size + len(self.shapes) + sum(x.size for x, _, _ in self.formed)

    def rounded(self) -> Obstacles:
        """The same with a circle for each form."""
        if not self.formed:
            return self
        xs, ys, forms = zip(*self.formed, strict=True)
        reach = [np.full(x.size, form.reach) for x, form in zip(xs, forms, strict=True)]
        x, y = np.concatenate([self.x, *xs]), np.concatenate([self.y, *ys])
        return Obstacles(x, y, np.concatenate([self.reach, *reach]), self.shapes)

    def gaps(self, space: Space, x: float, y: float) -> Floats:
        """How far it is from (x, y) to the reach of each one: points, shapes, then those that
        are formed; never too far."""
        near = distances(space, x, y, self.x, self.y)
        shapes = [gap_of(location, space, x, y, reach) for location, reach in self.shapes]
        parts = [near - self.reach, np.array(shapes, np.float64)]
        for xs, ys, form in self.formed:
            away = distances(space, x, y, xs, ys)
            parts.append(form_gaps(form, xs, ys, away, Plane(space, x, y, 0.0)))
        return np.concatenate(parts)


class Drawn(NamedTuple):
    """Obstacles on a map: discs, bars (ax, ay, bx, by, reach), and what bars surround.

    `solids` are bars that surround nothing: they are the obstacle.
    """

    x: Floats
    y: Floats
    reach: Floats
    bars: Floats
    insides: tuple[Floats, ...]
    solids: Floats = _NO_BARS


#: All obstacles that come as near as that to (x, y); others may come along.
Look: TypeAlias = Callable[[float, float, float], Obstacles]
#: Arrivals of wanted events per second and unit of area, at places.
Rates: TypeAlias = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, slots=True)
class Situation:
    """A subscriber at a moment: place, motion, largest radius, and what may arrive where.

    `forms` are what follows it without turning, `round_radius` is the largest radius of the rest
    (negative: there is none), and `turning` says whether some of those are shapes that turn.
    `known` is the size of the last region and `crowd` how many obstacles there were about it, by
    area: hints where to begin. `beta` None is adaptive. `turnover` is how many events of any kind
    arrive per second for each that is live.
    """

    space: Space
    x: float
    y: float
    radius: float
    speed: float
    heading: float | None
    turns: Floats
    rates: Rates | Field
    lattice: Lattice | None = None
    beta: float | None = None
    alpha: float = 0.5
    known: float = 0.0
    crowd: float | None = None
    forms: tuple[Form, ...] = ()
    round_radius: float | None = None
    turning: bool = False
    turnover: float = 0.0

    @property
    def breadth(self) -> float:
        """The radius of a circle that sweeps as much ground as what follows the subscriber."""
        if not self.forms:
            return self.radius
        rest = self.radius if self.round_radius is None else self.round_radius
        return max(rest, *(form.breadth for form in self.forms))

    @property
    def grain(self) -> float:
        """What cells are measured by: the breadth, of what is not too far away from it."""
        return max(self.breadth, self.radius / 8, self.scale if not self.forms else 0.0, self.speed)

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
    """A safe region's shape, its impact region, and what says where the next may begin."""

    shape: Shape
    impact: Impact
    size: float
    crowd: float | None = None


def slack(situation: Situation) -> float:
    """What rounding may take: far below a millimetre at the scale of a city."""
    return 1e-6 + 1e-9 * situation.radius + 1e-12 * (abs(situation.x) + abs(situation.y))


def on_map(obstacles: Obstacles, plane: Plane, more: float) -> Drawn:
    """Obstacles on a map, their reach as long as it may look there."""
    x, y, reach, bars, insides = obstacles.x, obstacles.y, obstacles.reach, [], []
    for location, far in obstacles.shapes:
        outline = outline_of(location, plane, far)
        if outline is None:
            at_x, at_y, extent = spot_of(location, plane.space)
            x, y, reach = np.append(x, at_x), np.append(y, at_y), np.append(reach, extent + far)
            continue
        wide = np.full((len(outline.edges), 1), (far + outline.slop) * plane.stretch + more)
        bars.append(np.hstack([outline.edges, wide]))
        insides.append(outline.polygon)
    solids = [_NO_BARS]
    for xs, ys, form in obstacles.formed:
        drawn, fine = drawn_bars(form, xs, ys, plane)
        drawn[:, 4] += more
        solids.append(drawn)
        x, y = np.append(x, xs[~fine]), np.append(y, ys[~fine])
        reach = np.append(reach, np.full(x.size - reach.size, form.reach))
    u, v = plane.to_map_many(x, y)
    all_bars = np.concatenate(bars) if bars else _NO_BARS
    discs = u, v, reach * plane.stretch + more
    return Drawn(*discs, all_bars, tuple(insides), np.concatenate(solids))


def states_of(grid: Grid, drawn: Drawn, discs: int, bars: int) -> npt.NDArray[np.uint8]:
    """What each cell is; the client tests so many discs and bars itself (`kernels.mark`)."""
    where = (grid.x0, grid.y0, grid.cell, grid.columns, grid.rows)
    state: npt.NDArray[np.uint8] = kernels.mark(*where, drawn.x, drawn.y, drawn.reach, discs)
    if len(drawn.bars):
        kernels.mark_bars(*where, drawn.bars, bars, False, state)
        for polygon in drawn.insides:
            kernels.mark_inside(*where, polygon, state)
    if len(drawn.solids):
        kernels.mark_bars(*where, drawn.solids, bars, True, state)
    return state


def rates_on(grid: Grid, rates: Rates | Field) -> Floats:
    """The arrival rate of each cell, from at most 12 × 12 samples."""
    across = min(12, grid.columns)
    width = grid.columns * grid.cell
    block = width / across
    up = max(1, -(-grid.rows * across // grid.columns))
    us = grid.x0 + (np.arange(across) + 0.5) * block
    vs = grid.y0 + (np.arange(up) + 0.5) * block
    x, y = grid.plane.from_map_many(np.tile(us, up), np.repeat(vs, across))
    found: Floats = kernels.raster_rates(
        grid.x0, grid.y0, grid.cell, grid.columns, grid.rows,
        grid.x0, grid.y0, block, across, up, rates(x, y),
    )  # fmt: skip
    return found


def cells_of(
    grid: Grid, safe: Ints, discs: tuple[Disc, ...] = (), bars: tuple[Bar, ...] = ()
) -> Cells:
    """Chosen cells as runs in z-order, numbered from the corner of their bounding box."""
    plane = grid.plane
    if safe.size == 0:
        return Cells(plane, grid.x0, grid.y0, grid.cell, 0, (), ())
    left, low, side, starts, stops = kernels.z_runs(grid.columns, safe)
    order = (side - 1).bit_length()
    return Cells(
        plane, grid.x0 + left * grid.cell, grid.y0 + low * grid.cell, grid.cell, order,
        tuple(starts.tolist()), tuple(stops.tolist()), discs, bars,
    )  # fmt: skip


def ball(situation: Situation, look: Look, farthest: float) -> Built:
    """The largest ball round the subscriber that no obstacle reaches.

    For radii beyond any map, and for places so near to an obstacle's reach that rounding alone
    decides. At the very place nothing is in reach, or it would have been told: so however
    near an obstacle may be, the ball holds that place, if nothing else. Where a shape turns not
    even that: whoever turns on the spot must tell.
    """
    s = situation
    found = look(s.x, s.y, farthest + s.radius)
    gap = min(farthest, float(found.gaps(s.space, s.x, s.y).min(initial=np.inf)) - slack(s))
    impact = BallImpact(s.space, s.x, s.y, max(gap, 0.0) + s.radius + slack(s))
    least = 0.0 if s.turning else math.ulp(0.0)
    return Built(Ball(s.space, s.x, s.y, max(gap, least)), impact, max(gap, 0.0))


def holding(situation: Situation, look: Look, built: Built) -> Built:
    """What was built if it holds the place it was built for, else the ball that does."""
    s = situation
    return built if built.shape.contains(s.x, s.y) else ball(s, look, s.scale)


def cell_built(
    grid: Grid, safe: Ints, impact: Ints, size: float, discs: tuple[Disc, ...] = (),
    bars: tuple[Bar, ...] = (),
) -> Built:  # fmt: skip
    """A built region of cells."""
    return Built(cells_of(grid, safe, discs, bars), CellImpact.of(grid, impact), size)
