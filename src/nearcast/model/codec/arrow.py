"""Events and subscriptions as Arrow tables, row by row: some microseconds a row.

The columns and their types are in `columns`. What reads tables in bulk uses
`check_event_columns` and `check_subscription_columns` only, and never makes an object a row.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from nearcast.errors import BatchError, NearcastError, ValidationError
from nearcast.model.codec.columns import (
    EVENT_COLUMNS,
    FENCE_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    Table,
    check_event_columns,
    check_fence_columns,
    check_subscription_columns,
)
from nearcast.model.codec.wkb import read_wkb, write_wkb
from nearcast.model.cql2_literals import name_text
from nearcast.model.events import Event, Value
from nearcast.model.fences import Fence
from nearcast.model.filters import Filter
from nearcast.model.geometry import (
    Around,
    Box,
    Circle,
    Location,
    Point,
    Polygon,
    Region,
    Space,
    check_space,
)
from nearcast.model.subscriptions import Subscription

__all__ = [
    "EVENT_COLUMNS",
    "FENCE_COLUMNS",
    "SUBSCRIPTION_COLUMNS",
    "check_event_columns",
    "check_fence_columns",
    "check_subscription_columns",
    "events_from_arrow",
    "events_to_arrow",
    "fences_from_arrow",
    "fences_to_arrow",
    "subscriptions_from_arrow",
    "subscriptions_to_arrow",
]

Row = Mapping[str, Any]
_T = TypeVar("_T")


# --- reading ----------------------------------------------------------------------------------


def events_from_arrow(table: Table, *, space: Space | None = None) -> list[Event]:
    """The events of a table; a bad row raises a BatchError, and `space` checks the places."""
    return _objects(check_event_columns(table), lambda row: _event(row, space))


def subscriptions_from_arrow(table: Table, *, space: Space | None = None) -> list[Subscription]:
    """The subscriptions of a table; a bad row raises a BatchError, `space` checks the places.

    Ready `intervals` become part of `where`. A row with `radius_m` and neither `lon` nor `lat`
    has the region `Around(radius_m)`.
    """
    return _objects(check_subscription_columns(table), lambda row: _subscription(row, space))


def fences_from_arrow(table: Table, *, space: Space | None = None) -> list[Fence]:
    """The fences of a table; a bad row raises a BatchError, `space` checks the places."""
    return _objects(check_fence_columns(table), lambda row: _fence(row, space))


def _objects(table: Table, make: Callable[[Row], _T]) -> list[_T]:
    columns = {name: _values(table.column(name), name) for name in table.column_names}
    made: list[_T] = []
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        try:
            made.append(make(dict(zip(columns, values, strict=True))))
        except NearcastError as error:
            raise BatchError(number, error) from error
    return made


def _values(column: Any, name: str) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())  # Python's datetime ends with the year 9999
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError as error:
        raise ValidationError(name, error.object, "strings must be UTF-8") from None
    return values


def _event(row: Row, space: Space | None) -> Event:
    location = _location(row, space)
    if location is not None and space is not None:
        check_space(location, space, "location")
    return Event(
        id=row["id"],
        attributes=_attributes(row),
        keywords=row.get("keywords") or (),
        location=location,
        start=row.get("start"),
        end=row.get("end"),
        expires=row.get("expires"),
        source=row.get("source"),
    )


def _attributes(row: Row) -> dict[str, Value]:
    plain: dict[str, Value] = row.get("attributes") or {}
    encoded = row.get("attributes_json")
    if not encoded:
        return plain
    attributes = {name: value for name, value in plain.items() if value is not None}
    for name, text in encoded:
        if name in attributes:
            raise ValidationError(f"attributes_json[{name!r}]", text, "the row has it already")
        value = _scalar(text, name)
        if value is not None:
            attributes[name] = value
    return attributes


def _scalar(text: str | None, name: str) -> Value | None:
    if text is None:
        return None
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        value = []
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValidationError(
        f"attributes_json[{name!r}]", text, "give a number, a string or a bool as JSON"
    )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _location(row: Row, space: Space | None) -> Location | None:
    place = _present(row, ("lon", "lat"))
    geometry = row.get("geometry")
    if geometry is not None:
        if place:
            raise ValidationError("geometry", geometry, "a row has lon and lat, or geometry")
        return read_wkb(geometry, space)
    if not place:
        return None
    _complete(row, ("lon", "lat"))
    return Point(row["lon"], row["lat"])


def _subscription(row: Row, space: Space | None) -> Subscription:
    region = _region(row, space)
    if region is not None and space is not None:
        check_space(region, space, "region")
    return Subscription(
        id=row["id"],
        subscriber=row.get("subscriber"),
        where=_where(row.get("where"), row.get("intervals")),
        keywords=row.get("keywords") or (),
        region=region,
        expires=row.get("expires"),
    )


def _fence(row: Row, space: Space | None) -> Fence:
    names = ("object", "on", "margin_m", "dwell", "lost")
    own = {name: row[name] for name in names if row.get(name) is not None}
    for name in ("dwell", "lost"):
        if own.get(name) is not None and math.isfinite(own[name]):
            own[name] = round(own[name], 6)  # whole microseconds, as a double says them
    return Fence.of(_subscription(row, space), **own)


_ROUND, _CORNERS = ("lon", "lat", "radius_m"), ("xmin", "ymin", "xmax", "ymax")


def _region(row: Row, space: Space | None) -> Region | None:
    kinds = [names for names in (_ROUND, _CORNERS, ("geometry",)) if _present(row, names)]
    if not kinds:
        return None
    if len(kinds) > 1:
        found = [name for names in kinds for name in _present(row, names)]
        raise ValidationError("region", found, "a row has one region at most")
    if kinds[0] == _CORNERS:
        _complete(row, _CORNERS)
        return Box(row["xmin"], row["ymin"], row["xmax"], row["ymax"])
    if kinds[0] == _ROUND:
        if _present(row, _ROUND) == ["radius_m"]:
            return Around(row["radius_m"])
        _complete(row, _ROUND)
        return Circle(row["lon"], row["lat"], row["radius_m"])
    place = read_wkb(row["geometry"], space)
    if isinstance(place, Point):
        raise ValidationError("geometry", "POINT", "a region is an area: add radius_m to lon, lat")
    return place


def _present(row: Row, names: Sequence[str]) -> list[str]:
    return [name for name in names if row.get(name) is not None]


def _complete(row: Row, names: Sequence[str]) -> None:
    for name in names:
        if row.get(name) is None:
            raise ValidationError(name, None, f"{', '.join(names)} come together")


def _where(where: str | None, intervals: Sequence[Row] | None) -> str | None:
    if not intervals:
        return where
    tests = [_interval(each, f"intervals[{i}]") for i, each in enumerate(intervals)]
    if where is not None:
        Filter.parse(where)  # by itself first: it must not close our parenthesis
        if where.lstrip().startswith("{"):
            where = str(Filter.parse(where))
        tests.insert(0, f"({where})")
    return " AND ".join(tests)


def _interval(given: Row | None, field: str) -> str:
    """A ready interval as CQL2; one without ends still asks for a number."""
    if given is None or not given["attribute"]:
        raise ValidationError(field, given, "an interval has attribute, low and high")
    for end in ("low", "high"):
        if given[end] is None or math.isnan(given[end]):
            raise ValidationError(f"{field}.{end}", given[end], "give a number or an infinity")
    name, low, high = name_text(given["attribute"]), given["low"], given["high"]
    tests = []
    if low == math.inf:
        tests.append(f"{name} > {sys.float_info.max!r}")
    elif low > -math.inf:
        tests.append(f"{name} >= {low!r}")
    if high == -math.inf:
        tests.append(f"{name} < {-sys.float_info.max!r}")
    elif high < math.inf:
        tests.append(f"{name} <= {high!r}")
    return " AND ".join(tests) or f"({name} < 0 OR {name} >= 0)"


# --- writing ----------------------------------------------------------------------------------


def events_to_arrow(events: Iterable[Event]) -> Table:
    """A table of events; without `source` if none has one.

    An attribute of one type is a field of `attributes`, left out if there is none. Those of
    several types, and integers that a float64 cannot hold, go to `attributes_json`, except for
    NaN and the infinities, which JSON does not have.
    """
    rows = list(events)
    plain, encoded = _split_attributes([event.attributes for event in rows])
    located = [event.location if isinstance(event.location, Point) else None for event in rows]
    columns: dict[str, Any] = {
        "id": pa.array([event.id for event in rows], pa.string()),
        "keywords": _words(rows),
        "lon": pa.array([None if place is None else place.x for place in located], pa.float64()),
        "lat": pa.array([None if place is None else place.y for place in located], pa.float64()),
        "geometry": pa.array([_wkb(event.location) for event in rows], pa.binary()),
    }
    for name in ("start", "end", "expires"):
        columns[name] = _times(rows, name)
    if plain is not None:
        columns["attributes"] = plain
    if any(event.source is not None for event in rows):
        columns["source"] = pa.array([event.source for event in rows], pa.string())
    if any(encoded):
        columns["attributes_json"] = pa.array(
            [list(each.items()) or None for each in encoded],
            EVENT_COLUMNS.field("attributes_json").type,
        )
    return pa.table({name: columns[name] for name in EVENT_COLUMNS.names if name in columns})


def subscriptions_to_arrow(subscriptions: Iterable[Subscription]) -> Table:
    """A table of subscriptions; filters stay text, so `intervals` is null. Terms are refused."""
    rows = list(subscriptions)
    for each in rows:
        if each.terms is not None:
            raise ValidationError("terms", each.terms, "they have no columns: use JSON")
    columns: dict[str, Any] = {
        "id": pa.array([each.id for each in rows], pa.string()),
        "subscriber": pa.array([each.subscriber for each in rows], pa.string()),
        "where": pa.array([each.where for each in rows], pa.string()),
        "intervals": pa.nulls(len(rows), SUBSCRIPTION_COLUMNS.field("intervals").type),
        "keywords": _words(rows),
        "geometry": pa.array(
            [_wkb(each.region) if isinstance(each.region, Polygon) else None for each in rows],
            pa.binary(),
        ),
        "expires": _times(rows, "expires"),
    }
    numbers = [_region_numbers(each.region) for each in rows]
    for name in (*_ROUND, *_CORNERS):
        columns[name] = pa.array([each.get(name) for each in numbers], pa.float64())
    return pa.table({name: columns[name] for name in SUBSCRIPTION_COLUMNS.names})


def fences_to_arrow(fences: Iterable[Fence]) -> Table:
    """A table of fences."""
    rows = list(fences)
    table = subscriptions_to_arrow(fence.subscription() for fence in rows)
    columns = {
        "object": pa.array([each.object for each in rows], pa.string()),
        "on": pa.array([sorted(each.on) for each in rows], pa.list_(pa.string())),
        "margin_m": pa.array([each.margin_m for each in rows], pa.float64()),
    }
    for name in ("dwell", "lost"):
        spans = [getattr(each, name) for each in rows]
        seconds = [None if span is None else span.total_seconds() for span in spans]
        columns[name] = pa.array(seconds, pa.float64())
    for name, column in columns.items():
        table = table.append_column(FENCE_COLUMNS.field(name), column)
    return table


def _region_numbers(region: Region | None) -> dict[str, float]:
    if isinstance(region, Circle):
        return {"lon": region.x, "lat": region.y, "radius_m": region.radius_m}
    if isinstance(region, Around):
        if region.radius_m is None:
            raise ValidationError("region", region, "a shape that follows has no columns: use JSON")
        return {"radius_m": region.radius_m}
    if isinstance(region, Box):
        return {name: getattr(region, name) for name in _CORNERS}
    return {}


def _wkb(place: Location | Region | None) -> bytes | None:
    return write_wkb(place) if isinstance(place, Box | Polygon) else None


def _words(rows: Sequence[Event] | Sequence[Subscription]) -> Any:
    return pa.array([sorted(each.keywords) for each in rows], pa.list_(pa.string()))


def _times(rows: Sequence[Any], name: str) -> Any:
    micros = pa.array([getattr(each, name) for each in rows], pa.int64())
    return micros.cast(EVENT_COLUMNS.field(name).type)


def _split_attributes(
    rows: Sequence[Mapping[str, Value]],
) -> tuple[Any, list[dict[str, str]]]:
    """The `attributes` column, None if it has no field, and what goes to `attributes_json`."""
    types: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            types.setdefault(name, set()).add(_kind(value))
    fields: dict[str, Any] = {}
    encoded: list[dict[str, str]] = [{} for _ in rows]
    for name, kinds in types.items():
        kind = next(iter(kinds)) if len(kinds) == 1 else "mixed"
        column: list[Value | None] = []
        for row, rest in zip(rows, encoded, strict=True):
            given = row.get(name)
            if kind == "number" and given is not None:
                column.append(float(given))  # pyarrow itself refuses integers beyond 2⁵³
                continue
            if kind in _FIELDS or (isinstance(given, float) and not math.isfinite(given)):
                column.append(given)
                continue
            column.append(None)
            if given is not None:
                rest[name] = json.dumps(given, ensure_ascii=False)
        if any(value is not None for value in column):
            fields[name] = pa.array(column, _FIELDS.get(kind, pa.float64()))
    if not fields:
        return None, encoded
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields)), encoded


_FIELDS = {"number": pa.float64(), "string": pa.string(), "bool": pa.bool_()}


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    return "number" if isinstance(value, float) or float(value) == value else "integer"
