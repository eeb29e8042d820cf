"""The demo's report: sections of text, tables and maps in one HTML file."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.bench.plots import pyplot
from nearcast.bench.report import page, table_html
from nearcast.bench.tables import Grid

__all__ = [
    "Chapter",
    "Picture",
    "area_map",
    "bars",
    "density_map",
    "profile_plot",
    "region_map",
    "ways_map",
    "write_story",
]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Picture:
    """A drawing with what it shows."""

    caption: str
    svg: str


@dataclass(frozen=True)
class Chapter:
    """One section of the demo, as it stands in the report."""

    title: str
    text: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    pictures: Sequence[Picture] = ()
    verbatim: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """(title, text) that keeps its lines, such as explanations."""


def write_story(title: str, chapters: Sequence[Chapter], path: Path) -> Path:
    """Write the report; it needs no other file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = page(title, [part for each in chapters for part in _html(each)])
    path.write_text(text, encoding="utf-8")
    return path


def _html(chapter: Chapter) -> list[str]:
    return [
        f"<h2>{escape(chapter.title)}</h2>",
        *(f"<p>{escape(text)}</p>" for text in chapter.text),
        *map(table_html, chapter.grids),
        *(f"<h3>{escape(title)}</h3><pre>{escape(text)}</pre>" for title, text in chapter.verbatim),
        *(
            f"<figure>{picture.svg}<figcaption>{escape(picture.caption)}</figcaption></figure>"
            for picture in chapter.pictures
        ),
    ]


def _drawn(draw: Callable[[Any], None], size: tuple[float, float] = (7.5, 5.5)) -> str:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    try:
        draw(axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    finally:
        plt.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _as_map(axes: Any, lat: Array) -> None:
    axes.set_aspect(1 / max(float(np.cos(np.radians(lat.mean()))), 0.05))
    axes.set_xlabel("longitude")
    axes.set_ylabel("latitude")


def density_map(lon: Array, lat: Array, caption: str) -> Picture:
    """Where fixes lie, by colour on a logarithmic scale."""

    def draw(axes: Any) -> None:
        counts, x, y = np.histogram2d(lon, lat, 90)
        shown = np.log10(np.where(counts > 0, counts, np.nan)).T
        axes.pcolormesh(x, y, np.ma.masked_invalid(shown), cmap="viridis", rasterized=True)
        _as_map(axes, lat)

    return Picture(caption, _drawn(draw))


def area_map(lon: Array, lat: Array, points: Array, caption: str) -> Picture:
    """Hot areas as circles whose size tells how many points they have."""

    def draw(axes: Any) -> None:
        size = 4 + 250 * points / max(float(points.max()), 1.0)
        axes.scatter(lon, lat, s=size, alpha=0.5, c="#d1242f", edgecolors="none")
        _as_map(axes, lat)

    return Picture(caption, _drawn(draw))


def region_map(
    lon: Array, lat: Array, kind: Array, events: Array, path: Array, caption: str
) -> Picture:
    """A safe and an impact region: `kind` is 2 and 1 there, a row a latitude, and 0 elsewhere.

    `events` are the events that matter, `path` the way of the subscriber until now, each
    as rows of (lon, lat).
    """

    def draw(axes: Any) -> None:
        shown = np.ma.masked_equal(kind, 0)
        axes.pcolormesh(lon, lat, shown, cmap="Greens", vmin=0, vmax=3, rasterized=True)
        axes.plot(*path.T, color="#1f6feb", label="the way until now")
        axes.plot(*path[-1], "o", color="#1f6feb")
        axes.plot(*events.T, "x", color="#d1242f", label="offers this person wants")
        axes.set_xlim(lon[0], lon[-1])
        axes.set_ylim(lat[0], lat[-1])
        axes.legend(loc="upper left")
        _as_map(axes, lat)

    return Picture(caption, _drawn(draw))


def ways_map(area: Array, ways: Sequence[Array], caption: str) -> Picture:
    """An area, and ways from place to place, each as rows of (lon, lat)."""

    def draw(axes: Any) -> None:
        axes.fill(*area.T, color="#1f6feb", alpha=0.25, label="the area")
        for way in ways:
            axes.plot(*way.T, color="#57606a", linewidth=0.6)
            axes.plot(*way[-1], "o", color="#d1242f", markersize=4)
        axes.legend(loc="upper left")
        _as_map(axes, area[:, 1])

    return Picture(caption, _drawn(draw))


def profile_plot(attributes: Sequence[dict[str, Any]], caption: str) -> Picture:
    """Popularity, selectivity and uniformity of the attributes, side by side."""
    shown = list(attributes)[:12]

    def draw(axes: Any) -> None:
        at = np.arange(len(shown))
        for i, measure in enumerate(("popularity", "selectivity", "uniformity", "score")):
            values = [each[measure] for each in shown]
            axes.bar(at + (i - 1.5) * 0.2, values, 0.2, label=measure)
        axes.set_xticks(at, [each["name"] for each in shown], rotation=30, ha="right")
        axes.set_ylim(0, 1.05)
        axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
        axes.grid(True, axis="y", alpha=0.3)

    return Picture(caption, _drawn(draw, (7.5, 4)))


def bars(values: dict[str, float], label: str, caption: str) -> Picture:
    """A bar each, with its number."""

    def draw(axes: Any) -> None:
        found = axes.bar(list(values), list(values.values()), color=["#1f6feb", "#8c959f"])
        axes.bar_label(found, fmt="{:,.0f}", padding=3)
        axes.set_ylabel(label)
        axes.margins(y=0.12)

    return Picture(caption, _drawn(draw, (6, 4)))
