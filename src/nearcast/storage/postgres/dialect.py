"""Statements and values as PostgreSQL takes them.

Its text has no NUL, which ids of ours may have: NUL is written as two characters, and so is
what those begin with, so that the order stays. Rows that are inserted go in as columns, one array
each: one statement, however many there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from nearcast.storage.tables import Row

__all__ = ["Columns", "Insertion", "insertion", "numbered", "read", "written"]

#: The names and types of a table's columns, in their order.
Columns = Mapping[str, str]

_MARK, _NUL = "\1", "\0"
_PLACE = re.compile(r"\?(\d*)")
_INSERT = re.compile(
    r"\s*INSERT INTO (?P<table>\w+) VALUES \((?P<values>[^()]*)\)(?P<rest>.*)", re.DOTALL
)
_KEY = re.compile(r"ON CONFLICT \(([^()]*)\) DO UPDATE")


@cache
def numbered(statement: str) -> str:
    """A statement whose parameters have numbers: `?` is the next one, `?2` the second."""
    count = 0

    def number(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"${found[1] or count}"

    return _PLACE.sub(number, statement)


def written(value: Any) -> Any:
    """A value as a parameter."""
    if type(value) is str and (_NUL in value or _MARK in value):
        return value.replace(_MARK, "\1\2").replace(_NUL, "\1\1")
    return value


def read(rows: Iterator[Row], texts: Sequence[int]) -> Iterator[Row]:
    """Rows as they were written; `texts` are the places of text in them."""
    for row in rows:
        if any(row[at] is not None and _MARK in row[at] for at in texts):
            yield tuple(_read(each) if at in texts else each for at, each in enumerate(row))
        else:
            yield row


def _read(text: str | None) -> str | None:
    return text and text.replace("\1\1", _NUL).replace("\1\2", _MARK)


class Insertion(NamedTuple):
    """A statement that inserts the rows of columns."""

    text: str
    types: tuple[str, ...]
    """What each parameter is an array of."""
    key: tuple[int, ...]
    """The places in a row of what is unique where a row that is there is changed."""

    def parts(self, rows: list[Row]) -> Iterator[list[Row]]:
        """The rows, no two with one key together: a statement changes each row once."""
        if not self.key:
            yield rows
            return
        seen: set[Row] = set()
        first = 0
        for at, row in enumerate(rows):
            its = tuple(row[place] for place in self.key)
            if its in seen:
                yield rows[first:at]
                seen.clear()
                first = at
            seen.add(its)
        yield rows[first:] if first else rows

    def arrays(self, rows: list[Row]) -> list[str]:
        """The columns of rows, as text of arrays."""
        columns = zip(*rows, strict=True)
        return [
            f"{{{','.join(map(_ITEMS[kind], column))}}}"
            for kind, column in zip(self.types, columns, strict=True)
        ]


def insertion(statement: str, tables: Mapping[str, Columns]) -> Insertion | None:
    """The same for many rows at once; None if the statement is of another kind."""
    found = _INSERT.fullmatch(statement)
    if found is None:
        return None
    columns = tables[found["table"]]
    taken: list[str] = []
    values = []
    for name, said in zip(columns, found["values"].split(","), strict=True):
        if said.strip() == "?":
            taken.append(name)
            values.append(name)
        else:
            values.append(said.strip())
    arrays = ", ".join(f"${at}::{columns[name]}[]" for at, name in enumerate(taken, 1))
    text = (
        f"INSERT INTO {found['table']} SELECT {', '.join(values)} "
        f"FROM unnest({arrays}) AS given({', '.join(taken)}){found['rest']}"
    )
    named = _KEY.search(found["rest"])
    key = () if named is None else tuple(taken.index(each.strip()) for each in named[1].split(","))
    return Insertion(text, tuple(columns[name] for name in taken), key)


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    said: str = written(value if type(value) is str else str(value))
    if "\\" in said:
        said = said.replace("\\", "\\\\")
    escaped = said.replace('"', '\\"')
    return f'"{escaped}"'


def _number(value: Any) -> str:
    return "NULL" if value is None else repr(value)


def _bytes(value: bytes | None) -> str:
    return "NULL" if value is None else f'"\\\\x{value.hex()}"'


_ITEMS: dict[str, Callable[[Any], str]] = {
    "text": _text, "bigint": _number, "double precision": _number, "bytea": _bytes,
}  # fmt: skip
