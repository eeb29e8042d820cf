"""What a watch knows, as plain values: to be kept elsewhere and taken up again."""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.clock import NEVER, Micros
from nearcast.fences.groups import Key, Object
from nearcast.model.events import Event
from nearcast.model.fences import Fence

__all__ = ["KnownFence", "KnownObject", "Saved", "Visit"]


@dataclass(frozen=True, slots=True)
class KnownFence:
    """A fence and when it came: among fences, among positions, and in time."""

    fence: Fence
    number: int
    since: int
    made: Micros
    waits: bool = False
    """It has not begun: `number` is that of its turn then, and no watch knows it."""


@dataclass(frozen=True, slots=True)
class Visit:
    """An object is inside a fence since `entered`, or (not `inside`) known near it only."""

    fence_id: str
    inside: bool
    entered: Micros
    dwelt: bool


@dataclass(frozen=True, slots=True)
class KnownObject:
    """The last position of an object, for the fences that count the same, and its visits.

    `event` is None for an object that was forgotten.
    """

    key: Key
    object: Object
    event: Event | None
    at: Micros = NEVER
    number: int = 0
    gone: int = 0
    visits: tuple[Visit, ...] = ()
    given_up: int = 0
    """The number under which it was said to be lost, since that position; 0: it was not."""


@dataclass(frozen=True, slots=True)
class Saved:
    """All of a watch. Timers are due before `before` or up to `closed` have fired."""

    fences: tuple[KnownFence, ...]
    objects: tuple[KnownObject, ...]
    before: Micros = NEVER
    closed: Micros = NEVER
