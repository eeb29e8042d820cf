"""The nodes of all trees and how they come into being: planted at a fit, split later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, Rows
from nearcast.index.columns import grown
from nearcast.index.di_tree.nodes import kernels
from nearcast.index.di_tree.nodes.kernels import BLUE, HIGH_GREEN, LOW_GREEN, Tree
from nearcast.index.domains import cell_bits
from nearcast.index.lists import ListPool
from nearcast.kernels.cells import HALVINGS, Domains, cell, predicates_of
from nearcast.kernels.lists import Entries, drop

__all__ = ["Forest", "Shape"]

Columns = npt.NDArray[np.int64]

_CHILDREN = {
    BLUE: (BLUE, LOW_GREEN, HIGH_GREEN, BLUE),
    LOW_GREEN: (LOW_GREEN, LOW_GREEN),
    HIGH_GREEN: (HIGH_GREEN, HIGH_GREEN),
}


class Shape(NamedTuple):
    """When a node is split (§III.D)."""

    threshold: int
    """A leaf with more intervals is split; below 0 the trees are complete."""
    layers: int
    """At most so many layers."""


def _no_tree() -> Tree:
    return Tree(
        root=np.empty(0, np.int32),
        child=np.empty(0, np.int32),
        kind=np.empty(0, np.int8),
        layer=np.empty(0, np.int8),
        column=np.empty(0, np.int32),
        leaf=np.empty(0, np.int32),
        node=np.empty(0, np.int32),
        halvings=np.empty(0, np.int64),
        offset=np.empty(0, np.int64),
        shortcut=np.empty(0, np.int32),
    )


class Forest:
    """One DI-Tree a column, and the lists of their leaves."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.lists = ListPool(values=1)
        self.tree = _no_tree()
        self._nodes = 0
        self._planted = False
        """Whether the lists have room for just the rows they were planted for."""

    # -- growing -----------------------------------------------------------------------

    def plant(self, clauses: Clauses, rows: Rows, domains: Domains) -> None:
        """Trees for these rows, with the nodes they will need and empty leaves."""
        columns = domains.lo.size
        halvings = self._halvings(predicates_of(clauses, rows, columns))
        sizes = (halvings + 1) << halvings
        offset = np.concatenate([[0], np.cumsum(sizes)])
        counts = kernels.census(clauses, rows, domains, halvings, offset)
        root, nodes, held, shortcut = kernels.plant(
            columns, counts, halvings, offset, self._shape.threshold
        )
        self.lists = ListPool(values=1)
        child, kind, layer, column = nodes
        self.tree = _no_tree()._replace(
            root=root, child=child, kind=kind, layer=layer, column=column,
            halvings=halvings, offset=offset[:-1], shortcut=shortcut,
        )  # fmt: skip
        self._nodes = int(held.size)
        self._make_leaves(0, self._nodes)
        self.lists.expect(held[self.tree.node[: self.lists.used]])
        self._planted = True

    def _halvings(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How deep to look when planting: four layers more than uniform data would need."""
        most = self._shape.layers - 1
        if self._shape.threshold < 0:
            return np.full(counts.size, most)
        deep = cell_bits(counts, max(self._shape.threshold, 1), most).astype(np.int64)
        depth = np.minimum(deep + 4, min(most, 12))
        return np.where(counts > self._shape.threshold, depth, 0)

    def _make_leaves(self, first: int, stop: int) -> None:
        """Lists for the leaves among the nodes first … stop."""
        t = self.tree
        is_leaf = t.child[first:stop] < 0
        lists = np.where(is_leaf, np.where(t.kind[first:stop] == BLUE, 2, 1), 0)
        base = self.lists.make(int(lists.sum()))
        self.tree = t = t._replace(
            leaf=grown(t.leaf, t.child.size), node=grown(t.node, self.lists.used)
        )
        t.leaf[first:stop] = np.where(is_leaf, base + np.cumsum(lists) - lists, -1)
        t.node[base : self.lists.used] = np.repeat(np.arange(first, stop), lists)

    def _make_nodes(self, kinds: tuple[int, ...], layer: int, column: int | Columns) -> int:
        """Leaves of these kinds; the number of the first."""
        first, self._nodes = self._nodes, self._nodes + len(kinds)
        t = self.tree
        names = ("child", "kind", "layer", "column", "leaf")
        t = self.tree = t._replace(**{name: grown(getattr(t, name), self._nodes) for name in names})
        nodes = slice(first, self._nodes)
        t.child[nodes] = -1
        t.kind[nodes] = kinds
        t.layer[nodes] = layer
        t.column[nodes] = column
        self._make_leaves(first, self._nodes)
        return first

    def widen(self, columns: int) -> None:
        """Trees of a single leaf for further columns."""
        known = self.tree.root.size
        further = np.arange(known, columns)
        first = self._make_nodes((BLUE,) * further.size, 0, further)
        roots = (first + further - known).astype(np.int32)
        t = self.tree
        self.tree = t._replace(
            root=np.concatenate([t.root, roots]),
            halvings=np.concatenate([t.halvings, np.zeros(further.size, np.int64)]),
            offset=np.concatenate([t.offset, t.shortcut.size + further - known]),
            shortcut=np.concatenate([t.shortcut, roots]),
        )

    # -- posting -------------------------------------------------------------------------

    def post(self, clauses: Clauses, rows: Rows, positions: Rows, domains: Domains) -> None:
        """Put the rows' predicates into their leaves and split those that grow too large."""
        counts = clauses.count

        def enumerate_entries(first: int, stop: int) -> tuple[Entries, int]:
            some = rows[first:stop]
            predicates = counts[some[0]] if some.size == 1 else counts[some].sum(dtype=np.int64)
            entries = self.lists.entries(2 * int(predicates))
            return entries, kernels.enumerate_ends(
                clauses, some, positions[first:stop], domains, self.tree, entries
            )

        if self._planted:
            self.lists.push(int(rows.size), enumerate_entries)
            self._planted = False
        elif self.lists.post(int(rows.size), enumerate_entries) <= self._shape.threshold:
            return
        due = kernels.overfull(self.tree, self.lists.table, 0, self.lists.used, *self._limits())
        self._split_all(due.tolist(), domains)

    def _limits(self) -> tuple[int, int]:
        return self._shape.threshold, self._shape.layers - 1

    def _split_all(self, due: list[int], domains: Domains) -> None:
        while due:
            due += self._split(due.pop(), domains)

    def _split(self, node: int, domains: Domains) -> list[int]:
        """Make a leaf a branch; the children that must be split in turn."""
        t = self.tree
        leaf, kind = int(t.leaf[node]), int(t.kind[node])
        size = int(self.lists.table.size[leaf])
        first_list = self.lists.used
        first = self._make_nodes(_CHILDREN[kind], int(t.layer[node]) + 1, int(t.column[node]))
        t = self.tree
        t.child[node] = first
        entries = self.lists.entries(2 * size if kind == BLUE else size)
        n = kernels.split_ends(t, self.lists.table, domains, node, first_list, entries)
        for at in range(leaf, leaf + (2 if kind == BLUE else 1)):
            drop(self.lists.table, at)
        t.leaf[node] = -1
        self.lists.post_last(first_list, entries, int(n))
        found: list[int] = kernels.overfull(
            t, self.lists.table, first_list, self.lists.used, *self._limits()
        ).tolist()
        return found

    # -- looking -------------------------------------------------------------------------

    def ranges(self, column: int) -> Iterator[tuple[int, int, int]]:
        """The nodes of a column's tree with their first cell and number of cells.

        Parents come first, children from left to right.
        """
        waiting = [(int(self.tree.root[column]), 0, 1 << HALVINGS)]
        while waiting:
            node, first, cells = waiting.pop()
            yield node, first, cells
            base, half = int(self.tree.child[node]), cells >> 1
            kinds = _CHILDREN[int(self.tree.kind[node])]
            for j in range(len(kinds) - 1 if base >= 0 else -1, -1, -1):
                waiting.append((base + j, first + half * (2 * j // len(kinds)), half))

    def preorder(self, column: int) -> list[int]:
        """The nodes of a column's tree, parents first, children from left to right."""
        return [node for node, _, _ in self.ranges(column)]

    def visited(self, column: int, place: int, *, forward: bool) -> list[int]:
        """The nodes that decide about a value in this cell, without bitsets."""
        nodes = np.empty(kernels.MOST_NODES, np.int64)
        tests = np.empty(kernels.MOST_NODES, np.int8)
        n = kernels.walk(self.tree, column, place, -1, forward, nodes, tests)
        found: list[int] = nodes[:n].tolist()
        return found

    def arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        """The arrays of the nodes."""
        return self.tree

    def check_invariants(self, domains: Domains) -> None:
        """Every end lies in a leaf of its range, no leaf is too full, blue lists agree."""
        t = self.tree
        threshold, deepest = self._limits()
        for column in range(t.root.size):
            for node, first, cells in self.ranges(column):
                assert int(t.column[node]) == column
                at = int(t.leaf[node])
                assert (at < 0) == (int(t.child[node]) >= 0)
                if at < 0:
                    continue
                assert int(t.node[at]) == node
                size = int(self.lists.table.size[at])
                assert size <= max(threshold, 0) or int(t.layer[node]) == deepest
                lists = [at]
                if int(t.kind[node]) == BLUE:
                    lists = [at, at + 1]
                    assert np.array_equal(self.lists.items(at), self.lists.items(at + 1))
                for each in lists:
                    for value in self.lists.values(each)[:, 0].tolist():
                        assert first <= cell(domains, column, value) < first + cells
