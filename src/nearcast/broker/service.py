"""The broker: matcher, patterns and movers behind one set of verbs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nearcast.broker import parts
from nearcast.broker.delivery import Delivery
from nearcast.broker.draft import Draft
from nearcast.broker.fences import Fences
from nearcast.broker.live import LiveEvents
from nearcast.broker.memory import NoStore
from nearcast.broker.outlook import Arrival, Outlook
from nearcast.broker.past import REMEMBERED_FOR, Past, content_of
from nearcast.broker.patterns import Patterns
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
    Sink,
    State,
    Store,
    Subscribed,
    Traced,
    Unsubscribed,
)
from nearcast.broker.replies import Reply
from nearcast.broker.roster import Roster, follows
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
from nearcast.fences import Crossing, Position
from nearcast.fences.saved import Saved
from nearcast.mobility.impact_region import Impact
from nearcast.mobility.messages import LocationRequest, Message, NewRegion
from nearcast.mobility.safe_region import Ball, SafeRegion
from nearcast.mobility.search import MatcherSearch
from nearcast.model.events import Event, check_id
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Box, Point, Space, check_space
from nearcast.model.subscriptions import Subscription

__all__ = ["Service"]

_TOGETHER = 4096  # events of one call that are matched together


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
        index_options: Mapping[str, Any] | None = None,
        safe_region_options: Mapping[str, Any] | None = None,
        composite_life: object = 3600, longest: object = None, tolerance_m: float = 1.0,
        max_pending: int = 100_000, store: Store | None = None, sinks: Sequence[Sink] = (),
    ) -> None:  # fmt: skip
        self._timeline = Timeline(clock, lateness, max_ahead, longest)
        subscriptions, events = parts.matchers(
            space, subscription_index, event_index, index_options
        )
        self._space: Space = space
        self._subscriptions = Roster(subscriptions)
        self._live = LiveEvents(events)
        search = MatcherSearch(events, self._live.places)
        self._tracker = parts.tracker(search, space, safe_region, extent, safe_region_options)
        life = None if composite_life is None else span(composite_life, "composite_life")
        self._patterns = Patterns(
            space, self._timeline.hold, life, longest=self._timeline.longest,
            tolerance_m=tolerance_m, max_pending=max_pending,
        )  # fmt: skip
        self._fences = Fences(space, self._timeline.hold, self._live)
        self._delivery = Delivery(self._live.numbers)
        self._following: set[str] = set()
        self._composites: dict[str, Composite] = {}
        self._past = Past({})
        self._awaited: set[str] = set()
        """Ids of the events that this call has yet to publish."""
        self._store: Store = NoStore() if store is None else store
        self._sinks = tuple(sinks)
        self._remembers = store is not None
        self._draft = Draft(self._remembers)
        self._restore()

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
        """How many waiting instances patterns have let go because of `max_pending`."""
        return self._patterns.overflows

    @property
    def event_count(self) -> int:
        """How many events are live, as far as time has come."""
        return len(self._live)

    def __len__(self) -> int:
        """How many subscriptions, composites and fences there are."""
        return len(self._subscriptions) + len(self._composites) + len(self._fences)

    def __contains__(self, id: object) -> bool:
        """Whether a subscription, composite or fence has this id."""
        return id in self._subscriptions or id in self._composites or id in self._fences

    # -- subscriptions -----------------------------------------------------------

    def subscribe(self, subscription: Subscription | Fence) -> Reply:
        """Begin a subscription: told of every live event that matches, then of all to come.

        An equal one is there already: nothing changes, nothing is repeated. Another one under
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
        new: dict[str, int] = {}
        again: list[int] = []
        kinds: dict[str, type] = {}
        for row, subscription in enumerate(given):
            with _of_row(row):
                self._check_subscription(subscription)
                self._check_kind(subscription, kinds)
            if isinstance(subscription, Fence):
                continue
            if subscription.id in new or subscription.id in self._subscriptions:
                again.append(row)
            else:
                new[subscription.id] = row
        for row in again:
            with _of_row(row):
                self._subscriptions.check(given[row])
        if given:
            self._begin()
        rows = [row for id, row in new.items() if id not in self._subscriptions]
        try:
            self._subscriptions.put_all([given[row] for row in rows])
        except BatchError as error:
            raise BatchError(rows[error.row], error.cause) from error
        added = set(rows)
        for row, subscription in enumerate(given):
            if row in added:
                self._register(subscription)
                self._greet(subscription)
            else:
                self._take_up(subscription)
        return self._answer()

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

    def _check_id(self, one: Subscription | Fence | Composite) -> None:
        """Refuse an id that something of another kind has."""
        for kind, there, of in (
            ("subscription", self._subscriptions, Subscription),
            ("fence", self._fences, Fence),
            ("composite", self._composites, Composite),
        ):
            if one.id in there and not isinstance(one, of):
                raise DuplicateIdError(kind, one.id, "unsubscribe it first")

    def _take_up(self, subscription: Subscription | Fence) -> None:
        """Begin a subscription, or put it in the place of another, unless it is there already."""
        if isinstance(subscription, Fence):
            self._enclose(subscription)
            return
        old = self._subscriptions.get(subscription.id)
        if old == subscription:
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
            self._note(Unsubscribed, old.id)
        elif old.id in self._following:
            self._leave(old.id)
        else:
            told = self._live.matching(old, self.now)
            self._delivery.keep(old.id, [number for number, _ in told])

    def _register(self, subscription: Subscription) -> None:
        self._timeline.ends(subscription.expires, "subscription", subscription.id)
        self._note(Subscribed, subscription)

    def _greet(self, subscription: Subscription) -> None:
        """Tell a new subscription of what already matches it, unless it is over."""
        if not self._visible(subscription.expires):
            self._drop_subscription(subscription.id)
        elif isinstance(subscription.region, Around):
            self._join(subscription)
        else:
            for number, event in self._live.matching(subscription, self.now):
                if not self._delivery.holds(subscription.id, number):
                    self._tell(subscription, event)

    def _enclose(self, fence: Fence) -> None:
        """Begin a fence, or put it in the place of another, unless it is there already."""
        old = self._fences.get(fence.id)
        if old == fence:
            return
        if old is not None:
            self._drop_fence(fence.id)
        if not self._visible(fence.expires):
            return
        if fence.expires is not None:  # what happens before it ends may be told `lateness` later
            self._timeline.ends(fence.expires + self._timeline.hold, "fence", fence.id)
        self._report(self._fences.add(fence, self.now))

    def _drop_fence(self, id: str) -> None:
        self._fences.remove(id)
        self._timeline.forget("fence", id)
        self._note(Unsubscribed, id)

    def _report(self, crossings: Iterable[Crossing]) -> None:
        """What fences tell."""
        for crossing in crossings:
            self._draft.tell_of(crossing)

    def detect(self, composite: Composite) -> Reply:
        """Begin to detect a composite, told to its subscriber from now on.

        An equal one is there already: nothing changes. Another one under its id is replaced.
        """
        _check_type("composite", composite, Composite)
        self._check_id(composite)
        self._begin()
        old = self._composites.get(composite.id)
        if old == composite:
            return self._answer()
        self._patterns.check(composite)
        if old is not None:
            self._patterns.remove(composite.id)
        self._patterns.add(composite, self.now)
        self._composites[composite.id] = composite
        self._note(Detecting, composite)
        return self._answer()

    def unsubscribe(self, id: str) -> Reply:
        """End a subscription, a fence, or the detection of a composite; raises UnknownIdError.

        Whoever takes the id later begins anew.
        """
        check_id(id, "id")
        self._begin()
        if id in self._composites:
            self._patterns.remove(id)
            self._patterns.forget(id)
            del self._composites[id]
            self._note(Unsubscribed, id)
        elif id in self._subscriptions:
            self._drop_subscription(id)
        elif id in self._fences:
            self._drop_fence(id)
        else:
            raise UnknownIdError("subscription", id, "it may have expired; check the id")
        return self._answer()

    def _drop_subscription(self, id: str) -> None:
        self._subscriptions.remove(id)
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

    def publish(self, event: Event) -> Reply:
        """An event happens: told to whoever wants it now, and live until it expires.

        An equal event under this id is live already, or has expired within the hour: nothing
        changes. A different one while that is live is a DuplicateIdError. Refused if its `end`
        is too far ahead of the clock or too late.
        """
        arrival = self._outlook().arrival(event)
        if arrival is None:
            self._begin()
        else:
            self._move_to(arrival.now)
            self._happen(arrival, self._subscriptions.wanting(event, arrival.now))
        return self._answer()

    def publish_many(self, events: Iterable[Event]) -> Reply:
        """`publish` for many, as one by one and only faster; all of them or none.

        A bad one is a BatchError that names its row. The clock, if there is one, is read once.
        """
        given = _listed("events", events, Event)
        outlook, coming = self._outlook(), []
        for row, event in enumerate(given):
            with _of_row(row):
                arrival = outlook.arrival(event)
            if arrival is not None:
                coming.append(arrival)
        if given and self._timeline.clock is not None:
            assert outlook.present is not None
            self._move_to(outlook.present)
        self._awaited = {arrival.event.id for arrival in coming} if self._composites else set()
        for first in range(0, len(coming), _TOGETHER):
            some = coming[first : first + _TOGETHER]
            wanted = self._subscriptions.wanting_each(
                [arrival.event for arrival in some], [arrival.now for arrival in some]
            )
            told = self._together(some)
            for number, arrival in enumerate(some):
                if told is not None:
                    self._report(told.get(2 * number, ()))
                self._move_to(arrival.now)
                said = None if told is None else told.get(2 * number + 1, ())
                self._happen(arrival, next(wanted), said)
            if told is not None:
                self._report(told.get(2 * len(some), ()))
        self._awaited = set()
        return self._answer()

    def _outlook(self) -> Outlook:
        return Outlook(self._timeline, self._live, self._past, self.space)

    def _together(self, some: Sequence[Arrival]) -> dict[int, list[Crossing]] | None:
        """What fences tell of several events, by steps; None: let each come by itself.

        That is so where patterns may make positions, too, or a fence ends meanwhile.
        """
        if not self._fences or self._composites or not self._fences.can_take_many(some[-1].now):
            return None
        told: dict[int, list[Crossing]] = {}
        positions = [Position(arrival.event, arrival.end, arrival.now) for arrival in some]
        for crossing in self._fences.take_many(positions):
            told.setdefault(crossing.step, []).append(crossing)
        return told

    def _happen(
        self,
        arrival: Arrival,
        wanted: Sequence[Subscription],
        told: Iterable[Crossing] | None = None,
    ) -> None:
        """An event comes, now that time has come to it; `told`: what fences say of it."""
        event, start, end, now = arrival
        self._enter(event, wanted)
        self._report(self._fences.take(event, end, now) if told is None else told)
        if self._composites:
            self._compose(self._patterns.take(event, start, end), end)

    def _enter(self, event: Event, wanted: Sequence[Subscription]) -> None:
        """Make an event live and tell those who want it; nobody sees one that has expired."""
        if not self._visible(event.expires):
            self._remember(event, self._moment)
            return
        self._live.add(event)
        self._timeline.ends(event.expires, "event", event.id)
        self._note(Published, event)
        following = self._following
        if following:
            followers = [each.id for each in wanted if each.id in following]
            wanted = [each for each in wanted if each.id not in following]
        if wanted:
            self._draft.tell_all(wanted, event, self._moment)
        if following:
            self._heed(self._tracker.published(event, followers, self._moment))

    def retract(self, event_id: str) -> Reply:
        """Take a live event back; raises UnknownIdError.

        What was told stays told, and patterns have seen what they have seen.
        """
        check_id(event_id, "event_id")
        self._begin()
        if event_id not in self._live:
            raise UnknownIdError("event", event_id, "it may have expired; check the id")
        self._fences.gone(self._live.numbered(event_id)[1], retracted=True)
        self._live.retract(event_id)
        self._timeline.forget("event", event_id)
        self._tracker.expired(event_id, self._moment)
        self._note(Gone, event_id)
        return self._answer()

    def _remember(self, event: Event, since: Micros) -> None:
        """An event is over; it may be repeated. A composite event is published by nobody."""
        if isinstance(event, CompositeEvent):
            self._note(Gone, event.id)
            return
        content, until = content_of(event), since + REMEMBERED_FOR
        self._past.keep(event.id, content, until)
        self._note(Expired, event.id, content, until)

    # -- movers ------------------------------------------------------------------

    def move(
        self, subscriber: str, place: Point, *, heading: float | None = None,
        speed: float | None = None, epoch: int | None = None,
    ) -> Reply:  # fmt: skip
        """A subscriber reports a place: told what is within reach, and given a safe region.

        `heading` is in degrees clockwise from north, `speed` in metres a second. `epoch` is
        the number of a `Mover`'s report. A subscriber may move before it subscribes.
        """
        check_id(subscriber, "subscriber")
        _check_type("place", place, Point)
        check_space(place, self.space, "place")
        if epoch is not None:
            _check_type("epoch", epoch, int)
        self._begin()
        now = self._moment
        told = self._tracker.moved(
            subscriber, place, now, heading=heading, speed=speed, epoch=epoch
        )
        self._heed(told)
        self._report(self._fences.move(subscriber, place, self.now))
        if not told and not self._fences.follows(subscriber):
            # nothing follows this subscriber: silence until something does
            everywhere = Ball(self.space, place.x, place.y, math.inf)
            region = SafeRegion(self._tracker.epoch_of(subscriber), everywhere)
            self._draft.regions[subscriber] = region
        self._note(Moved, subscriber, place, now)
        return self._answer()

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
                    self._tell(self._subscriptions[id], event)
                self._tracker.delivered(id, message.event_id)

    # -- time --------------------------------------------------------------------

    def advance(self, to: Time | None = None) -> Reply:
        """Event time moves on: things expire, and patterns' time events are due.

        Everything that happened until then has been published. A moment that is over changes
        nothing. With a clock, time is the clock's, and `to` is left out. Location requests
        that wait for too long are repeated.
        """
        self._move_to(self._timeline.target(to), closing=True)
        self._heed(self._tracker.due(self._moment))
        return self._answer()

    def _begin(self) -> None:
        """Come to the clock's time, where there is a clock."""
        present = self._timeline.present()
        if present is not None:
            self._move_to(present)

    def _move_to(self, now: Micros, *, closing: bool = False) -> None:
        """Time goes on, in order: what has expired goes, then patterns and fences speak."""
        if self._fences or not self._patterns.idle:
            self._decide(now, closing)
        self._expire(now)
        self._fences.reach(now - self._timeline.hold, closing=closing)
        if closing:
            self._note(Closed, now - self._timeline.hold)

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

    def _expire(self, now: Micros) -> None:
        timeline = self._timeline
        if timeline.now is not None and now <= timeline.now:
            return
        for kind, id in timeline.ended(now):
            if kind == "event":
                event = self._live.expire(id)
                assert event.expires is not None
                if self._following:
                    self._tracker.expired(id, self._moment)
                self._fences.gone(event, retracted=False)
                self._remember(event, event.expires)
            elif kind == "fence":
                self._drop_fence(id)
            else:
                self._drop_subscription(id)
        timeline.now = now
        self._past.forget(now)
        self._note(Reached, now)

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
            event = self._patterns.named(detected, self._is_taken, self._moment)
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
        if self._timeline.hold and self.now is not None and self._fences:
            self._move_to(self.now)  # what came late may be due at once
        if self._remembers:
            for fence in self._fences.begun():
                self._note(Fenced, fence)
            for each in self._fences.changes():
                self._note(Traced, each)
        draft, self._draft = self._draft, Draft(self._remembers)
        if draft.changes:
            self._store.commit(draft.changes)
        for sink in self._sinks:
            for notification in draft.notifications:
                sink.deliver(notification)
        return draft.reply()

    # -- going on ------------------------------------------------------------------

    def _restore(self) -> None:
        """Begin where a store left off. Whoever moves is asked for a report."""
        state = self._store.load()
        self._timeline.now = state.now
        for event in state.events.values():
            self._live.add(event)
            self._timeline.ends(event.expires, "event", event.id)
        self._past = Past(state.expired)
        self._subscriptions.put_all([*state.subscriptions.values()])
        for subscription in state.subscriptions.values():
            self._timeline.ends(subscription.expires, "subscription", subscription.id)
        self._recall(state)
        for composite in state.composites.values():
            self._patterns.add(composite, self.now)
            self._composites[composite.id] = composite
        for moved in sorted(state.places.values(), key=lambda each: each.at):
            self._tracker.moved(moved.subscriber, moved.place, moved.at)
        for subscription in state.subscriptions.values():
            if isinstance(subscription.region, Around):
                self._join(subscription)
        self._restore_fences(state)

    def _restore_fences(self, state: State) -> None:
        before = NEVER if state.now is None else state.now - self._timeline.hold
        closed = NEVER if state.closed is None else state.closed
        saved = Saved(tuple(state.fences.values()), tuple(state.objects.values()), before, closed)
        places = sorted(state.places.values(), key=lambda each: each.at)
        self._fences.load(saved, {moved.subscriber: moved.place for moved in places})
        for fence in self._fences:
            if fence.expires is not None:
                self._timeline.ends(fence.expires + self._timeline.hold, "fence", fence.id)
        if self._remembers:
            self._fences.remember()

    def _recall(self, state: State) -> None:
        """Which pairs were told that do not follow from what is there now."""
        told: dict[str, list[int]] = {}
        events = [event for event in self._live if state.told.get(event.id)]
        wanted = self._subscriptions.wanting_each(events, [self._moment] * len(events))
        for event, found in zip(events, wanted, strict=True):
            number, _ = self._live.numbered(event.id)
            implied = {each.id for each in found if not follows(each)}
            for id in state.told[event.id] - implied:
                if id in self._subscriptions:
                    told.setdefault(id, []).append(number)
        for id, numbers in told.items():
            self._delivery.keep(id, numbers)

    def check_invariants(self) -> None:
        """Raise AssertionError where the parts contradict each other. Slow; for tests."""
        self._subscriptions.check_invariants()
        self._live.check_invariants()
        self._delivery.check_invariants()
        assert all(self._visible(s.expires) for s in self._subscriptions)
        assert all(self._visible(event.expires) for event in self._live)


def _valid(expires: Micros | None, now: Micros) -> bool:
    return expires is None or now < expires


@contextmanager
def _of_row(row: int) -> Iterator[None]:
    """Whatever is wrong inside is wrong with this row of a batch."""
    try:
        yield
    except NearcastError as error:
        raise BatchError(row, error) from error


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
