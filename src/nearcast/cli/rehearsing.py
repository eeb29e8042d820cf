"""Sections of the demo, rehearsed by a process behind it: their kernels are compiled meanwhile.

`python -m nearcast.cli.rehearsing walk patterns` runs them small and silently, says the name of
each when it is done, and ends with its input, that is, with the demo.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import TracebackType

from nearcast import jit
from nearcast.cli.sections import Scene, section
from nearcast.jit.behind import child_environment

__all__ = ["Rehearsal", "main", "small"]

#: Those that a process can rehearse; Spark has processes of its own.
_NAMES = ("walk", "fences", "patterns")


def small(scene: Scene) -> Scene:
    """A scene with all kinds of work and little of each, that nobody sees."""
    from rich.console import Console

    made = replace(scene, scale=0.02, subscriptions=2000, events=1000, quiet=True)
    made.__dict__["console"] = Console(file=io.StringIO())
    return made


class Rehearsal:
    """The process behind the demo, and how far it has come."""

    def __init__(self, names: list[str]) -> None:
        self._names = [name for name in names[1:] if name in _NAMES] if jit.compiled() else []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Rehearsal:
        if self._names:
            # Ctrl-C is the demo's; it ends the rehearsal by closing its input.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "nearcast.cli.rehearsing", *self._names],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=child_environment(), text=True,
                start_new_session=True,
            )  # fmt: skip
        return self

    def wait(self, name: str) -> None:
        """Until a section has been rehearsed, or will never be: then it compiles for itself."""
        if self._process is None or name not in self._names:
            return
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == name:
                return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with suppress(OSError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()


def main(names: list[str]) -> None:
    """Rehearse sections, one after the other."""
    from nearcast.jit.child import end_with_input

    if hasattr(os, "nice"):
        os.nice(5)
    jit.compile_at_once()
    Thread(target=end_with_input, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="nearcast-rehearsal-") as folder:
        for name in names:
            with suppress(Exception):  # the section itself will say what is wrong
                section(name)(small(Scene(Path(folder))))
            print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
