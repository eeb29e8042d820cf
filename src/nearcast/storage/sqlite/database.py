"""One SQLite file, one writer: opened, locked, written in transactions, copied."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import apsw

from nearcast.errors import StoreError
from nearcast.storage.sqlite.migration import migrate
from nearcast.storage.tables import Row, Runs, Tables

__all__ = ["Database"]

#: Pages of the write-ahead log after which its contents go to the file proper.
_CHECKPOINT = 2000
_PAGE = 4096
_FRAME = _PAGE + 24
_PATIENCE_MS = 250  # for a file that another process is about to let go
_WIDTHS = 16, 4  # rows that go in by one statement


class Database(Tables):
    """A SQLite file that this process alone has open.

    On disk means: in a write-ahead log with `synchronous=FULL`. That log is grown beforehand and
    written over and over, since a file that keeps its length is synced in half the time.

    Raises StoreError if the file is another's, another process has it open, or it cannot be
    read or written. After a failed commit nothing more is written: what is on disk then is
    found out by opening it again. Rows that cannot be written at all (a mistake of whoever staged
    them) raise as they are, and nothing of their transaction has happened. `vfs` and
    `synchronous` are for tests of just that.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        vfs: str | None = None,
        synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL",
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self.name = str(path)
        self._broken = False
        try:
            self._connection = apsw.Connection(str(path), vfs=vfs)
        except apsw.Error as error:
            raise StoreError(f"{path}: cannot be opened ({_said(error)})") from None
        try:
            self._begin(synchronous)
        except BaseException:
            self.close()
            raise
        if vfs is None:
            self._grow()

    def _begin(self, synchronous: str) -> None:
        connection = self._connection
        with self._reported():
            connection.set_busy_timeout(_PATIENCE_MS)
            connection.pragma("locking_mode", "EXCLUSIVE")
            connection.pragma("journal_mode", "WAL")
            connection.pragma("synchronous", synchronous)
            connection.pragma("wal_autocheckpoint", _CHECKPOINT)
            connection.pragma("fullfsync", 1)  # on a Mac a sync is none without it
            connection.pragma("checkpoint_fullfsync", 1)
            connection.execute("BEGIN IMMEDIATE")
            migrate(connection, str(self.path))
            connection.execute("COMMIT")
            # What an earlier life has left in the log goes to the file before anything is added:
            # if that life ended with a failed sync, nothing new may stand behind the doubtful.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)

    def _grow(self) -> None:
        """Give the write-ahead log its length at once; SQLite passes over what is not a frame."""
        wal = Path(f"{self.path}-wal")
        with suppress(OSError), wal.open("r+b") as file:
            missing = 32 + _CHECKPOINT * _FRAME - file.seek(0, os.SEEK_END)
            for _ in range(0, missing, 1 << 20):
                file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())

    # -- reading -------------------------------------------------------------------

    def rows(self, query: str, parameters: Row = ()) -> Iterator[Row]:
        """The rows of a query, over what is committed."""
        with self._reported():
            yield from self._connection.execute(query, parameters)

    def value(self, query: str, parameters: Row = ()) -> Any:
        """The one value of a query; None if there is no row."""
        with self._reported():
            return self._connection.execute(query, parameters).get

    # -- writing -------------------------------------------------------------------

    def _commit(self, runs: Runs) -> None:
        connection = self._connection
        with self._reported():
            try:
                connection.execute("BEGIN IMMEDIATE")
                for statement, rows in runs:
                    for text, bindings in _widened(statement, rows):
                        connection.executemany(text, bindings)
                connection.execute("COMMIT")
            except BaseException as error:
                self._broken = not _is_mistake(error) or not self._rolled_back()
                raise

    def _rolled_back(self) -> bool:
        """Nothing of this transaction has happened, and the next one may."""
        with suppress(apsw.Error):
            self._connection.execute("ROLLBACK")
            return True
        return False

    def close(self) -> None:
        """Let go of the file; what is staged is dropped. Twice is harmless.

        What was flushed is on disk: if tidying up fails, that is done when it is opened next.
        """
        self._staged = []
        if self._broken:
            # Nothing is synced once more: a sync that failed and is tried again may lie.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        with suppress(apsw.Error):
            self._connection.close()

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy everything committed into a new file, which is on disk when this returns."""
        path = Path(target)
        if path.exists():
            raise StoreError(f"{path}: exists already; name another file")
        if not path.parent.is_dir():
            raise StoreError(f"{path}: there is no folder {path.parent}; make it first")
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with self._reported(path):
                copy = apsw.Connection(str(scratch))
                try:
                    copy.pragma("synchronous", "EXTRA")
                    with copy.backup("main", self._connection, "main") as running:
                        running.step()
                    copy.pragma("journal_mode", "DELETE")
                finally:
                    copy.close()
            _synced(scratch)
            scratch.replace(path)
            _synced(path.parent)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror or error})") from None
        finally:
            scratch.unlink(missing_ok=True)

    def beside(self, part: str) -> Path:
        """A path next to the file."""
        return self.path.with_name(f"{self.path.name}-{part}")

    @property
    def used(self) -> int:
        """Bytes of the file that hold something."""
        pages = self._connection.pragma("page_count") - self._connection.pragma("freelist_count")
        return int(pages) * _PAGE

    @contextmanager
    def _reported(self, path: Path | None = None) -> Iterator[None]:
        """What SQLite says, as an error that says what to do, of this file or another."""
        path = path or self.path
        try:
            yield
        except apsw.ConstraintError:
            raise
        except apsw.BusyError:
            raise StoreError(
                f"{path}: in use by another process; stop that one first, or name another file"
            ) from None
        except apsw.FullError as error:
            raise StoreError(
                f"{path}: the disk is full ({_said(error)}); make room, then open it again"
            ) from error
        except apsw.NotADBError:
            raise StoreError(f"{path}: not a database; name another file") from None
        except apsw.CorruptError as error:
            raise StoreError(f"{path}: damaged ({_said(error)}); restore a backup") from error
        except apsw.ReadOnlyError as error:
            raise StoreError(f"{path}: cannot be written ({_said(error)})") from error
        except apsw.ConnectionClosedError:
            raise StoreError(f"{path}: closed; open it again") from None
        except apsw.Error as error:
            raise StoreError(
                f"{path}: {_said(error)}; see to the disk, then open it again"
            ) from error


def _widened(statement: str, rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """A statement with its rows, of those that only insert some at a time.

    For each time that a statement runs, SQLite gives the GIL away, and if others want it to get it
    back takes longer than to run.
    """
    done = 0
    for width in _WIDTHS:
        ready = (len(rows) - done) // width
        wide = _wide(statement, width) if ready else None
        if wide is not None:
            first, done = done, done + ready * width
            some = (rows[at : at + width] for at in range(first, done, width))
            yield wide, [tuple(chain.from_iterable(each)) for each in some]
    if done < len(rows):
        yield statement, rows[done:] if done else rows


@cache
def _wide(statement: str, width: int) -> str | None:
    """A statement that inserts so many rows at once; None if it is of another kind."""
    found = re.fullmatch(r"(\s*INSERT INTO \w+ VALUES )(\([^()]*\))(.*)", statement, re.DOTALL)
    if found is None:
        return None
    head, row, rest = found.groups()
    return f"{head}{', '.join([row] * width)}{rest}"


def _is_mistake(error: BaseException) -> bool:
    """Whether what was to be written is at fault, and not the disk."""
    if isinstance(error, apsw.Error):
        return isinstance(error, apsw.ConstraintError)
    return isinstance(error, Exception)


def _said(error: apsw.Error) -> str:
    code = getattr(error, "extendedresult", None)
    text = str(error).removeprefix(f"{type(error).__name__}: ")
    name = apsw.mapping_extended_result_codes.get(code) if code is not None else None
    return f"{text}, {name}" if isinstance(name, str) else text


def _synced(path: Path) -> None:
    """Let a file or folder reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
