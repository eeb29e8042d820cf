"""The other end of a transfer: a store file, or a server that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, cast

from nearcast.bootstrap import Broker
from nearcast.errors import (
    BatchError,
    ServerError,
    StoreError,
    UnknownIdError,
    ValidationError,
)
from nearcast.model.events import Event
from nearcast.model.geometry import Space
from nearcast.storage.identity import identity_of
from nearcast.storage.opening import open_store
from nearcast.storage.statements import DROP_FACT, FACT, SET_FACT
from nearcast.storage.store import TableStore
from nearcast.storage.urls import parse_url
from nearcast.transfer.kinds import Kind, Row
from nearcast.transfer.notes import Note, digest

__all__ = ["From", "Into", "opened_from", "opened_into"]

_FILE_ROWS, _SERVER_ROWS = 10_000, 1000
_TOO_LARGE = 413

#: A page: its rows, and where the next one begins. A thing's id, or an event's offset.
Page = tuple[Sequence[Row], Any]


class Into(Protocol):
    """Takes rows; all of some or none, and a BatchError names the bad one."""

    rows: int
    """How many it takes at once."""
    name: str
    """A digest of where it is and which one is there: another store, another name."""

    def begun(self, note: Note, about: dict[str, Any]) -> dict[str, Any] | None:
        """How far this import has come; None: it begins."""

    def together(self, rows: Sequence[Any]) -> int:
        """How many of these, from the first on, may be put at once and put again if nobody knows
        whether they were."""

    def put(self, kind: Kind, rows: list[Any], said: dict[str, Any]) -> None:
        """Take rows; they are on disk when this returns, and how far the import has come with
        them, if this end keeps that."""

    def over(self) -> None:
        """The import is done: what is kept of it is not needed any more."""

    def close(self) -> None:
        """Let go of it."""


class From(Protocol):
    """Gives rows by pages, things by id and events in the order they came."""

    name: str
    """A digest of where it is and which one is there."""

    def count(self, kind: Kind) -> int | None:
        """How many there are, if it is known."""

    def pages(self, kind: Kind, after: Any) -> Iterator[Page]:
        """Pages behind something; None: from the beginning."""

    def close(self) -> None:
        """Let go of it."""


def _is_server(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def opened_into(url: str, space: Space, key: str | None, tenant: str) -> Into:
    """Where rows go: a file, made if it is not there, or a server."""
    if _is_server(url):
        return _Server(url, space, key, tenant)
    return _IntoFile(_store(url, space, tenant), space, _place(url, tenant))


def opened_from(url: str, space: Space, key: str | None, tenant: str) -> From:
    """Where rows come from."""
    if _is_server(url):
        return _Server(url, space, key, tenant)
    path = parse_url(url).path
    if path is not None and not path.exists():
        raise StoreError(f"{path}: there is no such store; name one with --store")
    return _FromFile(_store(url, space, tenant), _place(url, tenant))


def _place(url: str, tenant: str) -> str:
    """Where a store is, whichever folder one is in, and whose part of it."""
    wanted = parse_url(url)
    where = wanted.name if wanted.path is None else wanted.path.resolve()
    return f"{where} {tenant}"


def _store(url: str, space: Space, tenant: str) -> TableStore:
    if parse_url(url).kind == "memory":
        raise ValidationError(
            "store", url, "what is in memory is gone at once: name a file or a database"
        )
    store = open_store(url, space, tenant)
    assert isinstance(store, TableStore)
    return store


class _IntoFile:
    """A broker without a clock, for as long as it takes: time goes where events say.

    How far an import has come is a fact of the store, committed with the rows that it counts: so
    no row is put twice, and none is passed over if the store is restored to an earlier day.
    """

    rows = _FILE_ROWS

    def __init__(self, store: TableStore, space: Space, place: str) -> None:
        self._database = store.database
        self.name = digest(f"{place} {identity_of(self._database)}")
        self._place = place
        self._fact = ""
        self._about: dict[str, Any] = {}
        self._said: dict[str, Any] | None = None
        self._broker = Broker(space, store=store)
        self._database.before_commit(self._stage)

    def begun(self, note: Note, about: dict[str, Any]) -> dict[str, Any] | None:
        self._fact = f"import:{digest(f'{note.path.resolve()} {self._place}')}"
        self._about = about
        known = self._database.value(FACT, (0, self._fact))
        said: dict[str, Any] = {} if known is None else json.loads(known)
        return said if said.get("about") == about else None

    def together(self, rows: Sequence[Any]) -> int:
        return len(rows)

    def put(self, kind: Kind, rows: list[Any], said: dict[str, Any]) -> None:
        self._said = said
        try:
            if kind.name == "events":
                self._broker.publish_many(rows)
            else:
                self._broker.subscribe_many(rows)
        finally:
            self._said = None

    def _stage(self) -> None:
        if self._said is not None:
            said = json.dumps({"about": self._about} | self._said)
            self._database.stage(SET_FACT, (0, self._fact, said))

    def over(self) -> None:
        self._database.stage(DROP_FACT, (0, self._fact))
        self._database.flush()

    def close(self) -> None:
        self._broker.close()


class _FromFile:
    def __init__(self, store: TableStore, place: str) -> None:
        self._store = store
        self.name = digest(f"{place} {identity_of(store.database)}")

    def count(self, kind: Kind) -> int | None:  # noqa: ARG002
        return None

    def pages(self, kind: Kind, after: Any) -> Iterator[Page]:
        if kind.name == "events":
            yield from self._events(after or 0)
            return
        after = after or ""
        one: Any = kind.name.removesuffix("s")
        while found := self._store.things(one, after, _FILE_ROWS, None):
            after = found[-1].id
            yield cast("Sequence[Row]", found), after

    def _events(self, after: int) -> Iterator[Page]:
        offset = self._store.offset
        live = self._store.load().events
        rest = (each for key, each in live.items() if offset(key) > after)
        while found := list(islice(rest, _FILE_ROWS)):
            yield found, offset(found[-1].key)

    def close(self) -> None:
        self._store.close()


class _Server:
    """A server, by its verbs for many."""

    rows = _SERVER_ROWS

    def __init__(self, url: str, space: Space, key: str | None, tenant: str) -> None:
        if tenant:
            raise ValidationError("tenant", tenant, "leave it out: the key says whose part it is")
        from nearcast.client import Client

        self._client = Client(url, key, space=space, patience_s=300)
        # The key says whose part of the store it is.
        self.name = digest(f"{url.rstrip('/')} {self._store()} {key}")

    def _store(self) -> str | None:
        try:
            return self._client.store()
        except (UnknownIdError, ValueError):  # something in front of it lets only /v1 through
            return None

    def begun(self, note: Note, about: dict[str, Any]) -> dict[str, Any] | None:
        return note.read(about)

    def together(self, rows: Sequence[Any]) -> int:
        """Up to an id that comes again: put once more, the earlier row of that id would be
        refused, or take the place of the later one."""
        seen: set[str] = set()
        for at, row in enumerate(rows):
            id = row.key if isinstance(row, Event) else row.id
            if id in seen:
                return at
            seen.add(id)
        return len(rows)

    def over(self) -> None:
        """Nothing is kept there."""

    def put(self, kind: Kind, rows: list[Any], said: dict[str, Any]) -> None:
        try:
            if kind.name == "events":
                self._client.publish_many(rows)
            else:
                self._client.subscribe_many(rows)
        except ServerError as error:
            if error.status != _TOO_LARGE:
                raise
            self._put_half(kind, rows, said, error)

    def _put_half(
        self, kind: Kind, rows: list[Any], said: dict[str, Any], error: ServerError
    ) -> None:
        """Rows that are too long together go by halves; one that is by itself is bad."""
        if len(rows) == 1:
            raise BatchError(0, error) from error
        half = len(rows) // 2
        self.put(kind, rows[:half], said)
        try:
            self.put(kind, rows[half:], said)
        except BatchError as bad:
            raise BatchError(half + bad.row, bad.cause) from bad

    def count(self, kind: Kind) -> int | None:  # noqa: ARG002
        return None

    def pages(self, kind: Kind, after: Any) -> Iterator[Page]:
        while True:
            found: Sequence[Any]
            if kind.name == "events":
                found, after = self._client.live(after or 0)
            else:
                found, after = self._client.things(kind.name, after or "")
            if not found:
                return
            yield found, after

    def close(self) -> None:
        self._client.close()
