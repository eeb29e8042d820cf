"""DI-Tree: the paper's numbers by hand, and every answer against brute force."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from nearcast.errors import ValidationError
from nearcast.index import registry
from nearcast.index.base import SubscriptionIndex, new_counters
from nearcast.index.clauses import ClauseBatch, ClauseStore
from nearcast.index.di_tree import DITree
from nearcast.index.events import EventBatch, EventStore
from tests.predicates import ENDS, World

VARIANTS = ("f", "b", "fo", "bo")

#: Table I.
SAMPLE = [
    (0.1, 0.2),
    (0.2, 0.4),
    (0.3, 0.4),
    (0.2, 0.7),
    (0.3, 0.8),
    (0.6, 0.7),
    (0.6, 0.9),
    (0.8, 0.9),
]


def _one_column(intervals, **options):
    store = ClauseStore()
    n = len(intervals)
    low, high = np.array(intervals, float).reshape(n, 2).T.copy()
    tree = DITree(store, EventStore(), domain=(0.0, 1.0), **options)
    batch = ClauseBatch(
        np.arange(n, dtype=np.int32), np.arange(n + 1), np.zeros(n, np.int32), low, high, {}
    )
    tree.add_clauses(store.extend(batch))
    return tree


def _event(value):
    return EventBatch(
        np.array([0, 1]),
        np.zeros(1, np.int32),
        np.array([value]),
        np.zeros(2, np.int64),
        np.empty(0, np.int32),
        1,
    )


def _matches(tree, value):
    return sorted(tree.match_event(_event(value), 0, new_counters()).tolist())


# -- the paper's numbers -----------------------------------------------------------------


@pytest.mark.parametrize("layers", range(1, 9))
def test_a_full_tree_has_as_many_nodes_as_the_paper_counts(layers):
    tree = _one_column(SAMPLE, threshold=-1, layers=layers)
    blue, green, lowest = tree.node_counts(0)
    assert blue == 2**layers - 1
    if layers > 1:
        assert green == (layers - 2) * 2**layers + 2
        assert lowest == (layers - 1) * 2 ** (layers - 1)
    else:
        assert green == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_table_1(variant):
    tree = _one_column(SAMPLE, variant=variant, threshold=-1, layers=3)
    assert _matches(tree, 0.7) == [3, 4, 5, 6]
    for value in np.linspace(-0.1, 1.1, 241):
        holds = [i for i, (low, high) in enumerate(SAMPLE) if low <= value <= high]
        assert _matches(tree, value) == holds
    tree.check_invariants()


def test_figure_1_nodes():
    tree = _one_column(SAMPLE, threshold=-1, layers=3)
    assert sum(tree.node_counts(0)[:2]) == 17
    assert tree.visited(0, 0.7, forward=True) == [11, 12, 14, 15]
    assert tree.visited(0, 0.7, forward=False) == [2, 11, 14, 15, 17]


def test_figure_1_contents():
    tree = _one_column(SAMPLE, threshold=-1, layers=3)
    # s1 = [0.2, 0.4] crosses 0.25 in node 2: low in 4, high in 5.
    assert tree.contents(0, 4) == [1]
    assert tree.contents(0, 5) == [1]
    assert tree.contents(0, 3) == [0]
    assert tree.contents(0, 6) == [2]
    assert tree.contents(0, 8) == [3]
    assert tree.contents(0, 9) == [4]
    assert tree.contents(0, 11) == [3]
    assert tree.contents(0, 12) == [4]
    assert tree.contents(0, 14) == [5]
    assert tree.contents(0, 15) == tree.contents(0, 16) == [6]
    assert tree.contents(0, 17) == [7]


def test_figure_1_can_be_drawn():
    drawn = _one_column(SAMPLE, threshold=-1, layers=3).to_dot(0)
    assert drawn.startswith("digraph")
    assert drawn.count("->") == 16
    assert drawn.count("lightblue") == 7
    assert '11 [label="11H\\n1", fillcolor=lightgreen];' in drawn


def test_a_value_on_a_split_point_belongs_to_the_left():
    tree = _one_column([(0.25, 0.5), (0.5, 0.75), (0.5, 0.5)], threshold=-1, layers=2)
    # [0.25, 0.5] lies left of 0.5, [0.5, 0.75] crosses it, [0.5, 0.5] lies left.
    assert [tree.contents(0, node) for node in (2, 3, 4, 5)] == [[0, 2], [1], [1], []]
    assert _matches(tree, 0.5) == [0, 1, 2]


def test_only_nodes_above_the_threshold_are_split():
    assert _one_column(SAMPLE, threshold=8).node_counts(0) == (1, 0, 0)
    points = [(k / 10, k / 10) for k in range(9)]  # within a cell: each counts once
    assert _one_column(points, threshold=9).node_counts(0) == (1, 0, 0)
    assert _one_column(points, threshold=8).node_counts(0)[:2] == (3, 2)  # six, two and one
    blue, green, _ = _one_column(SAMPLE, threshold=3).node_counts(0)
    assert (blue, green) == (3, 2)
    skewed = [(0.9 + k / 10_000, 0.9 + k / 10_000) for k in range(100)]
    tree = _one_column(skewed, threshold=10)
    full = _one_column(skewed, threshold=-1, layers=10)
    assert sum(tree.node_counts(0)[:2]) < sum(full.node_counts(0)[:2]) / 10
    tree.check_invariants()


@pytest.mark.parametrize("variant", VARIANTS)
def test_leaves_split_as_they_grow_and_serve_after_deletion(variant):
    store = ClauseStore()
    tree = DITree(store, EventStore(), variant=variant, threshold=4, domain=(0.0, 1.0))
    rng = np.random.default_rng(3)
    ends = np.sort(rng.random((200, 2)), axis=1)
    rows = []
    for low, high in ends.tolist():
        row = store.append(0, [0], [low], [high], None)
        tree.add_clauses(np.array([row], np.int32))
        rows.append(row)
        tree.check_invariants()
    assert sum(tree.node_counts(0)[:2]) > 50
    for row in rows[::2]:
        tree.remove_clauses(np.array([row], np.int32))
        store.release(row)
    left = {row: ends[row] for row in rows[1::2]}
    for value in rng.random(50).tolist():
        assert _matches(tree, value) == sorted(
            row for row, (low, high) in left.items() if low <= value <= high
        )


# -- against brute force -----------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ENDS)
def test_every_kind_of_data(variant, kind):
    world = World(partial(DITree, variant=variant, threshold=16), kind, columns=5, most=5)
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_sweeps_fits_and_reuse(variant):
    world = World(partial(DITree, variant=variant, threshold=64), "narrow", columns=6, most=3)
    world.live()


@pytest.mark.parametrize("variant", VARIANTS)
def test_common_and_rare_columns_together(variant):
    """Columns with bitsets and columns without, in one clause and one event."""
    world = World(partial(DITree, variant=variant, threshold=32), "wide", columns=3, most=3)
    world.add(1000)
    world.columns, world.most = 40, 6
    world.add(200)
    assert world.check(10, missing=0.05) > 0
    world.remove(300)
    world.check(10)


@pytest.mark.parametrize("variant", VARIANTS)
def test_columns_between_those_that_were_learnt(variant):
    world = World(partial(DITree, variant=variant), "wide", columns=12)
    world.add_on(0, 7)
    world.add_on(3)
    world.add_on(9, 11)
    world.add_on(10)
    assert world.check(20, missing=0.1) > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_ten_thousand_columns(variant):
    world = World(partial(DITree, variant=variant), "wide", columns=10_000, most=4)
    world.add(300)
    assert world.check(3, missing=0.1) > 0
    assert world.index.memory_bytes() < 20e6


def test_more_predicates_than_a_byte_counts():
    world = World(partial(DITree, variant="f"), "everything", columns=400, most=400)
    world.add(30)
    world.check(3, missing=0.0)
    assert world.check(3, missing=0.0) > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_empty_index_matches_nothing(variant):
    world = World(partial(DITree, variant=variant))
    assert world.index.match_event(_event(0.5), 0, new_counters()).size == 0
    world.index.add_clauses(np.empty(0, np.int32))
    world.index.remove_clauses(np.empty(0, np.int32))
    world.index.check_invariants()


def test_bad_options_are_refused():
    store, events = ClauseStore(), EventStore()
    with pytest.raises(ValidationError, match=r"variant: 'x' .* f, b, fo, bo"):
        DITree(store, events, variant="x")
    with pytest.raises(ValidationError, match=r"layers: 18 .* 1 … 17"):
        DITree(store, events, layers=18)


def test_registered():
    for name in ("di-tree", "di-tree:f", "di-tree:b", "di-tree:bo"):
        entry = registry.require(name, subscriptions=True)
        index = entry.load()(ClauseStore(), EventStore(), **dict(entry.options))
        assert isinstance(index, SubscriptionIndex)
        assert entry.subscriptions is not None
        assert entry.subscriptions.exact
