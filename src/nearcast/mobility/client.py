"""The client's half of the protocol: holds the safe region, and says whether to report."""

from __future__ import annotations

from nearcast.mobility.messages import LocationRequest, Message, NewRegion, Report
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.geometry import Point

__all__ = ["Client"]

#: Steps without a word after a report that nobody answers.
_LONGEST_WAIT = 15


class Client:
    """A phone. With a region it reports only when it leaves it; without one, until answered.

    A report voids the region held, and only the region that answers the last report is
    taken. So a lost or late message costs a repetition, never a notification. Reports
    without an answer are repeated at the next step, then after 2, 4, 8 … steps: where answers
    take longer than a step, the last report must get time to be answered.

    >>> phone = Client("ann")
    >>> phone.moved(Point(8.5, 47.4)).epoch
    1
    """

    def __init__(self, subscriber: str) -> None:
        self.subscriber = subscriber
        self.region: SafeRegion | None = None
        self.epoch = 0
        self._repeats = 0
        self._wait = 0

    def moved(
        self, place: Point, heading: float | None = None, speed: float | None = None
    ) -> Report | None:
        """The report to send from this place, or None: silence."""
        if self.region is not None and self.region.contains(place):
            return None
        self.region = None
        if self._wait > 0:
            self._wait -= 1
            return None
        self._wait = min(2**self._repeats - 1, _LONGEST_WAIT)
        self._repeats += 1
        self.epoch += 1
        return Report(self.subscriber, place, self.epoch, heading, speed)

    def received(self, message: Message) -> None:
        """Take a message of the server; notices need nothing from here."""
        if message.subscriber != self.subscriber:
            return
        if isinstance(message, NewRegion):
            if message.region.epoch == self.epoch:
                self.region = message.region
                self._repeats = self._wait = 0
        elif isinstance(message, LocationRequest):
            self.epoch = max(self.epoch, message.after)
            self.region = None
            self._wait = 0
