"""The WebSocket `nearcast.v1`: everything that a subscriber does, and all it is told, in frames.

A frame is a JSON object with a `type`. The first one in is `hello`. A frame with a `ref` is
answered by `done` or `error` with the same one; without it, by `error` only. What comes by
itself is `notifications`, `region` and `request`. `FRAMES` is the table of what is understood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, TypeAlias

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from uvicorn.protocols.utils import ClientDisconnected

from nearcast.errors import NearcastError, ValidationError
from nearcast.mobility.safe_region import SafeRegion
from nearcast.server import events, subscribers, things
from nearcast.server.auth import Principal, no_key
from nearcast.server.desk import Desk, Page
from nearcast.server.feeds import Who
from nearcast.server.limits import Seat
from nearcast.server.lines import Say, room_of, say_of
from nearcast.server.logs import log
from nearcast.server.problems import CONTENT_TYPE, Problem, malformed, mistake, problem_of
from nearcast.server.reader import Reader
from nearcast.server.wire import decode, encode, region_text

__all__ = ["FRAMES", "PROTOCOL", "Connection", "denied", "make_endpoint"]

PROTOCOL = "nearcast.v1"
#: Frames of one connection that are being answered; more are not read.
_TOGETHER = 64
_HELLO_S = 10.0
_ROLES = ("subscribe", "admin")
_GOING, _POLICY, _LATER = 1001, 1008, 1013
_PARTING_S = 5.0  # for who is shown out, and does not read


def make_endpoint(desk: Desk) -> Callable[[WebSocket], Awaitable[None]]:
    """What answers `GET /v1/socket`."""

    async def endpoint(socket: WebSocket) -> None:
        try:
            who = desk.asks(socket)
            if who is not None:
                _may(who)
            seat = desk.limits.opened(None if who is None else who.tenant)
        except NearcastError as error:
            await denied(socket, problem_of(error))
            return
        try:
            spoken = PROTOCOL if PROTOCOL in socket.scope["subprotocols"] else None
            await socket.accept(spoken)
            line = say_of(socket.scope), room_of(socket.scope)
            await Connection(desk, socket, who, *line, seat).run()
        except (WebSocketDisconnect, ClientDisconnected):
            pass
        finally:
            seat.leave()

    return endpoint


def _may(who: Principal) -> None:
    if who.role not in _ROLES:
        raise Problem(403, f"a key of role {who.role} may not use the socket", "role", who.role,
                      "use a key of role subscribe or admin")  # fmt: skip


async def denied(socket: WebSocket, problem: Problem) -> None:
    """An HTTP answer instead of a socket."""
    headers = {**problem.headers, "content-type": CONTENT_TYPE}
    await socket.receive()
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await socket.send(
        {"type": "websocket.http.response.start", "status": problem.status, "headers": pairs}
    )
    await socket.send({"type": "websocket.http.response.body", "body": problem.body()})


class Connection:
    """One socket: a task that reads frames, one that sends what comes, and answers in between."""

    def __init__(
        self, desk: Desk, socket: WebSocket, who: Principal | None, say: Say | None = None,
        room: asyncio.Event | None = None, seat: Seat | None = None,
    ) -> None:  # fmt: skip
        self.desk = desk
        self.subscriber: str | None = None
        self._socket = socket
        self._say = say
        self._line_is_free = room
        self._who = who
        self._seat = seat
        self._greeted = False
        self._room = asyncio.Semaphore(_TOGETHER)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[Any] | None = None
        self._staying = ExitStack()
        self._out = False
        """Whether its key has gone: nothing goes in or out any more."""

    @property
    def who(self) -> Principal:
        """Who is at the other end; a Problem before it has said so."""
        if self._who is None:
            raise no_key()
        return self._who

    async def run(self) -> None:
        """Until one end has enough, or its key goes."""
        self._running = asyncio.current_task()
        try:
            if self._who is not None:
                self._stay(self._who)
            async with asyncio.timeout(_HELLO_S) as patience:
                await self._read(patience)
            if self.desk.feeds.ended:
                await self._finish()
        except TimeoutError:
            self._staying.close()
            await self.close(_POLICY, "say hello first")
        except asyncio.CancelledError:
            if not self._out:
                raise
            assert self._running is not None
            self._running.uncancel()
        finally:
            self._staying.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._out:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PARTING_S):
                    await self.close(_POLICY, "its key has gone")

    def _stay(self, who: Principal) -> None:
        self._staying.enter_context(self.desk.keyring.staying(who, self._show_out))

    def _show_out(self) -> None:
        """Its key has gone: let go at once, whatever is under way."""
        if not self._out:
            self._out = True
            for task in self._tasks:
                task.cancel()
            assert self._running is not None
            self._running.cancel()

    async def _finish(self) -> None:
        """The server stops: what was asked before is answered, unless nobody reads that."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.desk.settings.stop_s / 2)

    async def _read(self, patience: asyncio.Timeout) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            await self._room.acquire()
            body = message.get("text") or message.get("bytes") or b""
            self._begin(self._take(body.encode() if isinstance(body, str) else body))
            if not self._greeted:
                await asyncio.gather(*self._tasks)
                if not self._greeted:
                    continue
            if patience.when() is not None:
                patience.reschedule(None)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, body: bytes) -> None:
        """One frame, and its answer."""
        ref: Any = None
        try:
            frame = self._read_frame(body)
            del body  # the answer may wait for long until it is read
            ref = frame.pop("ref", None)
            said = await self._heed(frame)
            del frame
            if ref is not None:
                await self.send({"type": "done", "ref": ref} | (said or {}))
        except NearcastError as error:
            with suppress(WebSocketDisconnect, ClientDisconnected, RuntimeError):
                await self.refuse(problem_of(error), ref)
        except (WebSocketDisconnect, ClientDisconnected, RuntimeError):
            pass  # gone
        except Exception as error:
            log.error("mistake", path="/v1/socket", error=repr(error))
            with suppress(WebSocketDisconnect, ClientDisconnected, RuntimeError):
                await self.refuse(mistake(), ref)
        finally:
            self._room.release()

    def _read_frame(self, body: bytes) -> dict[str, Any]:
        frame = decode(body, self.desk.settings.max_depth)
        if not isinstance(frame, dict):
            raise malformed("a frame is an object", 'send {"type": …}')
        ref = frame.get("ref")
        if ref is not None and not isinstance(ref, str | int | float):
            raise ValidationError("ref", ref, "give a string or a number")
        return frame

    async def _heed(self, frame: dict[str, Any]) -> dict[str, Any] | None:
        kind = frame.pop("type", None)
        heed = FRAMES.get(kind) if isinstance(kind, str) else None
        if heed is None:
            raise ValidationError("type", kind, f"known are {', '.join(FRAMES)}")
        if kind != "hello":
            if not self._greeted:
                raise Problem(409, "the first frame is hello", "type", kind, "say hello first")
            self.desk.keyring.check(self.who)
            self.desk.tenants.count("requests", self.who.tenant)
            self.desk.limits.spend(self.who)
        return await heed(self, frame)

    async def hello(self, frame: dict[str, Any]) -> None:
        """Who it is, and from where it wants to go on."""
        if self._greeted:
            raise Problem(409, "hello was said already", "type", "hello", "open another socket")
        _known(frame, "subscriber", "after", "key")
        if self._who is None:
            who = self._holder(frame.get("key"))
            if self._seat is not None:
                self._seat.of(who.tenant)
            self._who = who
            self._stay(who)
        who = self._who
        subscriber, after = frame.get("subscriber", who.subscriber), frame.get("after")
        if subscriber is not None and (not isinstance(subscriber, str) or not subscriber):
            raise ValidationError("subscriber", subscriber, "give a non-empty string")
        if after is not None and (not isinstance(after, int) or isinstance(after, bool)
                                  or not 0 <= after < 2**62):  # fmt: skip
            raise ValidationError("after", after, "give the seq of the last one you have")
        if subscriber is None:
            await self._welcome(None)
            return
        who.must_see(subscriber)
        self.subscriber = subscriber
        reader = Reader(self.desk, Who(who.tenant, subscriber), after, "websocket")
        try:
            await self._welcome(await reader.start())
        except BaseException:
            reader.__exit__()
            raise
        self._begin(self._pump(reader))

    def _holder(self, key: Any) -> Principal:
        if not isinstance(key, str):
            raise no_key()
        try:
            who = self.desk.keyring.holder(key)
        except Problem:
            self.desk.guessed(self._socket)
            raise
        _may(who)
        return who

    async def _welcome(self, after: int | None) -> None:
        self._greeted = True
        said = {"subscriber": self.subscriber, "after": after, "role": self.who.role}
        await self.send({"type": "welcome"} | said)

    async def _pump(self, reader: Reader) -> None:
        """Send what comes, as fast as it is taken."""
        with reader, suppress(WebSocketDisconnect, ClientDisconnected, RuntimeError):
            try:
                await self._follow(reader)
            except NearcastError as error:
                await self.refuse(problem_of(error), None)
                await self.close(_LATER, "come again")
            else:
                if self._say is None:  # else whoever has the line reads it to its end first
                    await self.close(_GOING, "the server stops")

    async def _follow(self, reader: Reader) -> None:
        if self._say is not None:
            reader.taking(partial(self._takes, reader, self._say))
        while not reader.ended:
            if self._line_is_free is not None:  # what cannot be sent is better kept in the store
                await self._line_is_free.wait()
            page = await reader.page()
            region, request = reader.region(), reader.request()
            if page is not None:
                await self._send(_told(page))
                self.desk.sent("websocket", reader.tenant, len(page.texts))
            if region is not None:
                await self.send(_region(region))
            if request is not None:
                await self.send(_request(request))
            if page is None and region is None and request is None:
                await reader.woken()

    def _takes(self, reader: Reader, say: Say) -> bool:
        """Send what has come without waking anybody; False: `_follow` must."""
        if not reader.idle or self._out:
            return False
        page = reader.at_hand()
        if page is None and reader.stirred:  # the tail does not reach back that far
            return False
        if page is not None:
            if not say(_told(page)):
                return False
            reader.took(page)
            self.desk.sent("websocket", reader.tenant, len(page.texts))
        if reader.moves:
            region, asked = reader.region(), reader.request()
            if region is not None and not say(encode(_region(region))):
                reader.keep(region, asked)
                return False
            if asked is not None and not say(encode(_request(asked))):
                reader.keep(None, asked)
                return False
        return not reader.stirred

    async def send(self, frame: dict[str, Any]) -> None:
        """One frame; waits while the other end does not read."""
        await self._send(encode(frame))

    async def _send(self, text: bytes) -> None:
        if self._say is None or not self._say(text):
            await self._socket.send({"type": "websocket.send", "text": text.decode()})

    async def refuse(self, problem: Problem, ref: Any) -> None:
        """An error; somebody without a key is let go."""
        await self.send({"type": "error", "ref": ref} | {"problem": problem.members()})
        if problem.status == 401:
            await self.close(_POLICY, "a key is needed")

    async def close(self, code: int, reason: str) -> None:
        """Let go."""
        if self._socket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect, ClientDisconnected, RuntimeError):
                await self._socket.close(code, reason)

    def whose(self, frame: dict[str, Any]) -> str:
        """The subscriber that a frame is about: the one of hello, or the one it names."""
        name = frame.pop("subscriber", None) or self.subscriber
        if not isinstance(name, str):
            raise ValidationError("subscriber", name, "say in hello or here who it is about")
        self.who.must_see(name)
        return name


