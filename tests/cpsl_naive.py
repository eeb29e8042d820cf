"""CPSL by definition: any pattern over a whole history, nothing dropped, nothing indexed.

Every operator looks at the full list of what its operands have produced so far; an instance
waits if it came before and was not used. Only *chronicle* asks for more, because its oldest
instance must not be one that is dead: `_alive` says when nothing that may still come can
complete a combination with it, by trying every one. Geometry is exact, on a plane.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from math import inf
from typing import Any

from nearcast.cpsl import ast
from nearcast.cpsl.compile import tie_break
from nearcast.cpsl.predicates import binds, evaluate, variables
from nearcast.model.events import Event
from nearcast.model.geometry import Point
from tests import oracle_geometry as exact


@dataclass(frozen=True, eq=False)
class Seen:
    """An instance: equal numbers are the same occurrence."""

    number: int
    start: int
    end: int
    parts: tuple[tuple[int, Event], ...]
    known: dict[str, Any] = field(default_factory=dict)
    opens: tuple[Any, ...] = ()
    step: int = 0

    def shape(self) -> Any:
        points = [p for _, event in self.parts for p in _corners(event)]
        return [hull(points)] if points else None


class Later:
    """What is still to come at an operand: of any value, anywhere; only its time is bounded."""


LATER = Later()
#: A difference of two moments and its bound: first - second <= third. None is moment 0.
Difference = tuple[Any, Any, float]


@dataclass(frozen=True)
class Found:
    """What a detection is compared by."""

    parts: tuple[str, ...]
    start: int
    end: int
    values: tuple[tuple[str, Any], ...]


def _corners(event: Event) -> list[exact.Vertex]:
    return [] if event.location is None else exact.exact(event.location)[0]


def hull(points: list[exact.Vertex]) -> exact.Ring:
    """The convex hull: lower and upper chain of the sorted points."""
    row = sorted(set(points))
    if len(row) < 3:
        return row
    ring: exact.Ring = []
    for side in (row, row[::-1]):
        chain: exact.Ring = []
        for p in side:
            while len(chain) > 1 and exact.orientation(chain[-2], chain[-1], p) <= 0:
                chain.pop()
            chain.append(p)
        ring += chain[:-1]
    return ring


def centre(shape: exact.Shape) -> exact.Vertex:
    ring = shape[0]
    area, x, y = exact._moments(ring)
    if area:
        return x / area, y / area
    n = Fraction(len(ring))
    return sum((p[0] for p in ring), Fraction(0)) / n, sum((p[1] for p in ring), Fraction(0)) / n


def combined(instances: list[Seen]) -> tuple[dict[str, Any], tuple[Any, ...]] | None:
    """What all of them know together; None if they contradict each other."""
    known: dict[str, Any] = {}
    for i, one in enumerate(instances):
        for other in instances[:i]:
            same_variable = any(n[0] == "$" and n in other.known for n in one.known)
            if one.number == other.number and not same_variable:
                return None
        for name, value in one.known.items():
            if known.setdefault(name, value) != value:
                return None
    opens = [o for one in instances for o in one.opens]
    if any(n in known and not test.holds(left, known[n]) for left, test, n in opens):
        return None
    return known, tuple(o for o in opens if o[2] not in known)


class Naive:
    """One pattern, one mode, one history."""

    def __init__(
        self, pattern: ast.Pattern, mode: str, longest: int | None = None, tolerance: float = 1.0,
        expires: int | None = None,
    ) -> None:  # fmt: skip
        self.definitions = {d.name: d.body for d in pattern.definitions}
        self.root = pattern.expression
        self.mode = mode
        self.expires = inf if expires is None else expires
        self.longest = inf if longest is None else longest
        self.tolerance = Fraction(tolerance)
        self.uses = _uses(pattern.expression)
        for body in self.definitions.values():
            self.uses += _uses(body)
        self.arrived: dict[Any, list[Seen]] = {}
        self.used: set[tuple[Any, int, int]] = set()
        self.fired: set[tuple[Any, int]] = set()
        self.step = 0
        self.number = 0
        self.now = 0
        self.begun: int | None = None
        self.current: dict[Any, list[Seen]] = {}
        self.arrival_time: dict[Any, int] = {}
        self.timer: tuple[Any, int] | None = None

    def run(self, history: list[Event], until: int) -> list[Found]:
        """All detections, in order."""
        found: list[Seen] = []
        for event in sorted(history, key=_end):
            found += self._fire_before(_end(event))
            self._begin(_end(event))
            found += self._one_step(_end(event), event, None)
        self._begin(until)
        found += self._fire_before(until + 1)
        self.now = until
        return [_found(one) for one in found if not one.opens]

    def _begin(self, now: int) -> None:
        if self.begun is None:
            self.begun = now

    def _fire_before(self, moment: int) -> list[Seen]:
        found: list[Seen] = []
        while True:
            due = [d for d in self._due() if d[0] < moment]
            if not due:
                return found
            at, _, _, _, index, expression = min(due, key=lambda d: d[:5])
            self.fired.add((expression, index))
            found += self._one_step(at, None, (expression, index))

    def _one_step(self, now: int, event: Event | None, timer: Any) -> list[Seen]:
        self.step += 1
        self.now = now
        self.current = {}
        self.event, self.timer = event, timer
        self.event_number = self._next()
        for expression in self._timed():  # also those that the root does not ask for this time
            self.out(expression)
        return self.out(self.root) if now < self.expires else []

    def _next(self) -> int:
        self.number += 1
        return self.number

    # -- time events -------------------------------------------------------------

    def _all(self) -> list[ast.Expression]:
        bodies = [self.root, *self.definitions.values()]
        return [node for body in bodies for node in ast.walk(body)]

    def _timed(self) -> list[Any]:
        kinds = (ast.Negation, ast.Period, ast.Crossing)
        return sorted(
            {e for e in self._all() if isinstance(e, kinds)},
            key=lambda e: (self.height(e), tie_break(e)),
        )

    def _due(self) -> list[tuple[int, int, int, int, int, Any]]:
        due: list[Any] = []
        for e in self._timed():
            common = (self.height(e),)
            if isinstance(e, ast.Crossing):
                if isinstance(e, ast.Dwell):
                    for i, a in enumerate(self.arrived.get((e, 1), [])):
                        if (e, i) not in self.fired:
                            due.append((a.end + e.length, *common, a.step, tie_break(e), i, e))
            elif isinstance(e, ast.Period):
                assert self.begun is not None or not self.arrived.get((e, 0))
                boundaries = {self._boundary(e, a) for a in self.arrived.get((e, 0), [])}
                for at in boundaries:
                    if (e, at) not in self.fired:
                        due.append((at, *common, -1, tie_break(e), at, e))
            elif isinstance(e.window, ast.Fixed):
                at = e.window.at + e.window.length
                if (e, 0) not in self.fired and self.begun is not None and at >= self.begun:
                    due.append((at, *common, -1, tie_break(e), 0, e))
            elif isinstance(e.window, ast.Following):
                for i, a in enumerate(self.arrived.get((e, 0), [])):
                    if (e, i) not in self.fired:
                        at = a.end + e.window.length
                        due.append((at, *common, a.step, tie_break(e), i, e))
        return due

    def _boundary(self, e: ast.Period, a: Seen) -> int:
        assert self.begun is not None
        periods = 1
        while self.begun + periods * e.length < self.arrival_time[a.number, e]:
            periods += 1
        return self.begun + periods * e.length

    # -- what an expression produces in this step ------------------------------------

    def out(self, e: ast.Expression) -> list[Seen]:
        if e not in self.current:
            self.current[e] = [replace(one, step=self.step) for one in self._out(e)]
        return self.current[e]

    def operand(self, e: ast.Expression) -> list[Seen]:
        """The instances of an operand; behind a variable they carry its name."""
        if not isinstance(e, ast.Reference):
            return self.out(e)
        return [
            replace(one, known={**one.known, "$" + e.name: one.number})
            for one in self.operand(self.definitions[e.name])
        ]

    def _out(self, e: ast.Expression) -> list[Seen]:
        match e:
            case ast.Primitive():
                return self._primitive(e)
            case ast.Reference():
                return self.operand(e)
            case ast.Or(parts=parts):
                return self._either(parts)
            case ast.Negation():
                return self._negation(e)
            case ast.Count() | ast.Period() | ast.Sliding():
                return self._repetition(e)
            case ast.Crossing():
                return self._crossing(e)
        if _is_unary(e):
            return [one for one in self.operand(_body(e)) if self._passes(e, one)]
        return self._joint(e)

    def _primitive(self, e: ast.Primitive) -> list[Seen]:
        if self.event is None:
            return []
        match = evaluate(e, self.event, "planar")
        if match is None:
            return []
        start, end = _start(self.event), _end(self.event)
        parts = ((self.event_number, self.event),)
        return [Seen(self.event_number, start, end, parts, dict(match.bindings), match.opens)]

    def _either(self, parts: tuple[ast.Expression, ...]) -> list[Seen]:
        kept: list[Seen] = []
        for part in parts:
            for one in self.operand(part):
                if not any(k.number == one.number and k.known == one.known for k in kept):
                    kept.append(one)
        return kept

    def _passes(self, e: Any, one: Seen) -> bool:
        if isinstance(e, ast.Temporal):
            assert isinstance(e.window, ast.Fixed)
            begin, end = e.window.at, e.window.at + e.window.length
            between = isinstance(e, ast.HappenBetween)
            return begin < one.start and one.end <= end if between else one.start > end
        region = e.region if isinstance(e, ast.HappenIn) else e.place
        place = [hull([(Fraction(x), Fraction(y)) for x, y in region.points])]
        return self._spatial(e, place, one.shape())

    def _spatial(self, e: Any, first: Any, second: Any) -> bool:
        if first is None or second is None:
            return False
        match e:
            case ast.HappenIn() | ast.Inside():
                return exact.covers([first], second)
            case ast.Overlap():
                inside = exact.covers([first], second) or exact.covers([second], first)
                return exact.shapes_meet(first, second) and not inside
            case ast.SamePlace():
                (x1, y1), (x2, y2) = centre(first), centre(second)
                return (x1 - x2) ** 2 + (y1 - y2) ** 2 <= self.tolerance**2
            case ast.Distance(op=op, metres=metres):
                square, limit = exact.distance_squared(first, second), Fraction(metres)
                if op == "<":
                    return square < limit**2
                if op == ">":
                    return square > limit**2
                low = max(Fraction(0), limit - self.tolerance)
                return low**2 <= square <= (limit + self.tolerance) ** 2
        raise AssertionError(e)

    # -- joints --------------------------------------------------------------------

    def cluster(self, e: ast.Expression) -> tuple[list[ast.Expression], Any]:
        """The operands of a joint, and its constraints over them."""
        leaves: list[ast.Expression] = []

        def tree(x: ast.Expression) -> Any:
            return (x, [leaf(c) for c in ast.children(x)])

        def leaf(x: ast.Expression) -> Any:
            combines = not isinstance(
                x,
                ast.Primitive | ast.Reference | ast.Or | ast.Negation
                | ast.Count | ast.Period | ast.Sliding | ast.Crossing,
            )  # fmt: skip
            if combines and any(n < self.uses[name] for name, n in _uses(x).items()):
                return tree(x)
            if isinstance(x, ast.Reference) and x in leaves:
                return leaves.index(x)
            leaves.append(x)
            return len(leaves) - 1

        return leaves, tree(e)

    def _holds(self, tree: Any, chosen: list[Seen | None]) -> bool:
        """Whether every constraint holds whose operands are all chosen."""
        if isinstance(tree, int):
            return True
        e, operands = tree
        if not all(self._holds(o, chosen) for o in operands):
            return False
        views = [self._view(o, chosen) for o in operands]
        return True if None in views else bool(self._constraint(e, views))

    def _view(self, tree: Any, chosen: list[Seen | None]) -> Seen | None:
        if isinstance(tree, int):
            return chosen[tree]
        inner = [self._view(o, chosen) for o in tree[1]]
        return None if None in inner else _joined(-1, inner)

    def _constraint(self, e: Any, views: list[Any]) -> Any:
        if _is_unary(e):
            return self._passes(e, views[0])
        if isinstance(e, ast.And):
            return True
        a, b = views[0], views[1]
        if isinstance(e, ast.Concurrent):
            return a.start <= b.end and b.start <= a.end
        if isinstance(e, ast.Temporal):
            between = isinstance(e, ast.HappenBetween)
            if isinstance(e.window, ast.Following):
                t = e.window.length
                return a.end < b.start and b.end <= a.end + t if between else b.start > a.end + t
            c = views[2]
            if between:
                return a.end < b.start and a.end < c.start and c.end < b.end
            return a.end < b.start and b.end < c.start
        return self._spatial(e, a.shape(), b.shape())

    def _joint(self, e: ast.Expression) -> list[Seen]:
        leaves, tree = self.cluster(e)
        made: list[Seen] = []
        for port, leaf in enumerate(leaves):
            for x in self.operand(leaf):
                alone: list[Seen | None] = [None] * len(leaves)
                alone[port] = x
                if self._holds(tree, alone):
                    made += self._complete(e, leaves, tree, port, x)
                    self.arrived.setdefault((e, port), []).append(x)
        return made

    def _unused(self, e: Any, port: int) -> list[tuple[int, Seen]]:
        rows = list(enumerate(self.arrived.get((e, port), [])))
        if self.mode == "recent":
            return rows[-1:]
        return [(i, one) for i, one in rows if (e, port, i) not in self.used]

    def _waiting(self, e: Any, leaves: Any, tree: Any, port: int) -> list[tuple[int, Seen]]:
        """The candidates of an operand: in chronicle its oldest that is not dead."""
        rows = self._unused(e, port)
        if self.mode != "chronicle":
            return rows
        return [row for row in rows if self._alive(e, leaves, tree, port, row[1])][:1]

    def _alive(self, e: Any, leaves: Any, tree: Any, port: int, one: Seen) -> bool:
        """Whether something still to come can complete a combination that holds an instance."""

        def extend(chosen: list[Any], at: int) -> bool:
            if at == len(leaves):
                there = [x if isinstance(x, Seen) else None for x in chosen]
                return LATER in chosen and self._holds(tree, there)
            if at == port:
                return extend(chosen, at + 1)
            for x in [LATER, *(x for _, x in self._unused(e, at))]:
                tried = [*chosen[:at], x, *chosen[at + 1 :]]
                known = [y for y in tried if isinstance(y, Seen)]
                if combined(known) is None or not self._in_time(tree, leaves, tried):
                    continue
                if extend(tried, at + 1):
                    return True
            return False

        alone: list[Any] = [None] * len(leaves)
        alone[port] = one
        return self._in_time(tree, leaves, alone) and extend(alone, 0)

    def _in_time(self, tree: Any, leaves: Any, chosen: list[Any]) -> bool:
        """Whether there are times for what is still to come with which all that is chosen fits."""
        rules: list[list[Difference]] = [[d] for d in self._moments(leaves, chosen)]
        rules += [
            rule
            for rule in time_rules(tree)
            if all(v is None or chosen[v[0]] is not None for d in rule for v in d[:2])
        ]
        return any(satisfiable(list(choice)) for choice in product(*rules))

    def _moments(self, leaves: Any, chosen: list[Any]) -> list[Difference]:
        """What is known of the starts and ends of what is chosen."""
        found: list[Difference] = []
        for p, x in enumerate(chosen):
            start, end = (p, "start"), (p, "end")
            if x is LATER:
                found += [(start, end, 0), (end, start, self.span(leaves[p]))]
                found.append((None, end, self.lag(leaves[p]) - self.now))
            elif x is not None:
                found += [(start, None, x.start), (None, start, -x.start)]
                found += [(end, None, x.end), (None, end, -x.end)]
        return found

    def alive(self) -> int:
        """How many instances the joints have to keep: those that are neither used nor dead."""
        joints = {
            e for e in self._all()
            if not _is_unary(e) and not isinstance(e, ast.Primitive | ast.Reference | ast.Or
            | ast.Negation | ast.Count | ast.Period | ast.Sliding | ast.Crossing)
        }  # fmt: skip
        return sum(
            self._alive(e, leaves, tree, port, one)
            for e in joints
            for leaves, tree in [self.cluster(e)]
            for port in range(len(leaves))
            for _, one in self._unused(e, port)
        )

    def _complete(self, e: Any, leaves: Any, tree: Any, port: int, x: Seen) -> list[Seen]:
        mode = self.mode
        others = [p for p in range(len(leaves)) if p != port]
        waiting = {p: self._waiting(e, leaves, tree, p) for p in others}
        if mode == "chronicle" and self._waiting(e, leaves, tree, port):
            return []  # the new one is not the oldest
        fitting = []
        for choice in product(*(waiting[p] for p in others)):
            chosen: list[Any] = [None] * len(leaves)
            chosen[port] = x
            for p, (_, one) in zip(others, choice, strict=True):
                chosen[p] = one
            if self._holds(tree, chosen) and combined(chosen) is not None:
                fitting.append((choice, chosen))
        if not fitting:
            return []
        if mode in ("first-matching", "chronicle", "recent"):
            fitting = fitting[:1]
        elif mode == "continuous":
            first_of: dict[Any, Any] = {}
            for choice, chosen in fitting:
                first_of.setdefault(choice[0][0] if choice else None, (choice, chosen))
            fitting = list(first_of.values())
        groups = [chosen for _, chosen in fitting]
        kept = [choice for choice, _ in fitting]
        if mode == "cumulative":
            groups, kept = self._gather(fitting, others, port)
        if mode != "recent":
            self.used.add((e, port, len(self.arrived.get((e, port), []))))
            for choice in kept:
                for p, (i, _) in zip(others, choice, strict=True):
                    self.used.add((e, p, i))
        return [_joined(self._next(), group) for group in groups]

    def _gather(self, fitting: Any, others: Any, port: int) -> Any:
        members: dict[Any, Seen] = {}
        kept = []
        for choice, chosen in fitting:
            more = {**members, (port, -1): chosen[port]}
            for p, (i, one) in zip(others, choice, strict=True):
                more[p, i] = one
            if combined(list(more.values())) is not None:
                members = more
                kept.append(choice)
        return [list(members.values())], kept

    # -- negation ------------------------------------------------------------------

    def _negation(self, e: ast.Negation) -> list[Seen]:
        if isinstance(e.window, ast.Fixed):
            self._arrive(e, 1, e.body)
            if self.timer is None or self.timer[0] != e:
                return []
            begin, end = e.window.at, e.window.at + e.window.length
            if any(begin < b.end <= end for b in self.arrived.get((e, 1), [])):
                return []
            return [Seen(self._next(), begin, end, ())]
        if isinstance(e.window, ast.Following):
            return self._following(e)
        return self._enclosed(e)

    def _arrive(self, e: Any, port: int, operand: Any) -> list[Seen]:
        new = [replace(one, step=self.step) for one in self.operand(operand)]
        self.arrived.setdefault((e, port), []).extend(new)
        return new

    def _following(self, e: Any) -> list[Seen]:
        first = len(self.arrived.get((e, 0), []))
        new = self._arrive(e, 0, e.window.opener)
        made = []
        for i, a in enumerate(new, first):
            if a.end + e.window.length < self.now:  # came when its window was over
                self.fired.add((e, i))
                made += self._close(e, a)
        self._arrive(e, 1, e.body)
        if self.timer is not None and self.timer[0] == e:
            i = self.timer[1]
            if self.mode != "recent" or i == len(self.arrived[e, 0]) - 1:
                made += self._close(e, self.arrived[e, 0][i])
        return made

    def _close(self, e: Any, a: Seen) -> list[Seen]:
        end = a.end + e.window.length
        if any(a.end < b.end <= end and blocks([a], b) for b in self.arrived.get((e, 1), [])):
            return []
        return [Seen(self._next(), a.start, end, a.parts, a.known, a.opens)]

    def _enclosed(self, e: Any) -> list[Seen]:
        made: list[Seen] = []
        for a in self.operand(e.window.opener):
            if self.mode != "chronicle" or not self._openers(e):
                made += self._pair(e, [(None, a)], self._closers(e))
            self.arrived.setdefault((e, 0), []).append(a)
        for b in self.operand(e.window.closer):
            made += self._pair(e, self._openers(e), [(None, b)])
            self.arrived.setdefault((e, 1), []).append(b)
        self._arrive(e, 2, e.body)
        return made

    def _openers(self, e: Any) -> list[tuple[int | None, Seen]]:
        rows = self._unused(e, 0)
        if self.mode == "chronicle":
            rows = [(i, a) for i, a in rows if self._can_be_closed(e, a)][:1]
        return [*rows]

    def _closers(self, e: Any) -> list[tuple[int | None, Seen]]:
        """Nothing consumes them, and an opener that comes late still meets them."""
        rows = self._unused(e, 1)
        if self.mode == "chronicle":
            rows = [(i, b) for i, b in rows if self._can_be_opened(e, b)][:1]
        return [*rows]

    def _can_be_closed(self, e: Any, a: Seen) -> bool:
        """Whether a closer to come can end before every c that closes a's window in any case."""
        first = self.now - self.lag(e.window.closer)
        theirs = self.speaks_of(e.window.closer)
        return not any(a.end < c.end < first and _settles(a, c, theirs) for c in self._bodies(e))

    def _can_be_opened(self, e: Any, b: Seen) -> bool:
        """Whether an opener to come can end before b and not before a c that rules it out."""
        theirs = self.speaks_of(e.window.opener)
        ruled = [c.end for c in self._bodies(e) if c.end < b.end and _settles(b, c, theirs)]
        return max([self.now - self.lag(e.window.opener), *ruled]) < b.start

    def _bodies(self, e: Any) -> list[Seen]:
        return self.arrived.get((e, 2), [])

    def _pair(self, e: Any, openers: Any, closers: Any) -> list[Seen]:
        fitting = [
            (a, b)
            for a in openers
            for b in closers
            if a[1].end < b[1].start
            and combined([a[1], b[1]]) is not None
            and not any(
                a[1].end < c.end < b[1].end and blocks([a[1], b[1]], c) for c in self._bodies(e)
            )
        ]
        if self.mode in ("first-matching", "chronicle", "recent"):
            fitting = fitting[:1]
        groups: list[list[Seen]] = []
        for a, b in fitting:
            group = [a[1], b[1]]
            if self.mode == "cumulative" and groups:
                group = groups[0] + [one for one in group if one not in groups[0]]
                if combined(group) is None:
                    continue
                groups[0] = group
            else:
                groups.append(group)
            self.used.add((e, 0, len(self.arrived.get((e, 0), [])) if a[0] is None else a[0]))
        return [_joined(self._next(), group) for group in groups]

    # -- repetition ------------------------------------------------------------------

    def _repetition(self, e: Any) -> list[Seen]:
        if isinstance(e, ast.Period):
            return self._period(e)
        made = []
        for x in self.operand(e.body):
            row = self.arrived.setdefault((e, 0), [])
            row.append(x)
            mine = [(i, one) for i, one in enumerate(row) if _values(one) == _values(x)]
            if isinstance(e, ast.Sliding):
                window = [one for _, one in mine[-e.n :]]
                first = len(mine) - e.n
                if first >= 0 and first % e.step == 0:
                    length = max(o.end for o in window) - min(o.start for o in window)
                    if length <= e.length:
                        made.append(self._row(window))
                continue
            chosen = self._counted(e, row, mine)
            if chosen:
                made.append(self._row([one for _, one in chosen]))
        return made

    def _counted(self, e: Any, row: list[Seen], mine: Any) -> Any:
        if self.mode in ("recent", "continuous"):
            chosen = (list(enumerate(row)) if self.mode == "recent" else mine)[-e.n :]
        else:
            waiting = list(enumerate(row)) if self.mode == "chronicle" else mine
            chosen = [(i, one) for i, one in waiting if (e, 0, i) not in self.used][: e.n]
            if chosen[-1][0] != len(row) - 1:
                return None
        if len(chosen) < e.n or len({_values(one) for _, one in chosen}) > 1:
            return None
        if self.mode not in ("recent", "continuous"):
            self.used |= {(e, 0, i) for i, _ in chosen}
        return chosen

    def _period(self, e: ast.Period) -> list[Seen]:
        for one in self._arrive(e, 0, e.body):
            self.arrival_time[one.number, e] = self.now
        if self.timer is None or self.timer[0] != e:
            return []
        ending = [a for a in self.arrived[e, 0] if self._boundary(e, a) == self.timer[1]]
        groups: dict[Any, list[Seen]] = {}
        for a in ending:
            groups.setdefault(_values(a), []).append(a)
        return [self._row(group) for group in groups.values()]

    def _row(self, instances: list[Seen]) -> Seen:
        plain = [
            replace(o, number=-i, known={n: v for n, v in o.known.items() if n[0] == "&"})
            for i, o in enumerate(instances, 1)
        ]
        return _joined(self._next(), plain)

    # -- borders ---------------------------------------------------------------------

    def _crossing(self, e: Any) -> list[Seen]:
        """What each new position of an object means, given all that came before it.

        Of a dwell, entries wait at port 1 until they are due, the positions that entered at 2.
        """
        entries: list[Seen] = []
        came: list[Seen] = []
        for x in self.operand(e.body):
            mine = [one for one in self.arrived.get((e, 0), []) if _values(one) == _values(x)]
            if x.shape() is None or any(one.end > x.end for one in mine):
                continue  # it is nowhere, or older than what is known of the object
            self.arrived.setdefault((e, 0), []).append(x)
            before, now = self._side(e, mine), self._side(e, [*mine, x])
            first, last = ("in", "out") if isinstance(e, ast.Exit) else ("out", "in")
            if (before, now) != (first, last):
                continue
            since = len(mine) - 1
            while self.mode != "recent" and since and self._side(e, mine[:since]) == first:
                since -= 1
            entries.append(replace(self._row([mine[since], x]), step=self.step))
            came.append(x)
        if not isinstance(e, ast.Dwell):
            return entries
        made: list[Seen] = []
        for one, x in zip(entries, came, strict=True):
            row = self.arrived.setdefault((e, 1), [])
            row.append(one)
            self.arrived.setdefault((e, 2), []).append(x)
            if one.end + e.length < self.now:  # came when its time was over
                self.fired.add((e, len(row) - 1))
                made.append(replace(one, number=self._next(), end=one.end + e.length))
        if self.timer is not None and self.timer[0] == e:
            made += self._stayed(e, self.timer[1])
        return made

    def _side(self, e: Any, positions: list[Seen]) -> str | None:
        """Where an object is after these positions: the last that is clear decides."""
        place = [hull([(Fraction(x), Fraction(y)) for x, y in e.region.points])]
        reach = Fraction(e.metres) if isinstance(e, ast.Approach) else Fraction(0)
        side = None
        for one in positions:
            away = exact.distance_squared(place, one.shape())
            if away <= reach**2:
                side = "in"
            elif away > (reach + Fraction(e.margin)) ** 2:
                side = "out"
        return side

    def _stayed(self, e: Any, number: int) -> list[Seen]:
        """The dwell of an entry, unless the object left since."""
        entry, x = self.arrived[e, 1][number], self.arrived[e, 2][number]
        mine = [one for one in self.arrived[e, 0] if _values(one) == _values(entry)]
        came = mine.index(x)
        if any(self._side(e, mine[:until]) != "in" for until in range(came + 1, len(mine) + 1)):
            return []
        return [replace(entry, number=self._next(), end=entry.end + e.length)]

    # -- bounds and order --------------------------------------------------------------

    def lag(self, e: ast.Expression) -> int:
        """How long after its end an instance may come: only periods delay."""
        if isinstance(e, ast.Reference):
            return self.lag(self.definitions[e.name])
        if isinstance(e, ast.Period):
            return e.length + self.lag(e.body)
        if isinstance(e, ast.Negation):
            if isinstance(e.window, ast.Fixed):
                return 0
            return max(self.lag(x) for x in ast.parts_of(e.window))
        return max((self.lag(x) for x in ast.children(e)), default=0)

    def span(self, e: ast.Expression) -> float:
        """How long an instance can last, where that is clear."""
        match e:
            case ast.Primitive():
                return self.longest
            case ast.Reference(name=name):
                return self.span(self.definitions[name])
            case ast.Or(parts=parts):
                return max(map(self.span, parts))
            case ast.Negation(window=ast.Fixed(length=t)) | ast.Sliding(length=t):
                return t
            case ast.Negation(window=ast.Following(opener=a, length=t)):
                return self.span(a) + t
        if _is_unary(e):
            return self.span(_body(e))
        if isinstance(e, ast.HappenBetween | ast.Concurrent):
            leaves, (_, operands) = self.cluster(e)
            if all(isinstance(o, int) for o in operands) and len(operands) == 2:
                first, second = (self.span(leaves[o]) for o in operands)
                length = getattr(getattr(e, "window", None), "length", second)
                return float(first + length)
        return inf

    def speaks_of(self, e: ast.Expression) -> set[str]:
        """The variables that an instance may stand for."""
        match e:
            case ast.Primitive():
                return {"&" + v.name for test, v, _ in variables(e) if binds(test)}
            case ast.Reference(name=name):
                return {"$" + name} | self.speaks_of(self.definitions[name])
            case ast.Negation(window=window):
                return {n for x in ast.parts_of(window) for n in self.speaks_of(x)}
            case ast.Count(body=body) | ast.Period(body=body) | ast.Sliding(body=body):
                return {n for n in self.speaks_of(body) if n[0] == "&"}
            case ast.Crossing(body=body):
                return {n for n in self.speaks_of(body) if n[0] == "&"}
        return {n for x in ast.children(e) for n in self.speaks_of(x)}

    def height(self, e: ast.Expression) -> int:
        """How deep the operators below nest; a joint counts once."""
        if isinstance(e, ast.Primitive):
            return 0
        if isinstance(e, ast.Reference):
            body = self.definitions[e.name]
            return self.height(body) + isinstance(body, ast.Reference)
        joint = not _is_unary(e) and not isinstance(
            e, ast.Or | ast.Negation | ast.Count | ast.Period | ast.Sliding | ast.Crossing
        )
        below = self.cluster(e)[0] if joint else ast.children(e)
        # Positions are counted below the border that they may cross.
        return (2 if isinstance(e, ast.Crossing) else 1) + max(self.height(x) for x in below)


