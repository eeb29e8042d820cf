"""iGM and idGM with the cost model as it is printed (Elaps, Eqs 3 to 10 and Algorithm 1).

To show what the repairs of `nearcast.mobility.incremental` bring; nobody should use them. b_m
counts the matching events *inside* the impact region, where by Lemma 4 there are none but in
border cells, so regions flood the space; Eq. 8 with cos θ grows backwards. They are safe all the
same: which cells are, and the impact region, is decided as everywhere.
"""

from __future__ import annotations

import math

import numpy as np

from nearcast.mobility.incremental import MOST_CELLS, is_mapless, open_ball, window_of, with_own
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


def build_igm(situation: Situation, look: Look) -> Built:
    """Safe cells by distance, but for those with b_m > β (1 as printed)."""
    return _grow(situation, look, -1.0)


def build_idgm(situation: Situation, look: Look) -> Built:
    """Safe cells by Eq. 8, but for those with b_m > β; without a heading as iGM."""
    return _grow(situation, look, -1.0 if situation.heading is None else situation.alpha)


def _grow(s: Situation, look: Look, alpha: float) -> Built:
    """As the repaired methods do: a search, and a wider one where growth meets its end."""
    if is_mapless(s):
        return open_ball(s, look)
    known = max(1.3 * s.known, 4 * s.scale)
    while True:
        grid, known, last = window_of(s, known)
        u, v = grid.plane.to_map(s.x, s.y)
        more = slack(s)
        seen = on_map(look(s.x, s.y, known + 1.2 * s.radius + grid.cell), grid.plane, more)
        where = (grid.x0, grid.y0, grid.cell, grid.columns, grid.rows)
        half = stamp_of(s.radius * grid.plane.stretch + more, grid.cell)
        safe, impact, at_limit = grow(
            *where, u, v, states_of(grid, seen, 0, 0), both_ways(half),
            counts_of(*where, seen.x, seen.y), *s.ahead, alpha, _widest(s, known), s.turnover,
            s.speed, 1.0 if s.beta is None else s.beta, known - grid.cell, MOST_CELLS,
        )  # fmt: skip
        if not at_limit or last:
            size = known if safe.size else s.known
            if safe.size:
                far = np.hypot(grid.x0 + (safe % grid.columns + 0.5) * grid.cell - u,
                               grid.y0 + (safe // grid.columns + 0.5) * grid.cell - v)  # fmt: skip
                size = float(far.max())
            return cell_built(grid, safe, with_own(s, grid, impact, half), size)
        known *= 2


def _widest(s: Situation, known: float) -> float:
    """d_max: the greatest distance of two points of the extent, or of what there is."""
    if s.lattice is not None:
        return math.hypot(s.lattice.x1 - s.lattice.x0, s.lattice.y1 - s.lattice.y0)
    return math.pi * EARTH_RADIUS_M if s.space == "globe" else 2 * known
