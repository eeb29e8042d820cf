"""Lineage: what an event is made of, at whatever remove, and what that forbids.

A detector that is given its own detections again (`Detector(nested=True)`) would go round in
circles, or find the same anew through every order of its composites. Three rules bound it:

- No composite is made of itself. An event never comes to a composite that it is made of, but
  to close a window: what a negation looks for is no part of a detection.
- Composites nest at most `DEEPEST` deep: what is made of more is given to no composite.
- Of one set of plain events, a composite that sees composite events is detected once. An event
  without parts, such as one that says that nothing happened, counts as a plain one.

What a rule suppresses consumes nothing. Lineage travels with the events, so it is known as
long as anything waits that is made of them, and no longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nearcast.model.events import Event

if TYPE_CHECKING:
    from nearcast.cpsl.instances import Instance

__all__ = ["DEEPEST", "Happening", "Lineage", "claim", "lineage_of"]

#: How many composites deep an event may be that is given to composites.
DEEPEST = 16
_FIELDS = ("id", "attributes", "keywords", "location", "start", "end", "expires", "source")


class Origin:
    """A plain event as the origin of others. Goes with the last event that is made of it."""

    __slots__ = ("number", "told")

    def __init__(self, number: int) -> None:
        self.number = number
        self.told: set[tuple[int, frozenset[int]]] = set()
        """A composite's number and the origins it was detected of, of which this is the last."""


class Lineage:
    """The composites and the plain events that an event is made of."""

    __slots__ = ("composites", "depth", "origins")

    def __init__(self, composites: frozenset[str], depth: int, origins: frozenset[Origin]) -> None:
        self.composites = composites
        self.depth = depth
        """0 for a plain event, else one more than the deepest part."""
        self.origins = origins

    @classmethod
    def plain(cls, number: int) -> Lineage:
        """That of an event which is made of nothing else; no two have the same number."""
        return cls(frozenset(), 0, frozenset((Origin(number),)))

    def under(self, composite_id: str, number: int) -> Lineage:
        """That of a detection whose parts have this one; without parts it is an origin itself."""
        origins = self.origins or frozenset((Origin(number),))
        return Lineage(self.composites | {composite_id}, self.depth + 1, origins)


class Happening(Event):
    """An event as a nested detector holds it: with its lineage."""

    __slots__ = ("lineage",)
    lineage: Lineage

    def __init__(self, event: Event, lineage: Lineage) -> None:
        put = object.__setattr__  # it was looked at when it was made
        for name in _FIELDS:
            put(self, name, getattr(event, name))
        put(self, "lineage", lineage)

    def __reduce__(self) -> tuple[object, ...]:
        times = self.start, self.end, self.expires
        plain = Event(
            self.id, dict(self.attributes), self.keywords, self.location, *times, source=self.source
        )
        return (Happening, (plain, self.lineage))


def lineage_of(instances: Iterable[Instance]) -> Lineage:
    """What instances of a nested detector are made of together."""
    found = [event.lineage for i in instances for event in i.events() if type(event) is Happening]
    return Lineage(
        frozenset().union(*(each.composites for each in found)),
        max((each.depth for each in found), default=0),
        frozenset().union(*(each.origins for each in found)),
    )


def claim(composite: int, instances: Iterable[Instance]) -> bool:
    """Whether a composite may be detected of instances: from now on it has been.

    Of plain events alone it may be as often as it is.
    """
    made = lineage_of(instances)
    if not made.origins:
        return True
    # The last origin keeps the note: it is the first to go, and nobody can ask without it.
    last = max(made.origins, key=lambda origin: origin.number)
    note = composite, frozenset(origin.number for origin in made.origins)
    if note in last.told:
        return made.depth == 0
    last.told.add(note)
    return True
