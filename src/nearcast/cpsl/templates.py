"""Texts that differ in constants only: parsed and compiled once, then bound.

Thousands of composites are one text with other vehicles and depots in it. A text is cut at its
numbers and strings; what is left is the form, and of a form that has come before only the
constants are read. Numbers in comparisons, ranges and regions, distances from regions and strings
in comparisons may differ; whatever else differs is another form.

Nothing is decided here that the full way would decide otherwise: constants about which it might
say anything (an empty range, a flat region, a number that is too large) are left to it, and so
are their errors.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from sys import intern
from typing import Any, TypeAlias

from lark import Token, Tree

from nearcast.clock import Micros
from nearcast.cpsl import ast
from nearcast.cpsl.compile import Plan, compile_pattern, digest
from nearcast.cpsl.leaves import Constant, Leaf
from nearcast.cpsl.parser import MAX_TEXT, parse, parser
from nearcast.cpsl.regions import is_flat, unpacked

__all__ = ["Template", "learn", "recognise"]

#: Makes the plan of constants.
Maker: TypeAlias = Callable[[list[Any]], Plan]
_LITERAL = re.compile(
    r'("[^"]*"|(?<![\w.+\-])[+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![\w.+\-]))', re.ASCII
)
#: Rules of the grammar whose tokens of a type may differ.
_OPEN = {
    "arith_compare": "NUMBER",
    "arith_range": "NUMBER",
    "points": "NUMBER",
    "distance": "NUMBER",
    "string_compare": "STRING",
}
_MOST = 1024  # forms that are remembered
_LOCATED = ("happen-in", "overlap", "same-place", "distance")
_BORDERS = ("enter", "exit", "dwell", "approach")

_templates: dict[str, dict[tuple[str, ...], Template]] = {}
_fixed: dict[str, tuple[int, ...]] = {}
_once: dict[str, None] = {}


class Template:
    """A form: how constants become a plan."""

    __slots__ = ("_holes", "_makers", "_pattern", "_rules")

    def __init__(self, pattern: ast.Pattern, holes: dict[int, Constant], rules: _Rules) -> None:
        self._pattern = pattern
        self._holes = holes
        """Which literals may differ, and what stands in their place in the pattern."""
        self._rules = rules
        self._makers: dict[tuple[Micros | None, bool], Maker] = {}

    def constants(self, literals: list[str]) -> list[Any] | None:
        """The values of literals; None if they need a closer look."""
        found: list[Any] = list(literals)
        for at, blank in self._holes.items():
            literal = literals[at]
            if isinstance(blank, str):
                if literal[0] != '"':
                    return None
                found[at] = intern(literal[1:-1])
            elif literal[0] == '"':
                return None
            else:
                found[at] = float(literal) + 0.0
        return found if self._rules.hold(found) else None

    def plan(self, constants: list[Any], longest: Micros | None, apart: bool) -> Plan:
        """As `compile_pattern` of the whole text."""
        maker = self._makers.get((longest, apart))
        if maker is None:
            texts: dict[int, str] = {}
            blank = compile_pattern(self._pattern, longest, apart, texts)
            maker = _Makers(self._holes, texts).of(blank)
            self._makers[longest, apart] = maker
        return maker(constants)


class _Rules:
    """What the analysis says of constants, as far as it is surely content with them."""

    __slots__ = ("_metres", "_ranges", "_regions")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._regions: list[list[int]] = []
        self._metres: list[int] = []

    def add(self, rule: str, numbers: list[int]) -> None:
        """Some literals of a rule of the grammar."""
        if rule == "arith_range":
            self._ranges.append((numbers[0], numbers[1]))
        elif rule == "distance":
            self._metres += numbers
        elif rule == "points" and len(numbers) > 2:
            self._regions.append(numbers)

    def hold(self, found: list[Any]) -> bool:
        """Whether nothing can be wrong with these constants."""
        for low, high in self._ranges:
            if not float(found[low]) < float(found[high]):
                return False
        for at in self._metres:
            if not float(found[at]) > 0:
                return False
        for region in self._regions:
            values = [float(found[at]) for at in region]
            if is_flat(list(zip(values[::2], values[1::2], strict=True))):
                return False
        return True


def _cut(text: str) -> tuple[str, list[str]]:
    parts = _LITERAL.split(text)
    return "\0".join(parts[::2]), parts[1::2]


def recognise(text: str) -> tuple[Template, list[Any]] | None:
    """The template of a text and its constants; None if it has to be parsed. O(length)."""
    if len(text) > MAX_TEXT:
        return None
    form, literals = _cut(text)
    fixed = _fixed.get(form)
    if fixed is None:
        return None
    template = _templates[form].get(tuple([literals[at] for at in fixed]))
    if template is None:
        return None
    constants = template.constants(literals)
    return None if constants is None else (template, constants)


def learn(text: str, pattern: ast.Pattern) -> None:
    """Remember the form of a text that says a sound pattern, from the second time on."""
    form, literals = _cut(text)
    if form not in _once:
        if len(_once) >= _MOST:
            del _once[next(iter(_once))]
        _once[form] = None
        return
    if "#" in form or "\0" in text:  # what is in a comment is no constant
        return
    tree: Tree[Any] = parser().parse(text)
    spans = _spans(text)
    rules, holes = _Rules(), set[int]()
    for node in tree.iter_subtrees():
        _read(node, spans, rules, holes)
    while True:
        blanks = _blanks(holes, literals)
        if any(str(blank) in text for blank in blanks.values()):
            return
        blank = parse(_written(text, literals, blanks))
        seen = set(_seen(compile_pattern(blank)))
        if lost := {at for at in holes if blanks[at] not in seen}:
            holes -= lost  # part of something that is computed once
            continue
        break
    template = Template(blank, blanks, rules)
    found = template.constants(literals)
    if found is None or template.plan(found, None, False) != compile_pattern(pattern):
        return
    fixed = tuple(at for at in range(len(literals)) if at not in holes)
    if _fixed.get(form, fixed) != fixed:
        return
    if len(_templates) >= _MOST and form not in _templates:
        oldest = next(iter(_templates))
        del _templates[oldest], _fixed[oldest]
    known = _templates.setdefault(form, {})
    if len(known) >= _MOST:
        known.clear()
    known[tuple([literals[at] for at in fixed])] = template
    _fixed[form] = fixed


def _spans(text: str) -> dict[tuple[int, int], int]:
    return {found.span(): at for at, found in enumerate(_LITERAL.finditer(text))}


def _read(
    node: Tree[Any], spans: dict[tuple[int, int], int], rules: _Rules, holes: set[int]
) -> None:
    """Note which literals a rule of the grammar lets differ, and what must hold of them."""
    rule = str(node.data)
    if rule not in _OPEN:
        return
    below = node.children
    if rule == "points":
        below = [token for point in node.children for token in point.children]
    tokens = [each for each in below if isinstance(each, Token) and each.type == _OPEN[rule]]
    known = [spans.get((token.start_pos or 0, token.end_pos or 0), -1) for token in tokens]
    if -1 not in known:  # else one is written in a way that is not read here
        holes.update(known)
        rules.add(rule, known)


def _blanks(holes: set[int], literals: list[str]) -> dict[int, Constant]:
    return {
        at: f"blank {at} " if literals[at][0] == '"' else 70_000_019.0 + 13 * at for at in holes
    }


def _written(text: str, literals: list[str], blanks: dict[int, Constant]) -> str:
    parts = _LITERAL.split(text)
    for at, blank in blanks.items():
        parts[2 * at + 1] = f'"{blank}"' if isinstance(blank, str) else f"{blank:.1f}"
    assert len(parts) == 2 * len(literals) + 1
    return "".join(parts)


def _seen(plan: Plan) -> Iterator[Constant]:
    """The constants that leaves and location tests of a plan have."""
    if plan.kind == "primitive":
        yield from plan.params[0].constants
    elif plan.kind in _LOCATED:
        yield from (number for point in unpacked(plan.params[0]) for number in point)
        yield from plan.params[2:]
    elif plan.kind in _BORDERS:
        yield from (number for point in unpacked(plan.params[0]) for number in point)
    for given in plan.inputs:
        yield from _seen(given.plan)


class _Makers:
    """Makes the maker of each plan of a blank one."""

    def __init__(self, holes: dict[int, Constant], texts: dict[int, str]) -> None:
        self._at = {blank: at for at, blank in holes.items()}
        self._texts = texts

    def of(self, plan: Plan) -> Maker:
        """The maker of a plan."""
        if not any(constant in self._at for constant in _seen(plan)):
            return lambda _: plan
        if plan.kind == "primitive":
            return self._primitive(plan)
        below = [(self.of(given.plan), given) for given in plan.inputs]
        params = self._params(plan)
        tie = self._tie(plan)
        kind, lag, span, names, height = plan.kind, plan.lag, plan.span, plan.names, plan.height
        if len(below) == 1:
            ((make, given),) = below
            input_of, name = type(given), given.name

            def one(constants: list[Any]) -> Plan:
                inputs = (input_of(make(constants), name),)
                fill = params(constants)
                return Plan(kind, fill, inputs, lag, span, names, height, tie(constants))

            return one

        def several(constants: list[Any]) -> Plan:
            inputs = tuple([type(given)(make(constants), given.name) for make, given in below])
            fill = params(constants)
            return Plan(kind, fill, inputs, lag, span, names, height, tie(constants))

        return several

    def _primitive(self, plan: Plan) -> Maker:
        leaf: Leaf = plan.params[0]
        form, span, names = leaf.form, plan.span, plan.names
        slots = [(self._at.get(constant), constant) for constant in leaf.constants]

        def make(constants: list[Any]) -> Plan:
            values = tuple([other if at is None else constants[at] for at, other in slots])
            return Plan("primitive", (Leaf(form, values),), (), 0, span, names)

        return make

    def _params(self, plan: Plan) -> Callable[[list[Any]], tuple[Any, ...]]:
        if plan.kind not in (*_LOCATED, *_BORDERS):
            return lambda _: plan.params
        flat = [number for point in unpacked(plan.params[0]) for number in point]
        slots = [(self._at.get(number), number) for number in flat]
        known = self._at if plan.kind in _LOCATED else {}  # margins and lengths are of the form
        rest = [(known.get(number), number) for number in plan.params[1:]]

        def params(constants: list[Any]) -> tuple[Any, ...]:
            points = [other if at is None else constants[at] for at, other in slots]
            more = [other if at is None else constants[at] for at, other in rest]
            return (array("d", points).tobytes(), *more)

        return params

    def _tie(self, plan: Plan) -> Callable[[list[Any]], int]:
        """The tie break of an expression with other constants in it."""
        text = self._texts.get(plan.tie)
        if text is None:
            return lambda _: plan.tie
        shown = {repr(blank): at for blank, at in self._at.items()}
        parts = re.split("(" + "|".join(map(re.escape, shown)) + ")", text)
        slots = [shown[part] for part in parts[1::2]]

        def tie(constants: list[Any]) -> int:
            parts[1::2] = [repr(constants[at]) for at in slots]
            return digest("".join(parts))

        return tie
