"""Operators that hold one instance against something fixed: a place or a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from nearcast.cpsl.instances import Instance
from nearcast.cpsl.operators.spatial import Relations, region_shape

__all__ = ["SPATIAL", "Test", "unary"]

Test: TypeAlias = Callable[[Instance], bool]
#: The kinds that look at the place alone.
SPATIAL = ("happen-in", "overlap", "same-place", "distance")


def unary(kind: str, params: tuple[Any, ...], relations: Relations) -> Test:
    """The test of `@(R)`, `OVLP(R)`, `SPL(R)`, `DIST(R;…)`, `=|(T;t)` or `|=(T;t)`."""
    if kind == "during":
        begin, end = params
        return lambda instance: instance.start > begin and instance.end <= end
    if kind == "later":
        (moment,) = params
        return lambda instance: bool(instance.start > moment)
    place = region_shape(params[0])
    if kind == "happen-in":
        return lambda instance: relations.inside(place, instance.shape)
    if kind == "overlap":
        return lambda instance: relations.meet(place, instance.shape)
    if kind == "same-place":
        return lambda instance: relations.same(place, instance.shape)
    _, op, metres = params
    return lambda instance: relations.apart(place, instance.shape, op, metres)
