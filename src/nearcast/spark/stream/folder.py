"""Logs that are folders of files: new files are new rows, in the order of their names.

Files are Parquet, or lines of JSON (`.json`, `.jsonl`, `.ndjson`), of which events lie spooled as
Parquet once they are read. A file counts from when it has its name, so write elsewhere (or under a
name that begins with `_` or `.`) and rename. One that appears with a name before one that was read
is never read, and a warning says so. So that this holds after a restart and for what is remembered,
a position says how many files were read by then, and a digest of their names.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs

from nearcast.errors import SparkError, ValidationError
from nearcast.model.codec import EVENT_COLUMNS, check_event_columns
from nearcast.model.geometry import Space
from nearcast.spark.parquet import opened, zoned
from nearcast.spark.stream.changes import CHANGES, canonical
from nearcast.spark.stream.lines import lines_of, rows_of
from nearcast.spark.stream.moments import micros_of, newest_of
from nearcast.spark.stream.pieces import FilePiece
from nearcast.spark.stream.spool import SpooledPiece

__all__ = ["ChangeFolder", "EventFolder"]

_PARQUET, _LINES = ".parquet", (".json", ".jsonl", ".ndjson")
_DIGESTS = 1 << 64
_log = logging.getLogger("nearcast.spark")


class _Place(NamedTuple):
    """A position, in words `name/files/digest`; only the name where a checkpoint is older."""

    name: str
    """The last file that was read."""
    files: int | None
    """How many were read; None if that was not written down."""
    digest: int
    """Of their names: the sum of those of each, so that one of a range is a difference."""

    @classmethod
    def of(cls, position: str) -> _Place:
        name, told, rest = position.partition("/")
        if not told:
            return cls(name, None if name else 0, 0)
        files, _, digest = rest.partition("/")
        return cls(name, int(files), int(digest, 16))

    def past(self, name: str) -> _Place:
        """When one more is read."""
        if self.files is None:
            return _Place(name, None, 0)
        return _Place(name, self.files + 1, (self.digest + _digest([name])) % _DIGESTS)

    def said(self) -> str:
        """In words."""
        return self.name if not self.files else f"{self.name}/{self.files}/{self.digest:016x}"


def _digest(names: Iterable[str]) -> int:
    each = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return sum(int.from_bytes(one, "big") for one in each) % _DIGESTS


@dataclass
class _Folder:
    """What is in a folder."""

    url: str
    what: str
    space: Space = field(default="globe", kw_only=True)
    _looked: frozenset[str] | None = field(default=None, repr=False, kw_only=True)
    """What was there when it was looked at last."""
    _late: set[str] = field(default_factory=set, repr=False, kw_only=True)
    """What is never read."""

    def __post_init__(self) -> None:
        if "://" not in self.url:
            self.url = "file://" + os.path.abspath(self.url)
        if self.url.startswith("file:") and not os.path.isdir(self._local()):
            raise ValidationError(self.what, self.url, "name a folder of Parquet or JSON files")

    def _local(self) -> str:
        return unquote("/" + self.url[5:].lstrip("/"))

    def names(self) -> list[str]:
        """The files that are there by now, in order."""
        if self.url.startswith("file:"):
            found = os.listdir(self._local())
        else:
            system, inner = pa.fs.FileSystem.from_uri(self.url.replace("s3a://", "s3://", 1))
            found = [each.base_name for each in system.get_file_info(pa.fs.FileSelector(inner))]
        ends = (_PARQUET, *_LINES)
        return sorted(n for n in found if n.endswith(ends) and n[0] not in "._")

    def after(self, start: str, stop: str | None = None) -> list[str]:
        """The files in (start, stop], those that were there when that was read."""
        first = _Place.of(start)
        names = [name for name in self.names() if name > first.name]
        if stop is None:
            return names
        last = _Place.of(stop)
        names = [name for name in names if name <= last.name and name not in self._late]
        if first.files is None or last.files is None:
            return names
        files, digest = last.files - first.files, (last.digest - first.digest) % _DIGESTS
        return self._exactly(names, files, digest)

    def _exactly(self, names: list[str], files: int, digest: int) -> list[str]:
        """Of the files those that are meant; SparkError if others came, and nothing says which."""
        if len(names) < files or _digest(names) == digest:
            return names  # what is gone is passed over
        one = (_digest(names) - digest) % _DIGESTS
        last = set(sorted(names, key=self._came)[files:])
        for late in ({name for name in names if _digest([name]) == one}, last):
            kept = [name for name in names if name not in late]
            if _digest(kept) == digest:
                self._late |= late
                return kept
        raise SparkError(
            f"{self.url}: from {names[0]} to {names[-1]} there are {len(names):,} files, of which "
            f"{files:,} had been read: some came when files behind them had been read already "
            f"({', '.join(sorted(last)[:3]) or 'and as many are gone'}). Take these away, or give "
            "the stream a new checkpoint"
        )

    def _came(self, name: str) -> int:
        """When a file got its name, or something like it: who is asked has to check."""
        try:
            if self.url.startswith("file:"):
                return os.stat(os.path.join(self._local(), name)).st_ctime_ns
            system, path = pa.fs.FileSystem.from_uri(self.path(name).replace("s3a://", "s3://", 1))
            return system.get_file_info(path).mtime_ns or 0
        except OSError:
            return 0

    def look(self, start: str) -> list[str]:
        """The files after a position, before a batch is planned; says what will never be read."""
        names, start = self.names(), _Place.of(start).name
        if self._looked is not None and start:
            missed = [n for n in names if n <= start and n not in self._looked]
            if missed:
                self._late.update(missed)
                _log.warning(
                    "%s: %s came when files behind it had been read already, and is not read (%s "
                    "in all); give new files greater names", self.url, missed[0], f"{len(missed):,}"
                )  # fmt: skip
        self._looked = frozenset(names)
        return [n for n in names if n > start]

    def rows(self, name: str, schema: Any) -> Any:
        """The rows of a file of lines."""
        try:
            return rows_of(lines_of(self.path(name)), schema, self.space)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise SparkError(
                f"{self.path(name)}: cannot be read as lines of JSON ({error})"
            ) from None

    def path(self, name: str) -> str:
        """Where a file is."""
        return f"{self.url.rstrip('/')}/{name}"

    def file(self, name: str) -> Any:
        """A file, opened; SparkError says what is wrong with it."""
        try:
            return opened(self.path(name))
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise SparkError(
                f"{self.path(name)}: cannot be read as Parquet ({error}); write it elsewhere and "
                "move it in, or take it away"
            ) from None


# --- events ---------------------------------------------------------------------------------------


class _Footer(NamedTuple):
    groups: tuple[int, ...]
    """Rows of each row group."""
    latest: int | None
    """The greatest `end`, microseconds."""


@dataclass
class EventFolder(_Folder):
    """Events."""

    what: str = "events"
    root: Path = field(default=Path(), kw_only=True)
    """Where lines of JSON lie spooled."""
    _footers: dict[str, _Footer] = field(default_factory=dict, repr=False)

    first = ""
    ordered = False

    def end(self) -> str:
        """Behind all files."""
        return max(self.names(), default="")

    def latest(self, start: str, most: int | None, until: str | None) -> tuple[str, int]:
        """(how far to read from a position, the rows up to there): whole files, at least one."""
        at, rows = _Place.of(start), 0
        for name in self.look(start):
            if until is not None and name > until:
                break
            more = sum(self._footer(name).groups)
            if most is not None and rows and rows + more > most:
                break
            at, rows = at.past(name), rows + more
        return at.said(), rows

    def behind(self, start: str) -> int:
        """How many files have come after a position."""
        return len(self.after(start))

    def newest(self, start: str, stop: str) -> int | None:
        """The greatest `end` in (start, stop]."""
        names = self.after(start, stop)
        found = [self._footer(name).latest for name in names]
        found.append(newest_of(self._spooled(name) for name in names if name.endswith(_LINES)))
        return max((each for each in found if each is not None), default=None)

    def tidy(self, oldest: str) -> None:
        """Remove what lies spooled of files up to the oldest that is remembered."""
        for path in (self.root / "spool").glob("lines-*.parquet"):
            if path.stem.removeprefix("lines-") <= _Place.of(oldest).name:
                path.unlink(missing_ok=True)

    def _spooled(self, name: str) -> SpooledPiece:
        path = self.root / "spool" / f"lines-{name}.parquet"
        log = EventFolder(self.url, self.what, space=self.space)
        return SpooledPiece(str(path), self._footer(name).groups[0],
                            partial(log.rows, name, EVENT_COLUMNS))  # fmt: skip

    def pieces(self, start: str, stop: str) -> list[FilePiece | SpooledPiece]:
        """The row groups of (start, stop]; a file that is gone by now is passed over."""
        made: list[FilePiece | SpooledPiece] = []
        for name in self.after(start, stop):
            groups = self._footer(name).groups
            if name.endswith(_LINES):
                made += [self._spooled(name)] if groups[0] else []
                continue
            made += [
                FilePiece(self.path(name), at, at + 1, rows)
                for at, rows in enumerate(groups)
                if rows
            ]
        return made

    def _footer(self, name: str) -> _Footer:
        if name not in self._footers and name.endswith(_LINES):
            self._footers[name] = _Footer((len(lines_of(self.path(name))),), None)
        if name not in self._footers:
            with self.file(name) as file:
                _check_types(file.schema_arrow, self.path(name))
                meta = file.metadata
                groups = tuple(meta.row_group(at).num_rows for at in range(meta.num_row_groups))
                self._footers[name] = _Footer(groups, _latest(file))
            if len(self._footers) > 10_000:
                del self._footers[next(iter(self._footers))]
        return self._footers[name]


def _check_types(schema: Any, path: str) -> None:
    """Refuse a file with columns of other types now, and not when somebody needs one of them."""
    known = {*EVENT_COLUMNS.names} - {"attributes", "source"}
    kept = [name for name in schema.names if name in known]
    try:
        check_event_columns(zoned(schema.empty_table().select(kept)))
    except ValidationError as error:
        raise SparkError(f"{path}: {error}") from None


def _latest(file: Any) -> int | None:
    """The greatest `end` of a file: by its statistics, else by the column."""
    if "end" not in file.schema_arrow.names:
        return None
    column = next(
        at for at in range(file.metadata.num_columns) if file.schema.column(at).path == "end"
    )
    if not pa.types.is_timestamp(file.schema_arrow.field("end").type):
        return None
    found: list[int] = []
    for group in range(file.metadata.num_row_groups):
        stats = file.metadata.row_group(group).column(column).statistics
        if stats is not None and stats.has_min_max:
            value = pa.scalar(stats.max, file.schema_arrow.field("end").type)
        else:
            value = pc.max(file.read_row_group(group, columns=["end"]).column(0))
        moment = micros_of(value)
        if moment is not None:
            found.append(moment)
    return max(found, default=None)


# --- changes --------------------------------------------------------------------------------------


@dataclass
class ChangeFolder(_Folder):
    """Changes of subscriptions, or plain subscriptions, which never change."""

    what: str = "changes"
    _plain: bool | None = field(default=None, repr=False)

    first = ""

    @property
    def plain(self) -> bool:
        """Whether these are subscriptions without `op` and `seq`; False while there is no file."""
        if self._plain is None:
            names = self.names()
            if not names:
                return False
            self._plain = not {"op", "seq"} & set(self._columns(names[0]))
        return self._plain

    def latest(self, start: str, most: int | None, until: str | None) -> str:
        """How far to read from a position: whole files, at least one."""
        if self.plain and start:
            return start
        at, rows = _Place.of(start), 0
        for name in self.look(start):
            if until is not None and name > until:
                break
            if most is not None:
                more = self._count(name)
                if rows and rows + more > most:
                    break
                rows += more
            at = at.past(name)
        return at.said()

    def end(self) -> str:
        """Behind all files."""
        return max(self.names(), default="")

    def reaches(self, first: str, second: str) -> bool:
        """Whether the second position is not before the first."""
        return _Place.of(first).name <= _Place.of(second).name

    def read(self, start: str, stop: str) -> Any:
        """The changes in (start, stop], in the columns of `CHANGES`."""
        tables = [canonical(self._table(name), self.path(name)) for name in self.after(start, stop)]
        return pa.concat_tables(tables) if tables else None

    def _table(self, name: str) -> Any:
        if not name.endswith(_LINES):
            with self.file(name) as file:
                return file.read()
        table = self.rows(name, CHANGES)
        if self.plain:
            return table
        for each in (CHANGES.field("op"), CHANGES.field("seq")):
            if each.name not in table.column_names:  # and so every row is rejected
                table = table.append_column(each, pa.nulls(table.num_rows, each.type))
        return table

    def _columns(self, name: str) -> list[str]:
        if name.endswith(_LINES):
            names: list[str] = self.rows(name, CHANGES).column_names
            return names
        with self.file(name) as file:
            names = file.schema_arrow.names
            return names

    def _count(self, name: str) -> int:
        if name.endswith(_LINES):
            return len(lines_of(self.path(name)))
        with self.file(name) as file:
            count: int = file.metadata.num_rows
            return count
