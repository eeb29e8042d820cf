"""The tracker's port to live events, and its adapter over a `Matcher`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nearcast.clock import Micros
from nearcast.matcher import Matcher
from nearcast.mobility.shapes import spot_of
from nearcast.model.geometry import Circle, Location, Point
from nearcast.model.subscriptions import Subscription

__all__ = ["EventSearch", "Found", "MatcherSearch"]

Floats = npt.NDArray[np.float64]


class Found(NamedTuple):
    """Events: ids, a place each, and those that are more than a point, by number."""

    ids: list[str]
    x: Floats
    y: Floats
    shapes: Mapping[int, Location]


class EventSearch(Protocol):
    """Live events that a subscription wants, its own region apart, in a circle."""

    @property
    def live(self) -> int:
        """How many events are live."""

    def matching(self, subscription: Subscription, circle: Circle | None, now: Micros) -> Found:
        """Those that meet the circle, exactly; None stands for everywhere."""


class MatcherSearch:
    """Live events of a matcher; `places` knows where each one is.

    The matcher's event index (`pivot`, `beq-tree`) looks at the circle's surroundings only.
    """

    def __init__(self, matcher: Matcher, places: Mapping[str, Location]) -> None:
        self._matcher = matcher
        self._places = places

    @property
    def live(self) -> int:
        """How many events are live."""
        return self._matcher.event_count

    def matching(self, subscription: Subscription, circle: Circle | None, now: Micros) -> Found:
        """Ask the matcher with the circle as the region."""
        s = subscription
        asked = Subscription(
            id=s.id, subscriber=s.subscriber, where=s.filter if s.where else None,
            keywords=s.keywords, region=circle, expires=s.expires,
        )  # fmt: skip
        ids = [id for id in self._matcher.match_subscription(asked, now=now) if id in self._places]
        places = [self._places[id] for id in ids]
        shapes = {i: place for i, place in enumerate(places) if not isinstance(place, Point)}
        spots = [spot_of(place, self._matcher.space)[:2] for place in places]
        x, y = np.array(spots, np.float64).reshape(-1, 2).T
        return Found(ids, x.copy(), y.copy(), shapes)
