"""The embedded store: one SQLite file, one writer, every commit on disk before it is told.

`database` is the file and its transactions, `schema` its tables and their history, `store` the
broker's port over them, `retention` what is thrown away, `keys` who may come in.
"""

from nearcast.storage.sqlite.database import Database
from nearcast.storage.sqlite.keys import Key, Keys
from nearcast.storage.sqlite.retention import Retention
from nearcast.storage.sqlite.store import SqliteStore

__all__ = ["Database", "Key", "Keys", "Retention", "SqliteStore"]
