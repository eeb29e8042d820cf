"""The protocol: nobody misses anything, whatever is lost, late, repeated or untrue."""

from __future__ import annotations

import gc
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import DuplicateIdError, UnknownIdError, ValidationError
from nearcast.matcher import Matcher
from nearcast.mobility.impact_index import ImpactIndex
from nearcast.mobility.impact_region import CellImpact
from nearcast.mobility.messages import LocationRequest, NewRegion, Notice
from nearcast.mobility.methods import METHODS
from nearcast.mobility.mover import Mover
from nearcast.mobility.plane import distance
from nearcast.mobility.safe_region import Ball, SafeRegion
from nearcast.mobility.search import MatcherSearch
from nearcast.mobility.shapes import gap_of, spot_of
from nearcast.mobility.tracker import Tracker
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Box, Circle, Point, Polygon
from nearcast.model.subscriptions import Subscription

S = 1_000_000


class World:
    """A matcher, a tracker, and clients behind a network that may lose and delay."""

    def __init__(self, space="planar", **options) -> None:
        self.space = space
        self.matcher = Matcher(index="pivot", space=space)
        self.places: dict = {}
        self.tracker = Tracker(MatcherSearch(self.matcher), space=space, **options)
        self.clients: dict[str, Mover] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.told: list[tuple[str, str]] = []
        self.now = 0

    def carry(self, messages: list) -> list:
        for message in messages:
            if isinstance(message, Notice):
                self.told.append((message.subscription_id, message.event_id))
                self.tracker.delivered(message.subscription_id, message.event_id)
            else:
                self.clients[message.subscriber].received(message)
        return messages

    def join(self, subscription: Subscription) -> list:
        assert subscription.subscriber is not None
        self.clients.setdefault(subscription.subscriber, Mover(subscription.subscriber))
        self.subscriptions[subscription.id] = subscription
        return self.carry(self.tracker.joined(subscription, self.now))

    def publish(self, event: Event) -> list:
        self.matcher.add_events([event])
        self.places[event.id] = event.location
        return self.carry(self.tracker.published(event, self.now))

    def retract(self, event_id: str) -> list:
        self.matcher.remove_event(event_id)
        del self.places[event_id]
        return self.carry(self.tracker.expired(event_id, self.now))

    def move(self, name: str, place: Point, **more) -> list:
        report = self.clients[name].moved(place, **more)
        if report is None:
            return []
        return self.carry(
            self.tracker.moved(name, place, self.now, heading=report.heading, speed=report.speed,
                               epoch=report.epoch)
        )  # fmt: skip


def ann(radius=1000.0, id="s1", where=None) -> Subscription:
    return Subscription(id=id, subscriber="ann", where=where, region=Around(radius))


def event(id, x, y, kind=1) -> Event:
    return Event(id=id, attributes={"kind": kind}, location=Point(x, y))


@pytest.mark.parametrize("name", METHODS)
def test_a_day_with_ann(name):
    world = World(safe_region=name, extent=Box(0, 0, 50_000, 50_000))
    world.publish(event("old", 25_500, 25_000))
    assert world.join(ann()) == []  # not placed: matches nothing yet
    world.publish(event("near", 25_100, 25_000))
    assert world.told == []
    world.move("ann", Point(25_000, 25_000), heading=90.0, speed=12.0)
    assert sorted(world.told) == [("s1", "near"), ("s1", "old")]
    world.now += 5 * S
    found = world.publish(event("new", 25_050, 25_000))
    assert found == [LocationRequest("ann", 1)]
    assert world.publish(event("newer", 25_060, 25_000)) == []  # one request stands already
    world.move("ann", Point(25_000, 25_000))
    assert {id for _, id in world.told} == {"near", "old", "new", "newer"}
    world.now += 5 * S
    assert world.retract("new") == []
    wide = ("gm", "vm", "igm:printed", "idgm:printed")  # these take all that is safe
    assert world.publish(event("far", 49_000, 49_000)) == [] or name in wide


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("space", "x", "y"), [("planar", 0.0, 0.0), ("globe", 179.99, 60.0),
                                                ("globe", 33.0, 89.99)])  # fmt: skip
