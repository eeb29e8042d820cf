"""What happens to the pairs: a position comes, a timer is due, a fence begins, a region moves.

A kernel that lacks room says so before it changes anything, and is called again.
"""

from __future__ import annotations

import numpy as np

from nearcast.fences.kernels.judging import (
    circle_box,
    crosses,
    is_beyond,
    line_box,
    meets,
    pieces,
)
from nearcast.fences.kernels.tables import (
    AT,
    BEFORE,
    BOX,
    BOXES,
    CLASS_AFTER,
    CLASS_HEAD,
    CLASS_NEXT,
    CLOSED,
    CROSS,
    CROSS_MASK,
    DONE,
    DOUBT,
    DOUBTS,
    DWELL,
    DWELT,
    EXPIRES,
    F_NEXT,
    FENCE,
    FIRST,
    FLAGS,
    FOREVER,
    FORGOTTEN,
    GONE,
    GROUP,
    HEAD,
    HEAP,
    IN,
    LATE,
    LINKED,
    LONGEST,
    LOST,
    MASK,
    MORE_FOUND,
    MORE_HEAP,
    MORE_OUT,
    MORE_PAIRS,
    MORE_SLOTS,
    MORE_TRACK_SLOTS,
    NEED,
    NEVER,
    OCCUPIED,
    OF_BOTH,
    OF_PAIR,
    OF_TRACK,
    OFFSET,
    OUT,
    OUT_HEAD,
    OUT_NEXT,
    OUTS,
    OUTSIDE,
    PAIRS,
    PLACED,
    RUN,
    SEEN,
    SEQ,
    SPAN,
    STATE,
    T_GROUP,
    T_HEAD,
    T_KIND,
    T_NEXT,
    T_OCCUPIED,
    T_OFFSET,
    TIMER,
    TRACK,
    WIDTH,
    Tables,
    add_pair,
    changed,
    find,
    has_counted,
    holds,
    is_lost,
    is_over,
    pop,
    push,
    remove_pair,
    room_for_pairs,
    tell,
    unpack_tables,
)
from nearcast.jit import kernel
from nearcast.kernels import region_grid
from nearcast.kernels.geometry import POINT
from nearcast.kernels.region_grid import at_point, in_box, insert, remove

_ENTER, _EXIT, _CROSS, _DWELL, _LOST, _INSIDE, _OUTSIDE = range(7)

# Items: one row for each position and group that counts it.
I_TRACK, I_STEP, I_AT, I_NOW, I_SEQ, I_EXPIRES, I_KIND, I_OFFSET = range(8)
ITEM_COLUMNS = 8


@kernel
def _lacks(s, what, amount):
    s.counters[NEED] = amount
    return what


# --- timers ---------------------------------------------------------------------------------------


@kernel
def _fire(s, before, closed, step):
    """Everything that is due before a moment, and up to another, in order."""
    s.counters[BEFORE] = max(s.counters[BEFORE], before)
    s.counters[CLOSED] = max(s.counters[CLOSED], closed)
    while s.counters[HEAP] > 0 and is_over(s, s.heap[0, 0] >> 2):
        due, kind, row = s.heap[0, 0] >> 2, s.heap[0, 0] & 3, s.heap[0, 1]
        if not holds(s, due, kind, row):
            pop(s)
            continue
        if kind == OF_TRACK:
            group = s.tracks[row, T_GROUP]
            needed = s.counters[OUT] + s.groups[group, 0] + 2
            if needed > len(s.out):
                return _lacks(s, MORE_OUT, needed)
            pop(s)
            _silent(s, group, row, due, step)
            continue
        if s.counters[OUT] + 2 > len(s.out):
            return _lacks(s, MORE_OUT, s.counters[OUT] + 2)
        pop(s)
        if kind == OF_PAIR:
            s.pairs[row, STATE] |= DWELT
            changed(s, np.int64(s.pairs[row, TRACK]))
            tell(s, step, s.pairs[row, FENCE], s.pairs[row, TRACK], _DWELL, due)
        else:
            _lose(s, row >> 32, row & 0xFFFFFFFF, due, step)
            longest = s.groups[s.fences[row >> 32, GROUP], LONGEST]
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
    """A fence loses an object, if it has counted its last position."""
    if has_counted(s, fence, track):
        pair = find(s, fence, track)
        if pair >= 0:
            remove_pair(s, pair)
        tell(s, step, fence, track, _LOST, due)


