"""Live events in the order of their arrival, and the matcher that finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import TypeAlias

from nearcast.broker.seats import Found
from nearcast.clock import Micros
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.geometry import Point
from nearcast.model.placing import Facing
from nearcast.model.subscriptions import Subscription

__all__ = ["LiveEvents"]

_id = attrgetter("id")
#: Events that have expired and are still in the matcher, which passes over them.
_MOST_OVER = 512
#: Subscriptions from which on, and events for each of them up to which, events go past them.
_MANY, _EACH = 64, 16
_SOME = 512  # events that go past at a time

#: Who wants each of some events at a moment each.
Wanting: TypeAlias = Callable[[Sequence[Event], Sequence[Micros]], Found]


class LiveEvents:
    """What is live, by key. Each event has a number, and no number is given twice.

    The matcher hears of what comes when it is asked, and of what expires when it has come to
    some hundreds: together they take a fraction of the time, and what goes before anybody asks
    takes none.
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._numbers: dict[str, int] = {}
        """By key, in the order of arrival."""
        self._events: dict[int, Event] = {}
        """By number, in the same order; whole numbers are found sooner than strings."""
        self._arrived = 0
        self._heard = 0
        """The number up to which the matcher has heard of all."""
        self._waiting = 0
        """How many it has not heard of."""
        self._over: set[str] = set()
        self._named: dict[str, list[str]] = {}
        """The keys of events that have a source, by id."""
        self.publishers: dict[str, str] = {}
        """Who published an event, by key, where that was said."""
        matcher.await_events(_Waiting(self))

    @property
    def matcher(self) -> Matcher:
        """What finds them."""
        return self._matcher

    @property
    def arrived(self) -> int:
        """The number of the last event that came."""
        return self._arrived

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    def __iter__(self) -> Iterator[Event]:
        """In the order of arrival."""
        return iter(self._events.values())

    def keys(self) -> KeysView[str]:
        """The keys of all, to look at."""
        return self._numbers.keys()

    def get(self, key: str) -> Event | None:
        """The event under a key."""
        return self._events.get(self._numbers.get(key, 0))

    def under(self, id: str) -> list[str]:
        """The keys of those that have an id, whatever their source."""
        plain, named = Event(id).key, self._named.get(id, [])
        return [plain, *named] if plain in self._numbers else named

    def numbered(self, key: str) -> tuple[int, Event]:
        """An event that is there, behind its number."""
        number = self._numbers[key]
        return number, self._events[number]

    def numbers(self) -> list[int]:
        """The numbers of all, ascending. O(n)."""
        return [*self._events]

    def add(self, event: Event) -> None:
        """An event is live; its key is free."""
        key = event.key
        if key in self._over:
            self._forget()
        if event.source is not None:
            self._named.setdefault(event.id, []).append(key)
        self._arrived += 1
        self._numbers[key] = self._arrived
        self._events[self._arrived] = event
        self._waiting += 1
        self._matcher.staged(self._waiting)

    def add_all(self, events: Sequence[Event]) -> None:
        """Events are live, all of keys that are free, and without a source."""
        ids, first = [*map(_id, events)], self._arrived + 1
        if not self._over.isdisjoint(ids):
            self._forget()
        self._arrived += len(events)
        self._numbers.update(zip(ids, range(first, self._arrived + 1), strict=True))
        self._events.update(zip(range(first, self._arrived + 1), events, strict=True))
        self._waiting += len(events)
        self._matcher.staged(self._waiting)

    def expire(self, keys: Sequence[str]) -> list[Event]:
        """Events have expired, as the matcher knows from the time it is asked at."""
        numbers = [*map(self._numbers.pop, keys)]
        events = [*map(self._events.pop, numbers)]
        if self.publishers or self._named:
            for key, event in zip(keys, events, strict=True):
                self._unname(key, event)
        heard: Sequence[str] = ()
        if keys and min(numbers) <= self._heard:
            heard = [key for key, n in zip(keys, numbers, strict=True) if n <= self._heard]
            self._over.update(heard)
        self._waiting -= len(keys) - len(heard)
        if len(self._over) >= _MOST_OVER:
            self._forget()
        return events

    def retract(self, key: str) -> None:
        """An event is gone before its time."""
        number = self._numbers.pop(key)
        self._unname(key, self._events.pop(number))
        if number > self._heard:
            self._waiting -= 1
        else:
            self._matcher.remove_event(key)

    def _unname(self, key: str, event: Event) -> None:
        """Nobody finds an event by its publisher or its source any more."""
        self.publishers.pop(key, None)
        if event.source is not None:
            named = self._named[event.id]
            named.remove(key)
            if not named:
                del self._named[event.id]

    def _forget(self) -> None:
        self._matcher.remove_events(self._over)
        self._over.clear()

    def matching(self, subscription: Subscription, now: Micros | None) -> list[tuple[int, Event]]:
        """Those that a subscription wants now, in the order of arrival."""
        if not self._events:
            return []
        return self._sorted(self._matcher.match_subscription(subscription, now=now))

    def matching_at(
        self, subscription: Subscription, now: Micros | None, place: Facing
    ) -> list[Event]:
        """Those that one who follows its subscriber would want, were that at a place."""
        if not self._events:
            return []
        at = Point(place.x, place.y)
        found = self._matcher.match_subscription(
            subscription, now=now, at=at, heading=place.heading
        )
        return [event for _, event in self._sorted(found)]

    def _sorted(self, keys: Iterable[str]) -> list[tuple[int, Event]]:
        """In the order of arrival."""
        return sorted(map(self.numbered, keys), key=_number)

    def matching_each(
        self, subscriptions: Sequence[Subscription], now: Micros | None, wanting: Wanting
    ) -> list[list[tuple[int, Event]]]:
        """`matching` for each of many. Where they are many, the events go past them instead.

        `wanting` says who wants each of some events, these subscriptions and others. (1 µs a
        subscription and 5 an event, where one subscription after the other takes 25.)
        """
        few = len(subscriptions) < _MANY or len(self) > _EACH * len(subscriptions)
        if few or now is None:
            return [self.matching(each, now) for each in subscriptions]
        rows = {each.id: row for row, each in enumerate(subscriptions)}
        found: list[list[tuple[int, Event]]] = [[] for _ in subscriptions]
        live = [*self._events.items()]
        most = _EACH * len(subscriptions)
        for first in range(0, len(live), _SOME):
            some = live[first : first + _SOME]
            if most >= 0:
                wanted = wanting([event for _, event in some], [now] * len(some))
                to, counts = [*wanted], wanted.counts
                most -= len(to)
            else:  # others want so much that these are better asked alone
                to, counts = self._asked(subscriptions, some, now)
            of = chain.from_iterable(map(repeat, some, counts))
            for each, numbered in zip(map(_id, to), of, strict=True):
                if each in rows:
                    found[rows[each]].append(numbered)
        return found

    def _asked(
        self, subscriptions: Sequence[Subscription], some: list[tuple[int, Event]], now: Micros
    ) -> tuple[list[Subscription], Sequence[int]]:
        """Who of these wants each of some events, one behind the other, and how many want each."""
        matcher = Matcher(space=self._matcher.space)
        matcher.add_subscriptions(subscriptions)
        counts, slots = matcher.match_each([event for _, event in some], [now] * len(some))
        by_id = {each.id: each for each in subscriptions}
        return [by_id[matcher.id_of(slot)] for slot in slots], counts

    def check_invariants(self) -> None:
        """Raise AssertionError where this and the matcher disagree. Slow; for tests."""
        self._forget()
        self._matcher.check_invariants()
        assert self._matcher.event_count == len(self._events)
        assert self.numbers() == sorted(self.numbers())
        assert [*self._numbers.values()] == self.numbers()
        assert [*self._numbers] == [event.key for event in self]
        named = {key for keys in self._named.values() for key in keys}
        assert named == {event.key for event in self if event.source is not None}
        assert all(self._named.values())


class _Waiting:
    """Those of which the matcher has not heard, for when it wants to."""

    def __init__(self, live: LiveEvents) -> None:
        self._live = live

    def __len__(self) -> int:
        return self._live._waiting

    def events(self) -> list[Event]:
        """All of them, in the order of arrival. O(their number)."""
        live = self._live
        found = []
        for key, number in reversed(live._numbers.items()):
            if number <= live._heard:
                break
            event = live._events[number]
            found.append(event if key == event.id else _keyed(event))
        return found[::-1]

    def heard(self) -> None:
        """The matcher has heard of them."""
        self._live._heard, self._live._waiting = self._live._arrived, 0


def _keyed(event: Event) -> Event:
    """The event as the matcher knows it, which tells events apart by their ids alone."""
    times = event.start, event.end, event.expires
    return Event(event.key, event.attributes, event.keywords, event.location, *times)


def _number(numbered: tuple[int, Event]) -> int:
    return numbered[0]
