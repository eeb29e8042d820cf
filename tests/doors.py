"""A door: whoever comes in is led on to another port, until it is shut or leads elsewhere."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

__all__ = ["Door"]


class Door:
    """Forwards TCP, a context manager. Shut, it ends every connection and takes no more."""

    def __init__(self, port: int) -> None:
        self._leads_to = port
        self._open = True
        self._inside: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.refused = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._let_in, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.shut()

    def to(self, port: int) -> None:
        """From now on it leads there; whoever is inside is thrown out."""
        self.shut()
        self._leads_to = port
        self._open = True

    def shut(self) -> None:
        """Nobody gets through."""
        self._open = False
        with self._lock:
            inside, self._inside = self._inside, set()
        for each in inside:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def reopen(self) -> None:
        """It leads where it led."""
        self._open = True

    def _is_shut(self) -> bool:
        return not self._open

    def _let_in(self) -> None:
        while True:
            try:
                came, _ = self._listening.accept()
            except OSError:
                return
            try:
                if not self._open:
                    raise ConnectionRefusedError
                goes = socket.create_connection(("127.0.0.1", self._leads_to))
            except OSError:
                self.refused += 1
                came.close()
                continue
            with self._lock:
                self._inside |= {came, goes}
            for one, other in ((came, goes), (goes, came)):
                threading.Thread(target=self._lead, args=(one, other), daemon=True).start()
            if self._is_shut():  # meanwhile
                self.shut()

    def _lead(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._inside.discard(each)
        one.close()
