"""The one thread that owns the brokers: calls queue, are made together, and commit at once.

The event loop decodes and waits; a call is a function of a broker that this thread makes. What
is waiting is drained, at most `MOST` calls a turn, made one after the other and committed in one
transaction, and only then do answers and notifications go back, in one step of the loop.
If a commit fails the core stops for good: what is on disk is found out by starting again.
A call that breaks off by a mistake of ours may have changed anything in memory, and nothing on
disk. So nothing of its turn is committed: the tenant's broker is made anew from the store,
the turn's calls are made once more, each with a commit of its own, and the one at fault
has the error for its answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from nearcast.broker.replies import Reply
from nearcast.broker.service import Service
from nearcast.errors import NearcastError, StoppedError, StoreError
from nearcast.server.house import House
from nearcast.server.logs import log
from nearcast.server.problems import busy, mistake, unavailable
from nearcast.server.standby import elsewhere
from nearcast.storage.sinks import News
from nearcast.storage.tables import LostError

__all__ = ["MOST", "Answer", "Call", "Core", "Joint", "Turn"]

#: Calls of one commit.
MOST = 512
_TRY_S = 0.25  # how often a server that stands by asks for the store
_AGAIN, _AGAIN_S = "it begins again from its store", 1.0


class Answer(NamedTuple):
    """What a call has come to: what its caller gets, and what others are told."""

    value: Any
    replies: tuple[Reply, ...] = ()


Call = Callable[[Service], Answer]


class Joint(Protocol):
    """A call of a kind of which many, one behind the other, take less time as one."""

    def __call__(self, broker: Service) -> Answer:
        """Make it alone."""

    def joined(self, broker: Service, others: Sequence[Any]) -> list[Answer] | None:
        """Make it and others of its kind behind it; None: nothing was done, each is made alone."""


@dataclass(eq=False, slots=True)
class _Job:
    tenant: str
    call: Call
    weight: int
    reads: bool
    future: asyncio.Future[Any]


@dataclass(slots=True)
class Turn:
    """What one round of the core has come to, committed."""

    done: list[tuple[_Job, Any]] = field(default_factory=list)
    replies: list[tuple[str, Reply]] = field(default_factory=list)
    """Behind the tenant."""
    changed: set[str] = field(default_factory=set)
    """Tenants of whom somebody asked for a change, or was told something."""
    anew: set[str] = field(default_factory=set)
    """Tenants whose broker has begun again from its store."""
    news: list[tuple[str, list[News]]] = field(default_factory=list)
    """What has become of tenants' sinks."""
    taken_s: dict[str, float] = field(default_factory=dict)
    """How long each tenant's part took."""
    calling_s: float = 0.0
    committing_s: float = 0.0


class _Broke:
    """A call that went wrong by a mistake of ours; nothing was changed."""


class _FailedError(Exception):
    """The store failed in the middle of a change."""

    def __init__(self, error: StoreError) -> None:
        self.error = error
        super().__init__(str(error))


_Made = Answer | _Broke | NearcastError


def _made(broker: Service, jobs: Sequence[_Job]) -> Iterator[_Made]:
    """Make calls, each with its answer or what it was refused for."""
    for kind, some in groupby(jobs, _kind):
        its = [*some]
        if kind is not None and len(its) > 1:
            calls: list[Any] = [job.call for job in its]
            together: list[Answer] | None
            try:
                together = calls[0].joined(broker, calls[1:])
            except StoreError as error:
                if not all(job.reads for job in its):
                    raise _FailedError(error) from None
                yield from [error] * len(its)
                continue
            if together is not None:
                yield from together
                continue
        for job in its:
            try:
                yield job.call(broker)
            except StoreError as error:
                if not job.reads:
                    raise _FailedError(error) from None
                yield error
            except NearcastError as error:
                yield error
            except Exception as error:
                if not job.reads:
                    raise
                log.error("mistake", where="in a look", tenant=job.tenant, exc_info=error)
                yield _Broke()


def _advanced(broker: Service) -> Reply:
    """What time brings."""
    try:
        return broker.advance()
    except StoreError as error:
        raise _FailedError(error) from None


def _kind(job: _Job) -> type | None:
    """What it may be made together with; None: nothing."""
    return type(job.call) if hasattr(job.call, "joined") else None


