"""How fences are carried out on a stream: shards of objects, each with what it knows."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from nearcast.clock import FOREVER, Time, to_micros
from nearcast.errors import ValidationError
from nearcast.fences.history import Standing
from nearcast.model.durations import to_duration
from nearcast.model.fences import Fence
from nearcast.model.geometry import SPACES, Space
from nearcast.spark import shipping
from nearcast.spark.crossings import CrossingsOf, PositionPacks
from nearcast.spark.detections import told_batches
from nearcast.spark.frames import beat_names, mapped, pruned
from nearcast.spark.histories import Given, fences_in, layout_of
from nearcast.spark.packs import PACKS
from nearcast.spark.positions import Layout, PositionPacking
from nearcast.spark.schemas import position_names
from nearcast.spark.stateful import kept, shards_of_frame
from nearcast.spark.transitions import standing_to_table, told_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["carry_out"]


def carry_out(
    positions: DataFrame,
    fences: Any,
    until: Time | None,
    space: Space,
    strict: bool,
    shared: str | os.PathLike[str] | None,
    shards: int | None,
    lateness: object,
) -> DataFrame:
    """`nearcast.spark.fences.fences` of a stream, with everything said."""
    if space not in SPACES:
        raise ValidationError("space", space, f"give one of {', '.join(SPACES)}")
    wait = to_duration(lateness, "lateness")
    if wait < 0:
        raise ValidationError("lateness", lateness, "a duration is not negative")
    end = FOREVER if until is None else to_micros(until, "until")
    names = position_names(positions)
    count = shards_of_frame(positions, shards)
    wanted = fences_in(fences, space)
    layout = layout_of(Given(positions, names, None), wanted)
    standing, filters = Standing.of(wanted, space)
    folder = None if shared is None else os.fspath(shared)
    spark = positions.sparkSession
    said = standing_to_table(standing, [fence.id for fence in wanted])
    shipped = shipping.ship_table(spark, said, folder)
    asked, words, judge = frozenset[str](), False, None
    if filters is not None:
        asked, words = filters.asked()
        judge = shipping.ship_matcher(spark, filters, folder)
    asked |= {fence.object for fence in wanted}
    packing = PositionPacking(standing.keys, judge, layout, space, strict, count, end)
    opener = CrossingsOf(shipped, _fingerprint(wanted, space, layout, count), layout, space, end)
    used = [*names, *beat_names(positions)]
    rows = positions.select(*pruned(positions, used, asked, words))

    def packs(keys: tuple[int, ...]) -> DataFrame:
        return mapped(rows, PositionPacks(packing, keys), PACKS)

    return mapped(
        kept(packs, "fences", opener, count, wait, spark), told_batches, told_type(layout)
    )


def _fingerprint(fences: list[Fence], space: Space, layout: Layout, shards: int) -> str:
    """Tells apart what two jobs look for: the same in every process."""
    hashed = blake2b(repr((space, layout, shards)).encode(), digest_size=16)
    for fence in fences:
        said = (
            fence.id, fence.object, fence.where, sorted(fence.keywords), fence.region,
            sorted(fence.on), fence.margin_m, fence.dwell, fence.lost, fence.expires,
        )  # fmt: skip
        hashed.update(repr(said).encode())
    return hashed.hexdigest()
