"""`pivot` on bare stores, against the scan: tiles, splits, odd ones, codes and their borders."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast import Box, Event, Matcher, Point, Subscription
from nearcast.clock import FOREVER
from nearcast.index.base import new_counters
from nearcast.index.clauses import ClauseBatch, ClauseStore, Extra
from nearcast.index.events import EventBatch, EventStore
from nearcast.index.pivot import Pivot
from nearcast.index.pivot.clause_tiles.kernels import layout, matching
from nearcast.index.pivot.clause_tiles.kernels.layout import SHELF
from nearcast.index.pivot.kernels import NOTHING, ODD, TILE, _cost, deeper, selected
from nearcast.index.pivot.word_lists import kernels as word_kernels
from nearcast.index.scan import Scan
from nearcast.jit import kernel

INF, NAN = np.inf, np.nan


def runs(sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def pairs(numbers, rows):
    return list(zip(numbers.tolist(), rows.tolist(), strict=True))


def columns_of(rng, n, columns, most):
    """Sizes 0 … most and as many different ascending columns for each of n rows."""
    sizes = rng.integers(0, min(most, columns) + 1, n)
    picked = [np.sort(rng.choice(columns, k, replace=False)) for k in sizes]
    return sizes, np.concatenate([np.empty(0, np.int64), *picked]).astype(np.int32)


def ends(rng, n, kind):
    """(low, high) of n intervals."""
    if kind == "grid":  # few different ends: values meet them exactly
        both = np.sort(rng.integers(0, 12, (2, n)) / 8, axis=0)
    elif kind == "points":
        both = np.repeat(rng.integers(0, 5, (1, n)) * 1.0, 2, axis=0)
    elif kind == "tails":
        both = np.sort(rng.standard_cauchy((2, n)) ** 5, axis=0)
    elif kind == "huge":
        both = np.sort(rng.choice([-1.7e308, -1e300, 0.0, 1e300, 1.7e308], (2, n)), axis=0)
    elif kind == "tiny":
        both = np.sort(rng.integers(-3, 4, (2, n)) * 5e-324, axis=0)
    elif kind == "narrow":
        low = 1e9 + rng.random(n)  # below the step of a float32 there
        both = np.array([low, low + 1e-3 * rng.random(n)])
    else:
        both = np.sort(rng.random((2, n)), axis=0)
    if kind == "hollow":  # some hold nothing
        swapped = rng.random(n) < 0.2
        both[:, swapped] = both[::-1, swapped]
        both[0, rng.random(n) < 0.2] = NAN
    if kind != "points":
        both[0, rng.random(n) < 0.1] = -INF
        both[1, rng.random(n) < 0.1] = INF
    return both[0].copy(), both[1].copy()


KINDS = ("even", "grid", "points", "tails", "huge", "tiny", "narrow", "hollow")


class World:
    """`pivot` and the scan over the same stores."""

    def __init__(self, kind="even", columns=5, most=5, seed=0):
        self.rng = np.random.default_rng(seed)
        self.kind, self.columns, self.most = kind, columns, most
        self.clauses, self.events = ClauseStore(), EventStore()
        self.index = Pivot(self.clauses, self.events)
        self.index._small = False  # tiles from the first clause on
        self.scan = Scan(self.clauses, self.events)

    # -- clauses ---------------------------------------------------------------

    def some_clauses(self, n):
        sizes, attr = columns_of(self.rng, n, self.columns, self.most)
        low, high = ends(self.rng, attr.size, self.kind)
        return ClauseBatch(np.zeros(n, np.int32), runs(sizes), attr, low, high, {})

    def add(self, n, batch=None):
        """In bulk."""
        rows = self.clauses.extend(batch or self.some_clauses(n))
        self.index.add_clauses(rows)
        return rows

    def add_each(self, n, batch=None):
        """One at a time, into freed rows first."""
        b = batch or self.some_clauses(n)
        for i, j in pairwise(b.start.tolist()):
            row = self.clauses.append(0, b.attr[i:j].tolist(), b.low[i:j], b.high[i:j], None)
            self.index.add_clauses(np.array([row], np.int32))

    def remove(self, share):
        live = self.clauses.live_rows()
        rows = self.rng.permutation(live)[: int(share * live.size)]
        self.index.remove_clauses(rows)
        for row in rows.tolist():
            self.clauses.release(row)

    # -- events ----------------------------------------------------------------

    def values(self, n):
        """Ends of intervals, their neighbours, and what is no end."""
        low, high = ends(self.rng, n, self.kind)
        t, used = self.clauses.table, self.clauses._predicates.used
        if used:
            k = self.rng.integers(0, used, n)
            low, high = t.low[k], t.high[k]
        value = np.where(self.rng.random(n) < 0.5, low, high)
        with np.errstate(all="ignore"):
            beside = np.nextafter(value, self.rng.choice([-INF, INF], n))
        value = np.where(self.rng.random(n) < 0.4, beside, value)
        fresh = ends(self.rng, n, self.kind)[0]
        value = np.where(self.rng.random(n) < 0.3, fresh, value)
        odd = self.rng.choice([NAN, INF, -INF], n)
        return np.where(self.rng.random(n) < 0.04, odd, value)

    def some_events(self, n, most=None):
        sizes, attr = columns_of(self.rng, n, self.columns, most or 2 * self.most)
        value = self.values(attr.size)
        nothing = np.zeros(n + 1, np.int64), np.empty(0, np.int32)
        return EventBatch(runs(sizes), attr, value, *nothing, max(2, self.columns))

    def add_events(self, n, batch=None):
        b = batch or self.some_events(n, self.most)
        expires = self.rng.choice([5, 50, FOREVER], b.size)
        rows = self.events.extend(np.zeros(b.size, np.int32), b, expires)
        self.index.add_events(rows)
        return rows

    def add_events_each(self, n, batch=None):
        b = batch or self.some_events(n, self.most)
        for i, j in pairwise(b.start.tolist()):
            expires = int(self.rng.choice([5, 50, FOREVER]))
            row = self.events.append(0, b.attr[i:j], b.value[i:j], (), expires)
            self.index.add_events(np.array([row], np.int32))

    def remove_events(self, share):
        live = self.events.live_rows()
        rows = self.rng.permutation(live)[: int(share * live.size)]
        self.index.remove_events(rows)
        for row in rows.tolist():
            self.events.release(row)

    # -- checking --------------------------------------------------------------

    def check(self, n=24, batch=None):
        """Singles and the batch give the scan's pairs; returns their number."""
        b = batch or self.some_events(n)
        wanted = pairs(*self.scan.match_events(b, new_counters()))
        singly, together = new_counters(), new_counters()
        found = []
        for at in range(b.size):
            rows = self.index.match_event(b, at, singly)
            assert rows.dtype == np.int32
            found += [(at, row) for row in sorted(rows.tolist())]
        assert found == wanted
        numbers, rows = self.index.match_events(b, together)
        assert numbers.dtype == rows.dtype == np.int32
        assert bool((np.diff(numbers) >= 0).all())
        assert sorted(pairs(numbers, rows)) == wanted
        assert singly[2] == together[2] == len(wanted)
        if self.index._broad is None:
            assert singly[1] == together[1] >= len(wanted)
        assert singly[0] >= b.size
        self.index.check_invariants()
        return len(wanted)

    def check_subscriptions(self, n=24, now=10):
        """Each clause finds the scan's live events; returns their number."""
        asking = ClauseStore()
        matches = 0
        for row in asking.extend(self.some_clauses(n)).tolist():
            wanted = self.scan.match_clause(asking.table, row, now, new_counters())
            counters = new_counters()
            found = self.index.match_clause(asking.table, row, now, counters)
            assert found.dtype == np.int32
            assert sorted(found.tolist()) == wanted.tolist()
            assert counters[2] == wanted.size <= counters[1]
            matches += wanted.size
        self.index.check_invariants()
        return matches

    @property
    def tiles(self):
        side = self.index._clauses
        return side._used - sum(len(places) for places in side._spare)

    def depth(self, side):
        n = side._nodes
        deepest, stack = 0, [(0, 0)]
        while stack:
            node, depth = stack.pop()
            deepest = max(deepest, depth)
            if n.kid[node] >= 0:
                stack += [(int(n.kid[node]) + j, depth + 1) for j in range(3)]
        return deepest


