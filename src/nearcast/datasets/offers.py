"""The city's shops, and the offers they publish."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.clock import Micros
from nearcast.datasets import columns
from nearcast.datasets.base import arrival_times
from nearcast.datasets.market import CATEGORIES, TAGS
from nearcast.datasets.popularity import Popularity
from nearcast.datasets.town import Addresses, Town

__all__ = ["Market", "Shops", "market", "offer_block", "open_shops", "shops_at"]

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

_SALE_FROM = 30  # per cent off, from which an offer says "sale"
_ALWAYS_SAID = 2  # category and good
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, eq=False)
class Market:
    """The market as arrays: goods and brands of all categories in one row each."""

    categories: pa.Array
    category: Popularity
    brands: pa.Array
    brand_first: Codes
    goods: pa.Array
    good_first: Codes
    good_price: Array
    words: pa.Array
    tags: Popularity


@cache
def market() -> Market:
    """The market of every city."""
    names = [category.name for category in CATEGORIES]
    goods = [good for category in CATEGORIES for good, _ in category.goods]
    return Market(
        categories=pa.array(names),
        category=Popularity(np.array([category.weight for category in CATEGORIES])),
        brands=pa.array([brand for category in CATEGORIES for brand in category.brands]),
        brand_first=np.cumsum([0, *(len(category.brands) for category in CATEGORIES)]),
        goods=pa.array(goods),
        good_first=np.cumsum([0, *(len(category.goods) for category in CATEGORIES)]),
        good_price=np.array([price for category in CATEGORIES for _, price in category.goods]),
        words=pa.array([*names, *goods, "sale", *TAGS]),
        tags=Popularity.zipf(len(TAGS), 0.7),
    )


def pick(rng: np.random.Generator, first: Codes, group: Codes) -> Codes:
    """One member of each group, where group g's members are `first[g]` … `first[g + 1]`."""
    size = first[group + 1] - first[group]
    picked: Codes = first[group] + (rng.random(group.size) * size).astype(np.int64)
    return picked


@dataclass(frozen=True, eq=False)
class Shops:
    """Shops beside roads, more where it is busy. `category` and `brand` are codes."""

    lon: Array
    lat: Array
    category: Codes
    brand: Codes
    rating: Array
    price_level: Array
    activity: Popularity

    @property
    def size(self) -> int:
        """How many there are."""
        return self.lon.size


def open_shops(rng: np.random.Generator, town: Town, count: int) -> Shops:
    """`count` shops, each publishing as often as its luck has it."""
    return shops_at(rng, *Addresses(town, quiet=0.02).draw(rng, count))


def shops_at(rng: np.random.Generator, lon: Array, lat: Array) -> Shops:
    """A shop at each place."""
    goods = market()
    count = lon.size
    category = goods.category.draw(rng, count)
    rating = np.round(5 - 4 * rng.beta(1.6, 4.5, count), 1)
    return Shops(
        lon=lon,
        lat=lat,
        category=category,
        brand=pick(rng, goods.brand_first, category),
        rating=rating,
        price_level=np.exp(rng.normal(0, 0.25, count)),
        activity=Popularity(rng.pareto(2.5, count) + 0.2),
    )


def offer_block(
    shops: Shops, rng: np.random.Generator, first: int, rows: int, start: Micros, rate_hz: float
) -> pa.RecordBatch:
    """Offers as events: who sells what, for how much, where, until when."""
    goods = market()
    shop = shops.activity.draw(rng, rows)
    category = shops.category[shop]
    good = pick(rng, goods.good_first, category)
    discount = 5.0 * np.floor(14 * rng.random(rows) ** 1.7)
    usual = goods.good_price[good] * shops.price_level[shop] * np.exp(rng.normal(0, 0.12, rows))
    price = np.maximum(np.round(usual * (1 - discount / 100) * 20), 1) / 20
    stock = np.floor(rng.pareto(1.2, rows) * 5) + 1
    attributes = {
        "category": goods.categories.take(category),
        "brand": goods.brands.take(shops.brand[shop]),
        "product": goods.goods.take(good),
        "price": pa.array(price),
        "discount": pa.array(discount),
        "rating": pa.array(shops.rating[shop]),
        "stock": columns.nullable(stock, rng.random(rows) < 0.6),
        "open": pa.array(rng.random(rows) < 0.9),
    }
    now = arrival_times(rng, first, rows, rate_hz, start)
    lasts = (rng.exponential(6.0, rows) + 0.5) * _HOUR_US
    end = columns.times(now)
    return pa.record_batch(
        {
            "id": columns.numbered("o", first, rows),
            "attributes": columns.structure(attributes),
            "keywords": _keywords(rng, category, good, discount),
            "lon": shops.lon[shop],
            "lat": shops.lat[shop],
            "start": end,
            "end": end,
            "expires": columns.times(now + lasts.astype(np.int64)),
        }
    )


def _keywords(rng: np.random.Generator, category: Codes, good: Codes, discount: Array) -> pa.Array:
    """Category, good, "sale" where it is one, and up to three tags."""
    goods = market()
    rows = category.size
    said = np.ones((rows, _ALWAYS_SAID + 1 + len(TAGS)), np.bool_)
    said[:, _ALWAYS_SAID] = discount >= _SALE_FROM
    said[:, _ALWAYS_SAID + 1 :] = goods.tags.subsets(rng, rng.integers(0, 4, rows))
    codes = np.empty(said.shape, np.int64)
    codes[:, 0] = category
    codes[:, 1] = len(goods.categories) + good
    codes[:, 2:] = len(goods.categories) + len(goods.goods) + np.arange(1 + len(TAGS))
    return word_lists(codes, said)


def word_lists(codes: NDArray[Any], said: NDArray[np.bool_]) -> pa.Array:
    """The `keywords` column: of each row the words whose codes are said."""
    return columns.lists(columns.offsets_of(said.sum(axis=1)), market().words.take(codes[said]))
