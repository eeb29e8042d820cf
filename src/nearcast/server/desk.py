"""What every answer needs at hand: the core, the feeds, the keys, the bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from nearcast.broker.service import Service
from nearcast.errors import NearcastError
from nearcast.server.auth import OWNER, Keyring, Principal, is_loopback, no_key
from nearcast.server.core import Answer, Call, Core, Turn
from nearcast.server.feeds import Feeds, Who
from nearcast.server.figures import Figures
from nearcast.server.house import House
from nearcast.server.limits import Limits
from nearcast.server.problems import Problem
from nearcast.server.scene import Scenes
from nearcast.server.settings import Settings
from nearcast.server.silences import Lines
from nearcast.server.sinks.engine import Engine
from nearcast.server.sinks.figures import SinkFigures
from nearcast.server.standby import Watch
from nearcast.server.tenants import Tenants
from nearcast.server.wire import Texts, decode, encode, fitting
from nearcast.storage.keys import Key

__all__ = ["Ask", "Desk", "Page", "answer"]

_JSON = "application/json"


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(encode(value), status, headers, _JSON)


@dataclass(frozen=True, slots=True)
class Page:
    """Some notifications as they are sent."""

    texts: list[bytes]
    next: int
    lost: int = 0
    last: int = 0
    """The number of the newest that there is, where the store was asked."""

    def raw(self) -> list[msgspec.Raw]:
        """The texts as parts of something that is encoded."""
        return [*map(msgspec.Raw, self.texts)]


@dataclass(eq=False)
class Desk:
    """One server's parts, and what they do for every path."""

    settings: Settings
    house: House
    failed: Callable[[BaseException], None] = lambda _: None
    """Called once if the core stops by itself."""
    keyring: Keyring = field(init=False)
    feeds: Feeds = field(init=False)
    core: Core = field(init=False)
    limits: Limits = field(init=False)
    sinks: Engine = field(init=False)
    watch: Watch | None = field(init=False)
    """Hears what other servers do with the store, if others have it."""
    metrics: Figures = field(default_factory=Figures, init=False)
    tenants: Tenants = field(default_factory=Tenants, init=False)
    scenes: Scenes = field(default_factory=Scenes, init=False)
    lines: Lines = field(default_factory=Lines, init=False)
    _looking: asyncio.Future[None] | None = field(default=None, init=False)
    _changed: dict[str, asyncio.Event] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        keys = self.house.keys
        alone = is_loopback(self.settings.host)
        self.keyring = Keyring(() if keys is None else keys.all(), open=alone)
        self.feeds = Feeds(self.settings.tail_bytes)
        self.core = Core(self.house, released=self._released, failed=self._broke, taken=self._taken)
        self.watch = self._watch()
        self.limits = Limits(self.settings)
        self.limits.refused = lambda tenant: self.core.post(self.tenants.count, "refused", tenant)
        self.tenants.kept = lambda: self.house.kept_of() | {"streams": self.limits.streams_of}
        self.metrics.watch(self.tenants)
        self.sinks = Engine(self.settings, self.house, lambda: self.core)
        self.metrics.watch(SinkFigures(self.sinks, self.house.dead_letters))

    def _released(self, turn: Turn) -> None:
        self.feeds.release(turn.replies)
        for tenant in turn.anew:
            self.lines.leave(tenant)
        for tenant, reply in turn.replies:
            if reply.publish_requests:
                self.lines.void(tenant, reply.publish_requests)
        self.sinks.released(turn)
        self.metrics.turned(turn)
        self.tenants.turned(turn)
        self.scenes.turned(turn)
        for tenant in turn.changed:
            waited = self._changed.pop(tenant, None)
            if waited is not None:
                waited.set()

    def _watch(self) -> Watch | None:
        shared = self.house.shared
        if shared is None:
            return None

        def keys(found: list[tuple[bytes, Key]]) -> None:
            self.core.post(self.keyring.renew, found)

        return Watch(shared.url, keys, lambda: self.core.post(self._stirred))

    def _stirred(self) -> None:
        """Another server may have written something."""
        if not self.core.standing_by:
            return
        self._wake_all()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look_around())

    async def _look_around(self) -> None:
        for tenant, names in self.feeds.subscribers().items():
            with suppress(NearcastError):  # it is looked for again soon
                lasts = await self.core.look(tenant, lambda b, n=names: Answer(b.lasts(n)))  # type: ignore[misc]
                self.feeds.seen(tenant, lasts)

    def _taken(self) -> None:
        """This server writes now; what others wrote before, it has not told its listeners."""
        if self.watch is not None:
            self.watch.follows = False
        self._wake_all()
        self.feeds.miss()

    def sent(self, transport: str, tenant: str, count: int) -> None:
        """Notifications are on their way to somebody."""
        self.metrics.sent[transport] += count
        self.tenants.count("delivered", tenant, count)

    def _wake_all(self) -> None:
        for tenant in [*self._changed]:
            self._changed.pop(tenant).set()

    def changed(self, tenant: str) -> asyncio.Event:
        """Set as soon as something of a tenant has changed."""
        return self._changed.setdefault(tenant, asyncio.Event())

    def _broke(self, error: BaseException) -> None:
        self.end()
        self.failed(error)

    def end(self) -> None:
        """The server stops: whoever waits is let go."""
        self.feeds.end()
        self.scenes.end()
        self.lines.end()
        for waited in self._changed.values():
            waited.set()

    # -- who asks --------------------------------------------------------------------

    def asks(self, connection: HTTPConnection) -> Principal | None:
        """Who is at the other end; None: somebody who has yet to show a key."""
        server = connection.scope.get("server")
        if server is not None and server[1] is None:
            return OWNER
        try:
            return self.keyring.asks(connection.headers)
        except Problem as problem:
            if problem.status == 401:
                self.guessed(connection)
            raise

    def guessed(self, connection: HTTPConnection) -> None:
        """A wrong key came; 429 if too many did. A right one counts, whoever else guesses there:
        behind a proxy all have one address."""
        self.limits.guessed(connection.client.host if connection.client else "")

    def principal(self, connection: HTTPConnection) -> Principal:
        """Who asks, with a key where one is needed."""
        found = self.asks(connection)
        if found is None:
            raise no_key()
        return found

    # -- the core --------------------------------------------------------------------

    def call(
        self, who: Principal, call: Call, *, weight: int = 1, reads: bool = False
    ) -> asyncio.Future[Any]:
        """Have a call of the tenant's broker made, and committed."""
        return self.core.submit(who.tenant, call, weight=weight, reads=reads)

    async def look(self, who: Principal, look: Callable[[Service], Any]) -> Any:
        """The same for what changes nothing."""
        return await self.call(who, lambda broker: Answer(look(broker)), reads=True)

    async def page(
        self, who: Who, after: int | None, limit: int, most_bytes: int, *, streams: bool = False
    ) -> Page:
        """A subscriber's notifications from the store, `limit` of them or as many as fit.

        Whoever has numbers that nobody was given (of another store, or of one that was put back)
        begins after the last one, and is told of a gap. `streams` wait, however much is to do.
        """

        def look(broker: Service) -> Answer:
            last = broker.reading.last(who.subscriber)
            begin = after if after is None else min(after, last)
            return Answer((broker.notifications(who.subscriber, begin, limit, most_bytes), last))

        if streams:
            found, last = await self.core.look(who.tenant, look)
        else:
            found, last = await self.core.submit(who.tenant, look, reads=True)
        if after is not None and after > last:
            return Page([], last, after - last, last)
        told = fitting(map(Texts().of, found.notifications), most_bytes)
        cut = len(told) < len(found.notifications)
        next = found.notifications[len(told) - 1].seq if cut else found.next
        assert next is not None
        return Page(told, next, found.lost, last)


@dataclass(eq=False, slots=True)
class Ask:
    """One request, by somebody who may make it."""

    desk: Desk
    request: Request
    who: Principal

    @property
    def id(self) -> str:
        """The id in the path."""
        found: str = self.request.path_params["id"]
        return found

    @property
    def query(self) -> Mapping[str, str]:
        """What stands behind the question mark."""
        return self.request.query_params

    async def body(self) -> bytes:
        """The whole body; 413 as soon as it is too large."""
        return await self.desk.limits.body(self.request)

    async def json(self) -> Any:
        """What the body says, not nested too deeply."""
        return decode(await self.body(), self.desk.settings.max_depth)

    async def members(self) -> dict[str, Any]:
        """The members of the object that the body is."""
        said = await self.json()
        if not isinstance(said, dict):
            raise Problem(422, "the body is no object", remedy='send an object: {"…": …}')
        return said
