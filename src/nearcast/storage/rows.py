"""Values as the text that stores keep: JSON lists, compact and exact.

Not the wire's format: NaN, infinities, any integer and places of either space come back as
they were. A field that is added later goes to the end of its list.
"""

from __future__ import annotations

import json
from typing import Any

from nearcast.broker.subscriptions import Sealed
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.instances import CompositeEvent
from nearcast.model.codec.columns import SUBSCRIPTION_COLUMNS
from nearcast.model.codec.wkb import write_wkb
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Box, Circle, Location, Point, Polygon, Region
from nearcast.model.subscriptions import Subscription

__all__ = [
    "composite_from_text",
    "composite_to_text",
    "event_from_text",
    "event_to_text",
    "pair_from_text",
    "pair_to_text",
    "subscription_from_text",
    "subscription_opened",
    "subscription_to_text",
    "subscriptions_to_table",
]

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
    id, source, attributes, keywords, place, start, end, expires, *composite = json.loads(text)
    location: Any = _placed(place)
    if composite:
        composite_id, parts = composite
        return CompositeEvent(id, composite_id, parts, attributes, location, start, end, expires)
    return Event(id, attributes, keywords, location, start, end, expires, source=source)


def subscription_to_text(subscription: Subscription) -> str:
    """A subscription without its id, subscriber and expiry, which have columns."""
    s = subscription
    return _encode([s.where, sorted(s.keywords), _place(s.region)])


def subscription_from_text(
    id: str, subscriber: str | None, expires: int | None, text: str
) -> Subscription:
    """What `subscription_to_text` wrote."""
    where, keywords, region = json.loads(text)
    return Subscription(id, subscriber, where, keywords, _placed(region), expires)


def subscription_opened(id: str, sealed: Sealed) -> Subscription:
    """What `subscription_to_text` wrote, as a store hands it over."""
    return subscription_from_text(id, sealed.subscriber, sealed.expires, sealed.body)


def subscriptions_to_table(sealed: list[tuple[str, Sealed]]) -> Any:
    """An Arrow table for a matcher, without the regions that move. No filter is parsed."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in SUBSCRIPTION_COLUMNS.names}
    del columns["intervals"]
    for id, each in sealed:
        where, keywords, place = json.loads(each.body)
        row = {"id": id, "subscriber": each.subscriber, "where": where, "expires": each.expires}
        row["keywords"] = keywords
        if isinstance(place, dict):
            row["geometry"] = write_wkb(_placed(place))
        elif place is not None and not each.follows:
            row.update(zip(_ROUND if len(place) == 3 else _CORNERS, place, strict=True))
        for name, column in columns.items():
            column.append(row.get(name))
    types = SUBSCRIPTION_COLUMNS
    arrays = {name: pa.array(given, types.field(name).type) for name, given in columns.items()}
    return pa.table(arrays)


def composite_to_text(composite: Composite) -> str:
    """A composite without its id and subscriber."""
    return _encode([composite.text, composite.consume])


def composite_from_text(id: str, subscriber: str | None, text: str) -> Composite:
    """What `composite_to_text` wrote."""
    pattern, consume = json.loads(text)
    return Composite(id, subscriber, pattern, consume)


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
        exterior, *holes = row["rings"]
        return Polygon(exterior, holes)
    return _KINDS[len(row)](*row)


_KINDS: dict[int, Any] = {1: Around, 2: Point, 3: Circle, 4: Box}
