"""The rival of a join: shapely's tree, and NumPy for the intervals of what it finds.

Its best form, of those tried: the tree is over the events, and subscriptions go past it a
thousand at a time, so that candidates stay in the cache. All subscriptions at once took more
than twice as long, and, all at once, a tree over the subscriptions 1.1 to 1.6 times as long as
one over the events; that one was not tried in pieces.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

__all__ = ["joined"]

F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]
_PIECE = 1000


class _Intervals(NamedTuple):
    start: I8
    count: I8  # type: ignore[assignment]  # hides tuple.count, unused
    code: npt.NDArray[np.int32]
    low: F8
    high: F8
    names: list[str]

    @classmethod
    def of(cls, subscriptions: pa.Table) -> _Intervals:
        column = subscriptions["intervals"].combine_chunks()
        offsets = column.offsets.to_numpy().astype(np.int64)
        items = column.flatten()
        named = items.field("attribute").dictionary_encode()
        low, high = items.field("low").to_numpy(), items.field("high").to_numpy()
        names = named.dictionary.to_pylist()
        return cls(offsets[:-1], np.diff(offsets), named.indices.to_numpy(), low, high, names)


def joined(subscriptions: pa.Table, events: pa.Table, threads: int) -> pa.Table:
    """All (event_id, subscription_id) of boxes and intervals, Arrow in and out."""
    wanted = _Intervals.of(subscriptions)
    width = len(wanted.names)
    values = _values(events, wanted.names).ravel()
    tree = shapely.STRtree(shapely.points(*_columns(events, "lon", "lat")))
    tree.query(shapely.box(0, 0, 0, 0))  # the tree is made at the first query
    box = _columns(subscriptions, "xmin", "ymin", "xmax", "ymax")

    def work(first: int) -> tuple[I8, I8]:
        sides = (side[first : first + _PIECE] for side in box)
        rows, found = tree.query(shapely.box(*sides))
        return _kept(wanted, values, width, rows + first, found)

    pieces = range(0, subscriptions.num_rows, _PIECE)
    if threads == 1:
        parts = [work(first) for first in pieces]
    else:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(work, pieces))
    rows = np.concatenate([part[0] for part in parts])
    found = np.concatenate([part[1] for part in parts])
    ids = {"event_id": events["id"].take(pa.array(found))}
    return pa.table(ids | {"subscription_id": subscriptions["id"].take(pa.array(rows))})


def _columns(table: pa.Table, *names: str) -> list[Any]:
    return [table[name].combine_chunks().to_numpy() for name in names]


def _values(events: pa.Table, names: list[str]) -> F8:
    attributes = events["attributes"].combine_chunks()
    values = np.full((events.num_rows, len(names)), np.nan)
    for at, name in enumerate(names):
        if attributes.type.get_field_index(name) >= 0:
            values[:, at] = attributes.field(name).to_numpy(zero_copy_only=False)
    return values


def _kept(wanted: _Intervals, values: F8, width: int, rows: I8, events: I8) -> tuple[I8, I8]:
    """Candidates whose intervals all hold; each leaves fewer to the next."""
    done: list[tuple[I8, I8]] = []
    base, first, count = events * width, wanted.start.take(rows), wanted.count.take(rows)
    k = 0
    while rows.size:
        if count.min() <= k:
            over = count <= k
            done.append((rows[over], base[over] // width))
            rows, base, first, count = rows[~over], base[~over], first[~over], count[~over]
        at = first + k
        mine = values.take(base + wanted.code.take(at))
        held = np.flatnonzero((wanted.low.take(at) <= mine) & (mine <= wanted.high.take(at)))
        rows, base = rows.take(held), base.take(held)
        first, count = first.take(held), count.take(held)
        k += 1
    empty = np.empty(0, np.int64)
    done.append((empty, empty))
    return np.concatenate([d[0] for d in done]), np.concatenate([d[1] for d in done])
