"""JSON in and out of the server: bytes, values, and what is refused before it is looked at."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import msgspec

from nearcast.broker.replies import Notification
from nearcast.broker.wire import notification_to_json
from nearcast.clock import Micros
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.codec import event_to_json
from nearcast.model.events import Event
from nearcast.server.problems import Problem, malformed

__all__ = [
    "Texts",
    "decode",
    "encode",
    "event_json",
    "event_text",
    "fitting",
    "number",
    "region_text",
    "sayable",
    "whole",
]

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_BYTE = re.compile(r"\(byte (\d+)\)")


def decode(body: bytes, max_depth: int) -> Any:
    """What a body says; a Problem if it cannot be read or is nested too deeply."""
    if not body:
        raise malformed("the body is empty", "send JSON")
    try:
        value = _decode(body)
    except RecursionError:
        raise too_deep(max_depth) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        at = _BYTE.search(str(error))
        place = {} if at is None else {"byte": int(at[1])}
        raise Problem(400, f"the body is no JSON: {error}", remedy="send JSON in UTF-8",
                      more=place) from None  # fmt: skip
    if body.count(b"{") + body.count(b"[") > max_depth:  # else it cannot be
        _check_depth(value, max_depth)
    return value


def _check_depth(value: Any, most: int) -> None:
    """That nothing in it is nested deeper, read by anybody or not. O(what is in it)."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        level = [
            part
            for each in level
            for part in (each.values() if type(each) is dict else each)
            if type(part) is dict or type(part) is list
        ]
        if not level:
            return
    raise too_deep(most)


def too_deep(most: int) -> Problem:
    """400: nested without end."""
    return malformed(f"the body is nested more than {most} deep", "send something flatter")


def sayable(event: Event) -> Event:
    """The event without what JSON cannot say: NaN and infinities, which other doors let in."""
    odd = [n for n, v in event.attributes.items() if isinstance(v, float) and not isfinite(v)]
    if not odd:
        return event
    said = {name: value for name, value in event.attributes.items() if name not in odd}
    times = event.start, event.end, event.expires
    return Event(event.id, said, event.keywords, event.location, *times, source=event.source)


def event_json(event: Event) -> dict[str, Any]:
    """An event as a CloudEvent, as far as JSON can say it."""
    return event_to_json(sayable(event))


def event_text(event: Event) -> msgspec.Raw:
    """The same as text, once for all who hear of it."""
    return msgspec.Raw(encode(event_json(event)))


class Texts:
    """Notifications as JSON. What those of one event have in common is written once.

    2 µs each and 20 an event, where making an object of each and writing that takes 8.
    """

    def __init__(self) -> None:
        self._events: dict[int, tuple[Event, msgspec.Raw]] = {}
        """By identity; the event stays there, lest another take its place in memory."""
        self._ends: dict[tuple[int, Micros], bytes] = {}
        """What follows the subscriber, by event and time."""

    def of(self, told: Notification) -> bytes:
        """The text of one, as `notification_to_json` has it."""
        thing, subscriber, event, at, transition, _, seq, digest = told
        if transition is not None or seq is None or digest is not None:
            return encode(notification_to_json(told, self._event(event)))
        end = self._ends.get((id(event), at))
        if end is None:
            whole = encode(notification_to_json(told, self._event(event)))
            end = self._ends[id(event), at] = whole[whole.index(b',"at":') :]
        return b'{"seq":%d,"subscription":%b,"subscriber":%b%b' % (
            seq, encode(thing), encode(subscriber), end
        )  # fmt: skip

    def _event(self, event: Event) -> msgspec.Raw:
        known = self._events.get(id(event))
        if known is None:
            known = self._events[id(event)] = event, event_text(event)
        return known[1]


def fitting(texts: Iterable[bytes], most_bytes: int) -> list[bytes]:
    """As many as fit, and always the first one. O(those)."""
    found: list[bytes] = []
    for text in texts:
        most_bytes -= len(text)
        if most_bytes < 0 and found:
            break
        found.append(text)
    return found


def region_text(region: SafeRegion) -> str:
    """The bytes of a safe region in base64."""
    return b64encode(region.encode()).decode()


def number(given: Mapping[str, str], name: str, default: float, *, least: float = 0) -> float:
    """A number of a query; 400 if it is none."""
    said = given.get(name)
    if said is None:
        return default
    try:
        found = float(said)
        if not least <= found < 2**62:
            raise ValueError
    except ValueError:
        raise malformed(
            f"{name} is no number of at least {least:g}", "give a number", name, said
        ) from None
    return found


def whole(given: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    """A whole number of a query; 400 if it is none."""
    said = given.get(name)
    if said is None:
        return default
    if not said.isascii() or not said.isdigit() or len(said) > 18 or int(said) < least:
        raise malformed(f"{name} is no whole number of at least {least}", "give digits", name, said)
    return int(said)
