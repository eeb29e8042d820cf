"""What a server says of itself: one line an occurrence, for people or as JSON; no keys, ever."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

__all__ = ["log", "set_up"]

_KEY = re.compile(r"nck_[\w-]+")

log = structlog.get_logger("nearcast")


def _without_keys(_: Any, __: str, said: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Whatever a client sends may come to stand in a message: its keys do not."""
    for name, value in said.items():
        if isinstance(value, str) and "nck_" in value:
            said[name] = _KEY.sub("nck_…", value)
    return said


def set_up(level: str, form: str) -> None:
    """Write to standard error from `level` on, as `console` or `json`."""
    plain = form == "console" or (not form and sys.stderr.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _without_keys,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
            if plain
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.getLogger("uvicorn").setLevel(max(number, logging.WARNING))
