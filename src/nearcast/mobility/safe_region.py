"""The safe region as the client holds it: an epoch, a shape, and a quick exact test."""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nearcast.mobility.plane import Plane, distance
from nearcast.model.geometry import Point, Space

__all__ = [
    "Ball",
    "Bar",
    "Cells",
    "Disc",
    "SafeRegion",
    "Shape",
    "Sites",
    "single_bar",
    "single_disc",
    "spread_bits",
]

#: x, y and radius on a map.
Disc: TypeAlias = tuple[float, float, float]
#: Two ends of a segment, and how far from it: ax, ay, bx, by, reach.
Bar: TypeAlias = tuple[float, float, float, float, float]


def _spread_table() -> tuple[int, ...]:
    return tuple(sum(((n >> k) & 1) << (2 * k) for k in range(8)) for n in range(256))


_SPREAD = _spread_table()


def spread_bits(value: int) -> int:
    """The bits of a 16-bit number with a zero between any two."""
    return _SPREAD[value & 255] | _SPREAD[value >> 8 & 255] << 16


def single_disc(disc: Disc) -> Disc:
    """A disc of float32 numbers that holds the given one; infinite where there is none."""
    x, y, radius = disc
    near_x, near_y = _single(x), _single(y)
    return near_x, near_y, _wider(radius, math.hypot(near_x - x, near_y - y))


def single_bar(bar: Bar) -> Bar:
    """A bar of float32 numbers that holds the given one; infinite where there is none."""
    ax, ay, bx, by = map(_single, bar[:4])
    shift = max(math.hypot(ax - bar[0], ay - bar[1]), math.hypot(bx - bar[2], by - bar[3]))
    return ax, ay, bx, by, _wider(bar[4], shift)


def _wider(radius: float, shift: float) -> float:
    if shift == 0.0 and _single(radius) == radius:
        return radius
    return _single((radius + shift) * (1 + 2.0**-22) + 1e-30)


def _single(value: float) -> float:
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf
    return single


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of a grid, without some discs and bars.

    Cells are numbered in z-order from the corner (x0, y0) of the map; `starts` and `stops`
    are the runs of numbers that belong to the region.
    """

    plane: Plane
    x0: float
    y0: float
    cell: float
    order: int
    starts: Sequence[int]
    stops: Sequence[int]
    discs: tuple[Disc, ...] = ()
    bars: tuple[Bar, ...] = ()

    def contains(self, x: float, y: float) -> bool:
        """Whether a place is in a cell, in no disc and near no bar. A few microseconds."""
        u, v = self.plane.to_map(x, y)
        side = 1 << self.order
        across, up = (u - self.x0) / self.cell, (v - self.y0) / self.cell
        if not (0.0 <= across < side and 0.0 <= up < side):
            return False
        code = spread_bits(int(across)) | spread_bits(int(up)) << 1
        at = bisect_right(self.starts, code) - 1
        if at < 0 or code >= self.stops[at]:
            return False
        for cx, cy, radius in self.discs:
            dx, dy = u - cx, v - cy
            if dx * dx + dy * dy <= radius * radius:
                return False
        for ax, ay, bx, by, reach in self.bars:
            dx, dy = bx - ax, by - ay
            length = dx * dx + dy * dy
            along = ((u - ax) * dx + (v - ay) * dy) / length if length > 0.0 else 0.0
            along = min(1.0, max(0.0, along))
            dx, dy = ax + along * dx - u, ay + along * dy - v
            if dx * dx + dy * dy <= reach * reach:
                return False
        return True

    def holds_cell(self, code: int) -> bool:
        """Whether the cell of this number belongs to the region."""
        at = bisect_right(self.starts, code) - 1
        return at >= 0 and code < self.stops[at]

    @property
    def count(self) -> int:
        """How many cells there are."""
        return sum(self.stops) - sum(self.starts)


@dataclass(frozen=True, slots=True)
class Sites:
    """A Voronoi cell without a disc: nearer to the first site than to any other, but not near.

    Distances are taken to the rims of the sites' discs (x, y, radius), so that sites may
    have different radii; `limit` bounds the distance to the first one.
    """

    space: Space
    sites: tuple[tuple[float, float, float], ...]
    limit: float

    def contains(self, x: float, y: float) -> bool:
        """Whether a place is in the cell and out of the disc."""
        (first, *others), space = self.sites, self.space
        whole = distance(space, x, y, first[0], first[1])
        gap = whole - first[2]
        if gap <= 0 or whole > self.limit:
            return False
        return all(distance(space, x, y, a, b) - r >= gap for a, b, r in others)


@dataclass(frozen=True, slots=True)
class Ball:
    """All places nearer than `radius` to a centre; everywhere if it is infinite."""

    space: Space
    x: float
    y: float
    radius: float

    def contains(self, x: float, y: float) -> bool:
        """Whether a place is near enough."""
        return self.radius == math.inf or distance(self.space, x, y, self.x, self.y) < self.radius


Shape: TypeAlias = Cells | Sites | Ball


@dataclass(frozen=True, slots=True)
class SafeRegion:
    """Where a subscriber may move without telling the server.

    `epoch` is the number of the report that it answers: a client takes no other. `encode`
    and `decode` are exact inverses where discs and bars are of float32 numbers, as all that are
    built are; others may grow by a rounding.

    >>> region = SafeRegion(1, Ball("planar", 0.0, 0.0, 5.0))
    >>> SafeRegion.decode(region.encode()).contains(Point(3.0, 4.0 - 1e-9))
    True
    """

    epoch: int
    shape: Shape
    _bytes: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)

    def contains(self, place: Point) -> bool:
        """Whether the subscriber may stay silent at this place."""
        return self.shape.contains(place.x, place.y)

    def encode(self) -> bytes:
        """The bytes of `docs/safe-region-format.md`."""
        from nearcast.mobility.codec import encode

        if not self._bytes:
            self._bytes.append(encode(self))
        return self._bytes[0]

    @staticmethod
    def decode(data: bytes) -> SafeRegion:
        """Read what `encode` wrote; ValidationError for anything else."""
        from nearcast.mobility.codec import decode

        return decode(data)
