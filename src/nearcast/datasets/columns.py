"""Arrow columns from flat NumPy arrays, with no Python object a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.errors import DatasetError

__all__ = [
    "INTERVALS",
    "KEYWORDS",
    "TIME",
    "boxes_wkb",
    "intervals",
    "lists",
    "named",
    "names",
    "nullable",
    "numbered",
    "offsets_of",
    "structure",
    "times",
]

TIME = pa.timestamp("us", tz="UTC")
KEYWORDS = pa.list_(pa.string())
INTERVALS = pa.list_(
    pa.struct([("attribute", pa.string()), ("low", pa.float64()), ("high", pa.float64())])
)
_ID_DIGITS = 8
_WKB_BOX = np.dtype(
    [("order", "u1"), ("type", "<u4"), ("rings", "<u4"), ("points", "<u4"), ("xy", "<f8", (5, 2))]
)


def numbered(prefix: str, first: int, rows: int, digits: int = _ID_DIGITS) -> pa.Array:
    """The strings prefix + number for `rows` numbers from `first`, zero-padded: they sort."""
    if first + rows > 10**digits:
        raise DatasetError(f"{first + rows:,} rows are too many; ids have {digits} digits")
    numbers = np.arange(first, first + rows)
    return named(_padded(prefix, numbers, digits), np.arange(rows))


def names(prefix: str, count: int, digits: int = 2) -> NDArray[np.uint8]:
    """A table of `count` names of equal width, one a row: a00, a01, …"""
    return _padded(prefix, np.arange(count), max(digits, len(str(count - 1))))


def _padded(prefix: str, numbers: NDArray[np.int64], digits: int) -> NDArray[np.uint8]:
    head = prefix.encode()
    table = np.empty((numbers.size, len(head) + digits), np.uint8)
    table[:, : len(head)] = np.frombuffer(head, np.uint8)
    for place in range(digits):
        numbers, digit = np.divmod(numbers, 10)
        table[:, -1 - place] = digit + ord("0")
    return table


def named(table: NDArray[np.uint8], codes: NDArray[Any]) -> pa.Array:
    """The string of each code, out of a table with one name of equal width a row."""
    width = table.shape[1]
    data = np.ascontiguousarray(table[codes]).reshape(-1)
    offsets = np.arange(0, (codes.size + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), codes.size, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def offsets_of(sizes: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Where each of lists with these sizes begins, and the end of the last."""
    offsets = np.zeros(sizes.size + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def lists(offsets: NDArray[np.int32], values: pa.Array) -> pa.Array:
    """A column of lists over flat values."""
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def intervals(
    offsets: NDArray[np.int32], attribute: pa.Array, low: NDArray[Any], high: NDArray[Any]
) -> pa.Array:
    """The `intervals` column of subscriptions, from flat ends and attribute names."""
    fields = list(INTERVALS.value_type)
    flat = pa.StructArray.from_arrays([attribute, pa.array(low), pa.array(high)], fields=fields)
    return lists(offsets, flat)


def nullable(values: NDArray[Any], present: NDArray[np.bool_]) -> pa.Array:
    """A column that is null where `present` is false; equal columns have equal bytes."""
    blank = values.dtype.type()
    return pa.array(np.where(present, values, blank), mask=~present)


def structure(columns: dict[str, pa.Array]) -> pa.Array:
    """The `attributes` column of events: one nullable field an attribute."""
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    return pa.StructArray.from_arrays(list(columns.values()), fields=fields)


def times(micros: NDArray[np.int64], present: NDArray[np.bool_] | None = None) -> pa.Array:
    """A timestamp column in UTC from microseconds; null where not `present`."""
    column = pa.array(micros) if present is None else nullable(micros, present)
    return column.view(TIME)


def boxes_wkb(
    xmin: NDArray[np.float64],
    ymin: NDArray[np.float64],
    xmax: NDArray[np.float64],
    ymax: NDArray[np.float64],
) -> pa.Array:
    """Boxes as WKB polygons, counterclockwise: the `geometry` column."""
    shapes = np.zeros(xmin.size, _WKB_BOX)
    shapes["order"], shapes["type"], shapes["rings"], shapes["points"] = 1, 3, 1, 5
    corners = ((xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax), (xmin, ymin))
    for i, (x, y) in enumerate(corners):
        shapes["xy"][:, i, 0], shapes["xy"][:, i, 1] = x, y
    size = _WKB_BOX.itemsize
    offsets = np.arange(0, (xmin.size + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), xmin.size, [None, pa.py_buffer(offsets), pa.py_buffer(shapes.tobytes())]
    )
