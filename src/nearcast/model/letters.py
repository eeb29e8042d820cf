"""Strings as numbers by their first letters, so that prefixes and ranges are intervals of them.

MO-Tree (section 4.2) takes the first letters of a string attribute for its domain. The number
keeps the order of code points, as strings are compared, but not strictly: strings that agree in
their first letters share it. So an interval of numbers is a condition that whatever satisfies the
test meets; who needs the answer compares the strings themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

from nearcast.model.predicates import Equals, In, Like, Residual, StringRange, like_prefix

__all__ = ["LETTERS", "letters_of", "prefix_span", "spans_of"]

Span: TypeAlias = tuple[float, float]

#: Code points that count.
LETTERS = 6
# A letter is a digit of a number below 2^53: 0 for the end, one for each code point up to
# Latin's, and 68 for all others, each for 16 384 in a row.
_ALONE = 0x180
_SHIFT = 14
_BASE = 1 + _ALONE + (0x10FFFF >> _SHIFT) + 1
_WORTH = tuple(_BASE ** (LETTERS - 1 - at) for at in range(LETTERS))


def _code(text: str) -> tuple[int, int]:
    """The number, and how many more numbers belong to texts that begin like this one."""
    number = 0
    for letter, worth in zip(text, _WORTH, strict=False):
        point = ord(letter)
        if point >= _ALONE:  # shared with others: what follows must not count
            return number + worth * (1 + _ALONE + (point >> _SHIFT)), 0
        number += worth * (1 + point)
    return number, _WORTH[len(text) - 1] - 1 if 0 < len(text) < LETTERS else 0


def letters_of(text: str) -> float:
    """The number of a text: if a < b by code points, then letters_of(a) ≤ letters_of(b).

    >>> letters_of("Bern") < letters_of("Bonn") < letters_of("bern")
    True
    """
    return float(_code(text)[0])


def prefix_span(prefix: str) -> Span:
    """An interval that has the numbers of all texts with this prefix.

    >>> low, high = prefix_span("abc")
    >>> low <= letters_of("abcissa") <= high < letters_of("abd")
    True
    """
    if not prefix:
        return 0.0, math.inf
    number, more = _code(prefix)
    return float(number), float(number + more)


def spans_of(equals: Iterable[Equals], residuals: Iterable[Residual]) -> dict[str, Span]:
    """By attribute: an interval of numbers that every string has that passes all tests.

    Attributes without a test that says where its strings begin are left out.
    """
    spans: dict[str, Span] = {}
    tests: tuple[Any, ...] = (*equals, *residuals)
    for test in tests:
        span = _span(test)
        if span is None:
            continue
        name = test.attribute
        low, high = spans.get(name, (0.0, math.inf))
        both = max(low, span[0]), min(high, span[1])
        spans[name] = both if both[0] <= both[1] else span  # nothing passes: any will do
    return spans


def _span(test: Any) -> Span | None:
    if isinstance(test, Equals):
        if isinstance(test.value, bool):
            return None
        return (number := letters_of(test.value)), number
    if isinstance(test, Like):
        prefix = "" if test.negated else like_prefix(test.pattern)
        return prefix_span(prefix) if prefix else None
    if isinstance(test, StringRange):
        low = 0.0 if test.low is None else letters_of(test.low)
        return low, math.inf if test.high is None else letters_of(test.high)
    if isinstance(test, In) and isinstance(test.values[0], str):  # sorted
        return letters_of(test.values[0]), letters_of(str(test.values[-1]))
    return None
