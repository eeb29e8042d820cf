"""Scenes in towns: people in `city` among its shops' offers, and real cabs of San Francisco."""

from __future__ import annotations

import os

import numpy as np

from nearcast.datasets.city import City
from nearcast.datasets.globe import bearing_deg, haversine_m
from nearcast.datasets.readers import ENVIRONMENT, DataFolder
from nearcast.datasets.streams import generator
from nearcast.errors import DatasetError
from nearcast.mobility.scene import Floats, Ints, Scene
from nearcast.model.geometry import Box

__all__ = ["cab_scene", "city_scene"]


def city_scene(
    people: int, steps: int, seed: int = 1, radius: float = 500.0, arrivals: float = 20.0,
    live: int = 40_000, share: float = 0.005, step_s: float = 5.0,
) -> Scene:  # fmt: skip
    """People on foot, by bike and by car; offers come from shops, so where the town is busy."""
    city = City(seed=seed)
    walked = list(city.walk(people, steps, step_s))
    x, y = (np.stack([getattr(step, axis) for step in walked]) for axis in ("lon", "lat"))
    heading = np.stack([step.heading for step in walked])
    speed = np.stack([step.speed_m_s for step in walked])
    return _in_town(x, y, heading, speed, city.shops.lon, city.shops.lat, seed, radius,
                    arrivals, live, share, step_s)  # fmt: skip


def cab_scene(
    cabs: int, steps: int, seed: int = 1, radius: float = 1000.0, arrivals: float = 20.0,
    live: int = 40_000, share: float = 0.005, step_s: float = 60.0,
) -> Scene | None:  # fmt: skip
    """Real cabs, a fix a minute with straight ways between; None where there are no data."""
    if not os.environ.get(ENVIRONMENT):
        return None
    folder = DataFolder()
    try:
        table = folder.traces("sf_cabs_gps")
        shops = folder.places("sf_food_trucks")
    except DatasetError:
        return None
    names, who = np.unique(np.asarray(table["id"]), return_inverse=True)
    ts = table["ts"].cast("int64").to_numpy() / 1e6
    lon, lat = table["lon"].to_numpy(), table["lat"].to_numpy()
    start = float(np.quantile(ts, 0.3))
    times = start + step_s * np.arange(steps)
    xs, ys = [], []
    for cab in range(names.size):
        mine = np.flatnonzero(who == cab)
        if mine.size > 2 and ts[mine[0]] <= start and ts[mine[-1]] >= times[-1]:
            xs.append(np.interp(times, ts[mine], lon[mine]))
            ys.append(np.interp(times, ts[mine], lat[mine]))
        if len(xs) == cabs:
            break
    if not xs:
        return None
    x, y = np.stack(xs, axis=1), np.stack(ys, axis=1)
    heading, speed = np.zeros_like(x), np.zeros_like(x)
    heading[1:] = bearing_deg(x[:-1], y[:-1], x[1:], y[1:])
    speed[1:] = haversine_m(x[:-1], y[:-1], x[1:], y[1:]) / step_s
    good = np.abs(shops[0]) > 1
    return _in_town(x, y, heading, speed, shops[0][good], shops[1][good], seed, radius,
                    arrivals, live, share, step_s)  # fmt: skip


def _in_town(
    x: Floats, y: Floats, heading: Floats, speed: Floats, shop_x: Floats, shop_y: Floats,
    seed: int, radius: float, arrivals: float, live: int, share: float, step_s: float,
) -> Scene:  # fmt: skip
    from nearcast.mobility.scene import lives

    rng = generator(seed, "town scene: events")
    steps, people = x.shape
    kind, born, dies = lives(rng, people, np.full(steps, arrivals), live, share)
    at_x, at_y = _spots(rng, kind.size, shop_x, shop_y)

    def spread(luck: np.random.Generator, count: int) -> tuple[Floats, Floats]:
        return _spots(luck, count, shop_x, shop_y)

    def crowd(step: int) -> tuple[Floats, Floats]:
        luck = generator(seed, "town scene: crowd", step % (1 << 20))
        return spread(luck, int(luck.poisson(arrivals)))

    margin = 0.05
    all_x, all_y = np.concatenate([x.ravel(), at_x]), np.concatenate([y.ravel(), at_y])
    extent = Box(
        float(all_x.min()) - margin, float(all_y.min()) - margin,
        float(all_x.max()) + margin, float(all_y.max()) + margin,
    )  # fmt: skip
    return Scene("globe", extent, step_s, radius, x, y, heading, speed, kind, at_x, at_y, born,
                 dies, live, share, spread, crowd)  # fmt: skip


def _spots(
    rng: np.random.Generator, count: int, shop_x: Floats, shop_y: Floats
) -> tuple[Floats, Floats]:
    """Offers at shops, within some ten metres of the door."""
    shop: Ints = rng.integers(0, shop_x.size, count)
    return (
        shop_x[shop] + 1e-4 * rng.standard_normal(count),
        shop_y[shop] + 1e-4 * rng.standard_normal(count),
    )
