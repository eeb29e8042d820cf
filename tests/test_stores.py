"""What every store promises, whatever it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcast import (
    Around,
    Box,
    Broker,
    Composite,
    Event,
    Fence,
    NearcastError,
    Point,
    Reply,
    Subscription,
)
from nearcast.broker.contents import same
from nearcast.broker.memory import Inbox
from nearcast.broker.past import thing_key
from nearcast.broker.ports import (
    Acknowledged,
    Change,
    Closed,
    Decided,
    Detecting,
    Expired,
    Fenced,
    Gone,
    Held,
    Input,
    Kept,
    Moved,
    Published,
    Queued,
    Reached,
    Released,
    SavedPatterns,
    Spent,
    Standing,
    State,
    Store,
    Subscribed,
    Told,
    Traced,
    Unsubscribed,
)
from nearcast.broker.replies import Notification
from nearcast.broker.turns import Loss, Report, Turn, Waiting
from nearcast.cpsl.instances import CompositeEvent
from nearcast.errors import DuplicateIdError, StoppedError, ValidationError
from nearcast.fences.groups import key_of
from nearcast.fences.saved import KnownFence, KnownObject, Visit
from nearcast.model.placing import Facing
from tests.stores import EVERY_STORE, STORES, Opener
from tests.strategies import events, subscriptions

E1 = Event("e1", {"price": 3}, expires=100)
E2 = Event("e1", {"price": 4}, source="/shop")
S1 = Subscription("s1", "ann", "price < 5")
C1 = Composite("c1", "ops", 'Q(3)(STRING: type = "alarm")')
MADE = CompositeEvent("c1#1", "c1", ("e1", "e2"), {"v": 1.5}, Point(1, 2), 3, 4, 5)


class Shelf:
    """A store that is opened, closed and opened again."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self.store: Store = opener()
        self.store.load()

    def put(self, *changes: Change) -> None:
        self.store.stage(changes)
        self.store.flush()

    def again(self) -> State:
        self.store.close()
        self.store = self._opener()
        return self.store.load()


@pytest.fixture(params=EVERY_STORE)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return STORES[request.param](tmp_path)


@pytest.fixture
def shelf(opener: Opener) -> Iterator[Shelf]:
    shelf = Shelf(opener)
    yield shelf
    shelf.store.close()


def told(event: Event, seq: int, subscriber: str = "ann") -> Told:
    return Told((Notification("s1", subscriber, event, 7, seq=seq),))


def test_an_empty_store_is_an_empty_state(shelf: Shelf):
    assert shelf.again() == State()
    assert shelf.store.outbox("ann", 0, 10) == ((), 0, 0)
    assert shelf.store.cursor("ann") == 0
    assert list(shelf.store.log(0, 10)) == []


def test_things_stay_in_the_order_they_came_and_where_they_are_replaced(shelf: Shelf):
    others = [Subscription(id) for id in ("z", "a", "m")]
    shelf.put(*map(Subscribed, others), Detecting(C1), Subscribed(S1))
    shelf.put(Subscribed(Subscription("a", "bob")), Unsubscribed("z"), Subscribed(others[0]))
    state = shelf.again()
    assert list(state.subscriptions) == ["a", "m", "s1", "z"]
    assert state.subscriptions["a"].subscriber == "bob"
    assert state.composites == {"c1": C1}
    shelf.put(Unsubscribed("c1"))
    assert shelf.again().composites == {}


def test_a_staged_event_has_its_offset_already(shelf: Shelf):
    shelf.put(Published(E1))
    shelf.store.stage([Published(E2), Published(MADE)])  # and somebody reads before the commit
    assert [shelf.store.offset(each.key) for each in (E1, E2, MADE)] == [1, 2, 3]
    assert shelf.store.offset() == 3
    shelf.store.stage([Gone(E2.key)])
    shelf.store.flush()
    with pytest.raises(KeyError):
        shelf.store.offset(E2.key)
    assert shelf.store.offset(MADE.key) == shelf.store.offset() == 3
    assert [offset for offset, _ in shelf.store.log(0, 9)] == [1, 2, 3]


