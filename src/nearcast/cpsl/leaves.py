"""Primitives in two parts: the form that thousands share, and the constants in which they differ.

A form that asks for equality with a constant is *direct*: such primitives are found by the
event's own value (`nearcast.cpsl.dispatch`), and what is left is decided here, as
`nearcast.cpsl.predicates` defines it. All others are the `Matcher`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from nearcast.cpsl import ast
from nearcast.cpsl.predicates import Bound, Match, OpenTest, binds, holds, kind_of, read
from nearcast.model.events import Event, Value
from nearcast.model.geometry import Space

__all__ = ["Binder", "Check", "Constant", "Form", "Leaf", "leaf_of"]

Constant: TypeAlias = float | str
#: An attribute and what must hold of its value.
Check: TypeAlias = tuple[str, Callable[[Any], bool]]
_TESTS = 16  # a direct form has at most so many
_TEXT = 1000  # and its strings at most so many characters


class Form:
    """The form of primitives: their predicates with blanks in the place of constants.

    `equal` are the constants that an attribute must equal: (which of them, the attribute).
    """

    __slots__ = ("_hash", "binder", "blank", "equal", "names", "tests")

    def __init__(self, blank: ast.Primitive) -> None:
        self.blank = blank
        self._hash = hash(blank)
        self.names = _bound(blank)
        tests = _all_of(blank)
        direct = tests is not None and len(tests) <= _TESTS
        self.tests: tuple[ast.Test, ...] = tests if tests is not None and direct else ()
        """Those of a direct form, all of which must hold; none of others."""
        self.equal = tuple(_equalities(self.tests))
        variables = [test for test in self.tests if _variable(test) is not None]
        self.binder = Binder(variables) if self.equal and variables else None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Form) and self.blank == other.blank)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return (_form, (self.blank,))

    def checks(self, constants: tuple[Constant, ...], but: int) -> tuple[Check, ...]:
        """The tests of a direct form against constants, without one that is known to hold."""
        found, at = [], 0
        for test in self.tests:
            count = _blanks(test)
            if count == 0:
                if _variable(test) is None:
                    found.append((test.name, _check(test)))
            elif not at <= but < at + count:
                found.append((test.name, _check(_filled(test, iter(constants[at : at + count])))))
            at += count
        return tuple(found)


class Leaf(NamedTuple):
    """A primitive."""

    form: Form
    constants: tuple[Constant, ...]

    def primitive(self) -> ast.Primitive:
        """The primitive as it was written. O(size)."""
        left = iter(self.constants)
        return ast.Primitive(tuple(_written(each, left) for each in self.form.blank.predicates))

    @property
    def direct(self) -> bool:
        """Whether events tell by a value of theirs that they may satisfy it."""
        return bool(self.form.equal) and all(
            isinstance(each, float) or (len(each) <= _TEXT and each.isprintable())
            for each in self.constants
        )


def leaf_of(primitive: ast.Primitive) -> Leaf:
    """The two parts of a primitive. O(size)."""
    constants: list[Constant] = []
    blank = tuple(_opened(each, constants) for each in primitive.predicates)
    return Leaf(_form(ast.Primitive(blank)), tuple(constants))


@lru_cache(maxsize=4096)
def _form(blank: ast.Primitive) -> Form:
    return Form(blank)


# --- blanks --------------------------------------------------------------------------------------


def _blanks(test: ast.Test) -> int:
    """How many constants a test has: numbers and strings, but no sets and no codes."""
    if isinstance(test, ast.RangeTest):
        return 2
    plain = isinstance(test, ast.ArithTest | ast.StringTest)
    return int(plain and _variable(test) is None)


def _variable(test: ast.Test) -> ast.Variable | None:
    value = getattr(test, "value", None)
    return value if isinstance(value, ast.Variable) else None


def _opened(predicate: ast.Predicate, constants: list[Constant]) -> ast.Predicate:
    if isinstance(predicate, ast.CqlPredicate):
        return predicate
    alternatives = []
    for tests in predicate.any_of:
        found = []
        for test in tests:
            if isinstance(test, ast.RangeTest):
                constants += (float(test.low), float(test.high))
                test = replace(test, low=0.0, high=0.0, span=None)
            elif isinstance(test, ast.ArithTest) and not isinstance(test.value, ast.Variable):
                constants.append(float(test.value))
                test = ast.ArithTest(test.name, test.op, 0.0)
            elif isinstance(test, ast.StringTest) and isinstance(test.value, str):
                constants.append(test.value)
                test = ast.StringTest(test.name, test.op, "")
            found.append(test)
        alternatives.append(tuple(found))
    return ast.TypedPredicate(predicate.kind, tuple(alternatives))


def _written(predicate: ast.Predicate, left: Iterator[Constant]) -> ast.Predicate:
    if isinstance(predicate, ast.CqlPredicate):
        return predicate
    alternatives = tuple(tuple(_filled(test, left) for test in tests) for tests in predicate.any_of)
    return ast.TypedPredicate(predicate.kind, alternatives)


def _filled(test: ast.Test, left: Iterator[Any]) -> ast.Test:
    match _blanks(test):
        case 2:
            assert isinstance(test, ast.RangeTest)
            return replace(test, low=next(left), high=next(left))
        case 1 if isinstance(test, ast.ArithTest):
            return ast.ArithTest(test.name, test.op, next(left))
        case 1 if isinstance(test, ast.StringTest):
            return ast.StringTest(test.name, test.op, next(left))
    return test


# --- direct forms --------------------------------------------------------------------------------


def _all_of(blank: ast.Primitive) -> tuple[ast.Test, ...] | None:
    """The tests, if all of them must hold."""
    found: list[ast.Test] = []
    for predicate in blank.predicates:
        if isinstance(predicate, ast.CqlPredicate) or len(predicate.any_of) != 1:
            return None
        found += predicate.any_of[0]
    return tuple(found)


def _equalities(tests: tuple[ast.Test, ...]) -> Iterator[tuple[int, str]]:
    at = 0
    for test in tests:
        count = _blanks(test)
        if count == 1 and getattr(test, "op", "") == "=":
            yield at, test.name
        at += count


def _bound(primitive: ast.Primitive) -> frozenset[str]:
    """The `&` variables that a plain event binds whichever of its alternatives holds."""
    found: set[str] = set()
    for predicate in primitive.predicates:
        if isinstance(predicate, ast.TypedPredicate):
            each = [
                {"&" + v.name for test in tests if (v := _variable(test)) and binds(test)}
                for tests in predicate.any_of
            ]
            found |= set.intersection(*each) if each else set()
    return frozenset(found)


@lru_cache(maxsize=4096)
def _check(test: ast.Test) -> Callable[[Any], bool]:
    """Whether an attribute's value passes a test with a constant."""
    if isinstance(test, ast.StringTest) and test.op == "=":
        text = test.value
        return lambda value: bool(value == text)

    def passes(value: Value) -> bool:
        known = read(test, value)
        return known is not None and holds(test, known)

    return passes


