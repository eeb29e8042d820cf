"""Calls in any order, against the broker by definition: nothing lost, nothing told twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nearcast import Around, Broker, Event, Mover, Point, Polygon, Reply, Subscription
from nearcast.broker.memory import Inbox, MemoryStore
from nearcast.broker.ports import Store
from nearcast.errors import DuplicateIdError, UnknownIdError
from nearcast.model.geometry import Space
from nearcast.storage.retention import Retention
from nearcast.storage.sqlite import SqliteStore
from tests.naive_broker import NaiveBroker, Pair
from tests.strategies import (
    TIMES,
    events,
    headings,
    locations,
    points,
    radii,
    shapes,
    subscriptions,
)

PEOPLE = ("ann", "bob")
SUBSCRIPTION_IDS = tuple(f"s{i}" for i in range(6))
EVENT_IDS = tuple(f"e{i}" for i in range(8))
_LANE = Polygon([(-1, 0), (1, 0), (1, 9), (-1, 9)])
LANES = Around(shape=_LANE), Around(shape=_LANE, turns=True)


def pairs(reply: Reply) -> list[Pair]:
    return [(told.subscription_id, told.subscriber, told.event.id) for told in reply]


class World(RuleBasedStateMachine):
    """A broker with silent clients beside one that sees every step.

    A client looks at its region after every call, so it reports at once when it is asked.
    After every call both have told the same pairs; and what they tell to fixed
    subscriptions, they tell in the same call and order.
    """

    space: Space = "planar"
    method = "disc"

    @initialize()
    def open(self) -> None:
        self.store, self.inbox = MemoryStore(), Inbox()
        self.broker = self.made()
        self.naive = NaiveBroker(self.space)
        self.clients = {name: Mover(name) for name in PEOPLE}
        self.told: list[Pair] = []
        self.expected: list[Pair] = []

    def made(self) -> Broker:
        return Broker(self.space, self.method, store=self.opened(), sinks=[self.inbox])

    def opened(self) -> Store:
        """The store, for a broker's next life."""
        return self.store

    def call(self, verb: Callable[[], Reply], naive: Callable[[], list[Pair]]) -> None:
        """Both brokers do the same; then every client does as it is told."""
        kinds = {s.id: _fixed(s) for s in self.naive.subscriptions.values()}
        reply, should = verb(), naive()
        kinds |= {s.id: _fixed(s) for s in self.naive.subscriptions.values()}
        fixed = {id for id, stays in kinds.items() if stays}
        assert [p for p in pairs(reply) if p[0] in fixed] == [p for p in should if p[0] in fixed]
        assert all(told.at == (self.naive.now or 0) for told in reply)
        self.told += pairs(reply)
        self.expected += should
        self.obey(reply)

    def obey(self, reply: Reply) -> None:
        for name, client in self.clients.items():
            for message in reply.messages(name):
                client.received(message)
        for name in reply.location_requests:
            assert self.clients[name].region is None
        for name, place in self.naive.places.items():  # silent where a region allows it
            self.report(self.clients[name], place)

    def report(self, client: Mover, place: Point) -> None:
        report = client.moved(place, self.naive.headings.get(client.subscriber))
        if report is None:
            return
        reply = self.broker.move(
            client.subscriber, place, epoch=report.epoch, heading=report.heading
        )
        self.told += pairs(reply)
        for message in reply.messages(client.subscriber):
            client.received(message)
        assert reply.location_requests == ()

    def begin(self, subscription: Subscription) -> None:
        self.call(
            lambda: self.broker.subscribe(subscription), lambda: self.naive.subscribe(subscription)
        )
        if subscription.id in self.naive.subscriptions:  # once more changes nothing
            assert self.broker.subscribe(subscription) == Reply()

    def happen(self, event: Event) -> None:
        known = self.naive.events.get(event.id)
        now = self.naive.end_of(event)
        if known is None or (known.expires is not None and known.expires <= now):
            self.call(lambda: self.broker.publish(event), lambda: self.naive.publish(event))
        elif known != event:
            with pytest.raises(DuplicateIdError):
                self.broker.publish(event)
        if event.id in self.naive.events and self.naive.events[event.id] == event:
            assert self.broker.publish(event) == Reply()  # a repetition changes nothing

    def walk(self, name: str, place: Point, heading: float | None = None) -> None:
        now = 1 + (self.naive.now or 0)  # nobody is at two places at once
        self.call(lambda: self.broker.advance(now), lambda: self.naive.advance(now))
        self.expected += self.naive.move(name, place, heading)
        self.report(self.clients[name], place)

    @rule()
    def restart(self) -> None:
        """The process dies; another one goes on with the store, and asks whoever moves."""
        self.broker.close()
        self.broker = self.made()
        if self.naive.now is not None:
            self.call(lambda: self.broker.advance(self.naive.now), lambda: [])

    @invariant()
    def the_same_was_told(self) -> None:
        if not hasattr(self, "broker"):
            return
        lost = Counter(self.expected) - Counter(self.told)
        surplus = Counter(self.told) - Counter(self.expected)
        assert (lost, surplus) == (Counter(), Counter()), (lost, surplus)
        assert [(n.subscription_id, n.subscriber, n.event.id) for n in self.inbox] == self.told

    @invariant()
    def outboxes_hold_it_under_numbers_without_holes(self) -> None:
        if not hasattr(self, "broker"):
            return
        for name in PEOPLE:
            page = self.broker.notifications(name, limit=10_000)
            kept = [(n.subscription_id, n.subscriber, n.event.id) for n in page.notifications]
            assert kept == [pair for pair in self.told if pair[1] == name]
            assert [n.seq for n in page.notifications] == list(range(1, len(kept) + 1))

    @invariant()
    def the_same_is_known(self) -> None:
        if not hasattr(self, "broker"):
            return
        assert self.broker.now == self.naive.now
        assert len(self.broker) == len(self.naive.subscriptions)
        assert self.broker.event_count == len(self.naive.events)
        self.broker.check_invariants()


