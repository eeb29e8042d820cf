"""The shared store: a schema of a PostgreSQL database, with one writer at a time.

`connection` is how it is reached and what its errors mean, `dialect` writes the shared statements
in PostgreSQL's words, `migration` makes the tables, `database` writes: it holds the lock, and a
number (`epoch`) that is looked at in every commit. `onlooker` is what others see meanwhile.
"""

from nearcast.storage.postgres.database import PostgresDatabase
from nearcast.storage.postgres.onlooker import Onlooker

__all__ = ["Onlooker", "PostgresDatabase"]
