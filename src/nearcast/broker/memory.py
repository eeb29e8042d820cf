"""What stands behind the ports by default: a store and a sink in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from sys import maxsize

from nearcast.broker import past
from nearcast.broker.ports import (
    Acknowledged,
    Altered,
    Change,
    Changes,
    Closed,
    Decided,
    Detecting,
    Expired,
    Fenced,
    Gone,
    Held,
    Input,
    Kept,
    Kind,
    Moved,
    Page,
    Published,
    Queued,
    Reached,
    Released,
    SavedPatterns,
    Spent,
    Standing,
    State,
    Subscribed,
    Thing,
    Told,
    Traced,
    Unsubscribed,
)
from nearcast.broker.replies import Notification
from nearcast.errors import ValidationError
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.subscriptions import Subscription

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
        case Queued(turn):
            state.turns[turn.number] = turn
        case Decided(numbers):
            for number in numbers:
                state.turns.pop(number, None)
        case Unsubscribed(id):
            if state.fences.pop(id, None) is not None:
                _end_visits(state, id)
            state.subscriptions.pop(id, None)
            state.composites.pop(id, None)
            state.standings.pop(id, None)
            state.held.pop(id, None)
            for ids in state.told.values():
                ids.discard(id)
        case Spent(id, content, until):
            if content is None:
                state.expired.pop(past.thing_key(id), None)
            else:
                past.keep(state.expired, past.thing_key(id), content, until)
        case Published(event, by):
            state.events[event.key] = event
            if by is not None:
                state.publishers[event.key] = by
            if event.end is None and state.now is not None:
                state.came[event.key] = state.now
        case Gone(key):
            _end_event(state, key)
        case Expired(key, content, until):
            _end_event(state, key)
            past.keep(state.expired, key, content, until)
        case Told(notifications):
            for told in notifications:
                if told.subscriber is not None and told.seq is not None:
                    state.numbers[told.subscriber] = told.seq
        case Standing(id):
            state.standings[id] = change
        case Held(first, notifications):
            for number, found in enumerate(notifications, first):
                live = state.events.get(found.event.key)
                if live is not None and live == found.event:  # the broker's may be a copy of it
                    found = found._replace(event=live)
                state.held.setdefault(found.subscription_id, []).append((number, found))
        case Released(id, upto):
            held = state.held.pop(id, [])
            if rest := [each for each in held if each[0] > upto]:
                state.held[id] = rest
        case Kept(subscription_id, keys):
            for key in keys:
                state.told.setdefault(key, set()).add(subscription_id)
        case Moved(subscriber):
            state.places[subscriber] = change
        case Reached(now):
            state.now = now
            past.forget(state.expired, now)
        case SavedPatterns(patterns):
            state.patterns = patterns
            state.inputs.clear()
        case Acknowledged():
            pass  # `MemoryStore` keeps outboxes
        case Closed(at):
            state.closed = at


def _end_event(state: State, key: str) -> None:
    state.publishers.pop(key, None)
    state.came.pop(key, None)
    state.events.pop(key, None)
    state.told.pop(key, None)


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

    def stage(self, changes: Sequence[Change]) -> None:
        """Forget them."""

    def flush(self) -> None:
        """Nothing to do."""

    def keep(self, matcher: Matcher) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def outbox(
        self, subscriber: str, after: int, limit: int, max_bytes: int | None = None  # noqa: ARG002
    ) -> Page:  # fmt: skip
        """Nothing is kept."""
        return Page((), after)

    def cursor(self, subscriber: str) -> int:  # noqa: ARG002
        """Nobody has acknowledged anything."""
        return 0

    def log(
        self, after: int, limit: int, max_bytes: int | None = None  # noqa: ARG002
    ) -> Sequence[tuple[int, Event]]:  # fmt: skip
        """Nothing is kept."""
        return ()

    def offset(self, key: str | None = None) -> int:  # noqa: ARG002
        """There is no log."""
        return 0

    def forgotten(self) -> int:
        """There is no log."""
        return 0

    def changes(
        self, after: int, limit: int, max_bytes: int | None = None  # noqa: ARG002
    ) -> Changes:  # fmt: skip
        """Nothing is kept."""
        return Changes((), 0, 0)

    def things(
        self, kind: Kind, after: str, limit: int, subscriber: str | None  # noqa: ARG002
    ) -> Sequence[Thing]:  # fmt: skip
        """Nothing is kept."""
        return ()

    def count(self, subscriber: str) -> int:  # noqa: ARG002
        """Nothing is kept."""
        return 0


class MemoryStore:
    """Remembers in memory: the contract of `Store` in the fewest lines; for tests and examples."""

    def __init__(self) -> None:
        self._state = State()
        self._staged: list[Change] = []
        self._log: list[Event] = []
        self._offsets: dict[str, int] = {}
        self._offset = 0
        self._altered: list[Altered] = []
        self._outboxes: dict[str, list[Notification]] = {}
        self._cursors: dict[str, int] = {}

    def load(self) -> State:
        """A copy of everything remembered."""
        return deepcopy(self._state)

    def stage(self, changes: Sequence[Change]) -> None:
        """Take changes; events have their numbers at once."""
        for change in changes:
            match change:
                case Published(event):
                    self._offset += 1
                    self._offsets[event.key] = self._offset
                case Gone(key) | Expired(key):
                    self._offsets.pop(key, None)
        self._staged += changes

    def flush(self) -> None:
        """Remember what is staged."""
        staged, self._staged = self._staged, []
        for change in staged:
            self._remember(change)

    def _remember(self, change: Change) -> None:
        state = self._state
        if _is_input(state, change):
            at = change.now if isinstance(change, Reached) else state.now
            state.inputs.append(Input(at, change))  # type: ignore[arg-type]
        self._alter(change)
        applied(state, change)
        match change:
            case Published(event):
                self._log.append(event)
            case Told(notifications):
                for told in notifications:
                    if told.seq is not None:
                        self._outboxes.setdefault(told.subscriber or "", []).append(told)
            case Acknowledged(subscriber, upto):
                self._cursors[subscriber] = max(upto, self.cursor(subscriber))

    def _alter(self, change: Change) -> None:
        """Enter a change of a subscription; something else under its id ends it, too."""
        now: Subscription | None = None
        match change:
            case Subscribed(wanted):
                id, now = wanted.id, wanted
            case Unsubscribed(gone):
                id = gone
            case Detecting(composite):
                id = composite.id
            case Fenced(known):
                id = known.fence.id
            case _:
                return
        if now is not None or id in self._state.subscriptions:
            number = len(self._altered) + 1
            self._altered.append(Altered(number, len(self._log), id, now))

    def keep(self, matcher: Matcher) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Forget what was not flushed."""
        self._staged, self._offset = [], len(self._log)

    def outbox(
        self, subscriber: str, after: int, limit: int, max_bytes: int | None = None  # noqa: ARG002
    ) -> Page:  # fmt: skip
        """Notifications with greater numbers; they are in memory, so nobody counts their bytes."""
        kept = self._outboxes.get(subscriber, [])
        first = bisect_right(kept, after, key=lambda told: told.seq or 0)
        found = tuple(kept[first : first + limit])
        return Page(found, after if not found else found[-1].seq or 0)

    def cursor(self, subscriber: str) -> int:
        """The number up to which a subscriber has acknowledged."""
        return self._cursors.get(subscriber, 0)

    def log(
        self, after: int, limit: int, max_bytes: int | None = None  # noqa: ARG002
    ) -> Sequence[tuple[int, Event]]:  # fmt: skip
        """Events in the order they came; offsets count from 1."""
        after = max(after, 0)
        return list(enumerate(self._log[after : after + limit], after + 1))

    def offset(self, key: str | None = None) -> int:
        """Events are counted."""
        return self._offset if key is None else self._offsets[key]

    def forgotten(self) -> int:
        """Everything is kept."""
        return 0

    def changes(
        self, after: int, limit: int, max_bytes: int | None = None  # noqa: ARG002
    ) -> Changes:  # fmt: skip
        """All changes there were; numbers count from 1."""
        after = max(after, 0)
        return Changes(self._altered[after : after + limit], len(self._altered), 0)

    def things(self, kind: Kind, after: str, limit: int, subscriber: str | None) -> list[Thing]:
        """Things with greater ids."""
        known: Mapping[str, Thing] = self._state.subscriptions
        if kind == "composite":
            known = self._state.composites
        elif kind == "fence":
            known = {id: each.fence for id, each in self._state.fences.items()}
        later = sorted(id for id in known if id > after)
        found = (known[id] for id in later)
        mine = (each for each in found if subscriber in (None, each.subscriber))
        return list(islice(mine, limit))

    def count(self, subscriber: str) -> int:
        """How many things are somebody's."""
        kinds: tuple[Kind, ...] = ("subscription", "fence", "composite")
        return sum(len(self.things(kind, "", maxsize, subscriber)) for kind in kinds)


def _is_input(state: State, change: Change) -> bool:
    """Whether patterns were given this."""
    match change:
        case Detecting():
            return True
        case Published():
            return bool(state.composites)
        case Reached(_, closing):
            return closing
        case Unsubscribed(id):
            return id in state.composites
    return False


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
