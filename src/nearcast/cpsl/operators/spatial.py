"""Relations between the places of instances, by compiled geometry.

A place is missing or a convex shape; every relation with a missing place is false.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nearcast.cpsl import kernels
from nearcast.cpsl.instances import Shape, shape_of
from nearcast.errors import ValidationError
from nearcast.kernels import geometry
from nearcast.kernels.arrange import frozen
from nearcast.model.geometry import SPACES, Point, Space

__all__ = ["Relations", "region_shape"]


def region_shape(points: bytes | Sequence[tuple[float, float]]) -> Shape:
    """The place that points of a text stand for: one of its own, or their convex hull.

    Points are pairs, or `nearcast.cpsl.regions.packed`.
    """
    flat = np.frombuffer(points) if isinstance(points, bytes) else np.array(points, np.float64)
    return shape_of(kernels.convex_hull(frozen(flat.reshape(-1, 2))))


class Relations:
    """The spatial relations of one space; `tolerance` is in metres (units on a plane)."""

    __slots__ = ("globe", "space", "tolerance")

    def __init__(self, space: Space, tolerance: float) -> None:
        if space not in SPACES:
            raise ValidationError("space", space, f"give one of {', '.join(SPACES)}")
        if not (isinstance(tolerance, int | float) and tolerance >= 0):
            raise ValidationError("tolerance_m", tolerance, "give metres, not negative")
        self.space: Space = space
        self.globe = space == "globe"
        self.tolerance = float(tolerance)

    def inside(self, outer: Shape | None, inner: Shape | None) -> bool:
        """Whether the second place lies in the first, borders included."""
        if outer is None or inner is None:
            return False
        return bool(geometry.shape_covers(outer[0], outer[1], 0, inner[0], inner[1], 0, self.globe))

    def overlap(self, first: Shape | None, second: Shape | None) -> bool:
        """Whether two places share a point and neither lies in the other (RCC-8's PO and EC)."""
        if first is None or second is None:
            return False
        if geometry.POINT in (first[0], second[0]):  # what a point meets, it lies in
            return False
        return bool(
            kernels.shapes_overlap(first[0], first[1], 0, second[0], second[1], 0, self.globe)
        )

    def same(self, first: Shape | None, second: Shape | None) -> bool:
        """Whether the centres lie within the tolerance."""
        if first is None or second is None:
            return False
        x1, y1 = kernels.centre_of(first[0], first[1], 0)
        x2, y2 = kernels.centre_of(second[0], second[1], 0)
        return self._between_points(x1, y1, x2, y2) <= self.tolerance

    def distance(self, first: Shape, second: Shape) -> float:
        """Metres between two places, 0 if they meet."""
        if first[0] == geometry.POINT and second[0] == geometry.POINT:
            # Python's floats: NumPy's own take five times as long one by one.
            return self._between_points(*first[1].tolist(), *second[1].tolist())
        return float(
            geometry.shapes_distance(first[0], first[1], 0, second[0], second[1], 0, self.globe)
        )

    def apart(self, first: Shape | None, second: Shape | None, op: str, metres: float) -> bool:
        """Whether the distance is less than, about or more than so many metres."""
        if first is None or second is None:
            return False
        return self.is_so_far(self.distance(first, second), op, metres)

    def points_apart(self, first: Point, second: Point, op: str, metres: float) -> bool:
        """The same for two points, without arrays."""
        found = self._between_points(first.x, first.y, second.x, second.y)
        return self.is_so_far(found, op, metres)

    def is_so_far(self, found: float, op: str, metres: float) -> bool:
        """Whether a distance is less than, about or more than so many metres."""
        if op == "<":
            return found < metres
        return found > metres if op == ">" else abs(found - metres) <= self.tolerance

    def _between_points(self, x1: float, y1: float, x2: float, y2: float) -> float:
        if self.globe:
            return float(geometry.haversine_m(x1, y1, x2, y2))
        dx, dy = x2 - x1, y2 - y1
        return math.sqrt(dx * dx + dy * dy)
