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
    """Connections to one server, kept open.

    `send` has requests answered; or `put` gives them, and `pump` goes on with what is waiting.
    """

    def __init__(self, address: tuple[str, int], connections: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._address = address
        self._lines = [self._opened() for _ in range(connections)]
        self._waiting: deque[bytes] = deque()
        self._free = [*self._lines]
        self._asked: dict[socket.socket, bytes] = {}
        self._held: dict[socket.socket, bytes] = {}

    def _opened(self) -> socket.socket:
        line = socket.create_connection(self._address)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(line, selectors.EVENT_READ, line)
        return line

    def _alive(self, line: socket.socket) -> socket.socket:
        """A line on which nothing waits, or a new one: a server lets go of who is silent."""
        try:
            ended = line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return line
        except ConnectionError:
            ended = True
        if ended:
            self._selector.unregister(line)
            line.close()
            self._lines.remove(line)
            line = self._opened()
            self._lines.append(line)
        return line

    def put(self, request: bytes) -> None:
        """One request, over the first line that is free."""
        self._waiting.append(request)
        self._ask()

    def _ask(self) -> None:
        while self._waiting and self._free:
            line = self._alive(self._free.pop())
            self._asked[line], self._held[line] = self._waiting.popleft(), b""
            line.sendall(self._asked[line])

    def pump(self, wait_s: float | None = 0.0) -> list[bytes]:
        """The answers that are there, or come within a time."""
        answers: list[bytes] = []
        for key, _ in self._selector.select(wait_s):
            line = key.data
            if line in self._free:  # it was let go of: that is seen to when it is needed
                continue
            whole, self._held[line] = _answer(self._held.get(line, b"") + line.recv(1 << 18))
            if whole is None:
                continue
            if whole is _LATER:
                self._waiting.appendleft(self._asked[line])  # before what comes after it
                time.sleep(_PAUSE_S)
            else:
                answers.append(whole)
            self._free.append(line)
            self._ask()
        return answers

    @property
    def waiting(self) -> int:
        """How many requests are not answered."""
        return len(self._waiting) + len(self._lines) - len(self._free)

    def drained(self) -> list[bytes]:
        """The answers of all that waits."""
        answers: list[bytes] = []
        while len(self._free) < len(self._lines):
            answers += self.pump(None)
        return answers

    def send(self, requests: Iterable[bytes]) -> list[Any]:
        """What was answered, in any order; an answer that is no success is a BenchError."""
        self._waiting.extend(requests)
        self._ask()
        return [json.loads(each) for each in self.drained()]

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
    if b"transfer-encoding: chunked" in lower:
        body = _in_pieces(rest)
        return (None, data) if body is None else (body, b"")
    at = lower.find(b"content-length:")
    length = 0 if at < 0 else int(lower[at + 15 :].split(b"\r\n", 1)[0])
    if len(rest) < length:
        return None, data
    return _LATER if status == b"429" else rest or b"null", b""


def _in_pieces(rest: bytes) -> bytes | None:
    """A body that comes in pieces, each behind its length, the last one empty; None: not yet."""
    pieces, at = list[bytes](), 0
    while (end := rest.find(b"\r\n", at)) >= 0:
        size = int(rest[at:end], 16)
        if not size:
            return b"".join(pieces) if len(rest) >= end + 4 else None
        pieces.append(rest[end + 2 : end + 2 + size])
        at = end + size + 4
    return None
