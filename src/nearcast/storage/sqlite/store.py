"""The broker's store in a SQLite file."""

from __future__ import annotations

import os
from typing import Any, Self

from nearcast.storage.sqlite.database import Database
from nearcast.storage.store import TableStore

__all__ = ["SqliteStore"]


class SqliteStore(TableStore):
    """What one tenant's broker remembers, in a file."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], **settings: Any) -> Self:
        """The store of the one tenant that an embedded broker has, in a file made if need be."""
        return cls(Database(path), **settings)
