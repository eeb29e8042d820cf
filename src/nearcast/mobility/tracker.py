"""The server's half of the protocol, as a state machine without sockets (Elaps §5).

In: `joined`, `left` (subscriptions whose region is `Around`), `moved` (a report), `published`,
`expired` (events), `delivered` (a notice arrived), `due` (time passed). Out: messages, see
`nearcast.mobility.messages`. Time is an argument, in microseconds; it never goes back.

The caller keeps live events where the tracker's `EventSearch` finds them: an event is
added before `published` is called and removed before or after `expired`. The tracker finds out
itself whom an event concerns.

What holds whatever is lost or late:

- A mover holds the region that answers its last report, or none, and without one it reports
  at every step. So the server's impact region always belongs to what the mover holds.
- A report under the last epoch again says that its answer has not arrived: what matches where
  the mover is by now is told, and the region, if it is still safe, is sent once more as it
  was. One with an older epoch is not believed: the answer is a request.
- A request stands until a report answers it; `due` asks again, less and less often, and so
  does an event in reach that comes while nobody has answered for long.
- A notice stands until `delivered`; `due` repeats it. A pair is told once: afterwards the
  event is no obstacle to this subscription any more.

Whom nothing follows leaves a place and an epoch, and of those the newest 1024 are kept. Somebody
who has been forgotten that way is asked for a report when a subscription begins.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from nearcast.clock import Micros
from nearcast.errors import DuplicateIdError, UnknownIdError, ValidationError
from nearcast.matcher.sought import Sought
from nearcast.mobility.forms import Form, form_of
from nearcast.mobility.grid import Lattice, lattice_of
from nearcast.mobility.impact_index import ImpactIndex, Ring
from nearcast.mobility.impact_region import Impact
from nearcast.mobility.messages import LocationRequest, Message, NewRegion, Notice
from nearcast.mobility.methods import method
from nearcast.mobility.safe_region import SafeRegion
from nearcast.mobility.search import EventSearch, Found
from nearcast.mobility.shapes import spot_of
from nearcast.mobility.situation import Floats, Obstacles, Situation
from nearcast.mobility.statistics import Arrivals, Density, Motion, Turns
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Box, Circle, Location, Point, Space, check_space
from nearcast.model.moves import Move
from nearcast.model.placing import Facing
from nearcast.model.subscriptions import Subscription

__all__ = ["Tracker", "check_report"]

_SLOWEST_ASK_S = 300.0
_EPOCHS = 1 << 62
_MOST_IDLE = 1024
_NOWHERE = np.empty(0)


class _Idle(NamedTuple):
    """What is left of somebody whom nothing follows."""

    epoch: int
    x: float
    y: float
    at: Micros
    heading: float


_NOBODY = _Idle(0, 0.0, 0.0, 0, 0.0)


@dataclass(slots=True, eq=False)
class _Follow:
    """A subscription that follows its subscriber."""

    subscription: Subscription
    sought: Sought
    mover: _Tracked
    radius: float
    """How far it reaches."""
    form: Form | None
    """What it is if it is no circle and does not turn."""
    wanted: int = 0
    """Events it wanted, of those that came within `ring` …"""
    seen: float = 0.0
    """… and how many of any kind should have come there."""
    shown: int = 0
    """Live events it wanted in the largest circle that was searched …"""
    expected: float = 0.0
    """… and how many of any kind should have been there."""
    told: set[str] = field(default_factory=set)
    waiting: dict[str, Notice] = field(default_factory=dict)
    owed: dict[str, Notice] = field(default_factory=dict)
    """Notices of events that are gone already."""


@dataclass(slots=True, eq=False)
class _Tracked:
    """A subscriber: where it last reported, what it holds, what it still owes."""

    name: str
    follows: dict[str, _Follow] = field(default_factory=dict)
    motion: Motion | None = None
    epoch: int = 0
    heading: float = 0.0
    """The last one that was said; shapes that turn look there."""
    region: SafeRegion | None = None
    impact: Impact | None = None
    ring: Ring = None
    """A circle round it."""
    since: int = 0
    """How many events had come when it was made."""
    size: float = 0.0
    crowd: float | None = None
    asked: Micros | None = None
    asks: int = 0


class Tracker:
    """Safe regions for everybody who moves. See the module for the protocol.

    `safe_region` names the method, `extent` the space it may use an N × N grid of (`cells`
    = N), `beta` a fixed balance instead of the adaptive one, `patience_s` how long an answer may
    take before the server asks again. A report costs two searches and a construction, an
    event a match against the subscriptions that want it near it.
    """

    def __init__(
        self, search: EventSearch, *, space: Space = "globe", safe_region: str = "disc",
        extent: Box | None = None, cells: int = 600, beta: float | None = None,
        alpha: float = 0.5, patience_s: float = 10.0,
    ) -> None:  # fmt: skip
        if extent is not None:
            check_space(extent, space, "extent")
        if cells < 1:
            raise ValidationError("cells", cells, "give one cell or more")
        if beta is not None and not (math.isfinite(beta) and beta > 0):
            raise ValidationError("beta", beta, "give a number > 0, or None for the adaptive one")
        self.space: Space = space
        self.name = safe_region
        self._build = method(safe_region)
        self._search = search
        self._beta, self._alpha, self._patience_s = beta, alpha, patience_s
        self._lattice = None if extent is None else lattice_of(extent, space, cells)
        self._side = _bin_side(extent, space, self._lattice)
        self._movers: dict[str, _Tracked] = {}
        self._follows: dict[str, _Follow] = {}
        self._idle: OrderedDict[str, _Idle] = OrderedDict()
        self._forgetful = False
        self._told: dict[str, set[_Follow]] = {}
        self._owing: dict[str, _Tracked] = {}
        self._index = ImpactIndex(space)
        self.arrivals = Arrivals()
        self.density: Density | None = None
        self._turns = Turns()
        self._total = 0
        self._pooled = [1.0, 100.0]
        self._now: Micros | None = None

    # -- subscriptions ---------------------------------------------------------

    def joined(self, subscription: Subscription, now: Micros) -> list[Message]:
        """A subscription that follows its subscriber begins.

        Before its subscriber's first report it matches nothing. After that, what matches at a
        place reported at this very moment is told at once, and a request asks for the place
        from which to go on.
        """
        now = self._clock(now)
        self.check(subscription)
        assert isinstance(subscription.region, Around)
        assert subscription.subscriber is not None
        if subscription.id in self._follows:
            raise DuplicateIdError("subscription", subscription.id, "let it leave first")
        around = subscription.region
        radius = around.reach_m
        form = None if around.shape is None or around.turns else form_of(around.shape)
        mover = self._tracked(subscription.subscriber)
        follow = _Follow(subscription, Sought(subscription), mover, radius, form)
        mover.follows[subscription.id] = follow
        self._follows[subscription.id] = follow
        if self.density is None:
            self.density = Density(self.space, self._side or max(2 * radius, 1e-6))
        if mover.motion is None:
            return self._ask(mover, now) if self._forgetful else []
        self._index.put(subscription, mover.ring, mover.impact)
        out: list[Message] = []
        if mover.motion.at == now:
            place = Point(mover.motion.x, mover.motion.y)
            out += self._matches(mover, [follow], place, now)
        return [*out, *self._ask(mover, now)]

    def check(self, subscription: Subscription) -> None:
        """Raise what `joined` would of a subscription that is new."""
        if not isinstance(subscription.region, Around):
            raise ValidationError("region", subscription.region, "only Around moves")
        if subscription.subscriber is None:
            raise ValidationError("subscriber", None, "Around needs to know whom to follow")
        check_space(subscription.region, self.space, "region")
        self._index.check(subscription)

    def _tracked(self, name: str) -> _Tracked:
        """Somebody who is followed, from now on if not before."""
        mover = self._movers.get(name)
        if mover is None:
            mover = self._movers[name] = _Tracked(name)
            idle = self._idle.pop(name, None)
            if idle is not None:
                mover.epoch, mover.heading = idle.epoch, idle.heading
                mover.motion = Motion(idle.x, idle.y, idle.at)
        return mover

    def left(self, subscription_id: str, now: Micros) -> list[Message]:
        """A subscription ends; the region stays safe, for it only has less to keep away from."""
        self._clock(now)
        follow = self._follows.pop(subscription_id, None)
        if follow is None:
            raise UnknownIdError("subscription", subscription_id)
        for event_id in (*follow.told, *follow.waiting):
            self._told[event_id].discard(follow)
            if not self._told[event_id]:
                del self._told[event_id]
        mover = follow.mover
        self._index.remove(subscription_id)
        del mover.follows[subscription_id]
        if not mover.follows:
            self._owing.pop(mover.name, None)
            del self._movers[mover.name]
            if mover.motion is not None:
                at = mover.motion
                self._leave_idle(mover.name, _Idle(mover.epoch, at.x, at.y, at.at, mover.heading))
        return []

    def _leave_idle(self, name: str, idle: _Idle) -> None:
        self._idle[name] = idle
        self._idle.move_to_end(name)
        if len(self._idle) > _MOST_IDLE:
            self._idle.popitem(last=False)
            self._forgetful = True

    # -- reports ---------------------------------------------------------------

    def moved(
        self, subscriber: str, place: Point, now: Micros, *, heading: float | None = None,
        speed: float | None = None, epoch: int | None = None,
    ) -> list[Message]:  # fmt: skip
        """A report: what now matches, and a new safe region that answers it.

        `heading` is in degrees clockwise from north, `speed` in metres a second. `epoch` is
        the report's number, from `Mover`; without one every report is taken for the newest.
        """
        check_space(place, self.space, "place")
        check_report(heading, speed, epoch)
        return self.heard(subscriber, place, now, heading, speed, epoch)

    def heard(
        self, subscriber: str, place: Point, now: Micros, heading: float | None,
        speed: float | None, epoch: int | None,
    ) -> list[Message]:  # fmt: skip
        """`moved`, of a report that was checked."""
        now = self._clock(now)
        last = self.epoch_of(subscriber)
        if epoch is None:
            epoch = last + 1
        mover = self._movers.get(subscriber)
        if mover is None:
            if epoch < last:
                return [LocationRequest(subscriber, last)]
            known = self._idle.get(subscriber)
            if heading is None:
                heading = 0.0 if known is None else known.heading
            self._leave_idle(subscriber, _Idle(epoch, place.x, place.y, now, float(heading)))
            return []
        if epoch < last:
            return self._ask(mover, now, again=True)
        if heading is not None:
            mover.heading = float(heading)
        if epoch == last:
            return self._repeated(mover, place, now)
        mover.epoch = epoch
        if mover.motion is None:
            mover.motion = Motion(place.x, place.y, now)
        mover.motion.report(
            self.space, place.x, place.y, now, speed, heading, self._turns, mover.size
        )
        mover.asked, mover.asks = None, 0
        notices = self._matches(mover, mover.follows.values(), place, now)
        region = self._rebuild(mover, now)
        self._settle(mover)
        return [*notices, NewRegion(subscriber, region)]

    def passed(self, moves: Sequence[Move], now: Micros) -> list[int] | None:
        """`heard` of several, where no subscription follows any of them: their epochs.

        None, and nothing has happened, if one is followed or says an epoch. 0.8 µs each.
        """
        movers, idle = self._movers, self._idle
        if movers and not movers.keys().isdisjoint([move[0] for move in moves]):
            return None
        if any(move[4] is not None for move in moves):
            return None
        now = self._clock(now)
        epochs = []
        for name, place, heading, _, _ in moves:
            epoch, _, _, _, before = idle.pop(name, _NOBODY)
            if heading is None:
                heading = before
            idle[name] = _Idle(epoch + 1, place.x, place.y, now, float(heading))
            if len(idle) > _MOST_IDLE:
                idle.popitem(last=False)
                self._forgetful = True
            epochs.append(epoch + 1)
        return epochs

    def _repeated(self, mover: _Tracked, place: Point, now: Micros) -> list[Message]:
        """The last report once more: its answer was lost, or is on its way.

        The region must stay what it was, for it may have arrived meanwhile.
        """
        notices = self._matches(mover, mover.follows.values(), place, now)
        if mover.asked is None and mover.region is not None and mover.region.contains(place):
            return [*notices, NewRegion(mover.name, mover.region)]
        mover.asks = 0
        return [*notices, *self._ask(mover, now, again=True)]

    def _matches(
        self, mover: _Tracked, follows: Iterable[_Follow], place: Point, now: Micros
    ) -> list[Message]:
        """Notices of what matches at a reported place and was not told yet."""
        out: list[Message] = []
        for follow in follows:
            found = self._reached(follow, place, mover.heading, now)
            for id in sorted(found.ids) if len(found) else ():
                if id in follow.told or id in follow.waiting:
                    continue
                notice = Notice(follow.subscription.id, mover.name, id, now)
                follow.waiting[id] = notice
                self._told.setdefault(id, set()).add(follow)
                out.append(notice)
        self._settle(mover)
        return out

    def _reached(self, follow: _Follow, place: Point, heading: float, now: Micros) -> Found:
        """What a subscription wants where its subscriber is."""
        region = follow.subscription.region
        if isinstance(region, Around) and region.shape is not None:
            return self._search.reached(follow.subscription, place, heading, now)
        circle = Circle(place.x, place.y, follow.radius)
        return self._search.matching(follow.sought, circle, now)

    # -- events ----------------------------------------------------------------

    def published(self, event: Event, now: Micros) -> list[Message]:
        """An event is live: whoever may have it in reach and wants it is asked for a report."""
        now = self._clock(now)
        if event.location is None:
            return []
        self._total += 1
        self.arrivals.add(1, now)
        if self.density is None:  # nobody has ever moved
            return []
        x, y, _ = spot_of(event.location, self.space)
        self.density.add_one(x, y, now)
        lately = now - self._patience_s * 1e6
        if not isinstance(event.location, Point):
            return self._met(event, lately, now)
        out: list[Message] = []
        ids, near = self._index.concerned(event, now)
        self._pooled[0] += near
        for id in ids:
            mover = self._follows[id].mover
            if mover.asked is not None and mover.asked > lately:
                continue
            if (
                mover.impact is not None
                and self._index.unsure(id)
                and not mover.impact.covers(x, y)
            ):
                continue
            mover.asks = 0
            out += self._ask(mover, now, again=True)
        return out

    def _met(self, event: Event, lately: float, now: Micros) -> list[Message]:
        """`published` of an event with an extent."""
        out: list[Message] = []
        location = event.location
        assert location is not None
        for id in self._index.near(event, now):
            follow = self._follows[id]
            mover = follow.mover
            impact, asked = mover.impact, mover.asked
            if impact is not None:
                follow.wanted += 1
                self._pooled[0] += 1
            if asked is not None and asked > lately:
                continue
            if impact is None or impact.meets(location):
                mover.asks = 0
                out += self._ask(mover, now, again=True)
        return out

    def observed(self, x: Floats, y: Floats, now: Micros) -> None:
        """Count arrivals for the statistics; `published` does it for its event itself."""
        self._total += x.size
        self.arrivals.add(x.size, now)
        if self.density is not None:
            self.density.add(x, y, now)

    def expired(self, event_id: str, now: Micros) -> list[Message]:
        """An event is gone, by time or retracted. No safe region breaks (Lemma 4).

        What was to be told of it and has not arrived is still repeated.
        """
        self._clock(now)
        for follow in self._told.pop(event_id, ()):
            follow.told.discard(event_id)
            if event_id in follow.waiting:
                follow.owed[event_id] = follow.waiting.pop(event_id)
        return []

    def delivered(self, subscription_id: str, event_id: str) -> None:
        """A notice has arrived; it is not repeated any more."""
        follow = self._follows.get(subscription_id)
        if follow is None:
            return
        if follow.owed.pop(event_id, None) is None:
            if follow.waiting.pop(event_id, None) is None:
                return
            follow.told.add(event_id)
        self._settle(follow.mover)

    # -- asking again ----------------------------------------------------------

    def due(self, now: Micros) -> list[Message]:
        """Requests and notices without an answer for too long, again."""
        now = self._clock(now)
        out: list[Message] = []
        for mover in list(self._owing.values()):
            if mover.asked is not None:
                wait_s = min(self._patience_s * 2 ** min(mover.asks - 1, 20), _SLOWEST_ASK_S)
                if now - mover.asked >= wait_s * 1e6:
                    out += self._ask(mover, now, again=True)
            for follow in mover.follows.values():
                for unheard in (follow.waiting, follow.owed):
                    for id, notice in unheard.items():
                        if now - notice.at >= self._patience_s * 1e6:
                            unheard[id] = replace(notice, at=now)
                            out.append(unheard[id])
        return out

    def _ask(self, mover: _Tracked, now: Micros, *, again: bool = False) -> list[Message]:
        """A location request, if none stands."""
        if mover.asked is not None and not again:
            return []
        mover.asked, mover.asks = now, mover.asks + 1
        self._owing[mover.name] = mover
        return [LocationRequest(mover.name, mover.epoch)]

    def _settle(self, mover: _Tracked) -> None:
        """Keep track of who owes an answer."""
        if mover.asked is not None or any(f.waiting or f.owed for f in mover.follows.values()):
            self._owing[mover.name] = mover
        else:
            self._owing.pop(mover.name, None)

    # -- regions ---------------------------------------------------------------

    def region_of(self, subscriber: str) -> SafeRegion | None:
        """The safe region last sent to a subscriber."""
        mover = self._movers.get(subscriber)
        return None if mover is None else mover.region

    def epoch_of(self, subscriber: str) -> int:
        """The number of a subscriber's last report; 0 before the first."""
        known = self._movers.get(subscriber) or self._idle.get(subscriber)
        return 0 if known is None else known.epoch

    def place_of(self, subscriber: str) -> Facing | None:
        """Where a subscriber reported last, as far as that is remembered."""
        mover, idle = self._movers.get(subscriber), self._idle.get(subscriber)
        if mover is not None and mover.motion is not None:
            return Facing(mover.motion.x, mover.motion.y, mover.heading)
        return None if idle is None else Facing(idle.x, idle.y, idle.heading)

    def places(self, limit: int) -> list[tuple[str, float, float]]:
        """Where those were last whom something follows: names and places, at most so many."""
        known = (each for each in self._movers.values() if each.motion is not None)
        return [(each.name, each.motion.x, each.motion.y)
                for each in islice(known, limit) if each.motion is not None]  # fmt: skip

    def impact_of(self, subscriber: str) -> Impact | None:
        """The impact region that belongs to it."""
        mover = self._movers.get(subscriber)
        return None if mover is None else mover.impact

    def _rebuild(self, mover: _Tracked, now: Micros) -> SafeRegion:
        motion = mover.motion
        assert motion is not None
        follows = list(mover.follows.values())
        self._count(mover)
        every = self.arrivals.rate(now)
        rate = every * sum(map(self._selectivity, follows))
        assert self.density is not None  # somebody follows

        def look(x: float, y: float, radius: float) -> Obstacles:
            return self._obstacles(follows, x, y, radius, now)

        situation = Situation(
            self.space, motion.x, motion.y, max(f.radius for f in follows), motion.speed,
            motion.heading, self._turns.weights(motion.turns), self.density.field(rate),
            self._lattice_for(), self._beta, self._alpha, mover.size, mover.crowd,
            turnover=every / max(1, self._search.live), **_forms(follows),
        )  # fmt: skip
        built = self._build(situation, look)
        mover.region = SafeRegion(mover.epoch, built.shape)
        mover.impact, mover.size, mover.crowd = built.impact, built.size, built.crowd
        mover.ring, mover.since = built.impact.around(), self._total
        for follow in follows:
            self._index.put(follow.subscription, mover.ring, mover.impact)
        return mover.region

    def _count(self, mover: _Tracked) -> None:
        """How many events should have come near since the last region was made."""
        if mover.impact is None or self.density is None:
            return
        share = 1.0 if mover.ring is None else self.density.within(*mover.ring)
        near = share * (self._total - mover.since)
        for id, follow in mover.follows.items():
            follow.wanted += self._index.take_near(id)
            follow.seen += near
            self._pooled[1] += near
        if self._pooled[1] > 1e9:
            self._pooled = [self._pooled[0] / 2, self._pooled[1] / 2]

    def _lattice_for(self) -> Lattice | None:
        """`disc` draws its own grids, finer where the region is small."""
        return None if self.name == "disc" else self._lattice

    def _obstacles(
        self, follows: list[_Follow], x: float, y: float, radius: float, now: Micros
    ) -> Obstacles:
        parts: list[tuple[Floats, Floats, Floats]] = []
        shapes: list[tuple[Location, float]] = []
        formed: list[tuple[Floats, Floats, Form]] = []
        for follow in follows:
            circle = Circle(x, y, radius) if radius < 1e300 else None
            found = self._search.matching(follow.sought, circle, now)
            self._learn(follow, found, circle)
            keep = np.ones(len(found), np.bool_)
            if len(found) and (follow.told or follow.waiting):
                done = follow.told | follow.waiting.keys()
                keep[:] = [id not in done for id in found.ids]
            shapes += [(shape, follow.radius) for i, shape in found.shapes.items() if keep[i]]
            keep[list(found.shapes)] = False
            kept, kept_y = found.x[keep], found.y[keep]
            if follow.form is not None:
                formed.append((kept, kept_y, follow.form))
                kept = kept_y = _NOWHERE
            parts.append((kept, kept_y, np.full(kept.size, follow.radius)))
        xs, ys, reach = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Obstacles(xs, ys, reach, tuple(shapes), tuple(formed))

    def _selectivity(self, follow: _Follow) -> float:
        prior = self._pooled[0] / self._pooled[1]
        seen = follow.seen + follow.expected
        wanted = follow.wanted + follow.shown
        return min((wanted + 1.0) / (seen + 1.0 / max(prior, 1e-9)), 1.0)

    def _learn(self, follow: _Follow, found: Found, circle: Circle | None) -> None:
        """A young subscription learns its selectivity from the live events it was shown."""
        if circle is None or follow.wanted >= 20 or self.density is None:
            return
        expected = self._search.live * self.density.within(circle.x, circle.y, circle.radius_m)
        if expected > follow.expected:
            follow.shown, follow.expected = len(found), expected

    def _clock(self, now: Micros) -> Micros:
        """Time as the tracker sees it: it never goes back."""
        self._now = now if self._now is None else max(now, self._now)
        return self._now


