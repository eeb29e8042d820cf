"""What a server needs of the compiler, had ready behind its first screen.

Kernels that are not compiled answer as plain Python, and work that would take that long is
compiled for on the spot, while everybody waits. So a process beside the server rehearses every
verb on a small broker, which fills the cache, and then the server rehearses them itself: what it
meets is loaded from the cache, before somebody asks. Once it is filled the first step is left out.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from nearcast import jit
from nearcast.broker.service import Service
from nearcast.cpsl.composite import Composite
from nearcast.jit.behind import child_environment
from nearcast.jit.modes import Mode, mode
from nearcast.model.events import Event
from nearcast.model.fences import Fence
from nearcast.model.geometry import Around, Box, Circle, Point, Polygon, Space
from nearcast.model.subscriptions import Subscription
from nearcast.server.logs import log

__all__ = ["Rehearsal", "rehearse"]

_NOW = 1_700_000_000_000_000
_COMMAND = "import sys; from nearcast.server.rehearsal import rehearse; rehearse(sys.argv[1])"
_NICE = 10


def rehearse(space: Space) -> None:
    """Every verb of a broker, alone and in bulk, with things and events of every kind."""
    now = _NOW
    broker = Service(space=space, clock=lambda: now)
    square = Polygon([(0, 0), (0.02, 0), (0.02, 0.02), (0, 0.02)])
    regions = (None, Box(0, 0, 1, 1), Circle(0.01, 0.01, 1000.0), square)
    wishes = [
        Subscription(f"s{n}", "ann", ("price < 10", "name LIKE 'a%' OR price > 3", None)[n % 3],
                     ("sale",) if n % 5 == 0 else (), regions[n % 4])
        for n in range(120)
    ]  # fmt: skip
    for wish in wishes[:4]:
        broker.subscribe(wish)
    broker.subscribe_many(wishes[4:])
    broker.subscribe(Subscription("moves", "bob", "price < 10", region=Around(500.0)))
    fences = [Fence(f"f{n}", "ann", "car", region) for n, region in enumerate(regions) if region]
    broker.subscribe_many([*fences, Fence("f", "bob", "car", Around(300.0))])
    for turn in range(3):
        now += 1_000_000
        events = [
            Event(f"e{turn}.{n}", {"price": n, "name": "abc", "car": n % 7}, ("sale",),
                  Point(0.001 * n, 0.01), end=now, expires=now + 90_000_000)
            for n in range(40)
        ]  # fmt: skip
        broker.publish(events[0])
        broker.publish_many(events[1:])
        for where in (0.01, 0.012):
            now += 1_000_000
            broker.move("bob", Point(where, 0.01 * turn), heading=90.0, speed=10.0)
    broker.detect(Composite("c", "ann", 'Q(2)(STRING: name = "abc")'))
    broker.publish(Event("last", {"name": "abc"}))
    now += 600_000_000
    broker.advance()


class Rehearsal:
    """The process and the thread; `stop` lets go of both."""

    def __init__(self, space: Space) -> None:
        self._space: Space = space
        self._child: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()

    def start(self) -> None:
        """Begin, unless kernels are compiled at once or never. Returns at once."""
        if mode() is Mode.TIERS:
            threading.Thread(target=self._run, name="nearcast-rehearsal", daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            done = self._mark()
            if not done.exists() and self._in_a_child():
                done.parent.mkdir(parents=True, exist_ok=True)
                done.touch()
        if not self._over.is_set():
            try:
                rehearse(self._space)
            except Exception as error:  # it helps, and is not needed
                log.warning("no rehearsal", error=repr(error))

    def _mark(self) -> Path:
        """A file that is there when the cache has what these kernels need."""
        folders = sorted(str(jit.module_cache(source)) for source in jit.kernel_sources())
        said = "\n".join((*folders, self._space, sys.version, Path(__file__).read_text()))
        return jit.cache_directory() / f"rehearsed-{hashlib.sha256(said.encode()).hexdigest()[:16]}"

    def _in_a_child(self) -> bool:
        """Whether a process has rehearsed everything to its end."""
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-c", _COMMAND, self._space],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=child_environment(NEARCAST_JIT="1"), start_new_session=True,
        )  # fmt: skip
        if hasattr(os, "setpriority"):
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, self._child.pid, _NICE)
        if self._over.is_set():
            self._child.kill()
        return self._child.wait() == 0

    def stop(self) -> None:
        """The server ends: nothing goes on behind it."""
        self._over.set()
        if self._child is not None:
            self._child.kill()
