"""The truth about words and boxes, worked out with NumPy alone: shares nothing with an index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.datasets.columns import boxes_wkb

__all__ = ["event_boxes", "sure_messages", "true_textual_matches"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


def event_boxes(events: pa.Table) -> Floats:
    """xmin, ymin, xmax, ymax of each event; a point is a box too."""
    if "geometry" in events.column_names:
        import shapely

        bounds: Floats = shapely.bounds(shapely.from_wkb(events["geometry"].to_numpy()))
        return bounds
    points = np.stack([events[side].to_numpy() for side in ("lon", "lat")], axis=1)
    return np.hstack([points, points])


def sure_messages(subscriptions: pa.Table, events: pa.Table, seed: int) -> pa.Table:
    """As many messages again, each with the words and the place of one subscription as well."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, subscriptions.num_rows, events.num_rows)
    wanted = subscriptions.take(pa.array(drawn, pa.int64())).to_pylist()
    bent = []
    for event, sub in zip(events.to_pylist(), wanted, strict=True):
        made = {"id": f"{event['id']}-sure", "keywords": [*event["keywords"], *sub["keywords"]]}
        if "geometry" in event:
            box = {side: np.array([sub[side]]) for side in ("xmin", "ymin", "xmax", "ymax")}
            made["geometry"] = boxes_wkb(**box)[0].as_py()
        else:
            made["lon"] = (sub["xmin"] + sub["xmax"]) / 2
            made["lat"] = (sub["ymin"] + sub["ymax"]) / 2
        bent.append({**event, **made})
    return pa.Table.from_pylist(bent, schema=events.schema)


def true_textual_matches(subscriptions: pa.Table, events: pa.Table) -> pa.Table:
    """All (event_id, subscription_id): every word is there, and the boxes meet."""
    found = list(_found(subscriptions, events))
    rows = np.concatenate([np.empty(0, np.int64), *found])
    at = np.repeat(np.arange(len(found)), [hits.size for hits in found])
    pairs = {
        "event_id": events["id"].take(pa.array(at, pa.int64())),
        "subscription_id": subscriptions["id"].take(pa.array(rows, pa.int64())),
    }
    return pa.table(pairs).combine_chunks()


def _found(subscriptions: pa.Table, events: pa.Table) -> Iterator[Codes]:
    """The rows that want each event.

    Subscriptions stand by their left sides, so that those between the first that reaches an
    event's left side and the last that begins before its right side are all it can meet: some
    hundredths, which makes ten thousand messages a matter of seconds.
    """
    starts, codes, names = _words(subscriptions)
    rarest = _rarest(starts, codes, len(names))
    order = np.argsort(subscriptions["xmin"].to_numpy())
    sides = [subscriptions[side].to_numpy()[order] for side in ("xmin", "ymin", "xmax", "ymax")]
    reached = np.maximum.accumulate(sides[2])
    known = {name: code for code, name in enumerate(names)}
    said = events["keywords"].to_pylist()
    for words, (xmin, ymin, xmax, ymax) in zip(said, event_boxes(events), strict=True):
        span = slice(np.searchsorted(reached, xmin), np.searchsorted(sides[0], xmax, "right"))
        near = (sides[2][span] >= xmin) & (sides[1][span] <= ymax) & (sides[3][span] >= ymin)
        rows = order[span][near]
        present = np.zeros(len(names) + 1, bool)
        present[[known[word] for word in words if word in known]] = True
        present[-1] = True
        rows = rows[present[rarest[rows]]]
        sizes = starts[rows + 1] - starts[rows]
        flat = np.repeat(starts[rows] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        missing = np.bincount(
            np.repeat(np.arange(rows.size), sizes), weights=~present[codes[flat]],
            minlength=rows.size,
        )  # fmt: skip
        yield rows[missing == 0]


def _rarest(starts: Codes, codes: Codes, words: int) -> Codes:
    """The rarest word of each row, `words` for none."""
    by_frequency = np.argsort(np.bincount(codes, minlength=words), kind="stable")
    rank = np.empty(words, np.int64)
    rank[by_frequency] = np.arange(words)
    found = np.full(starts.size - 1, words)
    some = starts[:-1] < starts[1:]
    if some.any():
        found[some] = by_frequency[np.minimum.reduceat(rank[codes], starts[:-1][some])]
    return found


def _words(table: pa.Table) -> tuple[Codes, Codes, list[Any]]:
    """(offsets, codes, names) of a column of word lists."""
    column = table["keywords"].combine_chunks()
    coded = column.flatten().dictionary_encode()
    offsets = column.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], coded.indices.to_numpy(), coded.dictionary.to_pylist()
