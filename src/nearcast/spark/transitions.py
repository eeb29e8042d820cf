"""What fences tell of the objects of a shard: packed positions in, transitions out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.clock import Micros
from nearcast.fences.history import History, Standing, Told
from nearcast.kernels.sorting import order_in_groups
from nearcast.matcher.arrow_columns import column_of
from nearcast.model.codec.wkb import read_wkb
from nearcast.model.fences import TRANSITIONS
from nearcast.model.geometry import Box, Polygon, Space
from nearcast.spark.objects import arrow_type
from nearcast.spark.positions import Layout
from nearcast.spark.workers import Shipped

__all__ = [
    "TransitionStream",
    "in_order",
    "opened_standing",
    "standing_to_table",
    "told_type",
    "tracks_of",
]

_TOGETHER = 65_536  # positions that are run in one call
_META = b"nearcast"
_NAMES = pa.array(TRANSITIONS, pa.string())


def told_type(layout: Layout) -> str:
    """What `fences` gives, in Spark's words."""
    kind = "double" if layout.objects == "double" else "string"
    return f"fence_id string, object {kind}, transition string, at timestamp, event_id string"


def standing_to_table(standing: Standing, ids: list[str]) -> Any:
    """Fences as a table of one row that workers map; a column an array."""
    columns = {
        name: pa.array([array.tobytes()], pa.large_binary())
        for name, array in standing.arrays.items()
    }
    shapes = {name: (array.dtype.str, array.shape) for name, array in standing.arrays.items()}
    said = json.dumps(
        [standing.space, [[name, where, sorted(words)] for name, where, words in standing.keys],
         shapes]
    )  # fmt: skip
    columns["#ids"] = pa.array([ids], pa.large_list(pa.large_string()))
    return pa.table(columns).replace_schema_metadata({_META: said})


@lru_cache(maxsize=2)
def opened_standing(shipped: Shipped) -> tuple[Standing, Any]:
    """The fences and their ids, mapped: what a kernel would write is this process's own."""
    mapped = np.memmap(shipped.found(), np.uint8, "c")
    table = pa.ipc.open_file(pa.py_buffer(mapped)).read_all()
    space, keys, shapes = json.loads(table.schema.metadata[_META])
    arrays = {}
    for name, (dtype, shape) in shapes.items():
        column = column_of(table, name)
        first = column.buffers()[2].address - mapped.ctypes.data
        size = len(column[0].as_buffer())
        arrays[name] = np.asarray(mapped[first : first + size]).view(dtype).reshape(shape)
    known = tuple((name, where, frozenset(words)) for name, where, words in keys)
    return Standing(space, known, arrays), column_of(table, "#ids").values


