"""People of the `city` with their phones on, and shops whose offers reach them: how soon?

Everybody walks, drives or rides, holds a safe region, and reports when that is left or the server
asks. Events come on time whatever the server does, and an event is published when it was to
come, not when a line was free: a server that is slow cannot make the load wait for it.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.bench.experiments.base import Plan
from nearcast.bench.load import Posts, Sockets, request
from nearcast.bench.serving.served import Served
from nearcast.bench.trial import Task
from nearcast.clock import format_micros, system_now
from nearcast.datasets.city import City
from nearcast.datasets.globe import haversine_m
from nearcast.errors import BenchError
from nearcast.mobility.messages import LocationRequest, NewRegion
from nearcast.mobility.mover import Mover
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.geometry import Around, Point
from nearcast.model.subscriptions import Subscription

__all__ = ["living"]

#: Everybody wants events of one kind within so many metres.
_REACH_M = 500.0
_STEP_S, _LIFE_S = 5.0, 60
_LINES = 16
_AT_ONCE = 64  # first reports that wait for an answer
_SURE_S, _LONG_S, _END_S, _AGAIN_S, _PATIENCE_S = 1.0, 4.0, 5.0, 1.0, 600.0
_WARM = 6  # the warm-up takes a part of the time
F8 = npt.NDArray[np.float64]


@dataclass
class _Heard:
    """What came of a run."""

    begun: float
    came: list[float] = field(default_factory=list)
    """When each event was to be published …"""
    kinds: list[int] = field(default_factory=list)
    at: list[tuple[float, float]] = field(default_factory=list)
    told: dict[tuple[int, int], float] = field(default_factory=dict)
    """… and when it was told: (mover, event)."""
    moves: list[list[tuple[float, int]]] = field(default_factory=list)
    """Since when each mover was at which step of its way."""
    reports: int = 0
    until: float = 0.0


class _Town:
    """A crowd with a socket each."""

    def __init__(self, plan: Plan) -> None:
        self.rate, self.seconds = plan.number("rate"), plan.number("seconds")
        self.size, self.kinds = plan.number("people"), plan.number("kinds")
        city = City(seed=plan.seed)
        self.rng = np.random.default_rng(plan.seed)
        self.shops = np.column_stack([city.shops.lon, city.shops.lat])
        steps = int((self.seconds * (1 + 1 / _WARM) + 2 + _PATIENCE_S / 10) / _STEP_S) + 3
        walked = list(city.walk(self.size, steps, _STEP_S))
        self.x, self.y = (np.stack([getattr(at, a) for at in walked]) for a in ("lon", "lat"))
        self.heading = np.stack([at.heading for at in walked])
        self.speed = np.stack([at.speed_m_s for at in walked])
        self.step = np.zeros(self.size, np.int64)
        self.phones = [Mover(f"p{i}") for i in range(self.size)]
        self.served = Served(
            (
                Subscription(f"s{i}", f"p{i}", f"kind = {i % self.kinds}", region=Around(_REACH_M))
                for i in range(self.size)
            ),
            "globe",
        )
        address = self.served.process.address
        self.sockets = Sockets(address, [phone.subscriber for phone in self.phones])
        self.posts = Posts(address, _LINES)
        self.seqs = [0] * self.size
        self.published = 0
        self.refused: deque[tuple[float, int]] = deque()
        """Who reports again, and when: the server was busy."""
        self.heard = _Heard(0.0)
        self._greet()

    # -- phones ----------------------------------------------------------------------

    def _place(self, i: int) -> Point:
        at = self.step[i]
        return Point(float(self.x[at, i]), float(self.y[at, i]))

    def _move(self, i: int) -> None:
        """A phone is somewhere: it reports, or does not."""
        at = self.step[i]
        place, heading, speed = self._place(i), float(self.heading[at, i]), float(self.speed[at, i])
        report = self.phones[i].moved(place, heading, speed)
        if report is not None:
            self.heard.reports += 1
            frame = {"type": "place", "coordinates": [place.x, place.y], "epoch": report.epoch}
            self.sockets.say(i, frame | {"heading": heading, "speed": speed})

    def _taken(self, i: int, text: bytes) -> None:
        frame: dict[str, Any] = json.loads(text)
        match frame["type"]:
            case "notifications":
                self._told(i, frame)
            case "region":
                region = SafeRegion.decode(b64decode(frame["safe_region"]))
                self.phones[i].received(NewRegion(self.phones[i].subscriber, region))
            case "request":
                self.phones[i].received(LocationRequest(f"p{i}", frame["after"]))
                self._move(i)
            case "error":
                if frame["problem"]["status"] != 429:
                    raise BenchError(f"a report was refused: {frame['problem']}")
                self.refused.append((time.perf_counter() + _AGAIN_S, i))

    def _told(self, i: int, frame: dict[str, Any]) -> None:
        now = time.perf_counter()
        for told in frame["notifications"]:
            self.seqs[i] += 1
            assert told["seq"] == self.seqs[i], "a notification is missing"
            number = int(told["event"]["id"][1:]) - self.published
            if number >= 0:
                self.heard.told[i, number] = now

    def _greet(self) -> None:
        """All report for the first time, some at a time."""
        until = time.perf_counter() + _PATIENCE_S
        waiting, asked = deque(range(self.size)), set[int]()
        while waiting or asked:
            asked = {i for i in asked if self.phones[i].region is None}
            while waiting and len(asked) < _AT_ONCE:
                i = waiting.popleft()
                asked.add(i)
                self._move(i)
            self._report_again()
            self.sockets.pump(self._taken, 0.2)
            if time.perf_counter() > until:
                raise BenchError("the server does not answer those who move")

    # -- a run -----------------------------------------------------------------------

    def live(self, seconds: float) -> _Heard:
        """Events come, everybody moves, and what is told is noted."""
        begun = time.perf_counter()
        self.heard = heard = _Heard(begun)
        first = self.step.copy()
        heard.moves = [[(begun, int(at))] for at in first]
        count = int(seconds * self.rate)
        turns = np.argsort(self.rng.random(self.size))  # who moves when within a step
        moved = stepped = 0
        while (now := time.perf_counter()) < begun + seconds + _END_S:
            late = (now - begun) * self.rate
            while moved < min(count, late):
                self._publish(begun + moved / self.rate)
                moved += 1
            due = (now - begun) * self.size / _STEP_S
            while stepped < due and now < begun + seconds:
                i = int(turns[stepped % self.size])
                self.step[i] = first[i] + stepped // self.size + 1
                heard.moves[i].append((time.perf_counter(), int(self.step[i])))
                self._move(i)
                stepped += 1
            self._pump()
        self._drain()
        self.published += count
        heard.until = begun + seconds + _END_S
        return heard

    def _pump(self) -> None:
        self.posts.pump()
        self._report_again()
        self.sockets.pump(self._taken, 0.0005)

    def _report_again(self) -> None:
        """Whom a busy server has refused."""
        while self.refused and self.refused[0][0] <= time.perf_counter():
            self._move(self.refused.popleft()[1])

    def _drain(self) -> None:
        """Until everything is answered, however late: what is told then is not lost."""
        told, since = len(self.heard.told), time.perf_counter()
        until = since + _PATIENCE_S
        while time.perf_counter() < min(since + _END_S, until):
            self._pump()
            if len(self.heard.told) > told or self.refused or self.posts.waiting:
                told, since = len(self.heard.told), time.perf_counter()

    def _publish(self, when: float) -> None:
        heard = self.heard
        x, y = self.shops[self.rng.integers(len(self.shops))] + 1e-4 * self.rng.standard_normal(2)
        kind = int(self.rng.integers(self.kinds))
        number = self.published + len(heard.came)
        heard.came.append(when)
        heard.kinds.append(kind)
        heard.at.append((float(x), float(y)))
        event = {
            "type": "Feature", "id": f"e{number}", "properties": {"kind": kind},
            "geometry": {"type": "Point", "coordinates": [float(x), float(y)]},
            "expirytime": format_micros(system_now() + _LIFE_S * 1_000_000),
        }  # fmt: skip
        self.posts.put(request("POST", "/events", event))

    # -- what should have been -------------------------------------------------------

    def judged(self, heard: _Heard) -> tuple[int, F8]:
        """How many pairs were never told, and how long those took that an event found in reach.

        Only what lasted is judged, for delays a second and for what is lost most of a step: where
        somebody was at the very moment when a request came is known to nobody.
        """
        came, kinds, at = np.array(heard.came), np.array(heard.kinds), np.array(heard.at)
        lost, delays = 0, list[float]()
        for i, moves in enumerate(heard.moves):
            mine = np.flatnonzero(kinds == i % self.kinds)
            begins = np.array([begin for begin, _ in moves])
            ends = np.append(begins[1:], heard.until)
            steps = [step for _, step in moves]
            away = haversine_m(
                self.x[steps, i][:, None], self.y[steps, i][:, None],
                at[mine, 0][None, :], at[mine, 1][None, :],
            )  # fmt: skip
            begun = np.maximum(begins[:, None], came[mine][None, :])
            over = np.minimum(ends[:, None], came[mine][None, :] + _LIFE_S)
            near, lasted = away <= _REACH_M, over - begun
            sure, surely = near & (lasted >= _SURE_S), near & (lasted >= _LONG_S)
            for at_event in np.flatnonzero(sure.any(axis=0)).tolist():
                number = int(mine[at_event])
                told = heard.told.get((i, number))
                lost += told is None and bool(surely[:, at_event].any())
                there = begins <= came[number]
                if told is not None and sure[np.flatnonzero(there)[-1], at_event]:
                    delays.append(told - float(came[number]))
        return lost, np.array(delays)

    def close(self) -> None:
        """Everybody goes home."""
        self.sockets.close()
        self.posts.close()
        self.served.close()


def living(plan: Plan) -> Task:
    """A minute in town."""
    town = _Town(plan)
    lasts = [max(2.0, town.seconds / _WARM)]
    found: dict[str, int] = {}

    def run() -> object:
        seconds = lasts[-1]
        lasts.append(float(town.seconds))
        return town.served.timed(lambda: town.live(seconds))

    def answer(heard: _Heard) -> int:
        lost, delays = town.judged(heard)
        if not delays.size:
            raise BenchError("nobody was told anything; take more people or seconds")
        events = len(heard.came)
        for share in (50, 99):
            found[f"p{share} µs"] = round(1e6 * float(np.percentile(delays, share)))
        found["lost"] = lost
        found["told of 1000"] = round(1000 * len(heard.told) / events)
        found["reports of 1000"] = round(1000 * heard.reports / events)
        return lost

    return Task(
        run, answer=answer, close=town.close,
        memory=lambda: found | town.served.cost(town.seconds * town.rate),
    )  # fmt: skip
