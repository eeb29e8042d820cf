"""A region of cells and discs in one call, where all obstacles are points that keep a distance.

The same steps as in `nearcast.mobility.disc`, one after the other without Python between them:
called one by one they take longer to call than to do.
"""

from __future__ import annotations

import math

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.sorting import stable_order
from nearcast.mobility.kernels import (
    both_ways,
    density_at,
    framed,
    grow,
    map_point,
    mark,
    place_of,
    raster_rates,
    stamp_of,
    touched,
    z_runs,
)


@kernel
def _sampled_rates(x0, y0, cell, columns, rows, field, globe, lon0, lat0, sin0, cos0):
    """The arrival rate of each cell, from at most 12 × 12 samples (`situation.rates_on`)."""
    across = min(12, columns)
    block = columns * cell / across
    up = max(1, -(-rows * across // columns))
    density = np.empty(across * up)
    for row in range(up):
        for column in range(across):
            u, v = x0 + (column + 0.5) * block, y0 + (row + 0.5) * block
            x, y = u + lon0, v + lat0
            if globe:
                x, y = place_of(lon0, sin0, cos0, u, v)
            density[row * across + column] = density_at(field, x, y)
    return raster_rates(x0, y0, cell, columns, rows, x0, y0, block, across, up, density)


@kernel
def _single_discs(x, y, reach):
    """Discs of float32 numbers that hold the given ones (`safe_region.single_disc`)."""
    out = np.empty((x.size, 3))
    for i in range(x.size):
        u, v = np.float64(np.float32(x[i])), np.float64(np.float32(y[i]))
        shift, far = math.hypot(u - x[i], v - y[i]), reach[i]
        if not (shift == 0.0 and np.float64(np.float32(far)) == far):
            far = np.float64(np.float32((far + shift) * (1.0 + 2.0**-22) + 1e-30))
        out[i, 0], out[i, 1], out[i, 2] = u, v, far
    return out


@kernel
def _nearest_first(x, y, reach, px, py):
    gap = np.empty(x.size)
    for i in range(x.size):
        gap[i] = math.hypot(x[i] - px, y[i] - py) - reach[i]
    order = stable_order(gap)
    return x[order], y[order], reach[order]


@kernel
def drawn(
    globe, lon0, lat0, sin0, cos0, stretch, x0, y0, cell, columns, rows, px, py,
    obstacle_x, obstacle_y, obstacle_reach, more, discs, field, ahead_x, ahead_y, e, radius, speed,
    deliveries, cosine, weight, beta, centre_x, centre_y, limit, most,
):  # fmt: skip
    """A region about (px, py) of a map: the safe cells and the impact region's, by rows.

    Returns how many cells are safe, their runs (`z_runs`), the discs that touch them, the impact
    region (`framed`), and whether growth met its limit.
    """
    u, v = np.empty(obstacle_x.size), np.empty(obstacle_x.size)
    for i in range(u.size):
        if globe:
            u[i], v[i] = map_point(lon0, sin0, cos0, obstacle_x[i], obstacle_y[i])
        else:
            u[i], v[i] = obstacle_x[i] - lon0, obstacle_y[i] - lat0
    u, v, reach = _nearest_first(u, v, obstacle_reach * stretch + more, px, py)
    state = mark(x0, y0, cell, columns, rows, u, v, reach, discs)
    stamp = both_ways(stamp_of(radius * stretch + more, cell))
    rate = _sampled_rates(x0, y0, cell, columns, rows, field, globe, lon0, lat0, sin0, cos0)
    safe, impact, at_limit = grow(
        x0, y0, cell, columns, rows, px, py, state, stamp, rate, 2, ahead_x, ahead_y, e, radius,
        speed, deliveries, cosine, weight, beta, centre_x, centre_y, limit, most,
    )  # fmt: skip
    runs = z_runs(columns, safe if safe.size else np.zeros(1, np.int32))
    near_x, near_y, near_reach = u[:discs].copy(), v[:discs].copy(), reach[:discs].copy()
    near = touched(x0, y0, cell, columns, rows, safe, near_x, near_y, near_reach)
    sent = _single_discs(near_x[near], near_y[near], near_reach[near])
    return safe.size, runs, sent, framed(columns, impact), at_limit
