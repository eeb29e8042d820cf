"""When a sink that fails is tried again: later each time, never all at once, one at first."""

from __future__ import annotations

import random
from typing import Literal

__all__ = ["Backoff", "Circuit"]

State = Literal["closed", "open", "half-open"]


class Backoff:
    """How long to wait after so many failures: anything up to twice as much each time.

    The whole span is drawn from ("full jitter"), so that those who failed together do not come
    back together.
    """

    def __init__(self, first_s: float, most_s: float, rng: random.Random) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._rng = rng

    def after(self, failures: int) -> float:
        """Seconds to wait after the n-th failure."""
        most = min(self._most_s, self._first_s * 2.0 ** min(failures - 1, 60))
        return self._rng.uniform(0.0, most)

    def bounded(self, asked_s: float) -> float:
        """How long a sink is left alone that asks for it."""
        return min(asked_s, self._most_s)


class Circuit:
    """One sink's: closed while it works, open after failures one behind the other.

    When it has been open for a while one try is made (half-open), which closes it or opens it for
    longer. Failures of tries that were under way together count as one.
    """

    def __init__(self, backoff: Backoff, limit: int) -> None:
        self._backoff = backoff
        self._limit = limit
        self._counted = float("-inf")
        """When the last failure that counts came."""
        self.failures = 0
        """One behind the other."""
        self.since: float | None = None
        """When the first of them came."""
        self.rests_until = float("-inf")
        """Nothing is sent before."""

    def state(self, now: float) -> State:
        """As it is at a moment."""
        if self.failures < self._limit:
            return "closed"
        return "open" if now < self.rests_until else "half-open"

    def succeeded(self) -> None:
        """The sink has taken something, or at least understood it."""
        self.failures, self.since = 0, None

    def failed(self, began: float, now: float, after_s: float) -> None:
        """A try that began then has failed; the sink may have asked to be left alone."""
        if began >= self._counted:
            self._counted = now
            self.failures += 1
            if self.failures >= self._limit:
                self.rests_until = max(self.rests_until, now + self._backoff.after(self.failures))
        if self.since is None:
            self.since = now
        if after_s:
            self.rests_until = max(self.rests_until, now + self._backoff.bounded(after_s))

    def again(self) -> None:
        """Somebody says that it works: try at once."""
        self.failures = min(self.failures, self._limit)
        self.rests_until = float("-inf")
