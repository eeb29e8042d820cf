"""What events say beside their ids, as digests: equal events have equal ones."""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, repeat
from math import isnan, nan
from operator import attrgetter, itemgetter, methodcaller
from types import NoneType
from typing import Any, TypeAlias

import numpy as np

from nearcast.clock import NEVER
from nearcast.cpsl.composite import Composite
from nearcast.model.event_columns import columns_of
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Point
from nearcast.model.subscriptions import Subscription

__all__ = [
    "Contents", "Packed", "content_of", "content_of_thing", "contents_of", "kept_contents", "same",
]  # fmt: skip

_NUMBERS = frozenset((int, float))
#: The last of marshal's formats that writes equal values alike, whoever else holds them.
_PLAIN = 2
_SIZE = 16  # bytes of a digest
_FEW = 8  # events below which arrays for all take longer than one by one
_MOST = 240  # bytes of an event above which it takes more room than a digest by far
_positive = (0.0).__add__  # a number as a float that is not −0.0

_attributes, _keywords, _location = map(attrgetter, ("attributes", "keywords", "location"))
_start, _end, _expires, _x, _y = map(attrgetter, ("start", "end", "expires", "x", "y"))
_values = methodcaller("values")

Pick: TypeAlias = Callable[[Mapping[str, Any]], Sequence[Any]]
#: Digests of some events, made or to be made.
Contents: TypeAlias = "list[bytes] | Packed"


def content_of(event: Event) -> bytes:
    """A digest of all that an event says beside its id and source; equal events have equal ones.

    The same in every process. 3.5 µs for ten numbers: their bytes together, where their texts one
    by one took 10.
    """
    attributes, place = event.attributes, event.location
    names, pick = _arranged(tuple(attributes))
    values: Sequence[Any] = pick(attributes)
    others: list[str | bool | None] = []
    if not _NUMBERS.issuperset(map(type, values)):
        others = [_exact(value) for value in values]
        values = [value for value in values if not isinstance(value, bool | str)]
    numbers = array("d", map(_positive, values))
    placed = type(place) is Point
    if placed:
        numbers.append(place.x + 0.0)  # type: ignore[union-attr]
        numbers.append(place.y + 0.0)  # type: ignore[union-attr]
    if isnan(sum(numbers)):  # which has many forms, and is one
        numbers = array("d", [nan if isnan(number) else number for number in numbers])
    times = array("q", [NEVER if at is None else at for at in _times(event)])
    if others or event.keywords or not (placed or place is None):
        where = None if placed else repr(place)
        head = _digest(marshal.dumps((names, others, sorted(event.keywords), where), _PLAIN))
    else:
        head = _head(names, placed)
    return _digest(b"".join((head, numbers.tobytes(), times.tobytes())))


def content_of_thing(thing: Subscription | Fence | Composite) -> bytes:
    """A digest of a subscription, fence or composite; equal ones have equal ones."""
    said = [type(thing).__name__]
    for each in fields(thing):
        if each.compare:
            value = getattr(thing, each.name)
            said.append(repr(sorted(value) if isinstance(value, frozenset) else value))
    return _digest("\0".join(said).encode())


def _digest(said: bytes | memoryview) -> bytes:
    return blake2b(said, digest_size=_SIZE).digest()


_times = attrgetter("start", "end", "expires")


@lru_cache(maxsize=1024)
def _arranged(names: tuple[str, ...]) -> tuple[tuple[str, ...], Pick]:
    """Names in their order, and what picks their values; events of one source share it."""
    order = tuple(sorted(map(str.__str__, names)))
    if len(order) == 1:
        return order, lambda attributes: (attributes[order[0]],)
    return order, itemgetter(*order) if order else lambda _: ()


@lru_cache(maxsize=1024)
def _head(names: tuple[str, ...], placed: bool) -> bytes:
    """What events of these names have in common that say nothing but numbers, at a point or not."""
    return _digest(marshal.dumps((names, placed), _PLAIN))


def _exact(value: object) -> str | bool | None:
    """What is no number, strings of somebody's own class as plain ones."""
    if isinstance(value, str):
        return str.__str__(value)
    return value if isinstance(value, bool) else None


