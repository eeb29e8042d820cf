"""The client's half of the protocol: holds the safe region, and says whether to report."""

from __future__ import annotations

from nearcast.mobility.messages import LocationRequest, Message, NewRegion, Report
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.geometry import Point

__all__ = ["Client"]


class Client:
    """A phone. Without a region it reports at every step; with one, only when it leaves it.

    A report voids the region held, and only the region that answers the last report is
    taken. So a lost or late message costs a repetition, never a notification.

    >>> phone = Client("ann")
    >>> phone.moved(Point(8.5, 47.4)).epoch
    1
    """

    def __init__(self, subscriber: str) -> None:
        self.subscriber = subscriber
        self.region: SafeRegion | None = None
        self.epoch = 0

    def moved(
        self, place: Point, heading: float | None = None, speed: float | None = None
    ) -> Report | None:
        """The report to send from this place, or None: silence."""
        if self.region is not None and self.region.contains(place):
            return None
        self.region = None
        self.epoch += 1
        return Report(self.subscriber, place, self.epoch, heading, speed)

    def received(self, message: Message) -> None:
        """Take a message of the server; notices need nothing from here."""
        if message.subscriber != self.subscriber:
            return
        if isinstance(message, NewRegion):
            if message.region.epoch == self.epoch:
                self.region = message.region
        elif isinstance(message, LocationRequest):
            self.epoch = max(self.epoch, message.after)
            self.region = None
