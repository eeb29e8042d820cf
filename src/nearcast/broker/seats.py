"""Who sits in which slot of a matcher: now, and when somebody was found there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from threading import Lock
from weakref import ref

from nearcast.model.subscriptions import Subscription

__all__ = ["Found", "Seats"]

_MOST_LEFT = 1000  # departures of one era
_id = attrgetter("id")


class _Era:
    """Some departures, in order, for those who were found before; of later ones the next tells."""

    __slots__ = ("__weakref__", "count", "later", "left")

    def __init__(self) -> None:
        self.left: dict[int, list[tuple[int, Subscription]]] = {}
        """By slot, who left it, each behind the number of the departure."""
        self.count = 0
        self.later: _Era | None = None

    def sitting(self, slot: int, when: int) -> Subscription | None:
        """Who sat in a slot after so many departures, if they have left it since."""
        era: _Era | None = self
        while era is not None:
            for number, who in era.left.get(slot, ()):
                if number >= when:
                    return who
            era = era.later
        return None


class Found:
    """Those who want some events, those of one event behind those of another, each by their ids.

    Who they are is looked up when somebody asks: to touch a subscription takes as long as to find
    that it wants an event. They are those who sat there when they were found.
    """

    __slots__ = ("_era", "_seats", "_slots", "_when", "counts")

    def __init__(
        self, slots: Sequence[int], counts: Sequence[int], seats: Seats, era: _Era, when: int
    ) -> None:
        self._slots = slots
        self.counts = counts
        """How many want each event."""
        self._seats = seats
        self._era = era
        self._when = when

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Subscription]:
        found = self._seats.sitting(self._slots, self._era, self._when)
        stop = 0
        for count in self.counts:
            first, stop = stop, stop + count
            if count > 1:
                found[first:stop] = sorted(found[first:stop], key=_id)
        return iter(found)

    def each(self) -> Iterator[Found]:
        """Those of each event."""
        stop = 0
        for count in self.counts:
            first, stop = stop, stop + count
            some = self._slots[first:stop]
            yield Found(some, (count,), self._seats, self._era, self._when)


class Seats:
    """By slot who is there, remembered from the first time on that anybody asks.

    For to find somebody by an id takes as long as to match. Whoever was found may be asked for
    later, in any thread: those who leave meanwhile are remembered for as long as that may be.
    """

    def __init__(self, who: Callable[[int], Subscription]) -> None:
        self._who = who
        """Who is in a slot now."""
        self._seated: list[Subscription | None] = []
        self._lock = Lock()
        self._departures = 0
        self._era: _Era | None = None
        """Of those who were found last."""
        self._nobody = Found((), (0,), self, _Era(), 0)

    def found(self, slots: Sequence[int], counts: Sequence[int]) -> Found:
        """Those in slots, now: so many for each of some events."""
        if not slots:
            return Found(slots, counts, self, _Era(), 0) if len(counts) > 1 else self._nobody
        era = self._era
        if era is None or era.count >= _MOST_LEFT:
            self._era = later = _Era()
            if era is not None:
                era.later = later
            era = later
        return Found(slots, counts, self, era, self._departures)

    def __bool__(self) -> bool:
        """Whether anybody was looked at."""
        return bool(self._seated) or self._era is not None

    def leave(self, slot: int, who: Subscription) -> None:
        """Somebody leaves a slot, which others may take."""
        with self._lock:
            if slot < len(self._seated):
                self._seated[slot] = None
            if self._asked_for():
                assert self._era is not None
                self._era.left.setdefault(slot, []).append((self._departures, who))
                self._era.count += 1
                self._departures += 1

    def _asked_for(self) -> bool:
        """Whether anybody may still ask for those who were found."""
        last = None if self._era is None else ref(self._era)
        self._era = None
        self._era = None if last is None else last()
        return self._era is not None

    def sitting(self, slots: Sequence[int], era: _Era, when: int) -> list[Subscription]:
        """Who was in slots, in an era, after so many departures."""
        with self._lock:
            if era.count or era.later is not None:
                left = [era.sitting(slot, when) for slot in slots]
                return [who or self._seat(slot) for who, slot in zip(left, slots, strict=True)]
            try:
                found: list[Subscription | None] = [*map(self._seated.__getitem__, slots)]
            except IndexError:
                found = [None]
            if not all(found):  # `None in found` would compare each, which takes longer
                return [*map(self._seat, slots)]
            return found  # type: ignore[return-value]

    def _seat(self, slot: int) -> Subscription:
        if slot >= len(self._seated):
            more = slot + 1
            self._seated += [None] * (more + more // 8 - len(self._seated))
        seated = self._seated[slot]
        if seated is None:
            seated = self._seated[slot] = self._who(slot)
        return seated

    def check_invariants(self) -> None:
        """Raise AssertionError where somebody is not where they are. Slow; for tests."""
        for slot, seated in enumerate(self._seated):
            assert seated is None or self._who(slot) is seated
