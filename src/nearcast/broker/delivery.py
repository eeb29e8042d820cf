"""Who was told of what, where that does not follow from the order of arrival."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

__all__ = ["Delivery"]

#: Pairs from which on it is worth looking for those of events that are gone.
_FEW = 1024


class Delivery:
    """Pairs of a subscription and the number of an event, each told once. 8 bytes a pair.

    A subscription that stays where it is was told of every live event that matches it: when the
    event came, or when it came itself. Nothing is kept of that. Here are the pairs of those that
    follow somebody, and what the subscriptions that stood under an id before were told of.

    Numbers of events that are gone are found by nobody, and go when they are many.
    """

    def __init__(self, live: Callable[[], Sequence[int]]) -> None:
        self._live = live
        """The numbers of live events, ascending."""
        self._told: dict[str, array[int]] = {}
        """By subscription: numbers, ascending."""
        self._pairs = 0
        self._most = _FEW

    def first(self, subscription_id: str, number: int) -> bool:
        """Whether this pair is new; from now on it is not. O(log n), and a move of n bytes."""
        told = self._told.get(subscription_id)
        if told is None:
            told = self._told[subscription_id] = array("q")
        at = bisect_left(told, number)
        if at < len(told) and told[at] == number:
            return False
        told.insert(at, number)
        self._added(1)
        return True

    def holds(self, subscription_id: str, number: int) -> bool:
        """Whether a pair was told, as far as that is kept here."""
        told = self._told.get(subscription_id, ())
        at = bisect_left(told, number)
        return at < len(told) and told[at] == number

    def keep(self, subscription_id: str, numbers: Iterable[int]) -> None:
        """These were told. O(n log n)."""
        before = self._told.get(subscription_id, ())
        kept = array("q", sorted({*before, *numbers}))
        if kept:
            self._told[subscription_id] = kept
            self._added(len(kept) - len(before))

    def forget(self, subscription_id: str) -> None:
        """The subscription is gone. O(1)."""
        self._pairs -= len(self._told.pop(subscription_id, ()))

    def _added(self, pairs: int) -> None:
        self._pairs += pairs
        if self._pairs > self._most:
            self._clear()

    def _clear(self) -> None:
        """Forget events that are gone; next time when half as many have been added.

        Or as many as makes it worth while to look at all that are live: O(pairs + live events).
        """
        live = np.array(self._live(), np.int64)
        for id, told in [*self._told.items()]:
            kept = np.frombuffer(told, np.int64)
            at = np.searchsorted(live, kept)
            there = at < live.size
            there[there] = live[at[there]] == kept[there]
            kept = kept[there]
            if not kept.size:
                del self._told[id]
            elif kept.size < len(told):
                self._told[id] = array("q", kept.tobytes())
        self._pairs = sum(map(len, self._told.values()))
        self._most = self._pairs + max(_FEW, self._pairs // 2, live.size // 8)

    def __len__(self) -> int:
        """How many pairs are kept, those of events that are gone among them."""
        return self._pairs

    def check_invariants(self) -> None:
        """Numbers ascend, and are counted."""
        assert self._pairs == sum(map(len, self._told.values()))
        for told in self._told.values():
            assert len(told)
            assert all(a < b for a, b in pairwise(told))
