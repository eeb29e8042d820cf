"""Maps of the demo's report: the city under every one, in the colours of the live map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.bench.story import COLOURS, Picture, drawn
from nearcast.datasets.city import City
from nearcast.datasets.roads import KINDS

__all__ = [
    "Ground",
    "Regions",
    "area_map",
    "circles_map",
    "density_map",
    "offers_map",
    "region_map",
    "ways_map",
]

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
_M_A_DEGREE = 111_195.0
_WIDTHS = {"street": 0.9, "arterial": 2.0, "motorway": 2.2}
_WIDE, _FLATTEST, _TALLEST = 9.6, 0.5, 0.8
_BINS = 150


@dataclass(frozen=True, eq=False)
class Ground:
    """What lies under a map: a river, and roads by kind, each from (lon, lat) to (lon, lat)."""

    river: Array
    roads: Mapping[str, Array]

    @classmethod
    def of(cls, city: City) -> Ground:
        """A city's."""
        roads = city.roads
        places = np.column_stack([roads.lon, roads.lat])[roads.ends]
        return cls(city.river, {kind: places[roads.kind == n] for n, kind in enumerate(KINDS)})


class Regions(NamedTuple):
    """Where a person is silent, and what would change that; `kind` is 2 and 1 there, else 0."""

    lon: Array
    lat: Array
    kind: Array
    reach_m: float


def _picture(
    draw: Callable[[Any], None], box: tuple[Array, Array], ground: Ground | None, caption: str
) -> Picture:
    """A map of a box, which is widened to a shape that suits a page."""
    low, high = box
    stretch = max(float(np.cos(np.radians((low[1] + high[1]) / 2))), 0.05)
    wide = max((high[0] - low[0]) * stretch, 1e-4)
    tall = max(high[1] - low[1], 1e-4)
    middle = (low + high) / 2
    wide, tall = max(wide, tall / _TALLEST) * 1.06, max(tall, wide * _FLATTEST) * 1.06

    def mapped(axes: Any) -> None:
        axes.set_facecolor(COLOURS["ground"])
        axes.set_xlim(middle[0] - wide / stretch / 2, middle[0] + wide / stretch / 2)
        axes.set_ylim(middle[1] - tall / 2, middle[1] + tall / 2)
        axes.set_aspect(1 / stretch)
        axes.set_autoscale_on(False)
        if ground is not None:
            _draw_ground(axes, ground)
        draw(axes)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        _draw_scale(axes, middle, wide, tall, stretch)

    return Picture(caption, drawn(mapped, (_WIDE, _WIDE * tall / wide + 0.1)))


def _draw_ground(axes: Any, ground: Ground) -> None:
    from matplotlib.collections import LineCollection

    river = {"color": COLOURS["river"], "linewidth": 5, "solid_capstyle": "round"}
    axes.plot(*ground.river.T, **river, zorder=0.5, rasterized=True)
    for kind, width in _WIDTHS.items():
        lines = LineCollection(list(ground.roads[kind]), colors=COLOURS[kind], linewidths=width)
        lines.set(zorder=0.6, rasterized=True)
        axes.add_collection(lines, autolim=False)


def _draw_scale(axes: Any, middle: Array, wide: float, tall: float, stretch: float) -> None:
    """A bar of a round length, in the corner below on the right."""
    most = wide * _M_A_DEGREE / 4
    unit = 10.0 ** np.floor(np.log10(most))
    length = unit * max(step for step in (1, 2, 5) if step * unit <= most)
    right = middle[0] + 0.48 * wide / stretch
    left = right - length / _M_A_DEGREE / stretch
    low = middle[1] - 0.47 * tall
    axes.plot([left, right], [low, low], color="#56606d", linewidth=2, zorder=5)
    text = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    axes.text((left + right) / 2, low + 0.012 * tall, text, ha="center", fontsize=10,
              color="#56606d", zorder=5)  # fmt: skip


def _box(*places: Array) -> tuple[Array, Array]:
    together = np.concatenate(places)
    return together.min(axis=0), together.max(axis=0)


def _legend(axes: Any) -> None:
    axes.legend(loc="upper left", fontsize=10, framealpha=0.9, edgecolor="none")


