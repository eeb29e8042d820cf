"""Where something happened: pick-ups where occupancy is known, stays where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as f

from nearcast.spark.cleaning import floats, micros, track_codes
from nearcast.spark.cores import spark_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["numbered", "pick_ups", "stay_points"]

_STAYS = "id string, session int, ts timestamp, lon double, lat double, seconds double, fixes int"
_BUCKETS = 16


def pick_ups(fixes: DataFrame) -> DataFrame:
    """`id`, `session`, `ts`, `lon`, `lat` of the fixes where a passenger got in."""
    return fixes.where("pick_up").select("id", "session", "ts", "lon", "lat")


def stay_points(fixes: DataFrame, radius_m: float = 150.0, least_s: float = 300.0) -> DataFrame:
    """Stays: `id`, `session`, `ts` (when it began), `lon`, `lat`, `seconds`, `fixes`.

    A stay is a run of fixes of one session within `radius_m` of the first, at least
    `least_s` long; its place is their mean. One shuffle by id, one sort, one pass.
    """
    key = f.concat_ws("\n", "id", "session")  # one track a session; ids have no line breaks
    placed = fixes.select(key.alias("track"), "ts", "lon", "lat", "id")
    tasks = 2 * spark_cores(fixes.sparkSession)
    sorted_ = placed.repartition(tasks, "id").sortWithinPartitions("track", "ts").drop("id")
    least_us = round(least_s * 1e6)

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        return _stays(batches, radius_m, least_us)

    return sorted_.mapInArrow(work, _STAYS)


def _stays(batches: Iterator[Any], radius_m: float, least_us: int) -> Iterator[Any]:
    from nearcast.kernels import tracks

    whole, real = tracks.new_stay()
    seen: str | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        before = seen
        codes, seen = track_codes(batch.column(0), before, whole)
        names = dict(enumerate(batch.column(0).dictionary_encode().dictionary.to_pylist()))
        if before is not None and whole[0] < 0:
            # The last batch's track is not in this one: end its stay under its own name.
            whole[0] = len(names)
            names[len(names)] = before
        times, places = np.empty((codes.size + 1, 4), np.int64), np.empty((codes.size + 1, 2))
        found = tracks.stays(
            codes, micros(batch.column(1)), floats(batch.column(2)), floats(batch.column(3)),
            radius_m, least_us, whole, real, times, places,
        )  # fmt: skip
        yield _stay_rows([names[int(code)] for code in times[:found, 0]], times, places)
    if seen is not None:
        times, places = np.empty((1, 4), np.int64), np.empty((1, 2))
        found = tracks.last_stay(whole, real, least_us, times, places)
        yield _stay_rows([seen] * found, times, places)


def _stay_rows(tracks: list[str], times: Any, places: Any) -> Any:
    import pyarrow as pa

    found = len(tracks)
    parts = [track.rpartition("\n") for track in tracks]
    began = pa.array(times[:found, 1]).view(pa.timestamp("us", tz="UTC"))
    columns = {
        "id": pa.array([part[0] for part in parts], pa.string()),
        "session": pa.array([int(part[2]) for part in parts], pa.int32()),
        "ts": began,
        "lon": pa.array(places[:found, 0]),
        "lat": pa.array(places[:found, 1]),
        "seconds": pa.array((times[:found, 2] - times[:found, 1]) / 1e6),
        "fixes": pa.array(times[:found, 3].astype(np.int32)),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def numbered(points: DataFrame) -> DataFrame:
    """The same rows with `number`: 0 … rows − 1, shuffled, the same for the same rows.

    Rows are spread over buckets by a hash and counted inside each, so that no single task
    sees them all: one short job for the sizes of the buckets.
    """
    from pyspark.sql import Window

    hashed = f.xxhash64("id", "ts")
    spread = points.withColumn("bucket", f.pmod(hashed, f.lit(_BUCKETS))).withColumn("h", hashed)
    sizes = {int(row["bucket"]): int(row["n"]) for row in _sizes(spread)}
    first, firsts = 0, []
    for bucket in range(_BUCKETS):
        firsts.append(first)
        first += sizes.get(bucket, 0)
    offset = f.get(f.array(*(f.lit(value).cast("bigint") for value in firsts)), f.col("bucket"))
    order = Window.partitionBy("bucket").orderBy("h", "id", "ts", "lon", "lat")
    within = f.row_number().over(order) - 1
    return spread.withColumn("number", within + offset).drop("bucket", "h")


def _sizes(spread: DataFrame) -> list[Any]:
    return spread.groupBy("bucket").agg(f.count("*").alias("n")).collect()
