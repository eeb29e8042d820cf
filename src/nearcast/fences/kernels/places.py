"""Where objects are: tracks of groups with regions that move stand in cells of one width.

A row of `track_entries` is (track, next, one before), as `region_grid.in_box` reads it.
"""

from __future__ import annotations

import numpy as np

from nearcast.fences.kernels.tables import (
    AT,
    LINKED,
    NEVER,
    T_GROUP,
    T_KIND,
    T_OCCUPIED,
    WIDTH,
    Tables,
    unpack_tables,
)
from nearcast.jit import inlined, kernel
from nearcast.kernels import region_grid
from nearcast.kernels.geometry import POINT


@inlined
def _cell_of(s, group, track):
    """The key and cell of a track: by its place, or in the list of those that are extended."""
    number = s.groups[group, WIDTH]
    if s.tracks[track, T_KIND] != POINT:
        return group * 64 + region_grid.EVERYWHERE, np.int64(0)
    width = region_grid._width(number)
    x, y = s.at_x[track] / width, s.at_y[track] / width
    if not (abs(x) < region_grid._FARTHEST and abs(y) < region_grid._FARTHEST):
        return group * 64 + region_grid.EVERYWHERE, np.int64(0)
    return group * 64 + number, region_grid._cell(int(np.floor(x)), int(np.floor(y)))


@inlined
def link(s, group, track):
    """Enter a track by its place; there is room."""
    key, cell = _cell_of(s, group, track)
    slots, entries = s.track_slots, s.track_entries
    at = region_grid._seek(slots, key, cell)
    if slots[at, 0] == region_grid.VACANT:
        slots[at, 0], slots[at, 1], slots[at, 2] = key, cell, -1
        s.counters[T_OCCUPIED] += 1
    first = slots[at, 2]
    entries[track, 0], entries[track, 1], entries[track, 2] = track, first, -1
    if first >= 0:
        entries[first, 2] = track
    slots[at, 2] = track
    s.tracks[track, LINKED] = 1


@inlined
def unlink(s, group, track):
    """Take a track out of its cell."""
    if s.tracks[track, LINKED] == 0:
        return
    entries = s.track_entries
    before, after = entries[track, 2], entries[track, 1]
    if before >= 0:
        entries[before, 1] = after
    else:
        key, cell = _cell_of(s, group, track)
        s.track_slots[region_grid._seek(s.track_slots, key, cell), 2] = after
    if after >= 0:
        entries[after, 2] = before
    s.tracks[track, LINKED] = 0


@kernel
def link_track(tables, track):
    """Enter a track by its place; there is room."""
    s = Tables(*unpack_tables(tables))
    link(s, s.tracks[track, T_GROUP], track)


@kernel
def unlink_track(tables, track):
    """Take a track out of its cell."""
    s = Tables(*unpack_tables(tables))
    unlink(s, s.tracks[track, T_GROUP], track)


@kernel
def link_group(tables, group):
    """Enter all tracks of a group anew."""
    s = Tables(*unpack_tables(tables))
    for track in range(len(s.tracks)):
        if s.tracks[track, T_GROUP] == group and s.tracks[track, AT] != NEVER:
            unlink(s, group, track)
            link(s, group, track)
