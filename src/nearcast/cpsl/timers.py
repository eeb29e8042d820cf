"""Time events, and the moments after which waiting instances are of no more use.

Time comes from outside (the injected clock); nothing here reads one. Time events that are due
together fire in a fixed order: inner operators before those that contain them, then by the age
of what asked for them, so that it does not matter which composites share the graph.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Any, TypeAlias

from nearcast.clock import FOREVER, Micros
from nearcast.cpsl.operators.node import Node

__all__ = ["Timers"]

#: time, height, age, tie, sequence, node, token
Due: TypeAlias = tuple[Micros, int, int, int, int, Node, int]
#: last moment of use, sequence, node, port, token
Stale: TypeAlias = tuple[Micros, int, Node, int, int]
_RUNS = 16  # durations with a row of their own


class Timers:
    """What fires, as a heap, and what is forgotten.

    Time does not go back, so what is of use for the same duration is forgotten in the order in
    which it came: each duration has a row, and only what comes with many others goes to a heap.
    O(log n) for what fires, O(1) for nearly all that is forgotten.
    """

    __slots__ = ("_count", "_heap", "_rows", "due", "oldest")

    def __init__(self) -> None:
        self.due: list[Due] = []
        self.oldest: Micros = FOREVER
        """The first moment after which something is to be forgotten."""
        self._rows: dict[Micros, deque[Stale]] = {}
        self._heap: list[Stale] = []
        self._count = 0

    @property
    def stale(self) -> list[Stale]:
        """What is to be forgotten, in order. O(n log n)."""
        return sorted([*self._heap, *(entry for row in self._rows.values() for entry in row)])

    def turn(self) -> int:
        """The turn of what is asked for now, or as if it were."""
        self._count += 1
        return self._count

    def wake(self, at: Micros, node: Node, age: int, token: int, turn: int | None = None) -> None:
        """Fire `node.timed(token)` at a moment."""
        turn = self.turn() if turn is None else turn
        heappush(self.due, (at, node.height, age, node.tie, turn, node, token))

    def forget(self, after: Micros, now: Micros, node: Node, port: int, token: int) -> None:
        """Call `node.forgotten(port, token)` once a moment is over; `now` never decreases."""
        self._count += 1
        row = self._rows.get(after - now)
        if row is not None:
            row.append((after, self._count, node, port, token))
        elif len(self._rows) < _RUNS:
            self._rows[after - now] = deque([(after, self._count, node, port, token)])
        else:
            heappush(self._heap, (after, self._count, node, port, token))
        if after < self.oldest:
            self.oldest = after

    def next(self) -> Micros:
        """When the next time event is due."""
        return self.due[0][0] if self.due else FOREVER

    def pop(self) -> Due:
        """Take the next time event."""
        return heappop(self.due)

    def pop_stale(self, now: Micros) -> list[Stale]:
        """Take what is of no more use at a moment, in order."""
        found: list[Stale] = []
        for offset, row in list(self._rows.items()):
            while row and row[0][0] < now:
                found.append(row.popleft())
            if not row:
                del self._rows[offset]
        while self._heap and self._heap[0][0] < now:
            found.append(heappop(self._heap))
        found.sort()
        self._look()
        return found

    def _look(self) -> None:
        """Find the first moment anew."""
        firsts = [row[0][0] for row in self._rows.values()]
        self.oldest = min(firsts + [entry[0] for entry in self._heap[:1]], default=FOREVER)

    def drop(self, gone: set[Node]) -> None:
        """Forget what removed nodes asked for. O(n)."""
        self.due = sorted(entry for entry in self.due if entry[5] not in gone)
        self._heap = [entry for entry in self.stale if entry[2] not in gone]
        self._rows.clear()
        self._look()

    def dump(self, number: dict[Node, Any]) -> tuple[list[Any], list[Any], int]:
        """Both with nodes by number, and how many there ever were."""
        due = [(*entry[:5], number[entry[5]], entry[6]) for entry in self.due]
        stale = [(*e[:2], number[e[2]], *e[3:]) for e in self.stale]
        return due, stale, self._count

    def load(self, state: tuple[list[Any], list[Any], int], nodes: dict[Any, Node]) -> None:
        """Both, as `dump` gave them."""
        due, stale, self._count = state
        self.due = sorted((*e[:5], nodes[e[5]], e[6]) for e in due)
        self._heap = sorted((*e[:2], nodes[e[2]], *e[3:]) for e in stale)
        self._rows.clear()
        self._look()
