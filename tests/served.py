"""A server in this process, on a port of its own, for tests that ask it over real sockets."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from nearcast.clock import system_now
from nearcast.server.logs import set_up
from nearcast.server.run import Running
from nearcast.server.settings import Settings
from nearcast.storage.keys import Keys
from nearcast.storage.sqlite import Database

__all__ = ["client", "feature", "free_port", "make_keys", "serving"]


@contextmanager
def serving(store: str | Path = "memory:", **settings: Any) -> Iterator[Running]:
    """A server that answers; stopped in order afterwards.

    It refuses nobody for being slow, as a machine is on which much else runs.
    """
    given: dict[str, Any] = {"store": str(store), "port": 0, "queue_s": 600.0} | settings
    server = Running(Settings(**given))
    set_up("info", "console")  # else structlog draws every traceback with all that it can find
    thread = threading.Thread(target=_run, args=(server,))
    thread.start()
    try:
        assert server.started.wait(600), server.error
        yield server
    finally:
        server.stop()
        thread.join(600)
        assert not thread.is_alive()


def _run(server: Running) -> None:
    try:
        server.run()
    except BaseException as error:
        server.error = error


@contextmanager
def client(server: Running, key: str | None = None) -> Iterator[httpx2.Client]:
    # verify=False: nothing is encrypted here, and to prepare for that takes 200 ms a client
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=240, verify=False) as made:
        yield made


def free_port() -> int:
    """One that the system gives to nobody by itself, so that it is still free after a restart."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as made:
            if made.connect_ex(("127.0.0.1", port)) != 0:
                return port


def make_keys(store: Path, *wanted: dict[str, Any]) -> list[str]:
    """Keys, before anybody serves the store."""
    database = Database(store)
    keys = [Keys(database).create(now=system_now(), **each) for each in wanted]
    database.close()
    return keys


def feature(id: str, x: float | None = None, y: float = 0.0, **properties: Any) -> dict[str, Any]:
    place = None if x is None else {"type": "Point", "coordinates": [x, y]}
    return {"type": "Feature", "id": id, "geometry": place, "properties": properties}
