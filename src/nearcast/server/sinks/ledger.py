"""What the core writes down for sinks: how far each is, and what could not be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nearcast.broker.replies import Reply
from nearcast.broker.service import Service
from nearcast.clock import FOREVER
from nearcast.server.core import Answer
from nearcast.server.house import House
from nearcast.server.sinks.ports import Letter
from nearcast.storage.sinks import Own, Sink, Sinks

__all__ = ["Move", "settle"]

_PAGE, _PAGE_BYTES = 1000, 1 << 20


@dataclass(slots=True)
class Move:
    """How far a sink has come since the last one."""

    sink: Sink
    upto: int
    """It has everything up to this number, but for what is in dead letters."""
    since: int
    """What its subscriber was told after this number was seen as it was told."""
    own: int
    """The last of that which goes to no sink; 0: all of it goes to some."""
    dead: list[Letter] = field(default_factory=list)
    """These are dead letters from now on."""
    resent: list[int] = field(default_factory=list)
    """Dead letters that were sent after all."""
    unsent: list[Letter] = field(default_factory=list)
    """Dead letters that were not."""


def settle(house: House, tenant: str, moves: Sequence[Move], broker: Service) -> Answer:
    """Enter moves in one transaction: a cursor passes a letter with it, or when it has arrived.

    A subscriber all of whose things have sinks has what its sinks have: nobody else acknowledges
    that. What went to no sink he has to acknowledge first, even if what told it has ended. In the
    core's thread.
    """
    sinks, letters = house.sinks(tenant), house.letters(tenant)
    now = house.clock()
    readers: dict[str, int] = {}
    own: dict[str, Own] = {}
    for move in moves:
        if sinks.get(move.sink.number) is not None:
            name = move.sink.subscriber
            readers[name] = max(readers.get(name, 0), move.upto)
    for move in moves:  # before any moves: what a sink is past, it may not know any more
        if move.sink.subscriber in readers:
            name = move.sink.subscriber
            own[name] = _own(sinks, move, readers[name], broker)
    for move in moves:
        for letter in move.dead:
            letters.add(
                move.sink, letter.thing, letter.seq, letter.why, letter.tries, now,
                letter.text.decode(),
            )  # fmt: skip
        for number in move.resent:
            if letters.get(number) is not None:  # nobody has dropped it meanwhile
                letters.drop(number)
        for letter in move.unsent:
            assert letter.number is not None
            letters.failed(letter.number, letter.why, letter.tries, now)
        sinks.move(move.sink.number, move.upto)
    replies: list[Reply] = []
    for name, furthest in readers.items():
        held = sinks.held(name)
        upto = furthest if held == FOREVER else held
        acknowledged = broker.reading.cursor(name)
        if (
            upto > acknowledged >= own[name].last and upto <= own[name].upto
            and house.things(tenant, name) <= sinks.sent(name)
        ):  # fmt: skip
            replies.append(broker.ack(name, upto))
            acknowledged = upto
        # What all are past is in the outbox no more, and need not be known.
        sinks.know(name, own[name], keep=acknowledged < furthest)
    return Answer(None, tuple(replies))


def _own(sinks: Sinks, move: Move, furthest: int, broker: Service) -> Own:
    """What a subscriber reads himself, up to the number that a sink of his has come to.

    What was told since the server began was seen; what was told before is looked up, once.
    """
    name = move.sink.subscriber
    upto, last = sinks.own(name)
    before = min(move.since, furthest)
    while upto < before:
        page = broker.notifications(name, upto, _PAGE, _PAGE_BYTES)
        for told in page.notifications:
            seq = told.seq or 0
            if seq <= before and not sinks.takes(told.subscription_id, seq):
                last = seq
        upto = min(page.next, before) if page.notifications else before
    known = Own(upto if upto < move.since else max(upto, furthest), max(last, move.own))
    sinks.know(name, known, keep=False)
    return known
