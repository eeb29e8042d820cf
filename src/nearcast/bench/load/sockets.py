"""Many WebSockets in one thread: frames in and out, no more of the protocol than that."""

from __future__ import annotations

import json
import selectors
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from nearcast.errors import BenchError

__all__ = ["Sockets"]

_HELLO = (
    b"GET /v1/socket HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: nearcast.v1\r\n\r\n"
)
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
Taken = Callable[[int, bytes], None]


class Sockets:
    """One connection for each of some subscribers, welcomed; `pump` takes what comes."""

    def __init__(self, address: tuple[str, int], subscribers: Sequence[str | None]) -> None:
        self._selector = selectors.DefaultSelector()
        self._lines: list[socket.socket] = []
        self._held: list[bytes] = []
        for number, subscriber in enumerate(subscribers):
            line = socket.create_connection(address)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.sendall(_HELLO)
            self._lines.append(line)
            self._held.append(self._upgraded(line))
            self._selector.register(line, selectors.EVENT_READ, number)
            self.say(number, {"type": "hello", "subscriber": subscriber, "after": 0})
        welcomed: set[int] = set()
        while len(welcomed) < len(self._lines):
            self.pump(lambda number, text: welcomed.add(number) if b"welcome" in text else None)

    @staticmethod
    def _upgraded(line: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            more = line.recv(4096)
            if not more:
                raise BenchError("the server hung up")
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            raise BenchError(f"no WebSocket: {head.decode()}")
        return rest

    def say(self, number: int, frame: dict[str, Any]) -> None:
        """Send a frame over one of them."""
        self._send(number, _TEXT, json.dumps(frame).encode())

    def _send(self, number: int, kind: int, data: bytes) -> None:
        # A mask of zeros: the protocol asks for one, and nobody here needs it.
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
        else:
            head = struct.pack("!BBH", 0x80 | kind, 0xFE, size)
            if size > 0xFFFF:
                head = struct.pack("!BBQ", 0x80 | kind, 0xFF, size)
        self._lines[number].sendall(head + b"\0\0\0\0" + data)

    def pump(self, taken: Taken, wait_s: float = 10.0) -> None:
        """Take the frames that are there, or come within a time."""
        for key, _ in self._selector.select(wait_s):
            number: int = key.data
            more = self._lines[number].recv(1 << 18)
            if not more:
                raise BenchError("the server hung up")
            self._held[number] = self._frames(number, self._held[number] + more, taken)

    def _frames(self, number: int, data: bytes, taken: Taken) -> bytes:
        at = 0
        while len(data) >= at + 2:
            kind, size, begin = data[at] & 15, data[at + 1] & 127, at + 2
            if size == 126:
                size, begin = int.from_bytes(data[at + 2 : at + 4]), at + 4
            elif size == 127:
                size, begin = int.from_bytes(data[at + 2 : at + 10]), at + 10
            if len(data) < begin + size:
                break
            if kind == _TEXT:
                taken(number, data[begin : begin + size])
            elif kind == _PING:
                self._send(number, _PONG, data[begin : begin + size])
            elif kind == _CLOSE:
                raise BenchError(f"the server hung up: {data[begin + 2 : begin + size].decode()}")
            at = begin + size
        return data[at:]

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        for line in self._lines:
            line.close()
