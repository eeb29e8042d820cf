"""Places that webhooks are sent to, in this process: each does what it is told to, and notes it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["Hook", "Request", "hooking"]


@dataclass(frozen=True)
class Request:
    """One that came."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def said(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Behave = Callable[["Hook", Request, asyncio.StreamWriter], Awaitable[bytes | None]]


@dataclass
class Hook:
    """A server for webhooks. `behave` answers bytes, or None to close the connection."""

    behave: Behave
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def seqs(self) -> list[int]:
        """Numbers of what came, in order."""
        return [each.said["seq"] for each in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._serve(reader, writer)
        finally:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.rstrip().split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines)
                }
                body = await reader.readexactly(int(headers["content-length"]))
                request = Request(first.split(" ")[1], headers, body, time.monotonic())
                self.requests.append(request)
                said = await self.behave(self, request, writer)
                if said is None:
                    break
                writer.write(said)
                await writer.drain()


async def takes(_: Hook, __: Request, ___: asyncio.StreamWriter) -> bytes:
    return OK


def answers(*statuses: int, **headers: str) -> Behave:
    """One status after the other, the last one from then on."""
    left = [*statuses]

    async def behave(_: Hook, __: Request, ___: asyncio.StreamWriter) -> bytes:
        status = left.pop(0) if len(left) > 1 else left[0]
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status} Said\r\n{more}Content-Length: 0\r\n\r\n".encode()

    return behave


@contextmanager
def hooking(*behaves: Behave) -> Iterator[list[Hook]]:
    """Hooks in a thread of their own."""
    hooks = [Hook(behave) for behave in behaves or (takes,)]
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def run() -> None:
        servers = []
        for hook in hooks:
            server = await asyncio.start_server(hook.serve, "127.0.0.1", 0)
            hook.port = server.sockets[0].getsockname()[1]
            servers.append(server)
        started.set()
        await over.wait()
        for server in servers:
            server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0.01)  # for transports to be over

    over = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert started.wait(60)
    try:
        yield hooks
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()
