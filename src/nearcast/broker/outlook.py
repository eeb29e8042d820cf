"""What will be known when an event comes, before anything has happened."""

from __future__ import annotations

from typing import NamedTuple

from nearcast.broker.live import LiveEvents
from nearcast.broker.past import REMEMBERED_FOR, Past, content_of, same
from nearcast.broker.timeline import Timeline
from nearcast.clock import NEVER, Micros
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import DuplicateIdError, ValidationError
from nearcast.model.events import Event
from nearcast.model.geometry import Space, check_space

__all__ = ["Arrival", "Outlook"]

#: Attributes of one event, and words: what the store of live events can count.
_MOST = 65_000


class Arrival(NamedTuple):
    """A new event, when it happens, and the time when it is there."""

    event: Event
    start: Micros
    end: Micros
    now: Micros


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
