"""What a server does while another one writes to its store: it looks on, and waits for its turn.

Whoever follows a subscriber or the log is served from the tables, woken by the database whenever
something was committed; everything else is for the writer, and is told where that is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nearcast.broker.ports import Changes, Page
from nearcast.errors import NearcastError, StoreError
from nearcast.model.events import Event
from nearcast.server.logs import log
from nearcast.server.problems import Problem, unavailable
from nearcast.storage.keys import Key, Keys
from nearcast.storage.tables import TakenError
from nearcast.storage.urls import StoreUrl

if TYPE_CHECKING:
    from nearcast.storage.postgres import Onlooker, PostgresDatabase

__all__ = ["Glance", "Shared", "Watch", "elsewhere"]

_PATIENCE_S = 0.5
_AGAIN_S = 0.5


def elsewhere(writer: str | None) -> Problem:
    """503: that is for the writer."""
    where = writer or "another server"
    return unavailable(f"it stands by, and {where} writes", f"ask {where}")


class Glance:
    """What may be asked of a broker that is elsewhere; whatever else is asked is refused.

    One look at a time, within `Onlooker.seen`.
    """

    def __init__(self, onlooker: Onlooker, writer: str | None) -> None:
        self._onlooker = onlooker
        self._writer = writer

    @property
    def reading(self) -> Glance:
        """The same."""
        return self

    @property
    def offset(self) -> int:
        """The last offset of the log."""
        return self._onlooker.offset()

    @property
    def forgotten(self) -> int:
        """The last offset of the log whose event is not kept any more."""
        return self._onlooker.forgotten()

    def cursor(self, subscriber: str) -> int:
        """The number up to which a subscriber has acknowledged."""
        return self._onlooker.cursor(subscriber)

    def last(self, subscriber: str) -> int:
        """The number of the last notification to somebody."""
        return self._onlooker.last(subscriber)

    def lasts(self, subscribers: Iterable[str]) -> dict[str, int]:
        """Those of some."""
        return self._onlooker.lasts(subscribers)

    def notifications(
        self, subscriber: str, after: int | None = None, limit: int = 1000,
        max_bytes: int | None = None,
    ) -> Page:  # fmt: skip
        """What a subscriber was told."""
        if after is None:
            after = self._onlooker.cursor(subscriber)
        return self._onlooker.outbox(subscriber, after, limit, max_bytes)

    def log(
        self, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> Sequence[tuple[int, Event]]:
        """Events in the order they came."""
        return self._onlooker.log(after, limit, max_bytes)

    def changes(self, after: int = 0, limit: int = 1000, max_bytes: int | None = None) -> Changes:
        """How subscriptions came, changed and went."""
        return self._onlooker.changes(after, limit, max_bytes)

    def __getattr__(self, name: str) -> Any:
        raise elsewhere(self._writer)


class Shared:
    """A store that several servers have, seen by one of them; in the core's thread."""

    def __init__(self, url: StoreUrl) -> None:
        from nearcast.storage.postgres import PostgresDatabase

        self.url = url
        self.writer: str | None = None
        """Where the writer is, as far as it is known."""
        self._guest: PostgresDatabase | None = PostgresDatabase(url, guest=True)
        self._onlookers: dict[str, Onlooker] = {}

    @property
    def guest(self) -> PostgresDatabase:
        """The tables, to look at; connected once more if need be."""
        from nearcast.storage.postgres import PostgresDatabase

        if self._guest is None:
            self._guest = PostgresDatabase(self.url, guest=True)
        return self._guest

    def take(self, served_at: str) -> PostgresDatabase | None:
        """The tables, to write to; None while another does."""
        from nearcast.storage.postgres import PostgresDatabase

        try:
            return PostgresDatabase(self.url, served_at=served_at, patience_s=0)
        except TakenError:
            self.writer = self.guest.writer()
            return None

    def look(self, tenant: str, look: Callable[[Glance], Any]) -> Any:
        """Have a look at what a tenant has; StoreError if that cannot be seen now."""
        from nearcast.storage.postgres import Onlooker

        try:
            onlooker = self._onlookers.get(tenant)
            if onlooker is None:
                onlooker = self._onlookers[tenant] = Onlooker(self.guest, tenant)
            return onlooker.seen(lambda: look(Glance(onlooker, self.writer)))
        except StoreError:
            self.leave()  # the next look begins with a new connection
            raise

    def leave(self) -> None:
        """Look no more, for now."""
        self._onlookers.clear()
        if self._guest is not None:
            self._guest.close()
            self._guest = None


class Watch:
    """A thread that waits for what others commit: told keys at once, and that something changed."""

    def __init__(
        self, url: StoreUrl, keys: Callable[[list[tuple[bytes, Key]]], None],
        stirred: Callable[[], None],
    ) -> None:  # fmt: skip
        self._url = url
        self._keys = keys
        self._stirred = stirred
        self.follows = True
        """Whether commits are somebody else's, and matter."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nearcast-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; returns when that is done. Twice is harmless."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        from nearcast.storage.postgres import PostgresDatabase

        while not self._ended.is_set():
            try:
                database = PostgresDatabase(self._url, guest=True)
                try:
                    self._watch(database)
                finally:
                    database.close()
            except NearcastError as error:
                log.warning("the store is not seen", error=str(error))
                self._ended.wait(_AGAIN_S)

    def _watch(self, database: PostgresDatabase) -> None:
        from nearcast.storage.postgres.migration import KEYS

        told = {KEYS}  # what came before it listened
        while not self._ended.is_set():
            if KEYS in told:
                self._keys(Keys(database).all())
            if self.follows:  # without a word, too: nobody waits for ever for one that was lost
                self._stirred()
            told = database.heard(keys=True, changes=self.follows, patience_s=_PATIENCE_S)
