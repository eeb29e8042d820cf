"""`token-grid`: plain inverted lists and a grid.

A clause stands in the list of its first word (the rarest), and in a long list in the cells
its region reaches. A message looks into the lists of its words, in the cells it reaches.
"""

from __future__ import annotations

import numpy as np

from nearcast.index.base import Counters, EventBatch, Pairs
from nearcast.index.layers import Boxes, Layer, Layered
from nearcast.index.rivals.token_grid import kernels
from nearcast.index.rivals.token_grid.kernels import Lists
from nearcast.kernels.tokens import Entries

__all__ = ["TokenGrid"]


class TokenGrid(Layered):
    """One list a word, one grid a long list.

    A match costs a look-up for each of its words and the clauses in the cells it reaches;
    memory is about 70 bytes a clause, 4 a copy and 8 a cell.
    """

    def _build(self, entries: Entries) -> Lists:
        return Lists(*kernels.build(entries.start, entries.token, entries.box))

    def _match(self, layer: Layer, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        found: Pairs = kernels.match(
            layer.structure, layer.entries, self._clauses.table, self._order.rank,
            batch, boxes, counters,
        )  # fmt: skip
        return found

    def _check(self, layer: Layer) -> None:
        s, e = layer.structure, layer.entries
        assert bool((np.diff(s.run) >= 0).all())
        assert int(s.run[-1]) == s.item.size
        assert np.array_equal(np.unique(s.item), np.arange(e.row.size))
        for token, k in zip(s.key.tolist(), s.number.tolist(), strict=True):
            if token < 0:
                continue
            items = s.item[s.run[s.first[k]] : s.run[s.first[k + 1]]]
            assert bool((e.token[e.start[items]] == token).all())
            assert s.first[k + 1] - s.first[k] == 1 + int(s.side[k]) ** 2
