"""What a call has come to so far."""

from __future__ import annotations

from nearcast.broker.ports import Change, Told
from nearcast.broker.replies import Notification, Reply
from nearcast.clock import Micros
from nearcast.cpsl.composite import Composite
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription

__all__ = ["Draft"]


class Draft:
    """Notifications, what movers are to hear, and changes if there is a store to remember them."""

    __slots__ = ("changes", "notifications", "regions", "remembers", "requests")

    def __init__(self, remembers: bool) -> None:
        self.remembers = remembers
        self.notifications: list[Notification] = []
        self.regions: dict[str, SafeRegion] = {}
        self.requests: dict[str, int] = {}
        self.changes: list[Change] = []

    def tell(
        self, to: Subscription | Composite, event: Event, at: Micros, seq: int | None = None
    ) -> None:
        """A pair that was not told before, under its number."""
        told = Notification(to.id, to.subscriber, event, at, seq)
        self.notifications.append(told)
        if self.remembers:
            self.changes.append(Told(told))

    def reply(self) -> Reply:
        """The answer."""
        return Reply(self.notifications, self.regions, self.requests)
