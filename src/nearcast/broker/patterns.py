"""Composite events: detected in order of time, and fed back so that patterns build on patterns."""

from __future__ import annotations

from collections.abc import Container, Iterable
from heapq import heappop, heappush

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import ValidationError
from nearcast.model.events import Event
from nearcast.model.geometry import Location, Space, check_space

__all__ = ["Patterns"]


class Patterns:
    """A detector fed in order of time, and the lineage of what it found.

    Events wait here for `hold`, so that late ones find their place. A detection is an event
    that other composites see, but none is made of itself, at whatever remove: that ends
    every loop.
    """

    def __init__(self, space: Space, hold: Micros, life: Micros | None) -> None:
        self._detector = Detector(space)
        self._space: Space = space
        self._hold = hold
        self._life = life
        self._held: list[tuple[Micros, int, Event]] = []
        self._received = 0
        self._closed: Micros = NEVER
        self._newest: Micros = NEVER
        self._fed: Micros = NEVER
        self._numbers: dict[str, int] = {}
        self._lineage: dict[str, frozenset[str]] = {}
        self.late = 0

    def __len__(self) -> int:
        """How many composites there are."""
        return len(self._detector)

    def add(self, composite: Composite, now: Micros | None) -> None:
        """Detect a composite from now on."""
        if now is not None:  # periods begin now, yet what happens at this very moment counts
            self._advance(now - self._hold - 1)
        self._detector.add(composite)

    def check(self, composite: Composite) -> None:
        """Raise what `add` would raise, and change nothing."""
        Detector(self._space).add(composite)

    def remove(self, id: str) -> None:
        """Forget a composite."""
        self._detector.remove(id)

    # -- events ------------------------------------------------------------------

    def take(self, event: Event, start: Micros, end: Micros) -> list[CompositeEvent]:
        """An event happened; returns what it completes at once."""
        if not self._detector:
            return []
        if self._hold:
            self._received += 1
            heappush(self._held, (end, self._received, _timed(event, start, end)))
            return []
        if end < max(self._newest, self._closed):
            self.late += 1
            return []
        self._newest = end
        return self._feed(event, start, end)

    def again(self, event: CompositeEvent, moment: Micros) -> list[CompositeEvent]:
        """A composite event, as an event among others, at the moment of its detection."""
        start = moment if event.start is None else event.start
        return self._feed(event, start, moment)

    def _feed(self, event: Event, start: Micros, end: Micros) -> list[CompositeEvent]:
        # Where time events of this very moment have fired already, this comes right after them.
        self._fed = max(end, self._fed, self._closed + 1)
        return self._detector.feed(_timed(event, start, self._fed))

    def due(self, until: Micros, *, closing: bool) -> Micros | None:
        """The next moment at which something is to be decided.

        Those before `until`; `closing` says that all events of `until` have come, too.
        """
        held = self._held[0][0] if self._held else FOREVER
        timed = self._detector.due
        if timed != FOREVER:  # a time that was over when the pattern came is due at once
            timed = max(timed, self._fed, self._closed + 1)
        at = min(held, timed)
        return at if at < until or (closing and at == until) else None

    def decide(self, moment: Micros) -> list[CompositeEvent]:
        """What happens at the moment that `due` named: an event held back, or time events."""
        if self._held and self._held[0][0] <= moment:
            end, _, event = heappop(self._held)
            return self._feed(event, end if event.start is None else event.start, end)
        return self._advance(moment)

    def _advance(self, to: Micros) -> list[CompositeEvent]:
        if to <= self._closed or to < self._fed:
            return []
        self._closed = to
        return self._detector.advance(to)

    # -- composite events ----------------------------------------------------------

    def named(
        self, found: CompositeEvent, taken: Container[str], now: Micros
    ) -> CompositeEvent | None:
        """A detection as the event that is published, under an id that is not taken.

        None for one that is made of its own composite.
        """
        ancestry = self._ancestry(found.parts)
        if found.composite_id in ancestry:
            return None
        number = self._numbers.get(found.composite_id, 0) + 1
        while f"{found.composite_id}#{number}" in taken:
            number += 1
        self._numbers[found.composite_id] = number
        made = CompositeEvent(
            f"{found.composite_id}#{number}", found.composite_id, found.parts,
            {**found.attributes, "composite": found.composite_id}, self._place(found.location),
            found.start, found.end, None if self._life is None else now + self._life,
        )  # fmt: skip
        self._lineage[made.id] = ancestry | {found.composite_id}
        return made

    def _place(self, location: Location | None) -> Location | None:
        """The hull of the parts' places, if the space has such a place."""
        try:
            if location is not None:
                check_space(location, self._space, "location")
        except ValidationError:
            return None
        return location

    def _ancestry(self, parts: Iterable[str]) -> frozenset[str]:
        """The composites that events are made of."""
        return frozenset().union(*(self._lineage.get(part, frozenset()) for part in parts))

    def forget(self, event_id: str) -> None:
        """A composite event is gone."""
        self._lineage.pop(event_id, None)


def _timed(event: Event, start: Micros, end: Micros) -> Event:
    """The event with its times said."""
    if event.start == start and event.end == end and type(event) is Event:
        return event
    return Event(event.id, event.attributes, event.keywords, event.location, min(start, end), end)
