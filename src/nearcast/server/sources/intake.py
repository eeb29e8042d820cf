"""Messages become events: many at a time, each once, and what cannot is set aside.

In one transaction go events, what is told of them, dead letters, and how far was read. A message is
acknowledged to where it came from only afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

from nearcast.broker.replies import Reply
from nearcast.broker.service import Service
from nearcast.errors import NearcastError, StoppedError, StoreError
from nearcast.model.events import Event
from nearcast.server.auth import Principal
from nearcast.server.core import Answer
from nearcast.server.desk import Desk
from nearcast.server.events import came
from nearcast.server.house import House
from nearcast.server.logs import log
from nearcast.server.problems import Problem
from nearcast.server.sources.figures import Tally
from nearcast.storage.sinks import Sink

__all__ = ["MISTAKE", "Intake", "Message"]

#: What is wrong with a message that broke what reads it.
MISTAKE = "a mistake of the server's; its log has more"

_PAUSE_S = 0.5
_LONGEST = 1000  # characters of a reason


@dataclass(frozen=True, slots=True)
class Message:
    """One that came, and what it says."""

    place: str
    """Where it stood: a topic, with its partition."""
    number: int
    said: Callable[[], str]
    """The message as JSON, for a dead letter."""
    events: tuple[Event, ...] = ()
    lost: tuple[str, str] | None = None
    """An attribute and the object of it that is lost."""
    wrong: str = ""
    """Why nothing of it can be understood."""
    mark: tuple[str, int] | None = None
    """A place and the number up to which it was read, with this message."""


@dataclass(slots=True)
class _Taken:
    accepted: int = 0
    repeated: int = 0
    lost: int = 0
    refused: list[Message] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Taking:
    """The call: all that can be taken, in order, and nothing twice."""

    house: House
    tenant: str
    protocol: str
    messages: Sequence[Message]
    most: int = 0
    """Live events that the tenant may have; 0: any number."""
    refuse: Callable[[int, int], None] = lambda *_: None
    """Says so, given how many there are and how many come."""

    def __call__(self, broker: Service) -> Answer:
        taken, replies = _Taken(), list[Reply]()
        before = broker.published
        for lost, some in groupby(self.messages, lambda each: each.lost is not None):
            for message, reply in self._lost(broker, some) if lost else self._told(broker, [*some]):
                if reply is not None:
                    replies.append(reply)
                if message.wrong:
                    taken.refused.append(message)
                else:
                    taken.lost += message.lost is not None
                    taken.repeated += len(message.events)
        taken.accepted = broker.published - before
        taken.repeated -= taken.accepted
        self._set_aside(taken.refused)
        positions = self.house.positions(self.tenant)
        for place, number in {m.mark[0]: m.mark[1] for m in self.messages if m.mark}.items():
            positions.set(place, number)
        return Answer(taken, tuple(replies))

    def _lost(
        self, broker: Service, some: Iterator[Message]
    ) -> Iterator[tuple[Message, Reply | None]]:
        for message in some:
            assert message.lost is not None
            try:
                yield message, broker.lose(*message.lost)
            except StoreError:
                raise
            except NearcastError as error:
                yield _refused(message, error), None

    def _told(
        self, broker: Service, some: Sequence[Message]
    ) -> Iterator[tuple[Message, Reply | None]]:
        good = [each for each in some if not each.wrong]
        events = [event for each in good for event in each.events]
        reply = None
        if self._fit(broker, events):
            try:
                reply = broker.publish_many(events)
            except StoreError:
                raise
            except NearcastError:  # one of them is refused: which one?
                pass
        if reply is None:
            for message in some:
                yield self._alone(broker, message)
            return
        yield from ((each, None) for each in some[:-1])
        yield some[-1], reply

    def _alone(self, broker: Service, message: Message) -> tuple[Message, Reply | None]:
        if message.wrong:
            return message, None
        try:
            if not self._fit(broker, message.events):
                self.refuse(broker.event_count, broker.reading.new(message.events))
            if len(message.events) == 1:  # whose error names no row
                return message, broker.publish(message.events[0])
            return message, broker.publish_many(message.events)
        except StoreError:
            raise
        except NearcastError as error:
            return _refused(message, error), None

    def _fit(self, broker: Service, events: Sequence[Event]) -> bool:
        """Whether the tenant may have all of these."""
        if not self.most:
            return True
        new = broker.reading.new(events)
        return not new or broker.event_count + new <= self.most

    def _set_aside(self, refused: Sequence[Message]) -> None:
        letters, now = self.house.letters(self.tenant), self.house.clock()
        for each in refused:
            source = Sink(0, "", self.protocol, each.place, {})
            why = each.wrong[:_LONGEST]
            letters.add(source, "", each.number, why, 1, now, each.said())


def _refused(message: Message, error: NearcastError) -> Message:
    return replace(message, events=(), lost=None, wrong=str(error))


@dataclass(frozen=True, slots=True)
class Intake:
    """One source's way into the core; in the loop only."""

    protocol: str
    desk: Desk
    tally: Tally

    async def position(self, tenant: str, place: str) -> int | None:
        """How far a place was read, as the store has it."""

        def look(_: Service) -> Answer:
            return Answer(self.desk.house.positions(tenant).get(place))

        found: int | None = await self._made(lambda: self.desk.core.look(tenant, look))
        return found

    async def take(self, tenant: str, messages: Sequence[Message]) -> None:
        """Have messages taken, however long the core is busy: returns when that is on disk.

        What breaks the broker is set aside, too, as soon as it is known which message does.
        """
        desk, who = self.desk, Principal(tenant, "admin")
        call = _Taking(
            desk.house, tenant, self.protocol, messages, desk.settings.tenant_events,
            partial(desk.limits.tenant, who, "events"),
        )  # fmt: skip
        weight = max(1, sum(len(each.events) for each in messages))
        try:
            taken: _Taken = await self._made(
                lambda: self.desk.core.note(tenant, call, weight=weight)
            )
        except Problem as problem:
            if problem.status != 500:
                raise
            if len(messages) > 1:
                for message in messages:
                    await self.take(tenant, [message])
                return
            (message,) = messages
            if message.wrong:
                raise  # even that: it is not the message
            await self.take(tenant, [_refused(message, problem)])
            return
        self.tally.accepted += taken.accepted
        self.tally.repeated += taken.repeated
        came(desk, who, {"accepted": taken.accepted, "repeated": taken.repeated})
        self.tally.lost += taken.lost
        self.tally.refused += len(taken.refused)
        for each in taken.refused:
            log.warning("a message is set aside", protocol=self.protocol, place=each.place,
                        number=each.number, why=each.wrong[:_LONGEST])  # fmt: skip

    async def _made(self, ask: Callable[[], asyncio.Future[Any]]) -> Any:
        """Ask the core until it answers; StoppedError if it never will."""
        while True:
            try:
                future = ask()
            except NearcastError as error:
                if self.desk.core.broken or self.desk.core.ended:
                    raise StoppedError(str(error)) from None
                await asyncio.sleep(_PAUSE_S)
                continue
            return await asyncio.shield(future)
