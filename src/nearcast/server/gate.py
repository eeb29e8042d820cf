"""The outermost bounds: connections, how long a request may take to come, how large its head is.

uvicorn reads HTTP and WebSocket for us, and asks nobody how long that takes or how much of it
there is. These are its two protocols with bounds, and with answers of the form that all others
have. What takes too long is looked for once a second, since a timer for each request would
cost more than the request's head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.frames import Frame
from websockets.http11 import Response

from nearcast.server.lines import SocketLine
from nearcast.server.problems import CONTENT_TYPE, Problem, busy, malformed, unavailable
from nearcast.server.settings import Settings

if TYPE_CHECKING:
    from _typeshed import HasFileno

__all__ = ["Gates", "HttpGate", "SocketGate", "endless", "gates", "has_input"]

_ENDLESS = "nearcast.endless"

#: Bytes of answers that wait in this process for one connection, beside one more answer.
WAITING = 16_384
_LINGERS_S = 10.0
#: When the server stops: how long frames that were sent before are read, looked at so often, and
#: how long the other end has to say goodbye.
_READS_S, _LOOKS_S, _GOODBYE_S = 1.0, 0.01, 2.0
_STILL_S = 30.0
"""After so long without a byte being read an answer is waited for no more."""
_PONG = b"\x8a"  # the first byte of such a frame


class HttpGate(HttpToolsProtocol):
    """HTTP, with bounds."""

    settings: ClassVar[Settings]
    closing: ClassVar[bool] = False
    """Whether the server stops: what was sent before is answered, and nothing after that."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse it if there are too many."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(WAITING)
        self._since: float | None = self.loop.time()
        """Since when a request is coming; None: none is."""
        self._head: int | None = 0
        """Bytes of its head so far; None: that is complete."""
        self._endless = False
        self._unread: tuple[int, float] = 0, 0.0
        """How much of an answer waits to be read, and since when it is as much."""
        if len(self.connections) > self.settings.max_connections:
            self.refuse(busy(f"{len(self.connections) - 1:,} connections are open", 1))
        elif self.closing:
            self.shutdown()

    def data_received(self, data: bytes) -> None:
        """Read on, unless there is no end of the head."""
        if self._since is None:
            self._since, self._head = self.loop.time(), 0
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > self.settings.max_head:
            self.refuse(Problem(
                431, f"the head of the request has more than {self.settings.max_head:,} bytes",
                "headers", None, "send fewer and shorter headers, and a shorter path",
            ))  # fmt: skip

    def on_message_begin(self) -> None:
        """The next one, perhaps behind another in the same data."""
        super().on_message_begin()
        self.scope["extensions"] = {_ENDLESS: self._goes_on}  # type: ignore[dict-item]
        if self._since is None:
            self._since, self._head = self.loop.time(), 1

    def on_headers_complete(self) -> None:
        """What follows is its body."""
        self._head = None
        super().on_headers_complete()
        if self.closing and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """It is there."""
        self._since = None
        super().on_message_complete()

    def late(self, now: float) -> bool:
        """Whether a request takes too long to come."""
        if self._since is None or self.pipeline:
            return False
        patience = self.settings.body_s if self._head is None else self.settings.head_s
        return now - self._since > patience

    def _goes_on(self) -> None:
        self._endless = True

    def resume_writing(self) -> None:
        """Some of it was read."""
        super().resume_writing()
        self._unread = 0, 0.0

    def still(self, now: float) -> bool:
        """Whether nobody reads the answer. A stream waits until its reader comes back."""
        size = self.transport.get_write_buffer_size()
        if size != self._unread[0]:
            self._unread = size, now
        return bool(size) and not self._endless and now - self._unread[1] > _STILL_S

    def hurry(self) -> None:
        """Wait for it no longer."""
        cycle = self.cycle
        if self._head is None:
            what, silent = "body", cycle.response_started
        else:  # nothing has come, or the answer to another one is still to go
            what, silent = "head", not self._head or bool(cycle and not cycle.response_complete)
        if silent:
            self.transport.close()
            return
        self.refuse(Problem(
            408, f"the {what} of the request did not come in time", what, None,
            "send it at once, or in smaller pieces",
        ))  # fmt: skip

    def shutdown(self) -> None:
        """The server stops: let go, unless a request is there, in part at least."""
        idle = self.cycle is None or self.cycle.response_complete
        if self._since is not None and self._head:
            return  # `on_headers_complete` sees to it
        if idle and (self._since is None or self._head is not None) and self._has_input():
            return
        super().shutdown()

    def _has_input(self) -> bool:
        return has_input(self.transport.get_extra_info("socket"))

    def send_400_response(self, msg: str) -> None:
        """What was sent is no HTTP."""
        self.refuse(malformed(msg.rstrip("."), "send HTTP/1.1"))

    def refuse(self, problem: Problem) -> None:
        """Answer and let go; nothing more is read."""
        if self.transport.is_closing():
            return
        self.transport.write(_written(problem))
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        """The head was HTTP; what follows is not."""
        self._since = None
        if self.closing:
            self.refuse(unavailable("it is stopping"))
            return
        if not self.url.isascii():
            self.send_400_response("The path is not ASCII.")
            return
        super().handle_websocket_upgrade()


