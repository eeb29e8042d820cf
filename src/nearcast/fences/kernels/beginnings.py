"""How pairs begin: an object comes in, a fence begins, or takes up where another left off."""

from __future__ import annotations

import numpy as np

from nearcast.fences.kernels.judging import is_beyond, meets
from nearcast.fences.kernels.tables import (
    AT,
    DONE,
    DOUBT,
    DWELL,
    ENTER_CODE,
    GROUP,
    HEAP,
    IN,
    MORE_HEAP,
    MORE_OUT,
    MORE_PAIRS,
    OUT,
    STATE,
    T_GROUP,
    T_KIND,
    T_OFFSET,
    Tables,
    add_pair,
    changed,
    find,
    has_counted,
    is_lost,
    lacks,
    room_for_pairs,
    tell,
    unpack_tables,
)
from nearcast.fences.kernels.timers import OF_PAIR, push
from nearcast.jit import inlined, kernel


@inlined
def enter(s, fence, track, pair, at, step):
    """An object comes in; returns its pair."""
    if pair >= 0:
        changed(s, track)
        s.pairs[pair, STATE], s.entered[pair] = IN, at
    else:
        pair = add_pair(s, fence, track, IN, at)
    if s.terms[fence, DWELL] >= 0:
        push(s, at + s.terms[fence, DWELL], OF_PAIR, pair)
    tell(s, step, fence, track, ENTER_CODE, at)
    return pair


@kernel
def begin(tables, fence, tracks, step, globe):
    """A fence begins: told of the tracks it holds, if their last positions are live."""
    s = Tables(*unpack_tables(tables))
    if not room_for_pairs(s, len(tracks)):
        return lacks(s, MORE_PAIRS, len(tracks))
    if s.counters[HEAP] + len(tracks) + 2 > len(s.heap):
        return lacks(s, MORE_HEAP, s.counters[HEAP] + len(tracks) + 2)
    if s.counters[OUT] + len(tracks) > len(s.out):
        return lacks(s, MORE_OUT, s.counters[OUT] + len(tracks))
    for i in range(len(tracks)):
        track = np.int64(tracks[i])
        kind, offset = s.tracks[track, T_KIND], s.tracks[track, T_OFFSET]
        if has_counted(s, fence, track) and meets(
            s, fence, kind, offset, s.at_x[track], s.at_y[track], globe
        ):
            enter(s, fence, track, -1, s.tracks[track, AT], step)
    return DONE


@kernel
def recall(tables, fence, track, state, entered):
    """A pair that was kept elsewhere."""
    s = Tables(*unpack_tables(tables))
    if not room_for_pairs(s, 1):
        return lacks(s, MORE_PAIRS, 1)
    if s.counters[HEAP] + 1 > len(s.heap):
        return lacks(s, MORE_HEAP, s.counters[HEAP] + 1)
    pair = add_pair(s, fence, track, state, entered)
    if s.terms[fence, DWELL] >= 0 and state == IN:
        push(s, entered + s.terms[fence, DWELL], OF_PAIR, pair)
    return DONE


@kernel
def doubt(tables, fence, globe):
    """A fence has a place: the tracks it knows only within its margin."""
    s = Tables(*unpack_tables(tables))
    group = np.int64(s.fences[fence, GROUP])
    if not room_for_pairs(s, len(s.tracks)):
        return lacks(s, MORE_PAIRS, len(s.tracks))
    for track in range(len(s.tracks)):
        if s.tracks[track, T_GROUP] != group or not has_counted(s, fence, track):
            continue
        if find(s, fence, track) >= 0 or is_lost(s, fence, track):
            continue
        kind, offset = s.tracks[track, T_KIND], s.tracks[track, T_OFFSET]
        x, y = s.at_x[track], s.at_y[track]
        if meets(s, fence, kind, offset, x, y, globe):
            continue
        if not is_beyond(s, fence, kind, offset, x, y, globe):
            add_pair(s, fence, track, DOUBT, s.tracks[track, AT])
    return DONE
