"""The constraints of a joint: what must hold of a combination, and how long a partner counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from nearcast.clock import Micros
from nearcast.cpsl.compile import ENDLESS, Op, Plan, Tree, leaves_of
from nearcast.cpsl.instances import Instance, compose, merged
from nearcast.cpsl.operators.filters import unary
from nearcast.cpsl.operators.moments import alternatives
from nearcast.cpsl.operators.spatial import Relations

__all__ = ["Constraints"]

Check: TypeAlias = Callable[[Sequence[Instance]], bool]
_UNARY = ("happen-in", "overlap", "same-place", "distance", "during", "later")


class Constraints:
    """The constraints of one joint, shared by all joints of the same form.

    `solo[port]` are those that look at one input only, `involving[port]` those that look at an
    input and others. `moments` is what they say of time, as alternatives; None if nothing.
    `until(port, instance)` is the last moment at which all others can still come. Of two inputs,
    `pair` are the constraints over both, as tests of (first, second).
    """

    __slots__ = ("_steps", "checks", "involving", "moments", "pair", "ports", "solo", "until")

    def __init__(self, plan: Plan, relations: Relations) -> None:
        tree: Op = plan.params[0]
        self.ports = len(plan.inputs)
        self.checks: list[tuple[frozenset[int], Check]] = []
        self.pair: list[Callable[[Instance, Instance], bool]] = []
        self._collect(tree, relations)
        self.solo: list[list[Check]] = [[] for _ in range(self.ports)]
        for leaves, check in self.checks:
            if len(leaves) == 1:
                self.solo[next(iter(leaves))].append(check)
        self.checks = [entry for entry in self.checks if len(entry[0]) > 1]
        self.involving = [
            [entry for entry in self.checks if port in entry[0]] for port in range(self.ports)
        ]
        bounds = [(given.plan.lag, given.plan.span) for given in plan.inputs]
        self.moments = alternatives(tree, *zip(*bounds, strict=True))
        self.until: Callable[[int, Instance], Micros] = self._until
        if self.moments is not None and len(self.moments) == 1:  # nearly always: no detour
            self.until = self.moments[0].until
        self._steps: dict[int, tuple[list[int], list[list[Check]]]] = {}

    def _collect(self, tree: Tree, relations: Relations) -> None:
        if isinstance(tree, int):
            return
        for operand in tree.operands:
            self._collect(operand, relations)
        if tree.kind != "and":
            leaves, check = frozenset(leaves_of(tree)), _check(tree, relations)
            self.checks.append((leaves, check))
            if tree.operands == (0, 1):
                self.pair.append(_relation(tree.kind, tree.params, relations))
            elif self.ports == 2 and len(leaves) == 2:
                self.pair.append(lambda first, second: check((first, second)))

    def _until(self, port: int, instance: Instance) -> Micros:
        if self.moments is None:
            return ENDLESS
        return max((each.until(port, instance) for each in self.moments), default=-ENDLESS)

    def allow(self, port: int, chosen: Sequence[Instance | None]) -> bool:
        """Whether the instance of a port and the others that are chosen satisfy everything."""
        known = [p for p, one in enumerate(chosen) if one is not None]
        for leaves, check in self.involving[port]:
            if leaves.issubset(known) and not check(cast("Sequence[Instance]", chosen)):
                return False
        return merged([one for one in chosen if one is not None]) is not None

    def steps(self, trigger: int) -> tuple[list[int], list[list[Check]]]:
        """The order in which partners of a trigger are chosen, and what can be tested when."""
        found = self._steps.get(trigger)
        if found is None:
            order = [port for port in range(self.ports) if port != trigger]
            known, left = {trigger}, list(self.checks)
            levels = []
            for port in order:
                known.add(port)
                levels.append([check for leaves, check in left if leaves <= known])
                left = [entry for entry in left if not entry[0] <= known]
            found = self._steps[trigger] = (order, levels)
        return found


def _check(op: Op, relations: Relations) -> Check:
    """A test of one constraint over the instances of all ports."""
    if op.kind in _UNARY:
        test, operand = unary(op.kind, op.params, relations), op.operands[0]
        return lambda chosen: test(_view(operand, chosen))
    holds = _relation(op.kind, op.params, relations)
    if len(op.operands) == 3:
        first, second, third = op.operands
        return lambda chosen: holds(
            _view(first, chosen), _view(second, chosen), _view(third, chosen)
        )
    a, b = op.operands
    if isinstance(a, int) and isinstance(b, int):
        return lambda chosen: holds(chosen[a], chosen[b])
    return lambda chosen: holds(_view(a, chosen), _view(b, chosen))


def _view(tree: Tree, chosen: Sequence[Instance]) -> Instance:
    """What stands behind an operand: an instance, or the hull of several."""
    if isinstance(tree, int):
        return chosen[tree]
    return compose(-1, tuple(chosen[leaf] for leaf in dict.fromkeys(leaves_of(tree))))


def _relation(kind: str, params: tuple[Any, ...], relations: Relations) -> Callable[..., bool]:
    if kind == "within":
        (length,) = params
        return lambda a, b: a.end < b.start and b.end <= a.end + length
    if kind == "after":
        (length,) = params
        return lambda a, b: bool(b.start > a.end + length)
    if kind == "between":
        return lambda a, b, c: a.end < b.start and a.end < c.start and c.end < b.end
    if kind == "after-both":
        return lambda a, b, c: a.end < b.start and b.end < c.start
    if kind == "concurrent":
        return lambda a, b: a.start <= b.end and b.start <= a.end
    if kind == "inside":
        return lambda a, b: relations.inside(a.shape, b.shape)
    if kind == "meet":
        return lambda a, b: relations.overlap(a.shape, b.shape)
    if kind == "same":
        return lambda a, b: relations.same(a.shape, b.shape)
    return _apart(params[0], params[1], relations)


def _apart(op: str, metres: float, relations: Relations) -> Callable[..., bool]:
    def holds(a: Instance, b: Instance) -> bool:
        here, there = a.point, b.point
        if here is not None and there is not None:  # nearly always
            return relations.points_apart(here, there, op, metres)
        return relations.apart(a.shape, b.shape, op, metres)

    return holds
