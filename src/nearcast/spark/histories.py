"""How fences are carried out over history: checked, shipped, packed by shard, and run."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from nearcast.clock import FOREVER, NEVER, Micros, Time, to_micros
from nearcast.errors import (
    BatchError,
    DuplicateIdError,
    NearcastError,
    SparkError,
    ValidationError,
)
from nearcast.fences.history import Standing
from nearcast.model.codec import fences_from_arrow
from nearcast.model.fences import Fence
from nearcast.model.geometry import SPACES, Around, Space, check_space
from nearcast.spark import shipping
from nearcast.spark.cores import spark_cores
from nearcast.spark.frames import mapped, pruned, pruned_names, read_files, whole_files
from nearcast.spark.objects import kind_of
from nearcast.spark.parquet import SPLITS, Split, splits
from nearcast.spark.positions import PACKED, Layout, PositionPacking
from nearcast.spark.rereading import MOST_TASKS, Rereading, tasks_for
from nearcast.spark.schemas import AROUND, fence_names, position_names
from nearcast.spark.transitions import TransitionStream, standing_to_table, told_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Given", "carry_out", "fences_in", "layout_of"]

_MOST_SHARDS = 65_536
_log = logging.getLogger("nearcast.spark")


@dataclass(frozen=True)
class Given:
    """Positions, checked."""

    frame: DataFrame
    names: list[str]
    pieces: list[Split] | None
    """The Parquet files that have all the rows, if there are such."""


def carry_out(
    positions: DataFrame | str | os.PathLike[str],
    fences: DataFrame | Iterable[Fence],
    until: Time | None,
    space: Space,
    strict: bool,
    shared: str | os.PathLike[str] | None,
    shards: int | None,
) -> DataFrame:
    """`nearcast.spark.fences.fences`, with everything said."""
    if space not in SPACES:
        raise ValidationError("space", space, f"give one of {', '.join(SPACES)}")
    end = None if until is None else to_micros(until, "until")
    given = _positions(positions, getattr(fences, "sparkSession", None))
    count, reread = _dealt(given, shards)
    wanted = fences_in(fences, space)
    layout = layout_of(given, wanted)
    standing, filters = Standing.of(wanted, space)
    before = _last_end(given.frame) if end is None and standing.has_timers else NEVER
    spark = given.frame.sparkSession
    folder = None if shared is None else os.fspath(shared)
    ids = [fence.id for fence in wanted]
    shipped = shipping.ship_table(spark, standing_to_table(standing, ids), folder)
    asked, words, judge = frozenset[str](), False, None
    if filters is not None:
        asked, words = filters.asked()
        judge = shipping.ship_matcher(spark, filters, folder)
    asked |= {fence.object for fence in wanted}
    packing = PositionPacking(
        standing.keys, judge, layout, space, strict, count, FOREVER if end is None else end
    )
    work = TransitionStream(shipped, layout, space, before, NEVER if end is None else end)
    columns = tuple(pruned_names(given.frame, given.names, asked, words))
    if reread:
        assert given.pieces is not None
        reading = Rereading(tuple(given.pieces), columns, packing, work)
        return mapped(spark.range(0, count, 1, count), reading, told_type(layout))
    if given.pieces is None:
        rows = given.frame.select(*pruned(given.frame, given.names, asked, words))
        packed = mapped(rows, packing, PACKED)
    else:
        listed = spark.createDataFrame([*map(tuple, given.pieces)], SPLITS)
        dealt = listed.repartition(max(1, len(given.pieces)))
        packed = mapped(dealt, replace(packing, columns=columns), PACKED)
    return mapped(packed.repartitionById(count, "shard"), work, told_type(layout))


def _positions(positions: Any, spark: Any) -> Given:
    paths = None
    if isinstance(positions, str | os.PathLike):
        positions, paths = read_files(os.fspath(positions), spark, "positions")
    names = position_names(positions)
    if positions.isStreaming:
        raise ValidationError(
            "positions", "a stream", "give a DataFrame that ends: spark.read, not spark.readStream"
        )
    if paths is not None:
        return Given(positions, names, splits(paths, names))
    paths = whole_files(positions)
    try:
        return Given(positions, names, None if paths is None else splits(paths, names))
    except SparkError:  # which Spark may read, or has an error of its own for
        return Given(positions, names, None)


def _dealt(given: Given, shards: int | None) -> tuple[int, bool]:
    """How many shards there are, and whether the task of each reads all the files."""
    spark = given.frame.sparkSession
    count = _checked(shards)
    if given.pieces:
        rows = sum(piece.rows for piece in given.pieces)
        tasks = tasks_for(spark_cores(spark), rows) if count is None else count
        if tasks <= MOST_TASKS:
            return tasks, True
    if count is None:
        count = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    return count, False


def _checked(shards: int | None) -> int | None:
    if shards is None:
        return None
    if isinstance(shards, bool) or not isinstance(shards, int) or not 1 <= shards <= _MOST_SHARDS:
        raise ValidationError("shards", shards, f"give a number from 1 to {_MOST_SHARDS:,}")
    return shards


def _last_end(frame: DataFrame) -> Micros:
    from pyspark.sql import functions as F  # noqa: N812

    (found,) = frame.agg(F.unix_micros(F.max("end"))).first() or (None,)
    return NEVER if found is None else int(found)


# --- the fences -----------------------------------------------------------------------------------


def fences_in(given: Any, space: Space) -> list[Fence]:
    """All fences, each id once; the first bad one is an error."""
    from pyspark.sql import DataFrame as AnyFrame

    if isinstance(given, AnyFrame):
        names = fence_names(given)
        try:
            found = fences_from_arrow(given.select(*names).toArrow(), space=space)
        except BatchError as error:
            raise BatchError(error.row, _in_column(error.cause)) from None
    else:
        found = _values(given, space)
    return list(_distinct(found).values())


def _in_column(cause: NearcastError) -> NearcastError:
    """What is wrong with a row, in the words of columns."""
    if not isinstance(cause, ValidationError):
        return cause
    return ValidationError(f"fences.{cause.field}", cause.value, cause.remedy)


def _values(given: Any, space: Space) -> list[Fence]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ValidationError("fences", given, "give a Spark DataFrame, or Fence values")
    found = []
    for row, fence in enumerate(given):
        try:
            if not isinstance(fence, Fence):
                raise ValidationError("fences", fence, "give Fence values")
            if not isinstance(fence.region, Around):
                check_space(fence.region, space, "fences.region")
        except NearcastError as error:
            raise BatchError(row, error) from None
        found.append(fence)
    return found


def _distinct(found: list[Fence]) -> dict[str, Fence]:
    kept: dict[str, Fence] = {}
    for row, fence in enumerate(found):
        if isinstance(fence.region, Around):
            raise BatchError(row, ValidationError("fences.region", fence.region, AROUND))
        other = kept.setdefault(fence.id, fence)
        if other != fence:
            remedy = "and with other contents: give each fence an id of its own"
            raise BatchError(row, DuplicateIdError("fence", fence.id, remedy))
    return kept


def layout_of(given: Given, fences: list[Fence]) -> Layout:
    """How objects are said, by the types of the attributes that name them."""
    mixed = "attributes_json" in given.names
    wanted = dict.fromkeys(fence.object for fence in fences)
    there: dict[str, Literal["string", "double", "bool"]] = {}
    if "attributes" in given.names:
        struct: Any = given.frame.schema["attributes"].dataType
        for field in getattr(struct, "fields", ()):
            name = field.dataType.typeName()
            there[field.name] = (
                "string" if name == "string" else "bool" if name == "boolean" else "double"
            )
    missing = [name for name in wanted if name not in there]
    if missing and not mixed:
        if len(missing) == len(wanted):
            raise ValidationError(
                "fences.object", missing[0],
                f"positions have no such attribute: they have {', '.join(there) or 'none'}",
            )  # fmt: skip
        _log.warning("positions have no attribute %r: its fences see nobody", missing[0])
    kind = kind_of([there[name] for name in wanted if name in there], mixed=mixed)
    optional = tuple(name for name in ("offset", "source", "geometry") if name in given.names)
    return Layout(kind, optional)