class Brokers(World):
    """Everything at once, on the pools of all tests: few places, many touching each other."""

    @rule(data=st.data(), id=st.sampled_from(SUBSCRIPTION_IDS))
    def subscribe(self, data: st.DataObject, id: str) -> None:
        drawn = data.draw(subscriptions(self.space, id=id))
        self.begin(drawn)

    @rule(
        data=st.data(),
        id=st.sampled_from(SUBSCRIPTION_IDS),
        name=st.sampled_from(PEOPLE),
        expires=st.none() | st.sampled_from(TIMES),
        where=st.sampled_from((None, "price < 3", "open = TRUE OR price > 1")),
    )
    def follow(
        self, data: st.DataObject, id: str, name: str, expires: int | None, where: str | None
    ) -> None:
        region = data.draw(st.builds(Around, radii(self.space)) | shapes(self.space))
        self.begin(Subscription(id, name, where, (), region, expires))

    @rule(id=st.sampled_from(SUBSCRIPTION_IDS))
    def unsubscribe(self, id: str) -> None:
        if id in self.naive.subscriptions:
            self.call(lambda: self.broker.unsubscribe(id), lambda: self.naive.unsubscribe(id))
        else:
            with pytest.raises(UnknownIdError):
                self.broker.unsubscribe(id)

    @rule(data=st.data(), id=st.sampled_from(EVENT_IDS))
    def publish(self, data: st.DataObject, id: str) -> None:
        self.happen(data.draw(events(self.space, id=id)))

    @rule(
        data=st.data(),
        id=st.sampled_from(EVENT_IDS),
        price=st.sampled_from((1, 2, 5)),
        expires=st.none() | st.sampled_from(TIMES),
    )
    def offer(self, data: st.DataObject, id: str, price: int, expires: int | None) -> None:
        place = data.draw(locations(self.space))
        self.happen(Event(id, {"price": price, "open": True}, (), place, expires=expires))

    @rule(id=st.sampled_from(EVENT_IDS))
    def retract(self, id: str) -> None:
        if id in self.naive.events:
            self.call(lambda: self.broker.retract(id), lambda: self.naive.retract(id))
        else:
            with pytest.raises(UnknownIdError):
                self.broker.retract(id)

    @rule(name=st.sampled_from(PEOPLE), data=st.data())
    def step(self, name: str, data: st.DataObject) -> None:
        self.walk(name, data.draw(points(self.space)), data.draw(st.none() | headings()))

    @precondition(lambda self: self.naive.places)
    @rule(data=st.data(), share=st.sampled_from((0.1, 0.5, 0.9)))
    def stroll(self, data: st.DataObject, share: float) -> None:
        """A step towards somewhere: mostly inside the safe region."""
        name = data.draw(st.sampled_from(sorted(self.naive.places)))
        here, there = self.naive.places[name], data.draw(points(self.space))
        x, y = here.x + share * (there.x - here.x), here.y + share * (there.y - here.y)
        self.walk(name, Point(x, y))

    @rule(to=st.sampled_from(TIMES))
    def advance(self, to: int) -> None:
        self.call(lambda: self.broker.advance(to), lambda: self.naive.advance(to))


