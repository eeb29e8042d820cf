"""Grus, §4.4 (both cases) and Subscriptions 1 to 5 on scripted tracks."""

from __future__ import annotations

from typing import Any

from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Point

S = 1_000_000
WALK = (
    "|($x;)$y; && OVLP($x;)$y;, "
    '$x; = ((STRING: k = "a") && (STRING: k = "b")), $y; = ((STRING: k = "d") && (STRING: k = "e"))'
)


def at(name: str, time: int, x: float, y: float = 0.0) -> Event:
    return Event(id=name, attributes={"k": name[0]}, location=Point(x, y), end=time * S)


def parts(text: str, events: list[Event], **options: Any) -> list[tuple[str, ...]]:
    detector = Detector("planar", **options)
    detector.add(Composite(id="c", text=text))
    found = detector.feed(events)
    detector.check_invariants()
    return [one.parts for one in found]


def test_the_same_instances_stand_behind_both_operators() -> None:
    events = [at("a", 1, 0), at("b", 1, 4), at("d", 1, 2), at("e", 1, 6)]
    assert parts(WALK, events) == [("a", "b", "d", "e")]


def test_two_halves_that_hold_of_different_instances_are_no_detection() -> None:
    # a1b1 is concurrent with d1e1 but apart from it, and overlaps d2e2 but is over by then.
    events = [at("a1", 1, 0), at("b1", 1, 4), at("d1", 1, 10), at("e1", 1, 12)]
    events += [at("d2", 2, 2), at("e2", 2, 6)]
    assert parts(WALK, events) == []


SQUARE = "(0,0),(10,0),(10,10),(0,10)"
TRUCK = "(ARITH: id = 7)"


def track(id: int, *steps: tuple[float, float, float]) -> list[Event]:
    return [
        Event(id=f"{id}@{t:g}", attributes={"id": id}, location=Point(x, y), end=int(t * S))
        for t, x, y in steps
    ]


def test_subscription_1_a_vehicle_leaves_a_warehouse() -> None:
    text = f"=|(@({SQUARE}){TRUCK}; 60)(DIST({SQUARE};>;100){TRUCK})"
    moves = track(7, (0, 5, 5), (20, 60, 5), (40, 200, 5), (50, 300, 5))
    assert parts(text, moves) == [("7@0", "7@40")]
    assert parts(text, track(7, (0, 5, 5), (70, 200, 5))) == []


def test_subscription_2_a_vehicle_reaches_a_warehouse() -> None:
    text = f"=|(DIST({SQUARE};>;100){TRUCK}; 60)(@({SQUARE}){TRUCK})"
    assert parts(text, track(7, (0, 200, 5), (30, 50, 5), (60, 5, 10))) == [("7@0", "7@60")]


def test_subscription_3_a_vehicle_drifts_from_its_fleet() -> None:
    text = (
        "=|($e1;; 30)$e2;, $e1; = (|($A;)$B; && DIST($A;;<;100)$B;), "
        "$e2; = (|($C;)$D; && DIST($C;;>;100)$D;), $A; = (ARITH: id = 7), $B; = (ARITH: id = 1), "
        "$C; = (ARITH: id = 7), $D; = (ARITH: id = 1)"
    )
    head = track(1, *((t, 10 * t, 0) for t in (0, 10, 20, 30)))
    slow = track(7, (0, 0, 0), (10, 60, 0), (20, 90, 0), (30, 120, 0))
    events = sorted(head + slow, key=lambda e: e.end or 0)
    # At 20 s they are 110 m apart for the first time; at 0 s they were still together.
    assert parts(text, events, longest=0) == [
        ("1@0", "7@0", "1@20", "7@20"),
        ("1@10", "7@10", "1@30", "7@30"),
    ]


def test_what_was_concurrent_is_forgotten_for_all_operators() -> None:
    text = "|($A;)$B; && DIST($A;;<;1)$B;, $A; = (ARITH: id = 7), $B; = (ARITH: id = 1)"
    detector = Detector("planar", longest=0)
    detector.add(Composite(id="c", text=text))
    for t in range(500):
        detector.feed(track(7, (t, 0, 0)) + track(1, (t, 50, 0)))
        assert detector.pending() <= 2
    detector.check_invariants()


def test_subscription_4_a_free_taxi_near_me() -> None:
    text = 'DIST((8.5,47.4);<;2000)(STRING: type = "TAXI", STRING: state = "uncarry")'
    detector = Detector()
    detector.add(Composite(id="c", text=text))
    taxi = {"type": "TAXI", "state": "uncarry"}
    near, far = Point(8.52, 47.405), Point(8.6, 47.4)
    events = [
        Event(id="near", attributes=taxi, location=near, end=1),
        Event(id="far", attributes=taxi, location=far, end=2),
        Event(id="busy", attributes={**taxi, "state": "carry"}, location=near, end=3),
        Event(id="wide", attributes=taxi, location=Box(8.55, 47.39, 8.6, 47.41), end=4),
        Event(id="block", attributes=taxi, location=Box(8.52, 47.39, 8.6, 47.41), end=5),
        Event(id="nowhere", attributes=taxi, end=6),
    ]
    assert [one.parts for one in detector.feed(events)] == [("near",), ("block",)]


def test_subscription_5_a_customer_near_a_shop() -> None:
    text = "@((0,0),(4,0),(4,3),(0,3))(ARITH: ageRange = 25)"
    shoppers: list[tuple[int, Any]] = [
        (25, Point(4, 3)),
        (40, Point(1, 1)),
        (25, Point(5, 1)),
        (25, Box(1, 1, 5, 2)),
    ]
    events = [
        Event(id=f"e{i}", attributes={"ageRange": age}, location=place, end=i)
        for i, (age, place) in enumerate(shoppers)
    ]
    assert parts(text, events) == [("e0",)]
