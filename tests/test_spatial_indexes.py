"""`beq-tree`, `quad-tree` and `r-star-tree` on bare stores, against a comparison in Python."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import shapely

from nearcast.clock import FOREVER
from nearcast.errors import MissingExtraError, ValidationError
from nearcast.index import registry
from nearcast.index.base import EventIndex, MatchReport, SubscriptionIndex, new_counters
from nearcast.index.beq_tree import BEQTree
from nearcast.index.clauses import ClauseStore
from nearcast.index.events import EventBatch, EventStore
from nearcast.index.rivals.quad_tree import QuadTree
from nearcast.index.rivals.r_star_tree import RStarTree
from nearcast.index.scan import Scan
from nearcast.kernels import quadtree, runs, sorted_lists

Predicates = list[tuple[int, float, float]]
Values = dict[int, float]
INF = math.inf
NAN = math.nan


@dataclass
class World:
    """Both stores and, beside them, what is in them in plain Python."""

    clauses: ClauseStore = field(default_factory=ClauseStore)
    events: EventStore = field(default_factory=EventStore)
    wanted: dict[int, Predicates] = field(default_factory=dict)
    live: dict[int, tuple[Values, int]] = field(default_factory=dict)

    def new_clause(self, predicates: Predicates) -> int:
        attr = [column for column, _, _ in predicates]
        low = [low for _, low, _ in predicates]
        high = [high for _, _, high in predicates]
        row = self.clauses.append(0, attr, low, high, None)
        self.wanted[row] = predicates
        return row

    def new_event(self, values: Values, expires: int | None = None) -> int:
        columns = sorted(values)
        row = self.events.append(0, columns, [values[c] for c in columns], [], expires)
        self.live[row] = (values, FOREVER if expires is None else expires)
        return row

    def drop_clause(self, row: int) -> None:
        self.clauses.release(row)
        del self.wanted[row]

    def drop_event(self, row: int) -> None:
        self.events.release(row)
        del self.live[row]

    def events_for(self, predicates: Predicates, now: int) -> list[int]:
        return sorted(
            row
            for row, (values, expires) in self.live.items()
            if now < expires and holds(predicates, values)
        )

    def clauses_for(self, values: Values) -> list[int]:
        return sorted(row for row, wanted in self.wanted.items() if holds(wanted, values))


def holds(predicates: Predicates, values: Values) -> bool:
    return all(low <= values.get(column, NAN) <= high for column, low, high in predicates)


def batch_of(events: list[Values], columns: int) -> EventBatch:
    runs_ = [sorted(e.items()) for e in events]
    flat = [pair for run in runs_ for pair in run]
    return EventBatch(
        start=np.cumsum([0] + [len(run) for run in runs_]).astype(np.int64),
        attr=np.array([c for c, _ in flat], np.int32),
        value=np.array([v for _, v in flat], np.float64),
        word_start=np.zeros(len(events) + 1, np.int64),
        word=np.empty(0, np.int32),
        columns=columns,
    )


def rows_of(*rows: int) -> np.ndarray:
    return np.array(rows, np.int32)


def found_events(index: EventIndex, world: World, row: int, now: int = 0) -> list[int]:
    found = index.match_clause(world.clauses.table, row, now, new_counters())
    assert found.dtype == np.int32
    return sorted(found.tolist())


def found_clauses(index: SubscriptionIndex, batch: EventBatch, at: int) -> list[int]:
    found = index.match_event(batch, at, new_counters())
    assert found.dtype == np.int32
    return sorted(found.tolist())


Factory = Callable[[World], Any]
EVENT_INDEXES: dict[str, Factory] = {
    "beq-tree": lambda w: BEQTree(w.clauses, w.events),
    "beq-tree, e_max 1": lambda w: BEQTree(w.clauses, w.events, e_max=1),
    "beq-tree, e_max 5": lambda w: BEQTree(w.clauses, w.events, e_max=5),
    "quad-tree": lambda w: QuadTree(w.clauses, w.events, capacity=4, box_capacity=4),
    "r-star-tree": lambda w: RStarTree(w.clauses, w.events, capacity=8),
}
CLAUSE_INDEXES: dict[str, Factory] = {
    "quad-tree": lambda w: QuadTree(w.clauses, w.events),
    "quad-tree, capacity 2": lambda w: QuadTree(w.clauses, w.events, box_capacity=2),
    "r-star-tree": lambda w: RStarTree(w.clauses, w.events, capacity=8),
}
event_index = pytest.mark.parametrize("make", EVENT_INDEXES.values(), ids=EVENT_INDEXES.keys())
clause_index = pytest.mark.parametrize("make", CLAUSE_INDEXES.values(), ids=CLAUSE_INDEXES.keys())


# --- random worlds --------------------------------------------------------------------------

COLUMNS = 9


def some_coordinate(rng: np.random.Generator) -> float:
    """Mostly on a small grid, so that borders and ties occur; sometimes far off or infinite."""
    kind = rng.integers(0, 20)
    if kind < 12:
        return float(rng.integers(-8, 9))
    if kind < 17:
        return float(rng.normal(0, 5))
    return float(rng.choice([1e3, -7e4, 1e9, -1e14, 1e16, 1e200, INF, -INF, 0.1, 1e-300]))


def some_event(rng: np.random.Generator) -> Values:
    columns = rng.choice(np.arange(2, COLUMNS), rng.integers(0, COLUMNS - 2), replace=False)
    values = {int(c): float(rng.choice([0.0, 1.0, 2.0, 2.5, NAN, INF, -0.0])) for c in columns}
    place = rng.integers(0, 12)
    if place > 0:
        values[0], values[1] = some_coordinate(rng), some_coordinate(rng)
    if place == 1:
        values[int(rng.integers(0, 2))] = NAN
    return values


def some_clause(rng: np.random.Generator) -> Predicates:
    predicates = []
    if rng.integers(0, 5) > 0:
        for column in (0, 1):
            a, b = sorted((some_coordinate(rng), some_coordinate(rng)))
            predicates.append((column, a, b))
    for column in rng.choice(np.arange(2, COLUMNS), rng.integers(0, 4), replace=False).tolist():
        low = float(rng.choice([-INF, 0.0, 1.0, 2.0]))
        predicates.append((column, low, float(rng.choice([low, max(low, 2.0), INF]))))
    return predicates


@event_index
@pytest.mark.parametrize("seed", range(2))
def test_events_come_move_expire_and_go(make: Factory, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = World()
    index = make(world)
    clauses = [world.new_clause(some_clause(rng)) for _ in range(25)]
    for step in range(48):
        action = rng.integers(0, 10)
        rows = list(world.live)
        if action < 4 or len(rows) < 20:
            count = int(rng.choice([1, 3, 100]))
            expires = [None if rng.integers(0, 3) else int(rng.integers(1, 100))] * count
            new = [world.new_event(some_event(rng), e) for e in expires]
            index.add_events(rows_of(*new))
        else:
            gone = rng.choice(rows, int(rng.integers(1, len(rows) // 2)), replace=False).tolist()
            index.remove_events(rows_of(*gone))
            for row in gone:
                world.drop_event(row)
            if action < 7:  # the freed rows serve again at once, elsewhere
                moved = [world.new_event(some_event(rng)) for _ in gone]
                assert set(moved) <= set(gone)
                index.add_events(rows_of(*moved))
        now = step * 2
        for row in rng.choice(clauses, 8).tolist():
            assert found_events(index, world, row, now) == world.events_for(world.wanted[row], now)
        index.check_invariants()
    index.remove_events(rows_of(*world.live))
    index.check_invariants()
    assert all(found_events(index, world, row) == [] for row in clauses)


@clause_index
@pytest.mark.parametrize("seed", range(2))
def test_clauses_come_change_and_go(make: Factory, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = World()
    index = make(world)
    events = [some_event(rng) for _ in range(40)]
    batch = batch_of(events, COLUMNS)
    for step in range(48):
        action = rng.integers(0, 10)
        rows = list(world.wanted)
        if action < 4 or len(rows) < 20:
            new = [world.new_clause(some_clause(rng)) for _ in range(int(rng.choice([1, 5, 90])))]
            index.add_clauses(rows_of(*new))
        else:
            gone = rng.choice(rows, int(rng.integers(1, len(rows) // 2)), replace=False).tolist()
            index.remove_clauses(rows_of(*gone))
            for row in gone:
                world.drop_clause(row)
            if action < 7:
                changed = [world.new_clause(some_clause(rng)) for _ in gone]
                assert set(changed) <= set(gone)
                index.add_clauses(rows_of(*changed))
        for at in rng.choice(len(events), 6).tolist():
            assert found_clauses(index, batch, at) == world.clauses_for(events[at])
        if step % 6 == 5:
            index.check_invariants()
    whole = index.match_events(batch, new_counters())
    assert bool((np.diff(whole[0]) >= 0).all())
    assert sorted(zip(whole[0].tolist(), whole[1].tolist(), strict=True)) == [
        (at, row) for at, event in enumerate(events) for row in world.clauses_for(event)
    ]
    index.remove_clauses(rows_of(*world.wanted))
    index.check_invariants()
    assert all(found_clauses(index, batch, at) == [] for at in range(len(events)))


# --- a workload of some size ----------------------------------------------------------------


def town(rng: np.random.Generator, n: int) -> list[Values]:
    """Events at hot spots, as in the papers."""
    spots = rng.random((40, 2)) * 100
    events = []
    for x, y in spots[rng.integers(0, 40, n)].tolist():
        columns = rng.choice(np.arange(2, 12), rng.integers(5, 10), replace=False).tolist()
        events.append({0: x, 1: y} | {c: float(rng.random()) for c in columns})
    return events


def town_clause(rng: np.random.Generator) -> Predicates:
    x, y = rng.random(2) * 100
    r = float(rng.uniform(1, 15))
    predicates = [(0, x - r, x + r), (1, y - r, y + r)]
    for column in rng.choice(np.arange(2, 12), 3, replace=False).tolist():
        low, high = np.sort(rng.random(2)).tolist()
        predicates.append((column, low, high))
    return predicates


@event_index
def test_one_by_one_and_in_bulk_agree_with_the_scan(make: Factory) -> None:
    rng = np.random.default_rng(7)
    world = World()
    rows = [world.new_event(values) for values in town(rng, 1500)]
    clauses = [world.new_clause(town_clause(rng)) for _ in range(30)]
    bulk, single, mixed = make(world), make(world), make(world)
    bulk.add_events(rows_of(*rows))
    for row in rows:
        single.add_events(rows_of(row))
    for part in (rows[:300], rows[300:310], rows[310:400], rows[400:]):
        mixed.add_events(rows_of(*part))
    scan = Scan(world.clauses, world.events)
    for row in clauses:
        expected = found_events(scan, world, row)
        for index in (bulk, single, mixed):
            assert found_events(index, world, row) == expected
    for index in (bulk, single, mixed):
        index.check_invariants()


@clause_index
def test_regions_in_bulk_agree_with_the_scan(make: Factory) -> None:
    rng = np.random.default_rng(8)
    world = World()
    rows = [world.new_clause(town_clause(rng)) for _ in range(1500)]
    events = town(rng, 40)
    batch = batch_of(events, 12)
    bulk, single = make(world), make(world)
    bulk.add_clauses(rows_of(*rows))
    for row in rows:
        single.add_clauses(rows_of(row))
    scan = Scan(world.clauses, world.events)
    for at in range(len(events)):
        expected = found_clauses(scan, batch, at)
        assert found_clauses(bulk, batch, at) == expected
        assert found_clauses(single, batch, at) == expected
    bulk.check_invariants()
    single.check_invariants()


# --- degenerate data ------------------------------------------------------------------------


@event_index
def test_all_events_at_one_place(make: Factory) -> None:
    world = World()
    index = make(world)
    rows = [world.new_event({0: 3.0, 1: 4.0, 2: float(i % 7)}) for i in range(300)]
    index.add_events(rows_of(*rows[:200]))
    for row in rows[200:]:
        index.add_events(rows_of(row))
    here = world.new_clause([(0, 3.0, 3.0), (1, 4.0, 4.0), (2, 3.0, 3.0)])
    beside = world.new_clause([(0, 3.0000001, 9.0), (1, 0.0, 9.0)])
    assert found_events(index, world, here) == world.events_for(world.wanted[here], 0)
    assert found_events(index, world, beside) == []
    near = world.new_event({0: math.nextafter(3.0, 4.0), 1: 4.0, 2: 3.0})
    index.add_events(rows_of(near))
    index.check_invariants()
    assert near not in found_events(index, world, here)
    index.remove_events(rows_of(*rows))
    index.check_invariants()
    everything = world.new_clause([])
    assert found_events(index, world, everything) == [near]


@clause_index
def test_all_regions_equal_or_covering_everything(make: Factory) -> None:
    world = World()
    index = make(world)
    rows = [world.new_clause([(0, 1.0, 2.0), (1, 1.0, 2.0)]) for _ in range(200)]
    rows += [world.new_clause([(0, -INF, INF), (1, -INF, INF)]) for _ in range(200)]
    rows += [world.new_clause([(0, 5.0, 5.0), (1, 5.0, 5.0)]) for _ in range(200)]
    index.add_clauses(rows_of(*rows[::2]))
    for row in rows[1::2]:
        index.add_clauses(rows_of(row))
    places = [(1.0, 2.0), (1.5, 1.5), (2.1, 1.0), (5.0, 5.0), (-1e18, 3.0), (INF, -INF)]
    events = [{0: x, 1: y} for x, y in places] + [{}, {0: 1.0, 1: NAN}]
    batch = batch_of(events, 2)
    for at, event in enumerate(events):
        assert found_clauses(index, batch, at) == world.clauses_for(event)
    index.check_invariants()
    index.remove_clauses(rows_of(*rows))
    index.check_invariants()


@event_index
def test_events_without_a_place_and_clauses_without_a_predicate(make: Factory) -> None:
    world = World()
    index = make(world)
    rows = [world.new_event({2: float(i)}) for i in range(30)]
    rows += [world.new_event({}), world.new_event({2: NAN}), world.new_event({0: 1.0, 1: 1.0})]
    index.add_events(rows_of(*rows))
    anything = world.new_clause([])
    anywhere = world.new_clause([(0, -INF, INF), (1, -INF, INF)])
    number = world.new_clause([(2, 5.0, INF)])
    for row in (anything, anywhere, number):
        assert found_events(index, world, row) == world.events_for(world.wanted[row], 0)
    assert len(found_events(index, world, anything)) == 33
    assert len(found_events(index, world, anywhere)) == 1
    index.check_invariants()


@event_index
def test_ten_thousand_columns(make: Factory) -> None:
    world = World()
    index = make(world)
    wide = {c: float(c % 13) for c in range(10_000)}
    rows = [world.new_event(wide), world.new_event({0: 0.0, 1: 1.0, 9_999: 2.0})]
    rows += [world.new_event({0: 0.0, 1: 1.0, 2 + 100 * i: 1.0}) for i in range(90)]
    index.add_events(rows_of(*rows[:2]))
    index.add_events(rows_of(*rows[2:]))
    last = world.new_clause([(0, 0.0, 0.0), (1, 1.0, 1.0), (9_999, 2.0, 2.0)])
    some = world.new_clause([(202, 0.0, 7.0)])
    many = world.new_clause([(c, float(c % 13), float(c % 13)) for c in range(10_000)])
    for row in (last, some, many):
        assert found_events(index, world, row) == world.events_for(world.wanted[row], 0)
    index.check_invariants()


@event_index
def test_the_root_follows_the_data(make: Factory) -> None:
    world = World()
    index = make(world)
    rows = []
    for i in range(120):
        r = 1.3**i
        rows.append(world.new_event({0: r * math.cos(i), 1: r * math.sin(i)}))
        index.add_events(rows_of(rows[-1]))
    for x, y, r in [(0, 0, 1.0), (0, 0, 1e6), (1e9, -1e9, 2e9), (0, 0, 1e300)]:
        row = world.new_clause([(0, x - r, x + r), (1, y - r, y + r)])
        assert found_events(index, world, row) == world.events_for(world.wanted[row], 0)
    index.check_invariants()
    index.remove_events(rows_of(*rows[10:]))
    index.check_invariants()


@clause_index
def test_regions_that_drift_away(make: Factory) -> None:
    world = World()
    index = make(world)
    for i in range(400):
        x = 10.0 * i
        index.add_clauses(rows_of(world.new_clause([(0, x, x + 15), (1, -x, 15 - x)])))
    events = [{0: 10.0 * i + 5, 1: 5 - 10.0 * i} for i in range(-2, 402, 7)]
    batch = batch_of(events, 2)
    for at, event in enumerate(events):
        assert found_clauses(index, batch, at) == world.clauses_for(event)
    index.check_invariants()


@clause_index
def test_the_border_belongs_to_the_region_to_the_last_bit(make: Factory) -> None:
    rng = np.random.default_rng(3)
    world = World()
    index = make(world)
    events = []
    for _ in range(60):
        x, y = (rng.random(2) * 10.0 ** rng.integers(-3, 9)).tolist()
        world.new_clause([(0, x, 2 * x), (1, y, 2 * y)])
        for dx in (math.nextafter(x, -INF), x, 2 * x, math.nextafter(2 * x, INF)):
            events.append({0: dx, 1: y})
    index.add_clauses(rows_of(*world.wanted))
    batch = batch_of(events, 2)
    for at, event in enumerate(events):
        assert found_clauses(index, batch, at) == world.clauses_for(event)


@event_index
def test_an_expired_event_is_never_returned(make: Factory) -> None:
    world = World()
    index = make(world)
    rows = [world.new_event({0: 0.0, 1: 0.0, 2: 1.0}, expires=10 + i) for i in range(20)]
    index.add_events(rows_of(*rows))
    clauses = [world.new_clause([]), world.new_clause([(0, 0.0, 1.0), (1, 0.0, 0.0)])]
    for row in clauses:
        for now in (0, 10, 19, 28, 29, 100, 15):
            assert found_events(index, world, row, now) == world.events_for([], now)
    index.remove_events(rows_of(*rows))
    index.remove_events(rows_of(*rows))
    assert found_events(index, world, clauses[0]) == []


@event_index
def test_an_empty_event_index_answers(make: Factory) -> None:
    world = World()
    index = make(world)
    row = world.new_clause([(0, 0.0, 1.0), (1, 0.0, 1.0), (5, 1.0, 2.0)])
    assert found_events(index, world, row) == []
    index.add_events(rows_of())
    index.remove_events(rows_of(3))
    index.check_invariants()
    assert found_events(index, world, row) == []


@clause_index
def test_an_empty_clause_index_answers(make: Factory) -> None:
    world = World()
    index = make(world)
    batch = batch_of([{0: 1.0, 1: 2.0}, {}], 2)
    assert found_clauses(index, batch, 0) == found_clauses(index, batch, 1) == []
    assert index.match_events(batch_of([], 0), new_counters())[0].size == 0
    row = world.new_clause([])
    index.add_clauses(rows_of(row))
    assert found_clauses(index, batch_of([{}], 0), 0) == [row]
    index.check_invariants()


# --- contract -------------------------------------------------------------------------------


def test_they_are_registered() -> None:
    assert registry.entry("beq-tree").load() is BEQTree
    assert registry.entry("quad-tree").load() is QuadTree
    assert registry.entry("r-star-tree").load() is RStarTree
    assert registry.entry("beq-tree").subscriptions is None
    for name in ("beq-tree", "quad-tree", "r-star-tree"):
        side = registry.require(name, events=True).events
        assert side is not None
        assert (side.intervals, side.words, side.updates, side.exact) == (True, False, True, True)
    assert {"quad-tree", "r-star-tree"} <= set(registry.names(subscriptions=True))


def test_they_keep_the_contract() -> None:
    world = World()
    assert isinstance(BEQTree(world.clauses, world.events), EventIndex)
    for make in (QuadTree, RStarTree):
        index = make(world.clauses, world.events)
        assert isinstance(index, EventIndex)
        assert isinstance(index, SubscriptionIndex)


@event_index
def test_the_report_counts_and_memory_grows(make: Factory) -> None:
    rng = np.random.default_rng(1)
    world = World()
    index = make(world)
    empty = index.memory_bytes()
    index.add_events(rows_of(*[world.new_event(v) for v in town(rng, 2000)]))
    assert index.memory_bytes() > empty
    row = world.new_clause([(0, 0.0, 50.0), (1, 0.0, 100.0), (3, 0.0, 0.5)])
    counters = new_counters()
    found = index.match_clause(world.clauses.table, row, 0, counters)
    report = MatchReport.of(counters)
    assert report.matches == found.size > 0
    assert report.nodes > 0
    assert found.size <= report.candidates <= 2000


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (BEQTree, {"e_max": 0}),
        (QuadTree, {"capacity": 0}),
        (QuadTree, {"box_capacity": -1}),
        (RStarTree, {"capacity": 2}),
    ],
)
def test_a_leaf_without_room_is_refused(make: Any, options: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        make(ClauseStore(), EventStore(), **options)


def test_the_r_star_tree_names_the_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rtree", None)
    with pytest.raises(MissingExtraError, match=r"nearcast\[bench\]"):
        RStarTree(ClauseStore(), EventStore())


# --- what the BEQ-Tree need not look at -------------------------------------------------------


def square(x: float, y: float, half: float) -> shapely.Polygon:
    return shapely.box(x - half, y - half, x + half, y + half)


def region_of(x0: float, y0: float, x1: float, y1: float) -> Predicates:
    return [(0, x0, x1), (1, y0, y1)]


def report_of(index: BEQTree, world: World, predicates: Predicates) -> MatchReport:
    row, counters = world.new_clause(predicates), new_counters()
    index.match_clause(world.clauses.table, row, 0, counters)
    return MatchReport.of(counters)


def test_only_events_as_far_from_the_centre_as_the_region_are_compared() -> None:
    """Algorithm 2, lines 11 to 17: the distance list is read from d_min to d_max."""
    rng = np.random.default_rng(4)
    world = World()
    index = BEQTree(world.clauses, world.events)
    places = rng.uniform(0, 64, (400, 2)).tolist()
    index.add_events(rows_of(*[world.new_event({0: x, 1: y}) for x, y in places]))
    x, y, half = index._tree.cells.geo[quadtree.ROOT, :3].tolist()
    centre, cell = shapely.Point(x, y), square(x, y, half)
    distances = [centre.distance(shapely.Point(place)) for place in places]
    spared = 0
    for _ in range(60):
        ends = np.sort(rng.uniform(-1.5 * half, 1.5 * half, (2, 2)), axis=1)
        (x0, x1), (y0, y1) = (ends + np.array([[x], [y]])).tolist()
        region = shapely.box(x0, y0, x1, y1) & cell
        if region.area == 0:
            continue
        nearest = centre.distance(region)
        farthest = max(centre.distance(shapely.Point(c)) for c in region.exterior.coords)
        wanted = sum(nearest <= d <= farthest for d in distances)
        assert report_of(index, world, region_of(x0, y0, x1, y1)).candidates == wanted
        spared += len(places) - wanted
    assert spared > 1000


def test_the_distances_of_a_leaf_by_hand() -> None:
    """Nine events on a diagonal; a box that is 5 to 10 units from the centre of their cell."""
    world = World()
    index = BEQTree(world.clauses, world.events)
    index.add_events(rows_of(world.new_event({0: 0.0, 1: 0.0})))
    index.add_events(rows_of(world.new_event({0: 100.0, 1: 100.0})))
    x, y, half = index._tree.cells.geo[quadtree.ROOT, :3].tolist()
    assert half > 20
    index.add_events(
        rows_of(*[world.new_event({0: x + 3 * k, 1: y - 4 * k}) for k in range(-4, 5) if k])
    )
    # 5 |k| from the centre: k = ±1 and ±2 are between the nearest point (3, 4), which is 5 away,
    # and the farthest corner (6, 8), which is 10 away; only two of the four are in no other box.
    report = report_of(index, world, region_of(x + 3, y + 4, x + 6, y + 8))
    assert (report.candidates, report.matches) == (4, 0)
    report = report_of(index, world, region_of(x - 6, y + 4, x - 3, y + 8))
    assert (report.candidates, report.matches) == (4, 2)


def test_only_cells_that_meet_the_region_are_visited() -> None:
    rng = np.random.default_rng(5)
    world = World()
    index = BEQTree(world.clauses, world.events, e_max=4)
    places = rng.uniform(0, 64, (300, 2)).tolist()
    index.add_events(rows_of(*[world.new_event({0: x, 1: y}) for x, y in places]))
    cells = index._tree.cells

    def visited(node: int, cell: tuple[float, float, float], region: shapely.Polygon) -> int:
        if not square(*cell).intersects(region):
            return 0
        child, (x, y, half) = int(cells.node[node, quadtree.CHILD]), cell
        quarters = [
            (x + i * half / 2, y + j * half / 2, half / 2) for j in (-1, 1) for i in (-1, 1)
        ]
        return 1 + sum(
            visited(child + i, quarter, region)
            for i, quarter in enumerate(quarters)
            if child != quadtree.LEAF
        )

    root = tuple(cells.geo[quadtree.ROOT, :3].tolist())
    for _ in range(40):
        (x0, x1), (y0, y1) = np.sort(rng.uniform(1, 63, (2, 2)), axis=1).tolist()
        wanted = visited(quadtree.ROOT, root, shapely.box(x0, y0, x1, y1))
        beyond = 1  # beside the tree there is a list of what is too far out for it
        assert report_of(index, world, region_of(x0, y0, x1, y1)).nodes == wanted + beyond


def test_a_leaf_that_lacks_an_attribute_or_a_value_is_passed_by() -> None:
    """Algorithm 2, lines 2 to 4, and a predicate whose range in the leaf is empty."""
    world = World()
    index = BEQTree(world.clauses, world.events)
    rows = [world.new_event({0: float(i), 1: 0.0, 2: float(i)}) for i in range(20)]
    index.add_events(rows_of(*rows))
    everywhere = region_of(-INF, -INF, INF, INF)
    assert report_of(index, world, everywhere).candidates == 20
    assert report_of(index, world, [*everywhere, (2, 5.0, 6.0)]).matches == 2
    assert report_of(index, world, [*everywhere, (3, -INF, INF)]).candidates == 0
    assert report_of(index, world, [*everywhere, (2, 5.5, 5.6)]).candidates == 0


# --- inside ---------------------------------------------------------------------------------


def test_churn_does_not_leak() -> None:
    rng = np.random.default_rng(5)
    world = World()
    index = BEQTree(world.clauses, world.events, e_max=16)
    events = town(rng, 600 + 12 * 300)
    index.add_events(rows_of(*[world.new_event(v) for v in events[:600]]))
    sizes = []
    for i in range(600, len(events), 300):
        gone = rng.choice(list(world.live), 300, replace=False).tolist()
        index.remove_events(rows_of(*gone))
        for row in gone:
            world.drop_event(row)
        index.add_events(rows_of(*[world.new_event(v) for v in events[i : i + 300]]))
        sizes.append(index.memory_bytes())
    assert sizes[-1] <= 1.2 * sizes[0]
    index.check_invariants()


def test_an_emptied_tree_is_one_leaf_again() -> None:
    rng = np.random.default_rng(6)
    world = World()
    index = BEQTree(world.clauses, world.events, e_max=4)
    rows = [world.new_event(v) for v in town(rng, 500)]
    index.add_events(rows_of(*rows))
    cells = index._tree.cells
    assert int(cells.node[quadtree.ROOT, quadtree.CHILD]) != quadtree.LEAF
    index.remove_events(rows_of(*rows))
    assert int(cells.node[quadtree.ROOT, quadtree.CHILD]) == quadtree.LEAF
    index.check_invariants()


@pytest.mark.parametrize("damage", ["list", "distance", "slot", "row", "directory"])
def test_the_check_notices_damage(damage: str) -> None:
    rng = np.random.default_rng(9)
    world = World()
    index = BEQTree(world.clauses, world.events, e_max=8)
    rows = [world.new_event(v) for v in town(rng, 100)]
    index.add_events(rows_of(*rows))
    index.check_invariants()
    _, cells, lists = index._tree
    leaf = int(cells.where[rows[0], quadtree.IN_LEAF])
    name = int(lists.holder[leaf, sorted_lists.DIR])
    if damage == "list":
        lists.value[int(lists.name[name, sorted_lists.LIST])] = 17.0
    elif damage == "distance":
        lists.slot[int(lists.holder[leaf, sorted_lists.PLAIN])] += 1
    elif damage == "slot":
        cells.where[rows[0], quadtree.IN_SLOT] += 1
    elif damage == "row":
        cells.slot_at[int(cells.node[leaf, quadtree.RUN]), quadtree.X] += 1000.0
    else:
        lists.name[name, sorted_lists.NAME] = 11
    with pytest.raises(AssertionError):
        index.check_invariants()


def test_the_check_of_regions_notices_damage() -> None:
    rng = np.random.default_rng(9)
    world = World()
    index = QuadTree(world.clauses, world.events, box_capacity=8)
    index.add_clauses(rows_of(*[world.new_clause(town_clause(rng)) for _ in range(100)]))
    index.check_invariants()
    boxes = index._boxes._boxes
    piece = int(boxes.node[boxes.node[:, 6] > 0][0, 5])
    boxes.part_box[piece, 0] += 1
    with pytest.raises(AssertionError):
        index.check_invariants()


def test_the_check_of_the_r_star_tree_notices_damage() -> None:
    rng = np.random.default_rng(9)
    world = World()
    index = RStarTree(world.clauses, world.events)
    index.add_clauses(rows_of(*[world.new_clause(town_clause(rng)) for _ in range(100)]))
    index.check_invariants()
    index._regions._tree.insert(5, (0.0, 0.0, 1.0, 1.0))
    with pytest.raises(AssertionError):
        index.check_invariants()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 17, 100, 1000])
def test_entries_sort_stably(size: int) -> None:
    rng = np.random.default_rng(size)
    value = rng.integers(0, max(1, size // 3) + 1, size).astype(np.float64)
    slot = np.arange(size, dtype=np.int32)
    expected = sorted(zip(value.tolist(), slot.tolist(), strict=True))
    sorted_lists.sort_entries(value, slot, np.empty(size), np.empty(size, np.int32))
    assert list(zip(value.tolist(), slot.tolist(), strict=True)) == expected


def test_runs_are_used_again() -> None:
    heap, link = runs.new_heap(), np.zeros(1000, np.int32)
    assert [int(runs.capacity(c)) for c in range(-1, 6)] == [0, 4, 6, 8, 12, 16, 24]
    assert [int(runs.class_for(n)) for n in (0, 1, 4, 5, 7, 9, 13)] == [-1, 0, 0, 1, 2, 3, 4]
    first = runs.take(heap, link, 2)
    second = runs.take(heap, link, 2)
    assert (first, second) == (0, 8)
    runs.give(heap, link, first, 2)
    assert runs.free_items(heap, link) == 8
    assert runs.take(heap, link, 3) == 16
    assert runs.take(heap, link, 2) == first
    assert runs.free_items(heap, link) == 0
