"""Events, subscriptions and fences as GeoJSON Features: the members they have as JSON elsewhere.

An event: a Feature's `id` is the event's, its properties the attributes; `source`, `time` (the
event's `end`), `expirytime` (its `expires`), `start`, `keywords` and `text` are foreign members.
A subscription or fence: the geometry is its region, its properties are all else; of a circle
the geometry is the centre and `radius_m` a property, and a region that follows is `region`.
docs/wire.md shows them.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from nearcast.errors import ValidationError
from nearcast.model.codec.events import EVENT_SOURCE, EVENT_TYPE, event_from_json, event_to_json
from nearcast.model.codec.fences import fence_from_json, fence_to_json
from nearcast.model.codec.places import members, refuse_unknown
from nearcast.model.codec.subscriptions import subscription_from_json, subscription_to_json
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Point, Space, check_space
from nearcast.model.subscriptions import Subscription

__all__ = [
    "feature_from_json",
    "feature_to_json",
    "fence_from_feature",
    "fence_to_feature",
    "subscription_from_feature",
    "subscription_to_feature",
]

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


# --- subscriptions and fences ---------------------------------------------------------------


def subscription_to_feature(subscription: Subscription) -> dict[str, Any]:
    """The subscription as a GeoJSON Feature, to be seen on a map."""
    return _feature_of(subscription_to_json(subscription))


def subscription_from_feature(given: object, *, space: Space = "globe") -> Subscription:
    """The subscription of a Feature; a whole number as `id` is taken as its digits."""
    return subscription_from_json(_said_by(given), space=space)


def fence_to_feature(fence: Fence) -> dict[str, Any]:
    """The fence as a GeoJSON Feature."""
    return _feature_of(fence_to_json(fence))


def fence_from_feature(given: object, *, space: Space = "globe") -> Fence:
    """The fence of a Feature."""
    return fence_from_json(_said_by(given), space=space)


def _feature_of(said: dict[str, Any]) -> dict[str, Any]:
    id, region = said.pop("id"), said.pop("region", None)
    said.pop("types", None)  # there is one
    kind = None if region is None else region["type"]
    geometry = None
    if kind == "Circle":
        geometry = {"type": "Point", "coordinates": region["coordinates"]}
        said["radius_m"] = region["radius_m"]
    elif kind == "Around":
        said["region"] = region
    elif kind is not None:
        geometry = region
    return {"type": "Feature", "id": id, "geometry": geometry, "properties": said}


def _said_by(given: object) -> dict[str, Any]:
    """A Feature as the JSON of a thing."""
    feature = members(given, "feature", "a GeoJSON Feature")
    refuse_unknown(feature, ("type", "id", "geometry", "properties", "bbox"), "")
    if feature.get("type") != "Feature":
        raise ValidationError("type", feature.get("type"), 'give "Feature"')
    properties = feature.get("properties")
    said = {} if properties is None else dict(members(properties, "properties", "an object"))
    if said.get("id", feature.get("id")) != feature.get("id"):
        raise ValidationError("properties.id", said["id"], "a Feature has its id beside `type`")
    id = feature.get("id")
    said["id"] = str(id) if isinstance(id, int) and not isinstance(id, bool) else id
    geometry, radius_m = feature.get("geometry"), said.pop("radius_m", None)
    if geometry is None and radius_m is None:
        return said
    if said.get("region") is not None:
        raise ValidationError(
            "properties.region", said["region"], "it has a geometry: leave it out"
        )
    place = members(geometry, "geometry", "a GeoJSON geometry")
    kind = place.get("type")
    if kind != "Point" and radius_m is None:
        return said | {"region": place}
    if kind != "Point" or radius_m is None:
        raise ValidationError(
            "properties.radius_m",
            radius_m,
            "a circle is a Point and its radius_m; others have none",
        )
    circle = {"type": "Circle", "coordinates": place.get("coordinates"), "radius_m": radius_m}
    return said | {"region": circle}
