"""The impact index: place → subscriptions whose impact region may reach there (Elaps §5).

The paper inverts the impact regions, cell → subscribers, and asks each of those whether its
filter fits. Here a matcher of its own holds every subscription with a box round the impact region
for its place, so that its tiles are that inverted index, and place and filter are decided by one
look-up, for events with an extent and over the antimeridian too. The exact impact region is
asked afterwards. (A box and not a circle: the index decides boxes itself.)
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np

from nearcast.clock import Micros
from nearcast.matcher import Matcher
from nearcast.matcher.encode import encode_subscription
from nearcast.matcher.places import Bounds, index_boxes
from nearcast.mobility.impact_index.regions import Regions
from nearcast.mobility.impact_region import Impact
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


class _Held(NamedTuple):
    """A subscription in the matcher."""

    given: Subscription
    bare: Subscription
    """The same without a region."""
    box: Bounds | None
    """Its place there; None: everywhere, or a circle for which there is no one box."""
    slot: int


class ImpactIndex:
    """Which subscriptions an event may concern.

    A look-up costs a match against those in reach whose filters fit, a change a change of one
    subscription.
    """

    def __init__(self, space: Space) -> None:
        self._space: Space = space
        self._matcher = Matcher(space=space)
        self._held: dict[str, _Held] = {}
        self._ids: list[str] = []
        """By slot."""
        self._regions = Regions(space)

    def __len__(self) -> int:
        return len(self._held)

    def check(self, subscription: Subscription) -> None:
        """Raise what `put` would."""
        asked = _at(subscription, None)
        encode_subscription(asked, self._matcher.schema, self._space, intern=False)

    def put(self, subscription: Subscription, ring: Ring, impact: Impact | None = None) -> None:
        """Enter or replace a subscription by its impact region, and a circle round that."""
        if ring is not None and ring[2] < 0:
            self.remove(subscription.id)
            return
        id, place = subscription.id, self._place(ring)
        box = place if isinstance(place, tuple) else None
        old = self._held.get(id)
        if old is not None and old.given is subscription and box and self._moved(old, box):
            self._held[id] = old._replace(box=box)
            self._regions.put(old.slot, impact)
            return
        held = _at(subscription, Box(*place) if isinstance(place, tuple) else place)
        if old is None:
            self._matcher.add_subscriptions([held])
        else:
            self._matcher.update_subscription(held)
        slot = self._matcher.slot_of(id)
        if old is not None and old.slot != slot:
            self._regions.clear(old.slot)
        self._held[id] = _Held(subscription, _at(subscription, None), box, slot)
        self._ids += [""] * (slot + 1 - len(self._ids))
        self._ids[slot] = id
        self._regions.put(slot, impact)

    def _moved(self, old: _Held, box: Bounds) -> bool:
        """Whether it stands there now, in the slot in which it was."""
        return old.box == box or self._matcher.move_box(old.bare, box)

    def remove(self, id: str) -> None:
        """Forget a subscription, if it is there."""
        held = self._held.pop(id, None)
        if held is not None:
            self._matcher.remove_subscription(id)
            self._regions.clear(held.slot)

    def near(self, event: Event, now: Micros) -> list[str]:
        """The subscriptions that want an event, if it may be in their impact region; sorted."""
        return sorted(map(self._ids.__getitem__, self._near(event, now)))

    def _near(self, event: Event, now: Micros) -> list[int]:
        if not self._held or event.location is None:
            return []
        if self._space == "globe" and not isinstance(event.location, Point):
            room = room_round(event.location)
            event = Event(event.id, event.attributes, event.keywords, room)
        return self._matcher.match_slots(event, now)

    def concerned(self, event: Event, now: Micros) -> tuple[list[str], int]:
        """Of those near a point the ones in whose impact regions it is, and how many are near.

        That is, of how many a region is known. What an id that is `unsure` has must be asked.
        """
        near = self._near(event, now)
        if not near:
            return [], 0
        assert isinstance(event.location, Point)
        place = event.location.x, event.location.y
        slots, known = self._regions.concerned(np.array(near, np.int32), *place)
        return sorted(map(self._ids.__getitem__, slots.tolist())), known

    def unsure(self, id: str) -> bool:
        """Whether only the region itself knows what it holds."""
        return not self._regions.known(self._held[id].slot)

    def take_near(self, id: str) -> int:
        """For how many events this one was among those near, since the last time."""
        held = self._held.get(id)
        return 0 if held is None else self._regions.take_met(held.slot)

    def _place(self, ring: Ring) -> Circle | Bounds | None:
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
        return boxes[0] if len(boxes) == 1 else circle

    def check_invariants(self) -> None:
        """The matcher holds what this does."""
        self._matcher.check_invariants()
        assert len(self._matcher) == len(self._held)
        assert all(id in self._matcher for id in self._held)
        assert all(self._matcher.slot_of(id) == held.slot for id, held in self._held.items())
        assert all(self._ids[held.slot] == id for id, held in self._held.items())
        self._regions.check_invariants({id: held.slot for id, held in self._held.items()})


def _at(s: Subscription, region: Circle | Box | None) -> Subscription:
    where = None if s.where is None else s.filter
    return Subscription(s.id, s.subscriber, where, s.keywords, region, s.expires)
