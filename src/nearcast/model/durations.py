"""Durations: seconds or ISO 8601 outside, integer microseconds inside."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation

from nearcast.clock import Micros
from nearcast.errors import ValidationError

__all__ = ["LONGEST", "format_seconds", "seconds_to_micros", "to_duration"]

#: Longer than any two instants are apart.
LONGEST: Micros = 10_000 * 366 * 86_400 * 1_000_000

_ISO = re.compile(
    r"(-)?P(?:(\d+)W|(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?)", re.ASCII
)
_REMEDY = "write seconds, or ISO 8601 without years and months: PT10M, P1DT12H, PT0.5S"


def to_duration(value: object, field: str = "duration") -> Micros:
    """Microseconds from seconds (a number or its text), a timedelta or ISO 8601 text.

    The sign is kept: whether a negative duration makes sense is the caller's question.

    >>> to_duration("PT10M"), to_duration(2.5), to_duration(timedelta(days=1))
    (600000000, 2500000, 86400000000)
    """
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValidationError(field, value, _REMEDY)
    if isinstance(value, str) and "P" in value:
        return _from_iso(value, field)
    return seconds_to_micros(str(value), field)


def seconds_to_micros(text: str, field: str) -> Micros:
    """Microseconds from decimal seconds; exact, or a ValidationError."""
    try:
        micros = Decimal(text) * 1_000_000
        if not micros.is_finite() or abs(micros) > LONGEST:
            raise ValidationError(field, text, "give seconds within ten thousand years")
    except InvalidOperation:
        raise ValidationError(field, text, _REMEDY) from None
    if micros != int(micros):
        raise ValidationError(field, text, "a microsecond is the smallest unit")
    return int(micros)


def _from_iso(text: str, field: str) -> Micros:
    found = _ISO.fullmatch(text)
    if found is None or text.endswith(("P", "T")):
        raise ValidationError(field, text, _REMEDY)
    sign, weeks, days, hours, minutes, seconds = found.groups()
    whole = sum(
        Decimal(count) * unit
        for count, unit in ((weeks, 604_800), (days, 86_400), (hours, 3_600), (minutes, 60))
        if count
    )
    micros = seconds_to_micros(str(whole + Decimal(seconds or 0)), field)
    return -micros if sign else micros


def format_seconds(micros: Micros) -> str:
    """Decimal seconds, with as many decimals as are needed.

    >>> format_seconds(600_000_000), format_seconds(1_500_000)
    ('600', '1.5')
    """
    sign, (whole, fraction) = "-" * (micros < 0), divmod(abs(micros), 1_000_000)
    return f"{sign}{whole}.{fraction:06d}".rstrip("0") if fraction else f"{sign}{whole}"
