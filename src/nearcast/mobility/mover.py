"""The phone's half of the protocol: holds the safe region, and says whether to report."""

from __future__ import annotations

from nearcast.mobility.messages import LocationRequest, Message, NewRegion, Report
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.geometry import Point

__all__ = ["Mover"]


class Mover:
    """A phone. With a region it reports only when it leaves it; without one, at every step.

    A report voids the region held, and only a region that answers the last report's number is
    taken. So a lost or late message costs a repetition, never a notification. A report that
    nobody has answered is repeated, from where the phone is by now, under the same number:
    the answer may take longer than a step and is still the right one.

    >>> phone = Mover("ann")
    >>> phone.moved(Point(8.5, 47.4)).epoch
    1
    """

    def __init__(self, subscriber: str) -> None:
        self.subscriber = subscriber
        self.region: SafeRegion | None = None
        self.epoch = 0
        self._waiting = False

    def moved(
        self, place: Point, heading: float | None = None, speed: float | None = None
    ) -> Report | None:
        """The report to send from this place, or None: silence."""
        if self.region is not None and self.region.contains(place):
            return None
        self.region = None
        if not self._waiting:
            self.epoch += 1
            self._waiting = True
        return Report(self.subscriber, place, self.epoch, heading, speed)

    def received(self, message: Message) -> None:
        """Take a message of the server; notices need nothing from here."""
        if message.subscriber != self.subscriber:
            return
        if isinstance(message, NewRegion):
            if self._waiting and message.region.epoch == self.epoch:
                self.region = message.region
                self._waiting = False
        elif isinstance(message, LocationRequest):
            self.region = None
            if message.after >= self.epoch:
                self.epoch = message.after
                self._waiting = False
