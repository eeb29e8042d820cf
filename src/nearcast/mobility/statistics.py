"""What the server has learnt: how often and where events arrive, who wants them, who moves how.

Everything is kept incrementally and forgets: an arrival, a match or a report costs a few
numbers. Time is in microseconds, rates are per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.clock import Micros
from nearcast.mobility import kernels
from nearcast.mobility.plane import EARTH_RADIUS_M, bearing, distance
from nearcast.model.geometry import Space

__all__ = ["TURNS", "Arrivals", "Density", "Field", "Motion", "Turns"]

Floats = npt.NDArray[np.float64]
_DEGREE_M = math.pi * EARTH_RADIUS_M / 180
_SLOTS = 1 << 16
_BOUND = 2.0**40
#: Some places of the unit circle, spread evenly.
_SPREAD = np.array(
    [
        (
            math.sqrt((k + 0.5) / 9) * math.cos(2.39996 * k),
            math.sqrt((k + 0.5) / 9) * math.sin(2.39996 * k),
        )
        for k in range(9)
    ]
)


@dataclass(slots=True)
class _Decayed:
    """A count that forgets with time constant `tau_s`, and how much time it has seen."""

    tau_s: float
    value: float = 0.0
    elapsed_s: float = 0.0
    last: Micros | None = None

    def add(self, count: float, now: Micros) -> None:
        if self.last is not None and now > self.last:
            passed = (now - self.last) / 1e6
            keep = math.exp(-passed / self.tau_s)
            self.value *= keep
            self.elapsed_s = self.elapsed_s * keep + self.tau_s * (1 - keep)
        self.last = now if self.last is None else max(now, self.last)
        self.value += count

    def rate(self, now: Micros) -> float:
        self.add(0.0, now)
        return self.value / self.elapsed_s if self.elapsed_s > 0 else 0.0


class Arrivals:
    """Events per second: over the last minutes where enough arrive, else over the last hours."""

    def __init__(self, quick_s: float = 100.0, slow_s: float = 7200.0) -> None:
        self._quick, self._slow = _Decayed(quick_s), _Decayed(slow_s)

    def add(self, count: int, now: Micros) -> None:
        """Count arrivals."""
        self._quick.add(count, now)
        self._slow.add(count, now)

    def rate(self, now: Micros) -> float:
        """Events per second at present."""
        quick = self._quick.rate(now)
        return quick if self._quick.value >= 30 else self._slow.rate(now)


class Field(NamedTuple):
    """Arrivals per second and unit of area, by place: numbers as kernels take them.

    It is right until the next arrival is counted.
    """

    counts: Floats
    unit: float
    area: float
    blur: float
    total: float
    rate: float
    globe: bool
    bound: float

    def at(self, x: float, y: float) -> float:
        """At one place."""
        found: float = kernels.density_at(self, x, y)
        return found

    def __call__(self, x: Floats, y: Floats) -> Floats:
        """At many."""
        return np.array([self.at(*place) for place in zip(x, y, strict=True)], np.float64)


class Density:
    """Where events arrive: decayed counts on a lattice, hashed into a fixed table.

    `side` is the lattice's cell in units of the space (metres on the globe). Two cells that
    share a slot are taken for one: that costs messages, never a notification.
    """

    def __init__(self, space: Space, side: float, tau_s: float = 6 * 3600.0) -> None:
        self.space: Space = space
        self.side = side
        self._unit = side / _DEGREE_M if space == "globe" else side
        self._tau_s = tau_s
        self._count = np.zeros(_SLOTS)
        self._scale = 1.0
        self._total = 0.0
        self._used = 0
        self._start: Micros | None = None

    def _slots(self, x: Any, y: Any) -> npt.NDArray[np.int64]:
        xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
        slots: npt.NDArray[np.int64] = kernels.slots_of(
            xs.ravel(), ys.ravel(), self._unit, _BOUND, _SLOTS - 1
        )
        return slots.reshape(xs.shape)

    def _slot(self, x: float, y: float) -> int:
        """The same for one place."""
        unit = self._unit
        column = math.floor(min(max(x / unit, -_BOUND), _BOUND))
        row = math.floor(min(max(y / unit, -_BOUND), _BOUND))
        mixed = column * 73_856_093 ^ row * 19_349_663
        return (mixed ^ (mixed >> 17)) & (_SLOTS - 1)

    def add(self, x: Any, y: Any, now: Micros) -> None:
        """Count arrivals at these places. A new one weighs more than all older ones (e^t/τ)."""
        weight = self._weight(now)
        slots = self._slots(x, y)
        np.add.at(self._count, slots, weight)
        self._total += weight * slots.size
        self._used = 0

    def add_one(self, x: float, y: float, now: Micros) -> None:
        """The same for one arrival, in a tenth of the time."""
        slot = self._slot(x, y)
        weight = self._weight(now)
        if self._used and self._count[slot] == 0.0:
            self._used += 1
        self._count[slot] += weight
        self._total += weight

    def _weight(self, now: Micros) -> float:
        if self._start is None:
            self._start = now
        age = (now - self._start) / 1e6 / self._tau_s
        if age > 50:  # the weights grow out of hand: scale all of them down
            factor = math.exp(-min(age, 700.0))
            self._count *= factor
            self._total *= factor
            self._start, age = now, 0.0
        return math.exp(max(age, -50.0))

    def share(self, x: Any, y: Any) -> Floats:
        """The probability that an event falls here, per unit of area (m² on the globe)."""
        slots = self._slots(x, y)
        if self._total <= 0.0:
            return np.zeros(slots.shape)
        area = np.full(slots.shape, self.side * self.side)
        if self.space == "globe":
            area *= np.maximum(np.cos(np.radians(np.asarray(y, np.float64))), 0.01)
        shares: Floats = (self._count[slots] + self._blur()) / (self._total * 1.02) / area
        return shares

    def field(self, rate: float) -> Field:
        """Where so many arrivals a second fall, as far as is known now."""
        blur = self._blur() if self._total > 0.0 else 0.0
        area = self.side * self.side
        globe = self.space == "globe"
        return Field(self._count, self._unit, area, blur, self._total, rate, globe, _BOUND)

    def _blur(self) -> float:
        """A little everywhere: nowhere is for ever quiet."""
        if self._used == 0:
            self._used = max(int(np.count_nonzero(self._count)), 1)
        return 0.02 * self._total / self._used

    def within(self, x: float, y: float, radius: float) -> float:
        """The probability that an event falls into a circle, from a few places in it."""
        if radius <= 0.0 or self._total <= 0.0:
            return 0.0
        up, across, area = radius, radius, self.side * self.side
        if self.space == "globe":
            cos = max(math.cos(math.radians(y)), 0.01)
            up, across, area = up / _DEGREE_M, up / _DEGREE_M / cos, area * cos
        blur = self._blur()
        unit = self._unit
        mean: float = kernels.mean_count(self._count, unit, _BOUND, x, y, across, up, _SPREAD)
        share = (mean + blur) / (self._total * 1.02) / area
        return min(share * math.pi * radius**2, 1.0)


#: By how many degrees a subscriber's way may turn off its heading, as bins.
TURNS = np.array([1.5, 5.5, 11.5, 20.0, 32.0, 50.0, 75.0, 112.0, 157.0])
_TURN_EDGES = np.array([3.0, 8.0, 15.0, 25.0, 40.0, 60.0, 90.0, 135.0])
_TURNS_AT_FIRST = np.array([2.0, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.75])


class Turns:
    """How far subscribers turn off the heading they had at their last report."""

    def __init__(self, trust: float = 20.0) -> None:
        self._count = _TURNS_AT_FIRST * 1.0
        self._trust = trust

    def add(self, degrees: float, weight: float) -> int:
        """Count one; returns its bin."""
        at = int(np.searchsorted(_TURN_EDGES, degrees))
        if self._count.sum() > 2000:
            self._count *= 0.5
        self._count[at] += weight
        return at

    def weights(self, own: Floats) -> Floats:
        """The distribution for one subscriber: its own counts, and everybody's as a prior."""
        mixed: Floats = own + self._trust * self._count / self._count.sum()
        mixed /= mixed.sum()
        return mixed


