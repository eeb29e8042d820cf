"""Sections of the demo, rehearsed by a process behind it: their kernels are compiled meanwhile.

`python -m nearcast.cli.rehearsing '{}' walk patterns` runs them small and silently, says the name
of each when it is done, and ends with its input, that is, with the demo. What Spark will need is
drawn there, too; the first argument says for which scene.
"""

from __future__ import annotations

import io
import json
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
from nearcast.cli.console import watching
from nearcast.cli.sections import ON_SPARK, Scene, section
from nearcast.jit.behind import child_environment

__all__ = ["Rehearsal", "main", "small"]

#: Those that a process can rehearse; of `pipeline`, which is Spark's, it draws the traces.
_NAMES = ("walk", "fences", "patterns", "pipeline")


def small(scene: Scene) -> Scene:
    """A scene with all kinds of work and little of each, that nobody sees."""
    from rich.console import Console

    made = replace(scene, scale=0.02, subscriptions=2000, events=1000, quiet=True)
    made.__dict__["console"] = Console(file=io.StringIO())
    return made


class Rehearsal:
    """The process behind the demo, and how far it has come."""

    def __init__(self, names: list[str], scene: Scene) -> None:
        behind = [name for name in names[1:] if name in _NAMES] if jit.compiled() else []
        # What Spark will read is drawn first: that is soon done, and nothing is compiled for it.
        self._names = sorted(behind, key=lambda name: name not in ON_SPARK)
        self._done: set[str] = set()
        self._scene = scene
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Rehearsal:
        if self._names:
            # Ctrl-C is the demo's; it ends the rehearsal by closing its input.
            how = [sys.executable, "-P", "-m", "nearcast.cli.rehearsing"]
            self._process = subprocess.Popen(
                [*how, self._asked(), *self._names],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=child_environment(), text=True,
                start_new_session=True,
            )  # fmt: skip
        return self

    def _asked(self) -> str:
        scene = self._scene
        what = {"seed": scene.seed, "scale": scene.scale, "data": scene.data}
        return json.dumps({"out": str(scene.out.absolute()), **what})

    def wait(self, name: str) -> None:
        """Until a section has been rehearsed, or will never be: then it compiles for itself."""
        if self._process is None or name not in self._names or name in self._done:
            return
        with watching(quiet=self._scene.quiet) as say:
            say(f"waiting for the kernels of {name!r}, compiled behind …")
            self._listen(name)

    def _listen(self, name: str) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._done.add(line.strip())
            if name in self._done:
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


def main(asked: str, names: list[str]) -> None:
    """Rehearse sections, one after the other."""
    from nearcast.jit.child import end_with_input

    wanted = json.loads(asked)
    scene = replace(Scene(Path(wanted.pop("out", "."))), quiet=True, **wanted)

    if hasattr(os, "nice"):
        os.nice(5)
    jit.compile_at_once()
    Thread(target=end_with_input, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="nearcast-rehearsal-") as folder:
        for name in names:
            with suppress(Exception):  # the section itself will say what is wrong
                if name in ON_SPARK:
                    _prepare(scene)
                else:
                    section(name)(small(Scene(Path(folder))))
            print(name, flush=True)


def _prepare(scene: Scene) -> None:
    """What can be done for the pipeline without Spark."""
    if scene.data is None:
        from nearcast.cli.taxis import draw

        draw(scene)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
