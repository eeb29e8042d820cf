"""Nodes that keep nothing: plain events, unary tests, alternatives."""

from __future__ import annotations

from typing import Any

from nearcast.cpsl.instances import Instance
from nearcast.cpsl.operators.filters import Test, unary
from nearcast.cpsl.operators.node import Node, Run
from nearcast.cpsl.operators.spatial import Relations
from nearcast.cpsl.predicates import Translation

__all__ = ["Alias", "Either", "Filter", "Primitive"]


class Primitive(Node):
    """A plain event that passes the predicates; the matcher finds it.

    `reader` reads the variables off an event and decides what the matcher does not; None if
    there is nothing to do.
    """

    __slots__ = ("reader",)

    def __init__(self, reader: Translation | None) -> None:
        super().__init__((), 0, 0)
        self.reader = reader


class Alias(Node):
    """A variable that stands for another one."""

    __slots__ = ()

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        run.emit(self, instance)


class Filter(Node):
    """A unary test: the instances that pass, as they are."""

    __slots__ = ("kind", "params", "relations", "test")

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
        self.test: Test | None = None  # made when first needed: points are left to the index

    def holds(self, instance: Instance) -> bool:
        """Whether an instance passes."""
        if self.test is None:
            self.test = unary(self.kind, self.params, self.relations)
        return self.test(instance)

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
