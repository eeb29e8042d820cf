"""Who a position is of: the values under an attribute, as one column whatever their types.

A column of DataFrames has one type. Where all objects are strings, or all are numbers, it is
theirs; where they may be both it holds JSON, so that `"1"` and `1` stay two objects.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.matcher.arrow_columns import coded, column_of, doubles
from nearcast.model.fences import object_of

__all__ = ["Kind", "kind_of", "objects_of", "shards_of"]

Kind: TypeAlias = Literal["string", "double", "json"]
_WHOLE = 2.0**53


def kind_of(types: Iterable[Literal["string", "double", "bool"]], *, mixed: bool) -> Kind:
    """How objects are said that come from fields of these types; `mixed`: or from JSON."""
    named = {kind for kind in types if kind != "bool"}  # those name nobody
    if mixed or len(named) > 1:
        return "json"
    return "double" if named == {"double"} else "string"


def arrow_type(kind: Kind) -> Any:
    """The type of a column of objects."""
    return pa.float64() if kind == "double" else pa.string()


def objects_of(events: Any, attribute: str, kind: Kind) -> Any:
    """The object of each event, null where it is a position of nobody.

    `events` is a table with canonical columns, whose rows are good.
    """
    found = pa.nulls(events.num_rows, arrow_type(kind))
    if "attributes" in events.column_names:
        struct = column_of(events, "attributes")
        at = struct.type.get_field_index(attribute)
        if at >= 0:
            found = _said(struct.flatten()[at], kind)
    if "attributes_json" in events.column_names:
        texts = pc.map_lookup(column_of(events, "attributes_json"), attribute, "first")
        codes, uniques = coded(texts)
        values = pa.array([_of_json(text, attribute) for text in uniques], pa.string())
        found = pc.coalesce(found, values.take(pa.array(codes, mask=codes < 0)))
    return found


def _said(values: Any, kind: Kind) -> Any:
    """Values of one type, as objects."""
    if pa.types.is_boolean(values.type):
        return pa.nulls(len(values), arrow_type(kind))
    if pa.types.is_string(values.type):
        return values if kind == "string" else _by_value(values)
    numbers = doubles(values) + 0.0  # −0 and 0 are one object
    named = pa.array(numbers, mask=np.isnan(numbers))
    return named if kind == "double" else _by_value(named)


def _by_value(values: Any) -> Any:
    """As JSON, each value written once."""
    codes, uniques = coded(values)
    written = pa.array([_json(value) for value in uniques], pa.string())
    return written.take(pa.array(codes, mask=codes < 0))


def _of_json(text: str | None, attribute: str) -> str | None:
    """The one way to write an object that is given as JSON; None for what names nobody."""
    value = None if text is None else json.loads(text)
    who = object_of({} if value is None else {attribute: value}, attribute)
    return None if who is None else _json(who)


def _json(who: str | float) -> str:
    if isinstance(who, float) and who.is_integer() and abs(who) < _WHOLE:
        who = int(who)
    return json.dumps(who, ensure_ascii=False)


def shards_of(objects: Any, count: int) -> npt.NDArray[np.uint16]:
    """The shard of each object, evenly and everywhere alike."""
    if pa.types.is_floating(objects.type):
        bits = objects.to_numpy(zero_copy_only=False).view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        spread: Any = mixed >> np.uint64(32)
    else:
        codes, uniques = coded(objects)
        hashed = np.fromiter(map(zlib.crc32, map(str.encode, uniques)), np.uint64, len(uniques))
        spread = hashed[codes]
    shards: npt.NDArray[np.uint16] = (spread % np.uint64(count)).astype(np.uint16)
    return shards
