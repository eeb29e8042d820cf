"""Adds, removes, updates, moves, expiries and matches in any order, on every index at once."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from nearcast import Event, Matcher, Point, Subscription
from nearcast.clock import NEVER
from nearcast.errors import BatchError, UnknownIdError
from nearcast.index import registry
from nearcast.model.codec import events_to_arrow
from nearcast.model.geometry import Space
from tests import oracle
from tests.placed import placed
from tests.strategies import events, points, subscriptions, times

EXACT = [name for name in registry.names() if not registry.entry(name).approximate]


class Matchers(RuleBasedStateMachine):
    """A model of plain dicts and lists beside a matcher for each index."""

    space: Space = "globe"
    subscription_ids = Bundle("subscription_ids")
    event_ids = Bundle("event_ids")

    def __init__(self) -> None:
        super().__init__()
        self.standing: dict[str, tuple[Subscription, Point]] = {}
        self.live: dict[str, Event] = {}
        self.matchers: dict[str, Matcher] = {}
        self.count = 0
        self.clock = NEVER
        """The latest time that the matchers were told of live events."""

    @initialize()
    def open(self) -> None:
        self.matchers = {name: Matcher(index=name, space=self.space) for name in EXACT}

    def _with(self, direction: str) -> list[Matcher]:
        return [m for m in self.matchers.values() if getattr(m.entry, direction) is not None]

    def _fixed(self) -> list[Subscription]:
        return [placed(subscription, at) for subscription, at in self.standing.values()]

    def _fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    @rule(target=subscription_ids, data=st.data())
    def add_subscription(self, data: st.DataObject) -> str:
        id = self._fresh("s")
        subscription = data.draw(subscriptions(self.space, id=id, around=True))
        at = data.draw(points(self.space))
        for matcher in self._with("subscriptions"):
            matcher.add_subscriptions([subscription], at=at)
        self.standing[id] = subscription, at
        return id

    @rule(id=consumes(subscription_ids))
    def remove_subscription(self, id: str) -> None:
        known = self.standing.pop(id, None) is not None
        for matcher in self._with("subscriptions"):
            if known:
                matcher.remove_subscription(id)
            else:
                with pytest.raises(UnknownIdError):
                    matcher.remove_subscription(id)

    @precondition(lambda self: self.standing)
    @rule(data=st.data())
    def update_or_move(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.standing)))
        old, _ = self.standing[id]
        move_only = data.draw(st.booleans())
        new = old if move_only else data.draw(subscriptions(self.space, id=id, around=True))
        at = data.draw(points(self.space))
        for matcher in self._with("subscriptions"):
            matcher.update_subscription(new, at=at)
        self.standing[id] = new, at

    @precondition(lambda self: self.standing)
    @rule(data=st.data())
    def add_a_bad_batch(self, data: st.DataObject) -> None:
        taken = data.draw(st.sampled_from(sorted(self.standing)))
        batch = [Subscription(id="fresh"), self.standing[taken][0]]
        for matcher in self._with("subscriptions"):
            with pytest.raises(BatchError) as caught:
                matcher.add_subscriptions(batch, at=Point(0, 0))
            assert caught.value.row == 1
            assert "fresh" not in matcher

    @rule(target=event_ids, data=st.data())
    def add_event(self, data: st.DataObject) -> str:
        id = self._fresh("e")
        event = data.draw(events(self.space, id=id))
        for matcher in self._with("events"):
            matcher.add_events([event])
        self.live[id] = event
        return id

    @rule(id=event_ids, data=st.data())
    def add_event_again(self, id: str, data: st.DataObject) -> None:
        """An id is taken while its event is live."""
        event = data.draw(events(self.space, id=id))
        given = [event] if data.draw(st.booleans()) else events_to_arrow([event])
        taken = id in self.live and not _over(self.live[id].expires, self.clock)
        for matcher in self._with("events"):
            if taken:
                with pytest.raises(BatchError):
                    matcher.add_events(given)
            else:
                matcher.add_events(given)
        if not taken:
            self.live[id] = event

    @rule(id=consumes(event_ids))
    def remove_event(self, id: str) -> None:
        event = self.live.pop(id, None)
        for matcher in self._with("events"):
            if event is None:
                with pytest.raises(UnknownIdError):
                    matcher.remove_event(id)
            elif not _over(event.expires, self.clock):
                matcher.remove_event(id)
            else:  # it may be gone already
                with suppress(UnknownIdError):
                    matcher.remove_event(id)

    @rule(now=times())
    def expire(self, now: int) -> None:
        before, self.clock = self.clock, max(self.clock, now)
        over = sorted(i for i, (s, _) in self.standing.items() if _over(s.expires, now))
        gone = sorted(i for i, e in self.live.items() if _over(e.expires, self.clock))
        late = {i for i in gone if _over(self.live[i].expires, before)}
        for matcher in self.matchers.values():
            told = matcher.expire(now)
            assert told[0] == (over if matcher.entry.subscriptions else [])
            if matcher.entry.events:  # those that had expired before may be gone already
                assert sorted({*told[1], *late}) == gone
        self.standing = {i: s for i, s in self.standing.items() if i not in over}
        self.live = {i: e for i, e in self.live.items() if i not in gone}

    @rule(data=st.data(), now=st.none() | times())
    def match_event(self, data: st.DataObject, now: int | None) -> None:
        event = data.draw(events(self.space, id="probe"))
        wanted = oracle.match_event(self._fixed(), event, self.space, now)
        for matcher in self._with("subscriptions"):
            assert matcher.match_event(event, now) == wanted, matcher.entry.name
            table = matcher.match_events([event, event], now)
            assert sorted(table["subscription_id"].to_pylist()) == sorted(wanted * 2)

    @rule(data=st.data(), now=st.none() | times())
    def match_subscription(self, data: st.DataObject, now: int | None) -> None:
        subscription = data.draw(subscriptions(self.space, id="probe"))
        self.clock = self.clock if now is None else max(self.clock, now)
        wanted = oracle.match_subscription(subscription, self.live.values(), self.space, self.clock)
        for matcher in self._with("events"):
            assert matcher.match_subscription(subscription, now) == wanted, matcher.entry.name

    @invariant()
    def sound(self) -> None:
        for matcher in self.matchers.values():
            matcher.check_invariants()
            if matcher.entry.subscriptions:
                assert len(matcher) == len(self.standing)
            if matcher.entry.events:
                alive = [e for e in self.live.values() if not _over(e.expires, self.clock)]
                assert len(alive) <= matcher.event_count <= len(self.live)


class PlanarMatchers(Matchers):
    """The same on a plane; with every change strings and words are freed that nobody uses."""

    space = "planar"

    @invariant()
    def tidy(self) -> None:
        for matcher in self.matchers.values():
            matcher._most_texts = -1


def _over(expires: int | None, now: int) -> bool:
    return expires is not None and expires <= now


STEPS = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestOnTheGlobe = Matchers.TestCase
TestOnTheGlobe.settings = STEPS
TestOnAPlane = PlanarMatchers.TestCase
TestOnAPlane.settings = STEPS
