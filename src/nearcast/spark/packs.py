"""Events on their way to shards that keep state: one large row a task and shard.

Turning rows into Arrow and back is what Spark spends most time on, so it is given few of them. A
row tells a shard how far the task's events reach in time, wanted or not, and carries those that it
wants. The time that Spark makes its watermark of stands in rows of its own: what Spark finds too
late it drops without a word, and here it is to be counted.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.clock import FOREVER, NEVER, Micros

__all__ = [
    "BEAT",
    "CLOCK",
    "PACKS",
    "Pack",
    "beating",
    "concatenated",
    "firsts_of",
    "packed",
    "read_table",
    "span",
    "unpacked",
    "written",
]

#: What packs are, in Spark's words; `t` is only in rows without events.
PACKS = (
    "shard int, t timestamp, first bigint, last bigint, seen bigint, messages bigint, "
    "firsts binary, events binary"
)
_SCHEMA = pa.schema(
    [("shard", pa.int32()), ("t", pa.timestamp("us", tz="UTC")), ("first", pa.int64()),
     ("last", pa.int64()), ("seen", pa.int64()), ("messages", pa.int64()),
     ("firsts", pa.binary()), ("events", pa.binary())]
)  # fmt: skip

#: The key of rows that say how far time has come; that of no shard.
CLOCK = -1
_MILLI = 1000
#: The column that marks heartbeats: rows that are no events, and say that time has come to `end`.
BEAT = "heartbeat"


class Pack(NamedTuple):
    """What a task has for a shard."""

    first: Micros
    """The ends of the earliest and of the latest event that the task saw; FOREVER and the time of a
    heartbeat, if that is all there was."""
    last: Micros
    events: Any
    """Bytes of a table, None if it has none."""
    firsts: bytes | None = None
    """What `firsts_of` made of the ends; None if nobody asks for more than the first."""

    def first_after(self, closed: Micros) -> Micros:
        """The earliest end after a watermark, FOREVER if there is none."""
        if self.first > closed:
            return self.first
        if self.firsts is None:
            return FOREVER
        firsts = np.cumsum(np.frombuffer(zlib.decompress(self.firsts), np.int64))
        at = int(np.searchsorted(firsts, closed, "right"))
        return int(firsts[at]) if at < len(firsts) else FOREVER


def firsts_of(ends: npt.NDArray[np.int64]) -> bytes:
    """The first end in each millisecond, which is how fine a watermark is; a few bytes for each."""
    ordered = np.sort(ends)
    millis = (ordered - 1) // _MILLI  # what a watermark has passed ends at it, or before
    firsts = ordered[np.flatnonzero(np.diff(millis, prepend=millis[:1] - 1))]
    return zlib.compress(np.diff(firsts, prepend=0).tobytes(), 1)


def beating(table: Any) -> tuple[Any, Micros]:
    """(the rows that are no heartbeats, the latest of these; NEVER if there is none)."""
    if BEAT not in table.column_names:
        return table, NEVER
    column = table.column(BEAT)
    table = table.drop_columns([BEAT])
    if not pa.types.is_boolean(column.type):  # somebody's own, which says nothing here
        return table, NEVER
    beats = pc.fill_null(column, False)
    if not pc.any(beats).as_py():
        return table, NEVER
    ends = table.filter(beats).column("end").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    latest: Micros | None = pc.max(ends).as_py()
    return table.filter(pc.invert(beats)), NEVER if latest is None else latest


def packed(tables: Mapping[int, Any], keys: Iterable[int], first: Micros, last: Micros,
           seen: int, firsts: bytes | None = None) -> Any:  # fmt: skip
    """The rows of a task: what it has for each key, be it nothing, and its time."""
    rows: list[tuple[Any, ...]] = [
        (key, None, first, last, 0, *_sent(tables.get(key), firsts)) for key in keys
    ]
    rows.append((CLOCK, last, first, last, seen, 0, None, None))
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
    ]
    return pa.record_batch(columns, schema=_SCHEMA)


def _sent(table: Any, firsts: bytes | None) -> tuple[int, bytes | None, bytes | None]:
    return (0, firsts, None) if table is None else (table.num_rows, firsts, written(table))


def unpacked(rows: Iterable[Any]) -> list[Pack]:
    """The packs among the rows of a shard, which have names."""
    names = Pack._fields
    return [Pack(*[row[name] for name in names]) for row in rows if row["t"] is None]


def span(packs: Iterable[Pack]) -> tuple[Micros, Micros]:
    """From the earliest to the latest end."""
    first, last = FOREVER, NEVER
    for pack in packs:
        first, last = min(first, pack.first), max(last, pack.last)
    return first, last


def written(table: Any) -> bytes:
    """A table as bytes that say what its columns are."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_table(data: Any) -> Any:
    """The table that was written."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def concatenated(tables: list[Any]) -> Any:
    """Some tables as one; a column that some lack is null there."""
    return pa.concat_tables(tables, promote_options="default").combine_chunks()
