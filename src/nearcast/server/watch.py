"""The WebSocket of the map, `nearcast.watch.v1`: what an admin's page is shown, as it happens.

The first frame in is `hello`; afterwards `follow` says whom the page looks at closely. Text frames
out are JSON objects with a `type`, binary ones are places (`scene.Places.since`). A page gets at
most some frames a second, each with everything that came meanwhile.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from uvicorn.protocols.utils import ClientDisconnected

from nearcast.broker.service import Service
from nearcast.clock import format_micros, system_now
from nearcast.errors import NearcastError, ValidationError
from nearcast.mobility.impact_region import BallImpact, CellImpact
from nearcast.model.geometry import Box, Location, Point
from nearcast.server.auth import Principal, no_key
from nearcast.server.core import Answer
from nearcast.server.desk import Desk
from nearcast.server.feeds import Who
from nearcast.server.lamps import Lamps
from nearcast.server.limits import Seat
from nearcast.server.lines import room_of
from nearcast.server.logs import log
from nearcast.server.page import build
from nearcast.server.problems import Problem, malformed, mistake, problem_of
from nearcast.server.scene import MOVERS, Watcher
from nearcast.server.socket import denied
from nearcast.server.wire import decode, encode

__all__ = ["FRAMES", "PROTOCOL", "make_watch"]

PROTOCOL = "nearcast.watch.v1"
FRAMES = ("hello", "follow", "lamps")
_HELLO_S, _PACE_S, _FIGURES_S = 10.0, 0.1, 1.0
_LOOKED_AT = 5_000
"""Live events that tell how far a map goes."""
_GOING, _POLICY, _LATER = 1001, 1008, 1013
_PARTING_S = 5.0  # for who is shown out, and does not read
_GONE = (WebSocketDisconnect, ClientDisconnected, RuntimeError)


def make_watch(desk: Desk) -> Callable[[WebSocket], Awaitable[None]]:
    """What answers `GET /v1/watch`."""

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
            with suppress(*_GONE):
                await _Watching(desk, socket, seat).run(who)
        finally:
            seat.leave()

    return endpoint


def _may(who: Principal) -> None:
    if not who.admin:
        raise Problem(403, f"a key of role {who.role} may not watch", "role", who.role,
                      "use an admin key")  # fmt: skip


class _Known(NamedTuple):
    """What a page needs to begin."""

    places: list[tuple[str, float, float]]
    extent: list[float] | None
    now: int | None
    offset: int


class _Watching:
    """One page's socket: a task that reads frames, and one that sends what there is."""

    def __init__(self, desk: Desk, socket: WebSocket, seat: Seat) -> None:
        self._desk = desk
        self._seat = seat
        self._socket = socket
        self._tenant = ""
        self._watcher: Watcher | None = None
        self._line_is_free = room_of(socket.scope)
        self._tasks: list[asyncio.Future[None]] = []
        self._out = False
        """Whether its key has gone."""

    async def run(self, who: Principal | None) -> None:
        """Until one end has enough."""
        try:
            async with asyncio.timeout(_HELLO_S):
                frame = await self._frame()
                if frame is None:
                    return
                if frame.pop("type", None) != "hello":
                    raise Problem(409, "the first frame is hello", remedy="say hello first")
                who = self._holder(frame) if who is None else who
                self._desk.keyring.check(who)
                self._seat.of(who.tenant)
        except TimeoutError:
            await self._close(_POLICY, "say hello first")
            return
        except NearcastError as error:
            await self._refuse(error)
            await self._close(_POLICY, "say hello with an admin key")
            return
        self._tenant = who.tenant
        watcher = self._watcher = self._desk.scenes.watch(who.tenant)
        both = self._read(who), self._show(who, watcher)
        tasks = self._tasks = [asyncio.ensure_future(each) for each in both]
        try:
            with self._desk.keyring.staying(who, self._show_out):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._desk.scenes.leave(who.tenant, watcher)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._out:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PARTING_S):
                    await self._close(_POLICY, "its key has gone")

    def _show_out(self) -> None:
        self._out = True
        for task in self._tasks:
            task.cancel()

    # -- in --------------------------------------------------------------------------

    async def _frame(self) -> dict[str, Any] | None:
        """The next frame in; None when there is none."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        said = message.get("text") or message.get("bytes") or b""
        most = self._desk.settings.max_depth
        frame = decode(said.encode() if isinstance(said, str) else said, most)
        if not isinstance(frame, dict):
            raise malformed("a frame is an object", 'send {"type": …}')
        return frame

    def _holder(self, frame: dict[str, Any]) -> Principal:
        key = frame.get("key")
        if not isinstance(key, str):
            raise no_key()
        try:
            who = self._desk.keyring.holder(key)
        except Problem:
            self._desk.guessed(self._socket)
            raise
        _may(who)
        return who

    async def _read(self, who: Principal) -> None:
        with suppress(*_GONE):
            while True:
                try:
                    frame = await self._frame()
                    if frame is None:
                        return
                    self._desk.keyring.check(who)
                    self._heed(frame)
                except NearcastError as error:
                    await self._refuse(error)

    def _heed(self, frame: dict[str, Any]) -> None:
        kind, name = frame.get("type"), frame.get("subscriber")
        if kind == "lamps":
            self._look_at(frame.get("cpsl"))
            return
        if kind != "follow":
            raise ValidationError("type", kind, f"known are {', '.join(FRAMES)}")
        if name is not None and (not isinstance(name, str) or not name):
            raise ValidationError("subscriber", name, "give a non-empty string, or null")
        assert self._watcher is not None
        self._watcher.follows, self._watcher.stirred = name, True
        self._watcher.woken.set()

    def _look_at(self, text: Any) -> None:
        """Light the lamps of a pattern from now on."""
        assert self._watcher is not None
        self._watcher.lamps = None
        if text is not None:
            if not isinstance(text, str):
                raise ValidationError("cpsl", text, "give CPSL text, or null")
            self._desk.limits.filter(text, "cpsl")
            self._watcher.lamps = Lamps(text, self._desk.settings.space)
        self._watcher.lit = True
        self._watcher.woken.set()

    # -- out -------------------------------------------------------------------------

    async def _show(self, who: Principal, watcher: Watcher) -> None:
        """Send what there is, as fast as it is taken and no faster than a page is drawn."""
        try:
            await self._begin(watcher)
            clock = asyncio.get_running_loop().time
            due = clock()
            while not self._desk.feeds.ended:
                if self._line_is_free is not None:
                    await self._line_is_free.wait()
                if clock() >= due:
                    due = clock() + _FIGURES_S
                    watcher.figures = self._figures(who)
                for frame in watcher.frames():
                    await self._send(frame)
                if watcher.stirred:
                    watcher.stirred = False
                    await self._send(encode(await self._followed(who, watcher.follows)))
                await asyncio.sleep(_PACE_S)
                watcher.woken.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, due - clock())):
                        await watcher.woken.wait()
        except NearcastError as error:
            await self._refuse(error)
            await self._close(_LATER, "come again")
        except _GONE:
            return
        except Exception as error:
            log.error("mistake", path="/v1/watch", exc_info=error)
            with suppress(*_GONE):
                await self._refuse(mistake())
        else:
            await self._close(_GOING, "the server stops")

    async def _begin(self, watcher: Watcher) -> None:
        known: _Known = await self._look(_known)
        settings = self._desk.settings
        for name, x, y in known.places:  # unless a newer one came meanwhile
            if name not in watcher.scene.places["reported"]:
                watcher.scene.places["reported"].put(name, x, y)
        await self._send(encode({
            "type": "welcome", "space": settings.space, "demo": settings.demo,
            "extent": known.extent, "build": build(), "offset": known.offset,
            "now": format_micros(known.now or system_now()),
            "tiles": {"url": settings.tiles, "credit": settings.tiles_credit}
            if settings.tiles else None,
        }))  # fmt: skip

    def _figures(self, who: Principal) -> dict[str, Any]:
        """How things go: the whole server's for the default tenant's admins, as at `/metrics`, and
        for another's only what is that one's."""
        desk, tenant = self._desk, who.tenant
        if tenant:
            mine = desk.tenants.counted(tenant)
            found: dict[str, Any] = {
                "events": mine["accepted"], "notifications": mine["told"],
                "delivered": mine["delivered"], "queue": desk.core.waiting_of(tenant),
                "streams": desk.limits.streams_of[tenant],
                "reports": desk.scenes.reports_of[tenant], "steps": None,
            }  # fmt: skip
        else:
            found = desk.metrics.totals() | {
                "queue": desk.core.calls, "queue_s": round(desk.core.expected_s, 6),
                "streams": desk.limits.streams, "reports": desk.scenes.reports_of.total(),
                "steps": desk.scenes.steps,
            }  # fmt: skip
        found["now"] = format_micros(system_now())
        if found["steps"] is None:
            here = {n for tenant, n, _, _ in desk.feeds.places() if tenant == who.tenant}
            assert self._watcher is not None
            known = self._watcher.scene.places["reported"]
            found["connected"] = sum(name in known for name in here)
        return found

    async def _followed(self, who: Principal, name: str | None) -> dict[str, Any]:
        if name is None:
            return {"type": "followed", "subscriber": None}
        found: dict[str, Any] = await self._look(lambda broker: _close_up(broker, name))
        if self._desk.feeds.asked(Who(who.tenant, name)) is not None:
            found["safe_region"] = None  # a request voids what it holds
        return found

    async def _look(self, look: Callable[[Service], Any]) -> Any:
        """One at a time, however much is to do: a page waits rather than being refused."""
        return await self._desk.core.look(self._tenant, lambda broker: Answer(look(broker)))

    async def _send(self, frame: bytes) -> None:
        if frame[:1] == b"{":
            await self._socket.send({"type": "websocket.send", "text": frame.decode()})
        else:
            await self._socket.send({"type": "websocket.send", "bytes": frame})

    async def _refuse(self, error: NearcastError) -> None:
        problem = problem_of(error)
        await self._send(encode({"type": "error", "problem": problem.members()}))

    async def _close(self, code: int, reason: str) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            with suppress(*_GONE):
                await self._socket.close(code, reason)


def _known(broker: Service) -> _Known:
    places = broker.reading.places(MOVERS)
    boxes = [(x, y, x, y) for _, x, y in places]
    for _, event in broker.reading.events(None, broker.now, 0, _LOOKED_AT):
        if event.location is not None:
            boxes.append(_box_of(event.location))
    extent = None
    if boxes:
        table = np.array(boxes)
        extent = [*table[:, :2].min(axis=0).tolist(), *table[:, 2:].max(axis=0).tolist()]
    return _Known(places, extent, broker.now, broker.reading.offset)


def _box_of(place: Location) -> tuple[float, float, float, float]:
    if isinstance(place, Point):
        return place.x, place.y, place.x, place.y
    if isinstance(place, Box):
        return place.xmin, place.ymin, place.xmax, place.ymax
    return place.bounds


def _close_up(broker: Service, name: str) -> dict[str, Any]:
    """A mover's safe region as it went over the wire, its impact region, its place."""
    place, region = broker.reading.place(name), broker.reading.safe_region(name)
    return {
        "type": "followed",
        "subscriber": name,
        "place": None if place is None else [place.x, place.y],
        "epoch": broker.reading.epoch(name),
        "safe_region": None if region is None else b64encode(region.encode()).decode(),
        "impact": _impact(broker.impact_region(name)),
    }


def _impact(impact: Any) -> dict[str, Any] | None:
    """An impact region as JSON; cells as runs of a row: row, first column, one past the last."""
    if isinstance(impact, BallImpact):
        radius = impact.radius if isfinite(impact.radius) and impact.radius < inf else None
        return {"kind": "ball", "x": impact.x, "y": impact.y, "radius": radius}
    if not isinstance(impact, CellImpact):
        return None
    grid = impact.grid
    cells = np.pad(impact.cells.reshape(grid.rows, grid.columns).astype(np.int8), ((0, 0), (1, 1)))
    rows, columns = np.nonzero(np.diff(cells, axis=1))
    runs = np.column_stack([rows[::2], columns[::2], columns[1::2]])
    return {
        "kind": "cells", "centre": [grid.plane.x0, grid.plane.y0],
        "corner": [grid.x0, grid.y0], "cell": grid.cell, "runs": runs.tolist(),
    }  # fmt: skip
