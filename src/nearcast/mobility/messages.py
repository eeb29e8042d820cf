"""What client and server say to each other; values, whatever carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from nearcast.clock import Micros
from nearcast.mobility.safe_region import SafeRegion
from nearcast.model.geometry import Point

__all__ = ["LocationRequest", "Message", "NewRegion", "Notice", "Report"]


@dataclass(frozen=True, slots=True)
class Report:
    """Client to server: I am here. `epoch` counts this client's reports, from 1."""

    subscriber: str
    place: Point
    epoch: int
    heading: float | None = None
    speed: float | None = None


@dataclass(frozen=True, slots=True)
class NewRegion:
    """Server to client: stay silent in here; answers the report of `region.epoch`."""

    subscriber: str
    region: SafeRegion


@dataclass(frozen=True, slots=True)
class LocationRequest:
    """Server to client: report now, with an epoch above `after`; what you hold is void."""

    subscriber: str
    after: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Server to client: this event matches your subscription where you are."""

    subscription_id: str
    subscriber: str
    event_id: str
    at: Micros


Message: TypeAlias = NewRegion | LocationRequest | Notice
