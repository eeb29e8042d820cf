"""What must hold in a BEQ-Tree beside what its quadtree and its lists check themselves."""

from __future__ import annotations

import numpy as np

from nearcast.index.beq_tree.kernels import Tree
from nearcast.index.events import LiveEvents
from nearcast.kernels.quadtree import CHILD, COUNT, LEAF, ROOT, RUN, TOP, USED, X, Y
from nearcast.kernels.sorted_lists import DIR_COUNT, PLAIN, check_runs, entries_of, lists_of

__all__ = ["check_lists"]

Entries = list[tuple[float, int]]


def check_lists(tree: Tree, live: LiveEvents) -> None:
    """Raise AssertionError where lists and events contradict each other."""
    q = tree.cells
    used = int(q.state[USED])
    check_runs(tree.lists, used)
    for node in range(used):
        filled = int(q.node[node, CHILD]) == LEAF and int(q.node[node, COUNT]) > 0
        if not filled:
            assert int(tree.lists.holder[node, DIR_COUNT]) == 0, "lists without events"
            continue
        expected = _expected(tree, live, node)
        assert lists_of(tree.lists, node) == expected, "lists and events disagree"
        if node >= ROOT:
            run, size = int(tree.lists.holder[node, PLAIN]), int(q.node[node, COUNT])
            assert entries_of(tree.lists, run, size) == _distances(tree, node)


def _slots(tree: Tree, node: int) -> list[tuple[int, int]]:
    """(slot, place in the heap of slots) of the leaf's events."""
    q = tree.cells
    start, top = int(q.node[node, RUN]), int(q.node[node, TOP])
    assert top <= tree.need[3], "counting has too little room"
    return [(s, start + s) for s in range(top) if q.slot_row[start + s] >= 0]


def _distances(tree: Tree, node: int) -> Entries:
    q = tree.cells
    x, y = float(q.geo[node, X]), float(q.geo[node, Y])
    at = [(s, *q.slot_at[place].tolist()) for s, place in _slots(tree, node)]
    return sorted(((px - x) * (px - x) + (py - y) * (py - y), s) for s, px, py in at)


def _expected(tree: Tree, live: LiveEvents, node: int) -> dict[int, Entries]:
    """The lists the leaf's events ask for, read from the store."""
    expected: dict[int, Entries] = {}
    for slot, place in _slots(tree, node):
        row = int(tree.cells.slot_row[place])
        run = slice(int(live.start[row]), int(live.start[row]) + int(live.count[row]))
        for attr, value in zip(live.attr[run].tolist(), live.value[run].tolist(), strict=True):
            if attr > 1 and not np.isnan(value):
                expected.setdefault(attr, []).append((value, slot))
    return {attr: sorted(entries) for attr, entries in expected.items()}
