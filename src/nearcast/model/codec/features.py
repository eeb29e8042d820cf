"""Events as GeoJSON Features: the same members as in CloudEvents, on one level.

A Feature's `id` is the event's, its properties the attributes; `source`, `time` (the event's
`end`), `expirytime` (its `expires`), `start`, `keywords` and `text` are foreign members.
docs/wire.md shows one.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from nearcast.errors import ValidationError
from nearcast.model.codec.events import EVENT_SOURCE, EVENT_TYPE, event_from_json, event_to_json
from nearcast.model.codec.places import members
from nearcast.model.events import Event
from nearcast.model.geometry import Point, Space, check_space

__all__ = ["feature_from_json", "feature_to_json"]

_OUTSIDE = ("source", "time", "expirytime")
_PLAIN = {"type", "id", "geometry", "properties", *_OUTSIDE}


def _plain(feature: dict[str, Any], space: Space) -> Event | None:
    """The event of a Feature as most are: at a point, with attributes and times, no more.

    None if it is another, or something is wrong with it. Half the time of looking at everything.
    """
    id, geometry, said = feature.get("id"), feature.get("geometry"), feature.get("properties")
    if type(id) is not str or type(geometry) is not dict or type(said) is not dict:
        return None
    at = geometry.get("coordinates")
    if len(geometry) != 2 or geometry.get("type") != "Point" or type(at) is not list:
        return None
    if feature.get("type") != "Feature" or len(at) != 2:
        return None
    end, expires = feature.get("time"), feature.get("expirytime")
    for time in (end, expires):
        if time is not None and type(time) is not str:
            return None
    for value in said.values():
        if type(value) is float and not isfinite(value):
            return None
    try:
        place = Point(*at)
        check_space(place, space, "geometry")
        return Event(id, said, (), place, None, end, expires, source=feature.get("source"))
    except ValidationError:
        return None


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
    if type(given) is dict and given.keys() <= _PLAIN:
        event = _plain(given, space)
        if event is not None:
            return event
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
