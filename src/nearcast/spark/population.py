"""Subscriptions at pick-ups and events in hot areas, as MO-Tree's workload has it (§6.1.1).

What they ask and say is drawn by `nearcast.datasets`: row i's attributes depend on the seed
and on i alone, whatever the number of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pyspark.sql import functions as f

from nearcast.datasets.base import EPOCH
from nearcast.datasets.globe import METRES_PER_DEGREE
from nearcast.datasets.streams import BLOCK_ROWS, generator
from nearcast.errors import DatasetError
from nearcast.spark.cores import spark_cores

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Attributes", "Population"]

Attributes: TypeAlias = Literal["mo", "market"]
Array = npt.NDArray[np.float64]

_TTL_S = 6 * 3600.0


@dataclass(frozen=True)
class _Points:
    """Places that `datasets` may draw: the ones given, in their order."""

    lon: Array
    lat: Array

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Array]:  # noqa: ARG002
        return self.lon[:count], self.lat[:count]


@dataclass(frozen=True)
class Population:
    """Who subscribes and what happens.

    `mo`: a square of 0.5 to 2 km round the pick-up and 8 intervals over 20 attributes by
    Zipf(1); events carry 15 to 20 of them. `market`: what the city's people want and its
    shops sell (category, price, discount, rating, words, a circle), the hot areas being the
    shops; a share of `text_share` writes CQL2.
    """

    attributes: Attributes = "mo"
    seed: int = 0
    text_share: float = 0.1
    start: int = EPOCH
    """When the first event happens, in microseconds."""
    seconds: float = 86_400.0
    """Over how long a time the events are spread."""

    def subscriptions(self, points: DataFrame, count: int, total: int) -> DataFrame:
        """`count` subscriptions round numbered points (`number`, `lon`, `lat`), of `total`.

        Point p serves the subscriptions p, p + total, p + 2 total … below `count`.
        """
        numbers = f.sequence("number", f.lit(count - 1).cast("bigint"), f.lit(total).cast("bigint"))
        wanted = points.where(f.col("number") < count).select(
            f.explode(numbers).alias("row"), "lon", "lat"
        )
        blocks = wanted.withColumn("block", (f.col("row") / BLOCK_ROWS).cast("bigint"))

        def make(table: Any) -> Any:
            return self._subscriptions_of(table)

        schema = _spark_schema(self._subscription_rows(np.zeros(1), np.zeros(1), 0))
        return blocks.groupBy("block").applyInArrow(make, schema)

    def _subscriptions_of(self, table: Any) -> Any:
        """The subscriptions of one block, whose places are given."""
        import pyarrow as pa

        table = table.sort_by("row")
        rows = table["row"].to_numpy()
        block = int(rows[0]) // BLOCK_ROWS
        lon, lat = np.zeros(BLOCK_ROWS), np.zeros(BLOCK_ROWS)
        at = rows - block * BLOCK_ROWS
        lon[at], lat[at] = table["lon"].to_numpy(), table["lat"].to_numpy()
        made = self._subscription_rows(lon, lat, block)
        return pa.Table.from_batches([made]).take(pa.array(at))

    def _subscription_rows(self, lon: Array, lat: Array, block: int) -> pa.RecordBatch:
        rng = generator(self.seed, "subscriptions", block)
        first, rows = block * BLOCK_ROWS, lon.size
        if self.attributes == "market":
            from nearcast.datasets.wishes import subscription_block

            places: Any = _Points(lon, lat)
            return subscription_block(places, rng, first, rows, self.start, self.text_share)
        import pyarrow as pa

        from nearcast.datasets import columns
        from nearcast.datasets.mo import MoWorkload

        r_m, wanted = MoWorkload(seed=self.seed).wishes(rng, rows)
        box = _squares(lon, lat, r_m)
        return pa.record_batch(
            {"id": columns.numbered("s", first, rows), "intervals": wanted, **box}
        )

    def events(self, spark: SparkSession, areas: DataFrame, count: int) -> DataFrame:
        """`count` events in the order of time, each in one of the areas (`lon`, `lat`).

        The areas travel with the task: there are some thousands of them.
        """
        rows = areas.orderBy("area").select("lon", "lat").collect()
        if not rows:
            raise DatasetError("there are no hot areas to place events in; look at their stage")
        lon, lat = np.array([tuple(row) for row in rows], np.float64).T.copy()
        blocks = -(-count // BLOCK_ROWS)
        parts = max(1, min(blocks, 2 * spark_cores(spark)))

        def make(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for block in batch.column(0).to_pylist():
                    made = self._event_rows(lon, lat, block, count)
                    yield made.slice(0, count - block * BLOCK_ROWS)

        schema = _spark_schema(self._event_rows(lon, lat, 0, count))
        return spark.range(0, blocks, 1, parts).mapInArrow(make, schema)

    def _event_rows(self, lon: Array, lat: Array, block: int, count: int) -> pa.RecordBatch:
        rng = generator(self.seed, "events", block)
        first, rows = block * BLOCK_ROWS, BLOCK_ROWS
        rate_hz = max(count, 1) / max(self.seconds, 1.0)
        if self.attributes == "market":
            from nearcast.datasets.offers import offer_block

            shops = _shops(lon, lat, self.seed)
            return offer_block(shops, rng, first, rows, self.start, rate_hz)
        import pyarrow as pa

        from nearcast.datasets import columns
        from nearcast.datasets.base import arrival_times
        from nearcast.datasets.mo import MoWorkload

        where = rng.integers(0, lon.size, rows)
        said = MoWorkload(seed=self.seed).attributes(rng, rows)
        now = arrival_times(rng, first, rows, rate_hz, self.start)
        left = (_TTL_S * 1e6 * (0.5 + rng.random(rows))).astype(np.int64)
        end = columns.times(now)
        return pa.record_batch(
            {
                "id": columns.numbered("e", first, rows),
                "attributes": said,
                "lon": lon[where],
                "lat": lat[where],
                "start": end,
                "end": end,
                "expires": columns.times(now + left),
            }
        )


def _shops(lon: Array, lat: Array, seed: int) -> Any:
    from nearcast.datasets.offers import shops_at

    return shops_at(generator(seed, "shops"), lon, lat)


def _squares(lon: Array, lat: Array, r_m: Array) -> dict[str, Array]:
    """Boxes in degrees; one that crosses the antimeridian has xmin > xmax."""
    up = r_m / METRES_PER_DEGREE
    side = np.minimum(up / np.maximum(np.cos(np.radians(lat)), 1e-6), 180.0)
    whole = side >= 179.0
    xmin = np.where(whole, -180.0, (lon - side + 540.0) % 360.0 - 180.0)
    xmax = np.where(whole, 180.0, (lon + side + 540.0) % 360.0 - 180.0)
    ymin, ymax = np.maximum(lat - up, -90.0), np.minimum(lat + up, 90.0)
    return {"xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax}


def _spark_schema(batch: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(batch.schema)
