"""Fences: positions in order of time, and places of subscribers whom regions follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from nearcast.broker.live import LiveEvents
from nearcast.clock import NEVER, Micros
from nearcast.fences import Crossing, Position, Watch
from nearcast.fences.saved import KnownFence, KnownObject, Saved
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Point, Space
from nearcast.model.subscriptions import Subscription

__all__ = ["Fences"]

#: Places of subscribers without fences that are remembered, the newest ones.
_MOST_PLACES = 10_000

_Move: TypeAlias = tuple[str, Point]


class Fences:
    """A watch fed in order of time.

    With `hold` positions wait for so long, so that late ones find their place; so do fences
    and moves, which count from the moment at which they came.
    """

    def __init__(self, space: Space, hold: Micros, live: LiveEvents) -> None:
        self._watch = Watch(space)
        self._hold = hold
        self._live = live
        self._fences: dict[str, Fence] = {}
        self._held: list[tuple[Micros, int, Event | Fence | _Move]] = []
        self._waiting: dict[str, Event] = {}
        """Live events that are held."""
        self._ends: dict[str, Micros] = {}
        """When live events ended that do not say it."""
        self._places: dict[str, Point] = {}
        self._followed: dict[str, int] = {}
        self._ending: dict[str, Micros] = {}
        self._begun: list[str] = []
        self._received = 0
        self._before: Micros = NEVER
        self._closed: Micros = NEVER

    def __len__(self) -> int:
        """How many fences there are."""
        return len(self._fences)

    def __contains__(self, id: object) -> bool:
        return id in self._fences

    def __iter__(self) -> Iterator[Fence]:
        return iter(self._fences.values())

    def get(self, id: str) -> Fence | None:
        """The fence under an id."""
        return self._fences.get(id)

    @property
    def idle(self) -> bool:
        """Whether nothing can be due."""
        return not self._fences and not self._held

    @property
    def late(self) -> int:
        """How many positions came after later ones of their object, and did not count."""
        return self._watch.late

    def follows(self, subscriber: str) -> bool:
        """Whether a fence follows this subscriber."""
        return subscriber in self._followed

    def place_of(self, subscriber: str) -> Point | None:
        """Where a subscriber was last, as far as that is remembered."""
        return self._places.get(subscriber)

    # -- what comes ----------------------------------------------------------------

    def add(self, fence: Fence, now: Micros | None) -> list[Crossing]:
        """A fence that is new; told of what is true now."""
        self._fences[fence.id] = fence
        if fence.expires is not None:
            self._ending[fence.id] = fence.expires
        if isinstance(fence.region, Around):
            assert fence.subscriber is not None
            self._followed[fence.subscriber] = self._followed.get(fence.subscriber, 0) + 1
        if self._hold and now is not None:
            self._keep(now, fence)
            return []
        return self._begin(fence, now)

    def _begin(self, fence: Fence, now: Micros | None) -> list[Crossing]:
        place = None
        if isinstance(fence.region, Around):
            place = self._places.get(fence.subscriber or "")
        moment = NEVER if now is None else now
        self._begun.append(fence.id)
        self._watch.reach(self._before, self._closed)
        return self._watch.add(fence, lambda wanted: self._matching(wanted, now), moment, place)

    def _matching(self, wanted: Subscription, now: Micros | None) -> Iterator[tuple[Micros, Event]]:
        """Live events that have had their turn, in the order of arrival."""
        for _, event in self._live.matching(wanted, now):
            if self._waiting.get(event.key) is not event:
                yield self.end_of(event), event

    def end_of(self, event: Event) -> Micros:
        """When a live event ended."""
        return self._ends.get(event.key, 0) if event.end is None else event.end

    def remove(self, id: str) -> None:
        """A fence is over."""
        fence = self._fences.pop(id)
        self._ending.pop(id, None)
        if isinstance(fence.region, Around):
            assert fence.subscriber is not None
            self._followed[fence.subscriber] -= 1
            if not self._followed[fence.subscriber]:
                del self._followed[fence.subscriber]
        if id in self._watch:
            self._watch.remove(id)

    def take(self, event: Event, end: Micros, now: Micros) -> list[Crossing]:
        """An event happened; what it brings at once."""
        if event.end is None and event.location is not None:
            self._ends[event.key] = end
        if not self._fences or event.location is None:
            return []
        if self._hold:
            self._waiting[event.key] = event
            self._keep(end, event)
            return []
        return self._watch.take([Position(event, end, now)])

    def can_take_many(self, until: Micros) -> bool:
        """Whether positions up to a moment may be taken together: nobody waits, no fence ends."""
        return not self._hold and all(until < at for at in self._ending.values())

    def take_many(self, positions: Sequence[Position]) -> list[Crossing]:
        """Events that happened; nobody waits for late ones."""
        for position in positions:
            if position.event.end is None and position.event.location is not None:
                self._ends[position.event.key] = position.at
        return self._watch.take(positions)

    def gone(self, event: Event, *, retracted: bool) -> None:
        """An event is live no more."""
        self._ends.pop(event.key, None)
        if retracted:
            self._watch.retract(event)

    def move(self, subscriber: str, place: Point, now: Micros | None) -> list[Crossing]:
        """A subscriber is somewhere; the regions that follow them are, too."""
        if self._hold and now is not None:
            self._keep(now, (subscriber, place))
            return []
        self._put(subscriber, place)
        return self._watch.move(subscriber, place, 0 if now is None else now)

    def _put(self, subscriber: str, place: Point) -> None:
        self._places.pop(subscriber, None)
        self._places[subscriber] = place
        if len(self._places) - len(self._followed) > _MOST_PLACES:
            oldest = next(name for name in self._places if name not in self._followed)
            del self._places[oldest]

    def _keep(self, moment: Micros, what: Event | Fence | _Move) -> None:
        self._received += 1
        heappush(self._held, (moment, self._received, what))

    # -- time ------------------------------------------------------------------------

    def due(self, until: Micros, *, closing: bool) -> Micros | None:
        """The next moment before `until` at which something happens; `closing`: or then."""
        if self.idle:
            return None
        at = self._watch.due()
        if self._held:
            at = min(at, self._held[0][0])
        closed = max(self._closed, until) if closing else self._closed
        return at if at < until or at <= closed else None

    def decide(self, moment: Micros, now: Micros) -> list[Crossing]:
        """What happens at the moment that `due` named: first what was held back, then timers."""
        if not self._held or self._held[0][0] > moment:
            return self._watch.advance(moment + 1)
        at, _, what = heappop(self._held)
        self._watch.reach(at)
        if isinstance(what, Event):
            if self._waiting.get(what.key) is what:
                del self._waiting[what.key]
            told = self._watch.take([Position(what, at, at)])
            if self._live.get(what.key) is not what:
                self._watch.retract(what)
            return told
        if isinstance(what, Fence):
            return self._begin(what, now) if self._fences.get(what.id) is what else []
        self._put(*what)
        return self._watch.move(*what, at)

    def reach(self, until: Micros, *, closing: bool) -> None:
        """Everything due before a moment has happened; `closing`: and then."""
        if until > self._before:
            self._before = until
        if closing and until > self._closed:
            self._closed = until
        if self._fences:
            self._watch.reach(self._before, self._closed)

    # -- to be kept ------------------------------------------------------------------

    def changes(self) -> list[KnownObject]:
        """What has changed since this was asked."""
        return self._watch.changes()

    def begun(self) -> list[KnownFence]:
        """The fences that began since this was asked, as they are kept."""
        ids, self._begun = self._begun, []
        return [self._watch.known_fence(id) for id in ids if id in self._watch]

    def load(self, saved: Saved, places: dict[str, Point]) -> None:
        """Go on where another left off."""
        for subscriber, place in places.items():
            self._put(subscriber, place)
        for known in saved.fences:
            self._fences[known.fence.id] = known.fence
            if known.fence.expires is not None:
                self._ending[known.fence.id] = known.fence.expires
            if isinstance(known.fence.region, Around):
                assert known.fence.subscriber is not None
                count = self._followed.get(known.fence.subscriber, 0)
                self._followed[known.fence.subscriber] = count + 1
        self._before, self._closed = saved.before, saved.closed
        self._watch.load(saved, self._places)

    def remember(self) -> None:
        """Somebody asks for `changes` after every call."""
        self._watch.remembers = True