# -- clauses and events under changes ------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("columns", "most"), [(1, 1), (5, 5), (40, 12), (40, 40), (3000, 6)])
def test_clauses_come_in_bulk_and_singly_and_go(kind, columns, most):
    w = World(kind, columns, most, seed=columns)
    w.add_each(30)
    matches = w.check()
    w.add(1500)  # more than there are: planned anew
    matches += w.check()
    w.add(700)  # fewer: each into its tile
    w.add_each(400)
    matches += w.check()
    assert w.tiles > 3
    w.remove(0.6)
    matches += w.check()
    w.add_each(900)  # into freed rows and places
    matches += w.check()
    w.remove(1.0)
    assert w.check() == 0
    w.add_each(20)
    matches += w.check()
    assert matches > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("columns", "most"), [(1, 1), (5, 5), (40, 12), (40, 40), (3000, 6)])
def test_live_events_come_in_bulk_and_singly_and_go(kind, columns, most):
    w = World(kind, columns, 2 if columns == 3000 else most, seed=columns)
    w.add_events_each(70)
    matches = w.check_subscriptions()
    w.add_events(1500)
    matches += w.check_subscriptions()
    w.add_events(700)
    w.add_events_each(400)
    matches += w.check_subscriptions()
    w.remove_events(0.6)
    matches += w.check_subscriptions(now=50)
    w.add_events_each(900)
    matches += w.check_subscriptions(now=0)
    w.remove_events(1.0)
    assert w.check_subscriptions() == 0
    w.add_events_each(20)
    matches += w.check_subscriptions(now=0)
    assert matches > 0


@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    columns=st.sampled_from([1, 2, 3, 9, 30]),
    seed=st.integers(0, 2**32),
    steps=st.lists(
        st.tuples(st.sampled_from(["bulk", "each", "remove"]), st.integers(1, 600)), max_size=4
    ),
)
def test_any_order_of_changes_on_both_sides(kind, columns, seed, steps):
    w = World(kind, columns, min(columns, 8), seed)
    for act, n in steps:
        if act == "bulk":
            w.add(n)
            w.add_events(n)
        elif act == "each":
            w.add_each(n)
            w.add_events_each(n)
        else:
            w.remove(n / 600)
            w.remove_events(n / 600)
        w.check(6)
        w.check_subscriptions(6)


def test_a_few_clauses_are_looked_through():
    w = World("grid", columns=4, most=3)
    w.index._small = True
    empty = w.index.memory_bytes()
    w.add(20)
    w.add_each(20)
    matches = w.check()
    w.remove(0.5)
    matches += w.check()
    assert w.index.memory_bytes() < empty + 300
    w.add_each(30)
    matches += w.check()
    assert w.tiles == 0
    w.add(40)  # more than a few
    assert w.tiles > 0
    matches += w.check()
    w.remove(1.0)
    assert w.check() == 0
    w.add_each(5)
    assert matches + w.check() > 0


# -- broad clauses ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "columns", "most"),
    [(kind, 6, 2) for kind in KINDS] + [("even", 1, 1), ("grid", 300, 2)],
)
def test_broad_clauses_stand_apart(monkeypatch, kind, columns, most):
    monkeypatch.setattr("nearcast.index.pivot._ENOUGH", 400)
    w = World(kind, columns, most, seed=7)
    w.add(300)
    w.add(3000)  # many with no predicate, or one
    assert w.index._broad is not None
    matches = w.check(8)
    w.most = min(columns, 12)
    w.add(1500)  # selective ones among them
    w.add_each(200)
    matches += w.check(8)
    w.remove(0.7)
    matches += w.check(8)
    w.add_each(300)  # rows that were broad may be selective now, and the other way round
    w.add(1500)
    matches += w.check(8)
    w.remove(1.0)
    assert w.check(8) == 0
    w.add_each(20)
    w.add(1000)
    matches += w.check(8)
    assert matches > 0


def test_few_clauses_are_never_apart():
    w = World("even", columns=1, most=1)
    for _ in range(5):
        w.add(1000)
    assert w.index._broad is None
    assert w.check() > 0


