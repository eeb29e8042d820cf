"""Terms in any order with everything else, against the definition; restarts in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby, pairwise
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from nearcast import (
    Around,
    Box,
    Event,
    Mover,
    Point,
    QuietHours,
    Reply,
    Subscription,
    Terms,
)
from nearcast.broker.memory import Inbox, MemoryStore
from nearcast.broker.ports import Store
from nearcast.clock import to_micros
from nearcast.errors import UnknownIdError
from nearcast.storage.retention import Retention
from nearcast.storage.sqlite import SqliteStore
from tests.naive_broker import Pair
from tests.naive_terms import MINUTE, NaiveTerms
from tests.test_broker_states import _MODEST, PEOPLE, World, pairs

IDS = tuple(f"s{i}" for i in range(4))
SPOTS = st.builds(Point, st.integers(0, 6), st.integers(0, 6))
#: The nights in which walls in Zurich are set: one hour twice, and one not at all.
NIGHTS = tuple(map(to_micros, ("2026-10-25T00:30:00Z", "2026-03-29T00:30:00Z")))
HOURS = (
    QuietHours("02:15", "02:45", "Europe/Zurich"),  # twice, or not at all
    QuietHours("02:45", "03:10", "Europe/Zurich", keep=False),
    QuietHours("23:00", "01:40", "UTC"),
    QuietHours("02:00", "01:00", "UTC"),
)
STEPS = (0, 1, MINUTE - 1, MINUTE, 14 * MINUTE, 15 * MINUTE, 30 * MINUTE, 3 * 60 * MINUTE)


def terms() -> st.SearchStrategy[Terms | None]:
    return st.none() | st.builds(
        Terms,
        initial_event=st.sampled_from((True, True, False)),
        max_events=st.none() | st.integers(1, 3),
        quiet_hours=st.none() | st.sampled_from(HOURS),
        digest=st.none() | st.sampled_from((60, 900, 1800)),
        while_paused=st.sampled_from(("keep", "drop")),
    )


class OnTerms(World):
    """One call after the other, each at the same time for both."""

    naive: NaiveTerms

    @initialize(night=st.sampled_from(NIGHTS))
    def open(self, night: int) -> None:
        self.store, self.inbox = MemoryStore(), Inbox()
        self.broker = self.made()
        self.naive = NaiveTerms(self.space)
        self.clients = {name: Mover(name) for name in PEOPLE}
        self.told: list[Pair] = []
        self.expected: list[Pair] = []
        self.published = 0
        self.call(lambda: self.broker.advance(night), lambda: self.naive.advance(night))

    def call(self, verb: Callable[[], Reply], naive: Callable[[], list[Pair]]) -> None:
        """As before, but that things of one moment are told in any order."""
        reply, should = verb(), naive()
        found = pairs(reply)
        whose = {id for id, *_ in should} | {id for id, *_ in found}
        for id in whose - set(self.followers()):
            assert [p for p in found if p[0] == id] == [p for p in should if p[0] == id]
        for _, some in groupby(reply, lambda told: (told.digest is None, told.subscription_id)):
            left = [told.digest for told in some]
            if left[0] is not None:  # one behind the other, to the last of each
                assert left[-1] == 0
                for before, behind in pairwise(left):
                    assert before == 0 or behind == (before or 0) - 1
        assert all(told.at <= (self.naive.now or 0) for told in reply)
        self.told += found
        self.expected += should
        self.obey(reply)

    def followers(self) -> list[str]:
        return [f"{name} {number}" for name in PEOPLE for number in (1, 2)]

    @rule(
        id=st.sampled_from(IDS), name=st.sampled_from(PEOPLE), terms=terms(),
        limit=st.sampled_from((None, 2, 3)), life=st.none() | st.sampled_from(STEPS[2:]),
        region=st.none() | st.just(Box(0, 0, 3, 6)),
    )  # fmt: skip
    def wish(
        self, id: str, name: str, terms: Terms | None, limit: int | None, life: int | None,
        region: Box | None,
    ) -> None:  # fmt: skip
        where = None if limit is None else f"price < {limit}"
        expires = None if life is None else (self.naive.now or 0) + life
        made = Subscription(id, name, where, (), region, expires, terms)
        self.call(lambda: self.broker.subscribe(made), lambda: self.naive.subscribe(made))

    @rule(
        name=st.sampled_from(PEOPLE), number=st.integers(1, 2), terms=terms(),
        radius=st.sampled_from((2, 4)),
    )  # fmt: skip
    def follow(self, name: str, number: int, terms: Terms | None, radius: int) -> None:
        if terms is not None:  # what comes into reach at once is told in any order
            terms = replace(terms, max_events=None)
        made = Subscription(f"{name} {number}", name, None, (), Around(radius), None, terms)
        self.call(lambda: self.broker.subscribe(made), lambda: self.naive.subscribe(made))

    @rule(id=st.sampled_from(IDS))
    def unsubscribe(self, id: str) -> None:
        self.if_there(id, lambda: self.broker.unsubscribe(id), lambda: self.naive.unsubscribe(id))

    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from((*IDS, *self.followers())))
        self.if_there(id, lambda: self.broker.pause(id), lambda: self.naive.pause(id))

    @precondition(lambda self: self.naive.paused)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from((*sorted(self.naive.paused), IDS[0])))
        self.if_there(id, lambda: self.broker.resume(id), lambda: self.naive.resume(id))

    def if_there(self, id: str, verb: Callable[[], Reply], naive: Callable[[], list[Pair]]) -> None:
        if id in self.naive.subscriptions:
            self.call(verb, naive)
        else:
            with pytest.raises(UnknownIdError):
                verb()

    def drawn(self, place: Point, price: int, life: int | None, later: int) -> Event:
        self.published += 1
        end = (self.naive.now or 0) + later
        expires = None if life is None else end + life
        return Event(f"e{self.published}", {"price": price}, (), place, end, end, expires)

    @rule(
        place=SPOTS, price=st.sampled_from((1, 2, 5)),
        life=st.none() | st.sampled_from(STEPS[2:]), later=st.sampled_from(STEPS[:4]),
    )  # fmt: skip
    def offer(self, place: Point, price: int, life: int | None, later: int) -> None:
        self.happen(self.drawn(place, price, life, later))

    @rule(
        some=st.lists(
            st.tuples(
                SPOTS, st.sampled_from((1, 2, 5)), st.none() | st.sampled_from(STEPS[2:]),
                st.sampled_from(STEPS),
            ),
            min_size=2, max_size=12,
        ),
        still=st.booleans(),
    )  # fmt: skip
    def offers(self, some: list[tuple[Point, int, int | None, int]], still: bool) -> None:
        """Many at once, in time's order: as one by one.

        Unless somebody is followed, whom nobody could ask in between.
        """
        still = still or any(id in self.naive.subscriptions for id in self.followers())
        laters = [0] * len(some) if still else sorted(later for *_, later in some)
        made = [
            self.drawn(place, price, life, later)
            for (place, price, life, _), later in zip(some, laters, strict=True)
        ]
        self.call(
            lambda: self.broker.publish_many(made),
            lambda: [pair for event in made for pair in self.naive.publish(event)],
        )

    @precondition(lambda self: self.naive.events)
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.naive.events)))
        self.call(lambda: self.broker.retract(id), lambda: self.naive.retract(id))

    @rule(name=st.sampled_from(PEOPLE), place=SPOTS)
    def step(self, name: str, place: Point) -> None:
        self.walk(name, place)

    @rule(by=st.sampled_from(STEPS[1:]))
    def advance(self, by: int) -> None:
        to = (self.naive.now or 0) + by
        self.call(lambda: self.broker.advance(to), lambda: self.naive.advance(to))


class OnTermsOnDisk(OnTerms):
    """In a file that is closed and opened in between."""

    @initialize(night=st.sampled_from(NIGHTS))
    def open(self, night: int) -> None:
        self.folder = TemporaryDirectory()
        super().open(night)

    def opened(self) -> Store:
        return SqliteStore.open(f"{self.folder.name}/city.db", retention=Retention(age_s=1e12))

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.close()
            self.folder.cleanup()


TestOnTerms = OnTerms.TestCase
TestOnTerms.settings = _MODEST
TestOnTermsOnDisk = OnTermsOnDisk.TestCase
TestOnTermsOnDisk.settings = settings(_MODEST, max_examples=12)
