"""What a pattern must be beyond its syntax, and what is wrong where.

`problems` finds everything at once, for editors and `nearcast cpsl check`; `analyze` raises the
first. Each rule is one small method of `_Analysis`; together they take O(nodes × negations and
repetitions), and the number of nodes is bounded.

Variables: an event instance `$x;` or a value `&x` is the same at every use. What a negation says
did *not* happen has no instance, so a negated part shares variables with its window only; what
repeats has many (and so have the positions of whoever crosses a border), so the instances of a
repeated part are its own. A value is bound (`NAME = &x`)
somewhere outside of negated parts, and used at least twice (a repeated part counts: all
occurrences have the same value).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from nearcast.clock import EARLIEST, LATEST
from nearcast.cpsl import ast
from nearcast.cpsl.parser import MAX_COUNT, parse
from nearcast.cpsl.predicates import binds, kind_of, variables
from nearcast.cpsl.regions import is_flat
from nearcast.errors import FilterError, PatternError, ValidationError
from nearcast.model.durations import LONGEST
from nearcast.model.filters import Filter
from nearcast.model.geometry import Point, Space, check_space

__all__ = ["MAX_DEPTH", "MAX_NODES", "analyze", "problems"]

#: How deep operators may be nested, through variables too.
MAX_DEPTH = 64
#: How many operators, primitives and variables a pattern may have, its variables written out.
MAX_NODES = 1_000


def analyze(
    pattern: ast.Pattern, text: str | None = None, *, space: Space | None = None
) -> ast.Pattern:
    """The pattern, if it is sound; otherwise the first PatternError of its text.

    Without a text (a pattern built in Python) errors show the pattern's normal form.
    `space` has coordinates checked for the globe or a plane.
    """
    found = problems(pattern, text, space=space)
    if found:
        raise found[0]
    return pattern


def problems(
    pattern: ast.Pattern, text: str | None = None, *, space: Space | None = None
) -> list[PatternError]:
    """Everything that is wrong with a pattern, in the order of the text."""
    found = _Analysis(_distinct(pattern), space).run()
    if not found:
        return []
    if text is None:
        if found[0][0].startswith(_BOUNDS):  # too deep to print
            return [PatternError(found[0][0], "", 0)]
        text = str(pattern)
        try:
            found = _Analysis(parse(text), space).run() or found[:1]
        except PatternError as error:  # a name that is no name, say
            return [error]
    errors = {PatternError(message, text, 0 if at is None else at): None for message, at in found}
    return sorted(errors, key=lambda error: error.position)


_REPEATING = (ast.Count, ast.Sliding, ast.Period, ast.Crossing)
_PRIVATE = (ast.Negation, *_REPEATING)
Finding = tuple[str, int | None]
_KINDS = {"number": "a number", "string": "a text", "bits": "bits of a code"}
_BOUNDS = ("too deep", "too large")


def _distinct(pattern: ast.Pattern) -> ast.Pattern:
    """The pattern, with no negation or repetition that is one object in two places."""
    seen: set[int] = set()
    for root in (pattern.expression, *(each.body for each in pattern.definitions)):
        for number, node in enumerate(ast.walk(root)):
            if number > MAX_NODES:
                return pattern
            if isinstance(node, _PRIVATE):
                if id(node) in seen and _Analysis(pattern, None).bounded():
                    return parse(str(pattern))
                seen.add(id(node))
    return pattern


class _Analysis:
    """One run over one pattern."""

    def __init__(self, pattern: ast.Pattern, space: Space | None) -> None:
        self._pattern = pattern
        self._space = space
        self._found: list[Finding] = []
        self._bodies: dict[str, ast.Expression] = {}
        for definition in pattern.definitions:
            self._bodies.setdefault(definition.name, definition.body)

    def bounded(self) -> bool:
        """Whether the other rules, and the printer, can cope with the pattern."""
        for rule in (self._size, self._definitions, self._cycles, self._depth):
            rule()
            if self._found:
                return False
        return True

    def run(self) -> list[Finding]:
        """All findings; those that would make the other rules loop come alone."""
        if not self.bounded():
            return self._found
        for expression in self._everything():
            self._expression(expression)
        self._instances()
        self._values()
        return self._found

    def _say(self, message: str, node: ast.Node) -> None:
        self._found.append((message, None if node.span is None else node.span.start))

    def _roots(self) -> list[ast.Expression]:
        return [self._pattern.expression, *(d.body for d in self._pattern.definitions)]

    def _everything(self) -> Iterator[ast.Expression]:
        for root in self._roots():
            yield from ast.walk(root)

    # Size and shape.

    def _size(self) -> None:
        for number, node in enumerate(self._everything()):
            if number >= MAX_NODES:
                self._say(f"too large: a pattern has at most {MAX_NODES} operators", node)
                return

    def _definitions(self) -> None:
        seen: set[str] = set()
        for definition in self._pattern.definitions:
            if definition.name in seen:
                self._say(f"${definition.name}; is defined twice", definition)
            seen.add(definition.name)
        for node in self._everything():
            if isinstance(node, ast.Reference) and node.name not in seen:
                message = f"${node.name}; is not defined: add , ${node.name}; = (…)"
                self._say(message, node)
        if not self._found:
            used = set(self._reachable(self._pattern.expression))
            for definition in self._pattern.definitions:
                if definition.name not in used:
                    self._say(f"${definition.name}; is defined but not used", definition)

    def _reachable(self, start: ast.Expression) -> list[str]:
        """The variables an expression uses, through other variables too."""
        names: dict[str, None] = {}
        pending = [start]
        while pending:
            for node in ast.walk(pending.pop()):
                if isinstance(node, ast.Reference) and node.name not in names:
                    names[node.name] = None
                    pending.append(self._bodies[node.name])
        return list(names)

    def _cycles(self) -> None:
        for definition in self._pattern.definitions:
            if definition.name in self._reachable(definition.body):
                self._say(f"${definition.name}; is defined by itself", definition)
                return

    def _depth(self) -> None:
        depths: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for name in self._inner_first():
            depths[name] = self._depth_of(self._bodies[name], depths)
            sizes[name] = self._size_of(self._bodies[name], sizes)
        if self._size_of(self._pattern.expression, sizes) > MAX_NODES:
            message = f"too large: written out, a pattern has at most {MAX_NODES} operators"
            self._say(message, self._pattern.expression)
        elif max([*depths.values(), self._depth_of(self._pattern.expression, depths)]) > MAX_DEPTH:
            message = f"too deep: operators are nested at most {MAX_DEPTH} deep"
            self._say(message, self._pattern.expression)

    def _depth_of(self, root: ast.Expression, depths: dict[str, int]) -> int:
        deepest, pending = 0, [(root, 1)]
        while pending:
            node, depth = pending.pop()
            own = depths[node.name] if isinstance(node, ast.Reference) else 0
            deepest = max(deepest, depth + own)
            pending.extend((child, depth + 1) for child in ast.children(node))
        return deepest

    def _size_of(self, root: ast.Expression, sizes: dict[str, int]) -> int:
        """The nodes of an expression with its variables written out at every use."""
        return sum(
            1 + (sizes[node.name] if isinstance(node, ast.Reference) else 0)
            for node in ast.walk(root)
        )

    def _inner_first(self) -> list[str]:
        """The definitions, those that others use first."""
        uses = {name: len(self._reachable(body)) for name, body in self._bodies.items()}
        return sorted(uses, key=uses.__getitem__)

    # One expression at a time.

    def _expression(self, node: ast.Expression) -> None:
        match node:
            case ast.Primitive():
                self._primitive(node)
            case ast.Temporal(window=window):
                self._window(node, window)
            case ast.Count(n=n):
                self._count(n, "Q waits for", node)
            case ast.Period(length=length):
                self._length(length, node, "a period")
            case ast.Sliding(n=n, length=length, step=step):
                self._count(n, "S waits for", node)
                self._count(step, "the window of S moves on by", node)
                self._length(length, node, "the window of S", empty=True)
            case ast.HappenIn(region=region, body=body):
                self._place(region, node)
                self._located(body, node)
            case ast.Inside(other=other, body=body):
                self._located(other, node)
                self._located(body, node)
            case ast.Overlap(place=place, body=body) | ast.SamePlace(place=place, body=body):
                self._place(place, node)
                self._located(body, node)
            case ast.Distance(place=place, body=body):
                self._place(place, node)
                self._located(body, node)
                self._metres(node)
            case ast.Crossing(region=region, body=body):
                self._place(region, node)
                self._located(body, node)
                self._border(node)
            case ast.And(parts=parts) | ast.Or(parts=parts) if len(parts) < 2:
                self._say(f"{node.symbol} joins at least two operands", node)
            case _:
                pass

    def _window(self, node: ast.Temporal, window: ast.Window) -> None:
        if isinstance(window, ast.Fixed) and not EARLIEST <= window.at <= LATEST:
            self._say("a time falls in the years 1 to 9999 of UTC", window)
        if not isinstance(window, ast.Enclosed):
            empty = isinstance(node, ast.HappenAfter)
            self._length(window.length, window, "a window", empty=empty)

    def _length(self, micros: int, node: ast.Node, what: str, *, empty: bool = False) -> None:
        if micros < 0:
            self._say(f"{what} has no negative duration", node)
        elif micros == 0 and not empty:
            self._say(f"{what} of no duration holds nothing", node)
        elif micros > LONGEST:
            self._say(f"{what} lasts at most ten thousand years", node)

    def _count(self, n: int, what: str, node: ast.Node) -> None:
        if not 1 <= n <= MAX_COUNT:
            self._say(f"{what} 1 to {MAX_COUNT:,} occurrences, not {n}", node)

    def _metres(self, node: ast.Distance) -> None:
        if not math.isfinite(node.metres) or node.metres < 0:
            self._say("a distance is not negative", node)
        elif node.metres == 0 and node.op == "<":
            self._say("no distance is less than 0: give more", node)

    def _border(self, node: ast.Crossing) -> None:
        if not math.isfinite(node.margin) or node.margin < 0:
            self._say("a margin is not negative", node)
        if isinstance(node, ast.Dwell):
            self._length(node.length, node, "a stay")
        elif isinstance(node, ast.Approach) and not 0 < node.metres < math.inf:
            self._say("an object approaches to more than 0 m: give more, or use ENTER", node)

    def _place(self, place: ast.Place, node: ast.Expression) -> None:
        if isinstance(place, ast.Expression):
            self._located(place, node)
            return
        at = place if place.span is not None else node
        if not place.points:
            self._say("an empty region: give it points", at)
        elif len(place.points) > 1 and is_flat(place.points):
            self._say("an empty region: its points lie on one line", at)
        elif len(place.points) == 1 and isinstance(node, ast.HappenIn):
            self._say("an empty region: use DIST or SPL to be near a point", at)
        elif len(place.points) == 1 and isinstance(node, ast.Enter | ast.Exit | ast.Dwell):
            self._say("an empty region: use APPROACH to come near a point", at)
        elif self._space is not None:
            for x, y in place.points:
                try:
                    turned = x - 360.0 if self._space == "globe" and 180 < x <= 360 else x
                    check_space(Point(turned, y), self._space, "region")
                except ValidationError as error:
                    self._say(f"({x:g}, {y:g}) cannot be a place: {error.remedy}", at)
                    return

    def _located(self, operand: ast.Expression, node: ast.Expression) -> None:
        """A spatial operator wants operands that can be somewhere."""
        if not self._has_place(operand):
            at = operand if operand.span is not None else node
            self._say(f"{node.symbol} wants an event with a place: !(T; t)A is nowhere", at)

    def _has_place(self, expression: ast.Expression) -> bool:
        pending, seen = [expression], set()
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Primitive):
                return True
            if isinstance(node, ast.Reference):
                if node.name not in seen:
                    seen.add(node.name)
                    pending.append(self._bodies[node.name])
            elif isinstance(node, ast.Negation):
                pending.extend(ast.parts_of(node.window))
            else:
                pending.extend(ast.children(node))
        return False

    # Predicates.

    def _primitive(self, node: ast.Primitive) -> None:
        if not node.predicates:
            self._say("a primitive has at least one predicate", node)
        for predicate in node.predicates:
            if isinstance(predicate, ast.CqlPredicate):
                self._cql2(predicate)
                continue
            for tests in predicate.any_of:
                for test in tests:
                    self._test(test)

    def _cql2(self, predicate: ast.CqlPredicate) -> None:
        try:
            Filter.parse(predicate.text)
        except (FilterError, ValidationError) as error:
            message = getattr(error, "message", str(error))
            at = None if predicate.span is None else predicate.span.start
            position = getattr(error, "position", None)
            if at is not None and position is not None:
                at += 1 + position + predicate.text.count('"', 0, position)
            self._found.append((f"CQL2: {message}", at))

    def _test(self, test: ast.Test) -> None:
        if isinstance(test, ast.RangeTest):
            closed = test.low_closed and test.high_closed
            if test.low > test.high or (test.low == test.high and not closed):
                self._say("an empty range: its low end lies above its high end", test)
        elif isinstance(test, ast.SetTest) and not test.values:
            self._say("IN wants at least one text", test)
        elif isinstance(test, ast.RfidTest):
            self._bits(test)
        value = getattr(test, "value", None)
        if isinstance(value, ast.Variable) and value.op == "/" and value.number == 0:
            self._say("nothing can be divided by 0", value)

    def _bits(self, test: ast.RfidTest) -> None:
        if not 0 <= test.first <= test.last < 4096:
            self._say("bits are (first; last) with 0 ≤ first ≤ last < 4096", test)
        elif isinstance(test.value, ast.Code):
            width = test.last - test.first + 1
            if test.value.value.bit_length() > width:
                self._say(f"{test.value} does not fit {width} bits", test.value)

    # Variables.

    def _sites(
        self, start: Iterable[ast.Expression], without: ast.Expression | None = None
    ) -> Iterator[tuple[ast.Expression, int]]:
        """Every expression below, through variables, each definition once; with the number of
        repetitions around it. `without` and what is below it are left out."""
        pending = [(node, 0) for node in reversed(list(start))]
        seen: set[str] = set()
        while pending:
            node, repeated = pending.pop()
            if node is without:
                continue
            yield node, repeated
            if isinstance(node, ast.Reference) and node.name not in seen:
                seen.add(node.name)
                pending.append((self._bodies[node.name], repeated))
            again = isinstance(node, _REPEATING)
            below = reversed(ast.children(node))
            pending.extend((child, repeated + again) for child in below)

    def _names(
        self, start: Iterable[ast.Expression], without: ast.Expression | None = None
    ) -> dict[str, ast.Node]:
        """The variables used below, `$x` and `&x`, with their first use."""
        names: dict[str, ast.Node] = {}
        for node, _ in self._sites(start, without):
            if isinstance(node, ast.Reference):
                names.setdefault("$" + node.name, node)
            elif isinstance(node, ast.Primitive):
                for _, variable, _ in variables(node):
                    names.setdefault("&" + variable.name, variable)
        return names

    def _instances(self) -> None:
        """Negated and repeated parts keep their instances to themselves."""
        root = self._pattern.expression
        for node in self._everything():
            if isinstance(node, ast.Negation):
                allowed = self._names(ast.parts_of(node.window))
                self._private(node, self._names([root], node), allowed, "a negated", "$&")
            elif isinstance(node, _REPEATING):
                self._private(node, self._names([root], node), {}, "a repeated", "$")

    def _private(
        self,
        node: ast.Negation | ast.Count | ast.Sliding | ast.Period | ast.Crossing,
        outside: dict[str, ast.Node],
        allowed: dict[str, ast.Node],
        what: str,
        kinds: str,
    ) -> None:
        for name, use in self._names([node.body]).items():
            if name[0] in kinds and name in outside and name not in allowed:
                shown = name + ";" * (name[0] == "$")
                self._say(f"{shown} stands in {what} part and elsewhere", use)

    def _values(self) -> None:
        """`&x`: bound somewhere, used twice, of one kind, not beside an `|`."""
        uses: dict[str, list[tuple[ast.Test, ast.Variable, int]]] = {}
        for node, repeated in self._sites([self._pattern.expression]):
            if isinstance(node, ast.Primitive):
                for test, variable, alternative in variables(node):
                    uses.setdefault(variable.name, []).append((test, variable, repeated))
                    if alternative:
                        self._say(f"&{variable.name} cannot stand beside an |", variable)
        bound, used = self._outside_negations()
        for name, found in uses.items():
            test, first, _ = found[0]
            if name not in bound:
                if any(binds(test) for test, _, _ in found):
                    if name not in used:
                        continue  # the business of one negated part
                    message = f"&{name} is bound in negated parts only"
                else:
                    message = f"&{name} is never bound: some test must say NAME = &{name}"
                self._say(message, first)
            elif len(found) == 1 and not found[0][2]:
                self._say(f"&{name} is bound but used nowhere else", first)
            for other, variable, _ in found[1:]:
                if kind_of(other) != kind_of(test):
                    here, there = _KINDS[kind_of(other)], _KINDS[kind_of(test)]
                    message = f"&{name} is {here} here and {there} elsewhere"
                    self._say(message, variable)
                    break

    def _outside_negations(self) -> tuple[set[str], set[str]]:
        """The values bound, and those used, by what did happen."""
        bound, used, seen = set(), set(), set()
        pending: list[ast.Expression] = [self._pattern.expression]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Primitive):
                for test, variable, _ in variables(node):
                    used.add(variable.name)
                    if binds(test):
                        bound.add(variable.name)
            elif isinstance(node, ast.Reference):
                if node.name not in seen:
                    seen.add(node.name)
                    pending.append(self._bodies[node.name])
            elif isinstance(node, ast.Negation):
                pending.extend(ast.parts_of(node.window))
            else:
                pending.extend(ast.children(node))
        return bound, used
