"""GM, iGM and idGM: Elaps' grid methods, repaired (§3.1, §3.4, §3.5).

A cell is safe when its whole area is farther than r from every obstacle. iGM adds cells in
the order of distance, idGM by Eq. 8 with A = (1 − cos θ)/2 and D = d/(10 r); both stop at
the first b_m > β. GM takes every safe cell of the extent.
"""

from __future__ import annotations

import math

import numpy as np

from nearcast.mobility import kernels
from nearcast.mobility.grid import WIDEST, Grid, fits, local_window
from nearcast.mobility.plane import EARTH_RADIUS_M, FARTHEST_M, Plane
from nearcast.mobility.situation import (
    Built,
    Ints,
    Look,
    Situation,
    ball,
    cell_built,
    on_map,
    rates_on,
    slack,
    states_of,
)

__all__ = [
    "MOST_CELLS",
    "build_gm",
    "build_idgm",
    "build_igm",
    "is_mapless",
    "open_ball",
    "window_of",
    "with_own",
]

_NONE = np.zeros(1)
MOST_CELLS = 60_000


def is_mapless(s: Situation) -> bool:
    """Whether the radius is beyond what a map can carry."""
    return s.radius > FARTHEST_M / 4 or not s.radius < 1e140


def open_ball(s: Situation, look: Look) -> Built:
    """The region of someone whose radius no map can carry: a ball."""
    return ball(s, look, math.pi * EARTH_RADIUS_M if s.space == "globe" else math.inf)


def build_gm(situation: Situation, look: Look) -> Built:
    """Every safe cell of the extent, or of a window as wide as a map allows."""
    s = situation
    if is_mapless(s):
        return open_ball(s, look)
    grid, half = _whole(s)
    more = slack(s)
    wide = math.hypot(grid.columns, grid.rows) * grid.cell / 2
    middle = (grid.x0 + grid.columns * grid.cell / 2, grid.y0 + grid.rows * grid.cell / 2)
    lon, lat = grid.plane.from_map_many(*middle)
    seen = on_map(look(float(lon), float(lat), wide + s.radius * 1.2), grid.plane, more)
    state = states_of(grid, seen, 0, 0)
    free = (state == kernels.FREE).reshape(grid.rows, grid.columns)
    rim = half.size // 2 + 1
    inner = np.zeros_like(free)
    inner[rim : grid.rows - rim, rim : grid.columns - rim] = free[
        rim : grid.rows - rim, rim : grid.columns - rim
    ]
    safe = np.flatnonzero(inner).astype(np.int32)
    impact = np.flatnonzero(kernels.dilate(grid.columns, grid.rows, inner.ravel(), half)).astype(
        np.int32
    )
    return cell_built(grid, safe, with_own(s, grid, impact, half), wide)


def _whole(s: Situation) -> tuple[Grid, np.ndarray]:
    """The grid of GM with a margin for the impact region, and its stamp."""
    more = slack(s)
    if s.lattice is not None and fits(s.lattice, s.x, s.y, s.radius):
        plane = s.lattice.plane
        half = kernels.stamp_of(s.radius * plane.stretch + more, s.lattice.cell)
        return s.lattice.whole(half.size // 2 + 1), half
    cell = s.scale / 4
    outer = 64 * cell
    if s.space == "globe":
        outer = min(outer, FARTHEST_M / 1.5)
    plane = Plane(s.space, s.x, s.y, 1.5 * outer)
    half = kernels.stamp_of(s.radius * plane.stretch + more, cell)
    return local_window(plane, 0.0, 0.0, outer, cell), half


def build_igm(situation: Situation, look: Look) -> Built:
    """Safe cells by distance, to the first b_m > β."""
    return _grow(situation, look, 0, 0.0)


def build_idgm(situation: Situation, look: Look) -> Built:
    """Safe cells by distance and direction, to the first b_m > β; without a heading as iGM."""
    directed = situation.heading is not None
    return _grow(situation, look, 1 if directed else 0, situation.alpha if directed else 0.0)


def _grow(s: Situation, look: Look, kind: int, bend: float) -> Built:
    """Grow in what a search has shown; where growth meets its end, search twice as far."""
    if is_mapless(s):
        return open_ball(s, look)
    known = max(1.3 * s.known, 4 * s.scale)
    beta = 0.0 if s.beta is None else s.beta
    while True:
        grid, known, last = window_of(s, known)
        u, v = grid.plane.to_map(s.x, s.y)
        more = slack(s)
        seen = on_map(look(s.x, s.y, known + 1.2 * s.radius + grid.cell), grid.plane, more)
        state = states_of(grid, seen, 0, 0)
        half = kernels.stamp_of(s.radius * grid.plane.stretch + more, grid.cell)
        safe, impact, at_limit = kernels.grow(
            grid.x0, grid.y0, grid.cell, grid.columns, grid.rows, u, v, state,
            kernels.both_ways(half), rates_on(grid, s.rates), kind, *s.ahead, bend, s.scale,
            s.speed, 0.0, _NONE, _NONE, beta, u, v, known - grid.cell, MOST_CELLS,
        )  # fmt: skip
        if not at_limit or last:
            size = known if safe.size else s.known
            if safe.size:
                far = np.hypot(grid.x0 + (safe % grid.columns + 0.5) * grid.cell - u,
                               grid.y0 + (safe // grid.columns + 0.5) * grid.cell - v)  # fmt: skip
                size = float(far.max())
            return cell_built(grid, safe, with_own(s, grid, impact, half), size)
        known *= 2


def with_own(s: Situation, grid: Grid, impact: Ints, half: np.ndarray) -> Ints:
    """Impact cells, and those that an event in reach of the subscriber's own cell may be in.

    That cell is often not safe. Then the subscriber cannot be silent where it is, and is asked
    whenever something comes within its reach.
    """
    own = grid.cell_at(*grid.plane.to_map(s.x, s.y))
    if own < 0:
        return impact
    row, column = divmod(own, grid.columns)
    high = half.size // 2
    parts = [impact]
    for k, wide in enumerate(half.tolist()):
        at = row + k - high
        if wide >= 0 and 0 <= at < grid.rows:
            first, last = max(column - wide, 0), min(column + wide, grid.columns - 1)
            parts.append(np.arange(at * grid.columns + first, at * grid.columns + last + 1))
    return np.unique(np.concatenate(parts)).astype(np.int32)


def window_of(s: Situation, known: float) -> tuple[Grid, float, bool]:
    """A window known to `known` from the subscriber; whether it cannot be larger."""
    if s.lattice is not None and fits(s.lattice, s.x, s.y, s.radius):
        lattice, cell = s.lattice, s.lattice.cell
        u, v = lattice.plane.to_map(s.x, s.y)
        rim = s.radius * lattice.plane.stretch + 5 * cell
        room = lattice.plane.reach_m / 1.5 - math.hypot(u, v) - rim
        widest = min(WIDEST * cell / 2, room)
        if widest > s.scale:
            known = min(known, widest)
            return lattice.window(u, v, known + rim), known, known >= widest
    cell = s.scale / 4
    widest = WIDEST * cell / 2
    if s.space == "globe":
        widest = min(widest, FARTHEST_M / 1.5 - 1.2 * s.radius - 5 * cell)
    known = min(known, widest)
    outer = known + 1.2 * s.radius + 5 * cell
    plane = Plane(s.space, s.x, s.y, 1.5 * outer)
    return local_window(plane, 0.0, 0.0, outer, cell), known, known >= widest
