"""What stands behind the ports by default: a store and a sink in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace

from nearcast.broker.past import Past
from nearcast.broker.ports import (
    Change,
    Closed,
    Detecting,
    Expired,
    Fenced,
    Gone,
    Moved,
    Published,
    Reached,
    State,
    Subscribed,
    Told,
    Traced,
    Unsubscribed,
)
from nearcast.broker.replies import Notification
from nearcast.errors import ValidationError

__all__ = ["Inbox", "MemoryStore", "NoStore", "applied"]


def applied(state: State, change: Change) -> None:
    """Let a change happen to a state: what every store's contents mean. O(1), ends O(events)."""
    match change:
        case Subscribed(subscription):
            state.subscriptions[subscription.id] = subscription
        case Detecting(composite):
            state.composites[composite.id] = composite
        case Fenced(known):
            state.fences[known.fence.id] = known
        case Traced(known):
            if known.event is None:
                state.objects.pop((known.key, known.object), None)
            else:
                state.objects[known.key, known.object] = known
        case Unsubscribed(id):
            if state.fences.pop(id, None) is not None:
                _end_visits(state, id)
            state.subscriptions.pop(id, None)
            state.composites.pop(id, None)
            for told in state.told.values():
                told.discard(id)
        case Published(event):
            state.events[event.id] = event
        case Gone(event_id):
            state.events.pop(event_id, None)
            state.told.pop(event_id, None)
        case Expired(event_id, content, until):
            state.events.pop(event_id, None)
            state.told.pop(event_id, None)
            Past(state.expired).keep(event_id, content, until)
        case Told(notification) if notification.transition is None:
            state.told.setdefault(notification.event.id, set()).add(notification.subscription_id)
        case Moved(subscriber):
            state.places[subscriber] = change
        case Reached(now):
            state.now = now
            Past(state.expired).forget(now)
        case Closed(at):
            state.closed = at


def _end_visits(state: State, fence_id: str) -> None:
    for known in state.objects.values():
        visits = tuple(visit for visit in known.visits if visit.fence_id != fence_id)
        if visits != known.visits:
            state.objects[known.key, known.object] = replace(known, visits=visits)


class NoStore:
    """Remembers nothing: a broker that lives and dies with its process."""

    def load(self) -> State:
        """An empty state."""
        return State()

    def commit(self, changes: Sequence[Change]) -> None:
        """Forget them."""


class MemoryStore:
    """Remembers in memory: the contract of `Store` in the fewest lines; for tests and examples."""

    def __init__(self) -> None:
        self._state = State()

    def load(self) -> State:
        """A copy of everything remembered."""
        return deepcopy(self._state)

    def commit(self, changes: Sequence[Change]) -> None:
        """Remember."""
        for change in changes:
            applied(self._state, change)


class Inbox:
    """A sink that keeps the newest notifications; when it is full the oldest go."""

    def __init__(self, size: int = 10_000) -> None:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValidationError("size", size, "give a positive whole number")
        self._kept: deque[Notification] = deque(maxlen=size)

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Notification]:
        return iter(self._kept)

    def deliver(self, notification: Notification) -> None:
        """Keep one more."""
        self._kept.append(notification)