# -- what a tile is made of ----------------------------------------------------


def intervals(attr, low, high, per_row=1):
    """Clauses with the same number of predicates each."""
    n = len(attr) // per_row
    return ClauseBatch(
        np.zeros(n, np.int32),
        runs([per_row] * n),
        np.asarray(attr, np.int32),
        np.asarray(low, float),
        np.asarray(high, float),
        {},
    )


def points(value, columns):
    """Events with all columns, one row of values each."""
    value = np.asarray(value, float).reshape(-1, columns)
    n = len(value)
    attr = np.tile(np.arange(columns, dtype=np.int32), n)
    nothing = np.zeros(n + 1, np.int64), np.empty(0, np.int32)
    return EventBatch(runs([columns] * n), attr, value.ravel(), *nothing, max(2, columns))


@pytest.mark.parametrize("n", [9000, 200_000])
def test_one_event_that_very_many_want(n):
    """More tiles than there is room for at first, and more matches; some on an end's code."""
    w = World("even", columns=3, most=3)
    low, high = w.rng.random((2, n, 3))
    low, high = 0.3 * low, 0.3 + 0.3 * high
    low[0], high[0] = 0.0, 1.0  # too broad, but the only one: the others are a small part of all
    for first in range(0, n, 4000):  # so few at a time that none is set aside as broad
        part = slice(first, first + 4000)
        attr = np.tile(np.arange(3), len(low[part]))
        w.add(0, intervals(attr, low[part].ravel(), high[part].ravel(), per_row=3))
    assert w.index._broad is None
    event = np.array([[0.3, 0.3, 0.3], low[7], high[7]])
    assert w.check(batch=points(event[: 1 if n > 9000 else 3], 3)) > 0.9 * n


def test_values_on_the_ends_and_beside_them():
    w = World("even", columns=1, most=1)
    low = np.linspace(-1, 1, 400)
    high = low + 0.1
    w.add(0, intervals(np.zeros(400), low, high))
    at = np.concatenate([low, high])
    beside = np.concatenate([at, np.nextafter(at, INF), np.nextafter(at, -INF)])
    assert w.check(batch=points(beside, 1)) > 2 * at.size


def test_values_on_the_ends_of_what_stands_below_a_node():
    """Clauses that share no value: an event on the last one of a subtree has that one only."""
    w = World("even", columns=1, most=1)
    low = np.arange(1500.0)
    w.add(0, intervals(np.zeros(1500), low, low + 0.5))
    nodes = w.index._clauses._nodes
    ends = np.unique(np.concatenate([nodes.low, nodes.high]))
    ends = ends[(ends >= 0) & (ends <= 1499.5)]
    assert w.tiles > 2
    assert ends.size > 4
    beside = np.concatenate([ends, np.nextafter(ends, INF), np.nextafter(ends, -INF)])
    assert w.check(batch=points(beside, 1)) >= ends.size


def test_live_values_at_the_ends_of_what_stands_below_a_node():
    matcher = Matcher(index="pivot", space="planar")
    events = [Event(id=f"{k:04}", attributes={"a": k}) for k in range(1200)]
    matcher.add_events(events[::2])
    for event in events[1::2]:
        matcher.add_events([event])
    for k in (0, 1, *range(7, 1190, 41), 1198, 1199):
        assert matcher.match_subscription(Subscription(id="s", where=f"a = {k}")) == [f"{k:04}"]


def test_values_on_the_borders_of_codes():
    w = World("even", columns=1, most=1)
    w.add(0, intervals(np.zeros(3), [0, 60, 126.5], [253, 180, 126.5]))  # a code for every unit
    grid = np.arange(-2, 256) * 1.0
    near = np.concatenate([grid, np.nextafter(grid, INF), np.nextafter(grid, -INF)])
    assert w.check(batch=points(near, 1)) > 253


def test_an_interval_that_holds_nothing_matches_nothing():
    w = World("even", columns=1, most=1)
    empty = intervals(np.zeros(40), [0.6, NAN] * 20, [0.4, 0.5] * 20)
    w.add(0, empty)
    w.add_each(0, empty)
    w.add(0, intervals(np.zeros(5), [0.0] * 5, [1.0] * 5))
    assert w.check(batch=points(np.arange(-2, 23) / 20, 1)) == 5 * 21


def test_no_value_is_inside_an_interval_that_covers_everything():
    w = World("even", columns=3, most=3)
    w.add_each(0, intervals([0, 1, 2] * 700, [-INF] * 2100, [INF] * 2100, per_row=3))
    nan = points([[NAN, 0, 0], [-INF, INF, 0], [1e308, -1e308, 5e-324]], 3)
    assert w.check(batch=nan) == 2 * 700
    lacking = EventBatch(
        runs([2]), np.array([0, 2], np.int32), np.zeros(2), np.zeros(2, np.int64),
        np.empty(0, np.int32), 3,
    )  # fmt: skip
    assert w.check(batch=lacking) == 0


def test_clauses_without_predicates_want_every_event():
    w = World("even", columns=4, most=0)
    w.add_each(600)
    w.add(1500)
    assert w.check(5) == 5 * 2100
    w.most = 4
    w.add_each(300)
    w.check()


def test_more_columns_than_a_tile_has_codes_for():
    w = World("even", columns=60, most=60)
    n, k = 300, 60
    low = np.tile(np.linspace(0, 0.4, n)[:, None], k)
    w.add(0, intervals(np.tile(np.arange(k), n), low.ravel(), low.ravel() + 0.5, per_row=k))
    tiles = w.index._clauses._tiles
    assert tiles.dims[0] == 24
    assert int(tiles.rest[0, 0]).bit_count() == 64
    inside = np.full((61, k), 0.45)
    inside[np.arange(60), np.arange(60)] = 0.95  # fails on one column only, each in turn
    assert w.check(batch=points(inside, k)) == n


def test_shelves_divide_as_a_b_tree_does(monkeypatch):
    monkeypatch.setattr("nearcast.index.pivot._ENOUGH", 1_000_000)
    w = World("even", columns=3, most=3)
    w.add(9000)
    shelves = len(w.index._clauses._spare)
    for _ in range(12):
        w.add_each(0, w.some_clauses(1000))
        w.remove(0.02)
    assert len(w.index._clauses._spare) > shelves
    assert all(len(places) < SHELF for places in w.index._clauses._spare)
    assert w.check(12) > 0


