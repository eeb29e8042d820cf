"""Repetitions: so many occurrences, all of a period, so many within a time.

Occurrences belong together if they agree on their `&` variables. What a `$` variable inside a
repetition stands for differs from one occurrence to the next and is not known outside.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from nearcast.clock import Micros
from nearcast.cpsl.instances import Instance, Open, compose
from nearcast.cpsl.operators.node import Node, Run

__all__ = ["Count", "Key", "Period", "Sliding", "key_of", "together"]

Key: TypeAlias = tuple[tuple[str, Any], ...]


def key_of(instance: Instance) -> Key:
    """What the `&` variables of an instance stand for."""
    return tuple(sorted((n, v) for n, v in instance.bindings.items() if n[0] == "&"))


def together(instances: list[Instance], key: Key, run: Run) -> Instance:
    """Instances that agree on their `&` variables, as one."""
    opens: list[Open] = [o for instance in instances for o in instance.opens]
    return compose(run.serial(), tuple(instances), dict(key), tuple(dict.fromkeys(opens)))


class _Groups(Node):
    """Occurrences by what their variables stand for."""

    __slots__ = ("groups",)
    stateful = True

    def __init__(self, names: tuple[str | None, ...], height: int, tie: int) -> None:
        super().__init__(names, height, tie)
        self.groups: dict[Key, list[Instance]] = {}

    def _join(self, key: Key, instance: Instance, run: Run) -> list[Instance]:
        """Add an occurrence to its group; too many, or too many groups, let go the oldest."""
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= run.max_pending:
                del self.groups[next(iter(self.groups))]
                run.overflow()
            group = self.groups[key] = []
        if len(group) >= run.max_pending:
            del group[0]
            run.overflow()
        group.append(instance)
        return group

    def pending(self) -> list[tuple[int, Instance]]:
        """What waits here, with the port it came in by."""
        return [(0, instance) for group in self.groups.values() for instance in group]

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        return list(self.groups.items()) or None

    def clear(self) -> None:
        """Forget everything that waits here."""
        self.groups = {}

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave."""
        self.groups = {key: list(group) for key, group in state}


class Count(_Groups):
    """`Q(n)A`: n occurrences; the mode says which, and what is left for the next."""

    __slots__ = ("mode", "n")
    gated = True

    def __init__(self, names: tuple[str | None, ...], height: int, n: int, mode: str) -> None:
        super().__init__(names, height, 0)
        self.n = n
        self.mode = mode

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        key = key_of(instance)
        whole = self.mode in ("chronicle", "recent")  # these look at all occurrences as one row
        group = self._join(() if whole else key, instance, run)
        if self.mode == "recent" and len(group) > self.n:
            del group[0]
        if len(group) < self.n or (self.mode == "chronicle" and len(group) > self.n):
            return
        chosen = [*group[: self.n - 1], instance]
        if whole and any(key_of(other) != key for other in chosen):
            return
        if self.gate is not None and not self.gate(chosen):  # it waits for another set
            if self.mode == "chronicle":  # there nothing else would come to the turn
                group.pop()
                if not group:
                    del self.groups[()]
            return
        if self.mode == "continuous":
            del group[0]
        elif self.mode != "recent":
            del group[: self.n - 1], group[-1]
        if not group:
            del self.groups[() if whole else key]
        run.emit(self, together(chosen, key, run))

    def check(self, now: Micros) -> None:
        """Raise AssertionError where the node keeps what can never match."""
        if self.mode != "chronicle" and self.gate is None:
            most = self.n if self.mode == "recent" else self.n - 1
            assert all(0 < len(group) <= most for group in self.groups.values())


class Period(_Groups):
    """`P(t)A`: at the end of each period, all occurrences that came in it."""

    __slots__ = ("length", "registered")

    def __init__(
        self, names: tuple[str | None, ...], height: int, tie: int, length: Micros
    ) -> None:
        super().__init__(names, height, tie)
        self.length = length
        self.registered: Micros = 0

    def begin(self, registered: Micros, run: Run) -> None:
        """Periods are counted from here."""
        self.registered = registered

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        if not self.groups:
            periods = max(1, -((self.registered - run.now) // self.length))
            run.wake(self.registered + periods * self.length, self, -1, 0)
        self._join(key_of(instance), instance, run)

    def timed(self, token: int, run: Run) -> None:
        """A time event that the node asked for."""
        groups, self.groups = self.groups, {}
        for key, group in groups.items():
            run.emit(self, together(group, key, run))

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        return self.registered, list(self.groups.items())

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave."""
        self.registered = state[0]
        super().load(state[1])


class Sliding(Node):
    """`S(n;t;k)A`: windows of n occurrences, starting at the first, the (1+k)th, …; those
    shorter than t."""

    __slots__ = ("lag", "length", "n", "rows", "skip")
    stateful = True

    def __init__(
        self,
        names: tuple[str | None, ...],
        height: int,
        n: int,
        length: Micros,
        skip: int,
        lag: Micros,
    ) -> None:
        super().__init__(names, height, 0)
        self.n = n
        self.length = length
        self.skip = skip
        self.lag = lag
        # By what the variables stand for: how many so far, and the latest by their number.
        self.rows: dict[Key, tuple[int, dict[int, Instance]]] = {}

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        key = key_of(instance)
        if key not in self.rows and len(self.rows) >= run.max_pending:
            del self.rows[next(iter(self.rows))]
            run.overflow()
        count, latest = self.rows.get(key, (0, {}))
        count += 1
        self._forget_old(latest, run.now)
        latest[count] = instance
        latest.pop(count - self.n, None)
        self.rows[key] = count, latest
        first = count - self.n + 1
        if first < 1 or (first - 1) % self.skip or len(latest) < self.n:
            return
        made = together(list(latest.values()), key, run)
        if made.end - made.start <= self.length:
            run.emit(self, made)

    def _forget_old(self, latest: dict[int, Instance], now: Micros) -> None:
        """Drop occurrences that no window short enough can hold."""
        for number in [n for n, i in latest.items() if i.start + self.length + self.lag < now]:
            del latest[number]

    def pending(self) -> list[tuple[int, Instance]]:
        """What waits here, with the port it came in by."""
        return [(0, i) for _, latest in self.rows.values() for i in latest.values()]

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        return list(self.rows.items()) or None

    def clear(self) -> None:
        """Forget everything that waits here."""
        self.rows = {}

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave."""
        self.rows = {key: (count, dict(latest)) for key, (count, latest) in state}

    def check(self, now: Micros) -> None:
        """Raise AssertionError where the node keeps what can never match."""
        assert all(0 < len(latest) <= self.n for _, latest in self.rows.values())
