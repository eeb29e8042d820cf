"""What a process sees of a tenant while another writes: each look is at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from nearcast.storage.postgres.database import PostgresDatabase
from nearcast.storage.postgres.dialect import written
from nearcast.storage.store import TableStore

__all__ = ["Onlooker"]

T = TypeVar("T")
_BOX = "SELECT number, acknowledged, last FROM subscribers WHERE tenant = ? AND name = ?"
_LASTS = "SELECT name, last FROM subscribers WHERE tenant = ? AND name = ANY(?)"


class Onlooker(TableStore):
    """A store that keeps nothing in memory, and changes nothing."""

    def __init__(self, database: PostgresDatabase, tenant: str = "") -> None:
        super().__init__(database, tenant, shared=True)
        self._guest = database

    def seen(self, look: Callable[[], T]) -> T:
        """What a look finds, all of it at one moment."""
        with self._guest.snapshot():
            self._entry = self._number("entry") or 0
            self._version = self._number("version") or 0
            self._sweeper.forgotten = self._number("forgotten") or 0
            return look()

    def _of(self, subscriber: str) -> tuple[Any, ...]:
        row = self._tenant, subscriber
        return next(iter([*self._database.rows(_BOX, row)]), (None, 0, 0))

    def _box(self, subscriber: str) -> int | None:
        number: int | None = self._of(subscriber)[0]
        return number

    def cursor(self, subscriber: str) -> int:
        """The number up to which a subscriber has acknowledged."""
        return int(self._of(subscriber)[1])

    def last(self, subscriber: str) -> int:
        """The number of the last notification to somebody."""
        return int(self._of(subscriber)[2])

    def lasts(self, subscribers: Iterable[str]) -> dict[str, int]:
        """Those of some, as far as they were told anything."""
        names = [*map(written, subscribers)]
        return dict(self._all(_LASTS, names))
