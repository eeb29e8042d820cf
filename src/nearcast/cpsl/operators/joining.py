"""Who of three and more inputs fits what is known: looked up by the variables that are bound.

Of `A(&x)`, `B(&x, &y)`, `C(&y)` no variable is on every side. A c finds the b with its y, and
these find the a with their x; once an a is chosen too, a b is looked up by both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

from nearcast.cpsl.instances import Instance
from nearcast.cpsl.operators.queues import KeyedQueue

__all__ = ["Joining", "fitting", "reached"]

#: For each input the variables that all its instances bind, and that another input binds too.
Joining: TypeAlias = tuple[tuple[str, ...], ...]
Row: TypeAlias = Iterable[tuple[int, Instance]]
#: An input, and the variables that it shares with the one before.
Step: TypeAlias = tuple[int, tuple[str, ...]]


def fitting(
    queue: KeyedQueue, names: tuple[str, ...], chosen: Sequence[Instance | None]
) -> Row | None:
    """Those that share the values of what is chosen, oldest first; None if it has none of them.

    O(1) and who is found. Do not change the queue meanwhile.
    """
    known, values = [], []
    for name in names:
        for one in chosen:
            if one is not None and name in one.bindings:
                known.append(name)
                values.append(one.bindings[name])
                break
    return queue.having(tuple(known), tuple(values)).items() if known else None


def reached(
    queues: Sequence[KeyedQueue], joining: Joining, port: int, chosen: Sequence[Instance | None]
) -> Row:
    """Those of an input to whom what is chosen leads by way of others that wait, oldest first.

    All that wait there if no variables lead to it. O(who is found on the way), sorted.
    """
    way = _way(joining, tuple([at for at, one in enumerate(chosen) if one is not None]), port)
    if way is None:
        return queues[port].items.items()
    start, steps = way
    one = chosen[start]
    assert one is not None
    row: dict[int, Instance] = {-1: one}
    for at, names in steps:
        keys = {tuple([each.bindings[name] for name in names]) for each in row.values()}
        row = {}
        for key in keys:
            row.update(queues[at].having(names, key))
    return sorted(row.items())


@lru_cache(maxsize=1024)
def _way(
    joining: Joining, chosen: tuple[int, ...], port: int
) -> tuple[int, tuple[Step, ...]] | None:
    """The shortest way from one of some inputs to another, past none that is chosen."""
    ways: dict[int, tuple[int, tuple[Step, ...]]] = {start: (start, ()) for start in chosen}
    waiting = deque(chosen)
    while waiting and port not in ways:
        here = waiting.popleft()
        start, steps = ways[here]
        for there, names in enumerate(joining):
            shared = tuple(name for name in names if name in joining[here])
            if shared and there not in ways:
                ways[there] = start, (*steps, (there, shared))
                waiting.append(there)
    return ways.get(port)
