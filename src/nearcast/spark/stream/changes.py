"""Rows of a log of changes: brought to one form, and the bad ones told apart."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import SparkError
from nearcast.model.codec import SUBSCRIPTION_COLUMNS
from nearcast.model.geometry import Space
from nearcast.spark.duplicates import resolved
from nearcast.spark.rows import accepted

__all__ = ["CHANGES", "BadChange", "canonical", "sifted", "tell"]

#: A log of changes: the columns of subscriptions, what becomes of them, and the order.
CHANGES = pa.schema(
    [*((each.name, each.type) for each in SUBSCRIPTION_COLUMNS), ("op", pa.string()),
     ("seq", pa.int64())]
)  # fmt: skip
_log = logging.getLogger("nearcast.spark")
_OPS = ("add", "update", "remove")
_WANTED = [name for name in SUBSCRIPTION_COLUMNS.names if name != "subscriber"]


class BadChange(NamedTuple):
    """A change that does not count, and why."""

    seq: int | None
    id: str | None
    reason: str


def canonical(table: Any, where: str) -> Any:
    """A table of a log with the columns of `CHANGES`; those of no meaning here are left out.

    A table without `op` and `seq` is one of subscriptions that are there from the beginning.
    """
    given = set(table.column_names)
    if "id" not in given:
        raise SparkError(f"{where}: has no column id; changes have the columns of subscriptions")
    if ("op" in given) != ("seq" in given):
        lacking = "seq" if "op" in given else "op"
        raise SparkError(
            f"{where}: has no column {lacking}; changes have both op and seq, subscriptions neither"
        )
    columns = []
    for field in CHANGES:
        if field.name not in given:
            plain = "add" if field.name == "op" else 0 if field.name == "seq" else None
            filled = pa.array([plain], field.type) if plain is not None else None
            columns.append(
                pa.nulls(table.num_rows, field.type)
                if filled is None
                else filled.take(pa.array([0] * table.num_rows, pa.int32()))
            )
            continue
        columns.append(_cast(table.column(field.name), field, where))
    return pa.table(columns, schema=CHANGES)


def _cast(column: Any, field: Any, where: str) -> Any:
    if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type):
        if column.type.tz is None:  # what Spark calls a timestamp is UTC, said or not
            column = pc.assume_timezone(column, "UTC")
        return column.cast(field.type, safe=False)
    try:
        return column.cast(field.type)
    except (pa.ArrowException, NotImplementedError) as error:
        raise SparkError(
            f"{where}: column {field.name} is {column.type}, and must be {field.type} ({error})"
        ) from None


def sifted(table: Any, space: Space, plain: bool) -> tuple[Any, list[BadChange]]:
    """(the good changes in their order, the bad ones with reasons).

    Subscriptions without an order (`plain`) are refused where two differ under one id.
    """
    bad: list[BadChange] = []
    reasons = {
        "id: None is not valid; give a non-empty string": pc.is_null(table.column("id")),
        "seq: None is not valid; give a whole number that grows": pc.is_null(table.column("seq")),
        "op: it is not valid; give add, update or remove": pc.invert(
            pc.is_in(table.column("op"), value_set=pa.array(_OPS))
        ),
    }
    for reason, wrong in reasons.items():
        if pc.any(wrong).as_py():
            bad += _told(table.filter(wrong), reason)
    if bad:
        every = list(reasons.values())
        table = table.filter(pc.invert(pc.or_(pc.or_(every[0], every[1]), every[2])))
    if plain:
        table, several = resolved(table, strict=False)
        bad += [BadChange(0, each.id, each.reason) for each in several]
    gone = pc.equal(table.column("op"), "remove")
    whole = table.filter(pc.invert(gone)) if pc.any(gone).as_py() else table
    used = [name for name in _WANTED if whole.column(name).null_count < whole.num_rows]
    _, wrong_rows = accepted(whole.select(used or ["id"]), "subscriptions", space)
    if not wrong_rows:
        return table, bad
    seqs = whole.column("seq")
    bad += [BadChange(seqs[each.row].as_py(), each.id, each.reason) for each in wrong_rows]
    kept = pc.invert(gone).to_numpy(zero_copy_only=False).nonzero()[0]
    out = {int(kept[each.row]) for each in wrong_rows}
    mask = pa.array([row not in out for row in range(table.num_rows)], pa.bool_())
    return table.filter(mask), bad


def _told(rows: Any, reason: str) -> list[BadChange]:
    ids, seqs = rows.column("id").to_pylist(), rows.column("seq").to_pylist()
    return [BadChange(seq, id, reason) for id, seq in zip(ids, seqs, strict=True)]


def tell(bad: list[BadChange], folder: Path, job: str, batch: str) -> None:
    """Write down what was rejected, where people look for it; jobs may share the folder."""
    _log.warning(
        "%s changes are rejected, the first of %r: %s",
        f"{len(bad):,}", bad[0].id, bad[0].reason.partition("\n")[0],
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    scratch = folder / f".changes-{job}-{os.getpid()}"
    lines = [json.dumps({"batch": int(batch), **each._asdict()}) for each in bad]
    scratch.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    scratch.replace(folder / f"changes-{job}-{batch}.jsonl")
