"""The columns of Arrow tables: their names, their types, and how others are brought to them.

Whatever reads tables starts here: names and types are checked column by column, so this
costs next to nothing a row. Types that say the same in another form (large or dictionary
encoded strings, other units and zones of time, integers for numbers) are cast.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import BatchError, ValidationError

__all__ = [
    "EVENT_COLUMNS",
    "FENCE_COLUMNS",
    "SUBSCRIPTION_COLUMNS",
    "Table",
    "check_event_columns",
    "check_fence_columns",
    "check_subscription_columns",
]

Table: TypeAlias = Any  # pyarrow has no types of its own

_TIME = pa.timestamp("us", tz="UTC")
_WORDS = pa.list_(pa.string())
_INTERVALS = pa.list_(
    pa.struct([("attribute", pa.string()), ("low", pa.float64()), ("high", pa.float64())])
)

#: The columns of a table of events; `attributes` has one nullable field an attribute.
EVENT_COLUMNS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("attributes", pa.struct([])),
        ("attributes_json", pa.map_(pa.string(), pa.string())),
        ("keywords", _WORDS),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("geometry", pa.binary()),
        ("start", _TIME),
        ("end", _TIME),
        ("expires", _TIME),
        ("source", pa.string()),
    ]
)

#: The columns of a table of subscriptions.
SUBSCRIPTION_COLUMNS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("subscriber", pa.string()),
        ("where", pa.string()),
        ("intervals", _INTERVALS),
        ("keywords", _WORDS),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("radius_m", pa.float64()),
        ("xmin", pa.float64()),
        ("ymin", pa.float64()),
        ("xmax", pa.float64()),
        ("ymax", pa.float64()),
        ("geometry", pa.binary()),
        ("expires", _TIME),
    ]
)

#: The columns of a table of fences: those of subscriptions and their own; durations are seconds.
FENCE_COLUMNS = pa.schema(
    [
        *SUBSCRIPTION_COLUMNS,
        ("object", pa.string()),
        ("on", _WORDS),
        ("margin_m", pa.float64()),
        ("dwell", pa.float64()),
        ("lost", pa.float64()),
    ]
)


def check_event_columns(table: Table) -> Table:
    """The table with canonical types, in one chunk, its columns in the order of the schema.

    Columns that are not there stay away. Refuses unknown columns, wrong types, naive
    timestamps, null ids and null words. What has the right type already is not copied.
    """
    return _checked(table, EVENT_COLUMNS, "events")


def check_subscription_columns(table: Table, *, combine: bool = True) -> Table:
    """As `check_event_columns`, for subscriptions; the chunks stay if not told to combine them."""
    return _checked(table, SUBSCRIPTION_COLUMNS, "subscriptions", combine)


def check_fence_columns(table: Table) -> Table:
    """As `check_event_columns`, for fences."""
    return _checked(table, FENCE_COLUMNS, "fences")


def _checked(given: Table, schema: Any, what: str, combine: bool = True) -> Table:
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if not isinstance(given, pa.Table):
        raise ValidationError(what, given, "give a pyarrow Table or RecordBatch")
    _check_names(given.column_names, schema.names)
    columns = {
        name: _canonical(given.column(name), schema.field(name).type, name)
        for name in schema.names
        if name in given.column_names
    }
    checked = pa.table(columns)
    if combine:
        checked = checked.combine_chunks()
    _check_nulls(checked.column("id"), "id", "give a non-empty string")
    if "keywords" in columns:
        _check_words(checked.column("keywords"))
    return checked


def _check_names(names: list[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise ValidationError(name, names, f"no such column; there are {', '.join(known)}")
        if names.count(name) > 1:
            raise ValidationError(name, names, "the column occurs more than once")
    if "id" not in names:
        raise ValidationError("id", names, "add a column id of strings")


def _check_nulls(column: Any, name: str, remedy: str) -> None:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise BatchError(row, ValidationError(name, None, remedy))


def _check_words(column: Any) -> None:
    if pc.list_flatten(column).null_count:
        parents = pc.list_parent_indices(column)
        row = parents[pc.index(pc.list_flatten(column).is_null(), True).as_py()].as_py()
        raise BatchError(row, ValidationError("keywords", None, "a keyword is a string"))


# --- types ----------------------------------------------------------------------------------------


def _canonical(column: Any, wanted: Any, name: str) -> Any:
    """The column in its canonical type."""
    if isinstance(column.type, pa.BaseExtensionType):  # such as geoarrow.wkb
        column = column.cast(column.type.storage_type)
    if name == "attributes":
        wanted = _attribute_types(column.type)
    if column.type == wanted:
        return column
    if not _castable(column.type, wanted):
        raise ValidationError(name, str(column.type), _remedy(column.type, wanted))
    try:
        return _cast(column, wanted)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise ValidationError(name, str(column.type), f"give {wanted} ({reason})") from None


def _remedy(given: Any, wanted: Any) -> str:
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return f"naive timestamps are ambiguous: give {wanted}"
    return f"the column's type must be {wanted}"


def _attribute_types(given: Any) -> Any:
    """The canonical struct: a double, a string or a bool for each attribute that has a type."""
    if pa.types.is_null(given):
        return pa.struct([])
    if not pa.types.is_struct(given):
        raise ValidationError("attributes", str(given), "the column is a struct of attributes")
    fields: dict[str, Any] = {}
    for field in given:
        if not field.name or field.name in fields:
            raise ValidationError("attributes", field.name, "attributes have different names")
        fields[field.name] = _attribute_type(field)
    return pa.struct([(name, kind) for name, kind in fields.items() if kind is not None])


def _attribute_type(field: Any) -> Any:
    for wanted in (pa.float64(), pa.string(), pa.bool_()):
        if not pa.types.is_null(field.type) and _castable(field.type, wanted):
            return wanted
    if pa.types.is_null(field.type):
        return None
    raise ValidationError(
        f"attributes.{field.name}", str(field.type), "an attribute is a double, a string or a bool"
    )


def _castable(given: Any, wanted: Any) -> bool:
    """Whether a cast to the wanted type says the same in another form."""
    types = pa.types
    if types.is_null(given) or given == wanted:
        return True
    if types.is_dictionary(given):
        return _castable(given.value_type, wanted)
    if types.is_string(wanted):
        return bool(types.is_large_string(given) or types.is_string_view(given))
    if types.is_binary(wanted):
        return bool(types.is_large_binary(given) or types.is_binary_view(given))
    if types.is_floating(wanted):
        return bool(types.is_floating(given) or types.is_integer(given) or types.is_decimal(given))
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(given) and given.tz is not None)
    if types.is_map(wanted):
        return bool(types.is_map(given)) and (
            _castable(given.key_type, wanted.key_type)
            and _castable(given.item_type, wanted.item_type)
        )
    if types.is_list(wanted):
        return _is_listed(given) and _castable(given.value_type, wanted.value_type)
    if types.is_struct(wanted) and types.is_struct(given):
        return _has_fields(given, wanted)
    return False


def _is_listed(given: Any) -> bool:
    types = pa.types
    return bool(
        types.is_list(given) or types.is_large_list(given) or types.is_fixed_size_list(given)
    )


def _has_fields(given: Any, wanted: Any) -> bool:
    """Whether two structs have the same fields, but for fields that are always null."""
    types = {field.name: field.type for field in given}
    extra = types.keys() - {field.name for field in wanted}
    return (
        len(types) == given.num_fields
        and all(pa.types.is_null(types[name]) for name in extra)
        and all(f.name in types and _castable(types[f.name], f.type) for f in wanted)
    )


def _cast(column: Any, wanted: Any) -> Any:
    """A cast that keeps the value, but rounds to float64 and down to microseconds."""
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp(column.type.unit, tz="UTC"))
        if column.type.unit == "ns":
            column = pc.floor_temporal(column, unit="microsecond")
        return column.cast(wanted)
    exact = _decimals_as_text(column.type)
    if exact != column.type:
        column = column.cast(exact)
    return column.cast(wanted, safe=False)


def _decimals_as_text(given: Any) -> Any:
    """The type with strings for decimals: Arrow's own cast makes 0.30000000000000004 of 0.3."""
    if pa.types.is_decimal(given):
        return pa.string()
    if pa.types.is_struct(given):
        return pa.struct([field.with_type(_decimals_as_text(field.type)) for field in given])
    if pa.types.is_list(given):
        return pa.list_(given.value_field.with_type(_decimals_as_text(given.value_type)))
    return given
