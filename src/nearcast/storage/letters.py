"""Dead letters: notifications that could not be sent, kept to be looked at, replayed, dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nearcast.clock import Micros
from nearcast.storage import statements as sql
from nearcast.storage.sinks import Sink
from nearcast.storage.tables import Tables

__all__ = ["DeadLetter", "Letters"]

_NUMBER = "letter"
_AT_ONCE = 1000


class DeadLetter(NamedTuple):
    """A notification that could not be sent, and why."""

    number: int
    subscriber: str
    sink: int
    protocol: str
    uri: str
    thing: str
    seq: int
    why: str
    tries: int
    at: Micros
    """When it was given up."""
    body: str
    """The notification, as it would have been sent."""
    replay: int | None = None
    """The sink that is to be given it once more."""


class Letters:
    """One tenant's; in the thread that owns the database. What is read is committed."""

    def __init__(self, database: Tables, tenant: int, most: int) -> None:
        self._database = database
        self._tenant = tenant
        self._most = most
        query = "SELECT value FROM facts WHERE tenant = ? AND name = ?"
        self._last = int(database.value(query, (tenant, _NUMBER)) or 0)
        self._count = int(database.value(sql.LETTER_COUNT, (tenant,)) or 0)
        self.shed = 0
        """How many were dropped since there were too many."""

    def __len__(self) -> int:
        """About how many there are."""
        return self._count

    def add(
        self, sink: Sink, thing: str, seq: int, why: str, tries: int, at: Micros, body: str
    ) -> None:
        """One more; beyond what is kept, the oldest goes."""
        self._last += 1
        self._count += 1
        place = sink.subscriber, sink.number, sink.protocol, sink.uri
        row = (self._tenant, self._last, *place, thing, seq, why, tries, at, body)
        self._database.stage(sql.ADD_LETTER, row)
        self._database.stage(sql.SET_FACT, (self._tenant, _NUMBER, self._last))
        if self._count > self._most + _AT_ONCE:
            too_many = self._count - self._most
            oldest = self._database.rows(sql.OLDEST_LETTERS, (self._tenant, too_many))
            for (number,) in oldest:
                self.drop(number)
                self.shed += 1

    def get(self, number: int) -> DeadLetter | None:
        """The one of a number."""
        found = next(iter(self._rows(sql.LETTER, number)), None)
        return found

    def page(
        self, after: int, limit: int, subscriber: str | None = None, sink: int | None = None
    ) -> list[DeadLetter]:
        """Those with greater numbers: a sink's, a subscriber's, or all."""
        if sink is not None:
            return [*self._rows(sql.LETTERS_OF_SINK, sink, after, limit)]
        if subscriber is not None:
            return [*self._rows(sql.LETTERS_OF, subscriber, after, limit)]
        return [*self._rows(sql.LETTERS, after, limit)]

    def replayed(self, sink: int, after: int, limit: int) -> list[DeadLetter]:
        """Those that wait to be sent once more."""
        return [*self._rows(sql.REPLAYED, sink, after, limit)]

    def counts(self) -> dict[int, int]:
        """How many there are by sink. O(all)."""
        return dict(self._database.rows(sql.LETTER_COUNTS, (self._tenant,)))

    def _rows(self, query: str, *more: object) -> Iterator[DeadLetter]:
        return map(DeadLetter._make, self._database.rows(query, (self._tenant, *more)))

    def replay(self, number: int, sink: int) -> None:
        """Give it to a sink once more."""
        self._database.stage(sql.REPLAY, (sink, self._tenant, number))

    def failed(self, number: int, why: str, tries: int, at: Micros) -> None:
        """That did not help either."""
        self._database.stage(sql.FAIL_LETTER, (why, tries, at, self._tenant, number))

    def drop(self, number: int) -> None:
        """Forget one: it was sent after all, or nobody wants it."""
        self._count -= 1
        self._database.stage(sql.DROP_LETTER, (self._tenant, number))
