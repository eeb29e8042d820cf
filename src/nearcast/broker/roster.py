"""Subscriptions by id, and the matcher that finds those who want an event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from nearcast.broker.subscriptions import Subscriptions
from nearcast.clock import Micros
from nearcast.errors import BatchError
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.geometry import Around
from nearcast.model.subscriptions import Subscription

__all__ = ["Roster", "follows"]

_id = attrgetter("id")


class Roster:
    """Who wants what. Whoever follows somebody is only known here: the tracker matches those.

    What the matcher finds are slots; who is in each is remembered from the first time on, for
    finding somebody by an id takes as long as to match.
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._known = Subscriptions()
        self._seated: list[Subscription | None] = []
        """By slot, as far as anybody has asked."""

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
        if self._seated:
            slot = self._matcher.slot_of(id)
            if slot < len(self._seated):
                self._seated[slot] = None

    def wanting(self, event: Event, now: Micros) -> list[Subscription]:
        """Those who want an event at a moment, by their ids."""
        if not len(self._matcher):
            return []
        return self._in_slots(self._matcher.match_slots(event, now))

    def wanting_each(
        self, events: Sequence[Event], moments: Sequence[Micros]
    ) -> Iterator[list[Subscription]]:
        """`wanting` for each of many, found together."""
        found, counts = self.wanting_all(events, moments)
        stops = [*accumulate(counts)]
        return (found[a:b] for a, b in zip([0, *stops], stops, strict=False))

    def wanting_all(
        self, events: Sequence[Event], moments: Sequence[Micros]
    ) -> tuple[list[Subscription], list[int]]:
        """Those who want each of many, one behind the other, and how many want each."""
        if not len(self._matcher):
            return [], [0] * len(events)
        counts, slots = self._matcher.match_each(events, moments)
        return self._seats(slots), counts

    def _in_slots(self, slots: list[int]) -> list[Subscription]:
        found = self._seats(slots)
        if len(found) > 1:
            found.sort(key=_id)
        return found

    def _seats(self, slots: list[int]) -> list[Subscription]:
        """Who is in each slot."""
        try:
            found: list[Subscription | None] = [*map(self._seated.__getitem__, slots)]
        except IndexError:
            more = max(slots) + 1
            self._seated += [None] * (more + more // 8 - len(self._seated))
            found = [*map(self._seated.__getitem__, slots)]
        if not all(found):  # `None in found` would compare each, which takes longer than the rest
            found = [*map(self._seat, slots)]
        return found  # type: ignore[return-value]

    def _seat(self, slot: int) -> Subscription:
        seated = self._seated[slot]
        if seated is None:
            seated = self._seated[slot] = self._known[self._matcher.id_of(slot)]
        return seated

    def check_invariants(self) -> None:
        """Raise AssertionError where this and the matcher disagree. Slow; for tests."""
        self._matcher.check_invariants()
        assert len(self._matcher) == sum(not follows(each) for each in self._known.values())
        for slot, seated in enumerate(self._seated):
            if seated is not None:
                assert self._known.get(seated.id) is seated
                assert self._matcher.slot_of(seated.id) == slot


def _alike(one: Matcher, other: Matcher) -> bool:
    """Whether two matchers are made in the same way."""
    made = [(each.entry.name, each.space, each.parts()["options"]) for each in (one, other)]
    return made[0] == made[1]


def follows(subscription: Subscription) -> bool:
    """Whether a subscription's region goes where its subscriber goes."""
    return isinstance(subscription.region, Around)