class Packed:
    """Contents of events that say what marshal can write: packed, as long as nobody asks.

    That is seldom, and digests of all are made then: they take some times as long.
    """

    __slots__ = ("_digests", "_said", "_size")

    def __init__(self, size: int, said: bytes) -> None:
        self._size = size
        self._said = said
        self._digests: list[bytes] = []

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: int) -> bytes:
        if not self._digests:
            self._digests, self._said = contents_of(_unpacked(self._said)), b""
        return self._digests[at]


def _packed(events: Sequence[Event]) -> bytes | None:
    """All that some events say beside their ids; None where marshal would not write it.

    By columns: a tuple for each event would keep the garbage collector busy.
    """
    every = [*map(_attributes, events)]
    names = tuple(every[0])
    forms: Any = names
    if all(map(names.__eq__, map(tuple, every))):
        values: Any = [*chain.from_iterable(map(_values, every))]
    else:
        forms, values = [*map(tuple, every)], [*map(tuple, map(_values, every))]
    words: Any = [*map(_keywords, events)]
    words = words if any(words) else None
    places: Any = [*map(_location, events)]
    kinds = {*map(type, places)}
    if kinds <= {Point}:
        places = [*map(_x, places)], [*map(_y, places)]
    elif kinds == {NoneType}:
        places = None
    else:
        return None
    times = [[*map(of, events)] for of in (_start, _end, _expires)]
    try:
        return marshal.dumps((forms, values, words, places, times), _PLAIN)
    except ValueError:  # of a class of somebody's own
        return None


def _unpacked(said: bytes) -> list[Event]:
    """The events, under other ids."""
    forms, values, words, places, times = marshal.loads(said)
    if isinstance(forms, tuple):  # one for all
        size = len(forms)
        values = [values[row * size : (row + 1) * size] for row in range(len(times[0]))]
    every = forms if isinstance(forms, list) else repeat(forms)
    found: list[Event] = []
    for row, (names, given, *when) in enumerate(zip(every, values, *times, strict=False)):
        at = None if places is None else Point(places[0][row], places[1][row])
        attributes = dict(zip(names, given, strict=True))
        found.append(Event("-", attributes, () if words is None else words[row], at, *when))
    return found


def contents_of(events: Sequence[Event]) -> list[bytes]:
    """`content_of` each, in half of the time: numbers of events of one form are a matrix."""
    forms: dict[tuple[Any, type], list[int]] = {}
    for row, event in enumerate(events):
        forms.setdefault((tuple(event.attributes), type(event.location)), []).append(row)
    found: list[bytes] = [b""] * len(events)
    for rows in forms.values():
        some = [events[row] for row in rows]
        made = _digests(some) or [*map(content_of, some)]
        for at, row in enumerate(rows):
            found[row] = made[at]
    return found


def kept_contents(events: Sequence[Event]) -> Contents:
    """The same, to be asked for some of them later. 1 µs for ten numbers."""
    said = _packed(events) if events else None
    if said is None or len(said) > _MOST * len(events):
        return contents_of(events)
    return Packed(len(events), said)


def _digests(events: Sequence[Event]) -> list[bytes] | None:
    """Of some events of one form that say nothing but numbers."""
    if len(events) < _FEW or any(map(_keywords, events)):
        return None
    columns = columns_of(events)
    if columns is None:
        return None
    given, values, x, y = columns
    count, placed = len(given), x is not None
    rows = np.empty((len(events), count + 2 * placed + 3))
    names, _ = _arranged(given)
    exact = [*map(str.__str__, given)]
    rows[:, :count] = values[:, [exact.index(name) for name in names]]
    if placed:
        rows[:, count], rows[:, count + 1] = x, y
    numbers = rows[:, :-3]
    numbers += 0.0
    numbers[np.isnan(numbers)] = nan
    times = rows.view(np.int64)[:, -3:]
    for i, name in enumerate(("start", "end", "expires")):
        moments = [*map(attrgetter(name), events)]
        if None in moments:
            moments = [NEVER if moment is None else moment for moment in moments]
        times[:, i] = moments
    head = _head(names, placed)
    return [_digest(head + row.tobytes()) for row in rows]


def same(known: Event, event: Event) -> bool:
    """Whether two events under one id say the same; NaN is NaN here."""
    return type(known) is type(event) and content_of(known) == content_of(event)
