"""How things stand by their terms: what is told of what was found, and what is held until when.

A pair is found by its rules, once, whatever the terms are; then it is told at once, held, or let
go. What is held has no number yet: it gets one when it is told, so that the numbers of a
subscriber have no holes and their order is that of telling. `docs/lifecycle.md` has the rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from nearcast.broker.live import LiveEvents
from nearcast.broker.ports import Change, Held, Released, Standing, State, Thing
from nearcast.broker.replies import Notification
from nearcast.broker.timeline import Timeline
from nearcast.clock import Micros
from nearcast.cpsl.instances import CompositeEvent
from nearcast.model.geometry import Around
from nearcast.model.terms import Terms

__all__ = ["MOST_HELD", "Standings"]

#: Notifications that are held of one thing; beyond that the oldest go.
MOST_HELD = 10_000
_PLAIN = Terms()


class _Stand:
    """One thing's."""

    __slots__ = (
        "due", "first", "held", "offset", "opened", "over", "paused", "since", "terms", "told",
    )  # fmt: skip

    def __init__(self, terms: Terms | None) -> None:
        self.terms = terms
        """None: nobody has looked yet."""
        self.told = 0
        self.paused = False
        self.over = False
        """It has told as much as it was to, and is about to end."""
        self.held: list[Notification] = []
        self.first = 1
        """The number of the first that is held."""
        self.opened: Micros | None = None
        self.due: Micros | None = None
        self.since = 0
        """It is told of no event whose number is up to this …"""
        self.offset: int | None = None
        """… which is at this place of the log."""


