"""Subscriptions by id, and the matcher that finds those who want an event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nearcast.broker.seats import Found, Seats
from nearcast.broker.subscriptions import Subscriptions
from nearcast.clock import Micros
from nearcast.errors import BatchError
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.geometry import Around
from nearcast.model.subscriptions import Subscription

__all__ = ["Roster", "follows"]


class Roster:
    """Who wants what. Whoever follows somebody is only known here: the tracker matches those.

    What the matcher finds are slots; who is in each is looked up when somebody asks (`Found`).
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._known = Subscriptions()
        self._seats = Seats(self._sitting)

    @property
    def matcher(self) -> Matcher:
        """What finds them."""
        return self._matcher

    def adopt(self, kept: Subscriptions, matcher: Matcher | None) -> None:
        """Begin with what a store has kept; it is in this matcher, if there is one that fits."""
        self._known = kept
        if matcher is not None and _alike(matcher, self._matcher):
            self._matcher = matcher
            return
        for some in kept.tables():
            self._matcher.add_subscriptions(some)
        self._matcher.add_subscriptions([each for each in kept.opened() if not follows(each)])

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, id: object) -> bool:
        return id in self._known

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._known.values())

    def __getitem__(self, id: str) -> Subscription:
        return self._known[id]

    def get(self, id: str) -> Subscription | None:
        """The subscription under an id."""
        found: Subscription | None = self._known.get(id)
        return found

    def check(self, subscription: Subscription) -> None:
        """Raise what `put` would raise; changes nothing."""
        if not follows(subscription):
            self._matcher.check_subscription(subscription)

    def put(self, subscription: Subscription) -> None:
        """Enter a subscription, in the place of another if its id is taken."""
        old = self._known.get(subscription.id)
        stood = old is not None and not follows(old)
        if stood:
            self._rise(subscription.id)
        if follows(subscription):
            if stood:
                self._matcher.remove_subscription(subscription.id)
        elif stood:
            self._matcher.update_subscription(subscription)
        else:
            self._matcher.add_subscriptions([subscription])
        self._known[subscription.id] = subscription

    def put_all(self, subscriptions: Sequence[Subscription]) -> None:
        """Enter many whose ids are free, or none: BatchError names the bad one."""
        rows = [row for row, each in enumerate(subscriptions) if not follows(each)]
        try:
            self._matcher.add_subscriptions([subscriptions[row] for row in rows])
        except BatchError as error:
            raise BatchError(rows[error.row], error.cause) from error
        self._known.update((each.id, each) for each in subscriptions)

    def remove(self, id: str) -> None:
        """Forget a subscription."""
        if not follows(self._known[id]):
            self._rise(id)
            self._matcher.remove_subscription(id)
        del self._known[id]

    def _rise(self, id: str) -> None:
        """Somebody leaves a slot, which others may take."""
        if self._seats:
            self._seats.leave(self._matcher.slot_of(id), self._known[id])

    def _sitting(self, slot: int) -> Subscription:
        """Who is in a slot of the matcher."""
        return self._known[self._matcher.id_of(slot)]

    def wanting(self, event: Event, now: Micros) -> Found:
        """Those who want an event at a moment."""
        slots = self._matcher.match_slots(event, now) if len(self._matcher) else []
        return self._seats.found(slots, (len(slots),))

    def wanting_all(self, events: Sequence[Event], moments: Sequence[Micros]) -> Found:
        """Those who want each of many, found together."""
        if not len(self._matcher):
            return self._seats.found([], [0] * len(events))
        counts, slots = self._matcher.match_each(events, moments)
        return self._seats.found(slots, counts)

    def check_invariants(self) -> None:
        """Raise AssertionError where this and the matcher disagree. Slow; for tests."""
        self._matcher.check_invariants()
        assert len(self._matcher) == sum(not follows(each) for each in self._known.values())
        self._seats.check_invariants()


def _alike(one: Matcher, other: Matcher) -> bool:
    """Whether two matchers are made in the same way."""
    made = [
        (each.entry.name, each.space, each.schema.letters, each.parts()["options"])
        for each in (one, other)
    ]
    return made[0] == made[1]


def follows(subscription: Subscription) -> bool:
    """Whether a subscription's region goes where its subscriber goes."""
    return isinstance(subscription.region, Around)
