"""MO-Tree: the paper's numbers by hand, and every answer against brute force."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from nearcast import Box, Event, Matcher, Point, Subscription
from nearcast.errors import ValidationError
from nearcast.index import registry
from nearcast.index.base import EventIndex, SubscriptionIndex, new_counters
from nearcast.index.clauses import ClauseBatch, ClauseStore
from nearcast.index.events import EventBatch, EventStore
from nearcast.index.mo_tree import MOTree, kernels
from nearcast.index.mo_tree.attributes import Sample, best_attributes, moved
from nearcast.index.mo_tree.cells import bucket_number, overlapping_cells
from nearcast.index.mo_tree.optimiser import (
    Densities,
    cell_counts,
    cell_widths,
    coefficients,
    fewest_stabs,
    fitted_widths,
    most_stabs,
)
from nearcast.index.mo_tree.partitions import levels_of, reached
from nearcast.index.scan import Scan

INF = np.inf
NAN = np.nan

# -- the paper's numbers ---------------------------------------------------------


def test_widths_of_the_example_are_exact():
    assert cell_widths(4, 6) == [Fraction(3, 8), Fraction(11, 18), Fraction(5, 6), Fraction(1)]
    assert coefficients(4) == [Fraction(16, 3), Fraction(9, 2), Fraction(4)]


def test_no_bound_gives_the_widest_cells():
    widest = [Fraction(7, 16), Fraction(2, 3), Fraction(7, 8), Fraction(1)]
    assert cell_widths(4) == cell_widths(4, 6.5) == cell_widths(4, 100) == widest
    assert sum(c * w for c, w in zip(cell_counts(4), widest, strict=True)) == Fraction(13, 2)
    assert most_stabs(4) == Fraction(13, 2)


@pytest.mark.parametrize("levels", range(1, 11))
def test_widths_keep_their_limits_and_the_bound(levels):
    counts = cell_counts(levels)
    low, high = fewest_stabs(levels), most_stabs(levels)
    for step in range(11):
        eta = low + (high - low) * step / 10
        widths = cell_widths(levels, eta)
        assert sum(c * w for c, w in zip(counts, widths, strict=True)) == eta
        for i, (c, w) in enumerate(zip(counts, widths, strict=True), start=1):
            t = Fraction(i, levels)
            assert t <= w <= (t * (c - 1) + 1) / c
        assert widths[-1] == 1


@pytest.mark.parametrize("eta", [5.0, 5.2, 5.7, 6.3])
def test_no_other_widths_within_the_bound_catch_more(eta):
    counts, a, best = cell_counts(4), coefficients(4), cell_widths(4, eta)
    widest = cell_widths(4)

    def lost(widths):
        return sum(k * (w - m) ** 2 for k, w, m in zip(a, widths, widest, strict=False))

    for i in range(3):
        for j in range(3):
            shifted = list(best)
            shifted[i] += Fraction(1, 1000) / counts[i]
            shifted[j] -= Fraction(1, 1000) / counts[j]
            legal = all(
                Fraction(n, 4) <= w <= m
                for n, w, m in zip((1, 2, 3), shifted, widest, strict=False)
            )
            if i != j and legal:
                assert lost(shifted) > lost(best)


def test_a_bound_that_cannot_be_kept_is_refused():
    assert fewest_stabs(4) == 5
    with pytest.raises(ValidationError, match=r"eta: 4\.9 .* at least 5"):
        cell_widths(4, 4.9)


def _held(levels, widths, densities):
    """(γ, ρ) by definition: every interval against every cell, every value in every cell."""
    caught = stabbed = 0
    for i, width in enumerate(widths, start=1):
        count = levels - i + 1
        step = (1 - width) / (count - 1) if count > 1 else 0.0
        cells = [(step * j, step * j + width + 1e-12) for j in range(count)]
        for low, high in zip(densities.low, densities.high, strict=True):
            meant = (i - 1) / levels < high - low <= i / levels or (i == 1 and low == high)
            caught += meant and any(a <= low and high <= b for a, b in cells)
        stabbed += sum(a - 1e-12 <= v <= b for v in densities.value for a, b in cells)
    return caught / densities.low.size, stabbed / densities.value.size


def _skewed(seed, n=300):
    """Narrow intervals near 0, wide ones elsewhere; values near 0."""
    rng = np.random.default_rng(seed)
    low = rng.beta(1, 4, n)
    high = low + (1 - low) * rng.beta(1, 3, n)
    return Densities(low, high, rng.beta(1, 5, n))


def test_sums_over_a_sample_are_those_of_the_definition():
    for seed in range(3):
        some = _skewed(seed)
        for widths in (cell_widths(4, 6), cell_widths(4), [0.3, 0.6, 0.8, 1]):
            widths = [float(w) for w in widths]
            gamma = sum(some.caught(4, i, w) for i, w in enumerate(widths, 1))
            rho = sum(some.stabbed(5 - i, w) for i, w in enumerate(widths, 1))
            assert (gamma, rho) == pytest.approx(_held(4, widths, some))


@pytest.mark.parametrize("eta", [3.4, 3.8, 4.2])
def test_measured_widths_are_the_best_within_the_bound(eta):
    for seed in range(3):
        some = _skewed(seed)
        widths = fitted_widths(3, eta, some)
        gamma, rho = _held(3, widths, some)
        tried = [
            (_held(3, (a, b, 1.0), some), (a, b))
            for a in np.linspace(1 / 3, 5 / 9, 12)
            for b in np.linspace(2 / 3, 5 / 6, 12)
        ]
        within = [g for (g, r), _ in tried if r <= eta]
        if not within:
            assert rho <= min(r for (_, r), _ in tried) + 0.02
            continue
        assert rho <= eta + 1e-6
        assert gamma >= max(within) - 0.01
        assert 1 / 3 <= widths[0] <= 5 / 9
        assert 2 / 3 <= widths[1] <= 5 / 6
        assert widths[2] == 1


def test_uniform_densities_are_the_special_case():
    rng = np.random.default_rng(0)
    ends = np.sort(rng.random((4000, 2)), axis=1)
    some = Densities(ends[:, 0], ends[:, 1], rng.random(4000))
    widths = fitted_widths(4, 6, some)
    ours, exact = _held(4, widths, some), _held(4, [float(w) for w in cell_widths(4, 6)], some)
    assert ours[1] <= 6 + 1e-6
    assert ours[0] >= exact[0] - 0.005
    assert sum(c * w for c, w in zip(cell_counts(4), widths, strict=True)) == pytest.approx(6, 0.02)


def test_a_bound_is_kept_for_the_values_that_come():
    """Values in the middle stab more cells than uniform ones: uniform widths break the bound."""
    low = np.linspace(0, 0.7, 200)
    uniform = [float(w) for w in cell_widths(4, 6)]
    middle = Densities(low, low + 0.2, np.linspace(0.2, 0.8, 50))
    assert _held(4, fitted_widths(4, 6, middle), middle)[1] <= 6 < _held(4, uniform, middle)[1]
    aside = Densities(low, low + 0.2, np.linspace(0, 0.3, 50))
    assert _held(4, fitted_widths(4, 6, aside), aside)[0] == 1 > _held(4, uniform, aside)[0]


def test_selective_attributes_get_more_cells():
    rng = np.random.default_rng(1)
    low = rng.random(500) * 0.98
    narrow = Densities(low, low + 0.02, np.empty(0))
    wide = Densities(low * 0.05, 0.9 + 0.1 * low, np.empty(0))
    found = levels_of([(narrow, 1.0), (wide, 1.0), (narrow, 0.2), None], 4, 10)
    levels = [each for each, _ in found]
    assert levels[0] >= levels[2] > 4 > levels[1] == levels[3] == 1
    assert np.prod([n * (n + 1) // 2 for n in levels]) <= 10**4
    assert np.prod([d + 1 for _, d in found]) <= 11**4 * 2**2  # uncut layers have a null cell
    assert reached(8, narrow, 1.0) < reached(4, narrow, 1.0) < reached(1, narrow, 1.0) == 1.0


def test_layers_of_one_tree_have_cells_of_their_own():
    rng = np.random.default_rng(2)
    world = World(columns=5, height=3, cells_by="selectivity")
    world.subscribe(*[
        {0: (x, x + 1), 1: (y, y + 1), 2: (z, z + 0.9)}
        for x, y, z in zip(rng.random(300) * 99, rng.random(300) * 99, rng.random(300) / 10,
                           strict=True)
    ])  # fmt: skip
    sizes = {a.column: p.cells.size for a, p in
             zip(world.tree.attributes, world.tree.partitions, strict=True)}  # fmt: skip
    assert sizes[0] > sizes[2]
    events = [{0: rng.random() * 100, 1: rng.random() * 100, 2: rng.random()} for _ in range(50)]
    world.publish(*events)
    world.check([*events, {}], [{0: (10, 90), 1: (0, 60)}, {}])
    assert "digraph" in world.tree.to_dot()


def test_fixed_attributes_are_cut_by_what_is_measured():
    rng = np.random.default_rng(3)
    fixed = [(2, 0.0, 1.0), (3, 0.0, 1.0)]
    world = World(columns=4, attributes=fixed, eta=5.5, densities="measured")
    before = [p.cells.high.tolist() for p in world.tree.partitions]
    for _ in range(100):
        low = rng.beta(1, 6, 2)
        world.subscribe({2: (low[0], low[0] + 0.2 * (1 - low[0])), 3: (low[1], 1.0)})
        world.publish({2: rng.beta(1, 9), 3: rng.random()})
    assert [(a.column, a.low, a.high) for a in world.tree.attributes] == fixed
    assert [p.cells.high.tolist() for p in world.tree.partitions] != before
    world.check([{2: 0.1, 3: 0.5}, {3: 1.0}, {}], [{2: (0, 0.1)}, {}])


def test_attributes_by_name():
    clause = Subscription(id="s1", where="price < 10 AND size >= 3", region=Box(0, 0, 4, 4))
    x = Matcher().schema.columns[0][0]
    for given, names in (
        ([("@x", 0, 9), {"name": "price", "low": 0, "high": 100}, ("size", 0, 9)],
         [x, "price", "size"]),
        ((("price", 0.0, 100.0),), ["price"]),
    ):  # fmt: skip
        matcher = Matcher("mo-tree", "planar", attributes=given)
        matcher.add_subscriptions([clause])
        indexed = [matcher.schema.columns[a.column][0] for a in matcher.index.attributes]
        assert indexed == names
        event = Event(id="e1", attributes={"price": 5, "size": 4}, location=Point(1, 1))
        assert matcher.match_event(event) == ["s1"]
    for bad in (("price", 1, 0), ("price",), {"name": "price"}, ("price", "a", "b"), "price"):
        with pytest.raises(ValidationError, match="attributes"):
            Matcher("mo-tree", attributes=[bad])


FIG_2 = overlapping_cells([7, 3, 1], [Fraction(1, 4), Fraction(1, 2), Fraction(1)])


def _ends(cells):
    return np.column_stack([cells.low, cells.high])


def _interval_cell(low, high):
    """The cell of Fig. 2 by the paper's count, from 1."""
    return int(kernels.interval_cell(_ends(FIG_2), FIG_2.level, low, high)) + 1


