"""A server in a process of its own, which can be killed and started again on the same file."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

from nearcast.server import house
from nearcast.server.run import Lasting
from nearcast.server.settings import Settings
from nearcast.storage.sqlite import Database
from tests.served import free_port

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


def _serve(file: str, port: int, hasty: bool, more: dict[str, Any]) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    if hasty:
        house.Database = Hasty  # type: ignore[attr-defined]
    Lasting(Settings(store=file, port=port, **more)).run()


class Killable:
    """A context manager; `kill` is SIGKILL, `start` goes on with what is on the disk."""

    def __init__(self, file: Path | str, *, hasty: bool = False, **settings: Any) -> None:
        self._file = file
        self._settings = settings
        self._hasty = hasty
        self._port = free_port()
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
            target=_serve, args=(str(self._file), self._port, self._hasty, self._settings)
        )
        self._process.start()

    def kill(self) -> None:
        """In the middle of whatever it does."""
        assert self._process is not None
        if not self._process.is_alive():
            raise RuntimeError("it has ended by itself")
        self._process.kill()
        self._process.join()
