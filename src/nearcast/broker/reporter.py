"""The publisher's half of the silence: holds the safe rectangle, and says whether to send."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from nearcast.model.events import Event
from nearcast.model.geometry import Box, Point

__all__ = ["Reporter", "SafeRectangle", "said"]


def said(event: Event) -> Hashable:
    """What an event says besides its place, its times and its id."""
    kinds = ((name, type(value), value) for name, value in event.attributes.items())
    return frozenset(kinds), event.keywords


class SafeRectangle(NamedTuple):
    """Where a publisher may be silent: strictly inside of `box`; None: nowhere.

    `epoch` is the number of the report that it answers: a reporter takes no other.
    """

    epoch: int
    box: Box | None

    def contains(self, place: Point) -> bool:
        """Whether a place is strictly inside."""
        box = self.box
        return box is not None and (box.xmin < place.x < box.xmax and box.ymin < place.y < box.ymax)


class Reporter:
    """A publisher that moves. With a rectangle it sends only when it leaves it, or says more.

    Each event that it sends has a number, and only the rectangle that answers the last one is
    taken. So a lost or late answer costs events that nobody needed, never one that somebody did.

    >>> cab = Reporter("cab-7")
    >>> at = Event(id="p1", attributes={"free": True}, location=Point(8.5, 47.4))
    >>> cab.sends(at)
    1
    >>> cab.received(SafeRectangle(1, Box(8, 47, 9, 48)))
    >>> cab.sends(at) is None
    True
    """

    def __init__(self, publisher: str) -> None:
        self.publisher = publisher
        self.rectangle: SafeRectangle | None = None
        self.epoch = 0
        self._void = 0
        self._said: Hashable = None

    def sends(self, event: Event) -> int | None:
        """The number under which to send this event; None: silence."""
        held, place = self.rectangle, event.location
        saying = said(event)
        silent = held is not None and isinstance(place, Point) and held.contains(place)
        if silent and saying == self._said:
            return None
        self.rectangle = None
        self.epoch += 1
        self._said = saying
        return self.epoch

    def received(self, rectangle: SafeRectangle) -> None:
        """The answer to an event that was sent."""
        if rectangle.epoch == self.epoch > self._void:
            self.rectangle = rectangle

    def requested(self, after: int) -> None:
        """The broker wants an event again: what answered up to this number is void."""
        self._void = max(self._void, after)
        if self.rectangle is not None and self.rectangle.epoch <= after:
            self.rectangle = None

    def lost(self) -> None:
        """The broker may have forgotten this publisher: it sends its next event."""
        self.rectangle = None