def test_events_are_live_until_they_are_not(shelf: Shelf):
    shelf.put(Reached(1), Published(E1), Published(E2), Published(MADE))
    state = shelf.again()
    assert state.now == 1
    assert list(state.events.items()) == [(e.key, e) for e in (E1, E2, MADE)]
    assert isinstance(state.events["c1#1"], CompositeEvent)
    shelf.put(Gone(E2.key), Expired(E1.key, b"digest", 50))
    state = shelf.again()
    assert list(state.events) == ["c1#1"]
    assert state.expired == {E1.key: (b"digest", 50)}
    shelf.put(Published(E1))
    assert list(shelf.again().events) == ["c1#1", "e1"]
    assert [event for _, event in shelf.store.log(0, 10)] == [E1, E2, MADE, E1]


def test_when_an_event_came_is_kept_if_it_does_not_say_its_end(shelf: Shelf):
    untimed, placed = Event("u"), Event("p", location=Point(1, 2), start=4)
    timed = Event("e", end=3)
    shelf.put(Published(Event("first")), Reached(5), Published(untimed), Published(timed))
    shelf.put(Reached(8), Published(placed))
    assert shelf.again().came == {"u": 5, "p": 8}
    shelf.put(Gone("u"), Expired("p", b"x", 9), Reached(9), Published(untimed))
    assert shelf.again().came == {"u": 9}


def test_what_expired_is_remembered_for_its_time(shelf: Shelf):
    shelf.put(Reached(1), Published(E1), Published(E2), Expired(E1.key, b"1", 50))
    shelf.put(Expired(E2.key, b"2", 60), Reached(49))
    assert list(shelf.again().expired) == [E1.key, E2.key]
    shelf.put(Reached(50))
    expired = shelf.again().expired
    assert expired[E2.key] == (b"2", 60)
    assert all(until > 50 for _, until in expired.values())


def test_the_log_is_read_in_pieces(shelf: Shelf):
    shelf.put(*(Published(Event(f"e{i}")) for i in range(5)))
    found: list[str] = []
    after = 0
    while page := shelf.store.log(after, 2):
        assert len(page) <= 2
        assert page[0][0] > after
        after = page[-1][0]
        found += [event.id for _, event in page]
    assert found == [f"e{i}" for i in range(5)]


def test_pairs_go_with_their_event_and_their_subscription(shelf: Shelf):
    shelf.put(Subscribed(S1), Published(E1), Published(E2), Kept("s1", (E1.key, E2.key)))
    shelf.put(Kept("s2", (E1.key,)), Kept("s2", (E1.key,)))
    assert shelf.again().told == {E1.key: {"s1", "s2"}, E2.key: {"s1"}}
    shelf.put(Unsubscribed("s1"))
    assert {key: ids for key, ids in shelf.again().told.items() if ids} == {E1.key: {"s2"}}
    shelf.put(Gone(E1.key), Published(E1))
    assert not any(shelf.again().told.values())


def test_outboxes_are_numbered_and_read_in_pieces(shelf: Shelf):
    shelf.put(Published(E1), *(told(E1, n) for n in (1, 2, 3)), told(E1, 1, "bob"))
    shelf.put(Published(E2), told(E2, 4))
    assert shelf.again().numbers == {"ann": 4, "bob": 1}
    page = shelf.store.outbox("ann", 1, 2)
    assert [each.seq for each in page.notifications] == [2, 3]
    assert (page.next, page.lost) == (3, 0)
    (last,) = shelf.store.outbox("ann", 3, 10).notifications
    assert last == Notification("s1", "ann", E2, 7, seq=4)
    assert shelf.store.outbox("ann", 4, 10).notifications == ()
    assert [e.subscriber for e in shelf.store.outbox("bob", 0, 9).notifications] == ["bob"]


