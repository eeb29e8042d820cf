"""Subscribers: where they are, what they were told, how far they have read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from msgspec import Raw
from starlette.responses import Response, StreamingResponse

from nearcast.broker.service import Service
from nearcast.errors import NearcastError, ValidationError
from nearcast.mobility.messages import LocationRequest
from nearcast.model.geometry import Point
from nearcast.server.auth import Principal
from nearcast.server.core import Answer
from nearcast.server.desk import Ask, Desk, Page, answer
from nearcast.server.events import MOST, page_size
from nearcast.server.feeds import Who
from nearcast.server.reader import FRAME
from nearcast.server.wire import Texts, encode, fitting, number, region_text, whole

__all__ = ["acknowledge", "move"]

_PLACE = ("coordinates", "heading", "speed", "epoch")


async def move(desk: Desk, who: Principal, subscriber: str, said: dict[str, Any]) -> dict[str, Any]:
    """A subscriber reports a place."""
    for name in said:
        if name not in _PLACE:
            raise ValidationError(name, said[name], f"known are {', '.join(_PLACE)}")
    place = _point(said.get("coordinates"))
    rest = {name: _number(said.get(name), name) for name in ("heading", "speed")}
    epoch = said.get("epoch")
    if epoch is not None and (not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0):
        raise ValidationError("epoch", epoch, "give a whole number, or leave it out")

    def call(broker: Service) -> Answer:
        reply = broker.move(subscriber, place, epoch=epoch, **rest)
        return Answer((reply, broker.reading.epoch(subscriber)), (reply,))

    reply, known = await desk.call(who, call)
    desk.scenes.placed(who.tenant, subscriber, place.x, place.y)
    region = reply.safe_regions.get(subscriber)
    mine = [each for each in reply if each.subscriber == subscriber]
    asked = [m.after for m in reply.messages(subscriber) if isinstance(m, LocationRequest)]
    return {
        "epoch": known if region is None else region.epoch,
        "safe_region": None if region is None else region_text(region),
        "notifications": [
            *map(Raw, fitting(map(Texts().of, mine[:MOST]), desk.settings.page_bytes))
        ],
        "request": asked[-1] if asked else None,
    }


def _point(said: Any) -> Point:
    if not isinstance(said, list) or len(said) != 2:
        raise ValidationError("coordinates", said, "give [lon, lat]")
    x, y = (_number(each, "coordinates") for each in said)
    if x is None or y is None:
        raise ValidationError("coordinates", said, "give [lon, lat]")
    return Point(x, y)


def _number(said: Any, field: str) -> float | None:
    if said is not None and (isinstance(said, bool) or not isinstance(said, int | float)):
        raise ValidationError(field, said, "give a number")
    try:
        return None if said is None else float(said)
    except OverflowError:
        raise ValidationError(field, said, "give a number that fits a float64") from None


async def put_place(ask: Ask) -> Response:
    """`PUT /subscribers/{id}/place`."""
    ask.who.must_see(ask.id)
    return answer(await move(ask.desk, ask.who, ask.id, await ask.members()))


async def get_notifications(ask: Ask) -> Response:
    """`GET /subscribers/{id}/notifications?after=&limit=&wait=`: pulled, or waited for."""
    ask.who.must_see(ask.id)
    desk, who = ask.desk, Who(ask.who.tenant, ask.id)
    after = whole(ask.query, "after", 0) if "after" in ask.query else None
    limit = page_size(ask)
    wait = min(number(ask.query, "wait", 0), desk.settings.poll_s)
    clock = asyncio.get_running_loop().time
    until = clock() + wait
    listener = desk.feeds.listen(who)
    try:
        while True:
            listener.woken.clear()
            most = min(FRAME, desk.settings.page_bytes)
            page = await desk.page(who, after, limit, most)
            if page.texts or page.lost or clock() >= until or desk.feeds.ended:
                break
            if desk.feeds.news(who):  # a request, which one pull alone need not wait for
                break
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await listener.woken.wait()
    finally:
        desk.feeds.leave(listener)
    desk.keyring.check(ask.who)
    desk.sent("pull", who.tenant, len(page.texts))
    if page.texts and page.next < page.last and len(page.texts) < limit:
        return StreamingResponse(_pieces(ask, who, page, limit), media_type="application/json")
    said = {"notifications": page.raw(), "next": page.next, "lost": page.lost}
    return answer(said | {"request": desk.feeds.asked(who)})


async def _pieces(ask: Ask, who: Who, page: Page, limit: int) -> AsyncIterator[bytes]:
    """A page that is long, read from the store as fast as it is taken.

    Whatever keeps the rest of it back ends it where it is: `next` says where to go on.
    """
    desk, lost, last = ask.desk, page.lost, page.last
    room, between = desk.settings.page_bytes, b'{"notifications":['
    while True:
        next, text = page.next, b",".join(page.texts)
        limit -= len(page.texts)
        room -= sum(map(len, page.texts))
        del page  # it may be long until somebody reads the text
        yield between + text
        between = b","
        if limit <= 0 or room <= 0 or next >= last or desk.feeds.ended:
            break
        try:
            page = await desk.page(who, next, limit, min(FRAME, room))
        except NearcastError:
            break
        if page.lost or not page.texts or sum(map(len, page.texts)) > room:
            break
        if not desk.keyring.holds(ask.who):
            break
        desk.sent("pull", who.tenant, len(page.texts))
    request = encode(desk.feeds.asked(who))
    yield b'],"next":%d,"lost":%d,"request":%b}' % (next, lost, request)


async def acknowledge(desk: Desk, who: Principal, subscriber: str, upto: Any) -> None:
    """A subscriber has everything up to a number."""
    if not isinstance(upto, int) or isinstance(upto, bool) or upto < 0:
        raise ValidationError("upto", upto, "give the seq of the last notification you have")

    def call(broker: Service) -> Answer:
        return Answer(None, (broker.ack(subscriber, upto),))

    await desk.call(who, call)


async def post_ack(ask: Ask) -> Response:
    """`POST /subscribers/{id}/ack`."""
    ask.who.must_see(ask.id)
    said = await ask.members()
    for name in said:
        if name != "upto":
            raise ValidationError(name, said[name], "known is upto")
    await acknowledge(ask.desk, ask.who, ask.id, said.get("upto"))
    return answer({"upto": said["upto"]})
