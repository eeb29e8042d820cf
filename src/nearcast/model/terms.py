"""The terms on which somebody is told: how often, when, and of what at all."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from nearcast.clock import LATEST, Micros, to_datetime
from nearcast.errors import ValidationError
from nearcast.model.durations import to_duration

__all__ = ["MEANWHILE", "Meanwhile", "QuietHours", "Terms", "stated"]

#: What becomes of what is found while nobody is to be disturbed.
Meanwhile: TypeAlias = Literal["keep", "drop"]
MEANWHILE: tuple[Meanwhile, ...] = get_args(Meanwhile)

_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_SECOND: Micros = 1_000_000
_DAY_S = 86_400
_REMEDY = "name a zone of the tz database: Europe/Zurich"


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Hours of every day, by the clock on a wall in a zone, in which somebody is told nothing.

    It is quiet from `start` on and not at `end` any more; `end` before `start` is that of the
    next day. The clock on the wall is the definition: an hour that comes twice is quiet twice,
    and what an hour that is left out would have held is not there. With `keep` what is found is
    told after; else never.

    >>> QuietHours("22:00", "07:00", "Europe/Zurich").keep
    True
    """

    start: str
    end: str
    zone: str = "UTC"
    keep: bool = True
    _span: tuple[int, int] = field(init=False, repr=False, compare=False)
    """Start and end in seconds of the day."""

    def __post_init__(self) -> None:
        span = _seconds(self.start, "quiet_hours.start"), _seconds(self.end, "quiet_hours.end")
        if span[0] == span[1]:
            raise ValidationError(
                "quiet_hours.end", self.end, "end at another time than it starts; or pause it"
            )
        if not isinstance(self.keep, bool):
            raise ValidationError("quiet_hours.keep", self.keep, "give a bool")
        if not isinstance(self.zone, str) or not self.zone:
            raise ValidationError("quiet_hours.zone", self.zone, _REMEDY)
        _zone(self.zone)
        object.__setattr__(self, "_span", span)

    def at(self, moment: Micros) -> tuple[bool, Micros]:
        """Whether it is quiet at a moment, and a later one up to which that stays so. 10 µs.

        The later one is where it changes, but for the last days of all time.
        """
        return _spell(self._span, self.zone, moment // _SECOND)

    def quiet(self, moment: Micros) -> bool:
        """Whether it is quiet at a moment."""
        return self.at(moment)[0]

    def over(self, moment: Micros) -> Micros:
        """The first moment from this one on at which it is not quiet."""
        quiet, until = self.at(moment)
        return until if quiet else moment


@dataclass(frozen=True, slots=True)
class Terms:
    """What a subscription, fence or composite says of its notifications beyond what matches.

    - `initial_event`: told of what already matches when it begins; False: only of what comes.
    - `max_events`: it ends with that many notifications.
    - `quiet_hours`: when it is told nothing.
    - `digest`: what is found waits, and that long after the first all of it is told together.
    - `while_paused`: what is found while it is paused is kept and told after, or dropped.

    `docs/lifecycle.md` says what each means. What is left out changes nothing.

    >>> Terms(max_events=1, digest="PT10M").digest
    datetime.timedelta(seconds=600)
    """

    initial_event: bool = True
    max_events: int | None = None
    quiet_hours: QuietHours | None = None
    digest: timedelta | None = None
    while_paused: Meanwhile = "drop"

    def __init__(
        self,
        initial_event: bool = True,
        max_events: int | None = None,
        quiet_hours: QuietHours | None = None,
        digest: timedelta | float | str | None = None,
        while_paused: Meanwhile = "drop",
    ) -> None:
        if not isinstance(initial_event, bool):
            raise ValidationError("initial_event", initial_event, "give a bool")
        if max_events is not None and (type(max_events) is not int or not 1 <= max_events < 2**53):
            raise ValidationError("max_events", max_events, "give a whole number of at least 1")
        if quiet_hours is not None and not isinstance(quiet_hours, QuietHours):
            raise ValidationError(
                "quiet_hours", quiet_hours, 'give QuietHours("22:00", "07:00", "Europe/Zurich")'
            )
        if while_paused not in MEANWHILE:
            raise ValidationError("while_paused", while_paused, f"give one of {MEANWHILE}")
        put = object.__setattr__
        put(self, "initial_event", initial_event)
        put(self, "max_events", max_events)
        put(self, "quiet_hours", quiet_hours)
        put(self, "digest", None if digest is None else _collecting(digest))
        put(self, "while_paused", while_paused)

    @property
    def span(self) -> Micros | None:
        """How long a digest collects."""
        return None if self.digest is None else self.digest // timedelta(microseconds=1)


def stated(terms: object) -> Terms | None:
    """Terms that say something, or None."""
    if terms is None or isinstance(terms, Terms):
        return None if terms == _PLAIN else terms
    raise ValidationError("terms", terms, "give Terms(max_events=…, digest=…), or leave it out")


_PLAIN = Terms()


def _collecting(given: object) -> timedelta:
    micros = to_duration(given, "digest")
    if not _SECOND <= micros <= 366 * _DAY_S * _SECOND:
        raise ValidationError("digest", given, "collect for a second to a year")
    return timedelta(microseconds=micros)


def _seconds(given: object, name: str) -> int:
    found = _CLOCK.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise ValidationError(name, given, "give a time of the day: 22:00")
    hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return (hours * 60 + minutes) * 60 + seconds


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # a folder of zones is an OSError
        raise ValidationError("quiet_hours.zone", name, _REMEDY) from None


@lru_cache(maxsize=4096)
def _spell(span: tuple[int, int], zone: str, second: int) -> tuple[bool, Micros]:
    """Whether it is quiet in a second, and the moment up to which that stays so."""
    found = _quiet(span, zone, second)
    last = LATEST // _SECOND - _DAY_S  # of all time: no wall shows a later one everywhere
    at = second
    while at < last:
        # The wall moves as time does until it is set; then it is looked at anew.
        edge = at + (span[1] if found else span[0]) - _wall(zone, at)
        edge += 0 if edge > at else _DAY_S
        shift = _set(zone, at, edge)
        at = edge if shift is None else shift
        if _quiet(span, zone, at) != found:
            return found, at * _SECOND
    return found, max(at, second + 1) * _SECOND


def _quiet(span: tuple[int, int], zone: str, second: int) -> bool:
    start, end = span
    at = _wall(zone, second)
    return start <= at < end if start < end else at >= start or at < end


def _wall(zone: str, second: int) -> int:
    """The second of the day that the clock on the wall shows."""
    return (second + _offset(zone, second)) % _DAY_S


def _offset(zone: str, second: int) -> int:
    """How far the wall is ahead of UTC; the first and the last day are UTC's, as none is before."""
    try:
        offset = to_datetime(second * _SECOND).astimezone(_zone(zone)).utcoffset()
    except OverflowError:
        return 0
    return 0 if offset is None else int(offset.total_seconds())


def _set(zone: str, first: int, last: int) -> int | None:
    """The first second after one, and up to another, at which the wall is set anew, if it is.

    Nobody does that twice within a day; whoever did would be believed the second time.
    """
    before = _offset(zone, first)
    if _offset(zone, last) == before:
        return None
    while last - first > 1:
        middle = (first + last) // 2
        if _offset(zone, middle) == before:
            first = middle
        else:
            last = middle
    return last
