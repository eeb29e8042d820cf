"""WAH: the word-aligned hybrid run-length code of a bitmap (Wu, Otoo, Shoshani), 32-bit words.

A literal word has its top bit clear and carries 31 bits, the lowest first. A fill word has
its top bit set, then the value of the fill, then in 30 bits how many groups of 31 it stands
for. Words are little-endian. Bits after the last word are 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from nearcast.errors import ValidationError

__all__ = ["read", "write"]

_GROUP = 31
_ONES = (1 << 31) - 1
_FILL, _VALUE, _MOST = 1 << 31, 1 << 30, (1 << 30) - 1


def write(starts: Iterable[int], stops: Iterable[int]) -> bytes:
    """Encode ascending, separate runs of ones. Costs time by runs, not by bits."""
    words: list[int] = []
    group, bits = 0, 0  # the group being filled, and its bits

    def fill(value: int, count: int) -> None:
        while count > 0:
            part = min(count, _MOST)
            words.append(_FILL | value | part)
            count -= part

    def advance(to: int) -> None:
        nonlocal group, bits
        if to == group:
            return
        words.append(bits)
        fill(0, to - group - 1)
        group, bits = to, 0

    for start, stop in zip(starts, stops, strict=True):
        first, last = start // _GROUP, (stop - 1) // _GROUP
        advance(first)
        if first == last:
            bits |= ((1 << (stop - start)) - 1) << (start % _GROUP)
            continue
        bits |= _ONES & ~((1 << (start % _GROUP)) - 1)
        words.append(bits)
        fill(_VALUE, last - first - 1)
        group, bits = last, (1 << ((stop - 1) % _GROUP + 1)) - 1
    words.append(bits)
    joined = _joined(words)
    return struct.pack(f"<{len(joined)}I", *joined)


def _joined(words: list[int]) -> list[int]:
    """Literals that are all zeros or all ones become fills, and neighbouring fills one."""
    out: list[int] = []
    for word in words:
        if word in (0, _ONES):
            word = _FILL | (_VALUE if word else 0) | 1
        if word & _FILL and out and out[-1] & _FILL and (word ^ out[-1]) & _VALUE == 0:
            total = (out[-1] & _MOST) + (word & _MOST)
            if total <= _MOST:
                out[-1] = word & (_FILL | _VALUE) | total
                continue
        out.append(word)
    while out and out[-1] & _FILL and not out[-1] & _VALUE:
        out.pop()
    return out


def read(data: bytes, limit: int) -> tuple[list[int], list[int]]:
    """The runs of ones; ValidationError if a run goes beyond `limit` bits."""
    if len(data) % 4:
        raise ValidationError("region", len(data), "WAH data are whole words of 4 bytes")
    starts: list[int] = []
    stops: list[int] = []
    at = 0
    for (word,) in struct.iter_unpack("<I", data):
        if word & _FILL:
            size = (word & _MOST) * _GROUP
            if word & _VALUE and size:
                _extend(starts, stops, at, at + size)
            at += size
        else:
            bits, base = word, at
            while bits:
                low = (bits & -bits).bit_length() - 1
                ones = bits >> low
                length = (~ones & (ones + 1)).bit_length() - 1
                _extend(starts, stops, base + low, base + low + length)
                bits = bits >> (low + length) << (low + length)
            at += _GROUP
        if (stops and stops[-1] > limit) or at > limit + 2 * _GROUP:
            raise ValidationError("region", at, f"its runs go beyond its {limit} cells")
    return starts, stops


def _extend(starts: list[int], stops: list[int], start: int, stop: int) -> None:
    if stops and stops[-1] == start:
        stops[-1] = stop
    else:
        starts.append(start)
        stops.append(stop)
