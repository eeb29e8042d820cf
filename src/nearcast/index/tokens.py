"""The global order of words that token-set indexes sort by.

*idf*: rarest first, so that a clause is filed under the word that fewest clauses have.
*alphabetical*: by spelling, which only the schema knows (`spelling=schema.word_of`).
*arrival*: by code. Ranks are fitted to the clauses at hand; later words are put where they
belong (rarest of all, or into the gap between their neighbours) without moving any other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from nearcast.errors import ValidationError
from nearcast.index.columns import grown

__all__ = ["Order", "Spelling", "TokenOrder"]

Order: TypeAlias = Literal["idf", "alphabetical", "arrival"]
Spelling: TypeAlias = Callable[[int], str]
I4: TypeAlias = npt.NDArray[np.int32]

_MIDDLE = 1 << 30
_LAST = (1 << 31) - 2


class TokenOrder:
    """Word code → rank, 0 for words that no clause has had so far."""

    def __init__(self, order: Order = "idf", spelling: Spelling | None = None) -> None:
        if order not in get_args(Order):
            raise ValidationError("order", order, f"give one of {', '.join(get_args(Order))}")
        if order == "alphabetical" and spelling is None:
            raise ValidationError(
                "spelling", spelling, "alphabetical order needs spelling=schema.word_of"
            )
        self.order = order
        self._spelling = spelling
        self.rank: I4 = np.zeros(0, np.int32)
        self.share: npt.NDArray[np.float64] = np.zeros(0)
        """By code: the word's share of all occurrences, when the order was fitted."""
        self._lowest = _MIDDLE
        self._names: list[str] = []
        self._ranks: list[int] = []

    def fit(self, words: I4) -> None:
        """Rank the words of these clauses afresh (every occurrence counts). Sorts them."""
        self.rank = np.zeros(int(words.max(initial=-1)) + 1, np.int32)
        self._lowest = _MIDDLE
        counts = np.bincount(words, minlength=self.rank.size)
        self.share = counts / max(1, words.size)
        known = np.flatnonzero(counts)
        if self.order == "idf":
            known = known[np.argsort(counts[known], kind="stable")]
            self.rank[known] = _MIDDLE + np.arange(known.size)
        elif self.order == "arrival":
            self.rank[known] = 1 + known
        else:
            self._fit_names(known.tolist())

    def _fit_names(self, codes: list[int]) -> None:
        assert self._spelling is not None
        spelled = sorted((self._spelling(code), code) for code in codes)
        gap = _LAST // (len(spelled) + 1)
        self._names = [name for name, _ in spelled]
        self._ranks = [gap * (i + 1) for i in range(len(spelled))]
        for (_, code), rank in zip(spelled, self._ranks, strict=True):
            self.rank[code] = rank

    def extend(self, words: I4) -> bool:
        """Rank the words that have none; False if a gap is used up, and `fit` is due."""
        size = int(words.max(initial=-1)) + 1
        if size > self.rank.size:
            old = self.rank.size
            self.rank = grown(self.rank, size)
            self.rank[old:] = 0
        new = np.unique(words[self.rank[words] == 0])
        if self.order == "arrival":
            self.rank[new] = 1 + new
            return True
        if self.order == "idf":
            if new.size >= self._lowest:
                return False
            self._lowest -= int(new.size)
            self.rank[new] = self._lowest + np.arange(new.size)
            return True
        return all(self._insert(code) for code in new.tolist())

    def _insert(self, code: int) -> bool:
        assert self._spelling is not None
        name = self._spelling(code)
        at = bisect_left(self._names, name)
        below = self._ranks[at - 1] if at else 0
        above = self._ranks[at] if at < len(self._ranks) else _LAST
        rank = (below + above) // 2
        if not below < rank < above:
            return False
        self._names.insert(at, name)
        self._ranks.insert(at, rank)
        self.rank[code] = rank
        return True

    def memory_bytes(self) -> int:
        """Bytes of the ranks, names roughly."""
        return int(self.rank.nbytes + self.share.nbytes) + sum(
            100 + len(name) for name in self._names
        )