class SocketGate(SocketLine):
    """WebSocket, with bounds."""

    def __init__(self, *of: Any, **more: Any) -> None:
        super().__init__(*of, **more)
        self.conn.reject = _rejected  # type: ignore[method-assign]
        self._pong = b""

    def data_received(self, data: bytes) -> None:
        """Read on; a head that is refused is answered, and let go."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.close_sent = self.handshake_complete = True
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def shutdown(self) -> None:
        """The server stops: what was sent before is read, and answered by `Connection.run`."""
        if self.close_sent or not self.handshake_complete:
            super().shutdown()
            return
        self.stop_keepalive()
        self.close_timeout = _GOODBYE_S
        self._end(self.loop.time() + _READS_S)

    def _end(self, until: float) -> None:
        if self.close_sent or self.transport.is_closing():
            return
        if self.loop.time() < until and has_input(self.transport.get_extra_info("socket")):
            self.loop.call_later(_LOOKS_S, self._end, until)
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1012})

    def handle_cont(self, event: Frame) -> None:
        """A piece of a message: however small they are, together they take no more room."""
        whole: Any = self.frames[0]
        if not isinstance(whole, bytearray):
            whole = bytearray(whole)
        whole += event.data
        self.frames = [whole]
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        """The newest of those that came together is answered, as soon as there is room."""
        said = self.conn.data_to_send()
        pongs = [each for each in said if each[:1] == _PONG]
        if pongs:
            self._pong = pongs[-1]
            self.transport.write(b"".join(each for each in said if each[:1] != _PONG))
            if self.writable.is_set():
                self._answer_ping()
        elif said:
            self.transport.write(b"".join(said))

    def _answer_ping(self) -> None:
        pong, self._pong = self._pong, b""
        if pong and not self.close_sent:
            self.transport.write(pong)

    def resume_writing(self) -> None:
        """There is room again."""
        super().resume_writing()
        self._answer_ping()


class Gates(NamedTuple):
    """The two protocols of one server."""

    http: type[HttpGate]
    socket: type[SocketGate]

    def close(self) -> None:
        """The server stops: each connection has at most one more request answered."""
        self.http.closing = True

    async def watch(self, state: ServerState) -> None:
        """Look for what takes too long, until cancelled. O(connections) a second."""
        loop = asyncio.get_running_loop()
        closing: dict[Any, float] = {}
        while True:
            await asyncio.sleep(1.0)
            now = loop.time()
            still: dict[Any, float] = {}
            for each in list(state.connections):
                if each.transport.is_closing():  # and whoever is at the other end does not read
                    still[each] = closing.get(each, now)
                    if now - still[each] > _LINGERS_S:
                        each.transport.abort()
                elif isinstance(each, HttpGate):
                    if each.late(now):
                        each.hurry()
                    elif each.still(now):
                        each.transport.abort()
            closing = still


def gates(settings: Settings) -> Gates:
    """The protocols under these settings."""
    return Gates(type("Http", (HttpGate,), {"settings": settings}), SocketGate)


def endless(scope: Mapping[str, Any]) -> None:
    """The answer of this scope is a stream: it may wait for its reader as long as that takes."""
    goes_on: Callable[[], None] | None = scope.get("extensions", {}).get(_ENDLESS)
    if goes_on is not None:
        goes_on()


def has_input(socket: HasFileno) -> bool:
    """Whether somebody has sent something, or knocked, and nobody has looked yet."""
    if socket.fileno() < 0:
        return False
    with DefaultSelector() as selector:
        selector.register(socket, EVENT_READ)
        return bool(selector.select(0))


def _written(problem: Problem) -> bytes:
    """A whole response."""
    body = problem.body()
    status = HTTPStatus(problem.status)
    head = {"content-type": CONTENT_TYPE, "content-length": len(body), "connection": "close"}
    lines = [f"HTTP/1.1 {status} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in (head | dict(problem.headers)).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _rejected(status: HTTPStatus | int, text: str) -> Response:
    """What the library has against a handshake, in the form of all our errors."""
    remedy = "open a WebSocket (RFC 6455) of the subprotocol nearcast.v1"
    body = Problem(int(status), text.partition("\n")[0].rstrip("."), remedy=remedy).body()
    headers = Headers(
        [
            ("Connection", "close"),
            ("Content-Length", str(len(body))),
            ("Content-Type", CONTENT_TYPE),
        ]
    )
    return Response(int(status), HTTPStatus(status).phrase, headers, body)
