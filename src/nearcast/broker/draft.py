"""What a call has come to so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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

    __slots__ = ("_number", "changes", "notifications", "regions", "remembers", "requests")

    def __init__(self, remembers: bool, number: Callable[[str | None], int | None]) -> None:
        self.remembers = remembers
        self._number = number
        """The next number in somebody's outbox."""
        self.notifications: list[Notification] = []
        self.regions: dict[str, SafeRegion] = {}
        self.requests: dict[str, int] = {}
        self.changes: list[Change] = []

    def tell(self, to: Subscription | Composite, event: Event, at: Micros) -> None:
        """A pair that was not told before, under its number."""
        self.tell_all((to,), event, at)

    def tell_all(self, to: Iterable[Subscription | Composite], event: Event, at: Micros) -> None:
        """The same for several."""
        if not self.remembers:
            self.notifications += [Notification(e.id, e.subscriber, event, at) for e in to]
            return
        number = self._number
        told = [Notification(e.id, e.subscriber, event, at, number(e.subscriber)) for e in to]
        self.notifications += told
        self.changes += map(Told, told)

    def reply(self) -> Reply:
        """The answer."""
        return Reply(self.notifications, self.regions, self.requests)
