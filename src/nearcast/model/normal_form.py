"""The disjunctive normal form: from the tree of a filter to its clauses.

NOT is pushed down to the predicates, alternatives of one attribute are united, the
number of clauses is computed before any is made, and what contradicts itself is
dropped. An IN of few values becomes several alternatives that can be indexed; where
that would need too many clauses, it stays one residual.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, TypeAlias

from nearcast.errors import FilterTooLarge
from nearcast.model.cql2_literals import Scalar
from nearcast.model.expressions import (
    And,
    Between,
    Comparison,
    Constant,
    Contains,
    Expression,
    Membership,
    Not,
    Null,
    Or,
    Pattern,
    Spatial,
)
from nearcast.model.geometry import Box, Circle, Point, Polygon
from nearcast.model.predicates import (
    Clause,
    Equals,
    In,
    Interval,
    IsNull,
    LacksWords,
    Like,
    NotEquals,
    NotIn,
    NotNull,
    Residual,
    SpatialResidual,
    StringRange,
    as_region,
    like_literal,
)
from nearcast.model.words import normalise_words

__all__ = ["MAX_INDEXED_IN", "normal_form"]

#: An IN of more values than this stays one residual.
MAX_INDEXED_IN = 8

_Leaf: TypeAlias = Interval | Equals | Residual | Circle | Box | Polygon | frozenset[str]
_Node: TypeAlias = "_Leaf | _All | _Any | bool"


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple[_Leaf | _All | _Any, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    """Alternatives; where they are the values of an IN, `members` says all of them at once."""

    parts: tuple[_Leaf | _All | _Any, ...]
    members: In | None = None


def normal_form(expression: Expression, max_clauses: int) -> tuple[Clause, ...]:
    """The clauses of a filter, one of which must hold; none if nothing can match.

    Raises FilterTooLarge where even with every IN as a residual there would be more
    than `max_clauses`.
    """
    node = _push(expression, True)
    if isinstance(node, bool):
        return (Clause(),) if node else ()
    compact = _count(node, False) > max_clauses
    if compact and (needed := _count(node, True)) > max_clauses:
        raise FilterTooLarge(needed, max_clauses, str(expression))
    clauses = [made for leaves in _expand(node, compact) if (made := _clause(leaves)) is not None]
    return tuple(clauses) if len(clauses) < 2 else _tidied(clauses)


# --- negations down to the predicates -----------------------------------------------------


def _push(expression: Expression, positive: bool) -> _Node:
    return _PUSH[type(expression)](expression, positive)


def _push_constant(expression: Constant, positive: bool) -> _Node:
    return expression.value is positive


def _push_not(expression: Not, positive: bool) -> _Node:
    return _push(expression.part, not positive)


def _push_and(expression: And, positive: bool) -> _Node:
    return (_all if positive else _any)([_push(part, positive) for part in expression.parts])


def _push_or(expression: Or, positive: bool) -> _Node:
    return (_any if positive else _all)([_push(part, positive) for part in expression.parts])


def _push_comparison(expression: Comparison, positive: bool) -> _Node:
    operator = expression.operator if positive else _OPPOSITE[expression.operator]
    return _compared(expression.attribute, operator, expression.value)


_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _compared(attribute: str, operator: str, value: Scalar) -> _Leaf:
    if isinstance(value, bool):
        return Equals(attribute, value if operator == "=" else not value)
    if operator == "<>":
        return NotEquals(attribute, value)
    if isinstance(value, str):
        return _compared_text(attribute, operator, value)
    if operator == "=":
        return Interval(attribute, value, value)
    if operator == "<=":
        return Interval(attribute, -math.inf, value)
    if operator == ">=":
        return Interval(attribute, value, math.inf)
    if operator == "<":
        return Interval(attribute, -math.inf, _next(value, -math.inf))
    return Interval(attribute, _next(value, math.inf), math.inf)


def _compared_text(attribute: str, operator: str, value: str) -> _Leaf:
    if operator == "=":
        return Equals(attribute, value)
    closed = operator in ("<=", ">=")
    if operator in ("<", "<="):
        return StringRange(attribute, None, value, True, closed)
    return StringRange(attribute, value, None, closed, True)


def _next(value: float, towards: float) -> float:
    return math.nextafter(value, towards) + 0.0


def _push_between(expression: Between, positive: bool) -> _Node:
    attribute, low, high = expression.attribute, expression.low, expression.high
    if not positive:
        return _any([_compared(attribute, "<", low), _compared(attribute, ">", high)])
    if isinstance(low, str) or isinstance(high, str):
        text = StringRange(attribute, str(low), str(high))
        return _sound_range(text) or False
    return Interval(attribute, low, high) if low <= high else False


def _push_membership(expression: Membership, positive: bool) -> _Node:
    attribute, values = expression.attribute, expression.values
    bools = sorted({value for value in values if isinstance(value, bool)})
    texts = {value for value in values if isinstance(value, str)}
    numbers = {value for value in values if not isinstance(value, bool | str)}
    if positive:
        choices: list[_Node] = [Equals(attribute, value) for value in bools]
        choices += [_choice(attribute, found) for found in (numbers, texts) if found]
        return _any(choices)
    if bool(bools) + bool(texts) + bool(numbers) > 1:
        return False  # a value has one type, so it differs in type from some member
    if bools:
        return Equals(attribute, not bools[0]) if len(bools) == 1 else False
    return _excluding(attribute, numbers or texts)


def _choice(attribute: str, values: Iterable[Scalar]) -> _Leaf | _Any:
    """One of some numbers, or of some strings."""
    leaves = tuple(_compared(attribute, "=", value) for value in sorted(values))
    if len(leaves) == 1:
        return leaves[0]
    members = In(attribute, tuple(values))
    return members if len(leaves) > MAX_INDEXED_IN else _Any(leaves, members)


def _excluding(attribute: str, values: Iterable[Scalar]) -> NotEquals | NotIn:
    excluded = tuple(values)
    return NotEquals(attribute, excluded[0]) if len(excluded) == 1 else NotIn(attribute, excluded)


def _push_pattern(expression: Pattern, positive: bool) -> _Node:
    literal = like_literal(expression.pattern)
    if literal is not None:
        return _compared(expression.attribute, "=" if positive else "<>", literal)
    return Like(expression.attribute, expression.pattern, not positive)


def _push_null(expression: Null, positive: bool) -> _Node:
    return IsNull(expression.attribute) if positive else NotNull(expression.attribute)


def _push_contains(expression: Contains, positive: bool) -> _Node:
    words = normalise_words(expression.words)
    return words if positive else LacksWords(words)


def _push_spatial(expression: Spatial, positive: bool) -> _Node:
    relation, shape, distance_m = expression.relation, expression.shape, expression.distance_m
    if relation == "intersects" and isinstance(shape, tuple):
        parts = [_push_spatial(Spatial(relation, part), positive) for part in shape]
        return _any(parts) if positive else _all(parts)
    residual = SpatialResidual(relation, shape, distance_m, not positive)
    if not positive:
        return residual
    if relation == "dwithin":
        if isinstance(shape, Point) and distance_m is not None:
            return Circle(shape.x, shape.y, distance_m)
        return residual
    region = as_region(shape)
    if region is None:
        return residual
    return region if relation == "intersects" else _All((region, residual))


_PUSH: dict[type, Callable[[Any, bool], _Node]] = {
    Constant: _push_constant,
    Not: _push_not,
    And: _push_and,
    Or: _push_or,
    Comparison: _push_comparison,
    Between: _push_between,
    Membership: _push_membership,
    Pattern: _push_pattern,
    Null: _push_null,
    Contains: _push_contains,
    Spatial: _push_spatial,
}


def _all(nodes: Iterable[_Node]) -> _Node:
    parts: list[_Leaf | _All | _Any] = []
    for node in nodes:
        if node is False:
            return False
        if isinstance(node, _All):
            parts += node.parts
        elif node is not True:
            parts.append(node)
    if not parts:
        return True
    return parts[0] if len(parts) == 1 else _All(tuple(parts))


def _any(nodes: Iterable[_Node]) -> _Node:
    parts: list[_Leaf | _All | _Any] = []
    for node in nodes:
        if node is True:
            return True
        if isinstance(node, _Any) and node.members is None:
            parts += node.parts
        elif node is not False:
            parts.append(node)
    if not parts:
        return False
    parts = _united(parts)
    return parts[0] if len(parts) == 1 else _Any(tuple(parts))


# --- alternatives of one attribute --------------------------------------------------------


def _united(parts: Sequence[_Leaf | _All | _Any]) -> list[_Leaf | _All | _Any]:
    """Alternatives with the intervals and the strings of each attribute put together."""
    intervals: dict[str, list[Interval]] = {}
    texts: dict[str, set[str]] = {}
    rest: list[_Leaf | _All | _Any] = []
    for part in parts:
        members = part.members if isinstance(part, _Any) else part
        if isinstance(members, Interval):
            intervals.setdefault(members.attribute, []).append(members)
        elif isinstance(members, Equals) and isinstance(members.value, str):
            texts.setdefault(members.attribute, set()).add(members.value)
        elif isinstance(members, In) and isinstance(members.values[0], str):
            texts.setdefault(members.attribute, set()).update(map(str, members.values))
        elif isinstance(members, In):
            points = [Interval(members.attribute, v, v) for v in map(float, members.values)]
            intervals.setdefault(members.attribute, []).extend(points)
        else:
            rest.append(part)
    for attribute, found in intervals.items():
        merged = _merged(found)
        rest += [interval for interval in merged if interval.low < interval.high]
        points_left = [interval.low for interval in merged if interval.low == interval.high]
        if points_left:
            rest.append(_choice(attribute, points_left))
    rest += [_choice(attribute, values) for attribute, values in texts.items()]
    return rest


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals of one attribute, in order, with those that overlap or touch made one."""
    merged: list[Interval] = []
    for interval in sorted(intervals, key=lambda interval: interval.low):
        last = merged[-1] if merged else None
        if last is not None and interval.low <= _next(last.high, math.inf):
            if interval.high > last.high:
                merged[-1] = Interval(last.attribute, last.low, interval.high)
        else:
            merged.append(interval)
    return merged


