"""Words where they are said: sets of words that stand near each other on a map."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.errors import DatasetError

__all__ = ["LocalWords"]

_BITS = 16
#: How far words are looked for at first, in occurrences along the curve; twice as far each time.
_NEAR = 4.0


class LocalWords:
    """What is said where: the rows of a table of words and places, along a curve through the plane.

    Rows that are near each other on the curve (Z-order, 2¹⁶ cells a side) are near each other on
    the ground, so a window of it is a neighbourhood, large where little is said.
    """

    def __init__(
        self,
        keywords: pa.ListArray,
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        among: pa.Array | None = None,
    ) -> None:
        """`among`: these words only."""
        order = np.argsort(_along(x, y), kind="stable")
        said = keywords.take(pa.array(order)).flatten()
        sizes = np.asarray(pc.fill_null(pc.list_value_length(keywords), 0))[order]
        row = order[np.repeat(np.arange(len(order)), sizes)]
        self.words: pa.Array = pc.unique(said) if among is None else among
        code = pc.index_in(said, self.words)
        known = np.asarray(pc.is_valid(code))
        self._code = np.asarray(code.drop_null()).astype(np.int64)
        self._place = np.stack([x[row], y[row]], axis=1)[known]
        if not self._code.size:
            raise DatasetError("no row has such a word")

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each word is said."""
        counts: NDArray[np.int64] = np.bincount(self._code, minlength=len(self.words))
        return counts

    def places(self, rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
        """Places where something is said."""
        found: NDArray[np.float64] = self._place[rng.integers(0, self._code.size, rows)]
        return found

    def draw(
        self, rng: np.random.Generator, sizes: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(codes, places): so many words at each of `sizes` places, with repetition."""
        centre = rng.integers(0, self._code.size, sizes.size)
        owner = np.repeat(centre, sizes)
        return self._near(rng, owner, _NEAR), self._place[centre]

    def _near(
        self, rng: np.random.Generator, centre: NDArray[np.int64], reach: float
    ) -> NDArray[np.int64]:
        away = np.rint(rng.laplace(0.0, reach, centre.size)).astype(np.int64)
        found: NDArray[np.int64] = self._code[(centre + away) % self._code.size]
        return found

    def sets(
        self, rng: np.random.Generator, sizes: NDArray[np.integer[Any]]
    ) -> tuple[pa.Array, NDArray[np.float64]]:
        """(words, places): one set after the other, ascending by code, and the place of each.

        A set begins with a word that is said at the place. The others are drawn from further and
        further around until it is full. O(words · log) a round.
        """
        if sizes.size and sizes.max() > np.count_nonzero(self.counts):
            raise DatasetError(f"a set of {sizes.max()} cannot be drawn out of {len(self.words)}")
        many, size = len(self.words), self._code.size
        centre = rng.integers(0, size, sizes.size)
        rows = np.arange(sizes.size)
        keys = rows * many + self._code[centre]
        missing, reach = sizes - 1, _NEAR
        while missing.any():
            owner = np.repeat(rows, missing)
            fresh = owner * many + self._near(rng, centre[owner], reach)
            keys = np.unique(np.concatenate([keys, fresh]))
            missing = sizes - np.bincount(keys // many, minlength=sizes.size)
            reach = min(2 * reach, float(size))
        return self.words.take(pa.array(keys % many)), self._place[centre]


def _along(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Each place's number on the curve."""
    number = np.zeros(x.size, np.uint64)
    for shift, value in enumerate((x, y)):
        span = np.ptp(value) or 1.0
        cell = ((value - value.min()) / span * (2**_BITS - 1)).astype(np.uint64)
        for bit in range(_BITS):
            number |= (cell >> np.uint64(bit) & np.uint64(1)) << np.uint64(2 * bit + shift)
    return number
