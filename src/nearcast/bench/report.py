"""The report: one HTML file with tables, plots, and the command under every figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from nearcast.bench.plots import Figure, draw, series
from nearcast.bench.results import Record
from nearcast.bench.tables import Grid, bytes_text, grids

__all__ = ["page", "render", "table_html", "write_report"]

_SHORT = 48
"""Longer cells are broken into lines."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1f24; background: #fff; }
h2 { border-top: 1px solid #d0d7de; padding-top: 1rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums;
        display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #d0d7de; text-align: right;
         white-space: nowrap; }
th:first-child, td:first-child, td.long { text-align: left; }
td.long { white-space: normal; min-width: 22rem; }
figure { margin: 1.5rem 0; }
figure svg { max-width: 100%; height: auto; }
pre { overflow-x: auto; background: #f6f8fa; border-radius: 6px; padding: .6rem .8rem;
      font-size: 13px; }
figcaption, .where { color: #57606a; font-size: 13px; }
code { background: #f6f8fa; padding: .1rem .3rem; }
.met { color: #1a7f37; } .missed { color: #cf222e; }
"""


def write_report(
    records: Sequence[Record], figures: Callable[[str], Sequence[Figure]], directory: Path
) -> Path:
    """Draw every figure of every record and write `report.html` beside them."""
    path = directory / "report.html"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(render(records, figures, directory), encoding="utf-8")
    return path


def render(
    records: Sequence[Record], figures: Callable[[str], Sequence[Figure]], directory: Path
) -> str:
    """The report as text; needs no other file to be read (the pictures are inside)."""
    sections = [_section(record, figures(record.experiment), directory) for record in records]
    links = " · ".join(f'<a href="#{_anchor(r)}">{escape(r.experiment)}</a>' for r in records)
    return page(
        "nearcast: measurements",
        [
            "<p>Medians of interleaved repetitions. Every timing here gave the right answer; "
            "an approximate contender shows its error rates.</p>",
            f"<p>{links}</p>",
            *sections,
        ],
    )


def page(title: str, parts: Sequence[str]) -> str:
    """A whole HTML page of ready parts."""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            "</body></html>\n",
        ]
    )


def _section(record: Record, figures: Sequence[Figure], directory: Path) -> str:
    pictures = [
        _picture(figure, record, directory)
        for figure in figures
        if series(figure, record.measurements)
    ]
    return "\n".join(
        [
            f'<h2 id="{_anchor(record)}">{escape(record.experiment)}</h2>',
            f'<p class="where">{escape(_where(record))}</p>',
            _command(record),
            *(table_html(grid) for grid in grids(record)),
            *pictures,
        ]
    )


def _anchor(record: Record) -> str:
    return f"{escape(record.experiment)}-{record.stamp}"


def _command(record: Record) -> str:
    return f"<p><code>{escape(record.command)}</code></p>"


def _where(record: Record) -> str:
    machine = record.machine
    memory = machine.get("memory_bytes")
    parts = [
        record.date,
        f"commit {record.commit[:12]}",
        f"{machine.get('cpu')}, {machine.get('cores')} cores",
        bytes_text(int(memory)) if memory else "",
        f"Python {machine.get('python')}",
        *(f"{name} {version}" for name, version in machine.get("versions", {}).items()),
    ]
    return " · ".join(part for part in parts if part)


def table_html(grid: Grid) -> str:
    """A grid as an HTML table."""
    head = "".join(f"<th>{escape(column)}</th>" for column in grid.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in grid.rows)
    return (
        f"<table><caption>{escape(grid.title)}</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{rows}</tbody></table>"
    )


def _cell(text: str) -> str:
    kind = text if text in ("met", "missed") else "long" if len(text) > _SHORT else ""
    verdict = f' class="{kind}"' if kind else ""
    return f"<td{verdict}>{escape(text)}</td>"


def _picture(figure: Figure, record: Record, directory: Path) -> str:
    paths = draw(figure, record, directory / record.experiment)
    svg = next(path for path in paths if path.suffix == ".svg").read_text("utf-8")
    inside = svg[svg.index("<svg") :]
    return (
        f"<figure>{inside}<figcaption>{escape(figure.title)}<br>"
        f"<code>{escape(record.command)}</code></figcaption></figure>"
    )
