"""What positions bring: which fences they meet, and what happens to the pairs.

A kernel that lacks room says so before it changes anything, and is called again.
"""

from __future__ import annotations

import numpy as np

from nearcast.fences.kernels.beginnings import enter
from nearcast.fences.kernels.judging import crosses, is_beyond, line_box, meets, pieces
from nearcast.fences.kernels.places import link, unlink
from nearcast.fences.kernels.tables import (
    AT,
    CLASS_HEAD,
    CROSS_CODE,
    CROSS_MASK,
    DONE,
    DOUBT,
    DOUBTED_CODE,
    DOUBTS,
    EXIT_CODE,
    EXPIRES,
    FENCE,
    FLAGS,
    FOREVER,
    GIVEN_UP,
    GONE,
    HEAP,
    IN,
    INSIDE_CODE,
    LATE,
    MASK,
    MORE_FOUND,
    MORE_HEAP,
    MORE_OUT,
    MORE_PAIRS,
    MORE_TRACK_SLOTS,
    NEVER,
    OUT,
    OUT_HEAD,
    OUT_NEXT,
    OUTS,
    OUTSIDE_CODE,
    PAIRS,
    PLACED,
    SEEN,
    SEQ,
    SETTLED_CODE,
    SPAN,
    STATE,
    T_GROUP,
    T_HEAD,
    T_KIND,
    T_NEXT,
    T_OCCUPIED,
    T_OFFSET,
    TIMER,
    WIDTH,
    Tables,
    add_pair,
    changed,
    find,
    has_counted,
    is_lost,
    lacks,
    remove_pair,
    room_for_pairs,
    tell,
    unpack_tables,
)
from nearcast.fences.kernels.timers import OF_TRACK, fire_due, is_due, push, reach
from nearcast.jit import inlined, kernel
from nearcast.kernels.geometry import POINT
from nearcast.kernels.region_grid import at_point, in_box
from nearcast.kernels.sorting import sort

# Items: one row for each position and group that counts it.
I_TRACK, I_STEP, I_AT, I_NOW, I_SEQ, I_EXPIRES, I_KIND, I_OFFSET = range(8)
ITEM_COLUMNS = 8
STEPPED = 64


# --- which fences ---------------------------------------------------------------------------------


@inlined
def _near(s, group, x, y, found, globe):
    """The fences of a group that a point may be in; how many there are, be it more than room."""
    if globe and x == 180.0:
        x = -180.0
    return at_point(s.slots, s.entries, s.groups[group, MASK], 2 * group, x, y, found)


@kernel
def _judge(tables, kind, offset, x, y, found, count, met, written, globe):
    """Write the fences among those found that a position meets behind `written`; where they end.

    One that doubts, and has the position within its margin, is written as its complement. (Like
    `_step` no part of those that call it: it would be compiled once more for each of them.)
    """
    s = Tables(*unpack_tables(tables))
    for i in range(count):
        fence = np.int64(found[i])
        if meets(s, fence, kind, offset, x, y, globe):
            met[written] = fence
            written += 1
        elif s.fences[fence, FLAGS] & DOUBTS and not is_beyond(s, fence, kind, offset, x, y, globe):
            met[written] = ~fence
            written += 1
    return written


@kernel
def locate(tables, items, xs, ys, starts, rows, first, stop, globe):
    """Where the fences of each of some positions end, and these: what `run` takes.

    `starts` and `rows` are the fences that an extended position may be in. It reads nothing that
    positions change, so several threads may locate while another one runs.
    """
    s = Tables(*unpack_tables(tables))
    ends = np.empty(stop - first, np.int64)
    met = np.empty(2 * (stop - first) + 64, np.int32)
    found = np.empty(64, np.int32)
    written = 0
    for i in range(first, stop):
        track = items[i, I_TRACK]
        if track < 0:
            ends[i - first] = written
            continue
        if items[i, I_KIND] == POINT:
            group = s.tracks[track, T_GROUP]
            count = _near(s, group, xs[i], ys[i], found, globe)
            if count > len(found):
                found = np.empty(2 * count, np.int32)
                count = _near(s, group, xs[i], ys[i], found, globe)
        else:
            count = starts[i + 1] - starts[i]
            if count > len(found):
                found = np.empty(2 * count, np.int32)
            found[:count] = rows[starts[i] : starts[i + 1]]
        if written + count > len(met):
            larger = np.empty(2 * (written + count), np.int32)
            larger[:written] = met[:written]
            met = larger
        if count:
            kind, offset = items[i, I_KIND], items[i, I_OFFSET]
            written = _judge(tables, kind, offset, xs[i], ys[i], found, count, met, written, globe)
        ends[i - first] = written
    return ends, met


