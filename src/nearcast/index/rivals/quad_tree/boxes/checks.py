"""What must hold in the tree of regions."""

from __future__ import annotations

import numpy as np

from nearcast.index.clauses import Clauses
from nearcast.index.rivals.quad_tree.boxes import kernels
from nearcast.index.rivals.quad_tree.boxes.kernels import Boxes
from nearcast.kernels.quadtree import BEYOND, LEAF, NOWHERE, ROOT, UNUSED
from nearcast.kernels.runs import capacities, free_items

__all__ = ["check_boxes"]


def check_boxes(b: Boxes, table: Clauses) -> None:
    """Raise AssertionError unless every region stands in exactly the cells it should."""
    used = int(b.state[kernels.USED])
    tree = _check_cells(b)
    expected: set[tuple[int, int, bool]] = set()
    located = strays = 0
    for row in np.flatnonzero(b.place != kernels.ABSENT).tolist():
        box = np.empty(4, np.float32)
        place = int(b.place[row])
        if not kernels.box_of(table, row, box):
            assert int(b.cover_row[int(b.node[NOWHERE, kernels.COVER]) + place]) == row
            expected.add((NOWHERE, row, True))
            continue
        located += 1
        covered, met = kernels.pieces(b, box)
        expected.update((int(node), row, True) for node in covered)
        expected.update((int(node), row, False) for node in met)
        if place != kernels.INSIDE:
            at = int(b.node[BEYOND, kernels.PART]) + place
            assert int(b.part_row[at]) == row
            expected.add((BEYOND, row, False))
            strays += bool((np.abs(box) <= 1e15).all())
    held = [piece for node in sorted(tree) for piece in _held(b, table, node)]
    assert len(held) == len(set(held)), "a region stands in a cell twice"
    assert set(held) == expected, "regions and cells disagree"
    assert located == int(b.state[kernels.LOCATED])
    assert strays == int(b.state[kernels.STRAY])
    for heap, link, column in (
        (b.cover_heap, b.cover_row, kernels.COVER_CLASS),
        (b.part_heap, b.part_row, kernels.PART_CLASS),
    ):
        taken = int(capacities(b.node[:used, column]).sum())
        assert taken + free_items(heap, link) == int(heap[0]), "places leak"


def _held(b: Boxes, table: Clauses, node: int) -> list[tuple[int, int, bool]]:
    """(cell, row, whether it covers) of everything a cell holds."""
    start, count = int(b.node[node, kernels.COVER]), int(b.node[node, kernels.COVERS])
    held = [(node, int(row), True) for row in b.cover_row[start : start + count]]
    start, count = int(b.node[node, kernels.PART]), int(b.node[node, kernels.PARTS])
    assert count == 0 or int(b.node[node, kernels.CHILD]) == LEAF, "an inner cell holds pieces"
    for k in range(start, start + count):
        box = np.empty(4, np.float32)
        assert kernels.box_of(table, int(b.part_row[k]), box)
        assert bool((box == b.part_box[k]).all()), "a piece has lost its box"
        held.append((node, int(b.part_row[k]), False))
    return held


def _check_cells(b: Boxes) -> set[int]:
    """Check the tree's shape; returns the cells in use."""
    tree = {NOWHERE, BEYOND}
    stack = [ROOT]
    while stack:
        node = stack.pop()
        assert node not in tree, "a cell has two parents"
        tree.add(node)
        first = int(b.node[node, kernels.CHILD])
        if first != LEAF:
            assert first > ROOT
            assert bool((b.node[first : first + 4, kernels.PARENT] == node).all())
            assert bool((b.geo[first : first + 4, 2] * 2 == b.geo[node, 2]).all())
            stack += range(first, first + 4)
    free, quad = 0, int(b.state[kernels.FREE_QUADS])
    while quad >= 0:
        assert bool((b.node[quad : quad + 4, kernels.CHILD] == UNUSED).all())
        free, quad = free + 4, int(b.node[quad, kernels.PARENT])
    assert len(tree) + free == int(b.state[kernels.USED]), "a cell is lost"
    return tree
