"""The demo's people on the move: offers follow them, and their phones mostly keep silent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter

import numpy as np
import numpy.typing as npt

from nearcast.bench.maps import Regions, region_map
from nearcast.bench.story import Chapter, Picture
from nearcast.bench.tables import Grid
from nearcast.bootstrap import Broker
from nearcast.broker.replies import Reply
from nearcast.cli.console import counting, watching
from nearcast.cli.explained import event_of
from nearcast.cli.sections import Scene, can_draw
from nearcast.clock import to_micros
from nearcast.datasets import globe
from nearcast.datasets.base import EPOCH
from nearcast.datasets.city import City
from nearcast.datasets.movers import Positions
from nearcast.matcher import Matcher
from nearcast.mobility.mover import Mover
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Point
from nearcast.model.subscriptions import Subscription

__all__ = ["walkers"]

Array = npt.NDArray[np.float64]
_PEOPLE, _STEPS, _STEP_S = 100, 240, 5.0
_RATE_HZ, _BEFORE_S = 2.0, 1200.0  # offers a second, and for how long before people set out
_DOTS = 160  # of the picture, across


def walkers(scene: Scene) -> Chapter:
    """People walk, offers appear; count messages, and check that nobody missed anything."""
    people = max(2, round(_PEOPLE * min(scene.scale, 10.0)))
    with watching(quiet=scene.quiet) as say:
        say("people set out …")
        walk = _Walk(City(seed=scene.seed), people)
    seconds = _walked(walk, scene.quiet)
    lines = _told(walk, seconds)
    for line in lines:
        scene.console.print(line, markup=False)
    return Chapter(
        "People on the move", lines, _short(walk), [_costs(walk)], _pictures(scene, walk)
    )


@dataclass(eq=False)
class _Walk:
    """A broker, a phone for everybody, and what went to and fro."""

    city: City
    people: int
    broker: Broker = field(default_factory=Broker)
    reported: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    asked: int = 0
    region_bytes: int = 0
    told: dict[tuple[str, str], int] = field(default_factory=dict)
    repeated: int = 0

    @cached_property
    def start(self) -> int:
        return to_micros(EPOCH) + round(_BEFORE_S * 1e6)

    @cached_property
    def positions(self) -> list[Positions]:
        return list(self.city.walk(self.people, _STEPS, _STEP_S, self.start))

    @cached_property
    def subscriptions(self) -> list[Subscription]:
        rows = [
            row
            for batch in self.city.subscriptions(self.people, text_share=0.0)
            for row in batch.to_pylist()
        ]
        return [_wish(row) for row in rows]

    @cached_property
    def offers(self) -> list[Event]:
        count = round(_RATE_HZ * (_BEFORE_S + _STEPS * _STEP_S))
        batches = self.city.offers(count, rate_hz=_RATE_HZ)
        return [event_of(row) for batch in batches for row in batch.to_pylist()]

    @cached_property
    def phones(self) -> list[Mover]:
        return [Mover(str(s.subscriber)) for s in self.subscriptions]

    def steps(self) -> Iterator[int]:
        """One step after the other: what was offered until then appears, then everybody moves."""
        for subscription in self.subscriptions:
            self.broker.subscribe(subscription)
        by_name = {phone.subscriber: phone for phone in self.phones}
        waiting = iter([*self.offers, None])
        offer = next(waiting)
        for step, positions in enumerate(self.positions):
            while offer is not None and (offer.end or 0) <= positions.ts:
                reply = self.broker.publish(offer)
                for name in reply.location_requests:
                    self.asked += 1
                    self._heard(by_name[name], reply, step)
                offer = next(waiting)
            self.broker.advance(positions.ts)
            self._move(step, positions)
            yield step

    def _move(self, step: int, positions: Positions) -> None:
        columns = (positions.lon, positions.lat, positions.heading, positions.speed_m_s)
        for phone, *numbers in zip(self.phones, *(c.tolist() for c in columns), strict=True):
            lon, lat, heading, speed = numbers
            report = phone.moved(Point(lon, lat), heading, speed)
            if report is not None:
                self.reported.setdefault(phone.subscriber, []).append((lon, lat))
                reply = self.broker.move(
                    phone.subscriber, report.place, heading=heading, speed=speed,
                    epoch=report.epoch,
                )  # fmt: skip
                self._heard(phone, reply, step)

    def _heard(self, phone: Mover, reply: Reply, step: int) -> None:
        for message in reply.messages(phone.subscriber):
            phone.received(message)
        for region in reply.safe_regions.values():
            self.region_bytes += len(region.encode())
        for told in reply:
            pair = told.subscription_id, told.event.id
            self.repeated += pair in self.told
            self.told.setdefault(pair, step)

    @property
    def reports(self) -> int:
        return sum(map(len, self.reported.values()))

    @cached_property
    def wanted(self) -> dict[str, list[Event]]:
        """Subscription → offers it wants wherever they are; by a scan, apart from the broker."""
        matcher = Matcher(index="scan")
        matcher.add_subscriptions(
            [Subscription(s.id, None, s.filter, s.keywords) for s in self.subscriptions]
        )
        found: dict[str, list[Event]] = {s.id: [] for s in self.subscriptions}
        rows, ids = matcher.match_numbers(self.offers)
        for row, id in zip(rows.tolist(), ids, strict=True):
            found[id].append(self.offers[row])
        return found

    @cached_property
    def truth(self) -> dict[tuple[str, str], int]:
        """Pair → the step in which somebody who reports every step is told."""
        lon, lat = (np.array([getattr(p, name) for p in self.positions]) for name in ("lon", "lat"))
        times = np.array([p.ts for p in self.positions])
        truth: dict[tuple[str, str], int] = {}
        for i, subscription in enumerate(self.subscriptions):
            assert isinstance(subscription.region, Around)
            for offer in self.wanted[subscription.id]:
                assert isinstance(offer.location, Point)
                gap = globe.haversine_m(lon[:, i], lat[:, i], offer.location.x, offer.location.y)
                near = (gap <= subscription.region.reach_m) & (times >= (offer.end or 0))
                if offer.expires is not None:
                    near &= times < offer.expires
                if near.any():
                    truth[subscription.id, offer.id] = int(np.argmax(near))
        return truth


def _wish(row: dict[str, object]) -> Subscription:
    """A person of the city who wants the same, wherever they are."""
    tests = []
    intervals = row["intervals"]
    assert isinstance(intervals, list)
    for each in intervals:
        if each["low"] > -np.inf:
            tests.append(f"{each['attribute']} >= {each['low']!r}")
        if each["high"] < np.inf:
            tests.append(f"{each['attribute']} <= {each['high']!r}")
    words, radius = row["keywords"], row["radius_m"]
    assert isinstance(radius, float)
    return Subscription(
        id=str(row["id"]), subscriber=str(row["subscriber"]), where=" AND ".join(tests) or None,
        keywords=words if isinstance(words, list) else (), region=Around(radius),
    )  # fmt: skip


def _walked(walk: _Walk, quiet: bool) -> float:
    started = perf_counter()
    with counting("walking", _STEPS, quiet=quiet) as advance:
        for _ in walk.steps():
            advance(1)
    return perf_counter() - started


def _short(walk: _Walk) -> str:
    every, missed = walk.people * _STEPS, sum(pair not in walk.told for pair in walk.truth)
    return (
        f"{every:,} steps took {walk.reports:,} reports, {every / max(walk.reports, 1):.0f} × "
        f"fewer; {len(walk.told):,} offers arrived, {missed} missed"
    )


def _told(walk: _Walk, seconds: float) -> list[str]:
    every = walk.people * _STEPS
    truth = walk.truth
    missed = sum(pair not in walk.told for pair in truth)
    late = sum(walk.told.get(pair, step) > step for pair, step in truth.items())
    wrong = sum(pair not in truth for pair in walk.told) + walk.repeated
    verdict = "Nobody missed anything" if not missed else f"{missed:,} WERE MISSED"
    return [
        f"\n{walk.people:,} people walk, ride and drive for {_STEPS * _STEP_S / 60:.0f} minutes, "
        f"and {len(walk.offers):,} offers appear, simulated in {seconds:.1f} s.",
        f"Reporting every {_STEP_S:.0f} s would take {every:,} messages; with safe regions "
        f"{walk.reports:,} do, {every / max(walk.reports, 1):.0f} × fewer.",
        f"{len(walk.told):,} offers reached somebody who wants them. {verdict}: {missed} missed, "
        f"{late} late, {wrong} wrong or twice, of {len(truth):,}.",
    ]


def _costs(walk: _Walk) -> Grid:
    every = walk.people * _STEPS
    rows = (
        ("reporting every step", f"{every:,}", "0", "0"),
        (
            "safe regions",
            f"{walk.reports:,}",
            f"{walk.asked:,}",
            f"{walk.region_bytes / max(walk.reports, 1):,.0f}",
        ),
    )
    return Grid("messages", ("", "reports", "requests", "bytes per region"), rows)


def _pictures(scene: Scene, walk: _Walk) -> list[Picture]:
    if not can_draw():
        return []
    best = max(range(walk.people), key=lambda i: _interest(walk, i))
    subscription, phone = walk.subscriptions[best], walk.phones[best]
    impact = walk.broker.impact_region(phone.subscriber)
    circle = None if impact is None else impact.around()
    if impact is None or circle is None or phone.region is None or circle[2] <= 0:
        return []
    lon, lat = _window(*circle)
    kind = np.zeros((lat.size, lon.size))
    for row, y in enumerate(lat.tolist()):
        for column, x in enumerate(lon.tolist()):
            safe = phone.region.contains(Point(x, y))
            kind[row, column] = 2.0 if safe else 1.0 if impact.covers(x, y) else 0.0
    spots = [
        (offer.location.x, offer.location.y)
        for offer in walk.wanted[subscription.id]
        if isinstance(offer.location, Point)
    ]
    path = np.array([(p.lon[best], p.lat[best]) for p in walk.positions])
    assert isinstance(subscription.region, Around)
    reports = np.array(walk.reported[phone.subscriber])
    reach = subscription.region.reach_m
    caption = (
        f"One person on the way (blue): of {_STEPS} steps only the {len(reports)} white rings were "
        "reported. While the phone stays in its safe region (green) it keeps silent. A new offer "
        f"that this person wants in the impact region (amber), within {reach:,.0f} m of the "
        "green, would make the broker ask where it is."
    )
    regions = Regions(lon, lat, kind, reach)
    offers = np.array(spots).reshape(-1, 2)
    return [region_map(regions, offers, path, reports, scene.ground, caption)]


def _interest(walk: _Walk, i: int) -> tuple[int, int]:
    """Somebody with a region of an end, who wants many offers."""
    impact = walk.broker.impact_region(walk.phones[i].subscriber)
    bounded = impact is not None and impact.around() is not None
    silent = walk.phones[i].region is not None
    return int(bounded and silent), len(walk.wanted[walk.subscriptions[i].id])


def _window(x: float, y: float, radius_m: float) -> tuple[Array, Array]:
    """Longitudes and latitudes of a square round a circle."""
    up = 1.1 * radius_m / 111_195.0
    across = up / max(float(np.cos(np.radians(y))), 0.05)
    return np.linspace(x - across, x + across, _DOTS), np.linspace(y - up, y + up, _DOTS)
