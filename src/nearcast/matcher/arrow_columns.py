"""Columns of Arrow tables as NumPy arrays, without a copy where there is nothing to convert."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.clock import EARLIEST, LATEST
from nearcast.kernels import texts as text_kernels
from nearcast.kernels.arrange import frozen

__all__ = [
    "any_valid",
    "bad_names",
    "bad_times",
    "coded",
    "coded_names",
    "column_of",
    "doubles",
    "list_runs",
    "numbers_of",
    "string_bytes",
    "times_of",
    "validity",
]

F8: TypeAlias = npt.NDArray[np.float64]
I8: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


def column_of(table: Any, name: str) -> Any:
    """A column as one array."""
    import pyarrow as pa

    column = table.column(name)
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return column.chunk(0)  # combining would copy
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunks at all, or too many bytes for one
            column = (
                pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
            )
    return column


def validity(table: Any, name: str) -> Flags:
    """Rows that are not null."""
    column = column_of(table, name)
    if not column.null_count:
        return np.ones(len(column), bool)
    flags: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return flags


def any_valid(table: Any, names: Iterable[str]) -> Flags:
    """Rows in which some of the columns are not null; those that are missing are."""
    flags = np.zeros(table.num_rows, bool)
    for name in names:
        if name in table.column_names:
            flags |= validity(table, name)
    return flags


def bad_names(table: Any) -> Flags:
    """Rows whose id or subscriber is the empty string."""
    import pyarrow.compute as pc

    empty = np.zeros(table.num_rows, bool)
    for name in ("id", "subscriber"):
        if name in table.column_names:
            lengths = pc.binary_length(column_of(table, name)).fill_null(1)
            empty |= lengths.to_numpy(zero_copy_only=False) == 0
    return empty


def doubles(array: Any) -> F8:
    """Numbers as float64, NaN for null."""
    import pyarrow as pa

    numbers: F8 = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def numbers_of(table: Any, name: str) -> F8:
    """A column of numbers as float64, NaN for null and for a column that is missing."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    return doubles(column_of(table, name))


def times_of(table: Any, name: str, missing: int) -> I8:
    """A column of times in microseconds, `missing` for null and for a column that is missing."""
    import pyarrow as pa

    if name not in table.column_names:
        return np.full(table.num_rows, missing, np.int64)
    micros = column_of(table, name).cast(pa.int64()).fill_null(missing)
    times: I8 = micros.to_numpy(zero_copy_only=False)
    return times


def bad_times(table: Any, name: str) -> Flags:
    """Rows with a time that no datetime can name."""
    if name not in table.column_names:
        return np.zeros(table.num_rows, bool)
    times = times_of(table, name, EARLIEST)
    return (times < EARLIEST) | (times > LATEST)


def coded(array: Any) -> tuple[npt.NDArray[np.signedinteger[Any]], list[Any]]:
    """(code of each item, −1 for null; the distinct values)."""
    import pyarrow as pa

    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    indices = array.indices if not array.null_count else array.indices.fill_null(-1)
    return indices.to_numpy(zero_copy_only=False), array.dictionary.to_pylist()


def coded_names(array: Any) -> tuple[npt.NDArray[np.signedinteger[Any]], list[Any]]:
    """`coded` for names, most of which are short and few."""
    import pyarrow as pa

    if array.null_count or not len(array) or not pa.types.is_string(array.type):
        return coded(array)
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    text = np.frombuffer(b"" if data is None else data, np.uint8)
    codes, firsts = np.empty(len(array), np.int32), np.empty(text_kernels.MOST_NAMES, np.int64)
    known = text_kernels.code_names(frozen(starts), frozen(text), codes, firsts)
    if known < 0:
        return coded(array)
    return codes, [array[at].as_py() for at in firsts[:known].tolist()]


def list_runs(array: Any) -> tuple[I8, Any]:
    """(offsets, items) of a list array; a null list is an empty run."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not array.null_count and pa.types.is_list(array.type):
        starts = array.offsets.to_numpy().astype(np.int64)
        return starts - starts[0], array.flatten()
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
    return offsets.astype(np.int64), array.flatten()


def string_bytes(array: Any) -> tuple[I8, npt.NDArray[np.uint8]]:
    """(offsets, bytes) of a string array; what stands in place of nulls is not to be read."""
    import pyarrow as pa

    wide = array.cast(pa.large_string())
    _, offsets, data = wide.buffers()
    if offsets is None or not len(wide):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    starts = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    empty = data is None or data.size == 0
    return starts, np.empty(0, np.uint8) if empty else np.frombuffer(data, np.uint8)
