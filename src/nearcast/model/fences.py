"""The fence: a region whose border objects cross."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

from nearcast.clock import Micros, Time
from nearcast.errors import ValidationError
from nearcast.model.durations import to_duration
from nearcast.model.events import Value, check_id
from nearcast.model.filters import Filter
from nearcast.model.geometry import Region
from nearcast.model.subscriptions import Subscription
from nearcast.model.terms import Terms

__all__ = ["TRANSITIONS", "Fence", "Transition", "object_from", "object_named", "object_of"]

Transition: TypeAlias = Literal["enter", "exit", "cross", "dwell", "lost", "inside", "outside"]
TRANSITIONS: tuple[Transition, ...] = get_args(Transition)
_KNOWN = ", ".join(TRANSITIONS)


@dataclass(frozen=True, slots=True)
class Fence:
    """A region, whose positions count and of what is told: docs/fences.md says what each means.

    `object` names the attribute that says who was there. `dwell` and `lost` are given as
    seconds, timedeltas or ISO 8601, and kept as timedeltas. With `lost` an object that was
    silent for so long is forgotten, told or not. Costs what a `Subscription` does.

    >>> Fence("f1", "ops", "truck", Circle(8.54, 47.37, 500), on={"dwell"}, dwell="PT10M").dwell
    datetime.timedelta(seconds=600)
    """

    id: str
    subscriber: str | None
    object: str
    region: Region
    where: str | None
    keywords: frozenset[str]
    on: frozenset[Transition]
    margin_m: float
    dwell: timedelta | None
    lost: timedelta | None
    expires: Micros | None
    terms: Terms | None
    filter: Filter = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        id: str,
        subscriber: str | None = None,
        object: str = "",
        region: Region | None = None,
        where: str | Mapping[str, Any] | Filter | None = None,
        keywords: Iterable[str] = (),
        on: Iterable[str] = ("enter", "exit"),
        margin_m: float = 0.0,
        dwell: timedelta | float | str | None = None,
        lost: timedelta | float | str | None = None,
        expires: Time | None = None,
        terms: Terms | None = None,
    ) -> None:
        wanted = Subscription(id, subscriber, where, keywords, region, expires, terms)
        check_id(object, "object")
        if wanted.region is None:
            raise ValidationError(
                "region", None, "a fence has one: a Circle, a Box, a Polygon or Around"
            )
        told = _on(on)
        if ("dwell" in told) != (dwell is not None):
            given = "give dwell=…, how long" if dwell is None else "add 'dwell' to `on`"
            raise ValidationError("dwell", dwell, given)
        if "lost" in told and lost is None:
            raise ValidationError("lost", None, "give lost=…, after how long a silence")
        put = _put
        same = "id", "subscriber", "region", "where", "keywords", "expires", "terms", "filter"
        for name in same:
            put(self, name, getattr(wanted, name))
        put(self, "object", object)
        put(self, "on", told)
        put(self, "margin_m", _metres(margin_m))
        put(self, "dwell", None if dwell is None else _duration(dwell, "dwell"))
        put(self, "lost", None if lost is None else _duration(lost, "lost"))
        if self.lost == timedelta(0):
            raise ValidationError("lost", lost, "give more than nothing: all objects pause")

    @classmethod
    def of(cls, wanted: Subscription, **own: Any) -> Fence:
        """The fence whose positions are what a subscription matches; `own` is the rest."""
        w = wanted
        given: dict[str, Any] = {"where": w.where, "keywords": w.keywords, "expires": w.expires}
        given |= {"terms": w.terms, **own}
        return cls(w.id, w.subscriber, region=w.region, **given)

    @classmethod
    def said(
        cls, id: str, subscriber: str | None, counts: tuple[str, str | None, frozenset[str]],
        filter: Filter, region: Region, on: frozenset[Transition], margin_m: float,
        dwell: timedelta | None, lost: timedelta | None, expires: Micros | None,
        terms: Terms | None = None,
    ) -> Fence:  # fmt: skip
        """A fence of parts that were checked; `counts` is object, where and keywords."""
        made, put = object.__new__(cls), _put
        attribute, where, keywords = counts
        put(made, "id", id)
        put(made, "subscriber", subscriber)
        put(made, "object", attribute)
        put(made, "region", region)
        put(made, "where", where)
        put(made, "keywords", keywords)
        put(made, "on", on)
        put(made, "margin_m", margin_m)
        put(made, "dwell", dwell)
        put(made, "lost", lost)
        put(made, "expires", expires)
        put(made, "terms", terms)
        put(made, "filter", filter)
        return made

    def subscription(self) -> Subscription:
        """The part that a subscription has, too."""
        return Subscription(
            self.id, self.subscriber, self.where, self.keywords, self.region, self.expires,
            self.terms,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((Fence, self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        return Fence, (
            self.id, self.subscriber, self.object, self.region, self.where, self.keywords,
            self.on, self.margin_m, self.dwell, self.lost, self.expires, self.terms,
        )  # fmt: skip


_put = object.__setattr__


def object_of(attributes: Mapping[str, Value], name: str) -> str | float | None:
    """Who an event is a position of, by an attribute; None: of nobody.

    Objects are strings or numbers: `1` and `1.0` are one object, `"1"` is another. A bool
    or NaN names nobody.
    """
    return object_from(attributes.get(name))


def object_from(value: Value | None) -> str | float | None:
    """`object_of`, by the attribute's value."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return None
    number = float(value)
    return None if math.isnan(number) else number


def object_named(value: object) -> str | float:
    """`object_from` of what somebody says; a ValidationError if it names nobody."""
    known = isinstance(value, str | int | float)
    try:
        found = object_from(value) if known else None  # type: ignore[arg-type]
    except OverflowError:
        found = None
    if found is None:
        raise ValidationError("object", value, "give a string or a number")
    return found


def _on(given: object) -> frozenset[Transition]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValidationError("on", given, f"give a set of {_KNOWN}")
    found = []
    for each in given:
        if each not in TRANSITIONS:
            raise ValidationError("on", each, f"give some of {_KNOWN}")
        found.append(each)
    if not found:
        raise ValidationError("on", given, f"a fence tells of something: {_KNOWN}")
    return frozenset(found)


def _metres(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ValidationError("margin_m", given, "give a number of metres")
    try:
        number = float(given)
    except OverflowError:
        number = math.inf
    if not 0.0 <= number < math.inf:
        raise ValidationError("margin_m", given, "a margin is finite and not negative")
    return number + 0.0


def _duration(given: object, name: str) -> timedelta:
    micros = to_duration(given, name)
    if micros < 0:
        raise ValidationError(name, given, "a duration is not negative")
    return timedelta(microseconds=micros)
