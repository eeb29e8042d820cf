"""Publishers that keep silent, over HTTP: events answered with safe rectangles, and their lines.

A publisher has a *line*, a stream of server-sent events on which it hears that its rectangle is
void. An event that names the line is answered with a rectangle, as long as that line is open. Who
loses the line holds no rectangle any more, at both ends: nobody is silent who could not be asked
to speak.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.responses import Response, StreamingResponse

from nearcast.broker.reporter import SafeRectangle
from nearcast.broker.service import Service
from nearcast.errors import NearcastError
from nearcast.model.events import check_text
from nearcast.server import events
from nearcast.server.auth import Principal
from nearcast.server.core import Answer
from nearcast.server.desk import Ask, answer
from nearcast.server.gate import endless
from nearcast.server.limits import Seat
from nearcast.server.problems import Problem
from nearcast.server.silences import Line
from nearcast.server.wire import decode, encode, whole

__all__ = ["get_stream", "post"]

_QUIET_S = 15.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def _name(who: Principal, publisher: str) -> str:
    """A publisher's name in the broker: keys that publish do not share theirs."""
    check_text(publisher, "publisher")
    return f"{who.key if who.role == 'publish' else ''}/{publisher}"


async def post(ask: Ask) -> Response:
    """`POST /publishers/{id}/events?line=&epoch=`: one event, answered with a rectangle."""
    desk, who, name = ask.desk, ask.who, _name(ask.who, ask.id)
    number = whole(ask.query, "line", 0) if "line" in ask.query else None
    epoch = whole(ask.query, "epoch", 0, least=1) if "epoch" in ask.query else None
    said = decode(await ask.body(), desk.settings.max_depth)
    found = events.read_events(said, desk)
    if len(found) != 1:
        raise Problem(
            422, f"a publisher that keeps silent sends one event at a time, and got {len(found)}",
            "events", len(found), "send one; POST /v1/events takes many",
        )  # fmt: skip
    heard = desk.lines.is_open(who.tenant, name, number)
    by = who.key if who.role == "publish" else None
    (event,) = found

    def call(broker: Service) -> Answer:
        desk.limits.tenant(who, "events", broker.event_count, broker.reading.new(found))
        before = broker.published
        if heard:
            reply = broker.publish(event, by=by, publisher=name, epoch=epoch)
        else:
            reply = broker.publish(event, by=by)
        new = broker.published - before
        granted = reply.safe_rectangles.get(name, SafeRectangle(epoch or 0, None))
        done = {"accepted": new, "repeated": 1 - new, "offset": broker.reading.offset}
        return Answer(done | {"epoch": granted.epoch, "safe_rectangle": _sides(granted)}, (reply,))

    done: dict[str, Any] = await desk.call(who, call)
    events.came(desk, who, done)
    return answer(done)


def _sides(rectangle: SafeRectangle) -> list[float] | None:
    box = rectangle.box
    return None if box is None else [box.xmin, box.ymin, box.xmax, box.ymax]


async def get_stream(ask: Ask) -> Response:
    """`GET /publishers/{id}/stream`: the line."""
    desk, tenant, name = ask.desk, ask.who.tenant, _name(ask.who, ask.id)
    seat = desk.limits.opened(tenant)
    line = desk.lines.open(tenant, name)
    try:
        await desk.core.look(tenant, lambda broker: _forgotten(broker, name))
    except BaseException:
        desk.lines.close(tenant, name, line)
        seat.leave()
        raise
    endless(ask.request.scope)
    stream = _stream(ask, name, line, seat)
    return StreamingResponse(stream, 200, _HEADERS, "text/event-stream")


def _forgotten(broker: Service, name: str) -> Answer:
    return Answer(None, (broker.speak_up(name),))


async def _stream(ask: Ask, name: str, line: Line, seat: Seat) -> AsyncIterator[bytes]:
    desk, tenant, told = ask.desk, ask.who.tenant, 0
    try:
        with desk.keyring.staying(ask.who, line.end):
            yield b"retry: 1000\nevent: line\ndata: %b\n\n" % encode({"line": line.number})
            while not line.ended:
                line.woken.clear()
                if line.after > told:
                    told = line.after
                    yield b"event: void\ndata: %b\n\n" % encode({"after": told})
                    continue
                try:
                    async with asyncio.timeout(_QUIET_S):
                        await line.woken.wait()
                except TimeoutError:
                    yield b":\n\n"
    finally:
        seat.leave()
        if desk.lines.close(tenant, name, line):
            with suppress(NearcastError):  # a core that has stopped has forgotten it anyway
                _unheard(desk.core.look(tenant, lambda broker: _forgotten(broker, name)))


def _unheard(future: asyncio.Future[Any]) -> None:
    """Nobody waits for this; if it fails, that is not worth a warning."""
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception())