def test_clauses_with_more_predicates_than_there_are_codes():
    w = World("even", columns=22, most=2)
    w.add(3000)  # two predicates each: room for two codes
    low = w.rng.random((300, 22)) * 0.2
    long = intervals(np.tile(np.arange(22), 300), low.ravel(), low.ravel() + 0.79, per_row=22)
    w.add_each(0, long)
    inside = np.full((23, 22), 0.5)
    inside[np.arange(22), np.arange(22)] = 0.995  # fails on one column only, each in turn
    w.check(batch=points(inside, 22))


def test_columns_that_come_later_than_the_tiles():
    w = World("even", columns=1, most=1)
    w.add(600)
    w.columns = w.most = 30
    w.add_each(600)
    assert w.check() > 0


def test_a_shelf_chooses_its_columns_anew_as_it_fills():
    w = World("even", columns=6, most=6)
    sizes = []
    for _ in range(12):
        w.add_each(11)
        w.check(4)
        sizes.append(int(w.index._clauses._tiles.limit[0]))
    assert w.tiles == 1
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0]


def test_tiles_split_at_512():
    w = World("even", columns=2, most=2)
    w.add_each(TILE)
    assert w.tiles == 1
    w.add_each(1)
    assert w.tiles > 1
    w.check()


# -- shapes that could break the tree -------------------------------------------


