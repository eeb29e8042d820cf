"""Composite events in bulk and on streams: events and composites in, detections out.

Arrow and the compiler are loaded when the function here is first called.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from nearcast.cpsl.composite import Composite
    from nearcast.model.geometry import Space

__all__ = ["detect"]


def detect(
    events: DataFrame,
    composites: DataFrame | Iterable[Composite],
    lateness: object = "PT10S",
    *,
    space: Space = "globe",
    longest: object = None,
    tolerance_m: float = 1.0,
    max_pending: int = 100_000,
    strict: bool = False,
    shared: str | os.PathLike[str] | None = None,
    shards: int | None = None,
) -> DataFrame:
    """What a detector would have found: composite_id, event_ids, start, end.

    `events` is a DataFrame with the columns of docs/wire.md, one that ends or a stream.
    `composites` is a DataFrame with `id` and `text`, and if wanted `subscriber` and `consume`; or
    values. All are there from the beginning. Events count in the order of `end`, at one moment in
    that of the column `offset`, if there is one, and of `id`; one without `end` ends at its
    `start`. `event_ids` are the plain events in time order.

    On a stream `lateness` says how long after a later event one may still come. Each is held until
    the watermark has passed its end, and so are time events (the ends of windows and periods); what
    is late beyond that is dropped and counted in the progress, as the observed metric `nearcast`.
    Time moves with events only. In what ends nothing is late; time goes on to the greatest `end`,
    and what is due before that is told.

    `longest`, `tolerance_m` and `max_pending` are those of `Detector`. A bad composite is an error
    at once. Bad events are left out, and `rejected(events, "events")` tells which and why; with
    `strict` they are errors. `shared` is a folder that the driver and all workers see; without one,
    files go to executors through Spark. Composites are dealt out to `shards` (by default
    `spark.sql.shuffle.partitions`) by their ids, and an event goes to the shards that wait for it.
    A stream needs the RocksDB state store, and the same composites and shards whenever it goes on.
    """
    from nearcast.spark.detecting import carry_out

    return carry_out(
        events,
        composites,
        lateness,
        space,
        longest,
        tolerance_m,
        max_pending,
        strict,
        shared,
        shards,
    )
