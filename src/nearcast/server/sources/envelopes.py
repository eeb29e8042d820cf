"""What a message says: CloudEvents in structured or binary mode, or whatever HTTP takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearcast.errors import ValidationError
from nearcast.model.events import Event
from nearcast.server.desk import Desk
from nearcast.server.events import read_event, read_events
from nearcast.server.problems import too_large
from nearcast.server.wire import decode

__all__ = ["read", "said"]

_JSON = ("application/json", "application/geo+json", "application/cloudevents")


def said(body: bytes | None, desk: Desk) -> Any:
    """The JSON of a message's body; a NearcastError says what is wrong with it."""
    if body is None:
        raise ValidationError("message", None, "it has no body: send an event")
    if len(body) > desk.settings.max_body:
        raise too_large("message", len(body), desk.settings.max_body, "bytes", "max_body")
    return decode(body, desk.settings.max_depth)


def read(
    attributes: Mapping[str, str], content_type: str | None, body: bytes | None, desk: Desk
) -> list[Event]:
    """The events of a message. `attributes` are those of CloudEvents that stand beside the body.

    With them it is an event in binary mode and the body is its data; without, the body is all.
    """
    if content_type is not None and not content_type.lower().startswith(_JSON):
        raise ValidationError("content-type", content_type[:64], "send JSON")
    value = said(body, desk)
    if "specversion" not in attributes:
        return read_events(value, desk)
    whole = {**attributes, "datacontenttype": content_type or "application/json", "data": value}
    return [read_event(whole, desk.settings.space)]