@kernel
def _crossing_candidates(s, group, track, x, y, globe):
    """The fences that ask for crossings and may lie between two points, in `crossed`."""
    px, py = s.at_x[track], s.at_y[track]
    xmin, ymin, xmax, ymax = line_box(px, py, x, y, globe)
    parts = np.empty((3, 4))
    count = 0
    for i in range(pieces(xmin, ymin, xmax, ymax, globe, parts)):
        count += in_box(
            s.slots, s.entries, s.groups[group, CROSS_MASK], 2 * group + 1, parts[i],
            s.crossed[min(count, len(s.crossed)) :],
        )  # fmt: skip
    return count


@kernel
def _cross(s, track, x, y, globe, count, at, step, seq):
    """Tell of crossings: the object was outside, is outside, and the region lies between."""
    px, py = s.at_x[track], s.at_y[track]
    sort(s.crossed[:count])
    last = -1
    for i in range(count):
        fence = np.int64(s.crossed[i])
        if fence == last:
            continue
        last = fence
        if find(s, fence, track) >= 0 or not has_counted(s, fence, track):
            continue
        if is_lost(s, fence, track) or meets(s, fence, POINT, 0, x, y, globe):
            continue
        if crosses(s, fence, px, py, x, y, globe):
            tell(s, step, fence, track, CROSS_CODE, at)
            s.out[s.counters[OUT] - 1, 5] = seq


# --- what they bring ------------------------------------------------------------------------------


@inlined
def _is_quiet(s, item, group):
    """Whether a position that meets no fence brings nothing to anybody: most do not."""
    track, of = item[I_TRACK], s.groups[group]
    return (
        s.tracks[track, T_HEAD] < 0 and item[I_KIND] == POINT and item[I_AT] >= s.tracks[track, AT]
        and of[CROSS_MASK] == 0 and of[OUT_HEAD] < 0 and of[CLASS_HEAD] < 0 and of[WIDTH] < 0
    )  # fmt: skip


@inlined
def _stand(s, item, x, y, globe):
    """A position is the last of its track."""
    track = item[I_TRACK]
    changed(s, track)
    s.tracks[track, AT], s.tracks[track, SEQ] = item[I_AT], item[I_SEQ]
    s.tracks[track, EXPIRES], s.tracks[track, GONE] = item[I_EXPIRES], FOREVER
    s.tracks[track, T_KIND], s.tracks[track, T_OFFSET] = item[I_KIND], item[I_OFFSET]
    s.tracks[track, GIVEN_UP] = 0
    s.at_x[track] = -180.0 if globe and x == 180.0 else x
    s.at_y[track] = y


