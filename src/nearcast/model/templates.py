"""Filters whose form is known: texts that differ in nothing but their constants.

A text is cut into its constants, numbers and strings, and what stands around them. The form
is read once, with a placeholder for each constant, and kept as a `Template`; a text of the
same form then only has its constants put in. Conjunctions of simple predicates are put
together from the templates of these, so that a new form is seldom read whole.

This is exact because the grammar does not look into a constant: where a placeholder was read
as a value, so is every other constant of its kind. What depends on the constants (infinite
numbers, bounds in the wrong order, quotes within strings) and whatever is refused is left to
the full way, which `nearcast.model.filters` goes then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import gt, itemgetter
from typing import Any, NamedTuple, TypeAlias

from nearcast.errors import FilterError, ValidationError
from nearcast.model.cql2_json import RefusalError, read_json
from nearcast.model.cql2_text import read_text, stray_keyword
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
    attributes_of,
)
from nearcast.model.geometry import Box, Point
from nearcast.model.predicates import Equals, Simple
from nearcast.model.words import normalise_word

__all__ = ["HOLE", "MAX_LENGTH", "Plan", "Template", "cut", "template"]

#: Longer texts are read anew: cutting them would gain little.
MAX_LENGTH = 2000
_MOST_TEMPLATES, _MOST_PREDICATES = 1024, 4096
#: Stands for a constant in a form.
HOLE = "\0"

#: A string, or a number that is no part of a name or of something longer. It begins with a set
#: of characters, which `re` finds twice as fast as a look behind.
_CONSTANTS = re.compile(
    r"(['0-9+-](?:(?<=')[^']*+'|(?<!')(?<![\w.:+-].)(?:(?<=[0-9])|(?=[0-9]))[0-9]*+"
    r"(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.+-])))"
)
_COORDINATE = re.compile(r"-?[0-9.]+")
_NAME = r"(?!(?:AND|OR|NOT|IN|IS|LIKE|BETWEEN|NULL|TRUE|FALSE|DIV)\b)[A-Z][A-Z0-9_.:]*+"
#: A predicate of a conjunction, with the AND behind it.
_PREDICATE = re.compile(
    (
        rf" *+({_NAME}(?: *+(?:[<>]=?+|<>|!=|=) *+\0| ++(?:NOT ++)?+(?:BETWEEN ++\0 ++AND ++\0"
        r"|IN *+\( *+\0(?: *+, *+\0)*+ *+\)|LIKE ++\0)| ++IS ++(?:NOT ++)?+NULL))"
        r"( ++AND ++| *+\Z)"
    ).replace(" ", "[ \t\n]"),
    re.IGNORECASE | re.ASCII,
)

Value: TypeAlias = float | str
_Values: TypeAlias = Sequence[Any]
Maker: TypeAlias = Callable[[_Values, int], Expression]
"""Makes an expression of constants, of which its own begin at a place."""


# --- cutting ------------------------------------------------------------------------------


def cut(text: str) -> tuple[str, str, list[str]] | None:
    """The form of a text, the kinds of its constants (`n`, `s`) and these; None for odd texts."""
    quoted = "'" in text
    if quoted and ("''" in text or "\\" in text):
        return None
    parts = _CONSTANTS.split(text)
    constants = parts[1::2]
    if quoted:
        kinds = "".join(["s" if constant[0] == "'" else "n" for constant in constants])
    else:
        kinds = "n" * len(constants)
    return HOLE.join(parts[::2]), kinds, constants


# --- templates ----------------------------------------------------------------------------


class Template:
    """A filter with its constants left open."""

    __slots__ = ("kinds", "make", "placed", "plan", "tests", "times")

    def __init__(
        self,
        kinds: str,
        make: Maker,
        plan: Plan | None,
        tests: tuple[_Test, ...] | None = None,
        placed: Sequence[int] = (),
    ) -> None:
        self.kinds = kinds
        self.make = make
        self.plan = plan
        self.tests = tests
        """What it says if that is nothing but intervals and equalities; for larger ones."""
        self.placed = placed
        """Which constants are coordinates: these have a grammar of their own."""
        self.times = 0
        """How often it was met, see `nearcast.model.known_forms`."""

    def bind(self, constants: Sequence[str]) -> Simple | Expression | None:
        """The filter with these constants; None where the full way is to judge them."""
        for at in self.placed:
            if not _COORDINATE.fullmatch(constants[at]):
                return None
        if "s" in self.kinds:
            values: list[Value] = [
                text[1:-1] if kind == "s" else float(text)
                for kind, text in zip(self.kinds, constants, strict=True)
            ]
            if not _encodable("".join(constants)):
                return None
            total = sum([value for value in values if type(value) is float])
        else:
            numbers = [*map(float, constants)]
            values, total = numbers, sum(numbers)  # type: ignore[assignment]
        if not math.isfinite(total):  # seldom finite all the same: that costs time only
            return None
        if self.plan is not None:
            return self.plan.bind(values)
        try:
            return self.make(values, 0)
        except ValidationError:
            return None


def _encodable(text: str) -> bool:
    """Whether there are no lone surrogates."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


