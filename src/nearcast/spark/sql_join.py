"""The match as Spark SQL says it: an equi-join on grid cells, then the conditions.

What a good data engineer writes without nearcast, to compare with. It takes subscriptions
with circles or boxes, ready intervals and words; not CQL2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from nearcast.datasets.globe import METRES_PER_DEGREE
from nearcast.errors import ValidationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["sql_join"]

_RADIUS_M = 6_371_008.8


def sql_join(events: DataFrame, subscriptions: DataFrame, cell_deg: float = 0.02) -> DataFrame:
    """Pairs (event_id, subscription_id), by cells of `cell_deg` degrees.

    Regions must not cross the antimeridian. Costs the pairs that share a cell.
    """
    if {"lon", "radius_m"} <= set(subscriptions.columns):
        up = f.col("radius_m") / METRES_PER_DEGREE
        side = up / f.cos(f.radians("lat")) * 1.001  # the circle is widest off its middle
        edges = (
            f.col("lon") - side, f.col("lat") - up * 1.001,
            f.col("lon") + side, f.col("lat") + up * 1.001,
        )  # fmt: skip
        near = _haversine_m() <= f.col("s.radius_m")
    elif "xmin" in subscriptions.columns:
        edges = tuple(f.col(name) for name in ("xmin", "ymin", "xmax", "ymax"))  # type: ignore[assignment]
        near = f.col("e.lon").between(f.col("s.xmin"), f.col("s.xmax"))
        near &= f.col("e.lat").between(f.col("s.ymin"), f.col("s.ymax"))
    else:
        raise ValidationError("subscriptions", subscriptions.columns, "give circles or boxes")
    places = _cells(events, (f.col("lon"), f.col("lat")) * 2, cell_deg).alias("e")
    regions = _cells(subscriptions, edges, cell_deg).alias("s")
    held = near & _intervals_hold(events, subscriptions)
    if {"keywords"} <= set(subscriptions.columns) & set(events.columns):
        held &= f.size(f.array_except("s.keywords", "e.keywords")) == 0
    if "expires" in subscriptions.columns and "end" in events.columns:
        held &= f.coalesce(f.col("s.expires") > f.col("e.end"), f.lit(True))
    joined = places.join(regions, ["column", "row"]).where(held)
    return joined.select(f.col("e.id").alias("event_id"), f.col("s.id").alias("subscription_id"))


def _cells(frame: DataFrame, edges: tuple[Column, ...], cell_deg: float) -> DataFrame:
    """A row for each cell that a box (or a point) meets."""
    xmin, ymin, xmax, ymax = (f.floor(edge / cell_deg) for edge in edges)
    wide = frame.withColumn("column", f.explode(f.sequence(xmin, xmax)))
    return wide.withColumn("row", f.explode(f.sequence(ymin, ymax)))


def _haversine_m() -> Column:
    phi1, phi2 = f.radians("s.lat"), f.radians("e.lat")
    turn = f.radians(f.col("e.lon") - f.col("s.lon")) / 2
    half = f.pow(f.sin((phi2 - phi1) / 2), 2) + f.cos(phi1) * f.cos(phi2) * f.pow(f.sin(turn), 2)
    return 2 * _RADIUS_M * f.asin(f.sqrt(half))


def _intervals_hold(events: DataFrame, subscriptions: DataFrame) -> Column:
    """All intervals hold; one on an attribute that the event lacks does not."""
    if "intervals" not in subscriptions.columns:
        return f.lit(True)
    fields = events.schema["attributes"].dataType.fields  # type: ignore[attr-defined]
    numbers = [field.name for field in fields if field.dataType.typeName() == "double"]
    pairs = [part for name in numbers for part in (f.lit(name), f.col(f"e.attributes.{name}"))]
    values = f.create_map(*pairs)
    return f.forall(
        "s.intervals",
        lambda each: f.coalesce(
            f.element_at(values, each["attribute"]).between(each["low"], each["high"]),
            f.lit(False),
        ),
    )
