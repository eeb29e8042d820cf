"""Rows in Arrow's file format and in Parquet, read by batches; and written with one schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nearcast.errors import DatasetError
from nearcast.model.geometry import Space
from nearcast.transfer.kinds import Kind, Row

__all__ = ["Columns", "aligned", "count_of", "merged", "tables_of", "write_tables"]


class Columns:
    """Some rows of a table."""

    def __init__(self, table: Any, read: int) -> None:
        self.table = table
        self.read = read
        """Rows that were read for them: all of them, or none if they are part of others."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def cut(self, start: int, stop: int) -> Columns:
        """Some of them."""
        return Columns(self.table.slice(start, stop - start), 0)

    def made(self, kind: Kind, space: Space) -> list[Row]:
        """What they say; a BatchError names the bad one."""
        return kind.from_table(self.table, space)

    def shown(self, row: int) -> Any:
        """One of them."""
        return self.table.slice(row, 1).to_pylist()[0]


def count_of(path: Path, format: str) -> int:
    """How many rows a file has."""
    with _reported(path):
        if format == "parquet":
            return int(pq.ParquetFile(path).metadata.num_rows)
        with pa.OSFile(str(path)) as file:
            reader = pa.ipc.open_file(file)
            return sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))


def tables_of(path: Path, format: str, after: int, size: int) -> Iterator[Any]:
    """A file's rows behind some, `size` at a time."""
    with _reported(path):
        for table in _batches(path, format, size):
            skipped = min(after, table.num_rows)
            after -= skipped
            for start in range(skipped, table.num_rows, size):
                yield table.slice(start, size)


def _batches(path: Path, format: str, size: int) -> Iterator[Any]:
    if format == "parquet":
        for batch in pq.ParquetFile(path).iter_batches(size):
            yield pa.Table.from_batches([batch])
        return
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """What pyarrow says of a file, as an error of ours."""
    try:
        yield
    except pa.ArrowException as error:
        why = str(error).splitlines()[0]
        raise DatasetError(
            f"{path}: cannot be read ({why}); is it whole, and of this format?"
        ) from None


# --- one schema for all parts ---------------------------------------------------------------


def merged(schemas: Sequence[Any]) -> Any | None:
    """One schema that has the columns of all; None if a column has several types.

    Tables of events differ in which attributes they have, and in columns that are left out.
    """
    columns: dict[str, Any] = {}
    for schema in schemas:
        for field in schema:
            known = columns.get(field.name)
            if known is None or known == field.type:
                columns[field.name] = field.type
            elif pa.types.is_struct(known) and pa.types.is_struct(field.type):
                inner = merged([pa.schema(list(known)), pa.schema(list(field.type))])
                if inner is None:
                    return None
                columns[field.name] = pa.struct(list(inner))
            else:
                return None
    return pa.schema(list(columns.items()))


def aligned(table: Any, schema: Any) -> Any:
    """A table with all columns of a schema; those it lacks are null."""
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        if column.type != field.type:
            whole = column.combine_chunks()
            parts = [
                whole.field(each.name)
                if whole.type.get_field_index(each.name) >= 0
                else pa.nulls(len(whole), each.type)
                for each in field.type
            ]
            column = pa.StructArray.from_arrays(parts, fields=list(field.type))
        columns.append(column)
    return pa.table(columns, schema=schema)


def write_tables(path: Path, format: str, schema: Any, tables: Iterable[Any]) -> None:
    """Tables in one file."""
    if format == "parquet":
        with pq.ParquetWriter(path, schema) as writer:
            for table in tables:
                writer.write_table(aligned(table, schema))
        return
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for table in tables:
            writer.write_table(aligned(table, schema))
