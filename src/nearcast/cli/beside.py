"""Reaching the server that has a store open, by the socket beside the store."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from nearcast.errors import StoreError
from nearcast.storage.urls import parse_url

__all__ = ["asked", "is_served"]

_PATIENCE_S = 600.0


def _socket_of(store: str) -> Path | None:
    path = parse_url(store).path
    return None if path is None else Path(f"{path.absolute()}-socket")


class _Connection(HTTPConnection):
    """HTTP over a socket that is a file."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def is_served(store: str) -> bool:
    """Whether a server has this store open, and answers."""
    path = _socket_of(store)
    if path is None or not path.exists() or not hasattr(socket, "AF_UNIX"):
        return False
    connection = _Connection(path)
    try:
        connection.connect()
    except OSError:  # a leftover of one that was killed
        return False
    connection.close()
    return True


def asked(store: str, method: str, path: str, said: Any = None) -> Any:
    """What that server answers; StoreError with its words if it refuses."""
    file = _socket_of(store)
    assert file is not None
    connection = _Connection(file)
    try:
        body = None if said is None else json.dumps(said)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    except OSError as error:
        raise StoreError(f"{file}: the server does not answer ({error})") from None
    finally:
        connection.close()
    answer: Any = json.loads(text) if text else None
    if response.status >= 400:
        raise StoreError(f"the server says: {answer['detail']}")
    return answer