@lru_cache(maxsize=_MOST_TEMPLATES)
def template(form: str, kinds: str) -> Template | None:
    """The template of a form; None where every text of it takes the full way."""
    if form.count(HOLE) != len(kinds):
        return None
    return _conjunction(form, kinds) or _read(form, kinds)


def _conjunction(form: str, kinds: str) -> Template | None:
    """The template of a conjunction of simple predicates, put together from theirs."""
    parts = _plainly_cut(form, kinds) or _cut_at_predicates(form, kinds)
    if parts is None:
        return None
    if len(parts) == 1:
        return parts[0][0]

    def make(values: _Values, at: int) -> Expression:
        return And(tuple([part.make(values, at + first) for part, first in parts]))

    return Template(kinds, make, _plan([(part.tests, at) for part, at in parts], len(kinds)))


#: Templates of predicates, and which of the constants is the first of each.
_Parts: TypeAlias = "list[tuple[Template, int]]"


def _cut_at_predicates(form: str, kinds: str) -> _Parts | None:
    """The predicates of a conjunction; None where there is anything else."""
    parts: _Parts = []
    at = first = 0
    joined = True
    while joined:
        found = _PREDICATE.match(form, at)
        if found is None:
            return None
        predicate = found[1]
        size = predicate.count(HOLE)
        part = _predicate(predicate, kinds[first : first + size])
        if part is None:
            return None
        parts.append((part, first))
        at, first, joined = found.end(), first + size, bool(found[2].strip())
    return parts


def _plainly_cut(form: str, kinds: str) -> _Parts | None:
    """The same for a conjunction in plain spelling, in a quarter of the time; None for others."""
    if HOLE + HOLE in form:
        return None
    parts: _Parts = []
    first = 0
    for predicate in form.replace(_BETWEEN, _BETWEEN_KEPT).split(" AND "):
        size = predicate.count(HOLE)
        part = _whole_predicate(predicate, kinds[first : first + size])
        if part is None:
            return None
        parts.append((part, first))
        first += size
    return parts


#: An AND that does not join predicates, and what stands for it while others are cut at.
_BETWEEN, _BETWEEN_KEPT = f" BETWEEN {HOLE} AND {HOLE}", f" BETWEEN {HOLE}{HOLE}"


@lru_cache(maxsize=_MOST_PREDICATES)
def _whole_predicate(kept: str, kinds: str) -> Template | None:
    form = kept.replace(_BETWEEN_KEPT, _BETWEEN)
    return _predicate(form, kinds) if _PREDICATE.fullmatch(form) else None  # no OR, no NOT


@lru_cache(maxsize=_MOST_PREDICATES)
def _predicate(form: str, kinds: str) -> Template | None:
    return _read(form, kinds)


#: Numbers from here on stand for constants while a form is read.
_FIRST = 7_310_000_001


def _read(form: str, kinds: str) -> Template | None:
    """The template of any form, read by the full way with placeholders for its constants."""
    numbers = range(_FIRST, _FIRST + len(kinds))
    stands = [
        str(number) if kind == "n" else f"'constant {number}'"
        for number, kind in zip(numbers, kinds, strict=True)
    ]
    text = "".join([a + b for a, b in zip(form.split(HOLE), [*stands, ""], strict=True)])
    if text.lstrip().startswith("{"):
        return None
    holes = _Holes(kinds)
    try:
        expression = read_json(read_text(text))
        if stray_keyword(text, attributes_of(expression)) is not None:
            return None
        make = holes.opened(expression)
    except (FilterError, RefusalError, _NotOpenError):
        return None
    if holes.left:
        return None
    tests = _tests(expression)
    return Template(kinds, make, _plan([(tests, 0)], len(kinds)), tests, holes.placed)


