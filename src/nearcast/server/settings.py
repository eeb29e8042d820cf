"""How a server is run: defaults, a file, the environment, flags; the later counts."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from nearcast.errors import ValidationError
from nearcast.model.geometry import Space
from nearcast.server import kafka, mqtt
from nearcast.server.sinks.addresses import networks
from nearcast.storage.urls import shown as shown_url

__all__ = ["Origins", "Settings", "describe", "gather", "tiles_origin"]

_PREFIX = "NEARCAST_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")
#: What `describe` does not show.
_SECRET = frozenset({"kafka", "mqtt_password"})
#: A host, and maybe a port: nothing that would say more in a Content-Security-Policy.
_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?")
#: Where each setting comes from.
Origins = dict[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Bounds have names, and each says what is refused beyond it."""

    store: str = "sqlite:///nearcast.db"
    host: str = "127.0.0.1"
    port: int = 8642
    advertise: str = ""
    """Where other servers on its store say that this one is; by itself: http://host:port."""
    space: Space = "globe"
    demo: bool = False
    """Let a city live in it."""
    demo_people: int = 2000
    """How many walk there, each with a WebSocket."""
    base: str = ""
    """A GeoJSON file that is drawn under the map."""
    tiles: str = ""
    """Pictures under the map from somebody else's server: a URL with {z}, {x} and {y} in it."""
    tiles_credit: str = ""
    """Whose they are, as their terms ask to say on the map."""
    safe_region: str = "disc"
    lateness_s: float = 0.0
    """How late events may come; 0: matched however late, and patterns wait for nobody."""
    tick_s: float = 0.25
    """How often time moves on by itself."""
    queue_s: float = 1.0
    """Beyond this much work in front of the core: 429."""
    queue_calls: int = 20_000
    """Beyond this many calls in front of the core: 429."""
    poll_s: float = 60.0
    """The longest `wait` of a pull."""
    max_body: int = 8 * 1024 * 1024
    """Bytes of a request or frame: 413."""
    max_batch: int = 10_000
    """Events of one request: 413."""
    max_depth: int = 64
    """Nesting of what is sent: 400."""
    max_filter: int = 16_384
    """Characters of a filter or pattern: 413."""
    max_things: int = 10_000
    """Subscriptions, fences and composites of one subscriber's key: 429."""
    max_connections: int = 16_000
    """Open connections, as far as the system gives so many descriptors: 429."""
    max_head: int = 65_536
    """Bytes of a request before its body: 431."""
    head_s: float = 20.0
    """How long these may take to come: 408."""
    body_s: float = 60.0
    """How long a whole request may take to come: 408."""
    max_streams: int = 10_000
    """Open streams and sockets: 429."""
    rate: float = 0.0
    """Requests a second of one key, with bursts of as many again: 429; 0 is no limit."""
    tenant_rate: float = 0.0
    """Requests and frames a second of one tenant, with bursts of as many again: 429; 0: any."""
    tenant_share: float = 1.0
    """How much of the queue one tenant may fill: 429."""
    tenant_things: int = 0
    """Subscriptions, fences and composites of one tenant: 429; 0: any number."""
    tenant_events: int = 0
    """Live events of one tenant: 429; 0: any number."""
    tenant_streams: int = 0
    """Open streams and sockets of one tenant: 429; 0: any number."""
    send_buffer: int = 32_768
    """Bytes that the system holds for a client that does not read."""
    tail_bytes: int = 32_768
    """Bytes of notifications kept in memory for a connected subscriber; older ones are on disk."""
    page_bytes: int = 1_048_576
    """Bytes of one page, which then has fewer than `limit`; one is always on it."""
    sink_private: bool = False
    """Whether sinks may be at private addresses: loopback, link-local, a company's own."""
    sink_allow: str = ""
    """Networks and addresses that sinks may be at all the same: 10.0.0.0/8, 192.168.7.2."""
    sink_flight: int = 64
    """How many notifications may be on their way to one sink, where it asks for more than one."""
    sink_flights: int = 1024
    """How many to all sinks together; of one subscriber up to a fifth. Others wait for a turn."""
    sink_queue: int = 1000
    """Notifications in memory for one sink; what is beyond is read from the store later."""
    sink_timeout_s: float = 15.0
    """How long one try may take, all of it."""
    sink_attempts: int = 16
    """How often a notification is tried before it is a dead letter."""
    sink_backoff_s: float = 2.0
    """After a failure a sink rests for up to this, after each further one for up to twice that …"""
    sink_backoff_max_s: float = 3 * 3600.0
    """… but no longer than this."""
    sink_circuit: int = 5
    """After so many failures one behind the other nothing but one at a time is tried there."""
    sink_patience_s: float = 3 * 24 * 3600.0
    """What waits longer than this for a sink that has failed as long is a dead letter."""
    sink_letters: int = 100_000
    """Dead letters of one tenant; beyond, the oldest go."""
    kafka_servers: str = ""
    """The server's Kafka: host:port, several with commas."""
    kafka_in: str = ""
    """Topics whose messages are events: offers, parcels@acme for a tenant's."""
    kafka_out: str = ""
    """Topics that subscriptions may have their notifications sent to: alerts, offers-*."""
    kafka_group: str = "nearcast"
    """The consumer group under which Kafka is told how far topics were read."""
    kafka_positions: str = "nearcast-positions"
    """The topic that says how far notifications were sent; made if it is not there."""
    kafka_batch: int = 500
    """Messages of one commit."""
    kafka: str = field(default="", repr=False)
    """What librdkafka needs beside the address, as JSON or the name of a file; never shown."""
    mqtt: str = ""
    """The server's MQTT broker: mqtt://host:port, or mqtts:// for TLS."""
    mqtt_user: str = ""
    mqtt_password: str = field(default="", repr=False)
    """Never shown."""
    mqtt_ca: str = ""
    """Certificates of whom to trust, in PEM; by itself those of the system."""
    mqtt_prefix: str = "nearcast"
    """The first levels of all topics, but OwnTracks'."""
    mqtt_id: str = ""
    """The id of the server's client, and of its session; by itself one of the store's own."""
    mqtt_owntracks: bool = False
    """Whether owntracks/USER/DEVICE is read, too, for the default tenant."""
    mqtt_session_s: float = 7 * 24 * 3600.0
    """How long the broker keeps what comes while the server is away."""
    mqtt_position_s: float = 3600.0
    """How long a position is live that does not say itself when it expires."""
    mqtt_batch: int = 500
    """Messages of one commit."""
    retention_s: float = 7 * 24 * 3600.0
    retention_bytes: int = 0
    """Size of the store beyond which the oldest go; 0 is no limit."""
    stop_s: float = 5.0
    """How long connections may take to end when the server stops."""
    log: str = "info"
    log_format: str = ""
    """console or json; by itself: console on a terminal."""

    def __post_init__(self) -> None:
        if self.space not in get_args(Space):
            raise ValidationError("space", self.space, "choose globe or planar")
        if not 0 <= self.port <= 65535:
            raise ValidationError("port", self.port, "give 0 to 65535; 0 is any that is free")
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int | float) and not value >= 0:
                raise ValidationError(each.name, value, "give a number that is not negative")
        for name in (
            "tick_s", "max_body", "max_batch", "max_depth", "tail_bytes", "queue_calls",
            "max_connections", "max_head", "head_s", "body_s", "page_bytes", "sink_flight",
            "sink_flights", "sink_queue", "sink_timeout_s", "sink_attempts", "sink_circuit",
            "kafka_batch", "mqtt_batch",
        ):  # fmt: skip
            if not getattr(self, name):
                raise ValidationError(name, getattr(self, name), "give more than nothing")
        if self.log not in ("debug", "info", "warning", "error"):
            raise ValidationError("log", self.log, "choose debug, info, warning or error")
        networks(self.sink_allow)
        kafka.check(self)
        mqtt.check(self)
        if self.tiles:
            tiles_origin(self.tiles)
        if self.log_format not in ("", "console", "json"):
            raise ValidationError("log_format", self.log_format, "choose console or json")