@pytest.mark.parametrize("step", [1, 64])
def test_equal_rows_make_a_shallow_tree(step):
    w = World("points", columns=2, most=1)
    for _ in range(4000 // step):
        w.add(step, intervals([1] * step, [0.5] * step, [0.5] * step))
    assert w.depth(w.index._clauses) <= 8
    assert w.check(batch=points([[0, 0.5], [0, 0.6]], 2)) == 4000 // step * step
    for _ in range(4000 // step):
        w.add_events(0, points([[0.0, 0.5]] * step, 2))
    assert w.depth(w.index._events) <= 8
    w.check_subscriptions()


def test_equal_rows_with_even_numbers_only():
    w = World("points", columns=3, most=1)
    for _ in range(5000):  # two clauses a subscription, say
        w.add(0, intervals([1, 2], [0.5, 0.25], [0.5, 0.75]))
    assert w.depth(w.index._clauses) <= 8
    assert w.check(batch=points([[0, 0.5, 0], [0, 0.5, 0.5]], 3)) == 15_000


def test_columns_one_after_another_make_a_shallow_tree():
    columns = 330
    w = World("even", columns=columns, most=columns)
    for a in range(columns):
        low = w.rng.random(100) * 0.4
        w.add(0, intervals([a] * 100, low, low + 0.6))
    assert w.depth(w.index._clauses) <= 16
    assert w.check(batch=points(np.full((2, columns), 0.5), columns)) == 2 * 100 * columns


def test_a_stack_grows_before_three_more_do_not_fit():
    stack = np.arange(12).reshape(4, 3)
    assert deeper(stack, 1) is stack or np.array_equal(deeper(stack, 1), stack)
    larger = deeper(stack, 2)
    assert larger.shape == (8, 3)
    assert np.array_equal(larger[:2], stack[:2])


def test_many_splits_that_only_peel_off_a_few():
    columns = 300
    w = World("points", columns=columns, most=columns)
    rare = (w.rng.random((900, columns)) < 0.004) * 1.0
    w.add(0, intervals(np.tile(np.arange(columns), 900), rare.ravel(), rare.ravel(), columns))
    assert w.index._clauses._nodes.kid[ODD] != w.index._clauses._nodes.kid[3]  # there are odd ones
    assert w.check(batch=points(rare[::50], columns)) >= 18
    w.add_events(0, points(rare, columns))
    assert w.check_subscriptions(4) >= 0


def test_odd_ones_stand_apart_and_are_found():
    w = World("even", columns=3, most=1)
    n = 2000
    low = w.rng.random(n)
    attr = np.where(np.arange(n) % 100 == 7, 2, 0)  # one in a hundred asks for something else
    w.add(0, intervals(attr, low, low + 0.2))
    nodes = w.index._clauses._nodes
    w.check()
    w.add_each(0, intervals(np.full(700, 2), w.rng.random(700) * 0.5, [1.0] * 700))
    w.add_each(0, intervals(np.full(40, 1), [0.0] * 40, [1.0] * 40))
    assert w.check(batch=points(w.rng.random((30, 3)), 3)) > 30 * 40
    w.remove(0.9)
    w.check()
    assert nodes.used[0] <= w.index._clauses._nodes.used[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("columns", "most"), [(1, 1), (5, 5), (40, 12), (3000, 6)])
def test_many_are_planned_by_a_sample(monkeypatch, kind, columns, most):
    """Cut into branches by the splits of a sample: the same rows, found by the same events."""
    for name, value in {"_ALONE": 600, "_BRANCH": 128, "_EACH": 4}.items():
        monkeypatch.setattr(f"nearcast.index.pivot.tree.{name}", value)
    w = World(kind, columns, most, seed=most)
    w.add(2500)
    w.add_events(2500)
    matches = w.check()
    w.check_subscriptions(8)
    w.add_each(100)  # they widen the hulls of branches, and find those that are empty
    w.add(3000)
    w.remove(0.5)
    matches += w.check()
    assert matches > 0


@pytest.mark.parametrize(("apart", "odd"), [(200, True), (16, False)])
def test_a_sample_that_misses_whom_nobody_is_like(monkeypatch, apart, odd):
    """Rows in a part of which the sample has none: too few for a tile, or a branch."""
    for name, value in {"_ALONE": 600, "_BRANCH": 256, "_EACH": 8}.items():
        monkeypatch.setattr(f"nearcast.index.pivot.tree.{name}", value)
    w = World("even", columns=3, most=1)
    n = 4000
    low, attr = w.rng.random(n), np.zeros(n, np.int64)
    attr[4::apart] = 1  # the sample has every eighth row: 0, 8, …
    w.add(0, intervals(attr, low, low + 0.2))
    assert (w.index._clauses._nodes.kid[ODD] != NOTHING) == odd
    assert w.check(batch=points(w.rng.random((40, 3)), 3)) > 40 * 20
    w.add_each(0, intervals(np.full(700, 2), w.rng.random(700) * 0.5, [1.0] * 700))
    assert w.check(batch=points(w.rng.random((30, 3)), 3)) > 30 * 20


def test_a_value_is_selected_as_sorting_would_have_it():
    rng = np.random.default_rng(5)
    for n in (1, 2, 3, 7, 192, 300):
        for values in (rng.random(n), rng.integers(0, 3, n) * 1.0, np.arange(n) * -1.0):
            for q in {0, n // 3, n // 2, n - 1}:
                assert selected(values.copy(), q) == np.sort(values)[q]


def test_a_split_that_cannot_pay_is_left_out_early():
    """The bound of what a column costs is one: what is left out of account costs as much."""
    rng = np.random.default_rng(6)
    for _ in range(300):
        m = int(rng.integers(2, 200))
        low, high = ends(rng, m, str(rng.choice(KINDS)))
        reach, without = float(rng.choice([0.0, 0.3])), float(rng.integers(0, 50))
        given = low, high, int(rng.integers(2, 9)), reach, without, float(rng.choice([1.0, 40.0]))
        with np.errstate(all="ignore"):
            cost, *split = _cost(*given, np.inf)
            for most in (0.5 * cost, cost, np.nextafter(cost, np.inf), 2.0 * cost):
                told, *same = _cost(*given, most)
                assert told == cost or not (told < most or cost < most * (1.0 - 1e-12))
                assert told != cost or same == split


def test_removed_rows_may_be_unknown_or_gone():
    w = World()
    w.add(50)
    rows = np.arange(10, dtype=np.int32)
    w.index.remove_clauses(rows)
    w.index.remove_clauses(rows)
    for row in rows.tolist():
        w.clauses.release(row)
    w.check()
    w.index.remove_clauses(np.array([50_000_000], np.int32))
    w.index.remove_events(np.array([50_000_000], np.int32))
    w.check()


def test_a_batch_without_events():
    w = World()
    w.add(50)
    assert w.check(batch=points([], 5)) == 0


def test_tiles_that_are_left_behind_are_given_up(monkeypatch):
    monkeypatch.setattr("nearcast.index.pivot.tree._FEW_TILES", 4)
    w = World("even", columns=2, most=2)
    here = []
    for step in range(160):  # what comes is ever higher, what goes is the lowest
        at = step + np.arange(64) / 64
        clauses = w.add(0, intervals([0] * 64, at, at + 1))
        here.append((clauses, w.add_events(0, points(np.repeat(at, 2), 2))))
        if w.index.worn:
            w.index = w.index.rebuilt(w.clauses.live_rows())
        if step >= 8:
            clauses, rows = here[step - 8]
            w.index.remove_clauses(clauses)
            for row in clauses.tolist():
                w.clauses.release(row)
            w.index.remove_events(rows)
            for row in rows.tolist():
                w.events.release(row)
    assert w.index._events._used <= 12
    assert len(w.index._clauses._spare) <= 2
    assert w.check(batch=points(np.repeat(np.arange(150, 160) + 0.5, 2), 2)) > 0
    w.check_subscriptions()


def test_columns_of_live_events_are_looked_at_as_their_number_doubles(monkeypatch):
    w = World("even", columns=40, most=40)
    side = w.index._events
    for _ in range(3):
        w.add_events(50)  # never a power of two
    assert side._columns.size == 24
    built: list[int] = []
    monkeypatch.setattr(side, "_build", built.append)
    for _ in range(3):
        w.remove_events(0.2)
        w.add_events_each(30)
    assert not built


def test_memory_is_counted_and_bounded():
    w = World("even", columns=10, most=10)
    before = w.index.memory_bytes()
    w.add(20_000)
    assert before < 1000
    assert w.index.memory_bytes() < 20_000 * 250


# -- words ---------------------------------------------------------------------


class Wordy(World):
    """Clauses of 0 to 4 words, most of them with a place."""

    vocabulary = 30

    def word_runs(self, n, most):
        ranks = np.arange(1, self.vocabulary + 1)
        sizes = self.rng.integers(0, most + 1, n)
        share = 1 / ranks / (1 / ranks).sum()
        sets = [np.sort(self.rng.choice(self.vocabulary, k, False, share)) for k in sizes]
        return runs(sizes), np.concatenate([np.empty(0, np.int64), *sets]).astype(np.int32)

    def some_clauses(self, n):
        batch = super().some_clauses(n)
        start, word = self.word_runs(n, 4)
        return batch._replace(word_start=start, word=word)

    def add_each(self, n, batch=None):
        b = batch or self.some_clauses(n)
        for at, (i, j) in enumerate(pairwise(b.start.tolist())):
            words = b.word[b.word_start[at] : b.word_start[at + 1]].tolist()
            row = self.clauses.append(
                0, b.attr[i:j].tolist(), b.low[i:j], b.high[i:j], Extra(words=words)
            )
            self.index.add_clauses(np.array([row], np.int32))

    def some_events(self, n, most=None):
        start, word = self.word_runs(n, 12)
        return super().some_events(n, most)._replace(word_start=start, word=word)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("columns", "most"), [(2, 2), (5, 4)])
def test_clauses_with_words_come_and_go(kind, columns, most):
    w = Wordy(kind, columns, most, seed=columns)
    w.add_each(60)
    matches = w.check()
    w.add(2500)
    matches += w.check()
    w.add_each(500)
    matches += w.check()
    w.remove(0.6)
    matches += w.check()
    w.add_each(300)
    w.add(600)
    matches += w.check()
    w.remove(1.0)
    assert w.check() == 0
    w.add_each(20)
    matches += w.check()
    assert matches > 0


@pytest.fixture
def lists_only(monkeypatch):
    """However many clauses have a place, all of them stand in lists."""
    monkeypatch.setattr("nearcast.index.pivot.word_lists._ENOUGH", 10**9)


def test_a_word_in_every_clause_and_a_word_in_none(lists_only):
    w = Wordy("even", columns=2, most=2)
    n = 3000
    batch = w.some_clauses(n)
    everywhere = np.full(n, 7, np.int32)
    w.add(0, batch._replace(word_start=np.arange(n + 1), word=everywhere))
    assert w.index._words._lists.head[7, 1] == n
    for words in ([7], [8], [], list(range(30))):
        b = World.some_events(w, 6)
        start = np.arange(7) * len(words)
        w.check(batch=b._replace(word_start=start, word=np.array(words * 6, np.int32)))
    assert w.check(40) > 0


def test_more_events_than_go_through_the_lists_together(lists_only):
    w = Wordy("even", columns=2, most=2)
    w.vocabulary = 5000  # more than one pass of the sort by word
    w.add(3000)
    assert w.check(word_kernels._EVENTS + 100) > 1000
    w.vocabulary = 40_000
    start = np.array([0, 39_000, 78_000, 78_000, 78_002])
    word = np.concatenate([np.arange(39_000), np.arange(500, 39_500), [3, 5]])
    asked = {"word_start": start, "word": word.astype(np.int32)}
    assert w.check(batch=World.some_events(w, 4)._replace(**asked)) > 100


def test_regions_that_end_nowhere_and_events_without_a_place(lists_only):
    """Sides beyond what a float32 holds, in lists long enough to be ordered by place."""
    w = Wordy("even", columns=2, most=2)
    sides = np.array([-np.inf, -1e300, -1e39, 0.0, 0.5, 1.0, 1e39, 1e300, np.inf])
    low = sides[w.rng.integers(0, 5, (900, 2))]
    high = sides[w.rng.integers(4, 9, (900, 2))]
    w.add(0, boxes_with_a_word(low, high, 3))
    bare = Extra(words=[3])
    nowhere = [w.clauses.append(0, [], [], [], bare) for _ in range(40)]
    w.index.add_clauses(np.array(nowhere, np.int32))
    places = np.array([[0.5, 0.5], [-1e200, 1e38], [1e39, 0.0], [1e301, -1e301], [3.4e38, 2.0]])
    asked = {"word_start": np.arange(6), "word": np.full(5, 3, np.int32)}
    assert w.check(batch=points(places, 2)._replace(**asked)) > 200
    unplaced = points(places, 2)._replace(
        start=np.zeros(6, np.int64), attr=np.empty(0, np.int32), value=np.empty(0), **asked
    )
    assert w.check(batch=unplaced) == 5 * 40


def test_a_list_that_outgrows_its_span_leaves_it_to_the_next():
    w = Wordy("even", columns=2, most=2)
    for word in range(20):
        for _ in range(9):
            low, high = w.rng.random((2, 2)) * 0.5 + [[0.0], [0.5]]
            row = w.clauses.append(0, [0, 1], low, high, Extra(words=[word]))
            w.index.add_clauses(np.array([row], np.int32))
    lists = w.index._words._lists
    assert int(lists.used[0]) < 20 * (16 + 16) + 64
    assert w.check(30) > 0


def boxes_with_a_word(low, high, word):
    """Clauses on two columns, all of which want one word."""
    n = len(low)
    attr = np.tile([0, 1], n)
    batch = intervals(attr, np.ravel(low), np.ravel(high), per_row=2)
    return batch._replace(word_start=np.arange(n + 1), word=np.full(n, word, np.int32))


def test_only_entries_of_blocks_that_are_looked_into_are_counted():
    w = Wordy("even", columns=2, most=2)
    low = np.array([[0.25, 0.0]] * 128 + [[0.0, 0.0]] * 128)
    high = np.array([[0.3, 1.0]] * 128 + [[1.0, 1.0]] * 128)
    w.add(0, boxes_with_a_word(low, high, 3))
    event = points([[0.5, 0.5]], 2)._replace(word_start=np.array([0, 1]), word=np.array([3], "i4"))
    counters = new_counters()
    assert w.index.match_events(event, counters)[1].size == 128
    assert counters[:3].tolist() == [2, 128, 128]


def test_the_dead_of_a_list_stay_until_they_are_many_or_in_the_way(lists_only):
    w = Wordy("even", columns=2, most=2)
    low = w.rng.random((3000, 2)) * 0.5
    w.add(0, boxes_with_a_word(low, low + 0.3, 7))
    w.remove(0.4)
    lists = w.index._words._lists
    assert (lists.dead[7], lists.head[7, 1], lists.head[7, 3]) == (1200, 3000, 4096)
    w.check()
    w.add(0, boxes_with_a_word(low[:1200], low[:1200] + 0.3, 7))
    lists = w.index._words._lists
    assert (lists.dead[7], lists.head[7, 1], lists.head[7, 3]) == (0, 3000, 4096)
    assert w.check() > 0


def test_what_comes_to_a_long_list_is_ordered_in_pieces(lists_only):
    w = Wordy("even", columns=2, most=2)
    low = w.rng.random((9000, 2)) * 0.9
    w.add(0, boxes_with_a_word(low[:6000], low[:6000] + 0.1, 7))
    heads = []
    for first in range(6000, 7800, 300):
        w.add(0, boxes_with_a_word(low[first : first + 300], low[first : first + 300] + 0.1, 7))
        w.remove(0.01)
        heads.append(w.index._words._lists.head[7].tolist())
    ordered, together = [head[2] for head in heads], [head[4] for head in heads]
    assert max(ordered) >= 7000
    assert all(head[1] - head[2] < 1024 + 300 for head in heads)
    assert set(together) == {6000}
    matches = w.check()
    w.add(0, boxes_with_a_word(low[7800:], low[7800:] + 0.1, 7))
    head = w.index._words._lists.head[7].tolist()
    assert head[2] == head[4] > 8000
    assert matches + w.check() > 0


# -- cells, and events that are boxes ------------------------------------------


class Boxy(Wordy):
    """Clauses with a whole place or none, and events that are boxes."""

    def some_clauses(self, n):
        sizes, others = columns_of(self.rng, n, self.columns - 2, self.most)
        placed = self.rng.random(n) < 0.8
        parts = [
            np.concatenate([[0, 1] if has else [], others[i:j] + 2])
            for has, (i, j) in zip(placed, pairwise(runs(sizes).tolist()), strict=True)
        ]
        attr = np.concatenate([np.empty(0), *parts]).astype(np.int32)
        low, high = ends(self.rng, attr.size, self.kind)
        start = runs([len(part) for part in parts])
        words = self.word_runs(n, 5)
        return ClauseBatch(np.zeros(n, np.int32), start, attr, low, high, {}, *words)

    def some_boxes(self, n):
        """Boxes whose sides are those of clauses, or in between."""
        t, used = self.clauses.table, self.clauses._predicates.used
        sides = ends(self.rng, 2 * n, self.kind)[0].reshape(n, 2), self.rng.random((n, 2))
        if used:
            k = self.rng.integers(0, used, (2, n, 2))
            sides = t.low[k[0]], t.high[k[1]]
        low, high = np.minimum(*sides), np.maximum(*sides)
        narrow = self.rng.random(n) < 0.3
        high[narrow] = low[narrow]
        return np.hstack([low, high])

    def check_boxes(self, n=40):
        """Compare with one event and one clause at a time; returns how many pairs there are."""
        self.index.check_invariants()
        batch, boxes = self.some_events(n), self.some_boxes(n)
        counters = new_counters()
        numbers, rows = self.index.match_boxes(batch, boxes, counters)
        assert bool((np.diff(numbers) >= 0).all())
        found = pairs(numbers, rows)
        assert len(set(found)) == len(found)
        assert set(found) == self.meeting(batch, boxes)
        assert counters[2] == len(found)
        return len(found)

    def meeting(self, batch, boxes):
        """What the scan says of clauses without their places, if those meet the box."""
        live = self.clauses.live_rows()
        bare, scan = ClauseStore(), None
        t = self.clauses.table
        placed = {}
        for row in live.tolist():
            a = int(t.start[row])
            b = a + int(t.count[row])
            box = self.clauses.box(row)
            skipped = 0 if box is None else 2
            words = Extra(words=self.clauses.words(row).tolist())
            rest = slice(a + skipped, b)
            placed[bare.append(0, t.attr[rest].tolist(), t.low[rest], t.high[rest], words)] = (
                row,
                box,
            )
        scan = Scan(bare, EventStore())
        scan.add_clauses(bare.live_rows())
        found = set()
        for e, number in pairs(*scan.match_events(batch, new_counters())):
            row, box = placed[number]
            x0, y0, x1, y1 = boxes[e]
            if box is None or (box[0] <= x1 and box[1] <= y1 and x0 <= box[2] and y0 <= box[3]):
                found.add((e, row))
        return found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "hollow"])
