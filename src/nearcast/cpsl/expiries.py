"""When composites are over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from nearcast.clock import Micros
from nearcast.cpsl.dag import Registration

__all__ = ["Expiries"]

_FEW = 64  # entries of composites that went before their time, beside as many as there are


class Expiries:
    """Composites by the moment from which on nothing is detected of them. O(log n) a composite.

    One that is removed before that leaves its entry behind, which counts no more.
    """

    __slots__ = ("_ends", "_number", "_registrations")

    def __init__(self, registrations: Mapping[str, Registration]) -> None:
        self._registrations = registrations
        self._ends: list[tuple[Micros, int, Registration]] = []
        self._number = 0

    def __len__(self) -> int:
        """How many entries there are, those that count no more among them."""
        return len(self._ends)

    def add(self, registration: Registration) -> None:
        """A composite is there, and will be over if it says when."""
        expires = registration.composite.expires
        if expires is None:
            return
        self._number += 1
        heappush(self._ends, (expires, self._number, registration))
        if len(self._ends) > _FEW + 2 * len(self._registrations):
            self._ends = [entry for entry in self._ends if self._counts(entry[2])]
            heapify(self._ends)

    def over(self, now: Micros) -> Iterator[str]:
        """The ids of composites that are over by now; they need not be asked for again."""
        while self._ends and self._ends[0][0] <= now:
            registration = heappop(self._ends)[2]
            if self._counts(registration):
                yield registration.composite.id

    def _counts(self, registration: Registration) -> bool:
        return self._registrations.get(registration.composite.id) is registration
