"""A server without sockets, threads or time: its core, feeds and connections in one seeded loop.

Time stands still while something is to do and jumps to what comes next. Lines are slow, break, and
lose what is on them; those at their ends come again, say again what had no answer, and know in
the end what they must have been told.
"""

from __future__ import annotations

import asyncio
import json
import random
import selectors
from collections.abc import Callable, Coroutine
from queue import Empty
from typing import Any, cast

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from nearcast.server.auth import ANYBODY
from nearcast.server.core import Core, _Job
from nearcast.server.desk import Desk
from nearcast.server.house import House
from nearcast.server.settings import Settings
from nearcast.server.socket import Connection
from tests.served import feature

__all__ = ["World", "simulate"]

_PEOPLE = ("ann", "bob", "cat")
_KINDS = 3


class _Jumping(selectors.SelectSelector):
    """Waits for nothing: whatever time a loop would wait has passed."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everybody waits for somebody else")
        self.passed += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in which a minute takes no time."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.passed


class SteppedCore(Core):
    """The core without its thread: turns come when the dice say so, of as many calls."""

    rng: random.Random

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready, self._stopped = self._loop.create_future(), self._loop.create_future()
        self.house.move_in()
        self._answering()
        self._loop.call_soon(self._step)

    def _step(self) -> None:
        assert self._loop is not None
        jobs: list[_Job] = []
        try:
            while len(jobs) < self.rng.choice((1, 3, 50)):
                job = self._queue.get_nowait()
                assert job is not None
                jobs.append(job)
        except Empty:
            pass
        self._turn(jobs, self.rng.random() < 0.1)
        self._loop.call_later(self.rng.choice((0.001, 0.01, 0.3)), self._step)


class Line:
    """The server's end of a socket, and the other one: `say`, `hear` and `cut`."""

    client = None

    def __init__(self, rng: random.Random) -> None:
        self.application_state = WebSocketState.CONNECTED
        self._rng = rng
        self._slow = rng.choice((0.0, 0.01, 2.0))
        self._up: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._down: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(4)
        self._sending = asyncio.Lock()
        self._cut = False

    async def receive(self) -> dict[str, Any]:
        return await self._up.get()

    async def send(self, message: dict[str, Any]) -> None:
        async with self._sending:
            await asyncio.sleep(self._rng.random() * self._slow)
            while self._down.full() and not self._cut:
                await asyncio.sleep(0.1)
            if self._cut:
                raise WebSocketDisconnect
            self._down.put_nowait(json.loads(message["text"]))

    async def close(self, code: int, reason: str) -> None:
        self.cut()

    def send_now(self, text: bytes) -> bool:
        """As `nearcast.server.lines.Say`: never in front of what is on its way."""
        if self._cut or self._sending.locked() or self._down.full():
            return False
        self._down.put_nowait(json.loads(text))
        return True

    def say(self, **frame: Any) -> None:
        self._up.put_nowait({"type": "websocket.receive", "text": json.dumps(frame)})

    async def hear(self) -> dict[str, Any] | None:
        """The next frame; None: the line is dead."""
        while self._down.empty() and not self._cut:
            await asyncio.sleep(0.05)
        return None if self._down.empty() else self._down.get_nowait()

    def cut(self) -> None:
        """What is on it is lost."""
        self._cut = True
        self.application_state = WebSocketState.DISCONNECTED
        while not self._down.empty():
            self._down.get_nowait()
        self._up.put_nowait({"type": "websocket.disconnect"})


