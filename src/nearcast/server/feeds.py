"""From the core to whoever is connected: a short tail of each subscriber's notifications.

A feed is there while somebody listens. It keeps the newest notifications, encoded, up to some
kilobytes; a listener that is further behind reads from the store, and comes back to the tail
when it has caught up. So a slow one costs nobody anything, and a fast one costs no query.
Numbers in a tail have no holes: what does not follow the last one empties it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import NamedTuple

from nearcast.broker.replies import Reply
from nearcast.mobility.messages import LocationRequest
from nearcast.mobility.safe_region import SafeRegion
from nearcast.server.wire import Texts

__all__ = ["Feed", "Feeds", "Listener", "Who"]

#: A request without an answer is made again, at the latest after 300 s (`mobility.tracker`).
_FORGOTTEN_S = 900.0


class Who(NamedTuple):
    """A subscriber of a tenant."""

    tenant: str
    subscriber: str


@dataclass(eq=False)
class Listener:
    """Somebody who waits at a feed. Woken, it looks for itself what there is."""

    feed: Feed
    transport: str = "pull"
    at: int | None = None
    """The number up to which everything was sent; None: it begins after what is acknowledged."""
    takes: Callable[[], bool] | None = None
    """Takes what there is at once, where there is nothing to wait for; False: it must be woken."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    missed: bool = False
    """Whether there may be something in the store that never was in the tail."""
    region: SafeRegion | None = None
    """The newest safe region that it has not taken yet."""
    request: int | None = None
    """It is asked to report with a number above this."""


class _Asked(NamedTuple):
    """A request that nobody has answered yet."""

    after: int
    at: float
    """When it was made, or made again."""


class Feed:
    """One subscriber's tail and those who listen."""

    def __init__(self, who: Who, most_bytes: int) -> None:
        self.who = who
        self.listeners: set[Listener] = set()
        self._most = most_bytes
        self._tail: deque[bytes] = deque()
        self.last = 0
        """The number of the newest."""
        self.size = 0
        """Bytes in the tail."""
        self.known = -1
        """What the store had come to when it was looked at last."""

    def take(self, seq: int, text: bytes) -> None:
        """One more notification."""
        if seq != self.last + 1:
            self._tail.clear()
            self.size = 0
        self.last = seq
        self._tail.append(text)
        self.size += len(text)
        while self.size > self._most and len(self._tail) > 1:
            self.size -= len(self._tail.popleft())

    def after(self, seq: int, limit: int) -> list[bytes] | None:
        """What comes after a number; None if the tail does not reach back to it."""
        if self.last <= seq or not self._tail:
            return []
        skip = seq - self.last + len(self._tail)
        if skip < 0:
            return None
        return [*islice(self._tail, skip, skip + limit)]

    def miss(self) -> None:
        """Something is there, in the store."""
        for listener in self.listeners:
            listener.missed = True
            listener.woken.set()

    def wake(self) -> None:
        """Something is there."""
        for listener in self.listeners:
            if listener.takes is None or not listener.takes():
                listener.woken.set()


