"""`disc`, our method: cells that an event's disc covers in part stay, and the client gets the disc.

Of an extended event the client gets the edges, as bars.

Elaps' grid methods leave out every cell that comes within r of an event; a subscriber whose
own cell is among them reports at every step. Here the client tests the nearest discs itself,
so crossing a disc's border is a delivery and nothing else. The outer border is chosen by
the messages that deliver nothing: leaving the region, and events that arrive in the impact
region (`extra_rate`). The region is longer ahead than behind, as far as the
subscriber's own turns say.
"""

from __future__ import annotations

import math

import numpy as np

from nearcast.mobility.disc.kernels import drawn
from nearcast.mobility.forms import stamp_bars
from nearcast.mobility.grid import Grid, fits, local_window
from nearcast.mobility.impact_region import CellImpact
from nearcast.mobility.kernels import (
    add_bars,
    bar_gaps,
    best_shape,
    both_ways,
    grow,
    stamp_of,
    touched,
    touched_bars,
)
from nearcast.mobility.plane import EARTH_RADIUS_M, FARTHEST_M, Plane
from nearcast.mobility.safe_region import Bar, Cells, Disc, single_bar, single_disc
from nearcast.mobility.situation import (
    Built,
    Drawn,
    Look,
    Obstacles,
    Situation,
    ball,
    cell_built,
    holding,
    on_map,
    rates_on,
    slack,
    states_of,
)
from nearcast.mobility.statistics import TURNS, Field

__all__ = ["MOST_DISCS", "build"]

#: More discs than this are not sent, nor more bars; beyond them, cells that meet an event are
#: left out.
MOST_DISCS = 60
_COSINE = np.cos(np.radians(TURNS))
_ECCENTRICITIES = np.array([0.0, 0.4, 0.6, 0.75, 0.85, 0.92, 0.96])
_NO_TURNS = np.zeros(1)
_FULL = np.ones(1)
_MOST_CELLS = 30_000
_ROUNDS = 6


def build(situation: Situation, look: Look) -> Built:
    """A safe region that holds the subscriber's place, and its impact region.

    Costs a search of the surroundings, two for the first region, and a growth over some
    thousand cells.
    """
    if situation.turning:  # whoever must tell of every turn needs no cells
        near = ball(situation, look, situation.scale)
        if near.size <= 0.0:
            return near
    return holding(situation, look, _built(situation, look))


def _built(s: Situation, look: Look) -> Built:
    if s.radius > FARTHEST_M / 3 or not s.radius < 1e140:
        return ball(s, look, math.pi * EARTH_RADIUS_M if s.space == "globe" else math.inf)
    directed = s.heading is not None and s.speed > 0
    cosine, weight = (_COSINE, s.turns) if directed else (_NO_TURNS, _FULL)
    shapes = _ECCENTRICITIES if directed else _ECCENTRICITIES[:1]
    density = _density(s)
    least = max(s.grain / 64, s.speed * 0.5)
    most = min(max(64 * s.scale, 600 * s.speed), FARTHEST_M / 12)
    if s.space == "planar":
        most = max(64 * s.scale, 600 * s.speed)
    look_to, crowd = max(s.known, 2 * s.scale), s.crowd
    for _ in range(_ROUNDS):
        if crowd is None:
            crowd = _crowd(look(s.x, s.y, look_to + s.radius), look_to + s.radius)
        deliveries = 2 * s.breadth * s.speed * crowd
        e, size, _ = best_shape(
            s.speed, density, s.breadth, deliveries, cosine, weight, shapes, least, most
        )
        e, size = _bounded(float(e), float(size), most)
        best = _attempt(s, look, e, size, deliveries, cosine, weight, most)
        if best is not None:
            return best
        look_to, crowd = 2 * look_to, None
    return ball(s, look, most)


def _density(s: Situation) -> float:
    """What may arrive where the subscriber is."""
    if isinstance(s.rates, Field):
        return s.rates.at(s.x, s.y)
    return float(s.rates(np.array([s.x]), np.array([s.y]))[0])


def _crowd(seen: Obstacles, radius: float) -> float:
    """How many obstacles there are by area."""
    return seen.size / (math.pi * radius * radius)


def _bounded(e: float, size: float, most: float) -> tuple[float, float]:
    """A shape whose far end is not beyond `most`."""
    return e, min(size, most * (1 - e))


def _attempt(
    s: Situation, look: Look, e: float, size: float, deliveries: float,
    cosine: np.ndarray, weight: np.ndarray, most: float,
) -> Built | None:  # fmt: skip
    """Search an ellipse's surroundings and grow; look farther where growth wants to go on."""
    built: Built | None = None
    for tries in range(_ROUNDS):
        long = size / (1 - e * e)
        grid, centre, limit = _window(s, e * long, 1.5 * long, size)
        if grid is None:
            return None
        more = slack(s)
        far = limit + s.radius + grid.cell
        seen = look(*grid.plane.from_map(*centre), far)
        crowded = seen.size > 40 * MOST_DISCS  # it ends at the next few discs anyway
        coarse = bool(seen.shapes) and 1.5 * grid.cell > s.radius  # no bar is tested exactly
        if (crowded or coarse) and size > s.grain / 32 and tries + 1 < _ROUNDS:
            size /= 2
            continue
        rest = e, deliveries, cosine, weight, centre, limit, more
        if isinstance(s.rates, Field) and not (s.forms or seen.shapes or seen.formed):
            built, at_limit = _drawn(s, s.rates, grid, seen, *rest)
        else:
            built, at_limit = _grown(s, grid, on_map(seen, grid.plane, more), *rest)
        built = built._replace(crowd=_crowd(seen, far))
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
    cell = max(min(s.grain / 4, size / 8), (half + s.radius / 2) / 32)
    known = half + 2 * cell
    outer = known + s.radius * 1.13 + 4 * cell
    reach = shift + 1.5 * outer
    if s.space == "globe" and reach > FARTHEST_M:
        return None, (0.0, 0.0), 0.0
    plane = Plane(s.space, s.x, s.y, reach)
    centre = (ahead[0] * shift, ahead[1] * shift)
    return local_window(plane, *centre, outer, cell), centre, known


