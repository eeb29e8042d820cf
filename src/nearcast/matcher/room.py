"""The bytes that additions will take, and whether `max_bytes` leaves room for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nearcast.errors import CapacityError
from nearcast.index.base import ClauseStore, Coming
from nearcast.matcher import bulk
from nearcast.matcher.encode import EncodedClause
from nearcast.model.predicates import residual_bytes

__all__ = ["clause_bytes", "foreseen", "full", "stored_bytes", "wordless"]

_MOST_SHARE = 3.0  # bytes of an index for a byte it stores, as far as can be foreseen


def foreseen(have: Mapping[str, int], index: Any, wanted: int, coming: Coming) -> int:
    """Bytes of a matcher (`have`: by part, as they are now) with `wanted` more in its stores."""
    stored = have["clauses"] + have["regions"] + have["ids"] + have["events"]
    # The index grows with what it stores; before the first row, as much again is assumed.
    # While there is little, its share is what it began with, and nothing to go by.
    share = min(have["index"] / stored, _MOST_SHARE) if stored > 4096 else 1.0
    grown = have["index"] + int(wanted * share)
    if hasattr(index, "least_bytes"):
        grown = max(grown, index.least_bytes(coming))
    return have["total"] - have["index"] + wanted + grown


def full(needed: int, limit: int) -> CapacityError:
    """The error for an addition that does not fit."""
    hint = "raise max_bytes or remove subscriptions; nothing was added"
    return CapacityError("bytes of this matcher", needed, limit, hint)


def clause_bytes(clauses: Iterable[EncodedClause]) -> int:
    """Bytes that clauses will take in the store, ids included roughly."""
    total = 0
    for attr, _, _, extra in clauses:
        total += 80 + 18 * len(attr)
        if extra is not None:
            total += bulk.extra_bytes(extra)
    return total


def stored_bytes(store: ClauseStore, rows: Iterable[int]) -> int:
    """What `clause_bytes` was for these rows when they were added."""
    total = 0
    for row in rows:
        total += 80 + 18 * int(store.table.count[row])
        if store.table.extra[row] >= 0:
            floats = sum(2 + shape[1].size for shape in store.shapes(row))
            total += 24 + 4 * int(store.words(row).size) + 8 * floats
            total += residual_bytes(store.residuals.get(row, ()))
    return total


def wordless(clauses: Iterable[EncodedClause]) -> int:
    """Those of the clauses without words."""
    return sum(clause.extra is None or not clause.extra.words for clause in clauses)
