"""Whether a place is in some of many impact regions."""

from __future__ import annotations

import math

import numpy as np

from nearcast.jit import brief_kernel, kernel
from nearcast.kernels.geometry import EARTH_RADIUS_M, haversine_m

#: What is known of a region: nothing yet, cells, a ball, or only by itself.
NONE, CELLS, BALL, OTHER = 0, 1, 2, 3


@kernel
def _cell_holds(frame, kind, bits, globe, x, y):
    """`CellImpact.covers`: whether the cell of a place belongs to it."""
    u, v = x - frame[0], y - frame[1]
    if globe:
        sin0, cos0 = frame[2], frame[3]
        turn, phi = math.radians(u), math.radians(y)
        sin, cos = math.sin(phi), math.cos(phi)
        east, north = cos * math.sin(turn), cos0 * sin - sin0 * cos * math.cos(turn)
        s = math.hypot(east, north)
        if sin0 * sin + cos0 * cos * math.cos(turn) <= 0.0:
            return False
        angle = math.asin(min(1.0, s))
        if angle * EARTH_RADIUS_M > frame[4]:
            return False
        scale = EARTH_RADIUS_M * (angle / s if s > 0.0 else 1.0)
        u, v = scale * east, scale * north
    across, up = math.floor((u - frame[5]) / frame[7]), math.floor((v - frame[6]) / frame[7])
    if not (0 <= across < kind[1] and 0 <= up < kind[2]):
        return False
    at = np.int64(up) * kind[1] + np.int64(across)
    return bits[kind[3] + (at >> 3)] >> (7 - (at & 7)) & 1 != 0


@brief_kernel
def concerned(slots, frames, kinds, bits, met, globe, x, y):
    """Those of the slots whose region may hold a place; it is counted in `met` for all known ones.

    Also returns how many these are.
    """
    out = np.empty(slots.size, np.int32)
    n, known = 0, 0
    for slot in slots:
        kind = kinds[slot]
        if kind[0] != NONE:
            met[slot] += 1
            known += 1
        if kind[0] == CELLS:
            if not _cell_holds(frames[slot], kind, bits, globe, x, y):
                continue
        elif kind[0] == BALL:
            frame = frames[slot]
            if globe:
                away = haversine_m(x, y, frame[0], frame[1])
            else:
                away = math.hypot(frame[0] - x, frame[1] - y)
            if not away <= frame[2] * (1.0 + 1e-12):
                continue
        out[n] = slot
        n += 1
    return out[:n], known
