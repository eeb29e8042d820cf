"""`city`: a made-up town with roads, shops that publish offers, and people on the move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.clock import Micros, to_micros
from nearcast.datasets import columns
from nearcast.datasets.base import EPOCH, Workload, require, settle_types
from nearcast.datasets.movers import Positions, Routes, Taxis, people
from nearcast.datasets.offers import Shops, offer_block, open_shops
from nearcast.datasets.roads import RoadNetwork
from nearcast.datasets.streams import BATCH_ROWS, BLOCK_ROWS, generator, regroup
from nearcast.datasets.town import Addresses, HotAreas, Town, draw_town
from nearcast.datasets.wishes import subscription_block
from nearcast.model.geometry import Space

__all__ = ["City", "CityWorkload"]


@dataclass(frozen=True)
class City:
    """A town on the globe, drawn from a seed when first looked at (about half a second).

    >>> city = City(seed=7, radius_m=3000)
    >>> next(city.offers(3)).num_rows
    3
    """

    seed: int = 0
    lon: float = 8.5
    lat: float = 47.4
    radius_m: float = 10_000.0
    n_shops: int = 2500
    n_targets: int = 160

    def __post_init__(self) -> None:
        settle_types(self)
        require(self.seed >= 0, "seed", self.seed, "give an integer ≥ 0")
        require(-170 <= self.lon <= 170, "lon", self.lon, "give −170 … 170")
        require(-70 <= self.lat <= 70, "lat", self.lat, "give −70 … 70")
        require(1000 <= self.radius_m <= 30_000, "radius_m", self.radius_m, "give 1000 … 30000")
        require(self.n_shops >= 1, "n_shops", self.n_shops, "give at least one shop")
        require(self.n_targets >= 2, "n_targets", self.n_targets, "give two targets or more")

    @cached_property
    def town(self) -> Town:
        """The town as drawn."""
        return draw_town(generator(self.seed, "town"), self.lon, self.lat, self.radius_m)

    @property
    def roads(self) -> RoadNetwork:
        """The roads; all of them are connected."""
        return self.town.roads

    @property
    def hot_areas(self) -> HotAreas:
        """Where people crowd."""
        return self.town.hot_areas

    @property
    def river(self) -> NDArray[np.float64]:
        """The river's line, one (lon, lat) a row."""
        return self.town.river

    @cached_property
    def shops(self) -> Shops:
        """The shops."""
        return open_shops(generator(self.seed, "shops"), self.town, self.n_shops)

    @cached_property
    def _homes(self) -> Addresses:
        return Addresses(self.town, quiet=0.3)

    @cached_property
    def _routes(self) -> Routes:
        return Routes.drawn(generator(self.seed, "targets"), self.town, self.n_targets)

    def subscriptions(
        self,
        n: int,
        batch_rows: int = BATCH_ROWS,
        first: int = 0,
        start: object = EPOCH,
        text_share: float = 0.1,
    ) -> Iterator[pa.RecordBatch]:
        """`n` people's subscriptions: category, limits, words, a circle of 200 m to 2 km.

        A share of `text_share` is CQL2 in `where`; the others are ready intervals. One in
        four expires, days after `start`. Person p00000012 holds subscription s00000012.
        """
        require(0 <= text_share <= 1, "text_share", text_share, "give a share in 0 … 1")

        begin = to_micros(start, "start")

        def make(rng: np.random.Generator, row: int, rows: int) -> pa.RecordBatch:
            return self._subscription_block(rng, row, rows, begin, text_share)

        return regroup(make, self.seed, "subscriptions", first, n, batch_rows, BLOCK_ROWS)

    def offers(
        self,
        n: int,
        batch_rows: int = BATCH_ROWS,
        first: int = 0,
        start: object = EPOCH,
        rate_hz: float = 2.0,
    ) -> Iterator[pa.RecordBatch]:
        """`n` offers in the order of time, `rate_hz` a second from `start` on, valid for hours."""
        require(rate_hz > 0, "rate_hz", rate_hz, "give offers per second > 0")
        begin = to_micros(start, "start")

        def make(rng: np.random.Generator, row: int, rows: int) -> pa.RecordBatch:
            return self._offer_block(rng, row, rows, begin, rate_hz)

        return regroup(make, self.seed, "events", first, n, batch_rows, BLOCK_ROWS)

    def _subscription_block(
        self, rng: np.random.Generator, first: int, rows: int, start: Micros, text_share: float
    ) -> pa.RecordBatch:
        return subscription_block(self._homes, rng, first, rows, start, text_share)

    def _offer_block(
        self, rng: np.random.Generator, first: int, rows: int, start: Micros, rate_hz: float
    ) -> pa.RecordBatch:
        return offer_block(self.shops, rng, first, rows, start, rate_hz)

    def walk(
        self, n_people: int, steps: int, step_s: float = 5.0, start: object = EPOCH
    ) -> Iterator[Positions]:
        """People on foot, by bike and by car: everybody's position, step by step."""
        self._check_motion(n_people, step_s)
        require(steps >= 1, "steps", steps, "give one step or more")
        crowd = people(self.town, self._routes, self.seed, n_people)
        return crowd.walk(to_micros(start, "start"), steps, step_s)

    def traces(
        self,
        n_taxis: int,
        duration_s: float,
        step_s: float = 5.0,
        start: object = EPOCH,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Cabs with an occupancy flag: `id`, `ts`, `lon`, `lat`, `occupied`, `speed_m_s`,
        `heading`, a row per cab every `step_s` from `start` to `start + duration_s`.
        """
        self._check_motion(n_taxis, step_s)
        require(duration_s >= 0, "duration_s", duration_s, "give seconds ≥ 0")
        steps = int(duration_s // step_s) + 1
        cabs = Taxis(self.town, self._routes, self.seed, n_taxis)
        return _trace_batches(cabs.walk(to_micros(start, "start"), steps, step_s), batch_rows)

    @staticmethod
    def _check_motion(movers: int, step_s: float) -> None:
        require(movers >= 1, "movers", movers, "give one mover or more")
        require(0 < step_s <= 3600, "step_s", step_s, "give seconds in 0 … 3600")


def _trace_batches(steps: Iterator[Positions], batch_rows: int) -> Iterator[pa.RecordBatch]:
    held: list[Positions] = []
    for step in steps:
        held.append(step)
        if len(held) * step.lon.size >= batch_rows:
            yield _trace_batch(held)
            held = []
    if held:
        yield _trace_batch(held)


def _trace_batch(steps: list[Positions]) -> pa.RecordBatch:
    cabs = steps[0].lon.size
    names = columns.numbered("t", 0, cabs)
    micros = np.repeat(np.array([step.ts for step in steps], np.int64), cabs)
    joined = {
        field: np.concatenate([getattr(step, field) for step in steps])
        for field in ("lon", "lat", "occupied", "speed_m_s", "heading")
    }
    ids = names.take(np.tile(np.arange(cabs), len(steps)))
    return pa.record_batch({"id": ids, "ts": columns.times(micros), **joined})


@dataclass(frozen=True)
class CityWorkload(Workload):
    """The city's subscriptions and offers as a workload; see `City` for everything else."""

    name: ClassVar[str] = "city"

    radius_m: float = 10_000.0
    n_shops: int = 2500
    text_share: float = 0.1
    rate_hz: float = 2.0

    def _check(self) -> None:
        require(0 <= self.text_share <= 1, "text_share", self.text_share, "give 0 … 1")
        require(self.rate_hz > 0, "rate_hz", self.rate_hz, "give offers per second > 0")
        City(seed=self.seed, radius_m=self.radius_m, n_shops=self.n_shops)

    @property
    def space(self) -> Space:
        """The globe."""
        return "globe"

    @cached_property
    def city(self) -> City:
        """The city itself."""
        return City(seed=self.seed, radius_m=self.radius_m, n_shops=self.n_shops)

    def _subscription_block(
        self, rng: np.random.Generator, first: int, rows: int
    ) -> pa.RecordBatch:
        return self.city._subscription_block(rng, first, rows, EPOCH, self.text_share)

    def _event_block(self, rng: np.random.Generator, first: int, rows: int) -> pa.RecordBatch:
        return self.city._offer_block(rng, first, rows, EPOCH, self.rate_hz)
