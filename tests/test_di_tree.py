"""DI-Tree: the paper's numbers by hand, and every answer against brute force."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from nearcast.errors import ValidationError
from nearcast.index import registry
from nearcast.index.base import MatchReport, SubscriptionIndex, new_counters
from nearcast.index.clauses import ClauseBatch, ClauseStore
from nearcast.index.di_tree import DITree
from nearcast.index.events import EventBatch, EventStore
from tests.predicates import ENDS, World

VARIANTS = ("f", "b", "fo", "bo", "fn")

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


# -- fitting again -----------------------------------------------------------------------


def test_domains_are_learnt_anew_when_many_come_or_many_lie_outside():
    """Twice as many rows and more, or a quarter of the ends and more outside of the domains."""
    world = World(DITree, "narrow", columns=1, most=1)
    world.add(100)

    def more(n, low, high):
        batch = ClauseBatch(
            np.zeros(n, np.int32), np.arange(n + 1), np.zeros(n, np.int32),
            np.full(n, low), np.full(n, high), {},
        )  # fmt: skip
        world.index.add_clauses(world.clauses.extend(batch))
        return float(world.index._domains.hi[0])

    assert more(3000, 0.2, 0.3) < 2, "few more, and none outside"
    assert more(1000, 500.0, 600.0) < 2, "not yet: it is looked at when the next ones come"
    assert more(1, 0.2, 0.3) > 400
    assert more(3000, 0.2, 0.3) > 400
    assert more(3000, 0.2, 0.3) > 400
    world = World(DITree, "narrow", columns=1, most=1)
    world.add(100)
    assert more(4000, 0.2, 3.0) < 4
    assert world.index._drift.fitted == 100
    more(300, 0.2, 0.3)
    assert world.index._drift.fitted == 4400


def test_positions_of_the_dead_serve_again():
    world = World(partial(DITree, threshold=32), "narrow", columns=2, most=2)
    world.add(3000)
    for _ in range(6):
        world.remove(2000)
        world.add(2000)
    assert world.index._positions.used < 3000 + 2000 + 1024 + 3000 // 8
    held = sum(world.index._forest.lists.items(at).size
               for at in range(world.index._forest.lists.used))  # fmt: skip
    assert held <= 2 * 2 * world.index._positions.used
    world.check(2)


# -- what the bitsets save ---------------------------------------------------------------


def _report(tree, value):
    counters = new_counters()
    tree.match_event(_event(value), 0, counters)
    return MatchReport.of(counters)


def test_bitsets_stand_for_the_nodes_without_comparison():
    """§IV.C on figure 1 and the value 0.7.

    Forward, leaves 11, 12, 14 and 15 decide, 12 without a comparison; backward, those below
    node 2 (3, 4 and 6) and 17 without one, and 11, 14 and 15 with. A bitset knows the answer
    of the former, so what is left is 11, 14 and 15, with one interval each.
    """
    leaves = {"f": 4, "fo": 3, "b": 7, "bo": 3, "fn": 4}
    for variant, nodes in leaves.items():
        tree = _one_column(SAMPLE, variant=variant, threshold=-1, layers=3)
        assert _report(tree, 0.7)[:3] == (nodes, 3, 4), variant


@pytest.mark.parametrize("budget", [0, 1, 2, 5, 16, 32, 200])
def test_a_column_has_as_many_cells_as_its_predicates_pay_for(budget):
    """A cell costs a bit a clause, a predicate pays 8 · budget bits: 2 to 256 cells, a power of 2.

    Columns 0, 1 and 2 are mentioned by all, half and an eighth of 64 clauses.
    """
    store = ClauseStore()
    tree = DITree(store, EventStore(), bitset_bytes=budget)
    rows = []
    for i in range(64):
        columns = [c for c, every in enumerate((1, 2, 8)) if i % every == 0]
        rows.append(store.append(0, columns, [0.2] * len(columns), [0.4] * len(columns), None))
    tree.add_clauses(np.array(rows, np.int32))
    bits = [8 * budget, 4 * budget, budget]
    powers = [2**k for k in range(1, 9)]
    wanted = [max((p for p in powers if p <= paid), default=0) for paid in bits]
    depth = tree._vetoes.table.depth.tolist()
    assert [0 if d < 0 else 2**d for d in depth] == wanted


@pytest.mark.parametrize("variant", ["fo", "bo"])
def test_a_cell_vetoes_whoever_cannot_match_there(variant):
    """Forward, who does not cover the whole cell, for a comparison may lift it; backward, who
    does not meet it. Where the column is missing, everybody who asks for it."""
    rng = np.random.default_rng(8)
    ends = np.sort(rng.integers(0, 17, (300, 2)) / 16 + 1 / 64, axis=1).clip(0, 1).tolist()
    for singly in (False, True):
        tree = _one_column(ends[:200], variant=variant, bitset_bytes=2)
        rest = ends[200:]
        store = tree._clauses
        rows = [store.append(0, [0], [low], [high], None) for low, high in rest]
        for some in np.array_split(np.array(rows, np.int32), len(rows) if singly else 1):
            tree.add_clauses(some)
        table = tree._vetoes.table
        assert table.depth.tolist() == [4]
        used = tree._positions.row[: tree._positions.used]
        place = {row: at for at, row in enumerate(used.tolist())}
        for row, (low, high) in enumerate(ends):
            word, bit = divmod(place[row], 64)
            vetoed = (table.bits[int(table.first[0]) :, word] >> np.uint64(bit)) & np.uint64(1)
            for cell in range(16):
                left, right = cell / 16, (cell + 1) / 16
                # cells are closed on the right: the value on a split point belongs to the left
                meets = low <= right and (high > left or cell == 0)
                covers = low < left and high > right
                can = covers if variant == "fo" else meets
                assert bool(vetoed[cell]) != can, (row, low, high, cell)
            assert vetoed[16]


def test_what_fails_most_comes_first_and_nothing_comes_after_the_last():
    """Column 1 vetoes nearly everybody, so column 0 is not even walked for who is gone."""
    store = ClauseStore()
    tree = DITree(store, EventStore(), variant="fo", domain=(0.0, 1.0), threshold=-1, layers=1)
    rows = [store.append(0, [0, 1], [0.0, 0.9], [1.0, 0.95], None) for _ in range(100)]
    tree.add_clauses(np.array(rows, np.int32))
    assert tree._vetoes.table.order.tolist() == [1, 0]
    # threshold −1 and one layer: each tree is its root, one leaf with both ends to compare
    batch = EventBatch(
        np.array([0, 2]), np.array([0, 1], np.int32), np.array([0.5, 0.1]), np.zeros(2, np.int64),
        np.empty(0, np.int32), 2,
    )  # fmt: skip
    counters = new_counters()
    assert tree.match_event(batch, 0, counters).size == 0
    assert counters[:3].tolist() == [1, 100, 0]


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
    for name in ("di-tree", "di-tree:f", "di-tree:b", "di-tree:bo", "di-tree:fn"):
        entry = registry.require(name, subscriptions=True)
        index = entry.load()(ClauseStore(), EventStore(), **dict(entry.options))
        assert isinstance(index, SubscriptionIndex)
        assert entry.subscriptions is not None
        assert entry.subscriptions.exact
