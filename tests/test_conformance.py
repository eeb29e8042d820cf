"""Every registered index, behind the matcher, gives the oracle's answers."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcast import Box, Event, Matcher, Point, Subscription
from nearcast.index import registry
from tests import oracle
from tests.placed import placed
from tests.strategies import event_lists, points, subscription_lists, times

RELAXED = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SPACES = ("globe", "planar")


def expected_pairs(subscriptions, events, space, now):
    return sorted(
        (event.id, id)
        for event in events
        for id in oracle.match_event(subscriptions, event, space, now)
    )


def pairs_of(table):
    return sorted(
        zip(table["event_id"].to_pylist(), table["subscription_id"].to_pylist(), strict=True)
    )


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("index", registry.names(subscriptions=True))
@RELAXED
@given(data=st.data())
def test_event_matching_agrees_with_the_oracle(index: str, space, data: st.DataObject) -> None:
    at = data.draw(points(space))
    subscriptions = data.draw(subscription_lists(space, around=True))
    events = data.draw(event_lists(space))
    now = data.draw(st.none() | times())
    matcher = Matcher(index=index, space=space)
    matcher.add_subscriptions(subscriptions, at=at)
    matcher.check_invariants()
    standing = [placed(s, at) for s in subscriptions]
    wanted = expected_pairs(standing, events, space, now)
    got = [(e.id, id) for e in events for id in matcher.match_event(e, now)]
    batch = pairs_of(matcher.match_events(events, now))
    if registry.entry(index).approximate:
        assert set(got) <= set(wanted)
        assert set(batch) <= set(wanted)
        return
    assert sorted(got) == wanted
    assert batch == wanted
    for event in events:
        for subscription in standing:
            told = matcher.explain(subscription.id, event, now)
            assert told.matched == ((event.id, subscription.id) in wanted), str(told)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("index", registry.names(events=True))
@RELAXED
@given(data=st.data())
def test_subscription_matching_agrees_with_the_oracle(index, space, data) -> None:
    at = data.draw(points(space))
    subscriptions = data.draw(subscription_lists(space, around=True))
    events = data.draw(event_lists(space))
    now = data.draw(st.none() | times())
    matcher = Matcher(index=index, space=space)
    matcher.add_events(events)
    for subscription in [placed(s, at) for s in subscriptions]:
        wanted = oracle.match_subscription(subscription, events, space, now)
        assert matcher.match_subscription(subscription, now) == wanted, subscription
    matcher.check_invariants()


BOX = Box(1, 3, 2, 4)
INSIDE = [Point(x, y) for x in (1, 1.5, 2) for y in (3, 3.5, 4)]
OUTSIDE = [
    Point(x, 3.5) for x in (math.nextafter(1, 0), math.nextafter(2, 9))
] + [Point(1.5, y) for y in (math.nextafter(3, 0), math.nextafter(4, 9))]  # fmt: skip


@pytest.mark.parametrize("index", registry.names())
def test_borders_and_ends_belong_to_what_they_bound(index: str) -> None:
    """Boxes and intervals are closed, to the last bit, on both sides of matching."""
    where = "a BETWEEN 1 AND 2"
    wish = Subscription(id="s", where=where, region=BOX)
    ends = [Event(id=f"v{v!r}", attributes={"a": v}, location=Point(1.5, 3.5))
            for v in (1, 2, math.nextafter(1, 0), math.nextafter(2, 9))]  # fmt: skip
    spots = [
        Event(id=f"{p.x!r} {p.y!r}", attributes={"a": 1.5}, location=p) for p in INSIDE + OUTSIDE
    ]
    wanted = sorted(e.id for e in [*spots[: len(INSIDE)], *ends[:2]])
    entry = registry.entry(index)
    if entry.subscriptions is not None and not entry.approximate:
        matcher = Matcher(index=index, space="planar")
        matcher.add_subscriptions([wish])
        assert sorted(e.id for e in spots + ends if matcher.match_event(e)) == wanted
        assert sorted(matcher.match_events(spots + ends)["event_id"].to_pylist()) == wanted
    if entry.events is not None:
        matcher = Matcher(index=index, space="planar")
        matcher.add_events(spots + ends)
        assert matcher.match_subscription(wish) == wanted


@pytest.mark.parametrize("index", registry.names())
def test_an_event_has_every_word_that_is_asked_for(index: str) -> None:
    """All sets of four words against all of them."""
    sets = [frozenset(words) for n in range(5) for words in combinations("abcd", n)]
    wishes = [Subscription(id="".join(sorted(words)) or "-", keywords=words) for words in sets]
    events = [Event(id="".join(sorted(words)) or "-", keywords=words) for words in sets]
    entry = registry.entry(index)
    if entry.subscriptions is not None:
        matcher = Matcher(index=index, space="planar")
        matcher.add_subscriptions(wishes)
        for event in events:
            wanted = sorted(wish.id for wish in wishes if wish.keywords <= event.keywords)
            assert matcher.match_event(event) == wanted
    if entry.events is not None:
        matcher = Matcher(index=index, space="planar")
        matcher.add_events(events)
        for wish in wishes:
            wanted = sorted(event.id for event in events if wish.keywords <= event.keywords)
            assert matcher.match_subscription(wish) == wanted


@pytest.mark.parametrize("index", registry.names(subscriptions=True))
def test_several_clauses_of_one_subscription_are_one_match(index: str) -> None:
    matcher = Matcher(index=index)
    matcher.add_subscriptions([Subscription(id="s", where="a = 1 OR b = 2 OR c = 3")])
    both = Event(id="e", attributes={"a": 1, "b": 2})
    assert matcher.match_event(both) == ["s"]
    assert pairs_of(matcher.match_events([both])) == [("e", "s")]


@pytest.mark.parametrize("index", registry.names())
def test_index_declares_at_least_one_direction(index: str) -> None:
    entry = registry.entry(index)
    assert entry.subscriptions is not None or entry.events is not None
    assert entry.summary


@pytest.mark.parametrize("index", registry.names(subscriptions=True))
def test_no_subscriptions_no_matches(index: str) -> None:
    matcher = Matcher(index=index)
    assert matcher.match_event(Event(id="e", attributes={"a": 1})) == []
    assert matcher.match_events([Event(id="e")]).num_rows == 0
    assert matcher.match_events([]).num_rows == 0
    assert matcher.memory()["total"] >= 0
