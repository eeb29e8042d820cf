"""Records as tables: plain rows of text, for the terminal and for the report alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table as RichTable

from nearcast.bench.results import Claim, Measurement, Record

__all__ = ["Grid", "bytes_text", "claim_grid", "grids", "narrowed", "rich_table", "time_text"]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of text: a title, columns, rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def grids(record: Record) -> list[Grid]:
    """One grid an operation, in the order of the run, and one with the claims."""
    by_operation: dict[str, list[Measurement]] = {}
    for measurement in record.measurements:
        by_operation.setdefault(measurement.operation, []).append(measurement)
    found = [_operation_grid(name, group) for name, group in by_operation.items()]
    return [*found, claim_grid(record.claims)] if record.claims else found


def _operation_grid(operation: str, group: list[Measurement]) -> Grid:
    points = list(dict.fromkeys(name for m in group for name in m.parameters))
    wrong = any(m.approximate for m in group)
    memory = any("total" in m.memory for m in group)
    messages = any("messages" in m.memory for m in group)
    many = any(m.work > 1 for m in group)
    columns = [*points, "contender"] + ["messages", "left", "asked"] * messages
    columns += ["median", "quartiles"]
    columns += [f"per {group[0].unit}", "rate/s"] * many + ["build", "compile"]
    columns += ["bytes"] * memory + ["missed", "false"] * wrong
    rows = [
        (
            *(_scalar(m.parameters.get(name, "")) for name in points),
            m.contender,
            *(_messages(m) if messages else ()),
            time_text(m.spread.median),
            f"{time_text(m.spread.q1)} – {time_text(m.spread.q3)}",
            *((time_text(m.item_s), _number(m.rate)) if many else ()),
            time_text(m.build_s),
            time_text(m.compile_s),
            *((bytes_text(m.memory.get("total", 0)),) if memory else ()),
            *(_errors(m) if wrong else ()),
        )
        for m in group
    ]
    return Grid(operation, tuple(columns), tuple(rows))


def _messages(m: Measurement) -> tuple[str, str, str]:
    """Messages per unit of work, and why they were sent."""
    total, left, asked = (m.memory.get(name, 0) / m.work for name in ("messages", "left", "asked"))
    return _number(total), _number(left), _number(asked)


def _errors(m: Measurement) -> tuple[str, str]:
    return f"{m.agreement.false_negative_rate:.2%}", f"{m.agreement.false_positive_rate:.2%}"


def claim_grid(claims: Iterable[Claim]) -> Grid:
    """What was measured beside what was asked for."""
    rows = []
    for claim in claims:
        target = "" if claim.target is None else f"{claim.sense} {_number(claim.target)}"
        verdict = {None: "", True: "met", False: "missed"}[claim.met]
        rows.append((claim.name, f"{_number(claim.value)} {claim.unit}", target, verdict))
    return Grid("numbers and targets", ("what", "measured", "target", "verdict"), tuple(rows))


#: Columns that a narrow terminal goes without, the first ones first; the report has them all.
_SPARE = ("compile", "build", "quartiles", "bytes")


def narrowed(grid: Grid, width: int) -> Grid:
    """The grid without as many of its spare columns as it takes to fit the width."""
    for spare in _SPARE:
        if _width(grid) <= width:
            break
        kept = [at for at, column in enumerate(grid.columns) if column != spare]
        grid = Grid(
            grid.title,
            tuple(grid.columns[at] for at in kept),
            tuple(tuple(row[at] for at in kept) for row in grid.rows),
        )
    return grid


def _width(grid: Grid) -> int:
    cells = [max(map(len, column)) for column in zip(grid.columns, *grid.rows, strict=True)]
    return sum(cells) + 3 * len(cells) + 1


def rich_table(grid: Grid, width: int) -> RichTable:
    """A grid for a terminal of this width: text to the left, numbers to the right."""
    shown = narrowed(grid, width)
    table = RichTable(title=shown.title, title_justify="left", header_style="bold")
    for at, column in enumerate(shown.columns):
        numeric = all(row[at][:1].isdigit() or not row[at] for row in shown.rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in shown.rows:
        table.add_row(*row)
    return table


def time_text(seconds: float) -> str:
    """Seconds with three digits in the unit that suits them."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds > 0 else "0 s"


def bytes_text(size: int) -> str:
    """Bytes with three digits in the unit that suits them."""
    amount = float(size)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} GB"


def _scalar(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