def _value_cell(value):
    return int(kernels.disjoint_cell(value, 8)) + 1


def test_fig_2_cells():
    assert FIG_2.size == 11
    assert [c + 1 for c in FIG_2.stabbed(0.3)] == [2, 3, 8, 9, 11]
    assert list(range(_value_cell(0.7), _value_cell(0.9) + 1)) == [6, 7, 8]
    assert _value_cell(1.0) == 8  # not a ninth cell: that is the null cell
    assert round(1 - 5 / 11, 3) == 0.545


def test_closed_cells_are_stabbed_by_their_borders():
    assert [c + 1 for c in FIG_2.stabbed(0.5)] == [3, 4, 5, 8, 9, 10, 11]
    assert round(1 - len(FIG_2.stabbed(0.3)) ** 2 / FIG_2.size**2, 3) == 0.793


TOP, NULL = 11, 9


@pytest.mark.parametrize(
    ("first", "second", "bucket"),
    [
        ((0.2, 0.3), (0.5, 0.8), 21),  # S1; the paper prints 20
        ((0.3, 0.7), None, 99),  # S2
        (None, None, 121),  # S3
    ],
)
def test_table_2_subscriptions(first, second, bucket):
    cells = [TOP if p is None else _interval_cell(*p) for p in (first, second)]
    assert bucket_number([c - 1 for c in cells], TOP) + 1 == bucket