# --- counting, expanding ------------------------------------------------------------------


def _count(node: _Leaf | _All | _Any, compact: bool) -> int:
    """How many clauses a node needs, without making them."""
    if isinstance(node, _All):
        return math.prod(_count(part, compact) for part in node.parts)
    if isinstance(node, _Any):
        if compact and node.members is not None:
            return 1
        return sum(_count(part, compact) for part in node.parts)
    return 1


def _expand(node: _Leaf | _All | _Any, compact: bool) -> list[tuple[_Leaf, ...]]:
    if isinstance(node, _All):
        if not any(isinstance(part, _Any | _All) for part in node.parts):
            return [node.parts]  # type: ignore[list-item]  # leaves only
        expanded = [_expand(part, compact) for part in node.parts]
        return [tuple(chain.from_iterable(chosen)) for chosen in product(*expanded)]
    if isinstance(node, _Any):
        if compact and node.members is not None:
            return [(node.members,)]
        return [leaves for part in node.parts for leaves in _expand(part, compact)]
    return [(node,)]


# --- one clause ---------------------------------------------------------------------------


class _ContradictionError(Exception):
    """Nothing can satisfy the clause."""


class _Draft:
    """A clause in the making."""

    __slots__ = ("equals", "intervals", "regions", "residuals", "words")

    def __init__(self) -> None:
        self.intervals: dict[str, Interval] = {}
        self.equals: dict[str, Equals] = {}
        self.words: frozenset[str] = frozenset()
        self.regions: list[Circle | Box | Polygon] = []
        self.residuals: list[Residual] = []

    def bound(self, interval: Interval) -> None:
        held = self.intervals.get(interval.attribute)
        if held is not None:
            low, high = max(held.low, interval.low), min(held.high, interval.high)
            if low > high:
                raise _ContradictionError
            interval = Interval(interval.attribute, low, high)
        self.intervals[interval.attribute] = interval

    def fix(self, equals: Equals) -> None:
        if self.equals.setdefault(equals.attribute, equals) != equals:
            raise _ContradictionError

    def finished(self) -> Clause:
        if self.residuals:
            self.residuals = _settled(self)
        if not self.intervals.keys().isdisjoint(self.equals):
            raise _ContradictionError
        return Clause(
            _by_attribute(self.intervals),
            _by_attribute(self.equals),
            self.words,
            tuple(self.regions)
            if len(self.regions) < 2
            else tuple(sorted(set(self.regions), key=repr)),
            tuple(self.residuals),
        )


