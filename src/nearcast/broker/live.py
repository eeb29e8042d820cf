"""Live events in the order of their arrival, and the matcher that finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nearcast.clock import Micros
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription

__all__ = ["LiveEvents"]

#: Events that have expired and are still in the matcher, which passes over them.
_MOST_OVER = 512


class LiveEvents:
    """What is live, by id. Each event has a number, and no number is given twice.

    The matcher hears of what comes and expires when it is asked, or when it has come to some
    hundreds: together they take a fraction of the time.
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._known: dict[str, tuple[int, Event]] = {}
        self._over: set[str] = set()
        self._arrived = 0

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, id: object) -> bool:
        return id in self._known

    def __iter__(self) -> Iterator[Event]:
        """In the order of arrival."""
        return (event for _, event in self._known.values())

    def ids(self) -> Iterable[str]:
        """The ids of all, to look at."""
        return self._known.keys()

    def get(self, id: str) -> Event | None:
        """The event under an id."""
        known = self._known.get(id)
        return None if known is None else known[1]

    def numbered(self, id: str) -> tuple[int, Event]:
        """An event that is there, behind its number."""
        return self._known[id]

    def numbers(self) -> list[int]:
        """The numbers of all, ascending. O(n)."""
        return [number for number, _ in self._known.values()]

    def add(self, event: Event) -> None:
        """An event is live; its id is free."""
        id = event.id
        if id in self._over:
            self._forget()
        self._matcher.stage_event(event)
        self._arrived += 1
        self._known[id] = self._arrived, event

    def expire(self, id: str) -> Event:
        """An event has expired, as the matcher knows from the time it is asked at."""
        event = self._drop(id)
        self._over.add(id)
        if len(self._over) >= _MOST_OVER:
            self._forget()
        return event

    def retract(self, id: str) -> None:
        """An event is gone before its time."""
        self._drop(id)
        self._matcher.remove_event(id)

    def _drop(self, id: str) -> Event:
        _, event = self._known.pop(id)
        return event

    def _forget(self) -> None:
        self._matcher.remove_events(self._over)
        self._over.clear()

    def matching(self, subscription: Subscription, now: Micros | None) -> list[tuple[int, Event]]:
        """Those that a subscription wants now, in the order of arrival."""
        if not self._known:
            return []
        found = self._matcher.match_subscription(subscription, now=now)
        return sorted(map(self._known.__getitem__, found), key=_number)

    def check_invariants(self) -> None:
        """Raise AssertionError where this and the matcher disagree. Slow; for tests."""
        self._forget()
        self._matcher.check_invariants()
        assert self._matcher.event_count == len(self._known)
        assert self.numbers() == sorted(self.numbers())


def _number(numbered: tuple[int, Event]) -> int:
    return numbered[0]