@pytest.mark.parametrize(
    ("first", "second", "bucket"),
    [
        (0.3, 0.8, 25),  # E1; the paper prints 21
        (0.4, None, 36),  # E2
        (None, None, 81),  # E3
    ],
)
def test_table_2_events(first, second, bucket):
    cells = [NULL if v is None else _value_cell(v) for v in (first, second)]
    assert bucket_number([c - 1 for c in cells], NULL) + 1 == bucket


def test_an_interval_goes_to_the_smallest_cell_and_there_to_the_nearest():
    rng = np.random.default_rng(0)
    cells = overlapping_cells(cell_counts(4), cell_widths(4, 6))
    ends = _ends(cells)
    for _ in range(500):
        a, b = np.sort(rng.random(2))
        got = int(kernels.interval_cell(ends, cells.level, a, b))
        holding = np.flatnonzero((cells.low <= a) & (b <= cells.high))
        level_of = np.searchsorted(cells.level, holding, side="right")
        lowest = holding[level_of == level_of.min()]
        off = np.abs((cells.low + cells.high)[lowest] - (a + b))
        assert got in lowest
        assert off[lowest == got][0] == off.min()


def test_cells_cover_the_domain():
    for levels in range(1, 11):
        cells = overlapping_cells(cell_counts(levels), cell_widths(levels))
        for start, stop in zip(cells.level[:-1], cells.level[1:], strict=True):
            assert cells.low[start] == 0.0
            assert cells.high[stop - 1] == 1.0
            assert (cells.low[start + 1 : stop] <= cells.high[start : stop - 1]).all()


# -- brute force -----------------------------------------------------------------


