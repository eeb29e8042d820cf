"""Whose turn it is to send: nobody takes all there is, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nearcast.server.sinks.flights import Flights, Standing


class Sky:
    """Sends that hang until they are told to end."""

    def __init__(self, most: int) -> None:
        self.flights = Flights(most)
        self.most = most
        self.flying: Counter[tuple[str, str]] = Counter()
        self.order: list[str] = []
        self._tasks: list[tuple[tuple[str, str], asyncio.Event, asyncio.Task[None]]] = []

    async def ask(
        self, subscriber: str, count: int = 1, standing: Standing = "new", tenant: str = ""
    ) -> None:
        """Ask for so many, and let those begin that may."""
        for _ in range(count):
            end, who = asyncio.Event(), (tenant, subscriber)
            task = asyncio.ensure_future(self._fly(who, standing, end))
            self._tasks.append((who, end, task))
        await self.settle()

    async def _fly(self, who: tuple[str, str], standing: Standing, end: asyncio.Event) -> None:
        async with self.flights.one(*who, standing):
            self.flying[who] += 1
            self.order.append(who[1])
            assert self.flying.total() <= self.most
            try:
                await end.wait()
            finally:
                self.flying[who] -= 1

    async def land(self, subscriber: str, tenant: str = "") -> None:
        """Let all of somebody's end, as soon as they have begun."""
        for who, end, _ in self._tasks:
            if who == (tenant, subscriber):
                end.set()
        await self.settle()

    async def cancel(self, subscriber: str) -> None:
        for who, _, task in self._tasks:
            if who[1] == subscriber:
                task.cancel()
        await self.settle()

    async def settle(self, steps: int = 40) -> None:
        for _ in range(steps):  # each that ends lets one begin
            await asyncio.sleep(0)


@asynccontextmanager
async def sky(most: int) -> AsyncIterator[Sky]:
    made = Sky(most)
    yield made
    for who in {who for who, _, _ in made._tasks}:
        await made.cancel(who[1])
    assert not made.flying.total()
    await made.ask("last", most, "well")  # all of it is there again
    assert 0 < made.flying["", "last"] < most or most < 5
    await made.cancel("last")
    assert made.flights._free == most
    assert not made.flights._taken
    assert not any(made.flights._waiting.values())


def test_one_subscriber_does_not_take_all():
    async def run() -> None:
        async with sky(100) as made:
            await made.ask("mallory", 1000)
            assert 10 <= made.flying["", "mallory"] <= 25
            await made.ask("ann")
            assert made.flying["", "ann"] == 1

    asyncio.run(run())


def test_many_subscribers_that_hang_leave_room_for_sinks_that_work():
    async def run() -> None:
        async with sky(100) as made:
            for number in range(500):
                await made.ask(f"new-{number}", 3)
            for number in range(50):
                await made.ask(f"failing-{number}", 3, "failing")
            assert made.flying.total() <= 75
            await made.ask("ann", 1, "well")
            assert made.flying["", "ann"] == 1

    asyncio.run(run())


def test_one_tenant_does_not_take_all():
    async def run() -> None:
        async with sky(100) as made:
            for number in range(500):
                await made.ask(f"mallory-{number}", 3, "well", "theirs")
            assert 50 <= made.flying.total() <= 80
            await made.ask("ann")
            assert made.flying["", "ann"] == 1

    asyncio.run(run())


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_with_few_everybody_has_a_turn(most: int):
    async def run() -> None:
        async with sky(most) as made:
            for standing in ("well", "failing", "new"):
                for number in range(5):
                    await made.ask(f"{standing}-{number}", 5, standing)
            for number in range(5):
                for standing in ("well", "failing", "new"):
                    await made.land(f"{standing}-{number}")
            await made.settle(1000)
            assert Counter(made.order) == {
                f"{standing}-{number}": 5
                for standing in ("well", "failing", "new") for number in range(5)
            }  # fmt: skip

    asyncio.run(run())


def test_those_that_wait_have_their_turns_in_turn():
    async def run() -> None:
        async with sky(4) as made:
            for name in ("a", "b", "c", "d"):
                await made.ask(name, 1, "well", tenant=name)
            for name in ("a", "b", "c", "d"):
                await made.ask(f"{name}'s", 3, "well", tenant=name)
            made.order.clear()
            for name in ("a", "b", "c", "d"):
                await made.land(name, tenant=name)
            assert sorted(made.order) == ["a's", "b's", "c's", "d's"]

    asyncio.run(run())


def test_who_is_called_and_goes_gives_it_back():
    async def run() -> None:
        async with sky(1) as made:
            await made.ask("first")
            await made.ask("second", 2)
            (_, end, _), (_, _, second), (_, _, third) = made._tasks
            end.set()
            while made.flying["", "first"]:
                await asyncio.sleep(0)
            second.cancel()  # it has been called, and does not know it yet
            await made.settle()
            assert second.cancelled()
            assert made.flying["", "second"] == 1
            third.cancel()
            await made.settle()

    asyncio.run(run())