class World:
    """One server and all who talk to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        settings = Settings(store="memory:", tail_bytes=self.rng.choice((1, 900, 32_768)),
                            queue_calls=self.rng.choice((3, 50)))  # fmt: skip
        loop = asyncio.get_running_loop()
        house = House(settings, None, clock=lambda: 10**15 + round(loop.time() * 1e6))
        self.desk = Desk(settings, house)
        core = SteppedCore(house, released=self.desk._released, failed=self.desk._broke)
        core.rng = self.rng
        self.desk.core = core
        self.events: dict[str, int] = {}
        self.wishes: dict[str, tuple[str, int]] = {}
        self.told: dict[str, dict[int, tuple[str, str]]] = {name: {} for name in _PEOPLE}
        self.acknowledged = dict.fromkeys(_PEOPLE, 0)
        self.over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: list[Line] = []

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

    async def _line(self, **hello: Any) -> Line:
        line = Line(self.rng)
        self._lines.append(line)
        say = self.rng.choice((None, line.send_now))
        connection = Connection(self.desk, cast(WebSocket, line), ANYBODY, say)
        self._task(connection.run())
        line.say(type="hello", **hello)
        return line

    async def works(self, frames: list[dict[str, Any]], done: Callable[[int], None]) -> None:
        """Has every frame answered, over as many lines as it takes; some are said twice."""
        line = await self._line()
        at = 0
        while at < len(frames):
            await asyncio.sleep(self.rng.choice((0.0, 0.01, 1.0)))
            for _ in range(self.rng.choice((1, 1, 2))):
                line.say(ref=at, **frames[at])
            if self.rng.random() < 0.1:
                line.cut()
            while (frame := await line.hear()) is not None:
                if frame.get("ref") == at:
                    break
            if frame is None:
                line = await self._line()
            elif frame["type"] == "done":
                done(at)
                at += 1
            else:
                assert frame["problem"]["status"] == 429, frame

    async def listens(self, name: str) -> None:
        """Is told, and comes again from where it was, or from what it has acknowledged."""
        at = 0
        while not self.over:
            resumes = self.rng.random() < 0.5
            before = self.acknowledged[name]  # another line of the same one may do so meanwhile
            line = await self._line(subscriber=name, **({"after": at} if resumes else {}))
            begun = False
            while not self.over and (frame := await line.hear()) is not None:
                if frame["type"] == "welcome":
                    begun = True
                    assert not resumes or frame["after"] == at
                    assert resumes or frame["after"] >= before
                    at = frame["after"]
                elif frame["type"] == "notifications":
                    assert begun
                    at = self._hear(name, at, frame)
                else:
                    assert frame["type"] == "done" or frame["problem"]["status"] == 429, frame
                    if frame["type"] == "done":
                        self.acknowledged[name] = max(self.acknowledged[name], frame["ref"])
                dice = self.rng.random()
                if dice < 0.2 and at:
                    line.say(type="ack", upto=at, ref=at)
                elif dice < 0.3:
                    line.cut()
                await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.1, 5.0)))
            line.cut()

    def _hear(self, name: str, at: int, frame: dict[str, Any]) -> int:
        assert frame["lost"] == 0
        for told in frame["notifications"]:
            at += 1
            assert told["seq"] == at, f"{name}: {told['seq']} instead of {at}"
            pair = told["subscription"], told["event"]["id"]
            assert self.told[name].setdefault(at, pair) == pair, "two under one number"
        assert frame["next"] == at
        return at

    def _should(self, name: str) -> set[tuple[str, str]]:
        """Nothing expires: by definition, every wish with every event of its kind."""
        return {
            (id, event)
            for id, (whose, kind) in self.wishes.items()
            for event, its in self.events.items()
            if (whose, kind) == (name, its)
        }

    async def run(self) -> None:
        """All of it, and the comparison."""
        await self.desk.core.start()
        listening = [self._task(self.listens(name)) for name in (*_PEOPLE, _PEOPLE[0])]
        working = []
        for number in range(2):
            frames: list[dict[str, Any]] = []
            for n in range(25):
                id, kind = f"{number}-{n}", self.rng.randrange(_KINDS)
                if self.rng.random() < 0.15:
                    name = self.rng.choice(_PEOPLE)
                    self.wishes[id] = name, kind
                    wish = {"id": id, "subscriber": name, "filters": [{"cql2": f"kind = {kind}"}]}
                    frames.append({"type": "subscribe", "subscription": wish})
                else:
                    self.events[id] = kind
                    frames.append({"type": "publish", "event": feature(id, kind=kind)})
            working.append(self._task(self.works(frames, lambda _: None)))
        await asyncio.gather(*working)
        until = asyncio.get_running_loop().time() + 300
        while asyncio.get_running_loop().time() < until:
            if all(len(self.told[name]) >= len(self._should(name)) for name in _PEOPLE):
                break
            for task in listening:
                if task.done():
                    task.result()
            await asyncio.sleep(1.0)
        self.over = True
        for line in self._lines:
            line.cut()
        await asyncio.gather(*listening)
        for name in _PEOPLE:
            told, should = self.told[name], self._should(name)
            assert sorted(told) == list(range(1, len(should) + 1)), f"{name} misses some"
            assert set(told.values()) == should
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert len(self.desk.feeds) == 0, "somebody who has gone still listens"


def simulate(seed: int) -> int:
    """One run; how many notifications there were."""

    async def run() -> int:
        world = World(seed)
        await world.run()
        return sum(map(len, world.told.values()))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())
