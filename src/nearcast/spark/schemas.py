"""The columns of DataFrames, checked before any work is done.

The names and meanings are those of the Arrow tables (`model.codec`). Columns that nearcast
does not know are left out; those it knows must have a type that says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nearcast.errors import ValidationError
from nearcast.model.codec import EVENT_COLUMNS, FENCE_COLUMNS, SUBSCRIPTION_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

__all__ = [
    "AROUND",
    "MATCHES",
    "REJECTS",
    "check_pair",
    "event_names",
    "fence_names",
    "position_names",
    "subscription_names",
]

#: What `match` gives, in Spark's words.
MATCHES = "event_id string, subscription_id string"
#: What `rejected` gives.
REJECTS = "id string, reason string"

#: Why a region that follows its subscriber is refused where there is no subscriber to follow.
AROUND = (
    "regions that follow their subscriber (Around) have no place in a history: give lon and lat, "
    "a box or a polygon"
)

_SYNONYMS = {
    "id": ("event_id", "subscription_id", "_id", "uuid"),
    "lon": ("longitude", "lng", "long", "x"),
    "lat": ("latitude", "y"),
    "geometry": ("geom", "wkb", "shape", "the_geom"),
    "where": ("filter", "query", "cql2", "predicate"),
    "keywords": ("words", "tags"),
    "expires": ("expiry", "expires_at", "expirytime"),
    "end": ("end_time", "etm"),
    "start": ("start_time", "stm"),
    "attributes": ("properties", "attrs"),
    "radius_m": ("radius",),
    "margin_m": ("margin",),
    "dwell": ("dwell_s", "dwell_seconds"),
    "lost": ("lost_s", "lost_seconds"),
}


def event_names(events: DataFrame) -> list[str]:
    """The columns of a DataFrame of events that are used, in the order of the schema."""
    return _names(events, EVENT_COLUMNS.names, "events")


def position_names(positions: DataFrame) -> list[str]:
    """As `event_names`, for positions: they have an `end`, a place, and perhaps an `offset`."""
    names = _names(positions, [*EVENT_COLUMNS.names, "offset"], "positions")
    if "end" not in names:
        raise ValidationError(
            "positions.end", positions.columns, "add a column end: when the object was there"
        )
    if not {"lon", "geometry"} & set(names):
        raise ValidationError(
            "positions.lon",
            positions.columns,
            "positions have a place: add lon and lat, or geometry",
        )
    if not {"attributes", "attributes_json"} & set(names):
        raise ValidationError(
            "positions.attributes", positions.columns,
            "add a struct attributes, one of whose fields names the object",
        )  # fmt: skip
    return names


def fence_names(fences: DataFrame) -> list[str]:
    """As `subscription_names`, for fences."""
    if "radius_m" in getattr(fences, "columns", ()) and not {"lon", "lat"} & set(fences.columns):
        raise ValidationError("fences.radius_m", fences.columns, AROUND)
    names = _names(fences, FENCE_COLUMNS.names, "fences")
    if "object" not in names:
        raise ValidationError(
            "fences.object", fences.columns,
            "add a column object: the attribute of positions that names who was there",
        )  # fmt: skip
    if not {"lon", "xmin", "geometry"} & set(names):
        raise ValidationError(
            "fences.geometry", fences.columns,
            "fences have regions: add lon, lat, radius_m; or xmin, ymin, xmax, ymax; or geometry",
        )  # fmt: skip
    return names


def subscription_names(subscriptions: DataFrame) -> list[str]:
    """The columns of a DataFrame of subscriptions that are used, in the order of the schema."""
    return _names(subscriptions, SUBSCRIPTION_COLUMNS.names, "subscriptions")


def check_pair(event_names: list[str], subscription_names: list[str]) -> None:
    """Refuse what cannot give a single match because a column is called something else."""
    regions = {"lon", "xmin", "geometry"} & set(subscription_names)
    places = {"lon", "geometry"} & set(event_names)
    if regions and not places:
        raise ValidationError(
            "events",
            event_names,
            "the subscriptions have regions and the events no place: add lon and lat, or geometry",
        )


def _names(frame: DataFrame, known: list[str], what: str) -> list[str]:
    from pyspark.sql import DataFrame as AnyFrame

    if not isinstance(frame, AnyFrame):
        raise ValidationError(what, frame, "give a Spark DataFrame")
    types: dict[str, Any] = {}
    for field in frame.schema.fields:
        if field.name in types and field.name in known:
            raise ValidationError(f"{what}.{field.name}", frame.columns, "the column occurs twice")
        types[field.name] = field.dataType
    used = [name for name in known if name in types]
    _check_present(types, used, known, what)
    for name in used:
        remedy = _CHECKS[name](types[name])
        if remedy:
            raise ValidationError(f"{what}.{name}", types[name].simpleString(), remedy)
    return used


def _check_present(types: Mapping[str, Any], used: list[str], known: list[str], what: str) -> None:
    if "id" not in used:
        raise ValidationError(
            f"{what}.id", list(types), f"add a column id of strings{_hint('id', types)}"
        )
    for name in known:
        # Spark does not tell Where from where; a filter must not be left out for that.
        others = (name,) if name in used else (name, *_SYNONYMS.get(name, ()))
        meant = [other for other in types if other not in known and other.casefold() in others]
        if meant:
            raise ValidationError(
                f"{what}.{meant[0]}", meant[0],
                f"rename it to {name}, or drop it if it means something else",
            )  # fmt: skip
    for group in (("lon", "lat"), ("xmin", "ymin", "xmax", "ymax")):
        if group[0] == "lon" and "radius_m" in known:
            group = (*group, "radius_m")
        there = [name for name in group if name in used]
        if there and len(there) < len(group):
            missing = [name for name in group if name not in used]
            raise ValidationError(
                f"{what}.{missing[0]}", list(types), f"{', '.join(group)} come together"
            )


def _hint(name: str, types: Mapping[str, Any]) -> str:
    found = [other for other in types if other.casefold() in (name, *_SYNONYMS[name])]
    return f", for instance with withColumnRenamed({found[0]!r}, {name!r})" if found else ""


# --- types ----------------------------------------------------------------------------------------

_Check = Callable[["DataType"], str]


def _text(kind: DataType) -> str:
    return "" if kind.typeName() in ("string", "void") else "the column's type must be string"


def _number(kind: DataType) -> str:
    from pyspark.sql.types import NullType, NumericType

    if isinstance(kind, NumericType | NullType):
        return ""
    return "the column's type must be double: cast it"


def _whole(kind: DataType) -> str:
    from pyspark.sql.types import IntegralType, NullType

    if isinstance(kind, IntegralType | NullType):
        return ""
    return "the column's type must be bigint: cast it"


def _moment(kind: DataType) -> str:
    if kind.typeName() == "timestamp_ntz":
        return "naive timestamps are ambiguous: cast it to timestamp in the zone it was meant in"
    return "" if kind.typeName() in ("timestamp", "void") else "the column's type must be timestamp"


def _bytes(kind: DataType) -> str:
    return "" if kind.typeName() in ("binary", "void") else "the column holds WKB, as binary"


def _words(kind: DataType) -> str:
    from pyspark.sql.types import ArrayType, NullType

    if isinstance(kind, NullType) or (isinstance(kind, ArrayType) and not _text(kind.elementType)):
        return ""
    return "the column's type must be array<string>"


def _intervals(kind: DataType) -> str:
    from pyspark.sql.types import ArrayType, NullType, StructType

    if isinstance(kind, NullType):
        return ""
    remedy = "the column's type must be array<struct<attribute:string,low:double,high:double>>"
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return remedy
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    if set(fields) != {"attribute", "low", "high"} or _text(fields["attribute"]):
        return remedy
    return remedy if _number(fields["low"]) or _number(fields["high"]) else ""


def _attributes(kind: DataType) -> str:
    from pyspark.sql.types import BooleanType, NullType, StructType

    if isinstance(kind, NullType):
        return ""
    if not isinstance(kind, StructType):
        return "the column is a struct of attributes, one field each"
    for field in kind.fields:
        fits = isinstance(field.dataType, BooleanType) or not _text(field.dataType)
        if not fits and _number(field.dataType):
            given = field.dataType.simpleString()
            return f"attribute {field.name!r} is {given}, and must be a double, a string or a bool"
    return ""


def _json(kind: DataType) -> str:
    from pyspark.sql.types import MapType, NullType

    if isinstance(kind, NullType):
        return ""
    if isinstance(kind, MapType) and not _text(kind.keyType) and not _text(kind.valueType):
        return ""
    return "the column's type must be map<string,string>"


_CHECKS: dict[str, _Check] = {
    "id": lambda kind: "" if kind.typeName() == "string" else "ids are strings: cast it",
    "attributes": _attributes,
    "attributes_json": _json,
    "keywords": _words,
    "geometry": _bytes,
    "where": _text,
    "subscriber": _text,
    "source": _text,
    "object": _text,
    "on": _words,
    "intervals": _intervals,
    **dict.fromkeys(("start", "end", "expires"), _moment),
    **dict.fromkeys(("lon", "lat", "radius_m", "xmin", "ymin", "xmax", "ymax"), _number),
    **dict.fromkeys(("margin_m", "dwell", "lost"), _number),
    "offset": _whole,
}
