"""What every answer needs at hand: the core, the feeds, the keys, the bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from nearcast.broker.service import Service
from nearcast.server.auth import ANYBODY, Keyring, Principal, no_key
from nearcast.server.core import Answer, Call, Core, Turn
from nearcast.server.feeds import Feeds, Who
from nearcast.server.figures import Figures
from nearcast.server.house import House
from nearcast.server.limits import Limits
from nearcast.server.problems import Problem
from nearcast.server.settings import Settings
from nearcast.server.wire import Texts, check_depth, decode, encode, fitting

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
    metrics: Figures = field(default_factory=Figures, init=False)
    _changed: dict[str, asyncio.Event] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        keys = self.house.keys
        self.keyring = Keyring(() if keys is None else keys.all())
        self.feeds = Feeds(self.settings.tail_bytes)
        self.core = Core(self.house, released=self._released, failed=self._broke)
        self.limits = Limits(self.settings)

    def _released(self, turn: Turn) -> None:
        self.feeds.release(turn.replies)
        self.metrics.turned(turn)
        for tenant in turn.changed:
            waited = self._changed.pop(tenant, None)
            if waited is not None:
                waited.set()

    def changed(self, tenant: str) -> asyncio.Event:
        """Set as soon as something of a tenant has changed."""
        return self._changed.setdefault(tenant, asyncio.Event())

    def _broke(self, error: BaseException) -> None:
        self.end()
        self.failed(error)

    def end(self) -> None:
        """The server stops: whoever waits is let go."""
        self.feeds.end()
        for waited in self._changed.values():
            waited.set()

    # -- who asks --------------------------------------------------------------------

    def asks(self, connection: HTTPConnection) -> Principal | None:
        """Who is at the other end; None: somebody who has yet to show a key."""
        server = connection.scope.get("server")
        if server is not None and server[1] is None:
            return ANYBODY  # by the socket beside the store: whoever may open that owns the store
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

        `streams` wait, however much is to do.
        """

        def look(broker: Service) -> Answer:
            return Answer(broker.notifications(who.subscriber, after, limit, most_bytes))

        if streams:
            found = await self.core.look(who.tenant, look)
        else:
            found = await self.core.submit(who.tenant, look, reads=True)
        told = fitting(map(Texts().of, found.notifications), most_bytes)
        cut = len(told) < len(found.notifications)
        next = found.notifications[len(told) - 1].seq if cut else found.next
        assert next is not None
        return Page(told, next, found.lost)


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
        most = self.desk.settings.max_depth
        return check_depth(decode(await self.body(), most), most)

    async def members(self) -> dict[str, Any]:
        """The members of the object that the body is."""
        said = await self.json()
        if not isinstance(said, dict):
            raise Problem(422, "the body is no object", remedy='send an object: {"…": …}')
        return said