def _by_attribute(found: dict[str, Any]) -> tuple[Any, ...]:
    if len(found) < 2:
        return tuple(found.values())
    return tuple([found[attribute] for attribute in sorted(found)])


def _clause(leaves: Iterable[_Leaf]) -> Clause | None:
    """The clause that says all of the leaves; None if they contradict each other."""
    draft = _Draft()
    try:
        for leaf in leaves:
            if isinstance(leaf, Interval):
                draft.bound(leaf)
            elif isinstance(leaf, Equals):
                draft.fix(leaf)
            elif isinstance(leaf, frozenset):
                draft.words |= leaf
            elif isinstance(leaf, Circle | Box | Polygon):
                draft.regions.append(leaf)
            else:
                draft.residuals.append(leaf)
        return draft.finished()
    except _ContradictionError:
        return None


def _settled(draft: _Draft) -> list[Residual]:
    """The residuals that remain: what the rest of the clause implies is left out."""
    groups: dict[str, list[Any]] = {}
    kept: list[Residual] = []
    for residual in draft.residuals:
        if isinstance(residual, LacksWords):
            if residual.words <= draft.words:
                raise _ContradictionError
            kept.append(residual)
        elif isinstance(residual, SpatialResidual):
            kept.append(residual)
        else:
            groups.setdefault(residual.attribute, []).append(residual)
    for attribute, tests in groups.items():
        kept += _settled_attribute(draft, attribute, tests)
    if len(kept) < 2:
        return kept
    return sorted(set(kept), key=lambda test: (_RANK[type(test)], str(test)))


