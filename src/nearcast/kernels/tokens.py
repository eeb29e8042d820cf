"""Clauses and messages as runs of tokens: ranks of words in a global order.

A clause without words has the one token `ANY`, and so has every message beside its own:
"all tokens of the clause are in the message" then needs no exception. A message without a
place is the box inf … -inf, which only the infinite box of a clause without a region meets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.jit import kernel
from nearcast.kernels.rows import contains_sorted, event_satisfies, find_value, grow

#: The token of a clause without words, and of every message. All other tokens are greater.
ANY = 0


class Entries(NamedTuple):
    """Clauses in token-set order; an entry's number is its place in that order."""

    row: npt.NDArray[np.int32]
    """The clause row, -1 once removed."""
    box: npt.NDArray[np.float64]
    """(n, 4): xmin, ymin, xmax, ymax; infinite without a region."""
    start: npt.NDArray[np.int64]
    """Tokens of entry i are token[start[i]:start[i + 1]], ascending, at least one."""
    token: npt.NDArray[np.int32]
    more: npt.NDArray[np.bool_]
    """Whether there are predicates beside the region."""


# --- clauses to entries -----------------------------------------------------------------------


@kernel
def words_of(c, rows):
    """All words of clause rows, one clause after the other."""
    extra, word_start, word_count, word = c.extra, c.word_start, c.word_count, c.word
    total = 0
    for row in rows:
        if extra[row] >= 0:
            total += np.int64(word_count[extra[row]])
    words = np.empty(total, np.int32)
    n = 0
    for row in rows:
        if extra[row] >= 0:
            w = np.int64(word_start[extra[row]])
            for k in range(np.int64(word_count[extra[row]])):
                words[n] = word[w + k]
                n += 1
    return words


@kernel
def token_runs(c, rows, rank):
    """(start, token) of clause rows: the ranks of their words, ascending."""
    extra, word_start, word_count, word = c.extra, c.word_start, c.word_count, c.word
    start = np.empty(rows.size + 1, np.int64)
    start[0] = 0
    for i in range(rows.size):
        e = extra[rows[i]]
        start[i + 1] = start[i] + (max(np.int64(word_count[e]), 1) if e >= 0 else 1)
    token = np.empty(start[-1], np.int32)
    for i in range(rows.size):
        a, b = start[i], start[i + 1]
        token[a] = ANY
        e = extra[rows[i]]
        if e < 0 or word_count[e] == 0:
            continue
        w = np.int64(word_start[e])
        for k in range(b - a):
            token[a + k] = rank[word[w + k]]
        sort_run(token, a, b)
    return start, token


@kernel
def sort_run(token, a, b):
    """Sort token[a:b] in place."""
    if b - a > 32:
        part = np.sort(token[a:b])
        token[a:b] = part
        return
    for i in range(a + 1, b):
        t = token[i]
        k = i
        while k > a and token[k - 1] > t:
            token[k] = token[k - 1]
            k -= 1
        token[k] = t


@kernel
def prefix_keys(start, token):
    """The first two tokens of each run in one number; a missing second sorts first."""
    key = np.empty(start.size - 1, np.int64)
    for i in range(key.size):
        a = start[i]
        second = np.int64(token[a + 1]) + 1 if start[i + 1] - a > 1 else np.int64(0)
        key[i] = (np.int64(token[a]) << 32) | second
    return key


@kernel
def _before(start, token, i, j):
    """Whether run i sorts before run j; the first two tokens are known to be equal."""
    a, b = start[i] + 2, start[j] + 2
    while a < start[i + 1] and b < start[j + 1]:
        if token[a] != token[b]:
            return token[a] < token[b]
        a += 1
        b += 1
    return a >= start[i + 1] and b < start[j + 1]


@kernel
def refine(order, key, start, token):
    """Finish an order by keys: sort those of equal keys by their further tokens."""
    n = order.size
    spare = np.empty(n, np.int64)
    i = 0
    while i < n:
        j = i + 1
        while j < n and key[order[j]] == key[order[i]]:
            j += 1
        if j - i > 1:
            _sort_group(order, i, j, start, token, spare)
        i = j


