"""A PostgreSQL that is started for the purpose: by Debian's programs, or any on the PATH."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nearcast.errors import BenchError

__all__ = ["PostgresNode"]

_NOBODY = 65534
_START_S = 240.0
_OPTIONS = "-c listen_addresses=127.0.0.1 -c max_connections=60"
_HASTY = f"{_OPTIONS} -c shared_buffers=32MB -c fsync=off -c full_page_writes=off"


class PostgresNode:
    """A server with a port and a folder of its own, on this machine alone.

    `durable` says that commits reach the disk, as they do where people run it; for who kills
    processes and never the machine that makes no difference.
    """

    def __init__(self, port: int, *, durable: bool = True) -> None:
        self.port = port
        self._durable = durable
        # Of its own: whoever it runs as must get there.
        self._folder = folder = Path(tempfile.mkdtemp(prefix="nearcast-postgres-"))
        self._data = folder / "data"
        root = os.geteuid() == 0
        self._prefix: Sequence[str] = ()
        if root:  # it does not run as root
            self._prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
            os.chown(folder, _NOBODY, _NOBODY)
        folder.chmod(0o755)
        self._run(
            "initdb", "-D", str(self._data), "-U", "nearcast", "-A", "trust", "-E", "UTF8",
            "--locale=C.UTF-8", "-N",
        )  # fmt: skip

    def _run(self, program: str, *more: str) -> None:
        if not self._runs(program, *more):
            raise BenchError(f"PostgreSQL: {program} has failed:\n{self._said()}")

    def _said(self) -> str:
        files = (self._folder / "said", self._folder / "log")
        return "".join(each.read_text(errors="replace")[-4000:] for each in files if each.exists())

    def _runs(self, program: str, *more: str) -> bool:
        command = [*self._prefix, _found(program), *more]
        with (self._folder / "said").open("ab") as said:  # a server keeps it open
            done = subprocess.run(
                command, stdout=said, stderr=said, cwd=self._folder, timeout=_START_S, check=False
            )
        return done.returncode == 0

    def start(self) -> None:
        """Returns when it answers."""
        options = f"-p {self.port} -k {self._folder} {_OPTIONS if self._durable else _HASTY}"
        log = str(self._folder / "log")
        until = time.monotonic() + _START_S
        while not self._runs(
            "pg_ctl", "-w", "-t", "240", "-D", str(self._data), "-l", log, "-o", options, "start"
        ):  # something of the one that was killed is still ending
            if time.monotonic() > until:
                raise BenchError(f"PostgreSQL does not start:\n{self._said()}")

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
        others = _children(pid)
        os.kill(pid, signal.SIGKILL)
        for each in others:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        until = time.monotonic() + _START_S
        while any(_lives(each) for each in (pid, *others)):
            if time.monotonic() > until:
                raise BenchError("PostgreSQL was killed, and lives")
            time.sleep(0.01)

    def remove(self) -> None:
        """As if it had never been."""
        with suppress(FileNotFoundError, ProcessLookupError):
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, schema: str, port: int | None = None) -> str:
        """A store, perhaps by another port that leads here."""
        return f"postgresql://nearcast@127.0.0.1:{port or self.port}/postgres?schema={schema}"


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
        if not places:
            raise BenchError(f"{program} is not on the PATH; install PostgreSQL")
        path = str(places[-1])
    return path


def _children(pid: int) -> list[int]:
    file = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in file.read_text().split()]


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
