"""What waits for late events before fences hear of it, and what a store has to know of that."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from nearcast.clock import FOREVER, Micros
from nearcast.fences.groups import Object
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Point
from nearcast.model.placing import Facing

__all__ = ["Loss", "Report", "Turn", "Turns"]

#: At one moment losses come after everything else.
_LAST = 2**62


class Report(NamedTuple):
    """A subscriber is somewhere."""

    subscriber: str
    place: Point
    heading: float | None
    before: Facing | None
    """Where it is until then, as far as that is known: the store has the last place only."""

    @property
    def facing(self) -> Facing:
        """Where it is then, with the heading that was said last."""
        heading = self.heading
        if heading is None:
            heading = 0.0 if self.before is None else self.before.heading
        return Facing(self.place.x, self.place.y, float(heading))


class Loss(NamedTuple):
    """Somebody knows that an object is lost."""

    attribute: str
    object: Object


#: What may wait. A store keeps a fence that does as a fence, and the others as turns.
Waiting: TypeAlias = Event | Fence | Report | Loss
W = TypeVar("W", bound=Waiting)
W_co = TypeVar("W_co", bound=Waiting, covariant=True)


class Turn(NamedTuple, Generic[W_co]):
    """What happens to fences at a moment; of several then, that with the least number first."""

    at: Micros
    number: int
    what: W_co


class Turns:
    """Turns to come, in order. O(log n) each."""

    def __init__(self) -> None:
        self._held: list[Turn[Waiting]] = []
        self._received = 0
        self._new: dict[int, Turn[Waiting]] = {}
        self._over: list[int] = []
        self.remembers = False
        """Whether somebody asks for `changes`."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def due(self) -> Micros:
        """The moment of the next one; FOREVER if there is none."""
        return self._held[0].at if self._held else FOREVER

    def add(self, at: Micros, what: W) -> Turn[W]:
        """Something waits from now on."""
        self._received += 1
        turn = Turn(at, self._received + (_LAST if isinstance(what, Loss) else 0), what)
        heappush(self._held, turn)
        if self.remembers and not isinstance(what, Fence):
            self._new[turn.number] = turn
        return turn

    def pop(self) -> Turn[Waiting]:
        """The next one has its turn."""
        turn = heappop(self._held)
        kept = self.remembers and not isinstance(turn.what, Fence)
        if kept and self._new.pop(turn.number, None) is None:
            self._over.append(turn.number)
        return turn

    def changes(self) -> tuple[list[Turn[Waiting]], tuple[int, ...]]:
        """What waits, and the numbers of what does no longer, since this was asked."""
        new, over = [*self._new.values()], tuple(self._over)
        self._new.clear()
        self._over.clear()
        return new, over

    def load(self, turns: Iterable[Turn[Waiting]]) -> None:
        """Go on with what waited for another."""
        self._held = [*turns]
        heapify(self._held)
        self._received = max((turn.number % _LAST for turn in self._held), default=0)
