"""Nodes that keep nothing: plain events, unary tests, alternatives."""

from __future__ import annotations

from typing import Any, Protocol

from nearcast.cpsl.instances import Instance
from nearcast.cpsl.leaves import Check, Leaf
from nearcast.cpsl.operators.filters import Decided, Test, decided, unary
from nearcast.cpsl.operators.node import Node, Run
from nearcast.cpsl.operators.spatial import Relations
from nearcast.cpsl.predicates import Match
from nearcast.model.events import Event
from nearcast.model.geometry import Space

__all__ = ["Alias", "Either", "Filter", "Primitive"]


class Reader(Protocol):
    """Reads the variables off an event, and decides what is left."""

    def check(self, event: Event, space: Space, /) -> Match | None:
        """What the event binds and what stays open; None if it does not pass."""


class Primitive(Node):
    """A plain event that passes the predicates; `nearcast.cpsl.dispatch` finds it.

    `home` is the equality under which it is found and `tests` are the others, None and none if
    the matcher finds it. `reader` is None if there is nothing to read. `places` are the location
    tests over it, as long as they are few.
    """

    __slots__ = ("home", "leaf", "places", "reader", "tests")

    def __init__(self, leaf: Leaf) -> None:
        super().__init__((), 0, 0)
        self.leaf = leaf
        self.home: int | None = None
        self.tests: tuple[Check, ...] = ()
        self.reader: Reader | None = None
        self.places: tuple[Filter, ...] = ()


class Alias(Node):
    """A variable that stands for another one."""

    __slots__ = ()

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        run.emit(self, instance)


class Filter(Node):
    """A unary test: the instances that pass, as they are."""

    __slots__ = ("_test", "kind", "params", "relations", "tell")

    def __init__(
        self,
        names: tuple[str | None, ...],
        height: int,
        kind: str,
        params: tuple[Any, ...],
        relations: Relations,
    ) -> None:
        super().__init__(names, height, 0)
        self.kind = kind
        self.params = params
        self.relations = relations
        self._test: Test | None = None  # both are made when first needed
        self.tell: Decided | None = None

    def holds(self, instance: Instance) -> bool:
        """Whether an instance passes."""
        if self._test is None:
            self._test = unary(self.kind, self.params, self.relations)
        return self._test(instance)

    def teller(self) -> Decided:
        """Whether a point passes, where a few comparisons tell; kept as `tell`."""
        self.tell = decided(self.kind, self.params, self.relations)
        return self.tell

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        if self.holds(instance):
            run.emit(self, instance)


class Either(Node):
    """`||`: whatever comes, an occurrence that several sides share only once."""

    __slots__ = ("seen", "step")

    def __init__(self, names: tuple[str | None, ...], height: int) -> None:
        super().__init__(names, height, 0)
        self.step = -1
        self.seen: list[Instance] = []

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        if run.step != self.step:
            self.step, self.seen = run.step, []
        for other in self.seen:
            if other.serial == instance.serial and other.bindings == instance.bindings:
                return
        self.seen.append(instance)
        run.emit(self, instance)

    def clear(self) -> None:
        """Forget everything that waits here."""
        self.step, self.seen = -1, []
