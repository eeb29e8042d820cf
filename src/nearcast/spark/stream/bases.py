"""Bases: all subscriptions at one moment, in a folder that workers map; built beside the stream.

A base is the rows (`rows.arrow`), what was removed, and a saved matcher. It is a cache: whoever
finds none, or one that this version of nearcast cannot open, folds the changes from the first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import NearcastError, SavedError
from nearcast.matcher import Matcher, saved
from nearcast.model.geometry import Space
from nearcast.spark.workers import Shipped

__all__ = [
    "Base",
    "Building",
    "asked_of",
    "build",
    "digest_of",
    "put_table",
    "shipped_matcher",
    "usable",
]

_ABOUT, _ROWS, _GONE, _MATCHER = "base.json", "rows.arrow", "gone.json", "matcher"
_ASIDE = {"op", "seq", "subscriber"}


@dataclass(frozen=True)
class Base:
    """A base that is there."""

    folder: Path
    position: Any
    """Of the log of changes, up to which it counts them."""
    seq: int
    """The greatest that it has read."""
    count: int
    attributes: frozenset[str]
    """The attributes that its subscriptions ask for."""
    words: bool

    @classmethod
    def open(cls, folder: Path) -> Base:
        """SavedError or OSError where there is none, or one of another version."""
        said = json.loads((folder / _ABOUT).read_text("utf-8"))
        saved.read_header(folder / _MATCHER)
        return cls(
            folder, said["position"], said["seq"], said["count"],
            frozenset(said["attributes"]), said["words"],
        )  # fmt: skip

    @cached_property
    def removed(self) -> dict[str, int]:
        """What was removed, with the `seq` of that."""
        found: dict[str, int] = json.loads((self.folder / _GONE).read_text("utf-8"))
        return found

    def table(self) -> Any:
        """The rows, mapped."""
        with pa.memory_map(str(self.folder / _ROWS)) as source:
            return pa.ipc.open_file(source).read_all()

    def rows_of(self, ids: list[str]) -> Any:
        """The rows of some ids, as far as they are there: one pass over all ids."""
        table = self.table()
        return table.filter(pc.is_in(table.column("id"), value_set=pa.array(ids, pa.string())))

    @cached_property
    def matcher(self) -> Shipped | None:
        """For workers; None if nobody subscribes."""
        return None if self.count == 0 else shipped_matcher(self.folder / _MATCHER)


def shipped_matcher(folder: Path) -> Shipped:
    """A saved matcher as workers open it."""
    header = saved.read_header(folder)
    return Shipped(header.digest, os.path.join(os.path.abspath(folder), header.data), None, header)


def filled(rows: Any, index: str, space: Space, options: Mapping[str, Any]) -> Matcher:
    """A matcher with good rows of the log of changes."""
    matcher = Matcher(index, space, **options)
    if rows.num_rows:
        matcher.add_subscriptions(asked_of(rows))
    return matcher


def asked_of(rows: Any) -> Any:
    """The columns of rows of the log of changes that say what somebody wants."""
    return rows.select(
        [
            name
            for name in rows.column_names
            if name == "id" or (name not in _ASIDE and rows.column(name).null_count < rows.num_rows)
        ]
    )


def build(
    folder: Path, rows: Any, gone: Mapping[str, int], position: Any, seq: int, index: str,
    space: Space, options: Mapping[str, Any],
) -> Base:  # fmt: skip
    """Make a base, whole or not at all: its folder gets its name last."""
    scratch = folder.with_name(f".{folder.name}")
    matcher = filled(rows, index, space, options)
    asked, words = matcher.asked()
    matcher.save(scratch / _MATCHER)
    put_table(scratch / _ROWS, rows)
    (scratch / _GONE).write_text(json.dumps(dict(gone)), "utf-8")
    about = {
        "position": position, "seq": seq, "count": len(matcher),
        "attributes": sorted(asked), "words": words,
    }  # fmt: skip
    (scratch / _ABOUT).write_text(json.dumps(about), "utf-8")
    scratch.replace(folder)
    return Base.open(folder)


def digest_of(*about: Any) -> str:
    """A name for the folder of a job: whoever answers something else has another."""
    text = json.dumps(about, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def put_table(path: Path, table: Any) -> None:
    """An Arrow file that can be mapped."""
    whole = table.combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole)


def usable(root: Path) -> list[Base]:
    """The bases of a folder that can be opened; the others are removed."""
    found = []
    for folder in sorted(root.glob("base-*")):
        try:
            found.append(Base.open(folder))
        except (OSError, ValueError, KeyError, SavedError):
            shutil.rmtree(folder, ignore_errors=True)
    return found


# --- behind ---------------------------------------------------------------------------------------


class Building:
    """A base that a process of its own builds, while the stream goes on with the old one."""

    def __init__(
        self, root: Path, base: Base | None, fresh: Any, changed: list[str], gone: dict[str, int],
        position: Any, seq: int, counted: int, index: str, space: Space, options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.counted = counted
        self._name = uuid.uuid4().hex[:12]
        self.folder = root / f"base-{self._name}"
        self._work = root / f".building-{self._name}"
        self._work.mkdir(parents=True)
        put_table(self._work / "fresh.arrow", fresh)
        task = {
            "base": None if base is None else str(base.folder), "folder": str(self.folder),
            "changed": changed, "gone": gone, "position": position, "seq": seq, "index": index,
            "space": space, "options": dict(options),
        }  # fmt: skip
        (self._work / "task.json").write_text(json.dumps(task), "utf-8")
        command = [sys.executable, "-m", "nearcast.spark.stream.bases", str(self._work)]
        with (self._work / "said").open("wb") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )

    def done(self, wait: bool = False) -> Base | None:
        """The base if it is there; None while it is being built. NearcastError if that failed."""
        code = self._process.wait() if wait else self._process.poll()
        if code is None:
            return None
        said = (self._work / "said").read_text("utf-8", "replace").strip()
        shutil.rmtree(self._work, ignore_errors=True)
        if code != 0:
            raise NearcastError(f"a base could not be built: {said[-500:] or f'exit code {code}'}")
        return Base.open(self.folder)

    def stop(self) -> None:
        """Give it up."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._work, ignore_errors=True)


def _mapped(path: Path) -> Any:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def main(work: Path) -> None:
    """What the process of its own does."""
    os.nice(5)  # the stream goes first
    task = json.loads((work / "task.json").read_text("utf-8"))
    rows = _mapped(work / "fresh.arrow")
    if task["base"] is not None:
        old = Base.open(Path(task["base"])).table()
        dead = pa.array(task["changed"], pa.string())
        rows = pa.concat_tables(
            [old.filter(pc.invert(pc.is_in(old.column("id"), value_set=dead))), rows]
        )
    build(
        Path(task["folder"]), rows, task["gone"], task["position"], task["seq"], task["index"],
        task["space"], task["options"],
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