class Feeds:
    """All feeds, and the location requests that nobody has answered yet. In the loop only."""

    def __init__(self, tail_bytes: int) -> None:
        self._tail_bytes = tail_bytes
        self._feeds: dict[tuple[str, str], Feed] = {}
        """By tenant and subscriber: a `Who`, or what is equal to one."""
        self._asked: dict[Who, _Asked] = {}
        """The one that was asked longest ago comes first."""
        self._pulled: dict[Who, int] = {}
        """Of those, what a pull has told."""
        self.ended = False

    def __len__(self) -> int:
        """How many listen."""
        return sum(len(feed.listeners) for feed in self._feeds.values())

    def places(self) -> list[tuple[str, str, str, int]]:
        """Who follows a feed: its tenant and subscriber, by what transport, and how far it is."""
        return [
            (*feed.who, each.transport, each.at)
            for feed in self._feeds.values()
            for each in feed.listeners
            if each.at is not None
        ]

    def listen(self, who: Who) -> Listener:
        """Begin to listen; `leave` ends it."""
        feed = self._feeds.get(who)
        if feed is None:
            feed = self._feeds[who] = Feed(who, self._tail_bytes)
        listener = Listener(feed, request=self.asked(who))
        feed.listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Listen no more."""
        feed = listener.feed
        feed.listeners.discard(listener)
        if not feed.listeners:
            self._feeds.pop(feed.who, None)

    def asked(self, who: Who) -> int | None:
        """The report that a subscriber is asked for must have a number above this; None: none."""
        asked = self._asked.get(who)
        return None if asked is None else asked.after

    def unasked(self, who: Who) -> None:
        """Nothing follows a subscriber any more: no report is asked for."""
        self._pulled.pop(who, None)
        if self._asked.pop(who, None) is not None and who in self._feeds:
            for listener in self._feeds[who].listeners:
                listener.request = None

    def news(self, who: Who) -> bool:
        """Whether a report is asked for, and nobody was told so by this; once for each."""
        asked = self.asked(who)
        if asked is None or self._pulled.get(who) == asked:
            return False
        self._pulled[who] = asked
        return True

    def subscribers(self) -> dict[str, list[str]]:
        """Who is listened to, by tenant."""
        found: dict[str, list[str]] = {}
        for tenant, subscriber in self._feeds:
            found.setdefault(tenant, []).append(subscriber)
        return found

    def seen(self, tenant: str, lasts: Mapping[str, int]) -> None:
        """Another server has told somebody something, by the last number of each."""
        for subscriber, last in lasts.items():
            feed = self._feeds.get((tenant, subscriber))
            if feed is not None and feed.known != last:
                feed.known = last
                feed.miss()

    def miss(self) -> None:
        """Everybody looks at the store."""
        for feed in self._feeds.values():
            feed.miss()

    def end(self) -> None:
        """The server stops: everybody who waits is told."""
        self.ended = True
        for feed in self._feeds.values():
            feed.wake()

    def release(self, replies: Iterable[tuple[str, Reply]]) -> None:
        """What a turn of the core has told, in its order.

        Whoever is told or asked something goes before those who only get a region: to write that
        down takes longer, and nobody waits for it.
        """
        texts, feeds = Texts(), self._feeds
        woken: dict[Who, Feed] = {}
        later: dict[Who, Feed] = {}
        for tenant, reply in replies:
            for told in reply if feeds else ():
                if told.subscriber is None or told.seq is None:
                    continue
                feed = feeds.get((tenant, told.subscriber))
                if feed is not None:
                    feed.take(told.seq, texts.of(told))
                    woken[feed.who] = feed
            for subscriber, region in reply.safe_regions.items():
                who = Who(tenant, subscriber)
                if self._asked.pop(who, None) is not None:
                    self._pulled.pop(who, None)
                feed = feeds.get(who)
                if feed is not None:
                    later[who] = feed
                    for listener in feed.listeners:
                        listener.region, listener.request = region, None
            for subscriber in reply.location_requests:
                self._ask(Who(tenant, subscriber), reply, woken)
            if reply.location_requests:
                self._forget()
        for feed in (woken | later).values():
            feed.wake()

    def _forget(self) -> None:
        """Whoever is not asked again has ended, or expired, what followed it."""
        now = monotonic()
        while (first := next(iter(self._asked.items())))[1].at + _FORGOTTEN_S < now:
            self.unasked(first[0])

    def _ask(self, who: Who, reply: Reply, woken: dict[Who, Feed]) -> None:
        for message in reply.messages(who.subscriber):
            if isinstance(message, LocationRequest):
                self._asked.pop(who, None)
                self._asked[who] = _Asked(message.after, monotonic())
                if who in self._feeds:
                    woken[who] = self._feeds[who]
                    for listener in woken[who].listeners:
                        listener.region, listener.request = None, message.after
