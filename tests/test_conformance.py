"""Every registered index, behind the matcher, gives the oracle's answers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcast import Event, Matcher
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
