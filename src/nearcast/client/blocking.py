"""`Client`: a server's verbs, each of which waits for its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx2

from nearcast.client import retries
from nearcast.client.answers import Told
from nearcast.client.calls import Call, Calls
from nearcast.client.connection import (
    KINDS,
    TIMEOUT_S,
    answer_of,
    headers_of,
    in_batches,
    request_of,
    store_call,
    unreachable,
)
from nearcast.client.phone import Phone
from nearcast.client.publisher import Publisher
from nearcast.errors import BatchError, UnknownIdError
from nearcast.model.fences import Fence
from nearcast.model.geometry import Space
from nearcast.model.subscriptions import Subscription

__all__ = ["Client"]

P = ParamSpec("P")
T = TypeVar("T")


def _verb(
    verb: Callable[Concatenate[Calls, P], Call[T]],
) -> Callable[Concatenate[Client, P], T]:
    """The verb that sends a call and waits for its answer."""

    @wraps(verb)
    def waiting(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._send(verb(self._calls, *args, **kwargs))

    return waiting


class Client:
    """Somebody who talks to a server: the broker's verbs over HTTP.

    `key` is an API key; `space` must be the server's. What fails for want of a connection, or
    because the server is busy or starting, is tried again for `patience_s` seconds; a server
    takes a repetition as such, so nothing happens twice. What is refused raises the error
    that the broker would raise. Threads may share one.

        with Client("http://127.0.0.1:8642") as client:
            client.subscribe(Subscription(id="s1", subscriber="ann", where="price < 3300"))
            for told in client.notifications("ann", follow=True):
                print(told.event.id)
                told.ack()
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8642", key: str | None = None, *,
        space: Space = "globe", patience_s: float = retries.PATIENCE_S,
    ) -> None:  # fmt: skip
        self.url = url.rstrip("/")
        self._headers = headers_of(key)
        self._calls = Calls(space)
        self._patience_s = patience_s
        self._http = httpx2.Client(
            base_url=f"{self.url}/v1", headers=self._headers, timeout=TIMEOUT_S
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of its connections."""
        self._http.close()

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

    def subscribe_many(self, subscriptions: Iterable[Subscription | Fence]) -> None:
        """`subscribe` for many, by requests of a thousand; a BatchError names the bad row.

        All of one request or none: what came before it is there, and is no harm to send again.
        """
        for first, some in in_batches(subscriptions):
            try:
                self._subscribe_batch(some)
            except BatchError as error:
                raise BatchError(first + error.row, error.cause) from error

    def store(self) -> str | None:
        """A name of the store that the server writes to: another store has another one.

        None: the server is of a release that does not say so.
        """
        return self._send(store_call(self.url))

    def unsubscribe(self, id: str) -> None:
        """End a subscription, a fence or a composite; raises UnknownIdError."""
        unknown: UnknownIdError | None = None
        lost = False
        for kind in KINDS:
            try:
                if self._remove(id, kind):
                    return
                lost = True  # and it may have been of another kind all the same
            except UnknownIdError as error:
                unknown = error
        if unknown is not None and not lost:
            raise unknown

    def pause(self, id: str) -> None:
        """Be told nothing of a subscription, a fence or a composite; raises UnknownIdError."""
        self._stands(id, "pause")

    def resume(self, id: str) -> None:
        """Be told again, and of what was kept; raises UnknownIdError."""
        self._stands(id, "resume")

    def _stands(self, id: str, how: str) -> None:
        *others, last = KINDS
        for kind in others:
            with suppress(UnknownIdError):
                return self._stand(id, how, kind)
        return self._stand(id, how, last)

    def notifications(
        self, subscriber: str, after: int | None = None, follow: bool = False,
        limit: int = 1000, wait_s: float = 20.0,
    ) -> Iterator[Told]:  # fmt: skip
        """What a subscriber was told, in order: what there is, or with `follow` without an end.

        It begins after a number, or after what was acknowledged. Connections that break are
        made again, from where they broke.
        """
        while True:
            page = self.page(subscriber, after, limit, wait_s if follow else 0.0)
            yield from page.told(self.ack)
            after = page.next
            if not page.notifications and not follow:
                return

    def phone(self, subscriber: str, after: int | None = None) -> Phone:
        """A connection over which a subscriber moves, holds its safe region and is told."""
        return Phone(self.url, self._headers, self._calls, subscriber, after, self._patience_s)

    def publisher(self, name: str) -> Publisher:
        """A publisher who moves, and keeps silent where nobody could tell the difference."""
        return Publisher(self.url, self._headers, self._calls, name, self._patience_s)

    def _send(self, call: Call[T]) -> T:
        waits = retries.delays(self._patience_s)
        lost = False
        while True:
            try:
                response = self._http.request(**request_of(call))
            except httpx2.TransportError as error:
                delay = next(waits, None)
                if delay is None:
                    raise unreachable(self.url, error) from error
                lost = True
            else:
                delay = retries.before(response.status_code, response.headers, waits)
                if delay is None:
                    return answer_of(call, response, lost)
                lost = lost or response.status_code in retries.LOST
            time.sleep(delay)
