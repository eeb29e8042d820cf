"""The process: sockets, signals, and how it begins and ends."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from nearcast.errors import ValidationError
from nearcast.server.app import App
from nearcast.server.auth import is_loopback
from nearcast.server.desk import Desk
from nearcast.server.gate import gates, has_input
from nearcast.server.house import House
from nearcast.server.logs import log
from nearcast.server.page import check_base
from nearcast.server.rehearsal import Rehearsal
from nearcast.server.settings import Settings
from nearcast.server.sources.running import Sources
from nearcast.storage.tables import LostError
from nearcast.storage.urls import parse_url, shown

if TYPE_CHECKING:
    from nearcast.server.demo import CityLife

__all__ = ["Lasting", "Running", "socket_beside"]

_BACKLOG = 2048
_YOUNG = 50_000  # objects that are made, and stay, before circles among them are looked for
#: How long the core or the loop goes on while the other waits. Each kernel lets go of the
#: interpreter, and to have it back takes up to that long while the other one works: a report
#: makes thirty calls.
_SWITCH_S = 0.0005
_AGAIN_S = 0.5  # how often a store that was lost is looked for
_DOOR_S = 1.0  # for those who wait to be let in when it stops
_DESCRIPTORS = 64  # of the system's, for files and whatever else is not a connection


class Running:
    """A server: `open` takes the store and the port, `run` answers until it is asked to stop.

    `stop` may be called from any thread. `alone` says that the process is there for nothing else.
    """

    def __init__(self, settings: Settings, *, alone: bool = False) -> None:
        self.settings = settings
        self._alone = alone
        self._rehearsal = Rehearsal(settings.space)
        if settings.demo and settings.space != "globe":
            raise ValidationError("space", settings.space, "the demo's city is on the globe")
        if settings.base:
            check_base(settings.base)
        self.house = House.open(settings)
        try:
            self._sockets = [_bound(settings)]
        except BaseException:
            self.house.close()
            raise
        self._port: int = self._sockets[0].getsockname()[1]
        self.error: BaseException | None = None
        try:
            self.desk = Desk(settings, self.house, self._failed)
        except BaseException:
            self._sockets[0].close()
            self.house.close()
            raise
        self.desk.core.served_at = settings.advertise or self.url
        self.asked = False
        """Whether somebody has asked it to end."""
        if not len(self.desk.keyring) and not is_loopback(settings.host):
            self._sockets[0].close()
            self.house.close()
            raise ValidationError(
                "host", settings.host,
                "without keys a server listens on loopback only: make a key first with "
                f"`nearcast keys create --store {shown(settings.store)} --role admin`",
            )  # fmt: skip
        try:
            self._sources = Sources(self.desk)
        except BaseException:
            self._sockets[0].close()
            self.house.close()
            raise
        self._beside = _bound_beside(self.house)
        if self._beside is not None:
            self._sockets.append(self._beside)
        descriptors = _most_descriptors()
        room = min(settings.max_connections, max(16, descriptors - _DESCRIPTORS))
        self._gates = gates(replace(settings, max_connections=room))
        config = uvicorn.Config(
            App(self.desk), log_config=None, access_log=False, lifespan="off",
            proxy_headers=False, server_header=False, http=self._gates.http,
            ws=self._gates.socket, ws_per_message_deflate=False,
            ws_max_size=settings.max_body, backlog=_BACKLOG, timeout_keep_alive=60,
            timeout_graceful_shutdown=max(1, round(settings.stop_s)),
        )  # fmt: skip
        self.city: CityLife | None = None
        """The demo's, if there is one."""
        self._server = _Server(config, self._stopping, self.stop)
        self.started = threading.Event()
        """Set when requests are answered."""

    @property
    def port(self) -> int:
        """The port, where any free one was asked for."""
        return self._port

    @property
    def url(self) -> str:
        """Where it is."""
        host = self.settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def run(self) -> None:
        """Answer until `stop`, SIGINT or SIGTERM; raises what stopped it otherwise."""
        if self._alone:
            gc.disable()  # until everything is loaded
            sys.setswitchinterval(_SWITCH_S)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        finally:
            self._tidy()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """End soon, in order: no new connections, what waits is made, the store is closed."""
        self.asked = True
        self._server.should_exit = True

    def simulated(self, names: list[str], places: Any, steps: int) -> None:
        """Show maps where a simulator's people truly are; from any thread, once it has started."""
        self.desk.core.post(self.desk.scenes.simulated, names, places, steps)

    async def _serve(self) -> None:
        await self.desk.core.start()
        if self.desk.watch is not None:
            self.desk.watch.start()
        beside = [
            asyncio.ensure_future(self._announce()),
            asyncio.ensure_future(self._gates.watch(self._server.server_state)),
        ]
        try:
            await self._server.serve(self._sockets)
        finally:
            for each in beside:
                each.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._sources.end()
            await self.desk.sinks.end()
            await self.desk.core.stop()
            if self.desk.watch is not None:
                await asyncio.to_thread(self.desk.watch.stop)

    async def _announce(self) -> None:
        with suppress(Exception):  # what kept it from that is told by `_failed`
            await self.desk.core.ready()
            self._sources.start()
            self.started.set()
            log.info(
                "ready", url=self.url, store=shown(self.settings.store), keys=len(self.desk.keyring)
            )
            if self._alone:
                _collect_seldom()
                self._rehearsal.start()
            if self.settings.demo:
                from nearcast.server.demo import CityLife

                self.city = CityLife(self.desk, self.url)
                await self.city.run()

    def _stopping(self) -> None:
        log.info("stopping")
        self._gates.close()
        self.desk.end()

    def _failed(self, error: BaseException) -> None:
        log.error("failed", error=str(error))
        self.error = error
        self._server.should_exit = True

    def _tidy(self) -> None:
        self._rehearsal.stop()
        for each in self._sockets:
            each.close()
        if self._beside is not None:
            path = socket_beside(self.house)
            if path is not None:
                path.unlink(missing_ok=True)