@kernel
def _silent(s, group, track, due, step):
    """An object has said nothing for as long as some fences wait."""
    at, later = s.tracks[track, AT], FOREVER
    kind = s.groups[group, CLASS_HEAD]
    while kind >= 0:
        moment = at + s.classes[kind, SPAN]
        if moment == due:
            fence = s.classes[kind, FIRST]
            while fence >= 0:
                _lose(s, fence, track, due, step)
                fence = s.fences[fence, CLASS_NEXT]
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
    return _fire(Tables(*unpack_tables(tables)), before, closed, step)


# --- places of tracks -----------------------------------------------------------------------------

# Tracks of groups with regions that move stand in cells of one width. A row of `track_entries` is
# (track, next, one before), as `region_grid.in_box` reads it.


@kernel
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


@kernel
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


@kernel
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


# --- positions ------------------------------------------------------------------------------------


@kernel
def _candidates(s, group, x, y, globe):
    """The fences of a group that a point may be in, in `found`; how many there are."""
    if globe and x == 180.0:
        x = -180.0
    return at_point(s.slots, s.entries, s.groups[group, MASK], 2 * group, x, y, s.found)


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
def _enter(s, fence, track, pair, at, step):
    """An object comes in; returns its pair."""
    if pair >= 0:
        changed(s, track)
        s.pairs[pair, STATE], s.entered[pair] = IN, at
    else:
        pair = add_pair(s, fence, track, IN, at)
    if s.fences[fence, DWELL] >= 0:
        push(s, at + s.fences[fence, DWELL], OF_PAIR, pair)
    tell(s, step, fence, track, _ENTER, at)
    return pair


@kernel
def _cross(s, track, x, y, globe, count, at, step, seq):
    """Tell of crossings: the object was outside, is outside, and the region lies between."""
    px, py = s.at_x[track], s.at_y[track]
    s.crossed[:count].sort()
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
            tell(s, step, fence, track, _CROSS, at)
            s.out[s.counters[OUT] - 1, 5] = seq


@kernel
def _step(s, item, x, y, count, globe):
    """A position, with the fences it may be in at the head of `found`."""
    track, at, step = item[I_TRACK], item[I_AT], item[I_STEP]
    kind, offset = item[I_KIND], item[I_OFFSET]
    group = s.tracks[track, T_GROUP]
    before = s.tracks[track, AT]
    if at < before:
        s.counters[LATE] += 1
        return DONE
    # Room for the worst, before anything changes.
    crossing = 0
    if (
        s.groups[group, CROSS_MASK] != 0 and before != NEVER and kind == POINT
        and s.tracks[track, T_KIND] == POINT and (s.at_x[track] != x or s.at_y[track] != y)
    ):  # fmt: skip
        crossing = _crossing_candidates(s, group, track, x, y, globe)
        if crossing > len(s.crossed):
            return _lacks(s, MORE_FOUND, crossing)
    told = 2 * (count + s.tracks[track, PAIRS]) + crossing + s.groups[group, OUTS]
    if s.counters[OUT] + told > len(s.out):
        return _lacks(s, MORE_OUT, s.counters[OUT] + told)
    if not room_for_pairs(s, count):
        return _lacks(s, MORE_PAIRS, count)
    if s.counters[HEAP] + count + 2 > len(s.heap):
        return _lacks(s, MORE_HEAP, s.counters[HEAP] + count + 2)
    if s.groups[group, WIDTH] >= 0 and 2 * s.counters[T_OCCUPIED] + 4 > len(s.track_slots):
        return _lacks(s, MORE_TRACK_SLOTS, s.counters[T_OCCUPIED] + 2)

    if crossing:
        _cross(s, track, x, y, globe, crossing, at, step, item[I_SEQ])
    # Fences that may come to know only positions within their margin.
    for i in range(count):
        fence = np.int64(s.found[i])
        if s.fences[fence, FLAGS] & DOUBTS and find(s, fence, track) < 0:
            if has_counted(s, fence, track) and not is_lost(s, fence, track):
                continue
            if meets(s, fence, kind, offset, x, y, globe):
                continue
            if not is_beyond(s, fence, kind, offset, x, y, globe):
                pair = add_pair(s, fence, track, DOUBT | SEEN, at)

    if s.groups[group, WIDTH] >= 0:
        unlink(s, group, track)
    changed(s, track)
    s.tracks[track, AT], s.tracks[track, SEQ] = at, item[I_SEQ]
    s.tracks[track, EXPIRES], s.tracks[track, GONE] = item[I_EXPIRES], FOREVER
    s.tracks[track, T_KIND], s.tracks[track, T_OFFSET] = kind, offset
    s.at_x[track] = -180.0 if globe and x == 180.0 else x
    s.at_y[track] = y
    if s.groups[group, WIDTH] >= 0:
        link(s, group, track)

    for i in range(count):
        fence = np.int64(s.found[i])
        if meets(s, fence, kind, offset, x, y, globe):
            pair = find(s, fence, track)
            if pair < 0 or s.pairs[pair, STATE] & IN == 0:
                pair = _enter(s, fence, track, pair, at, step)
            s.pairs[pair, STATE] |= SEEN
    pair = s.tracks[track, T_HEAD]
    while pair >= 0:
        after = np.int64(s.pairs[pair, T_NEXT])
        fence, state = np.int64(s.pairs[pair, FENCE]), s.pairs[pair, STATE]
        if state & SEEN:
            s.pairs[pair, STATE] = state & ~SEEN
        elif is_beyond(s, fence, kind, offset, x, y, globe):
            remove_pair(s, pair)
            if state & IN:
                tell(s, step, fence, track, _EXIT, at)
            state = 0
        if state & IN:
            tell(s, step, fence, track, _INSIDE, at)
        pair = after
    fence = s.groups[group, OUT_HEAD]
    while fence >= 0:
        if s.fences[fence, PLACED] and find(s, fence, track) < 0:
            tell(s, step, fence, track, _OUTSIDE, at)
        fence = s.fences[fence, OUT_NEXT]

    shortest = s.groups[group, CLASS_HEAD]
    if shortest >= 0:
        due = at + s.classes[shortest, SPAN]
        if due < s.tracks[track, TIMER]:
            s.tracks[track, TIMER] = due
            push(s, due, OF_TRACK, track)
    return DONE