@kernel
def _sort_group(order, first, stop, start, token, spare):
    """A stable merge sort from the bottom up; runs in order already are left alone."""
    for base in range(first, stop, 8):
        for i in range(base + 1, min(base + 8, stop)):
            v = order[i]
            k = i
            while k > base and _before(start, token, v, order[k - 1]):
                order[k] = order[k - 1]
                k -= 1
            order[k] = v
    width = 8
    while width < stop - first:
        for a in range(first, stop, 2 * width):
            mid = min(a + width, stop)
            end = min(mid + width, stop)
            if mid == end or not _before(start, token, order[mid], order[mid - 1]):
                continue
            for k in range(a, mid):
                spare[k - a] = order[k]
            left, size, right, out = 0, mid - a, mid, a
            while left < size:
                if right < end and _before(start, token, order[right], spare[left]):
                    order[out] = order[right]
                    right += 1
                else:
                    order[out] = spare[left]
                    left += 1
                out += 1
        width *= 2


@kernel
def entries_of(c, rows, order, start, token):
    """(row, box, start, token, more) of the rows in this order."""
    c_start, c_count, attr, low, high = c.start, c.count, c.attr, c.low, c.high
    n = order.size
    row = np.empty(n, np.int32)
    box = np.empty((n, 4))
    new_start = np.empty(n + 1, np.int64)
    new_token = np.empty(token.size, np.int32)
    more = np.empty(n, np.bool_)
    new_start[0] = 0
    for i in range(n):
        o = order[i]
        r = rows[o]
        row[i] = r
        a, b = start[o], start[o + 1]
        at = new_start[i]
        for k in range(b - a):
            new_token[at + k] = token[a + k]
        new_start[i + 1] = at + b - a
        k = np.int64(c_start[r])
        if c_count[r] >= 2 and attr[k] == 0:
            box[i, 0], box[i, 1] = low[k], low[k + 1]
            box[i, 2], box[i, 3] = high[k], high[k + 1]
            more[i] = c_count[r] > 2
        else:
            box[i, 0], box[i, 1] = -np.inf, -np.inf
            box[i, 2], box[i, 3] = np.inf, np.inf
            more[i] = c_count[r] > 0
    return row, box, new_start, new_token, more


# --- messages ---------------------------------------------------------------------------------


@kernel
def point_boxes(batch):
    """The place of every event as a box."""
    start, attr, value = batch.start, batch.attr, batch.value
    n = start.size - 1
    boxes = np.empty((n, 4))
    for at in range(n):
        x = find_value(attr, value, start[at], start[at + 1], 0)
        y = find_value(attr, value, start[at], start[at + 1], 1)
        if np.isnan(x) or np.isnan(y):
            boxes[at, 0], boxes[at, 1] = np.inf, np.inf
            boxes[at, 2], boxes[at, 3] = -np.inf, -np.inf
        else:
            boxes[at, 0], boxes[at, 1], boxes[at, 2], boxes[at, 3] = x, y, x, y
    return boxes


@kernel
def table_size(batch):
    """Slots of a hash table that holds any message of the batch at most a quarter full."""
    word_start = batch.word_start
    longest = 1
    for at in range(word_start.size - 1):
        longest = max(longest, word_start[at + 1] - word_start[at] + 1)
    size = 16
    while size < 4 * longest:
        size *= 2
    return size


@kernel
def slot_of(token, mask):
    """Where a token belongs in a table of mask + 1 slots."""
    return ((np.int64(token) * 2654435761) >> 13) & mask


@kernel
def message_tokens(word, w0, w1, rank, tokens, keys, where):
    """Fill a message's tokens, ascending, and the hash table over them; (how many, the mask).

    Words without a rank are in no clause and are left out. `keys` and `where` are larger
    than most messages need: only mask + 1 slots are used, and cleared first.
    """
    n = 1
    tokens[0] = ANY
    for k in range(w0, w1):
        if word[k] < rank.size and rank[word[k]] > 0:
            tokens[n] = rank[word[k]]
            n += 1
    sort_run(tokens, 1, n)
    size = 16
    while size < 4 * n:
        size *= 2
    mask = size - 1
    keys[:size] = -1
    for j in range(n):
        s = slot_of(tokens[j], mask)
        while keys[s] >= 0:
            s = (s + 1) & mask
        keys[s] = tokens[j]
        where[s] = j
    return n, mask


