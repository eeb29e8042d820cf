"""The safe region as bytes, versions 1 and 2 (`docs/safe-region-format.md`).

Cells go as runs in z-order, by WAH or Roaring, whichever is smaller; discs beside them, and
bars, which make it version 2.
Numbers are little-endian. The last four bytes are a CRC-32 of the others: what was damaged on
its way is refused, never taken for a region.
"""

from __future__ import annotations

import math
import struct
import zlib

from nearcast.errors import ValidationError
from nearcast.mobility import roaring, wah
from nearcast.mobility.plane import FARTHEST_M, Plane
from nearcast.mobility.safe_region import (
    Ball,
    Cells,
    SafeRegion,
    Shape,
    Sites,
    single_bar,
    single_disc,
)
from nearcast.model.geometry import Space

__all__ = ["decode", "encode"]

_MAGIC = b"nR"
_PLAIN, _BARRED = 1, 2
_CELLS, _SITES, _BALL = 0, 1, 2
_WAH, _ROARING = 0, 1
_HEAD = struct.Struct("<2sBBBQ")
_GRID = struct.Struct("<ddddddBBHI")
_SPACES: tuple[Space, Space] = ("globe", "planar")
_DEEPEST = 15


def encode(region: SafeRegion) -> bytes:
    """The bytes of a region."""
    shape = region.shape
    if isinstance(shape, Cells):
        kind, space, body = _CELLS, shape.plane.space, _cells(shape)
    elif isinstance(shape, Sites):
        kind, space, body = _SITES, shape.space, _sites(shape)
    else:
        kind, space = _BALL, shape.space
        body = struct.pack("<ddd", shape.x, shape.y, shape.radius)
    version = _BARRED if isinstance(shape, Cells) and shape.bars else _PLAIN
    head = _HEAD.pack(_MAGIC, version, kind, _SPACES.index(space), region.epoch)
    whole = head + body
    return whole + struct.pack("<I", zlib.crc32(whole))


def _cells(shape: Cells) -> bytes:
    ways = (b"", b"")
    if shape.starts:
        ways = (wah.write(shape.starts, shape.stops), roaring.write(shape.starts, shape.stops))
    way = _WAH if len(ways[_WAH]) <= len(ways[_ROARING]) else _ROARING
    p = shape.plane
    head = _GRID.pack(
        p.x0, p.y0, p.reach_m, shape.x0, shape.y0, shape.cell, shape.order, way,
        len(shape.discs), len(ways[way]),
    )  # fmt: skip
    discs = b"".join(struct.pack("<fff", *_finite(single_disc(disc))) for disc in shape.discs)
    if not shape.bars:
        return head + ways[way] + discs
    bars = b"".join(struct.pack("<fffff", *_finite(single_bar(bar))) for bar in shape.bars)
    return head + ways[way] + discs + struct.pack("<H", len(shape.bars)) + bars


def _finite(numbers: tuple[float, ...]) -> tuple[float, ...]:
    if not all(map(math.isfinite, numbers)):
        raise ValidationError("region", numbers, "discs and bars are float32 numbers")
    return numbers


def _sites(shape: Sites) -> bytes:
    flat = [number for site in shape.sites for number in site]
    return struct.pack(f"<dI{len(flat)}d", shape.limit, len(shape.sites), *flat)


def decode(data: bytes) -> SafeRegion:
    """Read a region; ValidationError says what is wrong with anything that is none."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ValidationError("region", data, "give the bytes that `encode` made")
    data = bytes(data)
    if len(data) < _HEAD.size + 4:
        raise ValidationError("region", len(data), "too short for a safe region")
    magic, version, kind, space_number, epoch = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ValidationError("region", magic, "a safe region begins with 'nR'")
    if version not in (_PLAIN, _BARRED) or (version == _BARRED and kind != _CELLS):
        raise ValidationError("region", version, "this reader knows versions 1 and 2")
    if zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise ValidationError("region", len(data), "its checksum is wrong: ask for it again")
    if space_number >= len(_SPACES):
        raise ValidationError("region", space_number, "its space is 0 (globe) or 1 (planar)")
    space, body = _SPACES[space_number], data[_HEAD.size : -4]
    try:
        return SafeRegion(epoch, _shape(kind, space, body, version == _BARRED))
    except struct.error:
        raise ValidationError("region", len(data), "it ends too early") from None


def _shape(kind: int, space: Space, body: bytes, barred: bool) -> Shape:
    if kind == _CELLS:
        return _read_cells(space, body, barred)
    if kind == _SITES:
        return _read_sites(space, body)
    if kind == _BALL:
        x, y, radius = struct.unpack("<ddd", body)
        if not (math.isfinite(x) and math.isfinite(y) and radius >= 0):
            raise ValidationError("region", (x, y, radius), "a ball has a finite centre")
        return Ball(space, x, y, radius)
    raise ValidationError("region", kind, "its kind is 0 (cells), 1 (sites) or 2 (ball)")


def _read_cells(space: Space, body: bytes, barred: bool) -> Cells:
    px, py, reach, x0, y0, cell, order, way, discs, size = _GRID.unpack_from(body)
    rest = body[_GRID.size :]
    end = size + 12 * discs
    bars = struct.unpack_from("<H", rest, end)[0] if barred else 0
    whole = end + (2 + 20 * bars if barred else 0)
    if order > _DEEPEST or way > _ROARING or len(rest) != whole:
        raise ValidationError("region", (order, way, len(rest)), "its lengths do not agree")
    finite = all(map(math.isfinite, (px, py, x0, y0, cell)))
    if not finite or cell <= 0 or not reach >= 0 or (space == "globe" and reach > FARTHEST_M):
        raise ValidationError("region", (px, py, reach, cell), "its grid is no grid")
    limit = 1 << (2 * order)
    reader = wah.read if way == _WAH else roaring.read
    starts, stops = reader(rest[:size], limit) if size else ([], [])
    round_ = tuple(struct.iter_unpack("<fff", rest[size:end]))
    long = tuple(struct.iter_unpack("<fffff", rest[end + 2 :] if barred else b""))
    if not all(map(math.isfinite, (n for each in (*round_, *long) for n in each))):
        raise ValidationError("region", (discs, bars), "a disc or bar is not finite")
    plane = Plane(space, px, py, reach)
    return Cells(plane, x0, y0, cell, order, tuple(starts), tuple(stops), round_, long)


def _read_sites(space: Space, body: bytes) -> Sites:
    limit, count = struct.unpack_from("<dI", body)
    if count < 1 or len(body) != 12 + 24 * count:
        raise ValidationError("region", count, "its lengths do not agree")
    flat = struct.unpack_from(f"<{3 * count}d", body, 12)
    if not all(map(math.isfinite, flat)) or not limit >= 0:
        raise ValidationError("region", limit, "a site is not finite")
    sites = tuple((flat[i], flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3))
    return Sites(space, sites, limit)
