"""What a broker holds into a file, by parts: a kill costs no more than the last one.

The parts lie in `FILE.parts` until all are there; then they become the file, which is whole as
soon as it has its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nearcast.errors import DatasetError, NearcastError, RowError
from nearcast.model.geometry import Space
from nearcast.transfer.ends import opened_from
from nearcast.transfer.formats import format_of
from nearcast.transfer.geojson import text_of
from nearcast.transfer.kinds import Kind, kind_of
from nearcast.transfer.notes import Note, Rejects, synced
from nearcast.transfer.progress import Done, Told, silent

__all__ = ["export_file"]

_START: dict[str, Any] = {"parts": [], "after": None, "rows": 0, "rejected": 0, "reject_bytes": 0}


def export_file(
    file: str | Path, kind: str, store: str, *, space: Space = "globe", key: str | None = None,
    tenant: str = "", format: str | None = None, skip_bad: bool = False, told: Told = silent,
) -> Done:  # fmt: skip
    """Write all subscriptions or fences by id, or all live events in the order they came.

    Each as it stands when its page is read. What the format cannot say raises a `RowError`; with
    `skip_bad` it goes to `FILE.rejected.jsonl`. Interrupted, it goes on where it was when it is
    asked again.
    """
    path, wanted = Path(file), kind_of(kind)
    write_as = format_of(path, format)
    parts = path.with_name(path.name + ".parts")
    if path.exists() and not parts.exists():
        raise DatasetError(f"{path}: exists already; name another file")
    note = Note(parts / "state.json")
    end = opened_from(store, space, key, tenant)
    try:
        about = {"kind": kind, "format": write_as, "space": space, "from": end.name}
        said = note.read(about)
        if said is None:
            shutil.rmtree(parts, ignore_errors=True)
            parts.mkdir(parents=True)
        at: dict[str, Any] = dict(_START) if said is None else said
        resumed = int(at["rows"]) + int(at["rejected"])
        rejects = Rejects(path.with_name(path.name + ".rejected.jsonl"), at["reject_bytes"])
        run = _Run(path, parts, wanted, write_as, rejects, skip_bad, at)
        total = end.count(wanted)
        told(resumed, total)
        for rows, after in end.pages(wanted, at["after"]):
            run.write(rows)
            note.write(about, **run.noted(after))
            told(len(rows), total)
    finally:
        end.close()
    run.finish()
    shutil.rmtree(parts)
    return Done(run.rows, run.rejected, resumed)


class _Run:
    """One export: what is written so far."""

    def __init__(
        self, path: Path, folder: Path, kind: Kind, format: str, rejects: Rejects, skip_bad: bool,
        at: dict[str, Any],
    ) -> None:  # fmt: skip
        self._path = path
        self._folder = folder
        self._kind = kind
        self._format = format
        self._rejects = rejects
        self._skip_bad = skip_bad
        self._parts: list[int] = [*at["parts"]]
        """The rows of each part."""
        self.rows, self.rejected = int(at["rows"]), int(at["rejected"])

    def noted(self, after: Any) -> dict[str, Any]:
        """What to go on with."""
        return {
            "parts": self._parts, "after": after, "rows": self.rows, "rejected": self.rejected,
            "reject_bytes": self._rejects.size,
        }  # fmt: skip

    def _part(self, number: int) -> Path:
        return self._folder / f"part-{number:06}"

    def write(self, rows: Sequence[Any]) -> None:
        """One more part; on disk when this returns."""
        part = self._part(len(self._parts))
        if "geo" in self._format:
            lines = [line for line in map(self._line, rows) if line is not None]
            part.write_text("".join(lines), encoding="utf-8")
            count = len(lines)
        else:
            from nearcast.transfer.columnar import write_tables

            table = self._table(rows)
            write_tables(part, "arrow", table.schema, [table])
            count = table.num_rows
        synced(part)
        self._parts.append(count)
        self.rows += count

    def _line(self, row: Any) -> str | None:
        try:
            return text_of(self._kind.to_feature(row)) + "\n"
        except NearcastError as error:
            self._set_aside(error, row)
            return None

    def _table(self, rows: Sequence[Any]) -> Any:
        try:
            return self._kind.to_table(rows)
        except NearcastError:
            return self._kind.to_table([row for row in rows if self._fits(row)])

    def _fits(self, row: Any) -> bool:
        try:
            self._kind.to_table([row])
        except NearcastError as error:
            self._set_aside(error, row)
            return False
        return True

    def _set_aside(self, cause: NearcastError, row: Any) -> None:
        number = self.rows + self.rejected + 1
        if not self._skip_bad:
            raise RowError(
                str(self._path), number, cause,
                f"It is {row.id!r}. Choose another format, or add --skip-bad to set it aside; "
                "the same command goes on here.",
            )  # fmt: skip
        self._rejects.add(number, cause, repr(row))
        self.rejected += 1

    # -- the end -----------------------------------------------------------------------

    def finish(self) -> None:
        """Make the file of its parts."""
        scratch = self._folder / "whole"
        if "geo" in self._format:
            self._join(scratch)
        else:
            self._unite(scratch)
        synced(scratch)
        scratch.replace(self._path)
        synced(self._path.parent)

    def _join(self, scratch: Path) -> None:
        collection = self._format == "geojson"
        with scratch.open("w", encoding="utf-8") as whole:
            if collection:
                whole.write('{"type":"FeatureCollection","features":[')
            first = True
            for line in self._lines():
                if not collection:
                    whole.write(line)
                    continue
                whole.write("\n" if first else ",\n")
                whole.write(line[:-1])
                first = False
            if collection:
                whole.write("\n]}\n")

    def _lines(self) -> Iterator[str]:
        for number, count in enumerate(self._parts):
            found = 0
            with self._part(number).open(encoding="utf-8", newline="\n") as part:
                for line in part:
                    found += line.endswith("\n")
                    yield line
            self._check(number, found, count)

    def _check(self, number: int, found: int, count: int) -> None:
        if found != count:
            raise DatasetError(
                f"{self._part(number)}: has {found:,} of the {count:,} rows that were written; see "
                f"to the disk, remove {self._folder}, and give the same command again"
            )

    def _unite(self, scratch: Path) -> None:
        """Parts with one schema; attributes whose types differ between them are encoded anew."""
        from nearcast.transfer.columnar import merged, write_tables

        schemas = [table.schema for table in self._tables()] or [self._kind.to_table([]).schema]
        schema = merged(schemas)
        if schema is None:
            rows: list[Any] = []
            for table in self._tables():
                rows += self._kind.from_table(table, None)
            table = self._kind.to_table(rows)
            write_tables(scratch, self._format, table.schema, [table])
        else:
            write_tables(scratch, self._format, schema, self._tables())

    def _tables(self) -> Iterator[Any]:
        from nearcast.transfer.columnar import tables_of

        for number, count in enumerate(self._parts):
            found = 0
            for table in tables_of(self._part(number), "arrow", 0, 1 << 30):
                found += table.num_rows
                yield table
            self._check(number, found, count)
