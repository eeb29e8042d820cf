"""The broker: matcher, patterns and movers behind one set of verbs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from nearcast.broker.delivery import Delivery
from nearcast.broker.memory import NoStore
from nearcast.broker.past import REMEMBERED_FOR, Past, content_of, same
from nearcast.broker.patterns import Patterns
from nearcast.broker.ports import (
    Change,
    Detecting,
    Expired,
    Gone,
    Moved,
    Published,
    Reached,
    Sink,
    Store,
    Subscribed,
    Told,
    Unsubscribed,
)
from nearcast.broker.replies import Notification, Reply
from nearcast.broker.timeline import Clock, Timeline, span
from nearcast.clock import Micros, Time
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import DuplicateIdError, UnknownIdError, ValidationError
from nearcast.matcher import Matcher
from nearcast.mobility.impact_region import Impact
from nearcast.mobility.messages import LocationRequest, Message, NewRegion
from nearcast.mobility.safe_region import Ball, SafeRegion
from nearcast.mobility.search import MatcherSearch
from nearcast.mobility.tracker import Tracker
from nearcast.model.events import Event, check_id
from nearcast.model.geometry import Around, Box, Point, Space, check_space
from nearcast.model.subscriptions import Subscription

__all__ = ["Service"]


class Service:
    """Tells subscribers of events: what already matches, then everything after, each pair once.

    Every call checks what it is given before it changes anything, and answers a `Reply`.
    `docs/broker.md` says what each verb does; the cost is that of the matcher's call behind it.
    One thread at a time.
    """

    def __init__(
        self, *, space: Space = "globe", safe_region: str = "disc", extent: Box | None = None,
        lateness: object = None, max_ahead: object = 5, clock: Clock | None = None,
        index: str = "auto", composite_life: object = 3600, store: Store | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:  # fmt: skip
        self._timeline = Timeline(clock, lateness, max_ahead)
        self._matcher = Matcher(index=index, space=space)
        self._tracker = Tracker(
            MatcherSearch(self._matcher), space=space, safe_region=safe_region,
            extent=extent,
        )  # fmt: skip
        life = None if composite_life is None else span(composite_life, "composite_life")
        self._patterns = Patterns(space, self._timeline.hold, life)
        self._delivery = Delivery()
        self._subscriptions: dict[str, Subscription] = {}
        self._following: set[str] = set()
        self._composites: dict[str, Composite] = {}
        self._events: dict[str, tuple[int, Event]] = {}
        self._past = Past({})
        self._arrived = 0
        self._store: Store = NoStore() if store is None else store
        self._sinks = tuple(sinks)
        self._draft = _Draft()
        self._restore()

    @property
    def space(self) -> Space:
        """The space of all places."""
        return self._matcher.space

    @property
    def now(self) -> Micros | None:
        """The time it has come to, in microseconds; None before the first."""
        return self._timeline.now

    @property
    def late(self) -> int:
        """How many events came too late for patterns; they were matched all the same."""
        return self._patterns.late

    @property
    def event_count(self) -> int:
        """How many events are live, as far as time has come."""
        return len(self._events)

    def __len__(self) -> int:
        """How many subscriptions and composites there are."""
        return len(self._subscriptions) + len(self._composites)

    def __contains__(self, id: object) -> bool:
        """Whether a subscription or composite has this id."""
        return id in self._subscriptions or id in self._composites

    # -- subscriptions -----------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> Reply:
        """Begin a subscription: told of every live event that matches, then of all to come.

        An equal one is there already: nothing changes, nothing is repeated. Another one under
        its id is replaced, and what that one was told of is not repeated, unless it was
        somebody else's.
        """
        _check_type("subscription", subscription, Subscription)
        follows = isinstance(subscription.region, Around)
        if follows and subscription.subscriber is None:
            raise ValidationError("subscriber", None, "Around needs to know whom to follow")
        if subscription.region is not None:
            check_space(subscription.region, self.space, "region")
        if subscription.id in self._composites:
            raise DuplicateIdError("composite", subscription.id, "unsubscribe it first")
        self._begin()
        if self._subscriptions.get(subscription.id) == subscription:
            return self._answer()
        self._replace(subscription)
        if not self._visible(subscription.expires):
            self._drop_subscription(subscription.id)
        elif follows:
            self._join(subscription)
        else:
            found = self._matcher.match_subscription(subscription, now=self.now)
            for event_id in sorted(found, key=lambda id: self._events[id][0]):
                self._tell(subscription, self._events[event_id][1])
        return self._answer()

    def _replace(self, subscription: Subscription) -> None:
        old = self._subscriptions.get(subscription.id)
        self._stand(subscription)
        if old is not None:
            self._leave(old.id)
            if old.subscriber != subscription.subscriber:
                self._delivery.forget_subscription(old.id)
                self._note(Unsubscribed(old.id))
        self._subscriptions[subscription.id] = subscription
        self._timeline.ends(subscription.expires, "subscription", subscription.id)
        self._note(Subscribed(subscription))

    def _stand(self, subscription: Subscription) -> None:
        """Let the matcher hold a subscription; those that follow somebody are the tracker's."""
        if isinstance(subscription.region, Around):
            self._tracker.check(subscription)
            if subscription.id in self._matcher:
                self._matcher.remove_subscription(subscription.id)
        elif subscription.id in self._matcher:
            self._matcher.update_subscription(subscription)
        else:
            self._matcher.add_subscriptions([subscription])

    def detect(self, composite: Composite) -> Reply:
        """Begin to detect a composite, told to its subscriber from now on.

        An equal one is there already: nothing changes. Another one under its id is replaced.
        """
        _check_type("composite", composite, Composite)
        if composite.id in self._subscriptions:
            raise DuplicateIdError("subscription", composite.id, "unsubscribe it first")
        self._begin()
        old = self._composites.get(composite.id)
        if old == composite:
            return self._answer()
        self._patterns.check(composite)
        if old is not None:
            self._patterns.remove(composite.id)
        self._patterns.add(composite, self.now)
        self._composites[composite.id] = composite
        self._note(Detecting(composite))
        return self._answer()

    def unsubscribe(self, id: str) -> Reply:
        """End a subscription, or the detection of a composite; raises UnknownIdError.

        Whoever takes the id later begins anew.
        """
        check_id(id, "id")
        self._begin()
        if id in self._composites:
            self._patterns.remove(id)
            self._patterns.forget(id)
            del self._composites[id]
            self._note(Unsubscribed(id))
        elif id in self._subscriptions:
            self._drop_subscription(id)
        else:
            raise UnknownIdError("subscription", id, "it may have expired; check the id")
        return self._answer()

    def _drop_subscription(self, id: str) -> None:
        del self._subscriptions[id]
        if id in self._matcher:
            self._matcher.remove_subscription(id)
        self._leave(id)
        self._delivery.forget_subscription(id)
        self._timeline.forget("subscription", id)
        self._note(Unsubscribed(id))

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
        _check_type("event", event, Event)
        if event.location is not None:
            check_space(event.location, self.space, "location")
        present = self._timeline.present()
        if self._is_repetition(event, present):
            self._begin()
            return self._answer()
        start, end = self._timeline.interval(event, present)
        now = end if present is None else present
        if self._timeline.clock is None:
            now = max(now, end)
        _, known = self._events.get(event.id, (0, None))
        if known is not None and _valid(known.expires, now):
            raise DuplicateIdError(
                "event", event.id, "retract it first, or publish under another id"
            )
        self._move_to(now)
        self._enter(event)
        self._compose(self._patterns.take(event, start, end), end)
        return self._answer()

    def _is_repetition(self, event: Event, present: Micros | None) -> bool:
        """Whether an equal event is live, or was not long ago."""
        if event.id in self._events:
            _, known = self._events[event.id]
            return known == event or same(known, event)
        return self._past.holds(event, 0 if present is None else present)

    def _enter(self, event: Event) -> None:
        """Make an event live and tell whoever wants it; nobody sees one that has expired."""
        if not self._visible(event.expires):
            self._remember(event, self._moment)
            return
        self._matcher.add_events([event])
        self._arrived += 1
        self._events[event.id] = self._arrived, event
        self._timeline.ends(event.expires, "event", event.id)
        self._note(Published(event))
        for id in self._matcher.match_event(event, now=self._moment):
            self._tell(self._subscriptions[id], event)
        self._heed(self._tracker.published(event, self._moment))

    def retract(self, event_id: str) -> Reply:
        """Take a live event back; raises UnknownIdError.

        What was told stays told, and patterns have seen what they have seen.
        """
        check_id(event_id, "event_id")
        self._begin()
        if event_id not in self._events:
            raise UnknownIdError("event", event_id, "it may have expired; check the id")
        self._drop_event(event_id)
        self._note(Gone(event_id))
        return self._answer()

    def _remember(self, event: Event, since: Micros) -> None:
        """An event is over; it may be repeated. A composite event is published by nobody."""
        if isinstance(event, CompositeEvent):
            self._note(Gone(event.id))
            return
        over = Expired(event.id, content_of(event), since + REMEMBERED_FOR)
        self._past.keep(event.id, over.content, over.until)
        self._note(over)

    def _drop_event(self, id: str) -> None:
        del self._events[id]
        self._matcher.remove_event(id)
        self._tracker.expired(id, self._moment)
        self._delivery.forget_event(id)
        self._timeline.forget("event", id)

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
        if not told:  # nothing follows this subscriber: silence until something does
            everywhere = Ball(self.space, place.x, place.y, math.inf)
            region = SafeRegion(self._tracker.epoch_of(subscriber), everywhere)
            self._draft.regions[subscriber] = region
        self._note(Moved(subscriber, place, now))
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
                subscription = self._subscriptions[message.subscription_id]
                self._tell(subscription, self._events[message.event_id][1])
                self._tracker.delivered(message.subscription_id, message.event_id)

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
        """Time goes on, in order: at each moment what has expired goes, then patterns speak."""
        hold = self._timeline.hold
        if self.now is None:
            self._patterns.begin(now)
        while (moment := self._patterns.due(now - hold, closing=closing)) is not None:
            self._expire(moment + hold)
            self._compose(self._patterns.decide(moment), moment)
        self._expire(now)

    def _expire(self, now: Micros) -> None:
        if self.now is not None and now <= self.now:
            return
        for kind, id in self._timeline.ended(now):
            if kind == "event":
                event = self._events[id][1]
                assert event.expires is not None
                self._drop_event(id)
                self._remember(event, event.expires)
            else:
                self._drop_subscription(id)
        self._timeline.now = now
        self._past.forget(now)
        self._note(Reached(now))

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
        made: list[str] = []
        while waiting:
            detected = waiting.popleft()
            event = self._patterns.named(detected, self._events, self._moment)
            made.append(event.id)
            self._tell(self._composites[event.composite_id], event)
            self._enter(event)
            waiting += self._patterns.again(event, detected, moment)
        for id in made:
            if id not in self._events:  # it has expired already
                self._delivery.forget_event(id)

    # -- answers -----------------------------------------------------------------

    def _tell(self, to: Subscription | Composite, event: Event) -> None:
        if self._delivery.first(to.id, event.id):
            told = Notification(to.id, to.subscriber, event, self._moment)
            self._draft.notifications.append(told)
            self._note(Told(told))

    def _note(self, change: Change) -> None:
        self._draft.changes.append(change)

    def _answer(self) -> Reply:
        """Let the store remember, then the sinks deliver."""
        draft, self._draft = self._draft, _Draft()
        if draft.changes:
            self._store.commit(draft.changes)
        for sink in self._sinks:
            for notification in draft.notifications:
                sink.deliver(notification)
        return Reply(draft.notifications, draft.regions, draft.requests)

    # -- going on ------------------------------------------------------------------

    def _restore(self) -> None:
        """Begin where a store left off. Whoever moves is asked for a report."""
        state = self._store.load()
        self._timeline.now = state.now
        self._matcher.add_events(list(state.events.values()))
        for event in state.events.values():
            self._arrived += 1
            self._events[event.id] = self._arrived, event
            self._timeline.ends(event.expires, "event", event.id)
        self._past = Past(state.expired)
        self._delivery.restore(state.told)
        for subscription in state.subscriptions.values():
            self._stand(subscription)
            self._subscriptions[subscription.id] = subscription
            self._timeline.ends(subscription.expires, "subscription", subscription.id)
        for composite in state.composites.values():
            self._patterns.add(composite, self.now)
            self._composites[composite.id] = composite
        for moved in sorted(state.places.values(), key=lambda each: each.at):
            self._tracker.moved(moved.subscriber, moved.place, moved.at)
        for subscription in state.subscriptions.values():
            if isinstance(subscription.region, Around):
                self._join(subscription)

    def check_invariants(self) -> None:
        """Raise AssertionError where the parts contradict each other. Slow; for tests."""
        self._matcher.check_invariants()
        self._delivery.check_invariants()
        assert len(self._matcher) + len(self._following) == len(self._subscriptions)
        assert self._matcher.event_count == len(self._events)
        assert all(self._visible(s.expires) for s in self._subscriptions.values())
        assert all(self._visible(event.expires) for _, event in self._events.values())


class _Draft:
    """What a call has come to so far."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        self.regions: dict[str, SafeRegion] = {}
        self.requests: dict[str, int] = {}
        self.changes: list[Change] = []


def _valid(expires: Micros | None, now: Micros) -> bool:
    return expires is None or now < expires


def _check_type(field: str, value: object, kind: type[Any]) -> None:
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ValidationError(field, value, f"give {article} {kind.__name__}")
