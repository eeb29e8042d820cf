"""A server as people run it: `nearcast serve` in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from nearcast.errors import BenchError

__all__ = ["Process"]

_URL = re.compile(r"http://([\d.]+):(\d+)")
_TICKS = os.sysconf("SC_CLK_TCK")
_NO_MORE: Mapping[str, str] = {}


class Process:
    """A server that answers; what it has cost so far can be asked. Linux only."""

    def __init__(
        self, store: Path | str, space: str = "planar", patience_s: float = 600.0,
        settings: Mapping[str, str] = _NO_MORE,
    ) -> None:  # fmt: skip
        started = time.perf_counter()
        environment = os.environ | {"NEARCAST_JIT": "1", "NEARCAST_LOG": "error"}
        environment |= {f"NEARCAST_{name.upper()}": value for name, value in settings.items()}
        command = [sys.executable, "-c", "from nearcast.cli import main; main()"]
        self._child = subprocess.Popen(
            [*command, "serve", "--port", "0", "--store", str(store), "--space", space],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._child.stdout is not None
        said = _URL.search(self._child.stdout.readline())
        if said is None:
            _, trouble = self._child.communicate()
            raise BenchError(f"the server did not start:\n{trouble.strip()}")
        self.address = said[1], int(said[2])
        self.url = said[0]
        self._await(patience_s)
        self.ready_s = time.perf_counter() - started
        """From its start until it answered."""

    def _await(self, patience_s: float) -> None:
        until = time.perf_counter() + patience_s
        while True:
            try:
                with urlopen(f"{self.url}/readyz", timeout=10) as answer:
                    if answer.status == 200:
                        return
            except (URLError, OSError) as error:
                if self._child.poll() is not None or time.perf_counter() > until:
                    raise BenchError(f"the server does not answer ({error})") from None
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it in order."""
        self._child.terminate()
        try:
            self._child.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time it has taken."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def resident(self) -> int:
        """Bytes it holds."""
        pages = int(Path(f"/proc/{self._child.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