class World:
    """Stores, a tree, and the same clauses and events as plain Python."""

    def __init__(self, columns=8, **options):
        self.columns = columns
        self.clauses = ClauseStore()
        self.events = EventStore()
        self.tree = MOTree(self.clauses, self.events, **options)
        self.wants = {}
        self.live = {}

    def subscribe(self, *clauses):
        """Add clauses, each a mapping of column to (low, high)."""
        rows = []
        for clause in clauses:
            low = [p[0] for p in clause.values()]
            high = [p[1] for p in clause.values()]
            row = self.clauses.append(0, list(clause), low, high, None)
            self.wants[row] = clause
            rows.append(row)
        self.tree.add_clauses(np.array(rows, np.int32))
        return rows

    def unsubscribe(self, *rows):
        self.tree.remove_clauses(np.array(rows, np.int32))
        for row in rows:
            self.clauses.release(row)
            del self.wants[row]

    def rewrite(self, row, clause):
        """New intervals for the same columns of one clause, in place."""
        t = self.clauses.table
        for k in range(int(t.start[row]), int(t.start[row]) + int(t.count[row])):
            t.low[k], t.high[k] = clause[int(t.attr[k])]
        self.wants[row] = clause
        self.tree.update_clauses(np.array([row], np.int32))

    def publish(self, *events, expires=None):
        """Add events, each a mapping of column to value."""
        rows = []
        for event in events:
            columns = sorted(event)
            values = [event[c] for c in columns]
            row = self.events.append(0, columns, values, [], expires)
            self.live[row] = (event, expires)
            rows.append(row)
        self.tree.add_events(np.array(rows, np.int32))
        return rows

    def retract(self, *rows):
        self.tree.remove_events(np.array(rows, np.int32))
        for row in rows:
            self.events.release(row)
            del self.live[row]

    def wanted_by(self, event):
        return [row for row, clause in self.wants.items() if _matches(clause, event)]

    def alive_for(self, clause, now):
        return [
            row
            for row, (event, expires) in self.live.items()
            if (expires is None or now < expires) and _matches(clause, event)
        ]

    def check(self, events, clauses=(), now=0):
        """The tree's answers equal brute force, one by one and as a batch."""
        batch = _batch(events, self.columns)
        expected = [sorted(self.wanted_by(event)) for event in events]
        for at, wanted in enumerate(expected):
            assert sorted(self.tree.match_event(batch, at, new_counters()).tolist()) == wanted
        numbers, rows = self.tree.match_events(batch, new_counters())
        assert (np.diff(numbers) >= 0).all()
        for at, wanted in enumerate(expected):
            assert sorted(rows[numbers == at].tolist()) == wanted
        for clause in clauses:
            other = ClauseStore()
            low = [p[0] for p in clause.values()]
            high = [p[1] for p in clause.values()]
            other.append(0, list(clause), low, high, None)
            found = self.tree.match_clause(other.table, 0, now, new_counters())
            assert sorted(found.tolist()) == sorted(self.alive_for(clause, now))
        self.tree.check_invariants()


def _matches(clause, event):
    return all(low <= event.get(column, NAN) <= high for column, (low, high) in clause.items())


def _batch(events, columns):
    start = np.cumsum([0] + [len(e) for e in events], dtype=np.int64)
    attr = np.array([c for e in events for c in sorted(e)], np.int32)
    value = np.array([e[c] for e in events for c in sorted(e)], np.float64)
    none = np.zeros(len(events) + 1, np.int64)
    return EventBatch(start, attr, value, none, np.empty(0, np.int32), columns)


def _clause(rng, columns, span=100.0):
    clause: dict[int, tuple[float, float]] = {}
    if rng.random() < 0.7:
        x, y = rng.random(2) * span
        r = rng.uniform(1, 10)
        clause |= {0: (x - r, x + r), 1: (y - r, y + r)}
    for column in rng.choice(np.arange(2, columns), rng.integers(0, columns - 2), replace=False):
        low, high = np.sort(np.round(rng.random(2), 2))
        kind = rng.integers(0, 8)
        if kind == 0:
            low = -INF
        elif kind == 1:
            high = INF
        elif kind == 2:
            high = low
        clause[int(column)] = (float(low), float(high))
    return clause


def _event(rng, columns, span=100.0):
    event: dict[int, float] = {}
    if rng.random() < 0.9:
        event |= {0: float(rng.random() * span), 1: float(rng.random() * span)}
    for column in range(2, columns):
        if rng.random() < 0.8:
            event[column] = float(np.round(rng.random() * 1.2 - 0.1, 2))
    if rng.random() < 0.05:
        event[int(rng.integers(0, columns))] = NAN
    return event


