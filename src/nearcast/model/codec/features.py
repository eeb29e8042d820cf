"""Events as GeoJSON Features: the same members as in CloudEvents, on one level.

A Feature's `id` is the event's, its properties the attributes; `source`, `time` (the event's
`end`), `expirytime` (its `expires`), `start`, `keywords` and `text` are foreign members.
docs/wire.md shows one.
"""

from __future__ import annotations

from typing import Any

from nearcast.errors import ValidationError
from nearcast.model.codec.events import EVENT_SOURCE, EVENT_TYPE, event_from_json, event_to_json
from nearcast.model.codec.places import members
from nearcast.model.events import Event
from nearcast.model.geometry import Space

__all__ = ["feature_from_json", "feature_to_json"]

_OUTSIDE = ("source", "time", "expirytime")


def feature_to_json(event: Event) -> dict[str, Any]:
    """The event as a GeoJSON Feature; what is not set is left out."""
    envelope = event_to_json(event)
    feature: dict[str, Any] = {"type": "Feature", "id": event.id} | envelope["data"]
    for name in _OUTSIDE:
        if name in envelope and (name != "source" or event.source is not None):
            feature[name] = envelope[name]
    return feature


def feature_from_json(given: object, *, space: Space = "globe") -> Event:
    """The event of a GeoJSON Feature; a whole number as `id` is taken as its digits."""
    feature = dict(members(given, "feature", "a GeoJSON Feature"))
    id = feature.pop("id", None)
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if not isinstance(id, str) or not id:
        raise ValidationError("id", id, "give every Feature an id: it tells a retry from an event")
    envelope: dict[str, Any] = {"specversion": "1.0", "id": id, "type": EVENT_TYPE}
    envelope["source"] = EVENT_SOURCE
    for name in _OUTSIDE:
        if feature.get(name) is not None:
            envelope[name] = feature[name]
        feature.pop(name, None)
    try:
        return event_from_json(envelope | {"data": feature}, space=space)
    except ValidationError as error:
        raise ValidationError(
            error.field.removeprefix("data."), error.value, error.remedy
        ) from None
