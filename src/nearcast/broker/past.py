"""What has expired lately: an event that comes once more is known for a repetition."""

from __future__ import annotations

import marshal
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from math import isnan, nan
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

import numpy as np

from nearcast.clock import NEVER, Micros
from nearcast.model.events import Event
from nearcast.model.geometry import Point

__all__ = ["REMEMBERED", "REMEMBERED_FOR", "Past", "content_of", "contents_of", "same"]

#: How long after its expiry an event is remembered, in microseconds: an hour.
REMEMBERED_FOR: Micros = 3_600_000_000
#: How many are remembered at most, the latest of them.
REMEMBERED = 100_000

_NUMBERS = frozenset((int, float))
#: The last of marshal's formats that writes equal values alike, whoever else holds them.
_PLAIN = 2
_SIZE = 16  # bytes of a digest
_FEW = 8  # events below which arrays for all take longer than one by one
_TOGETHER = 512  # expired events of which digests are made together
_positive = (0.0).__add__  # a number as a float that is not −0.0

_attributes, _keywords, _location = map(attrgetter, ("attributes", "keywords", "location"))
_x, _y = attrgetter("x"), attrgetter("y")

Pick: TypeAlias = Callable[[Mapping[str, Any]], Sequence[Any]]


# --- contents ------------------------------------------------------------------------------------


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


def contents_of(events: Sequence[Event]) -> list[bytes]:
    """`content_of` each, in half of the time: numbers of events of one form are a matrix."""
    if len(events) < _FEW:
        return [*map(content_of, events)]
    names = [*map(tuple, map(_attributes, events))]
    kinds = [*map(type, map(_location, events))]
    if _alike(names) and _alike(kinds):
        return _contents_of_form(events, names[0], kinds[0])
    forms: dict[tuple[Any, type], list[int]] = {}
    for row, form in enumerate(zip(names, kinds, strict=True)):
        forms.setdefault(form, []).append(row)
    found: list[bytes] = [b""] * len(events)
    for (its, kind), rows in forms.items():
        made = _contents_of_form([events[row] for row in rows], its, kind)
        for row, content in zip(rows, made, strict=True):
            found[row] = content
    return found


def _alike(values: list[Any]) -> bool:
    return values.count(values[0]) == len(values)


def _contents_of_form(events: Sequence[Event], given: tuple[str, ...], kind: type) -> list[bytes]:
    """Those of events with the same names in the same order, at places of one kind."""
    plain = kind is Point or kind is type(None)
    if len(events) < _FEW or not plain or any(map(_keywords, events)):
        return [*map(content_of, events)]
    every = [event.attributes.values() for event in events]
    if not _NUMBERS.issuperset(map(type, chain.from_iterable(every))):
        return [*map(content_of, events)]
    size, count, placed = len(events), len(given), kind is Point
    names, _ = _arranged(given)
    first = _SIZE // 8
    rows = np.empty((size, first + count + 2 * placed + 3))
    rows[:, :first] = np.frombuffer(_head(names, placed))
    values = np.fromiter(chain.from_iterable(every), np.float64, size * count)
    exact = [*map(str.__str__, given)]
    order = [exact.index(name) for name in names]
    at = first + count
    rows[:, first:at] = values.reshape(size, count)[:, order]
    if placed:
        places = [*map(_location, events)]
        rows[:, at], rows[:, at + 1] = [*map(_x, places)], [*map(_y, places)]
    numbers = rows[:, first:-3]
    numbers += 0.0
    numbers[np.isnan(numbers)] = nan
    times = rows.view(np.int64)[:, -3:]
    for i, name in enumerate(("start", "end", "expires")):
        moments = [*map(attrgetter(name), events)]
        times[:, i] = [NEVER if moment is None else moment for moment in moments]
    said = memoryview(rows).cast("B")  # type: ignore[arg-type]
    step = rows.strides[0]
    return [_digest(said[i : i + step]) for i in range(0, size * step, step)]


def same(known: Event, event: Event) -> bool:
    """Whether two events under one id say the same; NaN is NaN here."""
    return type(known) is type(event) and content_of(known) == content_of(event)


# --- what is remembered --------------------------------------------------------------------------


class Past:
    """Ids and contents of expired events, for a time and up to a number. O(1) each way.

    Who expired last is kept as it was, and digested when there are some hundreds.
    """

    def __init__(self, known: OrderedDict[str, tuple[bytes, Micros]]) -> None:
        self._known = known
        """In the order of expiry: what it said, and until when that is remembered.

        (In a dict that loses its first all the time it takes 15 µs to find that, among 100 000.)
        """
        self._fresh: dict[str, tuple[Event, Micros]] = {}
        """Those that expired after them."""

    def __len__(self) -> int:
        return len(self._known) + len(self._fresh)

    def __contains__(self, key: object) -> bool:
        return key in self._known or key in self._fresh

    def keep(self, key: str, content: bytes, until: Micros) -> None:
        """An event has expired."""
        if self._fresh:
            self._digest()
        self._known.pop(key, None)
        self._known[key] = content, until
        self._trim()

    def keep_all(self, events: Iterable[tuple[Event, Micros]]) -> None:
        """Events have expired, in this order, and are remembered until a moment each."""
        fresh = self._fresh
        for event, until in events:
            key = event.key
            self._known.pop(key, None)
            fresh.pop(key, None)
            fresh[key] = event, until
        if len(fresh) >= _TOGETHER:
            self._digest()
        self._trim()

    def _digest(self) -> None:
        """Keep digests of the last ones, too."""
        contents = contents_of([event for event, _ in self._fresh.values()])
        pairs = zip(contents, [until for _, until in self._fresh.values()], strict=True)
        self._known.update(zip(self._fresh, pairs, strict=True))
        self._fresh.clear()

    def _trim(self) -> None:
        while len(self) > REMEMBERED:
            self._drop()

    def _drop(self) -> None:
        """Forget the first."""
        if self._known:
            self._known.popitem(last=False)
        else:
            del self._fresh[next(iter(self._fresh))]

    def holds(self, event: Event, now: Micros) -> bool:
        """Whether an equal event has expired, and is remembered."""
        fresh = self._fresh.get(event.key)
        if fresh is not None:
            return now < fresh[1] and content_of(fresh[0]) == content_of(event)
        content, until = self._known.get(event.key, (b"", now))
        return now < until and content == content_of(event)

    def forget(self, now: Micros) -> None:
        """Time has come to `now`."""
        while self._known and next(iter(self._known.values()))[1] <= now:
            self._drop()
        while self._fresh and not self._known and next(iter(self._fresh.values()))[1] <= now:
            self._drop()

    def contents(self) -> dict[str, tuple[bytes, Micros]]:
        """What is remembered, in the order of expiry. O(n)."""
        self._digest()
        return dict(self._known)
