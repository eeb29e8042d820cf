"""The server's half of the protocol, as a state machine without sockets (Elaps §5).

In: `joined`, `left` (subscriptions whose region is `Around`), `moved` (a report), `published`,
`expired` (events), `delivered` (a notice arrived), `due` (time passed). Out: messages, see
`nearcast.mobility.messages`. Time is an argument, in microseconds; it never goes back.

The caller keeps live events where the tracker's `EventSearch` finds them: an event is
added before `published` is called and removed before or after `expired`. It also says who
wants an event, region apart; the tracker decides whom it concerns.

What holds whatever is lost or late:

- A client holds the region that answers its last report, or none, and without one it reports
  until it is answered. So the server's impact region always belongs to what the client holds.
- A request stands until a report answers it; `due` asks again, less and less often.
- A notice stands until `delivered`; `due` repeats it. A pair is told once: afterwards the
  event is no obstacle to this subscription any more.
- A report with an epoch that was seen before is not believed: the answer is a request.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from nearcast.clock import Micros
from nearcast.errors import DuplicateIdError, UnknownIdError, ValidationError
from nearcast.mobility.grid import Lattice, lattice_of
from nearcast.mobility.impact_index import ImpactIndex
from nearcast.mobility.impact_region import Impact
from nearcast.mobility.messages import LocationRequest, Message, NewRegion, Notice
from nearcast.mobility.methods import method
from nearcast.mobility.plane import EARTH_RADIUS_M, distance
from nearcast.mobility.safe_region import SafeRegion
from nearcast.mobility.search import EventSearch, Found, spot_of
from nearcast.mobility.situation import Floats, Obstacles, Situation
from nearcast.mobility.statistics import Arrivals, Density, Motion, Turns
from nearcast.model.events import Event
from nearcast.model.geometry import Around, Box, Circle, Point, Space, check_space
from nearcast.model.subscriptions import Subscription

__all__ = ["Tracker"]

_SLOWEST_ASK_S = 3600.0
_EPOCHS = 1 << 62


@dataclass(slots=True)
class _Follow:
    """A subscription that follows its subscriber."""

    subscription: Subscription
    mover: _Mover
    radius: float
    since: int
    wanted: float = 0.0
    seen: float = 0.0
    told: set[str] = field(default_factory=set)
    waiting: dict[str, Notice] = field(default_factory=dict)


@dataclass(slots=True)
class _Mover:
    """A subscriber: where it last reported, what it holds, what it still owes."""

    name: str
    follows: dict[str, _Follow] = field(default_factory=dict)
    motion: Motion | None = None
    epoch: int = 0
    region: SafeRegion | None = None
    impact: Impact | None = None
    size: float = 0.0
    asked: Micros | None = None
    asks: int = 0


class Tracker:
    """Safe regions for everybody who moves. See the module for the protocol.

    `safe_region` names the method, `extent` the space it may use an N × N grid of (`cells`
    = N), `beta` a fixed balance instead of the adaptive one, `patience_s` how long an answer may
    take before the server asks again. A report costs two searches and a construction, an
    event one probe for each subscription that wants it.
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
        self._movers: dict[str, _Mover] = {}
        self._follows: dict[str, _Follow] = {}
        self._told: dict[str, list[_Follow]] = {}
        self._owing: dict[str, _Mover] = {}
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
        if not isinstance(subscription.region, Around):
            raise ValidationError("region", subscription.region, "only Around moves")
        if subscription.subscriber is None:
            raise ValidationError("subscriber", None, "Around needs to know whom to follow")
        if subscription.id in self._follows:
            raise DuplicateIdError("subscription", subscription.id, "let it leave first")
        radius = subscription.region.radius_m
        mover = self._movers.setdefault(subscription.subscriber, _Mover(subscription.subscriber))
        follow = _Follow(subscription, mover, radius, self._total)
        mover.follows[subscription.id] = follow
        self._follows[subscription.id] = follow
        if self.density is None:
            self.density = Density(self.space, self._side or max(2 * radius, 1e-6))
        if mover.motion is None:
            return []
        out: list[Message] = []
        if mover.motion.at == now:
            out += self._matches(mover, [follow], now)
        return [*out, *self._ask(mover, now)]

    def left(self, subscription_id: str, now: Micros) -> list[Message]:
        """A subscription ends; the region stays safe, for it only has less to keep away from."""
        self._clock(now)
        follow = self._follows.pop(subscription_id, None)
        if follow is None:
            raise UnknownIdError("subscription", subscription_id)
        for event_id in follow.told:
            self._told[event_id].remove(follow)
        mover = follow.mover
        del mover.follows[subscription_id]
        if not mover.follows:
            self._index.remove(mover.name)
            self._owing.pop(mover.name, None)
            mover.region = mover.impact = mover.asked = None
        return []

    # -- reports ---------------------------------------------------------------

    def moved(
        self, subscriber: str, place: Point, now: Micros, *, heading: float | None = None,
        speed: float | None = None, epoch: int | None = None,
    ) -> list[Message]:  # fmt: skip
        """A report: what now matches, and a new safe region that answers it.

        `heading` is in degrees clockwise from north, `speed` in metres a second. `epoch` is
        the report's number, from `Client`; without one every report is taken for the newest.
        """
        check_space(place, self.space, "place")
        _check_number("heading", heading, -math.inf)
        _check_number("speed", speed, 0.0)
        now = self._clock(now)
        mover = self._movers.setdefault(subscriber, _Mover(subscriber))
        if epoch is None:
            epoch = mover.epoch + 1
        elif not 0 < epoch < _EPOCHS:
            raise ValidationError("epoch", epoch, "a report's epoch counts from 1")
        elif epoch <= mover.epoch:
            return self._ask(mover, now, again=True)
        mover.epoch = epoch
        if mover.motion is None:
            mover.motion = Motion(place.x, place.y, now)
        mover.motion.report(
            self.space, place.x, place.y, now, speed, heading, self._turns, mover.size
        )
        mover.asked, mover.asks = None, 0
        if not mover.follows:
            return []
        notices = self._matches(mover, list(mover.follows.values()), now)
        self._rebuild(mover, now)
        self._settle(mover)
        assert mover.region is not None
        return [*notices, NewRegion(subscriber, mover.region)]

    def _matches(self, mover: _Mover, follows: list[_Follow], now: Micros) -> list[Message]:
        """Notices of what matches at the reported place and was not told yet."""
        assert mover.motion is not None
        out: list[Message] = []
        for follow in follows:
            circle = Circle(mover.motion.x, mover.motion.y, follow.radius)
            for id in self._search.matching(follow.subscription, circle, now).ids:
                if id in follow.told or id in follow.waiting:
                    continue
                notice = Notice(follow.subscription.id, mover.name, id, now)
                follow.waiting[id] = notice
                out.append(notice)
        self._settle(mover)
        return out

    # -- events ----------------------------------------------------------------

    def published(self, event: Event, wanted: Iterable[str], now: Micros) -> list[Message]:
        """An event is live; `wanted` names the subscriptions it matches, their regions apart."""
        now = self._clock(now)
        if event.location is None:
            return []
        x, y, extent = spot_of(event.location, self.space)
        self.observed(np.array([x]), np.array([y]), now)
        out: list[Message] = []
        for id in wanted:
            follow = self._follows.get(id)
            if follow is None:
                continue
            follow.wanted += 1
            self._pooled[0] += 1
            mover = follow.mover
            if mover.motion is None or mover.asked is not None:
                continue
            if mover.impact is None or self._concerns(mover, x, y, extent):
                out += self._ask(mover, now)
        return out

    def observed(self, x: Floats, y: Floats, now: Micros) -> None:
        """Count arrivals for the statistics; `published` does it for its event itself."""
        self._total += x.size
        self._pooled[1] += x.size * max(len(self._follows), 1)
        if self._pooled[1] > 1e9:
            self._pooled = [self._pooled[0] / 2, self._pooled[1] / 2]
        self.arrivals.add(x.size, now)
        if self.density is not None:
            self.density.add(x, y, now)

    def _concerns(self, mover: _Mover, x: float, y: float, extent: float) -> bool:
        assert mover.impact is not None
        if extent > 0:  # an extended event: whoever is near its circle is asked
            circle = mover.impact.around()
            if circle is None:
                return True
            gap = distance(self.space, x, y, circle[0], circle[1])
            return circle[2] >= 0 and gap <= circle[2] + extent
        return self._index.holds(mover.name, x, y) and mover.impact.covers(x, y)

    def expired(self, event_id: str, now: Micros) -> list[Message]:
        """An event is gone, by time or retracted. No safe region breaks (Lemma 4)."""
        self._clock(now)
        for follow in self._told.pop(event_id, ()):
            follow.told.discard(event_id)
        return []

    def delivered(self, subscription_id: str, event_id: str) -> None:
        """A notice has arrived; it is not repeated any more."""
        follow = self._follows.get(subscription_id)
        if follow is None or follow.waiting.pop(event_id, None) is None:
            return
        follow.told.add(event_id)
        self._told.setdefault(event_id, []).append(follow)
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
                for id, notice in follow.waiting.items():
                    if now - notice.at >= self._patience_s * 1e6:
                        follow.waiting[id] = replace(notice, at=now)
                        out.append(follow.waiting[id])
        return out

    def _ask(self, mover: _Mover, now: Micros, *, again: bool = False) -> list[Message]:
        """A location request, if none stands."""
        if mover.asked is not None and not again:
            return []
        mover.asked, mover.asks = now, mover.asks + 1
        self._owing[mover.name] = mover
        return [LocationRequest(mover.name, mover.epoch)]

    def _settle(self, mover: _Mover) -> None:
        """Keep track of who owes an answer."""
        if mover.asked is not None or any(f.waiting for f in mover.follows.values()):
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
        mover = self._movers.get(subscriber)
        return 0 if mover is None else mover.epoch

    def impact_of(self, subscriber: str) -> Impact | None:
        """The impact region that belongs to it."""
        mover = self._movers.get(subscriber)
        return None if mover is None else mover.impact

    def _rebuild(self, mover: _Mover, now: Micros) -> None:
        motion = mover.motion
        assert motion is not None
        follows = list(mover.follows.values())
        rate = self.arrivals.rate(now) * sum(map(self._selectivity, follows))

        def rates(x: Floats, y: Floats) -> Floats:
            if self.density is None:
                return np.zeros(np.shape(x))
            found: Floats = rate * self.density.share(x, y)
            return found

        def look(x: float, y: float, radius: float) -> Obstacles:
            return self._obstacles(follows, x, y, radius, now)

        situation = Situation(
            self.space, motion.x, motion.y, max(f.radius for f in follows), motion.speed,
            motion.heading, self._turns.weights(motion.turns), rates, self._lattice_for(),
            self._beta, self._alpha, mover.size,
        )  # fmt: skip
        built = self._build(situation, look)
        mover.region = SafeRegion(mover.epoch, built.shape)
        mover.impact, mover.size = built.impact, built.size
        self._index.put(mover.name, built.impact.around())

    def _lattice_for(self) -> Lattice | None:
        """`disc` draws its own grids, finer where the region is small."""
        return None if self.name == "disc" else self._lattice

    def _obstacles(
        self, follows: list[_Follow], x: float, y: float, radius: float, now: Micros
    ) -> Obstacles:
        parts: list[tuple[Floats, Floats, Floats]] = []
        for follow in follows:
            circle = Circle(x, y, radius) if radius < 1e300 else None
            found = self._search.matching(follow.subscription, circle, now)
            self._learn(follow, found, circle)
            done = follow.told | follow.waiting.keys()
            keep = np.array([id not in done for id in found.ids], np.bool_)
            parts.append((found.x[keep], found.y[keep], found.extent[keep] + follow.radius))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return Obstacles(*columns)

    def _selectivity(self, follow: _Follow) -> float:
        prior = self._pooled[0] / self._pooled[1]
        seen = self._total - follow.since + follow.seen
        return min((follow.wanted + 1.0) / (seen + 1.0 / max(prior, 1e-9)), 1.0)

    def _learn(self, follow: _Follow, found: Found, circle: Circle | None) -> None:
        """A young subscription learns its selectivity from the live events it was shown."""
        if circle is None or follow.wanted >= 20 or self.density is None:
            return
        area = math.pi * circle.radius_m**2
        if self.space == "globe":
            area = min(area, 4 * math.pi * EARTH_RADIUS_M**2)
        at = self.density.share(np.array([circle.x]), np.array([circle.y]))[0]
        expected = self._search.live * min(float(at) * area, 1.0)
        if expected > follow.seen:
            follow.wanted, follow.seen = follow.wanted + len(found.ids), expected

    def _clock(self, now: Micros) -> Micros:
        """Time as the tracker sees it: it never goes back."""
        self._now = now if self._now is None else max(now, self._now)
        return self._now


def _bin_side(extent: Box | None, space: Space, lattice: Lattice | None) -> float | None:
    """The cell of the density's lattice: a 64th of the extent."""
    if lattice is not None:
        return max(lattice.x1 - lattice.x0, lattice.y1 - lattice.y0) / 64
    if extent is None or space == "globe":
        return None
    return max(extent.xmax - extent.xmin, extent.ymax - extent.ymin, 1e-9) / 64


def _check_number(field: str, value: float | None, least: float) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        bound = " ≥ 0" if least == 0.0 else ""
        raise ValidationError(field, value, f"give a finite number{bound}, or leave it out")
