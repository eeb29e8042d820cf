"""What no index decides: residual predicates and exact relations of extended shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.kernels import geometry
from nearcast.matcher.places import Shape, shape_floats
from nearcast.model.events import Event
from nearcast.model.geometry import Location
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
    if residual.relation == "within":
        return residual.negated != _within(shapes, place)
    return residual.negated != any(_related(residual, shape, place) for shape in shapes)


def _within(shapes: Sequence[Location], place: Place) -> bool:
    """Whether a place lies in shapes, all of them together."""
    encoded = [shape_floats(shape) for shape in shapes]
    sizes = [len(floats) for _, floats in encoded]
    kinds = np.array([kind for kind, _ in encoded])
    floats = np.array([number for _, floats in encoded for number in floats])
    offsets = np.cumsum([0, *sizes[:-1]])
    other = (place.kind, place.floats, 0, place.globe)
    return bool(geometry.shapes_cover(kinds, floats, offsets, *other))


def _related(residual: SpatialResidual, shape: Location, place: Place) -> bool:
    kind, numbers = shape_floats(shape)
    floats = np.array(numbers)
    if residual.relation == "intersects":
        return shape_meets(kind, floats, place)
    assert residual.distance_m is not None
    if kind == geometry.POINT:
        return shape_meets(geometry.CIRCLE, np.append(floats, residual.distance_m), place)
    other = (place.kind, place.floats, 0, place.globe)
    return bool(geometry.shapes_distance(kind, floats, 0, *other) <= residual.distance_m)