def blocks(opened: list[Seen], blocker: Seen) -> bool:
    together = combined([*opened, blocker])
    if together is None:
        return False
    return all(any(o in one.opens for one in opened) for o in together[1])


def _joined(number: int, instances: list[Any]) -> Seen:
    parts = {n: event for one in instances for n, event in one.parts}
    together = combined(instances)
    known, opens = together if together is not None else ({}, ())
    start, end = min(o.start for o in instances), max(o.end for o in instances)
    return Seen(number, start, end, tuple(parts.items()), known, tuple(dict.fromkeys(opens)))


def _values(one: Seen) -> Any:
    return tuple(sorted((n, v) for n, v in one.known.items() if n[0] == "&"))


def _found(one: Seen) -> Found:
    parts = sorted(one.parts, key=lambda p: (_end(p[1]), _start(p[1]), p[0]))
    values = tuple((name[1:], value[1]) for name, value in _values(one))
    return Found(tuple(event.id for _, event in parts), one.start, one.end, values)


def _end(event: Event) -> int:
    assert event.end is not None
    return event.end


def _start(event: Event) -> int:
    return _end(event) if event.start is None else event.start


def _uses(e: ast.Expression) -> Counter[str]:
    return Counter(n.name for n in ast.walk(e) if isinstance(n, ast.Reference))


