"""Following a subscriber's notifications: from the tail while that reaches, else from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from nearcast.broker.service import Service
from nearcast.mobility.safe_region import SafeRegion
from nearcast.server.core import Answer
from nearcast.server.desk import Desk, Page
from nearcast.server.feeds import Who
from nearcast.server.wire import fitting

__all__ = ["FRAME", "MOST", "Reader"]

#: Notifications of one frame or write, and its bytes unless one alone has more.
MOST, FRAME = 256, 16_384


class Reader:
    """One connection's way through an outbox; used as a context manager, one task at a time.

    `after` is the number behind which it begins, by default what is acknowledged. Everything after
    it comes once and in order; what is beyond retention comes as a count (`Page.lost`).
    """

    def __init__(self, desk: Desk, who: Who, after: int | None, transport: str) -> None:
        self._desk = desk
        self._who = who
        self._behind = True
        self._idle = False
        self._listener = desk.feeds.listen(who)
        self._listener.at, self._listener.transport = after, transport

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._desk.feeds.leave(self._listener)

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self._who.tenant

    @property
    def ended(self) -> bool:
        """Whether the server stops."""
        return self._desk.feeds.ended

    async def start(self) -> int:
        """The number behind which it begins."""
        if self._listener.at is None:
            self._listener.at = await self._desk.core.look(self._who.tenant, self._cursor)
        return self._listener.at

    def _cursor(self, broker: Service) -> Answer:
        return Answer(broker.reading.cursor(self._who.subscriber))

    @property
    def stirred(self) -> bool:
        """Whether something has come since the last page."""
        return self._behind or self._listener.woken.is_set()

    def stir(self) -> None:
        """There may be something: have `woken` return."""
        self._listener.woken.set()

    async def woken(self, patience_s: float | None = None) -> None:
        """Return when there may be something, or after a while."""
        if self._behind or self.ended:
            return
        if patience_s is None:  # a timeout costs as much as the rest of a turn
            self._idle = True
            try:
                await self._listener.woken.wait()
            finally:
                self._idle = False
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._listener.woken.wait()

    def taking(self, takes: Callable[[], bool]) -> None:
        """Have this called as soon as something comes; see `Listener.takes`."""
        self._listener.takes = takes

    @property
    def idle(self) -> bool:
        """Whether nobody is in the midst of what came before, and all of that was in the tail."""
        return self._idle and not self._behind

    def at_hand(self) -> Page | None:
        """What comes next, if that is in the tail; `took` says that it was sent."""
        assert self._listener.at is not None
        if self._listener.missed:
            self._listener.missed, self._behind = False, True
            return None
        feed = self._listener.feed
        found = feed.after(self._listener.at, MOST)
        if not found:
            self._behind = found is None
            return None
        if feed.size > FRAME:
            found = fitting(found, FRAME)
        return Page(found, self._listener.at + len(found))

    def took(self, page: Page) -> None:
        """A page of the tail is on its way."""
        self._listener.at = page.next
        if page.next < self._listener.feed.last:  # there is more at once
            self._listener.woken.set()

    async def page(self) -> Page | None:
        """What comes next; None if there is nothing at the moment."""
        self._listener.woken.clear()
        at = await self.start()
        if not self._behind:
            found = self.at_hand()
            if found is not None:
                self.took(found)
            if not self._behind:
                return found
        page = await self._desk.page(self._who, at, MOST, FRAME, streams=True)
        self._behind = bool(page.texts)  # until there is nothing more, for pages are cut
        self._listener.at = page.next
        return page if page.texts or page.lost else None

    @property
    def moves(self) -> bool:
        """Whether there is something for a mover."""
        return self._listener.region is not None or self._listener.request is not None

    def region(self) -> SafeRegion | None:
        """The newest safe region, once."""
        region, self._listener.region = self._listener.region, None
        return region

    def request(self) -> int | None:
        """A location request, once: report with a number above this."""
        request, self._listener.request = self._listener.request, None
        return request

    def keep(self, region: SafeRegion | None, request: int | None) -> None:
        """These could not be sent after all."""
        listener = self._listener
        if listener.region is None and listener.request is None:
            listener.region, listener.request = region, request
