"""Fixes of moving things, followed one after the other: what to believe, where they stayed.

Both kernels take fixes sorted by track and time, a batch at a time, and keep what they must
remember of the last fix in two small arrays: a track may be cut anywhere.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel
from nearcast.kernels.geometry import haversine_m

#: What `follow` says of a fix.
KEPT, SAME_TIME, TOO_FAST = 0, 1, 2
#: Refused fixes in a row, each within reach of the one before, after which the track is
#: believed to be there.
_ENOUGH = 3

# Places in the memory of whole numbers; TRACK is −1 before the first fix.
TRACK, _TS, _SESSION, _OCCUPIED, _RUN, _RUN_TS = 0, 1, 2, 3, 4, 5
_LON, _LAT, _RUN_LON, _RUN_LAT = 0, 1, 2, 3


def new_memory() -> tuple[np.ndarray, np.ndarray]:
    """The memory of `follow` before the first fix."""
    whole = np.zeros(6, np.int64)
    whole[TRACK] = -1
    return whole, np.zeros(4)


@kernel
def _reachable(lon1, lat1, ts1, lon2, lat2, ts2, max_speed_m_s):
    seconds = (ts2 - ts1) / 1e6
    return haversine_m(lon1, lat1, lon2, lat2) <= max_speed_m_s * seconds


@kernel
def follow(
    track, ts, lon, lat, occupied, max_speed_m_s, gap_us, whole, real, verdict, session, pick_up
):
    """Fill `verdict`, `session` and `pick_up` for each fix.

    A fix at the time of the last one kept is a repeat; one that could not be reached from it
    is too fast, unless it is the third in a row that could be reached from each other. A gap
    of more than `gap_us` begins a session, as does such a jump. A pick-up is the first
    occupied fix after a vacant one of the same session; `occupied` is −1 where unknown.
    """
    for i in range(track.size):
        fresh = track[i] != whole[TRACK]
        jump = False
        if not fresh:
            if ts[i] == whole[_TS]:
                verdict[i] = SAME_TIME
                continue
            if not _reachable(
                real[_LON], real[_LAT], whole[_TS], lon[i], lat[i], ts[i], max_speed_m_s
            ):
                near = whole[_RUN] > 0 and _reachable(
                    real[_RUN_LON], real[_RUN_LAT], whole[_RUN_TS],
                    lon[i], lat[i], ts[i], max_speed_m_s,
                )  # fmt: skip
                whole[_RUN] = whole[_RUN] + 1 if near else 1
                whole[_RUN_TS] = ts[i]
                real[_RUN_LON] = lon[i]
                real[_RUN_LAT] = lat[i]
                if whole[_RUN] < _ENOUGH:
                    verdict[i] = TOO_FAST
                    continue
                jump = True
        if fresh:
            whole[_SESSION] = 0
            whole[_OCCUPIED] = -1
        elif jump or ts[i] - whole[_TS] > gap_us:
            whole[_SESSION] += 1
            whole[_OCCUPIED] = -1
        verdict[i] = KEPT
        session[i] = whole[_SESSION]
        pick_up[i] = occupied[i] == 1 and whole[_OCCUPIED] == 0
        if occupied[i] >= 0:
            whole[_OCCUPIED] = occupied[i]
        whole[TRACK] = track[i]
        whole[_TS] = ts[i]
        whole[_RUN] = 0
        real[_LON] = lon[i]
        real[_LAT] = lat[i]


# The memory of `stays`: the fixes around the anchor so far.
_FIRST_TS, _LAST_TS, _FIXES = 1, 2, 3
_ANCHOR_LON, _ANCHOR_LAT, _EAST, _NORTH = 0, 1, 2, 3


def new_stay() -> tuple[np.ndarray, np.ndarray]:
    """The memory of `stays` before the first fix."""
    whole = np.zeros(4, np.int64)
    whole[TRACK] = -1
    return whole, np.zeros(4)


@kernel
def _east_of(lon, anchor):
    """Degrees east of the anchor, the short way round."""
    return (lon - anchor + 540.0) % 360.0 - 180.0


@kernel
def _end_stay(whole, real, least_us, times, places, found):
    """Note the stay in memory if it was long enough; returns how many there are now."""
    if whole[TRACK] < 0 or whole[_LAST_TS] - whole[_FIRST_TS] < least_us:
        return found
    times[found, 0] = whole[TRACK]
    times[found, 1] = whole[_FIRST_TS]
    times[found, 2] = whole[_LAST_TS]
    times[found, 3] = whole[_FIXES]
    east = real[_EAST] / whole[_FIXES]
    places[found, 0] = (real[_ANCHOR_LON] + east + 540.0) % 360.0 - 180.0
    places[found, 1] = real[_ANCHOR_LAT] + real[_NORTH] / whole[_FIXES]
    return found + 1


@kernel
def stays(track, ts, lon, lat, radius_m, least_us, whole, real, times, places):
    """Stays that ended, as rows of `times` (track, first, last, fixes) and `places` (lon, lat).

    A stay is a run of fixes within `radius_m` of its first one that lasts at least
    `least_us`; its place is their mean. The rows need as much room as there are fixes,
    and one more. Returns how many were found.
    """
    found = 0
    for i in range(track.size):
        same = track[i] == whole[TRACK]
        if same and haversine_m(real[_ANCHOR_LON], real[_ANCHOR_LAT], lon[i], lat[i]) <= radius_m:
            whole[_LAST_TS] = ts[i]
            whole[_FIXES] += 1
            real[_EAST] += _east_of(lon[i], real[_ANCHOR_LON])
            real[_NORTH] += lat[i] - real[_ANCHOR_LAT]
            continue
        found = _end_stay(whole, real, least_us, times, places, found)
        whole[TRACK] = track[i]
        whole[_FIRST_TS] = ts[i]
        whole[_LAST_TS] = ts[i]
        whole[_FIXES] = 1
        real[_ANCHOR_LON] = lon[i]
        real[_ANCHOR_LAT] = lat[i]
        real[_EAST] = 0.0
        real[_NORTH] = 0.0
    return found


@kernel
def last_stay(whole, real, least_us, times, places):
    """The stay that the data ended in, if it was long enough: 1 row or 0."""
    return _end_stay(whole, real, least_us, times, places, 0)
