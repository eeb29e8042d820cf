"""`disc`, our method: cells that an event's disc covers in part stay, and the client gets the disc.

Elaps' grid methods leave out every cell that comes within r of an event; a subscriber whose
own cell is among them reports at every step. Here the client tests the nearest discs itself,
so crossing a disc's border is a delivery and nothing else. The outer border is chosen by
the messages that deliver nothing: leaving the region, and events that arrive in the impact
region (`kernels.extra_rate`). The region is longer ahead than behind, as far as the
subscriber's own turns say.
"""

from __future__ import annotations

import math

import numpy as np

from nearcast.mobility import kernels
from nearcast.mobility.grid import Grid, fits, local_window
from nearcast.mobility.plane import EARTH_RADIUS_M, FARTHEST_M, Plane
from nearcast.mobility.situation import (
    Built,
    Look,
    Obstacles,
    Situation,
    ball,
    cell_built,
    on_map,
    rates_on,
    slack,
)
from nearcast.mobility.statistics import TURNS

__all__ = ["MOST_DISCS", "build"]

#: More discs than this are not sent; beyond them, cells that meet an event are left out.
MOST_DISCS = 60
_COSINE = np.cos(np.radians(TURNS))
_ECCENTRICITIES = np.array([0.0, 0.4, 0.6, 0.75, 0.85, 0.92, 0.96])
_NO_TURNS = np.zeros(1)
_FULL = np.ones(1)
_MOST_CELLS = 30_000
_ROUNDS = 6


def build(situation: Situation, look: Look) -> Built:
    """A safe region round a subscriber and its impact region.

    Costs a search of the surroundings or two and a growth over some thousand cells.
    """
    s = situation
    if s.radius > FARTHEST_M / 3 or not s.radius < 1e140:
        return ball(s, look, math.pi * EARTH_RADIUS_M if s.space == "globe" else math.inf)
    directed = s.heading is not None and s.speed > 0
    cosine, weight = (_COSINE, s.turns) if directed else (_NO_TURNS, _FULL)
    shapes = _ECCENTRICITIES if directed else _ECCENTRICITIES[:1]
    place = np.array([s.x]), np.array([s.y])
    density = float(s.rates(*place)[0])
    least = max(s.scale / 64, s.speed * 0.5)
    most = min(max(64 * s.scale, 600 * s.speed), FARTHEST_M / 12)
    if s.space == "planar":
        most = max(64 * s.scale, 600 * s.speed)
    look_to, crowd = max(s.known, 2 * s.scale), 0.0
    found = look(s.x, s.y, look_to + s.radius)
    best = None
    for _ in range(_ROUNDS):
        crowd = found.x.size / (math.pi * (look_to + s.radius) ** 2)
        deliveries = 2 * s.radius * s.speed * crowd
        e, size, _ = kernels.best_shape(
            s.speed, density, s.radius, deliveries, cosine, weight, shapes, least, most
        )
        e, size = _bounded(float(e), float(size), most)
        best = _attempt(s, look, e, size, deliveries, cosine, weight, most)
        if best is not None:
            return best
        look_to *= 2
        found = look(s.x, s.y, look_to + s.radius)
    return ball(s, look, most)


def _bounded(e: float, size: float, most: float) -> tuple[float, float]:
    """A shape whose far end is not beyond `most`."""
    return e, min(size, most * (1 - e))