class Roamers(World):
    """People who walk about among offers, with regions that are large and often left."""

    spots = st.builds(Point, st.integers(0, 60), st.integers(0, 60))

    @rule(
        name=st.sampled_from(PEOPLE),
        number=st.integers(1, 2),
        region=st.sampled_from((Around(3), Around(6), Around(10), *LANES)),
        limit=st.sampled_from((2, 3, 6)),
    )
    def follow(self, name: str, number: int, region: Around, limit: int) -> None:
        where = f"price < {limit}"
        self.begin(Subscription(f"{name}{number}", name, where, (), region))

    @rule(place=spots, price=st.sampled_from((1, 2, 5)), life=st.none() | st.integers(1, 20))
    def offer(self, place: Point, price: int, life: int | None) -> None:
        expires = None if life is None else (self.naive.now or 0) + life
        id = f"e{len(self.expected)}-{len(self.naive.events)}-{self.naive.now}"
        self.happen(Event(id, {"price": price}, (), place, expires=expires))

    @precondition(lambda self: self.naive.places)
    @rule(data=st.data(), dx=st.integers(-4, 4), dy=st.integers(-4, 4))
    def near(self, data: st.DataObject, dx: int, dy: int) -> None:
        """An offer close to somebody who may be silent."""
        here = self.naive.places[data.draw(st.sampled_from(sorted(self.naive.places)))]
        self.offer(Point(here.x + dx, here.y + dy), 1, None)

    @rule(name=st.sampled_from(PEOPLE), dx=st.integers(-2, 2), dy=st.integers(-2, 2))
    def step(self, name: str, dx: int, dy: int) -> None:
        here = self.naive.places.get(name, Point(30, 30))
        self.walk(name, Point(here.x + dx, here.y + dy))

    @precondition(lambda self: self.naive.places)
    @rule(data=st.data(), heading=headings())
    def turn(self, data: st.DataObject, heading: float) -> None:
        """Somebody turns on the spot."""
        name = data.draw(st.sampled_from(sorted(self.naive.places)))
        self.walk(name, self.naive.places[name], heading)

    @rule(name=st.sampled_from(PEOPLE), place=spots)
    def jump(self, name: str, place: Point) -> None:
        self.walk(name, place)

    @precondition(lambda self: self.naive.subscriptions)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.naive.subscriptions)))
        self.call(lambda: self.broker.unsubscribe(id), lambda: self.naive.unsubscribe(id))


class BrokersOnTheGlobe(Brokers):
    space = "globe"


class RoamersWithVoronoi(Roamers):
    method = "vm"


class RoamersAsInElaps(Roamers):
    """The paper's own pair (§5): OpIndex holds the subscriptions, the BEQ-Tree the events."""

    method = "idgm"

    def made(self) -> Broker:
        return Broker(
            self.space, self.method, store=self.opened(), sinks=[self.inbox],
            subscription_index="op-index", event_index="beq-tree",
        )  # fmt: skip


class OnDisk(Brokers):
    """Everything at once, in a file that is closed and opened in between."""

    @initialize()
    def open(self) -> None:
        self.folder = TemporaryDirectory()
        super().open()

    def opened(self) -> Store:
        # Time may jump from the epoch to today, and nobody here knows of retention.
        return SqliteStore.open(f"{self.folder.name}/city.db", retention=Retention(age_s=1e12))

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.close()
            self.folder.cleanup()


def _fixed(subscription: Subscription) -> bool:
    return not isinstance(subscription.region, Around)


_MODEST = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestBrokers = Brokers.TestCase
TestBrokers.settings = _MODEST
TestBrokersOnTheGlobe = BrokersOnTheGlobe.TestCase
TestBrokersOnTheGlobe.settings = settings(_MODEST, max_examples=12)
TestOnDisk = OnDisk.TestCase
TestOnDisk.settings = settings(_MODEST, max_examples=12)
TestRoamers = Roamers.TestCase
TestRoamers.settings = _MODEST
TestRoamersWithVoronoi = RoamersWithVoronoi.TestCase
TestRoamersWithVoronoi.settings = settings(_MODEST, max_examples=10)
TestRoamersAsInElaps = RoamersAsInElaps.TestCase
TestRoamersAsInElaps.settings = settings(_MODEST, max_examples=8)
