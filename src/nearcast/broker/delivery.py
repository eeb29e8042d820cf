"""Who was told of what: each pair of a subscription and an event once."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Delivery"]


class Delivery:
    """Pairs that were told. They are remembered while subscription and event both live."""

    def __init__(self) -> None:
        self._by_event: dict[str, set[str]] = {}
        self._by_subscription: dict[str, set[str]] = {}

    def first(self, subscription_id: str, event_id: str) -> bool:
        """Whether this pair is new; from now on it is not. O(1)."""
        told = self._by_event.setdefault(event_id, set())
        if subscription_id in told:
            return False
        told.add(subscription_id)
        self._by_subscription.setdefault(subscription_id, set()).add(event_id)
        return True

    def forget_event(self, event_id: str) -> None:
        """The event is gone. O(its pairs)."""
        for subscription_id in self._by_event.pop(event_id, ()):
            self._drop(self._by_subscription, subscription_id, event_id)

    def forget_subscription(self, subscription_id: str) -> None:
        """The subscription is gone. O(its pairs)."""
        for event_id in self._by_subscription.pop(subscription_id, ()):
            self._drop(self._by_event, event_id, subscription_id)

    @staticmethod
    def _drop(pairs: dict[str, set[str]], key: str, other: str) -> None:
        members = pairs[key]
        members.discard(other)
        if not members:
            del pairs[key]

    def restore(self, told: Mapping[str, set[str]]) -> None:
        """Begin with these: event id → subscription ids."""
        for event_id, subscription_ids in told.items():
            for subscription_id in subscription_ids:
                self.first(subscription_id, event_id)

    def __len__(self) -> int:
        """How many pairs are remembered."""
        return sum(map(len, self._by_event.values()))

    def check_invariants(self) -> None:
        """Both directions agree."""
        one = {(s, e) for e, told in self._by_event.items() for s in told}
        other = {(s, e) for s, told in self._by_subscription.items() for e in told}
        assert one == other
        assert all(self._by_event.values())
        assert all(self._by_subscription.values())
