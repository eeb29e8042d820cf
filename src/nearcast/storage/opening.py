"""A store by its URL, for a broker."""

from __future__ import annotations

import os

from nearcast.broker.memory import MemoryStore
from nearcast.broker.ports import Store
from nearcast.model.geometry import Space
from nearcast.storage.urls import parse_url

__all__ = ["open_store"]


def open_store(url: str | os.PathLike[str], space: Space) -> Store:
    """The store that a URL names, made if it is not there; StoreError if it cannot be had."""
    wanted = parse_url(url)
    if wanted.path is None:
        return MemoryStore()
    from nearcast.storage.sqlite import SqliteStore

    store = SqliteStore.open(wanted.path)
    try:
        store.agree("space", space)
    except BaseException:
        store.close()
        raise
    return store