@dataclass(slots=True)
class Motion:
    """One subscriber's last report, speed and heading, and the turns it took."""

    x: float
    y: float
    at: Micros
    speed: float = 0.0
    heading: float | None = None
    turns: Floats = field(default_factory=lambda: np.zeros(TURNS.size))
    known: bool = False

    def report(
        self, space: Space, x: float, y: float, now: Micros, speed: float | None,
        heading: float | None, turns: Turns, size: float = 0.0,
    ) -> None:  # fmt: skip
        """Take a report: displacement says how fast; a given heading, or it, says where to.

        A turn counts by how much of a region of this `size` was crossed meanwhile: after a
        few steps everybody still goes straight on.
        """
        passed_s = (now - self.at) / 1e6
        moved_m = distance(space, self.x, self.y, x, y)
        course = None
        if moved_m > 0:
            course = bearing(space, self.x, self.y, x, y)
        if passed_s > 0:
            observed = moved_m / passed_s
            if not self.known:
                self.speed = observed if speed is None else max(speed, observed)
                self.known = True
            else:
                keep = math.exp(-passed_s / 60.0)
                blend = observed if speed is None else (observed + speed) / 2
                self.speed = keep * self.speed + (1 - keep) * blend
            if course is not None and self.heading is not None:
                turned = abs((course - self.heading + 180) % 360 - 180)
                weight = min(1.0, moved_m / size) if size > 0 else 1.0
                bin_ = turns.add(turned, weight)
                if self.turns.sum() > 40:
                    self.turns *= 0.5
                self.turns[bin_] += weight
        elif not self.known and speed is not None:
            self.speed = speed
        if heading is not None:
            self.heading = heading % 360
        elif course is not None:
            self.heading = course
        self.x, self.y, self.at = x, y, max(now, self.at)
