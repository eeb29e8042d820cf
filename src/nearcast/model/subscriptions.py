"""The subscription: what somebody wants to hear of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearcast.clock import Micros, Time, to_micros
from nearcast.errors import ValidationError
from nearcast.model.events import check_id
from nearcast.model.filters import Filter
from nearcast.model.geometry import Around, Box, Circle, Polygon, Region
from nearcast.model.terms import Terms, stated
from nearcast.model.words import normalise_words

__all__ = ["Subscription"]

_NOTHING: tuple[str, ...] = ()
_NO_WORDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Subscription:
    """A filter over attributes, words that must all occur, a region, an end of validity.

    `where` is CQL2 text, CQL2 JSON (a mapping) or a `Filter`; it is kept as CQL2 text,
    and parsed as `filter`. `terms` say how often and when a broker tells of what matches. What
    is left out does not restrict.

    >>> Subscription(id="s1", where="price < 3300 AND brand = 'Huawei'").filter.clauses[0].intervals
    (Interval(attribute='price', low=-inf, high=3299.9999999999995),)
    """

    id: str
    subscriber: str | None
    where: str | None
    keywords: frozenset[str]
    region: Region | None
    expires: Micros | None
    terms: Terms | None
    filter: Filter = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        id: str,
        subscriber: str | None = None,
        where: str | Mapping[str, Any] | Filter | None = None,
        keywords: Iterable[str] = _NOTHING,
        region: Region | None = None,
        expires: Time | None = None,
        terms: Terms | None = None,
    ) -> None:
        check_id(id, "id")
        if subscriber is not None:
            check_id(subscriber, "subscriber")
        if region is not None and not isinstance(region, Circle | Box | Polygon | Around):
            raise ValidationError(
                "region", region, "a region is a Circle, a Box, a Polygon or Around"
            )
        parsed = _parsed(where)
        _put_id(self, id)
        _put_subscriber(self, subscriber)
        _put_filter(self, parsed)
        _put_where(self, where if where is None or isinstance(where, str) else str(parsed))
        _put_keywords(self, _NO_WORDS if keywords is _NOTHING else normalise_words(keywords))
        _put_region(self, region)
        _put_expires(self, None if expires is None else to_micros(expires, "expires"))
        _put_terms(self, None if terms is None else stated(terms))

    def __hash__(self) -> int:
        return hash((Subscription, self.id))

    def __reduce__(self) -> tuple[object, ...]:
        return Subscription, (
            self.id, self.subscriber, self.where, self.keywords, self.region, self.expires,
            self.terms,
        )  # fmt: skip


#: Writers of the fields, which nobody else can set: half the time of `object.__setattr__`.
(
    _put_id, _put_subscriber, _put_where, _put_keywords, _put_region, _put_expires, _put_terms,
    _put_filter,
) = (Subscription.__dict__[name].__set__ for name in Subscription.__slots__)  # fmt: skip


def _parsed(where: object) -> Filter:
    if where is None:
        return Filter.everything()
    if isinstance(where, Filter):
        return where
    if isinstance(where, str | Mapping):
        return Filter.parse(where)
    raise ValidationError("where", where, "give CQL2 text, CQL2 JSON or None")
