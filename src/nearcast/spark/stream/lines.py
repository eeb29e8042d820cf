"""Rows that are written as JSON: messages of a topic, or lines of a file.

Each is a row with the columns of docs/wire.md, or a CloudEvent.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.json as pj

from nearcast.errors import NearcastError
from nearcast.model.codec import event_from_json, events_to_arrow
from nearcast.model.geometry import Space

__all__ = ["attributes_as_json", "lines_of", "rows_of", "together"]

#: What a column holds stands in the schema; of these only that they are there.
_FREE = {"attributes", "attributes_json", "geometry"}
_BRACKETS = 200


def rows_of(messages: Sequence[bytes], schema: Any, space: Space) -> Any:
    """Messages as a table; what is no row has no id, and so is rejected where rows are checked."""
    if not messages:
        return pa.table({"id": pa.array([], pa.string())})
    return together([*_tables(messages, schema, space)])


def _tables(messages: Sequence[bytes], schema: Any, space: Space) -> Iterator[Any]:
    """All at once where that goes; else in halves, until what is wrong is alone."""
    several = len(messages) > 1
    if all(map(_tame, messages)) and not any(b'"specversion"' in each for each in messages):
        try:
            yield _parsed(messages, schema)
            return
        except pa.ArrowException:
            if not several:
                yield _NOTHING
                return
    elif not several:
        yield _envelope(messages[0], schema, space)
        return
    middle = len(messages) // 2
    yield from _tables(messages[:middle], schema, space)
    yield from _tables(messages[middle:], schema, space)


_NOTHING = pa.table({"id": pa.array([None], pa.string())})


def _tame(message: bytes) -> bool:
    """Whether Arrow may read it: it crashes on a bare `null`, and on what is nested deep."""
    return message.lstrip()[:1] == b"{" and message.count(b"{") + message.count(b"[") <= _BRACKETS


def _envelope(message: bytes, schema: Any, space: Space) -> Any:
    """A CloudEvent, a row that speaks of one, or what is none of both."""
    try:
        said = json.loads(message)
        if not isinstance(said, dict):
            return _NOTHING
        if "specversion" in said:
            return events_to_arrow([event_from_json(said, space=space, extensions="ignore")])
        known = {name: value for name, value in said.items() if name in schema.names}
        written = json.dumps(known).encode()
        return _parsed([written], schema) if _tame(written) else _NOTHING
    except (ValueError, RecursionError, pa.ArrowException, NearcastError):
        return _NOTHING


def together(tables: list[Any]) -> Any:
    """One table; an attribute whose values are now of this type, now of that, goes to JSON."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        return pa.concat_tables(
            [attributes_as_json(each) for each in tables], promote_options="permissive"
        )


def attributes_as_json(table: Any) -> Any:
    """With attributes of any types, as JSON. Costs some microseconds a value."""
    if "attributes" not in table.column_names:
        return table
    kind = pa.map_(pa.string(), pa.string())
    known = (
        table.column("attributes_json").to_pylist()
        if "attributes_json" in table.column_names
        else [None] * table.num_rows
    )
    written = [
        [(name, json.dumps(value)) for name, value in (row or {}).items() if value is not None]
        + [*(more or ())]
        for row, more in zip(table.column("attributes").to_pylist(), known, strict=True)
    ]
    table = table.drop_columns([n for n in ("attributes", "attributes_json")
                                if n in table.column_names])  # fmt: skip
    return table.append_column("attributes_json", pa.array(written, kind))


def _parsed(messages: Sequence[bytes], schema: Any) -> Any:
    """Rows all of which can be used; pa.ArrowException if one of them is none."""
    table = _read(messages, schema, ())
    if table.num_rows != len(messages):
        raise pa.ArrowInvalid("not one object a message")
    if {"geometry", "attributes_json"} & set(table.column_names):
        raise pa.ArrowInvalid("columns that JSON cannot say")
    if "attributes" in table.column_names:
        dates = _dates(table.schema.field("attributes").type)
        if dates:
            table = _read(messages, schema, dates)
    kept = [
        name
        for name in table.column_names
        if name in schema.names and table.column(name).null_count < table.num_rows
    ]
    return _without_nothing(table.select(kept if "id" in kept else ["id", *kept]))


def _without_nothing(table: Any) -> Any:
    """Without attributes that no row has: a file of columns cannot say what they are."""
    if "attributes" not in table.column_names:
        return table
    at = table.column_names.index("attributes")
    struct = table.column(at).combine_chunks()
    names = [field.name for field in struct.type if not pa.types.is_null(field.type)]
    if len(names) == struct.type.num_fields and names:
        return table
    if not names:
        return table.remove_column(at)
    fields = [struct.field(name) for name in names]
    return table.set_column(
        at, "attributes", pa.StructArray.from_arrays(fields, names, mask=struct.is_null())
    )


def _dates(kind: Any) -> tuple[str, ...]:
    """The attributes that are text, and look like dates to who reads JSON."""
    if pa.types.is_null(kind):
        return ()
    if not pa.types.is_struct(kind):
        raise pa.ArrowInvalid("attributes is no object")
    fields = [kind.field(at) for at in range(kind.num_fields)]
    if any(pa.types.is_nested(field.type) for field in fields):
        raise pa.ArrowInvalid("attributes are numbers, strings and bools")
    return tuple(field.name for field in fields if pa.types.is_temporal(field.type))


def _read(messages: Sequence[bytes], schema: Any, texts: tuple[str, ...]) -> Any:
    lines = b"\n".join(each.replace(b"\n", b" ") for each in messages)
    try:
        lines.decode()
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid("strings must be UTF-8") from error
    known = [(field.name, field.type) for field in schema if field.name not in _FREE]
    if texts:
        known.append(("attributes", pa.struct([(name, pa.string()) for name in texts])))
    return pj.read_json(
        io.BytesIO(lines),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(1 << 20, len(lines) + 1)),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(known)),
    )


def lines_of(path: str) -> list[bytes]:
    """The lines of a file, by its URL, without empty ones."""
    system, inner = pa.fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    with system.open_input_stream(inner) as file:
        return [line for line in file.read().splitlines() if line.strip()]
