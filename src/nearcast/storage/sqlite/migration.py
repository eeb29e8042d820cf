"""The tables in a SQLite file, whose version is its `user_version`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nearcast.errors import StoreError
from nearcast.storage.schema import VERSION, missing

if TYPE_CHECKING:
    import apsw

__all__ = ["APPLICATION", "migrate"]

#: SQLite's `application_id` of our files: "ncst".
APPLICATION = 0x6E637374


def migrate(connection: apsw.Connection, name: str) -> None:
    """Bring a file up to this release, all the way or not at all; called in a transaction."""
    version = connection.pragma("user_version")
    application = connection.pragma("application_id")
    empty = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get
    if application != APPLICATION and not empty:
        raise StoreError(f"{name}: a database, but not one of nearcast's; name another file")
    steps = missing(version, name)
    for step in steps:
        connection.execute(step.tables + step.sqlite)
    if steps:
        connection.pragma("application_id", APPLICATION)
        connection.pragma("user_version", VERSION)
