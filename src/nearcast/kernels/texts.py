"""Constants of filter texts: where they stand, and which texts differ in nothing else.

What `nearcast.model.templates` does with one text, for many; texts for which the two could
differ are called odd and left to it.
"""

from __future__ import annotations

import numpy as np

from nearcast.jit import kernel, word_reader

#: The number of constants of a text that is left to others.
ODD = -1
QUOTE = np.uint8(39)
_PLUS, _MINUS, _DOT = 43, 45, 46
#: Bytes of a name, and names, that `code_names` takes.
_LONGEST, MOST_NAMES = 16, 512
read_word = word_reader()
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@kernel
def _is_digit(c):
    return 48 <= c <= 57


@kernel
def _is_word(c):
    """Whether a byte may be in a name behind its first letter."""
    return 48 <= c <= 58 or 65 <= c <= 90 or 97 <= c <= 122 or c in (46, 95) or c >= 128


@kernel
def _is_odd(c):
    """Zero, a double quote, a backslash, a brace, or a character beyond ASCII."""
    return c in (0, 34, 92, 123) or c >= 128


@kernel
def _string_end(data, first, end):
    """Where the string ends that begins here; `ODD` with a quote or a backslash in it."""
    for i in range(first + 1, end):
        if data[i] == 92:
            return ODD
        if data[i] == QUOTE:
            return ODD if i + 1 < end and data[i + 1] == QUOTE else i + 1
    return ODD


@kernel
def _digits_end(data, first, end):
    i = first
    while i < end and _is_digit(data[i]):
        i += 1
    return i


@kernel
def _number_end(data, first, end):
    """Where the number ends that begins here with a digit or a sign; `ODD` if it is none."""
    at = _digits_end(data, first + (not _is_digit(data[first])), end)
    if at < end and data[at] == _DOT:
        dot = at
        at = _digits_end(data, dot + 1, end)
        if at == dot + 1:
            return ODD
    if at < end and data[at] in (69, 101):
        power = at + 1
        if power < end and data[power] in (_PLUS, _MINUS):
            power += 1
        at = _digits_end(data, power, end)
        if at == power:
            return ODD
    if at < end and (_is_word(data[at]) or data[at] in (_PLUS, _MINUS)):
        return ODD
    return at


@kernel
def _scan(data, first, end, start, stop, at, fill):
    """(number of constants or `ODD`, hash of the rest); where they are goes to start and stop."""
    count = 0
    h = _BASIS
    i = first
    while i < end:
        c = data[i]
        if _is_odd(c):
            return ODD, h
        signed = c in (_PLUS, _MINUS) and i + 1 < end and _is_digit(data[i + 1])
        if c == QUOTE or _is_digit(c) or signed:
            if c == QUOTE:
                after = _string_end(data, i, end)
            elif i > first and (_is_word(data[i - 1]) or data[i - 1] in (_PLUS, _MINUS)):
                after = ODD
            else:
                after = _number_end(data, i, end)
            if after == ODD:
                return ODD, h
            if fill:
                start[at + count], stop[at + count] = i, after
            count += 1
            h = (h ^ np.uint64(c == QUOTE)) * _PRIME
            i = after
            continue
        while i < end and not _is_odd(data[i]):
            h = (h ^ np.uint64(data[i])) * _PRIME
            i += 1
            if not (_is_word(c) and i < end and _is_word(data[i])):  # names are taken whole
                break
    return count, h


@kernel
def count_constants(offsets, data, counts, keys):
    """The number of constants of each text, `ODD` for some, and a hash of what is around them."""
    none = np.empty(0, np.int64)
    for i in range(counts.size):
        counts[i], keys[i] = _scan(data, offsets[i], offsets[i + 1], none, none, 0, False)


@kernel
def locate_constants(offsets, data, counts, first, start, stop):
    """Where the constants of the texts begin and end, those of text i from `first[i]` on."""
    for i in range(counts.size):
        if counts[i] > 0:
            _scan(data, offsets[i], offsets[i + 1], start, stop, first[i], True)


@kernel
def _same_bytes(data, a, b, size):
    for i in range(size):
        if data[a + i] != data[b + i]:
            return False
    return True


@kernel
def have_form(offsets, data, first, start, stop, count, rows, like, out):
    """Whether each of some texts differs from the text `like` in its constants only."""
    for r in range(rows.size):
        row = rows[r]
        a, b = offsets[row], offsets[like]
        same = True
        for k in range(count):
            i, j = first[row] + k, first[like] + k
            kind = (data[start[i]] == QUOTE) == (data[start[j]] == QUOTE)
            size = start[i] - a
            same = kind and size == start[j] - b and _same_bytes(data, a, b, size)
            if not same:
                break
            a, b = stop[i], stop[j]
        size = offsets[row + 1] - a
        out[r] = same and size == offsets[like + 1] - b and _same_bytes(data, a, b, size)


@kernel
def copy_spans(data, start, stop, ends, out):
    """Copy spans one behind the other to `out`; where each ends goes to `ends`."""
    at = 0
    for k in range(start.size):
        for i in range(start[k], stop[k]):
            out[at] = data[i]
            at += 1
        ends[k] = at


@kernel
def _packed(data, first, stop):
    """Up to eight bytes as a word, the first one lowest."""
    if stop <= first:
        return np.uint64(0)
    if first + 8 <= data.size:
        return read_word(data, first) & (~np.uint64(0) >> np.uint64(8 * (8 - (stop - first))))
    word = np.uint64(0)
    for i in range(stop - 1, first - 1, -1):
        word = (word << np.uint64(8)) | np.uint64(data[i])
    return word


@kernel
def code_names(offsets, data, codes, firsts):
    """Number names (Arrow's layout) in the order in which they come: codes by position.

    Where each comes first goes to `firsts`. Returns how many there are, −1 where there are more
    than `firsts` has room for, or long ones. A third of the time that Arrow takes.
    """
    table = np.full(4 * MOST_NAMES, -1, np.int32)
    mask = np.uint64(table.size - 1)
    keys = np.empty((firsts.size, 3), np.uint64)
    known = 0
    for i in range(codes.size):
        first, stop = np.int64(offsets[i]), np.int64(offsets[i + 1])
        size = stop - first
        if size > _LONGEST:
            return -1
        a = _packed(data, first, min(stop, first + 8))
        b = _packed(data, first + 8, stop) if size > 8 else np.uint64(0)
        h = (a ^ (b * _PRIME) ^ np.uint64(size)) * np.uint64(0x9E3779B97F4A7C15)
        at = (h >> np.uint64(40)) & mask
        while True:
            code = table[at]
            if code < 0:
                if known == firsts.size:
                    return -1
                code = table[at] = known
                keys[known, 0], keys[known, 1], keys[known, 2] = a, b, size
                firsts[known] = i
                known += 1
                break
            if keys[code, 0] == a and keys[code, 1] == b and keys[code, 2] == size:
                break
            at = (at + np.uint64(1)) & mask
        codes[i] = code
    return known
