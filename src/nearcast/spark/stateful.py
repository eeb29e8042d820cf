"""Shards with state on a stream: Spark's settings, its watermark, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nearcast.clock import Micros
from nearcast.errors import ValidationError
from nearcast.spark.spreading import keys_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nearcast.spark.keeping import Opener

__all__ = ["METRIC", "SENT", "kept", "shards_of_frame"]

#: The observed metrics of a query's progress: what came too late, and what was sent where.
METRIC, SENT = "nearcast", "nearcast_sent"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_MOST_SHARDS = 65_536
_MILLI = 1000


def shards_of_frame(frame: DataFrame, shards: int | None) -> int:
    """How many shards: as many as a shuffle has partitions, unless said otherwise."""
    if shards is None:
        return int(str(frame.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= _MOST_SHARDS:
        raise ValidationError("shards", shards, f"give a number from 1 to {_MOST_SHARDS:,}")
    return shards


def kept(
    packing: Callable[[tuple[int, ...]], DataFrame],
    kind: str,
    opener: Opener,
    shards: int,
    lateness: Micros,
    spark: SparkSession,
) -> DataFrame:
    """What the shards of a stream tell, as packed batches.

    `packing` makes packs for their keys; `kind` tells one job's checkpoint from another's.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from nearcast.spark.keeping import TOLD, Job, Keeping

    _check_store(spark)
    partitions = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    keys = tuple(keys_of(shards, partitions))
    # Spark's watermark counts milliseconds: what ends at the bound itself is not late.
    delay = f"{-(-lateness // _MILLI) + 1} milliseconds"
    packs = packing(keys).observe(
        SENT, F.sum("seen").alias("events"), F.sum("messages").alias("messages")
    )
    told: Any = (
        packs.withWatermark("t", delay)
        .groupBy("shard")
        .transformWithState(
            Keeping(opener, Job(kind, partitions, keys)), TOLD, "append", "EventTime"
        )
    )
    sums = [F.sum(name).alias(name) for name in ("late", "duplicates", "overflows")]
    observed: DataFrame = told.observe(METRIC, *sums)
    return observed


def _check_store(spark: SparkSession) -> None:
    given = str(spark.conf.get(_PROVIDER))
    if given != _ROCKS:
        raise ValidationError(
            _PROVIDER, given, f"state is kept in RocksDB: spark.conf.set({_PROVIDER!r}, {_ROCKS!r})"
        )
