"""`lf`: LFilter's workload, words and rectangles (its §6)."""

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
from nearcast.datasets.streams import BLOCK_ROWS, generator
from nearcast.model.geometry import Space

__all__ = ["LfWorkload"]

_SIZES = {"short": (6, 20), "long": (100, 1000)}
_LONG_BLOCK_ROWS = 128  # long messages: a block of 8192 would hold 4.5 million words
_EXTENTS = {"globe": (-125.0, 24.0, -66.0, 50.0), "planar": (0.0, 0.0, 1.0, 1.0)}
_SOURCES = ("nyc_gowalla_checkins", "nyc_gowalla_venues", "us_geo_hashtags")


@dataclass(frozen=True)
class LfWorkload(Workload):
    """Subscriptions of 1 to 5 words and a rectangle; messages with a point or a box.

    Words are w000000, w000001, … by falling frequency, Zipf(`alpha`), no word twice in a
    set. `message` is "short" (6 to 20 words) or "long" (100 to 1000), `location` "point"
    or "range" (a box, as WKB in `geometry`). Places crowd around 60 towns in a box as
    large as the USA (`space="globe"`) or in the unit square (`space="planar"`); `side`
    and `range_side` bound the sides of rectangles and boxes as shares of the extent's.

    `source` may name a file with real words and places (`nyc_gowalla_checkins`,
    `nyc_gowalla_venues`, `us_geo_hashtags`, read from NEARCAST_DATA): words are then drawn
    by their frequency in it, places are its places, and `vocabulary` and `alpha` are idle.
    With `local` they are drawn from what is said at the place itself and near it.

    `length` gives other bounds for the number of words of a message.
    """

    name: ClassVar[str] = "lf"

    vocabulary: int = 100_000
    alpha: float = 1.0
    words: tuple[int, int] = (1, 5)
    message: str = "short"
    location: str = "point"
    side: tuple[float, float] = (0.001, 0.01)
    range_side: tuple[float, float] = (0.002, 0.02)
    source: str | None = None
    space: Space = "globe"
    local: bool = False
    length: tuple[int, int] | None = None

    def _check(self) -> None:
        require(self.message in _SIZES, "message", self.message, "give short or long")
        require(self.location in ("point", "range"), "location", self.location, "point or range")
        require(
            self.source is None or (self.source in _SOURCES and self.space == "globe"),
            "source",
            self.source,
            f"give None or, on the globe, one of {', '.join(_SOURCES)}",
        )
        require(
            not self.local or self.source is not None, "local", self.local,
            "name a source: made-up words are nobody's at any place",
        )  # fmt: skip
        require(0 <= self.alpha <= 10, "alpha", self.alpha, "give 0 … 10")
        least, most = self._lengths
        require(1 <= least <= most, "length", self.length, "give (least, most), 1 or more")
        require(
            most <= self.vocabulary <= 1_000_000,
            "vocabulary",
            self.vocabulary,
            f"give {most} … 1000000 words",
        )
        low, high = self.words
        require(1 <= low <= high <= most, "words", self.words, f"give (least, most) in 1 … {most}")
        for name in ("side", "range_side"):
            low_share, high_share = getattr(self, name)
            require(
                0 <= low_share <= high_share <= 1,
                name,
                (low_share, high_share),
                "give (least, most) shares of the extent in 0 … 1",
            )

    @property
    def _lengths(self) -> tuple[int, int]:
        """How many words a message has, at least and at most."""
        return _SIZES[self.message] if self.length is None else self.length

    @property
    def _event_block_rows(self) -> int:
        return BLOCK_ROWS if self._lengths[1] <= _SIZES["short"][1] else _LONG_BLOCK_ROWS

    @cached_property
    def _lexicon(self) -> tuple[pa.Array, Popularity]:
        """Every word, and how popular each one is."""
        if self.source is not None:
            words, counts = DataFolder().words(self.source)
            return words, Popularity(counts)
        names = columns.names("w", self.vocabulary, digits=6)
        words = columns.named(names, np.arange(self.vocabulary))
        return words, Popularity.zipf(self.vocabulary, self.alpha)

    @cached_property
    def _places(self) -> NDArray[np.float64] | None:
        """Real places, one (lon, lat) a row; None where they are made up."""
        if self.source is None:
            return None
        return np.stack(DataFolder().places(self.source), axis=1)

    @cached_property
    def extent(self) -> tuple[float, float, float, float]:
        """The box that holds every place: xmin, ymin, xmax, ymax."""
        if self._places is None:
            return _EXTENTS[self.space]
        (xmin, ymin), (xmax, ymax) = self._places.min(axis=0), self._places.max(axis=0)
        return float(xmin), float(ymin), float(xmax), float(ymax)

    @cached_property
    def _towns(self) -> Clusters:
        rng = generator(self.seed, "towns")
        return Clusters.drawn(rng, count=60, spread=(0.004, 0.02), noise=0.1, alpha=0.7)

    def _points(self, rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
        if self._places is not None:
            return self._places[rng.integers(0, len(self._places), rows)]
        xmin, ymin, xmax, ymax = self.extent
        return self._towns.draw(rng, rows) * (xmax - xmin, ymax - ymin) + (xmin, ymin)

    @cached_property
    def _talk(self) -> LocalWords:
        assert self.source is not None
        folder = DataFolder()
        words = folder.events(self.source)["keywords"].combine_chunks()
        return LocalWords(words, *folder.places(self.source))

    def _keywords(
        self, rng: np.random.Generator, bounds: tuple[int, int], rows: int
    ) -> tuple[pa.Array, NDArray[np.float64] | None]:
        """Words, and where they are said if that goes with them."""
        sizes = rng.integers(bounds[0], bounds[1] + 1, rows)
        if self.local:
            chosen, centres = self._talk.sets(rng, sizes)
            return columns.lists(columns.offsets_of(sizes), chosen), centres
        words, popularity = self._lexicon
        chosen = words.take(popularity.sets(rng, sizes))
        return columns.lists(columns.offsets_of(sizes), chosen), None

    def _boxes(
        self,
        rng: np.random.Generator,
        side: tuple[float, float],
        rows: int,
        centres: NDArray[np.float64] | None,
    ) -> dict[str, NDArray[np.float64]]:
        xmin, ymin, xmax, ymax = self.extent
        centres = self._points(rng, rows) if centres is None else centres
        halves = rng.uniform(*side, (rows, 2)) / 2 * (xmax - xmin, ymax - ymin)
        low = np.maximum(centres - halves, (xmin, ymin)).T.copy()
        high = np.minimum(centres + halves, (xmax, ymax)).T.copy()
        return {"xmin": low[0], "ymin": low[1], "xmax": high[0], "ymax": high[1]}

    def _subscription_block(
        self, rng: np.random.Generator, first: int, rows: int
    ) -> pa.RecordBatch:
        keywords, centres = self._keywords(rng, self.words, rows)
        made = {"id": columns.numbered("s", first, rows), "keywords": keywords}
        return pa.record_batch(made | self._boxes(rng, self.side, rows, centres))

    def _event_block(self, rng: np.random.Generator, first: int, rows: int) -> pa.RecordBatch:
        keywords, centres = self._keywords(rng, self._lengths, rows)
        made = {"id": columns.numbered("e", first, rows), "keywords": keywords}
        if self.location == "range":
            box = self._boxes(rng, self.range_side, rows, centres)
            return pa.record_batch(made | {"geometry": columns.boxes_wkb(**box)})
        lon, lat = (self._points(rng, rows) if centres is None else centres).T.copy()
        return pa.record_batch(made | {"lon": lon, "lat": lat})
