"""Whoever was found is told by name when somebody looks, whoever has left or come since."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Broker, Event, Subscription
from nearcast.broker import Reply, seats
from nearcast.broker.seats import Seats

FILTERS = (None, "a < 3", "a > 1 OR a < 2", "a = 9")
ids = st.sampled_from(("s1", "s10", "s2", "t"))
wishes = st.builds(Subscription, ids, st.sampled_from(("ann", "bob")), st.sampled_from(FILTERS))
steps = st.lists(
    st.tuples(st.just("subscribe"), wishes)
    | st.tuples(st.just("unsubscribe"), ids)
    | st.tuples(st.just("publish"), st.integers(0, 4))
    | st.tuples(st.just("publish_many"), st.lists(st.integers(0, 4), max_size=8)),
    max_size=40,
)


def replies(broker: Broker, given: list[tuple[str, Any]]) -> Iterator[Reply]:
    """What publishing was answered; each event expires before the next."""
    at = 0

    def event(a: Any) -> Event:
        nonlocal at
        at += 2
        return Event(f"e{at}", {"a": a}, (), None, at, at, at + 1)

    for verb, what in given:
        if verb == "subscribe":
            broker.subscribe(what)
        elif verb == "unsubscribe":
            if what in broker:
                broker.unsubscribe(what)
        elif verb == "publish":
            yield broker.publish(event(what))
        elif verb == "publish_many":
            yield broker.publish_many([event(a) for a in what])


@settings(deadline=None)
@given(steps, st.integers(1, 4), st.sets(st.integers(0, 20)))
def test_a_reply_is_the_same_whenever_it_is_read(given, most, dropped):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(seats, "_MOST_LEFT", most)
        at_once = [tuple(reply) for reply in replies(Broker(), given)]
        broker = Broker()
        kept: list[Reply | None] = []
        for number, reply in enumerate(replies(broker, given)):
            kept.append(None if number in dropped else reply)
            assert len(reply) == len(at_once[number])
            del reply
        broker._subscriptions.check_invariants()
        for now, then in zip(kept, at_once, strict=True):
            assert now is None or tuple(now) == then


def test_who_left_is_remembered_while_somebody_may_ask(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seats, "_MOST_LEFT", 2)
    sitting = {slot: Subscription(f"s{slot}", "ann") for slot in range(4)}
    known = Seats(sitting.__getitem__)
    first = known.found([0, 1], (2,))
    known.leave(0, sitting.pop(0))
    known.leave(1, sitting.pop(1))
    second = known.found([2, 3], (1, 1))
    known.leave(3, sitting.pop(3))
    sitting |= {slot: Subscription(f"new {slot}", "bob") for slot in (0, 1, 3)}
    assert [each.id for each in first] == ["s0", "s1"]
    assert [[each.id for each in some] for some in second.each()] == [["s2"], ["s3"]]
    assert [each.id for each in known.found([0, 3], (2,))] == ["new 0", "new 3"]


def test_nobody_is_remembered_for_those_who_cannot_ask():
    sitting = {0: Subscription("s", "ann")}
    known = Seats(sitting.__getitem__)
    found = known.found([0], (1,))
    del found
    known.leave(0, sitting[0])
    assert not known


def test_another_thread_may_read_while_people_leave():
    broker = Broker()
    waiting: SimpleQueue[tuple[Reply, str] | None] = SimpleQueue()
    wrong: list[object] = []

    def read() -> None:
        while (given := waiting.get()) is not None:
            reply, name = given
            told = [(each.subscription_id, each.subscriber) for each in reply]
            if told != [(f"s{i}", name) for i in range(4)]:
                wrong.append((name, told))

    readers = [Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(300):
        name = f"u{turn}"
        for i in range(4):
            broker.subscribe(Subscription(f"s{i}", name, None if turn % 2 else "a = 1"))
        reply = broker.publish(Event(f"e{turn}", {"a": 1}, (), None, turn, turn, turn + 1))
        waiting.put((reply, name))
        if turn % 3:
            for i in range(4):
                broker.unsubscribe(f"s{i}")
    for _ in readers:
        waiting.put(None)
    for reader in readers:
        reader.join(600)
    assert not wrong
