"""Names of sinks become addresses here, and nowhere else: what is connected to was checked."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

from nearcast.server.sinks.addresses import Allowed

__all__ = ["Names", "RefusedError", "resolved"]

#: Names that are looked up at once. The system's resolver may take half a minute over one.
_THREADS = 16


class RefusedError(OSError):
    """A sink must not be there."""


def resolved(name: str, port: int) -> list[str]:
    """The addresses of a name, as the system has them."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class Names:
    """Looks names up, in threads of its own, and keeps back addresses that are not allowed."""

    def __init__(
        self, allowed: Allowed, resolve: Callable[[str, int], list[str]] = resolved
    ) -> None:
        self.allowed = allowed
        self._resolve = resolve
        self._places = asyncio.Semaphore(_THREADS)
        self._asked: dict[tuple[str, int], asyncio.Future[list[str]]] = {}
        """What is being looked up: a name that takes its time has one thread, whoever waits."""

    async def addresses(self, name: str, port: int) -> list[str]:
        """The addresses that a connection to a name may be made to.

        Raises RefusedError where there are only others. The caller connects to these, not to the
        name: it may mean something else a moment later.
        """
        found = await self._found(name, port)
        taken = [each for each in found if self.allowed.takes(each)]
        if not taken:
            raise RefusedError("its name leads to a private address")
        return taken

    async def _found(self, name: str, port: int) -> list[str]:
        if "%" in name:  # to some it is an address with a zone, to others a name
            raise RefusedError("its name has a % in it")
        address = None
        with suppress(ValueError):
            address = ip_address(name)
        if address is not None:  # what is connected to is what was checked, not how it was written
            return [str(address)]
        asked = self._asked.get((name, port))
        if asked is None:
            asked = self._asked[name, port] = asyncio.ensure_future(self._looked_up(name, port))
            asked.add_done_callback(lambda done: self._answered(name, port, done))
        return await asyncio.shield(asked)

    async def _looked_up(self, name: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def look() -> None:
            try:
                told, of = _tell, self._resolve(name, port)
            except Exception as error:
                told, of = _fail, error  # type: ignore[assignment]
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(told, found, of)

        async with self._places:
            # A thread of its own, which nobody waits for at the end: the system's resolver cannot
            # be interrupted.
            threading.Thread(target=look, name="nearcast-name", daemon=True).start()
            return await found

    def _answered(self, name: str, port: int, done: asyncio.Future[list[str]]) -> None:
        self._asked.pop((name, port), None)
        if not done.cancelled():
            done.exception()  # whoever asked may have gone


def _tell(found: asyncio.Future[list[str]], addresses: list[str]) -> None:
    if not found.done():
        found.set_result(addresses)


def _fail(found: asyncio.Future[list[str]], error: Exception) -> None:
    if not found.done():
        found.set_exception(error)
