"""Plain events that composites wait for, packed for the shards that want them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.cpsl.shards import Dealt
from nearcast.errors import BatchError, ValidationError
from nearcast.matcher import Matcher
from nearcast.matcher.arrow_columns import column_of
from nearcast.model.codec import check_event_columns
from nearcast.model.geometry import Space
from nearcast.spark.packs import beating, firsts_of, packed
from nearcast.spark.rows import accepted, check
from nearcast.spark.workers import Shipped, gathered, task_threads

__all__ = ["PRIMITIVES", "PrimitivePacking", "dealt_table", "shard_bytes"]

_TOGETHER = 131_072
#: The columns beside the event's own: who of the primitives it may satisfy, whether it is counted
#: in this shard if it is late, and the order of those that end together.
PRIMITIVES = ("#primitives", "#home", "#offset")


def dealt_table(dealt: Dealt) -> Any:
    """What workers need beside the matcher, as a table of one row."""
    columns = {
        "starts": pa.array([dealt.starts.tobytes()], pa.large_binary()),
        "wanted": pa.array([dealt.wanted.tobytes()], pa.large_binary()),
        "shards": pa.array([list(dealt.shards)], pa.large_list(pa.large_binary())),
    }
    return pa.table(columns)


def shard_bytes(table: Any, shard: int) -> bytes:
    """What `Shard.open` takes."""
    data: bytes = column_of(table, "shards").values[shard].as_py()
    return data


@dataclass(frozen=True)
class PrimitivePacking:
    """Events in, packs out: primitives are matched once, and an event goes to who wants it."""

    matcher: Shipped
    dealt: Shipped
    keys: tuple[int, ...]
    """The key of each shard."""
    space: Space
    longest: Micros | None
    strict: bool
    ends: bool = True
    """Whether packs say more of the ends than the first and the last: on a stream, where some are
    late and the first of the others is asked for."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        for table in gathered(batches, _TOGETHER):
            yield from self.pack(table)

    def pack(self, table: Any) -> Iterator[Any]:
        """The packs of a table of events, none if no row is good."""
        table, beat = beating(table)
        offsets = None
        if "offset" in table.column_names:
            offsets = column_of(table, "offset").cast(pa.int64())
            table = table.drop_columns(["offset"])
        events, offsets = self._good(table, offsets)
        if not events.num_rows:
            if beat > NEVER:
                yield packed({}, self.keys, FOREVER, beat, 0)
            return
        events = _timed(events)
        ends = column_of(events, "end").cast(pa.int64()).to_numpy()
        last = max(int(ends.max()), beat)
        firsts = firsts_of(ends) if self.ends else None
        tables = self._wanted(events, offsets)
        yield packed(tables, self.keys, int(ends.min()), last, len(ends), firsts)

    def _good(self, events: Any, offsets: Any) -> tuple[Any, Any]:
        """The events that can be used: they have a time and do not last too long."""
        check_event_columns(events.slice(0, 0))  # what they are called, and their types
        if self.strict:
            check(events, "events", self.space)
        else:
            good, bad = accepted(events, "events", self.space)
            if bad and offsets is not None:
                kept = np.ones(events.num_rows, np.bool_)
                kept[[reject.row for reject in bad]] = False
                offsets = offsets.filter(pa.array(kept))
            events = good
        events = check_event_columns(events)
        fits = self._fits(events)
        if pc.all(fits, min_count=0).as_py():
            return events, offsets
        if self.strict:
            row = pc.index(fits, False).as_py()
            remedy = "an event has an end or a start, and lasts no longer than `longest`"
            raise BatchError(row, ValidationError("end", None, remedy))
        return events.filter(fits), offsets if offsets is None else offsets.filter(fits)

    def _fits(self, events: Any) -> Any:
        count = events.num_rows
        ends, starts = _times(events, "end", count), _times(events, "start", count)
        fits = pc.or_(ends.is_valid(), starts.is_valid())
        if self.longest is not None:
            spans = pc.fill_null(pc.subtract(ends, starts), 0)
            fits = pc.and_(fits, pc.less_equal(spans, self.longest))
        return fits

    def _wanted(self, events: Any, offsets: Any) -> dict[int, Any]:
        """The events that each shard wants, by its key."""
        matcher: Matcher = self.matcher.open(task_threads())
        about = self.dealt.open(1)
        found, ids = matcher.match_numbers(events)
        dealt = Dealt(
            matcher,
            np.frombuffer(column_of(about, "starts")[0].as_buffer(), np.int64),
            np.frombuffer(column_of(about, "wanted")[0].as_buffer(), np.int64),
            (),
        )
        numbers = np.fromiter(map(int, ids), np.int64, len(ids))
        shards, rows, numbers = dealt.whose(found.astype(np.int64), numbers)
        home = np.zeros(len(rows), np.bool_)
        home[np.unique(rows, return_index=True)[1]] = True  # the first shard that wants it
        starts = np.searchsorted(shards, np.arange(len(self.keys) + 1)).tolist()
        kept = events.select([name for name in events.column_names if name != "expires"])
        tables = {}
        for shard, key in enumerate(self.keys):
            mine = slice(starts[shard], starts[shard + 1])
            if mine.start < mine.stop:
                tables[key] = _rows(kept, offsets, rows[mine], numbers[mine], home[mine])
        return tables


def _rows(events: Any, offsets: Any, rows: Any, numbers: Any, home: Any) -> Any:
    """Some of the events, each with its primitives."""
    each, first = np.unique(rows, return_index=True)
    lists = pa.ListArray.from_arrays(
        pa.array([*first.tolist(), len(rows)], pa.int32()), pa.array(numbers, pa.int32())
    )
    at = pa.array(each)
    table = events.take(at).append_column("#primitives", lists)
    table = table.append_column("#home", pa.array(np.logical_or.reduceat(home, first)))
    if offsets is not None:
        table = table.append_column("#offset", offsets.take(at))
    return table.combine_chunks()


def _times(events: Any, name: str, count: int) -> Any:
    """A time as microseconds, null where it is not given."""
    if name not in events.column_names:
        return pa.nulls(count, pa.int64())
    return column_of(events, name).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


def _timed(events: Any) -> Any:
    """With `start` and `end`, as a detector understands what is given of them."""
    count = events.num_rows
    ends, starts = _times(events, "end", count), _times(events, "start", count)
    kind = pa.timestamp("us", tz="UTC")
    given = {
        "start": pc.coalesce(starts, ends).cast(kind),
        "end": pc.coalesce(ends, starts).cast(kind),
    }
    for name, column in given.items():
        if name in events.column_names:
            events = events.set_column(events.column_names.index(name), name, column)
        else:
            events = events.append_column(name, column)
    return events
