"""Parquet that workers read by themselves: no row ever passes through the JVM.

Turning Spark's rows into Arrow costs more than to match them; a file of columns needs none of
it. The driver reads the footers and deals out row groups; a worker reads only the columns, and
of `attributes` only the fields, that some subscription asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from nearcast.errors import SparkError
from nearcast.model.geometry import Space
from nearcast.spark.workers import Shipped, answered, match_good, task_threads

__all__ = ["SPLITS", "EventFiles", "Split", "opened", "read_splits", "splits", "zoned"]

#: A DataFrame of splits, in Spark's words.
SPLITS = "path string, first int, stop int, rows bigint"
_TOGETHER = 65_536


class Split(NamedTuple):
    """Some row groups of one file."""

    path: str
    first: int
    stop: int
    rows: int


def splits(paths: list[str], columns: list[str]) -> list[Split]:
    """The row groups of files, in pieces of some 65 000 rows or one group.

    Reads the footers; SparkError names a file that is damaged or lacks a column.
    """
    found = []
    for path in sorted(paths):
        try:
            with opened(path) as file:
                names, meta = file.schema_arrow.names, file.metadata
        except (OSError, pa.ArrowException) as error:
            raise SparkError(f"{path}: cannot be read as Parquet ({error})") from None
        lacking = [name for name in columns if name not in names]
        if lacking:
            raise SparkError(
                f"{path}: has no column {lacking[0]}, and other files have; give a DataFrame"
            )
        first = rows = 0
        for group in range(meta.num_row_groups):
            rows += meta.row_group(group).num_rows
            if rows >= _TOGETHER or group + 1 == meta.num_row_groups:
                found.append(Split(path, first, group + 1, rows))
                first, rows = group + 1, 0
    return found


def opened(path: str) -> Any:
    """A Parquet file, by the name that Spark has for it."""
    # INT96, which Spark writes for timestamps, would come as nanoseconds and end in 2262.
    options = {"coerce_int96_timestamp_unit": "us"}
    if path.startswith("file:"):
        return pq.ParquetFile(unquote("/" + path[5:].lstrip("/")), memory_map=True, **options)
    system, inner = pa.fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    return pq.ParquetFile(system.open_input_file(inner), **options)


@dataclass(frozen=True)
class EventFiles:
    """Events that a worker reads by itself stream past a matcher that was built once."""

    shipped: Shipped
    columns: tuple[str, ...]
    """What is read; a field of `attributes` behind a dot."""
    space: Space
    strict: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow` over splits."""
        for events in read_splits(batches, self.columns):
            matcher = self.shipped.open(task_threads())
            yield from answered(match_good(matcher, events, self.space, self.strict))


def read_splits(
    batches: Iterator[Any], columns: Sequence[str], rows: int = _TOGETHER
) -> Iterator[Any]:
    """The rows of splits, which come as Arrow batches, in tables of at most so many."""
    for batch in batches:
        for split in batch.to_pylist():
            with opened(split["path"]) as file:
                groups = list(range(split["first"], split["stop"]))
                for part in file.iter_batches(
                    rows, row_groups=groups, columns=list(columns), use_threads=False
                ):
                    yield zoned(pa.Table.from_batches([part]))


def zoned(table: Any) -> Any:
    """The table with timestamps as instants: what Spark calls a timestamp is UTC, said or not."""
    for at, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type) and column.type.tz is None:
            zoned = pc.assume_timezone(table.column(at), "UTC")
            table = table.set_column(at, column.name, zoned)
    return table
