"""Roaring bitmaps in their portable format, as much of it as sorted runs need.

Written and read here in plain Python; any Roaring library reads the same bytes
(RoaringFormatSpec: cookies 12346 and 12347, array, bitmap and run containers).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise

from nearcast.errors import ValidationError

__all__ = ["read", "write"]

_PLAIN, _WITH_RUNS = 12346, 12347
_CHUNK = 1 << 16
_NO_OFFSETS = 4
_MOST_IN_ARRAY = 4096


def write(starts: Iterable[int], stops: Iterable[int]) -> bytes:
    """Encode ascending, separate runs below 2³²; each chunk of 65536 as the smallest container."""
    chunks: dict[int, list[tuple[int, int]]] = {}
    for start, stop in zip(starts, stops, strict=True):
        while start < stop:
            key = start // _CHUNK
            end = min(stop, (key + 1) * _CHUNK)
            chunks.setdefault(key, []).append((start % _CHUNK, end - start))
            start = end
    packed = [(key, *_container(runs)) for key, runs in chunks.items()]
    return _assembled(packed)


def _container(runs: list[tuple[int, int]]) -> tuple[bool, int, bytes]:
    """Whether it is a run container, how many numbers it has, and its bytes."""
    count = sum(length for _, length in runs)
    as_runs = 2 + 4 * len(runs)
    if as_runs <= min(2 * count, 8192):
        flat = [number for start, length in runs for number in (start, length - 1)]
        return True, count, struct.pack(f"<{1 + len(flat)}H", len(runs), *flat)
    if count <= _MOST_IN_ARRAY:
        numbers = [n for start, length in runs for n in range(start, start + length)]
        return False, count, struct.pack(f"<{count}H", *numbers)
    bits = 0
    for start, length in runs:
        bits |= ((1 << length) - 1) << start
    return False, count, bits.to_bytes(_CHUNK // 8, "little")


def _assembled(packed: list[tuple[int, bool, int, bytes]]) -> bytes:
    size = len(packed)
    with_runs = any(is_run for _, is_run, _, _ in packed)
    if with_runs:
        head = struct.pack("<I", _WITH_RUNS | (size - 1) << 16)
        flags = sum(1 << i for i, (_, is_run, _, _) in enumerate(packed) if is_run)
        head += flags.to_bytes((size + 7) // 8, "little")
    else:
        head = struct.pack("<II", _PLAIN, size)
    for key, _, count, _ in packed:
        head += struct.pack("<HH", key, count - 1)
    if not with_runs or size >= _NO_OFFSETS:
        at = len(head) + 4 * size
        for _, _, _, body in packed:
            head += struct.pack("<I", at)
            at += len(body)
    return head + b"".join(body for _, _, _, body in packed)


class _Reader:
    """Bytes taken from the front; running out of them is a clear error."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            raise ValidationError("region", len(self.data), "the Roaring bitmap is cut short")
        self.at += size
        return part

    def numbers(self, count: int, kind: str = "H") -> tuple[int, ...]:
        return struct.unpack(f"<{count}{kind}", self.take(count * struct.calcsize(kind)))


def read(data: bytes, limit: int) -> tuple[list[int], list[int]]:
    """The runs of a portable Roaring bitmap; ValidationError if broken or beyond `limit`."""
    reader = _Reader(data)
    (cookie,) = reader.numbers(1, "I")
    if cookie & 0xFFFF == _WITH_RUNS:
        size = (cookie >> 16) + 1
        flags = int.from_bytes(reader.take((size + 7) // 8), "little")
    elif cookie == _PLAIN:
        (size,) = reader.numbers(1, "I")
        flags = 0
    else:
        raise ValidationError("region", cookie, "not a Roaring bitmap")
    if size > _CHUNK:
        raise ValidationError("region", size, "a Roaring bitmap has at most 65536 containers")
    heads = reader.numbers(2 * size)
    keys, counts = heads[::2], [n + 1 for n in heads[1::2]]
    if any(a >= b for a, b in pairwise(keys)):
        raise ValidationError("region", keys[:8], "the Roaring containers are out of order")
    if cookie == _PLAIN or size >= _NO_OFFSETS:
        reader.take(4 * size)
    starts: list[int] = []
    stops: list[int] = []
    for i, (key, count) in enumerate(zip(keys, counts, strict=True)):
        for start, length in _runs(reader, count, bool(flags >> i & 1)):
            first = key * _CHUNK + start
            if stops and first < stops[-1]:
                raise ValidationError("region", first, "the Roaring runs overlap")
            if stops and first == stops[-1]:
                stops[-1] = first + length
            else:
                starts.append(first)
                stops.append(first + length)
    if stops and stops[-1] > limit:
        raise ValidationError("region", stops[-1], f"its runs go beyond its {limit} cells")
    if reader.at != len(data):
        raise ValidationError("region", len(data), "bytes follow the Roaring bitmap")
    return starts, stops


def _runs(reader: _Reader, count: int, is_run: bool) -> list[tuple[int, int]]:
    if is_run:
        (size,) = reader.numbers(1)
        flat = reader.numbers(2 * size)
        runs = [(start, length + 1) for start, length in zip(flat[::2], flat[1::2], strict=True)]
        if sum(length for _, length in runs) != count:
            raise ValidationError("region", count, "a Roaring container's count is wrong")
        if any(start + length > _CHUNK for start, length in runs):
            raise ValidationError("region", runs[-1], "a Roaring run leaves its container")
        return runs
    if count <= _MOST_IN_ARRAY:
        numbers = reader.numbers(count)
    else:
        bits = int.from_bytes(reader.take(_CHUNK // 8), "little")
        if bits.bit_count() != count:
            raise ValidationError("region", count, "a Roaring container's count is wrong")
        text = f"{bits:b}"[::-1]
        numbers = tuple(i for i, bit in enumerate(text) if bit == "1")
    runs = []
    for number in numbers:
        if runs and runs[-1][0] + runs[-1][1] == number:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return runs