class Binder:
    """The tests with variables of a direct form: what an event binds, and what stays open."""

    __slots__ = ("_binding", "_open")

    def __init__(self, tests: list[ast.Test]) -> None:
        rows = [(test, variable) for test in tests if (variable := _variable(test)) is not None]
        self._binding = [(t, "&" + v.name, kind_of(t)) for t, v in rows if binds(t)]
        self._open = [
            (t, "&" + v.name, kind_of(t), OpenTest(getattr(t, "op", ""), v.op, v.number))
            for t, v in rows
            if not binds(t)
        ]

    def check(self, event: Event, _: Space) -> Match | None:
        """What the event binds; None if it does not pass. As `predicates.evaluate`."""
        attributes: Mapping[str, Value] = event.attributes
        bindings: dict[str, Bound] = {}
        for test, name, kind in self._binding:
            value = read(test, attributes.get(test.name))
            if value is None or bindings.setdefault(name, (kind, value)) != (kind, value):
                return None
        if not self._open:
            return Match(bindings, ())
        waiting = []
        for test, name, kind, compare in self._open:
            value = read(test, attributes.get(test.name))
            if value is None:
                return None
            if name not in bindings:
                waiting.append(((kind, value), compare, name))
            elif not compare.holds((kind, value), bindings[name]):
                return None
        return Match(bindings, tuple(waiting))
