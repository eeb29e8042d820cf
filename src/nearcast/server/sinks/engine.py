"""All sinks of a server: who is told of what, and what is entered when it has arrived.

It runs in the loop beside the connections and is woken by the core's turns, after their commits.
Cursors and dead letters are entered by calls of the core, at most one at a time for each tenant.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from nearcast.broker.ports import Page
from nearcast.broker.service import Service
from nearcast.errors import NearcastError
from nearcast.server.core import Answer, Core, Turn
from nearcast.server.house import House
from nearcast.server.logs import log
from nearcast.server.settings import Settings
from nearcast.server.sinks.addresses import Allowed, networks
from nearcast.server.sinks.circuit import Backoff
from nearcast.server.sinks.flights import Flights
from nearcast.server.sinks.ledger import Move, settle
from nearcast.server.sinks.names import Names
from nearcast.server.sinks.ports import Channel, Means, letter_id
from nearcast.server.sinks.protocols import PROTOCOLS
from nearcast.server.sinks.runner import Runner
from nearcast.server.wire import Texts
from nearcast.storage.letters import DeadLetter
from nearcast.storage.sinks import Closed, News, Opened, Routed, Sink

__all__ = ["RESULTS", "Box", "Engine"]

#: What is counted of a sink.
RESULTS = ("delivered", "failed", "retried", "dead", "lost")

#: How long what has arrived is collected before it is entered: after a crash so much is sent twice.
_COLLECT_S = 0.05
#: How often sinks that nothing went to are said to have everything.
_SWEEP_S = 1.0
_PAUSE_S = 1.0


class Box:
    """One subscriber's notifications, as far as they are sent somewhere."""

    def __init__(self, prefix: str, last: int) -> None:
        self.prefix = prefix
        """What ids of its letters begin with."""
        self.last = self.since = last
        """The number of the newest; after `since` they were seen as they were told."""
        self.own = 0
        """The last of those that goes to no sink."""
        self.runners: dict[int, Runner] = {}
        self.by_thing: dict[str, list[Runner]] = {}


