"""Which waiting instances are of use only thanks to others that wait, and until when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from nearcast.clock import Micros
from nearcast.cpsl.compile import ENDLESS

__all__ = ["Supports"]

#: port, arrival number, until when, arrival numbers of the partners
Support: TypeAlias = tuple[int, int, Micros, tuple[int, ...]]


class Supports:
    """Instances with the partners that each of them counts on, to be found from both sides.

    Like watched literals: an instance is looked at again only when one of its partners goes.
    """

    __slots__ = ("_counting", "_supports")

    def __init__(self) -> None:
        self._supports: dict[int, Support] = {}
        self._counting: dict[int, dict[int, int]] = {}  # by partner: arrival -> port

    def add(self, port: int, arrival: int, until: Micros, partners: Sequence[int]) -> None:
        """An instance counts on partners until a moment."""
        self._supports[arrival] = (port, arrival, until, tuple(partners))
        for partner in partners:
            self._counting.setdefault(partner, {})[arrival] = port

    def until(self, arrival: int) -> Micros:
        """Until when an instance may count on its partners; long ago if it has none."""
        found = self._supports.get(arrival)
        return -ENDLESS if found is None else found[2]

    def clear(self, arrival: int) -> None:
        """An instance counts on nobody any more."""
        _, _, _, partners = self._supports.pop(arrival, (0, 0, 0, ()))
        for partner in partners:
            counting = self._counting[partner]
            del counting[arrival]
            if not counting:
                del self._counting[partner]

    def remove(self, arrival: int) -> list[tuple[int, int]]:
        """An instance is gone: port and arrival number of those that counted on it."""
        if not self._supports:
            return []
        self.clear(arrival)
        left = [(port, number) for number, port in self._counting.get(arrival, {}).items()]
        for _, number in left:
            self.clear(number)
        return left

    def dump(self) -> Iterable[Support]:
        """All of them, for `add`."""
        return list(self._supports.values())
