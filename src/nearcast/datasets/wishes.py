"""What the city's people subscribe to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.clock import Micros
from nearcast.datasets import columns
from nearcast.datasets.market import TAGS
from nearcast.datasets.offers import market, pick, word_lists
from nearcast.datasets.popularity import Popularity
from nearcast.datasets.town import Addresses

__all__ = ["subscription_block"]

Flags = NDArray[np.bool_]

_RADII_M = np.array([200.0, 300.0, 500.0, 750.0, 1000.0, 1500.0, 2000.0])
_RADIUS = Popularity(np.array([10, 20, 28, 16, 18, 5, 3]))
_DAY_US = 86_400_000_000


class _Limit(NamedTuple):
    """A bound on a number, and who wants it."""

    attribute: str
    operator: str
    wanted: Flags
    bound: NDArray[np.floating[Any]]

    @property
    def low(self) -> NDArray[np.floating[Any]]:
        return self.bound if self.operator == ">=" else np.full(self.bound.size, -np.inf)

    @property
    def high(self) -> NDArray[np.floating[Any]]:
        return self.bound if self.operator == "<=" else np.full(self.bound.size, np.inf)


def subscription_block(
    homes: Addresses,
    rng: np.random.Generator,
    first: int,
    rows: int,
    start: Micros,
    text_share: float,
) -> pa.RecordBatch:
    """One subscription a person: a category, limits, words, a circle.

    A share of `text_share` says it in CQL2 (`where`); the others as ready intervals, with
    the category among the keywords.
    """
    goods = market()
    written = rng.random(rows) < text_share
    category = goods.category.draw(rng, rows)
    good = pick(rng, goods.good_first, category)
    most = np.round(goods.good_price[good] * rng.uniform(0.5, 1.2, rows), 0) + 1
    limits = (
        _Limit("price", "<=", rng.random(rows) < 0.75, most),
        _Limit("discount", ">=", rng.random(rows) < 0.55, 5.0 * rng.integers(2, 11, rows)),
        _Limit("rating", ">=", rng.random(rows) < 0.4, 3 + 0.5 * rng.integers(0, 4, rows)),
    )
    lon, lat = homes.draw(rng, rows)
    leaves = start + ((0.1 + rng.exponential(3.0, rows)) * _DAY_US).astype(np.int64)
    return pa.record_batch(
        {
            "id": columns.numbered("s", first, rows),
            "subscriber": columns.numbered("p", first, rows),
            "where": _texts(rng, written, category, limits),
            "intervals": _intervals(limits, ~written),
            "keywords": _keywords(rng, category, good, written),
            "lon": lon,
            "lat": lat,
            "radius_m": _RADII_M[_RADIUS.draw(rng, rows)],
            "expires": columns.times(leaves, rng.random(rows) < 0.25),
        }
    )


def _intervals(limits: tuple[_Limit, ...], ready: Flags) -> pa.Array:
    """Limits as closed intervals, for the rows that do not write them out."""
    given = np.stack([limit.wanted & ready for limit in limits], axis=1)
    low = np.stack([limit.low for limit in limits], axis=1)
    high = np.stack([limit.high for limit in limits], axis=1)
    attribute = pa.array([limit.attribute for limit in limits]).take(np.nonzero(given)[1])
    return columns.intervals(
        columns.offsets_of(given.sum(axis=1)), attribute, low[given], high[given]
    )


def _keywords(
    rng: np.random.Generator, category: NDArray[np.int64], good: NDArray[np.int64], written: Flags
) -> pa.Array:
    """The category where no text names it, at times the good itself, "sale" or a tag."""
    goods = market()
    rows = category.size
    tag = len(goods.categories) + len(goods.goods) + rng.integers(0, 1 + len(TAGS), rows)
    codes = np.stack([category, len(goods.categories) + good, tag], axis=1)
    said = np.stack([~written, rng.random(rows) < 0.6, rng.random(rows) < 0.15], axis=1)
    return word_lists(codes, said)


def _texts(
    rng: np.random.Generator,
    written: Flags,
    category: NDArray[np.int64],
    limits: tuple[_Limit, ...],
) -> pa.Array:
    """CQL2 of the rows that write, null for the others."""
    goods = market()
    rows = np.flatnonzero(written)
    own = goods.categories.take(category[rows])
    other = goods.categories.take(goods.category.draw(rng, rows.size))
    brand = goods.brands.take(pick(rng, goods.brand_first, category[rows]))
    either = pa.array(rng.random(rows.size) < 0.15)
    parts = [
        pc.if_else(
            either,
            _joined("category IN ('", own, "', '", other, "')"),
            _joined("category = '", own, "'"),
        )
    ]
    for limit in limits:
        bound = pc.cast(pa.array(limit.bound[rows]), pa.string())
        text = _joined(f"{limit.attribute} {limit.operator} ", bound)
        parts.append(pc.if_else(pa.array(limit.wanted[rows]), text, None))
    parts.append(_sometimes(rng, 0.08, _joined("brand = '", brand, "'"), rows.size))
    parts.append(_sometimes(rng, 0.2, pa.repeat("open = TRUE", rows.size), rows.size))
    texts = pc.binary_join_element_wise(*parts, " AND ", null_handling="skip")
    places = np.zeros(written.size, np.int64)
    places[rows] = np.arange(rows.size)
    return texts.take(columns.nullable(places, written))


def _joined(*parts: object) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _sometimes(rng: np.random.Generator, share: float, texts: pa.Array, rows: int) -> pa.Array:
    return pc.if_else(pa.array(rng.random(rows) < share), texts, None)