def test_how_things_stand_and_what_they_hold(shelf: Shelf):
    first, last = Standing("s1", 2, True, None, 4), Standing("s1", 3, False, 7, None)
    found = [Notification("s1", "ann", each, 7) for each in (E1, E2)]
    crossed = Notification("f1", None, E1, 3, "enter", "a")
    shelf.put(Published(E1), Published(E2), first, Held(5, found), Held(1, (crossed,)))
    state = shelf.again()
    assert state.standings == {"s1": first}
    assert state.held == {"s1": [(5, found[0]), (6, found[1])], "f1": [(1, crossed)]}
    assert state.held["s1"][0][1].event is state.events["e1"]
    shelf.put(last, Standing("c1", 0, True, None, None), Released("s1", 5), Gone(E2.key))
    state = shelf.again()
    assert state.standings == {"s1": last, "c1": Standing("c1", 0, True, None, None)}
    assert state.held == {"s1": [(6, found[1])], "f1": [(1, crossed)]}
    digest = found[1]._replace(seq=1, digest=0)
    shelf.put(Released("s1", 6), Told((digest,)), Unsubscribed("f1"), Unsubscribed("c1"))
    state = shelf.again()
    assert (state.held, [*state.standings]) == ({}, ["s1"])
    assert shelf.store.outbox("ann", 0, 9).notifications == (digest,)


def test_what_has_told_enough_is_remembered_among_what_has_expired(shelf: Shelf):
    shelf.put(Reached(5), Subscribed(S1), Published(E1))
    shelf.put(Spent("s1", b"one", 90), Unsubscribed("s1"))
    shelf.put(Expired(E1.key, b"e", 80), Spent("s2", b"two", 70), Reached(60))
    kept = {thing_key("s1"): (b"one", 90), E1.key: (b"e", 80), thing_key("s2"): (b"two", 70)}
    assert dict(shelf.again().expired) == kept
    shelf.put(Spent("s1", b"three", 95), Spent("s2", None, 60))
    assert dict(shelf.again().expired) == {E1.key: (b"e", 80), thing_key("s1"): (b"three", 95)}
    shelf.put(Reached(80))
    assert dict(shelf.again().expired) == {thing_key("s1"): (b"three", 95)}


FENCE = Fence(
    "f1", "ann", "car", Box(0, 0, 1, 1), "price < 5", ["red"], {"dwell", "lost"}, 2.5,
    dwell="PT1M", lost=90, expires=1000,
)  # fmt: skip
F1 = KnownFence(FENCE, 3, 7, 50)
INSIDE = KnownObject(key_of(FENCE), 1.0, E1, 8, 9, 10, (Visit("f1", True, 8, False),))


def test_fences_and_what_they_know_of_whom(shelf: Shelf):
    named = KnownObject(key_of(FENCE), "1", E2, 4, 5, 6, ())
    shelf.put(Fenced(F1), Closed(40), Published(E1), Traced(INSIDE), Traced(named))
    state = shelf.again()
    assert state.fences == {"f1": F1}
    assert state.closed == 40
    assert state.objects == {(each.key, each.object): each for each in (INSIDE, named)}
    shelf.put(Traced(KnownObject(named.key, "1", None)), Traced(INSIDE))
    assert list(shelf.again().objects.values()) == [INSIDE]


