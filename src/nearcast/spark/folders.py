"""Folders that both the driver and Spark see: local paths, and what `pyarrow.fs` knows.

A path without a scheme is local; `s3a://`, `hdfs://`, `gs://` and the like are asked through
`pyarrow.fs`, under the same credentials as the driver's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from nearcast.errors import DatasetError

__all__ = ["File", "Folder", "alone_in"]

_SCHEMES = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, order=True)
class File:
    """One file: how Spark calls it, its size and when it was last changed."""

    path: str
    size: int
    changed_ns: int
    folder: Folder = field(compare=False, repr=False)

    def open(self) -> Any:
        """A stream of its bytes."""
        return self.folder.system[0].open_input_file(self.folder.inner(self.path))


class Folder:
    """A folder (or a single file) by its path."""

    def __init__(self, path: str | Path) -> None:
        text = str(path)
        if text.startswith("file:"):
            text = "/" + text.removeprefix("file:").lstrip("/")
        self.remote = "://" in text
        self.path = text.rstrip("/") if self.remote else str(Path(text).absolute())
        try:
            self.path.encode()
        except UnicodeEncodeError:  # bytes that the locale does not know: nor do Arrow and Spark
            raise DatasetError(
                f"{self.path!r} is no UTF-8 name in this locale; set LC_ALL=C.UTF-8, or rename it"
            ) from None

    def __str__(self) -> str:
        return self.path

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self.path}/{name}")

    @cached_property
    def system(self) -> tuple[Any, str]:
        """The file system and the path in it."""
        import pyarrow as pa
        from pyarrow import fs

        if not self.remote:
            return fs.LocalFileSystem(), self.path
        scheme, _, rest = self.path.partition("://")
        try:
            system, inner = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"{self.path} cannot be reached ({error})") from None
        return system, inner

    def inner(self, path: str) -> str:
        """A path below this folder as its file system calls it."""
        return self.system[1] + path[len(self.path) :]

    def _infos(self) -> list[Any] | None:
        from pyarrow import fs

        system, inner = self.system
        try:
            here = system.get_file_info(inner)
            if here.type == fs.FileType.NotFound:
                return None
            if here.type == fs.FileType.File:
                return [here]
            found = system.get_file_info(fs.FileSelector(inner, recursive=True))
        except OSError as error:
            raise DatasetError(f"{self.path} cannot be read ({error})") from None
        return [info for info in found if info.type == fs.FileType.File]

    def files(self) -> list[File] | None:
        """The files in it, hidden ones (`.name`, `_name`) left out; None if it is not there."""
        infos = self._infos()
        if infos is None:
            return None
        start = len(self.system[1])
        files = []
        for info in infos:
            below = info.path[start:]
            if not any(part.startswith((".", "_")) for part in below.split("/")):
                files.append(File(self.path + below, info.size, info.mtime_ns or 0, self))
        return sorted(files)

    def exists(self) -> bool:
        """Whether there is something of this name."""
        return self._infos() is not None

    def is_empty(self) -> bool:
        """Whether it holds no file at all, hidden ones included."""
        return not self._infos()

    def read_text(self) -> str | None:
        """The text of this file; None if it is not there."""
        system, inner = self.system
        try:
            with system.open_input_file(inner) as stream:
                return str(stream.read().decode())
        except FileNotFoundError:
            return None

    def write_text(self, text: str) -> None:
        """Write this file, with the folders above it."""
        system, inner = self.system
        system.create_dir(inner.rpartition("/")[0], recursive=True)
        with system.open_output_stream(inner) as stream:
            stream.write(text.encode())

    def remove(self) -> None:
        """Delete it with all that is in it; nothing happens if it is not there."""
        from pyarrow import fs

        system, inner = self.system
        kind = system.get_file_info(inner).type
        if kind == fs.FileType.Directory:
            system.delete_dir(inner)
        elif kind == fs.FileType.File:
            system.delete_file(inner)

    def free_bytes(self) -> int | None:
        """Room on its disk; None where nobody can say."""
        if self.remote:
            return None
        place = Path(self.path)
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free


@contextmanager
def alone_in(path: str) -> Iterator[bool]:
    """Whether no other process has this local file now; until the end none will get it.

    The lock is the operating system's and goes with the process, however that ends. Where
    there are no such locks, everybody is alone.
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
