"""Events as points and subscriptions as boxes, in the columns that cells are cut by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import BatchError, NearcastError
from nearcast.matcher import bulk
from nearcast.model.codec.wkb import read_wkb
from nearcast.model.geometry import Point, Space
from nearcast.model.schema import Schema, X, Y
from nearcast.spark.rows import accepted

__all__ = ["PLACE", "asked_columns", "clause_boxes", "event_points", "extended_rows"]

#: The columns of a place. Those of attributes are their names behind a dot, so that no
#: attribute can be mistaken for something else.
PLACE = ("@x", "@y")

F8: TypeAlias = npt.NDArray[np.float64]
I4: TypeAlias = npt.NDArray[np.int32]


def event_points(given: Mapping[str, Any], columns: tuple[str, ...], space: Space) -> F8:
    """A row of numbers for each event, NaN for what it lacks, from arrays by column name.

    What is wrong with an event is not told here: it is found when the event is matched.
    """
    (size,) = {len(array) for array in given.values()}
    points = np.full((size, len(columns)), np.nan)
    for at, name in enumerate(columns):
        source = {"@x": "lon", "@y": "lat"}.get(name, name)
        if source in given:
            numbers = given[source].cast(pa.float64(), safe=False)
            points[:, at] = numbers.to_numpy(zero_copy_only=False)
    if "@x" not in columns:
        return points
    x, y = columns.index("@x"), columns.index("@y")
    for row, place in _geometries(given.get("geometry")):
        if isinstance(place, Point):
            points[row, x], points[row, y] = place.x, place.y
    if space == "globe":  # as events are encoded
        points[points[:, x] == 180.0, x] = -180.0
    return points


def extended_rows(geometry: Any) -> npt.NDArray[np.bool_]:
    """Which rows have a location that is not a point; nothing of the kind without a column."""
    if geometry is None:
        return np.zeros(0, bool)
    found = np.zeros(len(geometry), bool)
    for row, place in _geometries(geometry):
        found[row] = not isinstance(place, Point)
    return found


def _geometries(geometry: Any) -> list[tuple[int, Any]]:
    """Rows with a geometry that can be read."""
    if geometry is None or geometry.null_count == len(geometry):
        return []
    found = []
    for row, data in enumerate(geometry.to_pylist()):
        if data is not None:
            try:
                found.append((row, read_wkb(data, None)))
            except NearcastError:
                continue
    return found


def clause_boxes(
    table: Any, columns: tuple[str, ...], space: Space, strict: bool
) -> tuple[I4, F8, F8]:
    """(rows of the table, lows, highs): a box for each clause of each good subscription."""
    schema = Schema()
    kept = np.arange(table.num_rows, dtype=np.int32)
    try:
        draft = bulk.encode_subscriptions(table, schema, space, None)
    except BatchError:
        if strict:
            raise
        good, bad = accepted(table, "subscriptions", space)
        kept = np.delete(kept, [reject.row for reject in bad])
        schema = Schema()
        draft = bulk.encode_subscriptions(good, schema, space, None)
    codes = [_code(schema, name) for name in columns]
    owners, lows, highs = [np.empty(0, np.int32)], [], []
    for piece in draft.pieces:
        low = np.full((piece.size, len(columns)), -np.inf)
        high = np.full((piece.size, len(columns)), np.inf)
        whose = np.repeat(np.arange(piece.size), np.diff(piece.start))
        for at, code in enumerate(codes):
            mine = piece.attr == code
            low[whose[mine], at] = piece.low[mine]
            high[whose[mine], at] = piece.high[mine]
        owners.append(kept[piece.owner])
        lows.append(low)
        highs.append(high)
    nothing = np.empty((0, len(columns)))
    return (
        np.concatenate(owners),
        np.concatenate([nothing, *lows]),
        np.concatenate([nothing, *highs]),
    )


def _code(schema: Schema, name: str) -> int:
    if name in PLACE:
        return X if name == "@x" else Y
    return schema.codes["number"].get(name.removeprefix("."), -1)


def asked_columns(table: Any, space: Space, most: int) -> tuple[str, ...]:
    """The number attributes that most clauses of a table ask for, commonest first."""
    good, _ = accepted(table, "subscriptions", space)
    schema = Schema()
    draft = bulk.encode_subscriptions(good, schema, space, None)
    counts = np.zeros(len(schema.columns), np.int64)
    for piece in draft.pieces:
        counts += np.bincount(piece.attr, minlength=counts.size)
    codes = [
        code
        for code in np.argsort(-counts, kind="stable").tolist()
        if code > Y and counts[code] and schema.columns[code][1] == "number"
    ]
    return tuple(f".{schema.columns[code][0]}" for code in codes[:most])
