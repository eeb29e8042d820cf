"""`AsyncClient`: a server's verbs, to be awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from nearcast.client import retries
from nearcast.client.answers import Told
from nearcast.client.calls import Call, Calls
from nearcast.client.connection import KINDS, TIMEOUT_S, headers_of, in_batches, store_call
from nearcast.client.phone import AsyncPhone
from nearcast.client.publisher import AsyncPublisher
from nearcast.client.sending import sent
from nearcast.errors import BatchError, UnknownIdError
from nearcast.model.fences import Fence
from nearcast.model.geometry import Space
from nearcast.model.subscriptions import Subscription

__all__ = ["AsyncClient"]

P = ParamSpec("P")
T = TypeVar("T")


def _verb(
    verb: Callable[Concatenate[Calls, P], Call[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The verb that sends a call, and whose answer is awaited."""

    @wraps(verb)
    async def awaited(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._send(verb(self._calls, *args, **kwargs))

    return awaited


class AsyncClient:
    """As `nearcast.client.Client`, for asyncio: verbs are awaited, and so are notifications.

    Made anywhere, used from one event loop.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8642", key: str | None = None, *,
        space: Space = "globe", patience_s: float = retries.PATIENCE_S,
    ) -> None:  # fmt: skip
        self.url = url.rstrip("/")
        self._headers = headers_of(key)
        self._calls = Calls(space)
        self._patience_s = patience_s
        self._http = httpx2.AsyncClient(
            base_url=f"{self.url}/v1", headers=self._headers, timeout=TIMEOUT_S
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of its connections."""
        await self._http.aclose()

    subscribe = _verb(Calls.subscribe)
    detect = _verb(Calls.detect)
    preview = _verb(Calls.preview)
    publish = _verb(Calls.publish)
    publish_many = _verb(Calls.publish_many)
    retract = _verb(Calls.retract)
    events = _verb(Calls.events)
    log = _verb(Calls.log)
    move = _verb(Calls.move)
    page = _verb(Calls.page)
    ack = _verb(Calls.ack)
    check = _verb(Calls.check)
    explain = _verb(Calls.explain)
    things = _verb(Calls.things)
    composites = _verb(Calls.composites)
    live = _verb(Calls.live)
    _remove = _verb(Calls.remove)
    _stand = _verb(Calls.stand)
    _subscribe_batch = _verb(Calls.subscribe_batch)

    async def subscribe_many(self, subscriptions: Iterable[Subscription | Fence]) -> None:
        """`subscribe` for many, by requests of a thousand; a BatchError names the bad row.

        All of one request or none: what came before it is there, and is no harm to send again.
        """
        for first, some in in_batches(subscriptions):
            try:
                await self._subscribe_batch(some)
            except BatchError as error:
                raise BatchError(first + error.row, error.cause) from error

    async def store(self) -> str | None:
        """A name of the store that the server writes to: another store has another one.

        None: the server is of a release that does not say so.
        """
        return await self._send(store_call(self.url))

    async def unsubscribe(self, id: str) -> None:
        """End a subscription, a fence or a composite; raises UnknownIdError."""
        unknown: UnknownIdError | None = None
        lost = False
        for kind in KINDS:
            try:
                if await self._remove(id, kind):
                    return
                lost = True  # and it may have been of another kind all the same
            except UnknownIdError as error:
                unknown = error
        if unknown is not None and not lost:
            raise unknown

    async def pause(self, id: str) -> None:
        """Be told nothing of a subscription, a fence or a composite; raises UnknownIdError."""
        await self._stands(id, "pause")

    async def resume(self, id: str) -> None:
        """Be told again, and of what was kept; raises UnknownIdError."""
        await self._stands(id, "resume")

    async def _stands(self, id: str, how: str) -> None:
        *others, last = KINDS
        for kind in others:
            with suppress(UnknownIdError):
                return await self._stand(id, how, kind)
        return await self._stand(id, how, last)

    async def notifications(
        self, subscriber: str, after: int | None = None, follow: bool = False,
        limit: int = 1000, wait_s: float = 20.0,
    ) -> AsyncIterator[Told]:  # fmt: skip
        """What a subscriber was told, in order: what there is, or with `follow` without an end."""
        while True:
            page = await self.page(subscriber, after, limit, wait_s if follow else 0.0)
            for told in page.told(self.ack):
                yield told
            after = page.next
            if not page.notifications and not follow:
                return

    def phone(self, subscriber: str, after: int | None = None) -> AsyncPhone:
        """A connection over which a subscriber moves, holds its safe region and is told."""
        return AsyncPhone(self.url, self._headers, self._calls, subscriber, after, self._patience_s)

    def publisher(self, name: str) -> AsyncPublisher:
        """A publisher who moves, and keeps silent where nobody could tell the difference."""
        return AsyncPublisher(self.url, self._headers, self._calls, name, self._patience_s)

    async def _send(self, call: Call[T]) -> T:
        return await sent(self._http, call, self.url, self._patience_s)