def test_what_waits_before_fences_hear_of_it(shelf: Shelf):
    """An event is the live one as long as that is live; each is let go of by its number."""
    late = KnownFence(FENCE, 4, 0, 60, waits=True)
    first = Report("ann", Point(1.5, -2), None, None)
    then = Report("ann", Point(3, 4), 90.0, Facing(1.5, -2, 0.0))
    losses = Loss("car", 2.5), Loss("car", "2")
    whats: tuple[Waiting, ...] = (E1, E2, first, then, MADE, *losses, E1)
    turns = {i: Turn(100 - i, i, what) for i, what in enumerate(whats, 2**62)}
    shelf.put(
        Fenced(late), *map(Published, (E1, E2, MADE)), Expired(E1.key, b"x", 200), Gone(E2.key),
        *map(Queued, turns.values()), Published(Event("e1", {"price": 4}, source="/shop")),
    )  # fmt: skip
    state = shelf.again()
    assert state.fences == {"f1": late}
    assert state.turns == turns
    assert state.turns[2**62 + 4].what is state.events[MADE.key]
    assert state.turns[2**62 + 1].what is not state.events[E2.key]
    shelf.put(Fenced(F1), Decided(tuple(range(2**62 + 1, 2**62 + 8))))
    state = shelf.again()
    assert state.fences == {"f1": F1}
    assert state.turns == {2**62: turns[2**62]}
    shelf.put(Fenced(late), Unsubscribed("f1"), Decided((2**62,)))
    assert shelf.again() == State(
        events=state.events | {E2.key: E2}, expired=state.expired, turns={}
    )


def test_visits_end_with_their_fence(shelf: Shelf):
    shelf.put(Fenced(F1), Traced(INSIDE))
    shelf.put(Unsubscribed("f1"), Fenced(F1))
    (known,) = shelf.again().objects.values()
    assert known.visits == ()


def test_what_a_fence_saw_is_told_with_its_event(shelf: Shelf):
    """Though that has expired long ago, or another has its key."""
    seen = Notification("f1", "ann", E1, 7, "lost", "a", 1)
    shelf.put(Fenced(F1), Published(E1), Expired("e1", b"x", 9))
    shelf.put(Published(Event("e1", {"price": 9})), Told((seen,)))
    shelf.again()
    assert shelf.store.outbox("ann", 0, 9).notifications == (seen,)
    assert [event.attributes["price"] for _, event in shelf.store.log(0, 9)] == [3, 9]


def test_a_notification_outlives_its_event(shelf: Shelf):
    shelf.put(Published(E1), told(E1, 1), Gone(E1.key))
    shelf.again()
    assert [each.event for each in shelf.store.outbox("ann", 0, 9).notifications] == [E1]


def test_cursors_only_go_forward(shelf: Shelf):
    shelf.put(Published(E1), told(E1, 1), told(E1, 2), told(E1, 3), Acknowledged("ann", 2))
    shelf.put(Acknowledged("ann", 1))
    state = shelf.again()
    assert shelf.store.cursor("ann") == 2
    assert state.numbers == {"ann": 3}
    assert [each.seq for each in shelf.store.outbox("ann", 2, 9).notifications] == [3]


def test_a_cursor_is_kept_though_it_comes_in_one_commit_with_the_first_notification(shelf: Shelf):
    shelf.put(Published(E1), told(E1, 1), Acknowledged("ann", 1))
    assert shelf.again().numbers == {"ann": 1}
    assert shelf.store.cursor("ann") == 1


def test_places_are_the_last_reported(shelf: Shelf):
    shelf.put(Moved("ann", Point(1, 2), 3), Moved("bob", Point(0, 0), 4))
    shelf.put(Moved("ann", Point(0.1, -2.5), 5))
    assert shelf.again().places["ann"] == Moved("ann", Point(0.1, -2.5), 5)


def test_inputs_of_patterns_since_they_were_saved(shelf: Shelf):
    shelf.put(Reached(1), Published(E1), SavedPatterns(b"nothing"), Detecting(C1), Published(E2))
    shelf.put(Reached(4, True), Published(MADE), Unsubscribed("s1"))
    state = shelf.again()
    assert state.patterns == b"nothing"
    first, *rest = state.inputs
    assert isinstance(first.what, Detecting)
    assert (first.at, first.what.composite.text) == (1, C1.text)
    wanted = [Input(1, Published(E2)), Input(4, Reached(4, True)), Input(4, Published(MADE))]
    assert [(i.what, i.at) for i in rest] == [(i.what, i.at) for i in wanted]
    shelf.put(SavedPatterns(b"much"))
    state = shelf.again()
    assert (state.patterns, state.inputs) == (b"much", [])
    shelf.put(Unsubscribed("c1"), SavedPatterns(b"over"), Published(E1))
    state = shelf.again()
    assert (state.patterns, state.inputs) == (b"over", [])