def _forms(follows: list[_Follow]) -> dict[str, Any]:
    """What a situation says of shapes; nothing where all are circles."""
    forms = {id(follow.form): follow.form for follow in follows if follow.form is not None}
    turning = any(_turns(follow) for follow in follows)
    if not forms:
        return {"turning": turning}
    rest = max((follow.radius for follow in follows if follow.form is None), default=-1.0)
    return {"forms": tuple(forms.values()), "round_radius": rest, "turning": turning}


def _turns(follow: _Follow) -> bool:
    region = follow.subscription.region
    return isinstance(region, Around) and region.turns


def _bin_side(extent: Box | None, space: Space, lattice: Lattice | None) -> float | None:
    """The cell of the density's lattice: a 64th of the extent."""
    if lattice is not None:
        return max(lattice.x1 - lattice.x0, lattice.y1 - lattice.y0) / 64
    if extent is None or space == "globe":
        return None
    return max(extent.xmax - extent.xmin, extent.ymax - extent.ymin, 1e-9) / 64


def check_report(heading: float | None, speed: float | None, epoch: int | None) -> None:
    """Refuse what a report cannot say of its direction, its speed and its number."""
    _check_number("heading", heading, -math.inf)
    _check_number("speed", speed, 0.0)
    if epoch is not None and not 0 < epoch < _EPOCHS:
        raise ValidationError("epoch", epoch, "a report's epoch counts from 1")


def _check_number(field: str, value: float | None, least: float) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        bound = " ≥ 0" if least == 0.0 else ""
        raise ValidationError(field, value, f"give a finite number{bound}, or leave it out")
