"""The member `config` of what is subscribed to: when it ends, and on what terms one is told.

The words are those of the CloudEvents Subscriptions API and of CAMARA, where they have one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from nearcast.clock import Micros, format_micros
from nearcast.errors import ValidationError
from nearcast.model.codec.events import time_from_json
from nearcast.model.codec.places import members, refuse_unknown
from nearcast.model.durations import format_seconds
from nearcast.model.terms import QuietHours, Terms

__all__ = ["config_from_json", "config_to_json"]

_EXPIRY, _MOST, _INITIAL = "subscriptionExpireTime", "subscriptionMaxEvents", "initialEvent"
_QUIET, _DIGEST, _PAUSED = "quietHours", "digest", "whilePaused"
_MEMBERS = (_EXPIRY, _MOST, _INITIAL, _QUIET, _DIGEST, _PAUSED)
_HOURS = ("start", "end", "zone", "keep")
#: How `Terms` and `QuietHours` call what is refused, and how this does.
_SAID = {
    "max_events": _MOST, "initial_event": _INITIAL, "digest": _DIGEST, "while_paused": _PAUSED,
    **{f"quiet_hours.{name}": f"{_QUIET}.{name}" for name in _HOURS},
}  # fmt: skip


def config_to_json(expires: Micros | None, terms: Terms | None) -> dict[str, Any]:
    """The member as an object `json.dumps` takes; what is not set is left out."""
    given: dict[str, Any] = {}
    if expires is not None:
        given[_EXPIRY] = format_micros(expires)
    if terms is None:
        return given
    if terms.max_events is not None:
        given[_MOST] = terms.max_events
    if not terms.initial_event:
        given[_INITIAL] = False
    quiet = terms.quiet_hours
    if quiet is not None:
        given[_QUIET] = {name: getattr(quiet, name) for name in _HOURS}
    if terms.digest is not None:
        given[_DIGEST] = f"PT{format_seconds(terms.digest // timedelta(microseconds=1))}S"
    if terms.while_paused != "drop":
        given[_PAUSED] = terms.while_paused
    return given


def config_from_json(given: object) -> tuple[Micros | None, Terms | None]:
    """When something ends, and its terms if it has any."""
    if given is None:
        return None, None
    config = members(given, "config", "an object")
    refuse_unknown(config, _MEMBERS, "config")
    expires = time_from_json(config.get(_EXPIRY), f"config.{_EXPIRY}")
    said = {name: value for name, value in config.items() if value is not None}
    said.pop(_EXPIRY, None)
    if not said:
        return expires, None
    try:
        terms = Terms(
            initial_event=said.get(_INITIAL, True),
            max_events=said.get(_MOST),
            quiet_hours=_quiet(said.get(_QUIET)),
            digest=said.get(_DIGEST),
            while_paused=said.get(_PAUSED, "drop"),
        )
    except ValidationError as error:
        name = _SAID.get(error.field)
        if name is None:
            raise
        raise ValidationError(f"config.{name}", error.value, error.remedy) from None
    return expires, terms


def _quiet(given: object) -> QuietHours | None:
    if given is None:
        return None
    said = members(given, f"config.{_QUIET}", "an object with start, end and zone")
    refuse_unknown(said, _HOURS, f"config.{_QUIET}")
    return QuietHours(
        said.get("start"),  # type: ignore[arg-type]  # the constructor checks it
        said.get("end"),  # type: ignore[arg-type]
        said.get("zone", "UTC"),
        said.get("keep", True),
    )
