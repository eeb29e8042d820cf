"""Traces into fixes: files of any known format become rows of one schema, bad ones marked.

A row that cannot be used is kept with the reason in `reason` and itself, as JSON, in `raw`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from nearcast.errors import DatasetError
from nearcast.spark.documents import RawFix, fixes_of
from nearcast.spark.inputs import Format, Inputs, find_inputs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FIXES", "check_sample", "read_traces", "refuse_if_bad"]

#: What `read_traces` gives, in Spark's words.
FIXES = (
    "id string, ts timestamp, lon double, lat double, occupied boolean, "
    "file string, reason string, raw string"
)
_RAW = "id string, ts string, lon string, lat string, occupied string, problem string, raw string"
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_ZONE = r"(?i)(z|utc|gmt|[+-]\d{2}(:?\d{2})?)\s*$"
_TRUE = ("1", "1.0", "true", "t", "yes", "y", "occupied", "m")
_FALSE = ("0", "0.0", "false", "f", "no", "n", "vacant", "free", "e")
_YEARS = ("1900-01-01T00:00:00Z", "2200-01-01T00:00:00Z")
_SAMPLE_ROWS = 20_000
_JUDGED = ("ts", "lon", "lat", "occupied")


def read_traces(
    spark: SparkSession,
    paths: str | Iterable[str] | Inputs,
    *,
    format: Format | None = None,
    columns: Mapping[str, str] | None = None,
    time_zone: str = "UTC",
    swap: bool = False,
) -> DataFrame:
    """Fixes with the columns of `FIXES`; those with a `reason` are no good.

    Times are timestamps, RFC 3339 text or numbers since 1970 (seconds, or milli- or
    microseconds where they are too large for seconds); text without a zone is meant in
    `time_zone`. `swap` reads latitude and longitude the other way round.
    """
    inputs = paths if isinstance(paths, Inputs) else find_inputs(paths, format, columns)
    rows = [_group(spark, inputs, [file.path for file in group]) for group in inputs.groups]
    whole = [_checked(each, time_zone, swap) for each in rows]
    joined = whole[0]
    for other in whole[1:]:
        joined = joined.unionByName(other)
    return joined


def check_sample(fixes: DataFrame, most: float, rows: int = _SAMPLE_ROWS) -> None:
    """Refuse traces whose first rows are worse than a share of `most`: one short job."""
    counted = fixes.limit(rows).groupBy("reason").agg(f.count("*").alias("n")).collect()
    counts = {row["reason"]: int(row["n"]) for row in counted}
    total = sum(counts.values())
    if total == 0:
        raise DatasetError("the traces hold no rows; check the paths")
    bad = {reason: n for reason, n in counts.items() if reason is not None}
    refuse_if_bad(bad, total, most, f"of the first {total:,} rows")


def refuse_if_bad(bad: Mapping[str, int], total: int, most: float, of_what: str) -> None:
    """DatasetError if more than a share of `most` was rejected, with the reasons."""
    if sum(bad.values()) <= most * total:
        return
    reasons = ", ".join(f"{reason}: {n:,}" for reason, n in sorted(bad.items(), key=_most_first))
    hint = "; are the coordinates lat, lon? then say --swap" if _swapped(bad) else ""
    raise DatasetError(
        f"{sum(bad.values()) / total:.0%} {of_what} cannot be used ({reasons}){hint}; "
        f"mend the data, or allow more with --max-rejects (now {most:g})"
    )


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _swapped(bad: Mapping[str, int]) -> bool:
    return any("latitude" in reason or "swapped" in reason for reason in bad)


def _group(spark: SparkSession, inputs: Inputs, paths: list[str]) -> DataFrame:
    """The columns of a fix as they come, and `file`, `problem`, `raw`."""
    if inputs.format == "parquet":
        return _tabular(spark.read.parquet(*paths), inputs)
    if inputs.format == "csv":
        names = [f"`{name.replace('`', '``')}` string" for name in inputs.header]
        reader = spark.read.option("header", True).option("mode", "PERMISSIVE")
        reader = reader.option("columnNameOfCorruptRecord", "_problem").option("escape", '"')
        reader = reader.schema(", ".join([*names, "_problem string"]))
        return _tabular(reader.csv(paths), inputs)
    return _documents(spark, inputs, paths)


def _tabular(frame: DataFrame, inputs: Inputs) -> DataFrame:
    theirs = dict(inputs.columns)
    problem = f.lit(None).cast("string")
    everything = [f.col(f"`{name}`") for name in frame.columns if name != "_problem"]
    raw = f.to_json(f.struct(*everything), {"ignoreNullFields": "false"})
    if "_problem" in frame.columns:
        broken = f.col("_problem").isNotNull()
        problem = f.when(broken, f.lit("the row does not fit the header"))
        raw = f.coalesce(f.col("_problem"), raw)
    mine = [
        f.col(f"`{theirs[name]}`").alias(name)
        if name in theirs
        else f.lit(None).cast("boolean").alias(name)
        for name in ("id", "ts", "lon", "lat", "occupied")
    ]
    file = f.col("_metadata.file_path")
    return frame.select(*mine, problem.alias("problem"), raw.alias("raw"), file.alias("file"))


def _documents(spark: SparkSession, inputs: Inputs, paths: list[str]) -> DataFrame:
    columns = dict(inputs.columns)
    if inputs.format == "geojsonl":
        frame = spark.read.text(paths).select(
            f.col("value").alias("content"), f.col("_metadata.file_path").alias("file")
        )
    else:
        loaded = spark.read.format("binaryFile").load(paths)
        frame = loaded.select("content", f.col("path").alias("file"))

    def parse(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        fields = [*RawFix._fields, "file"]
        for batch in batches:
            rows = [
                (*fix, file)
                for text, file in zip(
                    *(column.to_pylist() for column in batch.columns), strict=True
                )
                if text and text.strip()
                for fix in fixes_of(text, columns)
            ]
            arrays = zip(*rows, strict=True) if rows else [()] * len(fields)
            made = [pa.array(array, pa.string()) for array in arrays]
            yield pa.RecordBatch.from_arrays(made, fields)

    return frame.mapInArrow(parse, f"{_RAW}, file string")


def _checked(frame: DataFrame, time_zone: str, swap: bool) -> DataFrame:
    """The same rows in our types, with the first reason against each."""
    types = dict(frame.dtypes)
    lon, lat = (_number(f.col(name), types[name]) for name in ("lon", "lat"))
    if swap:
        lon, lat = lat, lon
    ts = _time(f.col("ts"), types["ts"], time_zone)
    id_ = f.trim(f.col("id").cast("string"))
    occupied = _flag(f.col("occupied"), types["occupied"])
    raw = f.coalesce("raw", f.to_json(f.struct("id", "ts", "lon", "lat", "occupied")))
    typed = frame.select(
        id_.alias("id"), ts.alias("ts"), lon.alias("lon"), lat.alias("lat"),
        occupied.alias("occupied"), "file", "problem", raw.alias("raw"),
        *(f.col(name).isNotNull().alias(f"has_{name}") for name in _JUDGED),
    )  # fmt: skip
    reason = _reason()
    return typed.select(
        "id", "ts", "lon", "lat", "occupied", "file", reason.alias("reason"),
        f.when(reason.isNotNull(), f.col("raw")).alias("raw"),
    )  # fmt: skip


def _reason() -> Column:
    c = f.col
    first, last = (f.lit(text).cast("timestamp") for text in _YEARS)

    def unusable(name: str) -> Column:
        return c(name).isNull() | f.isnan(name) | (f.abs(name) == float("inf"))

    return (
        f.when(c("problem").isNotNull(), c("problem"))
        .when(c("id").isNull() | (c("id") == ""), "no id")
        .when(~c("has_ts"), "no time")
        .when(c("ts").isNull(), "unreadable time")
        .when((c("ts") < first) | (c("ts") >= last), "time outside of 1900 … 2200")
        .when(~c("has_lon") | ~c("has_lat"), "no place")
        .when(unusable("lon") | unusable("lat"), "unreadable place")
        .when(f.abs("lat") > 90, "latitude outside of −90 … 90")
        .when(f.abs("lon") > 180, "longitude outside of −180 … 180")
        .when(c("has_occupied") & c("occupied").isNull(), "unreadable occupancy")
    )


def _number(column: Column, type_: str) -> Column:
    return column.try_cast("double") if type_ != "boolean" else column.cast("int").cast("double")


def _time(column: Column, type_: str, time_zone: str) -> Column:
    if type_ == "timestamp":
        return column
    if type_ in ("timestamp_ntz", "date", "string"):
        text = f.trim(column.cast("string"))
        clock = f.regexp_replace(text, r"^[^T ]*[T ]", "")  # the date's hyphens are no zone
        whole = f.when(clock != text, f.concat(text, f.lit("Z")))
        whole = whole.otherwise(f.concat(text, f.lit("T00:00:00Z")))
        local = f.to_utc_timestamp(whole.try_cast("timestamp"), time_zone)
        zoned = (clock != text) & clock.rlike(_ZONE)
        return (
            f.when(text.rlike(_NUMBER), _since_1970(text.try_cast("double")))
            .when(zoned, text.try_cast("timestamp"))
            .otherwise(local)
        )
    return _since_1970(column.try_cast("double"))


def _since_1970(number: Column) -> Column:
    size = f.abs(number)
    scale = f.when(size < 1e11, 1e6).when(size < 1e14, 1e3).otherwise(1.0)
    usable = f.when(size < 7.3e15, number * scale)  # beyond 2200 nothing is a time of ours
    return f.timestamp_micros(f.round(usable).try_cast("bigint"))


def _flag(column: Column, type_: str) -> Column:
    if type_ == "boolean":
        return column
    text = f.lower(f.trim(column.cast("string")))
    return f.when(text.isin(*_TRUE), True).when(text.isin(*_FALSE), False)