class Engine:
    """One server's; in the loop only."""

    def __init__(
        self, settings: Settings, house: House, core: Callable[[], Core], *,
        means: Means | None = None, rng: random.Random | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._house = house
        self._core = core
        if means is None:
            allowed = Allowed(settings.sink_private, networks(settings.sink_allow))
            means = Means(settings, Names(allowed), identity=lambda: house.identity)
        self.means = means
        self.backoff = Backoff(
            settings.sink_backoff_s, settings.sink_backoff_max_s, rng or random.Random()
        )
        self.flights = Flights(settings.sink_flights)
        self._boxes: dict[tuple[str, str], Box] = {}
        self._runners: dict[tuple[str, int], Runner] = {}
        self._closed: Counter[tuple[str, str]] = Counter()
        """What sinks did that are there no more."""
        self._touched: set[Box] = set()
        self._dirty: dict[str, set[Runner]] = {}
        self._entering: dict[str, asyncio.Task[None]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    def __len__(self) -> int:
        return len(self._runners)

    def runner(self, tenant: str, number: int) -> Runner | None:
        """Who serves a sink."""
        return self._runners.get((tenant, number))

    def runners(self) -> list[Runner]:
        """All."""
        return [*self._runners.values()]

    def totals(self) -> Counter[tuple[str, str]]:
        """What became of notifications, by protocol and result, since the server began."""
        found = Counter(self._closed)
        for runner in self._runners.values():
            found.update(_counted(runner))
        return found

    def time(self) -> float:
        """The loop's."""
        return asyncio.get_running_loop().time()

    def task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Something that goes on beside; what breaks it is told."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("mistake", where="in the sinks", exc_info=task.exception())

    # -- what the core has done ----------------------------------------------------

    def released(self, turn: Turn) -> None:
        """A turn of the core is committed."""
        if self._ended:
            return
        for tenant, news in turn.news:
            for each in news:
                self._hear(tenant, each)
        if not self._boxes:
            return
        texts = Texts()
        boxes, touched = self._boxes, self._touched
        for tenant, reply in turn.replies:
            for told in reply:
                box = boxes.get((tenant, told.subscriber or ""))
                if box is None or told.seq is None or told.seq <= box.last:
                    continue
                box.last = told.seq
                touched.add(box)
                goes = False
                for runner in box.by_thing.get(told.subscription_id, ()):
                    if runner.wants(told):
                        goes = True
                        runner.see(told, texts)
                if not goes:
                    box.own = told.seq
        if touched and self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(_SWEEP_S, self._sweep)

    def _hear(self, tenant: str, news: News) -> None:
        if isinstance(news, Opened):
            self._open(tenant, news)
            return
        runner = self._runners.get((tenant, news.number))
        if runner is None:
            return
        if isinstance(news, Routed):
            self._route(runner, news)
        elif isinstance(news, Closed):
            self._close(runner)
        else:
            runner.switch(news.disabled, news.replays)

    def _open(self, tenant: str, opened: Opened) -> None:
        sink = opened.sink
        box = self._boxes.get((tenant, sink.subscriber))
        if box is None:
            prefix = letter_id(self.means.identity(), tenant, sink.subscriber)
            box = self._boxes[tenant, sink.subscriber] = Box(prefix, opened.last)
        runner = Runner(self, tenant, box, opened)
        self._runners[tenant, sink.number] = box.runners[sink.number] = runner
        asyncio.get_running_loop().call_soon(runner.start)  # when it knows what goes there

    def _route(self, runner: Runner, news: Routed) -> None:
        those = runner.box.by_thing.setdefault(news.thing, [])
        if news.span is not None:
            runner.spans[news.thing] = news.span
            if runner not in those:
                those.append(runner)
            return
        runner.spans.pop(news.thing, None)
        if runner in those:
            those.remove(runner)
        if not those:
            del runner.box.by_thing[news.thing]

    def _close(self, runner: Runner) -> None:
        sink, box = runner.sink, runner.box
        del self._runners[runner.tenant, sink.number], box.runners[sink.number]
        for those in box.by_thing.values():
            if runner in those:
                those.remove(runner)
        self._closed.update(_counted(runner))
        if not box.runners:
            del self._boxes[runner.tenant, sink.subscriber]
            self._touched.discard(box)
        self.task(runner.close())

    def _sweep(self) -> None:
        """Sinks that nothing went to lately are past it, too."""
        self._sweeping = None
        touched, self._touched = self._touched, set()
        for box in touched:
            for runner in box.runners.values():
                self.dirty(runner)

    # -- what the core is asked for -------------------------------------------------

    def open(self, sink: Sink, tenant: str) -> Channel:
        """The way to a tenant's sink."""
        return PROTOCOLS[sink.protocol].open(sink, self.means, tenant)

    async def page(self, runner: Runner, after: int, limit: int, most_bytes: int) -> Page:
        """What comes next in a subscriber's outbox."""

        def look(broker: Service) -> Answer:
            return Answer(broker.notifications(runner.sink.subscriber, after, limit, most_bytes))

        found: Page = await self._core().look(runner.tenant, look)
        return found

    async def replayed(self, runner: Runner, limit: int) -> list[DeadLetter]:
        """Dead letters that wait for a sink once more."""

        def look(_: Service) -> Answer:
            letters = self._house.letters(runner.tenant)
            return Answer(letters.replayed(runner.sink.number, 0, limit))

        found: list[DeadLetter] = await self._core().look(runner.tenant, look)
        return found

    def disable(self, runner: Runner, why: str) -> None:
        """A sink wants nothing any more."""
        runner.disabled = why
        log.warning("a sink is disabled", tenant=runner.tenant, sink=runner.sink.number, why=why)

        def call(_: Service) -> Answer:
            self._house.sinks(runner.tenant).disable(runner.sink.number, why)
            return Answer(None)

        self.task(self._noted(runner.tenant, call))

    def dirty(self, runner: Runner) -> None:
        """Something of a sink has to be entered."""
        if self._ended:
            return
        self._dirty.setdefault(runner.tenant, set()).add(runner)
        if runner.tenant not in self._entering:
            self._entering[runner.tenant] = self.task(self._enter(runner.tenant))

    async def _enter(self, tenant: str) -> None:
        try:
            while self._dirty.get(tenant):
                await asyncio.sleep(_COLLECT_S)
                found = [(each, each.move()) for each in self._dirty.pop(tenant, ())]
                moved = [(runner, move) for runner, move in found if move is not None]
                if moved:
                    await self._settled(tenant, [move for _, move in moved])
                    for runner, move in moved:
                        runner.entered(move)
        finally:
            del self._entering[tenant]

    async def _settled(self, tenant: str, moves: list[Move]) -> None:
        await self._noted(tenant, lambda broker: settle(self._house, tenant, moves, broker))

    async def _noted(self, tenant: str, call: Callable[[Service], Answer]) -> None:
        """Have something entered, however long the core does not answer; once."""
        while True:
            try:
                await self._core().note(tenant, call)
            except NearcastError as error:
                if self._ended or self._core().broken:
                    raise
                log.warning("sinks wait for the core", error=str(error))
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    # -- the end -------------------------------------------------------------------

    async def end(self) -> None:
        """Send no more, and enter what has arrived."""
        self._ended = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        await asyncio.gather(*(each.close() for each in self._runners.values()))
        await asyncio.gather(*(each.close() for each in self.means.shared.values()))
        for tenant in [*self._entering]:
            self._entering[tenant].cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._core().why is not None:
            return
        for tenant in {tenant for tenant, _ in self._runners}:
            mine = [r for (whose, _), r in self._runners.items() if whose == tenant]
            moves = [move for move in (each.move() for each in mine) if move is not None]
            if moves:
                try:
                    await self._settled(tenant, moves)
                except NearcastError as error:
                    log.warning("sinks not entered", error=str(error))


def _counted(runner: Runner) -> dict[tuple[str, str], int]:
    return {(runner.sink.protocol, result): getattr(runner, result) for result in RESULTS}
