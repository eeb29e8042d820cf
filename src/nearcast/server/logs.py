"""What a server says of itself: one line an occurrence, for people or as JSON; no keys, ever."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import structlog

__all__ = ["log", "set_up"]

#: Who else has something to say in a server's process.
_OTHERS = ("uvicorn", "asyncio")

_KEY = re.compile(r"nck_[\w-]+")

log = structlog.get_logger("nearcast")


def _without_keys(_: Any, __: str, said: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Whatever a client sends may come to stand in a message: its keys do not."""
    for name, value in said.items():
        if isinstance(value, str) and "nck_" in value:
            said[name] = _KEY.sub("nck_…", value)
    return said


class _Standard:
    """Writes to standard error as it is by then; a log that nobody can read stops no server."""

    def __init__(self, *_: Any) -> None:
        pass

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = msg


def set_up(level: str, form: str) -> None:
    """Write to standard error from `level` on, as `console` or `json`."""
    plain = form == "console" or (not form and sys.stderr.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _without_keys,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
            if plain
            else structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_Standard,
        cache_logger_on_first_use=False,
    )
    for name in _OTHERS:
        other = logging.getLogger(name)
        other.setLevel(max(number, logging.WARNING))
        other.handlers = [_Passed()]
        other.propagate = False


class _Passed(logging.Handler):
    """What libraries say becomes lines as ours: of the same form, and without keys."""

    def emit(self, record: logging.LogRecord) -> None:
        write = log.error if record.levelno >= logging.ERROR else log.warning
        write(record.getMessage().strip(), by=record.name, exc_info=record.exc_info)
