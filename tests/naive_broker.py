"""The broker by definition: every pair looked at, every place known at every moment.

No index, no safe region, no expiry queue. Subscribers report each step they take, so the
naive broker always knows where everybody is; what it tells, and when, is what a broker with
silent subscribers must tell, too.
"""

from __future__ import annotations

from nearcast.model.events import Event
from nearcast.model.geometry import Around, Point
from nearcast.model.subscriptions import Subscription
from tests import oracle

#: subscription id, subscriber, event id
Pair = tuple[str, str | None, str]


class NaiveBroker:
    """Subscriptions, events and places in plain dictionaries."""

    def __init__(self, space: str) -> None:
        self.space = space
        self.now: int | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.events: dict[str, Event] = {}
        self.places: dict[str, Point] = {}
        self.headings: dict[str, float] = {}
        self.told: set[tuple[str, str]] = set()

    # -- verbs -----------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> list[Pair]:
        old = self.subscriptions.get(subscription.id)
        if old is not None and old.subscriber != subscription.subscriber:
            self._forget(subscription.id)
        self.subscriptions[subscription.id] = subscription
        told = self._tell([subscription], list(self.events.values()))
        self._expire()
        return told

    def unsubscribe(self, id: str) -> list[Pair]:
        self._forget(id)
        return []

    def publish(self, event: Event) -> list[Pair]:
        self._come_to(self.end_of(event))
        self.events[event.id] = event
        in_order = [self.subscriptions[id] for id in sorted(self.subscriptions)]
        told = self._tell(in_order, [event])
        self._expire()
        return told

    def retract(self, id: str) -> list[Pair]:
        self._drop(id)
        return []

    def move(self, subscriber: str, place: Point, heading: float | None = None) -> list[Pair]:
        self.places[subscriber] = place
        if heading is not None:
            self.headings[subscriber] = heading
        mine = [s for s in self.subscriptions.values() if s.subscriber == subscriber]
        return self._tell(mine, list(self.events.values()))

    def advance(self, to: int) -> list[Pair]:
        self._come_to(to)
        return []

    # -- definitions -----------------------------------------------------------

    def end_of(self, event: Event) -> int:
        """When an event ends: what it says, else now, and not before its start."""
        if event.end is not None:
            return event.end
        return max((t for t in (self.now, event.start) if t is not None), default=0)

    def matches(self, subscription: Subscription, event: Event) -> bool:
        if not (self._valid(subscription.expires) and self._valid(event.expires)):
            return False
        at = None
        if isinstance(subscription.region, Around):
            at = self.places.get(subscription.subscriber or "")
            if at is None:
                return False
        heading = self.headings.get(subscription.subscriber or "", 0.0)
        return oracle.wants(subscription, event, self.space, at, heading)

    def _tell(self, subscriptions: list[Subscription], events: list[Event]) -> list[Pair]:
        told: list[Pair] = []
        for subscription in subscriptions:
            for event in events:
                pair = subscription.id, event.id
                if pair not in self.told and self.matches(subscription, event):
                    self.told.add(pair)
                    told.append((subscription.id, subscription.subscriber, event.id))
        return told

    def _valid(self, expires: int | None) -> bool:
        return expires is None or self.now is None or self.now < expires

    def _come_to(self, moment: int) -> None:
        self.now = moment if self.now is None else max(self.now, moment)
        self._expire()

    def _expire(self) -> None:
        for s in [s for s in self.subscriptions.values() if not self._valid(s.expires)]:
            self._forget(s.id)
        for e in [e for e in self.events.values() if not self._valid(e.expires)]:
            self._drop(e.id)

    def _forget(self, id: str) -> None:
        del self.subscriptions[id]
        self.told = {pair for pair in self.told if pair[0] != id}

    def _drop(self, id: str) -> None:
        del self.events[id]
        self.told = {pair for pair in self.told if pair[1] != id}
