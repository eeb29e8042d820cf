"""Motion modes on scripted tracks: what they expand to, and what the detector finds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Box, Composite, Event, Point
from nearcast.cpsl import motion
from nearcast.cpsl.ast import Pattern
from nearcast.cpsl.builder import event, string
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.parser import parse
from nearcast.errors import ValidationError
from tests.cpsl_naive import naive

S = 1_000_000
HOME = Box(0, 0, 10, 10)
CAR = event(id="car")
BUS = event(id="bus")
ANY = event(id=string("v"))


def track(
    id: str, *positions: tuple[float, float], every: int = 10, lasting: int = 0
) -> list[Event]:
    """A vehicle on a plane: one position every so many seconds, from 0."""
    return [
        Event(
            id=f"{id}{number}",
            attributes={"id": id},
            location=Point(x, y),
            start=number * every * S,
            end=(number * every + lasting) * S,
        )
        for number, (x, y) in enumerate(positions)
    ]


def found(pattern: Pattern, *tracks: list[Event], until: int = 10_000) -> list[tuple[str, ...]]:
    """The parts of what the detector finds in the tracks, played together."""
    detector = Detector(space="planar")
    detector.add(Composite(id="c", text=pattern))
    events = sorted((e for each in tracks for e in each), key=lambda e: (e.end, e.id))
    detections = detector.feed(events) + detector.advance(until * S)
    detector.check_invariants()
    return [detection.parts for detection in detections]


# --- an object and a place ------------------------------------------------------------------------


def test_leave_a_place_is_subscription_1():
    pattern = motion.leave(CAR, HOME, distance_m=5, within="PT1M")
    text = "=|(@((0,0),(10,0),(10,10),(0,10))A; 60)DIST((0,0),(10,0),(10,10),(0,10);>;5)A"
    assert pattern == parse(text.replace("A", '(STRING: id = "car")'))
    assert found(pattern, track("car", (5, 5), (12, 5), (20, 5))) == [("car0", "car2")]
    assert found(pattern, track("car", (5, 5), (20, 5), every=61)) == []
    assert found(pattern, track("bus", (5, 5), (20, 5))) == []


def test_leave_a_point():
    pattern = motion.leave(CAR, Point(0, 0), distance_m=5, within=60)
    assert found(pattern, track("car", (1, 1), (9, 9))) == [("car0", "car1")]


def test_reach_a_place_is_subscription_2():
    pattern = motion.reach(CAR, HOME, distance_m=5, within=60)
    assert found(pattern, track("car", (20, 5), (12, 5), (9, 5))) == [("car0", "car2")]
    assert found(pattern, track("car", (12, 5), (9, 5))) == []


def test_reach_a_point():
    pattern = motion.reach(CAR, (0, 0), distance_m=5, within=60)
    assert found(pattern, track("car", (9, 9), (3, 3), (0.5, 0))) == [("car0", "car2")]


def test_hit_a_place():
    pattern = motion.hit(CAR, HOME, distance_m=5, within=60)
    assert found(pattern, track("car", (20, 5), (13, 5))) == [("car0", "car1")]
    assert found(pattern, track("car", (13, 5), (20, 5))) == []


def test_external_and_internal_to_a_place():
    outside = motion.external(CAR, HOME, distance_m=5, within=60)
    assert found(outside, track("car", (20, 5), (30, 5))) == [("car0", "car1")]
    assert found(outside, track("car", (20, 5), (12, 5))) == []
    inside = motion.internal(CAR, HOME, within=60)
    assert found(inside, track("car", (2, 5), (8, 5))) == [("car0", "car1")]
    assert found(inside, track("car", (2, 5), (18, 5))) == []


@pytest.mark.parametrize("within", [None, 60])
def test_cross_a_place(within: int | None):
    pattern = motion.cross(CAR, HOME, near_m=2, far_m=8, within=within)
    across = track("car", (15, 5), (5, 5), (-5, 5))
    assert found(pattern, across) == [("car0", "car1", "car2")]
    assert found(pattern, track("car", (15, 5), (5, 5), (6, 5))) == []
    assert found(pattern, track("car", (30, 5), (5, 5), (-5, 5))) == []


# --- two objects ----------------------------------------------------------------------------------


def test_leave_an_object_is_subscription_3():
    pattern = motion.leave(CAR, BUS, distance_m=5, within=60)
    expected = (
        "=|($e1;; 60)$e2;, $e1; = (|($a1;)$b1; && DIST($b1;;<;5)$a1;),"
        " $e2; = (|($a2;)$b2; && DIST($b2;;>;5)$a2;),"
        ' $a1; = (STRING: id = "car"), $b1; = (STRING: id = "bus"),'
        ' $a2; = (STRING: id = "car"), $b2; = (STRING: id = "bus")'
    )
    assert pattern == parse(expected)
    bus = track("bus", (0, 0), (10, 0))
    together = [("bus0", "car0", "bus1", "car1")]
    assert found(pattern, bus, track("car", (1, 0), (20, 0))) == together
    assert found(pattern, bus, track("car", (1, 0), (11, 0))) == []
    assert found(pattern, bus, track("van", (1, 0), (20, 0))) == []


def test_hit_an_object():
    pattern = motion.hit(CAR, BUS, distance_m=5, within=60)
    bus = track("bus", (0, 0), (0, 0))
    assert found(pattern, bus, track("car", (9, 0), (3, 0))) == [("bus0", "car0", "bus1", "car1")]
    assert found(pattern, bus, track("car", (3, 0), (9, 0))) == []


def test_reach_an_object():
    pattern = motion.reach(CAR, BUS, distance_m=5, within=60)
    bus = track("bus", (0, 0), (4, 0))
    assert found(pattern, bus, track("car", (9, 0), (4.5, 0))) == [("bus0", "car0", "bus1", "car1")]
    assert found(pattern, bus, track("car", (9, 0), (7, 0))) == []


def test_external_to_an_object():
    pattern = motion.external(CAR, BUS, distance_m=5, within=60)
    bus = track("bus", (0, 0), (0, 0))
    assert found(pattern, bus, track("car", (9, 0), (8, 0))) == [("bus0", "car0", "bus1", "car1")]
    assert found(pattern, bus, track("car", (9, 0), (4, 0))) == []


def test_internal_to_an_object():
    pattern = motion.internal(CAR, BUS, within=60)
    area = [
        Event(id=f"bus{n}", attributes={"id": "bus"}, location=Box(n, 0, n + 5, 5), end=n * 10 * S)
        for n in range(2)
    ]
    assert found(pattern, area, track("car", (1, 1), (5, 1))) == [("bus0", "car0", "bus1", "car1")]
    assert found(pattern, area, track("car", (1, 1), (0.5, 1))) == []


def test_cross_an_object():
    pattern = motion.cross(CAR, BUS, near_m=2, far_m=8)
    bus = track("bus", (0, 0), (0, 0), (0, 0))
    parts = [("bus0", "car0", "bus1", "car1", "bus2", "car2")]
    assert found(pattern, bus, track("car", (5, 0), (0, 0.5), (-5, 0))) == parts
    assert found(pattern, bus, track("car", (5, 0), (3, 0), (-5, 0))) == []


def test_objects_are_compared_at_one_instant():
    pattern = motion.hit(CAR, BUS, distance_m=5, within=60)
    bus, car = track("bus", (0, 0), (0, 0)), track("car", (9, 0), (3, 0))
    shifted = [
        Event(e.id, e.attributes, (), e.location, (e.end or 0) + S, (e.end or 0) + S) for e in car
    ]
    assert found(pattern, bus, shifted) == []
    lasting = track("bus", (0, 0), (0, 0), lasting=3)
    assert len(found(pattern, lasting, shifted)) == 1


# --- crossings ------------------------------------------------------------------------------------

TREMBLING = [(20, 5), (11, 5), (9, 5), (11, 5), (9, 5), (13, 5), (8, 5), (20, 5), (5, 5)]


def test_enter_fires_once_a_crossing():
    pattern = motion.enter(CAR, HOME, margin_m=5)
    parts = found(pattern, track("car", *TREMBLING))
    assert [each[-1] for each in parts] == ["car2", "car8"]


def test_without_a_margin_trembling_counts():
    parts = found(motion.enter(CAR, HOME), track("car", *TREMBLING))
    assert [each[-1] for each in parts] == ["car2", "car4", "car6", "car8"]


def test_exit_fires_once_a_crossing():
    pattern = motion.exit(CAR, HOME, margin_m=5)
    parts = found(pattern, track("car", *TREMBLING, (30, 5), (40, 5)))
    assert [each[-1] for each in parts] == ["car7", "car9"]


def test_one_pattern_follows_many_objects():
    pattern = motion.enter(ANY, HOME, margin_m=5)
    cars = track("car", (20, 5), (20, 5), (5, 5))
    vans = track("van", (20, 5), (5, 5), (5, 5))
    assert sorted(each[-1] for each in found(pattern, cars, vans)) == ["car2", "van1"]


def test_dwell_fires_when_the_time_is_over():
    pattern = motion.dwell(CAR, HOME, lasting=60, margin_m=5)
    stays = track("car", (20, 5), (5, 5), (11, 5))
    assert [each[-1] for each in found(pattern, stays)] == ["car1"]
    assert found(pattern, stays, until=69) == []
    assert found(pattern, stays, until=70) == [("car0", "car1")]
    leaves = track("car", (20, 5), (5, 5), (30, 5), (30, 5))
    assert found(pattern, leaves) == []
    never_came = track("car", (5, 5), (5, 5))
    assert found(pattern, never_came) == []


def test_approach_a_place_and_an_object():
    place = motion.approach(CAR, HOME, distance_m=5, margin_m=3)
    wavering = [(30, 5), (14, 5), (16, 5), (13, 5), (19, 5), (14, 5)]
    assert [each[-1] for each in found(place, track("car", *wavering))] == ["car1", "car5"]
    pair = motion.approach(CAR, BUS, distance_m=5, margin_m=3)
    bus = track("bus", (0, 0), (0, 0), (0, 0))
    assert found(pair, bus, track("car", (9, 0), (4, 0), (3, 0))) == [
        ("bus0", "car0", "bus1", "car1")
    ]


# --- crossings, by definition ---------------------------------------------------------------------

EVERY, MARGIN, LASTING = 10, 3, 35


def by_definition(xs: list[int]) -> dict[str, list[str]]:
    """What a state machine with hysteresis says about a track along y = 5."""
    fired: dict[str, list[str]] = {"enter": [], "exit": [], "dwell": []}
    was_outside = was_inside = False
    for number, x in enumerate(xs):
        name, inside = f"car{number}", 0 <= x <= 10
        outside = max(-x, x - 10) > MARGIN
        if inside and was_outside:
            fired["enter"].append(name)
            was_outside = False
            stay = xs[number + 1 : number + 1 + LASTING // EVERY]
            if not any(max(-later, later - 10) > MARGIN for later in stay):
                fired["dwell"].append(name)
        if outside and was_inside:
            fired["exit"].append(name)
            was_inside = False
        was_outside, was_inside = was_outside or outside, was_inside or inside
    return fired


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-6, 16), max_size=14))
def test_crossings_are_what_a_state_machine_says(xs: list[int]):
    positions = track("car", *((float(x), 5.0) for x in xs), every=EVERY)
    patterns = {
        "enter": motion.enter(CAR, HOME, margin_m=MARGIN),
        "exit": motion.exit(CAR, HOME, margin_m=MARGIN),
        "dwell": motion.dwell(CAR, HOME, lasting=LASTING, margin_m=MARGIN),
    }
    assert {
        name: [parts[-1] for parts in found(pattern, positions)]
        for name, pattern in patterns.items()
    } == by_definition(xs)


MODES_OF_MOTION = {
    "leave": motion.leave(CAR, BUS, distance_m=5, within=30),
    "hit": motion.hit(CAR, BUS, distance_m=5, within=30),
    "reach": motion.reach(CAR, BUS, distance_m=3, within=30),
    "external": motion.external(CAR, BUS, distance_m=3, within=30),
    "internal": motion.internal(CAR, BUS, within=30),
    "cross": motion.cross(CAR, BUS, near_m=2, far_m=8),
    "cross a place": motion.cross(CAR, HOME, near_m=2, far_m=8),
    "leave a place": motion.leave(CAR, HOME, distance_m=3, within=30),
    "enter": motion.enter(ANY, HOME, margin_m=3),
    "exit": motion.exit(ANY, HOME, margin_m=3),
    "dwell": motion.dwell(ANY, HOME, lasting=25, margin_m=3),
    "approach": motion.approach(CAR, BUS, distance_m=4, margin_m=2),
}


@pytest.mark.parametrize("name", MODES_OF_MOTION)
def test_motion_is_what_the_naive_interpreter_finds(name: str):
    chance, total = Random(name), 0
    for _ in range(5):
        tracks = [
            track(
                vehicle,
                *((float(chance.randint(-6, 16)), 5.0) for _ in range(7)),
                lasting=chance.choice([0, 3]),
            )
            for vehicle in ("car", "bus")
        ]
        history = sorted((e for each in tracks for e in each), key=lambda e: (e.end, e.id))
        expected = naive(MODES_OF_MOTION[name], history, "first-matching", 1000 * S)
        parts = found(MODES_OF_MOTION[name], *tracks, until=1000)
        assert parts == [each.parts for each in expected]
        total += len(parts)
    assert total or name == "internal"  # two points are inside of each other by chance only


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: motion.internal(CAR, Point(0, 0), within=5),
        lambda: motion.cross(CAR, HOME, near_m=5, far_m=5),
        lambda: motion.leave(CAR, "nowhere", distance_m=5, within=5),
    ],
)
def test_what_cannot_be_a_motion(wrong):
    with pytest.raises(ValidationError):
        wrong()