def _attempt(
    s: Situation, look: Look, e: float, size: float, deliveries: float,
    cosine: np.ndarray, weight: np.ndarray, most: float,
) -> Built | None:  # fmt: skip
    """Search an ellipse's surroundings and grow; look farther where growth wants to go on."""
    built: Built | None = None
    for _ in range(_ROUNDS):
        long = size / (1 - e * e)
        grid, centre, limit = _window(s, e * long, 1.5 * long, size)
        if grid is None:
            return None
        lon, lat = grid.plane.from_map_many(*centre)
        more = slack(s)
        seen = look(float(lon), float(lat), limit + s.radius + grid.cell)
        if seen.x.size > 40 * MOST_DISCS and size > s.scale / 32:
            size /= 2  # so crowded that the region ends at the next few discs anyway
            continue
        built, at_limit = _grown(s, grid, on_map(seen, grid.plane, more), e, deliveries,
                                 cosine, weight, centre, limit, more)  # fmt: skip
        if not at_limit or size * 2 > most:
            return built
        size *= 2
    return built


def _window(
    s: Situation, shift: float, half: float, size: float
) -> tuple[Grid | None, tuple[float, float], float]:
    """A grid that holds the ellipse and its impact region, its centre, and how far it is known."""
    ahead = s.ahead
    if s.lattice is not None and fits(s.lattice, s.x, s.y, s.radius):
        plane, cell = s.lattice.plane, s.lattice.cell
        u, v = plane.to_map(s.x, s.y)
        centre = (u + ahead[0] * shift, v + ahead[1] * shift)
        known = half + 2 * cell
        outer = known + s.radius * plane.stretch + 4 * cell
        if math.hypot(*centre) + 1.5 * outer <= plane.reach_m:
            return s.lattice.window(*centre, outer), centre, known
    cell = max(min(s.scale / 4, size / 8), (half + s.radius) / 100)
    known = half + 2 * cell
    outer = known + s.radius * 1.13 + 4 * cell
    reach = shift + 1.5 * outer
    if s.space == "globe" and reach > FARTHEST_M:
        return None, (0.0, 0.0), 0.0
    plane = Plane(s.space, s.x, s.y, reach)
    centre = (ahead[0] * shift, ahead[1] * shift)
    return local_window(plane, *centre, outer, cell), centre, known


def _grown(
    s: Situation, grid: Grid, seen: Obstacles, e: float, deliveries: float,
    cosine: np.ndarray, weight: np.ndarray, centre: tuple[float, float], limit: float, more: float,
) -> tuple[Built, bool]:  # fmt: skip
    u, v = grid.plane.to_map(s.x, s.y)
    gap = np.hypot(seen.x - u, seen.y - v) - seen.reach
    order = np.argsort(gap, kind="stable")
    seen = Obstacles(seen.x[order], seen.y[order], seen.reach[order])
    discs = min(MOST_DISCS, order.size)
    state = kernels.mark(grid.x0, grid.y0, grid.cell, grid.columns, grid.rows, *seen, discs)
    half = kernels.stamp_of(s.radius * grid.plane.stretch + more, grid.cell)
    beta = -1.0 if s.beta is None else s.beta
    safe, impact, at_limit = kernels.grow(
        grid.x0, grid.y0, grid.cell, grid.columns, grid.rows, u, v, state, half,
        rates_on(grid, s.rates), 2, *s.ahead, e, s.radius, s.speed, deliveries, cosine, weight,
        beta, *centre, limit - grid.cell, _MOST_CELLS,
    )  # fmt: skip
    near = _touching(grid, safe, seen, discs)
    size = math.sqrt(safe.size / math.pi) * grid.cell
    return cell_built(grid, safe, impact, near, size), bool(at_limit)


def _touching(
    grid: Grid, safe: np.ndarray, seen: Obstacles, discs: int
) -> tuple[tuple[float, float, float], ...]:
    """The discs that come near any chosen cell; the others need not be sent."""
    if safe.size == 0 or discs == 0:
        return ()
    near = kernels.touched(
        grid.x0, grid.y0, grid.cell, grid.columns, grid.rows, safe,
        seen.x[:discs], seen.y[:discs], seen.reach[:discs],
    )  # fmt: skip
    chosen = np.flatnonzero(near)
    return tuple(
        (float(seen.x[i]), float(seen.y[i]), float(seen.reach[i])) for i in chosen.tolist()
    )
