"""Parts of files that workers read by themselves, and the columns that they need of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from nearcast.model.codec import EVENT_COLUMNS
from nearcast.spark.parquet import opened, zoned

__all__ = ["Columns", "Every", "FilePiece", "Wanted"]

_TOGETHER = 65_536


class Columns(Protocol):
    """What is read of a file."""

    def of(self, schema: Any) -> list[str]:
        """The names of its columns, with dots into structs."""


class FilePiece(NamedTuple):
    """Some row groups of one file: what a worker reads by itself."""

    path: str
    first: int
    stop: int
    rows: int

    def tables(self, columns: Columns) -> Iterator[Any]:
        """Its rows in tables, with the columns that are wanted and there."""
        with opened(self.path) as file:
            names = columns.of(file.schema_arrow)
            for part in file.iter_batches(
                _TOGETHER, row_groups=range(self.first, self.stop), columns=names, use_threads=False
            ):
                yield zoned(pa.Table.from_batches([part]))


@dataclass(frozen=True)
class Wanted:
    """The columns of events that can change an answer."""

    attributes: frozenset[str]
    words: bool
    times: tuple[str, ...] = ("end",)
    offsets: bool = False
    """Whether each event has a place in a log, which counts."""

    def of(self, schema: Any) -> list[str]:
        """These columns of a file, and of `attributes` the fields that somebody asks for."""
        names = []
        for name in EVENT_COLUMNS.names:
            if name not in schema.names or name == "source":
                continue
            if name == "keywords" and not self.words:
                continue
            if name in ("start", "end", "expires") and name not in self.times:
                continue
            kind = schema.field(name).type
            if name == "attributes" and pa.types.is_struct(kind):
                fields = [kind.field(at).name for at in range(kind.num_fields)]
                kept = [each for each in fields if each in self.attributes]
                if all("." not in each for each in fields):
                    names += [f"attributes.{each}" for each in kept]
                elif kept:
                    names.append(name)
                continue
            names.append(name)
        return [*names, "offset"] if self.offsets else names

    def __or__(self, other: Wanted) -> Wanted:
        times = tuple(dict.fromkeys((*self.times, *other.times)))
        return Wanted(
            self.attributes | other.attributes, self.words or other.words, times,
            self.offsets or other.offsets,
        )  # fmt: skip


class Every:
    """All columns of events, and their places in a log."""

    def of(self, schema: Any) -> list[str]:
        """Those of a file."""
        known = {*EVENT_COLUMNS.names, "offset"} - {"source"}
        return [name for name in schema.names if name in known]
