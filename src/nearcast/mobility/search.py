"""The tracker's port to live events, and its adapter over a `Matcher`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nearcast.clock import Micros
from nearcast.matcher import Matcher
from nearcast.matcher.live import Spots
from nearcast.matcher.sought import Sought
from nearcast.mobility.shapes import spot_of
from nearcast.model.geometry import Circle, Location, Point
from nearcast.model.subscriptions import Subscription

__all__ = ["EventSearch", "Found", "MatcherSearch"]

Floats = npt.NDArray[np.float64]


class Found:
    """Events that were found: a place each, and those that are more than a point, by number.

    Ids are made when somebody asks for them.
    """

    __slots__ = ("_ids", "shapes", "x", "y")

    def __init__(
        self, x: Floats, y: Floats, shapes: Mapping[int, Location], ids: Callable[[], list[str]]
    ) -> None:
        self.x = x
        self.y = y
        self.shapes = shapes
        self._ids = ids

    def __len__(self) -> int:
        return int(self.x.size)

    @property
    def ids(self) -> list[str]:
        """The id of each."""
        return self._ids()


class EventSearch(Protocol):
    """Live events that a subscription wants, its own region apart, in a circle."""

    @property
    def live(self) -> int:
        """How many events are live."""

    def matching(self, sought: Sought, circle: Circle | None, now: Micros) -> Found:
        """Those that meet the circle, exactly; None stands for everywhere."""

    def reached(self, subscription: Subscription, at: Point, heading: float, now: Micros) -> Found:
        """Those that meet its own region, whose subscriber is somewhere and looks somewhere."""


class MatcherSearch:
    """Live events of a matcher.

    The matcher's event index (`pivot`, `beq-tree`) looks at the circle's surroundings only.
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    @property
    def live(self) -> int:
        """How many events are live."""
        return self._matcher.event_count

    def matching(self, sought: Sought, circle: Circle | None, now: Micros) -> Found:
        """Ask the matcher with the circle as the region."""
        if circle is None:
            return self._found(self._matcher.match_spots(sought.at(None), now=now))
        return self._found(self._matcher.spots_within(sought, circle, now))

    def reached(self, subscription: Subscription, at: Point, heading: float, now: Micros) -> Found:
        """Ask the matcher with the subscription as it stands."""
        return self._found(self._matcher.match_spots(subscription, now=now, at=at, heading=heading))

    def _found(self, spots: Spots) -> Found:
        numbers, x, y, shapes = spots
        for at, location in shapes.items():
            x[at], y[at], _ = spot_of(location, self._matcher.space)
        return Found(x, y, shapes, partial(self._matcher.event_ids, numbers))