@kernel
def lookup(keys, mask, token):
    """The slot of a token in a hash table, -1 if it is not there."""
    s = slot_of(token, mask)
    while keys[s] >= 0:
        if keys[s] == token:
            return s
        s = (s + 1) & mask
    return -1


@kernel
def all_in(token, a, b, keys, mask):
    """Whether the message holds all of token[a:b]."""
    for k in range(a, b):
        if lookup(keys, mask, token[k]) < 0:
            return False
    return True


@kernel
def sets_meet(token, a, b, tokens, n, keys, mask):
    """Whether the ascending set token[a:b] and the message share a token.

    The smaller side probes the other; the message's common words, which are last and hit
    most often in idf order, go first.
    """
    size = b - a
    if size == 0:
        return False
    if size <= 4 * n:
        for k in range(b - 1, a - 1, -1):
            if lookup(keys, mask, token[k]) >= 0:
                return True
        return False
    for j in range(n - 1, -1, -1):
        k = first_not_below(token, a, b, tokens[j])
        if k < b and token[k] == tokens[j]:
            return True
    return False


@kernel
def first_not_below(array, a, b, wanted):
    """The first place in the ascending array[a:b] whose item is at least `wanted`, b for none."""
    while a < b:
        mid = (a + b) >> 1
        if array[mid] < wanted:
            a = mid + 1
        else:
            b = mid
    return a


@kernel
def meets(box, i, x0, y0, x1, y1):
    """Whether rectangle i and that from (x0, y0) to (x1, y1) share a point."""
    return box[i, 0] <= x1 and box[i, 2] >= x0 and box[i, 1] <= y1 and box[i, 3] >= y0


@kernel
def rest_holds(start, count, attr, low, high, row, event_attr, value, e0, e1):
    """Whether an event satisfies what predicates a clause has beside its region."""
    c0 = np.int64(start[row])
    c1 = c0 + np.int64(count[row])
    if c1 - c0 >= 2 and attr[c0] == 0:
        c0 += 2
    return event_satisfies(attr, low, high, c0, c1, event_attr, value, e0, e1)


@kernel
def room_for(out, n, more):
    """`out` with room for `more` items behind the first n."""
    while n + more > out.size:
        out = grow(out, out.size)
    return out


# --- a few clauses, compared one by one -------------------------------------------------------


@kernel
def scan_rows(c, rows, batch, boxes, counters):
    """(events, rows) for clauses that no structure holds yet."""
    c_start, c_count, attr, low, high = c.start, c.count, c.attr, c.low, c.high
    extra, word_start, word_count, wanted = c.extra, c.word_start, c.word_count, c.word
    b_start, b_attr, b_value = batch.start, batch.attr, batch.value
    w_start, word = batch.word_start, batch.word
    events = np.empty(64, np.int32)
    found = np.empty(64, np.int32)
    n = 0
    for at in range(b_start.size - 1):
        x0, y0, x1, y1 = boxes[at, 0], boxes[at, 1], boxes[at, 2], boxes[at, 3]
        for row in rows:
            k = np.int64(c_start[row])
            placed = c_count[row] >= 2 and attr[k] == 0
            if placed and (low[k] > x1 or high[k] < x0 or low[k + 1] > y1 or high[k + 1] < y0):
                continue
            e = extra[row]
            if e >= 0:
                s0 = np.int64(word_start[e])
                s1 = s0 + np.int64(word_count[e])
                if not contains_sorted(word, w_start[at], w_start[at + 1], wanted, s0, s1):
                    continue
            if not rest_holds(
                c_start,
                c_count,
                attr,
                low,
                high,
                row,
                b_attr,
                b_value,
                b_start[at],
                b_start[at + 1],
            ):
                continue
            if n == found.size:
                events, found = grow(events, n), grow(found, n)
            events[n], found[n] = at, row
            n += 1
    counters[0] += 1
    counters[1] += rows.size * (b_start.size - 1)
    counters[2] += n
    return events[:n], found[:n]
