"""Values as the text that stores keep: JSON lists, compact and exact.

Not the wire's format: NaN, infinities, any integer and places of either space come back as
they were. A field that is added later goes to the end of its list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from nearcast.broker.subscriptions import Sealed
from nearcast.broker.turns import Report
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.instances import CompositeEvent
from nearcast.fences.groups import Key, Object
from nearcast.fences.saved import KnownFence, KnownObject, Visit
from nearcast.model.codec.columns import SUBSCRIPTION_COLUMNS
from nearcast.model.codec.wkb import write_wkb
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Box, Circle, Location, Point, Polygon, Region
from nearcast.model.placing import Facing
from nearcast.model.subscriptions import Subscription
from nearcast.model.terms import QuietHours, Terms

__all__ = [
    "composite_from_text",
    "composite_to_text",
    "event_from_text",
    "event_to_text",
    "fence_from_text",
    "fence_to_text",
    "group_digest",
    "object_from_text",
    "object_to_text",
    "pair_from_text",
    "pair_to_text",
    "report_from_text",
    "report_to_text",
    "subscription_from_text",
    "subscription_opened",
    "subscription_to_text",
    "subscriptions_to_table",
    "value_from_text",
    "value_to_text",
]

#: By the id of a fence: a number of its own, and what it counts.
Tags = Mapping[str, tuple[int, Key]]

_ROUND, _CORNERS = ("lon", "lat", "radius_m"), ("xmin", "ymin", "xmax", "ymax")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def event_to_text(event: Event) -> str:
    """An event, or a composite event with its parts."""
    row: list[Any] = [
        event.id,
        event.source,
        dict(event.attributes),
        sorted(event.keywords),
        _place(event.location),
        event.start,
        event.end,
        event.expires,
    ]
    if isinstance(event, CompositeEvent):
        row += [event.composite_id, event.parts]
    return _encode(row)


def event_from_text(text: str) -> Event:
    """What `event_to_text` wrote."""
    return _event(json.loads(text))


def _event(row: list[Any]) -> Event:
    id, source, attributes, keywords, place, start, end, expires, *composite = row
    location: Any = _placed(place)
    if composite:
        composite_id, parts = composite
        return CompositeEvent(id, composite_id, parts, attributes, location, start, end, expires)
    return Event(id, attributes, keywords, location, start, end, expires, source=source)


def subscription_to_text(subscription: Subscription) -> str:
    """A subscription without its id, subscriber and expiry, which have columns."""
    s = subscription
    return _encode([s.where, sorted(s.keywords), _place(s.region), *_terms(s.terms)])


def subscription_from_text(
    id: str, subscriber: str | None, expires: int | None, text: str
) -> Subscription:
    """What `subscription_to_text` wrote."""
    where, keywords, region, *terms = json.loads(text)
    return Subscription(
        id, subscriber, where, keywords, _placed(region), expires, *map(_stated, terms)
    )


def subscription_opened(id: str, sealed: Sealed) -> Subscription:
    """What `subscription_to_text` wrote, as a store hands it over."""
    return subscription_from_text(id, sealed.subscriber, sealed.expires, sealed.body)


def subscriptions_to_table(sealed: list[tuple[str, Sealed]]) -> Any:
    """An Arrow table for a matcher; none of them follows anybody. No filter is parsed."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in SUBSCRIPTION_COLUMNS.names}
    del columns["intervals"]
    for id, each in sealed:
        where, keywords, place, *_ = json.loads(each.body)
        row = {"id": id, "subscriber": each.subscriber, "where": where, "expires": each.expires}
        row["keywords"] = keywords
        if isinstance(place, dict):
            row["geometry"] = write_wkb(_placed(place))
        elif place is not None:
            row.update(zip(_ROUND if len(place) == 3 else _CORNERS, place, strict=True))
        for name, column in columns.items():
            column.append(row.get(name))
    types = SUBSCRIPTION_COLUMNS
    arrays = {name: pa.array(given, types.field(name).type) for name, given in columns.items()}
    return pa.table(arrays)


def composite_to_text(composite: Composite) -> str:
    """A composite without its id and subscriber."""
    c = composite
    return _encode([c.text, c.consume, c.expires, *_terms(c.terms)])


def composite_from_text(id: str, subscriber: str | None, text: str) -> Composite:
    """What `composite_to_text` wrote."""
    pattern, consume, *ends = json.loads(text)  # older ones say nothing of their end
    expires, *terms = ends or (None,)
    return Composite(id, subscriber, pattern, consume, None, expires, *map(_stated, terms))


def fence_to_text(known: KnownFence) -> str:
    """A fence without its id, subscriber and expiry, and when it came."""
    f = known.fence
    return _encode([
        f.object, f.where, sorted(f.keywords), _place(f.region), sorted(f.on), f.margin_m,
        _micros(f.dwell), _micros(f.lost), known.number, None if known.waits else known.since,
        known.made,
        *_terms(f.terms),
    ])  # fmt: skip


