"""Things that move along roads, after Brinkhoff's generator of network-based objects.

Everybody travels the shortest way to a target, stays a while and chooses the next. The
speed is the road's or the mover's own limit, whichever is lower. A step costs a few NumPy
passes over all movers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.clock import Micros
from nearcast.datasets.globe import haversine_m
from nearcast.datasets.popularity import Popularity
from nearcast.datasets.roads import MOTORWAY, SPEED_M_S
from nearcast.datasets.streams import generator
from nearcast.datasets.town import Town

__all__ = ["Movers", "Positions", "Routes", "Taxis", "people"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

BY_CAR, ON_FOOT = 0, 1
_MOTORWAY_ON_FOOT = 20.0  # how much longer a motorway seems to those who may not walk on it
_HAIL = 0.05
_MOST_CHOICES = 8


class Positions(NamedTuple):
    """Where everybody is at one instant; `speed_m_s` is the mean since the last one."""

    ts: Micros
    lon: Array
    lat: Array
    heading: Array
    speed_m_s: Array
    occupied: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Routes:
    """Targets in a town, how much they attract, and the way to each one from everywhere."""

    targets: Indices
    crowd: Popularity
    way: NDArray[np.int32]

    @classmethod
    def drawn(cls, rng: np.random.Generator, town: Town, count: int) -> Routes:
        """`count` targets, more where it is busy, with ways by car and on foot."""
        from nearcast.datasets.kernels import ways_to

        arcs = town.roads.arcs
        kerbs = town.roads.kerbside
        busy = Popularity(0.15 + town.heat[kerbs])
        wanted = kerbs[busy.sets(rng, np.array([min(count, kerbs.size)]))]
        shunned = np.where(arcs.speed_m_s == SPEED_M_S[MOTORWAY], _MOTORWAY_ON_FOOT, 1.0)
        costs = (arcs.length_m / arcs.speed_m_s, arcs.length_m * shunned)
        ways = [ways_to(arcs.first, arcs.head, arcs.reverse, cost, wanted) for cost in costs]
        return cls(wanted, Popularity(np.sqrt(0.05 + town.heat[wanted])), np.concatenate(ways))


class Movers:
    """A crowd on the roads; `walk` yields its positions step by step, the same for one seed."""

    def __init__(
        self,
        town: Town,
        routes: Routes,
        seed: int,
        stream: str,
        top_m_s: Array,
        mode: Indices,
        choices: Indices,
    ) -> None:
        self._roads, self._routes = town.roads, routes
        self._seed, self._stream = seed, stream
        self._top_m_s, self._mode, self._choices = top_m_s, mode, choices
        self.size = top_m_s.size
        rng = generator(seed, f"{stream}: start")
        everyone = np.arange(self.size)
        kerbs = town.roads.kerbside
        node = kerbs[Popularity(0.1 + town.heat[kerbs]).draw(rng, self.size)]
        self._target = np.zeros(self.size, np.int64)
        self._arc = np.zeros(self.size, np.int64)
        self._along_m = np.zeros(self.size)
        self._pause_s = np.zeros(self.size)
        self._occupied = np.zeros(self.size, np.bool_)
        self._choose(everyone, node, rng)
        self._leave(everyone, node)
        self._along_m = rng.random(self.size) * self._roads.arcs.length_m[self._arc]

    def walk(self, start: Micros, steps: int, step_s: float) -> Iterator[Positions]:
        """`steps` positions, the first at `start`, then one every `step_s` seconds."""
        still = np.zeros(self.size)
        yield self._positions(start, still)
        for number in range(1, steps):
            rng = generator(self._seed, self._stream, number)
            moved_m = self._step(rng, step_s)
            yield self._positions(start + round(number * step_s * 1e6), moved_m / step_s)

    def _positions(self, ts: Micros, speed_m_s: Array) -> Positions:
        arcs, roads = self._roads.arcs, self._roads
        i, j = arcs.tail[self._arc], arcs.head[self._arc]
        share = self._along_m / arcs.length_m[self._arc]
        lon = roads.lon[i] + share * (roads.lon[j] - roads.lon[i])
        lat = roads.lat[i] + share * (roads.lat[j] - roads.lat[i])
        return Positions(ts, lon, lat, arcs.heading[self._arc], speed_m_s, self._occupied.copy())

    def _step(self, rng: np.random.Generator, step_s: float) -> Array:
        """Everybody moves for `step_s`; how many metres each one came along."""
        arcs = self._roads.arcs
        left_s, moved_m = np.full(self.size, float(step_s)), np.zeros(self.size)
        going = np.arange(self.size)
        while going.size:
            waited = np.minimum(self._pause_s[going], left_s[going])
            self._pause_s[going] -= waited
            left_s[going] -= waited
            arc = self._arc[going]
            speed = np.minimum(self._top_m_s[going], arcs.speed_m_s[arc])
            gap_m = arcs.length_m[arc] - self._along_m[going]
            short = gap_m > speed * left_s[going]
            advance = np.where(short, speed * left_s[going], gap_m)
            self._along_m[going] += advance
            moved_m[going] += advance
            left_s[going] = np.maximum(left_s[going] - advance / speed, 0.0)
            going = going[~short]
            node = arcs.head[self._arc[going]]
            self._pass(going, node, rng)
            self._leave(going, node)
        return moved_m

    def _pass(self, who: Indices, node: Indices, rng: np.random.Generator) -> None:
        """What movers do at a node: at their target they stay and choose another."""
        there = node == self._routes.targets[self._target[who]]
        arrived = who[there]
        self._pause_s[arrived] = rng.exponential(300.0, arrived.size)
        self._choose(arrived, node[there], rng)

    def _choose(self, who: Indices, node: Indices, rng: np.random.Generator) -> None:
        """A new target each: the nearest of a few, most of which are busy places."""
        routes, roads = self._routes, self._roads
        shape = (who.size, _MOST_CHOICES)
        crowded = routes.crowd.draw(rng, who.size * _MOST_CHOICES).reshape(shape)
        anywhere = rng.integers(0, routes.targets.size, shape)
        drawn = np.where(rng.random(shape) < self._crowding(who)[:, None], crowded, anywhere)
        place = routes.targets[drawn]
        far = haversine_m(
            roads.lon[node][:, None], roads.lat[node][:, None], roads.lon[place], roads.lat[place]
        )
        far[place == node[:, None]] = np.inf
        far[np.arange(_MOST_CHOICES) >= self._choices[who][:, None]] = np.inf
        best = np.argmin(far, axis=1)
        rows = np.arange(who.size)
        chosen = drawn[rows, best]
        # All choices are where one stands already: any other target will do.
        stuck = routes.targets[chosen] == node
        chosen[stuck] = (chosen[stuck] + 1) % routes.targets.size
        self._target[who] = chosen

    def _crowding(self, who: Indices) -> Array:
        return np.full(who.size, 0.6)

    def _leave(self, who: Indices, node: Indices) -> None:
        row = self._mode[who] * self._routes.targets.size + self._target[who]
        self._arc[who] = self._routes.way[row, node]
        self._along_m[who] = 0.0


class Taxis(Movers):
    """Cabs that look for fares where it is busy, take them somewhere, and come back."""

    def __init__(self, town: Town, routes: Routes, seed: int, count: int) -> None:
        rng = generator(seed, "taxis: drivers")
        top_m_s = rng.uniform(0.7, 1.0, count) * SPEED_M_S[MOTORWAY]
        by_car, choices = np.full(count, BY_CAR), np.full(count, 2)
        super().__init__(town, routes, seed, "taxis", top_m_s, by_car, choices)
        self._occupied[:] = rng.random(count) < 0.4
        self._hail = np.zeros(town.roads.nodes)
        self._hail[town.roads.kerbside] = _HAIL * town.heat[town.roads.kerbside]

    def _crowding(self, who: Indices) -> Array:
        return np.where(self._occupied[who], 0.5, 0.95)

    def _pass(self, who: Indices, node: Indices, rng: np.random.Generator) -> None:
        """A vacant cab may be hailed anywhere, or find a fare at its target, or wait there."""
        there = node == self._routes.targets[self._target[who]]
        full = self._occupied[who]
        luck = rng.random(who.size)
        chance = np.where(there, 0.5, self._hail[node])
        boarding, leaving = ~full & (luck < chance), full & there
        self._occupied[who[boarding]] = True
        self._occupied[who[leaving]] = False
        changed = boarding | there
        pause_s = rng.uniform(15.0, 60.0, who.size)
        idle = there & ~full & ~boarding
        pause_s[idle] = rng.exponential(180.0, int(idle.sum()))
        self._pause_s[who[changed]] = pause_s[changed]
        self._choose(who[changed], node[changed], rng)


def people(town: Town, routes: Routes, seed: int, count: int) -> Movers:
    """Walkers (seven in ten), cyclists (two) and drivers (one)."""
    rng = generator(seed, "people: kinds")
    kind = np.searchsorted([0.7, 0.9], rng.random(count), side="right")
    luck = rng.random(count)
    slowest, fastest = np.array([0.9, 3.5, 17.0]), np.array([1.8, 6.5, 25.0])
    top_m_s = slowest[kind] + luck * (fastest - slowest)[kind]
    mode: NDArray[Any] = np.array([ON_FOOT, ON_FOOT, BY_CAR])[kind]
    choices = np.array([8, 4, 2])[kind]
    return Movers(town, routes, seed, "people", top_m_s, mode, choices)
