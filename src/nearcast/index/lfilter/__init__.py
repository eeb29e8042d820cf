"""`lfilter`: MBRTrie and PT-Quadtree side by side, and the cheaper way for each message.

A message is matched by the trie alone, by the quadtree's lists alone, or by *list pruning*:
the quadtree finds the lists near the message, and the trie tells which stretches of them
can have answers, since both know clauses by their place in token-set order. A cost model
chooses (LFilter §5); `MatchReport` tells what it expected, what it was, and the choice.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy.typing as npt

from nearcast.index import mbr_trie, pt_quadtree
from nearcast.index.base import ClauseStore, Counters, EventBatch, EventStore, Pairs
from nearcast.index.layers import Boxes, Layer, Layered, LayerOptions
from nearcast.index.lfilter import kernels
from nearcast.index.mbr_trie.kernels import Trie
from nearcast.index.pt_quadtree import Storage, division
from nearcast.index.pt_quadtree.kernels import Cells
from nearcast.kernels.tokens import Entries

__all__ = ["LFilter"]


class Both(NamedTuple):
    """The two structures over the same entries."""

    trie: Trie
    cells: Cells


class LFilter(Layered):
    """Both structures and the cost model; options as those of the two.

    A match costs about what the cheapest of three ways costs; memory is that of both
    structures, the entries counted once.
    """

    def __init__(
        self,
        clauses: ClauseStore,
        events: EventStore,
        bucket: int = 8,
        leaf: int = 64,
        least_area: float = 0.0,
        most_copies: float = 2.2,
        storage: Storage = "leaves",
        **options: Unpack[LayerOptions],
    ) -> None:
        mbr_trie.check_bucket(bucket)
        self._bucket = bucket
        self._division = division(leaf, least_area, most_copies, storage)
        super().__init__(clauses, events, **options)

    def _build(self, entries: Entries) -> Both:
        return Both(
            mbr_trie.built(entries, self._bucket), pt_quadtree.built(entries, self._division)
        )

    def _arrays(self, layer: Layer) -> tuple[npt.NDArray[Any], ...]:
        return (*layer.structure.trie, *layer.structure.cells)

    def _match(self, layer: Layer, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        found: Pairs = kernels.match(
            layer.structure.trie, layer.structure.cells, layer.entries, self._clauses.table,
            self._order.rank, self._order.share, batch, boxes, counters,
        )  # fmt: skip
        return found

    def _check(self, layer: Layer) -> None:
        mbr_trie.check_trie(layer.structure.trie, layer.entries, self._bucket)
        pt_quadtree.check_cells(layer.structure.cells, layer.entries, self._division)