def test_nothing_missed_beside_a_client_that_reports_every_step(name, space, x, y):
    """Dense, long-lived events, several subscriptions of different radii, a real matcher."""
    from tests.moving import near

    rng = random.Random(6)
    world = World(space, safe_region=name)
    kinds: dict[str, int] = {}
    radii = {"s0": 300.0, "s1": 800.0}
    for i, (id, radius) in enumerate(radii.items()):
        world.join(ann(radius, id, f"kind = {i}"))
    truth: set[tuple[str, str]] = set()
    east = north = 0.0
    number = 0
    for step in range(40):
        world.now = step * 5 * S
        if rng.random() < 0.1 and world.places:
            world.retract(rng.choice(sorted(world.places)))
        for _ in range(40 if step == 0 else rng.randint(0, 2)):
            number += 1
            kind = rng.randint(0, 2)
            a = east + rng.gauss(0, 1200)
            b = north + rng.gauss(0, 1200)
            kinds[f"e{number}"] = kind
            world.publish(event(f"e{number}", *near(space, x, y, a, b), kind))
        east += rng.uniform(-40, 160)
        north += rng.uniform(-80, 80)
        place = Point(*near(space, x, y, east, north))
        world.move("ann", place, heading=90.0, speed=20.0)
        for s in world.subscriptions.values():
            for id, spot in world.places.items():
                gap = distance(space, place.x, place.y, spot.x, spot.y)
                if f"kind = {kinds[id]}" == s.where and gap <= radii[s.id]:
                    truth.add((s.id, id))
        assert truth <= set(world.told)
    assert len(truth) > 10
    assert len(world.told) == len(set(world.told))
    assert set(world.told) == truth


@given(st.integers(0, 10_000), st.sampled_from(["disc", "igm"]))
@settings(max_examples=12, deadline=None)
def test_lost_late_and_repeated_messages_lose_no_notification(seed, name):
    """Anything may be lost, late or repeated; when the network is back, nothing is missing."""
    rng = random.Random(seed)
    world = World(safe_region=name, patience_s=5.0)
    world.join(ann(500.0))
    client = world.clients["ann"]
    pipe: list[tuple[int, Any]] = []
    seen: list[tuple[str, str]] = []
    x = 0.0

    def send(messages, step) -> None:
        for message in messages:
            for _ in range(rng.choice([0, 1, 1, 1, 2]) if step < 60 else 1):
                pipe.append((step + (rng.choice([0, 0, 1, 4]) if step < 60 else 0), message))

    for step in range(110):
        world.now = step * 5 * S
        if step % 4 == 0 and step < 60:
            placed = event(f"e{step}", x + rng.uniform(-900, 900), rng.uniform(-900, 900))
            world.matcher.add_events([placed])
            world.places[placed.id] = placed.location
            send(world.tracker.published(placed, world.now), step)
        send(world.tracker.due(world.now), step)
        x += 60.0 if step < 60 else 0.0  # then stands still, so that what matches is certain
        report = client.moved(Point(x, 0.0))
        if report is not None:
            send([report], step)
        due = [m for at, m in pipe if at <= step]
        pipe = [(at, m) for at, m in pipe if at > step]
        for message in due:
            if isinstance(message, Notice):
                seen.append((message.subscription_id, message.event_id))
                world.tracker.delivered(message.subscription_id, message.event_id)
            elif isinstance(message, NewRegion | LocationRequest):
                client.received(message)
            else:
                answer = world.tracker.moved("ann", message.place, world.now, epoch=message.epoch)
                send(answer, step)
    for id, spot in world.places.items():
        if distance("planar", x, 0.0, spot.x, spot.y) <= 500:
            assert ("s1", id) in seen
    if name == "disc":  # igm may leave a client without a region for as long as it stands there
        assert client.region is not None


def test_only_the_region_that_answers_the_last_report_is_taken():
    world = World()
    world.join(ann())
    client = world.clients["ann"]
    first = client.moved(Point(0, 0))
    assert first is not None
    answer = world.tracker.moved("ann", Point(0, 0), 0, epoch=first.epoch)[-1]
    second = client.moved(Point(10, 0))  # no answer came: the report is repeated
    assert second is not None
    assert second.epoch == 1
    assert world.tracker.moved("ann", Point(10, 0), 0, epoch=1) == [answer]
    client.received(answer)
    assert client.moved(Point(10, 0)) is None
    third = client.moved(Point(1e6, 0))
    assert third is not None
    assert third.epoch == 2
    client.received(answer)
    assert client.region is None


