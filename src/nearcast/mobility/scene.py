"""Scenes to simulate: who moves where, and which events come and go.

Subscriber i wants events of its own kind i. All events, those of kinds that nobody wants too, are
live in a matcher, in whose index regions are searched.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from nearcast.datasets import globe
from nearcast.datasets.streams import generator
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Box, Point, Space
from nearcast.model.subscriptions import Subscription

__all__ = ["Scene", "SceneIndex", "lives", "plane_scene"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scene:
    """Paths (a row a step, a column a subscriber), and wanted events with their steps of life.

    An event of kind k lives in the steps born ≤ step < dies. `crowd(step)` gives the places
    of everything that arrives in a step, `spread` draws some; `live` is how many events live, of
    which each subscriber wants a `share`.
    """

    space: Space
    extent: Box
    step_s: float
    radius: float
    x: Floats
    y: Floats
    heading: Floats
    speed: Floats
    kind: Ints
    event_x: Floats
    event_y: Floats
    born: Ints
    dies: Ints
    live: int
    share: float
    spread: Callable[[np.random.Generator, int], tuple[Floats, Floats]]
    crowd: Callable[[int], tuple[Floats, Floats]]
    around: Around | None = None
    """What follows each subscriber, if it is not the circle of `radius`."""

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return int(self.x.shape[0])

    @property
    def size(self) -> int:
        """How many subscribers there are."""
        return int(self.x.shape[1])

    def subscription(self, i: int) -> Subscription:
        """What subscriber i wants."""
        region = Around(self.radius) if self.around is None else self.around
        return Subscription(id=f"s{i}", subscriber=f"p{i}", where=f"kind = {i}", region=region)

    def background(self) -> tuple[Floats, Floats]:
        """Where the events are that live at the beginning and that nobody wants."""
        count = max(0, self.live - int(np.count_nonzero(self.born == 0)))
        return self.spread(generator(self.size, "scene: background"), count)

    def gaps(self, x: Any, y: Any, at_x: Any, at_y: Any) -> Floats:
        """Distances in this scene's space."""
        if self.space == "planar":
            gaps: Floats = np.hypot(np.subtract(x, at_x), np.subtract(y, at_y))
            return gaps
        return globe.haversine_m(x, y, at_x, at_y)

    @cached_property
    def of_kind(self) -> list[Ints]:
        """The events of each subscriber's kind, by birth."""
        return [np.flatnonzero(self.kind == i) for i in range(self.size)]

    @cached_property
    def truth(self) -> dict[tuple[int, int], int]:
        """(subscriber, event) → the step at which a client that reports every step is told."""
        told: dict[tuple[int, int], int] = {}
        steps = np.arange(self.steps)[:, None]
        for i, rows in enumerate(self.of_kind):
            for part in np.array_split(rows, max(1, rows.size // 500)):
                near = self._reached(i, part)
                near &= (steps >= self.born[part]) & (steps < self.dies[part])
                for at in np.flatnonzero(near.any(axis=0)).tolist():
                    told[i, int(part[at])] = int(np.argmax(near[:, at]))
        return told

    def _reached(self, i: int, events: Ints) -> npt.NDArray[np.bool_]:
        """Which events subscriber i has in reach, step by step."""
        given = self.x[:, i, None], self.y[:, i, None], self.event_x[events], self.event_y[events]
        gaps = self.gaps(*given)
        if self.around is None or self.around.shape is None:
            return gaps <= self.radius
        if self.space == "planar":
            east, north = given[2] - given[0], given[3] - given[1]
        else:
            way = np.radians(globe.bearing_deg(*given))
            east, north = gaps * np.sin(way), gaps * np.cos(way)
        if self.around.turns:
            angle = np.radians(self.heading[:, i, None])
            cos, sin = np.cos(angle), np.sin(angle)
            east, north = east * cos - north * sin, east * sin + north * cos
        rings = self.around.shape.rings
        held: npt.NDArray[np.bool_] = shapely.intersects_xy(
            shapely.Polygon(rings[0], rings[1:]), east, north
        )
        return held

    @cached_property
    def floor(self) -> int:
        """Subscriber steps in which something must be delivered, the first step apart."""
        return len({(i, step) for (i, _), step in self.truth.items() if step > 0})


class SceneIndex:
    """A matcher that holds every live event of a scene, wanted or not, step by step.

    Of those that nobody wants the oldest goes when another one comes. Costs some seconds for a
    million events.
    """

    def __init__(self, scene: Scene, index: str = "auto") -> None:
        self._scene = scene
        self.matcher = Matcher(index=index, space=scene.space)
        self._born = _by_step(scene.born, scene.steps)
        self._dead = _by_step(scene.dies, scene.steps)
        self._luck = generator(scene.size, "scene index: kinds")
        self._others: deque[str] = deque()
        self._count = 0
        old = np.flatnonzero(scene.born == 0)
        self._add([f"e{row}" for row in old.tolist()], scene.kind[old], scene.event_x[old],
                  scene.event_y[old])  # fmt: skip
        self._enter(*scene.background())

    def _add(self, ids: list[str], kind: Ints, x: Floats, y: Floats) -> None:
        kinds = pa.StructArray.from_arrays([pa.array(kind.astype(np.float64))], ["kind"])
        if ids:
            self.matcher.add_events(pa.table({"id": ids, "attributes": kinds, "lon": x, "lat": y}))

    def _enter(self, x: Floats, y: Floats) -> None:
        """Events that nobody wants."""
        first, self._count = self._count, self._count + x.size
        ids = [f"o{i}" for i in range(first, self._count)]
        most = max(round(1 / self._scene.share), self._scene.size + 1)
        self._add(ids, self._luck.integers(self._scene.size, most, x.size), x, y)
        self._others.extend(ids)

    def come_to(self, step: int) -> tuple[list[str], list[Event]]:
        """Let a step begin: ids of wanted events that are gone, and those that come, not yet there.

        What nobody wants comes and goes along.
        """
        scene = self._scene
        gone = [f"e{row}" for row in self._dead.get(step, ())]
        if not step:
            return gone, []
        x, y = scene.crowd(step)
        self._enter(x, y)
        for id in [*gone, *(self._others.popleft() for _ in range(x.size))]:
            self.matcher.remove_event(id)
        return gone, [
            Event(f"e{row}", {"kind": int(scene.kind[row])},
                  location=Point(float(scene.event_x[row]), float(scene.event_y[row])))
            for row in self._born.get(step, ())
        ]  # fmt: skip


def _by_step(steps: Ints, most: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in np.flatnonzero(steps < most).tolist():
        found.setdefault(int(steps[row]), []).append(row)
    return found


def plane_scene(
    side_m: float = 200_000.0,
    subscribers: int = 50,
    steps: int = 1000,
    radius: float = 2000.0,
    step_m: float | Floats = 60.0,
    arrivals: float | Floats = 100.0,
    live: int = 1_000_000,
    share: float = 0.001,
    leg_m: float = 20_000.0,
    seed: int = 1,
    step_s: float = 5.0,
    around: Around | None = None,
) -> Scene:
    """A square with events everywhere alike, and people who walk straight legs and turn.

    `arrivals` events arrive each step and as many expire, so that `live` of them live; each
    subscriber wants a `share`. `step_m` and `arrivals` may differ from step to step.
    """
    rng = generator(seed, "plane scene: paths")
    moves = np.broadcast_to(np.asarray(step_m, np.float64), (steps,))
    x, y, heading = _paths(rng, side_m, subscribers, moves, leg_m)
    per_step = np.broadcast_to(np.asarray(arrivals, np.float64), (steps,))
    rng = generator(seed, "plane scene: events")
    kind, born, dies = lives(rng, subscribers, per_step, live, share)
    speed = np.repeat(moves[:, None] / step_s, subscribers, axis=1)

    def spread(luck: np.random.Generator, count: int) -> tuple[Floats, Floats]:
        return side_m * luck.random(count), side_m * luck.random(count)

    def crowd(step: int) -> tuple[Floats, Floats]:
        luck = generator(seed, "plane scene: crowd", step % (1 << 20))
        return spread(luck, int(luck.poisson(per_step[max(step, 0)])))

    return Scene(
        "planar", Box(0.0, 0.0, side_m, side_m), step_s, radius, x, y, heading, speed, kind,
        *spread(rng, kind.size), born, dies, live, share, spread, crowd, around,
    )  # fmt: skip


def _paths(
    rng: np.random.Generator, side: float, count: int, moves: Floats, leg_m: float
) -> tuple[Floats, Floats, Floats]:
    """Straight legs of exponential length, turns of 60° or so, mirrors at the border."""
    x, y = side * (0.1 + 0.8 * rng.random(count)), side * (0.1 + 0.8 * rng.random(count))
    angle = 2 * math.pi * rng.random(count)
    xs, ys, headings = (np.empty((moves.size, count)) for _ in range(3))
    for step in range(moves.size):
        if step:
            turning = rng.random(count) < moves[step] / leg_m
            angle = angle + np.where(turning, rng.normal(0.0, math.pi / 3, count), 0.0)
            x, y = x + moves[step] * np.sin(angle), y + moves[step] * np.cos(angle)
            out = (x < 0) | (x > side)
            x, angle = (
                np.where(x < 0, -x, np.where(x > side, 2 * side - x, x)),
                np.where(out, -angle, angle),
            )
            out = (y < 0) | (y > side)
            y, angle = (
                np.where(y < 0, -y, np.where(y > side, 2 * side - y, y)),
                np.where(out, math.pi - angle, angle),
            )
        xs[step], ys[step], headings[step] = x, y, np.degrees(angle) % 360
    return xs, ys, headings


def lives(
    rng: np.random.Generator, kinds: int, per_step: Floats, live: int, share: float
) -> tuple[Ints, Ints, Ints]:
    """Kinds, births and deaths: `live` events at every step, oldest die first."""
    steps = per_step.size
    mean = max(float(per_step.mean()), 1e-9)
    life = max(1, round(live / mean))
    kind, born, dies = [], [], []
    for i in range(kinds):
        old = rng.binomial(live, share)
        age = rng.random(old)
        new = rng.poisson(per_step * share)
        new[0] = 0
        arrived = np.repeat(np.arange(steps), new)
        # what lives at the start dies as the stream brings new ones
        brought = np.concatenate(([0.0], np.cumsum(per_step)))
        death = np.searchsorted(brought, age * live)
        death = np.where(age * live > brought[-1], steps + life, death)
        kind.append(np.full(old + arrived.size, i))
        born.append(np.concatenate([np.zeros(old, np.int64), arrived]))
        dies.append(np.concatenate([np.maximum(death, 1), arrived + life]))
    return np.concatenate(kind), np.concatenate(born), np.concatenate(dies)
