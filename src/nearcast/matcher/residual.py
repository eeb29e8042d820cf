"""What no index decides: residual predicates and exact relations of extended shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.kernels import geometry
from nearcast.matcher.places import Shape, shape_floats
from nearcast.model.events import Event
from nearcast.model.geometry import Circle, Point
from nearcast.model.predicates import SpatialResidual

__all__ = ["Place", "residuals_hold", "shape_meets"]


class Place:
    """An event's location, encoded once for many tests."""

    __slots__ = ("floats", "globe", "kind")

    def __init__(self, shape: Shape, globe: bool) -> None:
        self.kind = shape[0]
        self.floats = np.array(shape[1], np.float64)
        self.globe = globe


def shape_meets(kind: int, floats: npt.NDArray[np.float64], place: Place) -> bool:
    """Whether a region and a place share a point."""
    return bool(geometry.shapes_meet(kind, floats, 0, place.kind, place.floats, 0, place.globe))


def residuals_hold(residuals: Iterable[Any], event: Event, place: Place | None) -> bool:
    """Whether an event passes every residual predicate of a clause."""
    return all(
        _spatial(residual, place) if isinstance(residual, SpatialResidual) else residual.test(event)
        for residual in residuals
    )


def _spatial(residual: SpatialResidual, place: Place | None) -> bool:
    if place is None:  # a negated relation is false without a location, too
        return False
    shapes = residual.shape if isinstance(residual.shape, tuple) else (residual.shape,)
    return residual.negated != any(_related(residual, shape, place) for shape in shapes)


def _related(residual: SpatialResidual, shape: Any, place: Place) -> bool:
    if residual.relation == "dwithin" and isinstance(shape, Point):
        assert residual.distance_m is not None
        shape = Circle(shape.x, shape.y, residual.distance_m)
    kind, numbers = shape_floats(shape)
    floats = np.array(numbers)
    if residual.relation == "intersects" or kind == geometry.CIRCLE:
        return shape_meets(kind, floats, place)
    other = (place.kind, place.floats, 0, place.globe)
    if residual.relation == "within":
        return bool(geometry.shape_covers(kind, floats, 0, *other))
    return bool(geometry.shapes_distance(kind, floats, 0, *other) <= residual.distance_m)
