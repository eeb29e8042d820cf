"""One sink: what waits for it, what is on its way, what is tried again and when.

Letters come from the core's turns while it keeps up, and from the store when it does not: no more
than `sink_queue` are in memory. A task is there only while there is something to do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from nearcast.broker.replies import Notification
from nearcast.clock import format_micros, to_micros
from nearcast.errors import NearcastError
from nearcast.server.logs import log
from nearcast.server.sinks.circuit import Circuit
from nearcast.server.sinks.flights import Standing
from nearcast.server.sinks.ledger import Move
from nearcast.server.sinks.ports import Channel, Letter, Outcome, retry
from nearcast.server.wire import Texts
from nearcast.storage.sinks import Opened, Span

if TYPE_CHECKING:
    from nearcast.server.sinks.engine import Box, Engine

__all__ = ["Runner"]

_PAGE, _PAGE_BYTES = 256, 1 << 20
_REPLAYS = 100
_LOOK_S = 60.0  # where nothing is due: how often a sink that does not work is thought of
_PAUSE_S = 1.0  # when the core does not answer
_PROMPT_S = 1.0  # who takes a notification within this is no trouble to others
_order = count()


class Runner:
    """A sink's; in the loop only."""

    def __init__(self, engine: Engine, tenant: str, box: Box, opened: Opened) -> None:
        self._engine = engine
        self.tenant = tenant
        self.box = box
        self.sink = opened.sink
        self.disabled = opened.disabled
        self.spans: dict[str, Span] = {}
        """What of which thing goes here."""
        settings = engine.settings
        self._most = settings.sink_queue
        self._attempts = settings.sink_attempts
        self.circuit = Circuit(engine.backoff, settings.sink_circuit)
        self._read = opened.upto
        """What goes here up to this number was taken into the line, or is behind it."""
        self._behind = opened.upto < box.last
        """There may be more than was taken: the store knows."""
        self._line: deque[Letter] = deque()
        """What is not settled, by number, and what is settled behind that."""
        self._digest: list[tuple[Notification, bytes]] = []
        """What was taken of a digest whose last has not come yet."""
        self._queue: deque[Letter] = deque()
        self._again: list[tuple[float, tuple[int, int], Letter]] = []
        """What is tried again, by when; where order is kept by number, and `_rests` says when."""
        self._rests = 0.0
        self._replays: deque[Letter] = deque()
        self._asked = opened.replays
        """Somebody asks for dead letters to be sent once more."""
        self._in_hand: set[int] = set()
        """Numbers of those that were taken and are not entered yet."""
        self._flights: set[asyncio.Task[None]] = set()
        self._flying = 0
        self._dead: list[Letter] = []
        self._burying = 0
        """Dead letters that are not on disk yet."""
        self._resent: list[int] = []
        self._unsent: list[Letter] = []
        self._entered = opened.upto
        """The cursor that the core was told last."""
        self._channel: Channel | None = None
        self._begun = False
        self._prompt = False
        """Whether what arrived last did so at once."""
        self._task: asyncio.Task[None] | None = None
        self._stirred = asyncio.Event()
        self._over = False
        self.why: str | None = None
        """What was wrong last."""
        self.delivered = self.failed = self.retried = self.dead = self.lost = 0

    # -- what comes ----------------------------------------------------------------

    def see(self, told: Notification, texts: Texts) -> None:
        """A notification that goes here; they come in the order of their numbers."""
        seq = told.seq or 0
        if self._behind or seq <= self._read:
            return
        if len(self._line) >= self._most:
            self._read, self._behind = seq - 1, True
            return
        self._take(told, texts)
        self.stir()

    def wants(self, told: Notification) -> bool:
        """Whether a notification goes here."""
        span = self.spans.get(told.subscription_id)
        return span is not None and span.covers(told.seq or 0)

    def _take(self, told: Notification, texts: Texts) -> None:
        seq, text = told.seq or 0, texts.of(told)
        self._read = seq
        if self._digest and not _goes_on(self._digest[-1][0], told):
            self._bind()  # its rest is beyond retention
        if told.digest is not None:
            self._digest.append((told, text))
            if not told.digest:
                self._bind()
            return
        self._enter(Letter(self._name(seq, told.at), seq, told.subscription_id, told.at, text))

    def _bind(self) -> None:
        """Send what there is of a digest as one."""
        digest, self._digest = self._digest, []
        (first, _), (last, _) = digest[0], digest[-1]
        seq = last.seq or 0
        page = b'{"notifications":[%b],"next":%d}' % (b",".join(text for _, text in digest), seq)
        of = Letter(self._name(seq, last.at), seq, last.subscription_id, last.at, page)
        of.first = first.seq or 0
        self._enter(of)

    def _name(self, seq: int, at: int) -> str:
        # A store that was put back tells other things under the same numbers, but not at that time.
        return f"{self.box.prefix}{at:x}_{seq}"

    def _enter(self, letter: Letter) -> None:
        self._line.append(letter)
        self._queue.append(letter)

    def switch(self, disabled: str | None, replays: bool) -> None:
        """It is disabled or not, or is asked to try again."""
        self.disabled = disabled
        if disabled is None:
            self.circuit.again()
            self._rests = 0.0
            self._again = [(0.0, order, letter) for _, order, letter in self._again]
        self._asked = self._asked or replays
        self.stir()

    @property
    def upto(self) -> int:
        """The number up to which everything is settled."""
        if self._line:
            return self._line[0].before
        if self._digest:
            return (self._digest[0][0].seq or 1) - 1
        return self._read if self._behind else max(self._read, self.box.last)

    @property
    def waiting(self) -> int:
        """About how many notifications it has not been given yet: more than go here, if it is
        behind."""
        ahead = max(0, self.box.last - self._read) if self._behind else 0
        return sum(not letter.settled for letter in self._line) + ahead

    def state(self) -> str:
        """What its circuit is like."""
        return "disabled" if self.disabled else self.circuit.state(self._engine.time())

    def move(self) -> Move | None:
        """What has to be entered; None if there is nothing."""
        upto = self.upto
        if upto == self._entered and not (self._dead or self._resent or self._unsent):
            return None
        box = self.box
        move = Move(self.sink, upto, box.since, box.own, self._dead, self._resent, self._unsent)
        self._dead, self._resent, self._unsent = [], [], []
        return move

    def entered(self, move: Move) -> None:
        """That is on disk."""
        self._entered = max(self._entered, move.upto)
        self._burying -= len(move.dead)
        self._stirred.set()
        self._in_hand.difference_update(move.resent)
        self._in_hand.difference_update(each.number or 0 for each in move.unsent)

    # -- at work -------------------------------------------------------------------

    def stir(self) -> None:
        """There may be something to do."""
        self._stirred.set()
        if self._task is None and not self._over:
            self._task = self._engine.task(self._run())

    def start(self) -> None:
        """Begin, if there is something already."""
        if self._behind or self._asked:
            self.stir()

    async def _run(self) -> None:
        if self._channel is None:
            self._channel = self._engine.open(self.sink, self.tenant)
        terms = self._channel.terms
        try:
            while not self._over:
                self._stirred.clear()
                self._give_up()
                if self._behind and len(self._line) <= self._most // 2:
                    await self._look()
                if self._asked and not self._replays:
                    await self._look_at_letters()
                if terms.exact and self._burying:
                    await self._stirred.wait()
                    continue
                letters, wait_s = self._next(terms.flight, terms.batch)
                if letters:  # counted at once: a task begins later
                    self._flying += 1
                    for letter in letters:
                        letter.flying = True
                if letters and terms.flight == 1:
                    await self._carry(letters)
                elif letters:
                    task = self._engine.task(self._carry(letters))
                    self._flights.add(task)
                    task.add_done_callback(self._flights.discard)
                elif wait_s is None and not self._flying and not self._busy():
                    return
                elif not self._more(terms.flight):
                    await self._wait(wait_s)
        finally:
            self._task = None

    def _busy(self) -> bool:
        """Whether there is still something to do, now or later."""
        return bool(
            self._queue or self._again or self._replays or self._asked
            or (self._behind and len(self._line) <= self._most // 2)
        )  # fmt: skip

    def _more(self, flight: int) -> bool:
        """Whether the next round has something to read at once."""
        return (
            self._behind and len(self._line) <= self._most // 2 and not self._queue
            and self._flying < flight and not self.disabled
        )  # fmt: skip

    async def _wait(self, wait_s: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._stirred.wait()

    def _next(self, flight: int, batch: int) -> tuple[list[Letter], float | None]:
        """What is sent now, or how long until something may be; None: until something happens."""
        now = self._engine.time()
        if self.disabled:
            return [], _LOOK_S if self._line or self._behind else None
        # One that fails may hang, and must not hold what others wait for.
        if self._flying >= (1 if self.circuit.failures else flight):
            return [], None
        if now < self.circuit.rests_until and self._busy():
            return [], min(_LOOK_S, self.circuit.rests_until - now)
        if self.circuit.state(now) == "half-open":
            if self._flying:
                return [], None
            batch = 1
        letters: list[Letter] = []
        if self._again and now < self._rests:
            return [], min(_LOOK_S, self._rests - now)
        while self._again and len(letters) < batch:
            due, _, letter = self._again[0]
            if due > now and not letter.settled:
                break
            heappop(self._again)
            if not letter.settled:
                letters.append(letter)
        if self._again and (flight == 1 or letters):
            wait_s = max(0.0, self._again[0][0] - now)
            return letters, min(_LOOK_S, wait_s)  # in order: nothing overtakes it
        while self._replays and not letters:
            letters.append(self._replays.popleft())
        if letters:
            return letters, None
        while self._queue and len(letters) < batch:
            letter = self._queue.popleft()
            if not letter.settled:
                letters.append(letter)
        if not letters and self._again:
            return [], min(_LOOK_S, max(0.0, self._again[0][0] - now))
        return letters, None

    async def _carry(self, letters: list[Letter]) -> None:
        """One send, and what becomes of it."""
        try:
            whose = self.tenant, self.sink.subscriber
            async with self._engine.flights.one(*whose, self._standing()):
                began = self._engine.time()
                outcomes = await self._sent(letters)
        finally:
            self._flying -= 1
            for letter in letters:
                letter.flying = False
        now = self._engine.time()
        # Those of one send come again together, in their order.
        again = now + self._engine.backoff.after(1 + max(letter.tries for letter in letters))
        for letter, outcome in zip(letters, outcomes, strict=True):
            self._conclude(letter, outcome, began, now, again)
        self._advance()
        self._engine.dirty(self)
        self._stirred.set()

    def _standing(self) -> Standing:
        """What others have to expect of a send."""
        if self.circuit.failures:
            return "failing"
        return "well" if self._prompt else "new"

    async def _sent(self, letters: list[Letter]) -> Sequence[Outcome]:
        channel = self._channel
        assert channel is not None
        try:
            if not self._begun:
                known = await channel.begin(self.upto, self.box.last)
                self._begun = True
                self._skip(known)
            wanted = [letter for letter in letters if not letter.settled]
            outcomes = iter(await channel.send(wanted) if wanted else ())
            return [
                Outcome("delivered") if letter.settled else next(outcomes) for letter in letters
            ]
        except (OSError, TimeoutError, NearcastError) as error:
            return [retry(_said(error))] * len(letters)
        except Exception as error:
            log.error("mistake", where="in a sink", protocol=self.sink.protocol, exc_info=error)
            return [retry("a mistake of the server's; its log has more")] * len(letters)

    def _skip(self, known: int) -> None:
        """The sink itself says up to which number it has everything."""
        for letter in self._line:
            if letter.seq <= known and not letter.settled:
                letter.settled = True
                self.delivered += 1

    def _conclude(
        self, letter: Letter, outcome: Outcome, began: float, now: float, again: float
    ) -> None:
        kind, why, after_s = outcome
        if kind == "delivered":
            self.circuit.succeeded()
            self._prompt = now - began < _PROMPT_S
            self.delivered += 1
            if letter.number is not None:
                self._resent.append(letter.number)
            letter.settled = True
            return
        self.why, letter.why = why, why
        if kind == "gone":
            self._engine.disable(self, why)
            self._put_back(letter)
            return
        letter.tries += 1
        self.failed += 1
        if kind == "never":
            self.circuit.succeeded()
            self._bury(letter)
            return
        self.circuit.failed(began, now, after_s)
        if letter.number is not None or letter.tries >= self._attempts:
            self._bury(letter)
            return
        self.retried += 1
        due = max(again, now + self._engine.backoff.bounded(after_s))
        if self._orders:  # one that fails alone must not come behind those that follow it
            self._rests, due = due, 0.0
        heappush(self._again, (due, self._place(letter), letter))

    def _put_back(self, letter: Letter) -> None:
        heappush(self._again, (0.0, self._place(letter), letter))

    @property
    def _orders(self) -> bool:
        """Whether letters go in their order."""
        return self._channel is None or self._channel.terms.flight == 1

    def _place(self, letter: Letter) -> tuple[int, int]:
        """Among those that are tried again at one time."""
        return letter.seq if self._orders else 0, next(_order)

    def _bury(self, letter: Letter) -> None:
        """It is a dead letter from now on, or still."""
        if letter.number is None:
            self.dead += 1
            self._burying += 1
            self._dead.append(letter)
        else:
            self._unsent.append(letter)
        letter.settled = True

    def _advance(self) -> None:
        while self._line and self._line[0].settled:
            self._line.popleft()

    def _give_up(self) -> None:
        """What has waited for too long for a sink that has failed as long is dead."""
        patience = self._engine.settings.sink_patience_s
        since = self.circuit.since
        if since is None or self._engine.time() - since < patience:
            return
        before = (self._engine.means.now() - patience) * 1e6
        found = False
        for letter in self._line:
            if not (letter.flying or letter.settled) and letter.at < before:
                letter.why = letter.why or f"the sink has failed too long: {self.why}"
                self._bury(letter)
                found = True
        if found:
            self._advance()
            self._engine.dirty(self)

    # -- from the store ------------------------------------------------------------

    async def _look(self) -> None:
        """Read what comes next from the store."""
        try:
            page = await self._engine.page(self, self._read, _PAGE, _PAGE_BYTES)
        except NearcastError:
            await asyncio.sleep(_PAUSE_S)
            return
        if page.lost:
            self.lost += page.lost
            log.warning("notifications beyond retention", sink=self.sink.number,
                        tenant=self.tenant, lost=page.lost)  # fmt: skip
        texts = Texts()
        for told in page.notifications:
            if len(self._line) >= self._most:
                break
            if self.wants(told):
                self._take(told, texts)
            self._read = told.seq or 0
        else:
            self._read = max(self._read, page.next)
        self._behind = self._read < self.box.last
        self._engine.dirty(self)

    async def _look_at_letters(self) -> None:
        """Read dead letters that are to be sent once more."""
        try:
            found = await self._engine.replayed(self, _REPLAYS + len(self._in_hand))
        except NearcastError:
            await asyncio.sleep(_PAUSE_S)
            return
        fresh = [each for each in found if each.number not in self._in_hand]
        self._asked = bool(fresh)
        for each in fresh:
            self._in_hand.add(each.number)
            self._replays.append(
                Letter(
                    self._name(each.seq, _at(each.body)),
                    each.seq,
                    each.thing,
                    each.at,
                    each.body.encode(),
                    each.number,
                    0,
                )
            )

    # -- the end -------------------------------------------------------------------

    async def close(self) -> None:
        """Stop; what is on its way is not waited for."""
        self._over = True
        tasks = [*self._flights, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._channel is not None:
            with suppress(Exception):
                await self._channel.close()

    def shown(self) -> dict[str, Any]:
        """What it has done, and how it is, for whoever asks."""
        now = self._engine.time()
        state = self.state()
        rests = self.circuit.rests_until - now if state in ("open", "half-open") else 0.0
        return {
            "state": state, "why": self.disabled or self.why, "upto": self.upto,
            "last": self.box.last, "waiting": self.waiting, "delivered": self.delivered,
            "failed": self.failed, "retried": self.retried, "dead": self.dead,
            "lost": self.lost, "failures": self.circuit.failures,
            "again": format_micros(round((self._engine.means.now() + rests) * 1e6))
            if rests > 0 else None,
        }  # fmt: skip


def _goes_on(one: Notification, then: Notification) -> bool:
    """Whether a notification is the next one of the same digest."""
    behind = one.digest or 0
    return then.subscription_id == one.subscription_id and then.digest == behind - 1


def _at(body: str) -> int:
    """The time of the notification that a letter has, or of the last one of a digest."""
    said = msgspec.json.decode(body)
    return to_micros(said["notifications"][-1]["at"] if "notifications" in said else said["at"])


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text)
