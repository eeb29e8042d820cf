"""Why a detection happened: how its parts satisfy the pattern, operator by operator.

The detector says which events a detection is made of. Here their roles are found again, from
the meaning of the operators alone: a derivation of each expression from the parts, and of those
the one that uses all parts and ends when the detection did. Small histories only: the search is
exponential in the worst case and so bounded; where it finds nothing (a cumulative detection has
more parts than any one derivation) the trace says what each part satisfies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product

from nearcast.clock import Micros, format_micros
from nearcast.cpsl import ast
from nearcast.cpsl.instances import CompositeEvent, Instance, compose, merged
from nearcast.cpsl.operators.repetition import key_of
from nearcast.cpsl.operators.spatial import Relations, region_shape
from nearcast.cpsl.predicates import evaluate
from nearcast.model.durations import format_seconds
from nearcast.model.events import Event
from nearcast.model.geometry import Point, Space

__all__ = ["trace"]

_MOST = 500  # derivations of one expression that are looked at


@dataclass(frozen=True, slots=True)
class _Derivation:
    """One way in which an expression holds: what it is, why, and of what."""

    instance: Instance
    expression: ast.Expression
    reason: str
    below: tuple[_Derivation, ...] = ()

    @property
    def parts(self) -> frozenset[str]:
        """The ids of the events it is made of."""
        return frozenset(event.id for event in self.instance.events())


def trace(
    pattern: ast.Pattern,
    parts: Sequence[Event],
    detection: CompositeEvent,
    space: Space = "globe",
    tolerance_m: float = 1.0,
) -> list[str]:
    """Lines that say why the events `parts` make the detection, from the pattern downwards."""
    search = _Search(pattern, parts, Relations(space, tolerance_m))
    wanted = frozenset(event.id for event in parts)
    for found in search.derive(pattern.expression):
        if found.parts == wanted and found.instance.end == detection.end:
            return list(_lines(found, 0, set()))
    return [line for part in parts for line in search.roles(part)]


def _lines(found: _Derivation, depth: int, told: set[str]) -> Iterator[str]:
    yield f"{'  ' * depth}{_head(found.expression)}: {found.reason}"
    if isinstance(found.expression, ast.Reference):
        if found.expression.name in told:
            return  # the same instance, and so the same reasons
        told.add(found.expression.name)
    for below in found.below:
        yield from _lines(below, depth + 1, told)


def _head(expression: ast.Expression) -> str:
    """An expression in few words: an operator without its operands."""
    if isinstance(expression, ast.Primitive | ast.Reference):
        return str(expression)
    match expression:
        case ast.Distance(op=op, metres=metres):
            return f"DIST {op} {metres:g}"
        case ast.Count(n=n) | ast.Sliding(n=n):
            return f"{expression.symbol}({n})"
        case _:
            return expression.symbol


class _Search:
    """Derivations of expressions from a few events."""

    def __init__(self, pattern: ast.Pattern, parts: Sequence[Event], relations: Relations) -> None:
        self._bodies = {definition.name: definition.body for definition in pattern.definitions}
        self._pattern = pattern
        self._relations = relations
        self._parts = [
            Instance(number, _start(event), _end(event), event)
            for number, event in enumerate(parts)
        ]
        self._serial = len(parts)
        self._known: dict[str, list[_Derivation]] = {}

    def derive(self, expression: ast.Expression) -> list[_Derivation]:
        """The ways in which an expression holds, at most so many."""
        match expression:
            case ast.Primitive():
                return self._primitive(expression)
            case ast.Reference(name=name):
                return self._reference(expression, name)
            case ast.Or(parts=parts):
                return [found for part in parts for found in self.derive(part)][:_MOST]
            case ast.And(parts=parts):
                return self._joined(expression, parts, lambda *_: "all of them")
            case ast.Temporal():
                return self._temporal(expression)
            case ast.Concurrent(other=other, body=body):
                return self._joined(expression, (other, body), _shared)
            case ast.Count(n=n, body=body) | ast.Sliding(n=n, body=body):
                return self._repeated(expression, combinations(self._in_order(body), n))
            case ast.Crossing():
                return self._crossing(expression)
            case ast.Period(body=body):
                return self._repeated(expression, [tuple(self._in_order(body))])
            case _:
                return self._spatial(expression)

    def roles(self, part: Event) -> Iterator[str]:
        """The primitives of the pattern that an event satisfies."""
        roots = [self._pattern.expression, *self._bodies.values()]
        primitives = dict.fromkeys(
            node for root in roots for node in ast.walk(root) if isinstance(node, ast.Primitive)
        )
        for primitive in primitives:
            if evaluate(primitive, part, self._relations.space) is not None:
                yield f"{primitive}: {_told(part)}"

    # Leaves.

    def _primitive(self, expression: ast.Primitive) -> list[_Derivation]:
        found = []
        for part in self._parts:
            assert part.event is not None
            match = evaluate(expression, part.event, self._relations.space)
            if match is not None:
                instance = part.knowing(match.bindings, match.opens)
                bound = "".join(f", {n} = {v[1]!r}" for n, v in match.bindings.items())
                found.append(_Derivation(instance, expression, _told(part.event) + bound))
        return found

    def _reference(self, expression: ast.Reference, name: str) -> list[_Derivation]:
        if name not in self._known:
            self._known[name] = [
                _Derivation(each.instance.bound(name), expression, _ids([each]), (each,))
                for each in self.derive(self._bodies[name])
            ]
        return self._known[name]

    # Operators.

    def _joined(
        self,
        expression: ast.Expression,
        operands: Iterable[ast.Expression],
        why: Callable[..., str | None],
    ) -> list[_Derivation]:
        """Combinations of operands that agree on variables and of which `why` says why."""
        found = []
        for chosen in islice(product(*map(self.derive, operands)), 20 * _MOST):
            agreed = merged([each.instance for each in chosen])
            if agreed is None:
                continue
            reason = why(*chosen)
            if reason is None:
                continue
            instance = self._whole(chosen, *agreed)
            found.append(_Derivation(instance, expression, reason, chosen))
            if len(found) == _MOST:
                break
        return found

    def _whole(self, chosen: Sequence[_Derivation], bindings: object, opens: object) -> Instance:
        self._serial += 1
        members = tuple(each.instance for each in chosen)
        return compose(self._serial, members, bindings, opens)  # type: ignore[arg-type]

    def _repeated(
        self, expression: ast.Expression, choices: Iterable[tuple[_Derivation, ...]]
    ) -> list[_Derivation]:
        found = []
        for chosen in islice(choices, _MOST):
            agreed = merged([each.instance for each in chosen])
            if chosen and agreed is not None:
                length = chosen[-1].instance.end - chosen[0].instance.start
                if isinstance(expression, ast.Sliding) and length > expression.length:
                    continue
                reason = f"{len(chosen)} of them in {format_seconds(length)} s"
                instance = self._whole(chosen, *agreed)
                found.append(_Derivation(instance, expression, reason, chosen))
        return found

    def _crossing(self, expression: ast.Crossing) -> list[_Derivation]:
        """Pairs of positions of one object on both sides of the border."""
        leaves = isinstance(expression, ast.Exit)
        found = []
        for chosen in islice(combinations(self._in_order(expression.body), 2), _MOST):
            before, after = (each.instance for each in chosen)
            if key_of(before) != key_of(after) or before.serial == after.serial:
                continue
            sides = self._is_in(expression, before), self._is_in(expression, after)
            if sides != (leaves, not leaves):
                continue
            members = (before.knowing(dict(key_of(before)), before.opens), after)
            known = {**after.bindings, **members[0].bindings}
            self._serial += 1
            instance = compose(self._serial, members, known, (*before.opens, *after.opens))
            there, here = ("inside", "outside") if leaves else ("outside", "inside")
            reason = f"{_ids(chosen[:1])} {there}, {_ids(chosen[1:])} {here}"
            if isinstance(expression, ast.Dwell):
                instance.end += expression.length
                reason += f", and not outside for {format_seconds(expression.length)} s"
            found.append(_Derivation(instance, expression, reason, chosen))
        return found

    def _is_in(self, expression: ast.Crossing, instance: Instance) -> bool:
        shape, reach = instance.shape, getattr(expression, "metres", 0.0)
        if shape is None:
            return False
        return self._relations.distance(region_shape(expression.region.points), shape) <= reach

    def _in_order(self, body: ast.Expression) -> list[_Derivation]:
        return sorted(self.derive(body), key=lambda each: (each.instance.end, each.instance.serial))

    def _temporal(self, expression: ast.Temporal) -> list[_Derivation]:
        window = expression.window
        if isinstance(expression, ast.Negation):
            return self._negation(expression)
        if isinstance(window, ast.Enclosed):
            three = (window.opener, window.closer, expression.body)
            after = isinstance(expression, ast.HappenAfter)
            return self._joined(expression, three, _after_both if after else _between)
        if isinstance(window, ast.Following):
            two = (window.opener, expression.body)
            rule = _later if isinstance(expression, ast.HappenAfter) else _within
            return self._joined(
                expression, two, lambda a, b: rule(a.instance.end, window.length, b, _ids([a]))
            )
        fixed = _later if isinstance(expression, ast.HappenAfter) else _within
        return self._joined(
            expression,
            (expression.body,),
            lambda b: fixed(window.at, window.length, b, format_micros(window.at)),
        )

    def _negation(self, expression: ast.Negation) -> list[_Derivation]:
        window = expression.window
        nothing = f"no ({expression.body})"
        if isinstance(window, ast.Fixed):
            end = window.at + window.length
            self._serial += 1
            instance = Instance(self._serial, window.at, end)
            reason = f"{nothing} in ({format_micros(window.at)}, {format_micros(end)}]"
            return [_Derivation(instance, expression, reason)]
        if isinstance(window, ast.Following):
            found = []
            for opener in self.derive(window.opener):
                instance, end = opener.instance, opener.instance.end + window.length
                self._serial += 1
                grown = Instance(
                    self._serial,
                    instance.start,
                    end,
                    None,
                    (instance,),
                    instance.bindings,
                    instance.opens,
                )
                reason = f"{nothing} in ({format_micros(instance.end)}, {format_micros(end)}]"
                found.append(_Derivation(grown, expression, reason, (opener,)))
            return found

        def quiet(a: _Derivation, b: _Derivation) -> str | None:
            if a.instance.end >= b.instance.start:
                return None
            return f"{nothing} between {_ids([a])} and {_ids([b])}"

        return self._joined(expression, (window.opener, window.closer), quiet)

    def _spatial(self, expression: ast.Expression) -> list[_Derivation]:
        if isinstance(expression, ast.Inside):
            place: ast.Place = expression.other
        else:
            assert isinstance(expression, ast.HappenIn | ast.Overlap | ast.SamePlace | ast.Distance)
            place = expression.region if isinstance(expression, ast.HappenIn) else expression.place
        relations = self._relations

        def related(*chosen: _Derivation) -> str | None:
            body = chosen[-1].instance.shape
            if isinstance(place, ast.Region):
                other = region_shape(place.points)
            else:
                first = chosen[0].instance.shape
                if first is None:
                    return None
                other = first
            if body is None:
                return None
            match expression:
                case ast.HappenIn() | ast.Inside():
                    return "inside" if relations.inside(other, body) else None
                case ast.Overlap():
                    return "they overlap" if relations.overlap(other, body) else None
                case ast.SamePlace():
                    return "the same place" if relations.same(other, body) else None
                case ast.Distance(op=op, metres=metres):
                    if not relations.apart(other, body, op, metres):
                        return None
                    return f"{relations.distance(other, body):,.1f} m apart"
                case _:
                    raise AssertionError(expression)

        operands = (
            (place, expression.body) if isinstance(place, ast.Expression) else (expression.body,)
        )
        return self._joined(expression, operands, related)


# --- reasons ------------------------------------------------------------------------------------


def _within(since: Micros, length: Micros, b: _Derivation, what: str) -> str | None:
    if not (b.instance.start > since and b.instance.end <= since + length):
        return None
    waited = format_seconds(b.instance.end - since)
    return f"{_ids([b])} {waited} s after {what}, at most {format_seconds(length)} s"


def _later(since: Micros, length: Micros, b: _Derivation, what: str) -> str | None:
    if not b.instance.start > since + length:
        return None
    waited = format_seconds(b.instance.start - since)
    return f"{_ids([b])} {waited} s after {what}, more than {format_seconds(length)} s"


def _between(a: _Derivation, b: _Derivation, c: _Derivation) -> str | None:
    first, last, body = a.instance, b.instance, c.instance
    if not (first.end < last.start and first.end < body.start and body.end < last.end):
        return None
    return f"{_ids([c])} between {_ids([a])} and {_ids([b])}"


def _after_both(a: _Derivation, b: _Derivation, c: _Derivation) -> str | None:
    if not (a.instance.end < b.instance.start and b.instance.end < c.instance.start):
        return None
    return f"{_ids([c])} after {_ids([b])}, which followed {_ids([a])}"


def _shared(a: _Derivation, b: _Derivation) -> str | None:
    start = max(a.instance.start, b.instance.start)
    if start > min(a.instance.end, b.instance.end):
        return None
    return f"{_ids([a])} and {_ids([b])} share {format_micros(start)}"


def _ids(found: Sequence[_Derivation]) -> str:
    ids = dict.fromkeys(event.id for each in found for event in each.instance.events())
    return "+".join(ids) or "the window"


def _told(event: Event) -> str:
    place = ""
    if isinstance(event.location, Point):
        place = f" at ({event.location.x:g}, {event.location.y:g})"
    elif event.location is not None:
        place = f" in a {type(event.location).__name__.lower()}"
    return f"{event.id}, {format_micros(_end(event))}{place}"


def _end(event: Event) -> Micros:
    return event.end if event.end is not None else event.start or 0


def _start(event: Event) -> Micros:
    return event.start if event.start is not None else _end(event)
