"""The demo's crowd, in a process of its own: `python -m nearcast.client.crowd URL PEOPLE SEED`.

Everybody in the city is a client like any other: people walk with a phone on a WebSocket that
holds a safe region, shops publish offers, vans and taxis their positions, over HTTP. What the
simulator alone knows goes to standard output, for whoever shows it: a line of JSON with the names
of the people, then again and again their true places (`FRAME`, then as many pairs of f64).
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from itertools import islice
from json import dumps
from typing import Any

import numpy as np

from nearcast.client.aio import AsyncClient
from nearcast.client.phone import AsyncPhone
from nearcast.clock import Micros, system_now
from nearcast.cpsl.composite import Composite
from nearcast.datasets.city import City
from nearcast.datasets.movers import Positions
from nearcast.errors import NearcastError
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Circle, Point
from nearcast.model.subscriptions import Subscription

__all__ = ["FRAME", "Crowd"]

#: Before the places of one step: how many there are, and how many steps all made so far.
FRAME = struct.Struct("<IQ")
_VANS, _TAXIS = 24, 30
_FENCES = ("old town", "station", "market", "harbour", "stadium")
_OFFERS_HZ, _OFFER_S, _POSITION_S = 4, 300, 4
_STEP_S, _TAXI_S = 1.0, 2.0
_CONNECTING = 12
"""People who are on their way to the server at a time."""
_FOREVER = 10**9
_SECOND: Micros = 1_000_000
_PATTERNS = {
    "two coffees": 'Q(2)(STRING: category = "coffee")',
    "idle taxi": (
        '!(STRING: taxi = &t, STRING: change = "released"; PT20S)'
        '(STRING: taxi = &t, STRING: change = "hired")'
    ),
}


class Crowd:
    """People, shops, vans and taxis of one town, and the connections they have."""

    def __init__(self, client: AsyncClient, people: int, seed: int) -> None:
        self._client = client
        city = City(seed=seed)
        self._city = city
        self.wishes = [
            wish_of(row)
            for batch in city.subscriptions(people, text_share=0.0)
            for row in batch.to_pylist()
        ]
        self._walk = city.walk(people, _FOREVER, _STEP_S)
        self._vans = City(seed=seed + 1).walk(_VANS, _FOREVER, _STEP_S)
        self._taxis = city.traces(_TAXIS, _FOREVER, _TAXI_S, batch_rows=1)
        self._occupied: list[bool] | None = None
        offers = city.offers(_FOREVER, 1024)
        self._offers = (row for batch in offers for row in batch.to_pylist())
        self._phones: dict[int, AsyncPhone] = {}
        self._busy: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.steps = 0

    async def run(self) -> None:
        """Live until cancelled, or until nobody reads where people are."""
        _tell(dumps({"names": [each.subscriber for each in self.wishes]}).encode() + b"\n")
        clock = asyncio.get_running_loop().time
        async with AsyncExitStack() as opened:
            self._begin(self._settle(opened))
            number = 0
            while True:
                began = clock()
                self._step(next(self._walk))
                events = [*self._driven(), *self._offered()]
                if number % round(_TAXI_S / _STEP_S) == 0:
                    events += self._hailed()
                number += 1
                if not self._tasks or len(self._tasks) < 4 * len(self.wishes):
                    self._begin(self._published(events))
                await asyncio.sleep(max(0.01, began + _STEP_S - clock()))

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- coming ----------------------------------------------------------------------

    async def _settle(self, opened: AsyncExitStack) -> None:
        """Fences and patterns first, then people, some at a time."""
        for fence in self._fences():
            await self._tried(self._client.subscribe(fence))
        for name, text in _PATTERNS.items():
            await self._tried(self._client.detect(Composite(name, "yard", text)))
        coming = iter(enumerate(self.wishes))

        async def come() -> None:
            for number, wish in coming:
                await self._tried(self._client.subscribe(wish))
                phone = self._client.phone(str(wish.subscriber))
                with suppress(NearcastError):
                    self._phones[number] = await opened.enter_async_context(phone)
                    self._begin(self._listen(phone))

        await asyncio.gather(*(come() for _ in range(_CONNECTING)))

    @staticmethod
    async def _tried(call: Any) -> None:
        """A server that is busy for longer than a client waits is no reason to leave."""
        with suppress(NearcastError):
            await call

    async def _listen(self, phone: AsyncIterator[Any]) -> None:
        with suppress(NearcastError):
            async for told in phone:
                await told.ack()

    def _fences(self) -> Iterator[Fence]:
        areas = self._city.hot_areas
        rows = zip(areas.lon, areas.lat, areas.reach_m, strict=True)
        for name, (lon, lat, reach) in zip(_FENCES, rows, strict=False):
            place = Circle(float(lon), float(lat), float(reach))
            on = {"enter", "exit", "dwell"}
            yield Fence(name, "yard", "van", place, on=on, margin_m=30, dwell=60)

    # -- a second of the city --------------------------------------------------------

    def _step(self, where: Positions) -> None:
        """Everybody is somewhere else now; who may be silent is."""
        self.steps += where.lon.size if len(self._phones) == len(self.wishes) else len(self._phones)
        places = np.column_stack([where.lon, where.lat])
        _tell(FRAME.pack(len(places), self.steps) + places.astype("<f8").tobytes())
        for number, phone in self._phones.items():
            place = Point(float(where.lon[number]), float(where.lat[number]))
            if number in self._busy or (phone.region is not None and phone.region.contains(place)):
                continue
            self._busy.add(number)
            self._begin(
                self._report(number, phone, place, float(where.heading[number]),
                             float(where.speed_m_s[number]))
            )  # fmt: skip

    async def _report(
        self, number: int, phone: AsyncPhone, place: Point, heading: float, speed: float
    ) -> None:
        try:
            await self._tried(phone.moved(place, heading=heading, speed=speed))
        finally:
            self._busy.discard(number)

    async def _published(self, events: list[Event]) -> None:
        await self._tried(self._client.publish_many(events))

    def _driven(self) -> Iterator[Event]:
        now = system_now()
        where = next(self._vans)
        for van, (lon, lat) in enumerate(zip(where.lon, where.lat, strict=True)):
            yield position(f"van-{van}", {"van": f"V{van}"}, float(lon), float(lat), now, "vans")

    def _hailed(self) -> Iterator[Event]:
        now = system_now()
        rows = next(self._taxis).to_pylist()
        before = self._occupied or [row["occupied"] for row in rows]
        self._occupied = [row["occupied"] for row in rows]
        for number, (row, was) in enumerate(zip(rows, before, strict=True)):
            said = {"taxi": f"T{number}", "state": "hired" if row["occupied"] else "free"}
            if row["occupied"] != was:
                said["change"] = "hired" if row["occupied"] else "released"
            yield position(f"taxi-{number}", said, row["lon"], row["lat"], now, "taxis")

    def _offered(self) -> Iterator[Event]:
        now = system_now()
        for row in islice(self._offers, _OFFERS_HZ):
            yield Event(
                f"{row['id']}-{now // _SECOND}", row["attributes"], row["keywords"] or (),
                Point(row["lon"], row["lat"]), end=now, expires=now + _OFFER_S * _SECOND,
                source="/city/shops",
            )  # fmt: skip


def position(
    name: str, said: dict[str, Any], lon: float, lat: float, now: Micros, kind: str
) -> Event:
    """Where something is now; it holds until the next one has come."""
    return Event(
        f"{name}-{now}", said, ("position",), Point(lon, lat), end=now,
        expires=now + _POSITION_S * _SECOND, source=f"/city/{kind}",
    )  # fmt: skip


def wish_of(row: dict[str, Any]) -> Subscription:
    """A person of the city who wants the same, wherever they are."""
    tests = []
    for each in row["intervals"] or ():
        if each["low"] > -np.inf:
            tests.append(f"{each['attribute']} >= {each['low']!r}")
        if each["high"] < np.inf:
            tests.append(f"{each['attribute']} <= {each['high']!r}")
    return Subscription(
        str(row["id"]), str(row["subscriber"]), " AND ".join(tests) or None,
        row["keywords"] or (), Around(row["radius_m"]),
    )  # fmt: skip


def _tell(data: bytes) -> None:
    """To whoever started the crowd; it ends when nobody reads."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def _main(url: str, people: int, seed: int) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _leave, asyncio.current_task())
    async with AsyncClient(url, key=os.environ.get("NEARCAST_KEY")) as client:
        with suppress(asyncio.CancelledError, BrokenPipeError):
            await Crowd(client, people, seed).run()


def _leave(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
