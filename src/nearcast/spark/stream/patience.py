"""How long a source that does not answer is waited for."""

from __future__ import annotations

import logging
import time
from typing import TypeVar
from urllib.error import HTTPError

from nearcast.errors import NearcastError

__all__ = ["Patience", "passing"]

E = TypeVar("E", bound=NearcastError)

_log = logging.getLogger("nearcast.spark")


def passing(error: E) -> E:
    """Mark an error that says no more than that a source does not answer now."""
    error.__dict__["passing"] = True
    return error


def _passes(error: BaseException | None) -> bool:
    """Whether it may be gone when asked again: of what is wrong with the data nothing is."""
    if isinstance(error, NearcastError):
        # Files are read in words of our own: what was wrong with the reading stands behind it.
        return "passing" in error.__dict__ or _passes(error.__context__)
    return isinstance(error, OSError) and not isinstance(error, HTTPError)


class Patience:
    """Some seconds from when a source falls silent; anew when it has answered."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def lasts(self, error: Exception) -> bool:
        """Whether to ask again, after this."""
        if not _passes(error):
            return False
        now = time.monotonic()
        if self._since is None:
            self._since = now
            _log.warning("a source does not answer, and is asked again: %s", error)
        return now - self._since < self._seconds

    def renew(self) -> None:
        """It has answered."""
        self._since = None
