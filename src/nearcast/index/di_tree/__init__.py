"""DI-Tree, the dual-ended interval tree (Li et al.; sections below are the paper's).

Intervals are classified at split points by where *both* ends lie: left, right, or across.
Those across are stored by their lower and by their upper ends, for on either side of the
split point only one end can fail. A value then finds the intervals that hold it, or those
that do not, with one comparison each in a few leaves, and without any in most nodes.

Five variants of one structure:

- `f` (fDI-Tree, §IV.A) counts the satisfied predicates of each clause;
- `b` (bDI-Tree, §IV.B) takes out each clause with a predicate that fails;
- `fo`, `bo` (§IV.C) do the same with bitsets: for each cell of an upper layer the clauses
  that nodes without comparison decide about are one bitset, so a column costs one pass
  over it and the comparisons in its leaves. `fo` is the paper's best, and the default.

The paper's B_null (clauses without a predicate on the column) is kept the other way round,
as vetoes of those that have one and are not known to be satisfied: AND becomes AND NOT,
and a clause costs nothing in columns it does not mention. A column that few clauses
mention has no bitsets; `fo` counts on it, `bo` marks. `fn` is fDI-Tree-o as it is printed,
with B_null for each column, marks at every match and ANDs: to see what the vetoes bring.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError
from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Rows
from nearcast.index.di_tree import kernels
from nearcast.index.di_tree.nodes import Forest, Shape
from nearcast.index.di_tree.nodes.kernels import BLUE
from nearcast.index.di_tree.nulls import Nulls
from nearcast.index.di_tree.nulls.kernels import match_marked
from nearcast.index.di_tree.vetoes import Vetoes
from nearcast.index.domains import given_domain
from nearcast.index.lists import ListPool
from nearcast.index.posted import PostedClauses
from nearcast.kernels.cells import HALVINGS, cell

__all__ = ["DITree"]

_VARIANTS = ("f", "b", "fo", "bo", "fn")


class DITree(PostedClauses):
    """An interval tree a column, matched forward or backward, with or without bitsets.

    `threshold` is the paper's v: a leaf with more intervals is split (below 0: never mind,
    the trees are complete); `layers` bounds the height. `bitset_bytes` is what the bitsets
    may take for each predicate; they halve the work with each doubling. `domain` fixes all
    columns' domains, which are learnt otherwise.
    """

    def __init__(
        self,
        clauses: ClauseStore,
        events: EventStore,  # noqa: ARG002
        variant: str = "fo",
        threshold: int = 1024,
        layers: int = HALVINGS + 1,
        bitset_bytes: int = 16,
        domain: tuple[float, float] | None = None,
    ) -> None:
        if variant not in _VARIANTS:
            raise ValidationError("variant", variant, f"give one of {', '.join(_VARIANTS)}")
        if not 1 <= layers <= HALVINGS + 1:
            raise ValidationError("layers", layers, f"give 1 … {HALVINGS + 1}")
        super().__init__(clauses)
        self._forward = variant.startswith("f")
        self._domain = domain
        self._forest = Forest(Shape(threshold, layers))
        self._nulls = Nulls() if variant == "fn" else None
        self._vetoes = Vetoes(bitset_bytes if variant.endswith("o") else 0, self._forward)

    # -- updates -------------------------------------------------------------------------

    def _fit(self, rows: Rows) -> None:
        if self._domain is not None:
            self._domains = given_domain(*self._domain, self._domains.lo.size)
        table = self._clauses.table
        self._forest.plant(table, rows, self._domains)
        self._vetoes.fit(table, rows, self._domains)
        if self._nulls is not None:
            self._nulls.fit(self._domains.lo.size)

    def _widen(self, columns: int) -> None:
        self._forest.widen(columns)
        self._vetoes.widen(columns)
        if self._nulls is not None:
            self._nulls.widen(columns)

    def _post(self, rows: Rows, positions: Rows) -> None:
        table = self._clauses.table
        self._forest.post(table, rows, positions, self._domains)
        if self._nulls is not None:
            live = self._positions.live[: self._positions.words()]
            self._nulls.post(table, rows, positions, live)
            return
        used = self._positions.used
        needs = self._vetoes.post(table, rows, positions, self._domains, used)
        if self._forward:
            counted = needs > 0
            self._needs.set(positions[counted], needs[counted], used)

    def _bitsets(self) -> tuple[npt.NDArray[np.uint64], ...]:
        return (self._vetoes.table.bits if self._nulls is None else self._nulls.table.bits,)

    def _pools(self) -> tuple[ListPool, ...]:
        return (self._forest.lists,)

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        nulls = () if self._nulls is None else self._nulls.table
        return (*self._forest.arrays(), *self._vetoes.table, *nulls)

    # -- matching ------------------------------------------------------------------------

    def match_event(self, batch: EventBatch, at: int, counters: Counters) -> Rows:
        """Walk the trees of the event's columns; then whoever is left over matches."""
        positions = self._positions
        live = positions.live[: positions.words()]
        if self._nulls is not None:
            marked: Rows = match_marked(
                live, positions.row, self._domains, self._forest.tree, self._nulls.table,
                self._forest.lists.table, batch, at, counters,
            )  # fmt: skip
            return marked
        trees = (self._domains, self._forest.tree, self._vetoes.table, self._forest.lists.table)
        if self._forward:
            needs = self._needs.array
            found = kernels.match_forward(live, positions.row, needs, *trees, batch, at, counters)
        else:
            found = kernels.match_backward(live, positions.row, *trees, batch, at, counters)
        rows: Rows = found
        return rows

    # -- looking -------------------------------------------------------------------------

    def visited(self, column: int, value: float, *, forward: bool) -> list[int]:
        """The nodes that decide about a value, numbered in preorder from 1 as in figure 1."""
        number = {node: k + 1 for k, node in enumerate(self._forest.preorder(column))}
        place = int(cell(self._domains, column, value))
        nodes = self._forest.visited(column, place, forward=forward)
        return sorted(number[node] for node in nodes)

    def contents(self, column: int, number: int) -> list[int]:
        """The rows in a leaf, by its number in preorder from 1."""
        leaf = int(self._forest.tree.leaf[self._forest.preorder(column)[number - 1]])
        rows = self._positions.row[self._forest.lists.items(leaf)]
        return sorted(rows[rows >= 0].tolist())

    def node_counts(self, column: int) -> tuple[int, int, int]:
        """Blue nodes, green nodes, and green nodes on the lowest layer, of a column's tree."""
        tree = self._forest.tree
        nodes = np.array(self._forest.preorder(column))
        green = tree.kind[nodes] != BLUE
        lowest = tree.layer[nodes] == tree.layer[nodes].max()
        return int((~green).sum()), int(green.sum()), int((green & lowest).sum())

    def to_dot(self, column: int) -> str:
        """A column's tree for Graphviz: numbers as in figure 1, intervals in each leaf."""
        tree, lists = self._forest.tree, self._forest.lists
        number = {node: k + 1 for k, node in enumerate(self._forest.preorder(column))}
        lines = ["digraph di_tree {", "  node [style=filled, shape=box];"]
        for node, k in number.items():
            leaf, base, kind = (int(a[node]) for a in (tree.leaf, tree.child, tree.kind))
            held = f"\\n{lists.items(leaf).size}" if leaf >= 0 else ""
            colour, letter = (("lightblue", ""), ("lightgreen", "L"), ("lightgreen", "H"))[kind]
            lines.append(f'  {k} [label="{k}{letter}{held}", fillcolor={colour}];')
            children = range(base, base + (4 if kind == BLUE else 2)) if base >= 0 else ()
            lines += [f"  {k} -> {number[child]};" for child in children]
        return "\n".join([*lines, "}"])

    def check_invariants(self) -> None:
        """Besides the lists: trees are well formed and bitsets belong to live or dead rows."""
        super().check_invariants()
        self._forest.check_invariants(self._domains)
        self._vetoes.check_invariants(self._positions.used)
        if self._nulls is not None:
            self._nulls.check_invariants(self._positions.used)
