"""Fences over history in bulk: positions and fences in, transitions out.

Arrow and the compiler are loaded when the function here is first called.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from nearcast.clock import Time
    from nearcast.model.fences import Fence
    from nearcast.model.geometry import Space

__all__ = ["fences"]


def fences(
    positions: DataFrame | str | os.PathLike[str],
    fences: DataFrame | Iterable[Fence],
    until: Time | None = None,
    *,
    space: Space = "globe",
    strict: bool = False,
    shared: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    lateness: object = "PT10S",
) -> DataFrame:
    """What a broker would have told: fence_id, object, transition, at, event_id.

    `positions` is a DataFrame of events, one that ends or a stream, or the path of Parquet files;
    workers read files by themselves, in either form. `fences` is a DataFrame or values. Columns
    are those of docs/wire.md. All fences are there from the beginning; positions count in the
    order of `end`, at one moment in that of the column `offset`, if there is one, and of `id`.

    `until` is how far time goes: positions after it do not count, and dwells and losses that are
    due up to it are told. Without it time ends with the greatest `end`, and what is due before
    that is told, as after the last `publish`; this costs a look at all `end`s, if a fence has
    `dwell` or `lost`.

    On a stream time goes as far as the watermark, and at most to `until`: `lateness` says how long
    after a later position one may still come. Each is held until the watermark has passed its end;
    what is late beyond that is dropped and counted in the progress, as the observed metric
    `nearcast`. A stream needs the RocksDB state store, and the same fences and shards whenever it
    goes on. `lateness` means nothing to what ends.

    A bad fence is an error at once. Bad positions are left out, and `rejected(positions,
    "positions")` tells which and why; with `strict` they are errors. `shared` is a folder that
    the driver and all workers see; without one, files go to executors through Spark. Objects are
    dealt out to `shards`, of which a worker holds one at a time; of up to 8, the task of each
    reads all the files. By default they are one a core where positions are files, and else
    `spark.sql.shuffle.partitions`. Fences are collected at once; the rest happens when the
    answer is used.
    """
    if not isinstance(positions, str | os.PathLike) and getattr(positions, "isStreaming", False):
        from nearcast.spark import fence_stream

        return fence_stream.carry_out(
            positions, fences, until, space, strict, shared, shards, lateness
        )
    from nearcast.spark.histories import carry_out

    return carry_out(positions, fences, until, space, strict, shared, shards)