class _NotOpenError(Exception):
    """There is a constant in the form that cannot be exchanged."""


class _Holes:
    """Finds the places of the constants in an expression, each once."""

    __slots__ = ("left", "placed")

    def __init__(self, kinds: str) -> None:
        self.left = set(range(len(kinds)))
        self.placed: list[int] = []

    def take(self, value: object) -> int:
        """The place of the constant that this stands for."""
        hole = _hole(value)
        if hole is None or hole not in self.left:
            raise _NotOpenError
        self.left.remove(hole)
        return hole

    def opened(self, node: Expression) -> Maker:
        """What makes such an expression of other constants."""
        return _OPEN[type(node)](self, node)

    def comparison(self, node: Comparison) -> Maker:
        if isinstance(node.value, bool):
            return _fixed(node)
        name, operator, hole = node.attribute, node.operator, self.take(node.value)
        if isinstance(node.value, str):
            return lambda values, at: Comparison(name, operator, values[at + hole])
        return lambda values, at: Comparison(name, operator, values[at + hole] + 0.0)

    def between(self, node: Between) -> Maker:
        name, low, high = node.attribute, self.take(node.low), self.take(node.high)
        plain = _plain if isinstance(node.low, float) else _same
        return lambda values, at: Between(name, plain(values[at + low]), plain(values[at + high]))

    def membership(self, node: Membership) -> Maker:
        name = node.attribute
        holes = [
            (self.take(value), _plain if isinstance(value, float) else _same)
            for value in node.values
        ]
        return lambda values, at: Membership(
            name, tuple([plain(values[at + hole]) for hole, plain in holes])
        )

    def pattern(self, node: Pattern) -> Maker:
        name, hole = node.attribute, self.take(node.pattern)
        return lambda values, at: Pattern(name, values[at + hole])

    def constant(self, node: Constant | Null) -> Maker:
        return _fixed(node)

    def contains(self, node: Contains) -> Maker:
        holes = [self.take(word) for word in node.words]

        def make(values: _Values, at: int) -> Expression:
            words = [values[at + hole] for hole in holes]
            for word in words:
                normalise_word(word)
            return Contains(tuple(dict.fromkeys(words)))

        return make

    def spatial(self, node: Spatial) -> Maker:
        relation, shape = node.relation, node.shape
        if isinstance(shape, Point):
            holes, kind = [self.take(shape.x), self.take(shape.y)], Point
        elif isinstance(shape, Box):
            ends = (shape.xmin, shape.ymin, shape.xmax, shape.ymax)
            holes, kind = [*map(self.take, ends)], Box  # type: ignore[assignment]
        else:  # that a ring is closed depends on its constants
            raise _NotOpenError
        self.placed += holes
        if node.distance_m is None:
            return lambda values, at: Spatial(
                relation, kind(*[values[at + hole] for hole in holes])
            )
        distance = self.take(node.distance_m)

        def make(values: _Values, at: int) -> Expression:
            metres = values[at + distance] + 0.0
            if metres < 0:
                raise ValidationError("distance", metres, "give metres ≥ 0")
            return Spatial(relation, kind(*[values[at + hole] for hole in holes]), metres)

        return make

    def negation(self, node: Not) -> Maker:
        part = self.opened(node.part)
        return lambda values, at: Not(part(values, at))

    def several(self, node: And | Or) -> Maker:
        kind, parts = type(node), [self.opened(part) for part in node.parts]
        return lambda values, at: kind(tuple([part(values, at) for part in parts]))


def _hole(value: object) -> int | None:
    """The number of the constant that a value of a form stands for; None if it stands for none."""
    if isinstance(value, str) and value.startswith("constant "):
        return int(value[len("constant ") :]) - _FIRST
    if isinstance(value, float) and value.is_integer():
        return int(value) - _FIRST
    return None


def _fixed(node: Expression) -> Maker:
    def make(_values: _Values, _at: int) -> Expression:
        return node

    return make


def _plain(value: float) -> float:
    return value + 0.0  # as everywhere: there is no −0.0


def _same(value: str) -> str:
    return value


_OPEN: dict[type, Callable[[_Holes, Any], Maker]] = {
    Comparison: _Holes.comparison,
    Between: _Holes.between,
    Membership: _Holes.membership,
    Pattern: _Holes.pattern,
    Null: _Holes.constant,
    Constant: _Holes.constant,
    Contains: _Holes.contains,
    Spatial: _Holes.spatial,
    Not: _Holes.negation,
    And: _Holes.several,
    Or: _Holes.several,
}