def _told(page: Page) -> bytes:
    """The frame of some notifications."""
    return b'{"type":"notifications","notifications":[%b],"next":%d,"lost":%d}' % (
        b",".join(page.texts), page.next, page.lost
    )  # fmt: skip


def _region(region: SafeRegion) -> dict[str, Any]:
    return {"type": "region", "epoch": region.epoch, "safe_region": region_text(region)}


def _request(after: int) -> dict[str, Any]:
    return {"type": "request", "after": after}


def _known(frame: dict[str, Any], *names: str) -> None:
    for name in frame:
        if name not in names:
            raise ValidationError(name, frame[name], f"known are {', '.join(names)}")


async def _place(on: Connection, frame: dict[str, Any]) -> dict[str, Any]:
    subscriber = on.whose(frame)
    answer = await subscribers.move(on.desk, on.who, subscriber, frame)
    if subscriber == on.subscriber:  # this socket hears of them by itself
        del answer["notifications"]
    return answer


async def _ack(on: Connection, frame: dict[str, Any]) -> None:
    subscriber = on.whose(frame)
    _known(frame, "upto")
    await subscribers.acknowledge(on.desk, on.who, subscriber, frame.get("upto"))


async def _publish(on: Connection, frame: dict[str, Any]) -> dict[str, Any]:
    _known(frame, "event", "events")
    if not on.who.admin:
        raise Problem(403, "a key of role subscribe may not publish", "role", on.who.role,
                      "use an admin key")  # fmt: skip
    said = frame.get("events", frame.get("event"))
    return await events.publish(on.desk, on.who, events.read_events(said, on.desk))


