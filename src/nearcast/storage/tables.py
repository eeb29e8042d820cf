"""What every store of tables has in common: rows are staged, and committed together."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from nearcast.errors import StoreError

__all__ = ["LostError", "Row", "Runs", "Tables", "TakenError"]

Row = tuple[Any, ...]
#: Statements in their order, each with the rows it runs with.
Runs = list[tuple[str, list[Row]]]


class TakenError(StoreError):
    """Another process writes to this store: whoever waits may have it after that one."""


class LostError(StoreError):
    """A store that was ours is out of reach, or another's: to open it again may help."""


class Tables(ABC):
    """A database with the tables of `nearcast.storage.schema`, whose only writer is this object.

    Rows are staged and committed together by `flush`, which returns when they are on disk. Within
    a transaction the order is kept for each table, so that rows of many calls go in by few
    statements. Statements are written in the SQL that SQLite and PostgreSQL share; `?` and `?1`
    stand for parameters.
    """

    name: str
    """What errors call it."""

    def __init__(self) -> None:
        self._staged: list[dict[str, Runs]] = []
        """By table, one behind the other where a statement looks at several."""
        self._before_commit: list[Callable[[], None]] = []
        self._asked = False
        """Whether the next flush answers somebody, be it that nothing has changed."""

    @abstractmethod
    def rows(self, query: str, parameters: Row = ()) -> Iterator[Row]:
        """The rows of a query, over what is committed."""

    @abstractmethod
    def value(self, query: str, parameters: Row = ()) -> Any:
        """The one value of a query; None if there is no row."""

    def stage(self, statement: str, row: Row) -> None:
        """A statement for the next commit."""
        self._run(statement).append(row)

    def stage_all(self, statement: str, rows: Iterable[Row]) -> None:
        """The same with many rows."""
        self._run(statement).extend(rows)

    def _run(self, statement: str) -> list[Row]:
        """Where rows for a statement go: behind all that its table has."""
        table = _table(statement)
        if not self._staged:
            self._staged.append({})
        runs = self._staged[-1].setdefault(table or "", [])
        if table is None:  # nothing that comes later may run before it
            self._staged.append({})
        if not runs or runs[-1][0] != statement:
            runs.append((statement, []))
        return runs[-1][1]

    def ask(self) -> None:
        """Somebody waits for the next flush: even without a row it says that we still write."""
        self._asked = True

    def before_commit(self, call: Callable[[], None]) -> None:
        """Call this at the beginning of every flush: it may stage more."""
        self._before_commit.append(call)

    def forget(self, call: Callable[[], None]) -> None:
        """Drop what is staged, and call this no more. What is committed stays."""
        self.drop()
        self._before_commit.remove(call)

    def drop(self) -> None:
        """Forget what is staged."""
        self._staged = []
        self._asked = False

    def flush(self) -> None:
        """Commit what is staged, in one transaction; on disk when this returns.

        If nothing is and somebody asked, what was answered so far still stands when it returns.
        """
        for call in self._before_commit:
            call()
        staged, self._staged = self._staged, []
        asked, self._asked = self._asked, False
        runs = [run for tables in staged for its in tables.values() for run in its]
        if runs:
            self._commit(runs)
        elif asked:
            self._confirm()

    @abstractmethod
    def _commit(self, runs: Runs) -> None:
        """Run statements with their rows, all of them or none, and return when that is on disk."""

    def _confirm(self) -> None:  # noqa: B027
        """Raise LostError if somebody else may have written; where nobody can, nothing to do."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it; what is staged is dropped. Twice is harmless."""

    @abstractmethod
    def beside(self, part: str) -> Path:
        """Where a cache that goes with it has its place on this machine."""

    @property
    @abstractmethod
    def used(self) -> int:
        """Bytes that hold something."""


@cache
def _table(statement: str) -> str | None:
    """The one table of a statement; None if it looks at others, too."""
    found = re.search(r"\b(?:INTO|FROM|UPDATE)\s+(\w+)", statement)
    return None if found is None or "SELECT" in statement else found[1]
