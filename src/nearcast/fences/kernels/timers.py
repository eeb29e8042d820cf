"""Timers: when a stay is a dwell and a silence a loss.

A timer is (due · 4 + kind, row): by time, dwells before losses. One that does not hold any more
is noticed when it comes up. Those of silence are set once, and again when they come up too soon.
"""

from __future__ import annotations

import numpy as np

from nearcast.fences.kernels.tables import (
    AT,
    BEFORE,
    CLASS_AFTER,
    CLASS_HEAD,
    CLASS_NEXT,
    CLOSED,
    DONE,
    DWELL,
    DWELL_CODE,
    DWELT,
    FENCE,
    FIRST,
    FOREVER,
    FORGOTTEN,
    GIVEN_UP,
    GROUP,
    HEAP,
    IN,
    LONGEST,
    LOST,
    LOST_CODE,
    MORE_HEAP,
    MORE_OUT,
    NEVER,
    OUT,
    SINCE,
    SPAN,
    STATE,
    T_GROUP,
    TIMER,
    TRACK,
    Tables,
    changed,
    find,
    has_counted,
    is_lost,
    is_over,
    lacks,
    remove_pair,
    tell,
    unpack_tables,
)
from nearcast.jit import inlined, kernel

OF_PAIR, OF_TRACK, OF_BOTH = 0, 1, 2


@inlined
def key_of(due, kind):
    """What timers are sorted by."""
    return due * 4 + kind


@inlined
def push(s, due, kind, row):
    """Set a timer; there is room."""
    heap = s.heap
    at = s.counters[HEAP]
    s.counters[HEAP] = at + 1
    key = key_of(due, kind)
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent, 0] <= key:
            break
        heap[at, 0], heap[at, 1] = heap[parent, 0], heap[parent, 1]
        at = parent
    heap[at, 0], heap[at, 1] = key, row


@kernel
def pop(s):
    """Take the first timer away."""
    heap = s.heap
    size = s.counters[HEAP] - 1
    s.counters[HEAP] = size
    key, row = heap[size, 0], heap[size, 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1, 0] < heap[child, 0]:
            child += 1
        if key <= heap[child, 0]:
            break
        heap[at, 0], heap[at, 1] = heap[child, 0], heap[child, 1]
        at = child
    heap[at, 0], heap[at, 1] = key, row


@kernel
def sweep(tables):
    """Keep the timers that hold, and set them up as a heap again."""
    s = Tables(*unpack_tables(tables))
    kept = 0
    old = s.heap[: s.counters[HEAP]].copy()
    s.counters[HEAP] = 0
    for i in range(len(old)):
        if holds(s, old[i, 0] >> 2, old[i, 0] & 3, old[i, 1]):
            push(s, old[i, 0] >> 2, old[i, 0] & 3, old[i, 1])
            kept += 1
    return kept


@kernel
def holds(s, due, kind, row):
    """Whether a timer still says what is true."""
    if kind == OF_PAIR:
        fence = np.int64(s.pairs[row, FENCE])
        if fence < 0 or s.pairs[row, STATE] & (IN | DWELT) != IN:
            return False
        return s.terms[fence, DWELL] >= 0 and s.entered[row] + s.terms[fence, DWELL] == due
    if kind == OF_TRACK:
        return s.tracks[row, T_GROUP] >= 0 and s.tracks[row, TIMER] == due
    fence, track = row >> 32, row & 0xFFFFFFFF
    group = s.fences[fence, GROUP]
    if group < 0 or s.tracks[track, T_GROUP] != group or s.tracks[track, AT] == NEVER:
        return False
    return s.terms[fence, LOST] >= 0 and s.tracks[track, AT] + s.terms[fence, LOST] == due


# --- what is due ----------------------------------------------------------------------------------


@inlined
def reach(s, before, closed):
    """Time has come to a moment, and up to another."""
    s.counters[BEFORE] = max(s.counters[BEFORE], before)
    s.counters[CLOSED] = max(s.counters[CLOSED], closed)


@inlined
def is_due(s):
    """Whether a timer is due, be it one that does not hold any more."""
    return s.counters[HEAP] > 0 and is_over(s, s.heap[0, 0] >> 2)


