"""One request after the other to one place over HTTP/1.1, of whose answers only the head counts.

Written for webhooks: the address that is connected to was checked before, redirects are not
followed, and an answer costs no more than its first kilobytes. A request takes 60 µs of CPU
where clients for everything take some hundreds.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import NamedTuple, cast

import httptools

__all__ = ["Answer", "Connection", "LostError", "connect"]

#: Bytes of an answer's head, and of its body before the connection is rather closed.
_HEAD, _BODY = 32_768, 16_384


class LostError(OSError):
    """The connection was closed."""

    def __init__(self, why: str, *, heard: bool) -> None:
        self.heard = heard
        """Whether anything of the answer had come."""
        super().__init__(why)


class Answer(NamedTuple):
    """The head of an answer."""

    status: int
    retry_after: str | None

    def wait_s(self, now: float) -> float:
        """How long it asks to be left alone; 0: it does not."""
        said = (self.retry_after or "").strip()
        if said.isascii() and said.isdigit():
            return float(said[:9])
        with suppress(ValueError, TypeError, OverflowError):
            return max(0.0, parsedate_to_datetime(said).timestamp() - now)
        return 0.0


class Connection(asyncio.Protocol):
    """A connection, to be used for one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._over: asyncio.Future[None] | None = None
        self._status = 0
        self._retry_after: str | None = None
        self._heard = 0
        self._body = 0
        self.usable = False
        """Whether another request may follow."""
        self.uses = 0

    # -- what it is asked for --------------------------------------------------------

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a request; answered as soon as the head of the answer is there."""
        loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._answer, self._over = loop.create_future(), loop.create_future()
        self._status, self._retry_after, self._heard, self._body = 0, None, 0, 0
        self.usable = False
        self.uses += 1
        if self._transport is None or self._transport.is_closing():
            self._fail("it closed the connection")
        else:
            self._transport.write(request)
        return self._answer

    async def finished(self, patience_s: float) -> bool:
        """Whether the answer has ended in time, and another request may follow."""
        if not self.usable and self._over is not None and not self._over.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await asyncio.shield(self._over)
        return self.usable

    def close(self) -> None:
        """At once; what the other end still sends is not read."""
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio's -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        """Some of an answer."""
        self._heard += len(data)
        if self._parser is None:  # an answer that nobody asked for
            self.close()
            return
        if not self._status and self._heard > _HEAD:
            self._fail("the head of its answer is too long")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("it wants to speak another protocol")
        except httptools.HttpParserError as error:
            self._fail(f"its answer is no HTTP ({error})")

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed, by either end."""
        said = getattr(error, "strerror", None)
        self._fail(f"the connection broke ({said})" if said else "it closed the connection")

    def _fail(self, why: str) -> None:
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(LostError(why, heard=self._heard > 0))
            self._answer.exception()  # whoever asked may have gone
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        self.close()

    # -- httptools' ------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer."""
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is there."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(Answer(status, self._retry_after))

    def on_body(self, body: bytes) -> None:
        """Some of the body, which nobody reads."""
        self._body += len(body)
        if self._body > _BODY:
            self.close()

    def on_message_complete(self) -> None:
        """The answer has ended."""
        assert self._parser is not None
        if not self._status:
            return  # 100: the answer proper is still to come
        self.usable = self._parser.should_keep_alive() and self._body <= _BODY
        self._parser = None
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        if not self.usable:
            self.close()


async def connect(address: str, port: int, name: str, context: ssl.SSLContext | None) -> Connection:
    """A connection to an address; a certificate has to be of the name."""
    loop = asyncio.get_running_loop()
    server_hostname = name if context is not None else None
    _, made = await loop.create_connection(
        Connection, address, port, ssl=context, server_hostname=server_hostname
    )
    return made
