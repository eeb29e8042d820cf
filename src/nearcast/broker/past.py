"""What has expired lately: an event that comes once more is known for a repetition."""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import isnan, nan
from operator import itemgetter
from typing import Any

from nearcast.clock import Micros
from nearcast.model.events import Event
from nearcast.model.geometry import Point

__all__ = ["REMEMBERED", "REMEMBERED_FOR", "Past", "content_of", "same"]

#: How long after its expiry an event is remembered, in microseconds: an hour.
REMEMBERED_FOR: Micros = 3_600_000_000
#: How many are remembered at most, the latest of them.
REMEMBERED = 100_000

_NUMBERS = frozenset((int, float))
#: The last of marshal's formats that writes equal values alike, whoever else holds them.
_PLAIN = 2


def content_of(event: Event) -> bytes:
    """A digest of all that an event says beside its id and source; equal events have equal ones.

    The same in every process, and 3 µs: the bytes of all numbers together, where their texts one
    by one took 10.
    """
    attributes, place = event.attributes, event.location
    names, pick = _arranged(tuple(attributes))
    values: Sequence[Any] = pick(attributes)
    others: list[str | bool | None] = []
    if not _NUMBERS.issuperset(map(type, values)):
        others = [_exact(value) for value in values]
        values = [value for value in values if not isinstance(value, bool | str)]
    numbers = array("d", values)
    where = None
    if type(place) is Point:
        numbers.append(place.x)
        numbers.append(place.y)
    else:
        where = repr(place)
    if isnan(sum(numbers)):  # which has many forms, and is one
        numbers = array("d", [nan if isnan(number) else number for number in numbers])
    times = event.start, event.end, event.expires
    said = marshal.dumps((others, sorted(event.keywords), where, times), _PLAIN)
    return blake2b(b"".join((names, numbers.tobytes(), said)), digest_size=16).digest()


@lru_cache(maxsize=1024)
def _arranged(names: tuple[str, ...]) -> tuple[bytes, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """Names in their order as bytes, and what picks their values; events of one source share it."""
    order = sorted(map(str.__str__, names))
    said = marshal.dumps(order, _PLAIN)
    if len(order) == 1:
        return said, lambda attributes: (attributes[order[0]],)
    return said, itemgetter(*order) if order else lambda _: ()


def _exact(value: object) -> str | bool | None:
    """What is no number, strings of somebody's own class as plain ones."""
    if isinstance(value, str):
        return str.__str__(value)
    return value if isinstance(value, bool) else None


def same(known: Event, event: Event) -> bool:
    """Whether two events under one id say the same; NaN is NaN here."""
    return type(known) is type(event) and content_of(known) == content_of(event)


class Past:
    """Ids and contents of expired events, for a time and up to a number. O(1) each way."""

    def __init__(self, known: dict[str, tuple[bytes, Micros]]) -> None:
        self._known = known
        """In the order of expiry: what it said, and until when that is remembered."""

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def keep(self, key: str, content: bytes, until: Micros) -> None:
        """An event has expired."""
        self._known.pop(key, None)
        self._known[key] = content, until
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    def holds(self, event: Event, now: Micros) -> bool:
        """Whether an equal event has expired, and is remembered."""
        content, until = self._known.get(event.key, (b"", now))
        return now < until and content == content_of(event)

    def forget(self, now: Micros) -> None:
        """Time has come to `now`."""
        while self._known:
            first = next(iter(self._known))
            if now < self._known[first][1]:
                break
            del self._known[first]
