"""Events of one form as a matrix: the quick way where a source says the same things every time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.model.events import Event
from nearcast.model.geometry import Point

__all__ = ["Columns", "columns_of"]

_NUMBERS = frozenset((int, float))
_attributes, _location = attrgetter("attributes"), attrgetter("location")
_x, _y = attrgetter("x"), attrgetter("y")

F8 = npt.NDArray[np.float64]


class Columns(NamedTuple):
    """Attributes, all of them numbers, and places of some events."""

    names: tuple[str, ...]
    values: F8
    """A row for each event, in the order of the names."""
    x: F8 | None
    y: F8 | None
    """Where each is; None: nowhere."""


def columns_of(events: Sequence[Event]) -> Columns | None:
    """Of events with the same names in the same order, all at points or all nowhere.

    None if they differ, or say anything but numbers. 0.7 µs an event of ten numbers.
    """
    every = [*map(_attributes, events)]
    names = [*map(tuple, every)]
    if not every or not _alike(names):
        return None
    values = [attributes.values() for attributes in every]
    if not _NUMBERS.issuperset(map(type, chain.from_iterable(values))):
        return None
    size, count = len(events), len(names[0])
    matrix = np.fromiter(chain.from_iterable(values), np.float64, size * count)
    places = [*map(_location, events)]
    kinds = [*map(type, places)]
    x = y = None
    if kinds[0] is Point and _alike(kinds):
        x, y = (np.fromiter(map(of, places), np.float64, size) for of in (_x, _y))
    elif places.count(None) < size:
        return None
    return Columns(names[0], matrix.reshape(size, count), x, y)


def _alike(values: list[Any]) -> bool:
    return values.count(values[0]) == len(values)
