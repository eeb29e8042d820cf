"""How long a source that does not answer is waited for."""

from __future__ import annotations

import logging
import time

__all__ = ["Patience"]

_log = logging.getLogger("nearcast.spark")


class Patience:
    """Some seconds from when a source falls silent; anew when it has answered."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def lasts(self, error: Exception) -> bool:
        """Whether to ask again, after this."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            _log.warning("a source does not answer, and is asked again: %s", error)
        return now - self._since < self._seconds

    def renew(self) -> None:
        """It has answered."""
        self._since = None