def test_nothing_is_there_before_the_flush(shelf: Shelf):
    shelf.store.stage([Subscribed(S1), Reached(4), Published(E1), told(E1, 1)])
    assert shelf.store.outbox("ann", 0, 9).notifications == ()
    assert list(shelf.store.log(0, 9)) == []
    assert shelf.again() == State()


def test_a_flush_of_nothing_is_harmless(shelf: Shelf):
    shelf.store.flush()
    shelf.put(Subscribed(S1))
    shelf.store.flush()
    assert list(shelf.again().subscriptions) == ["s1"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), space=st.sampled_from(("globe", "planar")))
def test_values_come_back_as_they_were(shelf: Shelf, data: st.DataObject, space: Any):
    event = data.draw(events(space, id="e\0é"))
    wish = data.draw(subscriptions(space, id="s 1"))
    numbers = {"nan": float("nan"), "inf": float("-inf"), "big": 2**80, "one": 1, "yes": True}
    odd = Event("odd", numbers, source="\0x")
    shelf.put(Subscribed(wish), *map(Published, (event, odd)))
    state = shelf.again()
    assert state.subscriptions == {wish.id: wish}
    assert same(state.events[event.key], event)
    assert repr(state.events[odd.key]) == repr(odd)


# --- brokers -----------------------------------------------------------------------------------


def brokers(opener: Opener, **given: Any) -> Broker:
    return Broker("planar", store=opener(), **given)


def test_many_calls_and_one_commit(opener: Opener):
    store = opener()
    flushes = []

    def flush(kept: Any = store.flush) -> None:
        flushes.append(len(inbox))
        kept()

    store.flush = flush  # type: ignore[method-assign]
    inbox = Inbox()
    broker = Broker("planar", store=store, sinks=[inbox])
    flushes.clear()
    first, bad, second = broker.together(
        [
            lambda: broker.subscribe(S1),
            lambda: broker.unsubscribe("nobody"),
            lambda: broker.publish(E1),
        ]
    )
    assert flushes == [0]
    assert isinstance(first, Reply)
    assert isinstance(bad, NearcastError)
    assert isinstance(second, Reply)
    assert list(inbox) == list(second)
    assert [each.seq for each in inbox] == [1]
    broker.close()


def test_a_call_that_breaks_off_stops_the_broker(opener: Opener):
    broker = brokers(opener)
    with pytest.raises(ZeroDivisionError):
        broker.together([lambda: broker.publish(E1), lambda: 1 // 0])
    with pytest.raises(StoppedError, match="open it again"):
        broker.publish(E1)
    again = brokers(opener)
    assert again.event_count == 0
    again.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.publish(E1),
        lambda b: b.publish_many([E1]),
        lambda b: b.subscribe(S1),
        lambda b: b.subscribe_many([S1]),
        lambda b: b.detect(C1),
        lambda b: b.unsubscribe("s1"),
        lambda b: b.retract("e1"),
        lambda b: b.move("ann", Point(0, 0)),
        lambda b: b.advance(5),
        lambda b: b.ack("ann", 0),
        lambda b: b.notifications("ann"),
        lambda b: b.log(),
        lambda b: b.together([]),
    ],
)
def test_a_closed_broker_says_so(opener: Opener, call: Any):
    with brokers(opener) as broker:
        pass
    broker.close()
    with pytest.raises(StoppedError, match="was closed"):
        call(broker)


