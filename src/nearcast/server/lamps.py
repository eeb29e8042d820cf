"""A pattern's detection graph with lamps: how often each part was seen since somebody looks.

Every part is detected as a pattern of its own, so an inner node lights up exactly when it would
pass something on. A part that cannot stand alone, since it speaks of others, has no lamp.
"""

from __future__ import annotations

from collections.abc import Iterable

from nearcast.clock import Micros
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.draw import parts
from nearcast.cpsl.parser import parse
from nearcast.errors import NearcastError
from nearcast.model.events import Event
from nearcast.model.geometry import Space

__all__ = ["Lamps"]

_MOST = 32
_PENDING = 1_000


class Lamps:
    """The parts of one pattern, in the order of `cpsl.draw.graph`, and how often each was seen."""

    def __init__(self, text: str, space: Space) -> None:
        self._detector = Detector(space, max_pending=_PENDING)
        some = parts(parse(text))[:_MOST]
        self.counts = [0] * len(some)
        for number, part in enumerate(some):
            try:
                self._detector.add(Composite(str(number), None, part))
            except NearcastError:
                continue

    def see(self, events: Iterable[Event], now: Micros) -> bool:
        """Whether some lamp lights up by these, and by time."""
        timed = [event if event.end is not None else _ended(event, now) for event in events]
        found = self._detector.feed(timed)
        for each in found:
            self.counts[int(each.composite_id)] += 1
        return bool(found)


def _ended(event: Event, now: Micros) -> Event:
    return Event(
        event.id, event.attributes, event.keywords, event.location, event.start, now,
        event.expires, source=event.source,
    )  # fmt: skip