def density_map(places: Array, ground: Ground | None, caption: str) -> Picture:
    """Where fixes lie, by colour on a logarithmic scale."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    low, high = np.quantile(places, 0.001, axis=0), np.quantile(places, 0.999, axis=0)

    def draw(axes: Any) -> None:
        x, y = (np.linspace(low[axis], high[axis], _BINS + 1) for axis in (0, 1))
        counts, _, _ = np.histogram2d(places[:, 0], places[:, 1], [x, y])
        warm = LinearSegmentedColormap.from_list("warm", ["#fbbf24", "#e11d48", "#4c0519"])
        shown = axes.pcolormesh(
            x, y, np.ma.masked_less(counts.T, 1), cmap=warm, alpha=0.85, rasterized=True,
            norm=LogNorm(1, max(2.0, float(counts.max()))), zorder=1,
        )  # fmt: skip
        bar = axes.figure.colorbar(shown, ax=axes, shrink=0.6, label="in a cell")
        bar.outline.set_visible(False)

    return _picture(draw, (low, high), ground, caption)


def area_map(places: Array, points: Counts, ground: Ground | None, caption: str) -> Picture:
    """Hot areas as discs whose size tells how many points they have."""

    def draw(axes: Any) -> None:
        size = 6 + 300 * points / max(float(points.max()), 1.0)
        axes.scatter(*places.T, s=size, alpha=0.55, c=COLOURS["event"], edgecolors="none", zorder=2)

    return _picture(draw, _box(places), ground, caption)


def offers_map(places: Array, told: Counts, ground: Ground | None, caption: str) -> Picture:
    """Offers, and by size how many people were told of each; unheard ones are grey."""
    heard = told > 0

    def draw(axes: Any) -> None:
        axes.scatter(*places[~heard].T, s=3, c=COLOURS["quiet"], alpha=0.5, edgecolors="none",
                     rasterized=True, zorder=2, label="nobody was told")  # fmt: skip
        size = 3 + 60 * np.sqrt(told[heard] / max(float(told.max()), 1.0))
        axes.scatter(*places[heard].T, s=size, c=COLOURS["event"], alpha=0.4, edgecolors="none",
                     rasterized=True, zorder=3, label="somebody was")  # fmt: skip
        _legend(axes)

    return _picture(draw, _box(places), ground, caption)


def region_map(
    regions: Regions, events: Array, path: Array, reports: Array, ground: Ground | None,
    caption: str,
) -> Picture:  # fmt: skip
    """A safe and an impact region, the way of the subscriber until now, and where it reported.

    `events` are the events that matter; each is rows of (lon, lat).
    """
    lon, lat, kind, reach_m = regions

    def draw(axes: Any) -> None:
        shades = np.zeros((*kind.shape, 4))
        shades[kind == 1] = _rgba(COLOURS["impact"], 0.18)
        shades[kind == 2] = _rgba(COLOURS["safe"], 0.3)
        extent = (lon[0], lon[-1], lat[0], lat[-1])
        axes.imshow(shades, origin="lower", extent=extent, aspect="auto", zorder=1)
        for at_least, name in ((1, "impact"), (2, "safe")):
            if (kind >= at_least).any() and not (kind >= at_least).all():
                axes.contour(lon, lat, kind >= at_least, [0.5], colors=COLOURS[name],
                             linewidths=1.4, zorder=1.5)  # fmt: skip
        axes.set_aspect(1 / max(float(np.cos(np.radians(lat.mean()))), 0.05))
        axes.plot(*path.T, color=COLOURS["way"], linewidth=2, zorder=2, label="the way until now")
        axes.scatter(*reports.T, s=34, facecolors="white", edgecolors=COLOURS["report"],
                     linewidths=1.6, zorder=3, label="places that were reported")  # fmt: skip
        axes.scatter(*events.T, s=16, c=COLOURS["event"], zorder=3,
                     label="offers this person wants")  # fmt: skip
        axes.plot(*_circle(path[-1], reach_m).T, color=COLOURS["reach"], linestyle="--",
                  linewidth=1, zorder=2, label="within reach now")  # fmt: skip
        axes.plot(*path[-1], "o", color=COLOURS["way"], markersize=9, zorder=4)
        _legend(axes)

    return _picture(
        draw, (np.array([lon[0], lat[0]]), np.array([lon[-1], lat[-1]])), ground, caption
    )


def ways_map(area: Array, ways: Sequence[Array], ground: Ground | None, caption: str) -> Picture:
    """An area, and ways from place to place, each as rows of (lon, lat)."""

    def draw(axes: Any) -> None:
        axes.fill(*area.T, color=COLOURS["safe"], alpha=0.35, zorder=1, label="the area")
        for way in ways:
            axes.plot(*way.T, color=COLOURS["told"], linewidth=0.8, alpha=0.7, zorder=2)
        if ways:
            ends = np.array([way[-1] for way in ways])
            axes.scatter(*ends.T, s=20, c=COLOURS["event"], zorder=3, label="where one ended")
        _legend(axes)

    return _picture(draw, _box(area, *ways), ground, caption)


def circles_map(
    centres: Array, radius_m: float, visits: Counts, ground: Ground | None, caption: str
) -> Picture:
    """Fences as discs, filled the stronger the more came; a few busy ones stand out."""
    most = max(float(visits.max()), 1.0)

    def draw(axes: Any) -> None:
        for centre, came in zip(centres, visits.tolist(), strict=True):
            rim = _circle(centre, radius_m)
            alpha = 0.12 + 0.75 * came / most
            axes.fill(*rim.T, color=COLOURS["impact" if came else "quiet"], alpha=alpha, zorder=2)
            axes.plot(*rim.T, color=COLOURS["fence"], linewidth=0.6, alpha=0.8, zorder=3)

    return _picture(draw, _box(centres), ground, caption)


def _circle(centre: Array, radius_m: float) -> Array:
    turn = np.linspace(0, 2 * np.pi, 61)
    up = radius_m / _M_A_DEGREE
    across = up / max(float(np.cos(np.radians(centre[1]))), 0.05)
    return np.column_stack([centre[0] + across * np.cos(turn), centre[1] + up * np.sin(turn)])


def _rgba(colour: str, alpha: float) -> tuple[float, float, float, float]:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue, alpha
