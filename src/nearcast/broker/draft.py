"""What a call has come to so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import attrgetter

from nearcast.broker.ports import Change, Told
from nearcast.broker.replies import Notes, Notification, Pairs, Reply, notification
from nearcast.clock import Micros
from nearcast.cpsl.composite import Composite
from nearcast.fences import Crossing
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription

__all__ = ["Draft"]

_subscriber = attrgetter("subscriber")


class Draft:
    """Notifications, what movers are to hear, and changes if there is a store to remember them."""

    __slots__ = ("_number", "changes", "notes", "regions", "remembers", "requests")

    def __init__(self, remembers: bool, number: Callable[[str | None], int | None]) -> None:
        self.remembers = remembers
        self._number = number
        """The next number in somebody's outbox."""
        self.notes = Notes()
        self.regions: dict[str, SafeRegion] = {}
        self.requests: dict[str, int] = {}
        self.changes: list[Change] = []

    def tell(self, to: Subscription | Composite, event: Event, at: Micros) -> None:
        """A pair that was not told before, under its number."""
        number = self._number(to.subscriber) if self.remembers else None
        told = Notification(to.id, to.subscriber, event, at, None, None, number)
        self.notes.made().append(told)
        if self.remembers:
            self.changes.append(Told((told,)))

    def tell_all(self, to: Sequence[Subscription], event: Event, at: Micros) -> None:
        """The same for several."""
        self.tell_pairs(Pairs(to, (len(to),), (event,), (at,)))

    def tell_pairs(self, pairs: Pairs) -> None:
        """The same for many; nothing is made of them before somebody looks, or stores them."""
        if not self.remembers:
            self.notes.add(len(pairs.to), pairs.notifications)
            return
        told = pairs.notifications(map(self._number, map(_subscriber, pairs.to)))
        if told:
            self.notes.made().extend(told)
            self.changes.append(Told(told))

    def tell_of(self, crossings: Collection[Crossing]) -> None:
        """Transitions of objects at fences."""
        if not crossings:  # what was told before need not be made yet
            return
        if not self.remembers:
            self.notes.add(len(crossings), partial(_made, crossings))
            return
        told = [notification((*each[:-1], self._number(each.subscriber))) for each in crossings]
        if told:
            self.notes.made().extend(told)
            self.changes.append(Told(told))

    def reply(self) -> Reply:
        """The answer."""
        return Reply(self.notes, self.regions, self.requests)


def _made(crossings: Iterable[Crossing]) -> list[Notification]:
    """Transitions as notifications without numbers."""
    return [notification((*each[:-1], None)) for each in crossings]
