"""A hash table of strings in flat arrays: some 25 bytes a string.

Slot s has a cell of 16 bytes. A string of up to 15 bytes is in it, behind a byte with its
length and before zeros (Numba's machines are all little-endian): one look finds it, and two
strings are equal if both words of their cells are. A longer one stands in the blob: the
cell's first word is 255 and its length shifted by a byte, the second where it begins.

`table` maps a hash to a slot by linear probing (−1: empty). Deletion shifts the run back,
so there are no tombstones and no decay.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import brief_kernel, inlined, kernel, word_reader, word_writer

#: Bytes of a cell, the longest string in one, and what stands in place of its length else.
CELL = 16
SHORT = 15
_LONG = np.uint64(255)
_BYTE = np.uint64(8)
_ONE = np.uint64(1)
#: Strings that are entered together: loads that do not wait for each other overlap.
_TOGETHER = 256
read_word, write_word = word_reader(), word_writer()


@kernel
def _mixed(a, b):
    """A hash of two words; the mask takes its low bits."""
    h = a * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(32)
    h = (h ^ b) * np.uint64(0xD6E8FEB86659FD93)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@kernel
def _word(data, first, stop):
    """Up to eight bytes as a word, the first one lowest."""
    word = np.uint64(0)
    for i in range(stop - 1, first - 1, -1):
        word = (word << _BYTE) | np.uint64(data[i])
    return word


@kernel
def _two_words(data, first, size):
    """Up to sixteen bytes as two words, with zeros behind them."""
    stop = first + size
    if first + CELL > data.size:
        return _word(data, first, min(first + 8, stop)), _word(data, first + 8, stop)
    a, b = read_word(data, first), read_word(data, first + 8)
    if size < 8:
        return a & ((_ONE << np.uint64(8 * size)) - _ONE), np.uint64(0)
    if size < CELL:
        b &= (_ONE << np.uint64(8 * size - 64)) - _ONE
    return a, b


@kernel
def _key(data, first, stop):
    """(hash, first word, second word) of a string: its cell, if it is short."""
    size = stop - first
    if size <= SHORT:
        first_8, next_8 = _two_words(data, first, size)
        a = (first_8 << _BYTE) | np.uint64(size)
        b = (first_8 >> np.uint64(56)) | (next_8 << _BYTE)
        return _mixed(a, b), a, b
    h = np.uint64(size)
    for i in range(first, stop, 8):
        h = _mixed(h, _word(data, i, min(i + 8, stop)))
    return h, _LONG | (np.uint64(size) << _BYTE), np.uint64(0)


@kernel
def _same(cells, blob, slot, a, b, data, first):
    """Whether a slot holds the string with this key."""
    if cells[slot, 0] != a:
        return False
    if a & _LONG != _LONG:
        return cells[slot, 1] == b
    begin = np.int64(cells[slot, 1])
    for i in range(np.int64(a >> _BYTE)):
        if blob[begin + i] != data[first + i]:
            return False
    return True


@kernel
def _hash(cells, blob, slot):
    a, b = cells[slot, 0], cells[slot, 1]
    if a & _LONG != _LONG:
        return _mixed(a, b)
    return _key(blob, np.int64(b), np.int64(b + (a >> _BYTE)))[0]


@kernel
def _seek(table, cells, blob, data, first, h, a, b):
    """Where in the table a string stands, or the empty place where it would."""
    mask = np.uint64(table.size - 1)
    at = h & mask
    while table[at] >= 0 and not _same(cells, blob, table[at], a, b, data, first):
        at = (at + _ONE) & mask
    return at


@brief_kernel
def find(table, cells, blob, data, first, stop):
    """The slot of the string data[first:stop], −1 if it is not there."""
    h, a, b = _key(data, first, stop)
    return np.int64(table[_seek(table, cells, blob, data, first, h, a, b)])


@brief_kernel
def insert(table, cells, blob, used, slot, data):
    """Enter one string; `insert_many` for one. Returns used bytes, −1 if it is there already."""
    h, a, b = _key(data, 0, data.size)
    at = _seek(table, cells, blob, data, 0, h, a, b)
    if table[at] >= 0:
        return np.int64(-1)
    return _enter(table, cells, blob, np.int64(used), at, slot, a, b, data, 0, data.size)


@kernel
def _enter(table, cells, blob, used, at, slot, a, b, data, first, stop):
    """Write a string into its place in the table and its slot; returns used bytes."""
    table[at] = slot
    if a & _LONG == _LONG:
        b = np.uint64(used)
        for j in range(first, stop):
            blob[used] = data[j]
            used += 1
    cells[slot, 0], cells[slot, 1] = a, b
    return used


@kernel
def place_many(table, cells, blob, slots):
    """Enter many slots whose strings are all different into a table without them."""
    mask = np.uint64(table.size - 1)
    for slot in slots:
        at = _hash(cells, blob, slot) & mask
        while table[at] >= 0:
            at = (at + _ONE) & mask
        table[at] = slot


@kernel
def insert_many(table, cells, blob, used, slots, offsets, data):
    """Enter strings (Arrow's layout) under `slots`, long ones behind `used` bytes of the blob.

    Returns (how many, used bytes): all of them, or as many as stand before the first that is
    there already.
    """
    count = slots.size
    mask = np.uint64(table.size - 1)
    key = np.empty((_TOGETHER, 3), np.uint64)
    touched = np.uint64(0)
    for begin in range(0, count, _TOGETHER):
        end = min(begin + _TOGETHER, count)
        for i in range(begin, end):
            h, a, b = _key(data, offsets[i], offsets[i + 1])
            k = i - begin
            key[k, 0], key[k, 1], key[k, 2] = h, a, b
            touched ^= np.uint64(table[h & mask])
        for i in range(begin, end):
            slot = table[key[i - begin, 0] & mask]
            if slot >= 0:
                touched ^= cells[slot, 0]
        for i in range(begin, end):
            h, a, b = key[i - begin, 0], key[i - begin, 1], key[i - begin, 2]
            at = _seek(table, cells, blob, data, offsets[i], h, a, b)
            if table[at] >= 0:
                return i, used
            used = _enter(
                table, cells, blob, used, at, slots[i], a, b, data, offsets[i], offsets[i + 1]
            )
    key[0, 0] = touched  # somewhere: what is not used, the compiler would not read
    return count, used


@inlined
def _reversed(word):
    """The bytes of a word in the other order: strings compare as numbers then."""
    swapped = np.uint64(0)
    for i in range(8):
        swapped |= ((word >> np.uint64(8 * i)) & _LONG) << np.uint64(56 - 8 * i)
    return swapped


@kernel
def _comes_behind(data, first, size, before, size_before):
    """Whether a string comes behind another in the order of bytes; their first 16 are equal."""
    for i in range(CELL, min(size, size_before)):
        if data[first + i] != data[before + i]:
            return data[first + i] > data[before + i]
    return size > size_before


@kernel
def put_ascending(cells, blob, used, offsets, data):
    """Write strings (Arrow's layout) into cells from the first on, as long as they ascend.

    Either in the order of bytes, or shorter ones first and those of one length in that order:
    so do numbers that count, with zeros in front and without. Returns (how many, used bytes).
    Strings that ascend are all different, and need not be looked for to know that.
    """
    plain, shorter_first = True, True
    word, next_word = np.uint64(0), np.uint64(0)
    first, size = np.int64(0), np.int64(-1)
    for i in range(offsets.size - 1):
        word_before, next_before, before, size_before = word, next_word, first, size
        first = np.int64(offsets[i])
        size = np.int64(offsets[i + 1]) - first
        a, b = _two_words(data, first, min(size, CELL))
        word, next_word = _reversed(a), _reversed(b)
        if word != word_before:
            behind = word > word_before
        elif next_word != next_before:
            behind = next_word > next_before
        else:
            behind = _comes_behind(data, first, size, before, size_before)
        plain &= behind
        shorter_first &= size > size_before or (size == size_before and behind)
        if not (plain or shorter_first):
            return i, used
        if size <= SHORT:
            cells[i, 0] = (a << _BYTE) | np.uint64(size)
            cells[i, 1] = (a >> np.uint64(56)) | (b << _BYTE)
        else:
            cells[i, 0] = _LONG | (np.uint64(size) << _BYTE)
            cells[i, 1] = np.uint64(used)
            for j in range(first, first + size):
                blob[used] = data[j]
                used += 1
    return offsets.size - 1, used


@brief_kernel
def remove(table, cells, blob, slot):
    """Take a slot out; the entries behind it move up to close the gap."""
    mask = np.uint64(table.size - 1)
    at = _hash(cells, blob, slot) & mask
    while table[at] != slot:
        at = (at + _ONE) & mask
    hole = at
    step = (at + _ONE) & mask
    while table[step] >= 0:
        home = _hash(cells, blob, table[step]) & mask
        if ((step - home) & mask) >= ((step - hole) & mask):
            table[hole] = table[step]
            hole = step
        step = (step + _ONE) & mask
    table[hole] = -1


@inlined
def size_of(first_word):
    """The bytes of a string, by the first word of its cell."""
    if first_word & _LONG == _LONG:
        return np.int64(first_word >> _BYTE)
    return np.int64(first_word & _LONG)


@kernel
def total_size(cells, slots):
    """The bytes of all strings of some slots."""
    total = 0
    for slot in slots:
        total += size_of(cells[slot, 0])
    return total


@kernel
def packed(cells, blob, slots):
    """A blob with the long strings of these slots alone; their cells are put right."""
    total = 0
    for slot in slots:
        if cells[slot, 0] & _LONG == _LONG:
            total += size_of(cells[slot, 0])
    tight = np.empty(total, np.uint8)
    used = 0
    for slot in slots:
        if cells[slot, 0] & _LONG == _LONG:
            begin = np.int64(cells[slot, 1])
            size = size_of(cells[slot, 0])
            for i in range(size):
                tight[used + i] = blob[begin + i]
            cells[slot, 1] = used
            used += size
    return tight, used


@kernel
def _copied_cells(cells, slots):
    """The cells of many slots side by side: loads that do not wait for each other overlap."""
    found = np.empty((slots.size, 2), np.uint64)
    for i in range(slots.size):
        found[i, 0] = cells[slots[i], 0]
        found[i, 1] = cells[slots[i], 1]
    return found


@inlined
def _write(out, at, a, b, blob):
    """Write the string of a cell; returns where it ends.

    A short one is written as two words, beyond its end too, where the next one goes: `out` has
    room for that behind the last.
    """
    size = size_of(a)
    if size <= SHORT:
        write_word(out, at, (a >> _BYTE) | (b << np.uint64(56)))
        write_word(out, at + 8, b >> _BYTE)
        return at + size
    begin = np.int64(b)
    for k in range(size):
        out[at + k] = blob[begin + k]
    return at + size


@kernel
def gather(cells, blob, slots):
    """The strings of many slots as (offsets, bytes), Arrow's layout."""
    n = slots.size
    found = _copied_cells(cells, slots)
    offsets = np.empty(n + 1, np.int64)
    offsets[0] = 0
    for i in range(n):
        offsets[i + 1] = offsets[i] + size_of(found[i, 0])
    data = np.empty(offsets[n] + CELL, np.uint8)
    for i in range(n):
        _write(data, offsets[i], found[i, 0], found[i, 1], blob)
    return offsets, data[: offsets[n]]


@kernel
def gather_lines(cells, blob, slots):
    """The strings of many slots one after another, a zero byte between them.

    Also whether they are known to be in ascending order, which is told of short ones only.
    """
    n = slots.size
    found = _copied_cells(cells, slots)
    total = n
    for i in range(n):
        total += size_of(found[i, 0])
    out = np.empty(total + CELL, np.uint8)
    at = 0
    ascending = True
    before, before_too = np.uint64(0), np.uint64(0)
    for i in range(n):
        a, b = found[i, 0], found[i, 1]
        at = _write(out, at, a, b, blob)
        out[at] = 0
        at += 1
        first = _reversed((a >> _BYTE) | (b << np.uint64(56)))
        second = _reversed(b >> _BYTE)
        ascending &= (before < first) | ((before == first) & (before_too <= second))
        ascending &= a & _LONG != _LONG
        before, before_too = first, second
    return out[: max(total - 1, 0)], ascending


@brief_kernel
def gather_few_lines(cells, blob, slots):
    """`gather_lines` for a few."""
    return gather_lines(cells, blob, slots)