@kernel
def _step(tables, item, x, y, met, first, stop, globe):
    """A position that meets these fences."""
    s = Tables(*unpack_tables(tables))
    track, at, step = item[I_TRACK], item[I_AT], item[I_STEP]
    kind, offset = item[I_KIND], item[I_OFFSET]
    group = s.tracks[track, T_GROUP]
    before = s.tracks[track, AT]
    if at < before:
        s.counters[LATE] += 1
        return DONE
    # Room for the worst, before anything changes.
    count = stop - first
    crossing = 0
    if (
        s.groups[group, CROSS_MASK] != 0 and before != NEVER and kind == POINT
        and s.tracks[track, T_KIND] == POINT and (s.at_x[track] != x or s.at_y[track] != y)
    ):  # fmt: skip
        crossing = _crossing_candidates(s, group, track, x, y, globe)
        if crossing > len(s.crossed):
            return lacks(s, MORE_FOUND, crossing)
    told = 2 * (count + s.tracks[track, PAIRS]) + crossing + s.groups[group, OUTS]
    if s.counters[OUT] + told > len(s.out):
        return lacks(s, MORE_OUT, s.counters[OUT] + told)
    if not room_for_pairs(s, count):
        return lacks(s, MORE_PAIRS, count)
    if s.counters[HEAP] + count + 2 > len(s.heap):
        return lacks(s, MORE_HEAP, s.counters[HEAP] + count + 2)
    follows = s.groups[group, WIDTH] >= 0
    if follows and 2 * s.counters[T_OCCUPIED] + 4 > len(s.track_slots):
        return lacks(s, MORE_TRACK_SLOTS, s.counters[T_OCCUPIED] + 2)

    if crossing:
        _cross(s, track, x, y, globe, crossing, at, step, item[I_SEQ])
    # Fences that may come to know only positions within their margin.
    for i in range(first, stop):
        if met[i] < 0:
            fence = ~np.int64(met[i])
            pair = find(s, fence, track)
            if pair >= 0:
                s.pairs[pair, STATE] |= SEEN
            elif not has_counted(s, fence, track) or is_lost(s, fence, track):
                add_pair(s, fence, track, DOUBT | SEEN, at)
                tell(s, step, fence, track, DOUBTED_CODE, at)

    if follows:
        unlink(s, group, track)
    _stand(s, item, x, y, globe)
    if follows:
        link(s, group, track)

    for i in range(first, stop):
        if met[i] >= 0:
            fence = np.int64(met[i])
            pair = find(s, fence, track)
            if pair < 0 or s.pairs[pair, STATE] & IN == 0:
                pair = enter(s, fence, track, pair, at, step)
            s.pairs[pair, STATE] |= SEEN
    pair = s.tracks[track, T_HEAD]
    while pair >= 0:
        after = np.int64(s.pairs[pair, T_NEXT])
        fence, state = np.int64(s.pairs[pair, FENCE]), s.pairs[pair, STATE]
        if state & SEEN:
            s.pairs[pair, STATE] = state & ~SEEN
        elif is_beyond(s, fence, kind, offset, x, y, globe):
            remove_pair(s, pair)
            tell(s, step, fence, track, EXIT_CODE if state & IN else SETTLED_CODE, at)
            state = 0
        if state & IN:
            tell(s, step, fence, track, INSIDE_CODE, at)
        pair = after
    fence = s.groups[group, OUT_HEAD]
    while fence >= 0:
        if s.fences[fence, PLACED] and find(s, fence, track) < 0:
            tell(s, step, fence, track, OUTSIDE_CODE, at)
        fence = np.int64(s.fences[fence, OUT_NEXT])

    shortest = s.groups[group, CLASS_HEAD]
    if shortest >= 0:
        due = at + s.classes[shortest, SPAN]
        if due < s.tracks[track, TIMER]:
            s.tracks[track, TIMER] = due
            push(s, due, OF_TRACK, track)
    return DONE


@kernel
def run(tables, items, xs, ys, ends, met, begin, first, stop, globe):
    """Positions in order, as `locate` found them from `begin` on, and before each what was due.

    At the end of the items also what is overdue. Returns where it stands: `stop`, and one more
    if it is through, and else what it lacks.
    """
    s = Tables(*unpack_tables(tables))
    for i in range(first, stop):
        step = items[i, I_STEP]
        if i == 0 or items[i - 1, I_STEP] != step:
            reach(s, items[i, I_NOW], NEVER)
            if is_due(s):
                lacking = fire_due(s, step - 1)
                if lacking:
                    return i, lacking
        if items[i, I_TRACK] < 0:  # no position: time has gone on
            continue
        here = 0 if i == begin else ends[i - begin - 1]
        group = s.tracks[items[i, I_TRACK], T_GROUP]
        if here == ends[i - begin] and _is_quiet(s, items[i], group):
            _stand(s, items[i], xs[i], ys[i], globe)
            continue
        lacking = _step(tables, items[i], xs[i], ys[i], met, here, ends[i - begin], globe)
        if lacking:
            return i, lacking
    lacking = DONE
    if stop == len(items) and is_due(s):
        lacking = fire_due(s, items[stop - 1, I_STEP] + 1)
    return stop + (lacking == DONE), lacking


@kernel
def one(tables, track, at, now, seq, expires, x, y, globe):
    """`locate` and `run` of one position that is a point; what it lacks.

    With `STEPPED` if that is for what is overdue, and the position has been counted.
    """
    s = Tables(*unpack_tables(tables))
    reach(s, now, NEVER)
    if is_due(s):
        lacking = fire_due(s, 0)
        if lacking:
            return lacking
    group = s.tracks[track, T_GROUP]
    count = _near(s, group, x, y, s.found, globe)
    if count > len(s.found):
        return lacks(s, MORE_FOUND, count)
    met = s.found
    stop = np.int64(0)
    if count:
        stop = _judge(tables, np.int64(POINT), np.int64(0), x, y, s.found, count, met, 0, globe)
    item = np.empty(ITEM_COLUMNS, np.int64)
    item[I_TRACK], item[I_STEP], item[I_AT], item[I_NOW] = track, 1, at, now
    item[I_SEQ], item[I_EXPIRES], item[I_KIND], item[I_OFFSET] = seq, expires, POINT, 0
    lacking = _step(tables, item, x, y, met, np.int64(0), stop, globe)
    if lacking:
        return lacking
    lacking = fire_due(s, 2) if is_due(s) else DONE
    return lacking | STEPPED if lacking else DONE
