"""A server in a process of its own, which can be killed and started again on the same file."""

from __future__ import annotations

import multiprocessing
import os
import random
import socket
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Self

from nearcast.server import house
from nearcast.server.run import Running
from nearcast.server.settings import Settings
from nearcast.storage.sqlite import Database

__all__ = ["Killable"]

#: Processes are forked from one that has imported everything: a start takes no seconds.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


class Hasty(Database):
    """Lets answers go before their commit, which comes with one of the next flushes."""

    _flushes = 0

    def flush(self) -> None:
        self._flushes += 1
        if self._flushes < 8 or self._flushes % 40 == 0:  # the first ones lay out the file
            super().flush()


def _serve(file: str, port: int, hasty: bool) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    if hasty:
        house.Database = Hasty  # type: ignore[attr-defined]
    Running(Settings(store=file, port=port)).run()


class Killable:
    """A context manager; `kill` is SIGKILL, `start` goes on with what is on the disk."""

    def __init__(self, file: Path, *, hasty: bool = False) -> None:
        self._file = file
        self._hasty = hasty
        self._port = _free_port()
        self._process: ForkServerProcess | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns at once; it answers a little later."""
        self._process = _CONTEXT.Process(
            target=_serve, args=(str(self._file), self._port, self._hasty)
        )
        self._process.start()

    def kill(self) -> None:
        """In the middle of whatever it does."""
        assert self._process is not None
        if not self._process.is_alive():
            raise RuntimeError("it has ended by itself")
        self._process.kill()
        self._process.join()


def _free_port() -> int:
    """One that the system gives to nobody by itself, so that it is still free after a kill."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as made:
            if made.connect_ex(("127.0.0.1", port)) != 0:
                return port
