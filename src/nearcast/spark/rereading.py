"""Fences over files that are read by every task: no row passes through the JVM, or to another task.

A task picks the positions of its own objects from all the files. Where tasks are few that costs
less than to pack positions, shuffle and unpack them: reading a row takes a fifth of a microsecond,
the way through Spark one or two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from nearcast.spark.parquet import Split, read_splits
from nearcast.spark.positions import PositionPacking
from nearcast.spark.transitions import TransitionStream

__all__ = ["MOST_TASKS", "Rereading", "tasks_for"]

#: Tasks that may each read all the files: with more of them the shuffle is cheaper.
MOST_TASKS = 8
_AT_ONCE = 5_000_000  # positions that a task may hold, some 200 bytes each
_TOGETHER = 131_072


def tasks_for(cores: int, rows: int) -> int:
    """How many tasks share so many rows: one a core, and more where they would hold too much."""
    return max(1, cores, -(-rows // _AT_ONCE))


@dataclass(frozen=True)
class Rereading:
    """The numbers of shards in; what fences tell of the objects of each out."""

    pieces: tuple[Split, ...]
    """What all tasks read."""
    columns: tuple[str, ...]
    packing: PositionPacking
    work: TransitionStream

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For `mapInArrow`."""
        for batch in batches:
            for shard in batch.column(0).to_pylist():
                yield from self.work.told(self._positions(shard))

    def _positions(self, shard: int) -> Any:
        """Those of a shard, one behind the other."""
        every = pa.RecordBatch.from_pylist([piece._asdict() for piece in self.pieces])
        tables = read_splits(iter([every]), self.columns, _TOGETHER)
        picked = [self.packing.picked(table, shard) for table in tables]
        return pa.Table.from_batches(picked, self.work.layout.schema).combine_chunks()