#: The order in which residuals are checked: cheap ones first.
_RANK = {
    kind: rank
    for rank, kind in enumerate(
        (IsNull, NotNull, NotEquals, In, NotIn, StringRange, Like, LacksWords, SpatialResidual)
    )
}


def _settled_attribute(draft: _Draft, attribute: str, tests: list[Any]) -> list[Residual]:
    kinds = {_kind(test) for test in tests}
    if attribute in draft.intervals:
        kinds.add(float)
    if attribute in draft.equals:
        kinds.add(type(draft.equals[attribute].value))
    if IsNull in kinds:
        if len(kinds) > 1:
            raise _ContradictionError
        return [IsNull(attribute)]
    kinds.discard(NotNull)  # implied by every other test
    if len(kinds) > 1:
        raise _ContradictionError
    if not kinds:
        return [NotNull(attribute)]
    typed = [test for test in tests if not isinstance(test, NotNull)]
    if float in kinds:
        return _settled_numbers(draft, attribute, typed)
    return _settled_texts(draft, attribute, typed)


def _kind(test: Any) -> type:
    """The type of attribute that a residual asks for; its own class if it asks for none."""
    if isinstance(test, Like | StringRange):
        return str
    if isinstance(test, In | NotIn):
        return type(test.values[0])
    return type(test.value) if isinstance(test, NotEquals) else type(test)


def _excluded(tests: Iterable[Any]) -> set[Any]:
    excluded: set[Any] = set()
    for test in tests:
        if isinstance(test, NotEquals):
            excluded.add(test.value)
        elif isinstance(test, NotIn):
            excluded.update(test.values)
    return excluded


def _members(tests: Iterable[Any]) -> list[Any] | None:
    """The values that every IN allows, sorted; None without an IN."""
    sets = [set(test.values) for test in tests if isinstance(test, In)]
    return sorted(set.intersection(*sets)) if sets else None


def _settled_numbers(draft: _Draft, attribute: str, tests: list[Any]) -> list[Residual]:
    interval = draft.intervals.get(attribute)
    excluded = {v for v in _excluded(tests) if interval is None or interval.accepts(v)}
    members = _members(tests)
    if members is not None:
        left = [
            value
            for value in members
            if value not in excluded and (interval is None or interval.accepts(value))
        ]
        if not left:
            raise _ContradictionError
        draft.intervals[attribute] = Interval(attribute, left[0], left[-1])
        return [In(attribute, tuple(left))] if len(left) > 1 else []
    if interval is not None and interval.low == interval.high and excluded:
        raise _ContradictionError
    return [_excluding(attribute, excluded)] if excluded else []


