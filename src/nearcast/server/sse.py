"""Server-sent events: one subscriber's notifications as a stream that browsers resume.

A notification is a message whose `id` is its seq. `request` and `region` are events of their own,
without an id, and so is `gap`, which says how many numbers are beyond retention.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.responses import Response, StreamingResponse

from nearcast.errors import NearcastError
from nearcast.server.desk import Ask, Page
from nearcast.server.feeds import Who
from nearcast.server.gate import endless
from nearcast.server.limits import Seat
from nearcast.server.problems import malformed
from nearcast.server.reader import Reader
from nearcast.server.wire import encode, region_text, whole

__all__ = ["get_stream"]

_QUIET_S = 15.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def get_stream(ask: Ask) -> Response:
    """`GET /subscribers/{id}/stream`."""
    ask.who.must_see(ask.id)
    after = _after(ask)
    seat = ask.desk.limits.opened(ask.who.tenant)
    reader = Reader(ask.desk, Who(ask.who.tenant, ask.id), after, "sse")
    try:
        await reader.start()
    except BaseException:
        reader.__exit__()
        seat.leave()
        raise
    endless(ask.request.scope)
    return StreamingResponse(_stream(ask, reader, seat), 200, _HEADERS, "text/event-stream")


def _after(ask: Ask) -> int | None:
    said = ask.request.headers.get("last-event-id")
    if said:
        if not said.isascii() or not said.isdigit() or len(said) > 18:
            raise malformed("Last-Event-ID is no seq", "send the last id", "last-event-id", said)
        return int(said)
    return whole(ask.query, "after", 0) if "after" in ask.query else None


async def _stream(ask: Ask, reader: Reader, seat: Seat) -> AsyncIterator[bytes]:
    keyring = ask.desk.keyring
    try:
        # if the server stops, whoever reads comes again
        with reader, keyring.staying(ask.who, reader.stir), suppress(NearcastError):
            yield b"retry: 1000\n\n"
            while not reader.ended:
                page = await reader.page()
                if not keyring.holds(ask.who):
                    break
                if page is not None:
                    ask.desk.sent("sse", ask.who.tenant, len(page.texts))
                    text = _written(page)
                    del page  # it may be long until somebody reads the text
                    yield text
                elif said := _pushed(reader):
                    yield said
                else:
                    await reader.woken(_QUIET_S)
                    if not reader.stirred:
                        yield b":\n\n"
    finally:
        seat.leave()


def _written(page: Page) -> bytes:
    parts = []
    if page.lost:
        parts.append(b"event: gap\ndata: %b\n\n" % encode({"lost": page.lost, "next": page.next}))
    first = page.next - len(page.texts) + 1
    for seq, text in enumerate(page.texts, first):
        parts.append(b"id: %d\ndata: %b\n\n" % (seq, text))
    return b"".join(parts)


def _pushed(reader: Reader) -> bytes:
    """What a mover is to hear."""
    region, request = reader.region(), reader.request()
    said = b""
    if region is not None:
        body = encode({"epoch": region.epoch, "safe_region": region_text(region)})
        said += b"event: region\ndata: %b\n\n" % body
    if request is not None:
        said += b"event: request\ndata: %b\n\n" % encode({"after": request})
    return said
