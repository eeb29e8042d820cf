"""`python -m nearcast.jit.child`: compiles what it is asked for, and ends with its parent.

A request is a line: the name of a kernel and the types of its arguments. The answer is a line,
too: what went wrong, or nothing. One process at a time compiles for one cache.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread

from nearcast.jit.described import sample
from nearcast.jit.kernel_files import cache_directory
from nearcast.jit.tiers import find

__all__ = ["end_with_input", "main"]


def main() -> None:
    """Serve requests until the input ends."""
    if hasattr(os, "nice"):
        os.nice(10)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what is printed meanwhile is no answer
    requests: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=(requests,), daemon=True).start()
    while True:
        answers.write(f"{_served(requests.get())!r}\n")
        answers.flush()


def _listen(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    end_with_input()


def end_with_input() -> None:
    """End this process when its input ends, that is, when its parent does or lets it go."""
    sys.stdin.read()
    from nearcast.jit.kept import saving

    with saving:  # a file that is being written is moved to its place, or not begun
        os._exit(0)


def _served(request: str) -> str:
    name, description = ast.literal_eval(request)
    try:
        with _alone():
            dispatcher = find(*name).dispatcher
            dispatcher.compile(dispatcher.signature(sample(description)))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: several would compile the same, and the machine has other work."""
    folder = cache_directory()
    try:
        import fcntl

        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "compiling.lock", os.O_RDWR | os.O_CREAT)
    except (ImportError, OSError):  # another system, or no cache: nobody is in the way
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


if __name__ == "__main__":
    main()
