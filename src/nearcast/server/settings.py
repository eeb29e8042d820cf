"""How a server is run: defaults, a file, the environment, flags; the later counts."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from nearcast.errors import ValidationError
from nearcast.model.geometry import Space

__all__ = ["Origins", "Settings", "describe", "gather"]

_PREFIX = "NEARCAST_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")
#: Where each setting comes from.
Origins = dict[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. Bounds have names, and each says what is refused beyond it."""

    store: str = "sqlite:///nearcast.db"
    host: str = "127.0.0.1"
    port: int = 8642
    space: Space = "globe"
    demo: bool = False
    """Feed the demo's city into it."""
    base: str = ""
    """A GeoJSON file drawn under the map."""
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
    send_buffer: int = 32_768
    """Bytes that the system holds for a client that does not read."""
    tail_bytes: int = 32_768
    """Bytes of notifications kept in memory for a connected subscriber; older ones are on disk."""
    page_bytes: int = 1_048_576
    """Bytes of one page, which then has fewer than `limit`; one is always on it."""
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
            "max_connections", "max_head", "head_s", "body_s", "page_bytes",
        ):  # fmt: skip
            if not getattr(self, name):
                raise ValidationError(name, getattr(self, name), "give more than nothing")
        if self.log not in ("debug", "info", "warning", "error"):
            raise ValidationError("log", self.log, "choose debug, info, warning or error")
        if self.log_format not in ("", "console", "json"):
            raise ValidationError("log_format", self.log_format, "choose console or json")


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
        raise ValidationError(name, value, "give text")
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        return kind(value)
    except ValueError:
        whole = "a whole number" if kind is int else "a number"
        raise ValidationError(name, value, f"give {whole}") from None


def describe(settings: Settings, origins: Origins) -> str:
    """All settings as a file that `gather` reads, each with where it comes from."""
    lines = []
    for each in fields(settings):
        value = getattr(settings, each.name)
        if isinstance(value, bool):
            shown = str(value).lower()
        elif isinstance(value, str):
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            shown = f'"{escaped}"'
        else:
            shown = repr(value)
        lines.append(f"{each.name} = {shown}".ljust(44) + f"# {origins[each.name]}")
    return "\n".join(lines)
