"""Composite events: detected in order of time, and fed back so that patterns build on patterns."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from heapq import heappop, heappush
from typing import TypeAlias

from nearcast.clock import FOREVER, NEVER, Micros
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.detector import Detector
from nearcast.cpsl.instances import CompositeEvent
from nearcast.cpsl.lineage import Happening, Lineage
from nearcast.errors import StoreError, ValidationError
from nearcast.model.events import Event
from nearcast.model.geometry import Location, Space, check_space

__all__ = ["Patterns"]

#: When, order of arrival, and what came: an event, or a composite that counts from then on.
Coming: TypeAlias = tuple[Micros, int, Event | Composite]


_VERSION = 1
_KEPT = (
    "_hold", "_held", "_coming", "_received", "_closed", "_newest", "_fed", "_begun", "_numbers",
    "late",
)  # fmt: skip


class Patterns:
    """A detector fed in order of time.

    Events wait here for `hold`, so that late ones find their place, and so do composites:
    each sees what happened after it came, however late that is told. A detection is an event
    that other composites see; `nearcast.cpsl.lineage` says what bounds that.
    """

    def __init__(
        self, space: Space, hold: Micros, life: Micros | None, *, longest: Micros | None = None,
        tolerance_m: float = 1.0, max_pending: int = 100_000,
    ) -> None:  # fmt: skip
        self._detector = Detector(
            space, longest=None if longest is None else timedelta(microseconds=longest),
            tolerance_m=tolerance_m, max_pending=max_pending, unique=True, nested=True,
        )  # fmt: skip
        self._longest = longest
        self._space: Space = space
        self._hold = hold
        self._life = life
        self._held: list[Coming] = []
        self._coming: dict[str, Composite] = {}
        """The composites among what is held, or, before there is a time, all of them."""
        self._received = 0
        self._closed: Micros = NEVER
        self._newest: Micros = NEVER
        self._fed: Micros = NEVER
        self._begun = False
        self._numbers: dict[str, int] = {}
        self.late = 0

    def __len__(self) -> int:
        """How many composites there are."""
        return len(self._detector) + len(self._coming)

    @property
    def overflows(self) -> int:
        """How many waiting instances full queues have let go."""
        return self._detector.overflows

    @property
    def idle(self) -> bool:
        """Whether there is nothing to detect, and nothing held back."""
        return not (self._held or len(self))

    def add(self, composite: Composite, now: Micros | None) -> None:
        """Detect a composite from now on; `check` has let it pass."""
        if now is not None and not self._hold:
            self._newest = max(self._newest, now)
            self._detector.add(composite, now)
            return
        self._coming[composite.id] = composite
        if now is not None:
            self._keep(now, composite)

    def begin(self, now: Micros) -> None:
        """Time begins: the composites that are there count from here, and see what is late, too.

        It begins once.
        """
        if self._begun:
            return
        self._begun = True
        for composite in self._coming.values():
            self._detector.add(composite, now)
        self._coming.clear()

    def check(self, composite: Composite) -> None:
        """Refuse a composite that cannot be detected; changes nothing."""
        self._detector.check(composite)

    def remove(self, id: str) -> None:
        """Forget a composite."""
        if self._coming.pop(id, None) is None and id in self._detector:
            self._detector.remove(id)  # else it was over for an event that came ahead of the clock

    def forget(self, id: str) -> None:
        """Forget how many detections of a composite there were."""
        self._numbers.pop(id, None)

    # -- events ------------------------------------------------------------------

    def take(self, event: Event, start: Micros, end: Micros) -> list[CompositeEvent]:
        """An event happened; returns what it completes at once."""
        if not len(self):
            return []
        if self._hold:
            self._keep(end, _timed(event, start, end))
            return []
        if end < max(self._newest, self._closed):
            self.late += 1
            return []
        self._newest = end
        return self._feed(event, start, end)

    def _keep(self, moment: Micros, what: Event | Composite) -> None:
        self._received += 1
        heappush(self._held, (moment, self._received, what))

    def again(
        self, event: CompositeEvent, found: CompositeEvent, moment: Micros
    ) -> list[CompositeEvent]:
        """A detection, under the name it was given, as an event among others at its moment."""
        start = moment if event.start is None else event.start
        return self._feed(event, start, moment, found.lineage)

    def _feed(
        self, event: Event, start: Micros, end: Micros, lineage: Lineage | None = None
    ) -> list[CompositeEvent]:
        if self._longest is not None and end - start > self._longest:
            return []  # a composite event that no pattern has waited for
        # Where time events of this very moment have fired already, this comes right after them.
        self._fed = max(end, self._fed, self._closed + 1)
        if self._longest is not None:
            start = max(start, self._fed - self._longest)
        timed = _timed(event, start, self._fed)
        return self._detector.feed(timed if lineage is None else Happening(timed, lineage))

    def due(self, until: Micros, *, closing: bool) -> Micros | None:
        """The next moment at which something is to be decided.

        Those before `until`; `closing` says that all events of `until` have come, too.
        """
        held = self._held[0][0] if self._held else FOREVER
        timed = self._detector.due
        if timed != FOREVER:  # a time that was over when the pattern came is due at once
            timed = max(timed, self._fed, self._closed + 1)
        at = min(held, timed)
        return at if at < until or (closing and at == until) else None

    def decide(self, moment: Micros) -> list[CompositeEvent]:
        """What happens at the moment that `due` named: what was held back, or time events."""
        if not self._held or self._held[0][0] > moment:
            return self._advance(moment)
        at, _, what = heappop(self._held)
        if isinstance(what, Event):
            return self._feed(what, at if what.start is None else what.start, at)
        if self._coming.get(what.id) is what:
            del self._coming[what.id]
            self._detector.add(what, at)
        return []

    def _advance(self, to: Micros) -> list[CompositeEvent]:
        if to <= self._closed or to < self._fed:
            return []
        self._closed = to
        return self._detector.advance(to)

    # -- going on ------------------------------------------------------------------

    def __contains__(self, id: object) -> bool:
        """Whether a composite has this id."""
        return id in self._coming or id in self._detector

    @property
    def hold(self) -> Micros:
        """How long events wait here."""
        return self._hold

    @property
    def pending(self) -> int:
        """How much waits, here and in the detector: what `dump` has to write."""
        return len(self._held) + self._detector.pending()

    def dump(self) -> bytes:
        """What `load` needs to go on. O(pending)."""
        kept = {name: getattr(self, name) for name in _KEPT}
        return pickle.dumps((_VERSION, self._detector.save(), kept), protocol=5)

    def load(self, dumped: bytes) -> None:
        """Go on where another one was when it was dumped, with what it waited for."""
        try:
            version, detector, kept = pickle.loads(dumped)
        except Exception as error:  # whatever a pickle of something else may raise
            raise StoreError(f"what patterns waited for cannot be read ({error!r})") from error
        if version != _VERSION:
            raise StoreError(
                f"what patterns waited for was saved in version {version}, and this release "
                f"reads version {_VERSION}: open it with the release that wrote it"
            )
        self._detector = Detector.restore(detector)
        for name, value in kept.items():
            setattr(self, name, value)

    def wait(self, hold: Micros) -> None:
        """From now on events wait for this long."""
        self._hold = hold

    # -- composite events ----------------------------------------------------------

    def recall(self, event: CompositeEvent) -> None:
        """A detection had this name when it was made."""
        self._numbers[event.composite_id] = int(event.id.rpartition("#")[2])

    def named(
        self, found: CompositeEvent, taken: Callable[[str], bool], now: Micros
    ) -> CompositeEvent:
        """A detection as the event that is published, under an id that is not taken."""
        number = self._numbers.get(found.composite_id, 0) + 1
        while taken(f"{found.composite_id}#{number}"):
            number += 1
        self._numbers[found.composite_id] = number
        return CompositeEvent(
            f"{found.composite_id}#{number}", found.composite_id, found.parts,
            {**found.attributes, "composite": found.composite_id}, self._place(found.location),
            found.start, found.end, None if self._life is None else now + self._life,
        )  # fmt: skip

    def _place(self, location: Location | None) -> Location | None:
        """The hull of the parts' places, if the space has such a place."""
        try:
            if location is not None:
                check_space(location, self._space, "location")
        except ValidationError:
            return None
        return location


def _timed(event: Event, start: Micros, end: Micros) -> Event:
    """The event with its times said."""
    if event.start == start and event.end == end and type(event) is Event:
        return event
    return Event(
        event.id, event.attributes, event.keywords, event.location, min(start, end), end,
        source=event.source,
    )  # fmt: skip
