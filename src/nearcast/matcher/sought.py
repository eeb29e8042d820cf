"""A subscription that looks for live events in one circle after another.

Somebody who moves asks twice in each report where the events are that a subscription wants. What
is the same each time, the names and intervals of its filter, is encoded once: with the objects
around it that is two thirds of the time of such a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Clauses, Rows, new_counters
from nearcast.kernels import verify
from nearcast.matcher.encode import plain_query
from nearcast.model.geometry import Circle, Space
from nearcast.model.schema import Schema
from nearcast.model.subscriptions import Subscription

__all__ = ["Sought"]

_NO_ROWS = np.empty(0, np.int32)


class Sought:
    """One subscription, its own region apart, to be given to `Matcher.spots_within`.

    For one thread at a time.
    """

    __slots__ = ("_made", "_ripple", "counters", "subscription")

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.counters = new_counters()
        """What searches add to; nobody reads it."""
        self._made: tuple[object, Clauses] | None = None
        """The schema's era, and row 0 with the circle of the last search."""
        self._ripple: _Ripple | None = None

    def at(self, circle: Circle | None) -> Subscription:
        """The subscription with a circle for its region, or without one."""
        s = self.subscription
        where = s.filter if s.where else None
        return Subscription(s.id, s.subscriber, where, s.keywords, circle, s.expires)

    def clause(self, circle: Circle, schema: Schema, space: Space) -> Clauses | None:
        """Row 0 of a table to match with, good until the next; None: it takes more than that."""
        if self._made is None or self._made[0] is not schema.era:
            made = plain_query(self.at(circle), schema, space)
            if made is None:
                return None
            self._made = schema.era, made
            return made
        made = self._made[1]
        given = circle.x, circle.y, circle.radius_m
        # its place stands in front (`arrange_one`)
        whole = verify.put_circle(made.low, made.high, made.shape, *given, space == "globe")
        return made if whole else None

    def rows(self, index: Any, clause: Clauses, now: int) -> Rows:
        """Rows that the clause wants, and perhaps some that lie elsewhere.

        An index that can go on where the last search stopped does so until it is changed.
        """
        if not getattr(index, "on_demand", False):
            found: Rows = index.match_clause(clause, 0, now, self.counters)
            return found
        ripple = self._ripple
        if ripple is None or not ripple.goes_on(index, clause):
            seen = np.zeros(index.nodes, np.bool_)
            ripple = self._ripple = _Ripple(index, index.version, clause, seen, _NO_ROWS)
        fresh = index.match_new(clause, ripple.seen, now, self.counters)
        if fresh.size:
            ripple.rows = np.concatenate([ripple.rows, fresh])
        return ripple.rows


@dataclass(slots=True)
class _Ripple:
    """How far a search has come: leaves it has seen, and what it found there."""

    index: Any
    version: int
    clause: Clauses
    seen: npt.NDArray[np.bool_]
    rows: Rows

    def goes_on(self, index: Any, clause: Clauses) -> bool:
        """Whether what it has found still counts."""
        return self.index is index and self.version == index.version and self.clause is clause
