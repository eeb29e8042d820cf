"""How many sends may be under way, and whose turn is next: nobody can take them all.

A subscriber may have up to a quarter of what nobody has, a tenant up to four times that: one
subscriber comes to a fifth of all and one tenant to four fifths, many to less each, and something
is always left for the next one. Sinks that fail share a quarter of all, and those that have not
proved themselves a half: however many of them hang, sinks that work find room.
"""

from __future__ import annotations

from asyncio import CancelledError, Future, get_running_loop
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Flights", "Standing"]

Standing: TypeAlias = Literal["well", "new", "failing"]
#: Of what nobody has, how much a subscriber and a tenant may have.
_SUBSCRIBER, _TENANT = 0.25, 4.0


class _Who(NamedTuple):
    standing: Standing
    tenant: str
    subscriber: tuple[str, str]


class Flights:
    """One server's; in the loop only.

    Nobody waits who might go: whoever waits is asked whenever something comes back.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._most: dict[Standing, int] = {
            "well": most, "new": max(1, most // 2), "failing": max(1, most // 4),
        }  # fmt: skip
        self._taken: Counter[Standing | str | tuple[str, str]] = Counter()
        """By standing, by subscriber, and by tenant, whose names begin with a slash."""
        self._waiting: dict[
            Standing, dict[str, dict[tuple[str, str], deque[Future[None]]]]
        ] = {"well": {}, "new": {}, "failing": {}}  # fmt: skip

    @asynccontextmanager
    async def one(self, tenant: str, subscriber: str, standing: Standing) -> AsyncIterator[None]:
        """Be under way, as soon as it is this one's turn."""
        who = _Who(standing, f"/{tenant}", (tenant, subscriber))
        if self._may(who):
            self._take(who)
        else:
            await self._wait(who)
        try:
            yield
        finally:
            self._give_back(who)

    def _may(self, who: _Who) -> bool:
        return self._open(who.standing) and self._fits(who.tenant, _TENANT) and self._fits(
            who.subscriber, _SUBSCRIBER
        )  # fmt: skip

    def _open(self, standing: Standing) -> bool:
        return self._free > 0 and self._taken[standing] < self._most[standing]

    def _fits(self, whose: str | tuple[str, str], share: float) -> bool:
        mine = self._taken.get(whose, 0)
        return not mine or mine < self._free * share

    def _take(self, who: _Who) -> None:
        self._free -= 1
        for each in who:
            self._taken[each] += 1

    def _give_back(self, who: _Who) -> None:
        self._free += 1
        for each in who:
            self._taken[each] -= 1
            if not self._taken[each]:
                del self._taken[each]
        while (next := self._next()) is not None:
            turn = self._called(next)
            if not turn.cancelled():
                self._take(next)
                turn.set_result(None)

    async def _wait(self, who: _Who) -> None:
        turn: Future[None] = get_running_loop().create_future()
        tenants = self._waiting[who.standing]
        tenants.setdefault(who.tenant, {}).setdefault(who.subscriber, deque()).append(turn)
        try:
            await turn
        except CancelledError:
            if turn.cancelled():
                self._forget(who, turn)
            else:  # it was called a moment ago
                self._give_back(who)
            raise

    def _next(self) -> _Who | None:
        """Who of those that wait may go."""
        for standing, tenants in self._waiting.items():
            if not self._open(standing):
                continue
            for tenant, subscribers in tenants.items():
                if self._fits(tenant, _TENANT):
                    for subscriber in subscribers:
                        if self._fits(subscriber, _SUBSCRIBER):
                            return _Who(standing, tenant, subscriber)
        return None

    def _called(self, who: _Who) -> Future[None]:
        """Take the first of somebody's out of the queue; the next time it is the turn of others."""
        tenants = self._waiting.pop(who.standing)
        self._waiting[who.standing] = tenants
        subscribers = tenants.pop(who.tenant)
        turns = subscribers.pop(who.subscriber)
        turn = turns.popleft()
        if turns:
            subscribers[who.subscriber] = turns
        if subscribers:
            tenants[who.tenant] = subscribers
        return turn

    def _forget(self, who: _Who, turn: Future[None]) -> None:
        """Nobody waits for this one any more; it may have been passed over already."""
        tenants = self._waiting[who.standing]
        subscribers = tenants.get(who.tenant, {})
        turns = subscribers.get(who.subscriber, deque())
        with suppress(ValueError):
            turns.remove(turn)
        if not turns:
            subscribers.pop(who.subscriber, None)
        if not subscribers:
            tenants.pop(who.tenant, None)