def _drawn(
    s: Situation, field: Field, grid: Grid, seen: Obstacles, e: float, deliveries: float,
    cosine: np.ndarray, weight: np.ndarray, centre: tuple[float, float], limit: float, more: float,
) -> tuple[Built, bool]:  # fmt: skip
    """What `_grown` does, where all obstacles are points: in one call."""
    plane, cell = grid.plane, grid.cell
    globe, *tip = plane.frame
    safe, runs, sent, impact, at_limit = drawn(
        globe, *tip, plane.stretch, grid.x0, grid.y0, cell, grid.columns, grid.rows,
        *plane.to_map(s.x, s.y), seen.x, seen.y, seen.reach, more, MOST_DISCS, field, *s.ahead, e,
        s.radius, s.speed, deliveries, cosine, weight, -1.0 if s.beta is None else s.beta, *centre,
        limit - cell, _MOST_CELLS,
    )  # fmt: skip
    left, low, side, starts, stops = runs
    shape = Cells(plane, grid.x0, grid.y0, cell, 0, (), ())
    if safe:
        shape = Cells(
            plane, grid.x0 + left * cell, grid.y0 + low * cell, cell, (side - 1).bit_length(),
            tuple(starts.tolist()), tuple(stops.tolist()), tuple(map(tuple, sent.tolist())),
        )  # fmt: skip
    size = math.sqrt(safe / math.pi) * cell
    return Built(shape, CellImpact.framed(grid, *impact), size), bool(at_limit)


def _grown(
    s: Situation, grid: Grid, seen: Drawn, e: float, deliveries: float,
    cosine: np.ndarray, weight: np.ndarray, centre: tuple[float, float], limit: float, more: float,
) -> tuple[Built, bool]:  # fmt: skip
    u, v = grid.plane.to_map(s.x, s.y)
    seen = _nearest_first(seen, u, v)
    state = states_of(grid, seen, MOST_DISCS, MOST_DISCS)
    stamp = _stamp(s, grid, more)
    beta = -1.0 if s.beta is None else s.beta
    safe, impact, at_limit = grow(
        grid.x0, grid.y0, grid.cell, grid.columns, grid.rows, u, v, state, stamp,
        rates_on(grid, s.rates), 2, *s.ahead, e, s.radius, s.speed, deliveries, cosine, weight,
        beta, *centre, limit - grid.cell, _MOST_CELLS,
    )  # fmt: skip
    size = math.sqrt(safe.size / math.pi) * grid.cell
    near = _touching(grid, safe, seen)
    return cell_built(grid, safe, impact, size, *near), bool(at_limit)


def _stamp(s: Situation, grid: Grid, more: float) -> np.ndarray:
    """Where events may be that somebody in a cell is told of, cell by cell."""
    plane, cell = grid.plane, grid.cell
    whole = stamp_of(s.radius * plane.stretch + more, cell)
    if not s.forms:
        return both_ways(whole)  # type: ignore[no-any-return]
    stamp = np.tile(np.array([1, 0], np.int64), (whole.size, 1))
    rest = -1.0 if s.round_radius is None else s.round_radius
    if rest >= 0.0:
        inner = both_ways(stamp_of(rest * plane.stretch + more, cell))
        rim = (whole.size - len(inner)) // 2
        stamp[rim : rim + len(inner)] = inner
    for form in s.forms:
        bars = stamp_bars(form, plane)
        if bars is None:
            return both_ways(whole)  # type: ignore[no-any-return]
        bars = bars.copy()
        bars[:, 4] += more
        add_bars(stamp, bars, cell)
    return stamp


def _nearest_first(seen: Drawn, u: float, v: float) -> Drawn:
    order = np.argsort(np.hypot(seen.x - u, seen.y - v) - seen.reach, kind="stable")
    bars, solids = _sorted_bars(seen.bars, u, v), _sorted_bars(seen.solids, u, v)
    return Drawn(seen.x[order], seen.y[order], seen.reach[order], bars, seen.insides, solids)


def _sorted_bars(bars: np.ndarray, u: float, v: float) -> np.ndarray:
    if not len(bars):
        return bars
    nearest: np.ndarray = bars[np.argsort(bar_gaps(bars, u, v), kind="stable")]
    return nearest


def _touching(
    grid: Grid, safe: np.ndarray, seen: Drawn
) -> tuple[tuple[Disc, ...], tuple[Bar, ...]]:
    """The discs and bars that come near any chosen cell; the others need not be sent."""
    if safe.size == 0:
        return (), ()
    where = (grid.x0, grid.y0, grid.cell, grid.columns, grid.rows, safe)
    chosen = np.stack([seen.x[:MOST_DISCS], seen.y[:MOST_DISCS], seen.reach[:MOST_DISCS]], axis=1)
    if len(chosen):
        chosen = chosen[touched(*where, *(column.copy() for column in chosen.T))]
    others = np.concatenate([seen.bars[:MOST_DISCS], seen.solids[:MOST_DISCS]])
    if len(others):
        others = others[touched_bars(*where, others)]
    return (
        tuple(single_disc((x, y, r)) for x, y, r in chosen.tolist()),
        tuple(single_bar((ax, ay, bx, by, r)) for ax, ay, bx, by, r in others.tolist()),
    )
