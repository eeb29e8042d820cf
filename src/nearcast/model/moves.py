"""The move: a subscriber reports where it is."""

from __future__ import annotations

from typing import NamedTuple

from nearcast.model.geometry import Point

__all__ = ["Move"]


class Move(NamedTuple):
    """Somebody is at a place: what `Broker.move` is told, as one value.

    `heading` is in degrees clockwise from north, `speed` in metres a second, `epoch` the number
    of a `Mover`'s report; all three may be left out.

    >>> Move("ann", Point(8.54, 47.37), speed=4.2).place.lat
    47.37
    """

    subscriber: str
    place: Point
    heading: float | None = None
    speed: float | None = None
    epoch: int | None = None
