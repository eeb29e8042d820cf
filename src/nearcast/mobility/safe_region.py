"""The safe region as the client holds it: an epoch, a shape, and a quick exact test."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nearcast.mobility.plane import Plane, distance
from nearcast.model.geometry import Point, Space

__all__ = ["Ball", "Cells", "SafeRegion", "Shape", "Sites", "spread_bits"]


def _spread_table() -> tuple[int, ...]:
    return tuple(sum(((n >> k) & 1) << (2 * k) for k in range(8)) for n in range(256))


_SPREAD = _spread_table()


def spread_bits(value: int) -> int:
    """The bits of a 16-bit number with a zero between any two."""
    return _SPREAD[value & 255] | _SPREAD[value >> 8 & 255] << 16


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of a grid, without some discs.

    Cells are numbered in z-order from the corner (x0, y0) of the map; `starts` and `stops`
    are the runs of numbers that belong to the region. A disc is (x, y, radius) on the map.
    """

    plane: Plane
    x0: float
    y0: float
    cell: float
    order: int
    starts: Sequence[int]
    stops: Sequence[int]
    discs: tuple[tuple[float, float, float], ...] = ()

    def contains(self, x: float, y: float) -> bool:
        """Whether a place is in a cell and in no disc. A few microseconds."""
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
    and `decode` are exact inverses up to discs, whose radii may grow by a rounding.

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
