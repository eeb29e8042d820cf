"""Popularity: things drawn by weight, Zipf's law among them, with and without repetition."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast.errors import DatasetError

__all__ = ["Popularity"]


class Popularity:
    """The codes 0 … size − 1, each drawn with a probability proportional to its weight.

    Without repetition means successive sampling: draw, put the code aside, draw from the
    rest.
    """

    def __init__(self, weights: NDArray[Any]) -> None:
        if weights.size == 0 or not (weights > 0).all():
            raise DatasetError("weights: give at least one, all greater than 0")
        self.size = weights.size
        self.probabilities: NDArray[np.float64] = weights / weights.sum()

    @classmethod
    def zipf(cls, size: int, alpha: float) -> Popularity:
        """Zipf's law: code r weighs 1 / (r + 1)^alpha; alpha = 0 is uniform."""
        return cls(1.0 / np.arange(1.0, size + 1) ** alpha)

    @cached_property
    def _cumulated(self) -> NDArray[np.float64]:
        cumulated: NDArray[np.float64] = np.cumsum(self.probabilities)
        cumulated /= cumulated[-1]
        return cumulated

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """`count` codes with repetition: O(log size) each."""
        return np.searchsorted(self._cumulated, rng.random(count), side="right")

    def subsets(
        self, rng: np.random.Generator, sizes: NDArray[np.integer[Any]]
    ) -> NDArray[np.bool_]:
        """One row a subset: true where a code is among the `sizes[row]` that were drawn.

        For few codes: O(size · log size) a row. Exponential clocks with rates in
        proportion to the weights ring in the order of successive sampling, so the first
        `sizes[row]` of them are the subset.
        """
        rings = rng.standard_exponential((sizes.size, self.size)) / self.probabilities
        last = np.sort(rings, axis=1)[np.arange(sizes.size), np.maximum(sizes, 1) - 1]
        chosen: NDArray[np.bool_] = (rings <= last[:, None]) & (sizes > 0)[:, None]
        return chosen

    def sets(self, rng: np.random.Generator, sizes: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The codes of sets of these sizes, one set after the other, ascending in each.

        For many codes: repeats are drawn again until every set is full, which is
        successive sampling too.
        """
        if sizes.size and sizes.max() > self.size:
            raise DatasetError(f"a set of {sizes.max()} cannot be drawn out of {self.size} things")
        rows = np.arange(sizes.size)
        keys = np.empty(0, np.int64)
        missing = sizes
        while missing.any():
            fresh = np.repeat(rows, missing) * self.size + self.draw(rng, int(missing.sum()))
            keys = np.concatenate([keys, fresh])
            keys.sort()
            keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
            missing = sizes - np.bincount(keys // self.size, minlength=sizes.size)
        return keys % self.size