def test_a_region_that_an_event_broke_is_not_sent_again():
    world = World()
    world.join(ann())
    world.move("ann", Point(0, 0))
    world.now = 5 * S
    lost = event("e1", 1500, 0)
    world.matcher.add_events([lost])
    world.places["e1"] = lost.location
    assert world.tracker.published(lost, world.now) == [LocationRequest("ann", 1)]
    again = world.tracker.moved("ann", Point(10, 0), world.now, epoch=1)
    assert again == [LocationRequest("ann", 1)]
    far = world.tracker.moved("ann", Point(900, 0), world.now, epoch=1)  # in reach of it by now
    assert [type(m) for m in far] == [Notice, LocationRequest]


def test_an_event_in_reach_asks_again_who_has_not_answered_for_long():
    world = World(patience_s=10.0)
    world.join(ann())
    world.move("ann", Point(0, 0))
    silent = {"ann": Mover("ann")}
    world.clients = silent  # whatever is asked, nobody answers
    asked = []
    for second in range(0, 40, 2):
        world.now = second * S
        asked += [second] * len(world.publish(event(f"e{second}", 10, 0)))
    assert asked == [0, 10, 20, 30]


def test_an_old_epoch_is_not_believed_and_a_client_that_starts_anew_recovers():
    world = World()
    world.join(ann())
    for _ in range(3):
        world.clients["ann"].region = None
        world.move("ann", Point(0, 0))
    impact = world.tracker.impact_of("ann")
    assert world.tracker.moved("ann", Point(9e5, 0), 5, epoch=2) == [LocationRequest("ann", 3)]
    assert world.tracker.impact_of("ann") is impact
    world.clients["ann"] = Mover("ann")  # a new phone counts from 1 again
    world.move("ann", Point(0, 0))
    world.move("ann", Point(0, 0))
    assert world.clients["ann"].region is not None
    assert world.clients["ann"].epoch == 4
    for lie in (0, -1, 1 << 63):
        with pytest.raises(ValidationError, match="epoch"):
            world.tracker.moved("ann", Point(0, 0), 5, epoch=lie)


def test_a_client_that_lies_harms_nobody_else():
    world = World()
    world.join(ann())
    world.join(Subscription(id="s2", subscriber="bob", region=Around(1000.0)))
    world.move("ann", Point(0, 0))
    world.move("bob", Point(0, 0))
    liar = world.clients["ann"]
    liar.region = SafeRegion(1, Ball("planar", 0.0, 0.0, float("inf")))  # silent for ever
    world.now += 5 * S
    world.publish(event("e1", 10, 0))
    world.move("bob", Point(0, 0))
    assert ("s2", "e1") in world.told
    asked = [world.tracker.due(world.now + s * S) for s in range(0, 200, 5)]
    assert 2 <= sum(map(len, asked)) <= 6  # asks again, less and less often


def test_requests_and_notices_are_repeated_until_answered():
    world = World(patience_s=10.0)
    world.join(ann())
    world.move("ann", Point(0, 0))
    world.now = 5 * S
    lost = event("e1", 100, 0)
    world.matcher.add_events([lost])
    world.places["e1"] = lost.location
    assert world.tracker.published(lost, world.now) == [LocationRequest("ann", 1)]
    assert world.tracker.due(9 * S) == []
    assert world.tracker.due(15 * S) == [LocationRequest("ann", 1)]
    answer = world.tracker.moved("ann", Point(0, 0), 16 * S)
    assert [m.event_id for m in answer if isinstance(m, Notice)] == ["e1"]
    again = world.tracker.due(30 * S)
    assert [m.event_id for m in again if isinstance(m, Notice)] == ["e1"]
    world.tracker.delivered("s1", "e1")
    assert world.tracker.due(60 * S) == []
    assert not any(isinstance(m, Notice) for m in world.tracker.moved("ann", Point(0, 0), 61 * S))


def test_joining_after_a_report_tells_at_once_what_is_certain_and_asks():
    world = World()
    world.join(ann())
    world.publish(event("e1", 1500, 0))
    world.move("ann", Point(0, 0))
    found = world.join(ann(2000.0, "s2"))
    assert [type(m) for m in found] == [Notice, LocationRequest]
    world.move("ann", Point(0, 0))
    assert world.clients["ann"].region is not None
    world.now += 5 * S
    assert [type(m) for m in world.join(ann(3000.0, "s3"))] == [LocationRequest]


def test_a_subscription_that_left_is_not_told_of_anything():
    world = World()
    world.join(ann())
    world.move("ann", Point(0, 0))
    del world.subscriptions["s1"]
    assert world.tracker.left("s1", 0) == []
    assert world.tracker.published(event("e1", 0, 0), 0) == []
    assert world.tracker.moved("ann", Point(0, 0), 0) == []
    with pytest.raises(UnknownIdError):
        world.tracker.left("s1", 0)


