"""The broker's doors: a store that remembers, sinks that carry notifications away.

A call of the broker *stages* its changes, and `flush` commits what one call or many have staged,
in one transaction. Nothing leaves the broker before that: no answer, no notification, no
location request. Events are named by their `key` here, which source and id make together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from nearcast.broker.replies import Notification
from nearcast.broker.subscriptions import Subscriptions
from nearcast.broker.turns import Turn, Waiting
from nearcast.clock import Micros
from nearcast.cpsl.composite import Composite
from nearcast.fences.groups import Key, Object
from nearcast.fences.saved import KnownFence, KnownObject
from nearcast.matcher import Matcher
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Point
from nearcast.model.subscriptions import Subscription

__all__ = [
    "Acknowledged",
    "Altered",
    "Change",
    "Changes",
    "Closed",
    "Decided",
    "Detecting",
    "Expired",
    "Fenced",
    "Gone",
    "Held",
    "Input",
    "Kept",
    "Kind",
    "Moved",
    "Page",
    "Published",
    "Queued",
    "Reached",
    "Released",
    "SavedPatterns",
    "Sink",
    "Spent",
    "Standing",
    "State",
    "Store",
    "Subscribed",
    "Thing",
    "Told",
    "Traced",
    "Unsubscribed",
]

#: What has an id of the one space of ids that somebody may end by it.
Thing: TypeAlias = Subscription | Fence | Composite
Kind: TypeAlias = Literal["subscription", "fence", "composite"]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription is there, new or in place of one with its id."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Detecting:
    """A composite is there, new or in place of one with its id. An input of patterns."""

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
class Queued:
    """Something waits for its turn before fences hear of it: an event that has come, or another."""

    turn: Turn[Waiting]


@dataclass(frozen=True, slots=True)
class Decided:
    """What was `Queued` under these numbers waits no more."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A subscription, composite or fence is gone: cancelled or expired.

    Its pairs are forgotten, how it stands, and what is held of it.
    """

    id: str


@dataclass(frozen=True, slots=True)
class Spent:
    """A thing has told as much as it was to, and is remembered for a while, as events are."""

    id: str
    content: bytes | None
    """A digest of what it said. None: another one is there, and this one is forgotten."""
    until: Micros


@dataclass(frozen=True, slots=True)
class Published:
    """An event has come, and is live until it is `Gone` or `Expired`, be that at once.

    A new row of the event log, and an input of patterns.
    """

    event: Event
    by: str | None = None
    """Who published it, where that is asked for: only then may somebody else not retract it."""


@dataclass(frozen=True, slots=True)
class Gone:
    """An event is live no more: retracted, or a composite event that expired. Its pairs go, too."""

    key: str


@dataclass(frozen=True, slots=True)
class Expired:
    """An event is live no more, and remembered for a while. Its pairs are forgotten."""

    key: str
    content: bytes
    """A digest of what it said (`nearcast.broker.past`)."""
    until: Micros


@dataclass(frozen=True, slots=True)
class Told:
    """Notifications: each a new row of its subscriber's outbox, under the number it has there."""

    notifications: Sequence[Notification]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a thing that has terms, or was paused, stands by them."""

    id: str
    told: int
    """How many notifications there were of it."""
    paused: bool
    opened: Micros | None
    """When the first of those that are held was found."""
    since: int | None
    """It is told of no event up to this offset of the log."""


@dataclass(frozen=True, slots=True)
class Held:
    """Found for a thing and not told yet, in this order, each under a number that grows."""

    first: int
    """The number of the first; the others follow."""
    notifications: Sequence[Notification]


@dataclass(frozen=True, slots=True)
class Released:
    """What is held of a thing up to a number is held no more: told, or let go."""

    id: str
    upto: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Pairs that were told though that does not follow from what is there: never again."""

    subscription_id: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A subscriber has everything up to a number."""

    subscriber: str
    upto: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A subscriber reported a place."""

    subscriber: str
    place: Point
    at: Micros
    heading: float | None = None
    """The last heading that was said, then or before."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Event time has come to a moment.

    `closing` says that everything which happened until then has come. An input of patterns then.
    """

    now: Micros
    closing: bool = False


@dataclass(frozen=True, slots=True)
class SavedPatterns:
    """What patterns wait for, after all inputs that were staged before this."""

    patterns: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """Everything that happened up to a moment has been published: fences' timers of then fired."""

    at: Micros


Change: TypeAlias = (
    Subscribed | Detecting | Fenced | Traced | Queued | Decided | Unsubscribed | Spent | Published
    | Gone | Expired | Told | Kept | Standing | Held | Released | Acknowledged | Moved | Reached
    | Closed | SavedPatterns
)  # fmt: skip


class Input(NamedTuple):
    """Something that patterns were given, and the time it was then."""

    at: Micros | None
    what: Published | Detecting | Unsubscribed | Reached


