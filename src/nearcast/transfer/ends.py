"""The other end of a transfer: a store file, or a server that runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, cast

from nearcast.bootstrap import Broker
from nearcast.broker.ports import Store
from nearcast.errors import BatchError, ServerError, StoreError, ValidationError
from nearcast.model.geometry import Space
from nearcast.storage.opening import open_store
from nearcast.storage.urls import parse_url
from nearcast.transfer.kinds import Kind, Row

__all__ = ["From", "Into", "opened_from", "opened_into"]

_FILE_ROWS, _SERVER_ROWS = 10_000, 1000
_TOO_LARGE = 413

#: A page: its rows, and where the next one begins. A thing's id, or an event's offset.
Page = tuple[Sequence[Row], Any]


class Into(Protocol):
    """Takes rows; all of some or none, and a BatchError names the bad one."""

    rows: int
    """How many it takes at once."""

    def put(self, kind: Kind, rows: list[Any]) -> None:
        """Take rows; they are on disk when this returns, and no harm to send again."""

    def close(self) -> None:
        """Let go of it."""


class From(Protocol):
    """Gives rows by pages, things by id and events in the order they came."""

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
    return _IntoFile(_store(url, space, tenant), space)


def opened_from(url: str, space: Space, key: str | None, tenant: str) -> From:
    """Where rows come from."""
    if _is_server(url):
        return _Server(url, space, key, tenant)
    path = parse_url(url).path
    if path is not None and not path.exists():
        raise StoreError(f"{path}: there is no such store; name one with --store")
    return _FromFile(_store(url, space, tenant))


def _store(url: str, space: Space, tenant: str) -> Store:
    if parse_url(url).kind == "memory":
        raise ValidationError(
            "store", url, "what is in memory is gone at once: name a file or a database"
        )
    return open_store(url, space, tenant)


class _IntoFile:
    """A broker without a clock, for as long as it takes: time goes where events say."""

    rows = _FILE_ROWS

    def __init__(self, store: Store, space: Space) -> None:
        self._broker = Broker(space, store=store)

    def put(self, kind: Kind, rows: list[Any]) -> None:
        if kind.name == "events":
            self._broker.publish_many(rows)
        else:
            self._broker.subscribe_many(rows)

    def close(self) -> None:
        self._broker.close()


class _FromFile:
    def __init__(self, store: Store) -> None:
        self._store = store

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

    def put(self, kind: Kind, rows: list[Any]) -> None:
        try:
            if kind.name == "events":
                self._client.publish_many(rows)
            else:
                self._client.subscribe_many(rows)
        except ServerError as error:
            if error.status != _TOO_LARGE:
                raise
            self._put_half(kind, rows, error)

    def _put_half(self, kind: Kind, rows: list[Any], error: ServerError) -> None:
        """Rows that are too long together go by halves; one that is by itself is bad."""
        if len(rows) == 1:
            raise BatchError(0, error) from error
        half = len(rows) // 2
        self.put(kind, rows[:half])
        try:
            self.put(kind, rows[half:])
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
