"""What a protocol has to do to send notifications, and how it says what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Protocol

from nearcast.server.settings import Settings
from nearcast.server.sinks.names import Names
from nearcast.storage.sinks import Sink

__all__ = [
    "DELIVERED", "Carrier", "Channel", "Letter", "Means", "Outcome", "Shared", "Terms", "gone",
    "letter_id", "never", "retry",
]  # fmt: skip


def letter_id(identity: str, tenant: str, subscriber: str) -> str:
    """What ids of a subscriber's letters begin with, in the store of that identity: nobody chooses
    it, and it has no dot."""
    said = f"{identity}\0{tenant}\0{subscriber}".encode("utf-8", "surrogatepass")
    return f"ntf_{blake2b(said, digest_size=10).hexdigest()}_"


@dataclass(eq=False, slots=True)
class Letter:
    """One notification on its way to one sink, or all of a digest."""

    id: str
    """The same however often it is tried, and of no other."""
    seq: int
    """The number of the notification; of a digest, the last one's."""
    thing: str
    at: int
    """The notification's own time, in microseconds."""
    text: bytes
    """The notification as JSON, as it is over every other way; of a digest, as a page of them."""
    number: int | None = None
    """Of the dead letter that it was."""
    tries: int = 0
    why: str = ""
    """What was wrong with the last one."""
    flying: bool = False
    settled: bool = False
    first: int = 0
    """Of a digest, the number of its first; else 0."""

    @property
    def before(self) -> int:
        """The number in front of it."""
        return (self.first or self.seq) - 1


class Outcome(NamedTuple):
    """What became of a letter."""

    kind: Literal["delivered", "retry", "never", "gone"]
    why: str = ""
    after_s: float = 0.0
    """The sink asks to be left alone for so long."""


#: The sink has it.
DELIVERED = Outcome("delivered")


def retry(why: str, after_s: float = 0.0) -> Outcome:
    """Nobody knows whether the sink has it, or it has not: it is tried again."""
    return Outcome("retry", why, after_s)


def never(why: str) -> Outcome:
    """The sink does not take this one, however often it is tried."""
    return Outcome("never", why)


def gone(why: str) -> Outcome:
    """The sink wants nothing any more."""
    return Outcome("gone", why)


class Terms(NamedTuple):
    """How much a channel takes at once."""

    flight: int = 1
    """How many sends may be under way; more than one, and order is not kept."""
    batch: int = 1
    """How many letters one send may have, in order."""
    exact: bool = False
    """The sink knows itself what it has: nothing is sent behind a dead letter before that is on
    disk, for after a crash all that is before what it has counts as sent."""


@dataclass(frozen=True, slots=True)
class Means:
    """What protocols share."""

    settings: Settings
    names: Names
    """Finds the addresses of names, and refuses those that sinks must not be at."""
    now: Callable[[], float] = field(default=time.time)
    """Seconds since 1970."""
    identity: Callable[[], str] = field(default=lambda: "")
    """The store's own name, which no other has."""
    shared: dict[str, Shared] = field(default_factory=dict)
    """What channels of one protocol have in common, by protocol."""


class Shared(Protocol):
    """Something that channels share, for as long as the server runs."""

    async def close(self) -> None:
        """Let go of everything."""


class Channel(Protocol):
    """The way to one sink, while it is used."""

    terms: Terms

    async def begin(self, upto: int, last: int) -> int:
        """Called before the first send: get ready.

        `upto` is the number up to which the sink has everything as far as we know, `last` that of
        the newest notification; answered is what the sink itself knows, if that is more, else
        `upto`. May raise, and is then called again before the next try.
        """

    async def send(self, letters: Sequence[Letter]) -> Sequence[Outcome]:
        """Send letters, in order where that is kept; an outcome for each.

        Bounded in time by itself. What it raises is a `retry` for all of them.
        """

    async def close(self) -> None:
        """Let go of everything."""


class Carrier(Protocol):
    """A protocol by which notifications are sent."""

    name: str
    """As `protocol` names it."""
    schemes: tuple[str, ...]
    """Of the URIs that it takes."""

    def check(self, uri: str, given: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
        """`protocolsettings`, checked; a ValidationError says what is wrong with them or a URI."""

    def complete(
        self, given: Mapping[str, Any], known: Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Secrets that were left out: those of the sink as it is `known`, or made up.

        Answers the settings, and what of them has to be told to whoever asked, for nobody
        can read it again.
        """

    def shown(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings without what is secret."""

    def open(self, sink: Sink, means: Means, tenant: str) -> Channel:
        """A channel to a tenant's sink; at once, nothing is connected yet."""
