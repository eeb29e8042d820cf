"""How composites are detected: checked, dealt out, shipped, matched once, and run by shard."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nearcast.cpsl.composite import MODES, Composite
from nearcast.cpsl.shards import deal
from nearcast.errors import BatchError, NearcastError, ValidationError
from nearcast.model.durations import to_duration
from nearcast.model.geometry import SPACES, Space
from nearcast.spark import shipping
from nearcast.spark.detections import (
    DETECTIONS,
    DetectionsOf,
    DetectionStream,
    told_batches,
)
from nearcast.spark.frames import beat_names, mapped, pruned
from nearcast.spark.packs import PACKS
from nearcast.spark.primitives import PrimitivePacking, dealt_table
from nearcast.spark.schemas import event_names
from nearcast.spark.stateful import kept, shards_of_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["carry_out"]

_COLUMNS = {
    "id": "string", "subscriber": "string", "text": "string", "consume": "string",
    "expires": "timestamp",
}  # fmt: skip


def carry_out(
    events: DataFrame,
    composites: DataFrame | Iterable[Composite],
    lateness: object,
    space: Space,
    longest: object,
    tolerance_m: float,
    max_pending: int,
    strict: bool,
    shared: str | os.PathLike[str] | None,
    shards: int | None,
) -> DataFrame:
    """`nearcast.spark.detect.detect`, with everything said."""
    if space not in SPACES:
        raise ValidationError("space", space, f"give one of {', '.join(SPACES)}")
    names = event_names(events)
    if not {"start", "end"} & set(names):
        raise ValidationError("events.end", events.columns, "add a column end: when it happened")
    if "offset" in events.columns:
        names.append("offset")
    names += beat_names(events)
    wait = to_duration(lateness, "lateness")
    if wait < 0:
        raise ValidationError("lateness", lateness, "a duration is not negative")
    span = None if longest is None else to_duration(longest, "longest")
    count = shards_of_frame(events, shards)
    dealt = deal(
        _composites(composites), count, space, longest=longest, tolerance_m=tolerance_m,
        max_pending=max_pending,
    )  # fmt: skip
    folder = None if shared is None else os.fspath(shared)
    spark = events.sparkSession
    matcher = shipping.ship_matcher(spark, dealt.matcher, folder)
    table = shipping.ship_table(spark, dealt_table(dealt), folder)
    asked = dealt.asked()
    columns = (
        [f"`{name}`" for name in names]
        if asked is None
        else pruned(events, names, asked[0], asked[1])
    )
    opener = DetectionsOf(table)
    stream = events.isStreaming

    def packing(keys: tuple[int, ...]) -> DataFrame:
        work = PrimitivePacking(matcher, table, keys, space, span, strict, stream)
        return mapped(events.select(*columns), work, PACKS)

    if stream:
        return mapped(kept(packing, "detect", opener, count, wait, spark), told_batches, DETECTIONS)
    packs = packing(tuple(range(count))).repartitionById(count, "shard")
    return mapped(packs, DetectionStream(opener), DETECTIONS)


def _composites(given: Any) -> Iterable[Composite]:
    """The composites of a DataFrame, or values; a bad row is named."""
    from pyspark.sql import DataFrame as AnyFrame

    if not isinstance(given, AnyFrame):
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise ValidationError("composites", given, "give a DataFrame, or Composite values")
        return given
    types = {field.name: field.dataType.typeName() for field in given.schema.fields}
    for name in ("id", "text"):
        if name not in types:
            raise ValidationError(
                f"composites.{name}", given.columns, f"add a column {name} of strings"
            )
    used = [name for name in _COLUMNS if name in types]
    for name in used:
        if types[name] not in (_COLUMNS[name], "void"):
            raise ValidationError(
                f"composites.{name}", types[name], f"the column's type must be {_COLUMNS[name]}"
            )
    return list(_made(given.select(*used).toArrow().to_pylist()))


def _made(rows: list[dict[str, Any]]) -> Iterable[Composite]:
    for number, row in enumerate(rows):
        try:
            if row["text"] is None:
                raise ValidationError("composites.text", None, "say what to look for, as CPSL")
            yield Composite(
                row["id"], row.get("subscriber"), row["text"], row.get("consume") or MODES[0],
                expires=row.get("expires"),
            )  # fmt: skip
        except NearcastError as error:
            raise BatchError(number, error) from error
