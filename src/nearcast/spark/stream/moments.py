"""The latest moment in what was read of a log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from nearcast.spark.stream.spool import SpooledPiece

__all__ = ["micros_of", "newest_of"]


def micros_of(value: Any) -> int | None:
    """A timestamp as microseconds: naive ones are UTC, nanoseconds are rounded down."""
    if not value.is_valid:
        return None
    found: int = value.cast(pa.timestamp("us", tz=value.type.tz), safe=False).value
    return found


def newest_of(pieces: Iterable[SpooledPiece]) -> int | None:
    """The greatest `end` in what lies spooled, or is now."""
    found = []
    for piece in pieces:
        path = piece.ensured()
        if "end" in pq.read_schema(path).names:
            found.append(micros_of(pc.max(pq.read_table(path, columns=["end"]).column("end"))))
    return max((each for each in found if each is not None), default=None)
