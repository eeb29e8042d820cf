"""What a subscription, fence or composite says of where its notifications go, and what is answered.

`sink`, `protocol` and `protocolsettings` are no part of the thing itself: they stand beside it in
the store, and secrets among them are never read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from nearcast.errors import ValidationError
from nearcast.model.codec import delivery_from_json
from nearcast.server.settings import Settings
from nearcast.server.sinks.protocols import PROTOCOLS
from nearcast.storage.sinks import Delivery, Sink, Sinks

__all__ = ["MEMBERS", "completed", "read", "shown"]

MEMBERS = ("sink", "protocol", "protocolsettings")
_LONGEST = 2048


def read(said: Mapping[str, Any], settings: Settings) -> Delivery | None:
    """Where notifications are to go, checked as far as can be without looking anywhere."""
    given = delivery_from_json({name: said[name] for name in MEMBERS if name in said})
    uri = given.get("sink")
    if uri is None:
        for member, value in given.items():
            raise ValidationError(member, value, "name the sink, too, or leave it out")
        return None
    scheme = _scheme(uri)
    by_scheme = {each: one for one in PROTOCOLS.values() for each in one.schemes}
    name: str | None = given.get("protocol")
    if name is None and scheme not in by_scheme:
        raise ValidationError("sink", uri, f"give a URI that begins with {_listed(by_scheme)}")
    if name is not None and name not in PROTOCOLS:
        raise ValidationError("protocol", name, f"choose {_listed(PROTOCOLS)}")
    protocol = by_scheme[scheme] if name is None else PROTOCOLS[name]
    if scheme not in protocol.schemes:
        those = _listed(protocol.schemes)
        raise ValidationError("sink", uri, f"by {protocol.name}, give one that begins with {those}")
    checked = protocol.check(uri, given.get("protocolsettings") or {}, settings)
    return Delivery(protocol.name, uri, checked)


def _scheme(uri: str) -> str:
    if len(uri) > _LONGEST:
        raise ValidationError("sink", uri[:64], f"give a URI of at most {_LONGEST} characters")
    try:
        parts = urlsplit(uri)
        host = parts.hostname
        parts.port  # noqa: B018  # raises where it is no number
    except ValueError as error:
        raise ValidationError("sink", uri, f"give a URI ({error})") from None
    if not uri.isascii() or not uri.isprintable() or " " in uri:
        raise ValidationError("sink", uri, "give a URI in ASCII without spaces, other characters "
                              "as %XX")  # fmt: skip
    if not host:
        raise ValidationError("sink", uri, "give a whole URI such as https://example.org/hook")
    if "%" in host:
        raise ValidationError("sink", uri, "give a host without %, or a public address without a "
                              "zone")  # fmt: skip
    if parts.username is not None or parts.password is not None:
        raise ValidationError(
            "sink", f"{parts.scheme}://…@{host}", "a URI is read back and logged: give names and "
            "passwords in protocolsettings",
        )  # fmt: skip
    return parts.scheme.lower()


def _listed(names: Mapping[str, Any] | tuple[str, ...]) -> str:
    return " or ".join(names)


def completed(
    wanted: Delivery, thing: str, subscriber: str, sinks: Sinks
) -> tuple[Delivery, dict[str, Any]]:
    """The delivery with what it left out of its secrets, and what of that has to be told.

    What is known of the same thing's sink stays, else what another thing of the same subscriber
    sends there by, else something is made up. In the core's thread.
    """
    protocol = PROTOCOLS[wanted.protocol]
    before = sinks.where(thing)
    known = None
    if before is not None and _same(before, wanted, subscriber):
        known = before.settings
    else:
        for sink in sinks.of(subscriber):
            if _same(sink, wanted, subscriber):
                known = sink.settings
                break
    settings, told = protocol.complete(wanted.settings, known)
    return Delivery(wanted.protocol, wanted.uri, settings), told


def _same(sink: Sink, wanted: Delivery, subscriber: str) -> bool:
    place = sink.subscriber, sink.protocol, sink.uri
    return place == (subscriber, wanted.protocol, wanted.uri)


def shown(sink: Sink | None) -> dict[str, Any]:
    """The members that are read back."""
    if sink is None:
        return {}
    settings = PROTOCOLS[sink.protocol].shown(sink.settings)
    said: dict[str, Any] = {"sink": sink.uri, "protocol": sink.protocol}
    return said | ({"protocolsettings": settings} if settings else {})
