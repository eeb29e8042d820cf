"""The constraints of a joint: what must hold of a combination, and how long a partner counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from nearcast.clock import Micros
from nearcast.cpsl.compile import ENDLESS, Op, Plan, Tree, leaves_of
from nearcast.cpsl.instances import Instance, compose
from nearcast.cpsl.operators.filters import unary
from nearcast.cpsl.operators.spatial import Relations

__all__ = ["Constraints"]

Check: TypeAlias = Callable[[Sequence[Instance]], bool]
_UNARY = ("happen-in", "overlap", "same-place", "distance", "during", "later")


class Constraints:
    """The constraints of one joint, shared by all joints of the same form.

    `solo[port]` are those that look at one input only. `until(port, x)` is the last moment at
    which x can take part in a new combination; `needs[port]` names an opener without which x
    is worth nothing, and `dependants[opener]` the same from the other side.
    """

    __slots__ = ("_ends", "_starts", "_steps", "checks", "dependants", "needs", "ports", "solo")

    def __init__(self, plan: Plan, relations: Relations) -> None:
        tree: Op = plan.params[0]
        self.ports = len(plan.inputs)
        self.checks: list[tuple[frozenset[int], Check]] = []
        self._collect(tree, relations)
        self.solo: list[list[Check]] = [[] for _ in range(self.ports)]
        for leaves, check in self.checks:
            if len(leaves) == 1:
                self.solo[next(iter(leaves))].append(check)
        self.checks = [entry for entry in self.checks if len(entry[0]) > 1]
        self._ends = [ENDLESS] * self.ports
        self._starts = [ENDLESS] * self.ports
        self.needs: list[tuple[int, Micros] | None] = [None] * self.ports
        self._bound(tree, [(i.plan.lag, i.plan.span) for i in plan.inputs])
        chained = [need is not None for need in self.needs]
        self.needs = [need if need and not chained[need[0]] else None for need in self.needs]
        self.dependants: list[list[tuple[int, Micros]]] = [[] for _ in range(self.ports)]
        for port, need in enumerate(self.needs):
            if need is not None:
                self.dependants[need[0]].append((port, need[1]))
        self._steps: dict[int, tuple[list[int], list[list[Check]]]] = {}

    def _collect(self, tree: Tree, relations: Relations) -> None:
        if isinstance(tree, int):
            return
        for operand in tree.operands:
            self._collect(operand, relations)
        if tree.kind != "and":
            self.checks.append((frozenset(leaves_of(tree)), _check(tree, relations)))

    def _bound(self, tree: Tree, bounds: list[tuple[Micros, Micros]]) -> None:
        """Until when partners count, from constraints whose operands are inputs themselves."""
        if isinstance(tree, int):
            return
        for operand in tree.operands:
            self._bound(operand, bounds)
        if tree.kind in _UNARY or not all(isinstance(o, int) for o in tree.operands):
            return
        ports = [o for o in tree.operands if isinstance(o, int)]
        if len(set(ports)) < len(ports):
            return
        lags = [bounds[port][0] for port in ports]
        if tree.kind == "within":
            self._end(ports[0], tree.params[0] + lags[1])
            self._start(ports[1], lags[0] - 1)
        elif tree.kind == "after":
            self._start(ports[1], lags[0] - tree.params[0] - 1)
        elif tree.kind == "concurrent":
            self._end(ports[0], lags[1] + bounds[ports[1]][1])
            self._end(ports[1], lags[0] + bounds[ports[0]][1])
        elif tree.kind == "between":
            self._start(ports[1], max(lags[0], lags[2]) - 1)
            self.needs[ports[2]] = (ports[0], lags[0] - 1)
        elif tree.kind == "after-both":
            self._start(ports[2], max(lags[0], lags[1]) - 1)
            self.needs[ports[1]] = (ports[0], lags[0] - 1)

    def _end(self, port: int, offset: Micros) -> None:
        self._ends[port] = min(self._ends[port], offset)

    def _start(self, port: int, offset: Micros) -> None:
        self._starts[port] = min(self._starts[port], offset)

    def until(self, port: int, instance: Instance) -> Micros:
        """The last moment at which the instance is of use, whatever else waits."""
        end, start = self._ends[port], self._starts[port]
        until = ENDLESS if end >= ENDLESS else instance.end + end
        return until if start >= ENDLESS else min(until, instance.start + start)

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
        return lambda a, b, c: a.end < c.start and c.end < b.start
    if kind == "after-both":
        return lambda a, b, c: a.end < b.start and b.end < c.start
    if kind == "concurrent":
        return lambda a, b: a.start <= b.end and b.start <= a.end
    if kind == "inside":
        return lambda a, b: relations.inside(a.shape, b.shape)
    if kind == "meet":
        return lambda a, b: relations.meet(a.shape, b.shape)
    if kind == "same":
        return lambda a, b: relations.same(a.shape, b.shape)
    op, metres = params
    return lambda a, b: relations.apart(a.shape, b.shape, op, metres)
