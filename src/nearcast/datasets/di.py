"""`di`: DI-Tree's workload (its table II), intervals of one width and no place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.datasets import columns
from nearcast.datasets.base import Workload, require
from nearcast.datasets.popularity import Popularity
from nearcast.datasets.readers import DataFolder
from nearcast.model.geometry import Space

__all__ = ["DiWorkload"]


@dataclass(frozen=True)
class DiWorkload(Workload):
    """Subscriptions of `k` closed intervals of width `w`; events of `m` attributes.

    Attributes are drawn by Zipf(`alpha`) out of `attributes` (by default max(20, m): the
    paper does not tell), a00 being the most popular; values lie in [0, 1].

    `values` is "uniform", or "sp500" (read from NEARCAST_DATA): attribute i is then the
    i-th stock's closing price scaled to [0, 1], an event is a trading day, and each
    interval holds a price of its stock.
    """

    name: ClassVar[str] = "di"

    k: int = 10
    w: float = 0.4
    m: int = 20
    alpha: float = 0.0
    attributes: int | None = None
    values: str = "uniform"

    def _check(self) -> None:
        total = self.total_attributes
        require(self.m >= 1, "m", self.m, "an event has at least one attribute")
        require(total >= self.m, "attributes", total, f"events of {self.m} need as many or more")
        require(1 <= self.k <= total, "k", self.k, f"give 1 … {total}, one attribute each")
        require(0 <= self.w <= 1, "w", self.w, "give a width in 0 … 1")
        require(0 <= self.alpha <= 10, "alpha", self.alpha, "give 0 … 10")
        require(self.values in ("uniform", "sp500"), "values", self.values, "uniform or sp500")

    @property
    def space(self) -> Space:
        """A plane, though nothing lies on it."""
        return "planar"

    @property
    def total_attributes(self) -> int:
        """How many attributes there are."""
        return max(20, self.m) if self.attributes is None else self.attributes

    @cached_property
    def _popularity(self) -> Popularity:
        return Popularity.zipf(self.total_attributes, self.alpha)

    @cached_property
    def _names(self) -> NDArray[np.uint8]:
        return columns.names("a", self.total_attributes)

    @cached_property
    def _days(self) -> NDArray[np.float64] | None:
        """Real values, one day a row and one attribute a column."""
        if self.values == "uniform":
            return None
        return DataFolder().closing_prices(self.total_attributes)

    def _lows(self, rng: np.random.Generator, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        if self._days is None:
            return rng.random(codes.size) * (1 - self.w)
        held = self._days[rng.integers(0, len(self._days), codes.size), codes]
        return np.clip(held - self.w * rng.random(codes.size), 0.0, 1 - self.w)

    def _subscription_block(
        self, rng: np.random.Generator, first: int, rows: int
    ) -> pa.RecordBatch:
        sizes = np.full(rows, self.k)
        codes = np.flatnonzero(self._popularity.subsets(rng, sizes)) % self.total_attributes
        low = self._lows(rng, codes)
        wanted = columns.intervals(
            columns.offsets_of(sizes), columns.named(self._names, codes), low, low + self.w
        )
        return pa.record_batch({"id": columns.numbered("s", first, rows), "intervals": wanted})

    def _event_block(self, rng: np.random.Generator, first: int, rows: int) -> pa.RecordBatch:
        total = self.total_attributes
        if self._days is None:
            values = rng.random((total, rows))
        else:
            values = self._days[rng.integers(0, len(self._days), rows)].T
        present = self._popularity.subsets(rng, np.full(rows, self.m))
        names = [row.tobytes().decode() for row in self._names]
        attributes = {
            name: columns.nullable(values[i], present[:, i]) for i, name in enumerate(names)
        }
        return pa.record_batch(
            {
                "id": columns.numbered("e", first, rows),
                "attributes": columns.structure(attributes),
            }
        )
