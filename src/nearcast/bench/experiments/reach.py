"""The broker among movers: what an event and a report cost. A part of `moving`.

Everybody wants every event, so only the place decides whom it concerns. The area and the rate of
events grow with the number of movers: as many are in reach of an event however many there are,
once as many events expire as come and everybody holds a region made with that known.
Whoever is asked reports from where it is, and some others walk on; what is told must be what is
in reach, by brute force.

Everything happens twice, from one seed: once to be timed, and once to be judged. To look at
everybody by brute force empties the processor's caches, the more so the more there are, and
what the next event then takes would grow with the judge's work, not with the broker's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import numpy as np

from nearcast.bench.experiments.base import Plan
from nearcast.bench.results import Claim, Measurement
from nearcast.bench.trial import Contender, Task, Timed, Trial
from nearcast.broker.service import Service
from nearcast.datasets.streams import generator
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Point
from nearcast.model.subscriptions import Subscription

__all__ = ["CONCERN", "SERVE", "claims", "trials"]

CONCERN = "reach: whom an event concerns, by movers"
SERVE = "reach: publish and move through the broker, by movers"
OURS, FILTER, BROKER = "impact index", "filter first", "broker"
_RADIUS, _SIDE, _WALKERS, _SECOND = 500.0, 40_000.0, 3, 1_000_000
_LIFE = 600 * _SECOND


def trials(plan: Plan) -> Iterator[Trial]:
    """For each number of movers: finding whom to ask, and the whole way."""
    events = plan.number("events")
    for movers in plan.numbers("movers"):
        ran = _Ran(movers, events, plan.seed)
        point = {"movers": movers}
        rivals = (
            Contender(OURS, partial(ran.task, "ours_s", "asked")),
            Contender(FILTER, partial(ran.task, "filter_s", "asked_by_filter")),
        )
        yield Trial(CONCERN, rivals, partial(ran.answer, "asked_by_all"), point, events,
                    "event", 1)  # fmt: skip
        whole = (Contender(BROKER, partial(ran.task, "publish_s", "told")),)
        yield Trial(SERVE, whole, partial(ran.answer, "in_reach"), point, events, "event", 1)


@dataclass
class _Ran:
    """Two runs over one crowd, which all contenders of a point share."""

    movers: int
    events: int
    seed: int
    done: bool = False
    ours_s: list[float] = field(default_factory=list)
    filter_s: list[float] = field(default_factory=list)
    publish_s: list[float] = field(default_factory=list)
    move_s: list[float] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)
    asked_by_filter: list[list[str]] = field(default_factory=list)
    asked_by_all: list[list[str]] = field(default_factory=list)
    told: list[list[str]] = field(default_factory=list)
    in_reach: list[list[str]] = field(default_factory=list)

    def task(self, seconds: str, answer: str) -> Task:
        """The run, timed and judged by some of what it gave."""

        def once() -> Timed:
            self._once()
            return Timed(sum(getattr(self, seconds)), None)

        return Task(once, answer=lambda _: self.answer(answer), memory=self._numbers)

    def answer(self, name: str) -> str:
        """One of the lists, as text."""
        self._once()
        return json.dumps(getattr(self, name))

    def _numbers(self) -> dict[str, int]:
        return {
            f"{name}_ns_p{share}": int(np.percentile(np.array(times) * 1e9, share))
            for name, times in (("publish", self.publish_s), ("move", self.move_s))
            for share in (50, 99)
        } | {"asked of 100": round(100 * sum(map(len, self.asked)) / self.events)}

    def _once(self) -> None:
        if self.done:
            return
        self.done = True
        self._live(judging=False)
        self._live(judging=True)
        self.ours_s = self.publish_s

    def _live(self, *, judging: bool) -> None:
        luck = generator(self.seed, "reach", self.movers)
        side = _SIDE * (self.movers / 2000) ** 0.5
        broker = Service(space="planar")
        anywhere = Matcher(space="planar")
        spots = side * luck.random((self.movers, 2))
        for i in range(self.movers):
            wish = Subscription(f"s{i}", f"p{i}", "price < 200", region=Around(_RADIUS))
            broker.subscribe(wish)
            anywhere.add_subscriptions([Subscription(f"s{i}", f"p{i}", "price < 200")])
        pairs: set[tuple[int, str]] = set()
        live: list[tuple[int, str, float, float]] = []
        pace = _SECOND * 2000 / self.movers
        before = max(self.events, math.ceil(_LIFE / pace))  # then as many expire as come
        settled = before + self.events  # first regions are larger: most have had a second by then
        for step in range(settled + self.events):
            counts = step >= settled
            now = round((step + 1) * pace)
            if step == before:  # by now it is known how often something happens, and where
                for i in luck.permutation(self.movers).tolist():
                    told = self._report(broker, i, spots, luck, timed=False)
                    pairs |= {(i, pair.split()[1]) for pair in told}
            x, y = (side * luck.random(2)).tolist()
            event = Event(f"e{step}", {"price": 1.0}, location=Point(x, y), end=now,
                          expires=now + _LIFE)  # fmt: skip
            started = perf_counter()
            reply = broker.publish(event)
            elapsed = perf_counter() - started
            if counts and judging:
                self._weigh(broker, anywhere, event)
            elif counts:
                self.publish_s.append(elapsed)
                self.asked.append(sorted(reply.location_requests))
            live = [entry for entry in live if entry[0] > now]
            live.append((now + _LIFE, event.id, x, y))
            if step < before:
                continue
            told = []
            reporting = [int(name[1:]) for name in reply.location_requests]
            for i in [*reporting, *luck.integers(0, self.movers, _WALKERS).tolist()]:
                if i not in reporting:
                    spots[i] += luck.normal(0.0, 60.0, 2)
                told += self._report(broker, i, spots, luck, timed=counts and not judging)
            if not counts:
                pairs |= {(int(id[1:]), event) for id, event in map(str.split, told)}
            elif judging:
                self._judge(spots, live, pairs)
            else:
                self.told.append(sorted(told))

    def _weigh(self, broker: Service, anywhere: Matcher, event: Event) -> None:
        """Whom an event concerns by brute force, and by filter; regions are what they were."""
        assert isinstance(event.location, Point)
        x, y = event.location.x, event.location.y
        impacts = [broker.impact_region(f"p{i}") for i in range(self.movers)]
        covering = [f"p{i}" for i, m in enumerate(impacts) if m and m.covers(x, y)]
        self.asked_by_all.append(sorted(covering))
        started = perf_counter()
        found = [int(id[1:]) for id in anywhere.match_event(event, now=event.end)]
        near = [f"p{i}" for i in found if (m := impacts[i]) and m.covers(x, y)]
        self.filter_s.append(perf_counter() - started)
        self.asked_by_filter.append(sorted(near))

    def _report(
        self, broker: Service, i: int, spots: np.ndarray, luck: np.random.Generator, *, timed: bool
    ) -> list[str]:
        place, heading = Point(*spots[i].tolist()), float(360 * luck.random())
        started = perf_counter()
        reply = broker.move(f"p{i}", place, heading=heading, speed=10.0)
        if timed:
            self.move_s.append(perf_counter() - started)
        return [f"{n.subscription_id} {n.event.id}" for n in reply]

    def _judge(
        self, spots: np.ndarray, live: list[tuple[int, str, float, float]],
        pairs: set[tuple[int, str]],
    ) -> None:  # fmt: skip
        """What had to be told in this step: in reach of anybody, and never before."""
        wanted = []
        for _, id, x, y in live:
            near = np.flatnonzero(np.hypot(spots[:, 0] - x, spots[:, 1] - y) <= _RADIUS)
            for i in near.tolist():
                if (i, id) not in pairs:
                    pairs.add((i, id))
                    wanted.append(f"s{i} {id}")
        self.in_reach.append(sorted(wanted))


def claims(measurements: Sequence[Measurement]) -> Iterator[Claim]:
    """An event ≤ 0.5 ms and a report ≤ 0.8 ms among 2000, and no growth with the number.

    Growth is beyond those whom an event asks, who are about as many.
    """
    ours = {m.parameters["movers"]: m for m in measurements if m.contender == BROKER}
    if 2000 in ours:
        m = ours[2000].memory
        yield Claim("reach: an event among 2000 movers, p50", m["publish_ns_p50"] / 1e6, "ms", 0.5,
                    "at most")  # fmt: skip
        yield Claim("reach: a report among 2000 movers, p50", m["move_ns_p50"] / 1e6, "ms", 0.8,
                    "at most")  # fmt: skip
    if len(ours) > 1:
        few, many = min(ours), max(ours)
        for movers in (few, many):
            yield Claim(f"reach: asked by an event among {movers} movers",
                        ours[movers].memory["asked of 100"] / 100, "movers")  # fmt: skip
        grown = ours[many].memory["publish_ns_p50"] / max(ours[few].memory["publish_ns_p50"], 1)
        yield Claim(f"reach: an event among {many} movers beside {few}", grown, "times", 1.5,
                    "at most")  # fmt: skip
