"""Algorithm 1 as it is printed, compiled."""

from __future__ import annotations

import math

import numpy as np

from nearcast.jit import kernel
from nearcast.mobility.kernels import UNSAFE, _add_impact, _pop, _sift_up


@kernel
def counts_of(x0, y0, cell, columns, rows, xs, ys):
    """φ: how many matching events lie in each cell."""
    found = np.zeros(columns * rows)
    for i in range(xs.size):
        column, row = math.floor((xs[i] - x0) / cell), math.floor((ys[i] - y0) / cell)
        if 0 <= column < columns and 0 <= row < rows:
            found[row * columns + column] += 1.0
    return found


@kernel
def grow(
    x0, y0, cell, columns, px, py, start, state, outside, stamp, count_of, ahead_x, ahead_y, alpha,
    widest, turnover, speed, beta,
):  # fmt: skip
    """Grow a safe region by Eqs 6 to 10 from the cell `start` of (px, py).

    `alpha` < 0 orders cells by distance (iGM), else by α cos θ + (1 − α) d / `widest` (idGM), least
    first. `turnover` is f / n, `count_of` φ. A cell with b_m > `beta` is left out, what it
    added to n_e stays, and the others in the heap go on. There are no cells `outside`: none is
    beside another, and none is waited for. They frame the others, a stamp wide.

    Returns the safe cells and the impact cells.
    """
    size = state.size
    chosen = np.zeros(size, np.bool_)
    seen = outside.copy()
    inside = np.zeros(size, np.bool_)
    safe = np.empty(size, np.int32)
    impact = np.empty(size, np.int32)
    key = np.empty(size, np.float64)
    item = np.empty(size, np.int32)
    key[0], item[0] = 0.0, start
    seen[start] = True
    held, count, found = 1, 0, 0
    events = 0.0
    near = np.empty(4, np.int32)
    gaps = np.empty(4)
    scores = np.empty(4)
    while held > 0:
        _pop(key, item, held)
        held -= 1
        at = item[held]
        if state[at] == UNSAFE:
            continue
        row, column = at // columns, at % columns
        cx, cy = x0 + (column + 0.5) * cell, y0 + (row + 0.5) * cell
        border = np.inf
        fresh = 0
        for k in range(4):
            dx, dy = (1, 0) if k == 0 else (-1, 0) if k == 1 else (0, 1) if k == 2 else (0, -1)
            if seen[at + dx + dy * columns]:
                continue
            nx, ny = cx + dx * cell - px, cy + dy * cell - py
            gap = math.hypot(max(abs(nx) - cell / 2, 0.0), max(abs(ny) - cell / 2, 0.0))
            centre = math.hypot(nx, ny)
            cosine = (nx * ahead_x + ny * ahead_y) / centre if centre > 0.0 else 1.0
            near[fresh] = at + dx + dy * columns
            gaps[fresh] = gap
            scores[fresh] = gap if alpha < 0.0 else alpha * cosine + (1.0 - alpha) * gap / widest
            border = min(border, gap)
            fresh += 1
        if held > 0:
            nx = abs(x0 + (item[0] % columns + 0.5) * cell - px)
            ny = abs(y0 + (item[0] // columns + 0.5) * cell - py)
            border = min(border, math.hypot(max(nx - cell / 2, 0.0), max(ny - cell / 2, 0.0)))
        after, more = _add_impact(at, columns, stamp, inside, impact, found, chosen, count_of)
        events += more
        balance = 0.0
        if events > 0.0 and border > 0.0:
            balance = turnover * events * border / speed if speed > 0.0 else np.inf
        if balance > beta:
            for k in range(found, after):
                inside[impact[k]] = False
            continue
        found = after
        chosen[at] = True
        safe[count] = at
        count += 1
        for k in range(fresh):
            seen[near[k]] = True
            key[held], item[held] = scores[k], near[k]
            _sift_up(key, item, held)
            held += 1
    return safe[:count].copy(), impact[:found].copy()
