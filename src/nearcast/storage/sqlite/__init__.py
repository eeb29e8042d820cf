"""The embedded store: one SQLite file, one writer, every commit on disk before it is told.

`database` is the file and its transactions, `migration` brings an old one up to this release.
"""

from nearcast.storage.sqlite.database import Database
from nearcast.storage.sqlite.store import SqliteStore

__all__ = ["Database", "SqliteStore"]