def test_extended_events_are_matched_exactly():
    world = World()
    world.join(ann(1000.0))
    world.move("ann", Point(0, 0))
    world.now += 5 * S
    fence = Event(
        id="fence", location=Polygon([(900, -500), (5000, -500), (5000, 500), (900, 500)])
    )
    assert world.publish(fence) == [LocationRequest("ann", 1)]
    world.move("ann", Point(0, 0))
    assert ("s1", "fence") in world.told
    box = Event(id="box", location=Box(-9000, 0, -3000, 100))
    world.publish(box)
    for x in range(0, -2100, -100):
        world.now += 5 * S
        world.move("ann", Point(x, 0))
        assert (("s1", "box") in world.told) == (x <= -2000)
    assert spot_of(Box(0, 0, 6, 8), "planar") == (3.0, 4.0, 5.0)


def test_teleporting_standing_still_and_clocks_that_go_back():
    world = World("globe")
    world.join(ann())
    for step, place in enumerate([(8.5, 47.4), (-120.0, -89.9), (180.0, 0.0), (-180.0, 0.0)]):
        world.now = 100 * S - step * 7 * S  # every clock earlier than the last
        world.publish(event(f"e{step}", *place))
        world.move("ann", Point(*place), speed=0.0, heading=720.0)
        assert ("s1", f"e{step}") in world.told
    world.move("ann", Point(8.5, 47.4))


@pytest.mark.parametrize(
    ("field", "bad"), [("speed", float("nan")), ("speed", -1.0), ("speed", float("inf")),
                       ("heading", float("nan")), ("heading", "north")],
)  # fmt: skip
def test_a_speed_or_heading_that_is_none_is_refused(field, bad):
    world = World()
    world.join(ann())
    with pytest.raises(ValidationError, match=field):
        world.tracker.moved("ann", Point(0, 0), 0, **{field: bad})


def test_bad_subscriptions_and_settings_are_refused():
    world = World()
    world.join(ann())
    with pytest.raises(DuplicateIdError):
        world.tracker.joined(ann(), 0)
    with pytest.raises(ValidationError, match="region"):
        world.tracker.joined(Subscription(id="s9", subscriber="a", region=Circle(0, 0, 1)), 0)
    with pytest.raises(ValidationError, match="subscriber"):
        world.tracker.joined(Subscription(id="s9", region=Around(1)), 0)
    with pytest.raises(ValidationError, match="place"):
        World("globe").tracker.moved("ann", Point(200, 0), 0)
    search = MatcherSearch(world.matcher)
    for wrong in ({"safe_region": "dsic"}, {"beta": 0.0}, {"cells": 0},
                  {"extent": Box(5, 0, 1, 1), "space": "planar"}):  # fmt: skip
        with pytest.raises(ValidationError):
            Tracker(search, **wrong)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wall", [101, 150])
def test_an_event_at_hand_is_asked_for_beside_an_extended_one(method, wall):
    """The subscriber is well inside the hall's bounding circle, and not in its reach."""
    world = World(safe_region=method)
    world.join(ann(100.0))
    world.publish(Event(id="hall", location=Box(wall, -300, 750, 300)))
    world.move("ann", Point(0, 0))
    region = world.tracker.region_of("ann")
    assert region is not None
    assert region.contains(Point(0, 0)) or method.partition(":")[0] in ("gm", "igm", "idgm")
    world.now += 5 * S
    for x, y in ((0, 0), (99, 0), (-70, -70)):
        assert world.publish(event(f"at {x}", x, y)) == [
            LocationRequest("ann", world.tracker.epoch_of("ann"))
        ]
        world.move("ann", Point(0, 0))
        assert ("s1", f"at {x}") in world.told
        world.clients["ann"].region = None
        world.move("ann", Point(0, 0))
        world.now += 5 * S
    fence = Event(id="wall", location=Box(99, -5000, 100, 5000))
    assert len(world.publish(fence)) == 1
    world.move("ann", Point(0, 0))
    assert ("s1", "wall") in world.told


def test_whoever_passes_a_long_wall_is_not_asked_at_every_step():
    world = World()
    world.join(ann(100.0))
    world.publish(Event(id="wall", location=Box(103, -10_000, 130, 10_000)))
    reports = 0
    for step in range(100):
        world.now += 5 * S
        reports += bool(world.move("ann", Point(0, -9000 + 60 * step), heading=0.0, speed=12.0))
    assert reports <= 10
    assert world.told == []
    world.move("ann", Point(3, 0))
    assert world.told == [("s1", "wall")]


