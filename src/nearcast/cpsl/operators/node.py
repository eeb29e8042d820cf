"""What every node of the detection graph has, and what it may ask of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nearcast.clock import Micros
from nearcast.cpsl.instances import Instance

__all__ = ["Node", "Run"]


class Run(Protocol):
    """The graph as a node sees it."""

    now: Micros
    step: int
    max_pending: int

    def serial(self) -> int:
        """A new serial number."""

    def emit(self, node: Node, instance: Instance) -> None:
        """Pass an instance on to whoever waits for this node."""

    def wake(self, at: Micros, node: Node, age: int, token: int, turn: int | None = None) -> None:
        """Ask for a time event; those of one moment, operator and age come by turns."""

    def turn(self) -> int:
        """The turn of a time event that may be asked for later."""

    def forget(self, after: Micros, node: Node, port: int, token: int) -> None:
        """Ask to be told when an instance is of no more use."""

    def overflow(self) -> None:
        """Count an instance that a full queue let go."""


class Node:
    """A node: who feeds it, who listens to it, and the composites that end here."""

    __slots__ = (
        "gate", "height", "inputs", "key", "names", "order", "owner", "parents", "roots", "tie",
        "uses",
    )  # fmt: skip

    #: Whether the node waits for anything: then only composites registered together share it.
    stateful = False
    #: Whether the node asks its gate before it takes what waits.
    gated = False
    #: The input whose instances become no part of what the node emits.
    blocking = -1

    def __init__(self, names: tuple[str | None, ...], height: int, tie: int) -> None:
        self.names = names
        self.height = height
        self.tie = tie
        self.order = 0  # unique, and greater than that of every node of less height
        self.uses = 0
        self.key: object = None
        self.inputs: tuple[Node, ...] = ()
        self.parents: tuple[Any, ...] = ()  # node, port, node, port, …: a pair less to keep
        self.roots: tuple[Any, ...] = ()
        self.owner: str | None = None  # nothing that is made of this composite may come here
        self.gate: Callable[[Sequence[Instance]], bool] | None = None  # may these be detected?

    def receive(self, port: int, instance: Instance, run: Run) -> None:
        """Take an instance of an input."""
        raise NotImplementedError

    def timed(self, token: int, run: Run) -> None:
        """A time event that the node asked for."""

    def forgotten(self, port: int, token: int, run: Run) -> None:
        """An instance that can match no longer."""

    def pending(self) -> list[tuple[int, Instance]]:
        """What waits here, with the port it came in by."""
        return []

    def dump(self) -> object:
        """The state as plain values; None if there is none."""
        return None

    def clear(self) -> None:
        """Forget everything that waits here."""

    def load(self, state: Any) -> None:
        """Take over a state that `dump` gave; nothing waits here yet."""

    def check(self, now: Micros) -> None:
        """Raise AssertionError where the node keeps what can never match."""
