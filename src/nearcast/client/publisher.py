"""A publisher that moves: sends an event only where somebody could tell the difference.

`AsyncPublisher` is awaited. `Publisher` is the same for who waits: it has a thread in which one
runs.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from random import uniform
from typing import Any, Self, TypeVar

import httpx2

from nearcast.broker.reporter import Reporter
from nearcast.client import retries
from nearcast.client.answers import Published
from nearcast.client.calls import Calls
from nearcast.client.connection import TIMEOUT_S, unreachable
from nearcast.client.problems import error_of
from nearcast.client.sending import sent
from nearcast.errors import NearcastError, ServerError
from nearcast.model.events import Event
from nearcast.model.geometry import Box

__all__ = ["AsyncPublisher", "Publisher"]

T = TypeVar("T")
#: The server says something every 15 seconds; a line that says nothing for so long is dead.
_DEAD_S = 40.0
#: Before a line that ended is opened again.
_AGAIN_S = 1.0
#: For the last event, where the server cannot be reached.
_PARTING_S = 5.0


class AsyncPublisher:
    """One publisher, made by `AsyncClient.publisher`; an async context manager.

    `await publisher.publish(event)` sends the event, or keeps it back where nobody could tell. It
    listens on a line meanwhile: when the server says that its rectangle is void, the last event
    that was kept back is sent by itself. Without a line it keeps nothing back.
    """

    def __init__(
        self, url: str, headers: dict[str, str], calls: Calls, name: str,
        patience_s: float = retries.PATIENCE_S,
    ) -> None:  # fmt: skip
        self._reporter = Reporter(name)
        self._stream = calls.line(name)
        self._calls = calls
        self._patience_s = patience_s
        self._http = httpx2.AsyncClient(base_url=f"{url}/v1", headers=headers, timeout=TIMEOUT_S)
        self._url = url
        self._line: int | None = None
        self._kept: Event | None = None
        """The last event, if it was not sent."""
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._error: NearcastError | None = None

    @property
    def name(self) -> str:
        """Which publisher it is."""
        return self._reporter.publisher

    @property
    def rectangle(self) -> Box | None:
        """Where it may be silent, strictly inside; None: it sends its next event."""
        held = self._reporter.rectangle
        return None if held is None else held.box

    async def __aenter__(self) -> Self:
        self._listening = asyncio.create_task(self._listen())
        await self._heard.wait()
        if self._error is not None:
            await self.close()
            raise self._error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Be silent no longer: what was kept back last is sent, and the server forgets the line."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._speak()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=min(self._patience_s, _PARTING_S))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def publish(self, event: Event) -> Published | None:
        """An event happens: on the server's disk, or None: kept back, which nobody notices."""
        async with self._turn:
            epoch = self._reporter.sends(event)
            if epoch is None:
                self._kept = event
                return None
            return await self._send(event, epoch)

    async def _send(self, event: Event, epoch: int) -> Published:
        self._kept = None
        line = self._line
        call = self._calls.report(self.name, event, line, epoch)
        published, rectangle = await sent(self._http, call, self._url, self._patience_s)
        if line is not None and line == self._line:  # else nobody could say that it is void
            self._reporter.received(rectangle)
        return published

    # -- the line ----------------------------------------------------------------------

    async def _listen(self) -> None:
        """Have a line, again and again; the first one within the time of patience."""
        waits = retries.delays(self._patience_s)
        while self._error is None:
            trouble: Exception = ServerError("the line ended", 0)
            try:
                async for kind, data in self._said():
                    self._heed(kind, data)
            except (httpx2.HTTPError, NearcastError) as error:
                trouble = error
            finally:
                self._line = None
                self._reporter.lost()
                self._speak()
            delay: float | None = uniform(0.5, 1.0) * _AGAIN_S
            if not self._heard.is_set():
                delay = next(waits, None)
            self._error = _final(trouble, self._url, delay)
            if delay is not None and self._error is None:
                await asyncio.sleep(delay)
        self._heard.set()

    def _heed(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "line":
            self._line = data["line"]
            self._heard.set()
        elif kind == "void":
            self._reporter.requested(data["after"])
        self._speak()

    async def _said(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """What the line says, as long as it lives."""
        timeout = httpx2.Timeout(TIMEOUT_S, read=_DEAD_S)
        async with self._http.stream(
            self._stream.method, self._stream.path, timeout=timeout
        ) as answer:
            if not answer.is_success:
                problem = json.loads(await answer.aread() or b"{}")
                raise error_of(answer.status_code, problem)
            kind = ""
            async for text in answer.aiter_lines():
                name, _, value = text.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

    def _speak(self) -> None:
        """Send what was kept back last: somebody may be waiting for it."""
        if self._kept is not None:
            task = asyncio.create_task(self._say_kept())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _say_kept(self) -> None:
        async with self._turn:
            event = self._kept
            epoch = None if event is None else self._reporter.sends(event)
            if event is not None and epoch is not None:
                try:
                    await self._send(event, epoch)
                except ServerError:
                    self._kept = event  # until there is a line again, or another event
                except NearcastError:
                    pass  # too late by now


def _final(trouble: Exception, url: str, delay: float | None) -> NearcastError | None:
    """What ends all tries; None: another one may succeed."""
    if isinstance(trouble, ServerError) and (
        not trouble.status or trouble.status in retries.TRANSIENT
    ):
        return None if delay is not None else trouble
    if isinstance(trouble, NearcastError):
        return trouble
    return None if delay is not None else unreachable(url, trouble)


class Publisher:
    """As `AsyncPublisher`, for who waits; a context manager."""

    def __init__(self, *of: Any) -> None:
        self._of = of
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._publisher: AsyncPublisher | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._publisher = self._wait(_made(*self._of))
            self._wait(self._publisher.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._publisher is not None
        self._wait(self._publisher.close())
        self._end()

    @property
    def rectangle(self) -> Box | None:
        """Where it may be silent, strictly inside; None: it sends its next event."""
        assert self._publisher is not None
        return self._publisher.rectangle

    def publish(self, event: Event) -> Published | None:
        """An event happens: on the server's disk, or None: kept back, which nobody notices."""
        assert self._publisher is not None
        return self._wait(self._publisher.publish(event))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        waiting: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return waiting.result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _made(*of: Any) -> AsyncPublisher:
    return AsyncPublisher(*of)
