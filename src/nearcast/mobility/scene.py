"""Scenes to simulate: who moves where, and which events come and go.

Subscriber i wants events of its own kind i; events that nobody wants are counted, not kept:
they matter to the statistics only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.clock import Micros
from nearcast.datasets import globe
from nearcast.datasets.streams import generator
from nearcast.mobility.search import Found
from nearcast.model.geometry import Around, Box, Circle, Space
from nearcast.model.subscriptions import Subscription

__all__ = ["Scene", "SceneSearch", "lives", "plane_scene"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scene:
    """Paths (a row a step, a column a subscriber), and wanted events with their steps of life.

    An event of kind k lives in the steps born ≤ step < dies. `crowd(step)` gives the places
    of everything that arrives in a step, wanted or not; `live` is how many events live.
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
    crowd: Callable[[int], tuple[Floats, Floats]]

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
        return Subscription(
            id=f"s{i}", subscriber=f"p{i}", where=f"kind = {i}", region=Around(self.radius)
        )

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
                near = self.gaps(self.x[:, i, None], self.y[:, i, None],
                                 self.event_x[part], self.event_y[part]) <= self.radius  # fmt: skip
                near &= (steps >= self.born[part]) & (steps < self.dies[part])
                for at in np.flatnonzero(near.any(axis=0)).tolist():
                    told[i, int(part[at])] = int(np.argmax(near[:, at]))
        return told

    @cached_property
    def floor(self) -> int:
        """Subscriber steps in which something must be delivered, the first step apart."""
        return len({(i, step) for (i, _), step in self.truth.items() if step > 0})


class SceneSearch:
    """The live events of a scene at its present step."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.step = 0
        self._names = [[f"e{row}" for row in rows.tolist()] for rows in scene.of_kind]

    @property
    def live(self) -> int:
        """How many events live."""
        return self._scene.live

    def matching(self, subscription: Subscription, circle: Circle | None, now: Micros) -> Found:  # noqa: ARG002
        """Events of the subscriber's kind in the circle."""
        scene, i = self._scene, int(subscription.id[1:])
        rows = scene.of_kind[i]
        keep = (scene.born[rows] <= self.step) & (self.step < scene.dies[rows])
        if circle is not None:
            gap = scene.gaps(scene.event_x[rows], scene.event_y[rows], circle.x, circle.y)
            keep &= gap <= circle.radius_m
        chosen = np.flatnonzero(keep)
        names = self._names[i]
        found = rows[chosen]
        ids = [names[at] for at in chosen.tolist()]
        return Found(ids, scene.event_x[found], scene.event_y[found], {})


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

    def crowd(step: int) -> tuple[Floats, Floats]:
        luck = generator(seed, "plane scene: crowd", step % (1 << 20))
        count = int(luck.poisson(per_step[max(step, 0)]))
        return side_m * luck.random(count), side_m * luck.random(count)

    return Scene(
        "planar", Box(0.0, 0.0, side_m, side_m), step_s, radius, x, y, heading, speed, kind,
        side_m * rng.random(kind.size), side_m * rng.random(kind.size), born, dies, live, crowd,
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
