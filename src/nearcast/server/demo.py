"""A city that lives in a server: the crowd's process, and what its simulator tells of it.

Whoever walks, drives and sells there is a client like any other (`nearcast.client.crowd`). Only
where people truly are comes by another way, from the simulator's standard output, and is shown as
that: a server knows what was reported.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_urlsafe
from typing import IO, Any

import numpy as np

from nearcast.server.desk import Desk
from nearcast.server.logs import log
from nearcast.storage.keys import Key, digest_of

__all__ = ["SEED", "CityLife"]

SEED = 7
_CROWD = "nearcast.client.crowd"
_HEAD = np.dtype([("count", "<u4"), ("steps", "<u8")])
_PATIENCE_S = 10.0


@dataclass(eq=False)
class CityLife:
    """The crowd of one server, while that runs."""

    desk: Desk
    url: str

    async def run(self) -> None:
        """Live until cancelled; a crowd that ends by itself is told of."""
        loop, settings = asyncio.get_running_loop(), self.desk.settings
        process = subprocess.Popen(
            [sys.executable, "-m", _CROWD, self.url, str(settings.demo_people), str(SEED)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            env=os.environ | {"NEARCAST_KEY": self._key()},
        )  # fmt: skip
        assert process.stdout is not None
        ended = asyncio.Event()
        reader = threading.Thread(
            target=self._read, args=(process.stdout, loop, ended), name="nearcast-city", daemon=True
        )
        reader.start()
        log.info("a city lives here", people=settings.demo_people)
        try:
            await ended.wait()
            log.error("the city has ended", code=process.poll())
        finally:
            process.terminate()
            await asyncio.to_thread(_over, process)
            reader.join(_PATIENCE_S)
            process.stdout.close()

    def _key(self) -> str:
        """A key of its own, in memory only: it goes on when keys are made or revoked."""
        made = f"nck_{token_urlsafe(24)}"
        name = blake2b(made.encode(), digest_size=6).hexdigest()
        self.desk.keyring.lend(digest_of(made), Key("", "admin", None, 0, name))
        return made

    def _read(
        self, source: IO[bytes], loop: asyncio.AbstractEventLoop, ended: asyncio.Event
    ) -> None:
        """In a thread: frame by frame, until there are no more."""

        def post(call: Any, *of: Any) -> bool:
            try:
                loop.call_soon_threadsafe(call, *of)
            except RuntimeError:  # the loop is closed: nobody shows them any more
                return False
            return True

        line = source.readline()
        names: list[str] = json.loads(line)["names"] if line else []
        while len(head := source.read(_HEAD.itemsize)) == _HEAD.itemsize:
            count, steps = np.frombuffer(head, _HEAD)[0].tolist()
            places = np.frombuffer(source.read(16 * count))
            if places.size < 2 * count:
                break
            if not post(self.desk.scenes.simulated, names, places.reshape(-1, 2), steps):
                return
        post(ended.set)


def _over(process: subprocess.Popen[bytes]) -> None:
    """Wait for it to end, and no longer than a while."""
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
