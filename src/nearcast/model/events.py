"""The event: what is published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from nearcast.clock import Micros, Time, to_micros
from nearcast.errors import ValidationError
from nearcast.model.geometry import Box, Location, Point, Polygon
from nearcast.model.text import Tokeniser, words_of
from nearcast.model.words import normalise_words

__all__ = ["NO_SOURCE", "Event", "Value"]

Value: TypeAlias = float | int | str | bool
#: What an event without a source is said to come from, where something must be said.
NO_SOURCE = "nearcast"
_NOTHING: Mapping[str, Value | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened or holds: attributes, words, a place, a time, an end of validity.

    `start`, `end` and `expires` are given as aware datetimes, RFC 3339 text or
    microseconds, and kept as microseconds. An attribute that is None is missing. The words
    of `text`, as `tokeniser` cuts it (`nearcast.model.text`), are added to the keywords.
    `source` says whose id it is: two sources may use the same one. The source "nearcast" is none.

    >>> Event(id="e1", attributes={"price": 3200}, location=Point(121.44, 36.16)).location.lon
    121.44
    """

    id: str
    attributes: Mapping[str, Value]
    keywords: frozenset[str]
    location: Location | None
    start: Micros | None
    end: Micros | None
    expires: Micros | None
    source: str | None

    def __init__(
        self,
        id: str,
        attributes: Mapping[str, Value | None] = _NOTHING,
        keywords: Iterable[str] = (),
        location: Location | None = None,
        start: Time | None = None,
        end: Time | None = None,
        expires: Time | None = None,
        *,
        text: str | None = None,
        tokeniser: Tokeniser | None = None,
        source: str | None = None,
    ) -> None:
        check_id(id, "id")
        if source is not None:
            check_id(source, "source")
        if location is not None and not isinstance(location, Point | Box | Polygon):
            raise ValidationError(
                "location", location, "an event's location is a Point, a Box or a Polygon"
            )
        put = object.__setattr__
        put(self, "id", id)
        put(self, "attributes", MappingProxyType(_attributes(attributes)))
        words = normalise_words(keywords)
        put(self, "keywords", words if text is None else words | words_of(text, tokeniser))
        put(self, "location", location)
        put(self, "start", None if start is None else to_micros(start, "start"))
        put(self, "end", None if end is None else to_micros(end, "end"))
        put(self, "expires", None if expires is None else to_micros(expires, "expires"))
        put(self, "source", None if source == NO_SOURCE else source)
        if self.start is not None:
            if self.end is not None and self.end < self.start:
                raise ValidationError("end", end, "an event does not end before its start")
            if self.expires is not None and self.expires < self.start:
                raise ValidationError(
                    "expires", expires, "an event does not expire before its start"
                )

    def __hash__(self) -> int:
        return hash((Event, self.id))

    @property
    def key(self) -> str:
        """What identifies it, in one string: the id, and the source if it has one.

        Without a source that is the id itself, but for ids that could be taken for both.
        """
        return self.id if self.source is None and self.id[0] != "\0" else key_of(self)

    def __reduce__(self) -> tuple[object, ...]:
        times = (self.start, self.end, self.expires)
        said = (self.id, dict(self.attributes), self.keywords, self.location, *times)
        return (Event, said) if self.source is None else (_sourced, (self.source, *said))


def key_of(event: Event) -> str:
    """A string that no other pair of source and id has."""
    if event.source is None:
        return f"\0\0{event.id}"
    return f"\0{len(event.source)}\0{event.source}{event.id}"


def _sourced(source: str, *said: Any) -> Event:
    return Event(*said, source=source)


def check_id(value: object, name: str) -> None:
    """Refuse an id that is not a non-empty string."""
    if not isinstance(value, str) or not value:
        raise ValidationError(name, value, "give a non-empty string")
    check_text(value, name)


def check_text(value: str, name: str) -> None:
    """Refuse text that no encoding can carry (lone surrogates)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(name, value, "lone surrogates are not text") from None


def _attributes(given: object) -> dict[str, Value]:
    if not isinstance(given, Mapping):
        raise ValidationError("attributes", given, "give a mapping of names to values")
    kept: dict[str, Value] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise ValidationError("attributes", name, "an attribute's name is a non-empty string")
        checked = _value(value, name)
        if checked is not None:
            check_text(name, "attributes")
            kept[name] = checked
    return kept


def _value(value: object, name: str) -> Value | None:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        check_text(value, f"attributes[{name!r}]")
        return value
    if isinstance(value, int):
        try:
            float(value)
        except OverflowError:
            raise ValidationError(
                f"attributes[{name!r}]", value, "a number must fit a float64"
            ) from None
        return value
    unboxed = getattr(value, "item", None)  # NumPy scalars
    if callable(unboxed) and not isinstance(value, Iterable):
        return _value(unboxed(), name)
    raise ValidationError(f"attributes[{name!r}]", value, "give a number, a string or a bool")