async def _retract(on: Connection, frame: dict[str, Any]) -> None:
    _known(frame, "id", "source")
    if not on.who.admin:
        raise Problem(403, "a key of role subscribe may not retract", "role", on.who.role,
                      "use an admin key")  # fmt: skip
    id, source = frame.get("id"), frame.get("source")
    if not isinstance(id, str):
        raise ValidationError("id", id, "give a string")
    await events.retract(on.desk, on.who, id, source)


def _begins(sort: things.Sort) -> Callable[[Connection, dict[str, Any]], Awaitable[Any]]:
    async def begin(on: Connection, frame: dict[str, Any]) -> dict[str, Any]:
        _known(frame, sort.kind)
        said = frame.get(sort.kind)
        if isinstance(said, dict) and on.subscriber is not None:
            said = {"subscriber": on.subscriber} | said
        asked = things.wanted(on.desk, on.who, sort, said, None)
        done = await things.put(on.desk, on.who, asked)
        if asked.thing.subscriber == on.subscriber:
            del done["notifications"]
        return done

    return begin


async def _unsubscribe(on: Connection, frame: dict[str, Any]) -> None:
    _known(frame, "id")
    if not isinstance(frame.get("id"), str):
        raise ValidationError("id", frame.get("id"), "give a string")
    await things.end(on.desk, on.who, frame["id"])


def _stands(*, over: bool) -> Callable[[Connection, dict[str, Any]], Awaitable[Any]]:
    async def heed(on: Connection, frame: dict[str, Any]) -> dict[str, Any]:
        _known(frame, "id")
        if not isinstance(frame.get("id"), str):
            raise ValidationError("id", frame.get("id"), "give a string")
        return await things.pause(on.desk, on.who, frame["id"], over=over)

    return heed


async def _ping(_: Connection, frame: dict[str, Any]) -> None:
    _known(frame)


Heed: TypeAlias = Callable[[Connection, dict[str, Any]], Awaitable[dict[str, Any] | None]]
#: Every frame that is understood.
FRAMES: dict[str, Heed] = {
    "hello": Connection.hello,
    "place": _place,
    "ack": _ack,
    "publish": _publish,
    "retract": _retract,
    "subscribe": _begins(things.KINDS["subscription"]),
    "fence": _begins(things.KINDS["fence"]),
    "composite": _begins(things.KINDS["composite"]),
    "unsubscribe": _unsubscribe,
    "pause": _stands(over=False),
    "resume": _stands(over=True),
    "ping": _ping,
}
