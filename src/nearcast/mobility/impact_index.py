"""The impact index: place → subscriptions whose impact region may reach there (Elaps §5).

The paper inverts the impact regions, cell → subscribers, and asks each of those whether its
filter fits. Here a matcher of its own holds every subscription with a box round the impact region
for its place, so that its tiles are that inverted index, and place and filter are decided by one
look-up, for events with an extent and over the antimeridian too. The exact impact region is
asked afterwards. (A box and not a circle: the index decides boxes itself.)
"""

from __future__ import annotations

import math
from typing import TypeAlias

from nearcast.clock import Micros
from nearcast.matcher import Matcher
from nearcast.matcher.encode import encode_subscription
from nearcast.matcher.places import index_boxes
from nearcast.mobility.plane import EARTH_RADIUS_M
from nearcast.mobility.shapes import room_round
from nearcast.model.events import Event
from nearcast.model.geometry import Box, Circle, Point, Space
from nearcast.model.subscriptions import Subscription

__all__ = ["ImpactIndex", "Ring"]

#: A circle x, y, radius; a negative radius holds nothing, None is everywhere.
Ring: TypeAlias = tuple[float, float, float] | None

#: Beyond this a circle is as good as everywhere: near the antipode distances are coarse, and
#: on a plane squares overflow.
_WIDEST = {"globe": 0.9 * math.pi * EARTH_RADIUS_M, "planar": 1e150}


class ImpactIndex:
    """Which subscriptions an event may concern.

    A look-up costs a match against those in reach whose filters fit, a change a change of one
    subscription.
    """

    def __init__(self, space: Space) -> None:
        self._space: Space = space
        self._matcher = Matcher(space=space)
        self._held: dict[str, Subscription] = {}

    def __len__(self) -> int:
        return len(self._held)

    def check(self, subscription: Subscription) -> None:
        """Raise what `put` would."""
        asked = _at(subscription, None)
        encode_subscription(asked, self._matcher.schema, self._space, intern=False)

    def put(self, subscription: Subscription, ring: Ring) -> None:
        """Enter or replace a subscription by a circle round its impact region."""
        if ring is not None and ring[2] < 0:
            self.remove(subscription.id)
            return
        held = _at(subscription, self._place(ring))
        old = self._held.get(held.id)
        if old is None:
            self._matcher.add_subscriptions([held])
        elif old.region != held.region or old != held:
            self._matcher.update_subscription(held)
        self._held[held.id] = held

    def remove(self, id: str) -> None:
        """Forget a subscription, if it is there."""
        if self._held.pop(id, None) is not None:
            self._matcher.remove_subscription(id)

    def near(self, event: Event, now: Micros) -> list[str]:
        """The subscriptions that want an event, if it may be in their impact region; sorted."""
        if not self._held or event.location is None:
            return []
        if self._space == "globe" and not isinstance(event.location, Point):
            room = room_round(event.location)
            event = Event(event.id, event.attributes, event.keywords, room)
        return self._matcher.match_event(event, now=now)

    def _place(self, ring: Ring) -> Circle | Box | None:
        """A box round the circle, which is a little wider than rounding takes.

        The circle itself where one box does not hold it.
        """
        if ring is None:
            return None
        x, y, radius = ring
        more = 1e-6 if self._space == "globe" else 1e-9 * (abs(x) + abs(y)) + 1e-12
        radius = radius * (1 + 1e-9) + more
        if radius >= _WIDEST[self._space]:
            return None
        circle = Circle(x, y, radius)
        boxes = index_boxes(circle, self._space)
        return Box(*boxes[0]) if len(boxes) == 1 else circle

    def check_invariants(self) -> None:
        """The matcher holds what this does."""
        self._matcher.check_invariants()
        assert len(self._matcher) == len(self._held)
        assert all(id in self._matcher for id in self._held)


def _at(s: Subscription, region: Circle | Box | None) -> Subscription:
    where = None if s.where is None else s.filter
    return Subscription(s.id, s.subscriber, where, s.keywords, region, s.expires)
