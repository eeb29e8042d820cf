"""Fences as Spark SQL says them: a grid join and window functions.

What a good data engineer writes without nearcast, to compare with. It takes circles or boxes and
tells of `enter` and `exit`; no filters, margins, dwells or losses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from nearcast.spark.sql_join import cells, edges, place_held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["sql_fences"]


def sql_fences(positions: DataFrame, fences: DataFrame, attribute: str, cell: float) -> DataFrame:
    """fence_id, object, transition, at, event_id; cells so wide in units of the coordinates.

    The positions of each object are numbered in order; those inside a fence are found by cells. A
    visit begins where the one before is not inside, and ends before one that is not. Regions must
    not cross the antimeridian.
    """
    path = Window.partitionBy("object").orderBy("end", "id")
    numbered = positions.select(
        "id", "lon", "lat", "end", f.col(f"attributes.`{attribute}`").alias("object")
    ).withColumns(
        {
            "number": f.row_number().over(path),
            "next_end": f.lead("end").over(path),
            "next_id": f.lead("id").over(path),
        }
    )
    places = numbered.withColumns(
        {
            "column": f.floor(f.col("lon") / cell).cast("int"),
            "row": f.floor(f.col("lat") / cell).cast("int"),
        }
    ).alias("e")
    regions = cells(fences, edges(fences), cell).alias("s")
    visit = Window.partitionBy("s.id", "e.object").orderBy("e.number")
    before, after = f.lag("e.number").over(visit), f.lead("e.number").over(visit)
    inside = (
        places.join(regions, ["column", "row"])
        .where(place_held(fences))
        .select(
            f.col("s.id").alias("fence_id"), "e.object", "e.id", "e.end", "e.next_end", "e.next_id",
            f.coalesce(before != f.col("e.number") - 1, f.lit(True)).alias("comes"),
            f.coalesce(after != f.col("e.number") + 1, f.lit(True)).alias("goes"),
        )
    )  # fmt: skip
    enter = f.struct(f.lit("enter").alias("transition"), f.col("end").alias("at"),
                     f.col("id").alias("event_id"))  # fmt: skip
    leave = f.struct(f.lit("exit").alias("transition"), f.col("next_end").alias("at"),
                     f.col("next_id").alias("event_id"))  # fmt: skip
    told = f.array_compact(
        f.array(
            f.when(f.col("comes"), enter),
            f.when(f.col("goes") & f.col("next_id").isNotNull(), leave),
        )
    )
    each = inside.where("comes or goes").select("fence_id", "object", f.explode(told).alias("told"))
    return each.select("fence_id", "object", "told.*")
