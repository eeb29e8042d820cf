"""Motion modes: named macros for CPSL.

The six modes of table 1 of the Grus paper (leave, hit, reach, external, internal, cross) are
written as printed there: one detection for each pair of observations that shows the motion.
`enter`, `exit`, `dwell` and `approach` are what a geofence wants: one detection a crossing. They
are operators of the language, which stand on the same state as fences (`nearcast.fences`), and a
margin keeps an object that trembles on the border from crossing it again and again. What
approaches another moving object is written out in other operators.

`a` and `b` are what observes an object (an expression, as a rule a primitive); `b` may be a place
instead. To follow many objects with one pattern, bind who it is: `event(taxi=string("t"))`. Two
moving objects are compared at one instant: their observations' intervals must share one.

Every macro yields a `Pattern`; `str` shows the CPSL, `Composite(text=…)` takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from nearcast.cpsl import ast
from nearcast.cpsl.ast import Expression, Pattern
from nearcast.cpsl.builder import Duration, far, inside, near, ref, same_place, seq, together
from nearcast.cpsl.regions import GivenRegion, to_region
from nearcast.errors import ValidationError
from nearcast.model.durations import to_duration

__all__ = [
    "approach",
    "cross",
    "dwell",
    "enter",
    "exit",
    "external",
    "hit",
    "internal",
    "leave",
    "reach",
]

Target: TypeAlias = Expression | GivenRegion
#: What is asked of a place or an object (first) and an object (second).
_Relation: TypeAlias = Callable[[ast.Place, Expression], Expression]


# --- the modes of the paper ---------------------------------------------------------------------


def leave(a: Expression, b: Target, *, distance_m: float, within: Duration) -> Pattern:
    """A is near B (inside a region B), then more than `distance_m` away."""
    return _stages(a, b, within, [_at(b, distance_m), _beyond(distance_m)])


def hit(a: Expression, b: Target, *, distance_m: float, within: Duration) -> Pattern:
    """A is more than `distance_m` away from B, then nearer than that."""
    return _stages(a, b, within, [_beyond(distance_m), _closer(distance_m)])


def reach(a: Expression, b: Target, *, distance_m: float, within: Duration) -> Pattern:
    """A is more than `distance_m` away from B, then at the same place (inside a region B)."""
    return _stages(a, b, within, [_beyond(distance_m), _meeting(b)])


def external(a: Expression, b: Target, *, distance_m: float, within: Duration) -> Pattern:
    """A is more than `distance_m` away from B, twice."""
    return _stages(a, b, within, [_beyond(distance_m), _beyond(distance_m)])


def internal(a: Expression, b: Target, *, within: Duration) -> Pattern:
    """A is inside B, twice."""
    _refuse_point(b)
    return _stages(a, b, within, [inside, inside])


def cross(
    a: Expression, b: Target, *, near_m: float, far_m: float, within: Duration | None = None
) -> Pattern:
    """A is between `near_m` and `far_m` away from B, then where B is, then that far away again.

    With `within`, each step follows the one before in that time, as in §3.2 of the paper.
    """
    if not near_m < far_m:
        raise ValidationError("near_m", near_m, f"give less than far_m ({far_m})")
    away = _ring(near_m, far_m)
    steps = [away, _meeting(b), away]
    if within is not None:
        return _stages(a, b, within, steps)
    before, at, after = _observations(a, b, steps)
    return _whole(ast.HappenBetween(ast.Enclosed(before, after), at), a, b, steps)


# --- crossings of a border ----------------------------------------------------------------------


def enter(a: Expression, region: GivenRegion, *, margin_m: float = 0.0) -> Pattern:
    """A was more than `margin_m` outside, now is inside, and was not inside in between."""
    return Pattern(ast.Enter(to_region(region), float(margin_m), a))


def exit(a: Expression, region: GivenRegion, *, margin_m: float = 0.0) -> Pattern:
    """A was inside, now is more than `margin_m` outside, and was not so in between."""
    return Pattern(ast.Exit(to_region(region), float(margin_m), a))


def dwell(
    a: Expression, region: GivenRegion, *, lasting: Duration, margin_m: float = 0.0
) -> Pattern:
    """A entered and was not seen more than `margin_m` outside for a duration.

    It fires when the duration is over, with no observation needed then.
    """
    length = to_duration(lasting, "lasting")
    return Pattern(ast.Dwell(to_region(region), float(margin_m), a, length))


def approach(a: Expression, b: Target, *, distance_m: float, margin_m: float = 0.0) -> Pattern:
    """A was more than `distance_m + margin_m` away from B, now is within `distance_m`."""
    if not isinstance(b, Expression):
        return Pattern(ast.Approach(to_region(b), float(margin_m), a, float(distance_m)))
    outside, within = _beyond(distance_m + margin_m), _closer(distance_m)
    steps = [outside, within, within]
    before, now, between = _observations(a, b, steps)
    return _whole(ast.Negation(ast.Enclosed(before, now), between), a, b, steps)


# --- relations ----------------------------------------------------------------------------------


def _beyond(metres: float) -> _Relation:
    return lambda place, body: far(place, body, metres)


def _closer(metres: float) -> _Relation:
    return lambda place, body: near(place, body, metres)


def _ring(near_m: float, far_m: float) -> _Relation:
    def between(place: ast.Place, body: Expression) -> Expression:
        if isinstance(place, ast.Region):
            return far(place, near(place, body, far_m), near_m)
        return ast.And((far(place, body, near_m), near(place, body, far_m)))

    return between


def _at(target: Target, metres: float) -> _Relation:
    """Near an object or a point, or inside a region."""
    return inside if _is_area(target) else _closer(metres)


def _meeting(target: Target) -> _Relation:
    """At the same place as an object or a point, or inside a region."""
    return inside if _is_area(target) else same_place


def _is_area(target: Target) -> bool:
    return not isinstance(target, Expression) and len(to_region(target).points) > 1


def _refuse_point(target: Target) -> None:
    if not isinstance(target, Expression) and not _is_area(target):
        raise ValidationError("b", target, "nothing moves inside a point: give a region")


# --- expansion ----------------------------------------------------------------------------------


def _stages(a: Expression, b: Target, within: Duration, steps: list[_Relation]) -> Pattern:
    """Observations that follow each other within a duration."""
    return _whole(seq(*_observations(a, b, steps), within=within), a, b, steps)


def _observations(a: Expression, b: Target, steps: list[_Relation]) -> list[Expression]:
    """What each step observes: A at a place, or a variable for A and B at one instant."""
    if isinstance(b, Expression):
        return [ref(f"e{number}") for number in range(1, len(steps) + 1)]
    place = to_region(b)
    return [step(place, a) for step in steps]


def _whole(expression: Expression, a: Expression, b: Target, steps: list[_Relation]) -> Pattern:
    """The expression with the definitions of its observations, as table 1 writes them."""
    if not isinstance(b, Expression):
        return Pattern(expression)
    observed, objects = [], []
    for number, step in enumerate(steps, 1):
        first, second = ref(f"a{number}"), ref(f"b{number}")
        related = step(second, first)
        parts = related.parts if isinstance(related, ast.And) else (related,)
        body = ast.And((together(first, second), *parts))
        observed.append(ast.Definition(f"e{number}", body))
        objects += [ast.Definition(first.name, a), ast.Definition(second.name, b)]
    return Pattern(expression, (*observed, *objects))