def test_numbers_go_on_after_a_restart(opener: Opener):
    with brokers(opener) as broker:
        broker.subscribe(S1)
        broker.subscribe(Subscription("s2", "ann"))
        broker.subscribe(Subscription("s3"))
        assert [each.seq for each in broker.publish(E1)] == [1, 2, None]
        broker.ack("ann", 1)
    with brokers(opener) as broker:
        assert [each.seq for each in broker.notifications("ann").notifications] == [2]
        assert [each.seq for each in broker.publish(Event("e9"))] == [3, None]
        assert [each.seq for each in broker.notifications("ann", after=2).notifications] == [3]
        with pytest.raises(ValidationError, match="upto"):
            broker.ack("ann", 4)
        broker.ack("ann", 3)
        assert not broker.notifications("ann").notifications


def test_a_repetition_is_one_after_a_restart_and_after_expiry(opener: Opener):
    with brokers(opener) as broker:
        broker.subscribe(S1)
        assert len(broker.publish(E1)) == 1
        broker.publish(E2)
    with brokers(opener) as broker:
        assert broker.publish(E1) == Reply()
        with pytest.raises(DuplicateIdError):
            broker.publish(Event("e1", {"price": 1}))
        broker.advance(200)
        assert broker.event_count == 1
        assert broker.publish(E1) == Reply()
    with brokers(opener) as broker:
        assert broker.publish(E1) == Reply()
        assert [event for _, event in broker.log()] == [E1, E2]


def test_an_id_alone_means_the_one_live_event_that_has_it(opener: Opener):
    with brokers(opener) as broker:
        broker.publish_many([E1, E2])
        with pytest.raises(ValidationError, match="name the source"):
            broker.retract("e1")
        broker.retract("e1", source="/shop")
        broker.retract("e1")
        assert broker.event_count == 0
        broker.publish(E2)
        broker.retract("e1")
        assert broker.event_count == 0
        broker.publish(E2)
        assert broker.publish(E2) == Reply()
        broker.check_invariants()


def test_pairs_of_movers_and_of_what_was_replaced_are_not_told_again(opener: Opener):
    near = Event("near", {"price": 2}, location=Point(1, 0))
    with brokers(opener) as broker:
        broker.subscribe(Subscription("fixed", "ann", "price < 5"))
        broker.subscribe(Subscription("moving", "bob", region=Around(10)))
        broker.publish(near)
        assert len(broker.move("bob", Point(0, 0))) == 1
        broker.subscribe(Subscription("fixed", "ann", "price > 7"))
    with brokers(opener) as broker:
        assert not broker.subscribe(Subscription("fixed", "ann", "price < 6"))
        assert not broker.move("bob", Point(0, 1))
        assert len(broker.subscribe(Subscription("fixed", "eve", "price < 6"))) == 1


# --- how subscriptions changed -------------------------------------------------------------------


def test_changes_of_subscriptions_are_kept_in_their_order(shelf: Shelf):
    other = Subscription("s1", "bob", "price < 7")
    shelf.put(Subscribed(S1), Detecting(C1))
    shelf.put(Published(E1), Subscribed(other), Unsubscribed("s1"), Published(E2))
    shelf.put(Subscribed(S1), Unsubscribed("c1"), Subscribed(Subscription("c1", "bob")))
    shelf.put(Detecting(C1))
    for _ in range(2):  # and after it was opened again
        found = shelf.store.changes(0, 99)
        wanted = [each.subscription for each in found.altered]
        assert wanted == [S1, other, None, S1, Subscription("c1", "bob"), None]
        assert [each.id for each in found.altered] == ["s1", "s1", "s1", "s1", "c1", "c1"]
        numbers = [each.number for each in found.altered]
        assert numbers == sorted(set(numbers))
        assert found.last >= numbers[-1]
        offsets = [offset for offset, _ in shelf.store.log(0, 9)]
        seen = [[each.number for each in found.altered if each.offset < at] for at in offsets]
        assert seen == [numbers[:1], numbers[:3]]
        assert shelf.store.changes(numbers[1], 2).altered == found.altered[2:4]
        shelf.again()
