"""Which events are the same: id and source together."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nearcast import Broker, Event, Reply, Subscription
from nearcast.errors import DuplicateIdError, ValidationError
from nearcast.model.codec import event_from_json, event_to_json, events_from_arrow, events_to_arrow

NAMES = st.text("\0019a", min_size=1, max_size=4)


@given(NAMES, st.none() | NAMES, NAMES, st.none() | NAMES)
@example("bc", "a", "c", "ab")
def test_no_other_pair_has_its_key(id: str, source: str | None, other: str, others: str | None):
    one, two = Event(id, source=source), Event(other, source=others)
    assert (one.key == two.key) == ((id, source) == (other, others))
    assert (one == two) == (one.key == two.key)


def test_a_plain_key_is_the_id():
    assert Event("e1").key == "e1"
    assert Event("e1", source="nearcast") == Event("e1")


@pytest.mark.parametrize("source", [None, "/shops/7"])
def test_sources_travel(source: str | None):
    event = Event("e1", {"a": 1.5}, source=source)
    assert event_from_json(event_to_json(event)) == event
    assert events_from_arrow(events_to_arrow([event, Event("e2")])) == [event, Event("e2")]
    assert pickle.loads(pickle.dumps(event)) == event
    with pytest.raises(ValidationError, match="source"):
        Event("e1", source="")


def test_sources_do_not_disturb_each_other():
    broker = Broker()
    broker.subscribe(Subscription("s1", "ann"))
    a, b = Event("e1", {"x": 1}, source="a"), Event("e1", {"x": 2}, source="b")
    assert [told.event for told in broker.publish_many([a, b, a])] == [a, b]
    assert broker.publish(b) == Reply()
    with pytest.raises(DuplicateIdError):
        broker.publish(Event("e1", {"x": 3}, source="b"))
    assert [told.event for told in broker.subscribe(Subscription("s2", "ann"))] == [a, b]
    assert len(broker.publish(Event("e1", {"x": 3}))) == 2
    broker.retract("e1", source="a")
    assert len(broker.publish(a)) == 2
    broker.check_invariants()
