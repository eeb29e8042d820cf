"""What is tried again, and when: every verb may be, since a server takes a repetition as such."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

__all__ = ["LOST", "PATIENCE_S", "TRANSIENT", "before", "delays"]

#: For how long a call is tried again, if nothing else is said.
PATIENCE_S = 30.0
#: Statuses that say: not now.
TRANSIENT = frozenset({429, 502, 503, 504})

#: Of those, what somebody in between says who does not know what the server has done.
LOST = frozenset({502, 504})

_FIRST_S, _LONGEST_S = 0.05, 5.0


def delays(patience_s: float, chance: random.Random | None = None) -> Iterator[float]:
    """How long to wait before each further try, twice as long each time, until patience ends.

    Spread at random, so that those whom a server lost at one moment do not all come back at one.
    """
    chance = chance or random.Random()
    waited, longest = 0.0, _FIRST_S
    while waited < patience_s:
        delay = min(longest * chance.uniform(0.5, 1.0), patience_s - waited)
        yield delay
        waited += delay
        longest = min(2 * longest, _LONGEST_S)


def before(status: int, headers: Mapping[str, str], waits: Iterator[float]) -> float | None:
    """How long to wait before a response is asked for again; None: it is the answer.

    As long as the server asks for (`Retry-After`), if that is longer than we would.
    """
    if status not in TRANSIENT:
        return None
    delay = next(waits, None)
    if delay is None:
        return None
    try:
        asked = float(headers.get("retry-after", "0"))
    except ValueError:
        asked = 0.0
    return max(delay, min(asked, _LONGEST_S))
