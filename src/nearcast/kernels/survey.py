"""A look at the columns of a table of subscriptions: can it be taken as it is, and how far it goes.

One pass over memory for what NumPy would do in ten, and nobody needs the schema for it.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import inlined, kernel

#: Intervals of a row beyond which it is left to others; with a box they fill a clause.
MOST = 65_533
_ONE = np.uint64(1)
_LOW_BITS = 63


@inlined
def _widen(v, at, lows, highs):
    if -np.inf < v < np.inf:
        lows[at] = min(lows[at], v)
        highs[at] = max(highs[at], v)


@kernel
def survey_runs(offsets, names, low, high, lows, highs):
    """Widen lows … highs, by name, by the finite ends of intervals in runs.

    Returns whether the runs can be taken as they are: every interval has a name and is not
    empty, no name comes twice in a run, and no run is too long. If not, the rest is not seen.
    """
    for i in range(offsets.size - 1):
        begin, end = offsets[i], offsets[i + 1]
        if end - begin > MOST:
            return False
        met = np.uint64(0)
        for k in range(begin, end):
            name, a, b = names[k], low[k], high[k]
            if name < 0 or not (a <= b):  # nor NaN
                return False
            bit = _ONE << np.uint64(name & _LOW_BITS)
            if met & bit != 0:
                for q in range(begin, k):
                    if names[q] == name:
                        return False
            met |= bit
            _widen(a, name, lows, highs)
            _widen(b, name, lows, highs)
    return True


@kernel
def survey_boxes(xmin, ymin, xmax, ymax, globe, boxes, lows, highs):
    """Write boxes row by row, and widen lows … highs, by axis, by their ends.

    Returns whether all can be taken as they are: finite, in order, and on the globe off the
    antimeridian. If not, the rest is not seen.
    """
    for i in range(xmin.size):
        a, b, c, d = xmin[i], ymin[i], xmax[i], ymax[i]
        if not (-np.inf < a <= c < np.inf and -np.inf < b <= d < np.inf):
            return False
        if globe and not (a >= -180.0 and c < 180.0 and b >= -90.0 and d <= 90.0):
            return False
        boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3] = a, b, c, d
        lows[0], highs[0] = min(lows[0], a), max(highs[0], c)
        lows[1], highs[1] = min(lows[1], b), max(highs[1], d)
    return True


@kernel
def recode(codes, known):
    """Put known[code] in the place of each code."""
    for k in range(codes.size):
        codes[k] = known[codes[k]]
