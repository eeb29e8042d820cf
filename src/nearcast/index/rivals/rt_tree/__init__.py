"""`rt-tree`: the R^t++-tree, an R-tree whose nodes know representative tokens.

A node has one token of every clause below it, another one on each level; a message goes
down where it meets the rectangle and has one of the tokens.
"""

from __future__ import annotations

from nearcast.index.base import Counters, EventBatch, Pairs
from nearcast.index.layers import Boxes, Layer, Layered
from nearcast.index.packed import Packed, check_packed, packed
from nearcast.index.rivals.rt_tree import kernels
from nearcast.index.rivals.rt_tree.kernels import Nodes
from nearcast.kernels.packing import FANOUT
from nearcast.kernels.tokens import Entries

__all__ = ["RTTree"]


class RTTree(Layered):
    """A packed R-tree with a set of tokens in each node.

    A match costs the nodes it meets whose tokens it shares; memory is about 70 bytes a
    clause and 4 a token and node.
    """

    def _build(self, entries: Entries) -> Nodes:
        tree = packed(entries)
        head = entries.token[entries.start[tree.order]]
        runs = kernels.representatives(tree.order, tree.levels, entries.start, entries.token)
        return Nodes(tree.order, head, tree.levels, tree.mbr, *runs)

    def _match(self, layer: Layer, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        found: Pairs = kernels.match(
            layer.structure, layer.entries, self._clauses.table, self._order.rank,
            batch, boxes, counters,
        )  # fmt: skip
        return found

    def _check(self, layer: Layer) -> None:
        s, e = layer.structure, layer.entries
        check_packed(Packed(s.order, s.levels, s.mbr), e)
        width = 1
        for level in range(s.levels.size - 1):
            width *= FANOUT
            for node in range(int(s.levels[level]), int(s.levels[level + 1])):
                known = s.pivot[s.start[node] : s.start[node + 1]].tolist()
                assert known == sorted(set(known))
                first = (node - int(s.levels[level])) * width
                for i in s.order[first : first + width].tolist():
                    assert set(e.token[e.start[i] : e.start[i + 1]].tolist()) & set(known)
