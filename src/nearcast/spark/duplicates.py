"""Subscriptions that come twice.

The same row twice is one subscription. Two different rows with one id are both rejected,
because which of them came first is not known on Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import BatchError, CapacityError, DuplicateIdError
from nearcast.spark.rows import Reject
from nearcast.spark.schemas import REJECTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["conflicting", "resolved", "without_duplicates"]

_REMEDY = "and with other contents: give each subscription an id of its own"
_MOST = 1_000_000


def resolved(table: Any, strict: bool) -> tuple[Any, list[Reject]]:
    """(the table with each id once, the rows whose id stands for several things)."""
    ids = table.column("id")
    counts = pc.value_counts(ids.drop_null())
    several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if not len(several):
        return table, []
    suspects = np.flatnonzero(pc.is_in(ids, value_set=several).to_numpy(zero_copy_only=False))
    contents: dict[str, dict[str, int]] = {}
    for row, values in zip(suspects.tolist(), table.take(suspects).to_pylist(), strict=True):
        contents.setdefault(values["id"], {}).setdefault(repr(values), row)
    keep = np.ones(table.num_rows, bool)
    keep[suspects] = False
    bad = []
    for id, rows in contents.items():
        if len(rows) == 1:
            keep[next(iter(rows.values()))] = True
            continue
        error = DuplicateIdError("subscription", id, _REMEDY)
        if strict:
            raise BatchError(max(rows.values()), error)
        bad += [Reject(row, id, str(error)) for row in rows.values()]
    return table.filter(pa.array(keep)), bad


def without_duplicates(subscriptions: DataFrame, strict: bool) -> DataFrame:
    """The DataFrame with each id once; costs a count of the ids."""
    found = _suspects(subscriptions)
    if found is None:
        return subscriptions
    suspects, table = found
    good, _ = resolved(table, strict)
    spark = subscriptions.sparkSession
    rest = subscriptions.join(suspects, "id", "left_anti").select(*subscriptions.columns)
    return rest.union(spark.createDataFrame(good, schema=subscriptions.schema))


def conflicting(subscriptions: DataFrame) -> DataFrame:
    """The rows whose id stands for several things: id and reason."""
    found = _suspects(subscriptions)
    bad = [] if found is None else resolved(found[1], False)[1]
    rows = [(reject.id, reject.reason) for reject in bad]
    return subscriptions.sparkSession.createDataFrame(rows, REJECTS)


def _suspects(subscriptions: DataFrame) -> tuple[DataFrame, Any] | None:
    """Ids that occur several times, and the rows that have them; None if there are none."""
    from pyspark.sql import functions as F  # noqa: N812

    counted = subscriptions.where("id is not null").groupBy("id").count().where("count > 1")
    total = counted.agg(F.count("*"), F.sum("count")).first()
    assert total is not None
    if not total[0]:
        return None
    if total[1] > _MOST:
        raise CapacityError(
            "subscriptions with an id that is taken", total[1], _MOST,
            "remove the duplicates first",
        )  # fmt: skip
    ids = counted.select("id").toArrow()
    suspects = subscriptions.sparkSession.createDataFrame(ids, "id string")
    suspects = F.broadcast(suspects)
    return suspects, subscriptions.join(suspects, "id", "left_semi").select(
        *subscriptions.columns
    ).toArrow()
