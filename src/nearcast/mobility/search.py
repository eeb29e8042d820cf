"""The tracker's port to live events, and its adapter over a `Matcher`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nearcast.clock import Micros
from nearcast.matcher import Matcher
from nearcast.mobility.plane import distance
from nearcast.model.geometry import Box, Circle, Location, Point, Space
from nearcast.model.subscriptions import Subscription

__all__ = ["EventSearch", "Found", "MatcherSearch", "spot_of"]

Floats = npt.NDArray[np.float64]


class Found(NamedTuple):
    """Events: ids, a place each, and how far the event stretches from it (0 for points)."""

    ids: list[str]
    x: Floats
    y: Floats
    extent: Floats


class EventSearch(Protocol):
    """Live events that a subscription wants, its own region apart, in a circle."""

    @property
    def live(self) -> int:
        """How many events are live."""

    def matching(self, subscription: Subscription, circle: Circle | None, now: Micros) -> Found:
        """Those that meet the circle, exactly; None stands for everywhere."""


def spot_of(location: Location, space: Space) -> tuple[float, float, float]:
    """A point and a distance from it within which all of a location lies."""
    if isinstance(location, Point):
        return location.x, location.y, 0.0
    if isinstance(location, Box):
        turn = 360.0 if location.xmin > location.xmax else 0.0
        xs = np.linspace(location.xmin, location.xmax + turn, 9)
        ys = np.linspace(location.ymin, location.ymax, 9)
        corners = [(x, y) for x in xs.tolist() for y in ys.tolist()]
        x, y = float(xs[4]), float(ys[4])
        pieces = (xs[1] - xs[0], ys[1] - ys[0])
    else:
        xmin, ymin, xmax, ymax = location.bounds
        corners = list(location.exterior)
        x, y = (xmin + xmax) / 2, (ymin + ymax) / 2
        ring = np.array([*corners, corners[0]])
        pieces = tuple(np.abs(np.diff(ring, axis=0)).max(axis=0).tolist())
    if space == "globe":
        x = (x + 180.0) % 360.0 - 180.0
    far = max(distance(space, x, y, a, b) for a, b in corners)
    if space == "globe":  # between two corners an edge may bulge by what it spans
        far += 111_200.0 * float(np.hypot(*pieces)) / 2
    return x, y, far


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
        spots = [spot_of(self._places[id], self._matcher.space) for id in ids]
        x, y, extent = np.array(spots, np.float64).reshape(-1, 3).T
        return Found(ids, x.copy(), y.copy(), extent.copy())
