"""A subscriber on a socket: moves, holds its safe region, and is told.

`AsyncPhone` is awaited. `Phone` is the same for who waits: it has a thread in which one runs.
"""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64decode
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Self, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from nearcast.client import retries
from nearcast.client.answers import Told
from nearcast.client.calls import Calls
from nearcast.client.connection import TIMEOUT_S, unreachable
from nearcast.client.problems import error_of
from nearcast.errors import NearcastError, ServerError
from nearcast.mobility.messages import LocationRequest, NewRegion, Report
from nearcast.mobility.mover import Mover
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.geometry import Point

__all__ = ["AsyncPhone", "Phone"]

T = TypeVar("T")
#: Notifications that wait here for whoever reads them; the server keeps the others.
_WAITING = 1000
_LARGEST = 16 * 2**20


@dataclass(eq=False, slots=True)
class _Asked:
    """A frame that has no answer yet."""

    frame: dict[str, Any]
    answered: asyncio.Future[dict[str, Any]] | None
    """None: nobody waits for it."""
    waits: Iterator[float]
    """Before it is said again to a server that is busy."""


class AsyncPhone:
    """One subscriber's connection, made by `AsyncClient.phone`; an async context manager.

    `await phone.moved(place)` at every step reports the place if the safe region held does not
    allow silence. The server's requests are answered from the last place by itself. What
    the subscriber is told comes by `async for told in phone`. A connection that breaks is made
    again: what had no answer is said again, and notifications go on where they were.
    """

    def __init__(
        self, url: str, headers: dict[str, str], calls: Calls, subscriber: str,
        after: int | None = None, patience_s: float = retries.PATIENCE_S,
    ) -> None:  # fmt: skip
        self.url = url
        self._headers = headers
        self._calls = calls
        self._after = after
        self._patience_s = patience_s
        self._waits = retries.delays(patience_s)
        self._mover = Mover(subscriber)
        self._last: tuple[Point, float | None, float | None] | None = None
        self._refs = count(1)
        self._asked: dict[int, _Asked] = {}
        """What has no answer, in the order it was said."""
        self._told: asyncio.Queue[Told | None] = asyncio.Queue()
        self._behind = False
        """Whether notifications were left to the server, for too many waited here."""
        self._sending: set[asyncio.Future[None]] = set()
        self._socket: ClientConnection | None = None
        self._welcomed: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: NearcastError | None = None

    @property
    def subscriber(self) -> str:
        """Who it is."""
        return self._mover.subscriber

    @property
    def region(self) -> SafeRegion | None:
        """The safe region it holds; None: it reports at the next step."""
        return self._mover.region

    async def __aenter__(self) -> Self:
        self._welcomed = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._stay())
        try:
            await self._welcomed
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up. What was told and not acknowledged comes again another time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._fail(ServerError("the phone has hung up", 0))

    # -- moving ------------------------------------------------------------------------

    async def moved(
        self, place: Point, *, heading: float | None = None, speed: float | None = None
    ) -> bool:
        """The subscriber is here now: whether that had to be reported. The server has it then."""
        self._last = place, heading, speed
        report = self._mover.moved(place, heading, speed)
        if report is None:
            return False
        self._place(await self._ask(_said(report)))
        return True

    def _report_again(self) -> None:
        """Answer a request from the last place; nobody waits for it."""
        if self._last is not None:
            report = self._mover.moved(*self._last)
            if report is not None:
                self._say(_said(report), None)

    def _place(self, answer: dict[str, Any]) -> None:
        """What an answered report brings."""
        if answer.get("safe_region") is not None:
            self._hold(answer["safe_region"])
        if answer.get("request") is not None:
            self._requested(answer["request"])

    def _hold(self, text: str) -> None:
        region = SafeRegion.decode(b64decode(text))
        self._mover.received(NewRegion(self.subscriber, region))

    def _requested(self, after: int) -> None:
        self._mover.received(LocationRequest(self.subscriber, after))
        self._report_again()

    # -- being told --------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Told]:
        return self

    async def __anext__(self) -> Told:
        if self._left_some():
            assert self._socket is not None
            await self._socket.close()  # the next connection goes on after what was read
        return self._read(await self._told.get())

    def at_hand(self) -> Told | None:
        """The next notification if it is here already; None: not yet."""
        if not self._told.empty():
            return self._read(self._told.get_nowait())
        if self._left_some() and not self._sending:
            assert self._socket is not None
            self._send(self._socket.close())
        return None

    def _left_some(self) -> bool:
        """Whether what comes next was left to the server."""
        return self._behind and self._told.empty() and self._socket is not None

    def _read(self, told: Told | None) -> Told:
        if told is None:
            self._told.put_nowait(None)
            assert self._error is not None
            raise self._error
        return told

    async def ack(self, subscriber: str, upto: int) -> None:
        """Everything up to a number has come."""
        assert subscriber == self.subscriber
        await self._ask({"type": "ack", "upto": upto})

    # -- the connection ----------------------------------------------------------------

    async def _ask(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Say something, and wait for its answer, over as many connections as it takes."""
        if self._error is not None:
            raise self._error
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._say(frame, answered)
        return await answered

    def _say(self, frame: dict[str, Any], answered: asyncio.Future[dict[str, Any]] | None) -> None:
        ref = next(self._refs)
        self._asked[ref] = _Asked(frame | {"ref": ref}, answered, retries.delays(self._patience_s))
        self._say_again(ref)

    def _say_again(self, ref: int) -> None:
        """Unless it has its answer by now, or the next connection will say it."""
        if self._socket is not None and ref in self._asked:
            self._send(_sent(self._socket, self._asked[ref].frame))

    def _send(self, work: Coroutine[Any, Any, None]) -> None:
        sending = asyncio.ensure_future(work)
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _stay(self) -> None:
        """Be connected, again and again."""
        try:
            while True:
                try:
                    async with self._connect() as socket:
                        await self._listen(socket)
                except (OSError, TimeoutError, WebSocketException, ServerError) as broken:
                    trouble: Exception = broken
                    if isinstance(broken, InvalidStatus):
                        trouble = _refused(broken)
                    if isinstance(trouble, NearcastError) and not _passes(trouble):
                        raise trouble from broken
                finally:
                    self._socket = None
                delay = next(self._waits, None)
                if delay is None:
                    raise unreachable(self.url, trouble) from trouble
                await asyncio.sleep(delay)
        except NearcastError as error:
            self._fail(error)

    def _connect(self) -> connect:
        return connect(
            f"ws{self.url.removeprefix('http')}/v1/socket",
            subprotocols=["nearcast.v1"],  # type: ignore[list-item]
            additional_headers=self._headers,
            compression=None,
            max_size=_LARGEST,
            open_timeout=TIMEOUT_S,
        )

    async def _listen(self, socket: ClientConnection) -> None:
        hello = {"type": "hello", "subscriber": self.subscriber}
        await _sent(socket, hello | ({} if self._after is None else {"after": self._after}))
        async for text in socket:
            await self._heed(socket, json.loads(text))
        raise ConnectionClosed(None, None)

    async def _heed(self, socket: ClientConnection, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "welcome":
                self._socket = socket
                self._behind = False
                self._waits = retries.delays(self._patience_s)
                assert self._welcomed is not None
                if not self._welcomed.done():
                    self._welcomed.set_result(None)
                for asked in list(self._asked.values()):
                    await _sent(socket, asked.frame)
            case "notifications":
                # Not to wait for room: the answers that a reader waits for come behind this.
                self._behind = self._behind or self._told.qsize() >= _WAITING
                if not self._behind:
                    page = self._calls.read_page(frame)
                    for told in page.told(self.ack):
                        self._told.put_nowait(told)
                    self._after = page.next
            case "region":
                self._hold(frame["safe_region"])
            case "request":
                self._requested(frame["after"])
            case "done":
                self._answered(frame)
            case "error":
                self._answered(frame, error_of(frame["problem"]["status"], frame["problem"]))

    def _answered(self, frame: dict[str, Any], error: NearcastError | None = None) -> None:
        ref = frame.get("ref") or 0
        asked = self._asked.get(ref)
        if asked is not None and error is not None and _passes(error):
            delay = next(asked.waits, None)
            if delay is not None:
                asyncio.get_running_loop().call_later(delay, self._say_again, ref)
                return
        self._asked.pop(ref, None)
        answered = None if asked is None else asked.answered
        if answered is None:
            if error is None:
                self._place(frame)
            elif frame.get("ref") is None:  # of the whole connection
                raise error
        elif not answered.done():
            if error is None:
                answered.set_result(frame)
            else:
                answered.set_exception(error)

    def _fail(self, error: NearcastError) -> None:
        """There will be no more of it."""
        if self._error is not None:
            return
        self._error = error
        waiting = [self._welcomed, *(asked.answered for asked in self._asked.values())]
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # somebody may have stopped waiting for it
        self._told.put_nowait(None)


def _said(report: Report) -> dict[str, Any]:
    said = {"heading": report.heading, "speed": report.speed, "epoch": report.epoch}
    place = {"type": "place", "coordinates": [report.place.x, report.place.y]}
    return place | {name: value for name, value in said.items() if value is not None}


async def _sent(socket: ClientConnection, frame: dict[str, Any]) -> None:
    with suppress(ConnectionClosed):  # whoever reads it notices, and it is said again
        await socket.send(json.dumps(frame))


def _passes(error: NearcastError) -> bool:
    """Whether it may be otherwise a little later."""
    return getattr(error, "status", None) in retries.TRANSIENT


def _refused(refusal: InvalidStatus) -> NearcastError:
    try:
        problem = json.loads(refusal.response.body or b"{}")
    except ValueError:
        problem = {}
    return error_of(refusal.response.status_code, problem if isinstance(problem, dict) else {})


class Phone:
    """As `AsyncPhone`, for who waits; a context manager, and an iterator over what is told."""

    def __init__(self, *of: Any) -> None:
        self._of = of
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._phone: AsyncPhone | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._phone = self._wait(_made(*self._of))
        try:
            self._wait(self._phone.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._phone is not None
        self._wait(self._phone.close())
        self._end()

    @property
    def region(self) -> SafeRegion | None:
        """The safe region it holds; None: it reports at the next step."""
        assert self._phone is not None
        return self._phone.region

    def moved(
        self, place: Point, *, heading: float | None = None, speed: float | None = None
    ) -> bool:
        """The subscriber is here now: whether that had to be reported. The server has it then."""
        assert self._phone is not None
        return self._wait(self._phone.moved(place, heading=heading, speed=speed))

    def __iter__(self) -> Iterator[Told]:
        return self

    def __next__(self) -> Told:
        told = self.told(None)
        assert told is not None
        return told

    def told(self, wait_s: float | None = 0.0) -> Told | None:
        """The next notification; None if there was none for so long."""
        assert self._phone is not None
        told = self._wait(_next(self._phone, wait_s))
        return None if told is None else Told.of(told, self._ack, told.lost)

    def _ack(self, subscriber: str, upto: int) -> None:
        assert self._phone is not None
        self._wait(self._phone.ack(subscriber, upto))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        waiting: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return waiting.result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(phone: AsyncPhone, wait_s: float | None) -> Told | None:
    told = phone.at_hand()  # what is given no time to be waited for is not looked at (Python 3.11)
    if told is None and (wait_s is None or wait_s > 0):
        with suppress(TimeoutError):
            told = await asyncio.wait_for(phone.__anext__(), wait_s)
    return told


async def _made(*of: Any) -> AsyncPhone:
    return AsyncPhone(*of)
