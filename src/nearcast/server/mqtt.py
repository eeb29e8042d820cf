"""A server's MQTT broker: its address, its topics, and how its clients are set up.

A server is a client of one broker, by MQTT 5. Its topics are PREFIX/TENANT/…, with `default` for
the tenant that has no name; what stands for a level is written as in URLs where a level cannot
have it.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from nearcast.errors import MissingExtraError, ValidationError

if TYPE_CHECKING:
    from nearcast.server.settings import Settings

__all__ = [
    "KEEPALIVE_S", "Place", "check", "client", "level", "place_of", "properties", "tenant_level",
    "tenant_of", "text_of",
]  # fmt: skip

_PORTS = {"mqtt": 1883, "mqtts": 8883}
_DEFAULT = "default"
#: What may stand in a level as it is: everything but its ends and wildcards, and what we use.
_PLAIN = "".join(chr(each) for each in range(0x21, 0x7F) if chr(each) not in "/+#%")
KEEPALIVE_S = 30


class Place(NamedTuple):
    """Where a broker is."""

    host: str
    port: int
    secure: bool


def place_of(url: str, field: str = "mqtt") -> Place:
    """From `mqtt://host[:port]` or `mqtts://…`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValidationError(field, url, "give mqtt://host:port") from None
    if parts.password is not None or parts.username is not None:
        raise ValidationError(field, f"{parts.scheme}://…", "give names and passwords by mqtt_user "
                              "and mqtt_password: a URL is shown")  # fmt: skip
    bare = not (parts.path.strip("/") or parts.query or parts.fragment)
    if parts.scheme not in _PORTS or not parts.hostname or not bare:
        raise ValidationError(field, url, "give mqtt://host:port, or mqtts:// for TLS")
    return Place(parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "mqtts")


def check(settings: Settings) -> None:
    """Refuse what cannot be meant."""
    prefix = settings.mqtt_prefix
    if not prefix or set(prefix) & set("+#\0") or prefix.strip("/") != prefix:
        raise ValidationError("mqtt_prefix", prefix, "give the first levels of topics: nearcast")
    if settings.mqtt:
        place_of(settings.mqtt)


def level(text: str) -> str:
    """A text as a level of a topic."""
    return quote(text, safe=_PLAIN)


def text_of(level: str) -> str:
    """What a level says."""
    return unquote(level)


def tenant_level(tenant: str) -> str:
    """The level that stands for a tenant; of one that is called as ours is, it is written apart."""
    if tenant == _DEFAULT:
        return f"%{ord(tenant[0]):02X}{tenant[1:]}"
    return level(tenant) if tenant else _DEFAULT


def tenant_of(level: str) -> str:
    """The tenant of a level."""
    return "" if level == _DEFAULT else text_of(level)


def client(settings: Settings, id: str, **more: Any) -> Any:
    """A client of paho's, set up and not connected."""
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
    except ImportError:
        raise MissingExtraError("paho-mqtt", "mqtt") from None
    made = Client(CallbackAPIVersion.VERSION2, id, protocol=MQTTProtocolVersion.MQTTv5, **more)
    made.max_inflight_messages_set(0)
    if settings.mqtt_user:
        made.username_pw_set(settings.mqtt_user, settings.mqtt_password or None)
    if place_of(settings.mqtt).secure:
        made.tls_set_context(trusting(settings))
    return made


def properties(packet: str, **values: Any) -> Any:
    """What a packet says beside the rest, by the names that MQTT 5 has."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    made: Any = Properties(getattr(PacketTypes, packet))  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made


def trusting(settings: Settings) -> ssl.SSLContext:
    """Whom a client trusts: the system's authorities, or those of a file."""
    try:
        return ssl.create_default_context(cafile=settings.mqtt_ca or None)
    except OSError as error:
        there = Path(settings.mqtt_ca).is_file()
        raise ValidationError(
            "mqtt_ca", settings.mqtt_ca, "give a file of certificates in PEM"
            f" ({error if there else 'it is not there'})",
        ) from None  # fmt: skip