@pytest.mark.parametrize(("columns", "most"), [(2, 2), (5, 4)])
def test_boxes_meet_clauses_that_come_and_go(kind, columns, most):
    w = Boxy(kind, columns, most, seed=columns)
    w.add_each(60)
    matches = w.check_boxes()
    w.add(2500)
    matches += w.check_boxes() + w.check()
    w.add_each(500)
    matches += w.check_boxes() + w.check()
    w.remove(0.6)
    matches += w.check_boxes() + w.check()
    w.add_each(300)
    w.add(600)
    matches += w.check_boxes() + w.check()
    assert w.index._boxed is not None
    w.remove(1.0)
    assert w.check_boxes() == 0
    w.add_each(20)
    matches += w.check_boxes() + w.check()
    assert matches > 0


def test_boxes_meet_the_few_clauses_before_there_are_tiles():
    w = Boxy("even", columns=4, most=2)
    w.index = Pivot(w.clauses, w.events)
    assert w.check_boxes() == 0
    w.add_each(40)
    assert w.index._small
    assert w.check_boxes() > 0
    w.add(500)
    assert w.check_boxes() > 0


def test_boxes_meet_broad_clauses(monkeypatch):
    monkeypatch.setattr("nearcast.index.pivot._ENOUGH", 100)
    w = Boxy("even", columns=4, most=2)
    w.add(1500)
    assert w.index._broad is not None
    assert w.check_boxes() > 0
    w.remove(0.3)
    w.add(300)
    assert w.check_boxes() > 0