class Lasting:
    """A server that begins again when it has lost a store that others have, too.

    It stands by then, or writes once more. The port stays; connections do not.
    """

    def __init__(self, settings: Settings, *, alone: bool = False) -> None:
        self._alone = alone
        self._ended = threading.Event()
        self.running = Running(settings, alone=alone)
        self._settings = replace(settings, port=self.running.port)

    def run(self) -> None:
        """Answer until `stop`, SIGINT or SIGTERM; raises what stopped it otherwise."""
        while True:
            try:
                self.running.run()
                return
            except LostError as error:
                if self.running.asked or self._ended.is_set():
                    raise
                log.warning("begins again", error=str(error))
            self._begin_again()

    def _begin_again(self) -> None:
        gc.unfreeze()  # what it had loaded goes
        was_open = self.running.desk.keyring.open
        while not self._ended.is_set():
            try:
                self.running = Running(self._settings, alone=self._alone)
                if not was_open:
                    self.running.desk.keyring.close()
                return
            except LostError as error:
                log.warning("the store is out of reach", error=str(error))
            except ValidationError as error:
                if error.field != "port":
                    raise
                log.warning("the port is taken for now", error=str(error))
            self._ended.wait(_AGAIN_S)

    def stop(self) -> None:
        """End soon; from any thread."""
        self._ended.set()
        self.running.stop()


class _Server(uvicorn.Server):
    """uvicorn's, which tells before it waits for connections to end, and ends without a signal."""

    def __init__(
        self, config: uvicorn.Config, stopping: Callable[[], None], asked: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._heard = asked

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping()
        await _let_in(sockets or [])
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        known = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self._asked) for each in known}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _asked(self, number: int, _: FrameType | None) -> None:
        if self.should_exit and number == signal.SIGINT:
            self.force_exit = True
        self._heard()


async def _let_in(sockets: list[socket.socket]) -> None:
    """Who has knocked before: a door that closes throws out whoever still waits behind it."""
    until = perf_counter() + _DOOR_S
    while perf_counter() < until and any(map(has_input, sockets)):
        await asyncio.sleep(0)


def _most_descriptors() -> int:
    """As many connections as the system allows: its default is made for other programs."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 512
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        most = hard
    return 1 << 20 if most == resource.RLIM_INFINITY else most


def _collect_seldom() -> None:
    """What was loaded stays; what comes goes by itself, nearly all of it.

    To look for circles among all subscriptions again and again took a fifth of the time of a
    batch of events, and of loading them.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    gc.enable()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    return uvloop.new_event_loop


def _bound(settings: Settings) -> socket.socket:
    """A listening socket of our own: what the system keeps for slow readers is bounded there."""
    host, port = settings.host, settings.port
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ValidationError("host", host, f"give an address of this machine ({error})") from None
    made = socket.socket(family, kind, number)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.send_buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer)
        made.bind(address)
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise ValidationError(
                "port", port, "it is in use: stop what listens there, or give another with --port"
            ) from None
        raise ValidationError("port", port, f"{error.strerror}; give another") from None
    return made


def socket_beside(house: House) -> Path | None:
    """The socket by which whoever owns the store reaches the server that has it open."""
    path = parse_url(house.settings.store).path
    return None if path is None else Path(f"{path.absolute()}-socket")


def _bound_beside(house: House) -> socket.socket | None:
    """Only its owner may open it; without it `nearcast keys` and `backup` wait for the server."""
    path = socket_beside(house)
    if path is None or not hasattr(socket, "AF_UNIX"):
        return None
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)  # a leftover: the store is ours, so nobody listens
        made.bind(str(path))
        made.listen(16)
        made.setblocking(False)
    except OSError as error:
        made.close()
        log.warning("no socket beside the store", path=str(path), error=str(error))
        return None
    finally:
        os.umask(before)
    return made