def test_an_extended_event_far_from_a_long_region_asks_nobody():
    """Its bounding circle meets the impact region, it itself does not."""
    world = World()
    world.join(ann(100.0))
    world.move("ann", Point(0, 0))
    impact = world.tracker.impact_of("ann")
    assert isinstance(impact, CellImpact)
    reach = max(d for d in range(0, 10**6, 50) if impact.covers(d, 0))
    far = 3.0 * reach
    world.now += 5 * S
    diagonal = Polygon([(-far, far / 2), (far / 2, -far), (far / 2 + 1, -far), (-far, far / 2 + 1)])
    beside = Polygon([(x + 2 * far, y + 2 * far) for x, y in diagonal.exterior])
    ring = Polygon(
        [(-far, -far), (far, -far), (far, far), (-far, far)],
        [[(-0.9 * far, -0.9 * far), (0.9 * far, -0.9 * far), (0.9 * far, 0.9 * far),
          (-0.9 * far, 0.9 * far)]],
    )  # fmt: skip
    hut = Box(1.25 * reach, -1, 1.25 * reach + 2, 1)
    circle = impact.around()
    assert circle is not None
    assert gap_of(hut, "planar", *circle) < 0  # in the circle round it, at its rim
    assert world.publish(Event(id="hut", location=hut)) == []
    assert world.publish(Event(id="ring", location=ring)) == []
    assert world.publish(Event(id="beside", location=beside)) == []
    assert len(world.publish(Event(id="through", location=diagonal))) == 1


@pytest.mark.parametrize("kept", ["never followed", "unsubscribed"])
def test_movers_whom_nothing_follows_leave_next_to_nothing(kept, monkeypatch):
    monkeypatch.setattr("nearcast.mobility.tracker._MOST_IDLE", 32)
    world = World()

    def come_and_go(numbers: range) -> None:
        for i in numbers:
            name = f"phone {i}"
            if kept == "unsubscribed":
                world.tracker.joined(
                    Subscription(id=f"s{i}", subscriber=name, region=Around(10.0)), 0
                )
                world.tracker.moved(name, Point(i, 0), 0)
                world.tracker.left(f"s{i}", 0)
            else:
                world.tracker.moved(name, Point(i, 0), 0, epoch=5)

    come_and_go(range(2))  # whatever has to be compiled is
    tracemalloc.start()
    used = []
    for numbers in (range(60), range(60, 600), range(600, 900)):
        come_and_go(numbers)
        gc.collect()
        used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert used[2] - used[1] < 15_000  # 50 bytes each: tables grow by leaps, not for ever


def test_who_was_forgotten_is_asked_and_who_was_not_is_told_at_once():
    world = World()
    world.publish(event("e1", 5, 0))
    world.tracker.moved("ann", Point(0, 0), 0, epoch=7)
    assert [type(m) for m in world.join(ann())] == [Notice, LocationRequest]
    world.tracker.left("s1", 0)
    assert world.tracker.epoch_of("ann") == 7
    assert world.tracker.moved("ann", Point(0, 0), 0, epoch=3) == [LocationRequest("ann", 7)]
    for i in range(1100):
        world.tracker.moved(f"phone {i}", Point(0, 0), 0)
    assert world.tracker.epoch_of("ann") == 0
    assert world.join(ann(id="s2")) == [LocationRequest("ann", 0)]
    world.clients["ann"].epoch = 7
    world.move("ann", Point(0, 0))
    assert world.told[-1] == ("s2", "e1")
    assert world.tracker.epoch_of("ann") == 8


def test_a_notice_of_an_event_that_is_gone_is_repeated_and_then_forgotten():
    world = World(patience_s=10.0)
    world.join(ann())
    lost = event("e1", 100, 0)
    world.matcher.add_events([lost])
    world.places["e1"] = lost.location
    (notice, _) = world.tracker.moved("ann", Point(0, 0), 0)
    assert isinstance(notice, Notice)
    world.retract("e1")
    assert [m.event_id for m in world.tracker.due(11 * S) if isinstance(m, Notice)] == ["e1"]
    world.tracker.delivered("s1", "e1")
    assert world.tracker.due(30 * S) == []
    world.publish(event("e1", 200, 0))  # another one under its id is a new one
    found = world.tracker.moved("ann", Point(0, 0), 31 * S)
    assert [m.event_id for m in found if isinstance(m, Notice)] == ["e1"]