def _is_unary(e: Any) -> bool:
    if isinstance(e, ast.HappenIn):
        return True
    if isinstance(e, ast.HappenBetween | ast.HappenAfter):
        return isinstance(e.window, ast.Fixed)
    return isinstance(getattr(e, "place", None), ast.Region)


def _body(e: Any) -> Any:
    return e.body


def _leaves(tree: Any) -> list[int]:
    return [tree] if isinstance(tree, int) else [p for o in tree[1] for p in _leaves(o)]


def time_rules(tree: Any) -> list[list[Difference]]:
    """What the operators of a joint say of starts and ends: of each rule one difference holds.

    An operand that is an operator itself starts with the first of its leaves and ends with the
    last. So it ends before a moment if all of them do, and after one if any of them does.
    """
    if isinstance(tree, int):
        return []
    e, operands = tree
    rules = [rule for o in operands for rule in time_rules(o)]
    sides = [_leaves(o) for o in operands]

    def before(first: list[int], second: list[int], gap: int = 1) -> list[list[Difference]]:
        """The first side ends so much before the second starts."""
        return [[((p, "end"), (q, "start"), -gap)] for p in first for q in second]

    def ends_by(first: list[int], second: list[int], length: int) -> list[list[Difference]]:
        """The first side ends so much after the end of the second, or sooner."""
        return [[((p, "end"), (q, "end"), length) for q in second] for p in first]

    if isinstance(e, ast.Concurrent):
        for one, other in (sides, sides[::-1]):
            rules.append([((p, "start"), (q, "end"), 0) for p in one for q in other])
    if not isinstance(e, ast.Temporal):
        return rules
    between = isinstance(e, ast.HappenBetween)
    match e.window:
        case ast.Fixed(at=at, length=t):
            after = at if between else at + t
            rules += [[(None, (p, "start"), -after - 1)] for p in sides[0]]
            if between:
                rules += [[((p, "end"), None, at + t)] for p in sides[0]]
        case ast.Following(length=t):
            a, b = sides
            rules += before(a, b) + ends_by(b, a, t) if between else before(a, b, t + 1)
        case ast.Enclosed():
            a, b, c = sides
            rules += before(a, b)
            rules += before(a, c) + ends_by(c, b, -1) if between else before(b, c)
    return rules


