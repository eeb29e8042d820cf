"""Cleaning: fixes that repeat, that nobody could have driven, or that lie elsewhere.

What is left is cut into sessions. Nothing is dropped: a bad fix carries its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as f

from nearcast.errors import DatasetError, ValidationError
from nearcast.spark.cores import spark_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Bounds", "follow", "keep_inside", "learn_bounds"]

_REASONS = {1: "second fix at one time", 2: "impossible speed"}
_OUTSIDE, _SWAPPED = "outside of the box", "coordinates swapped"
#: The learnt box: these shares of all fixes, widened by its own size on each side.
_TAILS = (0.005, 0.995)
_LEAST_DEGREES = 0.05
_COLUMNS = ("id", "ts", "lon", "lat", "occupied")
_FOLLOWED = (
    "id string, ts timestamp, lon double, lat double, occupied boolean, file string, "
    "session int, pick_up boolean, verdict tinyint"
)


@dataclass(frozen=True)
class Bounds:
    """A box in degrees that traces are expected in; it may cross the antimeridian."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float

    def __post_init__(self) -> None:
        for name in ("xmin", "xmax"):
            _require(-180 <= getattr(self, name) <= 180, name, getattr(self, name), "−180 … 180")
        for name in ("ymin", "ymax"):
            _require(-90 <= getattr(self, name) <= 90, name, getattr(self, name), "−90 … 90")
        _require(self.ymin <= self.ymax, "ymin", self.ymin, f"at most ymax, {self.ymax}")

    def holds(self, lon: Any, lat: Any) -> Any:
        """The condition that a place (two columns) lies inside."""
        beside = (lon >= self.xmin) & (lon <= self.xmax)
        if self.xmin > self.xmax:
            beside = (lon >= self.xmin) | (lon <= self.xmax)
        return beside & (lat >= self.ymin) & (lat <= self.ymax)


def _require(holds: bool, name: str, value: float, wanted: str) -> None:
    if not holds:
        raise ValidationError(f"box.{name}", value, f"give {wanted}")


def learn_bounds(fixes: DataFrame) -> Bounds:
    """Where nearly all usable fixes lie, with room for as much again on every side: one pass."""
    usable = fixes.where(f.col("reason").isNull())
    shares = f.array(*map(f.lit, _TAILS))
    row = usable.agg(
        f.percentile_approx("lon", shares, 10_000).alias("x"),
        f.percentile_approx("lat", shares, 10_000).alias("y"),
    ).collect()[0]
    if row["x"] is None:
        raise DatasetError("no fix of the traces can be used; look at their rejects")
    (west, east), (south, north) = row["x"], row["y"]
    dx, dy = max(east - west, _LEAST_DEGREES), max(north - south, _LEAST_DEGREES)
    return Bounds(
        max(west - dx, -180.0), max(south - dy, -90.0), min(east + dx, 180.0), min(north + dy, 90.0)
    )


def keep_inside(fixes: DataFrame, bounds: Bounds) -> DataFrame:
    """The same rows; those outside get a reason, another one if swapping would bring them in."""
    lon, lat = f.col("lon"), f.col("lat")
    outside = f.col("reason").isNull() & ~bounds.holds(lon, lat)
    back = bounds.holds(lat, lon)
    reason = f.when(outside & back, _SWAPPED).when(outside, _OUTSIDE).otherwise(f.col("reason"))
    return fixes.withColumn("reason", reason)


def follow(fixes: DataFrame, max_speed_m_s: float = 50.0, gap_s: float = 600.0) -> DataFrame:
    """Usable fixes in the order of their tracks: `session` and `pick_up`, bad ones with a reason.

    Of several fixes at one time the southernmost, then westernmost counts. A fix that cannot
    be reached at `max_speed_m_s` from the last good one is impossible, unless three in a row
    agree. A silence of more than `gap_s` begins a new session; a pick-up is the first
    occupied fix after a vacant one in a session. One shuffle by id, one sort, one pass.
    """
    usable = fixes.where(f.col("reason").isNull()).select(*_COLUMNS, "file")
    tasks = 2 * spark_cores(fixes.sparkSession)  # more would only start more workers
    placed = usable.repartition(tasks, "id").sortWithinPartitions(
        "id", "ts", "lat", "lon", "occupied"
    )
    gap_us = round(gap_s * 1e6)

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        return _follow(batches, max_speed_m_s, gap_us)

    marked = placed.mapInArrow(work, _FOLLOWED)
    reason = f.lit(None).cast("string")
    for code, text in _REASONS.items():
        reason = f.when(f.col("verdict") == code, text).otherwise(reason)
    return marked.withColumn("reason", reason).drop("verdict")


def _follow(batches: Iterator[Any], max_speed_m_s: float, gap_us: int) -> Iterator[Any]:
    import pyarrow as pa

    from nearcast.kernels import tracks

    whole, real = tracks.new_memory()
    seen: str | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        coded, last = track_codes(batch.column(0), seen, whole)
        seen = last
        rows = batch.num_rows
        verdict, session = np.zeros(rows, np.int8), np.zeros(rows, np.int32)
        pick_up = np.zeros(rows, np.bool_)
        tracks.follow(
            coded, micros(batch.column(1)), floats(batch.column(2)), floats(batch.column(3)),
            _flags(batch.column(4)), max_speed_m_s, gap_us, whole, real, verdict, session, pick_up,
        )  # fmt: skip
        kept = [batch.column(i) for i in range(6)]
        made = [pa.array(session), pa.array(pick_up), pa.array(verdict)]
        names = [field.split()[0] for field in _FOLLOWED.split(", ")]
        yield pa.RecordBatch.from_arrays([*kept, *made], names)


def track_codes(ids: Any, seen: str | None, whole: Any) -> tuple[Any, str]:
    """A number for each id of a batch; the memory's track is renumbered if it goes on here."""
    encoded = ids.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    whole[0] = names.index(seen) if seen in names else -1
    codes = np.asarray(encoded.indices).astype(np.int64)
    return codes, names[int(codes[-1])]


def micros(column: Any) -> Any:
    """Microseconds of a timestamp column."""
    import pyarrow as pa

    return np.asarray(column.cast(pa.timestamp("us", tz="UTC")).view(pa.int64()))


def floats(column: Any) -> Any:
    """The numbers of a column without nulls."""
    return np.ascontiguousarray(np.asarray(column), np.float64)


def _flags(column: Any) -> Any:
    """1, 0, and −1 where unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(column.cast(pa.int8()), -1))
