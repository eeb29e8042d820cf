"""iGM and idGM with the cost model as it is printed (Elaps, Eqs 3 to 10 and Algorithm 1).

To show what the repairs of `nearcast.mobility.incremental` bring; nobody should use them. b_m
counts the matching events *inside* the impact region, where by Lemma 4 there are none but in
border cells, so regions flood the space; Eq. 8 with cos θ grows backwards. They are safe all the
same: which cells are, and the impact region, is decided as everywhere.

The space is the extent, and growth ends with it. Where there is no lattice of it, or one of more
than `_MOST_CELLS` cells, the widest window that the repaired methods have stands for the space.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.mobility.grid import Grid, fits
from nearcast.mobility.incremental import is_mapless, open_ball, window_of, with_own
from nearcast.mobility.kernels import both_ways, stamp_of
from nearcast.mobility.plane import EARTH_RADIUS_M
from nearcast.mobility.printed.kernels import counts_of, grow
from nearcast.mobility.situation import (
    Built,
    Look,
    Situation,
    cell_built,
    on_map,
    slack,
    states_of,
)

__all__ = ["build_idgm", "build_igm"]

#: Of the extent and its frame. 32 bytes each while a region is built.
_MOST_CELLS = 4_000_000


def build_igm(situation: Situation, look: Look) -> Built:
    """Safe cells by distance, but for those with b_m > β (1 as printed)."""
    return _grow(situation, look, -1.0)


def build_idgm(situation: Situation, look: Look) -> Built:
    """Safe cells by Eq. 8, but for those with b_m > β; without a heading as iGM."""
    return _grow(situation, look, -1.0 if situation.heading is None else situation.alpha)


def _grow(s: Situation, look: Look, alpha: float) -> Built:
    if is_mapless(s):
        return open_ball(s, look)
    space = _whole(s) or _window(s)
    grid, more = space.grid, slack(s)
    u, v = grid.plane.to_map(s.x, s.y)
    seen = on_map(look(*space.about), grid.plane, more)
    where = (grid.x0, grid.y0, grid.cell, grid.columns)
    half = stamp_of(s.radius * grid.plane.stretch + more, grid.cell)
    safe, impact = grow(
        *where, u, v, _start(space, u, v), states_of(grid, seen, 0, 0), space.outside,
        both_ways(half), counts_of(*where, grid.rows, seen.x, seen.y), *s.ahead, alpha,
        space.widest, s.turnover, s.speed, 1.0 if s.beta is None else s.beta,
    )  # fmt: skip
    size = s.known
    if safe.size:
        far = np.hypot(grid.x0 + (safe % grid.columns + 0.5) * grid.cell - u,
                       grid.y0 + (safe // grid.columns + 0.5) * grid.cell - v)  # fmt: skip
        size = float(far.max())
    return cell_built(grid, safe, with_own(s, grid, impact, half), size)


class _Space(NamedTuple):
    """All cells that there are, in a frame for the impact region of those at the border."""

    grid: Grid
    outside: npt.NDArray[np.bool_]
    """The frame: by cell, whether it is no part of the space."""
    margin: int
    about: tuple[float, float, float]
    """A circle that holds all obstacles of the space."""
    widest: float
    """d_max: the greatest distance of two points of it."""


def _whole(s: Situation) -> _Space | None:
    """The cells of the extent; None without a lattice that fits, or with too many cells."""
    lattice = s.lattice
    if lattice is None or not fits(lattice, s.x, s.y, s.radius):
        return None
    plane = lattice.plane
    if s.radius * plane.stretch > math.sqrt(_MOST_CELLS) / 2 * lattice.cell:
        return None
    margin = math.ceil((s.radius * plane.stretch + slack(s)) / lattice.cell) + 2
    grid = lattice.whole(margin)
    if grid.columns * grid.rows > _MOST_CELLS or min(grid.columns, grid.rows) <= 2 * margin:
        return None
    outside = np.ones((grid.rows, grid.columns), np.bool_)
    outside[margin:-margin, margin:-margin] = False
    middle = plane.from_map(
        grid.x0 + grid.columns * grid.cell / 2, grid.y0 + grid.rows * grid.cell / 2
    )
    wide = math.hypot(grid.columns, grid.rows) * grid.cell / 2
    return _Space(
        grid, outside.ravel(), margin, (*middle, wide + 1.2 * s.radius),
        math.hypot(lattice.x1 - lattice.x0, lattice.y1 - lattice.y0),
    )  # fmt: skip


def _window(s: Situation) -> _Space:
    """The cells that are known in the widest window round the subscriber."""
    grid, known, _ = window_of(s, math.inf)
    u, v = grid.plane.to_map(s.x, s.y)
    east = grid.x0 + (np.arange(grid.columns) + 0.5) * grid.cell - u
    north = grid.y0 + (np.arange(grid.rows) + 0.5) * grid.cell - v
    outside = np.hypot(east, north[:, None]) > known - grid.cell
    widest = math.pi * EARTH_RADIUS_M if s.space == "globe" else 2 * known
    about = s.x, s.y, known + 1.2 * s.radius + grid.cell
    return _Space(grid, outside.ravel(), 0, about, widest)


def _start(space: _Space, u: float, v: float) -> int:
    """The cell of the subscriber; whoever stands on the far border is in the last one."""
    grid, rim = space.grid, space.margin
    column = min(max(math.floor((u - grid.x0) / grid.cell), rim), grid.columns - 1 - rim)
    row = min(max(math.floor((v - grid.y0) / grid.cell), rim), grid.rows - 1 - rim)
    return row * grid.columns + column
