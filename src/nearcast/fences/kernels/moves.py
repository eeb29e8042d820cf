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
def move(tables, fences, places, turns, numbers, at, first, globe):
    """Regions come to new places, one after the other; returns how many did, and what it lacks.

    Those of one number belong to one subscriber; before the next, what is overdue happens.
    """
    s = Tables(*unpack_tables(tables))
    for i in range(first, len(fences)):
        if i > 0 and numbers[i] != numbers[i - 1] and is_due(s):
            lacking = fire_due(s, 2 * numbers[i - 1] + 2)
            if lacking:
                return i, lacking
        lacking = _move(s, fences[i], places[i], turns[i], at, 2 * numbers[i] + 1, globe)
        if lacking:
            return i, lacking
    return len(fences), DONE


@inlined
def _near(s, group, boxes, parts):
    """Tracks that may be in boxes, in `found`, some repeatedly; how many, be it more than room."""
    count = 0
    for i in range(parts):
        room = s.found[count:]
        near = in_box(
            s.track_slots, s.track_entries, 1 << s.groups[group, WIDTH], group, boxes[i], room
        )
        if near > len(room):
            return count + near
        for k in range(near):  # a cell is several times as large as the box: most are beside it
            track = room[k]
            x, y = s.at_x[track], s.at_y[track]
            if boxes[i, 0] <= x <= boxes[i, 2] and boxes[i, 1] <= y <= boxes[i, 3]:
                s.found[count] = track
                count += 1
    everywhere = 1 << region_grid.EVERYWHERE
    rest = in_box(s.track_slots, s.track_entries, everywhere, group, boxes[0], s.found[count:])
    return count + rest


@inlined
def _move(s, fence, place, turn, at, step, globe):
    x, y = place[0], place[1]
    group = np.int64(s.fences[fence, GROUP])
    boxes = np.empty((3, 4))
    parts = boxes_at(s, fence, x, y, boxes, globe)
    count = _near(s, group, boxes, parts)
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

    put(s, fence, group, x, y, turn[0], turn[1], boxes, parts)
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
