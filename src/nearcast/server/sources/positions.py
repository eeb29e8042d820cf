"""Positions that devices send: a place, when, and whatever else they say, as an event.

Its id is made of what it says, so that a message that comes twice is taken once, if it says when.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from secrets import token_hex
from typing import Any

from nearcast.clock import LATEST, Micros, format_micros, to_micros
from nearcast.errors import ValidationError
from nearcast.model.codec import event_from_json
from nearcast.model.codec.events import EVENT_SOURCE
from nearcast.model.events import Event
from nearcast.model.geometry import Space

__all__ = ["Report", "owntracks", "position"]

_PLAIN = ("lon", "lat", "time", "expires", "keywords", "text")
#: Of OwnTracks' messages: what is not an attribute.
_OWNTRACKS = ("_type", "_id", "lat", "lon", "tst", "inregions")
_SCALARS = (str, int, float, bool)


class Report:
    """What is known of a message beside what it says: the object it is of, its bytes, the time."""

    def __init__(self, name: str, body: bytes, now: Micros, hold_s: float, space: Space) -> None:
        self._name = name
        self._body = body
        self._now = now
        self._hold_s = hold_s
        self._space = space

    def event(
        self, lon: Any, lat: Any, time: Any, expires: Any, attributes: Mapping[str, Any],
        keywords: Any = None, text: Any = None,
    ) -> Event:  # fmt: skip
        """The position; what is wrong with it is a ValidationError."""
        at = self._now if time is None else to_micros(time, "time")
        once = token_hex(8) if time is None else blake2b(self._body, digest_size=8).hexdigest()
        if expires is None:
            until = at + round(self._hold_s * 1e6)
            if until > LATEST:
                raise ValidationError("time", time, "it is live beyond the year 9999: give an "
                                      "earlier one, or say when it expires")  # fmt: skip
            expires = format_micros(until)
        feature = {
            "type": "Feature", "geometry": {"type": "Point", "coordinates": [lon, lat]},
            "properties": attributes, "keywords": keywords, "text": text,
        }  # fmt: skip
        return event_from_json(
            {
                "specversion": "1.0", "id": f"{self._name}/{once}", "source": EVENT_SOURCE,
                "type": "position", "time": format_micros(at), "expirytime": expires,
                "data": {name: value for name, value in feature.items() if value is not None},
            },
            space=self._space,
        )  # fmt: skip


def position(said: Any, attribute: str, object: str, report: Report) -> Event:
    """One of ours: `{"lon", "lat", "time", …}`, or a GeoJSON Feature with a Point."""
    if not isinstance(said, dict):
        raise ValidationError("position", said, 'send an object: {"lon": 8.5, "lat": 47.4, …}')
    if said.get("type") == "Feature":
        geometry, properties = said.get("geometry"), said.get("properties") or {}
        if not isinstance(geometry, dict) or geometry.get("type") != "Point":
            raise ValidationError("geometry", geometry, "a position is a Point")
        if not isinstance(properties, dict):
            raise ValidationError("properties", properties, "give an object")
        place = geometry.get("coordinates")
        if not isinstance(place, list) or len(place) < 2:
            raise ValidationError("coordinates", place, "give [lon, lat]")
        lon, lat = place[:2]
        rest = {**properties, "keywords": said.get("keywords"), "text": said.get("text")}
    else:
        lon, lat, rest = said.get("lon"), said.get("lat"), said
    attributes = {name: value for name, value in rest.items() if name not in _PLAIN}
    return report.event(
        lon, lat, rest.get("time"), rest.get("expires"), attributes | {attribute: object},
        rest.get("keywords"), rest.get("text"),
    )  # fmt: skip


def owntracks(said: Mapping[str, Any], user: str, device: str, report: Report) -> Event:
    """A location of OwnTracks' app: its scalars are attributes, the regions it is in keywords."""
    tst = said.get("tst")
    attributes = {
        name: value
        for name, value in said.items()
        if name not in _OWNTRACKS and isinstance(value, _SCALARS)
    }
    attributes |= {"user": user, "device": f"{user}/{device}"}
    regions = said.get("inregions") or []
    if not isinstance(regions, list):
        raise ValidationError("inregions", regions, "give a list of names")
    keywords = [each for each in regions if isinstance(each, str)] or None
    time = None if tst is None else _seconds(tst)
    return report.event(said.get("lon"), said.get("lat"), time, None, attributes, keywords)


def _seconds(tst: Any) -> Micros:
    """When that is, in seconds since 1970."""
    if isinstance(tst, bool) or not isinstance(tst, int | float):
        raise ValidationError("tst", tst, "give seconds since 1970")
    try:
        return to_micros(round(tst * 1_000_000), "tst")
    except OverflowError:
        raise ValidationError("tst", tst, "give seconds since 1970") from None
