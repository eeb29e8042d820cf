"""What is done in one call does what the same steps do one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from nearcast.matcher import Matcher
from nearcast.matcher.sought import Sought
from nearcast.mobility import disc
from nearcast.mobility.grid import Grid
from nearcast.mobility.impact_index import ImpactIndex
from nearcast.mobility.impact_index.regions import Regions
from nearcast.mobility.impact_region import BallImpact, CellImpact, Impact
from nearcast.mobility.kernels import best_shape
from nearcast.mobility.plane import Plane
from nearcast.mobility.safe_region import Ball, Cells
from nearcast.mobility.situation import Situation
from nearcast.mobility.statistics import TURNS, Density
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Box, Circle, Point, Space
from nearcast.model.subscriptions import Subscription
from tests import oracle
from tests.moving import looker, near, situation

SPACES: tuple[Space, Space] = ("planar", "globe")


# --- regions -----------------------------------------------------------------------------


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("seed", range(12))
def test_a_region_drawn_in_one_call_is_that_of_the_steps(seed: int, space: Space) -> None:
    luck = random.Random(seed)
    home = (luck.uniform(-180, 180), luck.uniform(-80, 80))
    radius = 10 ** luck.uniform(1, 4)
    density = Density(space, radius)
    for _ in range(luck.randint(0, 40)):
        at = near(space, *home, luck.gauss(0, 3 * radius), luck.gauss(0, 3 * radius))
        density.add_one(*at, 0)
    field = density.field(10 ** luck.uniform(-6, 0))
    obstacles = []
    for _ in range(luck.choice([0, 1, 5, 80, 200])):
        at = near(space, *home, luck.gauss(0, 6 * radius), luck.gauss(0, 6 * radius))
        obstacles.append((*at, radius * luck.uniform(0.2, 1.0)))
    more: dict[str, Any] = {
        "speed": luck.choice([0.0, 1.5, 30.0]), "heading": luck.choice([None, 0.0, 211.0]),
        "beta": luck.choice([None, None, 2.0]), "known": luck.choice([0.0, radius]),
    }  # fmt: skip
    look = looker(space, obstacles)
    quick = disc.build(situation(space, *home, radius, rates=field, **more), look)
    slow: Situation = situation(space, *home, radius, rates=field.__call__, **more)
    steps = disc.build(slow, look)
    assert quick.size == pytest.approx(steps.size)
    assert quick.crowd == steps.crowd
    if isinstance(steps.shape, Ball):
        assert quick.shape == steps.shape
        return
    assert isinstance(quick.shape, Cells)
    assert isinstance(steps.shape, Cells)
    assert isinstance(quick.impact, CellImpact)
    assert isinstance(steps.impact, CellImpact)
    for name in ("plane", "x0", "y0", "cell", "order", "starts", "stops"):
        assert getattr(quick.shape, name) == getattr(steps.shape, name)
    assert np.allclose(np.array(quick.shape.discs), np.array(steps.shape.discs), rtol=1e-6)
    assert quick.impact.grid == steps.impact.grid
    assert np.array_equal(quick.impact.cells, steps.impact.cells)


@pytest.mark.parametrize("seed", range(12))
def test_the_shape_chosen_costs_hardly_more_than_the_best(seed: int) -> None:
    """Every size and eccentricity tried one by one."""
    luck = random.Random(seed)
    cosine = np.cos(np.radians(TURNS))
    weight = np.array([0.01 + luck.random() ** 3 for _ in TURNS])
    weight /= weight.sum()
    speed, radius = 10 ** luck.uniform(-1, 2), 10 ** luck.uniform(1, 4)
    rest = 10 ** luck.uniform(-13, -6), radius, 10 ** luck.uniform(-7, 0), cosine, weight
    shapes = np.array([0.0, 0.4, 0.75, 0.92])
    least, most = max(radius / 64, speed / 2), max(64 * radius, 600 * speed)
    _, _, found = best_shape(speed, *rest, shapes, least, most)
    every, size = [], least
    while size <= most:
        every += [best_shape(speed, *rest, shapes[i : i + 1], size, size)[2] for i in range(4)]
        size *= 1.15
    assert min(every) * (1 - 1e-9) <= found <= 1.1 * min(every)


# --- whom a place concerns ---------------------------------------------------------------


def _impact(luck: random.Random, space: Space) -> Impact:
    home = luck.uniform(-180, 180), luck.uniform(-85, 85)
    if luck.random() < 0.2:
        return BallImpact(space, *home, 10 ** luck.uniform(2, 6))
    cell, columns, rows = 10 ** luck.uniform(1, 3), luck.randint(1, 60), luck.randint(1, 60)
    plane = Plane(space, *home, 100 * cell)
    corner = -cell * luck.uniform(0, columns), -cell * luck.uniform(0, rows)
    cells = np.array([luck.random() < 0.4 for _ in range(columns * rows)])
    numbers = np.flatnonzero(cells).astype(np.int32)
    return CellImpact.of(Grid(plane, *corner, cell, columns, rows), numbers)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("seed", range(12))
def test_packed_impact_regions_hold_what_they_hold_alone(seed: int, space: Space) -> None:
    luck = random.Random(seed)
    regions, alone = Regions(space), dict[int, Impact | None]()
    met = dict.fromkeys(range(12), 0)
    for _ in range(luck.randint(1, 60)):
        slot = luck.randrange(12)
        if luck.random() < 0.2:
            regions.clear(slot)
            alone.pop(slot, None)
            met[slot] = 0
        else:
            alone[slot] = None if luck.random() < 0.1 else _impact(luck, space)
            regions.put(slot, alone[slot])
        regions.check_invariants({str(slot): slot for slot in alone})
        if not alone:
            continue
        slots = np.array([*alone], np.int32)
        x, y = luck.uniform(-180, 180), luck.uniform(-90, 90)
        one = alone[luck.choice([*alone])]
        if one is not None:  # a place that may well be in it
            circle = one.around()
            if circle is not None and circle[2] > 0:
                east, north = (luck.uniform(-1, 1) * circle[2] for _ in range(2))
                x, y = near(space, circle[0], circle[1], east, north)
        found, known = regions.concerned(slots, x, y)
        assert found.tolist() == [
            slot for slot, impact in alone.items() if impact is None or impact.covers(x, y)
        ]
        for slot, impact in alone.items():
            met[slot] += impact is not None
        assert known == sum(impact is not None for impact in alone.values())
        slot = luck.choice([*alone])
        assert regions.take_met(slot) == met[slot]
        met[slot] = 0


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("seed", range(12))
def test_the_impact_index_follows_those_who_move(seed: int, space: Space) -> None:
    """The same subscriptions at one place after the other: another way than that of new ones."""
    luck = random.Random(seed)
    index, known = ImpactIndex(space), dict[str, tuple[Subscription, Impact | None]]()
    near_since = dict.fromkeys("abcdef", 0)
    every = {
        name: Subscription(
            name, "p", luck.choice([None, "kind = 1", "kind = 'x'"]), region=Around(1)
        )
        for name in "abcdef"
    }
    for step in range(40):
        name = luck.choice("abcdef")
        impact = None if luck.random() < 0.1 else _impact(luck, space)
        ring = None if impact is None else impact.around()
        index.put(every[name], ring, impact)
        known[name] = every[name], impact
        if ring is not None and ring[2] < 0:
            del known[name]
            near_since[name] = 0
        index.check_invariants()
        x, y = luck.uniform(-180, 180), luck.uniform(-90, 90)
        if ring is not None and 0 < ring[2] < 1e5:
            east, north = (luck.uniform(-1, 1) * ring[2] for _ in range(2))
            x, y = near(space, ring[0], ring[1], east, north)
        event = Event(f"e{step}", {"kind": luck.randint(0, 1)}, location=Point(x, y))
        found, close = index.concerned(event, 0)
        wanting = {n: i for n, (s, i) in known.items() if oracle.wants(bare(s), event, space)}
        assert found == sorted(n for n, i in wanting.items() if i is None or i.covers(x, y))
        met = [n for n in index.near(event, 0) if known[n][1] is not None]
        assert close == len(met)
        for each in met:
            near_since[each] += 1
        assert index.take_near(name) == near_since[name]
        near_since[name] = 0


def bare(subscription: Subscription) -> Subscription:
    """What is left of it without its region."""
    return Subscription(subscription.id, subscription.subscriber, subscription.where)


# --- searches and changes of the matcher ---------------------------------------------------


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("seed", range(12))
def test_a_subscription_looks_into_circle_after_circle(seed: int, space: Space) -> None:
    luck = random.Random(seed)
    matcher = Matcher(space=space)
    edge = 180.0 if space == "globe" else 30.0
    filters = [None, "price < 5", "price BETWEEN 2 AND 6 AND size > 1", "kind = 'a'", "size <> 2",
               "colour = 3"]  # fmt: skip
    asked = Subscription("s", where=luck.choice(filters), region=Around(5),
                         keywords=luck.choice([(), (), ("w",)]),
                         expires=luck.choice([None, 40]))  # fmt: skip
    sought = Sought(asked)
    for step in range(30):
        place: Any = Point(luck.choice([-edge, edge, luck.uniform(-edge, edge)]),
                           luck.uniform(-80, 80))  # fmt: skip
        if luck.random() < 0.03:
            place = Box(place.x - 2 if place.x > -178 else place.x, -1, place.x, 1)
        attributes: dict[str, Any] = {"price": luck.randint(0, 9), "size": luck.randint(0, 3)}
        if luck.random() < 0.3:
            attributes["colour" if step > 15 else "kind"] = 3 if step > 15 else "a"
        matcher.add_events([
            Event(f"e{step}", attributes, luck.choice([(), ("w",)]),
                  None if luck.random() < 0.1 else place, expires=luck.choice([None, 2 * step]))
        ])  # fmt: skip
        circle = Circle(luck.choice([-edge, edge, luck.uniform(-edge, edge)]),
                        luck.uniform(-89, 89), 10 ** luck.uniform(0, 7.2) if space == "globe"
                        else 10 ** luck.uniform(0, 2))  # fmt: skip
        slots, x, y, extended = matcher.spots_within(sought, circle, step)
        plain = matcher.match_spots(sought.at(circle), now=step)
        order, other = np.argsort(slots), np.argsort(plain.numbers)
        assert slots[order].tolist() == plain.numbers[other].tolist()
        assert np.array_equal(x[order], plain.x[other], equal_nan=True)
        assert np.array_equal(y[order], plain.y[other], equal_nan=True)
        assert [*extended.values()] == [*plain.extended.values()]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("seed", range(12))
def test_a_box_that_is_moved_stands_where_it_would_stand(seed: int, space: Space) -> None:
    luck = random.Random(seed)
    quick, slow = Matcher(space=space), Matcher(space=space)
    filters = [None, "price < 5", "kind = 'a'", "price < 3 OR size > 2", "colour > 1"]
    bare = [Subscription(f"s{i}", where=luck.choice(filters)) for i in range(6)]
    for matcher in (quick, slow):
        matcher.add_subscriptions(bare)
    for step in range(25):
        one = luck.choice(bare)
        x, y = luck.uniform(-170, 170), luck.uniform(-80, 80)
        box = x, y, x + luck.uniform(0, 40), y + luck.uniform(0, 12)
        placed = Subscription(one.id, where=one.filter, region=None)
        if quick.move_box(one, box):
            placed = Subscription(one.id, where=one.filter if one.where else None,
                                  region=Box(*box))  # fmt: skip
            slow.update_subscription(placed)
        event = Event(f"e{step}", {"price": luck.randint(0, 9), "size": luck.randint(0, 3)},
                      location=Point(x + 1, y + 1))  # fmt: skip
        assert quick.match_event(event) == slow.match_event(event)
    quick.check_invariants()


# --- a search that goes on where it stopped ----------------------------------------------


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("seed", range(8))
def test_a_search_that_goes_on_finds_what_a_new_one_does(seed: int, space: Space) -> None:
    """Circles that grow and jump, while events come, go and expire (Elaps §4.2)."""
    luck = random.Random(seed)
    matcher = Matcher(index="beq-tree", space=space, e_max=luck.choice([1, 4, 32]))
    sought = Sought(Subscription(id="s", where="kind = 1 AND price < 60"))
    side = 100.0 if space == "planar" else 1.0
    known: list[str] = []
    found_any = False
    for step in range(120):
        if luck.random() < 0.4:
            expires = luck.choice([None, step + luck.randint(1, 60)])
            matcher.add_events([
                Event(f"e{step}", {"kind": luck.randint(0, 1), "price": luck.uniform(0, 100)},
                      location=Point(luck.uniform(0, side), luck.uniform(0, side)),
                      end=0, expires=expires)
            ])  # fmt: skip
            if expires is None:
                known.append(f"e{step}")
        if known and luck.random() < 0.1:
            matcher.remove_event(known.pop(luck.randrange(len(known))))
        x, y = luck.uniform(0, side), luck.uniform(0, side)
        for share in sorted(luck.uniform(0, 0.7) for _ in range(3)):
            radius = share * (side if space == "planar" else 111_000.0)
            circle = Circle(x, y, radius)
            spots = matcher.spots_within(sought, circle, step)
            found = sorted(matcher.event_ids(spots.numbers))
            fresh = matcher.match_subscription(sought.at(circle), now=step)
            assert found == fresh
            found_any |= bool(found)
    assert found_any


def test_a_search_that_grows_reads_each_leaf_once() -> None:
    luck = random.Random(5)
    events = [
        Event(f"e{i}", {"kind": 1}, location=Point(luck.uniform(0, 100), luck.uniform(0, 100)))
        for i in range(500)
    ]
    read = {}
    for on_demand in (True, False):
        matcher = Matcher(index="beq-tree", space="planar", e_max=8, on_demand=on_demand)
        matcher.add_events(events)
        sought = Sought(Subscription(id="s", where="kind = 1"))
        for radius in (10, 20, 40, 80, 160, 160):
            spots = matcher.spots_within(sought, Circle(50, 50, radius), 0)
        assert spots.numbers.size == 500
        read[on_demand] = int(sought.counters[1])
    assert read[True] == 500
    assert read[False] > 1000
