"""A file's rows into a broker, from where it was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from nearcast.errors import BatchError, DatasetError, NearcastError, RowError
from nearcast.model.geometry import Space
from nearcast.transfer.columnar import Columns, count_of, tables_of
from nearcast.transfer.ends import Into, opened_into
from nearcast.transfer.formats import format_of
from nearcast.transfer.geojson import Features, features_of, lines_of
from nearcast.transfer.kinds import Kind, kind_of
from nearcast.transfer.notes import Note, Rejects
from nearcast.transfer.progress import Done, Told, silent

__all__ = ["import_file"]

#: Rows that are tried together behind a bad one.
_FEW = 64
Some = Features | Columns


def import_file(
    file: str | Path, kind: str, store: str, *, space: Space = "globe", key: str | None = None,
    tenant: str = "", format: str | None = None, skip_bad: bool = False, told: Told = silent,
) -> Done:  # fmt: skip
    """Take the rows of a file, in order, into a store file or a server.

    A bad row raises a `RowError` and all rows before it are there; with `skip_bad` it goes to
    `FILE.rejected.jsonl`. Asked again before it is done, it goes on where it was, as a store file
    says itself, and for a server `FILE.import.json`. Into another store, or of a file that has
    changed meanwhile, it begins anew: rows that are there already change nothing.
    """
    path, wanted = Path(file), kind_of(kind)
    read_as = format_of(path, format)
    stands = path.stat()
    note = Note(path.with_name(path.name + ".import.json"))
    end = opened_into(store, space, key, tenant)
    try:
        about = {
            "kind": kind, "format": read_as, "space": space, "into": end.name,
            "bytes": stands.st_size, "mtime_ns": stands.st_mtime_ns,
        }  # fmt: skip
        before = end.begun(note, about) or {"rows": 0, "rejected": 0, "reject_bytes": 0}
        rejects = Rejects(path.with_name(path.name + ".rejected.jsonl"), before["reject_bytes"])
        run = _Run(
            path, wanted, space, end, rejects, skip_bad, before["rows"], before["rejected"],
            lambda said: note.write(about, **said),
        )  # fmt: skip
        total = stands.st_size if "geo" in read_as else count_of(path, read_as)
        for some in _batches(path, read_as, run.row, end.rows):
            told(some.read, total)
            run.take(some)
        end.over()
    finally:
        end.close()
    note.drop()
    return Done(run.row - run.rejected, run.rejected, before["rows"])


def _batches(path: Path, format: str, after: int, size: int) -> Iterator[Some]:
    """The rows behind some; those are read once more where there is no other way to pass them."""
    if "geo" not in format:
        if after:
            yield Columns(_nothing(), after)
        for table in tables_of(path, format, after, size):
            yield Columns(table, table.num_rows)
        return
    rows = features_of(path) if format == "geojson" else lines_of(path)
    skipped = sum(1 for _ in islice(rows, after))
    share = _Share(path.stat().st_size)
    for some in _together(rows, size):
        yield Features(some, share.of(some, skipped))
        skipped = 0


def _together(rows: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Rows by `size`; those in front of where a file breaks off come before the error."""
    some: list[Any] = []
    try:
        for row in rows:
            some.append(row)
            if len(some) == size:
                yield some
                some = []
    except DatasetError:
        if some:
            yield some
        raise
    if some:
        yield some


class _Share:
    """How much of a file some rows are, roughly: by the length of what they say."""

    def __init__(self, size: int) -> None:
        self._left = size

    def of(self, rows: list[Any], skipped: int) -> int:
        some = rows[:: max(1, len(rows) // 20)]
        mean = sum(len(str(each)) for each in some) / len(some)
        found = min(self._left, round(mean * (len(rows) + skipped)))
        self._left -= found
        return found


def _nothing() -> Any:
    import pyarrow as pa

    return pa.table({"id": pa.array([], pa.string())})


class _Run:
    """One import: which row it has come to."""

    def __init__(
        self, path: Path, kind: Kind, space: Space, end: Into, rejects: Rejects, skip_bad: bool,
        row: int, rejected: int, noted: Callable[[dict[str, Any]], None],
    ) -> None:  # fmt: skip
        self._path = path
        self._kind = kind
        self._space: Space = space
        self._end = end
        self._rejects = rejects
        self._skip_bad = skip_bad
        self.row = row
        """How many rows are done."""
        self.rejected = rejected
        self._noted = noted

    def _said(self, more: int = 0) -> dict[str, Any]:
        """How far it has come, with some more rows."""
        return {
            "rows": self.row + more, "rejected": self.rejected, "reject_bytes": self._rejects.size
        }  # fmt: skip

    def take(self, some: Some) -> None:
        """All rows of some, or those before a bad one: each `put` is a commit of its own."""
        at, step = 0, len(some)
        while at < len(some):
            part = some.cut(at, min(at + step, len(some)))
            try:
                rows = part.made(self._kind, self._space)
                rows = rows[: self._end.together(rows)]
                self._end.put(self._kind, rows, self._said(len(rows)))
            except BatchError as error:
                if error.row:
                    step = error.row  # these first: they are good
                    continue
                self._set_aside(error.cause, some.shown(at))
                at, step = at + 1, _FEW
                self.row += 1
            else:
                at += len(rows)
                self.row += len(rows)
                step = 2 * len(rows)
                self._noted(self._said())
        self._noted(self._said())

    def _set_aside(self, cause: NearcastError, what: Any) -> None:
        if not self._skip_bad:
            raise RowError(
                str(self._path), self.row + 1, cause,
                f"The {self.row - self.rejected:,} rows before it are there. Mend it and give the "
                "same command again, or add --skip-bad to set bad rows aside.",
            )  # fmt: skip
        self._rejects.add(self.row + 1, cause, what)
        self.rejected += 1
