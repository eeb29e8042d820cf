"""The tables of fences, and the pairs of a fence and an object.

`fences` has a row a fence, `groups` a row for all fences that count the same positions,
`tracks` a row for each group and object: its last position. A *pair* is stored for an object
that is inside a fence, or of which the fence knows only positions within its margin; an object
without a pair is outside, or unknown if the fence has not counted it. So an object costs a
fence nothing until it comes near.

Rows of pairs are linked three times: by hash, by track and by fence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nearcast.jit import inlined, kernel, packing

NEVER, FOREVER = -(2**63), 2**63 - 1

# Fences, and what they have that needs 64 bits.
KIND, OFFSET, GROUP, FLAGS, HEAD, PLACED, CLASS_NEXT, OUT_NEXT, BOX, BOXES, RUN, WHO = range(12)
FENCE_COLUMNS = 12
DWELL, LOST, SINCE, MADE, NUMBER, ENDS = range(6)
TERM_COLUMNS = 6
# What is told, as bits of FLAGS in the order of TRANSITIONS; then whether it matters that an
# object is not known to be out.
ENTER, EXIT, CROSS, DWELLS, IS_LOST, INSIDE, OUTSIDE = (1 << bit for bit in range(7))
DOUBTS = 1 << 7
# Told to whoever asks how an unknown object becomes known; and a region that begins farther out
# than its shape: by the number that stands before the shape's.
DOUBTED, SETTLED, WIDENED = 1 << 8, 1 << 9, 1 << 10
# Whether the region is a shape that turns: its floats stand twice then, as drawn and as turned.
TURNS = 1 << 11
# Codes in the order of `nearcast.model.fences.TRANSITIONS`, and one beside them.
ENTER_CODE, EXIT_CODE, CROSS_CODE, DWELL_CODE, LOST_CODE, INSIDE_CODE, OUTSIDE_CODE = range(7)
FORGOTTEN = 7
DOUBTED_CODE, SETTLED_CODE = 8, 9

# Groups; masks are the widths of cells in use by regions, and by those that ask for crossings.
MEMBERS, OUT_HEAD, OUTS, CLASS_HEAD, LONGEST, MASK, CROSS_MASK, WIDTH = range(8)
GROUP_COLUMNS = 8

# Classes: the fences of a group that lose an object after the same silence, shortest first.
SPAN, CLASS_AFTER, FIRST = range(3)

# Tracks. GROUP and AT are −1 and NEVER where a row is free; a forgotten object is at NEVER, too.
# CHANGED links those that changed since somebody looked. GIVEN_UP is the number under which
# somebody said that the object is lost, since its last position; 0: nobody did.
T_GROUP, AT, SEQ, EXPIRES, GONE, TIMER, T_HEAD, PAIRS, T_KIND, T_OFFSET, LINKED, CHANGED = range(12)
GIVEN_UP = 12
TRACK_COLUMNS = 13
UNCHANGED = -2

# Pairs.
FENCE, TRACK, STATE, H_NEXT, T_NEXT, T_PREV, F_NEXT, F_PREV = range(8)
IN, DOUBT, DWELT, SEEN = 1, 2, 4, 8

# Counters.
HEAP, USED, FREE, OUT, LATE, BEFORE, CLOSED, OCCUPIED, T_OCCUPIED, NEED, COUNT = range(11)
LAST_CHANGED = 11
COUNTERS = 12

# Out: one row a transition. STEP is even for timers and odd for positions and moves.
STEP, O_FENCE, O_TRACK, CODE, O_AT, O_SEQ = range(6)

# What a kernel answers when it needs more room: nothing of that item has happened then.
DONE, MORE_OUT, MORE_PAIRS, MORE_HEAP, MORE_FOUND, MORE_SLOTS, MORE_TRACK_SLOTS = range(7)


class Tables(NamedTuple):
    """All arrays of a watch."""

    fences: Any
    terms: Any
    margins: Any
    floats: Any
    groups: Any
    classes: Any
    tracks: Any
    at_x: Any
    at_y: Any
    places: Any
    pairs: Any
    entered: Any
    buckets: Any
    heap: Any
    slots: Any
    entries: Any
    boxes: Any
    track_slots: Any
    track_entries: Any
    out: Any
    found: Any
    crossed: Any
    counters: Any


pack_tables, unpack_tables = packing(
    "i4:2", "i8:2", "f8", "f8", "i8:2", "i8:2", "i8:2", "f8", "f8", "f8", "i4:2", "i8", "i4",
    "i8:2", "i8:2", "i4:2", "f8:2", "i8:2", "i4:2", "i8:2", "i4", "i4", "i8",
)  # fmt: skip


@inlined
def lacks(s, what, amount):
    """A kernel lacks room, and says how much."""
    s.counters[NEED] = amount
    return what


# --- pairs ---------------------------------------------------------------------------------------


@inlined
def _bucket(s, fence, track):
    h = np.uint64(fence) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(track)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64(h >> np.uint64(24)) & (len(s.buckets) - 1)


@inlined
def find(s, fence, track):
    """The pair of a fence and a track, or −1."""
    row = np.int64(s.buckets[_bucket(s, fence, track)])
    while row >= 0 and (s.pairs[row, FENCE] != fence or s.pairs[row, TRACK] != track):
        row = np.int64(s.pairs[row, H_NEXT])
    return row


@inlined
def changed(s, track):
    """Remember that a track changed."""
    if s.tracks[track, CHANGED] == UNCHANGED:
        s.tracks[track, CHANGED] = s.counters[LAST_CHANGED]
        s.counters[LAST_CHANGED] = track


@inlined
def room_for_pairs(s, count):
    """Whether so many pairs more have room; the chains stay short."""
    return s.counters[COUNT] + count <= len(s.pairs) and s.counters[COUNT] + count <= 2 * len(
        s.buckets
    )


@inlined
def add_pair(s, fence, track, state, entered):
    """A new pair; there is room."""
    changed(s, track)
    row = s.counters[FREE]
    if row >= 0:
        s.counters[FREE] = s.pairs[row, H_NEXT]
    else:
        row = s.counters[USED]
        s.counters[USED] = row + 1
    s.counters[COUNT] += 1
    bucket = _bucket(s, fence, track)
    s.pairs[row, FENCE], s.pairs[row, TRACK], s.pairs[row, STATE] = fence, track, state
    s.pairs[row, H_NEXT] = s.buckets[bucket]
    s.buckets[bucket] = row
    first = s.tracks[track, T_HEAD]
    s.pairs[row, T_NEXT], s.pairs[row, T_PREV] = first, -1
    if first >= 0:
        s.pairs[first, T_PREV] = row
    s.tracks[track, T_HEAD] = row
    s.tracks[track, PAIRS] += 1
    first = s.fences[fence, HEAD]
    s.pairs[row, F_NEXT], s.pairs[row, F_PREV] = first, -1
    if first >= 0:
        s.pairs[first, F_PREV] = row
    s.fences[fence, HEAD] = row
    s.entered[row] = entered
    return row


@inlined
def remove_pair(s, row):
    """A pair is over."""
    fence, track = np.int64(s.pairs[row, FENCE]), np.int64(s.pairs[row, TRACK])
    changed(s, track)
    bucket = _bucket(s, fence, track)
    at = np.int64(s.buckets[bucket])
    if at == row:
        s.buckets[bucket] = s.pairs[row, H_NEXT]
    else:
        while s.pairs[at, H_NEXT] != row:
            at = np.int64(s.pairs[at, H_NEXT])
        s.pairs[at, H_NEXT] = s.pairs[row, H_NEXT]
    before, after = s.pairs[row, T_PREV], s.pairs[row, T_NEXT]
    if before >= 0:
        s.pairs[before, T_NEXT] = after
    else:
        s.tracks[track, T_HEAD] = after
    if after >= 0:
        s.pairs[after, T_PREV] = before
    s.tracks[track, PAIRS] -= 1
    before, after = s.pairs[row, F_PREV], s.pairs[row, F_NEXT]
    if before >= 0:
        s.pairs[before, F_NEXT] = after
    else:
        s.fences[fence, HEAD] = after
    if after >= 0:
        s.pairs[after, F_PREV] = before
    s.pairs[row, FENCE] = -1
    s.pairs[row, H_NEXT] = s.counters[FREE]
    s.counters[FREE] = row
    s.counters[COUNT] -= 1


@kernel
def forget_pairs(tables, track):
    """Nothing is known of a track any more."""
    s = Tables(*unpack_tables(tables))
    while s.tracks[track, T_HEAD] >= 0:
        remove_pair(s, s.tracks[track, T_HEAD])


@kernel
def rehash(tables):
    """Enter all pairs into buckets made anew."""
    s = Tables(*unpack_tables(tables))
    s.buckets[:] = -1
    for row in range(s.counters[USED]):
        if s.pairs[row, FENCE] >= 0:
            bucket = _bucket(s, np.int64(s.pairs[row, FENCE]), np.int64(s.pairs[row, TRACK]))
            s.pairs[row, H_NEXT] = s.buckets[bucket]
            s.buckets[bucket] = row


# --- what is known --------------------------------------------------------------------------------


@inlined
def is_over(s, due):
    """Whether timers due then have fired already."""
    return due < s.counters[BEFORE] or due <= s.counters[CLOSED]


@inlined
def has_counted(s, fence, track):
    """Whether the fence has counted the last position of a track.

    It came after the fence, or was live when the fence came.
    """
    if s.tracks[track, AT] == NEVER:
        return False
    since = s.terms[fence, SINCE]
    return s.tracks[track, SEQ] > since or (
        s.tracks[track, EXPIRES] > s.terms[fence, MADE] and s.tracks[track, GONE] > since
    )


@inlined
def is_lost(s, fence, track):
    """Whether the fence has lost the object since its last position."""
    lost = s.terms[fence, LOST]
    return lost >= 0 and (
        s.tracks[track, GIVEN_UP] > s.terms[fence, SINCE] or is_over(s, s.tracks[track, AT] + lost)
    )


@inlined
def tell(s, step, fence, track, code, at):
    """Write down a transition that the fence tells of; there is room."""
    if code == FORGOTTEN or s.fences[fence, FLAGS] & (1 << code):
        row = s.counters[OUT]
        s.counters[OUT] = row + 1
        s.out[row, STEP], s.out[row, O_FENCE], s.out[row, O_TRACK] = step, fence, track
        s.out[row, CODE], s.out[row, O_AT] = code, at
        s.out[row, O_SEQ] = s.tracks[track, SEQ]
