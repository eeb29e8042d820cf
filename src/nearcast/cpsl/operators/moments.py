"""What the operators of a joint say of time, and what follows from it for what is still to come.

Every temporal operator bounds differences between the starts and ends of its operands:
`=|(a;t)b` says that b.end - a.end <= t and that a.end - b.start <= -1. Closed under addition
(Floyd and Warshall) such bounds tell of any instances whether others can be found in time with
which all of them fit, by looking at pairs only: closed networks of differences are decomposable
(R. Dechter et al., "Temporal constraint networks", 1991).

An operand that is an operator itself starts with its first leaf and ends with its last. Where it
has to end *after* a moment, one leaf has to, no matter which: that makes alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.clock import Micros
from nearcast.cpsl.compile import ENDLESS, Op, Tree, leaves_of
from nearcast.cpsl.instances import Instance

__all__ = ["Moments", "alternatives"]

#: The first moment comes at most so long after the second; numbers as in `_start` and `_end`.
Difference: TypeAlias = tuple[int, int, Micros]
#: Sums of two stay within 64 bits, and no date or duration comes near.
_FREE: Micros = 2**61
_FAR: Micros = 2**60
_ORIGIN = 0


def _start(port: int) -> int:
    return 1 + 2 * port


def _end(port: int) -> int:
    return 2 + 2 * port


class Moments:
    """One alternative of a joint: bounds between all starts and ends.

    What is still to come at a port arrives at most its `lag` after its end.
    """

    __slots__ = ("_bounds", "_dated", "_lags", "_last", "_lengths")

    def __init__(self, bounds: npt.NDArray[np.int64], lags: Sequence[Micros], dated: bool) -> None:
        self._bounds: list[list[Micros]] = bounds.tolist()
        self._lags = lags
        self._dated = dated  # whether anything is bound to a date
        self._lengths = [
            (-self._bounds[_start(p)][_end(p)], self._bounds[_end(p)][_start(p)])
            for p in range(len(lags))
        ]
        self._last = [(*self._lengths[p], *self._all_to_come(p)) for p in range(len(lags))]

    def _all_to_come(self, port: int) -> tuple[Micros, Micros, Micros]:
        """The soonest last arrival of another port: after a start, an end, and the origin."""
        others = [(lag, self._bounds[_end(q)]) for q, lag in enumerate(self._lags) if q != port]
        columns = (_start(port), _end(port), _ORIGIN)
        start, end, date = (
            min((lag + row[column] for lag, row in others), default=_FREE) for column in columns
        )
        return start, end, date

    def until(self, port: int, one: Instance) -> Micros:
        """The last moment at which an instance fits if all others are still to come."""
        shortest, longest, after_start, after_end, until = self._last[port]
        start, end = one.start, one.end
        if not shortest <= end - start <= longest or (self._dated and not self.fits(port, one)):
            return -ENDLESS
        if start + after_start < until:
            until = start + after_start
        if end + after_end < until:
            until = end + after_end
        return until if until < _FAR else ENDLESS

    def fits(self, port: int, one: Instance) -> bool:
        """Whether an instance can be part of anything: its length and its dates allow it."""
        shortest, longest = self._lengths[port]
        if not shortest <= one.end - one.start <= longest:
            return False
        if not self._dated:
            return True
        bounds, start, end = self._bounds, _start(port), _end(port)
        origin = bounds[_ORIGIN]
        return (
            one.start <= bounds[start][_ORIGIN]
            and one.end <= bounds[end][_ORIGIN]
            and -one.start <= origin[start]
            and -one.end <= origin[end]
        )

    def agree(self, p: int, one: Instance, q: int, other: Instance) -> bool:
        """Whether two instances can be part of the same combination."""
        bounds = self._bounds
        for u, x in ((_start(p), one.start), (_end(p), one.end)):
            for v, y in ((_start(q), other.start), (_end(q), other.end)):
                if x - y > bounds[u][v] or y - x > bounds[v][u]:
                    return False
        return True

    def arrival(self, port: int, chosen: Sequence[Instance | None]) -> Micros:
        """The last moment at which one can come that fits what is chosen."""
        row, lag = self._bounds[_end(port)], self._lags[port]
        latest = row[_ORIGIN]
        for p, one in enumerate(chosen):
            if one is not None:
                latest = min(latest, one.start + row[_start(p)], one.end + row[_end(p)])
        return latest + lag if latest + lag < _FAR else ENDLESS  # no bound leads to one


def alternatives(
    tree: Tree, lags: Sequence[Micros], spans: Sequence[Micros]
) -> tuple[Moments, ...] | None:
    """The ways in which a joint can be fulfilled in time; None if it does not speak of time.

    Costs ports³ for each. Of very many only some are told apart: what is left out would let
    instances go sooner.
    """
    rules = _rules(tree)
    if not rules:
        return None
    size = 1 + 2 * len(lags)
    common = np.full((size, size), _FREE, np.int64)
    np.fill_diagonal(common, 0)
    for port, span in enumerate(spans):
        common[_start(port), _end(port)] = 0
        common[_end(port), _start(port)] = min(span, _FREE)
    choices: list[list[Difference]] = []
    left = max(1, 200_000 // size**3)
    for rule in rules:
        if len(rule) == 1:
            _tighten(common, rule[0])
        elif len(rule) <= left and not any(_is_trivial(difference) for difference in rule):
            choices.append(rule)
            left //= len(rule)
    dated = any(_ORIGIN in difference[:2] for rule in rules for difference in rule)
    found = []
    for choice in product(*choices):
        bounds = common.copy()
        for difference in choice:
            _tighten(bounds, difference)
        if _close(bounds):
            found.append(Moments(bounds, lags, dated))
    return tuple(found)


def _is_trivial(difference: Difference) -> bool:
    """Whether a difference holds of any instance: nothing starts after its own end."""
    first, second, bound = difference
    return bound >= 0 and (first == second or (first % 2 == 1 and second == first + 1))


def _tighten(bounds: npt.NDArray[np.int64], difference: Difference) -> None:
    first, second, bound = difference
    bounds[first, second] = min(bounds[first, second], bound)


def _close(bounds: npt.NDArray[np.int64]) -> bool:
    """Add up all bounds; whether they leave any solution."""
    for k in range(len(bounds)):
        through = bounds[:, k, None] + bounds[None, k, :]
        # Sums with a free side are free; the floor keeps what is absurd within 64 bits.
        through[(bounds[:, k, None] >= _FAR) | (bounds[None, k, :] >= _FAR)] = _FREE
        np.minimum(bounds, np.clip(through, -_FREE, _FREE), out=bounds)
        if (np.diagonal(bounds) < 0).any():
            return False
    return True


def _rules(tree: Tree) -> list[list[Difference]]:
    """What must hold of starts and ends: of each rule one difference."""
    if isinstance(tree, int):
        return []
    found = [rule for operand in tree.operands for rule in _rules(operand)]
    return found + _rules_of(tree, [tuple(leaves_of(operand)) for operand in tree.operands])


def _rules_of(op: Op, sides: list[tuple[int, ...]]) -> list[list[Difference]]:
    match op.kind:
        case "within":
            a, b = sides
            return _before(a, b, 0) + _ends_by(b, a, op.params[0])
        case "after":
            a, b = sides
            return _before(a, b, op.params[0])
        case "between":
            a, b, c = sides
            return _before(a, b, 0) + _before(a, c, 0) + _ends_by(c, b, -1)
        case "after-both":
            a, b, c = sides
            return _before(a, b, 0) + _before(b, c, 0)
        case "concurrent":
            a, b = sides
            return [
                [(_start(p), _end(q), 0) for p in one for q in other]
                for one, other in ((a, b), (b, a))
            ]
        case "during":
            begin, end = op.params
            first = [[(_ORIGIN, _start(p), -begin - 1)] for p in sides[0]]
            return first + [[(_end(p), _ORIGIN, end)] for p in sides[0]]
        case "later":
            return [[(_ORIGIN, _start(p), -op.params[0] - 1)] for p in sides[0]]
    return []


def _before(first: tuple[int, ...], second: tuple[int, ...], gap: Micros) -> list[list[Difference]]:
    """The second side starts more than `gap` after the end of the first."""
    return [[(_end(p), _start(q), -gap - 1)] for p in first for q in second]


def _ends_by(
    first: tuple[int, ...], second: tuple[int, ...], length: Micros
) -> list[list[Difference]]:
    """The first side ends at most `length` after the end of the second."""
    return [[(_end(p), _end(q), length) for q in second] for p in first]
