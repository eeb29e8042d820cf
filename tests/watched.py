"""`nearcast serve` in a process of its own, whose memory and log can be looked at."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.served import make_keys

__all__ = ["Watched", "watched"]

_PATIENCE_S = 120.0


class Watched:
    """A server that answers, with an admin's key."""

    def __init__(self, process: subprocess.Popen[str], url: str, key: str, folder: Path) -> None:
        self.process = process
        self.url = url
        self.key = key
        self.folder = folder
        self.port = int(url.rpartition(":")[2])

    def http(self, key: str | None = None) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=240, verify=False)

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
        assert found
        return int(found[1]) * 1024

    @property
    def rss(self) -> int:
        """Bytes in memory."""
        return self._status("VmRSS")

    @property
    def peak(self) -> int:
        """The most there were since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @property
    def log(self) -> str:
        """What it has written to standard error."""
        return (self.folder / "stderr.txt").read_text()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


@contextmanager
def watched(folder: Path, *prefix: str, first: str = "", **settings: Any) -> Iterator[Watched]:
    """A server on a store of its own; settings as in `Settings`, `first` is run before it."""
    folder.mkdir(exist_ok=True)
    store = folder / "w.db"
    key = ""
    if not store.exists():
        (key,) = make_keys(store, {"role": "admin"})
        (folder / "key").write_text(key)
    key = (folder / "key").read_text()
    given = {"log_format": "json", "queue_s": 600} | settings
    environment = {f"NEARCAST_{name.upper()}": str(value) for name, value in given.items()}
    command = [
        *prefix,
        sys.executable,
        "-c",
        f"{first}\nfrom nearcast.cli import main; main()",
        "serve",
    ]
    with (folder / "stderr.txt").open("w") as errors:
        process = subprocess.Popen(
            [*command, "--port", "0", "--store", str(store)], stdout=subprocess.PIPE,
            stderr=errors, text=True, env=os.environ | environment, start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+:\d+", line)
        assert found, line
        server = Watched(process, found[0], key, folder)
        _wait_for(server)
        yield server
    finally:
        if process.poll() is None:  # what traces it goes, too
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _wait_for(server: Watched) -> None:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            if httpx2.get(f"{server.url}/readyz", verify=False).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError("never ready")
