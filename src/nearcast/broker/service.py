"""The broker: matcher, patterns and movers behind one set of verbs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby, islice, repeat, zip_longest
from operator import attrgetter
from typing import Any, Self, TypeAlias, TypeVar

from nearcast.broker import parts, reports
from nearcast.broker.contents import content_of_thing, contents_of
from nearcast.broker.delivery import Delivery
from nearcast.broker.fences import Fences
from nearcast.broker.live import LiveEvents
from nearcast.broker.outlet import Outlet
from nearcast.broker.outlook import Arrival, Arrivals, Outlook
from nearcast.broker.past import REMEMBERED_FOR, Past
from nearcast.broker.patterns import Patterns
from nearcast.broker.ports import (
    Acknowledged,
    Change,
    Changes,
    Closed,
    Decided,
    Detecting,
    Expired,
    Fenced,
    Gone,
    Kept,
    Moved,
    Page,
    Published,
    Queued,
    Reached,
    SavedPatterns,
    Sink,
    Spent,
    State,
    Store,
    Subscribed,
    Thing,
    Traced,
    Unsubscribed,
)
from nearcast.broker.reading import Reading
from nearcast.broker.replay import replay
from nearcast.broker.replies import Pairs, Reply
from nearcast.broker.roster import Roster, follows
from nearcast.broker.seats import Found
from nearcast.broker.silence import REACH_M, Silences
from nearcast.broker.standings import Standings
from nearcast.broker.timeline import Clock, Timeline, span
from nearcast.clock import NEVER, Micros, Time
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import (
    BatchError,
    DuplicateIdError,
    NearcastError,
    UnknownIdError,
    ValidationError,
)
from nearcast.fences import Crossing, Positions
from nearcast.fences.saved import Saved as KnownFences
from nearcast.fences.watch import MAX_OBJECTS, Foreseen
from nearcast.mobility.impact_region import Impact
from nearcast.mobility.messages import LocationRequest, Message, NewRegion
from nearcast.mobility.safe_region import Ball, SafeRegion
from nearcast.mobility.search import MatcherSearch
from nearcast.model.events import Event, Value, check_id
from nearcast.model.fences import Fence, object_named
from nearcast.model.geometry import Around, Box, Point, Space, check_space
from nearcast.model.moves import Move
from nearcast.model.subscriptions import Subscription

__all__ = ["Service"]

_TOGETHER = 4096  # events of one call that are matched together
_FEW_INPUTS = 5000  # that patterns are given once more after a restart, rather than saving often
_id, _end, _expires, _step, _at = map(attrgetter, ("id", "end", "expires", "step", "at"))
_fence = attrgetter("fence_id")

T = TypeVar("T")
#: What fences tell of several events: before the n-th in step 2 n, with it in step 2 n + 1.
Told: TypeAlias = Sequence[Crossing]


class Service:
    """Tells subscribers of events: what already matches, then everything after, each pair once.

    Every call checks what it is given before it changes anything, and answers a `Reply`.
    `docs/broker.md` says what each verb does; the cost is that of the matcher's call behind it.
    One thread at a time.
    """

    def __init__(
        self, *, space: Space = "globe", safe_region: str = "disc", extent: Box | None = None,
        lateness: object = None, max_ahead: object = 5, clock: Clock | None = None,
        subscription_index: str = "auto", event_index: str = "auto",
        index_options: Mapping[str, Any] | None = None, letters: bool = False,
        safe_region_options: Mapping[str, Any] | None = None,
        composite_life: object = 3600, longest: object = None, tolerance_m: float = 1.0,
        max_pending: int = 100_000, max_objects: int = MAX_OBJECTS,
        safe_rectangle: str = "greedy", safe_rectangle_m: float = REACH_M,
        store: Store | None = None, sinks: Sequence[Sink] = (),
    ) -> None:  # fmt: skip
        self._timeline = Timeline(clock, lateness, max_ahead, longest)
        subscriptions, events = parts.matchers(
            space, subscription_index, event_index, index_options, letters=letters
        )
        self._space: Space = space
        self._subscriptions = Roster(subscriptions)
        self._live = LiveEvents(events)
        search = MatcherSearch(events)
        self._tracker = parts.tracker(search, space, safe_region, extent, safe_region_options)
        life = None if composite_life is None else span(composite_life, "composite_life")
        self._patterns = Patterns(
            space, self._timeline.hold, life, longest=self._timeline.longest,
            tolerance_m=tolerance_m, max_pending=max_pending,
        )  # fmt: skip
        self._fences = Fences(space, self._timeline.hold, self._live, max_objects)
        self._delivery = Delivery(self._live.numbers)
        self._following: set[str] = set()
        self._composites: dict[str, Composite] = {}
        self._silences = Silences(
            space, self._subscriptions, self._fences, self._following,
            self._composites, tolerance_m=tolerance_m, method=safe_rectangle,
            reach_m=safe_rectangle_m,
        )  # fmt: skip
        self._past = Past()
        self._ending: list[str] = []
        """What has told enough, and ends with this call."""
        self._awaited: set[str] = set()
        """Ids of the events that this call has yet to publish."""
        self._by: str | None = None
        """Who publishes the events of this call."""
        self._published = 0
        self._since_saved = 0
        """How much patterns were given since the store has known what they wait for."""
        self._most_inputs = _FEW_INPUTS
        """When it is told again: saving costs what is pending, and so is paid by as many inputs."""
        self._outlet = Outlet(store, sinks)
        self._standings = Standings(self._live, self._timeline, self._thing)
        self._draft = self._outlet.draft(self._standings)
        self._restore()
        self.reading = Reading(
            self._subscriptions, self._composites, self._fences, self._live, self._past,
            self._tracker, self._outlet, self._standings, self._timeline,
        )  # fmt: skip
        """Looks at what is there; changes nothing."""

    @property
    def space(self) -> Space:
        """The space of all places."""
        return self._space

    @property
    def now(self) -> Micros | None:
        """The time it has come to, in microseconds; None before the first."""
        return self._timeline.now

    @property
    def late(self) -> int:
        """How many events came too late for patterns, or as positions for fences.

        They were matched all the same.
        """
        return self._patterns.late + self._fences.late

    @property
    def overflows(self) -> int:
        """How much was let go because there was too much of it.

        Waiting instances of patterns (`max_pending`), objects of fences (`max_objects`), and
        notifications that are held (`nearcast.broker.standings.MOST_HELD` of one thing).
        """
        return self._patterns.overflows + self._fences.shed + self._standings.overflows

    @property
    def event_count(self) -> int:
        """How many events are live, as far as time has come."""
        return len(self._live)

    @property
    def published(self) -> int:
        """How many events have come, repetitions not counted, since this broker was made."""
        return self._published

    def __len__(self) -> int:
        """How many subscriptions, composites and fences there are."""
        return len(self._subscriptions) + len(self._composites) + len(self._fences)

    def __contains__(self, id: object) -> bool:
        """Whether a subscription, composite or fence has this id."""
        return id in self._subscriptions or id in self._composites or id in self._fences

    # -- subscriptions -----------------------------------------------------------

    def subscribe(self, subscription: Subscription | Fence) -> Reply:
        """Begin a subscription: told of every live event that matches, then of all to come.

        An equal one is there already, or has told as much as it was to within the hour: nothing
        changes, nothing is repeated. Another one under
        its id is replaced, and what that one was told of is not repeated, unless it was
        somebody else's. A fence is told of the objects inside whose last position is live; one
        that is replaced begins anew.
        """
        self._check_subscription(subscription)
        self._begin()
        self._take_up(subscription)
        return self._answer()

    def subscribe_many(self, subscriptions: Iterable[Subscription | Fence]) -> Reply:
        """`subscribe` for many, as one by one and only faster; all of them or none.

        A bad one is a BatchError that names its row.
        """
        given = _listed("subscriptions", subscriptions, (Subscription, Fence))
        new = self._check_all(given)
        if given:
            self._begin()
        new = {id: row for id, row in new.items() if not self.reading.spent(given[row])}
        rows = [*new.values()]
        added = [given[row] for row in rows]
        try:
            self._subscriptions.put_all(added)
        except BatchError as error:
            raise BatchError(rows[error.row], error.cause) from error
        fixed = [each for each in added if not follows(each)]
        found = iter(self._live.matching_each(fixed, self.now, self._subscriptions.wanting_all))
        for row, subscription in enumerate(given):
            if new.get(subscription.id) == row:
                self._register(subscription)
                self._greet(subscription, None if follows(subscription) else next(found))
            else:
                self._take_up(subscription)
        return self._answer()

    def _check_all(self, given: Sequence[Any]) -> dict[str, int]:
        """Refuse what cannot be subscribed to; the rows of ids that are new, the first of each."""
        new: dict[str, int] = {}
        kinds: dict[str, type] = {}
        again: list[int] = []
        row = 0
        try:
            for row, subscription in enumerate(given):
                self._check_subscription(subscription)
                self._check_kind(subscription, kinds)
                if isinstance(subscription, Fence):
                    continue
                if subscription.id in new or subscription.id in self._subscriptions:
                    again.append(row)
                else:
                    new[subscription.id] = row
            for row in again:
                self._subscriptions.check(given[row])
        except NearcastError as error:
            raise BatchError(row, error) from error
        return new

    def _check_kind(self, one: Subscription | Fence, kinds: dict[str, type]) -> None:
        """Two of one call under one id are both subscriptions or both fences."""
        if kinds.setdefault(one.id, type(one)) is not type(one):
            kind = "fence" if isinstance(one, Subscription) else "subscription"
            raise DuplicateIdError(kind, one.id, "give each its own id")

    def _check_subscription(self, subscription: Subscription | Fence) -> None:
        if not isinstance(subscription, Fence):
            _check_type("subscription", subscription, Subscription)
        if isinstance(subscription.region, Around) and subscription.subscriber is None:
            raise ValidationError("subscriber", None, "Around needs to know whom to follow")
        if subscription.region is not None:
            check_space(subscription.region, self.space, "region")
        self._check_id(subscription)
        if isinstance(subscription, Subscription) and follows(subscription):
            self._tracker.check(subscription)

    def _check_id(self, one: Subscription | Fence | Composite) -> None:
        """Refuse an id that something of another kind has."""
        kind = None
        if one.id in self._fences and not isinstance(one, Fence):
            kind = "fence"
        elif one.id in self._composites and not isinstance(one, Composite):
            kind = "composite"
        elif one.id in self._subscriptions and not isinstance(one, Subscription):
            kind = "subscription"
        if kind is not None:
            raise DuplicateIdError(kind, one.id, "unsubscribe it first")

    def _take_up(self, subscription: Subscription | Fence) -> None:
        """Begin a subscription, or put it in the place of another, unless it is there already."""
        if isinstance(subscription, Fence):
            self._enclose(subscription)
            return
        old = self._subscriptions.get(subscription.id)
        if old == subscription or self.reading.spent(subscription):
            return
        self._subscriptions.put(subscription)
        if old is not None:
            self._replaced(old, subscription)
        self._register(subscription)
        self._greet(subscription)

    def _replaced(self, old: Subscription, by: Subscription) -> None:
        if old.subscriber != by.subscriber:
            self._leave(old.id)
            self._delivery.forget(old.id)
            self._standings.forget(old.id)
            self._note(Unsubscribed, old.id)
        elif old.id in self._following:
            self._leave(old.id)
        else:
            told = self._live.matching(old, self.now)
            self._delivery.keep(old.id, [number for number, _ in told])
            self._note(Kept, old.id, tuple(event.key for _, event in told))

    def _register(self, subscription: Subscription) -> None:
        self._timeline.ends(subscription.expires, "subscription", subscription.id)
        self._draft.void |= self._silences.came(subscription)
        self._note(Subscribed, subscription)
        self._stand(subscription)

    def _stand(self, thing: Thing) -> None:
        """A thing is there, and its terms count; what others have held may be told now."""
        if self._past.knows_thing(thing.id):  # another one had told enough
            self._past.drop_thing(thing.id)
            self._note(Spent, thing.id, None, self._moment)
        if thing.terms is not None or thing.id in self._standings:
            offset = self._outlet.offset
            self._standings.begin(thing, self._moment, lambda: offset(self._draft))
            self._settle(thing.id)

    def _settle(self, id: str) -> None:
        """What was held of a thing is told if nothing holds it any more."""
        draft = self._draft
        draft.tell_now(self._standings.settle(id, self._moment, draft.changes))

    def _thing(self, id: str) -> Thing | None:
        return self._subscriptions.get(id) or self._fences.get(id) or self._composites.get(id)

    def _greet(
        self, subscription: Subscription, found: Sequence[tuple[int, Event]] | None = None
    ) -> None:
        """Tell a new subscription of what already matches it, unless it is over."""
        if not self._visible(subscription.expires):
            self._drop_subscription(subscription.id)
        elif isinstance(subscription.region, Around):
            self._join(subscription)
        elif subscription.terms is None or subscription.terms.initial_event:
            if found is None:
                found = self._live.matching(subscription, self.now)
            for number, event in found:
                if not self._delivery.holds(subscription.id, number):
                    self._tell(subscription, event)
        self._end_spent()

    def _end_spent(self) -> None:
        """End what has told as much as it was to."""
        self._end_acting()
        while self._ending:
            self._end(self._ending.pop())

    def _end_acting(self) -> None:
        """End of that what would act: composites are detected, movers are asked where they are.

        Others are told nothing more, and may be matched with what is to come: they can wait.
        """
        spent = self._standings.spent
        while spent:
            id, at = spent.pop()
            self._remember_spent(id, at)
            if id in self._composites or id in self._following:
                self._end(id)
            else:
                self._ending.append(id)

    def _end(self, id: str) -> None:
        if id in self._standings:  # else it has ended meanwhile
            self._drop(id)

    def _remember_spent(self, id: str, at: Micros) -> None:
        """Something has told enough, and may be begun once more by whoever had no answer."""
        thing = self._thing(id)
        if thing is not None:
            content, until = content_of_thing(thing), at + REMEMBERED_FOR
            self._past.keep_thing(id, content, until)
            self._note(Spent, id, content, until)

    def _enclose(self, fence: Fence) -> None:
        """Begin a fence, or put it in the place of another, unless it is there already."""
        old = self._fences.get(fence.id)
        if old == fence or self.reading.spent(fence):
            return
        stand = self._standings.carry(fence.id)
        if old is not None:
            self._drop_fence(fence.id)
        if not self._visible(fence.expires):
            return
        if old is not None and old.subscriber == fence.subscriber:
            self._draft.changes += stand()
        if fence.expires is not None:  # what happens before it ends may be told `lateness` later
            self._timeline.ends(fence.expires + self._timeline.hold, "fence", fence.id)
        self._draft.void |= self._silences.came(fence)
        inside = self._fences.add(fence, self.now)
        self._stand(fence)
        self._report(inside)
        self._end_spent()

    def _drop_fence(self, id: str) -> None:
        self._fences.remove(id)
        self._standings.forget(id)
        self._silences.gone(id)
        self._timeline.forget("fence", id)
        self._note(Unsubscribed, id)

    def _report(self, crossings: Collection[Crossing], at: Micros | None = None) -> None:
        """What fences tell, now or at a moment that time goes on to in one step with others."""
        self._draft.tell_of(crossings, self._moment if at is None else at)

    def _fall_due(self, crossings: Collection[Crossing]) -> None:
        """What fences tell of moments on the way: terms are judged there, as `_decide` has it."""
        if not self._standings:
            self._report(crossings)
            return
        for at, some in groupby(crossings, _at):
            self._expire(at)
            self._report([*some])

    def detect(self, composite: Composite) -> Reply:
        """Begin to detect a composite, told to its subscriber from now on.

        An equal one is there already: nothing changes. Another one under its id is replaced.
        """
        _check_type("composite", composite, Composite)
        self._check_id(composite)
        self._begin()
        old = self._composites.get(composite.id)
        if old == composite or self.reading.spent(composite):
            return self._answer()
        self._patterns.check(composite)
        if not self._visible(composite.expires):
            if old is not None:
                self._drop_composite(composite.id)
            return self._answer()
        if not self._composites:
            self._save_patterns()
        if old is not None:
            self._patterns.remove(composite.id)
            if old.subscriber != composite.subscriber:
                self._standings.reset(composite.id, self._draft.changes)
        self._patterns.add(composite, self.now)
        self._composites[composite.id] = composite
        self._draft.void |= self._silences.came(composite)
        self._expect(composite)
        self._note(Detecting, composite)
        self._stand(composite)
        return self._answer()

    def _expect(self, composite: Composite) -> None:
        """It will be over, if it says when: what happens before may be detected `hold` later."""
        expires = composite.expires
        until = None if expires is None else expires + self._timeline.hold
        self._timeline.ends(until, "composite", composite.id)

    def _drop_composite(self, id: str) -> None:
        self._patterns.remove(id)
        self._patterns.forget(id)
        self._standings.forget(id)
        del self._composites[id]
        self._silences.gone(id)
        self._timeline.forget("composite", id)
        self._note(Unsubscribed, id)
        if not self._composites:
            self._save_patterns()

    def unsubscribe(self, id: str) -> Reply:
        """End a subscription, a fence, or the detection of a composite; raises UnknownIdError.

        Whoever takes the id later begins anew.
        """
        check_id(id, "id")
        self._begin()
        self._check_there(id)
        self._drop(id)
        return self._answer()

    def pause(self, id: str) -> Reply:
        """Tell nothing of a subscription, fence or composite until `resume`; raises UnknownIdError.

        What is found meanwhile is told after, or never, as its terms say (`while_paused`). Of what
        is paused already nothing changes.
        """
        check_id(id, "id")
        self._begin()
        self._check_there(id)
        self._standings.pause(id)
        return self._answer()

    def resume(self, id: str) -> Reply:
        """Tell of a subscription, fence or composite again, and of what was kept; UnknownIdError.

        Of what is not paused nothing changes.
        """
        check_id(id, "id")
        self._begin()
        self._check_there(id)
        if self._standings.paused(id):
            self._standings.resume(id)
            self._settle(id)
        return self._answer()

    def _check_there(self, id: str) -> None:
        if id not in self:
            raise UnknownIdError("subscription", id, "it may have expired; check the id")

    def _drop(self, id: str) -> None:
        """End whatever has an id."""
        if id in self._composites:
            self._drop_composite(id)
        elif id in self._subscriptions:
            self._drop_subscription(id)
        else:
            self._drop_fence(id)

    def _drop_subscription(self, id: str) -> None:
        self._subscriptions.remove(id)
        self._silences.gone(id)
        self._standings.forget(id)
        self._leave(id)
        self._delivery.forget(id)
        self._timeline.forget("subscription", id)
        self._note(Unsubscribed, id)

    def _join(self, subscription: Subscription) -> None:
        self._following.add(subscription.id)
        self._heed(self._tracker.joined(subscription, self._moment))

    def _leave(self, id: str) -> None:
        if id in self._following:
            self._following.remove(id)
            self._tracker.left(id, self._moment)

    # -- events ------------------------------------------------------------------

    def publish(
        self, event: Event, *, by: str | None = None, publisher: str | None = None,
        epoch: int | None = None,
    ) -> Reply:  # fmt: skip
        """An event happens: told to whoever wants it now, and live until it expires.

        An equal event under this id is live already, or has expired within the hour: nothing
        changes. A different one while that is live is a DuplicateIdError. Refused if its `end`
        is too far ahead of the clock or too late. `by` is who published it, for `reading`.

        With a `publisher`, who moves, the answer has its `safe_rectangles[publisher]`: as long as
        it stays strictly inside and says nothing else, nobody misses its events. `epoch` is the
        number of a `Reporter`'s report. A later call that voids it says so in its
        `publish_requests`.
        """
        if publisher is not None:
            self._silences.check(publisher, event, epoch)
        self._by = by
        arrival = self._outlook().arrival(event)
        if arrival is None:
            self._begin()
        else:
            self._move_to(arrival.now)
            self._happen(arrival, self._subscriptions.wanting(event, arrival.now))
        if publisher is not None:
            granted = self._silences.grant(publisher, event, epoch, self._moment)
            self._draft.rectangles[publisher] = granted
        return self._answer()

    def speak_up(self, publisher: str) -> Reply:
        """A publisher is silent no longer: it is not there any more, or holds nothing."""
        check_id(publisher, "publisher")
        self._outlet.check()
        self._silences.forget(publisher)
        return self._answer()

    def publish_many(self, events: Iterable[Event], *, by: str | None = None) -> Reply:
        """`publish` for many, as one by one and only faster; all of them or none.

        A bad one is a BatchError that names its row. The clock, if there is one, is read once.
        """
        given = _listed("events", events, Event)
        self._by = by
        outlook = self._outlook()
        coming = outlook.arrivals(given)
        if given and self._timeline.clock is not None:
            assert outlook.present is not None
            self._move_to(outlook.present)
        self._awaited = {event.key for event in coming.events} if self._composites else set()
        every = [
            coming.part(first, first + _TOGETHER)
            for first in range(0, len(coming.events), _TOGETHER)
        ]
        foreseen = None
        for some, after in zip_longest(every, every[1:]):
            told = self._together(some, foreseen)
            foreseen = None
            if after is not None and told is not None:
                foreseen = self._fences.foresee(_positions(after))
            if self._indifferent(some, told):
                self._admit(some, told)
            else:
                self._happen_each(some, told)
        self._awaited = set()
        return self._answer()

    def _indifferent(self, some: Arrivals, told: Told | None) -> bool:
        """Whether it makes no difference to anybody if time goes on in one step."""
        alone = self._patterns.idle and (told is not None or self._fences.idle)
        still = not self._standings.timed or some.nows[-1] == self.now
        return some.strange and alone and still and not self._following

    def _admit(self, some: Arrivals, told: Told | None) -> None:
        """Several events come, and time to the last of them: what `_happen_each` does, by columns.

        Those that are over by then were never live as far as anybody can see.
        """
        events, nows, until = some.events, some.nows, some.nows[-1]
        wanted = self._subscriptions.wanting_all(events, nows)
        if self._draft.remembers:
            self._draft.changes += map(Published, events, repeat(self._by))
        if told is None:
            self._fences.know_ends(events, some.ends)
            self._draft.tell_pairs(Pairs(wanted, events, nows))
        else:
            self._tell_between(some, wanted, told)
        expires = [*map(_expires, events)]
        over = [e for e, at in zip(events, expires, strict=True) if at is not None and at <= until]
        live: Sequence[Event] = events
        if over:
            live = [e for e, at in zip(events, expires, strict=True) if at is None or at > until]
        self._end_acting()
        self._move_to(until, over=over)  # room for those that come: fewer have to be entered
        self._live.add_all(live)
        self._published += len(events)
        if self._by is not None:
            self._live.publishers.update((event.key, self._by) for event in live)
        ending = live if None not in expires else [e for e in live if e.expires is not None]
        # none of them has a source: their keys are their ids
        self._timeline.ends_all([*map(_expires, ending)], "event", [*map(_id, ending)])

    def _tell_between(self, some: Arrivals, wanted: Found, told: Told) -> None:
        """Tell of several events, and in between what fences say, each at its moment."""
        standings = self._standings
        if not wanted and not (standings and standings.concerns(map(_fence, told))):
            self._report(told)
            return
        each = zip(wanted.each(), some.events, some.nows, strict=True)
        done = 0
        for step, crossings in groupby(told, _step):
            self._tell_each(islice(each, (step + 1) // 2 - done))
            done = (step + 1) // 2
            before = some.nows[done - 1] if done else self._moment
            if step % 2:
                self._report([*crossings], before)
                continue
            for at, due in groupby(crossings, _at):
                self._report([*due], max(at, before))
        self._tell_each(each)

    def _tell_each(self, each: Iterable[tuple[Found, Event, Micros]]) -> None:
        """Tell of some events, each to those who want it."""
        for to, event, at in each:
            if to:
                self._draft.tell_all(to, event, at)

    def _happen_each(self, some: Arrivals, told: Told | None) -> None:
        """Several events come, one after the other, for they were matched together only."""
        wanted = self._subscriptions.wanting_all(some.events, some.nows).each()
        each = zip(*some[:4], strict=True)
        by_step = {step: [*those] for step, those in groupby(told or (), _step)}
        for step, arrival in enumerate(map(Arrival._make, each)):
            self._fall_due(by_step.get(2 * step, ()))
            self._move_to(arrival.now)
            of = None if told is None else by_step.get(2 * step + 1, ())
            self._happen(arrival, next(wanted), of)
            if self._standings.spent:
                self._catch_up()
                self._end_acting()
        self._fall_due(by_step.get(2 * len(some.events), ()))

    def _outlook(self) -> Outlook:
        self._outlet.check()
        return Outlook(self._timeline, self._live, self._past, self.space)

    def _together(self, some: Arrivals, foreseen: Foreseen | None) -> Told | None:
        """What fences tell of several events; None: let each come by itself.

        That is so where patterns may make positions, too, or a fence ends meanwhile.
        """
        if not self._fences or self._composites or not self._fences.can_take_many(some.nows[-1]):
            return None
        return self._fences.take_many(_positions(some), foreseen)

    def _happen(
        self, arrival: Arrival, wanted: Found,
        told: Collection[Crossing] | None = None,
    ) -> None:  # fmt: skip
        """An event comes, now that time has come to it; `told`: what fences say of it."""
        event, start, end, now = arrival
        self._note(Published, event, self._by)
        self._published += 1
        self._enter(event, wanted)
        if self._by is not None and event.key in self._live:
            self._live.publishers[event.key] = self._by
        self._report(self._fences.take(event, end, now) if told is None else told)
        self._since_saved += 1
        if self._composites:
            self._compose(self._patterns.take(event, start, end), end)

    def _enter(self, event: Event, wanted: Found) -> None:
        """Make an event live and tell those who want it; nobody sees one that has expired."""
        if not self._visible(event.expires):
            self._remember([event], self._moment)
            return
        self._live.add(event)
        self._timeline.ends(event.expires, "event", event.key)
        if wanted:
            self._draft.tell_all(wanted, event, self._moment)
        if self._following:
            self._heed(self._tracker.published(event, self._moment))

    def retract(self, event_id: str, source: str | None = None) -> Reply:
        """Take a live event back; raises UnknownIdError.

        Without a source it is the one live event that has the id. What was told stays told, and
        patterns have seen what they have seen.
        """
        check_id(event_id, "event_id")
        if source is not None:
            check_id(source, "source")
        self._begin()
        key = self.reading.event(event_id, source).key
        self._fences.gone(self._live.numbered(key)[1], retracted=True)
        self._live.retract(key)
        self._timeline.forget("event", key)
        self._tracker.expired(key, self._moment)
        self._note(Gone, key)
        return self._answer()

    def lose(self, attribute: str, object: Value, *, at: Time | None = None) -> Reply:
        """An object is lost now, however long fences would wait: its device has said so.

        Everything that happened until then has been published, as `advance` has it. Fences
        with `lost` that count objects by this attribute, and have counted a position of this one
        that they have not lost yet, tell `lost` at this moment, and do not know it until its
        next position. Others go on, and so does a fence that comes later. `at` is now if nothing
        is said, and left out with a clock.
        """
        check_id(attribute, "attribute")
        who = object_named(object)
        self._outlet.check()
        if at is None and self._timeline.clock is None:
            if self.now is None:
                return self._answer()
            at = self.now
        now = self._advance(at)
        self._report(self._fences.lose(attribute, who, now))
        return self._answer()

    def _remember(self, events: Sequence[Event], since: Micros = NEVER) -> None:
        """Events are over, and may be repeated. Composite events are published by nobody."""
        if not {*map(type, events)} <= {Event}:
            for event in events:
                if isinstance(event, CompositeEvent):
                    self._note(Gone, event.key)
            events = [event for event in events if not isinstance(event, CompositeEvent)]
        untils = [at + REMEMBERED_FOR for at in map(_expires, events) if at is not None]
        if since != NEVER or len(untils) < len(events):
            untils = [max(since, event.expires or NEVER) + REMEMBERED_FOR for event in events]
        if not self._draft.remembers:
            self._past.keep(events, untils)
            return
        keys, contents = [event.key for event in events], contents_of(events)
        self._past.keep_contents(keys, contents, untils)
        self._draft.changes += map(Expired, keys, contents, untils)

    # -- movers ------------------------------------------------------------------

    def move(
        self, subscriber: str, place: Point, *, heading: float | None = None,
        speed: float | None = None, epoch: int | None = None,
    ) -> Reply:  # fmt: skip
        """A subscriber reports a place: told what is within reach, and given a safe region.

        `heading` is in degrees clockwise from north, `speed` in metres a second. `epoch` is
        the number of a `Mover`'s report. A subscriber may move before it subscribes.
        """
        move = reports.checked(Move(subscriber, place, heading, speed, epoch), self.space)
        self._begin()
        self._go([move])
        return self._answer()

    def move_many(self, moves: Iterable[Move | tuple[Any, ...]]) -> Reply:
        """`move` for many, as one by one and only faster; all of them or none.

        Each is a `Move`, or its fields in order. A bad one is a BatchError that names its row.
        The clock, if there is one, is read once.
        """
        given = reports.checked_all(_listed("moves", moves, Move), self.space)
        if given:
            self._begin()
            self._go(given)
        return self._answer()

    def _go(self, moves: Sequence[Move]) -> None:
        """Subscribers are at new places, one after the other."""
        now = self._moment
        told = self._fences.move_many([move[:3] for move in moves], self.now)
        epochs = self._tracker.passed(moves, now)
        if epochs is not None:  # nobody is followed but by fences
            for move, number in zip(moves, epochs, strict=True):
                self._let_be(move, number)
            self._report(told)
            self._note_moves(moves, now)
            return
        by_move = {i: [*those] for i, those in groupby(told, _move_of)}
        for i, move in enumerate(moves):
            subscriber, place, heading, speed, epoch = move
            heard = self._tracker.heard(subscriber, place, now, heading, speed, epoch)
            if heard:
                self._heed(heard)
            else:
                self._let_be(move, self._tracker.epoch_of(subscriber))
            if i in by_move:
                self._report(by_move[i])
            self._note_moves([move], now)
            self._end_acting()

    def _let_be(self, move: Move, epoch: int) -> None:
        """Where nothing follows a subscriber: silence until something does."""
        if not self._fences.follows(move.subscriber):
            everywhere = Ball(self.space, move.place.x, move.place.y, math.inf)
            self._draft.regions[move.subscriber] = SafeRegion(epoch, everywhere)
            self._draft.requests.pop(move.subscriber, None)

    def _note_moves(self, moves: Sequence[Move], now: Micros) -> None:
        if self._draft.remembers:
            for subscriber, place, *_ in moves:
                heading = self._fences.heading_of(subscriber)
                self._draft.changes.append(Moved(subscriber, place, now, heading))

    def impact_region(self, subscriber: str) -> Impact | None:
        """Where a new event would make the broker ask this subscriber; None: nowhere yet."""
        return self._tracker.impact_of(subscriber)

    def _heed(self, messages: Iterable[Message]) -> None:
        """What the tracker says; a reply is a delivery."""
        for message in messages:
            if isinstance(message, NewRegion):
                self._draft.regions[message.subscriber] = message.region
                self._draft.requests.pop(message.subscriber, None)
            elif isinstance(message, LocationRequest):
                self._draft.requests[message.subscriber] = message.after
            else:
                id = message.subscription_id
                number, event = self._live.numbered(message.event_id)
                if self._delivery.first(id, number):
                    if not self._standings.knew(id, number):
                        self._tell(self._subscriptions[id], event)
                    self._note(Kept, id, (event.key,))
                self._tracker.delivered(id, message.event_id)

    # -- time --------------------------------------------------------------------

    def advance(self, to: Time | None = None) -> Reply:
        """Event time moves on: things expire, and patterns' time events are due.

        Everything that happened until then has been published. A moment that is over changes
        nothing. With a clock, time is the clock's, and `to` is left out. Location requests
        that wait for too long are repeated.
        """
        self._outlet.check()
        self._advance(to)
        self._heed(self._tracker.due(self._moment))
        return self._answer()

    def _advance(self, to: Time | None) -> Micros:
        """Time moves on, and is there what has happened by then; returns where it stands."""
        target = self._timeline.target(to)
        if self._composites:
            self._note(Reached, target, True)
            self._since_saved += 1
        self._move_to(target, closing=True)
        return target

    def _begin(self) -> None:
        """Come to the clock's time, where there is a clock."""
        self._outlet.check()
        present = self._timeline.present()
        if present is not None and not (present == self.now and self._calm):
            self._move_to(present)
            self._end_spent()

    @property
    def _calm(self) -> bool:
        """Whether nothing is due but what expires, however late something came."""
        return self._patterns.idle and self._fences.timeless

    def _move_to(self, now: Micros, *, closing: bool = False, over: Sequence[Event] = ()) -> None:
        """Time goes on, in order: at each moment what has expired goes, then patterns speak.

        `over` came and expired in between.
        """
        if not self._calm:
            self._decide(now, closing)
        self._expire(now, over)
        hold = self._timeline.hold
        self._fences.reach(now - hold, closing=closing)
        if closing:
            self._note(Closed, now - hold)

    def _catch_up(self) -> None:
        """At the end of a call: what came late may be due at once."""
        if self.now is not None and (self._composites or (self._timeline.hold and self._fences)):
            self._decide(self.now, closing=False)  # what came late

    def _decide(self, now: Micros, closing: bool) -> None:
        """Let patterns and fences speak of all that is over by then."""
        hold = self._timeline.hold
        if self.now is None:
            self._patterns.begin(now)
        while True:
            moment = self._patterns.due(now - hold, closing=closing)
            fenced = self._fences.due(now - hold, closing=closing)
            if fenced is not None and (moment is None or fenced < moment):
                self._expire(fenced + hold)
                self._report(self._fences.decide(fenced, self._moment))
            elif moment is not None:
                self._expire(moment + hold)
                self._compose(self._patterns.decide(moment), moment)
            else:
                break

    def _expire(self, now: Micros, others: Sequence[Event] = ()) -> None:
        """What has expired by now goes, in order; `others`, which came last, among it."""
        timeline = self._timeline
        if timeline.now is not None and now <= timeline.now:
            assert not others
            return
        over: list[Event] = []
        for kind, ids in timeline.ended(now):
            if kind == "event":
                over += self._lapse(ids)
                continue
            for id in ids:
                if kind == "fence":
                    self._drop_fence(id)
                elif kind == "release":
                    if id in self._standings:  # what came before it may have ended it
                        draft = self._draft
                        draft.tell_now(self._standings.release(id, draft.changes))
                elif kind == "composite":
                    # Said first, for whoever gives patterns their inputs again: they have
                    # decided all that happened until then.
                    expires = self._composites[id].expires
                    assert expires is not None
                    self._note(Reached, expires + timeline.hold)
                    self._drop_composite(id)
                else:
                    self._drop_subscription(id)
        if others:
            over += others
            over.sort(key=_expires)
        if over:
            self._remember(over)
        timeline.now = now
        self._past.forget(now)
        self._note(Reached, now)

    def _lapse(self, keys: Sequence[str]) -> list[Event]:
        """Events have expired."""
        events = self._live.expire(keys)
        if self._following:
            for key in keys:
                self._tracker.expired(key, self._moment)
        if None in map(_end, events):
            for event in events:
                if event.end is None:
                    self._fences.gone(event, retracted=False)
        return events

    def _visible(self, expires: Micros | None) -> bool:
        return _valid(expires, self._timeline.moment)

    @property
    def _moment(self) -> Micros:
        """Time as the matcher and the tracker take it: the epoch before the first."""
        return 0 if self.now is None else self.now

    # -- composite events ----------------------------------------------------------

    def _compose(self, found: Sequence[CompositeEvent], moment: Micros) -> None:
        """Tell of detections and publish them back, until nothing comes of it any more."""
        waiting = deque(found)
        while waiting:
            detected = waiting.popleft()
            if self._standings.over(detected.composite_id):
                continue
            event = self._patterns.named(detected, self._is_taken, self._moment)
            self._note(Published, event)
            self._tell(self._composites[event.composite_id], event)
            self._enter(event, self._subscriptions.wanting(event, self._moment))
            end = moment if event.end is None else event.end
            self._report(self._fences.take(event, end, self._moment))
            waiting += self._patterns.again(event, detected, moment)

    def _is_taken(self, event_id: str) -> bool:
        """Whether a composite event cannot have this id: it is another's, or soon will be."""
        return event_id in self._live or event_id in self._awaited

    # -- answers -----------------------------------------------------------------

    def _tell(self, to: Subscription | Composite, event: Event) -> None:
        self._draft.tell(to, event, self._moment)

    def _note(self, change: Callable[..., Change], *of: Any) -> None:
        """Let the store, if there is one, remember a change."""
        if self._draft.remembers:
            self._draft.changes.append(change(*of))

    def _answer(self) -> Reply:
        """Let the store remember, then the sinks deliver."""
        self._catch_up()
        self._end_spent()
        if self._outlet.remembers:
            self._draft.changes += self._standings.changes()
            for fence in self._fences.fresh():
                self._note(Fenced, fence)
            for each in self._fences.changes():
                self._note(Traced, each)
            held, over = self._fences.turns()
            self._draft.changes += map(Queued, held)
            if over:
                self._note(Decided, over)
        if self._composites and self._since_saved > self._most_inputs:
            self._save_patterns()
        draft, self._draft = self._draft, self._outlet.draft(self._standings)
        return self._outlet.send(draft)

    def together(self, calls: Iterable[Callable[[], T]]) -> list[T | NearcastError]:
        """Make calls of this broker, and commit what they change in one transaction.

        A call may make several, and answer what it likes. Answers, notifications and requests
        leave when that is done: one sync of the disk for all. A call that is refused has its
        error for an answer; the others are made all the same.
        """
        return self._outlet.together(calls)

    # -- outboxes ------------------------------------------------------------------

    def notifications(
        self, subscriber: str, after: int | None = None, limit: int = 1000,
        max_bytes: int | None = None,
    ) -> Page:  # fmt: skip
        """What a subscriber was told, from the store: after a number, or what it has not yet.

        Without `after`, after what it has acknowledged. At most `limit`, and no more after about
        `max_bytes` of events.
        """
        check_id(subscriber, "subscriber")
        store = self._outlet.store
        _check_count("limit", limit, 1)
        if after is None:
            after = store.cursor(subscriber)
        _check_count("after", after, 0)
        return store.outbox(subscriber, after, limit, max_bytes)

    def ack(self, subscriber: str, upto: int) -> Reply:
        """A subscriber has everything up to a number: the store need not keep it any longer."""
        check_id(subscriber, "subscriber")
        _check_count("upto", upto, 0)
        self._outlet.check()
        last = self._outlet.last(subscriber)
        if upto > last:
            raise ValidationError("upto", upto, f"{subscriber!r} was told of {last} so far")
        if upto > self._outlet.store.cursor(subscriber):
            self._note(Acknowledged, subscriber, upto)
        return self._answer()

    def log(
        self, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> Sequence[tuple[int, Event]]:
        """Events in the order they came, each behind its offset in the store's log."""
        _check_count("after", after, 0)
        _check_count("limit", limit, 1)
        return self._outlet.store.log(after, limit, max_bytes)

    def changes(self, after: int = 0, limit: int = 1000, max_bytes: int | None = None) -> Changes:
        """How subscriptions came, changed and went, in this order, with numbers after one.

        Each says behind which offset of the log it came. What was replaced or removed is kept as
        long as the log.
        """
        _check_count("after", after, 0)
        _check_count("limit", limit, 1)
        return self._outlet.store.changes(after, limit, max_bytes)

    # -- the end -------------------------------------------------------------------

    def close(self) -> None:
        """End it: the store is let go of, and every later call is refused. Twice is harmless."""
        self._outlet.end(self._subscriptions.matcher)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- going on ------------------------------------------------------------------

    def _restore(self) -> None:
        """Begin where a store left off. Whoever moves is asked for a report."""
        state = self._outlet.load()
        self._timeline.now = state.now
        for key, event in state.events.items():
            self._live.add(event)
            self._timeline.ends(event.expires, "event", key)
        self._live.publishers.update(state.publishers)
        for key, came in state.came.items():
            event = state.events[key]
            self._fences.know_end(event, self._timeline.end_of(event, came))
        self._past = Past(state.expired)
        self._subscriptions.adopt(state.subscriptions, state.matcher)
        following = []
        for id, expires, moves in state.subscriptions.outlines():
            if expires is not None:
                self._timeline.ends(expires, "subscription", id)
            if moves:
                following.append(id)
        self._recall(state)
        self._composites.update(state.composites)
        for composite in state.composites.values():
            self._expect(composite)
        if state.patterns is not None:
            self._patterns.load(state.patterns)
        replay(self._patterns, state.inputs, self.now)
        self._patterns.wait(self._timeline.hold)
        self._since_saved = len(state.inputs)
        for moved in sorted(state.places.values(), key=lambda each: each.at):
            self._tracker.moved(moved.subscriber, moved.place, moved.at, heading=moved.heading)
        for id in following:
            self._join(self._subscriptions[id])
        self._restore_fences(state)
        self._standings.restore(state, self._outlet.store.offset, self._moment)

    def _restore_fences(self, state: State) -> None:
        before = NEVER if state.now is None else state.now - self._timeline.hold
        closed = NEVER if state.closed is None else state.closed
        saved = KnownFences(
            tuple(state.fences.values()), tuple(state.objects.values()), before, closed
        )
        places = sorted(state.places.values(), key=lambda each: each.at)
        moves = [(m.subscriber, m.place, m.heading) for m in places]
        self._fences.load(saved, moves, state.turns.values())
        for fence in self._fences:
            if fence.expires is not None:
                self._timeline.ends(fence.expires + self._timeline.hold, "fence", fence.id)
        if self._outlet.remembers:
            self._fences.remember()

    def _recall(self, state: State) -> None:
        """Which pairs were told that do not follow from what is there now."""
        told: dict[str, list[int]] = {}
        for key, ids in state.told.items():
            number, _ = self._live.numbered(key)
            for id in ids:
                told.setdefault(id, []).append(number)
        for id, numbers in told.items():
            self._delivery.keep(id, numbers)

    def _save_patterns(self) -> None:
        """Let the store know what patterns wait for, so that it need not give it all again."""
        self._since_saved = 0
        if self._draft.remembers:
            self._note(SavedPatterns, self._patterns.dump())
            self._most_inputs = _FEW_INPUTS + 4 * self._patterns.pending

    def check_invariants(self) -> None:
        """Raise AssertionError where the parts contradict each other. Slow; for tests."""
        self._subscriptions.check_invariants()
        self._live.check_invariants()
        self._delivery.check_invariants()
        self._standings.check_invariants()
        assert not self._ending
        things = (*self._subscriptions, *self._composites.values(), *self._fences)
        assert not any(self._past.knows_thing(each.id) for each in things)
        assert all(self._visible(s.expires) for s in self._subscriptions)
        assert all(self._visible(event.expires) for event in self._live)
        hold = self._timeline.hold
        ends = (c.expires for c in self._composites.values() if c.expires is not None)
        assert all(self._visible(at + hold) for at in ends)


def _check_count(field: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValidationError(field, value, f"give a whole number of at least {least}")


def _valid(expires: Micros | None, now: Micros) -> bool:
    return expires is None or now < expires


def _positions(some: Arrivals) -> Positions:
    return Positions(some.events, some.ends, some.nows)


def _move_of(crossing: Crossing) -> int:
    """Which of several moves a transition comes of: itself, or what falls due by it."""
    return (crossing.step - 1) // 2


def _listed(field: str, given: Any, kinds: type[Any] | tuple[type[Any], ...]) -> list[Any]:
    """What a call for many was given; one value is a list of one."""
    if isinstance(given, kinds):
        return [given]
    if not isinstance(given, Iterable):
        kind = kinds[0] if isinstance(kinds, tuple) else kinds
        raise ValidationError(field, given, f"give {kind.__name__} objects")
    return list(given)


def _check_type(field: str, value: object, kind: type[Any]) -> None:
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ValidationError(field, value, f"give {article} {kind.__name__}")