@kernel
def run(tables, items, xs, ys, starts, rows, first, closed, globe):
    """Positions in order, and before each what was due; afterwards what is overdue.

    `starts` and `rows` are the fences that an extended position may be in. Returns where it
    stands: all items and one more if it is through, and else what it lacks.
    """
    s = Tables(*unpack_tables(tables))
    for i in range(first, len(items)):
        step, now = items[i, I_STEP], items[i, I_NOW]
        if i == 0 or items[i - 1, I_STEP] != step:
            lacking = _fire(s, now, NEVER, step - 1)
            if lacking:
                return i, lacking
        if items[i, I_TRACK] < 0:  # no position: time has gone on
            continue
        if items[i, I_KIND] == POINT:
            count = _candidates(s, s.tracks[items[i, I_TRACK], T_GROUP], xs[i], ys[i], globe)
            if count > len(s.found):
                s.counters[NEED] = count
                return i, MORE_FOUND
        else:
            count = starts[i + 1] - starts[i]
            if count > len(s.found):
                s.counters[NEED] = count
                return i, MORE_FOUND
            s.found[:count] = rows[starts[i] : starts[i + 1]]
        lacking = _step(s, items[i], xs[i], ys[i], count, globe)
        if lacking:
            return i, lacking
    lacking = DONE
    if len(items):
        lacking = _fire(s, NEVER, closed, items[-1, I_STEP] + 1)
    return len(items) + (lacking == DONE), lacking


# --- fences that come and move --------------------------------------------------------------------


@kernel
def begin(tables, fence, tracks, step, globe):
    """A fence begins: told of the tracks it holds, if their last positions are live."""
    s = Tables(*unpack_tables(tables))
    if not room_for_pairs(s, len(tracks)):
        return _lacks(s, MORE_PAIRS, len(tracks))
    if s.counters[HEAP] + len(tracks) + 2 > len(s.heap):
        return _lacks(s, MORE_HEAP, s.counters[HEAP] + len(tracks) + 2)
    if s.counters[OUT] + len(tracks) > len(s.out):
        return _lacks(s, MORE_OUT, s.counters[OUT] + len(tracks))
    for i in range(len(tracks)):
        track = np.int64(tracks[i])
        kind, offset = s.tracks[track, T_KIND], s.tracks[track, T_OFFSET]
        if has_counted(s, fence, track) and meets(
            s, fence, kind, offset, s.at_x[track], s.at_y[track], globe
        ):
            _enter(s, fence, track, -1, s.tracks[track, AT], step)
    return DONE


@kernel
def recall(tables, fence, track, state, entered):
    """A pair that was kept elsewhere."""
    s = Tables(*unpack_tables(tables))
    if not room_for_pairs(s, 1):
        return _lacks(s, MORE_PAIRS, 1)
    if s.counters[HEAP] + 1 > len(s.heap):
        return _lacks(s, MORE_HEAP, s.counters[HEAP] + 1)
    pair = add_pair(s, fence, track, state, entered)
    if s.fences[fence, DWELL] >= 0 and state == IN:
        push(s, entered + s.fences[fence, DWELL], OF_PAIR, pair)
    return DONE