def fence_from_text(id: str, subscriber: str | None, expires: int | None, text: str) -> KnownFence:
    """What `fence_to_text` wrote."""
    what, where, keywords, region, on, margin_m, dwell, lost, *came = json.loads(text)
    fence = Fence(
        id, subscriber, what, _placed(region), where, keywords, on, margin_m,
        _duration(dwell), _duration(lost), expires, *map(_stated, came[3:]),
    )  # fmt: skip
    number, since, made = came[:3]
    return KnownFence(fence, number, since or 0, made, waits=since is None)


@lru_cache(maxsize=4096)
def group_digest(key: Key) -> int:
    """What fences count, in 63 bits."""
    attribute, where, keywords = key
    said = _encode([attribute, where, sorted(keywords)]).encode()
    return int.from_bytes(blake2b(said, digest_size=8).digest()) >> 1


def object_to_text(known: KnownObject, event: str, tags: Tags) -> str:
    """What fences know of an object; `event` is its position's text.

    `tags` tell a fence from another that had its id before.
    """
    visits = [
        [each.fence_id, tags[each.fence_id][0], each.inside, each.entered, each.dwelt]
        for each in known.visits
    ]
    given_up = f",{known.given_up}" if known.given_up else ""
    return f"[{event},{known.at},{known.number},{known.gone},{_encode(visits)}{given_up}]"


def object_from_text(key: Key, object: Object, text: str, tags: Tags) -> KnownObject:
    """What `object_to_text` wrote, without visits to fences that are gone."""
    event, at, number, gone, visited, *given_up = json.loads(text)
    visits = tuple(
        Visit(fence_id, inside, entered, dwelt)
        for fence_id, tag, inside, entered, dwelt in visited
        if fence_id in tags and tags[fence_id][0] == tag
    )
    return KnownObject(key, object, _event(event), at, number, gone, visits, *given_up)


def report_to_text(report: Report) -> str:
    """Where somebody is, and was before."""
    was = report.before
    before = None if was is None else [was.x, was.y, was.heading]
    return _encode([report.subscriber, _place(report.place), report.heading, before])


def report_from_text(text: str) -> Report:
    """What `report_to_text` wrote."""
    subscriber, place, heading, before = json.loads(text)
    return Report(subscriber, _placed(place), heading, None if before is None else Facing(*before))


def value_to_text(value: Any) -> str:
    """A string, a number, or a list of them."""
    return _encode(value)


def value_from_text(text: str) -> Any:
    """What `value_to_text` wrote."""
    return json.loads(text)


def _terms(terms: Terms | None) -> list[Any]:
    """Terms as one more field, if there are any."""
    if terms is None:
        return []
    quiet = terms.quiet_hours
    hours = None if quiet is None else [quiet.start, quiet.end, quiet.zone, quiet.keep]
    said = terms.initial_event, terms.max_events, hours, _micros(terms.digest)
    return [[*said, terms.while_paused]]


def _stated(row: Any) -> Terms:
    initial, most, hours, digest, paused = row
    quiet = None if hours is None else QuietHours(*hours)
    return Terms(initial, most, quiet, _duration(digest), paused)


def _micros(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(microseconds=1)


def _duration(micros: int | None) -> timedelta | None:
    return None if micros is None else timedelta(microseconds=micros)


def pair_to_text(first: str, second: str) -> str:
    """Two strings in one."""
    return _encode([first, second])


def pair_from_text(text: str) -> tuple[str, str]:
    """What `pair_to_text` wrote."""
    first, second = json.loads(text)
    return first, second


def _place(place: Location | Region | None) -> Any:
    match place:
        case None:
            return None
        case Point(x, y):
            return [x, y]
        case Circle(x, y, radius_m):
            return [x, y, radius_m]
        case Box(xmin, ymin, xmax, ymax):
            return [xmin, ymin, xmax, ymax]
        case Around(shape=Polygon(rings=rings), turns=turns):
            return {"around": rings, "turns": turns}
        case Around(radius_m):
            return [radius_m]
        case Polygon():
            return {"rings": place.rings}
    raise AssertionError(place)


def _placed(row: Any) -> Any:
    """How long the list is says what it is."""
    if row is None:
        return None
    if isinstance(row, dict):
        exterior, *holes = row.get("rings") or row["around"]
        polygon = Polygon(exterior, holes)
        return polygon if "rings" in row else Around(shape=polygon, turns=row["turns"])
    return _KINDS[len(row)](*row)


_KINDS: dict[int, Any] = {1: Around, 2: Point, 3: Circle, 4: Box}
