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
from nearcast.storage.sinks import Sink

__all__ = ["Move", "settle"]


@dataclass(slots=True)
class Move:
    """How far a sink has come since the last one."""

    sink: Sink
    upto: int
    """It has everything up to this number, but for what is in dead letters."""
    dead: list[Letter] = field(default_factory=list)
    """These are dead letters from now on."""
    resent: list[int] = field(default_factory=list)
    """Dead letters that were sent after all."""
    unsent: list[Letter] = field(default_factory=list)
    """Dead letters that were not."""


def settle(house: House, tenant: str, moves: Sequence[Move], broker: Service) -> Answer:
    """Enter moves in one transaction: a cursor passes a letter with it, or when it has arrived.

    A subscriber all of whose things have sinks has what its sinks have: nobody else
    acknowledges that. In the core's thread.
    """
    sinks, letters = house.sinks(tenant), house.letters(tenant)
    now = house.clock()
    readers: dict[str, int] = {}
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
        name = move.sink.subscriber
        readers[name] = max(readers.get(name, 0), move.upto)
    replies: list[Reply] = []
    for name, furthest in readers.items():
        held = sinks.held(name)
        upto = furthest if held == FOREVER else held
        if upto > broker.reading.cursor(name) and house.things(tenant, name) <= sinks.sent(name):
            replies.append(broker.ack(name, upto))
    return Answer(None, tuple(replies))
