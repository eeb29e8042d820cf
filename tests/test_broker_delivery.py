"""What is kept of pairs that were told: little, and nothing where it follows from the rest."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from nearcast import Around, Box, Broker, Event, Point, Subscription
from nearcast.broker import delivery
from nearcast.broker.delivery import Delivery
from nearcast.broker.memory import MemoryStore

S = 1_000_000


def test_a_fixed_subscription_costs_nothing_for_what_it_was_told():
    broker = Broker("planar")
    broker.subscribe_many([Subscription(f"s{i}", "ann", f"a >= {i % 2}") for i in range(400)])
    events = [Event(f"e{i}", {"a": i % 2}) for i in range(1000)]
    assert len(broker.publish_many(events[:500])) == 150_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert len(broker.publish_many(events[500:])) == 150_000
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(broker._delivery) == 0
    assert grown / 150_000 < 4  # the events themselves


def test_a_pair_of_one_who_moves_takes_at_most_16_bytes():
    known = Delivery(lambda: range(100_000))
    rng = random.Random(1)
    tracemalloc.start()
    try:
        for i in range(40):
            for number in rng.sample(range(100_000), 2500):
                assert known.first(f"s{i}", number)
        assert tracemalloc.get_traced_memory()[0] / len(known) <= 16
    finally:
        tracemalloc.stop()
    known.check_invariants()


def test_pairs_are_new_once_and_go_with_their_events(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delivery, "_FEW", 8)
    live = list(range(50, 60))
    known = Delivery(lambda: live)
    assert [known.first("s", number) for number in (55, 3, 55, 7, 3)] == [1, 1, 0, 1, 0]
    assert known.holds("s", 7)
    assert not known.holds("s", 8)
    assert not known.holds("t", 7)
    known.keep("t", [58, 51])
    for number in range(20):
        known.first("u", number)
    known.check_invariants()
    assert len(known) < 20  # of those that are gone few are left
    assert known.holds("s", 55)
    assert known.holds("t", 51)
    known.forget("t")
    assert not known.holds("t", 51)
    known.check_invariants()


def test_one_who_follows_and_comes_back_is_told_again():
    broker = Broker("planar")
    broker.move("ann", Point(0, 0))
    broker.publish(Event("e", location=Point(0, 1), end=0))
    wish = Subscription("s", "ann", region=Around(2))
    broker.move("ann", Point(0, 0))
    assert [told.event.id for told in broker.subscribe(wish)] == ["e"]
    broker.unsubscribe("s")
    assert [told.event.id for told in broker.subscribe(wish)] == ["e"]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_former_subscriptions_under_an_id_were_told_is_not_repeated(restarted: bool):
    store = MemoryStore()

    def made() -> Broker:
        return Broker("planar", store=store)

    broker = made()
    for i in range(4):
        broker.publish(Event(f"e{i}", {"a": i}, (), Point(i, 0)))

    def told(where: str | None, region: Box | Around | None = None) -> list[str]:
        nonlocal broker
        if restarted:
            broker = made()
        wish = Subscription("s", "ann", where, (), region)
        return [each.event.id for each in broker.subscribe(wish)]

    assert told("a < 2") == ["e0", "e1"]
    assert told("a > 2") == ["e3"]
    assert told("a <= 2") == ["e2"]
    assert told(None) == []
    broker.move("ann", Point(1, 0))
    assert told(None, Around(5)) == []
    assert told(None, Box(0, 0, 9, 9)) == []
    broker.publish(Event("e9", {"a": 9}, (), Point(1, 1)))
    assert told("a = 9") == []
    broker.retract("e0")
    broker.publish(Event("e0", {"a": 0}, (), Point(0, 0)))
    assert told(None) == ["e0"]
    wish = Subscription("s", "bob")
    assert [each.event.id for each in broker.subscribe(wish)] == ["e1", "e2", "e3", "e9", "e0"]
