"""What the tests of mobility share: situations, obstacles, and exact distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nearcast.mobility.plane import Plane, distance
from nearcast.mobility.scene import Scene
from nearcast.mobility.situation import Look, Obstacles, Situation
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Circle, Location, Space
from nearcast.model.subscriptions import Subscription
from tests import oracle

METRES = math.pi * 6_371_008.8 / 180


def near(space: Space, x: float, y: float, east: float, north: float) -> tuple[float, float]:
    """The place so many metres east and north of (x, y), roughly, and valid on the globe."""
    if space == "planar":
        return x + east, y + north
    lat = max(-90.0, min(90.0, y + north / METRES))
    shrink = max(math.cos(math.radians(y)), 1e-3)
    return (x + east / METRES / shrink + 180.0) % 360.0 - 180.0, lat


def looker(
    space: Space,
    obstacles: list[tuple[float, float, float]],
    shapes: Sequence[tuple[Location, float]] = (),
) -> Look:
    """A search over a list: exactly what is asked for and nothing more."""

    def look(x: float, y: float, radius: float) -> Obstacles:
        found = [o for o in obstacles if distance(space, x, y, o[0], o[1]) <= radius]
        a, b, c = np.array(found, np.float64).reshape(-1, 3).T
        wide = radius < 1e300
        met = [s for s in shapes if not wide or within(space, x, y, radius, s[0])]
        return Obstacles(a, b, c, tuple(met))

    return look


def within(space: Space, x: float, y: float, radius: float, location: Location) -> bool:
    """Whether a location comes that near to a place: by the oracle's definition."""
    event = Event(id="e", location=location)
    return oracle.wants(Subscription(id="s", region=Circle(x, y, radius)), event, space)


def lifted(scene: Scene, lon: float, lat: float) -> Scene:
    """A scene of the plane on the globe, its middle at a place."""
    side = scene.extent.xmax
    plane = Plane("globe", lon, lat, side)

    def raised(x: Any, y: Any) -> tuple[Any, Any]:
        return plane.from_map_many(x - side / 2, y - side / 2)

    (x, y), (ex, ey) = raised(scene.x, scene.y), raised(scene.event_x, scene.event_y)
    return replace(
        scene, space="globe", extent=Box(-180.0, -90.0, 180.0, 90.0), x=x, y=y, event_x=ex,
        event_y=ey, spread=lambda luck, count: raised(*scene.spread(luck, count)),
        crowd=lambda step: raised(*scene.crowd(step)),
    )  # fmt: skip


def situation(space: Space, x: float, y: float, radius: float, **more: Any) -> Situation:
    """A subscriber who walks north at 12 m/s among events of some density."""
    density = more.pop("density", 1e-12)

    def rates(xs: Any, _: Any) -> Any:
        return np.full(np.shape(xs), density)

    given: dict[str, Any] = {
        "speed": 12.0, "heading": 0.0, "turns": np.full(9, 1 / 9), "rates": rates, **more,
    }  # fmt: skip
    return Situation(space, x, y, radius, **given)
