"""A store by its URL: for a broker, or its tables alone."""

from __future__ import annotations

import os

from nearcast.broker.memory import MemoryStore
from nearcast.broker.ports import Store
from nearcast.errors import MissingExtraError
from nearcast.model.geometry import Space
from nearcast.storage.store import TableStore
from nearcast.storage.tables import Tables
from nearcast.storage.urls import StoreUrl, parse_url

__all__ = ["open_store", "open_tables"]


def open_tables(wanted: StoreUrl, *, guest: bool = False) -> Tables:
    """The tables of a store that is not in memory, made if they are not there, for whoever alone
    writes to them; StoreError if they cannot be had.

    A guest comes for keys only: in a PostgreSQL database it does not matter to it who writes.
    """
    if wanted.kind == "postgresql":
        try:
            from nearcast.storage.postgres import PostgresDatabase
        except ImportError as error:
            raise MissingExtraError(error.name or "psycopg", "postgres") from None
        return PostgresDatabase(wanted, guest=guest)
    from nearcast.storage.sqlite import Database

    assert wanted.path is not None
    return Database(wanted.path)


def open_store(url: str | os.PathLike[str], space: Space, tenant: str = "") -> Store:
    """A tenant's part of the store that a URL names, made if it is not there; StoreError if it
    cannot be had."""
    wanted = parse_url(url)
    if wanted.kind == "memory":
        return MemoryStore()
    tables = open_tables(wanted)
    try:
        store = TableStore(tables, tenant)
        store.agree("space", space)
    except BaseException:
        tables.close()
        raise
    return store
