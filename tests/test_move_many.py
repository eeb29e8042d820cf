"""Many moves at once are as one by one: the same told in the same order, the same kept, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Around, Broker, Event, Fence, Move, Point, Subscription
from nearcast.broker.memory import Inbox, MemoryStore
from nearcast.errors import BatchError, ValidationError
from nearcast.mobility import tracker
from tests.test_broker_bulk import Clock, merged, stored

S = 1_000_000
NAMES = ("ann", "bob", "cid")
points = st.builds(Point, st.integers(0, 6), st.integers(0, 6))
moves = st.builds(
    Move, st.sampled_from(NAMES), points, st.none() | st.sampled_from((0, 90.0, 200)),
    st.none() | st.sampled_from((0, 3.0)), st.none() | st.integers(1, 4),
)  # fmt: skip
no_more = st.tuples(st.sampled_from(NAMES), points).map(lambda each: Move(*each))  # by columns
batches = st.lists(no_more, max_size=8) | st.lists(moves, max_size=8)
fences = st.builds(
    lambda id, name, radius, dwell, lost, margin: Fence(
        id, name, "car", Around(radius), on={"enter", "exit", "dwell", "inside", "outside"},
        dwell=dwell, lost=lost, margin_m=margin,
    ),
    st.sampled_from(("f1", "f2", "f3")), st.sampled_from(NAMES), st.sampled_from((1, 2, 4)),
    st.sampled_from((0, 0, 3)), st.none() | st.just(6), st.sampled_from((0, 1.5)),
)  # fmt: skip
wishes = st.builds(
    lambda id, name, radius: Subscription(id, name, None, (), Around(radius)),
    st.sampled_from(("s1", "s2")), st.sampled_from(NAMES), st.sampled_from((1, 3)),
)  # fmt: skip
positions = st.lists(st.tuples(st.integers(1, 4), points, st.integers(0, 3)), max_size=5)


class Two:
    """Two brokers that are told the same: one of all moves at once, the other one by one."""

    def __init__(self, **options: Any) -> None:
        self.stores = MemoryStore(), MemoryStore()
        self.inboxes = Inbox(), Inbox()
        self.many, self.one = (
            Broker("planar", store=store, sinks=[inbox], **options)
            for store, inbox in zip(self.stores, self.inboxes, strict=True)
        )
        self.number = 0
        self.at = 0

    def each(self, verb: str, *of: Any) -> None:
        assert getattr(self.many, verb)(*of) == getattr(self.one, verb)(*of)

    def drive(self, given: Sequence[tuple[int, Point, int]], life: int = 4) -> None:
        for car, place, wait in given:
            self.number += 1
            self.at += wait * S
            self.each("publish", Event(f"e{self.number}", {"car": car}, (), place, None, self.at,
                                       self.at + life * S))  # fmt: skip

    def move(self, given: Sequence[Move]) -> None:
        told = self.many.move_many(given)
        replies = [
            self.one.move(name, place, heading=heading, speed=speed, epoch=epoch)
            for name, place, heading, speed, epoch in given
        ]
        assert merged([told]) == merged(replies)

    def same(self) -> None:
        assert [*self.inboxes[0]] == [*self.inboxes[1]]
        assert stored(self.stores[0]) == stored(self.stores[1])


@settings(max_examples=30, deadline=None)
@given(data=st.data(), lateness=st.sampled_from((None, None, 2)))
def test_many_are_as_one_by_one(data: st.DataObject, lateness: float | None) -> None:
    two = Two(lateness=lateness)
    for _ in range(data.draw(st.integers(1, 4))):
        for one in data.draw(st.lists(fences | wishes, max_size=3)):
            two.each("subscribe", one)
        two.drive(data.draw(positions))
        if data.draw(st.booleans()):  # what is due now has been told: dwells of nothing are at once
            two.each("advance", two.at)
        two.move(data.draw(batches))
    two.each("advance", two.at + 20 * S)
    two.same()


@settings(max_examples=30, deadline=None)
@given(st.lists(batches, max_size=4), st.booleans())
def test_those_whom_nobody_follows_are_counted_and_forgotten_alike(
    given: list[list[Move]], fenced: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracker, "_MOST_IDLE", 2)
        two = Two()
        if fenced:
            two.each("subscribe", Fence("f", "bob", "car", Around(2)))
        for some in given:
            two.move(some)
        for name in NAMES:
            assert two.many.reading.place(name) == two.one.reading.place(name)
            two.each("subscribe", Subscription(name, name, None, (), Around(1)))
            two.each("move", name, Point(1, 1))  # under the epoch that comes next
    two.same()


def test_whoever_was_forgotten_meanwhile_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "_MOST_IDLE", 2)
    broker = Broker("planar")
    told = broker.move_many([Move(name, Point(0, 0)) for name in ("ann", "bob", "cid", "ann")])
    assert {name: region.epoch for name, region in told.safe_regions.items()} == {
        "ann": 1, "bob": 1, "cid": 1,
    }  # fmt: skip


def test_a_dwell_of_nothing_is_told_before_the_region_moves_on() -> None:
    two = Two()
    two.each("subscribe", Fence("f", "ann", "car", Around(1), on={"enter", "dwell", "exit"},
                                dwell=0))  # fmt: skip
    two.drive([(1, Point(3, 0), 1)])
    two.each("advance", two.at)
    path = [Move("ann", Point(3, 0)), Move("bob", Point(0, 0)), Move("ann", Point(9, 0))]
    two.move(path)
    told = [each.transition for each in two.inboxes[0]]
    assert told == ["enter", "dwell", "exit"]


def test_a_bad_one_is_named_and_nobody_has_moved() -> None:
    broker = Broker("planar")
    broker.subscribe(Fence("f", "ann", "car", Around(1)))
    broker.publish(Event("e", {"car": 1}, (), Point(3, 0), None, S))
    good = Move("ann", Point(3, 0))
    for bad in (
        Move("", Point(0, 0)), Move("ann", (0, 0)), Move("ann", Point(0, 0), "north"),  # type: ignore[arg-type]
        Move("\ud800", Point(0, 0)), Move("ann", Point(0, 0), speed=-1.0),
        Move("ann", Point(0, 0), epoch=0), ("ann",), 7,
    ):  # fmt: skip
        with pytest.raises(BatchError) as caught:
            broker.move_many([good, good, bad])  # type: ignore[list-item]
        assert caught.value.row == 2
        assert isinstance(caught.value.cause, ValidationError)
    assert [each.transition for each in broker.move_many([good])] == ["enter"]


def test_a_place_that_the_globe_has_not_is_named() -> None:
    moves = [Move("ann", Point(0, 0)), Move("bob", Point(181, 0)), Move("cid", Point(0, 0))]
    with pytest.raises(BatchError, match=r"place\.x") as caught:
        Broker().move_many(moves)
    assert caught.value.row == 1


def test_what_is_given() -> None:
    broker = Broker("planar")
    assert not broker.move_many([])
    reply = broker.move_many([("ann", Point(0, 0)), ("bob", Point(1, 1), 90.0, 2.0)])
    assert set(reply.safe_regions) == {"ann", "bob"}
    lone = broker.move_many(Move("cid", Point(0, 0)))  # type: ignore[arg-type]
    assert set(lone.safe_regions) == {"cid"}
    with pytest.raises(ValidationError, match="moves"):
        broker.move_many(7)  # type: ignore[arg-type]


def test_the_clock_is_read_once() -> None:
    clock = Clock()
    broker = Broker("planar", clock=clock)
    broker.subscribe(Fence("f", "ann", "car", Around(1)))
    clock.now = 5 * S
    broker.publish(Event("e", {"car": 1}, (), Point(3, 0)))
    clock.now = 7 * S
    (told,) = broker.move_many([Move("ann", Point(0, 0)), Move("ann", Point(3, 0))])
    assert told.at == 7 * S
