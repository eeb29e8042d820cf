"""HTTP requests over many connections at once, each sending its next when it has its answer."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from nearcast.errors import BenchError

__all__ = ["Posts", "request"]

_END = b"\r\n\r\n"
#: What stands for an answer that says: not now (429); such a request is made again.
_LATER = b"later"
_PAUSE_S = 0.1


def request(method: str, path: str, body: Any = None) -> bytes:
    """A request as bytes."""
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} /v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(text)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + text


class Posts:
    """Connections to one server, kept open."""

    def __init__(self, address: tuple[str, int], connections: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._lines = [socket.create_connection(address) for _ in range(connections)]
        for line in self._lines:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(line, selectors.EVENT_READ, line)

    def send(self, requests: Iterable[bytes]) -> list[Any]:
        """What was answered, in any order; an answer that is no success is a BenchError."""
        waiting = deque(requests)
        answers: list[bytes] = []
        held: dict[int, bytes] = {}
        asked: dict[int, bytes] = {}

        def ask(line: socket.socket) -> None:
            asked[line.fileno()] = waiting.popleft()
            line.sendall(asked[line.fileno()])

        for line in self._lines[: len(waiting)]:
            ask(line)
            held[line.fileno()] = b""
        while held:
            for key, _ in self._selector.select():
                line = key.data
                whole, rest = _answer(held[line.fileno()] + line.recv(1 << 18))
                held[line.fileno()] = rest
                if whole is None:
                    continue
                if whole is _LATER:
                    waiting.append(asked[line.fileno()])
                    time.sleep(_PAUSE_S)
                else:
                    answers.append(whole)
                if waiting:
                    ask(line)
                else:
                    del held[line.fileno()]
        return [json.loads(each) for each in answers]

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        for line in self._lines:
            line.close()


def _answer(data: bytes) -> tuple[bytes | None, bytes]:
    """The body of an answer that is whole, or None; and what was read so far."""
    head, end, rest = data.partition(_END)
    if not end:
        if not data:
            raise BenchError("the server hung up")
        return None, data
    status = head.split(b" ", 2)[1]
    if not status.startswith(b"2") and status != b"429":
        raise BenchError(f"the server answered {head.decode()}\n{rest.decode()}")
    lower = head.lower()
    at = lower.find(b"content-length:")
    length = 0 if at < 0 else int(lower[at + 15 :].split(b"\r\n", 1)[0])
    if len(rest) < length:
        return None, data
    return _LATER if status == b"429" else rest or b"null", b""
