"""The demo's fences: who comes to a shop, stays, and goes again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter

import numpy as np

from nearcast.bench.maps import circles_map
from nearcast.bench.story import Chapter, Picture
from nearcast.bench.tables import Grid
from nearcast.bootstrap import Broker
from nearcast.broker.replies import Notification
from nearcast.cli.console import counting
from nearcast.cli.sections import Scene, can_draw
from nearcast.datasets import globe
from nearcast.datasets.city import City
from nearcast.datasets.movers import Positions
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Circle, Point

__all__ = ["crossings"]

_PEOPLE, _SHOPS, _STEPS, _STEP_S = 250, 300, 80, 5.0
_RADIUS_M, _MARGIN_M, _DWELL_S = 120.0, 20.0, 60
_TOLD = ("enter", "dwell", "exit")
_SHOWN_M = 2500.0


def crossings(scene: Scene) -> Chapter:
    """People walk past shops with fences about them; a plain loop must count the same."""
    street = _Street(City(seed=scene.seed), max(10, round(_PEOPLE * min(scene.scale, 4.0))))
    count = street.people * _STEPS
    assert street.positions
    started = perf_counter()
    with counting("people pass shops", count, quiet=scene.quiet) as advance:
        for taken in street.walk():
            advance(taken)
    seconds = perf_counter() - started
    lines = _told(street, count, seconds)
    for line in lines:
        scene.console.print(line, markup=False)
    pictures = [_picture(scene, street)] if can_draw() else []
    return Chapter("Fences", lines, _short(street, count / seconds), [_table(street)], pictures)


@dataclass(eq=False)
class _Street:
    """Shops with a fence each, people who pass by, and what the broker says of them."""

    city: City
    people: int
    told: list[Notification] = field(default_factory=list)

    @cached_property
    def positions(self) -> list[Positions]:
        return list(self.city.walk(self.people, _STEPS, _STEP_S))

    @cached_property
    def shops(self) -> tuple[list[float], list[float]]:
        shops = self.city.shops
        return shops.lon[:_SHOPS].tolist(), shops.lat[:_SHOPS].tolist()

    def walk(self) -> Iterator[int]:
        """Everybody reports a place, step by step."""
        broker = Broker()
        broker.subscribe_many(
            Fence(f"shop {i}", f"shop {i}", "person", Circle(lon, lat, _RADIUS_M), on=_TOLD,
                  margin_m=_MARGIN_M, dwell=_DWELL_S)
            for i, (lon, lat) in enumerate(zip(*self.shops, strict=True))
        )  # fmt: skip
        for step, places in enumerate(self.positions):
            until = places.ts + round(_STEP_S * 1e6)
            spots = zip(places.lon.tolist(), places.lat.tolist(), strict=True)
            self.told += broker.publish_many(
                Event(f"{i}.{step}", {"person": i}, (), Point(*spot), None, places.ts, until)
                for i, spot in enumerate(spots)
            )
            yield self.people
        self.told += broker.advance(self.positions[-1].ts)

    @property
    def counts(self) -> Counter[str]:
        return Counter(str(each.transition) for each in self.told)

    @property
    def visits(self) -> Counter[str]:
        """How many came in, by the fence."""
        return Counter(each.subscription_id for each in self.told if each.transition == "enter")

    @cached_property
    def truth(self) -> Counter[str]:
        """The same by comparing everybody with every shop at every step."""
        inside = np.zeros((self.people, len(self.shops[0])), bool)
        since = np.zeros(inside.shape, np.int64)
        found: Counter[str] = Counter()
        shops = np.array(self.shops)
        for places in self.positions:
            away = globe.haversine_m(places.lon[:, None], places.lat[:, None], *shops)
            stayed = since + _DWELL_S * 1_000_000
            came = ~inside & (away <= _RADIUS_M)
            left = inside & (away > _RADIUS_M + _MARGIN_M)
            found["enter"] += int(came.sum())
            found["exit"] += int(left.sum())
            found["dwell"] += int((left & (stayed < places.ts)).sum())
            since[came] = places.ts
            inside = (inside | came) & ~left
        stayed = since + _DWELL_S * 1_000_000
        found["dwell"] += int((inside & (stayed <= self.positions[-1].ts)).sum())
        return found


def _told(street: _Street, count: int, seconds: float) -> list[str]:
    counts = street.counts
    minutes = _STEPS * _STEP_S / 60
    agrees = (
        "A plain loop counts the same." if counts == street.truth else "A PLAIN LOOP DISAGREES."
    )
    return [
        f"\n{street.people} people pass {len(street.shops[0])} shops with a fence of "
        f"{_RADIUS_M:.0f} m each, for {minutes:.0f} minutes: {count:,} positions, "
        f"{count / seconds:,.0f} a second.",
        f"{counts['enter']:,} times somebody came, {counts['dwell']:,} times for a minute and "
        f"longer, {counts['exit']:,} times somebody left. {agrees}",
    ]


def _short(street: _Street, rate: float) -> str:
    same = "as" if street.counts == street.truth else "NOT as"
    return (
        f"{street.counts.total():,} crossings of {len(street.shops[0])} fences were told, {same} a "
        f"plain loop counts them; {rate:,.0f} positions a second"
    )


def _picture(scene: Scene, street: _Street) -> Picture:
    """The fences about the busiest one, by how many came."""
    centres, came = np.array(street.shops).T, street.visits
    visits = np.array([came[f"shop {number}"] for number in range(len(centres))])
    busiest = centres[visits.argmax()]
    near = globe.haversine_m(*centres.T, *busiest) <= _SHOWN_M
    caption = (
        f"Shops within {_SHOWN_M / 1000:g} km of the busiest one, each with its fence of "
        f"{_RADIUS_M:.0f} m. The stronger the amber, the more people came in ({visits.max()} at "
        "most); nobody came to grey ones. Look how the centre differs from the edges."
    )
    return circles_map(centres[near], _RADIUS_M, visits[near], scene.ground, caption)


def _table(street: _Street) -> Grid:
    """The shops that most people came to."""
    visits = Counter((each.subscription_id, str(each.transition)) for each in street.told)
    most = street.visits
    rows = tuple(
        (name, *(str(visits[name, word]) for word in _TOLD)) for name, _ in most.most_common(5)
    )
    return Grid("The busiest shops", ("shop", "came", "stayed", "left"), rows)