def _settled_texts(draft: _Draft, attribute: str, tests: list[Any]) -> list[Residual]:
    others = [test for test in tests if not isinstance(test, In)]
    members = _members(tests)
    fixed = draft.equals.get(attribute)
    if fixed is not None:
        members = [fixed.value] if members is None or fixed.value in members else []
    span = _common_range(attribute, [t for t in tests if isinstance(t, StringRange)])
    if members is None and span is not None and span.low == span.high:
        members = [span.low]
    if members is not None:
        left = [value for value in members if all(test.accepts(value) for test in others)]
        if not left:
            raise _ContradictionError
        if len(left) > 1:
            return [In(attribute, tuple(left))]
        draft.equals[attribute] = Equals(attribute, left[0])
        return []
    likes = [test for test in tests if isinstance(test, Like)]
    kept: list[Any] = likes if span is None else [span, *likes]
    excluded = {v for v in _excluded(tests) if all(test.accepts(v) for test in kept)}
    return [*kept, _excluding(attribute, excluded)] if excluded else kept


def _common_range(attribute: str, ranges: Sequence[StringRange]) -> StringRange | None:
    """The intersection of string ranges; None if there are none."""
    if not ranges:
        return None
    lows = [(r.low, not r.low_closed) for r in ranges if r.low is not None]
    highs = [(r.high, r.high_closed) for r in ranges if r.high is not None]
    low, low_open = max(lows) if lows else (None, False)
    high, high_closed = min(highs) if highs else (None, True)
    common = _sound_range(StringRange(attribute, low, high, not low_open, high_closed))
    if common is None:
        raise _ContradictionError
    return common


def _sound_range(span: StringRange) -> StringRange | None:
    """The range itself; None if it is empty."""
    if span.low is None or span.high is None or span.low < span.high:
        return span
    return span if span.low == span.high and span.low_closed and span.high_closed else None


# --- several clauses ----------------------------------------------------------------------


#: Each clause is compared with each other: beyond this it would cost more than it saves.
_MOST_COMPARED = 256


def _tidied(clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    """Clauses without repetition: equal ones once, what another covers left out."""
    distinct = list(dict.fromkeys(clauses))
    count = 0
    while 1 < len(distinct) != count:
        count = len(distinct)
        intervals = {interval for clause in distinct for interval in clause.intervals}
        for attribute, times in sorted(Counter(i.attribute for i in intervals).items()):
            if times > 1:
                distinct = _joined(distinct, attribute)
    if not 1 < len(distinct) <= _MOST_COMPARED:
        return tuple(distinct)
    extents = [_Extent(clause) for clause in distinct]
    return tuple(
        extent.clause
        for extent in extents
        if not any(other.covers(extent) for other in extents if other is not extent)
    )


def _joined(clauses: Sequence[Clause], attribute: str) -> list[Clause]:
    """Clauses that differ in the interval of one attribute only, with the intervals merged."""
    groups: dict[Clause, list[Interval]] = {}
    for clause in clauses:
        own = [i for i in clause.intervals if i.attribute == attribute]
        others = tuple(i for i in clause.intervals if i.attribute != attribute)
        groups.setdefault(replace(clause, intervals=others), []).extend(own)
    joined: list[Clause] = [clause for clause in clauses if clause in groups]
    bare = frozenset(joined)
    for rest, intervals in groups.items():
        if rest not in bare:  # else it restricts less than every one of them
            for interval in _merged(intervals):
                found = {i.attribute: i for i in (*rest.intervals, interval)}
                joined.append(replace(rest, intervals=_by_attribute(found)))
    return joined


class _Extent:
    """A clause in the form that tells fast whether it covers another."""

    __slots__ = ("clause", "conditions", "intervals", "words")

    def __init__(self, clause: Clause) -> None:
        self.clause = clause
        self.words = clause.words
        self.conditions = frozenset((*clause.equals, *clause.regions, *clause.residuals))
        self.intervals = {interval.attribute: interval for interval in clause.intervals}

    def covers(self, other: _Extent) -> bool:
        """Whether every event that satisfies the other surely satisfies this one."""
        if not (self.conditions <= other.conditions and self.words <= other.words):
            return False
        for attribute, interval in self.intervals.items():
            inner = other.intervals.get(attribute)
            if inner is None or inner.low < interval.low or inner.high > interval.high:
                return False
        return True
