"""What only a broker says, as JSON: composites, and the notifications it sends.

Events, subscriptions and fences are written by `nearcast.model.codec`; docs/wire.md shows all.
"""

from __future__ import annotations

from typing import Any, cast

from nearcast.broker.replies import Notification
from nearcast.clock import format_micros
from nearcast.cpsl.composite import Composite, Mode
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import ValidationError
from nearcast.model.codec.config import config_from_json, config_to_json
from nearcast.model.codec.events import event_from_json, event_to_json, time_from_json
from nearcast.model.codec.places import members, refuse_unknown
from nearcast.model.geometry import Space

__all__ = [
    "composite_from_json",
    "composite_to_json",
    "notification_from_json",
    "notification_to_json",
]

_COMPOSITE = ("id", "subscriber", "text", "consume", "config")


def composite_to_json(composite: Composite) -> dict[str, Any]:
    """The composite as an object `json.dumps` takes; what is not set is left out."""
    given: dict[str, Any] = {"id": composite.id}
    if composite.subscriber is not None:
        given["subscriber"] = composite.subscriber
    given |= {"text": composite.text, "consume": composite.consume}
    if config := config_to_json(composite.expires, composite.terms):
        given["config"] = config
    return given


def composite_from_json(given: object) -> Composite:
    """The composite of an object, as `json.loads` gives it."""
    wanted = members(given, "composite", "an object")
    refuse_unknown(wanted, _COMPOSITE, "composite")
    for name in ("id", "text"):
        if not isinstance(wanted.get(name), str):
            raise ValidationError(name, wanted.get(name), "give a string")
    consume = cast(Mode, wanted.get("consume") or "first-matching")
    expires, terms = config_from_json(wanted.get("config"))
    return Composite(
        wanted["id"], wanted.get("subscriber"), wanted["text"], consume, None, expires, terms
    )


def notification_to_json(told: Notification, made: Any = None) -> dict[str, Any]:
    """A notification as an object `json.dumps` takes; what there is nothing to say of is null.

    `event` is a CloudEvent: `made`, where somebody has it at hand. A composite event's `parts`
    stand beside it. Only what is of a digest has the member `digest`.
    """
    event = told.event
    of = {} if told.digest is None else {"digest": told.digest}
    return {
        "seq": told.seq,
        "subscription": told.subscription_id,
        "subscriber": told.subscriber,
        "at": format_micros(told.at),
        "event": event_to_json(event) if made is None else made,
        "transition": told.transition,
        "object": told.object,
        "parts": list(event.parts) if isinstance(event, CompositeEvent) else None,
        **of,
    }


def notification_from_json(given: object, *, space: Space = "globe") -> Notification:
    """The notification of an object, as `json.loads` gives it."""
    said = members(given, "notification", "an object")
    at = time_from_json(said.get("at"), "at")
    if at is None:
        raise ValidationError("at", None, "a notification says when")
    event = event_from_json(said.get("event"), space=space, extensions="ignore")
    parts = said.get("parts")
    if parts is not None:
        event = CompositeEvent(
            event.id, said["subscription"], parts, event.attributes, event.location,
            event.start, event.end, event.expires,
        )  # fmt: skip
    return Notification(
        said["subscription"], said.get("subscriber"), event, at,
        said.get("transition"), said.get("object"), said.get("seq"), said.get("digest"),
    )  # fmt: skip
