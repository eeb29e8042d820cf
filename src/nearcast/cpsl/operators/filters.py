"""Operators that hold one instance against something fixed: a place or a time."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, TypeAlias

from nearcast.cpsl.instances import Instance
from nearcast.cpsl.operators.spatial import Relations, region_shape

__all__ = ["SPATIAL", "Decided", "Test", "decided", "unary"]

Test: TypeAlias = Callable[[Instance], bool]
#: Whether a point passes; None where it takes a closer look to tell.
Decided: TypeAlias = Callable[[float, float], bool | None]
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
        return lambda instance: relations.overlap(place, instance.shape)
    if kind == "same-place":
        return lambda instance: relations.same(place, instance.shape)
    _, op, metres = params
    return lambda instance: relations.apart(place, instance.shape, op, metres)


def decided(kind: str, params: tuple[Any, ...], relations: Relations) -> Decided:
    """A location test of a point as far as a box and a centre tell; `unary` says the rest.

    Most positions are far from a region, or in the middle of a rectangle.
    """
    if kind == "overlap":
        return lambda *_: False  # what a point meets, it lies in
    if relations.globe or kind == "same-place":
        return lambda *_: None
    numbers = array("d", params[0]).tolist()
    xs, ys = numbers[::2], numbers[1::2]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    if kind != "distance":
        # A rectangle is its box. Borders belong to both.
        corner = {(left, low), (right, low), (right, high), (left, high)}
        whole = True if len(corner) == 4 and set(zip(xs, ys, strict=True)) == corner else None
        return lambda x, y: whole if left <= x <= right and low <= y <= high else False
    op: str = params[1]
    metres: float = params[2]
    slack = relations.tolerance if op == "=" else 0.0
    # With room for rounding: what is nearer than the one, or farther than the other, is so.
    rounding = 1e-9 + 1e-12 * max(abs(left), abs(right), abs(low), abs(high))
    near = (metres - slack) * (1 - 1e-9) - rounding
    far = (metres + slack) * (1 + 1e-9) + rounding
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)  # inside, as the hull is convex

    def tell(x: float, y: float) -> bool | None:
        if left - x > far or x - right > far or low - y > far or y - high > far:
            return op == ">"
        if abs(x - middle_x) + abs(y - middle_y) < near:
            return op == "<"
        return None

    return tell
