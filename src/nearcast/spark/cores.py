"""How much a session does at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_cores"]

_UNKNOWN = 8


def spark_cores(spark: SparkSession) -> int:
    """How many tasks run at the same time; 8 where the session cannot say (Spark Connect)."""
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return _UNKNOWN
