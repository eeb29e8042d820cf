"""The demo's report: sections of text, tables and pictures in one HTML file."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nearcast.bench.plots import pyplot
from nearcast.bench.report import page, table_html
from nearcast.bench.tables import Grid

__all__ = ["COLOURS", "Chapter", "Picture", "bars", "drawn", "profile_plot", "write_story"]

#: As on the live map (web/src/scenery.ts, closeup.ts).
COLOURS = {
    "ground": "#ecebe6", "river": "#a8cde4", "motorway": "#f4c66d", "arterial": "#ffffff",
    "street": "#fbfaf8", "event": "#e11d48", "report": "#0f766e", "way": "#0284c7",
    "safe": "#059669", "impact": "#d97706", "fence": "#0f766e", "told": "#7c3aed",
    "quiet": "#8c959f", "reach": "#6d28d9",
}  # fmt: skip


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
    in_short: str = ""
    """What it comes to, for the summary."""
    grids: Sequence[Grid] = ()
    pictures: Sequence[Picture] = ()
    verbatim: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """(title, text) that keeps its lines, such as explanations."""


def write_story(title: str, chapters: Sequence[Chapter], path: Path) -> Path:
    """Write the report; it needs no other file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    summary = [
        f"<li><b>{escape(each.title)}</b>: {escape(each.in_short)}</li>"
        for each in chapters
        if each.in_short
    ]
    parts = ["<ul>", *summary, "</ul>"] if summary else []
    text = page(title, [*parts, *(part for each in chapters for part in _html(each))])
    path.write_text(text, encoding="utf-8")
    return path


def _html(chapter: Chapter) -> list[str]:
    return [
        f"<h2>{escape(chapter.title)}</h2>",
        *(f"<p>{escape(text)}</p>" for text in chapter.text),
        *(
            f"<figure>{picture.svg}<figcaption>{escape(picture.caption)}</figcaption></figure>"
            for picture in chapter.pictures
        ),
        *map(table_html, chapter.grids),
        *(f"<h3>{escape(title)}</h3><pre>{escape(text)}</pre>" for title, text in chapter.verbatim),
    ]


def drawn(draw: Callable[[Any], None], size: tuple[float, float]) -> str:
    """What `draw` does to matplotlib's axes, as SVG."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    try:
        draw(axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", dpi=150, metadata={"Date": None})
    finally:
        plt.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def profile_plot(attributes: Sequence[dict[str, Any]], caption: str) -> Picture:
    """Popularity, selectivity and uniformity of the attributes, side by side."""
    shown = list(attributes)[:12]

    def draw(axes: Any) -> None:
        at = np.arange(len(shown))
        measures = {"popularity": "way", "selectivity": "impact", "uniformity": "quiet",
                    "score": "report"}  # fmt: skip
        for i, (measure, colour) in enumerate(measures.items()):
            values = [each[measure] for each in shown]
            axes.bar(at + (i - 1.5) * 0.2, values, 0.2, label=measure, color=COLOURS[colour])
        axes.set_xticks(at, [each["name"] for each in shown], rotation=30, ha="right")
        axes.set_ylim(0, 1.05)
        axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
        axes.grid(True, axis="y", alpha=0.3)

    return Picture(caption, drawn(draw, (9.6, 4)))


def bars(values: dict[str, float], label: str, caption: str) -> Picture:
    """A bar each, with its number."""

    def draw(axes: Any) -> None:
        found = axes.bar(
            list(values), list(values.values()), color=[COLOURS["report"], COLOURS["quiet"]]
        )
        axes.bar_label(found, fmt="{:,.0f}", padding=3)
        axes.set_ylabel(label)
        axes.margins(y=0.12)
        axes.spines[["top", "right"]].set_visible(False)

    return Picture(caption, drawn(draw, (9.6, 4)))
