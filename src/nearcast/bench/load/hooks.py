"""Places that webhooks are sent to: one port, a path each, in a thread beside the load."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

__all__ = ["Hooks"]

_END, _LENGTH = b"\r\n\r\n", b"content-length:"
_TAKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Hooks:
    """They take what comes at once, and note when; those that are `dead` never answer."""

    def __init__(self, dead: Iterable[str] = ()) -> None:
        self.dead = {f"/{name}".encode() for name in dead}
        self.came: defaultdict[bytes, list[tuple[float, bytes]]] = defaultdict(list)
        """By path: when each request came, and its body."""
        self.count = 0
        """Of those that were answered."""
        self._door = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._door.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._door, selectors.EVENT_READ)
        self._bell, ringing = socket.socketpair()
        self._ringing = ringing
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._held: dict[socket.socket, bytes] = {}
        self._thread = threading.Thread(target=self._run, name="hooks", daemon=True)
        self._thread.start()

    def url(self, name: str) -> str:
        """Of one of them."""
        return f"http://127.0.0.1:{self.port}/{name}"

    def of(self, name: str) -> list[tuple[float, bytes]]:
        """What came to one of them."""
        return self.came[f"/{name}".encode()]

    def clear(self) -> None:
        """Forget what came."""
        self.came = defaultdict(list)
        self.count = 0

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                line = key.fileobj
                if line is self._bell:
                    return
                if line is self._door:
                    opened, _ = self._door.accept()
                    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._held[opened] = b""
                    self._selector.register(opened, selectors.EVENT_READ)
                elif isinstance(line, socket.socket):
                    self._read(line)

    def _read(self, line: socket.socket) -> None:
        data = b""
        with suppress(ConnectionError):
            data = line.recv(1 << 18)
        if not data:
            self._selector.unregister(line)
            del self._held[line]
            line.close()
            return
        data = self._held[line] + data
        while (rest := self._taken(line, data)) is not None:
            data = rest
        self._held[line] = data

    def _taken(self, line: socket.socket, data: bytes) -> bytes | None:
        """Take one request, if all of it is there; what comes behind it."""
        head, end, rest = data.partition(_END)
        at = head.lower().find(_LENGTH)
        if not end or at < 0:
            return None
        length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        if len(rest) < length:
            return None
        path = head.split(b" ", 2)[1]
        self.came[path].append((time.perf_counter(), rest[:length]))
        if path not in self.dead:
            with suppress(ConnectionError):
                line.sendall(_TAKEN)
            self.count += 1
        return rest[length:]

    def close(self) -> None:
        """Be there no more."""
        self._ringing.send(b"x")
        self._thread.join()
        for line in (*self._held, self._door, self._bell, self._ringing):
            line.close()
        self._selector.close()
