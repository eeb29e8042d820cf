"""What will be known when an event comes, before anything has happened."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from types import NoneType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.broker.contents import content_of, same
from nearcast.broker.live import LiveEvents
from nearcast.broker.past import REMEMBERED_FOR, Past
from nearcast.broker.timeline import Timeline
from nearcast.clock import EARLIEST, FOREVER, NEVER, Micros
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import BatchError, DuplicateIdError, NearcastError, ValidationError
from nearcast.model.events import Event
from nearcast.model.geometry import Point, Space, check_space

__all__ = ["Arrival", "Arrivals", "Outlook"]

#: Attributes of one event, and words: what the store of live events can count.
_MOST = 65_000
_AGES: Micros = 2**62  # longer than from the first moment to the last
_FEW = 8  # events up to which columns take longer than one by one

_id, _source, _location, _attributes, _keywords, _start, _end, _expires = map(
    attrgetter, ("id", "source", "location", "attributes", "keywords", "start", "end", "expires")
)
_x, _y = attrgetter("x"), attrgetter("y")
I8 = npt.NDArray[np.int64]


class Arrival(NamedTuple):
    """A new event, when it happens, and the time when it is there."""

    event: Event
    start: Micros
    end: Micros
    now: Micros


class Arrivals(NamedTuple):
    """New events by columns."""

    events: Sequence[Event]
    starts: Sequence[Micros]
    ends: Sequence[Micros]
    nows: Sequence[Micros]
    strange: bool
    """Whether all have ids that nobody has or had lately, and are live when they come."""

    def part(self, first: int, stop: int) -> Arrivals:
        """Some of them."""
        events, starts, ends, nows, strange = self
        some = slice(first, stop)
        return Arrivals(events[some], starts[some], ends[some], nows[some], strange)


class Outlook:
    """Events of one call, looked at in their order as if each had happened before the next.

    A call that finds one that cannot come has changed nothing yet. O(1) an event.
    """

    __slots__ = ("_live", "_now", "_past", "_seen", "_space", "_timeline", "present")

    def __init__(self, timeline: Timeline, live: LiveEvents, past: Past, space: Space) -> None:
        self._timeline = timeline
        self._live = live
        self._past = past
        self._space: Space = space
        self.present = timeline.present()
        """What time it is when the next one comes; None before the first."""
        self._now = timeline.now
        """How far time has come."""
        self._seen: dict[str, tuple[Event, Micros]] = {}
        """Events of this call that are new, the last under each key, and when each came."""

    def arrival(self, event: Event) -> Arrival | None:
        """The next event; None if it is a repetition. Raises what forbids it to come."""
        if not isinstance(event, Event):
            raise ValidationError("event", event, "give an Event")
        if event.location is not None:
            check_space(event.location, self._space, "location")
        if len(event.attributes) > _MOST or len(event.keywords) > _MOST:
            raise ValidationError("event", event.id, f"give at most {_MOST} attributes and words")
        present, key = self.present, event.key
        known, came = self._seen.get(key) or (self._live.get(key), NEVER)
        if (known is not None or key in self._past) and self._repeats(known, came, event):
            self._now = present
            return None
        start, end = self._timeline.interval(event, present)
        now = end if present is None else present
        if self._timeline.clock is None:
            self.present = now = max(now, end)
        if known is not None and self._holds(known) and _valid(known, now):
            raise DuplicateIdError(
                "event", event.id, "retract it first, or publish under another id"
            )
        self._now = now
        self._seen[key] = event, now
        return Arrival(event, start, end, now)

    def arrivals(self, events: Sequence[Event]) -> Arrivals:
        """`arrival` of each that is no repetition; BatchError names the first that cannot come."""
        found = None if len(events) <= _FEW else self._strangers(events)
        if found is not None:
            return found
        coming: list[Arrival] = []
        for row, event in enumerate(events):
            try:
                arrival = self.arrival(event)
            except NearcastError as error:
                raise BatchError(row, error) from error
            if arrival is not None:
                coming.append(arrival)
        events, starts, ends, nows = zip(*coming, strict=True) if coming else ((), (), (), ())
        return Arrivals(events, starts, ends, nows, strange=False)

    def _strangers(self, events: Sequence[Event]) -> Arrivals | None:
        """New events that need no second look, all at once; None if any does."""
        if {*map(type, events)} != {Event} or not self._fit(events):
            return None
        ids = {*map(_id, events)}
        if [*map(_source, events)].count(None) < len(events) or "\0" in "".join(ids):
            return None  # their keys are not their ids
        known = len(ids) < len(events) or not self._live.keys().isdisjoint(ids)
        if known:  # what has expired lately and is equal would have expired on arrival
            return None
        ends, starts = [*map(_end, events)], [*map(_start, events)]
        if None in ends:
            if self._timeline.clock is None:
                return None  # each of them ends when the one before it did
            assert self.present is not None
            ends = [*map(_last, ends, starts, repeat(self.present))]
        if starts.count(None) == len(starts):
            starts = ends
        elif None in starts:
            starts = [*map(_first, starts, ends)]
        nows = self._moments(np.array(starts, np.int64), np.array(ends, np.int64))
        if nows is None:
            return None
        expires = [FOREVER if at is None else at for at in map(_expires, events)]
        if not bool((np.array(expires, np.int64) > nows).all()):
            return None
        return Arrivals(events, starts, ends, nows.tolist(), strange=True)

    def _fit(self, events: Sequence[Event]) -> bool:
        """Whether all are small enough, at points that the space has, or nowhere."""
        many = max(map(len, map(_attributes, events))), max(map(len, map(_keywords, events)))
        places = [*map(_location, events)]
        kinds = {*map(type, places)}
        if max(many) > _MOST or not kinds <= {Point, NoneType}:
            return False
        if self._space == "planar" or Point not in kinds:
            return True
        points = places if len(kinds) == 1 else [place for place in places if place is not None]
        x, y = (np.fromiter(map(of, points), np.float64, len(points)) for of in (_x, _y))
        return bool(np.abs(x).max() <= 180.0 and np.abs(y).max() <= 90.0)

    def _moments(self, starts: I8, ends: I8) -> I8 | None:
        """How far time has come when each is there; None if any lies too far off."""
        timeline, present = self._timeline, self.present
        longest, lateness = timeline.longest, timeline.lateness
        if timeline.clock is not None:
            assert present is not None
            nows = before = np.full(ends.size, present, np.int64)
            if bool((ends > present + timeline.max_ahead).any()):
                return None
        else:
            first = NEVER if present is None else present
            nows = np.maximum(np.maximum.accumulate(ends), first)
            before = np.append(first, nows[:-1])
        if longest is not None and bool((ends - starts > longest).any()):
            return None
        if lateness is not None:
            earliest = np.maximum(before, EARLIEST) - min(lateness, _AGES)
            if bool((ends < earliest).any()):
                return None
        return nows

    def _holds(self, known: Event) -> bool:
        """Whether an event that came is live still, as far as time has come."""
        return self._now is None or _valid(known, self._now)

    def _repeats(self, known: Event | None, came: Micros, event: Event) -> bool:
        """Whether an equal event is live, or was not long ago."""
        present = 0 if self.present is None else self.present
        if known is not None and self._holds(known):
            return known == event or same(known, event)
        if known is None or isinstance(known, CompositeEvent):
            return self._past.holds(event, present)
        assert known.expires is not None
        until = max(known.expires, came) + REMEMBERED_FOR
        return present < until and content_of(known) == content_of(event)


def _valid(event: Event, now: Micros) -> bool:
    return event.expires is None or now < event.expires


def _first(start: Micros | None, end: Micros) -> Micros:
    return end if start is None else start


def _last(end: Micros | None, start: Micros | None, present: Micros) -> Micros:
    if end is not None:
        return end
    return present if start is None else max(start, present)