class Core:
    """The thread, its queue, and how full that is.

    `released` is called in the loop with every `Turn`; `failed` once, with what stopped it;
    `taken` when it has become the one that writes to a store that others have, too.
    """

    def __init__(
        self, house: House, *, released: Callable[[Turn], None],
        failed: Callable[[BaseException], None], taken: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.house = house
        self._settings = house.settings
        self._released = released
        self._failed = failed
        self._taken = taken
        self.served_at = ""
        """Where others may ask this server."""
        self.standing_by = False
        """Whether another server writes, and this one only looks on."""
        self._taking = False
        """Whether it loads what the other one has written: looks wait for that."""
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="nearcast-core", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Future[None] | None = None
        self._stopped: asyncio.Future[None] | None = None
        self.why: str | None = "it is starting"
        """Why it does not answer; None while it does."""
        self.broken = False
        """Whether it has stopped by itself."""
        self.waiting = 0
        """The weight of what was given to it and is not answered."""
        self._waiting_of: dict[str, int] = {}
        """The same of each tenant."""
        self.calls = 0
        """How many calls that are."""
        self.mistakes = 0
        """How often a broker had to begin again from its store."""
        self._unit_s = 2e-4
        """What one unit of weight took lately, without the commit …"""
        self._commit_s = 2e-3
        """… and what a commit took."""
        self._ended = False
        self._pausing: asyncio.TimerHandle | None = None

    # -- in the loop -----------------------------------------------------------------

    async def start(self) -> None:
        """Begin; returns at once, `ready` tells when it answers."""
        self._loop = asyncio.get_running_loop()
        self._ready, self._stopped = self._loop.create_future(), self._loop.create_future()
        self._thread.start()

    async def ready(self) -> None:
        """Return when it answers; raises what kept it from that."""
        assert self._ready is not None
        await asyncio.shield(self._ready)

    @property
    def ended(self) -> bool:
        """Whether it was asked to stop."""
        return self._ended

    @property
    def expected_s(self) -> float:
        """How long what waits will take."""
        turns = -(-self.calls // MOST)
        return self.waiting * self._unit_s + turns * self._commit_s

    def waiting_of(self, tenant: str) -> int:
        """The weight of what one tenant waits for."""
        return self._waiting_of.get(tenant, 0)

    def submit(
        self, tenant: str, call: Call, *, weight: int = 1, reads: bool = False
    ) -> asyncio.Future[Any]:
        """Have a call made; its value comes after the commit. Refused if too much is waiting.

        `reads` says that it changes nothing: then a mistake in it stops nobody else.
        """
        self._check(reads)
        if self.calls and (
            self.expected_s > self._settings.queue_s or self.calls >= self._settings.queue_calls
        ):
            raise busy(
                f"{self.calls} calls are waiting, which takes about {self.expected_s:.1f} s",
                self.expected_s,
            )
        share = self._settings.tenant_share
        mine = self._waiting_of.get(tenant, 0) * self._unit_s
        if share < 1 and mine > self._settings.queue_s * share:
            raise busy(f"calls of this tenant are waiting, which takes about {mine:.1f} s", mine)
        return self._put(tenant, call, weight, reads)

    def look(self, tenant: str, call: Call) -> asyncio.Future[Any]:
        """The same for a stream, which has one at a time and waits however long it takes."""
        self._check(True)
        return self._put(tenant, call, 1, True)

    def note(self, tenant: str, call: Call, *, weight: int = 1) -> asyncio.Future[Any]:
        """The same for what changes something, of the server's own accord, one at a time."""
        self._check()
        return self._put(tenant, call, weight, False)

    def _check(self, reads: bool = False) -> None:
        if self.standing_by:
            if not reads:
                shared = self.house.shared
                raise elsewhere(None if shared is None else shared.writer)
        elif self.why is not None and not (reads and self._taking):
            raise unavailable(self.why)

    def _put(self, tenant: str, call: Call, weight: int, reads: bool) -> asyncio.Future[Any]:
        assert self._loop is not None
        future: asyncio.Future[Any] = self._loop.create_future()
        self.waiting += weight
        self._waiting_of[tenant] = self._waiting_of.get(tenant, 0) + weight
        self.calls += 1
        self._queue.put(_Job(tenant, call, weight, reads, future))
        return future

    async def stop(self) -> None:
        """Make what is waiting, then close the store. Twice is harmless."""
        if self._stopped is None:
            return
        if not self._ended:
            self._ended = True
            if self.why is None:
                self.why = "it is stopping"
            self._queue.put(None)
        await asyncio.shield(self._stopped)
        self._thread.join()

    def _release(self, turn: Turn) -> None:
        weight = sum(job.weight for job, _ in turn.done)
        if weight:
            # A turn counts for as much as it did, for a call alone takes longer than among many.
            # But if even that takes less than was thought, what was thought is over.
            taken = turn.calling_s / weight
            share = weight / (weight + 256) if taken > self._unit_s else 0.5
            self._unit_s += share * (taken - self._unit_s)
            self._commit_s += 0.1 * (turn.committing_s - self._commit_s)
        self.waiting -= weight
        self.calls -= len(turn.done)
        for job, _ in turn.done:
            self._waiting_of[job.tenant] -= job.weight
        try:
            self._released(turn)
        except Exception:  # what was told is on disk; whoever waits for an answer gets it
            log.exception("mistake", where="after a commit")
        for job, value in turn.done:
            if job.future.done():
                continue  # whoever asked has gone
            if isinstance(value, Answer):
                job.future.set_result(value.value)
            else:
                job.future.set_exception(mistake() if isinstance(value, _Broke) else value)

    def _break(self, error: BaseException) -> None:
        first, self.broken = not self.broken, True
        self._taking = False
        self.why = f"its store failed ({error})"
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # nobody may be waiting
        if first:
            self._failed(error)

    # -- in the thread ---------------------------------------------------------------

    def post(self, call: Callable[..., None], *of: Any) -> None:
        """Have something done in the loop, from whatever thread."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is over, and so is everything else
            self._loop.call_soon_threadsafe(call, *of)

    def _run(self) -> None:
        try:
            if not self._wait():
                return
            self.house.move_in()
            self._turn([], tick=True)
            self.post(self._answering)
            self._rounds()
        except BaseException as error:
            self.post(self._break, error)
            self._refuse_all(error)
        finally:
            try:
                self.house.close()
            finally:
                self.post(self._over)

    def _wait(self) -> bool:
        """Until the store is there to be written to; False: it is to stop before that."""
        while not self._take():
            if not self.standing_by:
                self.post(self._stand_by)
            until = perf_counter() + _TRY_S
            while (left := until - perf_counter()) > 0:
                try:
                    job = self._queue.get(timeout=left)
                except Empty:
                    break
                if job is None:
                    return False
                self._look_on(job)
        self.post(self._stand_up)
        return True

    def _take(self) -> bool:
        try:
            return self.house.take(self.served_at)
        except LostError as error:
            log.warning("the store is out of reach", error=str(error))
            assert self.house.shared is not None
            self.house.shared.leave()
            return False

    def _look_on(self, job: _Job) -> None:
        """One look at what another server writes."""
        shared = self.house.shared
        assert shared is not None
        made: _Made
        try:
            made = shared.look(job.tenant, job.call)  # type: ignore[arg-type]
        except NearcastError as error:
            made = error
        except Exception as error:
            log.error("mistake", where="in a look", tenant=job.tenant, exc_info=error)
            made = _Broke()
        self.post(self._release, Turn(done=[(job, made)]))

    def _stand_by(self) -> None:
        self.standing_by = True
        shared = self.house.shared
        assert shared is not None
        self.why = f"it stands by, and {shared.writer or 'another server'} writes"
        log.info("standing by", writer=shared.writer)

    def _stand_up(self) -> None:
        if self.standing_by:
            self.standing_by, self._taking = False, True
            self.why = "it takes over"
            log.info("taking over")

    def _answering(self) -> None:
        assert self._ready is not None
        self.why, self._taking = None, False
        self._taken()
        if not self._ready.done():
            self._ready.set_result(None)

    def _loading(self) -> None:
        """Calls wait meanwhile; if it takes long they are refused."""
        assert self._loop is not None
        self._pausing = self._loop.call_later(_AGAIN_S, self._pause)

    def _pause(self) -> None:
        if self.why is None:
            self.why = _AGAIN

    def _loaded(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()
        if self.why == _AGAIN:
            self.why = None

    def _over(self) -> None:
        assert self._stopped is not None
        if self.why is None:
            self.why = "it has stopped"
        self._refuse_all(StoppedError(self.why))
        if not self._stopped.done():
            self._stopped.set_result(None)

    def _rounds(self) -> None:
        tick = self._settings.tick_s
        due = perf_counter() + tick
        ending = False
        while not ending:
            jobs: list[_Job] = []
            try:
                job = self._queue.get(timeout=max(0.0, due - perf_counter()))
                while True:
                    if job is None:
                        ending = True
                    else:
                        jobs.append(job)
                    if len(jobs) >= MOST:
                        break
                    job = self._queue.get_nowait()
            except Empty:
                pass
            now = perf_counter()
            ticking = now >= due
            if ticking:
                due = now + tick
            if jobs or ticking:
                try:
                    self._turn(jobs, ticking)
                except BaseException as error:
                    self.post(self._refuse, jobs, error)
                    raise

    def _turn(self, jobs: list[_Job], tick: bool) -> None:
        turn = Turn()
        by_tenant: dict[str, list[_Job]] = {}
        for job in jobs:
            by_tenant.setdefault(job.tenant, []).append(job)
        if tick:
            for tenant in self.house.brokers():
                by_tenant.setdefault(tenant, [])
        for tenant, its in by_tenant.items():
            self._turn_of(tenant, its, tick, turn)
        self.post(self._release, turn)

    def _turn_of(self, tenant: str, jobs: list[_Job], tick: bool, turn: Turn) -> None:
        """One tenant's calls and one commit; after a mistake a commit for each of them."""
        try:
            self._make(tenant, jobs, tick, turn)
        except StoreError:
            raise
        except Exception as error:
            self._begin_again(tenant, error, turn)
        else:
            return
        if tick:  # if time itself cannot go on, nothing can
            self._make(tenant, [], tick, turn)
        for job in jobs:
            try:
                self._make(tenant, [job], False, turn)
            except StoreError:
                raise
            except Exception as error:
                self._begin_again(tenant, error, turn)
                turn.done.append((job, _Broke()))

    def _begin_again(self, tenant: str, error: Exception, turn: Turn) -> None:
        """Nobody knows what a mistake has left in memory: go on with what is on disk."""
        self.mistakes += 1
        turn.anew.add(tenant)
        log.error("mistake", where="in a call", tenant=tenant, exc_info=error)
        error.__traceback__ = None  # it holds the broker that is to go
        self.post(self._loading)
        self.house.begin_again(tenant)
        self.post(self._loaded)

    def _make(self, tenant: str, jobs: list[_Job], tick: bool, turn: Turn) -> None:
        """Make calls, and commit them."""
        broker = self.house.broker(tenant)
        began = perf_counter()
        made = began

        def make() -> list[_Made]:
            nonlocal made
            answers = [*_made(broker, jobs)]
            if not all(job.reads for job in jobs):  # some stage nothing, and are answered
                self.house.ask()
            made = perf_counter()
            return answers

        calls = [make]
        if tick:
            calls.insert(0, lambda: [Answer(None, (_advanced(broker),))])
        try:
            *advanced, answers = broker.together(calls)
        except _FailedError as failed:
            raise failed.error from None
        assert not isinstance(answers, NearcastError)  # each call has its own
        for each in advanced:
            for first in () if isinstance(each, NearcastError) else each:
                assert isinstance(first, Answer)
                turn.replies += ((tenant, reply) for reply in first.replies)
                if any(first.replies):
                    turn.changed.add(tenant)
        ended = perf_counter()
        news = self.house.sinks(tenant).news()
        if news:
            turn.news.append((tenant, news))
        turn.taken_s[tenant] = turn.taken_s.get(tenant, 0.0) + ended - began
        turn.calling_s += made - began
        turn.committing_s += ended - made
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Answer):
                for reply in answer.replies:
                    turn.replies.append((tenant, reply))
            if not job.reads:
                turn.changed.add(tenant)
            turn.done.append((job, answer))

    def _refuse(self, jobs: list[_Job], error: BaseException) -> None:
        """In the loop: nobody knows what these have come to."""
        for job in jobs:
            self.waiting -= job.weight
            self._waiting_of[job.tenant] -= job.weight
            self.calls -= 1
            if not job.future.done():
                said = error if isinstance(error, NearcastError) else StoppedError(str(error))
                job.future.set_exception(said)

    def _refuse_all(self, error: BaseException) -> None:
        """Nothing that still waits is made."""
        jobs: list[_Job] = []
        try:
            while True:
                job = self._queue.get_nowait()
                if job is not None:
                    jobs.append(job)
        except Empty:
            self.post(self._refuse, jobs, error)
