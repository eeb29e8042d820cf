"""The truth about a workload, worked out with NumPy alone.

Shares nothing with the matcher, the indexes or their kernels, so that it can judge them.
Knows intervals, boxes and circles, which is what the papers' workloads are made of. Costs about
10 ns a predicate that has to be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import BenchError
from nearcast.model.geometry import Space

__all__ = ["sure_events", "true_live_events", "true_matches"]

_SUBSCRIPTION = {"id", "intervals", "xmin", "ymin", "xmax", "ymax", "lon", "lat", "radius_m"}
_EVENT = {"id", "attributes", "lon", "lat", "start", "end", "expires"}

_RADIUS_M = 6_371_008.8

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def true_matches(subscriptions: pa.Table, events: pa.Table) -> pa.Table:
    """All (event_id, subscription_id), event by event, subscriptions in their order; no circles."""
    _refuse(subscriptions, _SUBSCRIPTION - {"lon", "lat", "radius_m"}, "subscriptions")
    _refuse(events, _EVENT, "events")
    found = list(_found(subscriptions, events))
    rows = np.concatenate(found) if found else np.empty(0, np.int64)
    at = np.repeat(np.arange(len(found)), [hits.size for hits in found])
    return _pairs(subscriptions, rows, events, at)


def true_live_events(
    subscriptions: pa.Table, events: pa.Table, space: Space = "planar"
) -> pa.Table:
    """The same pairs, subscription by subscription: for few subscriptions and many events."""
    _refuse(subscriptions, _SUBSCRIPTION, "subscriptions")
    _refuse(events, _EVENT, "events")
    wanted = subscriptions["intervals"].to_pylist()
    names = sorted({each["attribute"] for many in wanted for each in many})
    values = dict(zip(names, _values(events, names).T, strict=True))
    box = _box(subscriptions)
    circles = _circles(subscriptions)
    x, y = _places(events).T
    found = []
    for at, intervals in enumerate(wanted):
        left = np.arange(events.num_rows)
        if box is not None:
            xmin, ymin, xmax, ymax = (side[at] for side in box)
            left = np.flatnonzero((xmin <= x) & (x <= xmax) & (ymin <= y) & (y <= ymax))
        if circles is not None:
            cx, cy, radius = circles[at]
            left = left[_distance(cx, cy, x[left], y[left], space) <= radius]
        for each in intervals:
            mine = values[each["attribute"]][left]
            left = left[(each["low"] <= mine) & (mine <= each["high"])]
        found.append(left)
    rows = np.repeat(np.arange(len(found)), [hits.size for hits in found])
    hits = np.concatenate(found) if found else np.empty(0, np.int64)
    return _pairs(subscriptions, rows, events, hits)


def _pairs(subscriptions: pa.Table, rows: Codes, events: pa.Table, at: Codes) -> pa.Table:
    return pa.table(
        {
            "event_id": events["id"].take(pa.array(at, pa.int64())),
            "subscription_id": subscriptions["id"].take(pa.array(rows, pa.int64())),
        }
    ).combine_chunks()


def sure_events(subscriptions: pa.Table, events: pa.Table, seed: int) -> pa.Table:
    """As many events again, each bent so that one subscription, drawn at random, wants it.

    A narrow workload has few matches or none, and an empty answer proves nothing.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, subscriptions.num_rows, events.num_rows)
    wanted = subscriptions.take(pa.array(drawn, pa.int64())).to_pylist()
    pairs = zip(events.to_pylist(), wanted, strict=True)
    bent = [_bent(event, subscription) for event, subscription in pairs]
    return pa.Table.from_pylist(bent, schema=events.schema)


def _bent(event: dict[str, Any], subscription: dict[str, Any]) -> dict[str, Any]:
    """The event with values in the middle of the subscription's intervals and its box."""
    middles = {
        interval["attribute"]: _within(interval["low"], interval["high"])
        for interval in subscription["intervals"]
    }
    bent = {"id": f"{event['id']}-sure", "attributes": {**event["attributes"], **middles}}
    if "xmin" in subscription:
        bent["lon"] = (subscription["xmin"] + subscription["xmax"]) / 2
        bent["lat"] = (subscription["ymin"] + subscription["ymax"]) / 2
    if "radius_m" in subscription:
        bent["lon"], bent["lat"] = subscription["lon"], subscription["lat"]
    return {**event, **bent}


def _within(low: float, high: float) -> float:
    """The middle of an interval; where it has one end only, that."""
    if math.isinf(low):
        return high
    return low if math.isinf(high) else (low + high) / 2


