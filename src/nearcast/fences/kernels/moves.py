"""Regions that follow somebody come to new places, and are judged anew."""

from __future__ import annotations

import numpy as np

from nearcast.fences.kernels.beginnings import enter
from nearcast.fences.kernels.ground import boxes_at, put
from nearcast.fences.kernels.judging import is_beyond, meets
from nearcast.fences.kernels.tables import (
    DONE,
    EXIT_CODE,
    F_NEXT,
    GROUP,
    HEAD,
    HEAP,
    IN,
    MORE_FOUND,
    MORE_HEAP,
    MORE_OUT,
    MORE_PAIRS,
    MORE_SLOTS,
    OCCUPIED,
    OUT,
    STATE,
    T_KIND,
    T_OFFSET,
    TRACK,
    WIDTH,
    Tables,
    find,
    has_counted,
    is_lost,
    lacks,
    remove_pair,
    room_for_pairs,
    tell,
    unpack_tables,
)
from nearcast.fences.kernels.timers import fire_due, is_due
from nearcast.jit import inlined, kernel
from nearcast.kernels import region_grid
from nearcast.kernels.region_grid import in_box


@kernel
def move(tables, fences, xs, ys, coss, sins, ats, numbers, first, globe):
    """Regions come to new places, one after the other; returns how many did, and what it lacks.

    Those of one number belong to one subscriber; before the next, what is overdue happens.
    """
    s = Tables(*unpack_tables(tables))
    for i in range(first, len(fences)):
        if i > 0 and numbers[i] != numbers[i - 1] and is_due(s):
            lacking = fire_due(s, 2 * numbers[i - 1] + 2)
            if lacking:
                return i, lacking
        place = xs[i], ys[i], coss[i], sins[i]
        lacking = _move(s, fences[i], place, ats[i], 2 * numbers[i] + 1, globe)
        if lacking:
            return i, lacking
    return len(fences), DONE


@inlined
def _move(s, fence, place, at, step, globe):
    x, y, cos, sin = place
    group = np.int64(s.fences[fence, GROUP])
    boxes = np.empty((3, 4))
    parts = boxes_at(s, fence, x, y, boxes, globe)
    mask = (1 << s.groups[group, WIDTH]) | (1 << region_grid.EVERYWHERE)
    count = 0
    for i in range(parts):
        count += in_box(
            s.track_slots, s.track_entries, mask, group, boxes[i],
            s.found[min(count, len(s.found)) :],
        )  # fmt: skip
    if count > len(s.found):
        return lacks(s, MORE_FOUND, count)
    if not room_for_pairs(s, count):
        return lacks(s, MORE_PAIRS, count)
    if s.counters[HEAP] + count + 2 > len(s.heap):
        return lacks(s, MORE_HEAP, s.counters[HEAP] + count + 2)
    told = s.counters[OUT] + count
    pair = np.int64(s.fences[fence, HEAD])
    while pair >= 0:
        told += 1
        pair = s.pairs[pair, F_NEXT]
    if told > len(s.out):
        return lacks(s, MORE_OUT, told)
    if 2 * (s.counters[OCCUPIED] + 24) > len(s.slots):
        return lacks(s, MORE_SLOTS, s.counters[OCCUPIED] + 24)

    put(s, fence, group, x, y, cos, sin, boxes, parts)
    pair = np.int64(s.fences[fence, HEAD])
    while pair >= 0:
        after = np.int64(s.pairs[pair, F_NEXT])
        track, state = np.int64(s.pairs[pair, TRACK]), s.pairs[pair, STATE]
        kind, offset = s.tracks[track, T_KIND], s.tracks[track, T_OFFSET]
        tx, ty = s.at_x[track], s.at_y[track]
        if meets(s, fence, kind, offset, tx, ty, globe):
            if state & IN == 0:
                enter(s, fence, track, pair, at, step)
        elif is_beyond(s, fence, kind, offset, tx, ty, globe):
            remove_pair(s, pair)
            if state & IN:
                tell(s, step, fence, track, EXIT_CODE, at)
        pair = after
    for i in range(count):
        track = np.int64(s.found[i])
        if find(s, fence, track) >= 0 or not has_counted(s, fence, track):
            continue
        if is_lost(s, fence, track):
            continue
        kind, offset = s.tracks[track, T_KIND], s.tracks[track, T_OFFSET]
        if meets(s, fence, kind, offset, s.at_x[track], s.at_y[track], globe):
            enter(s, fence, track, -1, at, step)
    return DONE
