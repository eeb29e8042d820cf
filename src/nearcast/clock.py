"""Time: int64 microseconds since the epoch inside, RFC 3339 in UTC at the edges.

Nothing below the process's edge reads the wall clock: time is an argument. The one
function that reads it, `system_now`, is handed to whoever needs a clock.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from numbers import Integral
from time import time_ns
from typing import TypeAlias

from nearcast.errors import ValidationError

__all__ = [
    "EARLIEST",
    "FOREVER",
    "LATEST",
    "NEVER",
    "Micros",
    "Time",
    "format_micros",
    "system_now",
    "to_datetime",
    "to_micros",
]

Micros = int
#: An instant as people give it: an aware datetime, RFC 3339 text or microseconds.
Time: TypeAlias = datetime | str | Micros

#: Later than every instant: what never expires.
FOREVER: Micros = 2**63 - 1
#: Earlier than every instant.
NEVER: Micros = -(2**63)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RFC3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
#: The first and the last instant that a datetime, and so RFC 3339, can name.
EARLIEST: Micros = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
LATEST: Micros = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def to_micros(value: object, field: str = "time") -> Micros:
    """Microseconds since the epoch, from an aware datetime, RFC 3339 text or an int of them.

    >>> to_micros("1970-01-01T00:00:01.5Z")
    1500000
    """
    micros = _micros(value, field)
    if not EARLIEST <= micros <= LATEST:
        raise ValidationError(field, value, "a time falls in the years 1 to 9999 of UTC")
    return micros


def _micros(value: object, field: str) -> Micros:
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise ValidationError(
                field, value, "a naive datetime is ambiguous: add tzinfo=datetime.UTC"
            )
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, str):
        return _parse(value, field)
    if isinstance(value, bool):
        raise ValidationError(field, value, "give an aware datetime, RFC 3339 text or microseconds")
    if isinstance(value, Integral):  # NumPy's, too
        return int(value)
    raise ValidationError(field, value, "give an aware datetime, RFC 3339 text or microseconds")


def _parse(text: str, field: str) -> Micros:
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValidationError(
            field, text, "write RFC 3339 with a zone, such as 2026-03-01T12:00:00Z"
        )
    day, clock, fraction, zone = found.groups()
    try:
        micros = _second(day, clock, zone)
    except (ValueError, OverflowError) as error:
        raise ValidationError(field, text, f"mend the date ({error})") from None
    return micros + (int((fraction[1:] + "000000")[:6]) if fraction else 0)


@lru_cache(1024)  # what comes at a time is of one second, or of few
def _second(day: str, clock: str, zone: str) -> Micros:
    """The instant without its fraction."""
    leap = clock.endswith(":60")  # RFC 3339 allows leap seconds; datetime does not
    moment = datetime.fromisoformat(
        f"{day}T{clock[:-2] + '59' if leap else clock}{'+00:00' if zone in 'Zz' else zone}"
    )
    return (moment - _EPOCH) // _MICROSECOND + (1_000_000 if leap else 0)


def to_datetime(micros: Micros) -> datetime:
    """The aware UTC datetime of an instant."""
    return _EPOCH + timedelta(microseconds=micros)


def format_micros(micros: Micros) -> str:
    """RFC 3339 in UTC, with as many decimals as the instant needs.

    >>> format_micros(1500000)
    '1970-01-01T00:00:01.5Z'
    """
    whole, fraction = divmod(micros, 1_000_000)
    text = _written(whole)
    return f"{text}.{fraction:06d}".rstrip("0") + "Z" if fraction else text + "Z"


@lru_cache(1024)
def _written(seconds: int) -> str:
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")


def system_now() -> Micros:
    """The wall clock. Only the edge of a process calls it."""
    return time_ns() // 1000