@dataclass(slots=True)
class State:
    """What a store remembers: enough to go on without a gap and without a repeat.

    Dictionaries keep the order in which things came.
    """

    now: Micros | None = None
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    matcher: Matcher | None = None
    """Something that holds just these, but for those that follow somebody: a cache."""
    composites: dict[str, Composite] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    """Live events by key."""
    publishers: dict[str, str] = field(default_factory=dict)
    """Who published a live event, by key, where that was said."""
    came: dict[str, Micros] = field(default_factory=dict)
    """What time it was when a live event came that does not say its `end`, by key."""
    fences: dict[str, KnownFence] = field(default_factory=dict)
    objects: dict[tuple[Key, Object], KnownObject] = field(default_factory=dict)
    """What fences know of whom."""
    closed: Micros | None = None
    turns: dict[int, Turn[Waiting]] = field(default_factory=dict)
    """What is `Queued`, by number. The event of one is that of `events` if it is live."""
    places: dict[str, Moved] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    """Key of a live event → ids of the subscriptions of which `Kept` spoke."""
    standings: dict[str, Standing] = field(default_factory=dict)
    held: dict[str, list[tuple[int, Notification]]] = field(default_factory=dict)
    """What is held of each, by number. The event of one is that of `events` if it is live."""
    expired: OrderedDict[str, tuple[bytes, Micros]] = field(default_factory=OrderedDict)
    """Key → a digest of what it said, and until when it is remembered. Of things that were
    `Spent`, too (`nearcast.broker.past.thing_key`)."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Subscriber → the last number in its outbox."""
    patterns: bytes | None = None
    """What was `SavedPatterns` last."""
    inputs: list[Input] = field(default_factory=list)
    """What patterns were given since."""


class Altered(NamedTuple):
    """A subscription that came, changed or went, as the store's log of changes has it."""

    number: int
    """Grows with every change; never used twice."""
    offset: int
    """The last entry of the log of events then: those behind it see the change."""
    id: str
    subscription: Subscription | None
    """None: it is gone."""


class Changes(NamedTuple):
    """Some changes of subscriptions, in the order of their numbers."""

    altered: Sequence[Altered]
    last: int
    """No change has a greater number yet."""
    forgotten: int
    """Of changes up to this number there may be only those that still stand."""


class Page(NamedTuple):
    """Some notifications of an outbox, in the order of their numbers."""

    notifications: tuple[Notification, ...]
    next: int
    """The number after which to go on: that of the last one, or what was asked after."""
    lost: int = 0
    """How many numbers before the first are beyond retention: a gap, told and not hidden."""


class Store(Protocol):
    """Remembers what the broker did. One thread at a time."""

    def load(self) -> State:
        """Everything that was committed; the broker reads it once, when it starts."""

    def stage(self, changes: Sequence[Change]) -> None:
        """Take the changes of one call, in their order. Nothing of them is durable yet.

        A call that has changed nothing has none, and waits for the same `flush`: it is answered
        from memory, and a store that others may take over says there whether that still holds.
        """

    def flush(self) -> None:
        """Commit what is staged, all or none of it, and return when it is on disk.

        If it raises, nobody knows what is on disk: the broker stops, and is made anew from the
        store. A commit is never tried twice.
        """

    def keep(self, matcher: Matcher) -> None:
        """The broker is about to close, and its subscriptions are in here: a cache for `load`.

        Never raises, and need not do anything.
        """

    def close(self) -> None:
        """Let go of what it holds; what is staged and not flushed is dropped."""

    def outbox(self, subscriber: str, after: int, limit: int, max_bytes: int | None = None) -> Page:
        """Committed notifications of a subscriber with greater numbers, at most `limit`.

        After about `max_bytes` of events there are no more, but there is always one.
        """

    def cursor(self, subscriber: str) -> int:
        """The number up to which a subscriber has acknowledged; 0 at first."""

    def log(
        self, after: int, limit: int, max_bytes: int | None = None
    ) -> Sequence[tuple[int, Event]]:
        """Events with offsets greater than `after`, in the order they came, at most `limit`.

        `max_bytes` as in `outbox`.
        """

    def offset(self, key: str | None = None) -> int:
        """The offset of a live event in the log; without a key, that of the last entry staged."""

    def forgotten(self) -> int:
        """The last offset whose event the log has let go of; 0 if there is none."""

    def changes(self, after: int, limit: int, max_bytes: int | None = None) -> Changes:
        """Committed changes of subscriptions with greater numbers, by number, at most `limit`.

        `max_bytes` as in `outbox`.
        """

    def things(self, kind: Kind, after: str, limit: int, subscriber: str | None) -> Sequence[Thing]:
        """Committed things of a kind with greater ids, by id, at most `limit`; one's, or all."""

    def count(self, subscriber: str) -> int:
        """How many committed things a subscriber has, of any kind."""


class Sink(Protocol):
    """Takes notifications to somebody."""

    def deliver(self, notification: Notification) -> None:
        """Take over one notification, at once and without raising: what may fail queues."""
