"""The truth about a workload, worked out with NumPy alone.

Shares nothing with the matcher, the indexes or their kernels, so that it can judge them.
Knows intervals and boxes, which is what the papers' workloads are made of. Costs about
10 ns a predicate and event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import BenchError

__all__ = ["sure_events", "true_matches"]

_SUBSCRIPTION = {"id", "intervals", "xmin", "ymin", "xmax", "ymax"}
_EVENT = {"id", "attributes", "lon", "lat", "start", "end", "expires"}

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def true_matches(subscriptions: pa.Table, events: pa.Table) -> pa.Table:
    """All (event_id, subscription_id), event by event, subscriptions in their order."""
    _refuse(subscriptions, _SUBSCRIPTION, "subscriptions")
    _refuse(events, _EVENT, "events")
    found = [np.flatnonzero(mask) for mask in _masks(subscriptions, events)]
    rows = np.concatenate(found) if found else np.empty(0, np.int64)
    at = np.repeat(np.arange(len(found)), [hits.size for hits in found])
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
        interval["attribute"]: (interval["low"] + interval["high"]) / 2
        for interval in subscription["intervals"]
    }
    bent = {"id": f"{event['id']}-sure", "attributes": {**event["attributes"], **middles}}
    if "xmin" in subscription:
        bent["lon"] = (subscription["xmin"] + subscription["xmax"]) / 2
        bent["lat"] = (subscription["ymin"] + subscription["ymax"]) / 2
    return {**event, **bent}


def _refuse(table: pa.Table, known: set[str], what: str) -> None:
    unknown = sorted(set(table.column_names) - known)
    if unknown:
        raise BenchError(
            f"{what}: the truth about {', '.join(unknown)} is not known here; leave them out"
        )


def _masks(subscriptions: pa.Table, events: pa.Table) -> Iterator[Mask]:
    """For each event, which subscriptions want it."""
    codes, names, low, high, parents = _predicates(subscriptions)
    values = _values(events, names)
    box = _box(subscriptions)
    places = _places(events)
    for at in range(events.num_rows):
        mine = values[at][codes]
        wanted = np.ones(subscriptions.num_rows, bool)
        wanted[parents[~((low <= mine) & (mine <= high))]] = False
        if box is not None:
            x, y = places[at]
            wanted &= (box[0] <= x) & (x <= box[2]) & (box[1] <= y) & (y <= box[3])
        yield wanted


def _predicates(
    subscriptions: pa.Table,
) -> tuple[npt.NDArray[np.int64], list[str], Floats, Floats, npt.NDArray[np.int64]]:
    """All intervals of all subscriptions: attribute codes, their names, ends, and whose."""
    column = subscriptions["intervals"].combine_chunks()
    sizes = np.diff(column.offsets.to_numpy())
    items = column.flatten()
    named = items.field("attribute").dictionary_encode()
    return (
        named.indices.to_numpy().astype(np.int64),
        named.dictionary.to_pylist(),
        items.field("low").to_numpy(),
        items.field("high").to_numpy(),
        np.repeat(np.arange(len(column)), sizes),
    )


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


def _places(events: pa.Table) -> Floats:
    if "lon" not in events.column_names:
        return np.full((events.num_rows, 2), np.nan)
    return np.column_stack([events[side].to_numpy() for side in ("lon", "lat")])