def test_an_event_that_is_nowhere_meets_no_place():
    w = Boxy("even", columns=2, most=2)
    w.add(3000)
    batch = w.some_events(3)
    nowhere = np.array([[INF, INF, -INF, -INF]] * 3)
    numbers, rows = w.index.match_boxes(batch, nowhere, new_counters())
    assert numbers.size > 0
    assert all(w.clauses.box(row) is None for row in rows.tolist())


def placed_clauses(w, n, side, words, offset=0.0):
    """Small clauses all over the unit square, each under some of a few words."""
    low = w.rng.random((n, 2)) + offset
    batch = boxes_with_a_word(low, low + side * w.rng.random((n, 2)), 0)
    return batch._replace(word=w.rng.integers(0, words, n).astype(np.int32))


def check_points(w, at, words):
    """Every event has all of the words."""
    n = len(at)
    asked = {"word_start": np.arange(n + 1) * words, "word": np.tile(np.arange(words), n)}
    asked["word"] = asked["word"].astype(np.int32)
    return w.check(batch=points(at, 2)._replace(**asked))


def test_cells_are_divided_as_clauses_come():
    w = Wordy("even", columns=2, most=2)
    w.add(0, placed_clauses(w, 1500, 0.02, 5))
    cells = w.index._words._cells
    assert len(cells) == 1500
    before = int(cells.table.used[1])
    for _ in range(15):
        w.add(0, placed_clauses(w, 400, 0.02, 5))
    assert len(cells) == 7500
    assert int(cells.table.used[1]) > 2 * before
    assert check_points(w, w.rng.random((60, 2)), 5) > 0
    w.remove(0.9)
    w.add(0, placed_clauses(w, 300, 0.02, 5))
    assert check_points(w, w.rng.random((60, 2)), 5) > 0


def test_large_places_are_left_to_the_lists():
    w = Wordy("even", columns=2, most=2)
    low = np.vstack([w.rng.random((3000, 2)), np.zeros((50, 2))])
    high = np.vstack([low[:3000] + 0.001, np.ones((50, 2))])
    w.add(0, boxes_with_a_word(low, high, 3))
    words = w.index._words
    assert (len(words._cells), words._lists.head[3, 1]) == (3000, 50)
    assert check_points(w, w.rng.random((60, 2)), 5) >= 60 * 50
    w.remove(0.5)
    assert check_points(w, w.rng.random((60, 2)), 5) > 0