# --- plans: from constants to intervals, without an expression ----------------------------------


class _Test(NamedTuple):
    """A test of one attribute: an interval between constants, or equality with one or a bool."""

    attribute: str
    low: int | None = None
    high: int | None = None
    open: bool = False
    """Whether the ends do not belong to it."""
    text: int | None = None
    flag: bool | None = None


def _tests(expression: Expression) -> tuple[_Test, ...] | None:
    """The tests of a conjunction; None where there is something else in it."""
    parts = expression.parts if isinstance(expression, And) else (expression,)
    found = [_test(part) for part in parts]
    return None if None in found else tuple(found)  # type: ignore[arg-type]


def _test(part: Expression) -> _Test | None:
    if isinstance(part, Between) and isinstance(part.low, float):
        return _Test(part.attribute, _hole(part.low), _hole(part.high))
    if not isinstance(part, Comparison):
        return None
    name, operator, value = part.attribute, part.operator, part.value
    if isinstance(value, bool):
        return _Test(name, flag=value if operator == "=" else not value)
    hole = _hole(value)
    if operator == "<>" or hole is None:
        return None
    if isinstance(value, str):
        return _Test(name, text=hole) if operator == "=" else None
    low = hole if operator in ("=", ">", ">=") else None
    high = hole if operator in ("=", "<", "<=") else None
    return _Test(name, low, high, operator in ("<", ">"))


class Plan:
    """How the constants of a conjunction become its intervals and equalities.

    The ends of intervals are taken from the constants, these with the steps made, and the
    infinities, one behind the other.
    """

    __slots__ = ("_high", "_low", "equals", "high", "low", "names", "steps")

    def __init__(
        self,
        names: tuple[str, ...],
        low: Sequence[int],
        high: Sequence[int],
        steps: tuple[tuple[int, float], ...],
        equals: tuple[tuple[str, int | bool], ...],
    ) -> None:
        self.names = names
        self.low, self.high = low, high
        self.steps = steps
        """(constant, where to) of ends that are next to a constant."""
        self.equals = equals
        """(attribute, constant or bool), ascending."""
        self._low, self._high = _picker(low), _picker(high)

    def bind(self, constants: _Values) -> Simple | None:
        """The intervals and equalities with these constants; None if one interval is empty."""
        import numpy as np  # who only writes filters does without

        known = [
            *constants,
            *[math.nextafter(constants[hole], towards) for hole, towards in self.steps],
            -math.inf,
            math.inf,
        ]
        low, high = self._low(known), self._high(known)
        if any(map(gt, low, high)):
            return None
        ends = np.array((low, high), np.float64)
        ends += 0.0  # there is no −0.0
        equals = tuple(
            [
                Equals(name, value if type(value) is bool else constants[value])
                for name, value in self.equals
            ]
        )
        return Simple(self.names, ends[0], ends[1], equals)


def _picker(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: [values[place] for place in places]


def _plan(parts: Sequence[tuple[tuple[_Test, ...] | None, int]], constants: int) -> Plan | None:
    """The plan of tests, whose constants begin at a place.

    None where there are other tests, or several of one side of an attribute.
    """
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    equals: dict[str, int | bool] = {}
    steps: list[tuple[int, float]] = []
    for tests, first in parts:
        if tests is None:
            return None
        for name, low, high, is_open, text, flag in tests:
            if name in equals or (low is not None and name in lows):
                return None
            if high is not None and name in highs:
                return None
            if text is not None or flag is not None:
                if name in lows or name in highs:
                    return None
                equals[name] = flag if text is None else text + first  # type: ignore[assignment]
            if low is not None:
                lows[name] = _end(low + first, is_open, math.inf, constants, steps)
            if high is not None:
                highs[name] = _end(high + first, is_open, -math.inf, constants, steps)
    names = tuple(sorted({**lows, **highs}))
    below = constants + len(steps)
    return Plan(
        names,
        [lows.get(name, below) for name in names],
        [highs.get(name, below + 1) for name in names],
        tuple(steps),
        tuple(sorted(equals.items())) if equals else (),
    )


def _end(
    hole: int, is_open: bool, towards: float, constants: int, steps: list[tuple[int, float]]
) -> int:
    """Where the end of an interval is found, see `Plan`."""
    if not is_open:
        return hole
    steps.append((hole, towards))
    return constants + len(steps) - 1
