"""The safe region as bytes, version 1 (`docs/safe-region-format.md`).

Cells go as runs in z-order, by WAH or Roaring, whichever is smaller; discs beside them.
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
from nearcast.mobility.safe_region import Ball, Cells, SafeRegion, Shape, Sites
from nearcast.model.geometry import Space

__all__ = ["decode", "encode"]

_MAGIC = b"nR"
_VERSION = 1
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
    head = _HEAD.pack(_MAGIC, _VERSION, kind, _SPACES.index(space), region.epoch)
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
    discs = b"".join(_disc(*disc) for disc in shape.discs)
    return head + ways[way] + discs


def _disc(x: float, y: float, radius: float) -> bytes:
    """Three float32 whose disc holds the given one."""
    near_x, near_y = _single(x), _single(y)
    shift = math.hypot(near_x - x, near_y - y)
    if not (math.isfinite(shift)):
        raise ValidationError("disc", (x, y), "a disc must be within the reach of a float32")
    wide = (radius + shift) * (1 + 2.0**-22) + 1e-30
    return struct.pack("<fff", near_x, near_y, wide)


def _single(value: float) -> float:
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf
    return single


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
    if version != _VERSION:
        raise ValidationError("region", version, f"this reader knows version {_VERSION}")
    if zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise ValidationError("region", len(data), "its checksum is wrong: ask for it again")
    if space_number >= len(_SPACES):
        raise ValidationError("region", space_number, "its space is 0 (globe) or 1 (planar)")
    space, body = _SPACES[space_number], data[_HEAD.size : -4]
    try:
        return SafeRegion(epoch, _shape(kind, space, body))
    except struct.error:
        raise ValidationError("region", len(data), "it ends too early") from None


def _shape(kind: int, space: Space, body: bytes) -> Shape:
    if kind == _CELLS:
        return _read_cells(space, body)
    if kind == _SITES:
        return _read_sites(space, body)
    if kind == _BALL:
        x, y, radius = struct.unpack("<ddd", body)
        if not (math.isfinite(x) and math.isfinite(y) and radius >= 0):
            raise ValidationError("region", (x, y, radius), "a ball has a finite centre")
        return Ball(space, x, y, radius)
    raise ValidationError("region", kind, "its kind is 0 (cells), 1 (sites) or 2 (ball)")


def _read_cells(space: Space, body: bytes) -> Cells:
    px, py, reach, x0, y0, cell, order, way, discs, size = _GRID.unpack_from(body)
    rest = body[_GRID.size :]
    if order > _DEEPEST or way > _ROARING or len(rest) != size + 12 * discs:
        raise ValidationError("region", (order, way, len(rest)), "its lengths do not agree")
    finite = all(map(math.isfinite, (px, py, x0, y0, cell)))
    if not finite or cell <= 0 or not reach >= 0 or (space == "globe" and reach > FARTHEST_M):
        raise ValidationError("region", (px, py, reach, cell), "its grid is no grid")
    limit = 1 << (2 * order)
    reader = wah.read if way == _WAH else roaring.read
    starts, stops = reader(rest[:size], limit) if size else ([], [])
    found = tuple(struct.iter_unpack("<fff", rest[size:]))
    if not all(map(math.isfinite, (n for disc in found for n in disc))):
        raise ValidationError("region", discs, "a disc is not finite")
    plane = Plane(space, px, py, reach)
    return Cells(plane, x0, y0, cell, order, tuple(starts), tuple(stops), found)


def _read_sites(space: Space, body: bytes) -> Sites:
    limit, count = struct.unpack_from("<dI", body)
    if count < 1 or len(body) != 12 + 24 * count:
        raise ValidationError("region", count, "its lengths do not agree")
    flat = struct.unpack_from(f"<{3 * count}d", body, 12)
    if not all(map(math.isfinite, flat)) or not limit >= 0:
        raise ValidationError("region", limit, "a site is not finite")
    sites = tuple((flat[i], flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3))
    return Sites(space, sites, limit)
