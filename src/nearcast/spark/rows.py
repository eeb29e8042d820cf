"""Good rows and bad ones: what a worker does with a table in which some row is wrong."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import BatchError, NearcastError, ValidationError
from nearcast.matcher import bulk
from nearcast.model.geometry import Space
from nearcast.model.schema import Schema

__all__ = ["Reject", "Side", "accepted", "check"]

#: Positions are events that have an `end`.
Side: TypeAlias = Literal["events", "subscriptions", "positions"]
_BLOCK = 16


class Reject(NamedTuple):
    """A row that cannot be used, and why."""

    row: int
    id: str | None
    reason: str


def accepted(table: Any, side: Side, space: Space) -> tuple[Any, list[Reject]]:
    """(the good rows of a table, the bad ones with reasons).

    One pass in bulk if all are good; otherwise blocks, and row by row only in a block with a
    bad one.
    """
    if _fault(table, side, space) is None:
        return table, []
    bad: list[Reject] = []
    for first in range(0, table.num_rows, _BLOCK):
        block = table.slice(first, _BLOCK)
        if _fault(block, side, space) is None:
            continue
        for row in range(block.num_rows):
            error = _fault(block.slice(row, 1), side, space)
            if error is not None:
                id = block.column("id")[row].as_py()
                bad.append(Reject(first + row, id, _reason(error)))
    wrong = {reject.row for reject in bad}
    kept = [row not in wrong for row in range(table.num_rows)]
    return table.filter(pa.array(kept, pa.bool_())), bad


def check(table: Any, side: Side, space: Space) -> None:
    """Raise what is wrong with the first bad row."""
    if side == "subscriptions":
        bulk.encode_subscriptions(table, Schema(), space, None)
        return
    bulk.encode_events(table, Schema(), space, intern=False)
    if side == "positions":
        ends = table.column("end")
        if ends.null_count:
            row = pc.index(ends.is_null(), True).as_py()
            remedy = "a position has one: give it, or drop the row"
            raise BatchError(row, ValidationError("end", None, remedy))


def _fault(table: Any, side: Side, space: Space) -> NearcastError | None:
    try:
        check(table, side, space)
    except NearcastError as error:
        return error
    return None


def _reason(error: NearcastError) -> str:
    return str(error.cause if isinstance(error, BatchError) else error)
