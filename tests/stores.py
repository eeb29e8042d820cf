"""Every store there is, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcast.broker.memory import MemoryStore
from nearcast.broker.ports import Store
from nearcast.storage.sqlite import SqliteStore
from nearcast.storage.store import TableStore

__all__ = ["EVERY_STORE", "STORES", "Opener"]

#: Opens the same store each time; the one before was closed.
Opener = Callable[[], Store]


def _memory(_: Path) -> Opener:
    store = MemoryStore()
    return lambda: store


def _sqlite(folder: Path) -> Opener:
    return lambda: SqliteStore.open(folder / "test.db")


def _postgres(_: Path) -> Opener:
    from nearcast.storage.postgres import PostgresDatabase
    from tests.postgres import shared_postgres

    place = shared_postgres().place()
    return lambda: TableStore(PostgresDatabase(place))


#: By name: given a folder, how to open a store.
STORES: dict[str, Callable[[Path], Opener]] = {
    "memory": _memory, "sqlite": _sqlite, "postgres": _postgres,
}  # fmt: skip
#: The names, for tests with one of them.
EVERY_STORE: list[Any] = [
    "memory", "sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres")),
]  # fmt: skip
