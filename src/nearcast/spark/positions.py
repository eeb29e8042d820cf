"""Positions on their way to the shards of their objects.

A worker judges which fences count an event, and as whose position, keeps the few columns that
are needed from there on, and packs them by shard: what Spark then shuffles is some large rows of
bytes, not many small ones. Turning rows into Arrow and back is what Spark spends most time on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.clock import NEVER, Micros
from nearcast.fences.groups import Key
from nearcast.matcher import Matcher
from nearcast.matcher.arrow_columns import column_of, numbers_of, times_of, validity
from nearcast.model.codec import check_event_columns
from nearcast.model.codec.wkb import read_wkb
from nearcast.model.geometry import Point, Space
from nearcast.spark.objects import Kind, arrow_type, objects_of, shards_of
from nearcast.spark.parquet import read_splits
from nearcast.spark.rows import accepted, check
from nearcast.spark.workers import Shipped, gathered, task_threads

__all__ = ["PACKED", "Layout", "PositionPacking"]

#: What packed positions are, in Spark's words.
PACKED = "shard int, positions binary"
#: Positions that are packed together, and for each shard at least, where they are many.
_TOGETHER, _EACH, _MOST = 131_072, 2048, 1 << 20
_ANSWER = pa.schema([("shard", pa.int32()), ("positions", pa.binary())])

Rows = npt.NDArray[np.int64]
_NO_ROWS: Rows = np.empty(0, np.int64)


@dataclass(frozen=True)
class Layout:
    """The columns of packed positions."""

    objects: Kind
    optional: tuple[str, ...]
    """Those of `offset`, `source` and `geometry` that the positions have."""

    @property
    def schema(self) -> Any:
        """As Arrow says it."""
        return pa.schema(
            [("group", pa.int32()), ("object", arrow_type(self.objects)), ("at", pa.int64()),
             ("id", pa.string()), ("x", pa.float64()), ("y", pa.float64()),
             *[(name, _TYPES[name]) for name in self.optional]]
        )  # fmt: skip

    def unpack(self, blob: Any) -> Any:
        """The batch behind a value of the column `positions`."""
        return pa.ipc.read_record_batch(blob.as_buffer(), self.schema)


_TYPES = {"offset": pa.int64(), "source": pa.string(), "geometry": pa.binary()}


@dataclass(frozen=True)
class PositionPacking:
    """Events in, the positions among them out, packed by the shards of their objects."""

    keys: tuple[Key, ...]
    """What counts for each group of fences."""
    filters: Shipped | None
    """A matcher of the groups that have a filter, under their rows."""
    layout: Layout
    space: Space
    strict: bool
    shards: int
    until: Micros
    """Later positions do not count."""
    columns: tuple[str, ...] | None = None
    """What is read of files, if the rows are splits of these."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        together = min(max(_TOGETHER, _EACH * self.shards), _MOST)
        if self.columns is not None:
            tables = read_splits(batches, self.columns, together)
            batches = (batch for table in tables for batch in table.to_batches())
        for table in gathered(batches, together):
            yield self.pack(table)

    def pack(self, table: Any) -> Any:
        """The positions of a table, one row a shard."""
        return self._packed(*self._found(table))

    def timed(self, table: Any) -> tuple[Any, Micros, Micros] | None:
        """As `pack`, and the first and the last end of all good rows; None if there is none.

        A stream's clock goes with them all, be they positions of anybody or not.
        """
        events, offsets = self._good(table)
        if not events.num_rows:
            return None
        ends = times_of(events, "end", NEVER)
        return self._packed(*self._positions(events, offsets)), int(ends.min()), int(ends.max())

    def _packed(self, batch: Any, shards: Any) -> Any:
        order = np.argsort(shards, kind="stable")
        batch = batch.take(pa.array(order))
        starts = np.searchsorted(shards[order], np.arange(self.shards + 1)).tolist()
        there = [shard for shard in range(self.shards) if starts[shard] < starts[shard + 1]]
        blobs = [
            batch.slice(starts[shard], starts[shard + 1] - starts[shard]).serialize()
            for shard in there
        ]
        return pa.record_batch(
            [pa.array(there, pa.int32()), pa.array([b.to_pybytes() for b in blobs], pa.binary())],
            schema=_ANSWER,
        )

    def picked(self, table: Any, shard: int) -> Any:
        """The positions of a table whose objects are of a shard. Others cost 0.1 µs each."""
        batch, shards = self._found(self._near(table, shard))
        if bool((shards == shard).all()):
            return batch
        return batch.filter(pa.array(shards == shard))

    def _near(self, table: Any, shard: int) -> Any:
        """The rows of a table that name an object of the shard; those of nobody go to the first."""
        given = table.drop_columns(["offset"]) if "offset" in table.column_names else table
        if given.column("id").null_count or "attributes_json" in given.column_names:
            return table  # may be bad, and is looked at in good time
        events = check_event_columns(given)
        kept = np.zeros(table.num_rows, bool)
        nobodys = np.ones(table.num_rows, bool)
        for name in dict.fromkeys(key[0] for key in self.keys):
            objects = objects_of(events, name, self.layout.objects)
            rows = np.flatnonzero(objects.is_valid().to_numpy(zero_copy_only=False))
            named = objects if len(rows) == len(objects) else objects.take(pa.array(rows))
            if len(rows):
                kept[rows] |= shards_of(named, self.shards) == shard
                nobodys[rows] = False
        if shard == 0 and self.strict:  # what is wrong with them is to be said
            kept |= nobodys
        return table.filter(pa.array(kept))

    def _found(self, table: Any) -> tuple[Any, Any]:
        """The positions of a table, and the shards of their objects."""
        return self._positions(*self._good(table))

    def _positions(self, events: Any, offsets: Any) -> tuple[Any, Any]:
        xs, ys, shapes = _places(events, self.space)
        ats = times_of(events, "end", NEVER)
        counted = ats <= self.until
        counted &= ~np.isnan(xs) if shapes is None else ~np.isnan(xs) | validity(events, "geometry")
        groups, rows, objects = self._counting(events, counted)
        shards = shards_of(objects, self.shards)
        given = {
            "group": pa.array(groups.astype(np.int32)),
            "object": objects,
            "at": pa.array(ats[rows]),
            "id": column_of(events, "id").take(pa.array(rows)),
            "x": pa.array(xs[rows]),
            "y": pa.array(ys[rows]),
        }
        others = {"offset": offsets, "geometry": shapes}
        for name in self.layout.optional:
            column = column_of(events, name) if name == "source" else others[name]
            given[name] = column.take(pa.array(rows))
        schema = self.layout.schema
        return pa.record_batch([given[name] for name in schema.names], schema=schema), shards

    def _good(self, table: Any) -> tuple[Any, Any]:
        """The events that can be used, and their offsets."""
        offsets = None
        if "offset" in table.column_names:
            offsets = column_of(table, "offset").cast(pa.int64())
            table = table.drop_columns(["offset"])
        check_event_columns(table.slice(0, 0))  # what they are called, and their types
        if self.strict:
            check(table, "positions", self.space)
            return check_event_columns(table), offsets
        good, bad = accepted(table, "positions", self.space)
        if bad and offsets is not None:
            kept = np.ones(len(offsets), bool)
            kept[[reject.row for reject in bad]] = False
            offsets = offsets.filter(pa.array(kept))
        return check_event_columns(good), offsets

    def _counting(self, events: Any, counted: Any) -> tuple[Rows, Rows, Any]:
        """A group, a row and an object for each position and group that counts it."""
        objects = {
            name: objects_of(events, name, self.layout.objects)
            for name in dict.fromkeys(key[0] for key in self.keys)
        }
        named = {
            name: counted & column.is_valid().to_numpy(zero_copy_only=False)
            for name, column in objects.items()
        }
        parts: list[tuple[int, Rows]] = []
        for group, (name, where, words) in enumerate(self.keys):
            if where is None and not words:
                parts.append((group, np.flatnonzero(named[name])))
        if self.filters is not None:
            matcher: Matcher = self.filters.open(task_threads())
            numbers, ids = matcher.match_numbers(events)
            found = np.fromiter(map(int, ids), np.int64, len(ids))
            for group in np.unique(found).tolist():
                rows = np.sort(numbers[found == group]).astype(np.int64)
                parts.append((group, rows[named[self.keys[group][0]][rows]]))
        columns = [objects[self.keys[group][0]].take(pa.array(rows)) for group, rows in parts]
        whose = pa.concat_arrays([pa.nulls(0, arrow_type(self.layout.objects)), *columns])
        sizes = [len(rows) for _, rows in parts]
        groups = np.repeat(np.array([group for group, _ in parts], np.int64), sizes)
        return groups, np.concatenate([_NO_ROWS, *[rows for _, rows in parts]]), whose


def _places(events: Any, space: Space) -> tuple[Any, Any, Any]:
    """x and y, NaN where there is no point, and WKB of what is more than a point."""
    xs, ys = numbers_of(events, "lon"), numbers_of(events, "lat")
    if "geometry" not in events.column_names:
        return xs, ys, None
    column = column_of(events, "geometry")
    xs, ys = xs.copy(), ys.copy()
    extended = np.zeros(len(column), bool)
    for row in np.flatnonzero(validity(events, "geometry")).tolist():
        place = read_wkb(column[row].as_py(), space)
        if isinstance(place, Point):
            xs[row], ys[row] = place.x, place.y
        else:
            extended[row] = True
    return xs, ys, pc.if_else(pa.array(extended), column, pa.scalar(None, column.type))
