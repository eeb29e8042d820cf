"""The partitioned plan: sample both sides, cut cells, send rows to units, match each unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nearcast.model.geometry import Space
from nearcast.spark.boxes import PLACE, asked_columns, clause_boxes, event_points
from nearcast.spark.partitioning import Cells, Sample, cut_cells
from nearcast.spark.rows import accepted
from nearcast.spark.schemas import MATCHES
from nearcast.spark.workers import EventUnits, SubscriptionUnits, UnitMatching

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Sides", "matched", "plan_cells"]

_SAMPLE = 20_000
_ATTRIBUTES = 4  # number attributes that may be cut beside the place
_LEAST = 2000  # rows below which a cell is not worth its own matcher
_SHUFFLED = "array<struct<unit:int,home:boolean>>"


@dataclass(frozen=True)
class Sides:
    """Both DataFrames, with known columns only."""

    events: DataFrame
    subscriptions: DataFrame
    space: Space
    strict: bool


def plan_cells(sides: Sides, cell_rows: int) -> tuple[Cells, tuple[str, ...]]:
    """Cells for these two, and what to say about them; costs a count and a sample of each."""
    event_count, wanted_count = sides.events.count(), sides.subscriptions.count()
    wanted = _sampled(sides.subscriptions, wanted_count)
    wanted, _ = accepted(wanted, "subscriptions", sides.space)
    columns = _columns(sides, wanted)
    names, arguments = _event_arguments(sides.events, columns)
    sampled = _sampled(sides.events.select(*arguments), event_count)
    given = dict(zip(names, (_one(column) for column in sampled.columns), strict=True))
    points = event_points(given, columns, sides.space)
    _, low, high = clause_boxes(wanted, columns, sides.space, False)
    sample = Sample(
        points,
        low,
        high,
        event_count / max(1, points.shape[0]),
        wanted_count / max(1, wanted.num_rows),
    )
    share = (event_count + wanted_count) // (3 * _parallelism(sides.events))
    rows = max(1, min(cell_rows, max(_LEAST, share)))
    cells = cut_cells(sample, columns, rows)
    clauses = low.shape[0]
    copies = cells.cells_of_clauses(low, high)[0].size / clauses if clauses else 1.0
    used = sorted({columns[axis] for axis in cells.axis.tolist() if axis >= 0})
    facts = (
        f"{cells.count:,} cells of about {rows:,} rows, {cells.units:,} units of work",
        f"cut by {', '.join(used) if used else 'nothing'}; a clause lies in {copies:.2f} cells",
        f"{int((cells.event_shards > 1).sum()):,} cells have their events split, "
        f"{int((cells.subscription_shards > 1).sum()):,} their subscriptions",
    )
    return cells, facts


def _one(column: Any) -> Any:
    """A column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _sampled(frame: DataFrame, count: int) -> Any:
    if count <= 2 * _SAMPLE:
        return frame.toArrow()
    return frame.sample(fraction=_SAMPLE / count, seed=1).toArrow()


def _parallelism(frame: DataFrame) -> int:
    spark = frame.sparkSession
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return max(1, int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200))


def _columns(sides: Sides, wanted: Any) -> tuple[str, ...]:
    """The place, and the number attributes most asked for that events have as a column."""
    kind: Any = None
    if "attributes" in sides.events.columns and "attributes_json" not in sides.events.columns:
        kind = sides.events.schema["attributes"].dataType
    names = [field.name for field in getattr(kind, "fields", ())]
    if len({name.casefold() for name in names}) < len(names):
        names = []
    from pyspark.sql.types import NumericType

    numbers = {f".{name}" for name in names if isinstance(kind[name].dataType, NumericType)}
    asked = asked_columns(wanted, sides.space, 4 * _ATTRIBUTES)
    return PLACE + tuple(name for name in asked if name in numbers)[:_ATTRIBUTES]


def _event_arguments(events: DataFrame, columns: tuple[str, ...]) -> tuple[list[str], list[Column]]:
    """Names and columns that say where an event lies; the last is the hash of its id."""
    from pyspark.sql import functions as F  # noqa: N812

    names: list[str] = [n for n in ("lon", "lat", "geometry") if n in events.columns]
    arguments = [
        F.col(name) if name == "geometry" else F.col(name).cast("double").alias(name)
        for name in names
    ]
    for at, column in enumerate(columns):
        if column not in PLACE:
            name = column.removeprefix(".")
            names.append(column)
            value = F.col("attributes").getField(name).cast("double")
            arguments.append(value.alias(f"a{at}"))
    return [*names, "#"], [*arguments, F.xxhash64("id").alias("h")]


def matched(sides: Sides, cells: Cells, index: str, options: Mapping[str, Any]) -> DataFrame:
    """The pairs, each from the one unit in which event and subscription meet."""
    from pyspark.sql import functions as F  # noqa: N812

    names, arguments = _event_arguments(sides.events, cells.columns)
    to_units = _scalar(EventUnits(cells, tuple(names), sides.space), "array<int>")
    events = sides.events.select("*", F.explode(to_units(*arguments)).alias("_unit"))
    asked = [*sides.subscriptions.columns, "#"]
    to_homes = _scalar(SubscriptionUnits(cells, tuple(asked), sides.space, sides.strict), _SHUFFLED)
    wanted = [F.col(f"`{name}`") for name in sides.subscriptions.columns]
    subscriptions = sides.subscriptions.select(
        "*", F.explode(to_homes(*wanted, F.xxhash64("id"))).alias("_u")
    ).select(*wanted, F.col("_u.unit").alias("_unit"), F.col("_u.home").alias("_home"))
    work = UnitMatching(index, sides.space, sides.strict, options)

    def run(left: pa.Table, right: pa.Table) -> pa.Table:
        return work(left, right)

    grouped = events.groupBy("_unit").cogroup(subscriptions.groupBy("_unit"))
    return grouped.applyInArrow(run, MATCHES)


def _scalar(work: Any, kind: str) -> Any:
    """A function of Arrow columns for `select`."""
    from pyspark.sql.pandas import functions

    make: Any = functions.arrow_udf

    def run(*columns: pa.Array) -> pa.Array:
        return work(*columns)

    return make(run, kind)