@dataclass(frozen=True)
class TransitionStream:
    """The positions of whole objects in, in any order; what fences tell of them out.

    Holds the positions of a task: some 200 bytes each.
    """

    shipped: Shipped
    layout: Layout
    space: Space
    before: Micros
    """In the end, what is due before this moment happens,"""
    closed: Micros
    """and what is due up to this one."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        parts = (
            self.layout.unpack(blob) for batch in batches for blob in batch.column("positions")
        )
        yield from self.told(pa.Table.from_batches(parts, self.layout.schema).combine_chunks())

    def told(self, positions: Any) -> Iterator[Any]:
        """The transitions of some objects' positions, a table of one chunk."""
        if not positions.num_rows:
            return
        standing, fence_ids = opened_standing(self.shipped)
        objects = column_of(positions, "object").dictionary_encode()
        groups, whose, tracks = tracks_of(column_of(positions, "group"), objects)
        ats = _numbers(positions, "at").copy()
        order = in_order(positions, tracks, ats, by_object=not standing.has_timers)
        history = History(standing, groups)
        xs, ys = _numbers(positions, "x"), _numbers(positions, "y")
        wide = column_of(positions, "geometry") if "geometry" in self.layout.optional else None
        ids = column_of(positions, "id")

        def answer(told: Told) -> Any:
            return pa.record_batch(
                [
                    fence_ids.take(pa.array(told.fences)).cast(pa.string()),
                    objects.dictionary.take(pa.array(whose[told.tracks])),
                    _NAMES.take(pa.array(told.codes)),
                    pa.array(told.ats).cast(pa.timestamp("us", tz="UTC")),
                    ids.take(pa.array(order[told.positions])),
                ],
                schema=self._schema,
            )

        for first in range(0, len(order), _TOGETHER):
            rows = order[first : first + _TOGETHER]
            shapes = {} if wide is None else self._shapes(wide.take(pa.array(rows)))
            told = history.take(tracks[rows], ats[rows], xs[rows], ys[rows], shapes)
            if len(told.ats):
                yield answer(told)
        told = history.finish(self.before, self.closed)
        if len(told.ats):
            yield answer(told)

    def _shapes(self, wide: Any) -> dict[int, Box | Polygon]:
        """The places, by row, that are more than points."""
        found = {}
        for row in np.flatnonzero(wide.is_valid().to_numpy(zero_copy_only=False)).tolist():
            place = read_wkb(wide[row].as_py(), self.space)
            assert isinstance(place, Box | Polygon)
            found[row] = place
        return found

    @property
    def _schema(self) -> Any:
        return pa.schema(
            [("fence_id", pa.string()), ("object", arrow_type(self.layout.objects)),
             ("transition", pa.string()), ("at", pa.timestamp("us", tz="UTC")),
             ("event_id", pa.string())]
        )  # fmt: skip


def _numbers(table: Any, name: str) -> Any:
    return column_of(table, name).to_numpy(zero_copy_only=False)


def tracks_of(groups: Any, objects: Any) -> tuple[Any, Any, Any]:
    """The group and the object of each track, and the track of each position."""
    given = groups.to_numpy(zero_copy_only=False).astype(np.int64)
    codes = objects.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    count = len(objects.dictionary)
    if len(given) and given.min() == given.max():  # all are there, each once
        return np.full(count, given[0]), np.arange(count), codes
    keys, tracks = np.unique(given * count + codes, return_inverse=True)
    return keys // max(count, 1), keys % max(count, 1), tracks


def in_order(positions: Any, tracks: Any, ats: Any, *, by_object: bool) -> Any:
    """The rows in order of time; at one moment those of an object by offset, then id.

    With `by_object` one object after the other: where an object was, it finds most again in the
    processor's caches, which halves the time. What is repeated comes once: rows with the same
    id, source, object, time and place.
    """
    count = int(tracks.max(initial=-1)) + 1
    order = order_in_groups(tracks, ats, count) if by_object else np.lexsort((tracks, ats))
    same = (np.diff(tracks[order]) == 0) & (np.diff(ats[order]) == 0)
    if not same.any():
        return order
    several = np.zeros(len(order), bool)
    several[1:] |= same
    several[:-1] |= same
    rows = order[several]
    names = [name for name in positions.column_names if name not in ("group", "object", "at")]
    tied = positions.select(names).take(pa.array(rows))
    tied = tied.append_column("track", pa.array(tracks[rows]))
    tied = tied.append_column("at", pa.array(ats[rows]))
    main = ["track", "at"] if by_object else ["at", "track"]
    by = [*main, *[name for name in ("offset", "id", "source") if name in names], "x", "y"]
    turned = pc.sort_indices(tied, [(name, "ascending") for name in by])
    rows = rows[turned.to_numpy()]
    tied = tied.take(turned).append_column("rank", pa.array(np.arange(len(rows))))
    content = [name for name in tied.column_names if name not in ("offset", "rank")]
    first = tied.group_by(content, use_threads=False).aggregate([("rank", "min")])
    kept = np.zeros(len(rows), bool)
    kept[first.column("rank_min").to_numpy()] = True
    order[several] = np.where(kept, rows, -1)
    return order[order >= 0]