OPTIONS = [
    {},
    {"height": 1, "levels": 1, "disjoint_cells": 1},
    {"height": 2, "levels": 2, "disjoint_cells": 3, "eta": 2.1},
    {"height": 3, "levels": 7, "disjoint_cells": 61},
    {"height": 6, "levels": 4, "eta": 6},
    {"height": 4, "levels": 4, "eta": 5.5, "densities": "measured"},
    {"height": 5, "cells_by": "selectivity"},
    {"height": 4, "levels": 3, "eta": 4, "densities": "measured", "cells_by": "selectivity"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_random_data_against_brute_force(options):
    rng = np.random.default_rng(7)
    world = World(columns=8, **options)
    world.subscribe(*[_clause(rng, 8) for _ in range(400)])
    world.publish(*[_event(rng, 8) for _ in range(300)])
    assert len(world.tree.attributes) == min(options.get("height", 6), 8)
    world.check([_event(rng, 8) for _ in range(40)], [_clause(rng, 8) for _ in range(40)])


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    world = World(columns=6, height=4, levels=3, disjoint_cells=5)
    now = 0
    for _ in range(60):
        act = rng.integers(0, 6)
        if act == 0:
            world.subscribe(*[_clause(rng, 6) for _ in range(rng.integers(1, 60))])
        elif act == 1 and world.wants:
            rows = np.array(list(world.wants))
            world.unsubscribe(*rng.choice(rows, rng.integers(1, rows.size + 1), False).tolist())
        elif act == 2:
            some = [_event(rng, 6) for _ in range(rng.integers(1, 60))]
            world.publish(*some, expires=now + int(rng.integers(1, 30)))
        elif act == 3 and world.live:
            rows = np.array(list(world.live))
            world.retract(*rng.choice(rows, rng.integers(1, rows.size + 1), False).tolist())
        elif act == 4 and world.wants:
            row = int(rng.choice(list(world.wants)))
            world.rewrite(row, {c: tuple(np.sort(rng.random(2))) for c in world.wants[row]})
        else:
            now += int(rng.integers(0, 12))
        world.check([_event(rng, 6) for _ in range(3)], [_clause(rng, 6) for _ in range(3)], now)


def test_agrees_with_scan_on_a_bulk_load():
    rng = np.random.default_rng(3)
    n, k, columns = 5000, 6, 12
    keys = rng.random((n, columns - 2)) * np.arange(1, columns - 1)
    others = np.argsort(keys, axis=1)[:, : k - 2] + 2
    attr = np.concatenate([np.zeros((n, 1)), np.ones((n, 1)), others], axis=1).astype(np.int32)
    low = rng.random((n, k)) * 0.8
    low[:, :2] *= 100
    high = low + rng.random((n, k)) * np.where(np.arange(k) < 2, 9.0, 0.6)
    start = np.arange(n + 1, dtype=np.int64) * k
    clauses, events = ClauseStore(), EventStore()
    clauses.extend(
        ClauseBatch(
            np.arange(n, dtype=np.int32), start, attr.ravel(), low.ravel(), high.ravel(), {}
        )
    )
    some = [_event(rng, columns) for _ in range(3000)]
    batch = _batch(some, columns)
    events.extend(np.arange(3000, dtype=np.int32), batch, np.full(3000, 10**15, np.int64))
    tree, scan = MOTree(clauses, events), Scan(clauses, events)
    tree.add_clauses(clauses.live_rows())
    tree.add_events(events.live_rows())
    tree.check_invariants()
    assert {0, 1} <= {a.column for a in tree.attributes[:2]}
    ours, theirs = new_counters(), new_counters()
    few = _batch(some[:300], columns)
    found, rows = tree.match_events(few, ours)
    wanted, wanted_rows = scan.match_events(few, theirs)
    order = np.lexsort((rows, found))
    assert np.array_equal(found[order], wanted)
    assert np.array_equal(rows[order], wanted_rows)
    assert ours[2] == theirs[2] > 0
    assert ours[1] < theirs[1] / 4  # filtering leaves less than a quarter to compare
    for row in range(200):
        mine = tree.match_clause(clauses.table, row, 0, ours)
        assert np.array_equal(np.sort(mine), scan.match_clause(clauses.table, row, 0, theirs))


def test_registered_with_both_directions():
    entry = registry.require("mo-tree", subscriptions=True, events=True)
    tree = entry.load()(ClauseStore(), EventStore())
    assert isinstance(tree, MOTree)
    assert isinstance(tree, SubscriptionIndex)
    assert isinstance(tree, EventIndex)
    assert not entry.approximate


# -- corrections and borders -------------------------------------------------------


def test_an_event_without_an_indexing_attribute_meets_the_topmost_cell_only():
    world = World(columns=3)
    world.subscribe(*[{2: (i / 100, i / 100 + 0.01)} for i in range(99)], {2: (-INF, INF)}, {})
    assert [a.column for a in world.tree.attributes] == [2]
    counters = new_counters()
    batch = _batch([{0: 5.0}], 3)
    assert world.tree.match_event(batch, 0, counters).tolist() == [100]
    assert counters[0] == 1
    assert counters[1] == 2  # the clause on everything is in that cell too, and refused


def test_a_clause_without_a_predicate_looks_into_the_null_cell():
    world = World(columns=4)
    world.subscribe(*[{2: (i / 100, i / 100 + 0.1)} for i in range(90)])
    world.publish(*[{2: i / 100} for i in range(50)], {3: 1.0}, {})
    world.check([], [{}, {3: (0.0, 2.0)}, {2: (0.0, 1.0)}, {2: (-INF, INF)}])


def test_values_outside_the_learnt_domain_are_compared_exactly():
    world = World(columns=3)
    world.subscribe(*[{2: (i / 100, i / 100 + 0.1)} for i in range(90)])
    world.subscribe({2: (50.0, 60.0)}, {2: (-9.0, -8.0)}, {2: (0.5, INF)}, {2: (-INF, 0.2)})
    values = [-INF, -8.5, -1.0, 0.1, 0.95, 1.5, 55.0, 61.0, INF]
    world.publish(*[{2: v} for v in values])
    world.check(
        [{2: v} for v in values],
        [{2: (50.0, 60.0)}, {2: (-9.0, -8.0)}, {2: (1.0, INF)}, {2: (0.3, 0.4)}],
    )


def test_numbers_that_float32_cannot_tell_apart():
    world = World(columns=3)
    base = 1.0 + np.arange(64) * 2.0**-50
    world.subscribe(*[{2: (float(v), float(v))} for v in base])
    world.publish(*[{2: float(v)} for v in base])
    world.check([{2: float(v)} for v in base], [{2: (float(v), float(v))} for v in base])


def test_numbers_that_float32_cannot_hold():
    world = World(columns=3)
    huge = [-1.7e308, -1e300, -1e39, 0.0, 1e39, 1e300, 1.7e308]
    spans = [{2: (a, b)} for a in huge for b in huge if a <= b]
    world.subscribe(*spans, *spans)
    world.publish(*[{2: v} for v in huge] * 6)
    world.check([{2: v} for v in huge], spans)


def test_borders_of_cells_and_of_intervals():
    world = World(columns=3, levels=4, disjoint_cells=10)
    grid = [i / 40 for i in range(41)]
    spans = [{2: (a, b)} for a in grid[::4] for b in grid[::5] if a <= b]
    world.subscribe(*spans)
    world.publish(*[{2: v} for v in grid])
    world.check([{2: v} for v in grid], spans)


# -- degenerate data -----------------------------------------------------------------


@pytest.mark.parametrize(
    "clause",
    [
        {0: (5.0, 5.0), 1: (6.0, 6.0), 2: (0.5, 0.5)},
        {0: (4.0, 6.0), 1: (5.0, 7.0), 3: (0.0, 1.0)},
        {0: (-INF, INF), 1: (-INF, INF), 2: (-INF, INF)},
        {2: (-INF, 0.5)},
        {},
    ],
    ids=str,
)
def test_all_equal(clause):
    world = World(columns=4)
    rows = world.subscribe(*[dict(clause) for _ in range(1500)])
    event = {0: 5.0, 1: 6.0, 2: 0.5, 3: 0.5}
    published = world.publish(*[dict(event) for _ in range(1500)])
    batch = _batch([event, {}, {2: 0.6}], 4)
    for at, some in enumerate([event, {}, {2: 0.6}]):
        found = world.tree.match_event(batch, at, new_counters())
        assert sorted(found.tolist()) == (rows if _matches(clause, some) else [])
    found = world.tree.match_clause(world.clauses.table, 0, 0, new_counters())
    assert sorted(found.tolist()) == published
    world.tree.check_invariants()
    world.unsubscribe(*rows[1:])
    world.retract(*published[1:])
    world.check([event, {}], [clause])


def test_ten_thousand_columns():
    rng = np.random.default_rng(2)
    world = World(columns=10_000)

    def clause():
        chosen = rng.choice(10_000, 3, replace=False)
        return {int(c): (0.2, float(rng.uniform(0.2, 1))) for c in chosen}

    clauses = [clause() for _ in range(300)]
    world.subscribe(*clauses)
    events = [dict.fromkeys(wanted, 0.5) for wanted in clauses[:20]]
    world.publish(*events)
    world.check(events, clauses[:20])


def test_columns_that_came_after_the_fit():
    world = World(columns=9)
    world.subscribe(*[{2: (i / 100, i / 100 + 0.1)} for i in range(90)])
    world.subscribe({8: (0.0, 1.0)}, {2: (0.0, 1.0), 8: (0.5, 0.6)})
    world.publish({8: 0.5}, {2: 0.5, 8: 0.5})
    world.check([{8: 0.5}, {2: 0.5, 8: 0.5}, {8: NAN}], [{8: (0.5, 0.5)}, {8: (0.6, 0.7)}])


def test_nothing_at_all():
    world = World(columns=2)
    world.check([{}, {0: 1.0}], [{}, {0: (0.0, 1.0)}])
    world.tree.remove_clauses(np.array([3, 7], np.int32))
    world.tree.remove_events(np.array([0], np.int32))
    world.tree.add_clauses(np.empty(0, np.int32))
    world.check([{}], [{}])


# -- maintenance -----------------------------------------------------------------------


def _homes(world):
    return world.tree._wants.buckets.table.home.copy()


def test_an_update_within_the_bucket_moves_nothing():
    world = World(columns=3)
    rows = world.subscribe(*[{2: (i / 100, i / 100 + 0.05)} for i in range(90)])
    before = _homes(world)
    world.rewrite(rows[10], {2: (0.101, 0.149)})
    assert np.array_equal(_homes(world), before)
    world.check([{2: v} for v in (0.1, 0.101, 0.12, 0.149, 0.15)])
    world.rewrite(rows[10], {2: (0.9, 0.95)})
    assert _homes(world)[rows[10], 0] != before[rows[10], 0]
    world.check([{2: v} for v in (0.1, 0.12, 0.9, 0.92)])


def test_an_update_of_a_row_that_is_not_there_adds_it():
    world = World(columns=3)
    world.subscribe(*[{2: (i / 100, i / 100 + 0.05)} for i in range(40)])
    row = world.clauses.append(0, [2], [0.2], [0.3], None)
    world.rewrite(row, {2: (0.2, 0.3)})
    world.check([{2: 0.25}])


def test_expired_events_are_dropped_while_matching():
    world = World(columns=3)
    everything = {2: (0.0, 1.0)}
    old = world.publish(*[{2: i / 100} for i in range(50)], expires=10)
    world.publish(*[{2: i / 100} for i in range(50)], expires=30)
    world.check([], [everything], now=9)
    assert world.tree._live.buckets.live == 100
    world.check([], [everything], now=10)
    assert world.tree._live.buckets.live == 50
    world.retract(*old)  # no error: they are gone already
    world.check([], [everything], now=29)
    world.check([], [everything], now=30)
    assert world.tree._live.buckets.live == 0
    world.publish({2: 0.5}, expires=40)  # takes the row of one that expired
    world.check([], [everything], now=31)


def test_expiry_is_exact_where_float32_is_not():
    now = 1_700_000_000_000_000
    world = World(columns=3)
    for ahead in range(-20, 21):
        world.publish({2: 0.5}, {2: 0.7}, expires=now + ahead)
    world.check([], [{2: (0.5, 0.5)}, {2: (0.0, 1.0)}, {}], now=now)
    assert world.tree._live.buckets.live == 40


def test_the_owner_is_told_what_was_dropped_once():
    world = World(columns=3)
    everything = {2: (0.0, 1.0)}
    rows = [world.publish({2: i / 50}, expires=i + 1)[0] for i in range(50)]
    world.check([], [everything, {}], now=20)
    assert sorted(world.tree.dropped().tolist()) == sorted(rows[:20])
    assert world.tree.dropped().size == 0
    world.check([], [everything], now=40)
    world.retract(*rows[20:30])  # whoever removes them knows
    again = world.publish(*[{2: i / 90} for i in range(80)], expires=100)
    assert set(again) & set(rows[20:30])  # and uses their rows again
    assert sorted(world.tree.dropped().tolist()) == sorted(rows[30:40])
    world.check([], [everything], now=45)
    assert world.tree._live.buckets.live == 85


def test_only_buckets_met_are_cleared():
    world = World(columns=3, disjoint_cells=10)
    world.publish(*[{2: i / 100} for i in range(100)], expires=10)
    world.check([], [{2: (0.0, 0.05)}], now=50)
    assert 80 <= world.tree._live.buckets.live < 100


def test_rows_come_back_after_removal():
    rng = np.random.default_rng(5)
    world = World(columns=6)
    rows = world.subscribe(*[_clause(rng, 6) for _ in range(200)])
    for _ in range(5):
        world.unsubscribe(*rows[50:])
        rows[50:] = world.subscribe(*[_clause(rng, 6) for _ in range(150)])
    world.check([_event(rng, 6) for _ in range(20)])
    world.unsubscribe(*rows)
    assert world.tree._wants.buckets.live == 0
    assert not world.tree._wants.buckets.table.mask.any()
    world.check([_event(rng, 6) for _ in range(5)])


def test_an_emptied_pool_is_given_back():
    world = World(columns=3)
    rows = world.subscribe(*[{2: (i / 5000, i / 5000 + 0.1)} for i in range(4000)])
    full = world.tree._wants.buckets.table.row.size
    world.unsubscribe(*rows[40:])
    for i in range(40):
        world.subscribe({2: (i / 100, i / 100 + 0.1)})
    assert world.tree._wants.buckets.table.row.size < full / 4
    world.check([{2: 0.33}, {2: 0.5}])


# -- fitting -----------------------------------------------------------------------------


def _sample(predicates, members):
    column, low, high = (np.array(part) for part in zip(*predicates, strict=True))
    return Sample(members, column.astype(np.int64), low.astype(float), high.astype(float))


NOTHING = Sample(0, np.empty(0, np.int64), np.empty(0), np.empty(0))


def _spread(column, n, width):
    return [(column, i / n * (1 - width), i / n * (1 - width) + width) for i in range(n)]


def test_popular_selective_and_uniform_attributes_are_chosen():
    popular = _spread(1, 100, 0.1) + _spread(2, 20, 0.1)
    assert [a.column for a in best_attributes(_sample(popular, 100), NOTHING, 1)] == [1]
    wide = [*_spread(2, 100, 0.1), *((1, 0.0, 1.0),) * 50, *_spread(1, 50, 0.9)]
    assert [a.column for a in best_attributes(_sample(wide, 100), NOTHING, 1)] == [2]
    lumped = [(1, 0.5, 0.51)] * 98 + [(1, 0.0, 0.0), (1, 1.0, 1.0)] + _spread(2, 100, 0.1)
    assert [a.column for a in best_attributes(_sample(lumped, 100), NOTHING, 1)] == [2]


def test_measured_statistics():
    (found,) = best_attributes(_sample(_spread(3, 160, 0.25), 200), NOTHING, 6)
    assert found.column == 3
    assert found.popularity == 0.8
    assert found.selectivity == pytest.approx(0.75, abs=0.02)
    assert 0.5 < found.uniformity <= 1
    assert found.score == found.popularity * found.selectivity * found.uniformity


def test_predicates_without_any_end_make_no_layer():
    assert best_attributes(_sample([(1, -INF, INF)] * 50, 50), NOTHING, 6) == []
    world = World(columns=3)
    world.subscribe(*[{2: (-INF, INF)} for _ in range(50)])
    world.publish(*[{2: 0.5}, {}] * 30)
    world.check([{2: 1.0}, {}], [{2: (-INF, INF)}, {}])


def test_one_absurd_value_does_not_spoil_the_domain():
    ends = [*_spread(1, 1000, 0.1), (1, 1e12, 1e12)]
    (found,) = best_attributes(_sample(ends, 1001), NOTHING, 6)
    assert found.high < 2


def test_events_alone_put_the_place_first():
    rng = np.random.default_rng(1)
    world = World(columns=8)
    for _ in range(100):
        place = {0: float(rng.choice([1.0, 5.0, 9.0])), 1: float(rng.normal())}
        world.publish(place | {c: float(rng.random()) for c in range(2, 8)})
    assert {a.column for a in world.tree.attributes[:2]} == {0, 1}


def test_moved_domains_are_noticed():
    (one,) = best_attributes(_sample(_spread(1, 100, 0.1), 100), NOTHING, 6)
    (same,) = best_attributes(_sample(_spread(1, 90, 0.12), 100), NOTHING, 6)
    (far,) = best_attributes(_sample([(1, 5.0, 6.0)] * 50, 50), NOTHING, 6)
    assert not moved([one], [same])
    assert moved([one], [far])
    assert moved([one], [])


def test_drifting_data_are_fitted_again():
    world = World(columns=8)
    rows = world.subscribe(*[{2: (i / 500, i / 500 + 0.05)} for i in range(400)])
    assert [a.column for a in world.tree.attributes] == [2]
    for i in range(400):
        world.unsubscribe(rows[i])
        world.subscribe({5: (i / 400, i / 400 + 0.05)})
    assert 5 in {a.column for a in world.tree.attributes}
    assert world.tree._wants.buckets.crowd < 200
    world.check([{5: v} for v in (0.0, 0.3, 0.99)], [{5: (0.1, 0.2)}])


def test_steady_data_are_left_alone():
    rng = np.random.default_rng(4)
    world = World(columns=6)
    rows = world.subscribe(*[_clause(rng, 6) for _ in range(300)])
    chosen = world.tree.attributes
    for i in range(600):
        world.unsubscribe(rows[i % 300])
        (rows[i % 300],) = world.subscribe(_clause(rng, 6))
    assert world.tree.attributes is chosen


def test_a_growing_index_learns():
    rng = np.random.default_rng(6)
    world = World(columns=6)
    assert not list(world.tree.attributes)
    for _ in range(31):
        world.subscribe(_clause(rng, 6))
    assert not list(world.tree.attributes)
    world.check([_event(rng, 6) for _ in range(5)], [_clause(rng, 6) for _ in range(5)])
    for _ in range(200):
        world.subscribe(_clause(rng, 6))
    assert len(world.tree.attributes) == 6
    world.check([_event(rng, 6) for _ in range(5)], [_clause(rng, 6) for _ in range(5)])


# -- options, size, picture ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 0}, "height: 0"),
        ({"height": 9}, "height: 9 .* buckets"),
        ({"levels": 11}, "levels: 11"),
        ({"disjoint_cells": 62}, "disjoint_cells: 62"),
        ({"eta": 1.0}, "eta: 1.0"),
        ({"eta": float("nan")}, "eta: nan"),
        ({"attributes": [(2, float("nan"), 1.0)]}, "attributes: .*nan.* finite"),
        ({"attributes": [(2, 0.0, float("inf"))]}, "attributes: .*inf"),
        ({"attributes": [(2, 1.0, 0.0)]}, "attributes: .* low"),
        ({"attributes": [(-1, 0.0, 1.0)]}, "attributes: "),
        ({"attributes": [(10**12, 0.0, 1.0)]}, "attributes: "),
        ({"attributes": "abc"}, "attributes: 'a'"),
        ({"levels": 7}, "height: 6 .* fewer"),
        ({"densities": "gauss"}, "densities: 'gauss' .* give 'uniform' or 'measured'"),
        ({"cells_by": None}, "cells_by: None .* give 'even' or 'selectivity'"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValidationError, match=message):
        MOTree(ClauseStore(), EventStore(), **options)


def test_memory_beside_the_store():
    n, k = 60_000, 6
    rng = np.random.default_rng(9)
    attr = np.argsort(rng.random((n, 8)), axis=1)[:, :k].astype(np.int32)
    ends = np.sort(rng.random((n, k, 2)), axis=2)
    clauses = ClauseStore()
    clauses.extend(
        ClauseBatch(
            np.arange(n, dtype=np.int32),
            np.arange(n + 1, dtype=np.int64) * k,
            attr.ravel(),
            ends[:, :, 0].ravel(),
            ends[:, :, 1].ravel(),
            {},
        )
    )
    tree = MOTree(clauses, EventStore(), height=4)
    tree.add_clauses(clauses.live_rows())
    assert tree.memory_bytes() < 100 * n


def test_a_side_without_members_costs_next_to_nothing():
    world = World(columns=3)
    world.subscribe(*[{2: (i / 100, i / 100 + 0.05)} for i in range(90)])
    assert world.tree._live.buckets.memory_bytes() < 20_000
    world.check([{2: 0.5}], [{2: (0.0, 1.0)}])
    world.publish({2: 0.5})
    world.check([{2: 0.5}], [{2: (0.0, 1.0)}, {}])


def test_picture():
    world = World(columns=4)
    assert "no attribute" in world.tree.to_dot()
    world.subscribe(*[{2: (i / 100, i / 100 + 0.05)} for i in range(90)], {})
    world.publish({2: 0.5}, {})
    picture = world.tree.to_dot()
    assert picture.startswith("digraph mo_tree {")
    assert "column 2" in picture
    assert picture.count("layer0") == 1
