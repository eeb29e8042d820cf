"""What a call has come to so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import attrgetter

from nearcast.broker.ports import Change, Told
from nearcast.broker.replies import Notes, Notification, Pairs, Reply, notification
from nearcast.broker.reporter import SafeRectangle
from nearcast.broker.seats import Found
from nearcast.broker.standings import Standings
from nearcast.clock import Micros
from nearcast.cpsl.composite import Composite
from nearcast.fences import Crossing
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription

__all__ = ["Draft"]

_id, _fence = attrgetter("id"), attrgetter("fence_id")


class Draft:
    """Notifications, what movers are to hear, and changes if there is a store to remember them."""

    __slots__ = (
        "_number", "_standings", "changes", "notes", "rectangles", "regions", "remembers",
        "requests", "void",
    )  # fmt: skip

    def __init__(
        self, remembers: bool, number: Callable[[str | None], int | None], standings: Standings
    ) -> None:
        self.remembers = remembers
        self._standings = standings
        """Who is told on terms: not all that was found, or not at once."""
        self._number = number
        """The next number in somebody's outbox."""
        self.notes = Notes()
        self.regions: dict[str, SafeRegion] = {}
        self.requests: dict[str, int] = {}
        self.rectangles: dict[str, SafeRectangle] = {}
        self.void: dict[str, int] = {}
        """Publishers whose rectangles are void, and which of their reports these were for."""
        self.changes: list[Change] = []

    def tell(self, to: Subscription | Composite, event: Event, at: Micros) -> None:
        """A pair that was not told before, under its number."""
        found = Notification(to.id, to.subscriber, event, at)
        if to.id in self._standings:
            self.tell_found((found,), at)
        else:
            self.tell_now((found,))

    def tell_found(self, found: Sequence[Notification], now: Micros | None) -> None:
        """What was found now, or when each says, as far as terms let it be told at once."""
        self.tell_now(self._standings.admit(found, now, self.changes))

    def tell_now(self, found: Sequence[Notification]) -> None:
        """What is told whatever the terms are, each under its number."""
        if not found:
            return
        if self.remembers:
            number = self._number
            found = [each._replace(seq=number(each.subscriber)) for each in found]
            self.changes.append(Told(found))
        self.notes.made().extend(found)

    def tell_all(self, to: Found, event: Event, at: Micros) -> None:
        """The same for several who want one event."""
        self.tell_pairs(Pairs(to, (event,), (at,)))

    def tell_pairs(self, pairs: Pairs) -> None:
        """The same for many; nothing is made of them before somebody looks, or stores them."""
        if self._standings and self._standings.concerns(map(_id, pairs.to)):
            self.tell_found(pairs.notifications(), None)
            return
        if not self.remembers:
            self.notes.add(len(pairs.to), pairs.notifications)
            return
        told = pairs.notifications(self._number)
        if told:
            self.notes.made().extend(told)
            self.changes.append(Told(told))

    def tell_of(self, crossings: Collection[Crossing], now: Micros) -> None:
        """Transitions of objects at fences."""
        if not crossings:  # what was told before need not be made yet
            return
        if self._standings and self._standings.concerns(map(_fence, crossings)):
            self.tell_found(_made(crossings), now)
            return
        if not self.remembers:
            self.notes.add(len(crossings), partial(_made, crossings))
            return
        number = self._number
        told = [notification((*each[:-1], number(each.subscriber), None)) for each in crossings]
        if told:
            self.notes.made().extend(told)
            self.changes.append(Told(told))

    def reply(self) -> Reply:
        """The answer."""
        return Reply(self.notes, self.regions, self.requests, self.rectangles, self.void)


def _made(crossings: Iterable[Crossing]) -> list[Notification]:
    """Transitions as notifications without numbers."""
    return [notification((*each[:-1], None, None)) for each in crossings]