class Standings:
    """Of all that have terms, or were paused; nothing is kept of the others."""

    def __init__(
        self, live: LiveEvents, timeline: Timeline, thing: Callable[[str], Thing | None]
    ) -> None:
        self._live = live
        self._timeline = timeline
        self._thing = thing
        self._known: dict[str, _Stand] = {}
        self._changed: dict[str, None] = {}
        self._timed: set[str] = set()
        self.spent: list[tuple[str, Micros]] = []
        """What has told as much as it was to, and when it had."""
        self.overflows = 0
        """How much that was held was let go because there was too much of it."""

    def __bool__(self) -> bool:
        return bool(self._known)

    def __contains__(self, id: object) -> bool:
        return id in self._known

    def concerns(self, ids: Iterable[str]) -> bool:
        """Whether any of these stands here."""
        return not self._known.keys().isdisjoint(ids)

    @property
    def timed(self) -> bool:
        """Whether what is told depends on when it was found."""
        return bool(self._timed)

    def paused(self, id: str) -> bool:
        """Whether a thing is paused."""
        return id in self._known and self._known[id].paused

    def over(self, id: str) -> bool:
        """Whether a thing has told as much as it was to, and is about to end."""
        stand = self._known.get(id)
        return stand is not None and stand.over

    def initial(self, id: str) -> bool:
        """Whether a thing is told of what matches when it begins."""
        return id not in self._known or self._terms(id, self._known[id]).initial_event

    def knew(self, id: str, number: int) -> bool:
        """Whether a thing is not told of an event because that was there before."""
        return id in self._known and number <= self._known[id].since

    # -- beginning and ending --------------------------------------------------------

    def begin(self, thing: Thing, now: Micros, offset: Callable[[], int]) -> None:
        """A thing is there, new or in the place of another; `release` may be due at once.

        How the other one stood goes on, unless it was forgotten.
        """
        id, terms = thing.id, thing.terms
        stand = self._known.get(id)
        if stand is None:
            if terms is None:
                return
            stand = self._known[id] = _Stand(terms)
        stand.terms = terms or _PLAIN
        self._changed[id] = None
        region = None if terms is None or terms.initial_event else getattr(thing, "region", None)
        stand.since, stand.offset = 0, None
        if isinstance(region, Around):
            stand.since, stand.offset = self._live.arrived, offset()
        self._time(id, stand.terms)
        if stand.terms.max_events is not None and stand.told >= stand.terms.max_events:
            self._spend(id, stand, now)

    def _time(self, id: str, terms: Terms) -> None:
        if terms.digest is None and terms.quiet_hours is None:
            self._timed.discard(id)
        else:
            self._timed.add(id)

    def forget(self, id: str) -> None:
        """A thing is gone, and what is held of it."""
        if self._known.pop(id, None) is not None:
            self._changed.pop(id, None)
            self._timed.discard(id)
            self._timeline.forget("release", id)

    def carry(self, id: str) -> Callable[[], list[Change]]:
        """What a thing that is about to be replaced leaves: call it when the next one is there.

        Returns what the store has to be told once more.
        """
        stand = self._known.get(id)

        def put() -> list[Change]:
            if stand is None:
                return []
            self._known[id] = stand
            self._changed[id] = None
            if not stand.held:
                return []
            return [Held(stand.first, (*stand.held,))]

        return put

    def reset(self, id: str, changes: list[Change]) -> None:
        """A thing is about to be another's: how it stood, and what is held of it, is forgotten."""
        stand = self._known.get(id)
        if stand is not None:
            self.forget(id)
            changes.append(Released(id, stand.first + len(stand.held)))
            self._known[id] = _Stand(None)
            self._changed[id] = None

    def pause(self, id: str) -> None:
        """Nothing is told of a thing any more; twice is harmless."""
        stand = self._known.get(id)
        if stand is None:
            stand = self._known[id] = _Stand(None)
        if not stand.paused:
            stand.paused = True
            self._changed[id] = None
            self._timeline.forget("release", id)

    def resume(self, id: str) -> None:
        """It is told again; `settle` may have something. Of what is not paused nothing changes."""
        stand = self._known.get(id)
        if stand is not None and stand.paused:
            stand.paused = False
            self._changed[id] = None

    # -- what was found --------------------------------------------------------------

    def admit(
        self, found: Sequence[Notification], now: Micros | None, changes: list[Change]
    ) -> list[Notification]:
        """Those of some, found now or when each says, that are told at once.

        The rest is held or let go.
        """
        passed: list[Notification] = []
        for each in found:
            stand = self._known.get(each.subscription_id)
            if stand is None or self._passes(stand, each, each.at if now is None else now, changes):
                passed.append(each)
        return passed

    def _passes(
        self, stand: _Stand, found: Notification, now: Micros, changes: list[Change]
    ) -> bool:
        if stand.over:
            return False
        id = found.subscription_id
        terms = self._terms(id, stand)
        quiet = terms.quiet_hours
        if stand.paused:
            keeps = terms.while_paused == "keep"
        elif quiet is not None and quiet.quiet(now):
            keeps = quiet.keep
        elif terms.digest is not None:
            keeps = True
        else:
            self._count(id, stand, terms, 1, now)
            return True
        if keeps:
            self._hold(stand, found, now, changes)
        return False

    def _count(self, id: str, stand: _Stand, terms: Terms, more: int, now: Micros) -> None:
        if terms.max_events is not None:
            stand.told += more
            self._changed[id] = None
            if stand.told >= terms.max_events:
                self._spend(id, stand, now)

    def _spend(self, id: str, stand: _Stand, now: Micros) -> None:
        stand.over = True
        self.spent.append((id, now))

    def _hold(self, stand: _Stand, found: Notification, now: Micros, changes: list[Change]) -> None:
        id = found.subscription_id
        changes.append(Held(stand.first + len(stand.held), (found,)))
        stand.held.append(found)
        if stand.opened is None:
            stand.opened = now
            self._changed[id] = None
            self._schedule(id, stand, now)
        if len(stand.held) > MOST_HELD:
            more = len(stand.held) - MOST_HELD
            del stand.held[:more]
            stand.first += more
            self.overflows += more
            changes.append(Released(id, stand.first - 1))

    # -- what is held ----------------------------------------------------------------

    def _schedule(self, id: str, stand: _Stand, now: Micros) -> None:
        """Find out until when it is held, from what is known now."""
        stand.due = None if stand.paused or stand.opened is None else self._due(id, stand, now)
        self._timeline.ends(stand.due, "release", id)

    def _due(self, id: str, stand: _Stand, now: Micros) -> Micros:
        terms = self._terms(id, stand)
        assert stand.opened is not None
        due = max(now, stand.opened + (terms.span or 0))
        return due if terms.quiet_hours is None else terms.quiet_hours.over(due)

    def settle(self, id: str, now: Micros, changes: list[Change]) -> list[Notification]:
        """What is told of what was held, after the terms of a thing have changed; O(held)."""
        stand = self._known.get(id)
        if stand is None or stand.over:
            return []
        self._schedule(id, stand, now)
        if stand.due is None or stand.due > now:
            return []
        self._timeline.forget("release", id)
        return self._released(id, stand, now, changes)

    def release(self, id: str, changes: list[Change]) -> list[Notification]:
        """What is told of what was held, as the moment has come: in the order it was found.

        What is not live any more is let go, but for what has happened: transitions at fences,
        and detections.
        """
        stand = self._known[id]
        assert stand.due is not None
        return [] if stand.over else self._released(id, stand, stand.due, changes)

    def _released(
        self, id: str, stand: _Stand, at: Micros, changes: list[Change]
    ) -> list[Notification]:
        held, terms = stand.held, self._terms(id, stand)
        if not held:
            return []
        stand.first += len(held)
        stand.held, stand.opened, stand.due = [], None, None
        self._changed[id] = None
        changes.append(Released(id, stand.first - 1))
        thing = self._thing(id)
        if thing is None or (thing.expires is not None and thing.expires <= at and _wish(held[0])):
            return []
        found = [each for each in held if not _wish(each) or self._holds(each, at)]
        if terms.max_events is not None:
            del found[terms.max_events - stand.told :]
        if found:
            self._count(id, stand, terms, len(found), at)
        return [*_dated(found, at, terms.digest is not None)]

    def _holds(self, found: Notification, at: Micros) -> bool:
        """Whether an event is still live."""
        event = found.event
        if event.expires is not None and event.expires <= at:
            return False
        return self._live.get(event.key) is event

    def _terms(self, id: str, stand: _Stand) -> Terms:
        if stand.terms is None:
            thing = self._thing(id)
            stand.terms = (None if thing is None else thing.terms) or _PLAIN
            self._time(id, stand.terms)
        return stand.terms

    # -- the store -------------------------------------------------------------------

    def changes(self) -> Iterator[Standing]:
        """How those stand that stand differently since this was asked last."""
        changed, self._changed = self._changed, {}
        for id in changed:
            stand = self._known.get(id)
            if stand is not None:
                yield Standing(id, stand.told, stand.paused, stand.opened, stand.offset)

    def restore(self, state: State, offset: Callable[[str], int], now: Micros) -> None:
        """Begin where a store left off. What is held is held as long as it was to be."""
        keys = [*state.events]
        for id, known in state.standings.items():
            stand = self._known[id] = _Stand(None)
            stand.told, stand.paused = known.told, known.paused
            stand.opened, stand.offset = known.opened, known.since
            if known.since is not None:  # live events are numbered from 1, as they came
                stand.since = bisect_right(keys, known.since, key=offset)
            held = state.held.get(id, [])
            stand.held = [each for _, each in held]
            stand.first = held[0][0] if held else 1
            self._timed.add(id)
            if stand.opened is not None:
                self._schedule(id, stand, now)

    def check_invariants(self) -> None:
        """Raise AssertionError where this contradicts itself. Slow; for tests."""
        assert not self.spent
        for id, stand in self._known.items():
            assert self._thing(id) is not None
            assert not stand.over
            assert bool(stand.held) == (stand.opened is not None)
            assert stand.paused or (stand.due is None) == (stand.opened is None)
            most = self._terms(id, stand).max_events
            assert most is None or stand.told < most


def _wish(found: Notification) -> bool:
    """Whether an event matches a subscription, as long as it is live: no fact that has happened."""
    if found.transition is not None:
        return False
    event = found.event
    return not (isinstance(event, CompositeEvent) and event.composite_id == found.subscription_id)


def _dated(found: Sequence[Notification], at: Micros, together: bool) -> Iterator[Notification]:
    """As they are told: at that moment, but for transitions, which say when they were seen."""
    for behind, each in zip(range(len(found) - 1, -1, -1), found, strict=True):
        when = each.at if each.transition is not None else at
        yield each._replace(at=when, digest=behind if together else None)
