"""Plots from stored records: what to draw is a value, how to draw it is here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nearcast.bench.results import Measurement, Record
from nearcast.errors import MissingExtraError

__all__ = ["METRICS", "Figure", "Metric", "draw", "draw_all", "pyplot", "series"]

Metric: TypeAlias = Literal[
    "item_s", "rate", "build_s", "bytes", "item_bytes", "client", "compile_s", "seconds", "messages"
]

#: The label of each metric's axis; {unit} is what the operation handles.
METRICS: dict[Metric, str] = {
    "item_s": "time per {unit} (s)",
    "rate": "{unit}s per second",
    "build_s": "time to build (s)",
    "bytes": "memory (bytes)",
    "item_bytes": "memory per {unit} (bytes)",
    "client": "memory of a client (bytes)",
    "compile_s": "time to compile (s)",
    "seconds": "time (s)",
    "messages": "messages per {unit}",
}

Dots: TypeAlias = list[tuple[Any, float, float, float]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture: an operation's metric, along a parameter, a line a contender.

    Without `x` the contenders stand side by side as bars, from zero on. `log_x` and `log_y`
    None mean: logarithmic where the values span more than a factor of twenty.
    """

    name: str
    title: str
    operation: str
    metric: Metric = "item_s"
    x: str | None = None
    x_label: str = ""
    log_x: bool | None = None
    log_y: bool | None = None


def series(figure: Figure, measurements: Iterable[Measurement]) -> dict[str, Dots]:
    """What a figure shows: per line (x, median, first quartile, third quartile), by x.

    A line is a contender, together with every other parameter that varies.
    """
    shown = [
        measurement
        for measurement in measurements
        if measurement.operation == figure.operation
        and (figure.x is None or figure.x in measurement.parameters)
    ]
    varying = _varying(figure, shown)
    lines: dict[str, Dots] = {}
    for measurement in shown:
        others = [str(measurement.parameters.get(name, "")) for name in varying]
        label = ", ".join([measurement.contender, *others])
        at = label if figure.x is None else measurement.parameters[figure.x]
        dot = (at, *_values(figure.metric, measurement))
        lines.setdefault(label, []).append(dot)
    return {label: sorted(dots, key=lambda dot: dot[0]) for label, dots in lines.items()}


def _varying(figure: Figure, measurements: Sequence[Measurement]) -> list[str]:
    """The parameters beside x that have more than one value."""
    names = dict.fromkeys(name for m in measurements for name in m.parameters if name != figure.x)
    return [name for name in names if len({m.parameters.get(name) for m in measurements}) > 1]


def _values(metric: Metric, measurement: Measurement) -> tuple[float, float, float]:
    """Median and quartiles of a metric; those that are measured once are their own quartiles."""
    times, work = measurement.spread, measurement.work
    if metric == "item_s":
        return times.median / work, times.q1 / work, times.q3 / work
    if metric == "seconds":
        return times.median, times.q1, times.q3
    if metric == "rate":
        return measurement.rate, work / times.q3, work / times.q1
    if metric == "messages":
        once = measurement.memory.get("messages", 0) / work
    elif metric == "client":
        once = measurement.memory.get("client", 0)
    elif metric in ("bytes", "item_bytes"):
        once = measurement.memory.get("total", 0) / (work if metric == "item_bytes" else 1)
    else:
        once = measurement.build_s if metric == "build_s" else measurement.compile_s
    return once, once, once


def draw_all(figures: Sequence[Figure], record: Record, folder: Path) -> list[Path]:
    """Draw those figures that the record has data for, as PNG and SVG; say which files."""
    return [
        path
        for figure in figures
        if series(figure, record.measurements)
        for path in draw(figure, record, folder)
    ]


def draw(figure: Figure, record: Record, folder: Path) -> list[Path]:
    """Draw one figure of one record as `<date>-<name>.png` and `.svg`."""
    plt = pyplot()
    lines = series(figure, record.measurements)
    picture, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    try:
        _bars(axes, lines) if figure.x is None else _lines(axes, lines)
        _scale(axes, figure, lines)
        _label(axes, figure, record)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{record.stamp}-{figure.name}{kind}" for kind in (".png", ".svg")]
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            picture.savefig(path, dpi=150, metadata=metadata)
        return paths
    finally:
        plt.close(picture)


def pyplot() -> Any:
    """matplotlib, set to draw into files; raises MissingExtraError."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("matplotlib", "bench") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "nearcast"
    import matplotlib.pyplot as plt

    return plt


def _lines(axes: Any, lines: dict[str, Dots]) -> None:
    styles = zip("osD^vP*X<>ph" * 3, ["-"] * 10 + ["--"] * 10 + [":"] * 16, strict=True)
    for (name, dots), (marker, style) in zip(lines.items(), styles, strict=False):
        xs, medians, lows, highs = zip(*dots, strict=True)
        spread = [
            [median - low for median, low in zip(medians, lows, strict=True)],
            [high - median for median, high in zip(medians, highs, strict=True)],
        ]
        look = {"marker": marker, "linestyle": style, "markersize": 5, "capsize": 3}
        axes.errorbar(xs, medians, spread, label=name, **look)
    if len(lines) > 4:  # many names would cover the lines
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    elif len(lines) > 1:
        axes.legend()


def _bars(axes: Any, lines: dict[str, Dots]) -> None:
    for name, dots in lines.items():
        _, median, low, high = dots[-1]
        bars = axes.bar([name], [median], yerr=[[median - low], [high - median]], capsize=4)
        axes.bar_label(bars, fmt="{:.3g}", padding=3)
    axes.margins(y=0.12)


def _scale(axes: Any, figure: Figure, lines: dict[str, Dots]) -> None:
    dots = [dot for line in lines.values() for dot in line]
    if figure.x is not None:
        numbers = all(isinstance(dot[0], int | float) for dot in dots)
        if numbers and _logarithmic(figure.log_x, [float(dot[0]) for dot in dots]):
            axes.set_xscale("log")
    bars = figure.x is None  # a bar's length means something only from zero on
    if _logarithmic(False if bars else figure.log_y, [dot[1] for dot in dots]):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _logarithmic(wish: bool | None, values: list[float]) -> bool:
    if not values or min(values) <= 0:
        return False
    return log10(max(values) / min(values)) > log10(20) if wish is None else wish


def _label(axes: Any, figure: Figure, record: Record) -> None:
    unit = next(m.unit for m in record.measurements if m.operation == figure.operation)
    axes.set_title(figure.title)
    axes.set_ylabel(METRICS[figure.metric].format(unit=unit))
    if figure.x is not None:
        axes.set_xlabel(figure.x_label or figure.x)
    axes.grid(True, which="major", axis="y" if figure.x is None else "both", alpha=0.3)
    axes.set_axisbelow(True)