@pytest.mark.parametrize("everything", [True, False])
def test_everything_matches_and_nothing_matches(everything):
    world = World(safe_region="disc")
    rng = random.Random(1)
    for i in range(1500):
        world.publish(event(f"e{i}", rng.uniform(-3000, 3000), rng.uniform(-3000, 3000), i % 7))
    world.join(ann(200.0, where=None if everything else "kind = 99"))
    for step in range(15):
        world.now = step * 5 * S
        here = Point(step * 60.0, 0.0)
        world.move("ann", here, heading=90.0)
        near = {
            id for id, p in world.places.items() if distance("planar", here.x, 0, p.x, p.y) <= 200
        }
        assert {("s1", id) for id in near} <= set(world.told) or not everything
    assert bool(world.told) == everything


def probe(x: float, y: float, kind: int = 1) -> Event:
    return Event(id="probe", attributes={"kind": kind}, location=Point(x, y))


@pytest.mark.parametrize("space", ["planar", "globe"])
def test_the_impact_index_finds_everybody(space):
    rng = random.Random(2)
    index = ImpactIndex(space)
    rings: dict[str, tuple[float, float, float] | None] = {}
    for step in range(400):
        name = f"s{rng.randint(0, 60)}"
        if rng.random() < 0.2:
            index.remove(name)
            rings.pop(name, None)
        else:
            x, y = rng.uniform(-180, 180), rng.uniform(-90, 90)
            scale = 111_000.0 if space == "globe" else 1.0
            ring = rng.choice([None, (x, y, scale * 10 ** rng.uniform(-3, 2.2)), (x, y, -1.0)])
            kind = "" if step % 2 else "kind = 1"
            s = Subscription(id=name, subscriber="p", where=kind or None, region=Around(1))
            index.put(s, ring)
            rings.pop(name, None)
            if ring is None or ring[2] >= 0:
                rings[name] = ring
        if step % 20 == 0:
            index.check_invariants()
        x, y = rng.choice([-180.0, 180.0, rng.uniform(-180, 180)]), rng.uniform(-90, 90)
        found = set(index.near(probe(x, y), 0))
        for name, ring in rings.items():
            if ring is None or distance(space, x, y, ring[0], ring[1]) <= ring[2]:
                assert name in found
    assert len(index) == len(rings)


def test_the_impact_index_finds_hardly_anybody_else():
    """Neither somebody far away, nor somebody whose filter does not fit, nor who expired."""
    index = ImpactIndex("planar")
    for i in range(30):
        for j in range(30):
            s = Subscription(id=f"{i} {j}", subscriber="p", where="kind = 1", region=Around(1),
                             expires=5 if i == 13 else None)  # fmt: skip
            index.put(s, (1000.0 * i, 1000.0 * j, 100.0))
    for i, j in ((0, 0), (13, 7), (29, 29)):
        assert index.near(probe(1000.0 * i, 1000.0 * j), 0) == [f"{i} {j}"]
        assert index.near(probe(1000.0 * i, 1000.0 * j, kind=2), 0) == []
    assert index.near(probe(13_000.0, 7000.0), 5) == []
    assert index.near(Event(id="e", attributes={"kind": 1}), 0) == []


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_impact_index_finds_everybody_whom_an_extended_event_may_concern(data):
    """Also where its edges run differently on the circle's map and on the event's."""

    def number(low: float, high: float) -> float:
        return float(data.draw(st.floats(low, high, allow_nan=False, width=32)))

    x, y = number(-180, 180), number(-89, 89)
    east, north = min(x + number(0, 6), 180.0), min(y + number(0, 6), 90.0)
    hall: Box | Polygon = Box(x, y, east, north)
    if data.draw(st.booleans()) and east > x and north > y:
        hall = Polygon([(x, y), (east, y), (x, north)])
    at_x, at_y = number(-180, 180), number(-90, 90)
    gap = gap_of(hall, "globe", at_x, at_y, 0.0)
    for factor in (1 + 1e-9, 1.1, 0.9):
        ring = (at_x, at_y, max(gap, 1.0) * factor)
        index = ImpactIndex("globe")
        index.put(Subscription(id="s", subscriber="p", region=Around(1)), ring)
        found = index.near(Event(id="e", location=hall), 0)
        assert found == ["s"] or gap_of(hall, "globe", *ring) > 0
