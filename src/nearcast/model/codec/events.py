"""Events as JSON: a CloudEvents 1.0 envelope in structured mode, GeoJSON inside.

The envelope's `time` is the event's `end`, its extension `expirytime` the event's `expires`;
`data` is a GeoJSON Feature whose properties are the attributes, with the foreign members
`keywords`, `text` (whose words join the keywords; it is not kept) and `start`. docs/wire.md
shows one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from nearcast.clock import Micros, format_micros, to_micros
from nearcast.errors import BatchError, NearcastError, ValidationError
from nearcast.model.codec.places import (
    location_from_json,
    location_to_json,
    members,
    refuse_unknown,
)
from nearcast.model.events import NO_SOURCE, Event, check_text
from nearcast.model.geometry import Space
from nearcast.model.words import normalise_words

__all__ = [
    "EVENT_SOURCE",
    "EVENT_TYPE",
    "Extensions",
    "event_from_json",
    "event_to_json",
    "events_from_json",
    "events_to_json",
]

#: What the envelope says of an event that names no source, and of its type.
EVENT_SOURCE = NO_SOURCE
EVENT_TYPE = "nearcast.event"

#: What to do with CloudEvents attributes that nearcast has no use for.
Extensions = Literal["refuse", "ignore"]

_ENVELOPE = (
    "specversion",
    "id",
    "source",
    "type",
    "time",
    "datacontenttype",
    "expirytime",
    "data",
)
_FEATURE = ("type", "bbox", "geometry", "properties", "keywords", "text", "start")
_ATTRIBUTE_NAME = re.compile(r"[a-z0-9]+", re.ASCII)
_CONTENT = re.compile(r"application/(geo\+)?json\s*(;.*)?", re.ASCII | re.IGNORECASE | re.DOTALL)
#: Where the fields of an `Event` stand in the envelope.
_PLACES = {
    "attributes": "data.properties",
    "keywords": "data.keywords",
    "text": "data.text",
    "start": "data.start",
    "end": "time",
    "expires": "expirytime",
}


def event_to_json(
    event: Event, source: str | None = None, type: str = EVENT_TYPE
) -> dict[str, Any]:
    """The event as an object `json.dumps` takes; what is not set is left out.

    `source` stands in for the event's own. NaN and the infinities are no JSON: an attribute that
    has one raises a ValidationError.
    """
    feature: dict[str, Any] = {
        "type": "Feature",
        "geometry": None if event.location is None else location_to_json(event.location),
        "properties": {name: _finite(value, name) for name, value in event.attributes.items()},
    }
    if event.keywords:
        feature["keywords"] = sorted(event.keywords)
    if event.start is not None:
        feature["start"] = format_micros(event.start)
    envelope: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.id,
        "source": source or event.source or EVENT_SOURCE,
        "type": type,
        "datacontenttype": "application/geo+json",
    }
    if event.end is not None:
        envelope["time"] = format_micros(event.end)
    if event.expires is not None:
        envelope["expirytime"] = format_micros(event.expires)
    return envelope | {"data": feature}


def event_from_json(
    given: object, *, space: Space = "globe", extensions: Extensions = "refuse"
) -> Event:
    """The event of a CloudEvents object, as `json.loads` gives it.

    `source` and `type` must be there, as CloudEvents asks; `type` is not kept. Any attribute of
    the envelope that nearcast does not use is refused, or, with `extensions="ignore"`, dropped.
    """
    envelope = members(given, "event", "a CloudEvents object")
    _check_envelope(envelope, extensions)
    feature = members(envelope.get("data"), "data", "a GeoJSON Feature")
    refuse_unknown(feature, _FEATURE, "data")
    if feature.get("type") != "Feature":
        raise ValidationError("data.type", feature.get("type"), "give a GeoJSON Feature")
    geometry = feature.get("geometry")
    location = None
    if geometry is not None:
        location = location_from_json(geometry, space, "data.geometry")
    elif feature.get("bbox") is not None:
        raise ValidationError("data.bbox", feature["bbox"], "a place goes into data.geometry")
    try:
        return Event(
            id=envelope.get("id"),  # type: ignore[arg-type]  # the constructor checks it
            attributes=_attributes(feature.get("properties")),
            keywords=words_from_json(feature.get("keywords"), "keywords"),
            location=location,
            text=feature.get("text"),
            start=time_from_json(feature.get("start"), "start"),
            end=time_from_json(envelope.get("time"), "end"),
            expires=time_from_json(envelope.get("expirytime"), "expires"),
            source=envelope["source"],
        )
    except ValidationError as error:
        raise _on_the_wire(error) from None


def events_to_json(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events in CloudEvents' batched mode; an event JSON cannot carry raises a BatchError."""
    return batch(events, event_to_json)