def _refuse(table: pa.Table, known: set[str], what: str) -> None:
    unknown = sorted(set(table.column_names) - known)
    if unknown:
        raise BenchError(
            f"{what}: the truth about {', '.join(unknown)} is not known here; leave them out"
        )


def _found(subscriptions: pa.Table, events: pa.Table) -> Iterator[Codes]:
    """For each event, the numbers of the subscriptions that want it."""
    predicates = _Predicates.of(subscriptions)
    values = _values(events, predicates.names)
    box = _box(subscriptions)
    places = _places(events)
    for at in range(events.num_rows):
        left = None
        if box is not None:
            x, y = places[at]
            left = np.flatnonzero((box[0] <= x) & (x <= box[2]) & (box[1] <= y) & (y <= box[3]))
        yield predicates.left(left, values[at])


class _Predicates(NamedTuple):
    """The intervals of all subscriptions: the first of each, the second of each, and so on.

    A test costs about 10 ns; each leaves fewer subscriptions to the next.
    """

    size: int
    names: list[str]
    codes: list[Codes]
    low: list[Floats]
    high: list[Floats]

    @classmethod
    def of(cls, subscriptions: pa.Table) -> _Predicates:
        column = subscriptions["intervals"].combine_chunks()
        sizes = np.diff(column.offsets.to_numpy())
        items = column.flatten()
        named = items.field("attribute").dictionary_encode()
        names = named.dictionary.to_pylist()
        most = int(sizes.max(initial=0))
        rank = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        whose = np.repeat(np.arange(sizes.size), sizes)

        def ranked(values: Any, missing: float, kind: Any) -> list[Any]:
            spread = np.full((most, sizes.size), missing, kind)
            spread[rank, whose] = values
            return list(spread)

        return cls(
            sizes.size,
            names,
            ranked(named.indices.to_numpy(), len(names), np.int64),
            ranked(items.field("low").to_numpy(), -np.inf, np.float64),
            ranked(items.field("high").to_numpy(), np.inf, np.float64),
        )

    def left(self, rows: Codes | None, values: Floats) -> Codes:
        """Those of the rows (None: of all) whose every interval holds its value; NaN is in none."""
        given = np.append(values, 0.0)  # the last stands for a predicate that is not there
        for codes, low, high in zip(self.codes, self.low, self.high, strict=True):
            if rows is None:
                mine = given[codes]
                rows = np.flatnonzero((low <= mine) & (mine <= high))
            else:
                mine = given[codes[rows]]
                rows = rows[(low[rows] <= mine) & (mine <= high[rows])]
        return np.arange(self.size) if rows is None else rows


def _values(events: pa.Table, names: list[str]) -> Floats:
    """Each event's values of these attributes; NaN, which no interval holds, where it has none."""
    attributes = events["attributes"].combine_chunks()
    values = np.full((events.num_rows, len(names)), np.nan)
    for at, name in enumerate(names):
        if attributes.type.get_field_index(name) >= 0:
            values[:, at] = attributes.field(name).to_numpy(zero_copy_only=False)
    return values


def _box(subscriptions: pa.Table) -> list[Floats] | None:
    if "xmin" not in subscriptions.column_names:
        return None
    sides = ("xmin", "ymin", "xmax", "ymax")
    return [subscriptions[side].combine_chunks().to_numpy() for side in sides]


def _circles(subscriptions: pa.Table) -> Floats | None:
    """Centre and radius of each, one a row."""
    if "radius_m" not in subscriptions.column_names:
        return None
    return np.column_stack([subscriptions[n].to_numpy() for n in ("lon", "lat", "radius_m")])


def _distance(cx: float, cy: float, x: Floats, y: Floats, space: Space) -> Floats:
    """From a centre to points: on the plane, or along the globe by the haversine."""
    if space == "planar":
        return np.hypot(x - cx, y - cy)
    cx, cy, x, y = math.radians(cx), math.radians(cy), np.radians(x), np.radians(y)
    half = np.sin((y - cy) / 2) ** 2 + math.cos(cy) * np.cos(y) * np.sin((x - cx) / 2) ** 2
    found: Floats = 2 * _RADIUS_M * np.arcsin(np.sqrt(np.minimum(half, 1.0)))
    return found


def _places(events: pa.Table) -> Floats:
    if "lon" not in events.column_names:
        return np.full((events.num_rows, 2), np.nan)
    return np.column_stack([events[side].to_numpy() for side in ("lon", "lat")])
