"""The broker's doors: a store that remembers, sinks that carry notifications away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from nearcast.broker.replies import Notification
from nearcast.clock import Micros
from nearcast.cpsl.composite import Composite
from nearcast.fences.groups import Key, Object
from nearcast.fences.saved import KnownFence, KnownObject
from nearcast.model.events import Event
from nearcast.model.geometry import Point
from nearcast.model.subscriptions import Subscription

__all__ = [
    "Change",
    "Closed",
    "Detecting",
    "Expired",
    "Fenced",
    "Gone",
    "Moved",
    "Published",
    "Reached",
    "Sink",
    "State",
    "Store",
    "Subscribed",
    "Told",
    "Traced",
    "Unsubscribed",
]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription is there, new or in place of one with its id."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Detecting:
    """A composite is there, new or in place of one with its id."""

    composite: Composite


@dataclass(frozen=True, slots=True)
class Fenced:
    """A fence is there, new or in place of one with its id."""

    known: KnownFence


@dataclass(frozen=True, slots=True)
class Traced:
    """What fences know of an object, in place of what they knew."""

    known: KnownObject


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A subscription, composite or fence is gone: cancelled or expired. Its pairs are forgotten."""

    id: str


@dataclass(frozen=True, slots=True)
class Published:
    """An event is live."""

    event: Event


@dataclass(frozen=True, slots=True)
class Gone:
    """An event is live no more: retracted, or a composite event that expired. Its pairs go, too."""

    event_id: str


@dataclass(frozen=True, slots=True)
class Expired:
    """An event is live no more, and remembered for a while. Its pairs are forgotten."""

    event_id: str
    content: bytes
    """A digest of what it said (`nearcast.broker.past`)."""
    until: Micros


@dataclass(frozen=True, slots=True)
class Told:
    """A pair was told: it never is again."""

    notification: Notification


@dataclass(frozen=True, slots=True)
class Moved:
    """A subscriber reported a place."""

    subscriber: str
    place: Point
    at: Micros


@dataclass(frozen=True, slots=True)
class Reached:
    """Event time has come to a moment."""

    now: Micros


@dataclass(frozen=True, slots=True)
class Closed:
    """Everything that happened up to a moment has been published: fences' timers of then fired."""

    at: Micros


Change: TypeAlias = (
    Subscribed | Detecting | Fenced | Traced | Unsubscribed | Published | Gone | Expired | Told
    | Moved | Reached | Closed
)  # fmt: skip


@dataclass(slots=True)
class State:
    """What a store remembers: enough to go on without a gap and without a repeat.

    Dictionaries keep the order in which things came. What patterns wait for is not here.
    """

    now: Micros | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    composites: dict[str, Composite] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    fences: dict[str, KnownFence] = field(default_factory=dict)
    objects: dict[tuple[Key, Object], KnownObject] = field(default_factory=dict)
    """What fences know of whom."""
    closed: Micros | None = None
    places: dict[str, Moved] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    """Event id → ids of the subscriptions that were told of it."""
    expired: dict[str, tuple[bytes, Micros]] = field(default_factory=dict)
    """Event id → a digest of what it said, and until when it is remembered."""


class Store(Protocol):
    """Remembers what the broker did."""

    def load(self) -> State:
        """Everything remembered; the broker reads it once, when it starts."""

    def commit(self, changes: Sequence[Change]) -> None:
        """Remember the changes of one call, in their order, all or none of them.

        Called before the call answers and before sinks hear of it. If it raises, the
        caller gets the error, and the broker must be made anew from the store.
        """


class Sink(Protocol):
    """Takes notifications to somebody."""

    def deliver(self, notification: Notification) -> None:
        """Take over one notification, at once and without raising: what may fail queues."""
