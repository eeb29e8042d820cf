"""Patterns as one writes them on Spark without us: a Python function by key, with state of its own.

PySpark's form of `flatMapGroupsWithState`. It knows the three patterns of Grus' logistics and
nothing else, takes events as they come, and forgets nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from nearcast.cpsl.composite import Composite

__all__ = ["by_vehicle"]

_HEAD = 10_000_000
_WITHIN_S = 600.0
_TOLD = "composite_id string, event_ids array<string>"
_NUMBER = re.compile(r"\((-?[\d.]+),(-?[\d.]+)\)")


def by_vehicle(events: Any, composites: Sequence[Composite]) -> Any:
    """Departures, arrivals and deviations, by the vehicle; composites are told by their numbers."""
    depots = [_depot(composite.text) for composite in composites]
    leaving = [composite.text.startswith("=|(@") for composite in composites]

    def detect(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        number = int(key[0])
        rows = sorted(
            (row for frame in frames for row in frame.itertuples(index=False)),
            key=lambda row: (row.end, row.vehicle),
        )
        waiting = json.loads(state.get[0]) if state.exists else []
        if number < 0 or not rows:
            return
        take = _pairs if depots[number] is not None else _fours
        told, waiting = take(rows, waiting, depots[number], leaving[number])
        state.update((json.dumps(waiting),))
        yield pd.DataFrame(
            {"composite_id": [str(number)] * len(told), "event_ids": told}, dtype=object
        )

    given = events.selectExpr(
        "id", "double(attributes.id) as vehicle", "lon", "lat", "double(end) as end",
        f"bigint(attributes.id) % {_HEAD} as key",
    )  # fmt: skip
    return given.groupBy("key").applyInPandasWithState(
        detect, _TOLD, "waiting string", "append", "NoTimeout"
    )


def _depot(text: str) -> tuple[float, float, float, float] | None:
    """The depot's edges; None for a deviation, which has none."""
    corners = [(float(x), float(y)) for x, y in _NUMBER.findall(text)][:4]
    if len(corners) < 4:
        return None
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    return min(xs), min(ys), max(xs), max(ys)


def _pairs(rows: list[Any], waiting: list[Any], depot: Any, leaves: bool) -> tuple[Any, list[Any]]:
    """At the depot and then far away; or the other way round."""
    left, low, right, high = depot
    told = []
    for row in rows:
        away = max(left - row.lon, row.lon - right, 0.0), max(low - row.lat, row.lat - high, 0.0)
        far = math.hypot(*away)
        if (far == 0) if leaves else (far > 500):
            waiting = waiting or [row.id, row.end]
        elif waiting and ((far > 500) if leaves else (far == 0)):
            if row.end - waiting[1] <= _WITHIN_S:
                told.append([waiting[0], row.id])
            waiting = []
    return told, waiting


def _fours(
    rows: list[Any], waiting: list[Any], _depot: Any, _leaves: bool
) -> tuple[Any, list[Any]]:
    """Truck and head together, then apart; the lone one waits, and those that were close."""
    lone, close = waiting or (None, None)
    told = []
    for row in rows:
        if lone is None or lone[1] != row.end or row.vehicle < _HEAD:
            lone = [row.id, row.end, row.lon, row.lat]
            continue
        apart = math.hypot(row.lon - lone[2], row.lat - lone[3])
        if apart < 300:
            close = [lone[0], row.id, row.end]
        elif apart > 300 and close is not None and row.end - close[2] <= _WITHIN_S:
            told.append([close[0], close[1], lone[0], row.id])
            close = None
        lone = None
    return told, [lone, close]
