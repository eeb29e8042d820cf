"""Fences: positions in order of time, and places of subscribers whom regions follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import chain, starmap
from operator import attrgetter
from typing import TypeAlias

from nearcast.broker.live import LiveEvents
from nearcast.broker.turns import Loss, Report, Turn, Turns, Waiting
from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.errors import ValidationError
from nearcast.fences import Crossing, Positions, Watch
from nearcast.fences.groups import Object
from nearcast.fences.saved import KnownFence, KnownObject, Saved
from nearcast.fences.watch import MAX_OBJECTS, Foreseen
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Point, Space
from nearcast.model.placing import Facing
from nearcast.model.subscriptions import Subscription

__all__ = ["Fences"]

#: Places of subscribers without fences that are remembered, the newest ones.
_MOST_PLACES = 10_000

#: Who, where, and the heading if one was said.
_Move: TypeAlias = tuple[str, Point, float | None]
_end, _number, _what = map(attrgetter, ("end", "number", "what"))


class Fences:
    """A watch fed in order of time.

    With `hold` positions wait for so long, so that late ones find their place; so do fences
    and moves, which count from the moment at which they came.
    """

    def __init__(
        self, space: Space, hold: Micros, live: LiveEvents, max_objects: int = MAX_OBJECTS
    ) -> None:
        if not isinstance(max_objects, int) or isinstance(max_objects, bool) or max_objects < 1:
            raise ValidationError("max_objects", max_objects, "give a positive whole number")
        self._watch = Watch(space, max_objects)
        self._hold = hold
        self._live = live
        self._coming: dict[str, Turn[Fence]] = {}
        """Those that are held, and not in the watch yet; of the others it has all there is."""
        self._held = Turns()
        self._waiting: dict[str, Event] = {}
        """Live events that are held."""
        self._ends: dict[str, Micros] = {}
        """When live events ended that do not say it."""
        self._places: dict[str, Facing] = {}
        self._said: dict[str, float] = {}
        """Headings, as they were said last; places may wait."""
        self._reported: dict[str, tuple[int, Facing]] = {}
        """Of subscribers of whom a report is held, the number of the last, and what it says."""
        self._followed: dict[str, int] = {}
        self._ending: dict[str, Micros] = {}
        self._next_ends: list[tuple[Micros, str]] = []
        """A heap of the same; what `_ending` does not confirm is of something gone."""
        self._count = 0
        """How many fences there are."""
        self._remembers = False
        self._fresh: dict[str, None] = {}
        """Fences of which somebody who asks has not heard how they stand now."""
        self._before: Micros = NEVER
        self._closed: Micros = NEVER

    def __len__(self) -> int:
        """How many fences there are."""
        return self._count

    def __contains__(self, id: object) -> bool:
        return self._count > 0 and (id in self._watch or id in self._coming)

    def __iter__(self) -> Iterator[Fence]:
        return chain(self._watch, map(_what, self._coming.values()))

    def get(self, id: str) -> Fence | None:
        """The fence under an id."""
        coming = self._coming.get(id)
        return self._watch.get(id) if coming is None else coming.what

    @property
    def idle(self) -> bool:
        """Whether no event concerns anybody here."""
        return not self._count and not self._held

    @property
    def timeless(self) -> bool:
        """Whether nothing can be due, however much time goes by."""
        return not self._held and self._watch.due() == FOREVER

    @property
    def late(self) -> int:
        """How many positions came after later ones of their object, and did not count."""
        return self._watch.late

    @property
    def shed(self) -> int:
        """How many objects were let go because there were more than `max_objects`."""
        return self._watch.shed

    def follows(self, subscriber: str) -> bool:
        """Whether a fence follows this subscriber."""
        return subscriber in self._followed

    def place_of(self, subscriber: str) -> Facing | None:
        """Where a subscriber was last, as far as that is remembered."""
        return self._places.get(subscriber)

    # -- what comes ----------------------------------------------------------------

    def add(self, fence: Fence, now: Micros | None) -> Sequence[Crossing]:
        """A fence that is new; told of what is true now."""
        self._note(fence)
        if self._remembers:
            self._fresh[fence.id] = None
        if self._hold and now is not None:
            self._coming[fence.id] = self._held.add(now, fence)
            return []
        return self._begin(fence, now)

    def _note(self, fence: Fence) -> None:
        """That there is a fence, when it ends, and whom it follows."""
        self._count += 1
        if fence.expires is not None:
            self._ending[fence.id] = fence.expires
            heappush(self._next_ends, (fence.expires, fence.id))
        if isinstance(fence.region, Around):
            assert fence.subscriber is not None
            self._followed[fence.subscriber] = self._followed.get(fence.subscriber, 0) + 1

    def _begin(self, fence: Fence, now: Micros | None) -> Sequence[Crossing]:
        place = None
        if isinstance(fence.region, Around):
            place = self._places.get(fence.subscriber or "")
        moment = NEVER if now is None else now
        self._watch.reach(self._before, self._closed)
        told = self._watch.add(fence, lambda wanted: self._matching(wanted, now), moment, place)
        return told if fence.terms is None or fence.terms.initial_event else []

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
        coming = self._coming.pop(id, None)
        fence = self._watch.remove(id) if coming is None else coming.what
        self._count -= 1
        self._ending.pop(id, None)
        if isinstance(fence.region, Around):
            assert fence.subscriber is not None
            self._followed[fence.subscriber] -= 1
            if not self._followed[fence.subscriber]:
                del self._followed[fence.subscriber]

    def take(self, event: Event, end: Micros, now: Micros) -> Sequence[Crossing]:
        """An event happened; what it brings at once."""
        if event.end is None:
            self.know_end(event, end)
        if event.location is None or not self._count:
            return []
        if self._hold:
            self._waiting[event.key] = event
            self._held.add(end, event)
            return []
        return self._watch.take_event(event, end, now)

    def can_take_many(self, until: Micros) -> bool:
        """Whether positions up to a moment may be taken together: nothing waits, no fence ends."""
        ends = self._next_ends
        while ends and self._ending.get(ends[0][1]) != ends[0][0]:
            heappop(ends)
        return not (self._hold or self._held) and (not ends or until < ends[0][0])

    def foresee(self, positions: Positions) -> Foreseen | None:
        """Begin to look where positions are that `take_many` may be given next."""
        able = positions.events and self._count and self.can_take_many(positions.nows[-1])
        return self._watch.foresee(positions) if able else None

    def take_many(
        self, positions: Positions, foreseen: Foreseen | None = None
    ) -> Sequence[Crossing]:
        """Events that happened; nobody waits for late ones. `foreseen`: what `foresee` said."""
        self.know_ends(positions.events, positions.ats)
        return self._watch.take_columns(positions, foreseen)

    def know_ends(self, events: Sequence[Event], ends: Sequence[Micros]) -> None:
        """When events ended, of which some may not say it: a fence that comes later counts them."""
        if None in map(_end, events):
            for event, end in zip(events, ends, strict=True):
                self.know_end(event, end)

    def know_end(self, event: Event, end: Micros) -> None:
        """The same for one."""
        if event.end is None and event.location is not None:
            self._ends[event.key] = end

    def gone(self, event: Event, *, retracted: bool) -> None:
        """An event is live no more."""
        self._ends.pop(event.key, None)
        if retracted:
            self._watch.retract(event)

    def move(
        self, subscriber: str, place: Point, heading: float | None, now: Micros | None
    ) -> Sequence[Crossing]:
        """A subscriber is somewhere; the regions that follow them are, too."""
        return self.move_many([(subscriber, place, heading)], now)

    def move_many(self, moves: Sequence[_Move], now: Micros | None) -> Sequence[Crossing]:
        """The same for several; what the n-th brings is of steps 2 n + 1 and 2 n + 2."""
        for subscriber, _, heading in moves:
            if heading is not None:
                self._said[subscriber] = float(heading)
        if self._hold and now is not None:
            for each in moves:
                self._wait(now, *each)
            return []
        names = [each[0] for each in moves]
        return self._watch.move_many(names, [*starmap(self._put, moves)], 0 if now is None else now)

    def _wait(self, now: Micros, subscriber: str, place: Point, heading: float | None) -> None:
        _, before = self._reported.get(subscriber) or (0, self._places.get(subscriber))
        report = Report(subscriber, place, heading, before)
        self._reported[subscriber] = self._held.add(now, report).number, report.facing

    def heading_of(self, subscriber: str) -> float | None:
        """The last heading that a subscriber said, be it held back; None: none is remembered."""
        return self._said.get(subscriber)

    def _put(self, subscriber: str, place: Point, heading: float | None) -> Facing:
        """Remember where somebody is, and the heading that they said last."""
        old = self._places.pop(subscriber, None)
        if heading is None:
            heading = 0.0 if old is None else old.heading
        facing = self._places[subscriber] = Facing(place.x, place.y, float(heading))
        if len(self._places) - len(self._followed) > _MOST_PLACES:
            oldest = next(name for name in self._places if name not in self._followed)
            del self._places[oldest]
            self._said.pop(oldest, None)
        return facing

    def lose(self, attribute: str, who: Object, now: Micros) -> Sequence[Crossing]:
        """An object is lost now, and everything that was due by now has happened."""
        if self._hold:
            self._held.add(now, Loss(attribute, who))
            return []
        return self._watch.lose(attribute, who, now)

    # -- time ------------------------------------------------------------------------

    def due(self, until: Micros, *, closing: bool) -> Micros | None:
        """The next moment before `until` at which something happens; `closing`: or then."""
        if self.timeless:
            return None
        held = self._held.due
        at = min(self._watch.due(), held)
        if at == held <= until and not self._hold:
            return at  # of a life that waited longer, and nobody waits any more
        closed = max(self._closed, until) if closing else self._closed
        return at if at < until or at <= closed else None

    def decide(self, moment: Micros, now: Micros) -> Sequence[Crossing]:
        """What happens at the moment that `due` named: first what was held back, then timers."""
        if self._held.due > moment:
            return self._watch.advance(moment + 1)
        turn = self._held.pop()
        at, _, what = turn
        if isinstance(what, Loss):
            due = self._watch.advance(at + 1)
            return [*due, *self._watch.lose(*what, at)]
        self._watch.reach(at)
        if isinstance(what, Event):
            if self._waiting.get(what.key) is what:
                del self._waiting[what.key]
            told = self._watch.take_event(what, at, at)
            if self._live.get(what.key) is not what:
                self._watch.retract(what)
            return told
        if isinstance(what, Fence):
            if self._coming.get(what.id) is not turn:
                return []
            del self._coming[what.id]
            if self._remembers:
                self._fresh[what.id] = None
            return self._begin(what, now)
        if self._reported[what.subscriber][0] == turn.number:
            del self._reported[what.subscriber]
        return self._watch.move(what.subscriber, self._put(*what[:3]), at)

    def reach(self, until: Micros, *, closing: bool) -> None:
        """Everything due before a moment has happened; `closing`: and then."""
        if until > self._before:
            self._before = until
        if closing and until > self._closed:
            self._closed = until
        if self._count:
            self._watch.reach(self._before, self._closed)

    # -- to be kept ------------------------------------------------------------------

    def changes(self) -> list[KnownObject]:
        """What has changed since this was asked."""
        return self._watch.changes()

    def fresh(self) -> list[KnownFence]:
        """The fences that came or began since this was asked, as they are kept."""
        ids, self._fresh = self._fresh, {}
        return [self._known(id) for id in ids if id in self]

    def _known(self, id: str) -> KnownFence:
        coming = self._coming.get(id)
        if coming is None:
            return self._watch.known_fence(id)
        return KnownFence(coming.what, coming.number, 0, coming.at, waits=True)

    def turns(self) -> tuple[list[Turn[Waiting]], tuple[int, ...]]:
        """What is held since this was asked, but for fences; numbers of what is no longer."""
        return self._held.changes()

    def load(
        self, saved: Saved, places: Sequence[_Move], turns: Iterable[Turn[Waiting]] = ()
    ) -> None:
        """Go on where another left off; `turns`: what it held, but for fences."""
        coming = [Turn(f.made, f.number, f.fence) for f in saved.fences if f.waits]
        self._coming = {turn.what.id: turn for turn in coming}
        first = self._hold_again([*turns, *coming])
        for subscriber, place, heading in places:
            if heading is not None:
                self._said[subscriber] = heading
            if subscriber not in first:
                self._put(subscriber, place, heading)
            elif (before := first[subscriber].before) is not None:
                self._put(subscriber, Point(before.x, before.y), before.heading)
        for known in saved.fences:
            self._note(known.fence)
        self._before, self._closed = saved.before, saved.closed
        begun = tuple(known for known in saved.fences if not known.waits)
        self._watch.load(replace(saved, fences=begun), self._places)

    def _hold_again(self, turns: Sequence[Turn[Waiting]]) -> dict[str, Report]:
        """What another held waits here; returns the first report of each subscriber."""
        self._held.load(turns)
        first: dict[str, Report] = {}
        for turn in sorted(turns, key=_number):
            if isinstance(turn.what, Event):
                self._waiting[turn.what.key] = turn.what
            elif isinstance(turn.what, Report):
                first.setdefault(turn.what.subscriber, turn.what)
                self._reported[turn.what.subscriber] = turn.number, turn.what.facing
        return first

    def remember(self) -> None:
        """Somebody asks for `changes` after every call."""
        self._watch.remembers = self._remembers = self._held.remembers = True
