"""What a call has come to so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter

from nearcast.broker.ports import Change, Told
from nearcast.broker.replies import Notification, Reply
from nearcast.clock import Micros
from nearcast.cpsl.composite import Composite
from nearcast.fences import Crossing
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription

__all__ = ["Draft"]

#: A notification of a tuple of its fields: a third of the time of naming them.
_notification = partial(tuple.__new__, Notification)
_id, _subscriber = attrgetter("id"), attrgetter("subscriber")


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
        told = [
            Notification(e.id, e.subscriber, event, at, None, None, number(e.subscriber))
            for e in to
        ]
        self.notifications += told
        self.changes += map(Told, told)

    def tell_pairs(
        self, to: Sequence[Subscription], events: Iterable[Event], ats: Iterable[Micros]
    ) -> None:
        """The same for many, one event and one moment for each of them."""
        whom = [*map(_subscriber, to)]
        numbers = map(self._number, whom) if self.remembers else repeat(None)
        nothing = repeat(None)
        pairs = zip(map(_id, to), whom, events, ats, nothing, nothing, numbers, strict=False)
        told: list[Notification] = [*map(_notification, pairs)]
        self.notifications += told
        if self.remembers:
            self.changes += map(Told, told)

    def tell_of(self, crossing: Crossing) -> None:
        """A transition of an object at a fence."""
        c, fence = crossing, crossing.fence
        told = Notification(fence.id, fence.subscriber, c.event, c.at, c.transition, c.object)
        if self.remembers:
            told = told._replace(seq=self._number(fence.subscriber))
            self.changes.append(Told(told))
        self.notifications.append(told)

    def reply(self) -> Reply:
        """The answer."""
        return Reply(self.notifications, self.regions, self.requests)