@kernel
def doubt(tables, fence, globe):
    """A fence has a place: the tracks it knows only within its margin."""
    s = Tables(*unpack_tables(tables))
    group = s.fences[fence, GROUP]
    if not room_for_pairs(s, len(s.tracks)):
        return _lacks(s, MORE_PAIRS, len(s.tracks))
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


@kernel
def await_silence(tables, fence, fresh):
    """A fence begins that loses objects: a timer for each that is there.

    One that is not fresh has lost those whose time is over.
    """
    s = Tables(*unpack_tables(tables))
    group, lost = s.fences[fence, GROUP], s.fences[fence, LOST]
    if s.counters[HEAP] + len(s.tracks) > len(s.heap):
        return _lacks(s, MORE_HEAP, s.counters[HEAP] + len(s.tracks))
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


@kernel
def move(tables, fences, xs, ys, ats, first, globe):
    """Regions come to new places, one after the other; returns how many did, and what it lacks."""
    s = Tables(*unpack_tables(tables))
    for i in range(first, len(fences)):
        lacking = _move(s, fences[i], xs[i], ys[i], ats[i], 2 * i + 1, globe)
        if lacking:
            return i, lacking
    return len(fences), DONE


@kernel
def _move(s, fence, x, y, at, step, globe):
    group = s.fences[fence, GROUP]
    boxes = np.empty((3, 4))
    parts = _boxes_at(s, fence, x, y, boxes, globe)
    mask = (1 << s.groups[group, WIDTH]) | (1 << region_grid.EVERYWHERE)
    count = 0
    for i in range(parts):
        count += in_box(
            s.track_slots, s.track_entries, mask, group, boxes[i],
            s.found[min(count, len(s.found)) :],
        )  # fmt: skip
    if count > len(s.found):
        return _lacks(s, MORE_FOUND, count)
    if not room_for_pairs(s, count):
        return _lacks(s, MORE_PAIRS, count)
    if s.counters[HEAP] + count + 2 > len(s.heap):
        return _lacks(s, MORE_HEAP, s.counters[HEAP] + count + 2)
    told = s.counters[OUT] + count
    pair = s.fences[fence, HEAD]
    while pair >= 0:
        told += 1
        pair = s.pairs[pair, F_NEXT]
    if told > len(s.out):
        return _lacks(s, MORE_OUT, told)
    if 2 * (s.counters[OCCUPIED] + 24) > len(s.slots):
        return _lacks(s, MORE_SLOTS, s.counters[OCCUPIED] + 24)

    _put(s, fence, group, x, y, boxes, parts)
    pair = s.fences[fence, HEAD]
    while pair >= 0:
        after = np.int64(s.pairs[pair, F_NEXT])
        track, state = np.int64(s.pairs[pair, TRACK]), s.pairs[pair, STATE]
        kind, offset = s.tracks[track, T_KIND], s.tracks[track, T_OFFSET]
        tx, ty = s.at_x[track], s.at_y[track]
        if meets(s, fence, kind, offset, tx, ty, globe):
            if state & IN == 0:
                _enter(s, fence, track, pair, at, step)
        elif is_beyond(s, fence, kind, offset, tx, ty, globe):
            remove_pair(s, pair)
            if state & IN:
                tell(s, step, fence, track, _EXIT, at)
        pair = after
    for i in range(count):
        track = np.int64(s.found[i])
        if find(s, fence, track) >= 0 or not has_counted(s, fence, track):
            continue
        if is_lost(s, fence, track):
            continue
        kind, offset = s.tracks[track, T_KIND], s.tracks[track, T_OFFSET]
        if meets(s, fence, kind, offset, s.at_x[track], s.at_y[track], globe):
            _enter(s, fence, track, -1, at, step)
    return DONE


@kernel
def settle(tables, fence, x, y, globe):
    """A region that moves gets its first place; nobody is told."""
    s = Tables(*unpack_tables(tables))
    if 2 * (s.counters[OCCUPIED] + 24) > len(s.slots):
        return _lacks(s, MORE_SLOTS, s.counters[OCCUPIED] + 24)
    boxes = np.empty((3, 4))
    parts = _boxes_at(s, fence, x, y, boxes, globe)
    _put(s, fence, s.fences[fence, GROUP], x, y, boxes, parts)
    return DONE


