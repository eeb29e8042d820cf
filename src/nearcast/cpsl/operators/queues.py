"""Instances that wait at an input, oldest first, by the values that join them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nearcast.cpsl.instances import Instance

__all__ = ["KeyedQueue", "Queue"]

_MOST = 8  # indexes of one queue
_NOBODY: Mapping[int, Instance] = {}


class Queue:
    """Pending instances by arrival number, and by the values of the joining variables.

    Adding, removing and finding the bucket of a partner are O(1).
    """

    __slots__ = ("buckets", "items", "names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.items: dict[int, Instance] = {}
        self.buckets: dict[tuple[Any, ...], dict[int, Instance]] | None = {} if names else None

    def key(self, instance: Instance) -> tuple[Any, ...]:
        """The values that a partner has to share."""
        bindings = instance.bindings
        return tuple(bindings[name] for name in self.names)

    def add(self, arrival: int, instance: Instance) -> None:
        """Let an instance wait."""
        self.items[arrival] = instance
        if self.buckets is not None:
            self.buckets.setdefault(self.key(instance), {})[arrival] = instance

    def remove(self, arrival: int) -> Instance | None:
        """Take an instance away; None if it has gone."""
        instance = self.items.pop(arrival, None)
        if instance is not None and self.buckets is not None:
            key = self.key(instance)
            bucket = self.buckets[key]
            del bucket[arrival]
            if not bucket:
                del self.buckets[key]
        return instance

    def clear(self) -> None:
        """Nobody waits any more."""
        self.items.clear()
        if self.buckets is not None:
            self.buckets.clear()

    def partners(self, instance: Instance) -> Iterable[tuple[int, Instance]]:
        """Those that share the joining values, oldest first; do not change the queue meanwhile."""
        if self.buckets is None:
            return self.items.items()
        bucket = self.buckets.get(self.key(instance))
        return () if bucket is None else bucket.items()

    def oldest(self) -> tuple[int, Instance]:
        """The first that came."""
        return next(iter(self.items.items()))


class KeyedQueue(Queue):
    """Pending instances by arrival number, and by the values of any variables once asked for.

    An index is made at its first use, O(instances); then adding and removing are O(indexes).
    """

    __slots__ = ("indexes",)

    def __init__(self) -> None:
        super().__init__(())
        self.indexes: dict[tuple[str, ...], Queue] = {}

    def add(self, arrival: int, instance: Instance) -> None:
        """Let an instance wait."""
        self.items[arrival] = instance
        for index in self.indexes.values():
            index.add(arrival, instance)

    def remove(self, arrival: int) -> Instance | None:
        """Take an instance away; None if it has gone."""
        for index in self.indexes.values():
            index.remove(arrival)
        return self.items.pop(arrival, None)

    def having(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Mapping[int, Instance]:
        """Those whose variables, which all of them bind, have these values, oldest first.

        Where too many sets of variables were asked for already: all, who may be others too.
        """
        index = self.indexes.get(names)
        if index is None:
            if len(self.indexes) >= _MOST:
                return self.items
            index = self.indexes[names] = Queue(names)
            for arrival, instance in self.items.items():
                index.add(arrival, instance)
        assert index.buckets is not None
        return index.buckets.get(values, _NOBODY)
