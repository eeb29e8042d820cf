"""`elaps`: Elaps' workload (its §6): what is said near a place, words with their frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.datasets import columns
from nearcast.datasets.base import Workload, require
from nearcast.datasets.clusters import Clusters
from nearcast.datasets.local_words import LocalWords
from nearcast.datasets.popularity import Popularity
from nearcast.datasets.readers import DataFolder
from nearcast.datasets.streams import generator
from nearcast.model.geometry import Space

__all__ = ["ElapsWorkload"]

_SOURCES = ("nyc_gowalla_checkins", "nyc_gowalla_venues", "us_geo_hashtags")
_SIDE_M = 200_000.0
_MOST_WORDS = 5000
#: Of frequencies that predicates compare with: geometric, as small ones are what there is.
_OFTEN = 0.5


@dataclass(frozen=True)
class ElapsWorkload(Workload):
    """Events whose attributes are words, each with its frequency; predicates on 1 to 5 of them.

    An event says `said` words (least, most), repeats counted: `w007 = 2`. A subscription has
    `predicates` of them in a circle of `radius_m`, each `≤`, `=`, `≥` or a range, alike often.
    Words are drawn by Zipf(`alpha`) out of `vocabulary`, for subscriptions as for events; places
    crowd around 60 towns in a square of 200 km.

    `source` may name a file with real words and places (`nyc_gowalla_venues`, `us_geo_hashtags`,
    `nyc_gowalla_checkins`, from NEARCAST_DATA): an event says what is said near its place, of the
    `vocabulary` most frequent words, and `alpha` is idle.
    """

    name: ClassVar[str] = "elaps"

    vocabulary: int = 100
    alpha: float = 1.0
    said: tuple[int, int] = (5, 15)
    predicates: tuple[int, int] = (1, 5)
    radius_m: float = 2000.0
    source: str | None = None

    def _check(self) -> None:
        require(
            self.source is None or self.source in _SOURCES, "source", self.source,
            f"give None or one of {', '.join(_SOURCES)}",
        )  # fmt: skip
        require(0 <= self.alpha <= 10, "alpha", self.alpha, "give 0 … 10")
        require(
            1 <= self.vocabulary <= _MOST_WORDS, "vocabulary", self.vocabulary,
            f"give 1 … {_MOST_WORDS} words; each is a column",
        )  # fmt: skip
        least, most = self.said
        require(1 <= least <= most <= 1000, "said", self.said, "give (least, most) in 1 … 1000")
        least, most = self.predicates
        require(
            1 <= least <= most <= self.vocabulary, "predicates", self.predicates,
            f"give (least, most) in 1 … {self.vocabulary}, one word each",
        )  # fmt: skip
        require(self.radius_m > 0, "radius_m", self.radius_m, "give metres, more than 0")

    @property
    def space(self) -> Space:
        """A plane of metres; the globe for real places."""
        return "planar" if self.source is None else "globe"

    @cached_property
    def _talk(self) -> LocalWords | None:
        """Who says what where, if that is real: the most frequent words only."""
        if self.source is None:
            return None
        folder = DataFolder()
        events = folder.events(self.source)
        words, _ = folder.words(self.source)
        return LocalWords(
            events["keywords"].combine_chunks(), *folder.places(self.source),
            among=words.slice(0, self.vocabulary),
        )  # fmt: skip

    @cached_property
    def _names(self) -> list[str]:
        if self._talk is not None:
            known: list[str] = self._talk.words.to_pylist()
            return known
        return [row.tobytes().decode() for row in columns.names("w", self.vocabulary, digits=3)]

    @cached_property
    def _popularity(self) -> Popularity:
        if self._talk is not None:
            return Popularity(self._talk.counts)
        return Popularity.zipf(self.vocabulary, self.alpha)

    @cached_property
    def _towns(self) -> Clusters:
        rng = generator(self.seed, "towns")
        return Clusters.drawn(rng, count=60, spread=(0.004, 0.02), noise=0.1, alpha=0.7)

    def _said(
        self, rng: np.random.Generator, rows: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Who says which word, word by word, and the place of each."""
        sizes = rng.integers(self.said[0], self.said[1] + 1, rows)
        who = np.repeat(np.arange(rows), sizes)
        if self._talk is None:
            return who, self._popularity.draw(rng, who.size), self._towns.draw(rng, rows) * _SIDE_M
        codes, places = self._talk.draw(rng, sizes)
        return who, codes, places

    def _event_block(self, rng: np.random.Generator, first: int, rows: int) -> pa.RecordBatch:
        who, codes, places = self._said(rng, rows)
        often = np.zeros((len(self._names), rows))
        np.add.at(often, (codes, who), 1.0)
        attributes = {
            name: columns.nullable(often[code], often[code] > 0)
            for code, name in enumerate(self._names)
        }
        lon, lat = places.T.copy()
        return pa.record_batch(
            {
                "id": columns.numbered("e", first, rows),
                "attributes": columns.structure(attributes),
                "lon": lon,
                "lat": lat,
            }
        )

    def _subscription_block(
        self, rng: np.random.Generator, first: int, rows: int
    ) -> pa.RecordBatch:
        least, most = self.predicates
        sizes = rng.integers(least, most + 1, rows)
        codes = self._popularity.sets(rng, sizes)
        which = rng.integers(0, 4, codes.size)  # ≤, =, ≥, a range
        value = rng.geometric(_OFTEN, codes.size).astype(np.float64)
        wide = rng.geometric(_OFTEN, codes.size)
        low = np.where(which == 0, -np.inf, value)
        high = np.select([which == 2, which == 3], [np.inf, value + wide], value)
        wanted = columns.intervals(
            columns.offsets_of(sizes), pa.array(self._names).take(pa.array(codes)), low, high
        )
        if self._talk is None:
            places = self._towns.draw(rng, rows) * _SIDE_M
        else:
            places = self._talk.places(rng, rows)
        lon, lat = places.T.copy()
        return pa.record_batch(
            {
                "id": columns.numbered("s", first, rows),
                "intervals": wanted,
                "lon": lon,
                "lat": lat,
                "radius_m": np.full(rows, self.radius_m),
            }
        )
