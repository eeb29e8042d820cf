"""The match as Spark SQL says it: an equi-join on grid cells (or every pair), then the conditions.

What a good data engineer writes without nearcast, to compare with. It takes subscriptions
with circles or boxes, ready intervals and words; not CQL2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import NumericType

from nearcast.datasets.globe import METRES_PER_DEGREE
from nearcast.errors import ValidationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["cells", "edges", "place_held", "sql_join", "sql_nested_loop"]

_RADIUS_M = 6_371_008.8


def sql_join(events: DataFrame, subscriptions: DataFrame, cell: float | None = None) -> DataFrame:
    """Pairs (event_id, subscription_id), by cells so wide in units of the coordinates.

    Without `cell`, half the regions' mean width, for which they are read once.
    Regions must not cross the antimeridian. Costs the pairs that share a cell.
    """
    around = edges(subscriptions)
    if cell is None:
        (width,) = subscriptions.agg(f.avg(around[2] - around[0])).first() or (None,)
        cell = (width or 1.0) / 2
    places = cells(_with_values(events), (f.col("lon"), f.col("lat")) * 2, cell).alias("e")
    regions = cells(subscriptions, around, cell).alias("s")
    joined = places.join(regions, ["column", "row"])
    return _pairs(joined.where(_held(events, subscriptions)))


def sql_nested_loop(events: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """The same pairs from a look at every one: subscriptions broadcast. For few rows."""
    places, regions = _with_values(events).alias("e"), f.broadcast(subscriptions.alias("s"))
    return _pairs(places.join(regions, _held(events, subscriptions)))


def _pairs(joined: DataFrame) -> DataFrame:
    return joined.select(f.col("e.id").alias("event_id"), f.col("s.id").alias("subscription_id"))


def edges(subscriptions: DataFrame) -> tuple[Column, Column, Column, Column]:
    """A box around each region."""
    if {"lon", "radius_m"} <= set(subscriptions.columns):
        up = f.col("radius_m") / METRES_PER_DEGREE
        side = up / f.cos(f.radians("lat")) * 1.001  # the circle is widest off its middle
        return (
            f.col("lon") - side, f.col("lat") - up * 1.001,
            f.col("lon") + side, f.col("lat") + up * 1.001,
        )  # fmt: skip
    if "xmin" in subscriptions.columns:
        return f.col("xmin"), f.col("ymin"), f.col("xmax"), f.col("ymax")
    raise ValidationError("subscriptions", subscriptions.columns, "give circles or boxes")


def _held(events: DataFrame, subscriptions: DataFrame) -> Column:
    """What a pair must satisfy; the place first, it is cheap and rarely holds."""
    held = place_held(subscriptions) & _intervals_hold(subscriptions)
    if {"keywords"} <= set(subscriptions.columns) & set(events.columns):
        held &= f.size(f.array_except("s.keywords", "e.keywords")) == 0
    if "expires" in subscriptions.columns and "end" in events.columns:
        held &= f.coalesce(f.col("s.expires") > f.col("e.end"), f.lit(True))
    return held


def place_held(regions: DataFrame) -> Column:
    """Whether the place of `e` lies in the region of `s`."""
    if "radius_m" in regions.columns:
        return _haversine_m() <= f.col("s.radius_m")
    held = f.col("e.lon").between(f.col("s.xmin"), f.col("s.xmax"))
    return held & f.col("e.lat").between(f.col("s.ymin"), f.col("s.ymax"))


def cells(frame: DataFrame, box: tuple[Column, ...], cell: float) -> DataFrame:
    """A row for each cell that a box (or a point) meets."""
    xmin, ymin, xmax, ymax = (f.floor(edge / cell).cast("int") for edge in box)
    wide = frame.withColumn("column", f.explode(f.sequence(xmin, xmax)))
    return wide.withColumn("row", f.explode(f.sequence(ymin, ymax)))


def _haversine_m() -> Column:
    phi1, phi2 = f.radians("s.lat"), f.radians("e.lat")
    turn = f.radians(f.col("e.lon") - f.col("s.lon")) / 2
    half = f.pow(f.sin((phi2 - phi1) / 2), 2) + f.cos(phi1) * f.cos(phi2) * f.pow(f.sin(turn), 2)
    return 2 * _RADIUS_M * f.asin(f.sqrt(half))


def _with_values(events: DataFrame) -> DataFrame:
    """The numbers of an event by name: made once for each event, not for each pair."""
    if "attributes" not in events.columns:
        return events.withColumn("values", f.create_map().cast("map<string, double>"))
    fields = events.schema["attributes"].dataType.fields  # type: ignore[attr-defined]
    numbers = [field.name for field in fields if isinstance(field.dataType, NumericType)]
    names = f.array(*[f.lit(name) for name in numbers]).cast("array<string>")
    values = f.array(*[f.col(f"attributes.`{name}`").cast("double") for name in numbers])
    found = f.map_from_arrays(names, values.cast("array<double>"))
    return events.withColumn("values", found).drop("attributes")


def _intervals_hold(subscriptions: DataFrame) -> Column:
    """All intervals hold; one on an attribute that the event lacks does not.

    In SQL: there BETWEEN looks a value up once, while `Column.between` does so twice.
    """
    if "intervals" not in subscriptions.columns:
        return f.lit(True)
    return f.expr(
        "forall(s.intervals, i -> coalesce(e.values[i.attribute] between i.low and i.high, false))"
    )
