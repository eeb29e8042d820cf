"""The subscription: what somebody wants to hear of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nearcast.clock import Micros, to_micros
from nearcast.errors import ValidationError
from nearcast.model.events import check_id
from nearcast.model.filters import Filter
from nearcast.model.geometry import Around, Box, Circle, Polygon, Region
from nearcast.model.words import normalise_words

__all__ = ["Subscription"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A filter over attributes, words that must all occur, a region, an end of validity.

    `where` is CQL2 text, CQL2 JSON (a mapping) or a `Filter`; it is kept as CQL2 text,
    and parsed as `filter`. What is left out does not restrict.

    >>> Subscription(id="s1", where="price < 3300 AND brand = 'Huawei'").filter.clauses[0].intervals
    (Interval(attribute='price', low=-inf, high=3299.9999999999995),)
    """

    id: str
    subscriber: str | None = None
    where: str | None = None
    keywords: frozenset[str] = frozenset()
    region: Region | None = None
    expires: Micros | None = None
    filter: Filter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        check_id(self.id, "id")
        if self.subscriber is not None:
            check_id(self.subscriber, "subscriber")
        given: Any = self.where
        if given is None:
            put(self, "filter", Filter.everything())
        elif isinstance(given, Filter):
            put(self, "filter", given)
            put(self, "where", str(given))
        elif isinstance(given, str | Mapping):
            put(self, "filter", Filter.parse(given))
            if not isinstance(given, str):
                put(self, "where", str(self.filter))
        else:
            raise ValidationError("where", given, "give CQL2 text, CQL2 JSON or None")
        put(self, "keywords", normalise_words(self.keywords))
        if self.region is not None and not isinstance(
            self.region, Circle | Box | Polygon | Around
        ):
            raise ValidationError(
                "region", self.region, "a region is a Circle, a Box, a Polygon or Around"
            )
        if self.expires is not None:
            put(self, "expires", to_micros(self.expires, "expires"))

    def __hash__(self) -> int:
        return hash((Subscription, self.id))

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.id, self.subscriber, self.where, self.keywords, self.region, self.expires)
        return (Subscription, fields)