def test_clauses_from_elsewhere_wear_the_cells():
    w = Wordy("even", columns=2, most=2)
    w.add(0, placed_clauses(w, 1500, 0.02, 5))
    for _ in range(6):
        w.add(0, placed_clauses(w, 500, 0.02, 5, offset=40.0))
    assert w.index.worn
    at = np.vstack([w.rng.random((30, 2)), 40 + w.rng.random((30, 2))])
    assert check_points(w, at, 5) > 0
    w.index = w.index.rebuilt(w.clauses.live_rows())
    assert not w.index.worn
    assert check_points(w, at, 5) > 0


def test_more_clauses_in_one_place_than_a_cell_takes():
    w = Wordy("even", columns=2, most=2)
    n = 70_000
    batch = boxes_with_a_word([[0.0, 0.0]] * n, [[1.0, 1.0]] * n, 0)
    w.add(0, batch._replace(word=np.arange(n, dtype=np.int32)))
    assert len(w.index._words._cells) == 0
    asked = {"word_start": np.array([0, 3]), "word": np.array([5, 9, 69_999], np.int32)}
    found = w.index.match_events(points([[0.5, 0.5]], 2)._replace(**asked), new_counters())[1]
    assert sorted(found.tolist()) == [5, 9, 69_999]


def test_more_words_than_bits_for_them():
    w = Wordy("even", columns=2, most=2)
    w.vocabulary = 300_000
    n = 3000
    low = w.rng.random((n, 2))
    word = np.sort(w.rng.integers(0, w.vocabulary, (n, 2)), axis=1).astype(np.int32)
    word[:, 1] += 1
    batch = boxes_with_a_word(low, low + 0.3, 0)
    w.add(0, batch._replace(word_start=np.arange(n + 1) * 2, word=word.ravel()))
    assert len(w.index._words._cells) == n
    asked = np.unique(word[:200] % (1 << 17) + [[[0]], [[1 << 17]]])  # bits are shared by two
    asked = np.unique(np.concatenate([asked, word[:400].ravel()])).astype(np.int32)
    event = points([[0.5, 0.5]], 2)._replace(word_start=np.array([0, asked.size]), word=asked)
    assert w.check(batch=event) > 0


def test_words_that_no_clause_asks_for_are_nobodys() -> None:
    """Codes beyond those of clauses share bits with them: 1024 and more of them."""
    matcher, scan = (Matcher(index=index, space="planar") for index in ("pivot", "scan"))
    wanted = [
        Subscription(id=f"s{k}", keywords={f"w{k % 50}"}, region=Box(x, y, x + 1, y + 1))
        for k in range(1100)
        for x, y in [(k % 33, k // 33)]
    ]
    wanted.append(Subscription(id="wordy", keywords={f"v{k}" for k in range(1200)}))
    for each in (matcher, scan):
        each.add_subscriptions(wanted)
        each.add_events([Event(id="live", keywords={f"u{k}" for k in range(3000)})])
    words = matcher.schema.words
    high = [next(w for w, code in words.items() if code == 1024 + k) for k in (3, 1024)]
    rare = next(w for w, code in words.items() if code == 60)
    late = [
        Subscription(id="tail", keywords={"w7"}, region=Box(5, 5, 6, 6)),
        Subscription(id="two", keywords={rare, high[0]}, region=Box(5, 5, 6, 6)),
    ]
    alias = {w for w, code in words.items() if code >= 1024 and code % 1024 < 60}
    few = next(w for w in words if words[w] >= 1024 and words[w] % 1024 == words["w7"])
    same = next(w for w in words if words[w] == 3)
    messages = [alias, {few}, {rare, same}, {rare, high[0]}, {*alias, rare, "w7"}, {*high}]
    for each in (matcher, scan):
        each.add_subscriptions(late)
    matcher.check_invariants()
    for place in (Point(5.5, 5.5), Box(5.2, 5.2, 5.8, 5.8)):
        for keywords in messages:
            event = Event(id="e", keywords=keywords, location=place)
            assert matcher.match_event(event) == scan.match_event(event)


@kernel
def _compared(codes, codes_of_events, out):
    for i in range(out.shape[0]):
        stop = codes.shape[1] - layout.ROW
        holds, touched = matching._compare(codes[i], 0, stop, codes_of_events[i], 0)
        out[i, 0], out[i, 1] = holds, touched


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_four_predicates_at_once_are_compared_as_one_by_one(groups):
    rng = np.random.default_rng(groups)
    none, four = layout.NO_DIM, layout.AT_ONCE
    shape = (300, four * groups)
    column = np.where(rng.random(shape) < 0.3, none, rng.integers(0, 24, shape))
    border = np.array([0, 1, 127, 128, 129, 254, 255])
    low, high = (
        np.where(rng.random(shape) < 0.5, rng.integers(0, 256, shape), rng.choice(border, shape))
        for _ in range(2)
    )
    mostly = rng.random((shape[0], 1)) < 0.8  # or hardly any would hold
    low, high = np.where(mostly, low % 4, low), np.where(mostly, 255 - high % 4, high)
    low[column == none], high[column == none] = 0, 255
    events = rng.integers(0, 255, (shape[0], layout.CODES)).astype(np.uint8)
    events[:, none] = layout.ANY
    codes = np.zeros((shape[0], 3 * shape[1] + layout.ROW), np.uint8)
    for j in range(shape[1]):
        at = j // four * layout.GROUP + j % four
        codes[:, at], codes[:, at + four], codes[:, at + 2 * four] = (
            column[:, j],
            low[:, j],
            high[:, j],
        )
    value = np.take_along_axis(events, column, 1)
    out = np.zeros((shape[0], 2), bool)
    _compared(codes, events, out)
    assert out[:, 0].tolist() == ((low <= value) & (value <= high)).all(axis=1).tolist()
    assert out[:, 1].tolist() == ((low == value) | (value == high)).any(axis=1).tolist()
    assert 0 < np.count_nonzero(out[:, 0]) < shape[0]
