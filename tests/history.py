"""Seeded calls of a broker, and what its history must be, however often it dies in between.

A `Story` is a list of calls. A `Witness` makes them on brokers that never die, the naive one among
them, and knows what every subscriber must have been told, number by number. A `Client`
is a broker's other side: it notes what was acknowledged and received, and tries again what
had no answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeAlias

from nearcast import Around, Box, Broker, Composite, Event, Fence, Notification, Point, Subscription
from nearcast.broker.memory import MemoryStore
from nearcast.errors import DuplicateIdError, UnknownIdError
from tests.naive_broker import NaiveBroker

__all__ = ["PEOPLE", "Client", "Story", "Witness"]

S = 1_000_000
PEOPLE = ("ann", "bob", "ops")
Call: TypeAlias = tuple[str, object]
#: What somebody was told: a thing's id, an event's id, when, and what a fence saw of whom.
Line: TypeAlias = tuple[str, str, int, str | None, object]

_PATTERNS = (
    '=|(ARITH: price = 1; 60)(ARITH: price = 2)',
    '!(ARITH: price = 1; PT20S)(ARITH: price = 3)',
)  # fmt: skip


class Story:
    """Calls by seed: subscriptions that come, change and go, events, patterns, fences, time.

    A plain one has neither patterns nor fences nor sources nor ids that are used again: what
    the naive broker does not know.
    """

    def __init__(self, seed: int, length: int, *, plain: bool = False) -> None:
        rng = random.Random(seed)
        self.calls: list[Call] = [("subscribe", Subscription("s0", "ann", "price < 3"))]
        now = 0
        for step in range(length):
            now += rng.choice((0, 1, 1, 5, 30)) * S
            self.calls.append(self._call(rng, step, now, plain))
        self.acks = [rng.random() < 0.2 for _ in self.calls]

    @staticmethod
    def _call(rng: random.Random, step: int, now: int, plain: bool) -> Call:
        dice = rng.random()
        if dice < 0.62:
            life = rng.choice((None, 20 * S, 90 * S))
            return "publish", Event(
                f"e{step if plain or rng.random() < 0.9 else rng.randrange(step + 1)}",
                {"price": rng.choice((1, 2, 3, 4)), "step": step, "car": rng.choice("ab")},
                rng.choice(((), ("sale",))),
                rng.choice((None, Point(rng.randrange(4), 0))),
                end=now,
                expires=None if life is None else now + life,
                source=None if plain else rng.choice((None, None, "/a", "/b")),
            )
        if dice < 0.8:
            where = rng.choice((None, "price < 3", "price > 2", "composite = 'c0'"))
            id, name = f"s{rng.randrange(5)}", rng.choice(PEOPLE)
            return "subscribe", Subscription(id, name, where, rng.choice(((), ("sale",))))
        if dice < 0.83 and not plain:
            return "subscribe", _fence(rng)
        if dice < 0.84 and not plain:
            return "move", (rng.choice(PEOPLE), Point(rng.randrange(4), 0))
        if dice < 0.88 and not plain:
            text = rng.choice(_PATTERNS)
            return "detect", Composite(f"c{rng.randrange(2)}", rng.choice(PEOPLE), text)
        if dice < 0.9:
            return "unsubscribe", rng.choice(("s0", "s1", "s2", "s3", "c0", "c1", "f0", "f1"))
        if dice < 0.94:
            return "retract", f"e{rng.randrange(step + 1)}"
        return "advance", now


def _fence(rng: random.Random) -> Fence:
    region = rng.choice((Box(0, -1, 1, 1), Box(1, -1, 2, 1), Around(1)))
    where = rng.choice((None, "price < 4"))
    lost = rng.choice((None, 40))
    on = {"enter", "exit", "dwell"} | ({"lost"} if lost else set())
    id, name = f"f{rng.randrange(2)}", rng.choice(PEOPLE)
    return Fence(id, name, "car", region, where, on=on, dwell=rng.choice((2, 10)), lost=lost)


def _made(broker: Broker, call: Call) -> Sequence[Notification] | None:
    """What a call is told; None if it is refused."""
    verb, what = call
    given = what if isinstance(what, tuple) else (what,)
    try:
        reply: Sequence[Notification] = getattr(broker, verb)(*given)
    except (UnknownIdError, DuplicateIdError, ValueError):
        return None
    return reply


def _line(told: Notification) -> Line:
    return told.subscription_id, told.event.id, told.at, told.transition, told.object


class Witness:
    """What a broker must have told that never died."""

    def __init__(self, *, naive: bool) -> None:
        self.broker = Broker("planar", store=MemoryStore())
        self.naive = NaiveBroker("planar") if naive else None
        self.told: dict[str, list[Line]] = {}

    def see(self, call: Call) -> None:
        """A call is made, once."""
        reply = _made(self.broker, call)
        if reply is None:
            return
        for told in reply:
            assert told.subscriber is not None
            self.told.setdefault(told.subscriber, []).append(_line(told))
        if self.naive is not None:
            self._compare(*call, [(told.subscription_id, told.event.id) for told in reply])

    def _compare(self, verb: str, what: object, told: list[tuple[str, str]]) -> None:
        """The naive broker says the same, in the same order."""
        assert self.naive is not None
        should = getattr(self.naive, verb)(what)
        assert told == [(subscription, event) for subscription, _, event in should]


class Client:
    """Makes the calls of a story, and remembers what it was promised."""

    def __init__(self, story: Story, witness: Witness) -> None:
        self.story = story
        self.witness = witness
        self.step = 0
        """The first call without an answer."""
        self.crashes = 0
        self.received: dict[str, dict[int, Line]] = {}
        self.acknowledged: dict[str, int] = {}
        self.asked: dict[str, int] = {}
        """What was to be acknowledged, with or without an answer."""

    @property
    def over(self) -> bool:
        """Whether every call has its answer."""
        return self.step == len(self.story.calls)

    def go_on(self, broker: Broker, steps: int | None = None) -> None:
        """Make the calls that have no answer yet: all, or some."""
        while not self.over and (steps is None or steps > 0):
            self.make(broker)
            steps = None if steps is None else steps - 1

    def make(self, broker: Broker) -> None:
        """The next call, and perhaps an acknowledgement."""
        for told in _made(broker, self.story.calls[self.step]) or ():
            assert told.subscriber is not None
            assert told.seq is not None
            self.note(told.subscriber, told.seq, _line(told))
        self.answered()
        if self.story.acks[self.step - 1]:
            self.acknowledge(broker)

    def answered(self) -> None:
        """The call has its answer: from now on it must have happened."""
        self.witness.see(self.story.calls[self.step])
        self.step += 1

    def acknowledge(self, broker: Broker) -> None:
        """Whoever has something says so."""
        for name, lines in self.received.items():
            upto = max(lines)
            self.asked[name] = upto
            broker.ack(name, upto)
            self.acknowledged[name] = upto

    def note(self, name: str, seq: int, line: Line) -> None:
        """Somebody received something: never under another number, nor another thing."""
        known = self.received.setdefault(name, {}).setdefault(seq, line)
        assert known == line, f"{name} {seq}: {known}, and now {line}"

    def check(self, broker: Broker, *, complete: bool = True) -> None:
        """Everything promised is there, in order; and nothing that never happened.

        Of a call without an answer nobody knows: it may have happened, or not.
        """
        for name in {*self.witness.told, *self.received}:
            cursor = broker._outlet.store.cursor(name)
            assert self.acknowledged.get(name, 0) <= cursor <= self.asked.get(name, 0)
            page = broker.notifications(name, limit=10_000)
            assert page.lost == 0
            numbers = [told.seq for told in page.notifications]
            assert numbers == list(range(cursor + 1, cursor + 1 + len(numbers)))
            for told in page.notifications:
                assert told.seq is not None
                self.note(name, told.seq, _line(told))
            should = self.witness.told.get(name, [])
            lines = self.received.get(name, {})
            assert cursor + len(numbers) >= len(should)
            for seq, line in enumerate(should, 1):
                if seq > cursor:
                    assert lines[seq] == line
                else:
                    assert lines.get(seq, line) == line
            if complete:
                assert cursor + len(numbers) == len(should)

    def recovered(self, broker: Broker) -> None:
        """A broker has come back: what has no answer is tried again, then all is compared."""
        self.check(broker, complete=False)
        if not self.over:
            _made(broker, self.story.calls[self.step])
            self.answered()
        self.check(broker)
        assert broker.now == self.witness.broker.now
        assert len(broker) == len(self.witness.broker)
        assert broker.event_count == self.witness.broker.event_count
        broker.check_invariants()