def tiles_origin(url: str) -> str:
    """Scheme and host of a tile server's URL, for the page to be allowed to ask it."""
    parts = urlsplit(url)
    good = parts.scheme in ("http", "https") and _HOST.fullmatch(parts.netloc)
    if not good or not all(url.count(each) == 1 for each in ("{z}", "{x}", "{y}")):
        remedy = "give a URL as in https://tiles.example.org/{z}/{x}/{y}.png"
        raise ValidationError("tiles", url, remedy)
    return f"{parts.scheme}://{parts.netloc}"


def gather(
    flags: Mapping[str, Any], file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Settings, Origins]:  # fmt: skip
    """Settings from all that is said, and who said each. A flag that is None says nothing."""
    known = {each.name: each for each in fields(Settings)}
    values: dict[str, Any] = {}
    origins: Origins = dict.fromkeys(known, "default")
    path = file if file is not None else environment.get(f"{_PREFIX}CONFIG")
    if path:
        for name, value in _read(Path(path)).items():
            if name not in known:
                raise ValidationError(name, value, f"{path} may set {', '.join(sorted(known))}")
            values[name], origins[name] = _typed(name, value, known[name].default), str(path)
    for name, each in known.items():
        said = environment.get(_PREFIX + name.upper())
        if said is not None:
            values[name] = _typed(_PREFIX + name.upper(), said, each.default)
            origins[name] = _PREFIX + name.upper()
    for name, value in flags.items():
        if value is not None:
            values[name], origins[name] = _typed(name, value, known[name].default), "flag"
    return Settings(**values), origins


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValidationError("config", str(path), f"mend the TOML ({error})") from None


def _typed(name: str, value: Any, like: Any) -> Any:
    """A value of the type that the default has; text is read."""
    kind = type(like)
    if kind is bool:
        said = str(value).lower()
        if said in _TRUE or said in _FALSE:
            return said in _TRUE
        raise ValidationError(name, value, "give true or false")
    if kind is str:
        if isinstance(value, str):
            return value
        shown = "…" if name.removeprefix(_PREFIX).lower() in _SECRET else value
        raise ValidationError(name, shown, "give text")
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        return kind(value)
    except ValueError:
        whole = "a whole number" if kind is int else "a number"
        raise ValidationError(name, value, f"give {whole}") from None


def describe(settings: Settings, origins: Origins) -> str:
    """All settings but secrets as a file that `gather` reads, each with where it comes from."""
    lines = []
    for each in fields(settings):
        value = getattr(settings, each.name)
        if each.name in _SECRET and value:
            lines.append(
                f"# {each.name} is set, and not shown".ljust(44) + f"# {origins[each.name]}"
            )
            continue
        if isinstance(value, bool):
            shown = str(value).lower()
        elif isinstance(value, str):
            if each.name == "store":
                value = shown_url(value)
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            shown = f'"{escaped}"'
        else:
            shown = repr(value)
        lines.append(f"{each.name} = {shown}".ljust(44) + f"# {origins[each.name]}")
    return "\n".join(lines)
