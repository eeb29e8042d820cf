"""Terms by definition: the naive broker finds pairs, and here each is told, held or let go.

No queue of what is due and no zone arithmetic: the moment at which nothing holds a thing any more
is looked for minute by minute, by the clock on the wall.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from nearcast.clock import Micros
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription
from nearcast.model.terms import QuietHours, Terms
from tests.naive_broker import NaiveBroker, Pair

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000


class Found(NamedTuple):
    """A pair that waits, the event it is of, and when it was found."""

    pair: Pair
    event: Event
    at: Micros


def is_quiet(hours: QuietHours | None, at: Micros) -> bool:
    """Whether the clock on the wall shows a quiet time."""
    if hours is None:
        return False
    wall = (_EPOCH + timedelta(microseconds=at)).astimezone(ZoneInfo(hours.zone))
    shown = wall.strftime("%H:%M:%S.%f")
    if hours.start < hours.end:
        return hours.start <= shown < hours.end
    return shown >= hours.start or shown < hours.end


@cache
def first_loud(hours: QuietHours | None, at: Micros) -> Micros:
    """The first moment from one on that is not quiet; hours begin and end with a minute."""
    while is_quiet(hours, at):
        at = (at // MINUTE + 1) * MINUTE
    return at


class NaiveTerms(NaiveBroker):
    """Subscriptions with terms, one thing after the other."""

    def __init__(self, space: str) -> None:
        super().__init__(space)
        self.paused: set[str] = set()
        self.counts: dict[str, int] = {}
        self.held: dict[str, list[Found]] = {}
        self.began: dict[str, int] = {}
        self.came: dict[str, int] = {}
        self.resumed: dict[str, Micros] = {}
        self.spent: dict[str, tuple[Subscription, Micros]] = {}
        """What has told enough, and when it had."""
        self.when: list[Micros] = []
        """When each pair of the last call was told."""
        self.later: list[Pair] = []
        """What was told when its time had come, since somebody looked."""

    # -- verbs -----------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> list[Pair]:
        id = subscription.id
        old = self.subscriptions.get(id)
        if old is None and id in self.spent:
            before, at = self.spent.pop(id)
            if before == subscription and (self.now or 0) < at + 60 * MINUTE:
                self.spent[id] = before, at
                return []
        if old is not None and old.subscriber != subscription.subscriber:
            self._forget(id)
        self.subscriptions[id] = subscription
        self.began[id] = len(self.came)
        self.resumed[id] = self.now or 0
        told: list[Pair] = []
        if self._full(id):
            self._spend(id)
        elif self._valid(subscription.expires):
            told = self._due_now(id)
        if id in self.subscriptions:
            told += self._tell([subscription], list(self.events.values()))
        self._expire()
        return told

    def publish(self, event: Event) -> list[Pair]:
        told = self._wait_for(self.end_of(event))
        self.came[event.id] = len(self.came)
        return told + super().publish(event)

    def advance(self, to: Micros) -> list[Pair]:
        return self._wait_for(to) + super().advance(to)

    def pause(self, id: str) -> list[Pair]:
        self.paused.add(id)
        return []

    def resume(self, id: str) -> list[Pair]:
        if id not in self.paused:
            return []
        self.paused.remove(id)
        self.resumed[id] = self.now or 0
        return self._due_now(id)

    # -- definitions -----------------------------------------------------------

    def terms(self, id: str) -> Terms:
        return self.subscriptions[id].terms or Terms()

    def _tell(self, subscriptions: Iterable[Subscription], events: list[Event]) -> list[Pair]:
        told: list[Pair] = []
        for subscription in subscriptions:
            for event in events:
                if subscription.id in self.subscriptions:
                    found = super()._tell([subscription], [event])
                    told += [pair for pair in found if self._goes(pair, event)]
        return told

    def _goes(self, pair: Pair, event: Event) -> bool:
        id, now = pair[0], self.now or 0
        terms = self.terms(id)
        if not terms.initial_event and self.came[event.id] < self.began[id]:
            return False
        if id in self.paused:
            keeps = terms.while_paused == "keep"
        elif is_quiet(terms.quiet_hours, now):
            keeps = terms.quiet_hours is not None and terms.quiet_hours.keep
        elif terms.digest is not None:
            keeps = True
        else:
            self._count(id)
            return True
        if keeps:
            self.held.setdefault(id, []).append(Found(pair, event, now))
        return False

    def _count(self, id: str) -> None:
        if self.terms(id).max_events is not None:
            self.counts[id] = self.counts.get(id, 0) + 1
        if self._full(id):
            self._spend(id)

    def _spend(self, id: str) -> None:
        self.spent[id] = self.subscriptions[id], self.now or 0
        self._forget(id)

    def _full(self, id: str) -> bool:
        most = self.terms(id).max_events
        return most is not None and self.counts.get(id, 0) >= most

    def due(self, id: str) -> Micros | None:
        """When what is held of a thing is told, as far as anybody knows now."""
        if not self.held.get(id) or id in self.paused:
            return None
        terms = self.terms(id)
        first = self.held[id][0].at
        if terms.digest is not None:
            first += terms.digest // timedelta(microseconds=1)
        return first_loud(terms.quiet_hours, max(first, self.resumed[id]))

    def _wait_for(self, moment: Micros) -> list[Pair]:
        """What is told on the way to a moment."""
        told: list[Pair] = []
        while True:
            dues = {id: at for id in self.held if (at := self.due(id)) is not None}
            ready = [(at, id) for id, at in dues.items() if at <= moment]
            if not ready:
                return told
            at, id = min(ready)
            self._come_to(at)
            told += self._due_now(id)

    def _due_now(self, id: str) -> list[Pair]:
        """What is told of what was held, if nothing holds it any more."""
        at = self.due(id) if id in self.subscriptions else None
        if at is None or at > (self.now or 0):
            return []
        told: list[Pair] = []
        for found in self.held.pop(id):
            live = self.events.get(found.event.id) is found.event
            if id in self.subscriptions and live:
                told.append(found.pair)
                self._count(id)
        return told

    def _forget(self, id: str) -> None:
        super()._forget(id)
        self.paused.discard(id)
        self.counts.pop(id, None)
        self.held.pop(id, None)