def satisfiable(differences: list[Difference]) -> bool:
    """Whether some moments have all these differences: no circle of them adds up below zero."""
    best: dict[Any, float] = {v: 0 for d in differences for v in d[:2]}
    for _ in range(len(best) + 1):
        changed = False
        for first, second, bound in differences:
            if best[second] + bound < best[first]:
                best[first] = best[second] + bound
                changed = True
        if not changed:
            return True
    return False


def _settles(one: Seen, c: Seen, theirs: set[str]) -> bool:
    """Whether c closes the window of an opener or closer whatever its partner will stand for."""
    return blocks([one], c) and set(c.known) & theirs <= set(one.known)


def naive(
    pattern: ast.Pattern,
    history: list[Event],
    mode: str,
    until: int,
    longest: int | None = None,
    tolerance: float = 1.0,
    expires: int | None = None,
) -> list[Found]:
    """All detections of a pattern in a history, in order."""
    return Naive(pattern, mode, longest, tolerance, expires).run(history, until)


def kept(
    pattern: ast.Pattern, history: list[Event], mode: str, until: int, longest: int | None = None
) -> int:
    """How many instances the joints of a pattern have to keep after a history."""
    interpreter = Naive(pattern, mode, longest)
    interpreter.run(history, until)
    return interpreter.alive()


def located(event: Event) -> bool:
    """Whether an event lies at a point."""
    return isinstance(event.location, Point)
