"""`ir-tree`: an R-tree with an inverted file in each node, made to filter messages.

A node's file tells for each word which of its children have it somewhere below. A message
goes down to the children that it meets and shares a word with; clauses are then compared.
"""

from __future__ import annotations

from nearcast.index.base import Counters, EventBatch, Pairs
from nearcast.index.layers import Boxes, Layer, Layered
from nearcast.index.packed import Packed, check_packed, packed
from nearcast.index.rivals.ir_tree import kernels
from nearcast.index.rivals.ir_tree.kernels import Nodes
from nearcast.kernels.packing import FANOUT
from nearcast.kernels.tokens import Entries

__all__ = ["IRTree"]


class IRTree(Layered):
    """A packed R-tree of nodes with 64 children; a word's children are one 64-bit number.

    A match costs the nodes it meets and shares a word with; memory is about 70 bytes a
    clause and 12 a word and node.
    """

    def _build(self, entries: Entries) -> Nodes:
        tree = packed(entries)
        runs = kernels.files(tree.order, tree.levels, entries.start, entries.token)
        return Nodes(*tree, *runs)

    def _match(self, layer: Layer, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        found: Pairs = kernels.match(
            layer.structure, layer.entries, self._clauses.table, self._order.rank,
            batch, boxes, counters,
        )  # fmt: skip
        return found

    def _check(self, layer: Layer) -> None:
        s, e = layer.structure, layer.entries
        check_packed(Packed(s.order, s.levels, s.mbr), e)
        below = [set(e.token[e.start[i] : e.start[i + 1]].tolist()) for i in s.order.tolist()]
        for level in range(s.levels.size - 1):
            unions: list[set[int]] = []
            for node in range(int(s.levels[level]), int(s.levels[level + 1])):
                first = len(unions) * FANOUT
                children = below[first : first + FANOUT]
                run = slice(int(s.start[node]), int(s.start[node + 1]))
                assert s.word[run].tolist() == sorted(set().union(*children))
                for word, who in zip(s.word[run].tolist(), s.who[run].tolist(), strict=True):
                    assert who == sum(1 << k for k, c in enumerate(children) if word in c)
                unions.append(set().union(*children))
            below = unions
