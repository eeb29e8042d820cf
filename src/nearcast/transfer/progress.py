"""How far a transfer has come, for whoever looks on, and what it came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Done", "Told", "silent"]

#: Told of progress: how much more is done, out of how much in all if that is known.
Told = Callable[[int, int | None], None]


def silent(more: int, total: int | None) -> None:
    """For nobody."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a transfer came to, what was done before it was interrupted included."""

    rows: int
    """Rows that were taken, or written."""
    rejected: int
    """Rows that were set aside."""
    resumed: int
    """Rows that were done before this time."""