@kernel
def _boxes_at(s, fence, x, y, boxes, globe):
    """The boxes of a region that moves, at a place; how many there are."""
    radius = s.floats[s.fences[fence, OFFSET] + 2]
    if s.fences[fence, FLAGS] & DOUBTS:
        radius += s.margins[fence]
    xmin, ymin, xmax, ymax = circle_box(x, y, radius, globe)
    return pieces(xmin, ymin, xmax, ymax, globe, boxes)


@kernel
def _put(s, fence, group, x, y, boxes, parts):
    """Enter a region that moves at its new place in the grid; three boxes are reserved for it."""
    floats, first = s.fences[fence, OFFSET], s.fences[fence, BOX]
    _leave(s, fence, group)
    s.floats[floats], s.floats[floats + 1] = x, y
    for i in range(parts):
        s.boxes[first + i] = boxes[i]
    s.fences[fence, BOXES], s.fences[fence, PLACED] = parts, 1
    _stand(s, fence, group)


@kernel
def _stand(s, fence, group):
    """Enter a fence's boxes into the grid; those that ask for crossings stand there twice."""
    first, parts = s.fences[fence, BOX], s.fences[fence, BOXES]
    twice = 2 if s.fences[fence, FLAGS] & CROSS else 1
    entries = np.empty(4, np.int32)
    run = s.fences[fence, RUN]
    for i in range(parts):
        box = s.boxes[first + i]
        width = region_grid.width_of(box[0], box[1], box[2], box[3])
        for k in range(twice):
            for j in range(4):
                entries[j] = 4 * (run + twice * i + k) + j
            part = i + 1 if parts > 1 else 0
            _, fresh = insert(s.slots, s.entries, entries, 2 * group + k, fence, part, box)
            s.counters[OCCUPIED] += fresh
            s.groups[group, MASK + k] |= 1 << width


@kernel
def _leave(s, fence, group):
    """Take a fence's boxes out of the grid."""
    first, parts = s.fences[fence, BOX], s.fences[fence, BOXES]
    twice = 2 if s.fences[fence, FLAGS] & CROSS else 1
    freed = np.empty(4, np.int32)
    for i in range(parts):
        part = i + 1 if parts > 1 else 0
        for k in range(twice):
            remove(s.slots, s.entries, freed, 2 * group + k, fence, part, s.boxes[first + i])
    s.fences[fence, BOXES] = 0


@kernel
def stand(tables, fence):
    """Enter a fence into the grid; there is room."""
    s = Tables(*unpack_tables(tables))
    _stand(s, fence, s.fences[fence, GROUP])


@kernel
def leave(tables, fence):
    """Take a fence out of the grid, and its pairs away."""
    s = Tables(*unpack_tables(tables))
    _leave(s, fence, s.fences[fence, GROUP])
    while s.fences[fence, HEAD] >= 0:
        remove_pair(s, s.fences[fence, HEAD])


@kernel
def unlist(tables, fence, kind):
    """Take a fence out of the list of its class (−1: it has none) and of those told of outsides."""
    s = Tables(*unpack_tables(tables))
    if kind >= 0:
        if s.classes[kind, FIRST] == fence:
            s.classes[kind, FIRST] = s.fences[fence, CLASS_NEXT]
        else:
            at = s.classes[kind, FIRST]
            while s.fences[at, CLASS_NEXT] != fence:
                at = s.fences[at, CLASS_NEXT]
            s.fences[at, CLASS_NEXT] = s.fences[fence, CLASS_NEXT]
    if s.fences[fence, FLAGS] & OUTSIDE:
        group = s.fences[fence, GROUP]
        s.groups[group, OUTS] -= 1
        if s.groups[group, OUT_HEAD] == fence:
            s.groups[group, OUT_HEAD] = s.fences[fence, OUT_NEXT]
        else:
            at = s.groups[group, OUT_HEAD]
            while s.fences[at, OUT_NEXT] != fence:
                at = s.fences[at, OUT_NEXT]
            s.fences[at, OUT_NEXT] = s.fences[fence, OUT_NEXT]


@kernel
def near(tables, group, box):
    """The fences of a group that may meet a box, some repeatedly."""
    s = Tables(*unpack_tables(tables))
    found = np.empty(256, np.int32)
    mask = s.groups[group, MASK]
    count = in_box(s.slots, s.entries, mask, 2 * group, box, found)
    if count > len(found):
        found = np.empty(count, np.int32)
        in_box(s.slots, s.entries, mask, 2 * group, box, found)
    return found[:count]
