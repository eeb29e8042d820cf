"""From a profile to a tuning: indexing attributes, the index, a partitioning of space.

The JSON is described in docs/pipeline.md; `Matcher(tuning=…)` and `match(tuning=…)` take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nearcast.index.mo_tree.optimiser import most_stabs
from nearcast.matcher.tuning import FORMAT
from nearcast.model.geometry import Space
from nearcast.spark.profile import AttributeProfile, Profile, profile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["tune", "tuning_of"]

Array = npt.NDArray[np.float64]

#: A scan of so few clauses takes a microsecond: no structure is worth its upkeep.
_FEW = 256
#: Share of broad clauses from which on no access path leads past the others.
_MOSTLY = 0.9
_HEIGHT, _LEVELS, _DISJOINT = 6, 4, 10
_CELLS = 64
_GRID = 32


def tune(
    events: DataFrame,
    subscriptions: DataFrame,
    space: Space = "globe",
    *,
    cells: int = _CELLS,
    sample: int = 20_000,
) -> dict[str, Any]:
    """Measure a workload and say what suits it: the JSON value of a tuning.

    `cells` is into how many parts space is cut, `sample` how many rows of each side are
    looked at. A few short Spark jobs; seconds for any size.
    """
    return tuning_of(profile(events, subscriptions, space, sample), space, cells)


def tuning_of(measured: Profile, space: Space = "globe", cells: int = _CELLS) -> dict[str, Any]:
    """The tuning that follows from a profile."""
    index, why = _index(measured)
    return {
        "nearcast_tuning": FORMAT,
        "space": space,
        "index": index,
        "why": why,
        "options": {"mo-tree": _mo_tree(measured)} if _indexable(measured) else {},
        "workload": {
            "subscriptions": measured.subscriptions,
            "events": measured.events,
            "sampled_subscriptions": measured.sampled_subscriptions,
            "sampled_events": measured.sampled_events,
            "clauses": measured.clauses,
            "rejects": measured.rejects,
        },
        "attributes": [_attribute(each) for each in measured.attributes],
        "pivot": {
            "broad_share": round(measured.broad_share, 6),
            "passes": {each.name: round(each.passes, 6) for each in _by_passes(measured)},
        },
        "density": _density(measured.places),
        "partitioning": _partitioning(measured, cells),
    }


def _index(measured: Profile) -> tuple[str, str]:
    scale = measured.subscriptions / max(measured.sampled_subscriptions, 1)
    clauses = measured.clauses * scale
    if clauses <= _FEW:
        return "scan", f"{clauses:.0f} clauses are compared faster than any structure is asked"
    if measured.broad_share >= _MOSTLY:
        return (
            "di-tree",
            f"{measured.broad_share:.0%} of the clauses let more than 5 % of the events through: "
            "only a cost that does not depend on the matches helps",
        )
    return (
        "pivot",
        f"{1 - measured.broad_share:.0%} of the clauses are selective: each by its best path",
    )


def _indexable(measured: Profile) -> list[AttributeProfile]:
    """The numbers worth indexing, best first."""
    return [
        each
        for each in measured.attributes
        if each.kind == "number" and each.high > each.low and each.score > 0
    ]


def _mo_tree(measured: Profile) -> dict[str, Any]:
    """H, L, η and the indexing attributes with their domains (§4.2, §5)."""
    best = _indexable(measured)[:_HEIGHT]
    return {
        "height": len(best),
        "levels": _LEVELS,
        "disjoint_cells": _DISJOINT,
        "eta": float(most_stabs(_LEVELS)),
        "attributes": [{"name": a.name, "low": a.low, "high": a.high} for a in best],
    }


def _attribute(each: AttributeProfile) -> dict[str, Any]:
    return {
        "name": each.name,
        "type": each.kind,
        "popularity": round(each.popularity, 6),
        "selectivity": round(each.selectivity, 6),
        "uniformity": round(each.uniformity, 6),
        "score": round(each.score, 6),
        "low": each.low,
        "high": each.high,
        "event_share": round(each.event_share, 6),
        "passes": round(each.passes, 6),
        "centres": list(each.centres),
        "widths": list(each.widths),
        "values": list(each.values),
    }


def _by_passes(measured: Profile) -> list[AttributeProfile]:
    return sorted(measured.attributes, key=lambda each: (each.passes, each.name))


def _density(places: Array) -> dict[str, Any]:
    """How unevenly events lie over a grid of 32 × 32 over their hull."""
    if len(places) == 0:
        return {}
    low, high = places.min(axis=0), places.max(axis=0)
    edges = [
        np.linspace(a, b if b > a else a + 1e-9, _GRID + 1) for a, b in zip(low, high, strict=True)
    ]
    counts = np.histogram2d(places[:, 0], places[:, 1], edges)[0].ravel()
    falling = np.sort(counts)[::-1] / counts.sum()
    rising = np.cumsum(falling[::-1])
    return {
        "box": [float(low[0]), float(low[1]), float(high[0]), float(high[1])],
        "grid": _GRID,
        "occupied_share": round(float((counts > 0).mean()), 6),
        "busiest_share": round(float(falling[0]), 6),
        "busiest_percent_share": round(float(falling[: _GRID * _GRID // 100].sum()), 6),
        "gini": round(float(1 - 2 * rising.mean() + 1 / rising.size), 6),
    }


def _partitioning(measured: Profile, cells: int) -> dict[str, Any]:
    """Boxes with about equally many events each, halved where it is busiest."""
    places, boxes = measured.places, measured.boxes
    if len(places) == 0:
        return {}
    cut = kd_cells(places, cells)
    held = np.array([len(rows) for _, rows in cut]) / len(places)
    copies = np.array([_meeting(boxes, box) for box, _ in cut])
    regions = max(len(boxes), 1)
    return {
        "columns": ["@x", "@y"],
        "cells": [
            {
                "box": [float(side) if np.isfinite(side) else None for side in box],
                "events_share": round(float(share), 6),
                "subscriptions_share": round(float(n) / regions, 6),
            }
            for (box, _), share, n in zip(cut, held, copies, strict=True)
        ],
        "skew": round(float(held.max() * len(cut)), 3),
        "copies": round(float(copies.sum()) / regions, 3),
    }


def kd_cells(places: Array, cells: int) -> list[tuple[list[float], npt.NDArray[np.int64]]]:
    """At most `cells` boxes that cover the plane, with the rows of the places in each.

    The fullest box is cut at the median of its longer side until there are enough; a box
    whose places are all the same stays whole.
    """
    import heapq

    whole = [-np.inf, -np.inf, np.inf, np.inf]
    heap = [(-len(places), 0, whole, np.arange(len(places)))]
    done: list[tuple[list[float], npt.NDArray[np.int64]]] = []
    number = 0
    while heap and len(heap) + len(done) < cells:
        _, _, box, rows = heapq.heappop(heap)
        halves = _halved(places, box, rows)
        if halves is None:
            done.append((box, rows))
            continue
        for half, kept in halves:
            number += 1
            heapq.heappush(heap, (-len(kept), number, half, kept))
    return [*done, *((box, rows) for _, _, box, rows in sorted(heap, key=lambda each: each[1]))]


def _halved(
    places: Array, box: list[float], rows: npt.NDArray[np.int64]
) -> list[tuple[list[float], npt.NDArray[np.int64]]] | None:
    inside = places[rows]
    if len(rows) < 2:
        return None
    spans = inside.max(axis=0) - inside.min(axis=0)
    axis = int(spans.argmax())
    if spans[axis] == 0:
        return None
    values = np.sort(inside[:, axis])
    middle = values[len(values) // 2]
    if middle == values[0]:
        middle = values[values > values[0]][0]
    left = inside[:, axis] < middle
    low, high = list(box), list(box)
    low[2 + axis] = high[axis] = float(middle)
    return [(low, rows[left]), (high, rows[~left])]


def _meeting(boxes: Array, cell: list[float]) -> int:
    xmin, ymin, xmax, ymax = cell
    meets = (boxes[:, 0] <= xmax) & (boxes[:, 2] >= xmin)
    meets &= (boxes[:, 1] <= ymax) & (boxes[:, 3] >= ymin)
    return int(meets.sum())
