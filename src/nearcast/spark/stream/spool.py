"""Rows of logs that are no folders, kept as files beside the stream until nobody needs them.

What was read of a range of a log lies in a file of that range's name: the task that matches it, and
later those that tell newcomers, read the file. If it is gone the range is read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from nearcast.spark.stream.pieces import Columns, FilePiece

__all__ = ["SpooledPiece", "put"]


def put(path: Path, table: Any) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(table, scratch, use_dictionary=False, compression="none")
    scratch.replace(path)


@dataclass(frozen=True)
class SpooledPiece:
    """A range of a log: its file if that is there, else what `fetch` reads, which becomes it."""

    path: str
    rows: int
    fetch: Callable[[], Any]

    def ensured(self) -> Path:
        """The file, made if need be."""
        path = Path(self.path)
        if not path.exists():
            put(path, self.fetch())
        return path

    def tables(self, columns: Columns) -> Iterator[Any]:
        """Its rows in tables."""
        path = self.ensured()
        with pq.ParquetFile(path) as file:
            groups = file.metadata.num_row_groups
        yield from FilePiece(path.as_uri(), 0, groups, self.rows).tables(columns)

    def __repr__(self) -> str:
        return f"SpooledPiece({self.path})"
