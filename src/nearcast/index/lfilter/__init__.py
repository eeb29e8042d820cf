"""`lfilter`: MBRTrie and PT-Quadtree side by side, and the cheaper way for each message.

A message is matched by the trie alone, by the quadtree's lists alone, or by *list pruning*:
the quadtree finds the lists near the message, and the trie tells which stretches of them
can have answers, since both know clauses by their place in token-set order. A cost model
chooses (LFilter §5); `MatchReport` tells what it expected, what it was, and the choice.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError
from nearcast.index import mbr_trie, pt_quadtree
from nearcast.index.base import CHOICES, ClauseStore, Counters, EventBatch, EventStore, Pairs
from nearcast.index.layers import Boxes, Layer, Layered, LayerOptions
from nearcast.index.lfilter import kernels
from nearcast.index.lfilter.printed import Measures, measured
from nearcast.index.lfilter.printed import kernels as printed
from nearcast.index.mbr_trie.kernels import Trie
from nearcast.index.pt_quadtree import Storage, division
from nearcast.index.pt_quadtree.kernels import Cells
from nearcast.kernels.tokens import Entries

__all__ = ["LFilter"]


class Both(NamedTuple):
    """The two structures over the same entries."""

    trie: Trie
    cells: Cells
    shares: npt.NDArray[np.float32]
    """By word: its share of all occurrences, and of the clauses whose first word it is."""
    measures: Measures
    """What the paper's own cost model needs."""


class LFilter(Layered):
    """Both structures and the cost model; options as those of the two.

    `choose="cost"` lets the model choose; one of its choices by name is always made. "paper" is
    LFilter as it is printed: Eqs 1 to 6, one walk for all lists, binary searches.

    A match costs about what the cheapest of three ways costs; memory is that of both
    structures, the entries counted once.
    """

    def __init__(
        self,
        clauses: ClauseStore,
        events: EventStore,
        choose: str = "cost",
        bucket: int = 8,
        leaf: int = 64,
        least_area: float = 0.0,
        most_copies: float = 2.2,
        storage: Storage = "leaves",
        **options: Unpack[LayerOptions],
    ) -> None:
        if choose not in ("cost", "paper", *CHOICES):
            raise ValidationError(
                "choose", choose, f"give cost, paper or one of {', '.join(CHOICES)}"
            )
        self._printed = choose == "paper"
        self._forced = CHOICES.index(choose) if choose in CHOICES else -1
        mbr_trie.check_bucket(bucket)
        self._bucket = bucket
        self._division = division(leaf, least_area, most_copies, storage)
        super().__init__(clauses, events, **options)

    def _build(self, entries: Entries) -> Both:
        trie = mbr_trie.built(entries, self._bucket)
        cells = pt_quadtree.built(entries, self._division)
        return Both(trie, cells, self._shares(trie), measured(trie, cells, entries))

    def _shares(self, trie: Trie) -> npt.NDArray[np.float32]:
        rank, share = self._order.rank, self._order.share
        shares = np.zeros((rank.size, 2), np.float32)
        shares[: share.size, 0] = share[: rank.size]
        codes = np.argsort(rank, kind="stable")
        top = slice(int(trie.first[0]), int(trie.first[1]))
        at = np.searchsorted(rank[codes], trie.token[top])
        known = at < codes.size  # not the token of clauses without words, if there is no word
        known[known] &= rank[codes[at[known]]] == trie.token[top][known]
        sizes = trie.hi[top] - trie.lo[top]
        shares[codes[at[known]], 1] = sizes[known] / max(1, int(trie.hi[0]))
        return shares

    def _arrays(self, layer: Layer) -> tuple[npt.NDArray[Any], ...]:
        both = layer.structure
        return (*both.trie, *both.cells, both.shares, both.measures.level)

    def _match(self, layer: Layer, batch: EventBatch, boxes: Boxes, counters: Counters) -> Pairs:
        found: Pairs
        if self._printed:
            found = printed.match(
                layer.structure.trie, layer.structure.cells, layer.entries, self._clauses.table,
                self._order.rank, layer.structure.measures, batch, boxes, counters,
            )  # fmt: skip
            return found
        found = kernels.match(
            layer.structure.trie, layer.structure.cells, layer.entries, self._clauses.table,
            self._order.rank, layer.structure.shares, batch, boxes, self._forced, counters,
        )  # fmt: skip
        return found

    def _check(self, layer: Layer) -> None:
        mbr_trie.check_trie(layer.structure.trie, layer.entries, self._bucket)
        pt_quadtree.check_cells(layer.structure.cells, layer.entries, self._division)
