"""The predicate indexes that DI-Tree is compared with, each against brute force."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from nearcast.errors import CapabilityError, ValidationError
from nearcast.index import registry
from nearcast.index.base import EventIndex, SubscriptionIndex, new_counters
from nearcast.index.clauses import ClauseBatch, ClauseStore
from nearcast.index.events import EventStore
from nearcast.index.rivals.ada_rein import AdaRein
from nearcast.index.rivals.k_index import KIndex
from nearcast.index.rivals.op_index import OpIndex
from nearcast.index.rivals.pem import Pem
from nearcast.index.rivals.rein import Rein
from nearcast.index.rivals.tama import Tama
from nearcast.index.rivals.tama import kernels as tama_kernels
from nearcast.kernels.cells import Domains
from nearcast.kernels.lists import Entries
from tests.predicates import ENDS, World, random_events

EXACT = {"rein": Rein, "tama": Tama, "op-index": OpIndex, "k-index": KIndex, "pem": Pem}
OF_EVENTS = {"op-index": OpIndex, "k-index": KIndex}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("kind", ENDS)
def test_every_kind_of_data(name, kind):
    world = World(EXACT[name], kind, columns=5, most=5)
    world.add(400)
    world.check()
    world.add(9)
    for _ in range(20):
        world.add_one()
    world.remove(100)
    world.check()
    world.remove(10, one_by_one=True)
    for _ in range(5):
        world.add_one()
    world.check(missing=0.0)


@pytest.mark.parametrize("name", EXACT)
def test_sweeps_fits_and_reuse(name):
    world = World(EXACT[name], "narrow", columns=6, most=3)
    world.live()


@pytest.mark.parametrize("name", EXACT)
def test_columns_that_come_later(name):
    world = World(EXACT[name], "wide", columns=3, most=3)
    world.add(1000)
    world.columns, world.most = 40, 6
    world.add(200)
    assert world.check(10, missing=0.05) > 0
    world.add_one()
    world.remove(300)
    world.check(10)


@pytest.mark.parametrize("name", EXACT)
def test_columns_between_those_that_were_learnt(name):
    world = World(EXACT[name], "wide", columns=12)
    world.add_on(0, 7)
    world.add_on(3)
    world.add_on(9, 11)
    world.add_on(10)
    assert world.check(20, missing=0.1) > 0


@pytest.mark.parametrize("name", EXACT)
def test_ten_thousand_columns(name):
    world = World(EXACT[name], "wide", columns=10_000, most=4)
    world.add(300)
    assert world.check(3, missing=0.1) > 0
    assert world.index.memory_bytes() < 20e6


@pytest.mark.parametrize("name", EXACT)
def test_more_predicates_than_a_byte_counts(name):
    world = World(EXACT[name], "everything", columns=400, most=400)
    world.add(60)
    assert world.check(3, missing=0.0) > 0


@pytest.mark.parametrize("name", EXACT)
def test_an_empty_index_matches_nothing(name):
    world = World(EXACT[name])
    batch = random_events(world.rng, 1, "mixed", 4)
    assert world.index.match_event(batch, 0, new_counters()).size == 0
    world.index.add_clauses(np.empty(0, np.int32))
    world.index.remove_clauses(np.empty(0, np.int32))
    world.index.check_invariants()


# -- tama --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "cells"),
    [
        (0, 7, [6, 5, 9, 14, 16, 23]),
        (3, 3, [19]),
        (3, 4, [19, 20]),
        (0, 5, [5, 9, 12, 16, 21]),
        (1, 6, [5, 6, 17, 22]),
    ],
)
def test_the_cover_has_fewest_cells(first, last, cells):
    """Eight leaf cells are lists 8 … 15 below the root, list 1; 16 … 23 are for the ends."""
    domains = Domains(np.zeros(1), np.full(1, 8.0), np.full(1, 8192.0))
    table = tama_kernels.Cells(base=np.zeros(1, np.int64), bits=np.full(1, 3, np.int8))
    entries = Entries(np.empty(18, np.int32), np.empty(18, np.int32), np.empty((18, 0)))
    store = ClauseStore()
    row = store.append(0, [0], [first + 0.5], [last + 0.5], None)
    rows = np.array([row], np.int32)
    n = tama_kernels.enumerate_cover(store.table, rows, rows, domains, table, 1 << 16, entries)
    assert sorted(entries.target[:n].tolist()) == sorted(cells)


# -- ada-rein ----------------------------------------------------------------------------


def _uneven(n, seed=0):
    """Column 0 filters; columns 1 and 2 hardly ever fail."""
    rng = np.random.default_rng(seed)
    store = ClauseStore()
    low = np.column_stack([rng.random(n) * 0.9, np.full(n, -0.01), rng.random(n) * 0.02])
    high = np.column_stack([low[:, 0] + 0.1, np.full(n, 0.99), np.full(n, 1.0)])
    attr = np.tile(np.arange(3, dtype=np.int32), n)
    owners, start = np.arange(n, dtype=np.int32), 3 * np.arange(n + 1)
    rows = store.extend(ClauseBatch(owners, start, attr, low.ravel(), high.ravel(), {}))
    return store, rows


def test_ada_rein_skips_what_hardly_filters_and_misses_nothing():
    store, rows = _uneven(2000)
    events = random_events(np.random.default_rng(1), 30, "mixed", 3, missing=0.0)
    exact, loose = Rein(store, EventStore()), AdaRein(store, EventStore(), tolerance=0.2)
    exact.add_clauses(rows)
    loose.add_clauses(rows)
    assert loose.skipped == (1, 2)
    right = wrong = 0
    for at in range(events.size):
        wanted = set(exact.match_event(events, at, new_counters()).tolist())
        found = set(loose.match_event(events, at, new_counters()).tolist())
        assert wanted <= found
        right += len(wanted)
        wrong += len(found - wanted)
    assert 0 < wrong < 0.3 * (right + wrong)
    loose.check_invariants()


@pytest.mark.parametrize(("tolerance", "skipped"), [(0.19, ()), (0.21, (1,)), (0.89, (1,))])
def test_the_tolerance_of_ada_rein_is_the_share_of_wrong_answers_among_all(tolerance, skipped):
    """Column 1 holds for 0.8 of its domain: without it, 0.2 of the answers are wrong.

    Column 0 holds for 0.1 of its own, and without it 0.9 of them are.
    """
    store = ClauseStore()
    steps = np.arange(8) / 8
    ends = [((0.9 * s, 0.9 * s + 0.1), (0.2 * s, 0.2 * s + 0.8)) for s in (*steps, 1.0)]
    low, high = (np.array([[end[i] for end in pair] for pair in ends]) for i in (0, 1))
    attr = np.tile(np.arange(2, dtype=np.int32), len(ends))
    owners, start = np.arange(len(ends), dtype=np.int32), 2 * np.arange(len(ends) + 1)
    rows = store.extend(ClauseBatch(owners, start, attr, low.ravel(), high.ravel(), {}))
    index = AdaRein(store, EventStore(), tolerance=tolerance)
    index.add_clauses(rows)
    assert index.skipped == skipped


def test_ada_rein_without_tolerance_is_rein():
    world = World(partial(AdaRein, tolerance=0.0), "narrow")
    world.add(500)
    world.check()
    world.remove(100)
    world.check()
    assert world.index.skipped == ()


def test_ada_rein_answers_wrongly_only_for_skipped_columns():
    store, rows = _uneven(500)
    index = AdaRein(store, EventStore(), tolerance=0.9)
    index.add_clauses(rows)
    t = store.table
    events = random_events(np.random.default_rng(2), 20, "mixed", 3)
    for at in range(events.size):
        run = slice(int(events.start[at]), int(events.start[at + 1]))
        value = dict(zip(events.attr[run].tolist(), events.value[run].tolist(), strict=True))
        for row in index.match_event(events, at, new_counters()).tolist():
            for k in range(int(t.start[row]), int(t.start[row]) + int(t.count[row])):
                column = int(t.attr[k])
                holds = t.low[k] <= value.get(column, np.nan) <= t.high[k]
                assert holds or column in index.skipped


# -- pem ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [0.0, 0.2, 1.0])
def test_pem_at_any_width(width):
    world = World(partial(Pem, width=width), "mixed", columns=4, most=4)
    world.add(600)
    assert world.check() > 0
    world.remove(200)
    world.check()


# -- events ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_EVENTS)
@pytest.mark.parametrize("kind", ENDS)
def test_events_of_every_kind(name, kind):
    world = World(OF_EVENTS[name], kind, columns=5, most=3)
    world.add_events(400)
    world.check_subscriptions()
    for _ in range(10):
        world.add_one_event()
    world.remove_events(100)
    world.check_subscriptions()


@pytest.mark.parametrize("name", OF_EVENTS)
def test_events_that_come_expire_and_go(name):
    world = World(OF_EVENTS[name], "mixed", columns=4, most=3)
    world.add_events(1500, expires=100)
    world.add_events(1500)
    assert world.check_subscriptions(4, now=99) > world.check_subscriptions(4, now=100) > 0
    world.kind = "heavy tails"
    world.add_events(1000)
    world.check_subscriptions(3)
    world.remove_events(2600)
    world.columns = 9
    world.add_events(200)
    for _ in range(10):
        world.add_one_event()
    world.check_subscriptions(6)
    world.add_events(6000)
    world.check_subscriptions(3)
    world.remove_events(len(world.event_rows))
    assert world.check_subscriptions(3) == 0


@pytest.mark.parametrize("name", OF_EVENTS)
def test_events_of_ten_thousand_columns(name):
    world = World(OF_EVENTS[name], "wide", columns=10_000, most=3)
    world.add_events(30)
    assert world.check_subscriptions(5) > 0


# -- names -------------------------------------------------------------------------------


def test_registered():
    for name in (*EXACT, "ada-rein"):
        entry = registry.require(name, subscriptions=True)
        index = entry.load()(ClauseStore(), EventStore(), **dict(entry.options))
        assert isinstance(index, SubscriptionIndex)
        assert entry.approximate == (name == "ada-rein")
        assert (entry.events is not None) == (name in OF_EVENTS)
        assert isinstance(index, EventIndex) == (name in OF_EVENTS)
    with pytest.raises(CapabilityError, match=r"'rein' cannot do subscription matching.*op-index"):
        registry.require("rein", events=True)


def test_bad_options_are_refused():
    store, events = ClauseStore(), EventStore()
    with pytest.raises(ValidationError, match=r"tolerance: 1\.5"):
        AdaRein(store, events, tolerance=1.5)
    with pytest.raises(ValidationError, match=r"width: -1"):
        Pem(store, events, width=-1)
