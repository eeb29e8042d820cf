"""Looking at a broker: what stands, what is live, whose it is. Nothing is changed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from nearcast.broker.contents import content_of_thing
from nearcast.broker.fences import Fences
from nearcast.broker.live import LiveEvents
from nearcast.broker.outlet import Outlet
from nearcast.broker.past import Past
from nearcast.broker.ports import Kind, Thing
from nearcast.broker.roster import Roster
from nearcast.broker.standings import Standings
from nearcast.broker.timeline import Timeline
from nearcast.clock import Micros
from nearcast.cpsl.composite import Composite
from nearcast.errors import UnknownIdError, ValidationError
from nearcast.matcher import Matcher
from nearcast.matcher.explain import Explanation
from nearcast.mobility.safe_region import SafeRegion
from nearcast.mobility.tracker import Tracker
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Point
from nearcast.model.placing import Facing
from nearcast.model.subscriptions import Subscription

__all__ = ["Reading"]


class Reading:
    """What there is in a broker, for whoever asks. In the broker's thread, as its calls are.

    Lists come in pages: `after` is where the last one ended. Things are listed as the store has
    them committed; what is asked for by its id is what the broker knows.
    """

    def __init__(
        self, subscriptions: Roster, composites: Mapping[str, Composite], fences: Fences,
        live: LiveEvents, past: Past, tracker: Tracker, outlet: Outlet, standings: Standings,
        timeline: Timeline,
    ) -> None:  # fmt: skip
        self._subscriptions = subscriptions
        self._composites = composites
        self._fences = fences
        self._live = live
        self._past = past
        self._tracker = tracker
        self._outlet = outlet
        self._standings = standings
        self._timeline = timeline

    # -- things --------------------------------------------------------------------

    def thing(self, id: str) -> Thing | None:
        """The subscription, fence or composite under an id."""
        return self._subscriptions.get(id) or self._fences.get(id) or self._composites.get(id)

    def things(
        self, kind: Kind, after: str = "", limit: int = 1000, subscriber: str | None = None
    ) -> Sequence[Thing]:
        """Those of a kind by id; one subscriber's, or all."""
        return self._outlet.store.things(kind, after, limit, subscriber)

    def paused(self, id: str) -> bool:
        """Whether a thing is paused."""
        return self._standings.paused(id)

    def spent(self, thing: Thing) -> bool:
        """Whether an equal thing has told as much as it was to, lately, and nothing has its id."""
        if not self._past.knows_thing(thing.id):
            return False
        return self._past.holds_thing(thing.id, content_of_thing(thing), self._timeline.moment)

    def count(self, subscriber: str) -> int:
        """How many things a subscriber has."""
        return self._outlet.store.count(subscriber)

    def last(self, subscriber: str) -> int:
        """The number of the last notification to somebody; 0 if there was none."""
        return self._outlet.last(subscriber)

    def cursor(self, subscriber: str) -> int:
        """The number up to which a subscriber has acknowledged."""
        return self._outlet.store.cursor(subscriber)

    # -- events --------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """The offset in the log that the last call has come to."""
        return self._outlet.store.offset()

    @property
    def forgotten(self) -> int:
        """The last offset in the log whose event is not kept any more; 0 if all are."""
        return self._outlet.store.forgotten()

    def strange(self, events: Sequence[Event]) -> bool:
        """Whether no event has the id of any of these, nor had it lately, and no two have one."""
        keys = {event.key for event in events}
        if len(keys) < len(events) or not self._live.keys().isdisjoint(keys):
            return False
        return not any(key in self._past for key in keys)

    def new(self, events: Sequence[Event]) -> int:
        """How many of these are not known, now or lately."""
        keys = {event.key for event in events}
        return sum(key not in self._past for key in keys.difference(self._live.keys()))

    def event(self, id: str, source: str | None = None) -> Event:
        """The live event that has an id, and a source if one is named; raises UnknownIdError."""
        keys = self._live.under(id)
        if source is not None:
            wanted = Event(id, source=source).key
            keys = [key for key in keys if key == wanted]
        if not keys:
            raise UnknownIdError("event", id, "it may have expired; check the id")
        if len(keys) > 1:
            raise ValidationError("event_id", id, f"{len(keys)} events have it: name the source")
        return self._live.numbered(keys[0])[1]

    def publisher(self, event: Event) -> str | None:
        """Who published a live event, if that was said."""
        return self._live.publishers.get(event.key)

    def events(
        self, wanted: Subscription | None, now: Micros | None, after: int = 0, limit: int = 1000
    ) -> list[tuple[int, Event]]:
        """Live events in the order they came, behind their offsets: all, or what one would match.

        A region that follows a subscriber is taken where that was last.
        """
        found: Sequence[Event]
        if wanted is None:
            found = [*self._live]
        elif isinstance(wanted.region, Around):
            place = self.place(wanted.subscriber or "")
            found = [] if place is None else self._live.matching_at(wanted, now, place)
        else:
            found = [event for _, event in self._live.matching(wanted, now)]
        offset = self._outlet.store.offset
        first = bisect_right(found, after, key=lambda event: offset(event.key))
        return [(offset(event.key), event) for event in found[first : first + limit]]

    def place(self, subscriber: str) -> Facing | None:
        """Where a subscriber was last and the heading it said last, if that is known."""
        return self._tracker.place_of(subscriber) or self._fences.place_of(subscriber)

    def places(self, limit: int) -> list[tuple[str, float, float]]:
        """Where subscribers were last whom something follows, at most so many. O(those)."""
        return self._tracker.places(limit)

    def safe_region(self, subscriber: str) -> SafeRegion | None:
        """The safe region that a subscriber holds; None: there is none at the moment."""
        return self._tracker.region_of(subscriber)

    def epoch(self, subscriber: str) -> int:
        """The number of a subscriber's last report; 0 before the first."""
        return self._tracker.epoch_of(subscriber)

    def memory(self) -> int:
        """Bytes of what finds subscriptions and live events."""
        return sum(
            each.memory()["total"] for each in (self._subscriptions.matcher, self._live.matcher)
        )

    def explain(self, wanted: Subscription, event: Event, now: Micros | None) -> Explanation:
        """Why a subscription matches an event, or does not. A matcher is made for it: 1 ms."""
        matcher = Matcher(index="scan", space=self._tracker.space)
        place = None
        if isinstance(wanted.region, Around):
            place = self.place(wanted.subscriber or "")
            if place is None:
                raise ValidationError(
                    "subscriber", wanted.subscriber, "it has no place yet: report one first"
                )
        at = None if place is None else Point(place.x, place.y)
        matcher.add_subscriptions([wanted], at=at, heading=None if place is None else place.heading)
        return matcher.explain(wanted.id, event, now)
