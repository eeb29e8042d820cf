"""Fences through the broker, calls in any order, against fences by definition."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nearcast import Around, Box, Broker, Circle, Event, Fence, Point, Polygon, Reply
from nearcast.broker.memory import MemoryStore
from nearcast.broker.ports import Store
from nearcast.errors import UnknownIdError
from nearcast.model.fences import TRANSITIONS
from nearcast.model.geometry import Region, Space
from nearcast.storage.sqlite import SqliteStore
from tests.naive_fences import NaiveFences, Told

IDS = ("f1", "f2", "f3", "f4")
PEOPLE = ("ann", "bob")
OBJECTS = (1, 1.0, "1", "a", 2.5, True, float("nan"), None)
NAMED = (1, "1", "a", 2.5)
WHERES = (None, None, "loaded = TRUE", "speed > 3")
_HOLE = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]
LANE = Around(shape=Polygon([(-1, 0), (1, 0), (1, 4), (-1, 4)]), turns=True)
_METRES = Polygon([(-9_000, -700), (9_100, -700), (9_100, 31_000), (-9_000, 31_000)])
LANES = Around(shape=_METRES), Around(shape=_METRES, turns=True)


def told_by(reply: Reply) -> list[Told]:
    told: list[Told] = []
    for n in reply:
        assert n.transition is not None
        assert n.object is not None
        told.append((n.subscription_id, n.object, n.transition, n.at, n.event.id))
    return told


class Fenced(RuleBasedStateMachine):
    """A broker beside the naive one: after every call both have told the same, in order."""

    space: Space = "planar"
    hold = 0
    unit = 1.0
    """What a metre of the pools is."""
    regions: tuple[Region, ...] = (
        Box(-2, -2, 2, 2), Box(0, 0, 0, 4), Circle(0, 0, 2), Circle(3, 1, 1), Circle(1, 1, 0),
        Polygon([(-3, -3), (4, -3), (0, 4)]),
        Polygon([(-3, -3), (3, -3), (3, 3), (-3, 3)], [_HOLE]),
        Around(2), Around(1), LANE, Around(shape=LANE.shape),
    )  # fmt: skip
    coordinates = st.sampled_from((-5.0, -3.0, -2.0, -1.0, -0.5, 0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 6.0))
    margins = (0, 0, 1, 10)
    headings = (0.0, 90.0, 180.0, -90.0, 33.0, 251.0)

    @initialize()
    def open(self) -> None:
        self.memory = MemoryStore()
        self.broker = self.made()
        self.naive = NaiveFences(self.space, self.hold)
        self.published = 0

    def made(self) -> Broker:
        lateness = timedelta(microseconds=self.hold) if self.hold else None
        return Broker(self.space, lateness=lateness, store=self.opened())

    def opened(self) -> Store:
        return self.memory

    def call(self, verb: Callable[[], Reply], naive: Callable[[], list[Told]]) -> None:
        reply, should = verb(), naive()
        assert told_by(reply) == should

    def points(self) -> st.SearchStrategy[Point]:
        return st.builds(Point, self.coordinates, self.coordinates)

    def event(self, data: st.DataObject, now: int) -> Event:
        who = data.draw(st.sampled_from(OBJECTS), "object")
        place = data.draw(self.places(), "place")
        back = -self.hold if self.hold else -4
        end = now + data.draw(st.integers(back, 3) | st.sampled_from((0, 1, 6)), "end")
        expires = data.draw(st.none() | st.sampled_from((1, 4, 9)), "expires")
        attributes = {"car": who}
        if data.draw(st.booleans(), "loaded"):
            attributes["loaded"] = True
        attributes["speed"] = data.draw(st.sampled_from((1, 9)), "speed")
        words = {"red"} if data.draw(st.booleans(), "red") else ()
        self.published += 1
        until = None if expires is None else end + expires
        return Event(f"e{self.published}", attributes, words, place, end=end, expires=until)

    def places(self) -> st.SearchStrategy:
        wide = st.sampled_from(
            (None, Box(-1, -1, 1, 1), Box(3, 3, 5, 5), Polygon([(2, 2), (6, 2), (6, 6)]))
        )
        return st.one_of(self.points(), self.points(), self.points(), self.points(), wide)

    @rule(data=st.data(), id=st.sampled_from(IDS))
    def subscribe(self, data: st.DataObject, id: str) -> None:
        on = data.draw(st.sets(st.sampled_from(TRANSITIONS), min_size=1))
        lost = data.draw(st.sampled_from((1, 3, 8)) if "lost" in on else st.none() | st.just(3))
        dwell = data.draw(st.sampled_from((0, 1, 3))) if "dwell" in on else None
        expires = data.draw(st.none() | st.none() | st.integers(0, 12))
        fence = Fence(
            id,
            data.draw(st.sampled_from(PEOPLE)),
            "car",
            data.draw(st.sampled_from(self.regions)),
            data.draw(st.sampled_from(WHERES)),
            data.draw(st.sampled_from(((), (), ("red",)))),
            on,
            data.draw(st.sampled_from(self.margins)) * self.unit,
            None if dwell is None else timedelta(microseconds=dwell),
            None if lost is None else timedelta(microseconds=lost),
            None if expires is None else (self.naive.now or 0) + expires,
        )
        self.call(lambda: self.broker.subscribe(fence), lambda: self.naive.subscribe(fence))
        assert self.broker.subscribe(fence) == self.naive.subscribe(fence) or fence.expires

    @rule(id=st.sampled_from(IDS))
    def unsubscribe(self, id: str) -> None:
        if id in self.naive.fences:
            self.call(lambda: self.broker.unsubscribe(id), lambda: self.naive.unsubscribe(id))
        else:
            with pytest.raises(UnknownIdError):
                self.broker.unsubscribe(id)

    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        event = self.event(data, self.naive.now or 0)
        self.call(lambda: self.broker.publish(event), lambda: self.naive.publish(event))
        if event.id in self.naive.live:
            assert self.broker.publish(event) == Reply()  # a repetition changes nothing

    @rule(data=st.data(), count=st.integers(2, 6))
    def publish_many(self, data: st.DataObject, count: int) -> None:
        events, now = [], self.naive.now or 0
        for _ in range(count):
            events.append(self.event(data, now))
            now = max(now, events[-1].end or 0)
        told = self.broker.publish_many(events)
        assert told_by(told) == [each for event in events for each in self.naive.publish(event)]

    @precondition(lambda self: self.naive.live)
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.naive.live)))
        self.call(lambda: self.broker.retract(id), lambda: self.naive.retract(id))

    @rule(data=st.data(), name=st.sampled_from(PEOPLE))
    def move(self, data: st.DataObject, name: str) -> None:
        place = data.draw(self.points())
        heading = data.draw(st.none() | st.sampled_from(self.headings))
        self.call(
            lambda: self.broker.move(name, place, heading=heading),
            lambda: self.naive.move(name, place, heading),
        )

    @rule(by=st.sampled_from((0, 1, 3, 10)))
    def advance(self, by: int) -> None:
        to = (self.naive.now or 0) + by
        self.call(lambda: self.broker.advance(to), lambda: self.naive.advance(to))

    @rule(attribute=st.sampled_from(("car", "car", "car", "van")), who=st.sampled_from(NAMED),
          by=st.sampled_from((0, 0, 1, 3)))  # fmt: skip
    def lose(self, attribute: str, who: str | float, by: int) -> None:
        at = (self.naive.now or 0) + by
        self.call(
            lambda: self.broker.lose(attribute, who, at=at),
            lambda: self.naive.lose(attribute, who, at),
        )

    @rule()
    def restart(self) -> None:
        """The process dies; another one goes on with the store, and with what was held."""
        late = self.broker.late
        self.broker.close()
        self.broker = self.made()
        self.naive.late -= late

    @invariant()
    def the_same_is_known(self) -> None:
        if hasattr(self, "broker"):
            assert self.broker.now == self.naive.now
            assert len(self.broker) == len(self.naive.fences)
            assert self.broker.late == self.naive.late
            self.broker.check_invariants()


class FencedWithLateness(Fenced):
    hold = 3


class FencedOnTheGlobe(Fenced):
    """Near the antimeridian, where 1 is a tenth of a degree."""

    space = "globe"
    unit = 11_000.0
    regions = (
        Box(179.8, -0.2, -179.8, 0.2), Circle(180.0, 0.0, 22_001), Circle(-179.7, 0.1, 11_001),
        Polygon([(179.7, -0.3), (180.4, -0.3), (180.0, 0.4)]), Box(-180.0, -0.2, -179.8, 90.0),
        Around(22_002), Around(11_003), *LANES, Circle(0.0, 90.0, 50_000),
    )  # fmt: skip
    coordinates = st.sampled_from((-0.5, -0.3, -0.2, -0.1, 0.0, 0.1, 0.25, 0.3, 0.6))

    def points(self) -> st.SearchStrategy[Point]:
        return st.builds(
            lambda x, y: Point(x - 180 if x > 0 else x + 180, y),
            self.coordinates, self.coordinates | st.just(89.9),
        )  # fmt: skip

    def places(self) -> st.SearchStrategy:
        wide = st.sampled_from((None, Box(179.9, -0.1, -179.9, 0.1), Box(-179.5, 0.3, -179.3, 0.5)))
        return st.one_of(self.points(), self.points(), self.points(), self.points(), wide)


class FencedOnDisk(Fenced):
    """In a file that is closed and opened in between."""

    @initialize()
    def open(self) -> None:
        self.folder = TemporaryDirectory()
        super().open()

    def opened(self) -> Store:
        return SqliteStore.open(f"{self.folder.name}/fences.db")

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.close()
            self.folder.cleanup()


class FencedOnDiskWithLateness(FencedOnDisk):
    hold = 3


_MODEST = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestFenced = Fenced.TestCase
TestFenced.settings = _MODEST
TestFencedOnDisk = FencedOnDisk.TestCase
TestFencedOnDisk.settings = settings(_MODEST, max_examples=12)
TestFencedOnDiskWithLateness = FencedOnDiskWithLateness.TestCase
TestFencedOnDiskWithLateness.settings = settings(_MODEST, max_examples=12)
TestFencedWithLateness = FencedWithLateness.TestCase
TestFencedWithLateness.settings = _MODEST
TestFencedOnTheGlobe = FencedOnTheGlobe.TestCase
TestFencedOnTheGlobe.settings = settings(_MODEST, max_examples=20)
