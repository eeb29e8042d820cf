"""Every store there is, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nearcast.broker.memory import MemoryStore
from nearcast.broker.ports import Store
from nearcast.storage.sqlite import SqliteStore

__all__ = ["STORES", "Opener"]

#: Opens the same store each time; the one before was closed.
Opener = Callable[[], Store]


def _memory(_: Path) -> Opener:
    store = MemoryStore()
    return lambda: store


def _sqlite(folder: Path) -> Opener:
    return lambda: SqliteStore.open(folder / "test.db")


#: By name: given a folder, how to open a store.
STORES: dict[str, Callable[[Path], Opener]] = {"memory": _memory, "sqlite": _sqlite}
