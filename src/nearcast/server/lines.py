"""The wire of a WebSocket: uvicorn's, which also takes a whole frame at once.

To send by ASGI is to await a message that is put together, looked at and serialised by three
layers, in a task that was woken for it: 60 µs a frame. What a subscriber is told is text that
is there already, and often nobody has to wait for the line: then it goes out by one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.protocol import OPEN

__all__ = ["Say", "SocketLine", "room_of", "say_of"]

#: Sends a frame of text at once; False: it did not, since the other end does not read or is gone.
Say: TypeAlias = Callable[[bytes], bool]
_EXTENSION = "nearcast.say"
_TEXT = 0x81  # whole, and not masked


class SocketLine(WebSocketsSansIOProtocol):
    """One connection. What says a frame is an extension of its scope, as ASGI has them."""

    def handle_connect(self, event: Request) -> None:
        """Somebody wants a socket."""
        super().handle_connect(event)
        if hasattr(self, "scope"):  # else it was refused
            self.scope["extensions"][_EXTENSION] = {"say": self.say, "room": self.writable}

    def say(self, text: bytes) -> bool:
        """Send a frame, if it can go now."""
        if self.conn.state is not OPEN or self.close_sent or not self.writable.is_set():
            return False
        transport = self.transport
        if transport.is_closing():
            return False
        size = len(text)
        if size < 126:
            head = bytes((_TEXT, size))
        elif size < 1 << 16:
            head = bytes((_TEXT, 126)) + size.to_bytes(2)
        else:
            head = bytes((_TEXT, 127)) + size.to_bytes(8)
        transport.write(head + text)
        return True


def room_of(scope: Mapping[str, Any]) -> asyncio.Event | None:
    """What is set while there is room on the line; None as in `say_of`."""
    found: asyncio.Event | None = scope.get("extensions", {}).get(_EXTENSION, {}).get("room")
    return found


def say_of(scope: Mapping[str, Any]) -> Say | None:
    """How to send at once over the socket of a scope; None where another server runs it."""
    found: Say | None = scope.get("extensions", {}).get(_EXTENSION, {}).get("say")
    return found
