"""Time events, and the moments after which waiting instances are of no more use.

Time comes from outside (the injected clock); nothing here reads one. Time events that are due
together fire in a fixed order: inner operators before those that contain them, then by the age
of what asked for them, so that it does not matter which composites share the graph.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, TypeAlias

from nearcast.clock import FOREVER, Micros
from nearcast.cpsl.operators.node import Node

__all__ = ["Timers"]

#: time, height, age, tie, sequence, node, token
Due: TypeAlias = tuple[Micros, int, int, int, int, Node, int]


class Timers:
    """Two heaps: what fires, and what is forgotten. O(log n) each way."""

    __slots__ = ("_count", "due", "stale")

    def __init__(self) -> None:
        self.due: list[Due] = []
        self.stale: list[tuple[Micros, int, Node, int, int]] = []
        self._count = 0

    def wake(self, at: Micros, node: Node, age: int, token: int) -> None:
        """Fire `node.timed(token)` at a moment."""
        self._count += 1
        heappush(self.due, (at, node.height, age, node.tie, self._count, node, token))

    def forget(self, after: Micros, node: Node, port: int, token: int) -> None:
        """Call `node.forgotten(port, token)` once a moment is over."""
        self._count += 1
        heappush(self.stale, (after, self._count, node, port, token))

    def next(self) -> Micros:
        """When the next time event is due."""
        return self.due[0][0] if self.due else FOREVER

    def pop(self) -> Due:
        """Take the next time event."""
        return heappop(self.due)

    def pop_stale(self) -> tuple[Node, int, int]:
        """Take the instance that is the first to be of no more use."""
        _, _, node, port, token = heappop(self.stale)
        return node, port, token

    def drop(self, gone: set[Node]) -> None:
        """Forget what removed nodes asked for. O(n)."""
        self.due = sorted(entry for entry in self.due if entry[5] not in gone)
        self.stale = sorted(entry for entry in self.stale if entry[2] not in gone)

    def dump(self, number: dict[Node, Any]) -> tuple[list[Any], list[Any]]:
        """Both heaps with nodes by number."""
        due = [(*entry[:5], number[entry[5]], entry[6]) for entry in self.due]
        stale = [(*e[:2], number[e[2]], *e[3:]) for e in self.stale]
        return due, stale

    def load(self, state: tuple[list[Any], list[Any]], nodes: dict[Any, Node]) -> None:
        """Both heaps, as `dump` gave them."""
        due, stale = state
        self.due = sorted((*e[:5], nodes[e[5]], e[6]) for e in due)
        self.stale = sorted((*e[:2], nodes[e[2]], *e[3:]) for e in stale)
        self._count = max((e[4] for e in self.due), default=0)
        self._count = max(self._count, max((e[1] for e in self.stale), default=0))