@kernel
def fire_due(s, step):
    """Everything that is due, in order."""
    while s.counters[HEAP] > 0 and is_over(s, s.heap[0, 0] >> 2):
        due, kind, row = s.heap[0, 0] >> 2, s.heap[0, 0] & 3, s.heap[0, 1]
        if not holds(s, due, kind, row):
            pop(s)
            continue
        if kind == OF_TRACK:
            group = s.tracks[row, T_GROUP]
            needed = s.counters[OUT] + s.groups[group, 0] + 2
            if needed > len(s.out):
                return lacks(s, MORE_OUT, needed)
            pop(s)
            _silent(s, group, row, due, step)
            continue
        if s.counters[OUT] + 2 > len(s.out):
            return lacks(s, MORE_OUT, s.counters[OUT] + 2)
        pop(s)
        if kind == OF_PAIR:
            s.pairs[row, STATE] |= DWELT
            changed(s, np.int64(s.pairs[row, TRACK]))
            tell(s, step, s.pairs[row, FENCE], s.pairs[row, TRACK], DWELL_CODE, due)
        else:
            _lose(s, row >> 32, row & 0xFFFFFFFF, due, step)
            longest = s.groups[np.int64(s.fences[row >> 32, GROUP]), LONGEST]
            at = s.tracks[row & 0xFFFFFFFF, AT]
            _forget(s, row & 0xFFFFFFFF, longest >= 0 and is_over(s, at + longest), step)
    return DONE


@kernel
def _forget(s, track, lost, step):
    """Forget an object if all fences have lost it."""
    if lost:
        tell(s, step, 0, track, FORGOTTEN, 0)
        s.tracks[track, AT] = NEVER
        changed(s, track)


@kernel
def _lose(s, fence, track, due, step):
    """A fence loses an object, if it has counted its last position, and was not told before."""
    if has_counted(s, fence, track) and s.tracks[track, GIVEN_UP] <= s.terms[fence, SINCE]:
        pair = find(s, fence, track)
        if pair >= 0:
            remove_pair(s, pair)
        tell(s, step, fence, track, LOST_CODE, due)


@kernel
def lose(tables, track, at, number, step):
    """An object is lost, however long fences would have waited; `number` is that of the word."""
    s = Tables(*unpack_tables(tables))
    group = s.tracks[track, T_GROUP]
    needed = s.counters[OUT] + s.groups[group, 0]
    if needed > len(s.out):
        return lacks(s, MORE_OUT, needed)
    kind = s.groups[group, CLASS_HEAD]
    while kind >= 0:
        fence = np.int64(s.classes[kind, FIRST])
        while fence >= 0:
            if not is_lost(s, fence, track):
                _lose(s, fence, track, at, step)
            fence = np.int64(s.fences[fence, CLASS_NEXT])
        kind = s.classes[kind, CLASS_AFTER]
    s.tracks[track, GIVEN_UP] = number
    changed(s, track)
    return DONE


@kernel
def _silent(s, group, track, due, step):
    """An object has said nothing for as long as some fences wait."""
    at, later = s.tracks[track, AT], FOREVER
    kind = s.groups[group, CLASS_HEAD]
    while kind >= 0:
        moment = at + s.classes[kind, SPAN]
        if moment == due:
            fence = np.int64(s.classes[kind, FIRST])
            while fence >= 0:
                _lose(s, fence, track, due, step)
                fence = np.int64(s.fences[fence, CLASS_NEXT])
        elif moment > due:
            later = moment
            break
        kind = s.classes[kind, CLASS_AFTER]
    s.tracks[track, TIMER] = later
    if later != FOREVER:
        push(s, later, OF_TRACK, track)  # in the room of the one that was due
    longest = s.groups[group, LONGEST]
    _forget(s, track, longest >= 0 and at + longest <= due, step)


@kernel
def fire(tables, before, closed, step):
    """What is due before a moment, and up to another."""
    s = Tables(*unpack_tables(tables))
    reach(s, before, closed)
    return fire_due(s, step)


# --- losses ---------------------------------------------------------------------------------------


@kernel
def await_silence(tables, fence, fresh):
    """A fence begins that loses objects: a timer for each that is there.

    One that is not fresh has lost those whose time is over.
    """
    s = Tables(*unpack_tables(tables))
    group, lost = np.int64(s.fences[fence, GROUP]), s.terms[fence, LOST]
    if s.counters[HEAP] + len(s.tracks) > len(s.heap):
        return lacks(s, MORE_HEAP, s.counters[HEAP] + len(s.tracks))
    for track in range(len(s.tracks)):
        if s.tracks[track, T_GROUP] != group or s.tracks[track, AT] == NEVER:
            continue
        due = s.tracks[track, AT] + lost
        if is_over(s, due):
            if fresh and has_counted(s, fence, track):
                push(s, due, OF_BOTH, (fence << 32) | track)
        elif due < s.tracks[track, TIMER]:
            s.tracks[track, TIMER] = due
            push(s, due, OF_TRACK, track)
    return DONE


@kernel
def forget(tables, group):
    """Forget the objects that all fences of a group have lost, now that they are fewer."""
    s = Tables(*unpack_tables(tables))
    longest = s.groups[group, LONGEST]
    count = 0
    for track in range(len(s.tracks)):
        if s.tracks[track, T_GROUP] != group or s.tracks[track, AT] == NEVER:
            continue
        if is_over(s, s.tracks[track, AT] + longest):
            s.tracks[track, AT] = NEVER
            count += 1
    return count
