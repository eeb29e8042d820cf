"""How far a server has read what others keep: a number a place, committed with what it brought."""

from __future__ import annotations

from nearcast.storage import statements as sql
from nearcast.storage.tables import Tables

__all__ = ["Positions"]

_FACT = "SELECT value FROM facts WHERE tenant = ? AND name = ?"


class Positions:
    """One tenant's; in the thread that owns the database. What is read is committed."""

    def __init__(self, database: Tables, tenant: int) -> None:
        self._database = database
        self._tenant = tenant

    def get(self, place: str) -> int | None:
        """The number of a place; None where nothing was read yet."""
        found = self._database.value(_FACT, (self._tenant, place))
        return None if found is None else int(found)

    def set(self, place: str, number: int) -> None:
        """With the next commit: everything before this number is ours."""
        self._database.stage(sql.SET_FACT, (self._tenant, place, number))
