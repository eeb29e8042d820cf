"""The compiler behind: a thread that waits, and a process that compiles.

Kernels ask for what they were called with. After a while the thread loads what is kept on disk;
the rest it hands to a child process, one at a time, first what took plain Python longest, and
lets the compiled form take over when the child has put it into the cache. So short scripts
never pay for the compiler, and long ones do not wait for it. Where the child cannot keep what it
makes, only what is used much is compiled, in the thread.
"""

from __future__ import annotations

import ast
import atexit
import os
import subprocess
import sys
from contextlib import suppress
from threading import Condition, Thread
from typing import TYPE_CHECKING

from nearcast.jit.described import Description, sample
from nearcast.jit.forks import stepping
from nearcast.jit.kernel_files import cache_directory
from nearcast.jit.troubles import warn_once

if TYPE_CHECKING:
    from nearcast.jit.tiers import Kernel

__all__ = ["ask", "child_environment", "settled"]

#: Seconds from the first request until the compiler is loaded: short scripts end before.
GRACE = 1.0
#: Seconds without requests after which the child is let go.
IDLE = 5.0
#: Seconds that plain Python must have taken before a compiler that cannot keep anything starts.
WORTH = 3.0


class _Behind:
    """Requests, and the thread that fulfils them."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._wanted: list[tuple[Kernel, Description]] = []
        self._working = False
        self._over = False
        self._thread: Thread | None = None
        self._child: _Child | None = None
        self._keeps = True

    def ask(self, kernel: Kernel, description: Description) -> None:
        """Have a kernel compiled for arguments of these types."""
        with self._changed:
            if self._over:
                return
            self._wanted.append((kernel, description))
            self._changed.notify_all()
            if self._thread is None:
                self._thread = Thread(target=self._run, name="nearcast-compiler", daemon=True)
                self._thread.start()

    def settled(self, timeout: float) -> bool:
        """Wait until nothing is asked for any more; whether that came to be."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._wanted or self._working), timeout)

    def end(self) -> None:
        """Stop: the process ends."""
        with self._changed:
            self._over = True
            self._wanted.clear()
            self._changed.notify_all()
            child = self._child
        if child is not None:
            child.end()
        if self._thread is not None:
            self._thread.join(2.0)  # it may be in the middle of an import

    def forget(self) -> None:
        """In a forked process: thread and child are the parent's, the wishes are not."""
        wanted, child = self._wanted, self._child
        self.__init__()  # type: ignore[misc]
        if child is not None:
            child.leave()
        for kernel, description in wanted:
            self._wanted.append((kernel, description))

    def _run(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._over, GRACE)
        while True:
            chosen = self._next()
            if chosen is None:
                return
            try:
                self._fulfil(*chosen)
            except Exception as error:  # also a warning that is an error here
                chosen[0].quietly_refuse(error)
            finally:
                with self._changed:
                    self._working = False
                    self._changed.notify_all()

    def _next(self) -> tuple[Kernel, Description] | None:
        """What took longest so far; None when it is over."""
        with self._changed:
            while not self._over:
                ripe = [a for a in self._wanted if self._keeps or a[0].spent > WORTH]
                if ripe:
                    chosen = max(ripe, key=lambda asked: asked[0].spent)
                    self._wanted.remove(chosen)
                    self._working = True
                    return chosen
                timely = self._changed.wait(IDLE)
                if not timely and self._child is not None:
                    self._child.end()
                    self._child = None
            return None

    def _fulfil(self, kernel: Kernel, description: Description) -> None:
        with stepping:  # what is imported and looked up meanwhile has locks: no fork now
            dispatcher = kernel.dispatcher
            signature = dispatcher.signature(sample(description))
            ready = dispatcher.at_hand(signature)
        if self._keeps and not ready:
            trouble = self._have_compiled(kernel, description)
            if self._over:
                return
            if trouble is not None:
                kernel.refuse(trouble)
                return
            if not dispatcher.at_hand(signature):
                self._keeps = False
                warn_once(
                    "write",
                    f"compiled kernels cannot be kept in {cache_directory()}, and every process "
                    "will compile anew; set NEARCAST_CACHE to a folder with room",
                )
                with self._changed:
                    self._wanted.append((kernel, description))
                return
        with stepping:
            dispatcher.compile(signature)
        kernel.take_over()

    def _have_compiled(self, kernel: Kernel, description: Description) -> str | None:
        """Let the child do it; what went wrong, if anything did."""
        if self._child is None:
            child = _Child()
            with self._changed:
                if self._over:
                    child.end()
                    return None
                self._child = child
        answer = self._child.compiled(kernel.name, description)
        if answer is None:
            code = self._child.end()
            self._child = None
            return f"its compiler ended with {code}"
        return answer or None


def child_environment(**changes: str) -> dict[str, str]:
    """The environment of a process that imports what this one can."""
    paths = [path or os.getcwd() for path in sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}


class _Child:
    """A process that compiles: a request a line, an answer a line; it ends with its input."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", "nearcast.jit.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(NEARCAST_JIT="1"),
            text=True,
            start_new_session=True,  # Ctrl-C is its parent's
        )

    def compiled(self, name: tuple[str, str, int], description: Description) -> str | None:
        """What went wrong, empty if nothing did; None if there is no answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{(name, description)!r}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except (OSError, ValueError):  # it has died, or was let go
            return None
        return str(ast.literal_eval(answer)) if answer else None

    def end(self) -> int:
        """Let it go: what it has put into the cache is whole."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it has died with a request unread
            self._process.stdin.close()
        try:
            return self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def leave(self) -> None:
        """Close this process's ends of a child that is another's."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                os.close(stream.fileno())
        self._process.returncode = 0  # nobody waits for it here


_behind = _Behind()


def ask(kernel: Kernel, description: Description) -> None:
    """Have a kernel compiled, sometime, for arguments of these types."""
    _behind.ask(kernel, description)


def settled(timeout: float = 600.0) -> bool:
    """Wait until what was asked for is compiled; whether it is."""
    return _behind.settled(timeout)


atexit.register(_behind.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_behind.forget)
