"""`mo`: MO-Tree's workload (its table 4), intervals over 20 attributes and a square each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.datasets import columns
from nearcast.datasets.base import Workload, arrival_times, require
from nearcast.datasets.clusters import Clusters, busiest_cells
from nearcast.datasets.globe import to_plane
from nearcast.datasets.popularity import Popularity
from nearcast.datasets.readers import DataFolder
from nearcast.datasets.streams import generator
from nearcast.model.geometry import Space

__all__ = ["MoWorkload"]

_SIDE_M = 100_000.0
_HOT_SPOTS = 10_000
_SCATTER_M = 400.0
_CELL_M = 100.0
_PICK_UPS = ("sf_cab_trips", "nyc_uber_pickups")


@dataclass(frozen=True)
class MoWorkload(Workload):
    """A plane of 100 × 100 km with 10 000 hot spots, 1 unit = 1 m.

    A subscription is a square with a half-side in `r_m` around a pick-up point near a hot
    spot, which counts as two of its `k` predicates, and `k` − 2 closed intervals with
    uniform ends over different attributes out of `m`. An event happens at a hot spot and
    carries 15 to 20 of the attributes (fewer where `m` is smaller), uniform in [0, 1].
    Attributes are drawn by Zipf(`alpha`), a00 being the most popular.

    `source` may name a file of real pick-ups (`sf_cab_trips`, `nyc_uber_pickups`, read
    from NEARCAST_DATA): pick-ups are then its points, hot spots its busiest cells of
    100 m, both projected to metres. With `ttl_s`, events come at `rate_hz` with `start`,
    `end` and an `expires` half to one and a half times `ttl_s` later.
    """

    name: ClassVar[str] = "mo"

    k: int = 10
    alpha: float = 1.0
    m: int = 20
    r_m: tuple[float, float] = (500.0, 2000.0)
    event_size: tuple[int, int] = (15, 20)
    source: str | None = None
    ttl_s: float | None = None
    rate_hz: float = 1000.0

    def _check(self) -> None:
        require(self.m >= 1, "m", self.m, "give at least one attribute")
        require(
            2 <= self.k <= self.m + 2,
            "k",
            self.k,
            f"give 2 … {self.m + 2}: the square counts as two, the others need an attribute each",
        )
        require(0 <= self.alpha <= 10, "alpha", self.alpha, "give 0 … 10")
        low, high = self.r_m
        require(0 < low <= high, "r_m", self.r_m, "give (least, most) in metres, both > 0")
        least, most = self.event_size
        require(1 <= least <= most, "event_size", self.event_size, "give (least, most), both ≥ 1")
        require(
            self.source is None or self.source in _PICK_UPS,
            "source",
            self.source,
            f"give None or one of {', '.join(_PICK_UPS)}",
        )
        require(
            self.ttl_s is None or self.ttl_s > 0, "ttl_s", self.ttl_s, "give seconds > 0 or None"
        )
        require(self.rate_hz > 0, "rate_hz", self.rate_hz, "give events per second > 0")

    @property
    def space(self) -> Space:
        """A plane in metres."""
        return "planar"

    @cached_property
    def _popularity(self) -> Popularity:
        return Popularity.zipf(self.m, self.alpha)

    @cached_property
    def _names(self) -> NDArray[np.uint8]:
        return columns.names("a", self.m)

    @cached_property
    def _pick_ups(self) -> NDArray[np.float64] | None:
        """Real pick-up points on the plane; None where they are made up."""
        if self.source is None:
            return None
        lon, lat = DataFolder().places(self.source)
        west, south = float(lon.min()), float(lat.min())
        return np.stack(to_plane(lon, lat, west, south), axis=1)

    @cached_property
    def hot_spots(self) -> NDArray[np.float64]:
        """The places of events, one (x, y) a row."""
        real = self._pick_ups
        if real is not None:
            return busiest_cells(real, _CELL_M, _HOT_SPOTS)
        rng = generator(self.seed, "hot spots")
        town = Clusters.drawn(rng, count=16, spread=(0.01, 0.055), noise=0.1, alpha=0.9)
        return town.draw(rng, _HOT_SPOTS) * _SIDE_M

    def _centres(self, rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
        real = self._pick_ups
        if real is not None:
            return real[rng.integers(0, len(real), rows)]
        spots = self.hot_spots[rng.integers(0, len(self.hot_spots), rows)]
        return spots + rng.standard_normal((rows, 2)) * _SCATTER_M

    def _subscription_block(
        self, rng: np.random.Generator, first: int, rows: int
    ) -> pa.RecordBatch:
        x, y = self._centres(rng, rows).T
        r, wanted = self.wishes(rng, rows)
        square = {"xmin": x - r, "ymin": y - r, "xmax": x + r, "ymax": y + r}
        return pa.record_batch(
            {"id": columns.numbered("s", first, rows), "intervals": wanted, **square}
        )

    def wishes(self, rng: np.random.Generator, rows: int) -> tuple[NDArray[np.float64], pa.Array]:
        """Half-sides in metres and the `intervals` column of subscriptions, wherever they are."""
        r = rng.uniform(*self.r_m, rows)
        size = self.k - 2
        codes = np.flatnonzero(self._popularity.subsets(rng, np.full(rows, size))) % self.m
        ends = rng.random((2, rows * size))
        wanted = columns.intervals(
            columns.offsets_of(np.full(rows, size)),
            columns.named(self._names, codes),
            np.minimum(ends[0], ends[1]),
            np.maximum(ends[0], ends[1]),
        )
        return r, wanted

    def _event_block(self, rng: np.random.Generator, first: int, rows: int) -> pa.RecordBatch:
        x, y = self.hot_spots[rng.integers(0, len(self.hot_spots), rows)].T
        made = {
            "id": columns.numbered("e", first, rows),
            "attributes": self.attributes(rng, rows),
            "lon": np.ascontiguousarray(x),
            "lat": np.ascontiguousarray(y),
        }
        return pa.record_batch(made | self._times(rng, first, rows))

    def attributes(self, rng: np.random.Generator, rows: int) -> pa.Array:
        """The `attributes` column of events, wherever they are."""
        least, most = (min(size, self.m) for size in self.event_size)
        present = self._popularity.subsets(rng, rng.integers(least, most + 1, rows))
        values = rng.random((self.m, rows))
        names = [row.tobytes().decode() for row in self._names]
        return columns.structure(
            {name: columns.nullable(values[i], present[:, i]) for i, name in enumerate(names)}
        )

    def _times(self, rng: np.random.Generator, first: int, rows: int) -> dict[str, pa.Array]:
        if self.ttl_s is None:
            return {}
        now = arrival_times(rng, first, rows, self.rate_hz)
        left = (self.ttl_s * 1e6 * (0.5 + rng.random(rows))).astype(np.int64)
        end = columns.times(now)
        return {"start": end, "end": end, "expires": columns.times(now + left)}
