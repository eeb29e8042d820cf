"""A city that lives in a server: people walk and are told of offers, vans cross fences.

Everything goes through the core as anybody's calls would, one call a second. People hold safe
regions, so most of them are silent most of the time; they acknowledge what they were told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from nearcast.broker.replies import Reply
from nearcast.broker.service import Service
from nearcast.clock import Micros, system_now
from nearcast.cpsl.composite import Composite
from nearcast.datasets.city import City
from nearcast.datasets.movers import Positions
from nearcast.errors import NearcastError
from nearcast.mobility.messages import LocationRequest
from nearcast.mobility.mover import Mover
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Circle, Point
from nearcast.model.subscriptions import Subscription
from nearcast.server.core import Answer
from nearcast.server.desk import Desk
from nearcast.server.feeds import Who
from nearcast.server.logs import log

__all__ = ["CityLife"]

_PEOPLE, _VANS, _FENCES = 60, 12, 4
_OFFERS_HZ, _OFFER_S, _POSITION_S = 4, 600, 30
_STEP_S = 1.0
_FOREVER = 10**9
_SECOND: Micros = 1_000_000


@dataclass(eq=False)
class CityLife:
    """People, vans and shops of one town, step by step."""

    desk: Desk
    seed: int = 7
    phones: list[Mover] = field(default_factory=list)
    told: int = 0
    """How many notifications people and the yard have had."""

    async def run(self) -> None:
        """Live until cancelled; a server that is busy or stops is waited for."""
        people, vans, offers = await asyncio.to_thread(self._begin)
        await self._step(self._subscribed)
        log.info("a city lives here", people=_PEOPLE, vans=_VANS, offers_a_second=_OFFERS_HZ)
        while not self.desk.feeds.ended:
            began = asyncio.get_running_loop().time()
            where, driving = next(people), next(vans)
            some = list(islice(offers, _OFFERS_HZ))
            await self._step(partial(self._lived, where=where, driving=driving, offers=some))
            await asyncio.sleep(max(0.0, began + _STEP_S - asyncio.get_running_loop().time()))

    async def _step(self, act: Any) -> None:
        try:
            await self.desk.core.submit("", lambda broker: Answer(None, (*act(broker),)))
        except NearcastError as error:
            log.warning("the city waits", error=str(error))

    def _begin(self) -> tuple[Iterator[Positions], Iterator[Positions], Iterator[dict[str, Any]]]:
        """Draw the town; some seconds where kernels are not compiled yet."""
        city = City(seed=self.seed)
        self._areas = city.hot_areas
        self._wishes = [
            wish_of(row)
            for batch in city.subscriptions(_PEOPLE, text_share=0.0)
            for row in batch.to_pylist()
        ]
        self.phones = [Mover(str(each.subscriber)) for each in self._wishes]
        rows = (row for batch in city.offers(_FOREVER, 1024) for row in batch.to_pylist())
        walking = city.walk(_PEOPLE, _FOREVER, _STEP_S)
        return walking, City(seed=self.seed).walk(_VANS, _FOREVER, _STEP_S), rows

    def _subscribed(self, broker: Service) -> Iterator[Reply]:
        for wish in self._wishes:
            yield broker.subscribe(wish)
        areas = zip(self._areas.lon, self._areas.lat, self._areas.reach_m, strict=True)
        for number, (lon, lat, reach) in enumerate(islice(areas, _FENCES)):
            yield broker.subscribe(
                Fence(
                    f"area-{number}",
                    "yard",
                    "van",
                    Circle(float(lon), float(lat), float(reach)),
                    on={"enter", "exit", "dwell"},
                    margin_m=30,
                    dwell=60,
                )
            )
        yield broker.detect(Composite("two sales", "yard", 'Q(2)(STRING: category = "coffee")'))

    def _lived(
        self, broker: Service, where: Positions, driving: Positions, offers: list[dict[str, Any]]
    ) -> Iterator[Reply]:
        """One second of the city."""
        now = broker.now or system_now()
        events = [offer_of(row, now) for row in offers]
        for van, (lon, lat) in enumerate(zip(driving.lon, driving.lat, strict=True)):
            events.append(
                Event(
                    f"van-{van}-{now}",
                    {"van": f"V{van}"},
                    ("position",),
                    Point(float(lon), float(lat)),
                    expires=now + _POSITION_S * _SECOND,
                    source="/city/vans",
                )
            )
        yield broker.publish_many(events)
        yield from self._walked(broker, where)
        for name in ("yard", *(phone.subscriber for phone in self.phones)):
            page = broker.notifications(name, None, 1000)
            if page.notifications:
                self.told += len(page.notifications)
                yield broker.ack(name, page.next)

    def _walked(self, broker: Service, where: Positions) -> Iterator[Reply]:
        columns = (where.lon, where.lat, where.heading, where.speed_m_s)
        for phone, *at in zip(self.phones, *(c.tolist() for c in columns), strict=True):
            lon, lat, heading, speed = at
            asked = self.desk.feeds.asked(Who("", phone.subscriber))
            if asked is not None and asked >= phone.epoch:
                phone.received(LocationRequest(phone.subscriber, asked))
            report = phone.moved(Point(lon, lat), heading, speed)
            if report is not None:
                reply = broker.move(
                    phone.subscriber, report.place, heading=heading, speed=speed,
                    epoch=report.epoch,
                )  # fmt: skip
                for message in reply.messages(phone.subscriber):
                    phone.received(message)
                yield reply


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


def offer_of(row: dict[str, Any], now: Micros) -> Event:
    """An offer of the city's, made now."""
    return Event(
        f"{row['id']}-{now}", row["attributes"], row["keywords"] or (),
        Point(row["lon"], row["lat"]), expires=now + _OFFER_S * _SECOND, source="/city/shops",
    )  # fmt: skip
