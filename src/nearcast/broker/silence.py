"""Publishers that stay silent in safe rectangles (Grus §4.6.1).

A publisher who moves sends an event and is answered with a rectangle. While it stays strictly
inside, and says nothing else about itself, no subscription, fence or pattern could tell the
difference, and it sends nothing. Whoever comes later and might tell voids the rectangle: the
publisher is asked to send its next event wherever it is.

What counts is the event with everything but its place and its times: those whose filter it passes
are kept out of the rectangle by the boxes round their regions. Where one of them has no region of
its own (a fence, which counts positions; a subscription that follows its subscriber; a part of a
pattern without a place), there is no rectangle.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from nearcast.broker.fences import Fences
from nearcast.broker.reporter import SafeRectangle, said
from nearcast.broker.roster import Roster, follows
from nearcast.clock import Micros
from nearcast.cpsl import glr
from nearcast.cpsl.compile import Plan, compile_pattern
from nearcast.cpsl.composite import Composite
from nearcast.cpsl.location_index import reach_of
from nearcast.cpsl.operators.filters import SPATIAL
from nearcast.cpsl.operators.spatial import Relations
from nearcast.cpsl.predicates import translate
from nearcast.errors import ValidationError
from nearcast.kernels.geometry import EARTH_RADIUS_M
from nearcast.matcher.places import Bounds, index_boxes
from nearcast.model.events import Event, check_id
from nearcast.model.fences import Fence
from nearcast.model.geometry import Box, Point, Space
from nearcast.model.predicates import Clause, SpatialResidual
from nearcast.model.subscriptions import Subscription

__all__ = ["REACH_M", "Silences"]

#: How far a rectangle reaches at most, from where it was asked for.
REACH_M = 10_000.0
#: Regions among which one is drawn: with more of them about, it is drawn in half the reach.
_MANY, _FEW = 512, 64
_NARROWEST = 1e-6
#: Templates of events of which it is remembered what patterns make of them.
_REMEMBERED = 100_000
_DEGREE_M = EARTH_RADIUS_M * math.pi / 180
#: Operators of patterns that let an instance pass as it is, wherever it was.
_PASSING = ("during", "later", "alias", "or")
_NOWHERE: npt.NDArray[np.float64] = np.empty((0, 4))

#: Where somebody may want an event, as boxes; None: anywhere.
Reach: TypeAlias = list[Bounds] | None


class _Held(NamedTuple):
    """What a publisher holds: the event it was for, and the number of the report."""

    event: Event
    epoch: int
    row: int


class Silences:
    """Who is silent, and where; made for a broker whose parts it reads.

    Nothing is kept, and nothing costs, before the first publisher asks. A rectangle costs a match
    of its frame and O(n log n) in the n regions that reach into it; a new subscription costs a
    look at the rectangles, by columns, and a test of its filter for each that it meets.
    """

    def __init__(
        self, space: Space, roster: Roster, fences: Fences, following: Collection[str],
        composites: Mapping[str, Composite], *, tolerance_m: float, method: str, reach_m: float,
    ) -> None:  # fmt: skip
        glr.check_method("safe_rectangle", method)
        if isinstance(reach_m, bool) or not isinstance(reach_m, int | float) or not (
            0 < reach_m < math.inf
        ):  # fmt: skip
            raise ValidationError("safe_rectangle_m", reach_m, "give a positive number of metres")
        self._space: Space = space
        self._roster = roster
        self._fences = fences
        self._following = following
        self._composites = composites
        self._relations = Relations(space, tolerance_m)
        self._method = method
        self._most_m = self._reach_m = float(reach_m)
        self._held: dict[str, _Held] = {}
        self._names: list[str | None] = []
        """Publishers by row of `_boxes`; None: a free one."""
        self._free: list[int] = []
        self._boxes = _NOWHERE
        self._odd: dict[str, None] | None = None
        """Subscriptions that a frame does not find, though a place in it might be wanted."""
        self._leaves: dict[str, list[tuple[Subscription, Reach]]] = {}
        self._beyond: dict[object, npt.NDArray[np.float64] | None] = {}

    def __len__(self) -> int:
        """How many publishers hold a rectangle."""
        return len(self._held)

    # -- publishers --------------------------------------------------------------------

    def check(self, publisher: object, event: Event, epoch: object) -> None:
        """Refuse what cannot be answered with a rectangle; changes nothing."""
        check_id(publisher, "publisher")
        if epoch is not None and (
            not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 < epoch < 2**62
        ):
            raise ValidationError("epoch", epoch, "a report's epoch counts from 1")
        if not isinstance(event.location, Point):
            raise ValidationError(
                "location", event.location, "give a Point: a publisher that keeps silent moves"
            )

    def grant(
        self, publisher: str, event: Event, epoch: int | None, now: Micros
    ) -> SafeRectangle:  # fmt: skip
        """Where this publisher may be silent from now on; the one it held is void."""
        held = self._held.get(publisher)
        last = 0 if held is None else held.epoch
        if epoch is None:
            epoch = last + 1
        elif epoch < last:  # overtaken by a later report, which has its answer
            return SafeRectangle(epoch, None)
        self.forget(publisher)
        box = self._around(event, now)
        if box is not None:
            row = self._free.pop() if self._free else len(self._names)
            if row == len(self._names):
                self._names.append(None)
                if row == len(self._boxes):
                    more = np.full((max(16, row), 4), np.nan)
                    self._boxes = np.concatenate([self._boxes, more])
            self._names[row] = publisher
            self._boxes[row] = box.xmin, box.ymin, box.xmax, box.ymax
            self._held[publisher] = _Held(event, epoch, row)
        return SafeRectangle(epoch, box)

    def forget(self, publisher: str) -> int:
        """A publisher holds nothing any more; the number of the report it was for, or 0."""
        held = self._held.pop(publisher, None)
        if held is None:
            return 0
        self._names[held.row] = None
        self._boxes[held.row] = np.nan
        self._free.append(held.row)
        return held.epoch

    # -- who might tell ----------------------------------------------------------------

    def came(self, who: Subscription | Fence | Composite) -> dict[str, int]:
        """Somebody new: publishers whose rectangle is void by that, and which report it was for."""
        self._forget_of(who.id)
        if self._odd is None:  # nobody holds a rectangle, but what patterns want was looked up
            self._beyond.clear()
            return {}
        wants: Iterable[tuple[Subscription, Reach]]
        if isinstance(who, Composite):
            self._beyond.clear()
            wants = self._leaves_of(who)
        elif isinstance(who, Subscription) and not follows(who):
            if _is_odd(who):
                self._odd[who.id] = None
            wants = [(who, _regions_of(who, self._space))]
        else:
            self._beyond.clear()
            wants = [(_filter_of(who), None)]
        void = {}
        for subscription, reach in wants:
            for name in self._meeting(reach):
                if _may_want(subscription, self._held[name].event):
                    void[name] = self.forget(name)
        return void

    def gone(self, id: str) -> None:
        """A subscription, fence or composite is no more."""
        self._beyond.clear()
        self._forget_of(id)

    def _forget_of(self, id: str) -> None:
        self._leaves.pop(id, None)
        if self._odd is not None:
            self._odd.pop(id, None)

    def _meeting(self, reach: Reach) -> list[str]:
        """Publishers whose rectangles these boxes reach into."""
        if reach is None:
            return [*self._held]
        boxes, rows = self._boxes, np.zeros(len(self._boxes), np.bool_)
        for xmin, ymin, xmax, ymax in reach:
            rows |= (
                (boxes[:, 0] < xmax) & (boxes[:, 2] > xmin)
                & (boxes[:, 1] < ymax) & (boxes[:, 3] > ymin)
            )  # fmt: skip
        return [name for row in np.flatnonzero(rows) if (name := self._names[row]) is not None]

    # -- the rectangle -----------------------------------------------------------------

    def _around(self, event: Event, now: Micros) -> Box | None:
        beyond = self._reach_beyond(event)
        if beyond is None:
            return None
        place = event.location
        assert isinstance(place, Point)
        while True:
            frame = self._frame(place)
            if frame is None:
                return None
            wanting = [*self._roster.wanting(_spread(event, frame), now)]
            if len(wanting) <= _MANY or self._reach_m < self._most_m * _NARROWEST:
                break
            self._reach_m /= 2
        if len(wanting) < _FEW:
            self._reach_m = min(self._most_m, 2 * self._reach_m)
        boxes: list[Bounds] = []
        for subscription in (*wanting, *self._odd_ones()):
            reach = _reach_for(subscription, event, self._space)
            if reach is None:
                return None
            boxes += reach
        near = np.concatenate([beyond, np.array(boxes, np.float64).reshape(-1, 4)])
        sides = np.array([frame.xmin, frame.ymin, frame.xmax, frame.ymax])
        return glr.rectangle(place, sides, near, self._method)

    def _frame(self, place: Point) -> Box | None:
        """The box in which a rectangle is looked for; None at the rim of the map."""
        half = self._reach_m
        if self._space == "planar":
            return Box(place.x - half, place.y - half, place.x + half, place.y + half)
        high = half / _DEGREE_M
        wide = high / max(math.cos(math.radians(min(90.0, abs(place.y) + high))), 1e-6)
        sides = (max(-180.0, place.x - wide), max(-90.0, place.y - high),
                 min(180.0, place.x + wide), min(90.0, place.y + high))  # fmt: skip
        return Box(*sides) if sides[0] < sides[2] and sides[1] < sides[3] else None

    def _odd_ones(self) -> list[Subscription]:
        if self._odd is None:
            fixed = (each for each in self._roster if not follows(each))
            self._odd = {each.id: None for each in fixed if _is_odd(each)}
        return [self._roster[id] for id in self._odd]

    def _reach_beyond(self, event: Event) -> npt.NDArray[np.float64] | None:
        """Where fences, followers and patterns may want an event; None: anywhere."""
        key = said(event)
        if key not in self._beyond:
            if len(self._beyond) >= _REMEMBERED:
                self._beyond.clear()
            self._beyond[key] = self._look_beyond(event)
        return self._beyond[key]

    def _look_beyond(self, event: Event) -> npt.NDArray[np.float64] | None:
        everywhere: Iterator[Subscription | Fence] = (
            each for some in (map(self._roster.__getitem__, self._following), self._fences)
            for each in some
        )  # fmt: skip
        if any(_may_want(_filter_of(each), event) for each in everywhere):
            return None
        boxes: list[Bounds] = []
        for composite in self._composites.values():
            for subscription, reach in self._leaves_of(composite):
                if _may_want(subscription, event):
                    if reach is None:
                        return None
                    boxes += reach
        return np.array(boxes, np.float64).reshape(-1, 4)

    def _leaves_of(self, composite: Composite) -> list[tuple[Subscription, Reach]]:
        """The plain events of a pattern, each with the places at which it makes a difference."""
        found = self._leaves.get(composite.id)
        if found is None:
            plan = compile_pattern(composite.pattern)
            found = [
                (wanted, reach if reach is not None else _regions_of(wanted, self._space))
                for wanted, reach in _leaves(plan, None, self._relations)
            ]
            self._leaves[composite.id] = found
        return found


def _leaves(plan: Plan, reach: Reach, relations: Relations) -> Iterator[tuple[Subscription, Reach]]:
    if plan.kind == "primitive":
        yield translate(plan.params[0].primitive()).subscription("leaf"), reach
        return
    below: Reach = None  # parts of a composite event may be where it is not
    if plan.kind in SPATIAL:
        own = reach_of((plan.kind, plan.params), relations)
        below = reach if own is None else own
    elif plan.kind in _PASSING:
        below = reach
    for each in plan.inputs:
        yield from _leaves(each.plan, below, relations)


def _spread(event: Event, frame: Box) -> Event:
    """What an event says, all over a frame."""
    return Event(event.id, event.attributes, event.keywords, frame)


def _filter_of(who: Subscription | Fence) -> Subscription:
    """What it asks of an event, wherever that is."""
    return Subscription(who.id, None, who.filter, who.keywords)


def _is_odd(subscription: Subscription) -> bool:
    """Whether it may want a place in a box without wanting the box."""
    where = subscription.where
    if where is None or "S_" not in where.upper():
        return False
    clauses = subscription.filter.clauses
    return any(isinstance(r, SpatialResidual) for clause in clauses for r in clause.residuals)


def _passes(clause: Clause, event: Event) -> bool:
    """Whether an event passes all of a clause that is not about its place."""
    tests = (*clause.intervals, *clause.equals, *clause.residuals)
    return clause.words <= event.keywords and all(
        isinstance(test, SpatialResidual) or test.test(event) for test in tests
    )


def _may_want(subscription: Subscription, event: Event) -> bool:
    """Whether it would want an event somewhere, its region aside."""
    return subscription.keywords <= event.keywords and any(
        _passes(clause, event) for clause in subscription.filter.clauses
    )


def _reach_for(subscription: Subscription, event: Event, space: Space) -> Reach:
    """Where a subscription may want an event that says this."""
    if not subscription.keywords <= event.keywords:
        return []
    clauses = [each for each in subscription.filter.clauses if _passes(each, event)]
    return _boxes_of(subscription, clauses, space)


def _regions_of(subscription: Subscription, space: Space) -> Reach:
    """Where a subscription may want an event, whatever that says."""
    return _boxes_of(subscription, subscription.filter.clauses, space)


def _boxes_of(subscription: Subscription, clauses: Iterable[Clause], space: Space) -> Reach:
    boxes: list[Bounds] = []
    for clause in clauses:
        regions = (subscription.region, *clause.regions)
        bounded = next((each for each in regions if each is not None), None)
        if bounded is None:
            return None
        boxes += index_boxes(bounded, space)  # type: ignore[arg-type]  # those here are fixed
    return boxes