def events_from_json(
    given: object, *, space: Space = "globe", extensions: Extensions = "refuse"
) -> list[Event]:
    """The events of a list of CloudEvents objects; a bad one raises a BatchError with its row."""
    if not isinstance(given, list | tuple):
        raise ValidationError("events", given, "give a list of CloudEvents objects")
    return batch(given, lambda each: event_from_json(each, space=space, extensions=extensions))


def batch(rows: Iterable[Any], convert: Any) -> list[Any]:
    """Every row converted; the first that cannot be raises a BatchError."""
    converted = []
    for row, each in enumerate(rows):
        try:
            converted.append(convert(each))
        except NearcastError as error:
            raise BatchError(row, error) from error
    return converted


def _check_envelope(envelope: Mapping[str, Any], extensions: Extensions) -> None:
    version = envelope.get("specversion")
    if version != "1.0":
        raise ValidationError("specversion", version, 'give a CloudEvents object of version "1.0"')
    for name in ("source", "type"):
        text = envelope.get(name)
        if not isinstance(text, str) or not text:
            raise ValidationError(name, text, "CloudEvents asks for a non-empty string")
        check_text(text, name)
    content = envelope.get("datacontenttype")
    if content is not None and not (isinstance(content, str) and _CONTENT.fullmatch(content)):
        raise ValidationError("datacontenttype", content, "send application/geo+json")
    if "data_base64" in envelope:
        raise ValidationError("data_base64", envelope["data_base64"], "send data as JSON")
    for name in envelope:
        if name in _ENVELOPE:
            continue
        if not isinstance(name, str) or not _ATTRIBUTE_NAME.fullmatch(name):
            raise ValidationError(
                str(name), envelope[name], "CloudEvents attributes have lower-case names"
            )
        if extensions != "ignore":
            raise ValidationError(
                name,
                envelope[name],
                "nearcast does not keep it: leave it out, or ignore extensions",
            )


def _attributes(given: object) -> dict[str, Any]:
    if given is None:
        return {}
    properties = members(given, "attributes", "an object of attributes")
    return {name: _finite(value, name) for name, value in properties.items()}


def _finite(value: Any, name: object) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValidationError(
            f"attributes[{name!r}]",
            value,
            "JSON has no NaN and no infinity: leave it out or use Arrow",
        )
    return value


def words_from_json(given: object, field: str) -> frozenset[str]:
    """Keywords from a list of strings; none from null."""
    if given is not None and not isinstance(given, list | tuple):
        raise ValidationError(field, given, "give a list of strings")
    return normalise_words(given)


def time_from_json(given: object, field: str) -> Micros | None:
    """An instant from RFC 3339 text; null stays None, and numbers are refused as ambiguous."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise ValidationError(field, given, "write RFC 3339 with a zone: 2026-03-01T12:00:00Z")
    return to_micros(given, field)


def _on_the_wire(error: ValidationError) -> ValidationError:
    """The error of a field, named as the sender knows it."""
    for field, place in _PLACES.items():
        if error.field == field or error.field.startswith(f"{field}["):
            return ValidationError(place + error.field[len(field) :], error.value, error.remedy)
    return error
